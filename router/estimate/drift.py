"""Whether a target is still what it was: a change in how often it passes, or in the name of what answers.

Two one-sided CUSUM sums (Page 1954) of residuals in units of their own running mean and deviation, so that an estimate
that is off is no alarm, nor is one that slowly learns. Small changes (under `SLACK`) are left to the posterior.
"""

from collections.abc import Sequence

from msgspec import Struct

from router.estimate.posterior import noise

SLACK = 0.25
"""Standard deviations of one score by which a target may move; a change of twice that is found fastest."""
THRESHOLD = 20.0
"""Sum of what exceeds the slack, in standard deviations. Simulated with pass rates of 2 to 98 % that do not change: at
most 0.5 false alarms in 10,000 observations of a target; a fall from 90 to 60 % is found after 24."""
MEMORY = 400
"""Observations over which the running mean and variance are taken."""
LEAST_VARIANCE = 0.25
"""Of residuals over what a score's noise is: a target that never fails would raise an alarm at its first failures."""
SETTLED = 100
"""Observations of a target before any alarm about its pass rate."""
MOST_SURPRISE = 3.0
"""One score counts at most so many standard deviations: rare failures of a good target come alone."""
SAME_NAME = 50
"""Answers without a new name before a new one means anything: a target may have several machines."""
MOST_NAMES = 64
"""Remembered of each target; the one unseen for longest is forgotten."""


class Alarm(Struct, frozen=True):
    """A target is not what it was: widen what is known of it."""

    target: str
    kind: str
    """"pass_rate", "fingerprint" or "model"."""
    before: float | str
    """The pass rate, or the name seen last."""
    after: float | str
    at_ms: int


class _Side:
    """Sum of one direction, and what had been seen when it last was 0."""

    __slots__ = ("seen", "sum", "total")

    def __init__(self) -> None:
        self.sum, self.seen, self.total = 0.0, 0, 0.0


class _Scores:
    __slots__ = ("mean", "seen", "sides", "total", "variance")

    def __init__(self) -> None:
        self.seen, self.total, self.mean, self.variance = 0, 0.0, 0.0, 1.0
        self.sides = {-1: _Side(), 1: _Side()}

    def add(self, surprise: float, score: float) -> _Side | None:
        """The side that has gone too far."""
        gone, away = None, surprise - self.mean
        for sign, side in self.sides.items():
            side.sum = side.sum + sign * away / self.variance**0.5 - SLACK if self.seen >= SETTLED else 0.0
            if side.sum <= 0:
                side.sum, side.seen, side.total = 0.0, self.seen, self.total
            elif side.sum > THRESHOLD:
                gone = side
        self.seen += 1
        self.total += score
        self.mean += away / min(self.seen, MEMORY)
        self.variance = max(
            LEAST_VARIANCE, self.variance + (away**2 - self.variance) / min(self.seen + SETTLED, MEMORY)
        )
        return gone


class Drift:
    """Watches targets by index. One thread."""

    def __init__(self, targets: Sequence[str]) -> None:
        self.targets = tuple(targets)
        self._scores = [_Scores() for _ in self.targets]
        self._names: dict[tuple[int, str], dict[str, int]] = {}
        self._same: dict[tuple[int, str], int] = {}

    def of(self, targets: Sequence[str]) -> "Drift":
        """What was seen of them goes on; targets go by name."""
        found, at = Drift(targets), {name: place for place, name in enumerate(self.targets)}
        for place, name in enumerate(found.targets):
            if (before := at.get(name)) is not None:
                found._scores[place] = self._scores[before]
                found._names |= {(place, kind): names for (was, kind), names in self._names.items() if was == before}
                found._same |= {(place, kind): same for (was, kind), same in self._same.items() if was == before}
        return found

    def scored(self, target: int, expected: float, score: float, at_ms: int) -> Alarm | None:
        """`expected`: the pass rate that was estimated before. ValueError: a number that is not within 0 … 1."""
        if not (0 <= expected <= 1 and 0 <= score <= 1):
            raise ValueError("an expected or seen score is not within 0 to 1")
        surprise = (score - expected) / noise(expected) ** 0.5
        scores = self._scores[target]
        side = scores.add(max(-MOST_SURPRISE, min(MOST_SURPRISE, surprise)), score)
        if side is None:
            return None
        self._scores[target] = _Scores()
        before = side.total / max(1, side.seen)
        after = (scores.total - side.total) / (scores.seen - side.seen)
        return Alarm(self.targets[target], "pass_rate", before, after, at_ms)

    def served(self, target: int, kind: str, name: str, at_ms: int) -> Alarm | None:
        """`name` of what answered: its fingerprint, or the model that it says it is. Empty: it does not say."""
        if not name:
            return None
        key = target, kind
        known, same = self._names.setdefault(key, {}), self._same.get(key, 0)
        last, new = next(reversed(known), ""), name not in known
        known.pop(name, None)
        known[name] = at_ms
        if len(known) > MOST_NAMES:
            del known[next(iter(known))]
        self._same[key] = 0 if new else same + 1
        return Alarm(self.targets[target], kind, last, name, at_ms) if new and same >= SAME_NAME else None
