"""What the strategies decide by, and the value of each target."""

from collections.abc import Callable, Collection, Sequence
from functools import cache, partial
from math import erf, hypot, isfinite, pi, sqrt
from operator import attrgetter
from typing import Annotated, NamedTuple

import numpy as np
from msgspec import Struct, structs
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from router.decide.worth import CascadeValue
from router.types.decision import NODE_WEIGHTS, Z90, Candidate, Forecast, Objective, Tactic, Vector, Weighed, Why
from router.types.request import Classification
from router.types.target import Queue, Queues, Target

# What a strategy that goes by forecasts is told, and what it answers.


class DecisionInput(Struct, frozen=True, kw_only=True, eq=False):
    """One request, its eligible targets, and what is expected of each: `forecast` has one number for each of them."""

    targets: tuple[Target, ...]
    forecast: Forecast
    classification: Classification
    stakes: Objective
    draw: float
    """Uniform in [0, 1): the only chance there is."""
    queues: Queues = {}
    """The forecast's times have them in it."""
    unpaid: NDArray[np.bool_] | None = None
    """Targets for whose shortest answer money or thinking tokens do not suffice; None: they do for all."""
    last: str = ""
    """The target that answered before in this session."""
    verified: bool = False
    """The route has verifiers: a wrong answer can be told from a right one before the client gets it."""
    samples_differ: bool = True
    """Asked twice, a target need not say the same, and there is one answer that two can agree on."""
    stream: bool = False
    spent: int = 0
    """By this session so far, in nano-USD …"""
    calls: int = 0
    """… in so many requests …"""
    elapsed_ms: float = 0.0
    """… since its first one."""


class Ranking(NamedTuple):
    """`order`: indexes of targets, the first to be tried first. `out`: why each is out of the question; 0: it is in."""

    order: Sequence[int]
    out: NDArray[np.intp]
    weigh: Callable[[], tuple[Weighed, ...]]
    """What is told of each target, in their order: worked out for whoever reads it."""
    tactic: Tactic | None = None


# Queues of engines, and degraded targets → whom else to ask first. Only the order of targets changes.

Takes = Callable[[Candidate], tuple[float, float]]
"""ms that a request takes there, once begun: its mean and its 90 % quantile."""
_NONE = Queue()
_TINY = 1e-9


def overflow(
    steps: Sequence[Candidate], queues: Queues, deadline_ms: int | None, takes: Takes
) -> tuple[Candidate, ...]:
    """A target with too long a queue comes behind all others, the shortest queue first."""
    late = [_late(step, queues, deadline_ms, takes) for step in steps]
    here = [step for step, is_late in zip(steps, late, strict=True) if not is_late]
    behind = [step for step, is_late in zip(steps, late, strict=True) if is_late]
    behind.sort(key=lambda step: (queues[step.target.id].full, step.wait_ms))
    return (*(_sooner(here, takes) if deadline_ms is None else here), *behind)


def moved_back(before: Sequence[Candidate], after: Sequence[Candidate]) -> frozenset[str]:
    """Ids of those that others were put before."""
    rank = {step.target.id: place for place, step in enumerate(before)}
    order = [step.target.id for step in after]
    return frozenset(
        name for place, name in enumerate(order) if any(rank[other] > rank[name] for other in order[:place])
    )


def noted(queues: Queues, overflow: Collection[str]) -> tuple[Queue, ...]:
    """What is kept of queues; an engine that is down is told of as the reason for which its target was dropped."""
    return tuple(
        structs.replace(queue, target=name, spilled=name in overflow)
        for name, queue in queues.items()
        if not queue.down
    )


def queued(situation: DecisionInput) -> NDArray[np.bool_]:
    """Whose queue is too long, whatever the deadline."""
    return np.array([_too_long(target, situation.queues.get(target.id, _NONE)) for target in situation.targets])


def timely(situation: DecisionInput) -> Vector:
    """Chance that an answer of each target makes the deadline; 1 where no request waits, as slow targets are out."""
    chance, forecast, deadline = np.ones(len(situation.targets)), situation.forecast, situation.stakes.deadline_ms
    if deadline is None:
        return chance
    *_, total_ms, slow_ms = forecast.ranges()
    for at, target in enumerate(situation.targets):
        if target.id in situation.queues:
            spread = (slow_ms[at] - total_ms[at]) / Z90
            chance[at] = (1 + erf(((deadline - total_ms[at]) / max(spread, _TINY)) / sqrt(2))) / 2
    return chance


