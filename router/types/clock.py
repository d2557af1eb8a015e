"""The clocks of a gateway and the ids of its requests."""

import time
from datetime import UTC, datetime
from random import SystemRandom

# Two clocks: one for points in time and one for durations. Tests can advance both.

_passed_s = 0.0


def now_ms() -> int:
    """Returns Unix time in ms."""
    return time.time_ns() // 1_000_000 + int(_passed_s * 1000)


def clock_ms() -> float:
    """Returns monotonic time in ms, for durations."""
    return (time.monotonic() + _passed_s) * 1000


def monotonic_s() -> float:
    """Returns monotonic time in seconds, for durations."""
    return time.monotonic() + _passed_s


def let_pass(seconds: float) -> None:
    """Moves both clocks of this process forward, for tests. A negative number moves them back."""
    global _passed_s
    _passed_s += seconds


def iso(when_ms: int) -> str:
    """Formats Unix ms as UTC to the second, e.g. 2026-01-31T12:00:00Z. Clamped to the years 1 to 9999."""
    seconds = min(max(when_ms // 1000, _FIRST_S), _LAST_S)
    return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None).isoformat() + "Z"


_FIRST_S = int(datetime.min.replace(tzinfo=UTC).timestamp())
_LAST_S = int(datetime.max.replace(tzinfo=UTC, microsecond=0).timestamp())

# UUIDv7 ids (RFC 9562 §5.7) sort by time, so that the order of the ledger's primary key is the order of creation.

_VERSION_7 = 0x7 << 76
_VARIANT_RFC = 0x2 << 62
_bits = SystemRandom().getrandbits
"""Random bits of the operating system, so that ids can't be predicted from earlier ones."""


def new_id() -> str:
    """Returns a UUIDv7 as 32 hex digits. It is unique and can't be guessed."""
    random_a, random_b = _bits(12) << 64, _bits(62)
    at_ms = time.time_ns() // 1_000_000 + int(_passed_s * 1000)
    return f"{at_ms << 80 | _VERSION_7 | random_a | _VARIANT_RFC | random_b:032x}"


def least_id(at_ms: int) -> str:
    """Returns a lower bound for ids that are created at `at_ms` (Unix ms) or later."""
    return f"{max(0, at_ms):012x}"


def created_ms(identifier: str) -> int:
    """Returns the Unix time in ms at which `new_id` made the id."""
    return int(identifier[:12], 16)
