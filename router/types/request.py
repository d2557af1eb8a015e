"""A parsed request, its caller, and its classification."""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from functools import cached_property
from hashlib import blake2b
from math import exp
from typing import Annotated, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np
from msgspec import Meta, Raw, Struct
from numpy.typing import NDArray

from router.types.clock import now_ms
from router.types.target import Capability, Task

# The languages that a request is about.


class Languages(Struct, frozen=True):
    """Languages as ISO 639-1 codes and English names; empty if unclear."""

    source: str = ""
    target: str = ""
    """Language that the text is to be translated into, if the request says so."""
    source_name: str = ""
    target_name: str = ""
    text: str = ""
    """The user's last message, without the instruction that precedes its text ("Translate into French: …")."""

    def __repr__(self) -> str:
        return f"Languages({self.source!r}, {self.target!r})"


UNKNOWN = Languages()


# Lengths of time in readable form: 30m, 36h, 7d.

DAY_MS = 86_400_000
LONGEST_S = 3_660 * 86_400
"""Maximum length of time in seconds: ten years."""
_DURATION = re.compile(r"([1-9]\d{0,5})([smhdw])")
_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


def seconds(text: str) -> int:
    """Converts a length of time to seconds, e.g. "36h" to 129600. Raises ValueError that says what to write instead."""
    match = _DURATION.fullmatch(text)
    length = int(match[1]) * _UNIT_SECONDS[match[2]] if match else 0
    if not 0 < length <= LONGEST_S:
        raise ValueError("write a length such as 30m, 36h or 7d, at most 3660d")
    return length


# A request as the steps see it: the client's own bytes, and the few fields that decisions need.


class Endpoint(StrEnum):
    CHAT = "chat"
    RESPONSES = "responses"
    MESSAGES = "messages"
    """Anthropic's endpoint. The `body` of its requests is the equivalent chat request."""
    COMPLETIONS = "completions"
    EMBEDDINGS = "embeddings"


Path = tuple[str | int, ...]
"""Keys and indexes that lead from the body to a value, e.g. ("messages", 0, "content")."""


class Passage(Struct, frozen=True):
    """One text of a request. `role` is the role of its message; empty for other texts."""

    path: Path
    text: str
    role: str = ""


class MessagePart(Struct, frozen=True):
    type: str = ""
    text: str | None = None


class Function(Struct, frozen=True):
    name: str = ""
    arguments: str = ""


class MessageCall(Struct, frozen=True):
    function: Function = Function()


class Message(Struct, frozen=True):
    """A message of a chat, with its text and its tool calls."""

    role: str
    content: str | Sequence[MessagePart] | None = None
    tool_calls: Sequence[MessageCall] | None = None


class Modality(StrEnum):
    """Content that can't be scanned. It has the data class that the policy assigns to its modality."""

    IMAGE = "image"
    AUDIO = "audio"
    FILE = "file"
    """A document that isn't text, or that is linked or stored elsewhere."""
    TOKENS = "tokens"
    """Text as token numbers."""


class Limits(Struct, frozen=True, kw_only=True):
    """What the client asked for beyond OpenAI's fields, in `x-lowpass-*` headers or in `metadata`."""

    session: str = ""
    app: str = ""
    """Application that sends the request; empty for the name of its key."""
    task: Task | None = None
    """Task of the request; None to derive it from the text."""
    data_class: str = ""
    region: str = ""
    budget: str = ""
    budget_nano: int | None = None
    thinking_budget: int | None = None
    deadline_ms: int | None = None
    failure_cost_nano: int | None = None
    min_pass_rate: float | None = None
    tags: tuple[str, ...] = ()
    explain: bool = False


NO_LIMITS = Limits()


TYPICAL = (17, 73)
"""Tokens per 100 bytes of words, and of all other text. Fitted on 4,500 prompts in prose, code, maths and Chinese with
OpenAI's o200k. The remaining error has a standard deviation of 11 %; by bytes alone it is 33 %."""
WIDE_SHARE = 8
"""A text counts as being in another script if more than one in this many bytes is beyond ASCII."""
MEDIA = "+media"


