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

# Input and result of strategies that use forecasts.


class DecisionInput(Struct, frozen=True, kw_only=True, eq=False):
    """One request, its eligible targets, and a forecast with one number per target."""

    targets: tuple[Target, ...]
    forecast: Forecast
    classification: Classification
    stakes: Objective
    draw: float
    """Uniform in [0, 1): the only source of chance."""
    queues: Queues = {}
    """Queues at the targets' engines; the forecast's times include them."""
    unpaid: NDArray[np.bool_] | None = None
    """Mask of targets whose shortest answer money or thinking tokens can't pay for; None if there are none."""
    last: str = ""
    """Id of the target that answered before in this session."""
    verified: bool = False
    """Whether the route has verifiers, so that a wrong answer can be detected before the client gets it."""
    samples_differ: bool = True
    """Whether repeated answers of a target may differ, and two answers can be compared."""
    stream: bool = False
    spent: int = 0
    calls: int = 0
    elapsed_ms: float = 0.0
    """Time in ms since this session's first request."""


class Ranking(NamedTuple):
    """`order`: indexes of targets in the order to try. `out`: index into `REASONS` of why each is out; 0 for none."""

    order: Sequence[int]
    out: NDArray[np.intp]
    weigh: Callable[[], tuple[Weighed, ...]]
    """Returns the row of each target for the explanation, in their order; computed on demand."""
    tactic: Tactic | None = None


# Queues of engines and degraded targets → which targets to ask first. Only the order of targets changes.

Takes = Callable[[Candidate], tuple[float, float]]
"""Returns the ms that a request takes at a target once started: the mean and the 90 % quantile."""
_NO_QUEUE = Queue()
_TINY = 1e-9


def overflow(
    steps: Sequence[Candidate], queues: Queues, deadline_ms: int | None, takes: Takes
) -> tuple[Candidate, ...]:
    """Moves targets with too long a queue behind all others, the shortest queue first."""
    late = [_is_late(step, queues, deadline_ms, takes) for step in steps]
    on_time = [step for step, is_late in zip(steps, late, strict=True) if not is_late]
    delayed = [step for step, is_late in zip(steps, late, strict=True) if is_late]
    delayed.sort(key=lambda step: (queues[step.target.id].full, step.wait_ms))
    return (*(_faster_first(on_time, takes) if deadline_ms is None else on_time), *delayed)


def moved_back(before: Sequence[Candidate], after: Sequence[Candidate]) -> frozenset[str]:
    """Returns the ids of targets behind which others were not before."""
    rank = {step.target.id: place for place, step in enumerate(before)}
    order = [step.target.id for step in after]
    return frozenset(
        name for place, name in enumerate(order) if any(rank[other] > rank[name] for other in order[:place])
    )


def noted(queues: Queues, overflow: Collection[str]) -> tuple[Queue, ...]:
    """Returns the queues to store. Engines that are down are stored as the reason why their target was dropped."""
    return tuple(
        structs.replace(queue, target=name, spilled=name in overflow)
        for name, queue in queues.items()
        if not queue.down
    )


def queued(situation: DecisionInput) -> NDArray[np.bool_]:
    """Returns whether each target's queue is too long, regardless of the deadline."""
    return np.array([_is_too_long(target, situation.queues.get(target.id, _NO_QUEUE)) for target in situation.targets])


def timely(situation: DecisionInput) -> Vector:
    """Returns the probability that each target's answer makes the deadline; 1 for targets without a queue."""
    chance, forecast, deadline = np.ones(len(situation.targets)), situation.forecast, situation.stakes.deadline_ms
    if deadline is None:
        return chance
    *_, total_ms, slow_ms = forecast.ranges()
    for at, target in enumerate(situation.targets):
        if target.id in situation.queues:
            spread = (slow_ms[at] - total_ms[at]) / Z90
            chance[at] = (1 + erf(((deadline - total_ms[at]) / max(spread, _TINY)) / sqrt(2))) / 2
    return chance


