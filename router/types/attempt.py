"""An attempt at a target: its call, usage, failure and outcome."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from enum import StrEnum
from functools import cached_property
from io import StringIO
from typing import NamedTuple, Protocol

from msgspec import Raw, Struct

from router.types.price import Cost, usd_json
from router.types.request import UNKNOWN, Endpoint, Languages, Request, TokensRead
from router.types.target import Target, Task, Timeouts

# The canonical usage record: disjoint token buckets of one attempt, and the source of each count.


class CountSource(StrEnum):
    """Source of a token count. Counts whose source is `unknown` are None, never 0."""

    REPORTED = "reported"
    DERIVED = "derived"
    ESTIMATED = "estimated"
    UNKNOWN = "unknown"


UNREADABLE_USAGE = "a report that can't be read"
"""Violation: the provider's usage report can't be read. The counts beside it mean nothing."""
CACHED_BESIDE = "cached tokens are not within the prompt"
THOUGHT_BESIDE = "more reasoning than output"
"""Violations that make the larger reading doubtful: it is limited to the estimated input bound or the sent cap."""


class UsageTotals(NamedTuple):
    """Sums of the buckets: all input and output tokens, and the input tokens read from and written to caches."""

    input: int
    output: int
    cached: int
    written: int


class Usage(Struct, frozen=True, kw_only=True, dict=True):
    """Tokens of one attempt in disjoint buckets, whose sum is what the provider bills.

    `output_reasoning` is None if the provider does not split its output; then all output is in `output_visible`.
    """

    input_uncached: int = 0
    cache_read: int = 0
    cache_read_explicit: int = 0
    """Tokens read from a cache that the request asked for, where the provider reports them separately."""
    cache_read_audio: int = 0
    cache_write: int = 0
    """Tokens written to a cache for the provider's default lifetime."""
    cache_write_1h: int = 0
    cache_write_12h: int = 0
    input_audio: int = 0
    input_image: int = 0
    input_video: int = 0
    output_visible: int = 0
    output_reasoning: int | None = None
    output_audio: int = 0
    output_image: int = 0
    output_video: int = 0
    units: Mapping[str, int] = {}
    """Billed items other than tokens, such as {"web_search": 2}: calls of the provider's tools, images, seconds."""
    source: CountSource = CountSource.REPORTED
    reasoning_source: CountSource = CountSource.UNKNOWN
    provider_cost: int | None = None
    """Cost in nano-USD as stated by the provider (OpenRouter, xAI); None if it states none."""
    service_tier: str = ""
    """Service tier as served, according to the provider; empty if standard or unknown."""
    region_served: str = ""
    violations: tuple[str, ...] = ()
    """Invariants that the provider's report breaks. The buckets then hold the larger reading."""

    @cached_property
    def totals(self) -> UsageTotals:
        cached = self.cache_read + self.cache_read_explicit + self.cache_read_audio
        written = self.cache_write + self.cache_write_1h + self.cache_write_12h
        media, shown = self.input_audio + self.input_image + self.input_video, self.output_audio + self.output_image
        output = self.output_visible + (self.output_reasoning or 0) + shown + self.output_video
        return UsageTotals(self.input_uncached + cached + written + media, output, cached, written)


# Usage in the form of the client's endpoint, with the cost in USD. Unknown reasoning is null, never 0.


def usage_json(endpoint: Endpoint, usage: Usage, cost: int) -> bytes:
    """Returns the usage object as JSON. `cost` is that of the whole request in nano-USD, failed attempts included."""
    tokens_in, tokens_out, cached, written = usage.totals
    reasoning = b"null" if usage.output_reasoning is None else b"%d" % usage.output_reasoning
    if endpoint is Endpoint.MESSAGES:
        return _MESSAGES_USAGE % (tokens_in - cached - written, written, cached, tokens_out, usd_json(cost))
    if endpoint is Endpoint.EMBEDDINGS:
        return b'{"prompt_tokens":%d,"total_tokens":%d,"cost":%b}' % (tokens_in, tokens_in, usd_json(cost))
    return _USAGE_FORMATS[endpoint is Endpoint.RESPONSES] % (
        tokens_in,
        tokens_out,
        tokens_in + tokens_out,
        cached,
        written,
        usage.input_audio,
        reasoning,
        usage.output_audio,
        usd_json(cost),
    )


