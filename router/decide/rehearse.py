"""One request played many times over: costs, times and right answers drawn from the forecasts."""

from collections.abc import Sequence
from itertools import permutations
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from router.decide.situation import Situation
from router.types.forecast import Vector
from router.worth import RHO

MOST_TARGETS = 6
"""Of which pairs are made: the ones likeliest to be right within the limits on their own."""
Z90 = 1.2816
"""Quantile of the normal distribution."""
_SEEDS = 2**32
_TINY = 1e-9


class Course(NamedTuple):
    """`second` None: the first alone. `hedge_ms`: the second is started after so long; None: where a check says no."""

    first: int
    second: int | None = None
    hedge_ms: int | None = None


class Rest(NamedTuple):
    """Limits of this request, and of its session with `calls` more to come. nano-USD and ms; infinite: none."""

    cost: float
    time: float
    calls: int = 0
    session_cost: float = np.inf
    session_time: float = np.inf


class Drawn(Struct, frozen=True, eq=False):
    """One number per course."""

    success: Vector
    """Share of draws in which all ends well."""
    cost: Vector
    """Mean."""
    draws: int


class _Draws(NamedTuple):
    """[draws, targets] each."""

    cost: Vector
    time: Vector
    first: Vector
    right: NDArray[np.bool_]


def courses(situation: Situation) -> list[Course]:
    """Every target alone; of the best few checked pairs, and pairs of which the second is a hedge."""
    forecast, stakes = situation.forecast, situation.stakes
    count = len(situation.targets)
    alone = [Course(at) for at in range(count)]
    late = 0.0 if stakes.deadline_ms is None else 1.0 * (forecast.total_ms > stakes.deadline_ms)
    dear = 0.0 if stakes.max_nano is None else 1.0 * (forecast.cost > stakes.max_nano)
    few = np.argsort(late + dear - forecast.p, kind="stable")[:MOST_TARGETS].tolist()
    pairs = list(permutations(few, 2))
    checked = [Course(*pair) for pair in pairs] if situation.verified else []
    hedges = [] if stakes.deadline_ms is None else [Course(*pair, _patience(situation, pair[0])) for pair in pairs]
    return alone + checked + hedges


def rehearse(situation: Situation, possible: Sequence[Course], draws: int, rest: Rest) -> Drawn:
    """The same draws for every course: what differs between two courses is not chance."""
    drawn = _draw(situation, draws)
    after = _after(situation, draws, rest)
    played = [_play(course, drawn) for course in possible]
    success = [float(np.mean(_within(cost, time, right, rest, after))) for cost, time, right in played]
    return Drawn(np.array(success), np.array([float(cost.mean()) for cost, _, _ in played]), draws)


def best(drawn: Drawn) -> int:
    """The cheapest of those whose success can't be told from the highest by so many draws."""
    top = float(drawn.success.max())
    near = drawn.success >= top - np.sqrt(max(top * (1 - top), _TINY) / drawn.draws)
    return int(np.where(near, drawn.cost, np.inf).argmin())


def _patience(situation: Situation, first: int) -> int:
    """A first byte is late when it is twice as late as usual."""
    return max(1, int(2 * situation.forecast.first_ms[first]))


def _draw(situation: Situation, draws: int) -> _Draws:
    forecast, chance = situation.forecast, np.random.default_rng(int(situation.draw * _SEEDS))
    shape = (draws, len(situation.targets))
    cost = _lognormal(chance, forecast.cost, forecast.cost_p90, shape)
    time = _lognormal(chance, forecast.total_ms, forecast.total_p90_ms, shape)
    first = time * (forecast.first_ms / np.maximum(forecast.total_ms, _TINY))
    alike = chance.random((draws, 1)) < RHO
    luck = np.where(alike, chance.random((draws, 1)), chance.random(shape))
    # What is not known of the pass rates is the same for a whole draw.
    p = np.clip(forecast.p + forecast.p_sd * chance.standard_normal(shape), 0.0, 1.0)
    return _Draws(cost, time, first, luck < p)


def _lognormal(chance: np.random.Generator, mean: Vector, p90: Vector, shape: tuple[int, int]) -> Vector:
    """Of this mean and 90 % quantile."""
    ratio = np.log(np.maximum(p90, _TINY) / np.maximum(mean, _TINY))
    spread = Z90 - np.sqrt(np.maximum(Z90 * Z90 - 2 * np.maximum(ratio, 0.0), 0.0))
    drawn: Vector = mean * np.exp(spread * chance.standard_normal(shape) - spread * spread / 2)
    return drawn


def _play(course: Course, drawn: _Draws) -> tuple[Vector, Vector, NDArray[np.bool_]]:
    one, two = course.first, course.second
    cost, time, right = drawn.cost[:, one], drawn.time[:, one], drawn.right[:, one]
    if two is None:
        return cost, time, right
    if course.hedge_ms is None:
        again = ~right
        return cost + again * drawn.cost[:, two], time + again * drawn.time[:, two], right | drawn.right[:, two]
    both, other = drawn.first[:, one] > course.hedge_ms, course.hedge_ms + drawn.time[:, two]
    second = both & (other < time)
    return (
        cost + both * drawn.cost[:, two],
        np.where(second, other, time),
        np.where(second, drawn.right[:, two], right),
    )


def _after(situation: Situation, draws: int, rest: Rest) -> list[tuple[Vector, Vector, float]]:
    """Cost, time and chance of all the calls after this one, under each of a few simple habits."""
    if not rest.calls:
        return [(np.zeros(draws), np.zeros(draws), 1.0)]
    forecast = situation.forecast
    chance = np.random.default_rng(int(situation.draw * _SEEDS) + 1)
    noise = chance.standard_normal((2, draws)) * np.sqrt(rest.calls)
    balanced = forecast.cost / max(forecast.cost.mean(), _TINY) - forecast.p
    habits = {int(key.argmin()) for key in (forecast.cost, forecast.total_ms, -forecast.p, balanced)}
    return [
        (
            rest.calls * forecast.cost[at] + noise[0] * (forecast.cost_p90[at] - forecast.cost[at]) / Z90,
            rest.calls * forecast.total_ms[at] + noise[1] * (forecast.total_p90_ms[at] - forecast.total_ms[at]) / Z90,
            float(forecast.p[at]) ** rest.calls,
        )
        for at in sorted(habits)
    ]


def _within(
    cost: Vector, time: Vector, right: NDArray[np.bool_], rest: Rest, after: list[tuple[Vector, Vector, float]]
) -> Vector:
    """Per draw, the chance that all ends well, under the habit that is best for the rest."""
    now = right & (cost <= rest.cost) & (time <= rest.time)
    ends = [
        now * ((cost + more <= rest.session_cost) & (time + longer <= rest.session_time)) * p
        for more, longer, p in after
    ]
    return np.asarray(max(ends, key=np.mean))