def _late(step: Candidate, queues: Queues, deadline_ms: int | None, takes: Takes) -> bool:
    queue = queues.get(step.target.id)
    if queue is None:
        return False
    too_long = _too_long(step.target, queue)
    if too_long or deadline_ms is None:
        return too_long
    mean, p90 = takes(step)
    # Only one time in ten wait and answer take longer: each of n that end before it scatters by itself.
    return queue.wait_ms + mean + hypot(p90 - mean, Z90 * queue.wait_ms / sqrt(queue.waiting + 1)) > deadline_ms


def _too_long(target: Target, queue: Queue) -> bool:
    """Beyond the timeout of the first byte the gateway does not wait anyway."""
    most = target.timeouts.first if target.max_wait_ms is None else min(target.max_wait_ms, target.timeouts.first)
    return queue.full or queue.degraded or queue.wait_ms > most


def _sooner(steps: list[Candidate], takes: Takes) -> list[Candidate]:
    """The first gives way to one that is no dearer and would have answered before it begins; unless the policy says how
    long to wait for it."""
    if not steps or not steps[0].wait_ms or steps[0].target.max_wait_ms is not None:
        return steps
    first = steps[0]
    for at, other in enumerate(steps):
        if at and other.estimate.cost <= first.estimate.cost and other.wait_ms + takes(other)[0] < first.wait_ms:
            return [other, *steps[:at], *steps[at + 1 :]]
    return steps


# Forecasts → what each target is worth, which are out of the question, and why a target was not chosen.

Flags = NDArray[np.bool_]

IN, QUEUED, BELOW_FLOOR, OVER_COST, TOO_SLOW, UNPAID, UNKNOWN = range(7)
REASONS: tuple[Why | None, ...] = (None, "queued", "below_floor", "over_cost", "too_slow", "over_cost", "unknown")
"""Why a target is out, in the order of how bad that is."""

_ID = attrgetter("id")
_MOST = 1e30
"""In the place of what has no end."""
_MOST_Z = 30.0
_DECIMALS = 1e4
"""Pass rates are kept with four digits."""
_ROOT_2_PI = sqrt(2 * pi)
HOPELESS = 0.02
"""A target that passes less often is asked only where all others do, too: an answer that can't be right is worth
nothing, however cheap."""
SAME_RATE = 0.0005
"""By which pass rates differ at least to be told apart: priors of what nearly all pass are no surer."""
_LEAST_P = 1e-3
"""A pass rate below it says no more than that it is not known."""


class ExpectedLoss(Struct, frozen=True, eq=False):
    """`value`: nano-USD for a right answer, the less the better. `out`: index into the reasons; 0 is in."""

    value: Vector
    out: NDArray[np.intp]
    margin: Vector
    """nano-USD: what leaving the baseline for it gains on average, less `caution` times the expected regret."""
    baseline: int
    best: int


def expected_loss(situation: DecisionInput, out: NDArray[np.intp], caution: float) -> ExpectedLoss:
    """The baseline is always in the running; leaving it takes evidence, or a target that is cheaper and as likely
    right: so raising the price of a failure never leads to one that is dearer and worse."""
    forecast, stakes = situation.forecast, situation.stakes
    p, nodes, cost = forecast.p, forecast.p_nodes, forecast.weighed_cost
    if situation.queues:
        p, nodes = map(timely(situation).__mul__, (p, nodes))
    value, usual = price(cost, p, stakes), price(forecast.usual_cost, forecast.usual_p, stakes)
    among = _among(situation, out)
    baseline = int(np.where(among, usual, np.inf).argmin())
    margin, best = value[baseline] - value, baseline
    # Where none seems better, none is: how wrong that may be is only asked of what a session would stay with.
    if situation.last or np.count_nonzero(margin > 0.0):
        margin = margin - caution * _regret(forecast, nodes, stakes, baseline)
        evident = among & (margin > 0.0)
        if np.count_nonzero(evident):
            best = int(np.where(evident, value, np.inf).argmin())
    surely = among & (cost < cost[best]) & (p >= p[best] * (1 - SAME_RATE))
    if np.count_nonzero(surely):
        best = int(np.where(surely, value, np.inf).argmin())
    return ExpectedLoss(value, out, margin, baseline, best)


def price(cost: Vector, p: Vector, stakes: Objective) -> Vector:
    """nano-USD: what an answer costs and what its being wrong does; without a price of that, what a right one costs."""
    if stakes.failure_nano is not None:
        return cost + float(stakes.failure_nano) * (1.0 - p)
    return cost / np.maximum(p, _LEAST_P)


