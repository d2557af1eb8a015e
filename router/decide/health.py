"""Circuit breaker per target: closed → open after repeated failures → one probe at a time → closed."""

from collections.abc import Callable

TRIP_AFTER = 5
"""Failures in a row that open the circuit."""
FIRST_REST_S = 5.0
LONGEST_REST_S = 120.0
MISPLACED = "region mismatch"
SUSPENSION_S = 3_600.0
"""How long nobody asks a target whose provider says that it served another region than it was asked for."""


class _Circuit:
    __slots__ = ("failures", "probing", "rest_s", "resting_until")

    def __init__(self) -> None:
        self.failures, self.rest_s, self.resting_until, self.probing = 0, FIRST_REST_S, 0.0, False


class Health:
    """What recent attempts say about each target. `clock` is monotonic, in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._circuits: dict[str, _Circuit] = {}
        self._suspended: dict[str, float] = {}
        """By target, until when. An answer that arrives does not end it."""

    def resting(self, target: str) -> float:
        """Seconds until `target` may be asked again; 0 when it may be now (then possibly as a probe)."""
        circuit, suspended_s = self._circuits.get(target), self._suspension(target)
        if circuit is None:
            return suspended_s
        if circuit.probing:
            return max(circuit.rest_s, suspended_s)
        return max(0.0, circuit.resting_until - self._clock(), suspended_s)

    def admit(self, target: str) -> bool:
        """Claims the right to ask `target`; on a half-open circuit only one caller at a time gets it."""
        if self.resting(target) > 0:
            return False
        circuit = self._circuits.get(target)
        if circuit is not None and circuit.failures >= TRIP_AFTER:
            circuit.probing = True
        return True

    def succeeded(self, target: str) -> None:
        if self._circuits:
            self._circuits.pop(target, None)

    def failed(self, target: str, *, trips: bool, retry_after_s: float | None = None) -> None:
        """`retry_after_s` is the upstream's own wish; it is kept without opening the circuit."""
        if not trips and not retry_after_s:
            return self.abandoned(target)
        circuit, now = self._circuits.setdefault(target, _Circuit()), self._clock()
        circuit.probing = False
        circuit.failures += trips
        rest_s = min(retry_after_s or 0.0, LONGEST_REST_S)
        # While it rests, only requests from before can fail: the same outage, not a failed probe.
        if trips and circuit.failures >= TRIP_AFTER and circuit.resting_until <= now:
            rest_s = max(rest_s, circuit.rest_s)
            circuit.rest_s = min(circuit.rest_s * 2, LONGEST_REST_S)
        circuit.resting_until = max(circuit.resting_until, now + rest_s)

    def abandoned(self, target: str) -> None:
        """The attempt ended without a verdict (the client left): a probe is given back."""
        circuit = self._circuits.get(target)
        if circuit is not None:
            circuit.probing = False

    def suspend(self, target: str) -> None:
        """It was served in another region than the one that the policy counts on."""
        self._suspended[target] = self._clock() + SUSPENSION_S

    def pardon(self) -> None:
        """Another policy is in force: it may have been put right."""
        self._suspended.clear()

    def snapshot(self) -> dict[str, str]:
        """Every target that is not plainly healthy: "open", "half-open", "resting" (its own wish), "failing", or
        "region mismatch"."""
        states = {target: self._state(target, circuit) for target, circuit in self._circuits.items()}
        return states | {target: MISPLACED for target in self._suspended if self._suspension(target)}

    def _suspension(self, target: str) -> float:
        """Seconds left of it."""
        return max(0.0, self._suspended[target] - self._clock()) if target in self._suspended else 0.0

    def _state(self, target: str, circuit: _Circuit) -> str:
        if circuit.failures < TRIP_AFTER:
            return "resting" if self.resting(target) else "failing"
        return "open" if self.resting(target) else "half-open"
