"""What is to come, from what was: against numbers by hand, and against simulated weeks."""

import random
from datetime import UTC
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.report.forecast import Profile
from tests.report.filled import HOUR_MS, MONDAY_MS
from tests.report.parsed import PATIENT

DAY = 24
NOW_MS = MONDAY_MS + 28 * DAY * HOUR_MS
"""A Monday."""
NOW = NOW_MS // HOUR_MS


def test_with_a_few_hours_every_hour_is_alike() -> None:
    profile = Profile({NOW - 4: 30, NOW - 1: 10}, NOW_MS + HOUR_MS // 2, UTC)
    found = profile.until(NOW_MS + 2 * HOUR_MS)
    assert found.expected == pytest.approx(15)
    assert found.low is found.high is None
    assert profile.reaches(5, NOW_MS + 9 * HOUR_MS) == NOW_MS + HOUR_MS
    assert profile.reaches(15, NOW_MS + 2 * HOUR_MS) == NOW_MS + 2 * HOUR_MS
    assert profile.reaches(16, NOW_MS + 2 * HOUR_MS) is None
    assert profile.reaches(0, NOW_MS) == NOW_MS + HOUR_MS // 2


def test_after_two_days_an_hour_is_like_that_of_other_days() -> None:
    """Half of each day's 240 comes at noon UTC, which is 13:00 in Berlin."""
    spent = {NOW - day * DAY + 12: 120 for day in (1, 2, 3)} | {NOW - day * DAY: 120 for day in (1, 2, 3)}
    profile = Profile(spent, NOW_MS, ZoneInfo("Europe/Berlin"))
    found = profile.until(NOW_MS + 13 * HOUR_MS)
    assert found == type(found)(240, 240, 240)
    assert profile.until(NOW_MS + HOUR_MS // 4).expected == 30
    assert profile.reaches(180, NOW_MS + DAY * HOUR_MS) == NOW_MS + 12 * HOUR_MS + HOUR_MS // 2


def test_after_two_weeks_weekends_are_weekends() -> None:
    working = {hour: 10 for hour in range(NOW - 21 * DAY, NOW) if (hour - NOW) // DAY % 7 < 5}
    profile = Profile(working, NOW_MS, UTC)
    assert profile.until(NOW_MS + 7 * DAY * HOUR_MS).expected == 5 * DAY * 10
    assert profile.reaches(5 * DAY * 10 + 1, NOW_MS + 14 * DAY * HOUR_MS) == NOW_MS + 7 * DAY * HOUR_MS + HOUR_MS // 10


def test_nothing_is_foretold_from_nothing() -> None:
    for spent in ({}, {NOW: 5}, {NOW - 1: 0}, {NOW - 29 * DAY: 5}):
        with pytest.raises(ValueError, match="nothing"):
            Profile(spent, NOW_MS, UTC)


def test_four_of_five_weeks_end_within_the_interval() -> None:
    """Days that differ by chance, with a weekly pattern: three weeks are known, one is foretold."""
    inside = 0
    for seed in range(300):
        chance = random.Random(seed)  # noqa: S311 - a sample
        days = [max(0.0, chance.gauss(2_400 if day % 7 < 5 else 600, 300)) for day in range(28)]
        spent = {NOW - 21 * DAY + hour: round(days[hour // DAY] / DAY) for hour in range(21 * DAY)}
        found = Profile(spent, NOW_MS, UTC).until(NOW_MS + 7 * DAY * HOUR_MS)
        assert found.low is not None
        assert found.high is not None
        inside += found.low <= sum(days[21:]) <= found.high
    assert 0.74 < inside / 300 < 0.92


@PATIENT
@given(st.dictionaries(st.integers(NOW - 700, NOW - 1), st.integers(1, 10**12), min_size=1), st.integers(0, 9 * DAY))
def test_a_forecast_is_never_below_nothing_and_contains_itself(spent: dict[int, int], hours: int) -> None:
    if min(spent) < NOW - 28 * DAY and max(spent) < NOW - 28 * DAY:
        return
    found = Profile(spent, NOW_MS, UTC).until(NOW_MS + hours * HOUR_MS)
    assert found.expected >= 0
    if found.low is not None and found.high is not None:
        assert 0 <= found.low <= found.expected <= found.high
