"""`since` and `until` as people write them."""

import re
from datetime import UTC, datetime, tzinfo

from router.errors import ClientError

_AGE = re.compile(r"(\d{1,6})([mhdw])", re.ASCII)
_HOUR_MS = 3_600_000
_LONG = ("d", "w")
"""These ages begin with their hour: old rows are sums by hour."""
_UNIT_MS = {"m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}


def moment(param: str, text: str, now_ms: int, zone: tzinfo = UTC) -> int | None:
    """Unix ms; None for "". A time without an offset is the zone's. Raises a 400 `ClientError` that names `param`."""
    if not text:
        return None
    age = _AGE.fullmatch(text)
    if age:
        past = now_ms - int(age[1]) * _UNIT_MS[age[2]]
        return past - past % _HOUR_MS if age[2] in _LONG else past
    try:
        when = datetime.fromisoformat(text)
        return round((when if when.tzinfo else when.replace(tzinfo=zone)).timestamp() * 1000)
    except (ValueError, OverflowError):
        remedy = "Send a date (2026-01-31), a time (2026-01-31T12:00Z) or an age (24h, 7d)."
        message = f"{param}: '{text[:40]}' is no time. {remedy}"
        raise ClientError(400, "invalid_request_error", message, param=param) from None


def iso(when_ms: int) -> str:
    """UTC, to the second: 2026-01-31T12:00:00Z. Years beyond 1 … 9999 are cut to them."""
    seconds = min(max(when_ms // 1000, _FIRST_S), _LAST_S)
    return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None).isoformat() + "Z"


_FIRST_S = int(datetime.min.replace(tzinfo=UTC).timestamp())
_LAST_S = int(datetime.max.replace(tzinfo=UTC, microsecond=0).timestamp())
