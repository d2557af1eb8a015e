"""A target, a model at a provider or an engine under one thinking level, and what it is made of."""

import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import cached_property
from operator import attrgetter
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct, field, structs

from router.types.price import Price

# What a request asks for.


class Task(StrEnum):
    CHAT = "chat"
    CODE = "code"
    MATHS = "maths"
    FACTUAL = "factual"
    REASONING = "reasoning"
    EXTRACTION = "extraction"
    SUMMARY = "summary"
    TRANSLATION = "translation"
    CLASSIFICATION = "classification"
    CREATIVE = "creative"
    TOOL_USE = "tool_use"
    EMBEDDING = "embedding"
    GUARD = "guard"
    """Whether a text may pass. Only ever stated, by callers and routes: no text says it of itself."""


# A value that must never be printed.


class Secret:
    """Holds a key; `repr`, `str`, pickling and JSON encoders never see it. Call `reveal()` at the last moment."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value: Final = value

    def reveal(self) -> str:
        return self._value

    def __repr__(self) -> str:
        return "Secret(***)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)

    def __reduce__(self) -> str | tuple[object, ...]:
        raise TypeError("a Secret is not pickled")


# What serves models here: engines that lowpass launches or watches, and how busy they are.


class Status(StrEnum):
    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
    """It finishes what it has and is given nothing more."""
    SLEEPING = "sleeping"
    """Its weights are not on the GPU; the next request for it wakes it."""
    RESTARTING = "restarting"
    FAILED = "failed"
    """The first start failed, which trying again does not mend."""
    STOPPED = "stopped"


SERVING = (Status.READY, Status.SLEEPING)
"""It can be asked."""


class BilledHours(StrEnum):
    """Which hours of a machine its tokens pay for."""

    MARGINAL = "marginal"
    """Those in which it worked; idle time is reported apart."""
    FULL = "full"
    """All, idle ones too."""


class Load(Struct, frozen=True, kw_only=True):
    """What a replica's `/metrics` said. Gauges are of that moment, all else counts since its start; times in s."""

    at_ms: int
    running: int = 0
    waiting: int = 0
    kv_cache: float | None = None
    """Share of the KV cache in use, 0 … 1; None: the engine does not say."""
    rejected: int = 0
    """Turned away since they would have had to queue."""
    preempted: int = 0
    prompt: int = 0
    """Tokens read, cached ones included …"""
    cached: int = 0
    """… and those of them that the prefix cache had."""
    output: int = 0
    prefill_s: float = 0.0
    """Summed over requests: two at a time for a second are two …"""
    decode_s: float = 0.0
    queue_s: float = 0.0
    finished: int = 0


class EngineState(Struct, frozen=True, kw_only=True):
    """A snapshot of one replica. `last_error` says why it last ended, in one line that never holds a prompt's text."""

    name: str
    model: str
    status: Status
    replica: int = 0
    url: str = ""
    """Base URL, with its `/v1`."""
    restarts: int = 0
    pid: int | None = None
    last_error: str = ""
    load: Load | None = None
    """None: not known, or no longer."""


class ServedEngine(Struct, frozen=True, kw_only=True):
    """What a target is told of the engine that its policy names."""

    name: str
    urls: tuple[str, ...]
    """A base URL for each replica."""
    model: str = ""
    """What the engine calls the model; empty: what the card calls it."""
    adapters: frozenset[str] = frozenset()
    """LoRA adapters that it serves beside the model, by the names that requests call them by."""
    slots: int = 1
    """Requests that a replica works on at a time; more wait in its queue."""
    hourly: int = 0
    """nano-USD for an hour of all replicas; 0: nobody said, and the card's price holds."""
    planned: Price | None = None
    """What its tokens may cost by that, before any was served: an estimate. None: it can't be told."""
    counted: BilledHours = BilledHours.MARGINAL
    thinking_exact: bool = False
    """It has a reasoning parser, so that `thinking_token_budget` is kept to the token."""
    thinking_written: int = 0
    """Tokens that its template writes after the mark that opens thinking: the engine counts them as thought."""
    thinking_forced: int = 0
    """Thinking tokens by which it may go beyond a budget: what it writes to end a thought that it cuts off."""
    mistakes: tuple[tuple[str, str], ...] = ()
    """What is wrong with its spec, each with the remedy: no target can name it then."""


# What can serve a request: a model of a provider at an effort, with everything needed to judge and reach it.


