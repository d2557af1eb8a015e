"""The pass rates of the policy in force, and what was observed of its targets under the policies before it."""

from collections.abc import Sequence

from router.estimate.pass_rate import Index, PassRates
from router.priors.priors import Priors
from router.types.classification import Classification
from router.types.forecast import Vector
from router.types.outcome import Outcome
from router.types.target import Target


class Beliefs:
    """One for a process; policies come and go."""

    def __init__(self, priors: Priors) -> None:
        self._priors = priors
        self._rates = PassRates((), priors)

    def adopt(self, targets: Sequence[Target]) -> None:
        """What was observed goes on with the targets' names."""
        state = self._rates.posterior.state()
        self._rates = PassRates(targets, self._priors)
        self._rates.posterior.restore(state)

    def expect(self, seen: Classification, at: Index) -> tuple[Vector, Vector]:
        return self._rates.expect(seen, at)

    def expect_each(self, traits: Vector) -> tuple[Vector, Vector]:
        """See `PassRates`."""
        return self._rates.expect_each(traits)

    def usual(self, at: Index) -> Vector:
        return self._rates.usual(at)

    def observe(self, outcome: Outcome) -> bool:
        return self._rates.observe(outcome)

    def widen(self, target: str) -> None:
        self._rates.widen(target)

    def state(self) -> bytes:
        return self._rates.posterior.state()

    def restore(self, state: bytes) -> bool:
        return self._rates.posterior.restore(state)
