"""Simulates plans for one request: costs and times are drawn from the forecasts, right answers from pass rates."""

from collections.abc import Sequence
from functools import cache
from itertools import permutations
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from msgspec import Struct, structs
from numpy.typing import NDArray

from router.decide.weigh import DecisionInput, queued
from router.decide.worth import both_pass
from router.types.decision import Z90, ForecastRanges, Vector

MOST_TARGETS = 5
"""Maximum number of targets that are paired: those with the highest pass rates within the limits."""
_SEEDS = 2**32
_TINY = 1e-9
_HUGE = 1e30


class SimulatedPlan(NamedTuple):
    """`second`: None for the first target alone. `hedge_ms`: ms until the second starts; None: if a check fails."""

    first: int
    second: int | None = None
    hedge_ms: int | None = None


class RemainingLimits(NamedTuple):
    """Limits of this request, and of its session with `calls` more requests to come; infinite if unlimited."""

    funds: float
    """Limit on this request's cost in nano-USD."""
    time: float
    """Limit on this request's time in ms."""
    calls: int = 0
    session_funds: float = np.inf
    session_time: float = np.inf

    def allows(self, cost: Vector, time: Vector) -> NDArray[np.bool_]:
        cost_limit, time_limit = min(self.funds, self.session_funds), min(self.time, self.session_time)
        return np.asarray((cost <= cost_limit) & (time <= time_limit))


class Simulation(Struct, frozen=True, eq=False):
    """Results of a simulation; the arrays are [plans, draws]."""

    right: Vector
    """Probability of a right answer within the limits; averaged with the calls to come if there are any."""
    cost: Vector


class _Draws(NamedTuple):
    """Draws for each target; the arrays are [targets, draws]."""

    cost: Vector
    time: Vector
    first_byte: Vector
    """Time in ms until the first byte of the answer."""


def candidate_plans(situation: DecisionInput) -> list[SimulatedPlan]:
    """Returns every target alone, checked pairs of the best few, and hedged pairs of these."""
    candidates = _usable_targets(situation)
    alone = [SimulatedPlan(at) for at in candidates]
    pairs = [pair for pair in permutations(_best_targets(situation), 2) if candidates.issuperset(pair)]
    checked = [SimulatedPlan(*pair) for pair in pairs] if situation.verified else []
    ranges = situation.forecast.ranges()
    hedges = [SimulatedPlan(*pair, delay) for pair in pairs if (delay := _hedge_ms(situation, ranges, *pair)) > 0]
    return alone + checked + hedges


def simulate(situation: DecisionInput, plans: Sequence[SimulatedPlan], draws: int, caps: RemainingLimits) -> Simulation:
    """Simulates the plans with the same draws, so that differences between plans are hardly due to chance."""
    # A target with a NaN in its forecast is never right and never finishes.
    forecast = situation.forecast
    cost, *largest = (np.nan_to_num(part, nan=_HUGE, posinf=_HUGE) for part in (forecast.cost, *forecast.ranges()))
    ranges = ForecastRanges(*largest)
    forecast = structs.replace(forecast, p=np.nan_to_num(forecast.p), cost=cost, ranges=lambda: ranges)
    situation = structs.replace(situation, forecast=forecast)
    drawn, first = _draw(situation, draws), np.array([plan.first for plan in plans])
    p = situation.forecast.p
    cost, time = drawn.cost[first], drawn.time[first]
    right = p[first][:, None] * caps.allows(cost, time)
    _check(_pairs(plans, hedged=False), p, drawn, caps, cost, time, right)
    _hedge(_pairs(plans, hedged=True), p, drawn, caps, cost, time, right)
    return Simulation(_with_later(situation, right, cost, time, caps), cost)


def best(simulation: Simulation) -> int:
    """Returns the cheapest plan whose success rate is within two standard errors of the highest."""
    success_rate = simulation.right.mean(axis=1)
    top = int(success_rate.argmax())
    shortfall = simulation.right[top] - simulation.right
    is_near = success_rate[top] - success_rate <= 2 * shortfall.std(axis=1) / np.sqrt(simulation.right.shape[1]) + _TINY
    return int(np.where(is_near, simulation.cost.mean(axis=1), np.inf).argmin())


def _usable_targets(situation: DecisionInput) -> set[int]:
    """Returns the targets that are affordable and whose queue is not too long; all if there are none."""
    indexes = list(range(len(situation.targets)))
    if situation.unpaid is not None:
        indexes = np.flatnonzero(~situation.unpaid).tolist() or indexes
    is_queued = queued(situation)
    return {at for at in indexes if not is_queued[at]} or set(indexes)


def _best_targets(situation: DecisionInput) -> list[int]:
    forecast, stakes = situation.forecast, situation.stakes
    badness = np.nan_to_num(-forecast.p, nan=np.inf)
    if stakes.deadline_ms is not None:
        badness = badness + (forecast.ranges().total_ms > stakes.deadline_ms)
    if stakes.max_nano is not None:
        badness = badness + (forecast.cost > stakes.max_nano)
    best: list[int] = badness.argsort(kind="stable")[:MOST_TARGETS].tolist()
    return best


