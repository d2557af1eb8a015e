"""One attempt at a target, its call, usage, failure and outcome."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from enum import StrEnum
from functools import cached_property
from io import StringIO
from typing import NamedTuple, Protocol

from msgspec import Raw, Struct

from router.types.price import Cost, usd_json
from router.types.request import UNKNOWN, Endpoint, Languages, Request, TokensRead
from router.types.target import Target, Task, Timeouts

# The canonical usage record: disjoint token buckets of one attempt, and where each count comes from.


class CountSource(StrEnum):
    """Where a count comes from; `unknown` counts are None, never 0."""

    REPORTED = "reported"
    DERIVED = "derived"
    ESTIMATED = "estimated"
    UNKNOWN = "unknown"


UNREADABLE_USAGE = "a report that can't be read"
"""A violation: beside it, the counts of a usage are none."""
CACHED_BESIDE = "cached tokens are not within the prompt"
THOUGHT_BESIDE = "more reasoning than output"
"""Violations that make the larger reading doubtful: it is believed up to what was sent, and what was allowed."""


class UsageTotals(NamedTuple):
    """Sums of the buckets: input and output, and input tokens read from a cache and written to one."""

    input: int
    output: int
    cached: int
    written: int


class Usage(Struct, frozen=True, kw_only=True, dict=True):
    """Tokens of one attempt in disjoint buckets; their sum is what the provider bills.

    `output_reasoning` is None when the provider does not split its output: then all output is in `output_visible`.
    """

    input_uncached: int = 0
    cache_read: int = 0
    cache_read_explicit: int = 0
    """From a cache that the request asked for, where the provider tells it apart."""
    cache_read_audio: int = 0
    cache_write: int = 0
    """Kept for the provider's default time."""
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
    """What is not counted in tokens, e.g. {"web_search": 2}: calls of the provider's tools, images, seconds."""
    source: CountSource = CountSource.REPORTED
    reasoning_source: CountSource = CountSource.UNKNOWN
    provider_cost: int | None = None
    """nano-USD, when the provider states what it charges (OpenRouter, xAI)."""
    service_tier: str = ""
    """As served, where the provider says so; empty is standard or unknown."""
    region_served: str = ""
    violations: tuple[str, ...] = ()
    """Invariants that the provider's report broke; the buckets then hold the larger reading."""

    @cached_property
    def totals(self) -> UsageTotals:
        cached = self.cache_read + self.cache_read_explicit + self.cache_read_audio
        written = self.cache_write + self.cache_write_1h + self.cache_write_12h
        media, shown = self.input_audio + self.input_image + self.input_video, self.output_audio + self.output_image
        output = self.output_visible + (self.output_reasoning or 0) + shown + self.output_video
        return UsageTotals(self.input_uncached + cached + written + media, output, cached, written)


# Usage as the endpoint's clients read it, with the cost in USD. Unknown reasoning is null, never 0.


