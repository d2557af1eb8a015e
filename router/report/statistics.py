"""Intervals, forecasts and quantiles of what reports count."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, tzinfo
from functools import lru_cache
from math import exp, hypot, log, sqrt
from statistics import NormalDist
from typing import NamedTuple

from msgspec import Struct

from router.ledger.facts.attempts import HOUR_MS

# How far a share may be from what was seen.

Z_95 = 1.959964
"""The normal distribution's 97.5 % quantile."""


def wilson(hits: float, trials: float) -> tuple[float, float] | None:
    """The interval in which the true share lies with 95 %; None without a trial. Trials may be weighed.

    Wilson (1927), Probable inference, the law of succession, and statistical inference, JASA 22(158).
    """
    if trials <= 0:
        return None
    share, weight = hits / trials, Z_95**2 / trials
    middle = share + weight / 2
    half = Z_95 * sqrt(share * (1 - share) / trials + weight / (4 * trials))
    return max(0.0, (middle - half) / (1 + weight)), min(1.0, (middle + half) / (1 + weight))


# Estimates with intervals of 95 %, from sums alone: rates, means, and ratios of both.

_LEAST = 2
"""Observations that a spread takes."""


class Estimate(NamedTuple):
    """None: not known; for `high` also: without a bound."""

    value: float
    low: float | None = None
    high: float | None = None


def rate(share: float, seen: float) -> Estimate:
    """A share of so many observations, which may be weighed; the interval is Wilson's (1927)."""
    bounds = wilson(share * seen, seen)
    if bounds is None:
        return Estimate(share)
    return Estimate(share, min(share, bounds[0]), max(share, bounds[1]))


def skewed(value: float, variance: float, seen: int) -> Estimate:
    """A mean of something positive, of so many observations: symmetric on the scale of logarithms (delta method)."""
    if value <= 0:
        return Estimate(value, value, value)
    if seen < _LEAST:
        return Estimate(value)
    # Two-sided 95 % of Student's distribution, to the first term beyond the normal one (Cornish and Fisher 1938).
    student = Z_95 + (Z_95**3 + Z_95) / (4 * (seen - 1))
    factor = exp(student * sqrt(max(0.0, variance)) / value)
    return Estimate(value, value / factor, value * factor)


def quotient(over: Estimate, under: Estimate) -> Estimate | None:
    """The bounds are put together from those of both, on the scale of logarithms, so that they stay as lopsided as they
    are (MOVER: Zou and Donner 2008, Statistics in Medicine 27, 1693). None: nothing is below the line."""
    if under.value <= 0:
        return None
    value = over.value / under.value
    if over.value <= 0:
        return Estimate(value, value, value)
    low = _off(over.value, over.low, under.high, under.value)
    high = _off(over.high, over.value, under.value, under.low)
    return Estimate(value, None if low is None else value / low, None if high is None else value * high)


def weighted(parts: Sequence[tuple[float, Estimate]]) -> Estimate:
    """A mean of independent estimates, by weights above 0: how far each may be off, on either side, adds up as squares
    do (MOVER for sums)."""
    whole = sum(weight for weight, _ in parts)
    value = sum(weight * estimate.value for weight, estimate in parts) / whole

    def off(side: int) -> float | None:
        bounds = [(weight, estimate[side], estimate.value) for weight, estimate in parts]
        gaps = [weight * (bound - mean) for weight, bound, mean in bounds if bound is not None]
        return hypot(*gaps) / whole if len(gaps) == len(parts) else None

    down, up = off(1), off(2)
    return Estimate(value, None if down is None else value - down, None if up is None else value + up)


def _off(*pairs: float | None) -> float | None:
    """The factor that a quotient may be off by, where above and below the line are off by a ÷ b and by c ÷ d."""
    if any(each is None or each <= 0 for each in pairs):
        return None
    a, b, c, d = (each for each in pairs if each is not None)
    return exp(hypot(log(a / b), log(c / d)))


