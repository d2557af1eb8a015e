"""For how long of a request somebody else was at work: what is left of its time is ours."""


class Waits:
    """Moments in ms of one clock. Rivals that are waited for at the same time count once."""

    __slots__ = ("_open", "_since", "_total")

    def __init__(self) -> None:
        self._open, self._since, self._total = 0, 0.0, 0.0

    def begin(self, at: float) -> None:
        """One more is waited for."""
        if not self._open:
            self._since = at
        self._open += 1

    def end(self, at: float) -> None:
        """Of one that had begun."""
        self._open -= 1
        if not self._open:
            self._total += at - self._since

    def total(self, at: float) -> float:
        """Until then, in ms."""
        return self._total + (at - self._since if self._open else 0.0)
