"""Intervals, forecasts and quantiles of what reports count."""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, tzinfo
from functools import lru_cache
from math import exp, hypot, log, sqrt
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from router.ledger.facts import HOUR_MS
from router.report.query import grouped

# Estimates with intervals of 95 %, from sums alone: rates, means, and ratios of both.

Z_95 = 1.959964
"""The normal distribution's 97.5 % quantile."""
_LEAST = 2
"""Observations that a spread takes."""


class Interval(NamedTuple):
    """None: not known; for `high` also: without a bound."""

    value: float
    low: float | None = None
    high: float | None = None


def wilson(share: float, trials: float) -> Interval:
    """A share of so many trials, which may be weighed, and the interval in which the true one lies with 95 %.

    Wilson (1927), Probable inference, the law of succession, and statistical inference, JASA 22(158).
    """
    if trials <= 0:
        return Interval(share)
    weight = Z_95**2 / trials
    middle = share + weight / 2
    half = Z_95 * sqrt(share * (1 - share) / trials + weight / (4 * trials))
    low, high = max(0.0, (middle - half) / (1 + weight)), min(1.0, (middle + half) / (1 + weight))
    return Interval(share, min(share, low), max(share, high))


def skewed(value: float, variance: float, count: int) -> Interval:
    """A mean of something positive, of so many observations: symmetric on the scale of logarithms (delta method)."""
    if value <= 0:
        return Interval(value, value, value)
    if count < _LEAST:
        return Interval(value)
    # Two-sided 95 % of Student's distribution, to the first term beyond the normal one (Cornish and Fisher 1938).
    student = Z_95 + (Z_95**3 + Z_95) / (4 * (count - 1))
    factor = exp(student * sqrt(max(0.0, variance)) / value)
    return Interval(value, value / factor, value * factor)


def quotient(over: Interval, under: Interval) -> Interval | None:
    """The bounds are put together from those of both, on the scale of logarithms, so that they stay as lopsided as they
    are (MOVER: Zou and Donner 2008, Statistics in Medicine 27, 1693). None: nothing is below the line."""
    if under.value <= 0:
        return None
    value = over.value / under.value
    if over.value <= 0:
        return Interval(value, value, value)
    low = _off(over.value, over.low, under.high, under.value)
    high = _off(over.high, over.value, under.value, under.low)
    return Interval(value, None if low is None else value / low, None if high is None else value * high)


def weighted(parts: Sequence[tuple[float, Interval]]) -> Interval:
    """A mean of independent estimates, by weights above 0: how far each may be off, on either side, adds up as squares
    do (MOVER for sums)."""
    whole = sum(weight for weight, _ in parts)
    value = sum(weight * estimate.value for weight, estimate in parts) / whole

    def off(side: int) -> float | None:
        bounds = [(weight, estimate[side], estimate.value) for weight, estimate in parts]
        gaps = [weight * (bound - mean) for weight, bound, mean in bounds if bound is not None]
        return hypot(*gaps) / whole if len(gaps) == len(parts) else None

    down, up = off(1), off(2)
    return Interval(value, None if down is None else value - down, None if up is None else value + up)


def _off(*pairs: float | None) -> float | None:
    """The factor that a quotient may be off by, where above and below the line are off by a ÷ b and by c ÷ d."""
    if any(each is None or each <= 0 for each in pairs):
        return None
    a, b, c, d = (each for each in pairs if each is not None)
    return exp(hypot(log(a / b), log(c / d)))


# How far sums over hours may be off: a moving-block bootstrap (Künsch 1989, Annals of Statistics 17, 1217), which
# keeps hours that follow each other together, as traffic is alike from one to the next.

Vector = NDArray[np.float64]
DRAWS = 1_000
LEAST = 8
"""Hours; of fewer nothing can be said."""
_SEED = 20_261_121
"""The same ledger gives the same interval."""


