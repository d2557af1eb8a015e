"""Windows of time: which bookings count now. Nothing is ever reset; a window is a condition on timestamps."""

from datetime import datetime, timedelta
from typing import Literal
from zoneinfo import ZoneInfo

from msgspec import Struct

Calendar = Literal["hour", "day", "week", "month", "year"]

PARTS = 100
"""A rolling window moves in steps of a hundredth of its length: it may be one step longer than it says."""
_HOUR_S = 3_600


class Span(Struct, frozen=True):
    """Unix ms: bookings at `since` or later count, new ones are booked at `start`; `resets_at` is None for never."""

    start: int
    since: int
    resets_at: int | None


LIFETIME = Span(0, 0, None)


def calendar(window: Calendar, zone: ZoneInfo, now_ms: int) -> Span:
    """The calendar window around now, as clocks in `zone` show it. Weeks begin on Monday (ISO 8601)."""
    if window == "hour":
        return _hour(zone, now_ms // 1000)
    start = datetime.fromtimestamp(now_ms / 1000, zone).replace(hour=0, minute=0, second=0, microsecond=0, fold=0)
    if window == "week":
        start -= timedelta(days=start.weekday())
    elif window in ("month", "year"):
        start = start.replace(day=1, month=start.month if window == "month" else 1)
    opened = _ms(start)
    return Span(opened, opened, _ms(_following(window, start)))


def rolling(length_s: int, now_ms: int) -> Span:
    """The last `length_s` seconds; `resets_at`: when nothing counts any more of what was booked until now."""
    step = step_ms(length_s)
    start = now_ms // step * step
    return Span(start, (now_ms - length_s * 1000) // step * step, start + step + length_s * 1000)


def step_ms(length_s: int) -> int:
    return max(1_000, length_s * 1000 // PARTS)


def _hour(zone: ZoneInfo, now_s: int) -> Span:
    """In UTC: where clocks go back an hour comes twice, and both are windows of their own. Where they are set by half
    an hour (Lord Howe) a window is cut at that moment."""
    begun = _ahead(zone, now_s)
    start = now_s - (now_s + begun) % _HOUR_S
    end = start + _HOUR_S
    if _ahead(zone, start) != begun:
        start = _change(zone, start, now_s)
    if _ahead(zone, end - 1) != begun:
        end = _change(zone, now_s, end - 1)
    return Span(start * 1000, start * 1000, end * 1000)


def _ahead(zone: ZoneInfo, moment_s: int) -> int:
    """By how many seconds the zone's hours begin earlier than those of UTC."""
    offset = datetime.fromtimestamp(moment_s, zone).utcoffset() or timedelta()
    return int(offset.total_seconds()) % _HOUR_S


def _change(zone: ZoneInfo, before_s: int, after_s: int) -> int:
    """The second at which clocks are set, between two moments that differ in `_ahead`."""
    old = _ahead(zone, before_s)
    while after_s - before_s > 1:
        middle = (before_s + after_s) // 2
        before_s, after_s = (middle, after_s) if _ahead(zone, middle) == old else (before_s, middle)
    return after_s


def _following(window: Literal["day", "week", "month", "year"], start: datetime) -> datetime:
    """The next window's start, by the wall clock: a day in March may have 23 hours."""
    if window == "day":
        return start + timedelta(days=1)
    if window == "week":
        return start + timedelta(days=7)
    if window == "month":
        return start.replace(year=start.year + start.month // 12, month=start.month % 12 + 1)
    return start.replace(year=start.year + 1)


def _ms(moment: datetime) -> int:
    return int(moment.timestamp()) * 1000