_CHAT_USAGE = (
    b'{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d,'
    b'"prompt_tokens_details":{"cached_tokens":%d,"cache_write_tokens":%d,"audio_tokens":%d},'
    b'"completion_tokens_details":{"reasoning_tokens":%b,"audio_tokens":%d},"cost":%b}'
)
_MESSAGES_USAGE = (
    b'{"input_tokens":%d,"cache_creation_input_tokens":%d,"cache_read_input_tokens":%d,"output_tokens":%d,"cost":%b}'
)
_USAGE_FORMATS = (_CHAT_USAGE, _CHAT_USAGE.replace(b"prompt", b"input").replace(b"completion", b"output"))
"""Formats for Chat Completions and for the Responses API."""


# How an attempt at an upstream can fail, as a value.


class ErrorKind(StrEnum):
    """How an attempt at an upstream can fail. Each kind has a row in `router.errors.TABLE`."""

    CONNECT = "connect"
    TIMEOUT = "timeout"
    RATE_LIMITED = "rate_limited"
    OVERLOADED = "overloaded"
    SATURATED = "saturated"
    """The queue of a local engine is full. This is no fault; another target or replica is asked at once."""
    SERVER_ERROR = "server_error"
    BAD_RESPONSE = "bad_response"
    CUT = "cut"
    AUTH = "auth"
    QUOTA = "quota"
    MODEL_MISSING = "model_missing"
    MISDIRECTED = "misdirected"
    """A redirect, or a status which means that the address does not serve such requests."""
    CONTEXT_LENGTH = "context_length"
    CONTENT_FILTER = "content_filter"
    BAD_REQUEST = "bad_request"
    CIRCUIT_OPEN = "circuit_open"
    BUDGET = "budget"


class Failure(Struct, frozen=True):
    """A failed attempt. `message` may quote the provider; `status` is the upstream's; `param` the field it refused."""

    kind: ErrorKind
    message: str
    status: int | None = None
    retry_after_s: float | None = None
    param: str | None = None
    limits: tuple[tuple[str, str], ...] = ()
    """The upstream's own rate-limit headers, which are passed on to the client."""


# How good an answer was: what verifiers, judges and clients report, and what estimates learn from.

PASSED = 0.5
"""Minimum score of a pass."""


class ToolCall(Struct, frozen=True):
    name: str
    arguments: str
    """Arguments as JSON, as the model wrote them."""


class AnswerChoice(Struct, frozen=True, kw_only=True):
    """One choice of a target's answer, as far as it can be judged. Only verifiers and judges see its text."""

    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    refusal: str = ""
    finish_reason: str = ""


class Verdict(Struct, frozen=True):
    """A verifier's score from 0 (wrong) to 1 (right); None if it does not apply, crashed or timed out."""

    verifier: str
    score: float | None

    @property
    def passed(self) -> bool:
        return self.score is not None and self.score >= PASSED


class VerifierRequest(Struct, frozen=True, kw_only=True):
    """Input of a verifier. `classes` are the request's data classes, which limit where a verifier may send it."""

    request: Request
    target: Target
    answers: tuple[AnswerChoice, ...]
    """One entry for each choice. All of them must be right."""
    classes: frozenset[str]


Verify = Callable[[VerifierRequest], Awaitable[Sequence[Verdict]]]
"""Runs all verifiers of a route. Never raises and never hangs: a verifier that fails gives no score and is counted."""


CLIENT, REVIEWER = "client", "reviewer"
"""First word of the source of feedback: the client that made the request, or a key that may judge all answers."""


