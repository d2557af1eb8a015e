"""A decision, its plan, and what was served."""

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

# What a right answer is worth and what it may take: the user's own price of a failure, floor, cap and deadline.


class Objective(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """None: not said. A route says some, a class of its data others, the request itself the last word."""

    failure_nano: int | None = None
    """What a wrong answer costs its user, in nano-USD."""
    min_pass_rate: float | None = None
    """Targets of a lower expected pass rate are not chosen while one of a higher is there."""
    max_nano: int | None = None
    """What the answer may cost, in nano-USD."""
    deadline_ms: int | None = None

    def over(self, other: "Objective") -> "Objective":
        """These, and the other's where these say nothing; of two caps on cost the lower."""
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
    """Of a request, its classes and its route: each `over` the next."""
    return own.over(demanded).over(usual)


def stakes(
    failure_cost: Decimal | None, min_pass_rate: float | None, max_cost: Decimal | None, deadline_ms: int | None
) -> Objective:
    """Amounts in USD, as a policy says them."""
    if failure_cost is None and min_pass_rate is None and max_cost is None and deadline_ms is None:
        return NO_STAKES
    return Objective(
        failure_nano=None if failure_cost is None else nano_from_usd(failure_cost),
        min_pass_rate=min_pass_rate,
        max_nano=None if max_cost is None else nano_from_usd(max_cost),
        deadline_ms=deadline_ms,
    )


# What is kept of a request besides its classification, so that it can be decided again under another policy.

OTHER = "*"
"""Stands for a word that is the client's own, and none that the API or the policy knows: it is kept nowhere."""
USUAL = (Capability.CHAT,)


class Before(Struct, frozen=True, omit_defaults=True):
    """What its session had done. Amounts in nano-USD."""

    target: str = ""
    spent: int = 0
    calls: int = 0
    elapsed_ms: int = 0


class RequestProfile(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Sizes and wishes, no text. As the fields of `Request`, in bytes, tokens and counts; what is usual is left out."""

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
    """1: it asks for a cache; 2: for a long one."""
    speaks: bool = False
    """It asks for a spoken answer."""
    fixed: bool = False
    """Asked twice, it would be answered the same."""
    task: Task | None = None
    """That its caller states."""
    languages: tuple[str, str] | None = None
    """What its text is in, and to be translated into; None: nobody looked."""
    region: str = ""
    """That it asks for, where a target of the policy has it."""
    thinking: int | None = None
    """Tokens that it may think."""
    budget: str = ""
    """Of the policy, that it names."""
    stakes: Objective = NO_STAKES
    """Its own: neither its route's nor its classes'."""
    redacted: tuple[str, ...] | None = None
    """Classes that are left once it is redacted; None: it was not."""
    before: Before | None = None
    left: tuple[int, int] | None = None
    """nano-USD and thinking tokens that its budgets had left, where it was decided by them."""


# Estimates, the plan that follows from them, and the record that explains it.


class Estimate(Struct, frozen=True, kw_only=True):
    """What one target would do with one request. Tokens over all choices, money in nano-USD."""

    input_tokens: int
    """Expected."""
    input_bound: int
    """At most: learned with a margin, else a conservative rule."""
    input_rough: int = 0
    """A plain count, without anything learned: what `Seen.expected_input` compares the real one with."""
    output_tokens: int
    """Expected, thinking included."""
    thinking_tokens: int = 0
    """The expected part of it that is thinking."""
    max_output: int
    """The cap per choice that may be sent: the client's own, else the model's."""
    cost: int
    """Expected."""
    hold: int
    """The worst case of what may be sent: `whole.usd`."""
    least: Amount = Amount()
    """The whole prompt, the least thinking that the model can be held to, and a short answer."""
    tight: Amount = Amount()
    """What a metered stream starts with; or what pays for the learned cap, where nothing can be metered."""
    whole: Amount = Amount()
    """The worst case."""
    effort: str = ""
    """The level of thinking that all of this is for, and that is asked for; empty: the model's own default."""
    thinking_budget: int | None = None
    """Thinking tokens per choice to ask for …"""
    cap: int | None = None
    """… and the cap per choice to send, where money or thinking tokens are short; None: as asked."""
    lowered: tuple[str, ...] = ()
    """What that changed of what was asked for: "effort", "output"."""
    task: Task | None = Task.CHAT
    """None: it was not read."""
    template: str = ""
    """`Classification.template`."""
    read: TokensRead = TokensRead()
    metered: bool = False
    """As a stream it shows all of its tokens: `tight` is a start that grows, `whole` need not be held …"""
    blind: bool = False
    """… unless nothing shows yet that they come piece by piece: then `tight` covers the cap that is sent."""
    at_ms: int = 0
    """When the prices are those of (Unix)."""
    script: str = ""
    """What kind of input it is, as far as counting its tokens goes."""


class FittedRequest(Struct, frozen=True, kw_only=True):
    """How a target is asked so that what is granted pays for it."""

    max_output: int | None = None
    """The cap per choice to send; None: leave the client's own."""
    effort: str | None = None
    """The effort to ask for, in the place of the policy's and the client's; None: leave the model's own default."""
    thinking_budget: int | None = None
    """Thinking tokens per choice to send, where the contract takes a number."""
    lowered: tuple[str, ...] = ()
    """What was changed to fit: "effort", "output"."""
    thinks: bool = False
    metered: bool = False
    """What is sent may cost more than is granted: the stream must be metered against that and extended …"""
    doubted: bool = False
    """… also below its cap: the target has not shown that it keeps caps."""


AS_ASKED = FittedRequest()


class PromptCount(NamedTuple):
    """Tokens of a prompt at one target, counted: what is exact of them; as expected; and at most."""

    least: int
    tokens: int
    most: int


Counts: TypeAlias = Mapping[str, PromptCount | None]
"""By target's id; None: it was tried, and can't be counted."""
UNCOUNTED: Counts = {}


class Candidate(Struct, frozen=True):
    target: Target
    estimate: Estimate
    redacted: bool = False
    """It may see the request with placeholders only."""
    wait_ms: int = 0
    """Until its engine begins it, as far as its queue tells."""


class Dropped(Struct, frozen=True):
    """A target that may not or cannot serve this request; `reason` is a stable code, `detail` one sentence."""

    target: str
    reason: str
    detail: str


Why = Literal[
    "chosen", "kept", "first", "second", "explored", "baseline", "dearer", "not_evident", "less_likely", "below_floor",
    "over_cost", "too_slow", "unknown", "queued", "degraded", "nearest",
]  # fmt: skip
"""A stable code: why a target was or was not chosen. "kept": the session's; "first", "second": of a pair; "nearest":
chosen although it breaks a limit, as all others do by more."""


class Weighed(Struct, frozen=True):
    """What was expected of one eligible target, and why it was or was not chosen. Expected nano-USD and ms."""

    target: str
    p: float
    p_sd: float
    cost_nano: int
    cost_nano_p10: int
    cost_nano_p90: int
    first_ms: int
    total_ms: int
    value_nano: int
    """What the strategy minimised, in nano-USD."""
    why: str
    """A `Why`."""
    cached_tokens: int = 0
    """Of its prompt, expected to be read from a cache."""


class Cascade(Struct, frozen=True, tag="cascade"):
    """The first `levels` steps are asked one after the other until an answer passes; the rest are fallbacks."""

    levels: int = 2


class Vote(Struct, frozen=True, tag="vote"):
    """Up to `samples` answers of the first step, one after the other; as soon as two differ the next step is asked."""

    samples: int = 3


class Hedge(Struct, frozen=True, tag="hedge"):
    """The second step is asked as well where the first has not begun to answer after `after_ms`."""

    after_ms: int


Tactic = Cascade | Vote | Hedge


class Plan(Struct, frozen=True, kw_only=True):
    """Targets in the order in which they will be tried, and why the others are not among them."""

    route: str
    strategy: str
    steps: tuple[Candidate, ...]
    dropped: tuple[Dropped, ...] = ()
    weigh: Callable[[], tuple[Weighed, ...]] = tuple
    """Every eligible target, where the strategy goes by forecasts: worked out for whoever reads it."""
    queued: tuple[Queue, ...] = ()
    """Targets of the route at which it would have to wait."""
    tactic: Tactic | None = None
    """None: the first step that answers does."""
    explored: str = ""
    """"cheaper" or "dearer" than the choice, where chance tried another target to keep the estimates honest."""
    propensity: float = 1.0
    """How likely it was that the first step came first."""
    alike: int | None = None
    """Of all targets in `Forecast.alike`, where the strategy goes by forecasts …"""
    alike_own: int | None = None
    """… and of the first step's …"""
    outcomes: int | None = None
    """… and outcomes of any requests that the rates were learned from."""


class CachePrefix(Struct, frozen=True):
    """What a request may begin with in common with others, so that a target may have it in a cache."""

    conversation: int
    """The same for all turns."""
    template: str
    shared: float
    """Share of the prompt that all requests of the template begin with."""
    long: bool = False
    """It asks for long caching."""


class Decision(Struct, frozen=True, kw_only=True):
    """Why: everything that led to the plan. Holds no text of the request."""

    id: str
    requested: str
    policy: str
    """Hash of the policy file in force."""
    classification: Classification
    plan: Plan
    stakes: Objective = NO_STAKES
    """Of the route, its classes and the request, joined."""
    shape: RequestProfile = RequestProfile()
    """What else it takes to decide the request again."""
    prefix: CachePrefix | None = None
    """None: the prompt is too short to be kept."""
    caps: tuple[Account, ...] = ()
    """What limits the request by itself …"""
    thinking: int | None = None
    """… and tokens that it may think: of header, class and budgets, over all its choices."""


# What is expected of each target for one request: numbers over all targets at once.

Vector: TypeAlias = NDArray[np.float64]
Z90 = 1.2816
"""Quantile of the normal distribution."""
NODES = np.array([-(3**0.5), 0.0, 3**0.5])
NODE_WEIGHTS = np.array([1 / 6, 2 / 3, 1 / 6])
"""Gauss–Hermite quadrature of three points, over what is not known of a request's difficulty: places in standard
deviations, and weights."""


class ForecastRanges(NamedTuple):
    """How far what is expected of each target goes, and how long it takes: limits and explanations alone ask."""

    p_sd: Vector
    cost_p10: Vector
    cost_p90: Vector
    first_ms: Vector
    """Expected time until the first byte of the answer's body."""
    total_ms: Vector
    total_p90_ms: Vector


class Forecast(Struct, frozen=True, kw_only=True, eq=False):
    """One number per target in each array, in the order in which the targets were given."""

    p: Vector
    """Posterior mean of the pass rate, 0 … 1."""
    p_nodes: Vector
    """[3, targets]: pass rates, were the request easier than it looks, as it looks, or harder …"""
    p_own_sd: Vector
    """… and the standard deviation of what is not common to all targets."""
    outcomes: float
    """That all these rates were learned from; what is older counts less."""
    cost: Vector
    """Expected cost of one attempt, thinking included, in nano-USD: an expectation, not an amount."""
    foretold: tuple[Vector, ...]
    """The cost; expected output tokens, and of these thinking; both of one choice, whatever its caps."""
    cached: Vector
    """Tokens of the prompt that each target has in its cache."""
    weighed_cost: Vector
    """nano-USD: the cost, less what `later` requests pay for (`router.decide.weigh.for_later`). Targets and pairs are
    compared by it (and by `usual_cost`, likewise); caps and what is shown go by `cost`."""
    alike: Mapping[str, float] = {}
    """By target: outcomes of the request's template, else of its task, that the rates were learned from."""
    usual_p: Vector
    """The pass rate over all of its traffic: what a fixed choice would go by."""
    usual_cost: Vector
    later: tuple[tuple[float, float], Vector] | None = None
    """Turns of the conversation, and requests of the template, that are likely to begin like this one; and [2, targets]
    what it costs more to have that written to a cache than read from it."""
    ranges: Callable[[], ForecastRanges]
    """Worked out for whoever reads them."""


# An answer on its way to the client.


class Translation(Protocol):
    """Turns the chat events of a target into those that the client's endpoint speaks."""

    def check(self, body: dict[str, Raw]) -> None:
        """Raises `UpstreamFailure` for a whole answer that can't be translated."""
        ...

    def whole(self, body: dict[str, Raw], usage: bytes) -> dict[str, Raw]:
        """A whole answer. `usage`: in the form of the client's endpoint. Raises as `check`."""
        ...

    def feed(self, events: bytes) -> bytes: ...
    def final(self, usage: bytes) -> bytes: ...
    def error_event(self, message: str, code: str) -> bytes: ...


class Served(Struct, frozen=True, kw_only=True):
    """Either a whole `body` (without `usage`, which stands beside it as JSON) or the `events` of a stream."""

    decision: Decision
    step: Candidate
    thinking: str
    lowered: tuple[str, ...] = ()
    """What was changed so that it fits its budgets: "route", "effort", "output"."""
    dropped: tuple[str, ...] = ()
    """Fields of the request that the target does not have."""
    loop: str = ""
    """What will stop the conversation if it goes on like this."""
    rates: tuple[tuple[Account, int], ...] = ()
    """Limits a minute of its key, and what is left of each."""
    cost: int | None = None
    """nano-USD, where it is known before the body."""
    body: dict[str, Raw] | None = None
    usage: bytes = b""
    events: AsyncGenerator[bytes] | None = None
    translated: bool = False
    """The target was asked by chat; the client needs the answer in the form of its own endpoint."""