def _hedge_ms(situation: DecisionInput, ranges: ForecastRanges, first: int, second: int) -> int:
    """Returns the ms until a rival starts: twice the usual first-byte time, or less to make the deadline.

    Unstreamed answers show nothing until complete, so only the deadline counts for them. 0: no hedge.
    """
    deadline = situation.stakes.deadline_ms
    if deadline is None:
        return 0
    latest_ms = deadline - ranges.total_p90_ms[second]
    delay = min(2 * ranges.first_ms[first], latest_ms) if situation.stream else latest_ms
    return int(delay) if delay > 0 else 0


def _draw(situation: DecisionInput, draws: int) -> _Draws:
    """Draws costs and times. Uncertainty of a pass rate does not matter here: only its mean counts."""
    forecast, ranges = situation.forecast, situation.forecast.ranges()
    generator = np.random.Generator(np.random.PCG64(int(situation.draw * _SEEDS)))
    # All targets get the same quantiles in different orders, so that none is ahead by chance.
    normal = generator.permuted(np.tile(_quantiles(draws), (2 * len(situation.targets), 1)), axis=1)
    cost = _lognormal(normal[::2], forecast.cost, ranges.cost_p90)
    time = _lognormal(normal[1::2], ranges.total_ms, ranges.total_p90_ms)
    first_byte = time * (ranges.first_ms / np.maximum(ranges.total_ms, _TINY))[:, None] if situation.stream else time
    return _Draws(cost, time, first_byte)


@cache
def _quantiles(count: int) -> Vector:
    """Quantiles of the normal distribution, in the middle of `count` equally likely parts."""
    return np.array(list(map(NormalDist().inv_cdf, (np.arange(count) + 0.5) / count)))


def _lognormal(normal: Vector, mean: Vector, p90: Vector) -> Vector:
    """Draws from log-normal distributions with these means and 90 % quantiles."""
    ratio = np.log(np.maximum(p90, _TINY) / np.maximum(mean, _TINY))
    spread = Z90 - np.sqrt(np.maximum(Z90 * Z90 - 2 * np.maximum(ratio, 0.0), 0.0))
    drawn: Vector = np.exp(spread[:, None] * normal - (spread * spread / 2)[:, None])
    drawn *= mean[:, None]
    return drawn


def _pairs(plans: Sequence[SimulatedPlan], *, hedged: bool) -> NDArray[np.intp]:
    """Returns [4, pairs]: plan index, first target, second target and ms until it starts, of pairs of one kind."""
    rows = [
        (at, plan.first, plan.second, plan.hedge_ms or 0)
        for at, plan in enumerate(plans)
        if plan.second is not None and (plan.hedge_ms is not None) is hedged
    ]
    return np.array(rows, dtype=np.intp).reshape(-1, 4).T


def _check(
    pairs: NDArray[np.intp], p: Vector, drawn: _Draws, caps: RemainingLimits, cost: Vector, time: Vector, right: Vector
) -> None:
    """Adds the second target of checked pairs. Wrong first answers are always detected, after their time and cost."""
    at, first, second, _ = pairs
    p_first, p_second = p[first][:, None], p[second][:, None]
    is_allowed = caps.allows(cost[at] + drawn.cost[second], time[at] + drawn.time[second])
    right[at] += (p_second - both_pass(p_first, p_second)) * is_allowed
    cost[at] += (1 - p_first) * drawn.cost[second]
    time[at] += (1 - p_first) * drawn.time[second]


def _hedge(
    pairs: NDArray[np.intp], p: Vector, drawn: _Draws, caps: RemainingLimits, cost: Vector, time: Vector, right: Vector
) -> None:
    """Adds the second target of hedged pairs: the first stream to begin wins, or the first unstreamed answer."""
    at, first, second, _ = pairs
    delay, first_byte = pairs[3][:, None], drawn.first_byte[first]
    is_overtaken = delay + drawn.first_byte[second] < first_byte
    cost[at] += (first_byte > delay) * drawn.cost[second]
    time[at] = np.where(is_overtaken, delay + drawn.time[second], time[at])
    right[at] = np.where(is_overtaken, p[second][:, None], p[first][:, None]) * caps.allows(cost[at], time[at])


def _with_later(situation: DecisionInput, right: Vector, cost: Vector, time: Vector, caps: RemainingLimits) -> Vector:
    """Averages in the session's later calls, as far as money and time last, with the best of a few single targets."""
    if not caps.calls:
        return right
    forecast, total_ms = situation.forecast, situation.forecast.ranges().total_ms
    balanced = forecast.cost / max(forecast.cost.mean(), _TINY) - forecast.p
    candidates = {int(key.argmin()) for key in (forecast.cost, total_ms, -forecast.p, balanced)}
    funds, time_left = caps.session_funds - cost, caps.session_time - time
    later = np.zeros(right.shape)
    for at in sorted(candidates):
        paid_share = funds / max(caps.calls * forecast.cost[at], _TINY)
        timely_share = time_left / max(caps.calls * total_ms[at], _TINY)
        later = np.maximum(later, forecast.p[at] * np.minimum(1.0, np.minimum(paid_share, timely_share)))
    return (right + caps.calls * later) / (1 + caps.calls)