class Outcome(Struct, frozen=True, kw_only=True):
    """One score of one answer, with everything that learning needs, so that any process can learn from it later."""

    request_id: str
    target: str
    source: str
    """Source of the score, such as `verifier.NAME`, `judge`, `client` or `reviewer.KEY`."""
    score: float
    task: Task
    traits: bytes
    """`Reading.traits`, one signed byte for each trait."""
    expected: float | None
    """Pass rate that was expected of the target; None if its route made no forecast."""
    given_ms: int
    template: str = ""
    weight: float = 1.0
    """Weight in learning. A negative weight takes back an earlier observation that a later score replaces."""


class Alarm(Struct, frozen=True):
    """A sign that a target has changed, so that the uncertainty of its estimates must be widened."""

    target: str
    kind: str
    """What changed: `pass_rate`, `fingerprint` or `model`."""
    before: float | str
    """Pass rate before the change, or the name that was seen last."""
    after: float | str
    at_ms: int


def accepted(verdicts: Sequence[Verdict]) -> bool | None:
    """Returns whether an answer passes: all verdicts that have a score are passes. None if no verdict has a score."""
    scored = [verdict for verdict in verdicts if verdict.score is not None]
    return all(verdict.passed for verdict in scored) if scored else None


# What happened at one target.


class Attempt(Struct, frozen=True, kw_only=True):
    """One call of one target: how it ended and what it cost. Times in ms; `first_ms` is when the body's first byte
    came."""

    target: Target
    outcome: str
    """`ok`, an `ErrorKind`, `client_gone`, or `outrun` if another target was quicker."""
    started_ms: int
    total_ms: int
    first_ms: int | None = None
    status: int | None = None
    usage: Usage | None = None
    cost: Cost
    finish_reason: str = ""
    answered: bool = False
    """Whether there was output for the client, and not only thinking."""
    model_served: str = ""
    thinking: str = "none"
    dropped: tuple[str, ...] = ()
    classes: frozenset[str] = frozenset()
    """All data classes of what was sent; empty if unknown."""
    redacted: bool = False
    region: str = ""
    """Region that served the attempt: as the provider states it, else as the target is configured."""
    region_verified: bool = False
    """Whether the provider stated the region. If it is not the target's region, that is an incident."""
    role: str = ""
    """Role in a tactic: a level of a `cascade`, a sample of a `vote`, or a `hedge`; empty for an ordinary attempt."""
    passed_over: bool = False
    """Whether it was answered, but the client was given another answer."""
    verdicts: tuple[Verdict, ...] = ()
    """Verdicts on its answer, if that was verified before the client got it."""
    sample: "AttemptSample | None" = None
    """What was learned of the target when the attempt ended."""


# What is sent to an upstream and what comes back, and the two ports that adapters implement.


class Call(Struct, frozen=True, kw_only=True):
    """One attempt in OpenAI's vocabulary. `body` has the client's own fields, unchanged."""

    target: Target
    endpoint: Endpoint
    body: dict[str, Raw]
    model: str
    """Model that the client asked for. Every answer carries this name."""
    request_id: str = ""
    stream: bool = False
    stream_usage: bool = False
    """Whether the client asked for a usage chunk."""
    n: int = 1
    max_output: int | None = None
    """Maximum number of output tokens to send; None to keep the client's own."""
    effort: str | None = None
    thinking_budget: int | None = None
    languages: Languages = UNKNOWN
    """Languages of the request, for prompt templates of targets that only complete texts."""
    private: bool = False
    """Whether the content must be neither kept nor trained on. Adapters tell this to providers whose API can express
    it."""


class UpstreamRequest(Struct, frozen=True):
    """An HTTP request. `headers` has all but Host and Content-Length; `path` is relative to the target's base URL."""

    method: str
    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    thinking: str = "none"
    """Thinking control that the body carries, e.g. `effort=low` or `budget=1024`."""
    request_id: str = ""
    """Value of the x-request-id header, apart from `headers`, which are the same for all requests to a target."""
    dropped: tuple[str, ...] = ()
    """Fields of the client that the provider does not support."""
    fields: Mapping[str, Raw] = {}
    """Client fields that `body` contains unchanged, so that the egress filter need not scan them again."""