def _is_late(step: Candidate, queues: Queues, deadline_ms: int | None, takes: Takes) -> bool:
    queue = queues.get(step.target.id)
    if queue is None:
        return False
    too_long = _is_too_long(step.target, queue)
    if too_long or deadline_ms is None:
        return too_long
    mean, p90 = takes(step)
    # Up to the 90 % quantile: the times of the n queued requests ahead vary independently.
    return queue.wait_ms + mean + hypot(p90 - mean, Z90 * queue.wait_ms / sqrt(queue.waiting + 1)) > deadline_ms


def _is_too_long(target: Target, queue: Queue) -> bool:
    """Returns whether a queue exceeds the target's limit or the gateway's timeout for the first byte."""
    limit_ms = target.timeouts.first if target.max_wait_ms is None else min(target.max_wait_ms, target.timeouts.first)
    return queue.full or queue.degraded or queue.wait_ms > limit_ms


def _faster_first(steps: list[Candidate], takes: Takes) -> list[Candidate]:
    """Moves a target first that costs no more and would answer before the first one starts, unless the policy sets how
    long to wait for the first."""
    if not steps or not steps[0].wait_ms or steps[0].target.max_wait_ms is not None:
        return steps
    first = steps[0]
    for at, other in enumerate(steps):
        if at and other.estimate.cost <= first.estimate.cost and other.wait_ms + takes(other)[0] < first.wait_ms:
            return [other, *steps[:at], *steps[at + 1 :]]
    return steps


# Forecasts → the value of each target, which are excluded, and why a target was not chosen.

Flags = NDArray[np.bool_]

IN, QUEUED, BELOW_FLOOR, OVER_COST, TOO_SLOW, UNPAID, UNKNOWN = range(7)
REASONS: tuple[Why | None, ...] = (None, "queued", "below_floor", "over_cost", "too_slow", "over_cost", "unknown")
"""Why a target is out, from the mildest reason to the worst."""

_ID = attrgetter("id")
_MAX_VALUE = 1e30
"""Replaces infinite values."""
_MAX_Z = 30.0
_DECIMALS = 1e4
"""Factor that rounds stored pass rates to four digits."""
_ROOT_2_PI = sqrt(2 * pi)
HOPELESS = 0.02
"""Pass rate below which a target is asked only if all others are below it too: an answer that can't be right is worth
nothing, however cheap."""
SAME_RATE = 0.0005
"""Smallest difference of pass rates that counts; priors of easy requests are no more precise."""
_MIN_P = 1e-3
"""Lower bound of pass rates in divisions: a smaller one only means that it is unknown."""


class ExpectedLoss(Struct, frozen=True, eq=False):
    """`value`: each target's `price` in nano-USD, lower is better. `out`: index into `REASONS`; 0 if not excluded."""

    value: Vector
    out: NDArray[np.intp]
    margin: Vector
    """Expected gain in nano-USD from leaving the baseline for the target, less `caution` times the expected regret."""
    baseline: int
    best: int


def expected_loss(situation: DecisionInput, out: NDArray[np.intp], caution: float) -> ExpectedLoss:
    """Values the targets. The baseline is left only for one that is evidently better, or cheaper and as likely right;
    so a higher failure cost never leads to a target that is dearer and worse."""
    forecast, stakes = situation.forecast, situation.stakes
    p, nodes, cost = forecast.p, forecast.p_nodes, forecast.weighed_cost
    if situation.queues:
        p, nodes = map(timely(situation).__mul__, (p, nodes))
    value, usual_value = price(cost, p, stakes), price(forecast.usual_cost, forecast.usual_p, stakes)
    is_candidate = _candidates(situation, out)
    baseline = int(np.where(is_candidate, usual_value, np.inf).argmin())
    margin, best = value[baseline] - value, baseline
    # The regret only matters if a target seems better, or if the session would keep its target.
    if situation.last or np.count_nonzero(margin > 0.0):
        margin = margin - caution * _regret(forecast, nodes, stakes, baseline)
        is_evident = is_candidate & (margin > 0.0)
        if np.count_nonzero(is_evident):
            best = int(np.where(is_evident, value, np.inf).argmin())
    is_dominant = is_candidate & (cost < cost[best]) & (p >= p[best] * (1 - SAME_RATE))
    if np.count_nonzero(is_dominant):
        best = int(np.where(is_dominant, value, np.inf).argmin())
    return ExpectedLoss(value, out, margin, baseline, best)


