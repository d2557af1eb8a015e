"""Estimates, the plan that follows from them, and the record that explains it."""

from typing import Literal

from msgspec import Struct

from router.types.account import Amount
from router.types.classification import USUAL_OUTPUT, USUAL_THINKING, Classification
from router.types.shape import Shape
from router.types.stakes import NO_STAKES, Stakes
from router.types.target import Target
from router.types.task import Task


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
    """The level of thinking that all of this is for; empty: the model's own default."""
    task: Task = Task.CHAT
    template: str = ""
    """`Classification.template`."""
    read_output: float = USUAL_OUTPUT
    """Visible tokens per choice that the request's text foretells of any target …"""
    read_thinking: float = USUAL_THINKING
    """… and how much of its usual thinking a target needs."""
    metered: bool = False
    """As a stream it shows all of its tokens: `tight` is a start that grows, `whole` need not be held …"""
    blind: bool = False
    """… unless nothing shows yet that they come piece by piece: then `tight` covers the cap that is sent."""
    at_ms: int = 0
    """When the prices are those of (Unix)."""
    script: str = ""
    """What kind of input it is, as far as counting its tokens goes."""

    @property
    def read(self) -> tuple[float, float]:
        return self.read_output, self.read_thinking


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
    "over_cost", "too_slow", "unknown", "queued",
]  # fmt: skip
"""A stable code: why a target was or was not chosen. "kept": the session's; "first", "second": of a pair."""


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


class Queued(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The queue that a request would have found at a target's engine."""

    target: str
    wait_ms: int = 0
    """Expected, until it is begun."""
    waiting: int = 0
    """Requests before it that were not begun."""
    full: bool = False
    """It had just turned a request away."""
    degraded: bool = False
    """It failed too often or was much slower than usual."""
    spilled: bool = False
    """Others were put before the target because of it."""

    def told(self) -> str:
        """For people: "local: 14 waiting, 2.1 s"."""
        if self.degraded:
            return f"{self.target}: degraded"
        queue = "turns requests away" if self.full else f"{self.waiting} waiting, {self.wait_ms / 1000:.1f} s"
        return f"{self.target}: {queue}"


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
    weighed: tuple[Weighed, ...] = ()
    """Every eligible target, where the strategy goes by forecasts."""
    queued: tuple[Queued, ...] = ()
    """Targets of the route at which it would have to wait."""
    tactic: Tactic | None = None
    """None: the first step that answers does."""
    explored: str = ""
    """"cheaper" or "dearer" than the choice, where chance tried another target to keep the estimates honest."""
    propensity: float = 1.0
    """How likely it was that the first step came first."""


class Prefix(Struct, frozen=True):
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
    stakes: Stakes = NO_STAKES
    """Of the route, its classes and the request, joined."""
    shape: Shape = Shape()
    """What else it takes to decide the request again."""
    prefix: Prefix | None = None
    """None: the prompt is too short to be kept."""