def drawn(hours: Vector) -> Vector | None:
    """[hours, V] → [DRAWS, V]: sums of V amounts as they might have been. Blocks are as long as the cube root of the
    number of hours, and pass from the last hour to the first, so that all hours are drawn alike."""
    number = len(hours)
    if number < LEAST:
        return None
    length = max(1, round(number ** (1 / 3)))
    running = np.cumsum(np.concatenate([np.zeros((1, hours.shape[1])), hours, hours[:length]]), axis=0)
    blocks = running[length : length + number] - running[:number]
    starts = np.random.default_rng(_SEED).integers(number, size=(DRAWS, -(-number // length)))
    sums = np.stack([column[starts].sum(axis=1) for column in blocks.T], axis=1)
    return np.asarray(sums * (number / (starts.shape[1] * length)))


def bounds(draws: Vector) -> tuple[float, float]:
    """Between which 95 % of the draws lie."""
    low, high = np.percentile(draws, (2.5, 97.5))
    return float(low), float(high)


# What will be spent until a moment, from what was spent before it: the plain mean of alike hours.

LOOK_BACK_HOURS = 28 * 24
"""Four weeks of hours, so that each weekday counts alike."""
WEEKS_HOURS, DAYS_HOURS = 14 * 24, 2 * 24
"""With so many hours of history an hour is like that of the same weekday, or of any day; with less like any other."""
SURE = 0.8
"""Of the interval: in one of five periods it is missed."""
_Z = NormalDist().inv_cdf((1 + SURE) / 2)
_DAY_HOURS = 24


class ProfileInterval:
    """What an hour costs. `spent`: Unix hour → amount; hours that are not there had none.

    History begins with the first hour that has any, at most four weeks before `now_ms`, and ends with the last whole
    one; there must be some.
    """

    def __init__(self, spent: Mapping[int, int], now_ms: int, zone: tzinfo) -> None:
        end = now_ms // HOUR_MS
        count = [hour for hour, amount in spent.items() if amount and end - LOOK_BACK_HOURS <= hour < end]
        self._now_ms, self._zone = now_ms, zone
        self._hours = range(min(count), end)
        self._spent = spent
        alike = grouped((self._slot(hour), spent.get(hour, 0)) for hour in self._hours)
        self._means = {slot: sum(amounts) / len(amounts) for slot, amounts in alike.items()}

    def until(self, end_ms: int) -> Interval:
        """From now on; without bounds where history is too short to tell how much days differ."""
        expected = sum(amount for _, amount in self._coming(end_ms))
        days = len(self._hours) // _DAY_HOURS
        freedom = days - (7 if len(self._hours) >= WEEKS_HOURS else 1)
        if freedom < 1:
            return Interval(expected)
        # The standard deviation of whole days from what they were expected to cost.
        last, squares = self._hours.stop, 0.0
        for number in range(days):
            hours = range(last - (number + 1) * _DAY_HOURS, last - number * _DAY_HOURS)
            squares += sum(self._spent.get(hour, 0) - self._means[self._slot(hour)] for hour in hours) ** 2
        ahead = max(0, end_ms - self._now_ms) / HOUR_MS / _DAY_HOURS
        half = _student(freedom) * sqrt(squares / freedom) * sqrt(ahead + ahead**2 / days)
        return Interval(expected, max(0.0, expected - half), expected + half)

    def reaches(self, amount: int, latest_ms: int) -> int | None:
        """When so much will have been spent (Unix ms); None: not before `latest_ms`."""
        left = float(amount)
        if left <= 0:
            return self._now_ms
        for begin, coming in self._coming(latest_ms):
            if coming >= left:
                end = min(latest_ms, (begin // HOUR_MS + 1) * HOUR_MS)
                return round(begin + (end - begin) * left / coming)
            left -= coming
        return None

    def _coming(self, end_ms: int) -> Iterator[tuple[int, float]]:
        """Parts of hours: when they begin, and what they will cost."""
        begin = self._now_ms
        while begin < end_ms:
            hour = begin // HOUR_MS
            end = min(end_ms, (hour + 1) * HOUR_MS)
            yield begin, self._means.get(self._slot(hour), 0.0) * (end - begin) / HOUR_MS
            begin = end

    def _slot(self, hour: int) -> int:
        known = len(self._hours)
        if known < DAYS_HOURS:
            return 0
        local = datetime.fromtimestamp(hour * HOUR_MS / 1000, self._zone)
        slot = local.weekday() * _DAY_HOURS + local.hour
        return slot if known >= WEEKS_HOURS else slot % _DAY_HOURS


@lru_cache(maxsize=65_536)
def _student(freedom: int) -> float:
    """Student's t for `SURE`, by Abramowitz & Stegun 26.7.5: 4 % too small for one degree of freedom."""
    z, n = _Z, freedom
    return (
        z
        + (z**3 + z) / (4 * n)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3)
    )


# Percentiles of what is only known in buckets.


def percentile(counts: Mapping[int, int], edges: Sequence[int], share: float) -> int | None:
    """Of whole numbers, counted by the lower edges of their buckets (0 below the first of `edges`). None without any.

    Inside a bucket values are taken to lie evenly on a logarithmic scale, each in the middle of its part: it is off by
    less than a bucket is wide, for a single value by half of that. Beyond the last edge: that edge.
    """
    total, below = sum(counts.values()), 0
    rank = share * (total - 1) + 0.5
    for edge in sorted(counts):
        if counts[edge] and below + counts[edge] >= rank:
            upper = bisect_right(edges, edge)
            if edge == 0 or upper == len(edges):
                return edge
            return round(edge * float((edges[upper] / edge) ** ((rank - below) / counts[edge])))
        below += counts[edge]
    return None
