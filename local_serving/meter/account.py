"""What a replica did: its loads, one after the other, become times and tokens that add up."""

from msgspec import Struct

from router.types.engine import Load

MOST_GAP_MS = 30_000
"""Between two loads. What a replica did in a longer one nobody knows, and nobody pays for."""


class Spent(Struct, frozen=True, kw_only=True):
    """Times in ms, as floats: they are halved. Adds up, over times and over replicas."""

    wall_ms: float = 0.0
    busy_ms: float = 0.0
    """At least one request was running."""
    request_ms: float = 0.0
    """∫ requests running dt: two at a time for a second are two seconds."""
    uncached: int = 0
    """Tokens: read, and not in the prefix cache …"""
    cached: int = 0
    """… or in it; …"""
    output: int = 0
    """… and written."""
    prefill_ms: float = 0.0
    """As the engine sums them over its requests …"""
    decode_ms: float = 0.0
    """… when each ends; both 0 where it does not say."""
    finished: int = 0
    rejected: int = 0
    preempted: int = 0
    restarts: int = 0

    def plus(self, other: "Spent") -> "Spent":
        return Spent(**{name: getattr(self, name) + getattr(other, name) for name in self.__struct_fields__})


class Meter:
    """Of one replica."""

    def __init__(self) -> None:
        self._last: Load | None = None

    def read(self, load: Load | None) -> Spent | None:
        """What it did since it was last read; None: nothing new, or nobody knows. It may say nothing for a while."""
        if load is None:
            return None
        before, self._last = self._last, load
        if before is None:
            return None
        wall_ms = load.at_ms - before.at_ms
        return _between(before, load, wall_ms) if 0 < wall_ms <= MOST_GAP_MS else None


def _between(before: Load, load: Load, wall_ms: int) -> Spent:
    """Gauges are taken as the mean of both ends; counters that went back began anew, at 0."""
    restarted = _total(load) < _total(before)
    since = Load(at_ms=0) if restarted else before
    cached = max(0, load.cached - since.cached)
    return Spent(
        wall_ms=wall_ms,
        busy_ms=wall_ms * ((before.running > 0) + (load.running > 0)) / 2,
        request_ms=wall_ms * (before.running + load.running) / 2,
        uncached=max(0, load.prompt - since.prompt - cached),
        cached=cached,
        output=max(0, load.output - since.output),
        prefill_ms=max(0.0, load.prefill_s - since.prefill_s) * 1000,
        decode_ms=max(0.0, load.decode_s - since.decode_s) * 1000,
        finished=max(0, load.finished - since.finished),
        rejected=max(0, load.rejected - since.rejected),
        preempted=max(0, load.preempted - since.preempted),
        restarts=int(restarted),
    )


def _total(load: Load) -> int:
    return load.prompt + load.output + load.finished
