"""The two clocks: one for when, one for how long."""

import time


def now_ms() -> int:
    """Unix time."""
    return time.time_ns() // 1_000_000


def clock_ms() -> float:
    """Monotonic, for durations."""
    return time.monotonic() * 1000
