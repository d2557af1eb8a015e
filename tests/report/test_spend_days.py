"""Days and hours of spend, as a time zone has them."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from router.ledger.ledger import Ledger
from router.report.report import Shape
from tests.report.filled import DAY_MS, MONDAY_MS, Happened, Tried, fill
from tests.report.spending import HOUR_MS, filled, report

# A day lasts from one midnight to the next as people there count them.
DAYS = [
    # On 2026-10-25 Berlin has 25 hours, on 2026-03-29 it has 23; Lord Howe moves its clock by half an hour.
    ("Europe/Berlin", "2026-10-25", 25),
    ("Europe/Berlin", "2026-03-29", 23),
    ("Europe/Berlin", "2026-07-01", 24),
    ("Asia/Kolkata", "2026-07-01", 24),
    ("Asia/Kathmandu", "2026-07-01", 24),
    ("Australia/Lord_Howe", "2026-04-05", 24.5),
    ("Pacific/Apia", "2026-07-01", 24),
    ("UTC", "2026-07-01", 24),
]


@pytest.mark.parametrize(("zone", "day", "hours"), DAYS)
def test_days_begin_at_midnight_in_their_zone(ledger: Ledger, zone: str, day: str, hours: float) -> None:
    begins_ms = round(datetime.fromisoformat(day).replace(tzinfo=ZoneInfo(zone)).timestamp() * 1000)
    ends_ms = begins_ms + round(hours * HOUR_MS)
    times = (begins_ms - 1, begins_ms, ends_ms - 1, ends_ms)
    fill(ledger, [Happened(id=str(at), tried=(Tried("local", 1),), at_ms=at) for at in times])
    found = report(ledger, "day", zone=zone)
    assert [
        count for label, count in zip(found.column("day"), found.column("requests"), strict=True) if label == day
    ] == [2]
    assert found.column("requests") == (1, 2, 1)
    assert zone in found.note
    within = report(
        ledger, "day", since=day, until=datetime.fromtimestamp(ends_ms / 1000, ZoneInfo(zone)).isoformat(), zone=zone
    )
    assert within.column("day") == (day,)


def test_an_hour_that_the_clock_shows_twice_is_two(ledger: Ledger) -> None:
    first_ms = 1_792_886_400_000  # 2026-10-25T00:00Z, 02:00 in Berlin, and 02:00 again an hour later
    fill(ledger, [Happened(id=str(n), at_ms=first_ms + n * HOUR_MS) for n in range(-1, 3)])
    assert report(ledger, "hour", zone="Europe/Berlin").column("hour") == (
        "2026-10-25T01:00+02:00",
        "2026-10-25T02:00+02:00",
        "2026-10-25T02:00+01:00",
        "2026-10-25T03:00+01:00",
    )


def test_the_chart_of_days_shows_days_without_spend(ledger: Ledger) -> None:
    fill(filled(ledger), [Happened(id="late", tried=(Tried("local", 9),), at_ms=MONDAY_MS + 4 * DAY_MS)])
    (plot,) = report(ledger, "day").plots
    assert plot.shape is Shape.DAYS
    assert [(mark.label[-2:], mark.value) for mark in plot.marks] == [
        ("02", 3_500), ("03", 7), ("04", 90_000), ("05", 0), ("06", 9),
    ]  # fmt: skip
