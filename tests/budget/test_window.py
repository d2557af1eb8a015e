"""Windows over time zones, changes of the clock, leap days, ends of months, and clocks that jump."""

from datetime import datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from router.budget.budget import LIFETIME, STEPS_PER_WINDOW, Budget, BudgetWindow, Calendar, calendar, rolling, step_ms
from router.types.request import seconds
from tests.tables import data, each_row

CALENDARS: list[Calendar] = ["hour", "day", "week", "month", "year"]
WINDOWS = data(__file__, "windows.yaml")
ZONES: list[str] = WINDOWS["zones"]
FIRST_MS = 1_577_836_800_000
MOMENTS = st.integers(FIRST_MS, FIRST_MS + 100 * 365 * 86_400_000)
LENGTHS = st.integers(1, 3_660 * 86_400)


def at(text: str, zone: str = "UTC", fold: int = 0) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold).timestamp() * 1000)


@each_row("window, now, start, end", WINDOWS["bounds"])
def test_bounds_are_those_of_the_zone_s_own_clocks(window: Calendar, now: str, start: str, end: str) -> None:
    for zone in ("UTC", "Asia/Tokyo", "America/New_York"):
        opened = at(start, zone)
        assert calendar(window, ZoneInfo(zone), at(now, zone)) == BudgetWindow(opened, opened, at(end, zone))


@each_row("zone, window, now, hours", WINDOWS["lengths"])
def test_a_window_is_as_long_as_clocks_make_it(zone: str, window: Calendar, now: str, hours: float) -> None:
    span = calendar(window, ZoneInfo(zone), at(now, zone))
    assert span.resets_at is not None
    assert timedelta(milliseconds=span.resets_at - span.start) == timedelta(hours=hours)


@each_row("zone, now, end", data(__file__, "double_hours.yaml"))
def test_an_hour_or_half_an_hour_that_comes_twice_is_two_windows(zone: str, now: str, end: str) -> None:
    first, second = (calendar("hour", ZoneInfo(zone), at(now, zone, fold)) for fold in (0, 1))
    assert (first.resets_at, second.resets_at) == (second.start, at(end, zone))


def tile(window: Calendar, zone: ZoneInfo, now: int) -> int:
    """No moment is in none or in two, whatever was done to the clocks: when the next one begins."""
    span = calendar(window, zone, now)
    assert span.resets_at is not None
    assert span.since == span.start <= now < span.resets_at
    assert calendar(window, zone, span.start) == calendar(window, zone, span.resets_at - 1) == span
    assert calendar(window, zone, span.resets_at).start == span.resets_at
    return span.resets_at


@given(st.sampled_from(CALENDARS), st.sampled_from(ZONES), MOMENTS)
def test_windows_tile_the_time(window: Calendar, zone: str, now: int) -> None:
    tile(window, ZoneInfo(zone), now)


@each_row("zone", ZONES)
@each_row("window", CALENDARS)
def test_windows_tile_every_day_on_which_clocks_are_set(window: Calendar, zone: str) -> None:
    now, seen = at("2026-01-01T00:00"), 0
    while now < at("2028-01-01T00:00"):
        following = tile(window, ZoneInfo(zone), now)
        now, seen = now + 6 * 3_600_000 if window == "hour" else following, seen + 1
    assert seen >= 2


@given(LENGTHS, MOMENTS, st.integers(0, 10**12))
def test_what_is_booked_counts_for_the_whole_length_and_at_most_a_step_longer(
    length: int, now: int, later: int
) -> None:
    booked, seen = rolling(length, now), rolling(length, now + later)
    counts = booked.start >= seen.since
    if later <= length * 1000:
        assert counts
    if later > length * 1000 + 2 * step_ms(length):
        assert not counts
    assert booked.resets_at is not None
    assert counts == (now + later < booked.resets_at)


@given(LENGTHS, MOMENTS)
def test_a_rolling_window_has_about_a_hundred_steps(length: int, now: int) -> None:
    span = rolling(length, now)
    assert span.since <= span.start <= now
    assert (span.start - span.since) / step_ms(length) <= STEPS_PER_WINDOW + 2


def budget(**fields: object) -> Budget:
    return Budget.model_validate({"id": "b", "limit_usd": Decimal(1), **fields})


@each_row("window", [*CALENDARS, "lifetime", {"rolling": "36h"}, {"rolling": "3660d"}])
def test_a_clock_that_jumps_forwards_and_back_finds_its_window_again(window: object) -> None:
    """Nothing is counted by a timer: the window depends on the time alone, and it may be the beginning of time."""
    kept, now = budget(window=window, timezone="America/New_York"), at("2026-11-01T00:30")
    before = kept.span(now)
    for jump in (timedelta(days=400), timedelta(hours=-5), timedelta(days=-4_000), timedelta(milliseconds=-1)):
        kept.span(now + int(jump.total_seconds() * 1000))
    assert kept.span(now) == before
    assert kept.span(0).since <= kept.span(0).start <= 0


NOON = at("2026-11-21T12:00")
KIRITIMATI = "Pacific/Kiritimati"


@each_row(
    "fields, name, span",
    [
        ({}, "month", calendar("month", ZoneInfo("UTC"), NOON)),
        ({"scope": "session"}, "lifetime", LIFETIME),
        ({"scope": "session", "window": "day"}, "day", calendar("day", ZoneInfo("UTC"), NOON)),
        ({"scope": "request"}, "request", LIFETIME),
        ({"window": "lifetime"}, "lifetime", LIFETIME),
        ({"window": {"rolling": "36h"}}, "rolling 36h", rolling(36 * 3_600, NOON)),
        ({"window": "day", "timezone": KIRITIMATI}, "day", calendar("day", ZoneInfo(KIRITIMATI), NOON)),
    ],
)
def test_the_window_of_a_budget(fields: dict[str, object], name: str, span: BudgetWindow) -> None:
    assert (budget(**fields).window_name, budget(**fields).span(NOON)) == (name, span)


@each_row("text, length", {"1s": 1, "90m": 5_400, "36h": 129_600, "7d": 604_800, "2w": 1_209_600}.items())
def test_lengths(text: str, length: int) -> None:
    assert seconds(text) == length


@each_row("text", ["", "0h", "-1h", "1", "h", "1.5h", "1 h", "1H", "1y", "999999w", "٣h", "1h\n"])
def test_no_lengths(text: str) -> None:
    with pytest.raises(ValueError, match="such as 30m"):
        seconds(text)
    with pytest.raises(ValidationError):
        budget(window={"rolling": text})
