"""Questions: `since` and `until`, and what is refused with a way out."""

from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from router.errors import ClientError
from router.ledger.ledger import Ledger, SqliteLedger
from router.report.asked import Question
from router.report.moment import iso, moment
from router.report.read import read
from tests.report.filled import DAY_MS, HOUR_MS, MONDAY_MS, Happened, Tried, fill
from tests.stores import Make
from tests.tables import each_row

NOW_MS = MONDAY_MS + DAY_MS // 2 + 1_234_567


@each_row(
    "text, expected",
    [
        ("", None),
        ("2026-11-02", MONDAY_MS),
        ("2026-11-02T00:00", MONDAY_MS),
        ("2026-11-02T00:00:00Z", MONDAY_MS),
        ("2026-11-02T02:00+02:00", MONDAY_MS),
        ("2026-11-02 00:00:00.123", MONDAY_MS + 123),
        ("30m", NOW_MS - HOUR_MS // 2),
        ("0m", NOW_MS),
        ("24h", NOW_MS - DAY_MS),
        # Days and weeks ago begin with their hour.
        ("0d", NOW_MS - 1_234_567),
        ("1d", NOW_MS - 1_234_567 - DAY_MS),
        ("7d", NOW_MS - 1_234_567 - 7 * DAY_MS),
        ("2w", NOW_MS - 1_234_567 - 14 * DAY_MS),
    ],
)
def test_understood(text: str, expected: int | None) -> None:
    assert moment("since", text, NOW_MS) == expected


@each_row(
    "text, zone, expected",
    [
        ("2026-11-02", "Europe/Berlin", MONDAY_MS - HOUR_MS),
        ("2026-11-02T05:30", "Asia/Kolkata", MONDAY_MS),
        ("2026-11-02T00:00Z", "Asia/Kolkata", MONDAY_MS),
        ("1d", "Asia/Kolkata", MONDAY_MS - DAY_MS // 2),
    ],
)
def test_a_time_without_an_offset_is_the_zones(text: str, zone: str, expected: int) -> None:
    assert moment("since", text, MONDAY_MS + DAY_MS // 2, ZoneInfo(zone)) == expected


@each_row(
    "text",
    [
        *("yesterday", "7", "d", "-7d", "7D", "7 d", "٧d", "9999999d"),
        *("2026-13-01", "2026-11-31", "12:00", " ", "7d\n", "\0"),
    ],
)
def test_refused(text: str) -> None:
    with pytest.raises(ClientError, match="Send a date") as caught:
        moment("until", text, NOW_MS)
    assert (caught.value.status, caught.value.param) == (400, "until")


def test_the_remotest_moments_can_be_written() -> None:
    assert iso(MONDAY_MS + 999) == "2026-11-02T00:00:00Z"
    assert iso(-(2**62)) == "0001-01-01T00:00:00Z"
    assert iso(2**62) == "9999-12-31T23:59:59Z"
    oldest = moment("since", "999999w", NOW_MS)
    assert oldest is not None
    assert iso(oldest) == "0001-01-01T00:00:00Z"


@pytest.fixture(scope="module")
def filled(new_ledger: Make) -> Ledger:
    return fill(new_ledger(), [Happened(tried=(Tried("local", 3),))])


def test_reading_needs_no_running_gateway(tmp_path: Path) -> None:
    ledger = fill(SqliteLedger(tmp_path / "l.db"), [Happened()])
    assert [path.name for path in tmp_path.iterdir()] == ["l.db"]
    assert read(ledger, "spend").total("requests") == 1


@each_row(
    "name, question, param, says",
    [
        ("spent", Question(), "name", "Known: spend, cost-of-pass"),
        ("spend", Question(by="colour"), "by", "Known: .*model, target"),
        ("incidents", Question(by="team"), "by", "groups of its own"),
        ("incidents", Question(where=("team=a",)), "where", "has no filters"),
        ("spend", Question(since="soon"), "since", "24h, 7d"),
        ("spend", Question(until="2026-02-30"), "until", "24h, 7d"),
        ("spend", Question(since="1d", until="2d"), "since", "not before until"),
        ("spend", Question(since="2026-11-02", until="2026-11-02"), "since", "not before until"),
        ("spend", Question(zone="europe/berln"), "zone", "Did you mean Europe/Berlin"),
        ("spend", Question(zone="Europe"), "zone", "IANA name"),
        ("spend", Question(zone="../../etc/passwd"), "zone", "IANA name"),
        ("spend", Question(baseline="local"), "baseline", "leave it out"),
        ("spend", Question(subject="abc"), "subject", "no single request"),
        ("request", Question(), "subject", "say which"),
        ("request", Question(subject="a\0"), "subject", "in no id"),
        ("savings", Question(baseline="maxi"), "baseline", "maxi"),
    ],
)
def test_what_makes_no_sense_is_refused(filled: Ledger, name: str, question: Question, param: str, says: str) -> None:
    with pytest.raises(ClientError, match=says) as caught:
        read(filled, name, question)
    assert (caught.value.status, caught.value.param) == (404 if param == "name" else 400, param)
