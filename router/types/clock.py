"""The two clocks: one for when, one for how long. A test may let time pass for both."""

import time

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
