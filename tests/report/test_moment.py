"""`since` and `until`: what is understood, and what is refused with a way out."""

from zoneinfo import ZoneInfo

import pytest

from router.errors import ClientError
from router.report.moment import iso, moment
from tests.report.filled import DAY_MS, MONDAY_MS

NOW_MS = MONDAY_MS + DAY_MS // 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", None),
        ("2026-11-02", MONDAY_MS),
        ("2026-11-02T00:00", MONDAY_MS),
        ("2026-11-02T00:00:00Z", MONDAY_MS),
        ("2026-11-02T02:00+02:00", MONDAY_MS),
        ("2026-11-02 00:00:00.123", MONDAY_MS + 123),
        ("30m", NOW_MS - 1_800_000),
        ("24h", NOW_MS - DAY_MS),
        ("7d", NOW_MS - 7 * DAY_MS),
        ("2w", NOW_MS - 14 * DAY_MS),
        ("0d", NOW_MS),
    ],
)
def test_understood(text: str, expected: int | None) -> None:
    assert moment("since", text, NOW_MS) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1d", NOW_MS - DAY_MS),
        ("2w", NOW_MS - 14 * DAY_MS),
        ("24h", NOW_MS - DAY_MS + 1_234_567),
        ("0m", NOW_MS + 1_234_567),
    ],
)
def test_days_and_weeks_ago_begin_with_their_hour(text: str, expected: int) -> None:
    assert moment("since", text, NOW_MS + 1_234_567) == expected


@pytest.mark.parametrize(
    ("text", "zone", "expected"),
    [
        ("2026-11-02", "Europe/Berlin", MONDAY_MS - 3_600_000),
        ("2026-11-02T05:30", "Asia/Kolkata", MONDAY_MS),
        ("2026-11-02T00:00Z", "Asia/Kolkata", MONDAY_MS),
        ("1d", "Asia/Kolkata", NOW_MS - DAY_MS),
    ],
)
def test_a_time_without_an_offset_is_the_zones(text: str, zone: str, expected: int) -> None:
    assert moment("since", text, NOW_MS, ZoneInfo(zone)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "yesterday",
        "7",
        "d",
        "-7d",
        "7D",
        "7 d",
        "٧d",
        "9999999d",
        "2026-13-01",
        "2026-11-31",
        "12:00",
        " ",
        "7d\n",
        "\0",
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