def for_later(forecast: Forecast, stakes: Objective) -> Forecast:
    """With the costs that targets are compared by: later requests pay for a prompt to be written to a cache what they
    save by it, if they are usual and if they are like this one."""
    if forecast.later is None or len(forecast.p) < 2:
        return forecast
    such, usual = (forecast.p, forecast.cost), (forecast.usual_p, forecast.usual_cost)
    of_turns, of_template = (
        np.minimum(_saved_later(count, written, *such, stakes), _saved_later(count, written, *usual, stakes))
        for count, written in zip(*forecast.later, strict=True)
    )
    saved = np.maximum(of_turns, of_template)
    return structs.replace(forecast, weighed_cost=forecast.cost - saved, usual_cost=forecast.usual_cost - saved)


def _saved_later(count: float, written: Vector, p: Vector, cost: Vector, stakes: Objective) -> Vector:
    """nano-USD that so many requests save by what each target has `written`: by how much the cheapest other target that
    may be asked costs more, which would have to write the prompt first; no more than was written."""
    p = np.maximum(p, _LEAST_P)
    each = 1.0 if stakes.failure_nano is not None else 1 / p
    there, cold = count * price(cost - written, p, stakes), min(count, 1.0) * written
    elsewhere = np.where(p >= (stakes.min_pass_rate or 0.0), np.nan_to_num(there + cold * each, nan=np.inf), np.inf)
    least, second = np.partition(elsewhere, 1)[:2]
    others = np.where(elsewhere > least, least, second)
    return np.asarray(np.minimum(np.maximum((others - there) / each, 0.0), cold))


def excluded(situation: DecisionInput, caution: float) -> NDArray[np.intp]:
    """Targets that break floor, cap or deadline, or have too long a queue. The worst reason counts; NaN breaks
    them all."""
    forecast, stakes = situation.forecast, situation.stakes
    out = np.zeros(len(forecast.p), dtype=np.intp)
    if situation.queues:
        out[queued(situation)] = QUEUED
    hopeless = forecast.p < HOPELESS
    if 0 < np.count_nonzero(hopeless) < len(out):
        out[hopeless] = BELOW_FLOOR
    if stakes.min_pass_rate is not None:
        out[~(forecast.p - caution * forecast.ranges().p_sd >= stakes.min_pass_rate)] = BELOW_FLOOR
    if stakes.max_nano is not None:
        out[~(forecast.cost <= stakes.max_nano)] = OVER_COST
    if stakes.deadline_ms is not None:
        out[~(forecast.ranges().total_p90_ms <= stakes.deadline_ms)] = TOO_SLOW
    if situation.unpaid is not None:
        out[situation.unpaid] = UNPAID
    if not isfinite(forecast.p.dot(forecast.cost) + forecast.usual_p.dot(forecast.usual_cost)):
        known = np.isfinite((forecast.p, forecast.cost, forecast.usual_p, forecast.usual_cost)).all(axis=0)
        out[~known] = UNKNOWN
    return out


def weighed(
    situation: DecisionInput, expected_loss: ExpectedLoss, why: Callable[[ExpectedLoss], list[Why]]
) -> tuple[Weighed, ...]:
    """What is kept of all this, in the order of the targets."""
    forecast, (sd, low, high, first_ms, total_ms, _) = situation.forecast, situation.forecast.ranges()
    whole = forecast.cost, low, high, first_ms, total_ms, expected_loss.value
    numbers = np.array((forecast.p, sd, *whole, forecast.cached))
    if not _finite(numbers):  # what is none, or has no end, can't be kept
        numbers = np.nan_to_num(numbers, posinf=0.0, neginf=0.0)
    p, sd = (np.rint(numbers[:2] * _DECIMALS) / _DECIMALS).tolist()
    *columns, cached = numbers[2:].astype(np.int64).tolist()
    words = why(expected_loss)
    for at, target in enumerate(situation.targets) if situation.queues else ():
        if words[at] == "queued" and situation.queues[target.id].degraded:
            words[at] = "degraded"
    return tuple(map(Weighed, map(_ID, situation.targets), p, sd, *columns, words, cached))


def reasons(expected_loss: ExpectedLoss, chosen: int, word: Why = "chosen", second: int | None = None) -> list[Why]:
    """Why each target is or is not the one that is asked; `word` for the one that is."""
    least = float(expected_loss.value[expected_loss.best])
    why: list[Why] = []
    columns = expected_loss.out.tolist(), expected_loss.value.tolist(), expected_loss.margin.tolist()
    for out, value, margin in zip(*columns, strict=True):
        why.append(REASONS[out] or ("not_evident" if value < least and not margin > 0 else "dearer"))
    if not expected_loss.out[expected_loss.baseline]:
        why[expected_loss.baseline] = "baseline"
    why[chosen] = "nearest" if expected_loss.out[chosen] else word
    if second is not None:
        why[second] = "second"
    return why


