"""Days and hours as a time zone has them, out of the ledger's hours and quarters of an hour."""

from datetime import UTC, datetime, timedelta, tzinfo

from router.ledger.facts.attempts import HOUR_MS, QUARTER_MS

STEPS_MS = {"hour": HOUR_MS, "quarter": QUARTER_MS}
"""Dimensions of time → how long each of their labels is."""
_OLDEST_MS = 1_577_836_800_000
"""2020-01-01: no ledger is older."""
_MONTH_MS = 28 * 86_400_000


def step(zone: tzinfo, since_ms: int | None, until_ms: int | None, now_ms: int) -> str:
    """The dimension that tells days apart: a quarter where the zone is off the full hour, at any time of the window."""
    first = max(since_ms or _OLDEST_MS, _OLDEST_MS)
    last = max(first, min(until_ms or now_ms, now_ms))
    seen = {_local(at, zone).utcoffset() for at in (*range(first, last, _MONTH_MS), last)}
    whole = timedelta(hours=1)
    return "hour" if all(offset is None or not offset % whole for offset in seen) else "quarter"


def day(at_ms: int, zone: tzinfo) -> str:
    return f"{_local(at_ms, zone):%Y-%m-%d}"


def hour(at_ms: int, zone: tzinfo) -> str:
    """With its offset, so that the hour that a clock shows twice is two."""
    local = _local(at_ms, zone).replace(minute=0)
    return local.isoformat(timespec="minutes").replace("+00:00", "Z")


def next_day(text: str) -> str:
    return f"{datetime.fromisoformat(text).replace(tzinfo=UTC) + timedelta(days=1):%Y-%m-%d}"


def _local(at_ms: int, zone: tzinfo) -> datetime:
    return datetime.fromtimestamp(at_ms // 1000, zone)
