"""A decision, its plan, and the answer that was served."""

from collections.abc import AsyncGenerator, Callable, Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Literal, NamedTuple, Protocol, TypeAlias

import numpy as np
from msgspec import Raw, Struct, structs
from numpy.typing import NDArray

from router.types.account import Account, Amount
from router.types.price import nano_from_usd
from router.types.request import Classification, TokensRead
from router.types.target import Capability, Queue, Target, Task

# The value of a right answer and the limits on it: price of a failure, minimum pass rate, maximum cost and deadline.


class Objective(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Goals and limits, None where not stated. A request's own values win over its data classes', those over its
    route's."""

    failure_nano: int | None = None
    """Cost of a wrong answer to the user, in nano-USD."""
    min_pass_rate: float | None = None
    """Minimum expected pass rate. A target below it is chosen only if no target reaches it."""
    max_nano: int | None = None
    deadline_ms: int | None = None

    def over(self, other: "Objective") -> "Objective":
        """Returns these values, with those of `other` where they are None; of two maximum costs the lower."""
        if self is NO_STAKES:
            return other
        if other is NO_STAKES:
            return self
        stated = {name: value for name, value in structs.asdict(self).items() if value is not None}
        caps = [cap for cap in (self.max_nano, other.max_nano) if cap is not None]
        return structs.replace(other, **stated | {"max_nano": min(caps, default=None)})


NO_STAKES = Objective()


@lru_cache(1024)
def first_stated(own: Objective, demanded: Objective, usual: Objective) -> Objective:
    """Joins the objectives of a request, its data classes and its route, in this order of precedence (see `over`)."""
    return own.over(demanded).over(usual)


def stakes(
    failure_cost: Decimal | None, min_pass_rate: float | None, max_cost: Decimal | None, deadline_ms: int | None
) -> Objective:
    """Returns the objective for a policy's values, whose amounts are in USD."""
    if failure_cost is None and min_pass_rate is None and max_cost is None and deadline_ms is None:
        return NO_STAKES
    return Objective(
        failure_nano=None if failure_cost is None else nano_from_usd(failure_cost),
        min_pass_rate=min_pass_rate,
        max_nano=None if max_cost is None else nano_from_usd(max_cost),
        deadline_ms=deadline_ms,
    )


# What is stored of a request besides its classification, so that it can be decided again under another policy.

OTHER = "*"
"""Stored in place of a word that neither the API nor the policy knows, as such words come from the client."""
USUAL = (Capability.CHAT,)


class Before(Struct, frozen=True, omit_defaults=True):
    """What the request's session had done before it. Amounts in nano-USD."""

    target: str = ""
    spent: int = 0
    calls: int = 0
    elapsed_ms: int = 0


class RequestProfile(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Sizes and wishes of a request, without text. Names and units are those of `Request`; defaults are left out."""

    bytes: int = 0
    dense: int = 0
    wide: int = 0
    images: int = 0
    audio_s: int = 0
    file_bytes: int | None = 0
    needs: tuple[Capability, ...] = USUAL
    max_output: int | None = None
    effort: str = ""
    n: int = 1
    prompts: int = 1
    best_of: int = 1
    tier: str = ""
    caches: int = 0
    """1 if the request asks for a prompt cache, 2 if for a long-lived one, else 0."""
    speaks: bool = False
    """Whether the request asks for a spoken answer."""
    fixed: bool = False
    """Whether the request would get the same answer if it were repeated."""
    task: Task | None = None
    """Task that the caller states; None if none."""
    languages: tuple[str, str] | None = None
    """Language of the text, and language to translate it into; None if not detected."""
    region: str = ""
    """Region that the request asks for, if a target of the policy has it."""
    thinking: int | None = None
    """Maximum thinking tokens that the request allows; None if it does not say."""
    budget: str = ""
    """Budget of the policy that the request names; empty if none."""
    stakes: Objective = NO_STAKES
    """The request's own objective, without its route's and its data classes'."""
    redacted: tuple[str, ...] | None = None
    """Data classes that remain after redaction; None if it was not redacted."""
    before: Before | None = None
    left: tuple[int, int] | None = None
    """Nano-USD and thinking tokens that its budgets had left, if the decision depended on them."""


# Estimates, the plan that follows from them, and the record that explains it.


class Estimate(Struct, frozen=True, kw_only=True):
    """What one target is expected to do with one request. Tokens are over all choices, money in nano-USD."""

    input_tokens: int
    input_bound: int
    """Upper bound on input tokens: learned, with a margin, or else a conservative rule."""
    input_rough: int = 0
    """Plain token count without anything learned; learning compares the real count with it (`AttemptSample`)."""
    output_tokens: int
    """Expected number of output tokens, thinking included."""
    thinking_tokens: int = 0
    """Expected number of thinking tokens, which are part of `output_tokens`."""
    max_output: int
    """Maximum output tokens per choice that may be sent: the client's own cap, else the model's."""
    cost: int
    hold: int
    """Worst-case cost of what may be sent, in nano-USD; equals `whole.usd`."""
    least: Amount = Amount()
    """Amount for the whole prompt, the least thinking that the model can be limited to, and a short answer."""
    tight: Amount = Amount()
    """Amount that a metered stream starts with, or that pays for the learned cap if the answer can't be metered."""
    whole: Amount = Amount()
    effort: str = ""
    """Effort level of this estimate, which is sent to the target; empty for the model's own default."""
    thinking_budget: int | None = None
    """Thinking tokens per choice to ask for; None if not asked for."""
    cap: int | None = None
    """Cap per choice to send if money or thinking tokens are short; None to leave it as requested."""
    lowered: tuple[str, ...] = ()
    """What these values lower in comparison with the request: `effort`, `output`."""
    task: Task | None = Task.CHAT
    """Task of the request; None if its text was not read."""
    template: str = ""
    read: TokensRead = TokensRead()
    metered: bool = False
    """Whether a stream of the target shows all tokens as they come, so that `tight` can grow to what is needed."""
    blind: bool = False
    """Whether it is still unknown that tokens come piece by piece; then `tight` covers the cap that is sent."""
    at_ms: int = 0
    """Unix time in ms whose prices are used."""
    script: str = ""
    """Kind of input as far as token counts depend on it (`Request.script`)."""


class FittedRequest(Struct, frozen=True, kw_only=True):
    """How a target is asked so that the granted amount pays for the answer."""

    max_output: int | None = None
    """Cap per choice to send; None to leave the client's own."""
    effort: str | None = None
    """Effort to ask for instead of the policy's and the client's; None to leave the model's own default."""
    thinking_budget: int | None = None
    """Thinking tokens per choice to send, if the target's contract accepts a number."""
    lowered: tuple[str, ...] = ()
    """What was lowered to fit: `effort`, `output`."""
    thinks: bool = False
    metered: bool = False
    """Whether the answer may cost more than is granted, so that the stream must be metered and the hold extended."""
    doubted: bool = False
    """Whether it must be metered even below its cap, as the target has not yet been seen to keep caps."""


AS_ASKED = FittedRequest()


class PromptCount(NamedTuple):
    """Number of tokens of a prompt at one target: `least` and `most` are bounds, `tokens` is the expected number."""

    least: int
    tokens: int
    most: int


Counts: TypeAlias = Mapping[str, PromptCount | None]
"""Counts by target id; None if counting was tried and is not possible."""
UNCOUNTED: Counts = {}


class Candidate(Struct, frozen=True):
    target: Target
    estimate: Estimate
    redacted: bool = False
    """Whether the target may only see the request with placeholders."""
    wait_ms: int = 0
    """Expected waiting time in ms until the engine starts on the request, according to its queue."""


class Dropped(Struct, frozen=True):
    """A target that may not or cannot serve this request. `reason` is a stable code, `detail` one sentence."""

    target: str
    reason: str
    detail: str


Why = Literal[
    "chosen", "kept", "first", "second", "explored", "baseline", "dearer", "not_evident", "less_likely", "below_floor",
    "over_cost", "too_slow", "unknown", "queued", "degraded", "nearest",
]  # fmt: skip
"""Stable code: why a target was or was not chosen. `kept`: the session's target. `first`, `second`: members of a pair.
`nearest`: chosen although it breaks a limit, as all others break one by more."""


class Weighed(Struct, frozen=True):
    """What was expected of an eligible target, and why it was or was not chosen. Costs in nano-USD, times in ms."""

    target: str
    p: float
    p_sd: float
    cost_nano: int
    cost_nano_p10: int
    cost_nano_p90: int
    first_ms: int
    total_ms: int
    value_nano: int
    """Value that the strategy minimised, in nano-USD."""
    why: str
    """A code from `Why`."""
    cached_tokens: int = 0
    """Prompt tokens that are expected to be read from a cache."""


class Cascade(Struct, frozen=True, tag="cascade"):
    """The first `levels` steps are asked one after the other until an answer passes. The others are fallbacks."""

    levels: int = 2


class Vote(Struct, frozen=True, tag="vote"):
    """Takes up to `samples` answers of the first step in turn. As soon as two differ, the next step is asked."""

    samples: int = 3


class Hedge(Struct, frozen=True, tag="hedge"):
    """Also asks the second step if the first has not begun to answer after `after_ms`."""

    after_ms: int


Tactic = Cascade | Vote | Hedge


class Plan(Struct, frozen=True, kw_only=True):
    """Targets in the order in which they are tried, and why the others are not among them."""

    route: str
    strategy: str
    steps: tuple[Candidate, ...]
    dropped: tuple[Dropped, ...] = ()
    weigh: Callable[[], tuple[Weighed, ...]] = tuple
    """Computes the forecast of every eligible target on demand; empty if the strategy uses no forecasts."""
    queued: tuple[Queue, ...] = ()
    """Targets of the route at which the request would have to wait."""
    tactic: Tactic | None = None
    """Tactic that combines several targets; None if the first step that answers is enough."""
    explored: str = ""
    """`cheaper` or `dearer` if a random experiment replaced the choice by such a target; empty otherwise."""
    propensity: float = 1.0
    """Probability that the first step came first."""
    alike: int | None = None
    """Number of outcomes of similar requests, over all targets (`Forecast.alike`); None without a forecast."""
    alike_own: int | None = None
    """Number of outcomes of similar requests at the first step's target; None without a forecast."""
    outcomes: int | None = None
    """Number of all outcomes that the pass rates were learned from; None without a forecast."""


class CachePrefix(Struct, frozen=True):
    """The beginning of a prompt that other requests share, so that a target may have it in its prompt cache."""

    conversation: int
    """Hash of the conversation, which is the same in all its turns."""
    template: str
    shared: float
    """Share of the prompt with which all requests of the template begin."""
    long: bool = False
    """Whether the request asks for long-lived caching."""


class Decision(Struct, frozen=True, kw_only=True):
    """Everything that led to the plan. Contains no text of the request."""

    id: str
    requested: str
    policy: str
    classification: Classification
    plan: Plan
    stakes: Objective = NO_STAKES
    """Joined objective of the route, the data classes and the request."""
    shape: RequestProfile = RequestProfile()
    """Profile of the request, with what else is needed to decide it again."""
    prefix: CachePrefix | None = None
    """Shared beginning of the prompt; None if the prompt is too short to be cached."""
    caps: tuple[Account, ...] = ()
    """Limits that apply to this request alone."""
    thinking: int | None = None
    """Maximum thinking tokens over all choices, from header, data class and budgets; None if unlimited."""


# Forecasts for one request, as arrays over all targets.

Vector: TypeAlias = NDArray[np.float64]
Z90 = 1.2816
"""90th percentile of the standard normal distribution."""
NODES = np.array([-(3**0.5), 0.0, 3**0.5])
NODE_WEIGHTS = np.array([1 / 6, 2 / 3, 1 / 6])
"""Three-point Gauss–Hermite quadrature over the uncertainty of a request's difficulty: positions in standard
deviations, and weights."""


class ForecastRanges(NamedTuple):
    """Uncertainty of the forecast, and expected times. Only limits and explanations need them."""

    p_sd: Vector
    cost_p10: Vector
    cost_p90: Vector
    first_ms: Vector
    """Expected time until the first byte of the answer's body."""
    total_ms: Vector
    total_p90_ms: Vector


class Forecast(Struct, frozen=True, kw_only=True, eq=False):
    """Forecast for several targets. Each array has a number per target, in the order in which they were given."""

    p: Vector
    """Posterior mean of the pass rate, from 0 to 1."""
    p_nodes: Vector
    """Pass rates if the request is easier than, as hard as, or harder than it looks. Shape [3, targets]."""
    p_own_sd: Vector
    """Standard deviation of the pass rate due to uncertainty that the targets do not share."""
    outcomes: float
    """Number of outcomes that the pass rates were learned from; older ones count less."""
    cost: Vector
    """Expected cost of one attempt in nano-USD as a float, thinking included."""
    foretold: tuple[Vector, ...]
    """Expected cost; output tokens and thinking tokens over all choices; both per choice before any cap."""
    cached: Vector
    """Prompt tokens that each target has in its cache."""
    weighed_cost: Vector
    """Cost in nano-USD less the part that later requests save by the cache (`router.decide.weigh.for_later`). Targets
    and pairs are compared by it and by `usual_cost`, which is reduced likewise; limits and reports use `cost`."""
    alike: Mapping[str, float] = {}
    """By target id: outcomes of the same template, else of the same task, that the rates were learned from."""
    usual_p: Vector
    """Pass rate over all traffic of the target, by which a fixed choice would be made."""
    usual_cost: Vector
    later: tuple[tuple[float, float], Vector] | None = None
    """Expected later turns and later requests of the template that begin in the same way; and what writing this
    beginning to a cache costs more than reading it, in nano-USD, shape [2, targets]."""
    ranges: Callable[[], ForecastRanges]
    """Computes the ranges on demand."""


# An answer on its way to the client.


class Translation(Protocol):
    """Translates a target's chat events into those of the client's endpoint."""

    def check(self, body: dict[str, Raw]) -> None:
        """Raises `UpstreamFailure` if a whole answer can't be translated."""
        ...

    def whole(self, body: dict[str, Raw], usage: bytes) -> dict[str, Raw]:
        """Translates a whole answer. `usage` has the form of the client's endpoint. Raises as `check` does."""
        ...

    def feed(self, events: bytes) -> bytes: ...
    def final(self, usage: bytes) -> bytes: ...
    def error_event(self, message: str, code: str) -> bytes: ...


class Served(Struct, frozen=True, kw_only=True):
    """An answer: either a whole `body`, with `usage` beside it as JSON, or the `events` of a stream."""

    decision: Decision
    step: Candidate
    thinking: str
    lowered: tuple[str, ...] = ()
    """What was lowered to fit the budgets: `route`, `effort`, `output`."""
    dropped: tuple[str, ...] = ()
    """Fields of the request that the target does not support."""
    loop: str = ""
    """Reason for which the loop breaker will stop the conversation if it continues like this; empty if none."""
    rates: tuple[tuple[Account, int], ...] = ()
    """Per-minute limits of the key, each with what is left of it."""
    cost: int | None = None
    """Cost in nano-USD if it is known before the body is sent."""
    body: dict[str, Raw] | None = None
    usage: bytes = b""
    events: AsyncGenerator[bytes] | None = None
    translated: bool = False
    """Whether the target was asked by chat, so that the answer must be translated for the client's endpoint."""