def price(cost: Vector, p: Vector, stakes: Objective) -> Vector:
    """Returns cost + failure cost × (1 − p) in nano-USD; without a failure cost the cost per right answer."""
    if stakes.failure_nano is not None:
        return cost + float(stakes.failure_nano) * (1.0 - p)
    return cost / np.maximum(p, _MIN_P)


def for_later(forecast: Forecast, stakes: Objective) -> Forecast:
    """Returns the forecast with costs less what writing the prompt to a cache saves later requests: the lesser of the
    savings for usual requests and for requests like this one."""
    if forecast.later is None or len(forecast.p) < 2:
        return forecast
    this, usual = (forecast.p, forecast.cost), (forecast.usual_p, forecast.usual_cost)
    of_turns, of_template = (
        np.minimum(_later_savings(count, written, *this, stakes), _later_savings(count, written, *usual, stakes))
        for count, written in zip(*forecast.later, strict=True)
    )
    saved = np.maximum(of_turns, of_template)
    return structs.replace(forecast, weighed_cost=forecast.cost - saved, usual_cost=forecast.usual_cost - saved)


def _later_savings(count: float, written: Vector, p: Vector, cost: Vector, stakes: Objective) -> Vector:
    """Returns the nano-USD that `count` requests save by what each target has `written` to its cache: how much more the
    cheapest other permitted target costs, which would have to write the prompt first. At most what was written."""
    p = np.maximum(p, _MIN_P)
    tries = 1.0 if stakes.failure_nano is not None else 1 / p
    there, cold = count * price(cost - written, p, stakes), min(count, 1.0) * written
    elsewhere = np.where(p >= (stakes.min_pass_rate or 0.0), np.nan_to_num(there + cold * tries, nan=np.inf), np.inf)
    least, second = np.partition(elsewhere, 1)[:2]
    others = np.where(elsewhere > least, least, second)
    return np.asarray(np.minimum(np.maximum((others - there) / tries, 0.0), cold))


def excluded(situation: DecisionInput, caution: float) -> NDArray[np.intp]:
    """Returns the reason why each target breaks floor, cap or deadline, or has too long a queue: the worst one. NaN
    breaks them all."""
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
    """Returns the rows for the explanation, in the order of the targets."""
    forecast, (sd, low, high, first_ms, total_ms, _) = situation.forecast, situation.forecast.ranges()
    whole = forecast.cost, low, high, first_ms, total_ms, expected_loss.value
    numbers = np.array((forecast.p, sd, *whole, forecast.cached))
    if not _all_finite(numbers):  # NaN and infinity can't be stored
        numbers = np.nan_to_num(numbers, posinf=0.0, neginf=0.0)
    p, sd = (np.rint(numbers[:2] * _DECIMALS) / _DECIMALS).tolist()
    *columns, cached = numbers[2:].astype(np.int64).tolist()
    words = why(expected_loss)
    for at, target in enumerate(situation.targets) if situation.queues else ():
        if words[at] == "queued" and situation.queues[target.id].degraded:
            words[at] = "degraded"
    return tuple(map(Weighed, map(_ID, situation.targets), p, sd, *columns, words, cached))


