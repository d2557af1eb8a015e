"""The clocks of a gateway and the ids of its requests."""

import time
from datetime import UTC, datetime
from random import SystemRandom

# The two clocks: one for when, one for how long. A test may let time pass for both.

_passed_s = 0.0


def now_ms() -> int:
    """Unix time."""
    return time.time_ns() // 1_000_000 + int(_passed_s * 1000)


def clock_ms() -> float:
    """Monotonic, for durations."""
    return (time.monotonic() + _passed_s) * 1000


def monotonic_s() -> float:
    """The same in seconds."""
    return time.monotonic() + _passed_s


def let_pass(seconds: float) -> None:
    """Sets both clocks of this process forward, for tests; a negative number takes it back."""
    global _passed_s
    _passed_s += seconds


def iso(when_ms: int) -> str:
    """UTC, to the second: 2026-01-31T12:00:00Z. Years beyond 1 … 9999 are cut to them."""
    seconds = min(max(when_ms // 1000, _FIRST_S), _LAST_S)
    return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None).isoformat() + "Z"


_FIRST_S = int(datetime.min.replace(tzinfo=UTC).timestamp())
_LAST_S = int(datetime.max.replace(tzinfo=UTC, microsecond=0).timestamp())

# UUIDv7 ids (RFC 9562 §5.7): sortable by time, so that the ledger's primary key is also its order.

_VERSION_7 = 0x7 << 76
_VARIANT_RFC = 0x2 << 62
_bits = SystemRandom().getrandbits
"""Of the operating system: from earlier ids nothing can be told of later ones."""


def new_id() -> str:
    """A UUIDv7 as 32 hex digits; unique, and never guessed."""
    random_a, random_b = _bits(12) << 64, _bits(62)
    at_ms = time.time_ns() // 1_000_000 + int(_passed_s * 1000)
    return f"{at_ms << 80 | _VERSION_7 | random_a | _VARIANT_RFC | random_b:032x}"


def least_id(at_ms: int) -> str:
    """What ids of that moment (Unix ms) and of later ones are not less than."""
    return f"{max(0, at_ms):012x}"


def created_ms(identifier: str) -> int:
    """Unix time in ms at which `new_id` made this id."""
    return int(identifier[:12], 16)