class Request(Struct, frozen=True, kw_only=True, dict=True):
    """One request. `body` keeps every top-level field as the bytes that the client sent, unknown fields included."""

    id: str
    endpoint: Endpoint
    model: str
    body: dict[str, Raw]
    chat: dict[str, Raw] | None = None
    """A Responses request as Chat Completions; None if it can't be expressed that way."""
    no_chat_reason: tuple[str, str | None] | None = None
    """Why it can't be expressed as chat, and the `param` at fault."""
    raw: bytes = b""
    passages: tuple[Passage, ...] = ()
    """All strings that would be sent, decoded from JSON: messages, tool schemas, arguments, file names."""
    messages: Sequence[Message] | None = None
    """Messages of a chat that consists of texts and tool calls only; None otherwise."""
    unscannable: frozenset[Modality] = frozenset()
    prompt_bytes: int
    """Size in bytes of the text that the provider tokenises, including JSON syntax. Media are counted separately."""
    dense_bytes: int = 0
    """The part of `prompt_bytes` that is not words in small letters, and so has more tokens per byte."""
    wide_bytes: int = 0
    """The part of `prompt_bytes` that is beyond ASCII."""
    images: int = 0
    low_images: int = 0
    audio_seconds: int = 0
    """Upper bound on the length of recordings, derived from their size."""
    file_bytes: int | None = 0
    """Size of documents in bytes; None if they are linked, so that their size is unknown."""
    caches: bool = False
    """Whether the request asks the provider to cache a part of the prompt."""
    caches_long: bool = False
    """Whether the request asks for caching for longer than by default."""
    service_tier: str = ""
    needs: frozenset[Capability] = frozenset()
    stream: bool = False
    stream_usage: bool = False
    """Whether the client asked for a usage chunk."""
    n: int = 1
    prompts: int = 1
    """Number of prompts: completions and embeddings accept several, each with its own choices."""
    best_of: int = 1
    """Number of completions among which the provider picks. It charges for all of them."""
    max_output: int | None = None
    effort: str | None = None
    limits: Limits = NO_LIMITS
    languages: Languages | None = None
    """Languages if known without the text; None to detect them from the text."""

    @property
    def text(self) -> str:
        """All passages, joined by newlines."""
        return "\n".join(passage.text for passage in self.passages)

    @cached_property
    def choices(self) -> int:
        """Number of answers that are generated and charged."""
        return max(self.n, self.best_of) * self.prompts

    @cached_property
    def rough_tokens(self) -> int:
        """Approximate number of tokens of the text, for any target."""
        words, dense = self.prompt_bytes - self.dense_bytes, self.dense_bytes
        return 1 + (words * TYPICAL[0] + dense * TYPICAL[1]) // 100

    @cached_property
    def script(self) -> str:
        """Kind of input, as far as token counts depend on it."""
        kind = "tools" if Capability.TOOLS in self.needs else "text"
        if self.images or self.audio_seconds or self.file_bytes != 0:
            return kind + MEDIA
        if self.wide_bytes * WIDE_SHARE > self.prompt_bytes:
            return f"{kind}+wide"
        return f"{kind}+solid" if self.dense_bytes == self.prompt_bytes else kind


class Allowance(Struct, frozen=True):
    """Limits of a key: spending per window in nano-USD, requests and tokens per minute, and requests in progress. None
    means unlimited."""

    nano: int | None
    window: Literal["hour", "day", "week", "month", "year", "lifetime"]
    rpm: int | None
    tpm: int | None
    parallel: int | None


class Caller(Struct, frozen=True, kw_only=True):
    """The key that makes a request, and its rights. Empty sets allow all; `id` is empty on an open loopback gateway."""

    id: str = ""
    name: str = ""
    team: str = ""
    organisation: str = ""
    routes: frozenset[str] = frozenset()
    targets: frozenset[str] = frozenset()
    tags: tuple[str, ...] = ()
    budget: str = ""
    min_class: str = ""
    """Minimum data class of everything that the key sends."""
    scopes: frozenset[str] = frozenset()
    allowance: Allowance | None = None


# What a key may do, as stated by a command or by an administrator's request.

SCOPES = ("reports", "feedback", "admin")
Name = Annotated[str, Meta(min_length=1, max_length=128)]
Rate = Annotated[int, Meta(ge=1, le=10**9)]


