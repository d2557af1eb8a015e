"""A request as it was parsed, who sent it, and its classification."""

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

# Which languages a request is about.


class Languages(Struct, frozen=True):
    """ISO 639-1 codes, and English names; "" where it is not clear."""

    source: str = ""
    """What its text is in …"""
    target: str = ""
    """… and what it is to be translated into, where it says so."""
    source_name: str = ""
    target_name: str = ""
    text: str = ""
    """What its user said last, without the instruction before it ("Translate into French: …")."""

    def __repr__(self) -> str:
        return f"Languages({self.source!r}, {self.target!r})"


UNKNOWN = Languages()


# Lengths of time as people write them: 30m, 36h, 7d.

DAY_MS = 86_400_000
LONGEST_S = 3_660 * 86_400
"""Ten years: longer is a lifetime."""
_LENGTH = re.compile(r"([1-9]\d{0,5})([smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


def seconds(text: str) -> int:
    """ "36h" → 129600. Raises ValueError, with the remedy."""
    match = _LENGTH.fullmatch(text)
    length = int(match[1]) * _SECONDS[match[2]] if match else 0
    if not 0 < length <= LONGEST_S:
        raise ValueError("write a length such as 30m, 36h or 7d, at most 3660d")
    return length


# A request as the steps see it: the caller's own bytes, and the few fields that decisions need.


class Endpoint(StrEnum):
    CHAT = "chat"
    RESPONSES = "responses"
    MESSAGES = "messages"
    """Anthropic's; its `body` is the chat request that stands for it."""
    COMPLETIONS = "completions"
    EMBEDDINGS = "embeddings"


Path = tuple[str | int, ...]
"""Keys and indexes from the body down to a value: ("messages", 0, "content")."""


class Passage(Struct, frozen=True):
    """One text of a request. `role` is that of its message, empty elsewhere."""

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
    """Of a chat: what is said and called in it."""

    role: str
    content: str | Sequence[MessagePart] | None = None
    tool_calls: Sequence[MessageCall] | None = None


class Modality(StrEnum):
    """What nobody here can read: it is given the class that the policy has for it."""

    IMAGE = "image"
    AUDIO = "audio"
    FILE = "file"
    """A document in a form that isn't text, or one that is linked or stored elsewhere."""
    TOKENS = "tokens"
    """Text as numbers of a tokenizer."""


class Limits(Struct, frozen=True, kw_only=True):
    """What the caller asked for beyond OpenAI's fields (`x-lowpass-*` headers or their `metadata` twins)."""

    session: str = ""
    app: str = ""
    """The application that asks; empty: its key's name."""
    task: Task | None = None
    """What it asks for; None: whatever its text says."""
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
"""Tokens in a hundred bytes of words, and of all else: fitted on 4,500 prompts in prose, code, maths and Chinese with
OpenAI's o200k. The rest that is left to learn has a standard deviation of 11 %; by bytes alone it is 33 %."""
WIDE_SHARE = 8
"""A text counts as one of another script if one byte in so many is beyond ASCII."""
MEDIA = "+media"


class Request(Struct, frozen=True, kw_only=True, dict=True):
    """One request. `body` keeps every top-level field as the bytes the client sent; nothing unknown is lost."""

    id: str
    endpoint: Endpoint
    model: str
    body: dict[str, Raw]
    chat: dict[str, Raw] | None = None
    """A Responses request as Chat Completions; None where it can't be said that way."""
    unsaid: tuple[str, str | None] | None = None
    """Why it can't, and the `param` at fault."""
    raw: bytes = b""
    """The whole body as the client sent it."""
    passages: tuple[Passage, ...] = ()
    """Every string that would be sent, decoded from JSON: messages, tool schemas, arguments, names of files."""
    messages: Sequence[Message] | None = None
    """Of a chat that holds nothing but texts and calls."""
    unscannable: frozenset[Modality] = frozenset()
    prompt_bytes: int
    """Size of the text that the provider will tokenise, JSON marks included; media are counted apart."""
    dense_bytes: int = 0
    """Those of them that are not of words in small letters: tokens of digits, marks and most scripts are short."""
    wide_bytes: int = 0
    """Those beyond ASCII."""
    images: int = 0
    low_images: int = 0
    audio_seconds: int = 0
    """At most: by the size of the recordings."""
    file_bytes: int | None = 0
    """Size of documents; None: they are linked, and their size is not known."""
    caches: bool = False
    """It asks the provider to keep part of the prompt …"""
    caches_long: bool = False
    """… for longer than by default."""
    service_tier: str = ""
    needs: frozenset[Capability] = frozenset()
    stream: bool = False
    stream_usage: bool = False
    """The client asked for the usage chunk."""
    n: int = 1
    prompts: int = 1
    """Completions and embeddings take several, each with choices of its own."""
    best_of: int = 1
    """Of so many completions the provider picks, and charges all."""
    max_output: int | None = None
    effort: str | None = None
    limits: Limits = NO_LIMITS
    languages: Languages | None = None
    """What is known of them without its text; None: the text says it."""

    @property
    def text(self) -> str:
        """All passages, a line each."""
        return "\n".join(passage.text for passage in self.passages)

    @cached_property
    def choices(self) -> int:
        """Answers that are generated and charged."""
        return max(self.n, self.best_of) * self.prompts

    @cached_property
    def rough_tokens(self) -> int:
        """Of its text, for any target."""
        words, dense = self.prompt_bytes - self.dense_bytes, self.dense_bytes
        return 1 + (words * TYPICAL[0] + dense * TYPICAL[1]) // 100

    @cached_property
    def script(self) -> str:
        """What kind of input it is, as far as counting its tokens goes."""
        kind = "tools" if Capability.TOOLS in self.needs else "text"
        if self.images or self.audio_seconds or self.file_bytes != 0:
            return kind + MEDIA
        if self.wide_bytes * WIDE_SHARE > self.prompt_bytes:
            return f"{kind}+wide"
        return f"{kind}+solid" if self.dense_bytes == self.prompt_bytes else kind


class Allowance(Struct, frozen=True):
    """How much a key may do: what it may spend in a window (nano-USD), requests and tokens a minute, and requests in
    progress. None: not limited."""

    nano: int | None
    window: Literal["hour", "day", "week", "month", "year", "lifetime"]
    rpm: int | None
    tpm: int | None
    parallel: int | None


class Caller(Struct, frozen=True, kw_only=True):
    """Who asks: a key and what it may do. Empty sets allow everything; `id` is empty on an open loopback gateway."""

    id: str = ""
    name: str = ""
    team: str = ""
    organisation: str = ""
    routes: frozenset[str] = frozenset()
    targets: frozenset[str] = frozenset()
    tags: tuple[str, ...] = ()
    budget: str = ""
    min_class: str = ""
    """The least class of everything that it sends."""
    scopes: frozenset[str] = frozenset()
    allowance: Allowance | None = None


# What a key may do, as a command or a request of an administrator says it.

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
    """A budget of the policy, or one that was split off, that binds it."""
    team: str = ""
    organisation: str = ""
    min_class: str = ""
    """The least class of what it sends; empty: the policy's default."""
    limit_usd: Decimal | None = None
    """What it may spend in `window`."""
    window: Literal["hour", "day", "week", "month", "year", "lifetime"] = "month"
    rpm: Rate | None = None
    """Requests a minute."""
    tpm: Rate | None = None
    """Tokens a minute, input and output."""
    parallel: Rate | None = None
    """Requests in progress."""
    expires: str | None = None
    """A length of time from now, such as 90d, or a date; in a stored key the date. None: never."""

    def check(self) -> None:
        """Raises ValueError for what no key can be given."""
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
        """Raises ValueError for what is no date and no length of time."""
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


# A request with placeholders in the place of what was found in it.


class Redacted(Struct, frozen=True):
    """`classes` are those of `request` as it is now; `values` what each placeholder stands for. Never logged."""

    request: Request
    classes: frozenset[str]
    values: Mapping[str, str]

    def __repr__(self) -> str:
        return f"Redacted({len(self.values)} values)"


# What a session has seen: its classes stick until a new session begins.


class SessionClasses(Struct, frozen=True):
    """Classes that a session has had. `found` ones are known from findings alone, which redaction can take away;
    `permanent` ones were declared (header), or stood for what can't be read."""

    permanent: frozenset[str] = frozenset()
    found: frozenset[str] = frozenset()


CLEAN = SessionClasses()


def session_key(caller_id: str, session: str) -> str:
    """Another key's session of the same name is another session."""
    return f"{caller_id}/{session}"


# What was seen in a request.

Traits: TypeAlias = NDArray[np.float32]
TASKS = tuple(task for task in Task if task not in (Task.EMBEDDING, Task.GUARD))
"""Those that a text can look like."""
DIFFICULTY, DIFFICULTY_SD, UNFAMILIARITY, OUTPUT, OUTPUT_SD, THINKING, SHARE = range(1, 8)
TRAITS = SHARE + len(TASKS)
"""Components of `Reading.traits`: 1; then as named, each divided by its scale; then a share for each of `TASKS`."""
SCALES = {DIFFICULTY: 8.0, DIFFICULTY_SD: 4.0, UNFAMILIARITY: 1.0, OUTPUT: 10.4, OUTPUT_SD: 3.0, THINKING: 2.0}
STEPS = 127
"""Traits are whole multiples of one over this, so that a signed byte holds each of them exactly."""
MOST_OUTPUT_SD = 1.2
STATED_SD = 0.5
"""Of the logarithm of an answer's tokens, where the request says how many; of all others it is more."""
USUAL_OUTPUT = 500.0
"""Mean of `TokensRead.visible` over everyday requests (the anchors of tools/anchors) …"""
USUAL_THINKING = 0.46
"""… and of the second."""


class Finding(Struct, frozen=True):
    """A detector's hit: where, never what. Offsets are characters of the passage at `path`."""

    detector: str
    """Kind and form: "identifiers.iban"."""
    data_class: str
    path: Path = ()
    start: int = 0
    end: int = 0
    exact: bool = True
    """These characters are the value itself, and can be replaced; else it hides here (encoded, split, escaped)."""


class Cause(Struct, frozen=True):
    """Why a request has a class: `by` is a detector, or "default", "key", "header", "session", "unscannable.image" …"""

    data_class: str
    by: str
    count: int = 1


class TokensRead(NamedTuple):
    """What a request's text foretells of a usual target's answer; usual figures where the text was not read."""

    visible: float = USUAL_OUTPUT
    """Tokens per choice: the mean of a lognormal whose tail is cut."""
    thinking: float = USUAL_THINKING
    """How much of its usual thinking the target needs: about 0 for a greeting, 1 for a hard problem."""
    stated: bool = False
    """The request says how long the answer is to be."""


USUAL_READ = TokensRead()


class Reading(Struct, frozen=True, eq=False, dict=True):
    """What estimates go by: numbers of a request's text and form, from which no text can be read."""

    traits: Traits
    """[TRAITS], about -1 … 1."""

    @property
    def difficulty(self) -> float:
        """Logit of the share of usual targets that fail such a request."""
        return float(self.traits[DIFFICULTY]) * SCALES[DIFFICULTY]

    @property
    def output(self) -> float:
        """Visible tokens of a usual target's answer: the median."""
        return exp(float(self.traits[OUTPUT]) * SCALES[OUTPUT])

    @cached_property
    def tokens(self) -> TokensRead:
        sd = min(float(self.traits[OUTPUT_SD]) * SCALES[OUTPUT_SD], MOST_OUTPUT_SD)
        mean = exp(float(self.traits[OUTPUT]) * SCALES[OUTPUT] + sd * sd / 2)
        return TokensRead(mean, float(self.traits[THINKING]) * SCALES[THINKING], sd <= STATED_SD)

    def share(self, task: Task) -> float:
        """How likely the request is of that task."""
        return float(self.traits[SHARE + TASKS.index(task)])

    def packed(self) -> bytes:
        """A signed byte for each trait."""
        return np.rint(self.traits * STEPS).astype(np.int8).tobytes()

    @classmethod
    def unpack(cls, packed: bytes) -> "Reading":
        """ValueError: these are traits of another version."""
        if len(packed) != TRAITS:
            raise ValueError(f"{len(packed)} traits")
        return cls(np.frombuffer(packed, np.int8).astype(np.float32) / np.float32(STEPS))


K = TypeVar("K")
V = TypeVar("V")


# Which template a request comes from: what its application sends again and again, as a digest.

TENANT_DIGITS, APPLICATION_DIGITS, TEMPLATE_DIGITS = 8, 14, 24
"""Digits of a template, the first of which stand for its tenant (zeros where no keys are) and for its application."""
LONGEST_INSTRUCTIONS = 4_096
"""Characters of the instructions that count, so that the digest of any prompt has a bound."""
_INSTRUCTIONS = ("system", "developer")
_OFFERS = ("tools", "functions", "response_format", "text")
"""Fields of a body that an application sends as they are: tools with their schemas, and the form of the answer."""
_values = re.compile(r"\S*[0-9]\S*")


def template(request: Request, route: str, app: str, tenant: str = "") -> str:
    """24 hexadecimal digits, the same in every process; no text can be read from them. The first eight stand for
    `tenant`, whose own the template is: an organisation, else a key. The next six stand for its application: `route`
    and `app`.

    Words with a digit in them are dates, ids and numbers: they are not told apart, and neither is white space.
    """
    digest = blake2b(digest_size=(TEMPLATE_DIGITS - APPLICATION_DIGITS) // 2)
    left = LONGEST_INSTRUCTIONS
    for passage in request.passages:
        if left > 0 and passage.role in _INSTRUCTIONS:
            words = _values.sub("0", passage.text[:left]).split()
            digest.update(" ".join(words).encode(errors="surrogatepass") + b"\0")
            left -= len(passage.text)
    for name in _OFFERS:
        if name in request.body:
            digest.update(request.body[name])
    owner = blake2b(tenant.encode(), digest_size=TENANT_DIGITS // 2).hexdigest() if tenant else "0" * TENANT_DIGITS
    named = blake2b(f"{route}\0{app}".encode(), digest_size=(APPLICATION_DIGITS - TENANT_DIGITS) // 2)
    return owner + named.hexdigest() + digest.hexdigest()


def instructions(request: Request) -> int:
    """Bytes with which all requests of a template begin: instructions, and tools with their schemas."""
    texts = sum(
        len(passage.text.encode(errors="replace")) for passage in request.passages if passage.role in _INSTRUCTIONS
    )
    return texts + sum(memoryview(request.body[name]).nbytes for name in _OFFERS if name in request.body)


def tenant_of(template: str) -> str:
    """Empty without keys, and of templates of versions that told no tenants apart."""
    known = len(template) in (APPLICATION_DIGITS, TEMPLATE_DIGITS) and template[:TENANT_DIGITS].strip("0")
    return template[:TENANT_DIGITS] if known else ""


def application_of(template: str) -> str:
    """What all templates of an application begin with; empty for what is none."""
    return template[:APPLICATION_DIGITS] if len(template) == TEMPLATE_DIGITS else ""


_NO_INSTRUCTIONS = blake2b(digest_size=(TEMPLATE_DIGITS - APPLICATION_DIGITS) // 2).hexdigest()


def instructed(template: str) -> str:
    """The template, unless its requests have neither instructions nor tools: those are as different as can be."""
    return "" if template.endswith(_NO_INSTRUCTIONS) else template


class Latest(dict[K, V]):
    """The `most` entries that were put last."""

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
    """What to forget of a full memory in the order of use, one key of which is new: of a tenant that fills an eighth of
    it its own, so that none can make another's forgotten."""
    tenant = tenant_of(template(newest))
    own = [key for key in known if tenant_of(template(key)) == tenant] if tenant else []
    return own[0] if len(own) > len(known) // 8 else next(iter(known))


class Classification(Struct, frozen=True, kw_only=True):
    """`data_class` is the highest of `classes`, and only its name in rows and replies: every class that was seen binds.

    `difficulty` is the share of usual targets that fail such a request, 0 … 1; `unfamiliarity` how far it is from
    anything that estimates were built on, 0 … 1. `findings` are for explaining and redacting; rows keep the causes,
    which count them.
    """

    data_class: str
    classes: frozenset[str] = frozenset()
    causes: tuple[Cause, ...] = ()
    difficulty: float = 0.0
    task: Task = Task.CHAT
    unfamiliarity: float = 1.0
    reading: Reading | None = None
    """None: nothing was read, as for embeddings, or not yet, where the route does not choose by it …"""
    read_late: bool = False
    """… and so it was read once the request was answered."""
    app: str = ""
    """The application that it comes from …"""
    template: str = ""
    """… and a digest of what the application sends again and again (`template`)."""
    findings: tuple[Finding, ...] = ()
    possible: tuple[Finding, ...] = ()
    """Hits that are only possible, of classes that nothing else gives: they count, for want of a no."""

    @property
    def unread(self) -> bool:
        """Difficulty and task are not known yet."""
        return self.reading is None and self.task is not Task.EMBEDDING