def by_value(expected_loss: ExpectedLoss, first: int) -> list[int]:
    """Indexes of targets: `first`, then by value; what is out last of all, for when no other answers."""
    order: list[int] = np.lexsort((expected_loss.value, expected_loss.out)).tolist()
    order.remove(first)
    return [first, *order]


def _among(situation: DecisionInput, out: NDArray[np.intp]) -> Flags:
    """Targets that are in; where none is, those that are nearest to the least bad of the limits."""
    forecast, least = situation.forecast, int(out[out.argmin()])
    among = np.equal(out, least)
    if least in (IN, UNPAID, UNKNOWN):
        return among
    dear, slow = forecast.cost, forecast.ranges().total_p90_ms
    waits = np.array([situation.queues.get(target.id, _NONE).wait_ms for target in situation.targets])
    far = {QUEUED: waits, BELOW_FLOOR: -forecast.p, OVER_COST: dear, TOO_SLOW: slow}[least]
    nearest: Flags = np.arange(len(out)) == np.where(among, far, np.inf).argmin()
    return nearest


def _regret(forecast: Forecast, nodes: Vector, stakes: Objective, baseline: int) -> Vector:
    """Expected loss, in the unit of `price`, where leaving the baseline for a target turns out to be wrong.

    How hard the request is counts once for all targets (`nodes`); what is not known of each alone is normal.
    """
    gain, spread = _gains(forecast, nodes, stakes, baseline)
    z = np.minimum(np.maximum(gain / spread, -_MOST_Z), _MOST_Z)
    # E[max(0, −x)] of a normal x.
    loss = np.maximum(spread * np.exp(-0.5 * z * z) / _ROOT_2_PI - gain * _below(z), 0.0)
    regret: Vector = NODE_WEIGHTS.dot(loss)
    regret[baseline] = 0.0
    return regret


def _gains(forecast: Forecast, nodes: Vector, stakes: Objective, choice: int) -> tuple[Vector, Vector]:
    """[3, T]: what each target's value is better than that of `choice` at each node; [T]: its standard deviation."""
    values = price(forecast.weighed_cost, nodes, stakes)
    gain = values[:, choice, None] - values
    if not _finite(gain):
        gain = np.nan_to_num(gain, posinf=_MOST, neginf=-_MOST)
    if stakes.failure_nano is not None:
        own = stakes.failure_nano * forecast.p_own_sd
    else:
        own = forecast.weighed_cost / np.maximum(forecast.p, _LEAST_P) ** 2 * forecast.p_own_sd
    return gain, np.minimum(np.maximum(np.hypot(own, own[choice]), _TINY), _MOST)


def _finite(numbers: Vector) -> bool:
    """All are numbers; far quicker than to ask for each."""
    flat = numbers.ravel()
    return isfinite(flat.dot(flat))


def _below(z: Vector) -> Vector:
    """P(x < 0) of a normal x whose mean is z standard deviations: the logistic approximation."""
    return 1.0 / (1.0 + np.exp(1.702 * z))


# Two targets one after the other, against the best single one: the pair wins only if it pays.


class PairOption(NamedTuple):
    """A way to ask two targets. `value`: what each ordered pair is worth at the pass rates [T] that it is given."""

    tactic: Tactic
    value: Callable[[Vector], CascadeValue]
    samples: int = 1
    """How often the first is asked, at most."""