class Capability(StrEnum):
    """What a request may need and a model may lack."""

    CHAT = "chat"
    COMPLETIONS = "completions"
    EMBEDDINGS = "embeddings"
    TOOLS = "tools"
    JSON_SCHEMA = "json_schema"
    VISION = "vision"
    AUDIO = "audio"
    LOGPROBS = "logprobs"
    N = "n"
    RESPONSES = "responses"
    """The provider's own Responses endpoint: for what can't be said as chat. Stated by `Quirks.responses`."""


class Benchmark(StrEnum):
    """Public benchmarks whose scores say what a model can do."""

    MMLU_PRO = "mmlu_pro"
    MMLU = "mmlu"
    SIMPLEQA = "simpleqa"
    CRUX = "crux"
    MATH_L5 = "math_l5"
    """Level 5 of MATH: its hardest."""
    SWE_BENCH_VERIFIED = "swe_bench_verified"
    AIDER_POLYGLOT = "aider_polyglot"


class Wire(StrEnum):
    """Wire formats; one file each in `adapters/`."""

    OPENAI_COMPATIBLE = "openai_compatible"
    ANTHROPIC = "anthropic"
    GEMINI = "gemini"
    LITELLM = "litellm"


class Contract(StrEnum):
    """What a provider promises about thinking (docs/thinking.md)."""

    EXACT = "exact"
    TARGET = "target"
    LEVEL = "level"
    SWITCH = "switch"
    ALWAYS_ON = "always_on"
    NONE = "none"


EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max", "ultra")
"""Effort words from least to most, over all providers."""


class ThinkingField(StrEnum):
    """How an OpenAI-compatible provider is told how much to think."""

    REASONING_EFFORT = "reasoning_effort"
    TOKEN_BUDGET = "thinking_token_budget"  # noqa: S105
    ENABLE_THINKING = "enable_thinking"
    THINKING_TYPE = "thinking.type"
    REASONING = "reasoning"
    THINKING_CONFIG = "thinking_config"
    NONE = "none"


class Thinking(Struct, frozen=True, kw_only=True, cache_hash=True, forbid_unknown_fields=True, omit_defaults=True):
    """A model's thinking contract. `levels` go from least to most; `tokens` gives a typical p90 for each level."""

    contract: Contract = Contract.NONE
    levels: tuple[str, ...] = ()
    tokens: tuple[int, ...] = ()
    unasked: str = ""
    """The level that is expected where a request says none; empty: the usual one. What is held covers that one."""
    minimum: int = 0
    """Least budget in tokens that the provider accepts, where it takes a number."""
    streamed: bool = False
    """A stream shows thoughts, or their count, as they come: they can be metered and stopped. Summaries don't count."""

    @property
    def can_stop(self) -> bool:
        """Thinking can be switched off."""
        if self.contract in (Contract.NONE, Contract.SWITCH):
            return True
        return self.contract is not Contract.ALWAYS_ON and "none" in self.levels

    def typical(self, effort: str = "") -> int:
        """Tokens at that effort, else at the usual one; 0 for what does not think."""
        usual = next((level for level in (self.unasked, "medium", *self.levels[-1:]) if level in self.levels), "")
        return dict(zip(self.levels, self.tokens, strict=False)).get(effort or usual, 0)


class Licence(Struct, frozen=True, kw_only=True):
    """What a model's licence permits. None: not known, which permits nothing that a policy asks for."""

    id: str
    commercial: bool | None = None
    train_on_outputs: bool | None = None
    """Outputs may be used to train or steer other models."""
    users_max: int | None = None
    """Monthly active users of the product up to which it holds; None: no limit (where the rest is known)."""


