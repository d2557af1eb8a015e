"""Calendar windows in UTC."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.budget.budget import Window, window_bounds

MOMENTS = st.datetimes(datetime(2000, 1, 1), datetime(2199, 12, 31), timezones=st.just(UTC))  # noqa: DTZ001 - bounds are naive
WINDOWS = st.sampled_from(("hour", "day", "month"))


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


@pytest.mark.parametrize(
    ("window", "now", "start", "end"),
    [
        ("hour", "2026-12-31T23:59:59.999", "2026-12-31T23:00", "2027-01-01T00:00"),
        ("hour", "2026-06-01T00:00", "2026-06-01T00:00", "2026-06-01T01:00"),
        ("day", "2026-12-31T12:00", "2026-12-31T00:00", "2027-01-01T00:00"),
        ("day", "2026-03-29T01:30", "2026-03-29T00:00", "2026-03-30T00:00"),
        ("day", "2026-10-25T00:30", "2026-10-25T00:00", "2026-10-26T00:00"),
        ("month", "2026-12-31T23:59:59.999", "2026-12-01T00:00", "2027-01-01T00:00"),
        ("month", "2028-02-29T10:00", "2028-02-01T00:00", "2028-03-01T00:00"),
        ("month", "2026-01-31T10:00", "2026-01-01T00:00", "2026-02-01T00:00"),
    ],
)
def test_bounds(window: Window, now: str, start: str, end: str) -> None:
    assert window_bounds(window, ms(now)) == (ms(start), ms(end))


def test_a_lifetime_never_ends() -> None:
    assert window_bounds("lifetime", ms("2026-05-05T05:05")) == (0, None)


@given(WINDOWS, MOMENTS)
def test_windows_tile_the_time(window: Window, moment: datetime) -> None:
    now = int(moment.timestamp() * 1000)
    start, end = window_bounds(window, now)
    assert end is not None
    assert start <= now < end
    assert window_bounds(window, end - 1) == (start, end)
    assert window_bounds(window, end)[0] == end


@given(MOMENTS)
def test_a_day_has_24_hours_whatever_the_clocks_of_a_country_do(moment: datetime) -> None:
    start, end = window_bounds("day", int(moment.timestamp() * 1000))
    assert end is not None
    assert timedelta(milliseconds=end - start) == timedelta(hours=24)
