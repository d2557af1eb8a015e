"""The lease of this process on what its requests hold."""

from collections.abc import Callable

LEASE_MS = 30_000
"""What a process holds that did not renew its lease for so long belongs to the dead: others charge its holds."""


class Lease:
    """Whether it may have ended while a request ran. A process that was paused renews too late."""

    def __init__(self, clock: Callable[[], int]) -> None:
        """`clock` gives Unix ms."""
        self._clock, self._renewed_ms, self._lost_ms = clock, clock(), 0

    def renew(self) -> None:
        now = self._clock()
        if now - self._renewed_ms > LEASE_MS:
            self._lost_ms = now
        self._renewed_ms = now

    def lost_since(self, start_ms: int) -> bool:
        """Others may have charged what was held from then on: only what a provider reports is known better."""
        now = self._clock()
        return self._lost_ms > start_ms or now - max(self._renewed_ms, start_ms) > LEASE_MS