class Terms(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a provider promises about the data that it is sent. None and "" mean: not stated, so not promised."""

    training: bool | None = None
    """It may train on inputs."""
    retention_days: int | None = None
    """How long inputs and outputs are kept, abuse logs included."""
    baa: bool = False
    """A business associate agreement (45 CFR 164.504(e)) covers it."""
    verify: str = ""
    """Where its answers state the region: "usage.NAME" (the adapter reads it) or "header:NAME"."""
    evidence: str = ""
    """The contract or the page that says all this."""
    expires_ms: int | None = None
    """From then on the evidence proves nothing, and the target serves nobody (Unix ms)."""


class Model(Struct, frozen=True, kw_only=True):
    """A catalog card. Sizes in billions of parameters, lengths in tokens."""

    id: str
    name: str
    """What the provider calls it."""
    context: int
    max_output: int
    capabilities: frozenset[Capability]
    thinking: Thinking = Thinking()
    price: Price | None = None
    licence: Licence = Licence(id="proprietary")
    parameters_b: float | None = None
    active_b: float | None = None
    scores: dict[Benchmark, float] = field(default_factory=dict)
    """Shares of questions that it answers right, 0 … 1."""
    scored: Thinking | None = None
    """That of the card which these scores are of; None: its own."""


class AbandonedAnswer(StrEnum):
    """What becomes of an answer that its client left."""

    READ_ON = "read_on"
    """It is read to its end, as the provider writes and bills it all the same."""
    CANCEL = "cancel"
    """Its connection is closed: the provider stops writing."""


class Quirks(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a provider departs from OpenAI's chat wire, as data."""

    max_tokens_field: str = "max_tokens"
    thinking_field: ThinkingField = ThinkingField.NONE
    stream_usage: bool = True
    """Ask for usage with `stream_options.include_usage`."""
    usage_counts_one_choice: bool = False
    """With n > 1 the reported usage covers one choice only."""
    grammar_tools: bool = False
    """Tools are not enforced: the adapter asks for them through a JSON schema."""
    strict_tools: bool = False
    """Arguments of a forced call keep to their schema only if the tool is `strict`: the adapter says that they are."""
    responses: bool = False
    """Has `/v1/responses` of its own."""
    private: dict[str, Any] = field(default_factory=dict)
    """Request fields that forbid the provider to keep or train on a request; an object joins the client's own."""
    refuses: frozenset[str] = frozenset()
    """Request fields that the provider answers with an error; dropped. `messages.NAME` is a member of messages, of
    their parts and of tools."""
    tokenize: Literal["", "vllm", "llama_cpp"] = ""
    """How a local engine, beside its API, is asked how many tokens a prompt has; empty: it can't be."""
    asked_only: bool = False
    """Models that can do without thinking think only where they are asked to."""
    units: dict[str, int] = field(default_factory=dict)
    """What each call uses beside its tokens, such as a search: it is held; the provider states what it charged."""


class Provider(Struct, frozen=True, kw_only=True):
    """Who runs the model. `jurisdiction` is the ISO 3166 code of the legal entity's country."""

    id: str
    wire: Wire
    base_url: str
    key_env: str = ""
    entity: str = ""
    jurisdiction: str = ""
    local: bool = False
    terms: Terms = Terms()
    """Of its standard offer; a target may have better ones by contract."""
    quirks: Quirks = Quirks()
    abandoned: AbandonedAnswer = AbandonedAnswer.READ_ON
    """Of streams."""
    prices: Mapping[str, Price] = {}
    """Of all its models in the catalog, by the names that it calls them: it may serve another one than was asked."""
    encodings: Mapping[str, str] = {}
    """By patterns of those names: the encoding in which OpenAI counts a model's tokens; others are estimated."""


class Timeouts(Struct, frozen=True, kw_only=True):
    """Milliseconds; `first` runs from the request's last byte to the first of the answer's body."""

    connect: int = 5_000
    first: int = 60_000
    between: int = 30_000
    total: int = 600_000
    read_on: int = 0
    """For so long an answer that is late may still come, to whoever reads it on (`UpstreamFailure.late`)."""


PROMPT_VARIABLES = ("messages", "system", "input", "text", "source", "target", "source_code", "target_code")
"""What a template is told: messages (`role`, `content`), all system prompts, what the user said last, and the same
without an instruction before it; the language of it and the one that it is to be put into, in English, then in ISO
639-1, "" where they are not clear."""


class Prompt(Struct, frozen=True, kw_only=True):
    """How a model that only completes texts is asked: Jinja over `PROMPT_VARIABLES`."""

    template: str
    stop: tuple[str, ...] = ()
    """Where its answer ends."""
    bytes: int = 0
    """At most, of the template's own text in what is sent …"""
    dense: int = 0
    """… of which not in words in small letters."""
    times: float = 1.0
    """How often it repeats what the user said."""


SNAPSHOT = re.compile(r"[-@](?:20\d\d-\d\d-\d\d|20\d{6}|\d{3,4}|latest)$")
"""How providers mark one state of a model: gpt-5-2025-08-07, claude-opus-4-1-20250805, gemini-2.5-pro-001."""


class Target(Struct, frozen=True, kw_only=True, dict=True):
    """A (model, effort) at one place: the unit that is estimated, chosen, called and charged."""

    id: str
    model: Model
    provider: Provider
    base_url: str
    api_key: Secret | None = None
    effort: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    region: str = ""
    terms: Terms = Terms()
    timeouts: Timeouts = Timeouts()
    retries: int = 1
    max_event_bytes: int = 1_048_576
    """Of its streams: an unfinished event that is larger ends the answer."""
    rejects: bool = False
    """A request with fields that its wire lacks is refused; else it is sent without them."""
    hourly: int | None = None
    """nano-USD for an hour of its machine: estimates divide it by what was measured. None: the list price holds."""
    engine: ServedEngine | None = None
    """The engine behind it, of `engine` in the policy; `base_url` is that of its first replica."""
    max_wait_ms: int | None = None
    """With a longer queue it is asked only where nobody else can; None: a route's deadline alone says so."""
    tasks: frozenset[Task] = frozenset()
    """A specialist: what it is for, and nothing else. Empty: anything."""
    languages: frozenset[str] = frozenset()
    """ISO 639-1 codes that it can read and write; empty: any."""
    pass_rate: float | None = None
    """Of a specialist: the share of its own requests that it is said to answer right. None: as its card lets expect."""
    prompt: Prompt | None = None
    """It completes texts, and chats are put to it in this form."""
    abandoned: AbandonedAnswer | None = None
    """Streamed or not. None: as `reads_on` says."""
    served: Price | None = None
    """Of a dearer model that answers in its place: estimates and holds go by it. None: its own."""

    @cached_property
    def reads_on(self) -> tuple[bool, bool]:
        """Whether what its client left is read to its end: a whole answer, which remote providers write; a stream."""
        if self.abandoned is not None:
            return (self.abandoned is AbandonedAnswer.READ_ON,) * 2
        remote = not self.provider.local
        return remote, remote and self.provider.abandoned is AbandonedAnswer.READ_ON

    def price(self, served: str) -> Price | None:
        """Of the model that answered, by the name that the provider states; its own for another snapshot. Of one that
        the catalog does not have: its own, or if it is dearer that of the model whose name begins the stated one."""
        own, others = self.model, self.provider.prices
        name = served if served in others else SNAPSHOT.sub("", served)
        if name in ("", SNAPSHOT.sub("", own.name)):
            return own.price
        if name in others or own.price is None:
            return others.get(name)
        kin = max((name for name in others if served.startswith(name)), key=len, default="")
        return max(own.price, others.get(kin, own.price), key=attrgetter("output", "input"))

    def at(self, price: Price | None) -> "Target":
        """Itself, or where `price` is more than its own, with the answers of a model that costs that."""
        own = self.served or self.model.price
        if price is None or own is None or (price.output, price.input) <= (own.output, own.input):
            return self
        return structs.replace(self, served=price)

    def knows(self, served: str) -> bool:
        """It is the model that was asked ("models/Gemini-2.5-pro-001" too), or one of the catalog. Local engines call
        theirs what they like."""
        own, others, name = self.model.name, self.provider.prices, SNAPSHOT.sub("", served)
        bare, ours = name.rpartition("/")[2].casefold(), SNAPSHOT.sub("", own.rpartition("/")[2]).casefold()
        return self.provider.local or not others or bare in ("", ours) or served in others or name in others


# What a request would find at the engine of a target: a queue, or nobody.


class Queue(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """At the replica that would begin it first."""

    target: str = ""
    """Where a decision keeps it."""
    wait_ms: int = 0
    """Expected, until it is begun."""
    waiting: int = 0
    """Requests that are there already and not yet begun."""
    full: bool = False
    """It has just turned a request away rather than let it wait."""
    degraded: bool = False
    """The target fails too often or is much slower than usual, and this request is not in its share."""
    spilled: bool = False
    """Others were put before the target because of it."""
    down: str = ""
    """Why no replica can begin it at all: the engine's status."""

    def told(self) -> str:
        """For people: "local: 14 waiting, 2.1 s"."""
        if self.degraded:
            return f"{self.target}: degraded"
        queue = "turns requests away" if self.full else f"{self.waiting} waiting, {self.wait_ms / 1000:.1f} s"
        return f"{self.target}: {queue}"


Queues: TypeAlias = Mapping[str, Queue]
"""By target's id; who would begin a request at once is left out."""
QueueReader: TypeAlias = Callable[[Target, Callable[[Target], float]], Queue | None]
"""The queue at a target, where a request takes so many ms, once begun; None: it would be begun at once, or it is not
known."""
