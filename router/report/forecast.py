"""What will be spent until a moment, from what was spent before it: the plain mean of alike hours."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import datetime, tzinfo
from functools import lru_cache
from math import sqrt
from statistics import NormalDist

from msgspec import Struct

from router.ledger.facts.attempts import HOUR_MS

LOOK_BACK_HOURS = 28 * 24
"""Four weeks of hours, so that each weekday counts alike."""
WEEKS_HOURS, DAYS_HOURS = 14 * 24, 2 * 24
"""With so many hours of history an hour is like that of the same weekday, or of any day; with less like any other."""
SURE = 0.8
"""Of the interval: in one of five periods it is missed."""
_Z = NormalDist().inv_cdf((1 + SURE) / 2)
_DAY_HOURS = 24


class Forecast(Struct, frozen=True):
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

    def until(self, end_ms: int) -> Forecast:
        """From now on."""
        expected = sum(amount for _, amount in self._coming(end_ms))
        spread = self._spread()
        if spread is None:
            return Forecast(expected)
        deviation, freedom = spread
        ahead = max(0, end_ms - self._now_ms) / HOUR_MS / _DAY_HOURS
        days = len(self._hours) // _DAY_HOURS
        half = _student(freedom) * deviation * sqrt(ahead + ahead**2 / days)
        return Forecast(expected, max(0.0, expected - half), expected + half)

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


def _student(freedom: int) -> float:
    """Student's t for `SURE`, by Abramowitz & Stegun 26.7.5: 4 % too small for one degree of freedom."""
    z, n = _Z, freedom
    return (
        z
        + (z**3 + z) / (4 * n)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3)
    )