class KeyTerms(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a key may do. Without `routes` and `targets` it may use everything."""

    name: Name
    routes: tuple[Name, ...] = ()
    targets: tuple[Name, ...] = ()
    tags: tuple[Name, ...] = ()
    scopes: tuple[str, ...] = ()
    budget: str = ""
    """Budget of the policy, or child budget, that limits the key."""
    team: str = ""
    organisation: str = ""
    min_class: str = ""
    """Minimum data class of what the key sends; empty for the policy's default."""
    limit_usd: Decimal | None = None
    """Maximum spending per `window`, in USD."""
    window: Literal["hour", "day", "week", "month", "year", "lifetime"] = "month"
    rpm: Rate | None = None
    tpm: Rate | None = None
    """Maximum tokens per minute, input and output together."""
    parallel: Rate | None = None
    expires: str | None = None
    """A length of time from now, such as 90d, or a date; in a stored key a date. None if it never expires."""

    def check(self) -> None:
        """Raises ValueError for terms that no key can have."""
        if not all(text.isprintable() for text in (self.name, *self.tags, self.team, self.organisation)):
            raise ValueError("a name has characters that can't be printed")
        if unknown := [scope for scope in self.scopes if scope not in SCOPES]:
            raise ValueError(f"there is no scope '{unknown[0]}'. Known: {', '.join(SCOPES)}")
        if self.limit_usd is not None and not (self.limit_usd.is_finite() and 0 < self.limit_usd <= 9_000_000):
            raise ValueError("a limit is above 0 and at most 9000000 USD")
        if self.limit_usd is None and self.window != "month":
            raise ValueError("a window is that of a limit: give limit_usd too")

    @property
    def expires_ms(self) -> int | None:
        """Unix time in ms at which the key expires. Raises ValueError if `expires` is no date and no length of time."""
        if self.expires is None:
            return None
        if self.expires[:-1].isdigit():
            return now_ms() + seconds(self.expires) * 1000
        try:
            moment = datetime.fromisoformat(self.expires)
        except ValueError:
            raise ValueError("expires: write a length such as 90d, or a date such as 2027-01-31") from None
        expires_ms = int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
        if expires_ms <= now_ms():
            raise ValueError(f"expires: {self.expires} has passed")
        return expires_ms


# A request in which placeholders replace the findings.


class Redacted(Struct, frozen=True):
    """`request` has placeholders, `classes` are its classes, `values` maps placeholders to originals. Never logged."""

    request: Request
    classes: frozenset[str]
    values: Mapping[str, str]

    def __repr__(self) -> str:
        return f"Redacted({len(self.values)} values)"


# Data classes seen in a session. They apply until a new session begins.


class SessionClasses(Struct, frozen=True):
    """Data classes that a session has had. `found` are known from findings alone, which redaction can remove;
    `permanent` were declared (header) or come from content that can't be read."""

    permanent: frozenset[str] = frozenset()
    found: frozenset[str] = frozenset()


CLEAN = SessionClasses()


def session_key(caller_id: str, session: str) -> str:
    """Returns a session's key, which keeps sessions of different callers apart even if their names are equal."""
    return f"{caller_id}/{session}"


# What was detected in a request.

Traits: TypeAlias = NDArray[np.float32]
TASKS = tuple(task for task in Task if task not in (Task.EMBEDDING, Task.GUARD))
"""Tasks that can be recognised from a text."""
DIFFICULTY, DIFFICULTY_SD, UNFAMILIARITY, OUTPUT, OUTPUT_SD, THINKING, SHARE = range(1, 8)
TRAITS = SHARE + len(TASKS)
"""Number of components of `Reading.traits`: a constant 1, the named ones over their scales, and a share per task."""
SCALES = {DIFFICULTY: 8.0, DIFFICULTY_SD: 4.0, UNFAMILIARITY: 1.0, OUTPUT: 10.4, OUTPUT_SD: 3.0, THINKING: 2.0}
STEPS = 127
"""Traits are multiples of 1/127, so that each fits exactly into a signed byte."""
MAX_OUTPUT_SD = 1.2
STATED_SD = 0.5
"""Standard deviation of the log of an answer's tokens if the request states their number; otherwise it is higher."""
USUAL_OUTPUT = 500.0
"""Mean of `TokensRead.visible` over everyday requests (the anchors of tools/anchors)."""
USUAL_THINKING = 0.46
"""Mean of `TokensRead.thinking` over the same requests."""


class Finding(Struct, frozen=True):
    """A detector's hit: its place, never its text. Offsets are characters of the passage at `path`."""

    detector: str
    """Detector and form, e.g. `identifiers.iban`."""
    data_class: str
    path: Path = ()
    start: int = 0
    end: int = 0
    exact: bool = True
    """Whether these characters are the value itself and can be replaced. Otherwise it is encoded, split or escaped."""


class Cause(Struct, frozen=True):
    """Why a request has a class. `by` is a detector, or `default`, `key`, `header`, `session`, `unscannable.image` …"""

    data_class: str
    by: str
    count: int = 1


class TokensRead(NamedTuple):
    """What a request's text predicts about a typical target's answer. The defaults apply if the text was not read."""

    visible: float = USUAL_OUTPUT
    """Visible tokens per choice: the mean of a lognormal distribution whose tail is cut."""
    thinking: float = USUAL_THINKING
    """Share of its usual thinking that the target needs: about 0 for a greeting, 1 for a hard problem."""
    stated: bool = False
    """Whether the request states how long the answer is to be."""


USUAL_READ = TokensRead()


class Reading(Struct, frozen=True, eq=False, dict=True):
    """Numbers that estimates use, derived from a request's text and form. The text can't be recovered from them."""

    traits: Traits
    """Shape [TRAITS]; values from about -1 to 1."""

    @property
    def difficulty(self) -> float:
        """Logit of the share of typical targets that fail such a request."""
        return float(self.traits[DIFFICULTY]) * SCALES[DIFFICULTY]

    @property
    def output(self) -> float:
        """Median number of visible tokens of a typical target's answer."""
        return exp(float(self.traits[OUTPUT]) * SCALES[OUTPUT])

    @cached_property
    def tokens(self) -> TokensRead:
        sd = min(float(self.traits[OUTPUT_SD]) * SCALES[OUTPUT_SD], MAX_OUTPUT_SD)
        mean = exp(float(self.traits[OUTPUT]) * SCALES[OUTPUT] + sd * sd / 2)
        return TokensRead(mean, float(self.traits[THINKING]) * SCALES[THINKING], sd <= STATED_SD)

    def share(self, task: Task) -> float:
        """Returns the probability that the request is of the given task."""
        return float(self.traits[SHARE + TASKS.index(task)])

    def packed(self) -> bytes:
        """Returns the traits as signed bytes."""
        return np.rint(self.traits * STEPS).astype(np.int8).tobytes()

    @classmethod
    def unpack(cls, packed: bytes) -> "Reading":
        """Restores a reading from signed bytes. Raises ValueError if they are of another version."""
        if len(packed) != TRAITS:
            raise ValueError(f"{len(packed)} traits")
        return cls(np.frombuffer(packed, np.int8).astype(np.float32) / np.float32(STEPS))


K = TypeVar("K")
V = TypeVar("V")


# The template of a request: a digest of what its application sends again and again.

TENANT_DIGITS, APPLICATION_DIGITS, TEMPLATE_DIGITS = 8, 14, 24
"""Hex digits of a template: up to the end of its tenant (zeros without keys), of its application, and in total."""
LONGEST_INSTRUCTIONS = 4_096
"""Maximum number of characters of the instructions that enter the digest."""
_INSTRUCTION_ROLES = ("system", "developer")
_FIXED_FIELDS = ("tools", "functions", "response_format", "text")
"""Fields of a body that an application sends unchanged: tools with their schemas, and the form of the answer."""
_words_with_digits = re.compile(r"\S*[0-9]\S*")


def template(request: Request, route: str, app: str, tenant: str = "") -> str:
    """Returns the template as 24 hex digits, equal in every process. They reveal no text. The first eight stand for
    `tenant`, which owns the template (an organisation, else a key), the next six for the application (`route` and
    `app`).

    Words with digits (dates, ids, numbers) count as equal, and white space is ignored.
    """
    digest = blake2b(digest_size=(TEMPLATE_DIGITS - APPLICATION_DIGITS) // 2)
    characters_left = LONGEST_INSTRUCTIONS
    for passage in request.passages:
        if characters_left > 0 and passage.role in _INSTRUCTION_ROLES:
            words = _words_with_digits.sub("0", passage.text[:characters_left]).split()
            digest.update(" ".join(words).encode(errors="surrogatepass") + b"\0")
            characters_left -= len(passage.text)
    for name in _FIXED_FIELDS:
        if name in request.body:
            digest.update(request.body[name])
    owner = blake2b(tenant.encode(), digest_size=TENANT_DIGITS // 2).hexdigest() if tenant else "0" * TENANT_DIGITS
    application = blake2b(f"{route}\0{app}".encode(), digest_size=(APPLICATION_DIGITS - TENANT_DIGITS) // 2)
    return owner + application.hexdigest() + digest.hexdigest()


def instructions(request: Request) -> int:
    """Returns the number of bytes that all requests of a template begin with: instructions, and tools with schemas."""
    texts = sum(
        len(passage.text.encode(errors="replace")) for passage in request.passages if passage.role in _INSTRUCTION_ROLES
    )
    return texts + sum(memoryview(request.body[name]).nbytes for name in _FIXED_FIELDS if name in request.body)


def tenant_of(template: str) -> str:
    """Returns the tenant's digits; empty without keys, and for templates of versions that had no tenants."""
    has_tenant = len(template) in (APPLICATION_DIGITS, TEMPLATE_DIGITS) and template[:TENANT_DIGITS].strip("0")
    return template[:TENANT_DIGITS] if has_tenant else ""


def application_of(template: str) -> str:
    """Returns the digits that all templates of an application begin with; empty if `template` is not a template."""
    return template[:APPLICATION_DIGITS] if len(template) == TEMPLATE_DIGITS else ""


_NO_INSTRUCTIONS = blake2b(digest_size=(TEMPLATE_DIGITS - APPLICATION_DIGITS) // 2).hexdigest()


def instructed(template: str) -> str:
    """Returns the template, or "" if its requests have neither instructions nor tools and so little in common."""
    return "" if template.endswith(_NO_INSTRUCTIONS) else template


class Latest(dict[K, V]):
    """A dict that keeps the `most` entries that were put last."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def put(self, key: K, value: V) -> V:
        self.pop(key, None)
        self[key] = value
        if len(self) > self.most:
            del self[next(iter(self))]
        return value


def oldest(known: Mapping[K, object], newest: K, template: Callable[[K], str] = str) -> K:
    """Returns the key to drop from a full memory in order of use, to which `newest` was added: the tenant's own oldest
    key if the tenant fills more than an eighth, else the oldest, so that no tenant can displace the others' keys."""
    tenant = tenant_of(template(newest))
    own = [key for key in known if tenant_of(template(key)) == tenant] if tenant else []
    return own[0] if len(own) > len(known) // 8 else next(iter(known))


class Classification(Struct, frozen=True, kw_only=True):
    """Classification of a request. `data_class` is the highest of `classes`; rows and replies name only it.

    `difficulty` is the share of typical targets that fail such a request, 0 to 1. `unfamiliarity` is the distance from
    everything that estimates were built on, 0 to 1. `findings` serve to explain and to redact; rows only keep `causes`,
    which count them. All `classes` apply, not only the highest.
    """

    data_class: str
    classes: frozenset[str] = frozenset()
    causes: tuple[Cause, ...] = ()
    difficulty: float = 0.0
    task: Task = Task.CHAT
    unfamiliarity: float = 1.0
    reading: Reading | None = None
    """Reading of the text; None without one, as for embeddings, or if the route does not need it before the answer."""
    read_late: bool = False
    """Whether the text was read only after the request was answered."""
    app: str = ""
    template: str = ""
    """Digest of what the application sends again and again (`template`)."""
    findings: tuple[Finding, ...] = ()
    possible: tuple[Finding, ...] = ()
    """Possible findings, of classes without a certain one. They count unless a second opinion denies them."""

    @property
    def unread(self) -> bool:
        """Whether difficulty and task are still unknown."""
        return self.reading is None and self.task is not Task.EMBEDDING
