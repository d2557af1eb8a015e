"""A target (a model at a provider or on an engine, at one thinking level) and its parts."""

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
    """Deciding whether a text may pass. Only callers and routes state this task; it is never detected from a text."""


# A value that must never be printed.


class Secret:
    """Holds a secret such as an API key. Only `reveal()` returns it; `repr`, `str`, pickling and JSON do not."""

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


# Local engines, which lowpass launches or watches, and their load.


class Status(StrEnum):
    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
    """The engine finishes its requests and gets no new ones."""
    SLEEPING = "sleeping"
    """The weights are not on the GPU. The next request wakes the engine."""
    RESTARTING = "restarting"
    FAILED = "failed"
    """The first start failed for a reason that a retry does not remove."""
    STOPPED = "stopped"


SERVING = (Status.READY, Status.SLEEPING)
"""Statuses of replicas that can be asked."""


class BilledHours(StrEnum):
    """Which hours of a machine the price of its tokens covers."""

    MARGINAL = "marginal"
    """Hours with work. Idle time is reported separately."""
    FULL = "full"
    """All hours, idle ones included."""


class Load(Struct, frozen=True, kw_only=True):
    """A replica's `/metrics`. Gauges are current values; all else is counted since the replica's start. Times in s."""

    at_ms: int
    running: int = 0
    waiting: int = 0
    kv_cache: float | None = None
    """Share of the KV cache in use, from 0 to 1; None if the engine does not report it."""
    rejected: int = 0
    """Requests that were turned away because they would have had to queue."""
    preempted: int = 0
    prompt: int = 0
    """Input tokens, cached ones included."""
    cached: int = 0
    """Input tokens that came from the prefix cache."""
    output: int = 0
    prefill_s: float = 0.0
    """Prefill time in seconds, summed over requests: two requests at a time for one second count as two."""
    decode_s: float = 0.0
    queue_s: float = 0.0
    finished: int = 0


class EngineState(Struct, frozen=True, kw_only=True):
    """A snapshot of one replica. `last_error` is one line on why it last ended; it never contains a prompt's text."""

    name: str
    model: str
    status: Status
    replica: int = 0
    url: str = ""
    restarts: int = 0
    pid: int | None = None
    last_error: str = ""
    load: Load | None = None
    """Latest load; None if unknown or no longer known."""


class ServedEngine(Struct, frozen=True, kw_only=True):
    """Facts about an engine that a target of the policy names."""

    name: str
    urls: tuple[str, ...]
    model: str = ""
    """The engine's name for the model; empty if it is the card's name."""
    adapters: frozenset[str] = frozenset()
    """LoRA adapters that the engine serves beside the model, by the names that requests use."""
    slots: int = 1
    """Number of requests that a replica works on at a time. Others wait in its queue."""
    hourly: int = 0
    """Cost of all replicas in nano-USD per hour; 0 if not stated, so that the card's price applies."""
    planned: Price | None = None
    """Estimated price of its tokens before any was served, derived from `hourly`; None if it can't be estimated."""
    counted: BilledHours = BilledHours.MARGINAL
    thinking_exact: bool = False
    """Whether a reasoning parser enforces `thinking_token_budget` to the token."""
    thinking_written: int = 0
    """Tokens that the template writes after the mark that opens thinking. The engine counts them as thinking."""
    thinking_forced: int = 0
    """Maximum thinking tokens beyond the budget, which the engine writes to end thinking that it cuts off."""
    mistakes: tuple[tuple[str, str], ...] = ()
    """Mistakes in its spec, each with a remedy. No target can use an engine with mistakes."""


# What can serve a request: a provider's model at an effort, with everything needed to judge and reach it.


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
    """The provider's own Responses endpoint, for what chat can't express. Stated by `Quirks.responses`."""


class Benchmark(StrEnum):
    """Public benchmarks whose scores tell what a model can do."""

    MMLU_PRO = "mmlu_pro"
    MMLU = "mmlu"
    SIMPLEQA = "simpleqa"
    CRUX = "crux"
    MATH_L5 = "math_l5"
    """Level 5 of MATH, the hardest."""
    SWE_BENCH_VERIFIED = "swe_bench_verified"
    AIDER_POLYGLOT = "aider_polyglot"