def reasons(expected_loss: ExpectedLoss, chosen: int, word: Why = "chosen", second: int | None = None) -> list[Why]:
    """Returns why each target is chosen or not; `word` for the one that is."""
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
    """Returns indexes of targets: `first`, then by value; excluded ones last, as fallbacks."""
    order: list[int] = np.lexsort((expected_loss.value, expected_loss.out)).tolist()
    order.remove(first)
    return [first, *order]


def _candidates(situation: DecisionInput, out: NDArray[np.intp]) -> Flags:
    """Returns the targets that are not excluded; if all are, the one closest to the mildest limit."""
    forecast, least = situation.forecast, int(out[out.argmin()])
    is_candidate = np.equal(out, least)
    if least in (IN, UNPAID, UNKNOWN):
        return is_candidate
    cost, total_ms = forecast.cost, forecast.ranges().total_p90_ms
    waits = np.array([situation.queues.get(target.id, _NO_QUEUE).wait_ms for target in situation.targets])
    excess = {QUEUED: waits, BELOW_FLOOR: -forecast.p, OVER_COST: cost, TOO_SLOW: total_ms}[least]
    nearest: Flags = np.arange(len(out)) == np.where(is_candidate, excess, np.inf).argmin()
    return nearest


def _regret(forecast: Forecast, nodes: Vector, stakes: Objective, baseline: int) -> Vector:
    """Returns the expected loss, in the unit of `price`, from leaving the baseline for a target that proves worse.

    The difficulty of the request (`nodes`) is common to all targets; the other uncertainty of each is normal.
    """
    gain, spread = _gains(forecast, nodes, stakes, baseline)
    z = np.minimum(np.maximum(gain / spread, -_MAX_Z), _MAX_Z)
    # E[max(0, −x)] of a normal x.
    loss = np.maximum(spread * np.exp(-0.5 * z * z) / _ROOT_2_PI - gain * _chance_below_zero(z), 0.0)
    regret: Vector = NODE_WEIGHTS.dot(loss)
    regret[baseline] = 0.0
    return regret


def _gains(forecast: Forecast, nodes: Vector, stakes: Objective, choice: int) -> tuple[Vector, Vector]:
    """Returns by how much each target's value beats `choice`'s, [3, T] by node, and its standard deviation, [T]."""
    values = price(forecast.weighed_cost, nodes, stakes)
    gain = values[:, choice, None] - values
    if not _all_finite(gain):
        gain = np.nan_to_num(gain, posinf=_MAX_VALUE, neginf=-_MAX_VALUE)
    if stakes.failure_nano is not None:
        own = stakes.failure_nano * forecast.p_own_sd
    else:
        own = forecast.weighed_cost / np.maximum(forecast.p, _MIN_P) ** 2 * forecast.p_own_sd
    return gain, np.minimum(np.maximum(np.hypot(own, own[choice]), _TINY), _MAX_VALUE)


def _all_finite(numbers: Vector) -> bool:
    """Returns whether all numbers are finite; far faster than checking each."""
    flat = numbers.ravel()
    return isfinite(flat.dot(flat))


def _chance_below_zero(z: Vector) -> Vector:
    """Returns P(x < 0) of a normal x with mean z standard deviations, by the logistic approximation."""
    return 1.0 / (1.0 + np.exp(1.702 * z))


# Two targets in sequence against the best single one: the pair is used only if it pays.


class PairOption(NamedTuple):
    """A way to ask two targets. `value` returns the value of each ordered pair at the given pass rates [T]."""

    tactic: Tactic
    value: Callable[[Vector], CascadeValue]
    samples: int = 1
    """Maximum number of times the first target is asked."""


