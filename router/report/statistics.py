"""Intervals, forecasts and percentiles for reports."""

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

# Estimates with 95 % intervals from sums alone: of rates, means and their ratios.

Z_95 = 1.959964
"""97.5 % quantile of the normal distribution."""
_MIN_OBSERVATIONS = 2
"""Minimum number of observations for a variance."""


class Interval(NamedTuple):
    """A value with its bounds. None: unknown; for `high` also unbounded."""

    value: float
    low: float | None = None
    high: float | None = None


def wilson(share: float, trials: float) -> Interval:
    """Returns a share of `trials`, which may be weighted, with its 95 % interval.

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
    """Returns the 95 % interval of a positive mean, symmetric on the logarithmic scale (delta method)."""
    if value <= 0:
        return Interval(value, value, value)
    if count < _MIN_OBSERVATIONS:
        return Interval(value)
    # Two-sided 95 % quantile of Student's distribution, to the first term (Cornish and Fisher 1938).
    student = Z_95 + (Z_95**3 + Z_95) / (4 * (count - 1))
    factor = exp(student * sqrt(max(0.0, variance)) / value)
    return Interval(value, value / factor, value * factor)


def quotient(over: Interval, under: Interval) -> Interval | None:
    """Returns a ratio with bounds combined from those of both parts on the logarithmic scale, which keeps their
    asymmetry (MOVER: Zou and Donner 2008, Statistics in Medicine 27, 1693). None if the divisor is not positive."""
    if under.value <= 0:
        return None
    value = over.value / under.value
    if over.value <= 0:
        return Interval(value, value, value)
    low = _bound_factor(over.value, over.low, under.high, under.value)
    high = _bound_factor(over.high, over.value, under.value, under.low)
    return Interval(value, None if low is None else value / low, None if high is None else value * high)


def weighted(parts: Sequence[tuple[float, Interval]]) -> Interval:
    """Returns the weighted mean of independent estimates; weights are positive. Distances to the bounds are combined as
    the root of the sum of squares on either side (MOVER for sums)."""
    whole = sum(weight for weight, _ in parts)
    value = sum(weight * estimate.value for weight, estimate in parts) / whole

    def off(side: int) -> float | None:
        bounds = [(weight, estimate[side], estimate.value) for weight, estimate in parts]
        gaps = [weight * (bound - mean) for weight, bound, mean in bounds if bound is not None]
        return hypot(*gaps) / whole if len(gaps) == len(parts) else None

    down, up = off(1), off(2)
    return Interval(value, None if down is None else value - down, None if up is None else value + up)


def _bound_factor(*pairs: float | None) -> float | None:
    """Returns the factor between a ratio and its bound, for factors a / b of the dividend and c / d of the divisor."""
    if any(each is None or each <= 0 for each in pairs):
        return None
    a, b, c, d = (each for each in pairs if each is not None)
    return exp(hypot(log(a / b), log(c / d)))


# Uncertainty of sums over hours: a moving-block bootstrap (Künsch 1989, Annals of Statistics 17, 1217). It keeps
# consecutive hours together, because their traffic is similar.

Vector = NDArray[np.float64]
DRAWS = 1_000
MIN_HOURS = 8
_SEED = 20_261_121
"""Fixed, so that the same ledger gives the same interval."""


def drawn(hours: Vector) -> Vector | None:
    """Resamples sums of V amounts: an array [hours, V] gives [DRAWS, V], or None for too few hours. The block length is
    the cube root of the number of hours, and blocks wrap around, so that all hours are drawn equally often."""
    number = len(hours)
    if number < MIN_HOURS:
        return None
    length = max(1, round(number ** (1 / 3)))
    running = np.cumsum(np.concatenate([np.zeros((1, hours.shape[1])), hours, hours[:length]]), axis=0)
    blocks = running[length : length + number] - running[:number]
    starts = np.random.default_rng(_SEED).integers(number, size=(DRAWS, -(-number // length)))
    sums = np.stack([column[starts].sum(axis=1) for column in blocks.T], axis=1)
    return np.asarray(sums * (number / (starts.shape[1] * length)))


def bounds(draws: Vector) -> tuple[float, float]:
    """Returns the 2.5 % and 97.5 % percentiles of the draws."""
    low, high = np.percentile(draws, (2.5, 97.5))
    return float(low), float(high)


# Forecasts of spend from past spend: the mean of similar hours.

LOOK_BACK_HOURS = 28 * 24
"""Hours of four weeks, so that each weekday counts equally."""
WEEKS_HOURS, DAYS_HOURS = 14 * 24, 2 * 24
"""Hours of history from which hours are averaged by weekday and hour, or by hour of day; with less, all together."""
COVERAGE = 0.8
"""Coverage of the forecast interval: it misses one of five periods."""
_Z = NormalDist().inv_cdf((1 + COVERAGE) / 2)
_DAY_HOURS = 24


class ProfileInterval:
    """Mean spend by hour of the week or day. `spent`: Unix hour → amount; missing hours had none.

    History begins with the first hour with spend, at most four weeks before `now_ms`, and ends with the last full hour;
    there must be at least one hour with spend.
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
        """Forecasts the amount until a time; without bounds if history is too short to estimate how much days vary."""
        expected = sum(amount for _, amount in self._coming(end_ms))
        days = len(self._hours) // _DAY_HOURS
        freedom = days - (7 if len(self._hours) >= WEEKS_HOURS else 1)
        if freedom < 1:
            return Interval(expected)
        # Squared deviations of whole days from their expected amounts.
        last, squares = self._hours.stop, 0.0
        for number in range(days):
            hours = range(last - (number + 1) * _DAY_HOURS, last - number * _DAY_HOURS)
            squares += sum(self._spent.get(hour, 0) - self._means[self._slot(hour)] for hour in hours) ** 2
        ahead = max(0, end_ms - self._now_ms) / HOUR_MS / _DAY_HOURS
        half = _student(freedom) * sqrt(squares / freedom) * sqrt(ahead + ahead**2 / days)
        return Interval(expected, max(0.0, expected - half), expected + half)

    def reaches(self, amount: int, latest_ms: int) -> int | None:
        """Returns the time (Unix ms) at which `amount` will have been spent; None if not before `latest_ms`."""
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
        """Yields the start (Unix ms) and the expected amount of each part of an hour."""
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
    """Returns Student's t for `COVERAGE`, by Abramowitz & Stegun 26.7.5: 4 % too small for one degree of freedom."""
    z, n = _Z, freedom
    return (
        z
        + (z**3 + z) / (4 * n)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3)
    )


# Percentiles of values that are counted in buckets.


def percentile(counts: Mapping[int, int], edges: Sequence[int], share: float) -> int | None:
    """Returns a percentile of integers, counted by the lower edges of their buckets (0 below `edges`); None if empty.

    Values in a bucket are assumed to be spaced evenly on a logarithmic scale, so that the error is less than the
    bucket's width, and half of that for a single value. Beyond the last edge, that edge is returned.
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
