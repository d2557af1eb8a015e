"""A request as the steps see it: the caller's own bytes, and the few fields that decisions need."""

from enum import StrEnum
from typing import Literal

from msgspec import Raw, Struct

from router.types.languages import Languages
from router.types.target import Capability
from router.types.task import Task


class Endpoint(StrEnum):
    CHAT = "chat"
    RESPONSES = "responses"
    COMPLETIONS = "completions"
    EMBEDDINGS = "embeddings"


Path = tuple[str | int, ...]
"""Keys and indexes from the body down to a value: ("messages", 0, "content")."""


class Passage(Struct, frozen=True):
    """One text of a request. `role` is that of its message, empty elsewhere."""

    path: Path
    text: str
    role: str = ""


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


class Request(Struct, frozen=True, kw_only=True):
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
    unscannable: frozenset[Modality] = frozenset()
    prompt_bytes: int
    """Size of the text that the provider will tokenise, JSON marks included; media are counted apart."""
    dense_bytes: int = 0
    """Those of them that are not of words in small letters: tokens of digits, marks and most scripts are short."""
    wide_bytes: int = 0
    """Those beyond ASCII."""
    images: int = 0
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

    @property
    def choices(self) -> int:
        """Answers that are generated and charged."""
        return max(self.n, self.best_of) * self.prompts


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