class Wire(StrEnum):
    """Wire formats. Each has a file in `adapters/`."""

    OPENAI_COMPATIBLE = "openai_compatible"
    ANTHROPIC = "anthropic"
    GEMINI = "gemini"
    LITELLM = "litellm"


class Contract(StrEnum):
    """What a provider guarantees about thinking (docs/thinking.md)."""

    EXACT = "exact"
    TARGET = "target"
    LEVEL = "level"
    SWITCH = "switch"
    ALWAYS_ON = "always_on"
    NONE = "none"


EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max", "ultra")
"""Effort levels of all providers, from least to most."""


class ThinkingField(StrEnum):
    """The field that tells an OpenAI-compatible provider how much to think."""

    REASONING_EFFORT = "reasoning_effort"
    TOKEN_BUDGET = "thinking_token_budget"  # noqa: S105
    ENABLE_THINKING = "enable_thinking"
    THINKING_TYPE = "thinking.type"
    REASONING = "reasoning"
    THINKING_CONFIG = "thinking_config"
    NONE = "none"


class Thinking(Struct, frozen=True, kw_only=True, cache_hash=True, forbid_unknown_fields=True, omit_defaults=True):
    """A model's thinking contract. `levels` go from least to most; `tokens` has a typical p90 for each level."""

    contract: Contract = Contract.NONE
    levels: tuple[str, ...] = ()
    tokens: tuple[int, ...] = ()
    unasked: str = ""
    """Level that is expected if a request asks for none; empty for the usual one. Holds are made for it."""
    minimum: int = 0
    """Minimum budget in tokens that the provider accepts, if it takes a number."""
    streamed: bool = False
    """Whether streams show thinking, or its token count, so that it can be metered. Summaries don't count."""

    @property
    def can_stop(self) -> bool:
        """Whether thinking can be switched off."""
        if self.contract in (Contract.NONE, Contract.SWITCH):
            return True
        return self.contract is not Contract.ALWAYS_ON and "none" in self.levels

    def typical(self, effort: str = "") -> int:
        """Returns the typical thinking tokens at an effort, by default the usual one; 0 if the model does not think."""
        usual = next((level for level in (self.unasked, "medium", *self.levels[-1:]) if level in self.levels), "")
        return dict(zip(self.levels, self.tokens, strict=False)).get(effort or usual, 0)


class Licence(Struct, frozen=True, kw_only=True):
    """What a model's licence permits. None means unknown, and then nothing is permitted that a policy requires."""

    id: str
    commercial: bool | None = None
    train_on_outputs: bool | None = None
    """Whether outputs may be used to train or steer other models."""
    users_max: int | None = None
    """Maximum monthly active users of the product; None for no limit (if the other terms are known)."""