class UpstreamResponse(Protocol):
    """An upstream's response, whose status and headers have arrived. The body may still be on its way."""

    @property
    def status(self) -> int: ...
    @property
    def headers(self) -> Mapping[str, str]:
        """Headers by name in lower case."""
        ...

    async def read(self) -> bytes:
        """Returns the whole body."""
        ...

    buffered: int
    """Number of bytes of the body that have arrived and were not yet read."""

    def chunks(self, *, looks: bool = False) -> AsyncIterator[bytes]:
        """Yields the body as it arrives; with `looks`, also an empty chunk if nothing arrived for about 50 ms."""
        ...

    @property
    def arrived_ms(self) -> float | None:
        """When a stream's last byte arrived, by `clock_ms`. None before that, or if a slow reader delayed it."""
        ...

    def close(self, *, complete: bool = False) -> None:
        """Gives the connection back, or cuts it if the body is unread, which cancels the upstream's work. `complete`:
        the body's own end was read, so the end of the response may still arrive."""
        ...

    def unread(self) -> tuple[bytes, int]:
        """Returns what had arrived of a closed stream and was not read, and how many bytes lay in its socket."""
        ...


class Transport(Protocol):
    """Carries bytes to an upstream. Raises `UpstreamFailure` for anything that goes wrong on the way."""

    async def send(self, base_url: str, request: UpstreamRequest, timeouts: Timeouts) -> UpstreamResponse: ...


class TargetReply(Struct, frozen=True, kw_only=True):
    """A whole answer in OpenAI's form for the call's endpoint, with the client's model name and without `usage`."""

    body: dict[str, Raw]
    usage: Usage | None
    finish_reason: str = ""
    has_answer: bool = True
    """Whether it has visible text, a refusal, a tool call or an embedding."""
    text: str = ""
    """Text of all choices, with thinking and tool calls, if these were read."""
    content: str = ""
    model_served: str = ""
    region_served: str = ""
    """Region that processed the request, as the provider states it; empty if it states none."""


SMALL_LETTERS = bytes(range(97, 123))
ASCII = bytes(range(128))
LONGEST_WORD = 12
"""Maximum number of small letters per blank in words. Text with more, such as base64, is not words."""


class TextBytes(NamedTuple):
    """Sizes of a UTF-8 text in bytes, by kinds whose tokens differ in size: `words` in small letters, each with the
    blank before it; `dense`, all other ASCII (digits, marks, capitals, random letters); `wide`, beyond ASCII."""

    words: int = 0
    dense: int = 0
    wide: int = 0


class OutputText(StringIO):
    """The text of a stream. It is counted only when `sizes` is called, so that writing is cheap."""

    _total = _small_letters = _blanks = _wide = 0

    def sizes(self) -> TextBytes:
        data = self.getvalue().encode()
        self.seek(0)
        self.truncate()
        others = data.translate(None, SMALL_LETTERS)
        self._total += len(data)
        self._small_letters += len(data) - len(others)
        self._blanks += others.count(b" ")
        if not data.isascii():
            self._wide += len(others.translate(None, ASCII))
        small = min(self._small_letters, LONGEST_WORD * (self._blanks + 1))
        words = small + min(self._blanks, small)
        return TextBytes(words, self._total - words - self._wide, self._wide)


class StreamDecoder(Protocol):
    """Turns an upstream's stream into the SSE events that OpenAI would send at the call's endpoint.

    `feed` returns complete events for the client with the client's model name, without usage objects and without
    `[DONE]`. It raises `UpstreamFailure` on an error event and on malformed data. `final` returns the remaining events
    once the answer is priced. The attributes hold what was learned from the stream; their values here are the initial
    ones.
    """

    usage: Usage | None = None
    finish_reason: str = ""
    has_answer: bool = False
    finished: bool = False
    """Whether the upstream ended its stream regularly. False at the end of the bytes means that it was cut."""
    complete: bool = False
    """Whether the protocol's last event (`[DONE]`, `message_stop`) was read, so that nothing more is awaited."""
    model_served: str = ""
    region_served: str = ""
    output_chars: int = 0
    """Bytes of output seen, visible and thinking, for an estimate if usage is missing."""
    text: OutputText
    """Text of the stream, visible and thinking."""

    def feed(self, data: bytes) -> bytes: ...

    def final(self, usage: bytes) -> bytes:
        """Returns the closing events. `usage` is the usage object in JSON for the call's endpoint, with its cost."""
        ...