def usage_json(endpoint: Endpoint, usage: Usage, cost: int) -> bytes:
    """`cost` in nano-USD: what the whole request cost, failed attempts included."""
    tokens_in, tokens_out, cached, written = usage.totals
    reasoning = b"null" if usage.output_reasoning is None else b"%d" % usage.output_reasoning
    if endpoint is Endpoint.MESSAGES:
        return _MESSAGES % (tokens_in - cached - written, written, cached, tokens_out, usd_json(cost))
    if endpoint is Endpoint.EMBEDDINGS:
        return b'{"prompt_tokens":%d,"total_tokens":%d,"cost":%b}' % (tokens_in, tokens_in, usd_json(cost))
    return _FORMS[endpoint is Endpoint.RESPONSES] % (
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


_CHAT = (
    b'{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d,'
    b'"prompt_tokens_details":{"cached_tokens":%d,"cache_write_tokens":%d,"audio_tokens":%d},'
    b'"completion_tokens_details":{"reasoning_tokens":%b,"audio_tokens":%d},"cost":%b}'
)
_MESSAGES = (
    b'{"input_tokens":%d,"cache_creation_input_tokens":%d,"cache_read_input_tokens":%d,"output_tokens":%d,"cost":%b}'
)
_FORMS = (_CHAT, _CHAT.replace(b"prompt", b"input").replace(b"completion", b"output"))
"""Of chat, and of the Responses API."""


# How an attempt at an upstream can fail, as a value.


class ErrorKind(StrEnum):
    """How an attempt at an upstream can fail. Closed: every kind has its row in `router.errors.TABLE`."""

    CONNECT = "connect"
    TIMEOUT = "timeout"
    RATE_LIMITED = "rate_limited"
    OVERLOADED = "overloaded"
    SATURATED = "saturated"
    """A local engine's queue is full: no fault, and another one is asked at once."""
    SERVER_ERROR = "server_error"
    BAD_RESPONSE = "bad_response"
    CUT = "cut"
    AUTH = "auth"
    QUOTA = "quota"
    MODEL_MISSING = "model_missing"
    MISDIRECTED = "misdirected"
    """A redirect, or a status that says that this address does not answer such requests."""
    CONTEXT_LENGTH = "context_length"
    CONTENT_FILTER = "content_filter"
    BAD_REQUEST = "bad_request"
    CIRCUIT_OPEN = "circuit_open"
    BUDGET = "budget"


class Failure(Struct, frozen=True):
    """`message` may quote the provider; `status` is the upstream's, `param` names the field that it refused."""

    kind: ErrorKind
    message: str
    status: int | None = None
    retry_after_s: float | None = None
    param: str | None = None
    limits: tuple[tuple[str, str], ...] = ()
    """The upstream's own headers about its limits: the client paces itself by them."""


# How good an answer was: what verifiers, judges and clients say, and what estimates learn from.

PASSED = 0.5
"""A score of at least so much is a pass."""


class ToolCall(Struct, frozen=True):
    name: str
    arguments: str
    """JSON, as the model wrote it."""


class AnswerChoice(Struct, frozen=True, kw_only=True):
    """One choice of what a target answered, as far as it can be judged. Its text goes nowhere but to verifiers."""

    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    refusal: str = ""
    finish_reason: str = ""


class Verdict(Struct, frozen=True):
    """`score`: 0 (wrong) … 1 (right); None: nothing can be said (it does not apply, it crashed, it hung)."""

    verifier: str
    score: float | None

    @property
    def passed(self) -> bool:
        return self.score is not None and self.score >= PASSED


class VerifierRequest(Struct, frozen=True, kw_only=True):
    """What a verifier is told. `classes`: of the request, which bind whoever looks at it."""

    request: Request
    target: Target
    """Whose answer it is."""
    answers: tuple[AnswerChoice, ...]
    """One for each choice; all must be right."""
    classes: frozenset[str]


Verify = Callable[[VerifierRequest], Awaitable[Sequence[Verdict]]]
"""All verifiers of a route. Never raises, never hangs: what breaks says nothing, and is counted."""


CLIENT, REVIEWER = "client", "reviewer"
"""First words of the source of feedback: who asked says so, or a key that may judge all answers."""


class Outcome(Struct, frozen=True, kw_only=True):
    """One score of one answer with all that learning needs, so that any process can learn from it later."""

    request_id: str
    target: str
    source: str
    """"verifier.NAME", "judge", "client", "reviewer.KEY" …"""
    score: float
    task: Task
    traits: bytes
    """`Reading.traits`, one signed byte each."""
    expected: float | None
    """The pass rate that was expected of the target; None: its route went by none."""
    given_ms: int
    template: str = ""
    """`Classification.template`."""
    weight: float = 1.0
    """How much it counts; below 0: what was observed so before is taken back, as a later score stands in its place."""


class Alarm(Struct, frozen=True):
    """A target is not what it was: widen what is known of it."""

    target: str
    kind: str
    """"pass_rate", "fingerprint" or "model"."""
    before: float | str
    """The pass rate, or the name seen last."""
    after: float | str
    at_ms: int


def accepted(verdicts: Sequence[Verdict]) -> bool | None:
    """Whether an answer passes: nobody says no, and somebody says yes. None: nobody says anything."""
    scored = [verdict for verdict in verdicts if verdict.score is not None]
    return all(verdict.passed for verdict in scored) if scored else None


# What happened at one target.


class Attempt(Struct, frozen=True, kw_only=True):
    """One call of one target: how it ended and what it cost. Times in ms; `first_ms` until the first body byte."""

    target: Target
    outcome: str
    """"ok", an `ErrorKind`, "client_gone", or "outrun" where another target was quicker."""
    started_ms: int
    total_ms: int
    first_ms: int | None = None
    status: int | None = None
    usage: Usage | None = None
    cost: Cost
    finish_reason: str = ""
    answered: bool = False
    """There was something for the client, not only thoughts."""
    model_served: str = ""
    thinking: str = "none"
    dropped: tuple[str, ...] = ()
    classes: frozenset[str] = frozenset()
    """Of what was sent: all that bound. Empty: not known."""
    redacted: bool = False
    region: str = ""
    """Where it was served: verified where the provider says so, else as the target states."""
    region_verified: bool = False
    """The provider says so; that it is not the target's region is an incident."""
    role: str = ""
    """Why it was made: as a level of a "cascade", as a sample of a "vote", as a "hedge"; empty: to answer."""
    passed_over: bool = False
    """It was answered, but the client was not given this answer."""
    verdicts: tuple[Verdict, ...] = ()
    """Of its answer, where that was looked at before it was given."""
    sample: "AttemptSample | None" = None
    """What it taught of its target when it ended."""


# What goes to an upstream and what comes back; the two ports that adapters implement.


class Call(Struct, frozen=True, kw_only=True):
    """One attempt, in OpenAI's vocabulary. `body` is the client's, field by field, untouched."""

    target: Target
    endpoint: Endpoint
    body: dict[str, Raw]
    model: str
    """What the client asked for; every answer is stamped with it."""
    request_id: str = ""
    stream: bool = False
    stream_usage: bool = False
    """The client asked for a usage chunk."""
    n: int = 1
    max_output: int | None = None
    """Upper bound on output tokens to send, or None to leave the client's own."""
    effort: str | None = None
    thinking_budget: int | None = None
    languages: Languages = UNKNOWN
    """For templates of targets that only complete texts."""
    private: bool = False
    """What it holds must neither be kept nor trained on: said to the provider wherever its wire has a word for it."""


class UpstreamRequest(Struct, frozen=True):
    """An HTTP request; `headers` hold everything but Host and Content-Length. `path` is below the target's base URL."""

    method: str
    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    thinking: str = "none"
    """The thinking control that the body really carries, e.g. "effort=low" or "budget=1024"."""
    request_id: str = ""
    """Sent as x-request-id, apart from `headers`, which are the same for every request to a target."""
    dropped: tuple[str, ...] = ()
    """Fields of the client's that the provider does not have."""
    fields: Mapping[str, Raw] = {}
    """What `body` is the encoding of, where the client's own fields go out: such text is not scanned again."""


class UpstreamResponse(Protocol):
    """Status and headers have arrived; the body may still be on its way."""

    @property
    def status(self) -> int: ...
    @property
    def headers(self) -> Mapping[str, str]:
        """Names in lower case."""
        ...

    async def read(self) -> bytes:
        """The whole body."""
        ...

    buffered: int
    """Bytes of the body that have come and that no reader was given yet."""

    def chunks(self, *, looks: bool = False) -> AsyncIterator[bytes]:
        """The body as it arrives. `looks`: an empty chunk comes where nothing else did for some 50 ms."""
        ...

    @property
    def arrived_ms(self) -> float | None:
        """When the last byte of a stream came, by `clock_ms`; None before that, and where its reader held it up."""
        ...

    def close(self, *, complete: bool = False) -> None:
        """Give the connection back, or cut it if the body is unread: that cancels the upstream's work. `complete`: the
        body has said that it is over, so its end may still come."""
        ...

    def unread(self) -> tuple[bytes, int]:
        """Of a stream that was closed: what had come of it and was not read, and how many bytes lay in its socket."""
        ...


class Transport(Protocol):
    """Carries bytes to an upstream. Raises `UpstreamFailure` for everything that goes wrong on the way."""

    async def send(self, base_url: str, request: UpstreamRequest, timeouts: Timeouts) -> UpstreamResponse: ...


class TargetReply(Struct, frozen=True, kw_only=True):
    """A whole answer in OpenAI's form of the call's endpoint, stamped with the client's model, without `usage`."""

    body: dict[str, Raw]
    usage: Usage | None
    finish_reason: str = ""
    has_answer: bool = True
    """Visible text, a refusal, a tool call or an embedding is there."""
    text: str = ""
    """Of its choices, thoughts and calls, where these were read."""
    content: str = ""
    """What the message of its first choice says."""
    model_served: str = ""
    region_served: str = ""
    """Where the provider says that it was processed; empty where it says nothing."""


SMALL_LETTERS = bytes(range(97, 123))
ASCII = bytes(range(128))
LONGEST_WORD = 12
"""Small letters for each blank: more of them are no words, as in base64."""


class TextBytes(NamedTuple):
    """Bytes of a text in UTF-8, by kinds whose tokens differ in size: of words in small letters, each with the blank
    before it; of all else in ASCII (digits, marks, capitals, random letters); beyond ASCII."""

    words: int = 0
    dense: int = 0
    wide: int = 0


class OutputText(StringIO):
    """The text of a stream, which is counted when `sizes` is asked for: writing costs next to nothing."""

    _size = _small = _blanks = _wide = 0

    def sizes(self) -> TextBytes:
        data = self.getvalue().encode()
        self.seek(0)
        self.truncate()
        others = data.translate(None, SMALL_LETTERS)
        self._size += len(data)
        self._small += len(data) - len(others)
        self._blanks += others.count(b" ")
        if not data.isascii():
            self._wide += len(others.translate(None, ASCII))
        small = min(self._small, LONGEST_WORD * (self._blanks + 1))
        words = small + min(self._blanks, small)
        return TextBytes(words, self._size - words - self._wide, self._wide)


class StreamDecoder(Protocol):
    """Turns an upstream's stream into the SSE events that OpenAI would send at the call's endpoint.

    `feed` returns whole, client-ready events stamped with the client's model, with every usage object taken out and
    without `[DONE]`; it raises `UpstreamFailure` on an error event and on malformed data. `final` returns what is left
    to send once the answer is priced. What was learned on the way is in the attributes,
    whose values here are what a subclass begins with.
    """

    usage: Usage | None = None
    finish_reason: str = ""
    has_answer: bool = False
    finished: bool = False
    """The upstream ended its stream in its own regular way; False at the end of the bytes means that it was cut."""
    complete: bool = False
    """It had the protocol's last event (`[DONE]`, `message_stop`): nothing more is waited for."""
    model_served: str = ""
    region_served: str = ""
    output_chars: int = 0
    """Bytes of output seen (visible and thinking), for an estimate where usage is missing."""
    text: OutputText
    """All of them."""

    def feed(self, data: bytes) -> bytes: ...

    def final(self, usage: bytes) -> bytes:
        """The closing events; `usage` is the JSON usage object of the call's endpoint, with its cost."""
        ...


class Adapter(Protocol):
    """One wire format. Pure: no I/O, no state between calls."""

    def encode(self, call: Call) -> UpstreamRequest: ...

    def decode(self, call: Call, body: bytes) -> TargetReply:
        """A 2xx body; raises `UpstreamFailure` when it is not what the wire promises."""
        ...

    def stream(self, call: Call) -> StreamDecoder: ...

    def failure(self, status: int, headers: Mapping[str, str], body: bytes) -> Failure:
        """What a non-2xx answer means."""
        ...


# What the gateway learns from an attempt that ended.


class AttemptSample(Struct, frozen=True, kw_only=True):
    """One finished attempt. Tokens per choice; `None` is "not told apart" or "not known"."""

    target: str
    effort: str = ""
    """The level that was asked for: `Fit.effort`, else `Estimate.effort`."""
    task: Task | None = Task.CHAT
    """None: its text was not read, so that it teaches nothing of how answers follow from that."""
    template: str = ""
    """`Estimate.template`."""
    script: str = ""
    """`Estimate.script`."""
    read: TokensRead = TokensRead()
    """0: not known any more, so that it teaches quantiles only."""
    output: int | None = None
    thinking: int | None = None
    input: int | None = None
    expected_input: int = 0
    """`Estimate.input_rough`."""
    text: TextBytes = TextBytes()
    """Of the stream, thoughts included, where all of it was seen; per choice."""
    largest: float = 0
    """Bytes of the largest piece of the stream; per choice."""
    past_cap: int = 0
    """Tokens of an answer that ran on past the cap that was sent."""
    kept_cap: bool = False
    """It ended at the cap that was sent, for that."""
    first_ms: int | None = None
    """Of a stream."""
    total_ms: int = 0
    ended_ms: int = 0
    """When (Unix)."""
    cut: bool = False
    """By a cap, the budget, a fault or the client: the answer would have been at least so long."""


# One row of the shared log of outcomes: what was said of an answer, and all that learning from it needs.


class SourceScore(Struct, frozen=True, kw_only=True):
    """What one source says of one attempt. `score`: 0 … 1; None: it contradicted itself, so it says nothing."""

    request_id: str
    attempt: int
    target: str
    source: str
    """"client", "client.NAME", "reviewer.KEY", "verifier.NAME" or "judge.TARGET"."""
    score: float | None
    weight: float = 1.0
    """0: kept, and not learned from."""
    decides: bool = True
    """Its yes means that the answer is right. Else it means that nothing wrong was seen, so nothing changes."""
    key: str = ""
    """The client's own, against telling the same thing twice."""


class LoggedOutcome(Struct, frozen=True, kw_only=True):
    """What `SourceScore` became. `position` grows; a later row of the same source and attempt replaces the earlier."""

    position: int
    request_id: str
    attempt: int
    target: str
    source: str
    score: float | None
    weight: float
    was_score: float | None
    """Of the row that it replaces; None: there was none, or it said nothing."""
    was_weight: float
    was_ms: int | None
    decides: bool
    task: str
    traits: str
    """Base64 of `Outcome.traits`; empty: nobody looked at the request, so nothing can be learned."""
    template: str
    """`Outcome.template`."""
    expected: float | None
    """The pass rate that was expected of the target; None: nothing was."""
    given_ms: int