# What will be spent until a moment, from what was spent before it: the plain mean of alike hours.

LOOK_BACK_HOURS = 28 * 24
"""Four weeks of hours, so that each weekday counts alike."""
WEEKS_HOURS, DAYS_HOURS = 14 * 24, 2 * 24
"""With so many hours of history an hour is like that of the same weekday, or of any day; with less like any other."""
SURE = 0.8
"""Of the interval: in one of five periods it is missed."""
_Z = NormalDist().inv_cdf((1 + SURE) / 2)
_DAY_HOURS = 24


class SpendForecast(Struct, frozen=True):
    """Amounts to come. `low` and `high` are None where history is too short to tell how much days differ."""

    expected: float
    low: float | None = None
    high: float | None = None


class Profile:
    """What an hour costs. `spent`: Unix hour → amount; hours that are not there had none.

    History begins with the first hour that has any, at most four weeks before `now_ms`, and ends with the last whole
    one. Raises ValueError where there is none.
    """

    def __init__(self, spent: Mapping[int, int], now_ms: int, zone: tzinfo) -> None:
        end = now_ms // HOUR_MS
        seen = [hour for hour, amount in spent.items() if amount and end - LOOK_BACK_HOURS <= hour < end]
        if not seen:
            raise ValueError("nothing was spent yet")
        self._now_ms, self._zone = now_ms, zone
        self._hours = range(min(seen), end)
        self._spent = spent
        sums: dict[int, list[int]] = defaultdict(lambda: [0, 0])
        for hour in self._hours:
            place = sums[self._slot(hour)]
            place[0] += spent.get(hour, 0)
            place[1] += 1
        self._means = {slot: amount / hours for slot, (amount, hours) in sums.items()}

    def until(self, end_ms: int) -> SpendForecast:
        """From now on."""
        expected = sum(amount for _, amount in self._coming(end_ms))
        spread = self._spread()
        if spread is None:
            return SpendForecast(expected)
        deviation, freedom = spread
        ahead = max(0, end_ms - self._now_ms) / HOUR_MS / _DAY_HOURS
        days = len(self._hours) // _DAY_HOURS
        half = _forecast_student(freedom) * deviation * sqrt(ahead + ahead**2 / days)
        return SpendForecast(expected, max(0.0, expected - half), expected + half)

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

    def _spread(self) -> tuple[float, int] | None:
        """The standard deviation of whole days from what they were expected to cost, and the degrees of freedom."""
        days = len(self._hours) // _DAY_HOURS
        freedom = days - (7 if len(self._hours) >= WEEKS_HOURS else 1)
        if freedom < 1:
            return None
        last = self._hours.stop
        squares = 0.0
        for number in range(days):
            hours = range(last - (number + 1) * _DAY_HOURS, last - number * _DAY_HOURS)
            squares += sum(self._spent.get(hour, 0) - self._means[self._slot(hour)] for hour in hours) ** 2
        return sqrt(squares / freedom), freedom

    def _slot(self, hour: int) -> int:
        known = len(self._hours)
        if known < DAYS_HOURS:
            return 0
        slot = _hour_of_week(self._zone, hour)
        return slot if known >= WEEKS_HOURS else slot % _DAY_HOURS


@lru_cache(maxsize=65_536)
def _hour_of_week(zone: tzinfo, hour: int) -> int:
    local = datetime.fromtimestamp(hour * HOUR_MS / 1000, zone)
    return local.weekday() * _DAY_HOURS + local.hour


def _forecast_student(freedom: int) -> float:
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
            return _within(edge, edges, (rank - below) / counts[edge])
        below += counts[edge]
    return None


def _within(edge: int, edges: Sequence[int], share: float) -> int:
    upper = bisect_right(edges, edge)
    if edge == 0 or upper == len(edges):
        return edge
    ratio: float = edges[upper] / edge
    return round(edge * float(ratio**share))