class Adapter(Protocol):
    """One wire format. Does no I/O and keeps no state between calls."""

    def encode(self, call: Call) -> UpstreamRequest: ...

    def decode(self, call: Call, body: bytes) -> TargetReply:
        """Decodes the body of a 2xx response. Raises `UpstreamFailure` if it does not follow the wire format."""
        ...

    def stream(self, call: Call) -> StreamDecoder: ...

    def failure(self, status: int, headers: Mapping[str, str], body: bytes) -> Failure:
        """Returns what a non-2xx response means."""
        ...


# What the gateway learns from an attempt that ended.


class AttemptSample(Struct, frozen=True, kw_only=True):
    """One finished attempt. Token counts are per choice; None if not reported separately or unknown."""

    target: str
    effort: str = ""
    """Effort level that was asked for: `Call.effort`, else `Estimate.effort`."""
    task: Task | None = Task.CHAT
    """Task of the request; None if its text was not read, so that nothing is learned about such texts."""
    template: str = ""
    script: str = ""
    """Kind of input, as in `Estimate.script`."""
    read: TokensRead = TokensRead()
    """Expected answer of the request; zeros if no longer known, so that only quantiles are learned."""
    output: int | None = None
    thinking: int | None = None
    input: int | None = None
    expected_input: int = 0
    """Rough token count of the prompt, as in `Estimate.input_rough`."""
    text: TextBytes = TextBytes()
    """Text of a completely received stream, thinking included; per choice."""
    largest: float = 0
    """Bytes of the largest piece of the stream; per choice."""
    past_cap: int = 0
    """Output tokens of an answer that exceeded the cap that was sent; otherwise 0."""
    kept_cap: bool = False
    """Whether the answer ended at the cap that was sent, because of that cap."""
    first_ms: int | None = None
    """Time until the first byte of a stream; None if not streamed."""
    total_ms: int = 0
    ended_ms: int = 0
    cut: bool = False
    """Whether a cap, the budget, a fault or the client cut the answer, which would have been at least this long."""


# A row of the shared log of outcomes: what was reported of an answer, and all that learning from it needs.


class SourceScore(Struct, frozen=True, kw_only=True):
    """One source's score of one attempt, from 0 to 1; None if the source contradicted itself and has no opinion."""

    request_id: str
    attempt: int
    target: str
    source: str
    """`client`, `client.NAME`, `reviewer.KEY`, `verifier.NAME` or `judge.TARGET`."""
    score: float | None
    weight: float = 1.0
    """Weight in learning; 0 if the score is kept but not learned from."""
    decides: bool = True
    """Whether a pass means that the answer is right. Otherwise it only means that nothing wrong was seen."""
    key: str = ""
    """The client's own key, which prevents that the same feedback counts twice."""


class LoggedOutcome(Struct, frozen=True, kw_only=True):
    """A `SourceScore` as logged. `position` grows; a later row of the same source and attempt replaces the earlier."""

    position: int
    request_id: str
    attempt: int
    target: str
    source: str
    score: float | None
    weight: float
    was_score: float | None
    """Score of the replaced row; None if there was none, or it had no score."""
    was_weight: float
    was_ms: int | None
    decides: bool
    task: str
    traits: str
    """`Outcome.traits` in Base64; empty if the request was not read, so that nothing can be learned."""
    template: str
    expected: float | None
    """Pass rate that was expected of the target; None if none was."""
    given_ms: int