def ranked(situation: DecisionInput, caution: float, options: Sequence[PairOption]) -> Ranking:
    """Returns the best pair of any option if it beats the best single target, both as expected and with pass rates that
    are `caution` standard deviations lower, or if only it keeps the limits; else single targets by value."""
    forecast = structs.replace(situation.forecast, ranges=cache(situation.forecast.ranges))  # it is read more than once
    situation, stakes, tactic = structs.replace(situation, forecast=forecast), situation.stakes, None
    single = expected_loss(situation, excluded(situation, caution), caution)
    low = np.minimum(np.maximum(forecast.p - caution * forecast.ranges().p_sd, 0.0), 1.0)
    bounds = single.value[single.best], price(forecast.weighed_cost, low, stakes)[single.best]
    order, why, least = by_value(single, single.best), partial(reasons, chosen=single.best), np.inf
    for option in options:
        expected, worse = option.value(forecast.p), option.value(low)
        value = price(expected.cost, expected.p, stakes)
        value = np.where(_allowed_pairs(situation, single, option.samples, worse.p) & np.isfinite(value), value, np.inf)
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


def _allowed_pairs(situation: DecisionInput, single: ExpectedLoss, samples: int, low_p: Vector) -> Flags:
    """Returns [T, T]: pairs that keep floor, cap and deadline even if all their attempts are made."""
    forecast, stakes = situation.forecast, situation.stakes
    is_usable = (single.out < UNPAID) & (single.out != QUEUED)
    is_allowed: Flags = is_usable[:, None] & is_usable & ~np.eye(len(is_usable), dtype=bool)
    if stakes.min_pass_rate is not None:
        is_allowed &= low_p >= stakes.min_pass_rate
    for limit, per_attempt in (stakes.max_nano, forecast.cost), (stakes.deadline_ms, forecast.ranges().total_p90_ms):
        if limit is not None:
            is_allowed &= np.add.outer(samples * per_attempt, per_attempt) <= limit
    return is_allowed


# Exploration: a small share of the traffic for targets that may be better keeps the estimates honest.
#
# Source: probability matching (Thompson 1933): a target is tried as often as it is likely to be the better choice.

ENOUGH = 20
"""Minimum number of outcomes for exploration: without feedback nothing would be learned from it."""
DOUBT = 0.03
"""Minimum standard deviation of a pass rate in exploration, which is to find where the model is wrong."""


class Exploration(BaseModel):
    """At most `share` of the requests, and of their cost, goes to targets that may be better than the choice."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    share: Annotated[float, Field(ge=0, le=0.5, allow_inf_nan=False)] = 0.02


def explore(ranked: Ranking, situation: DecisionInput, share: float, draw: float) -> tuple[Ranking, str, float]:
    """Returns the ranking to use; "cheaper" or "dearer" if chance puts another target first, else ""; and the
    propensity of the target that is now first.

    A target's probability is share · P(better than the choice) · min(1, cost of the choice ÷ its cost), the lesser of
    those with and without the failure cost, so that requests, spend and failure costs stay within `share`. `draw`:
    uniform in [0, 1). Floors, caps, deadlines and queues hold for explored targets too.
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
    better = np.where(allowed, 1 - NODE_WEIGHTS @ _chance_below_zero(np.clip(gain / spread, -_MAX_Z, _MAX_Z)), 0.0)
    priced = cost + (situation.stakes.failure_nano or 0) * (1 - situation.forecast.p)
    cost_factor = np.where(allowed, 1.0, 0.0)
    for price in (cost, priced):
        cost_factor = np.minimum(cost_factor, price[choice] / np.maximum(price, 1e-9))
    chances = share * better / max(1.0, better.sum()) * cost_factor
    ends = np.cumsum(chances)
    if draw >= ends[-1]:
        return ranked, "", 1.0 - float(ends[-1])
    explored = int(np.searchsorted(ends, draw, side="right"))
    arm = "cheaper" if cost[explored] < cost[choice] else "dearer"

    def weigh() -> tuple[Weighed, ...]:
        rows = list(ranked.weigh())
        rows[explored] = structs.replace(rows[explored], why="explored")
        return tuple(rows)

    # Asked without cascade or samples; the other targets follow in their order.
    order = [explored, *(at for at in ranked.order if at != explored)]
    return Ranking(order, ranked.out, weigh), arm, float(chances[explored])