def ranked(situation: DecisionInput, caution: float, options: Sequence[PairOption]) -> Ranking:
    """The best pair of any option, of equals the first, where it beats the best single target as expected and where
    pass rates are `caution` standard deviations lower, or alone is within limits; else single targets by value."""
    forecast = structs.replace(situation.forecast, ranges=cache(situation.forecast.ranges))  # read more than once
    situation, stakes, tactic = structs.replace(situation, forecast=forecast), situation.stakes, None
    single = expected_loss(situation, excluded(situation, caution), caution)
    low = np.minimum(np.maximum(forecast.p - caution * forecast.ranges().p_sd, 0.0), 1.0)
    bounds = single.value[single.best], price(forecast.weighed_cost, low, stakes)[single.best]
    order, why, least = by_value(single, single.best), partial(reasons, chosen=single.best), np.inf
    for option in options:
        expected, worse = option.value(forecast.p), option.value(low)
        value = price(expected.cost, expected.p, stakes)
        value = np.where(_allowed(situation, single, option.samples, worse.p) & np.isfinite(value), value, np.inf)
        first, second = divmod(int(value.argmin()), len(value))
        if value[first, second] >= least:
            continue
        least, tactic = value[first, second], None
        lowest = price(worse.cost[first, second], worse.p[first, second], stakes)
        if single.out[single.best] or (least < bounds[0] and lowest < bounds[1]):
            pair, tactic = (first, second), option.tactic
    if tactic is not None:
        order = [*pair, *[at for at in order if at not in pair]]
        why = partial(reasons, chosen=pair[0], word="first", second=pair[1])
    return Ranking(order, single.out, partial(weighed, situation, single, why), tactic)


def _allowed(situation: DecisionInput, single: ExpectedLoss, samples: int, low_p: Vector) -> Flags:
    """[T, T]: pairs that keep floor, cap and deadline, also if all of it comes to be asked."""
    forecast, stakes = situation.forecast, situation.stakes
    known = (single.out < UNPAID) & (single.out != QUEUED)
    fine: Flags = known[:, None] & known & ~np.eye(len(known), dtype=bool)
    if stakes.min_pass_rate is not None:
        fine &= low_p >= stakes.min_pass_rate
    for limit, each in (stakes.max_nano, forecast.cost), (stakes.deadline_ms, forecast.ranges().total_p90_ms):
        if limit is not None:
            fine &= np.add.outer(samples * each, each) <= limit
    return fine


# A small share of the traffic for targets that may turn out to be better: it keeps the estimates honest.
#
# Source: probability matching (Thompson 1933): a target is tried as often as it is likely to be the better choice.

ENOUGH = 20
"""Outcomes of a route's targets from which on they are tried: without feedback nothing would be learned from it."""
DOUBT = 0.03
"""Of a pass rate, however sure it seems: what is tried is there to find out where the model is wrong."""


class Exploration(BaseModel):
    """At most `share` of the requests, and of what they cost, goes to targets that may be better than the choice."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    share: Annotated[float, Field(ge=0, le=0.5, allow_inf_nan=False)] = 0.02


def explore(ranked: Ranking, situation: DecisionInput, share: float, draw: float) -> tuple[Ranking, str, float]:
    """What is tried; "cheaper" or "dearer" than the choice where chance tries another, else ""; the propensity of what
    is now first.

    A target has the chance share · P(better than the choice) · min(1, cost of the choice ÷ its cost), the lesser of the
    two with and without the price of failures, so that requests, spend and what failures cost stay within `share`.
    `draw`: uniform in [0, 1). Floors, caps, deadlines and queues hold for it too.
    """
    if share <= 0 or len(situation.targets) < 2 or situation.forecast.outcomes < ENOUGH:
        return ranked, "", 1.0
    choice, cost = ranked.order[0], situation.forecast.cost
    allowed = ranked.out == IN
    allowed[choice] = False
    if not allowed.any() or not np.isfinite(cost[choice]):
        return ranked, "", 1.0
    doubtful = structs.replace(situation.forecast, p_own_sd=np.maximum(situation.forecast.p_own_sd, DOUBT))
    gain, spread = _gains(doubtful, doubtful.p_nodes, situation.stakes, choice)
    better = np.where(allowed, 1 - NODE_WEIGHTS @ _below(np.clip(gain / spread, -_MOST_Z, _MOST_Z)), 0.0)
    priced = cost + (situation.stakes.failure_nano or 0) * (1 - situation.forecast.p)
    cheap = np.where(allowed, 1.0, 0.0)
    for price in (cost, priced):
        cheap = np.minimum(cheap, price[choice] / np.maximum(price, 1e-9))
    chances = share * better / max(1.0, better.sum()) * cheap
    ends = np.cumsum(chances)
    if draw >= ends[-1]:
        return ranked, "", 1.0 - float(ends[-1])
    tried = int(np.searchsorted(ends, draw, side="right"))
    arm = "cheaper" if cost[tried] < cost[choice] else "dearer"

    def weigh() -> tuple[Weighed, ...]:
        rows = list(ranked.weigh())
        rows[tried] = structs.replace(rows[tried], why="explored")
        return tuple(rows)

    # Without checks and samples; the others follow as they were.
    order = [tried, *(at for at in ranked.order if at != tried)]
    return Ranking(order, ranked.out, weigh), arm, float(chances[tried])