class Terms(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a provider guarantees about data sent to it. None and "" mean not stated, and so not guaranteed."""

    training: bool | None = None
    retention_days: int | None = None
    """Number of days that inputs and outputs are kept, abuse logs included."""
    baa: bool = False
    """Whether a business associate agreement (45 CFR 164.504(e)) covers the data."""
    verify: str = ""
    """Where answers state the region: `usage.NAME` (read by the adapter) or `header:NAME`; empty if nowhere."""
    evidence: str = ""
    """Contract or page that states these terms."""
    expires_ms: int | None = None
    """Unix time in ms at which the evidence expires and the target stops serving; None if it does not expire."""


class Model(Struct, frozen=True, kw_only=True):
    """A catalog card. Sizes in billions of parameters, lengths in tokens."""

    id: str
    name: str
    context: int
    max_output: int
    capabilities: frozenset[Capability]
    thinking: Thinking = Thinking()
    price: Price | None = None
    licence: Licence = Licence(id="proprietary")
    parameters_b: float | None = None
    active_b: float | None = None
    scores: dict[Benchmark, float] = field(default_factory=dict)
    """Shares of questions that the model answers right, from 0 to 1."""
    scored: Thinking | None = None
    """Thinking contract of the card that the scores belong to; None for the model's own."""


class AbandonedAnswer(StrEnum):
    """What happens to an answer whose client has left."""

    READ_ON = "read_on"
    """It is read to its end, since the provider writes and bills all of it anyway."""
    CANCEL = "cancel"
    """Its connection is closed, and the provider stops writing."""


class Quirks(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a provider departs from OpenAI's chat API, as data."""

    max_tokens_field: str = "max_tokens"
    thinking_field: ThinkingField = ThinkingField.NONE
    stream_usage: bool = True
    """Whether to ask for usage with `stream_options.include_usage`."""
    usage_counts_one_choice: bool = False
    """Whether the reported usage covers only one choice if n > 1."""
    grammar_tools: bool = False
    """Whether the provider does not enforce tools, so that the adapter requests them by a JSON schema."""
    strict_tools: bool = False
    """Whether arguments of a forced call follow their schema only in `strict` tools; the adapter then sets `strict`."""
    responses: bool = False
    """Whether the provider has its own `/v1/responses`."""
    private: dict[str, Any] = field(default_factory=dict)
    """Request fields that forbid the provider to keep or train on a request. Objects are merged into the client's."""
    refuses: frozenset[str] = frozenset()
    """Request fields that the provider answers with an error, and that are dropped. `messages.NAME` is a member of
    messages, of their parts and of tools."""
    tokenize: Literal["", "vllm", "llama_cpp"] = ""
    """API by which a local engine can be asked for the token count of a prompt; empty if it has none."""
    asked_only: bool = False
    """Whether models with optional thinking think only if asked to."""
    units: dict[str, int] = field(default_factory=dict)
    """Billed units of each call beside its tokens, such as a search. They are held; the provider states their cost."""


class Provider(Struct, frozen=True, kw_only=True):
    """Provider of a model. `jurisdiction` is the ISO 3166 code of the legal entity's country."""

    id: str
    wire: Wire
    base_url: str
    key_env: str = ""
    entity: str = ""
    jurisdiction: str = ""
    local: bool = False
    terms: Terms = Terms()
    """Terms of its standard offer. A target may have better terms by contract."""
    quirks: Quirks = Quirks()
    abandoned: AbandonedAnswer = AbandonedAnswer.READ_ON
    """What happens to streams whose client has left."""
    prices: Mapping[str, Price] = {}
    """Prices of all its catalog models by the provider's names, as it may serve another model than was asked for."""
    encodings: Mapping[str, str] = {}
    """By pattern of model names: the encoding with which OpenAI counts tokens. Other counts are estimated."""


class Timeouts(Struct, frozen=True, kw_only=True):
    """Timeouts in ms. `first` lasts from the last byte of the request to the first byte of the answer's body."""

    connect: int = 5_000
    first: int = 60_000
    between: int = 30_000
    total: int = 600_000
    read_on: int = 0
    """Extra time in ms in which a late answer may still arrive and be read (`UpstreamFailure.late`); 0 for none."""


PROMPT_VARIABLES = ("messages", "system", "input", "text", "source", "target", "source_code", "target_code")
"""Variables of a prompt template: messages (`role`, `content`); all system prompts; the user's last message; the same
without an instruction before its text; its language and the one to translate into, as English names and as ISO 639-1
codes, "" if unclear."""


class Prompt(Struct, frozen=True, kw_only=True):
    """How a model that only completes texts is prompted: a Jinja template over `PROMPT_VARIABLES`."""

    template: str
    stop: tuple[str, ...] = ()
    bytes: int = 0
    """Maximum bytes of the template's own text in the prompt."""
    dense: int = 0
    """The part of `bytes` that is not words in small letters."""
    times: float = 1.0
    """How often the template repeats the user's text."""


SNAPSHOT = re.compile(r"[-@](?:20\d\d-\d\d-\d\d|20\d{6}|\d{3,4}|latest)$")
"""Suffix for a snapshot of a model: gpt-5-2025-08-07, claude-opus-4-1-20250805, gemini-2.5-pro-001."""


class Target(Struct, frozen=True, kw_only=True, dict=True):
    """A model and effort at one place: the unit that is estimated, chosen, called and charged."""

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
    """Maximum size of an unfinished event in bytes. A larger one ends the stream."""
    rejects: bool = False
    """Whether a request with unsupported fields is refused. Otherwise it is sent without these fields."""
    hourly: int | None = None
    """Cost of its machine in nano-USD per hour, from which estimates derive a price; None for the list price."""
    engine: ServedEngine | None = None
    """Engine of the target, from `engine` in the policy. `base_url` is that of its first replica."""
    max_wait_ms: int | None = None
    """Wait in ms above which it is asked only if no other target can serve; None to use only the route's deadline."""
    tasks: frozenset[Task] = frozenset()
    """Tasks of a specialist, which gets no others; empty for any task."""
    languages: frozenset[str] = frozenset()
    """ISO 639-1 codes of languages that it can read and write; empty for any."""
    pass_rate: float | None = None
    """A specialist's stated pass rate on its own tasks; None for what its card suggests."""
    prompt: Prompt | None = None
    """Prompt template of a model that only completes texts; None for a chat model."""
    abandoned: AbandonedAnswer | None = None
    """What happens to answers whose client has left, streamed or not; None to decide as `reads_on` describes."""
    served: Price | None = None
    """Price of a dearer model that answers in place of this one, for estimates and holds; None for its own price."""

    @cached_property
    def reads_on(self) -> tuple[bool, bool]:
        """Whether (whole answers, streams) are read on after the client leaves; by default only remote ones."""
        if self.abandoned is not None:
            return (self.abandoned is AbandonedAnswer.READ_ON,) * 2
        remote = not self.provider.local
        return remote, remote and self.provider.abandoned is AbandonedAnswer.READ_ON

    def price(self, served: str) -> Price | None:
        """Returns the price of the model that answered, named `served` by the provider. Snapshots of the target's model
        cost the same. Outside the catalog: its own price, or if higher that of the model whose name begins `served`."""
        own, others = self.model, self.provider.prices
        name = served if served in others else SNAPSHOT.sub("", served)
        if name in ("", SNAPSHOT.sub("", own.name)):
            return own.price
        if name in others or own.price is None:
            return others.get(name)
        kin = max((name for name in others if served.startswith(name)), key=len, default="")
        return max(own.price, others.get(kin, own.price), key=attrgetter("output", "input"))

    def at(self, price: Price | None) -> "Target":
        """Returns the target with `served` set to `price` if that exceeds its own price, else the target itself."""
        own = self.served or self.model.price
        if price is None or own is None or (price.output, price.input) <= (own.output, own.input):
            return self
        return structs.replace(self, served=price)

    def knows(self, served: str) -> bool:
        """Whether `served` names the model that was asked for ("models/Gemini-2.5-pro-001" too) or one of the catalog.
        Always true for local engines, whose names are free."""
        own, others, name = self.model.name, self.provider.prices, SNAPSHOT.sub("", served)
        bare, ours = name.rpartition("/")[2].casefold(), SNAPSHOT.sub("", own.rpartition("/")[2]).casefold()
        return self.provider.local or not others or bare in ("", ours) or served in others or name in others


# What a request would find at a target's engine: a queue, or none.


class Queue(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The queue at the replica that would start on a request first."""

    target: str = ""
    wait_ms: int = 0
    """Expected time in ms until the request is started."""
    waiting: int = 0
    """Requests that are there already and not yet started."""
    full: bool = False
    """Whether the engine has just turned a request away rather than queue it."""
    degraded: bool = False
    """Whether the target fails too often or is much slower than usual, and this request is not in its reduced share."""
    spilled: bool = False
    """Whether other targets were put before the target because of its queue."""
    down: str = ""
    """Status of the engine if no replica can start the request; empty otherwise."""

    def told(self) -> str:
        """Returns a text for display, such as "local: 14 waiting, 2.1 s"."""
        if self.degraded:
            return f"{self.target}: degraded"
        queue = "turns requests away" if self.full else f"{self.waiting} waiting, {self.wait_ms / 1000:.1f} s"
        return f"{self.target}: {queue}"


Queues: TypeAlias = Mapping[str, Queue]
"""Queues by target id, without targets that would start a request at once."""
QueueReader: TypeAlias = Callable[[Target, Callable[[Target], float]], Queue | None]
"""Returns a target's queue, given the function that estimates in ms how long a started request takes. None if the
request would be started at once, or if it is not known."""
