"""Several answers of a cheap target, given if they agree; another target where they don't."""

from typing import Annotated, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from router.decide.pairs import Alone, Pairs, lower, ranked, singles, values, winner
from router.decide.situation import Ranked, Situation
from router.types.forecast import Vector
from router.types.plan import Vote
from router.types.task import Task
from router.worth import sample_value

COMPARABLE = frozenset({Task.MATHS, Task.REASONING, Task.CLASSIFICATION, Task.EXTRACTION, Task.TOOL_USE})
"""Tasks whose right answers are the same once they are normalised."""


class SelfConsistency(BaseModel):
    """The number of samples, up to `samples`, and the pair of targets are those of the highest value; they win only
    if they beat the best single target. Source: self-consistency cascade (arXiv 2512.02543).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    kind: Literal["self_consistency"]
    targets: tuple[str, ...] = Field(min_length=2)
    samples: Annotated[int, Field(ge=2, le=8)] = 3
    caution: Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)] = 0.5

    def names(self) -> tuple[str, ...]:
        return self.targets

    def rank(self, situation: Situation) -> Ranked:
        alone = singles(situation, self.caution)
        comparable = situation.samples_differ and situation.classification.task in COMPARABLE
        if not comparable or len(situation.targets) < 2:
            return ranked(situation, alone, None)
        count, pairs = self._best(situation, alone)
        return ranked(situation, alone, winner(situation, alone, pairs), Vote(count))

    def _best(self, situation: Situation, alone: Alone) -> tuple[int, Pairs]:
        """A further sample is drawn only where it pays; of equals the fewest."""
        votes = [(count, self._pairs(situation, count)) for count in range(2, self.samples + 1)]
        return min(votes, key=lambda vote: float(values(situation, alone, vote[1]).min()))

    def _pairs(self, situation: Situation, samples: int) -> Pairs:
        forecast = situation.forecast
        expected = sample_value(forecast.cost, forecast.p, 0.0, samples)
        worse = sample_value(forecast.cost, lower(situation, self.caution), 0.0, samples)
        most, slow = (np.add.outer(samples * each, each) for each in (forecast.cost, forecast.total_p90_ms))
        return Pairs(_apart(expected.cost), expected.p, _apart(worse.cost), worse.p, most, slow)


def _apart(cost: Vector) -> Vector:
    """Another target is asked in the end, not the same."""
    return np.where(np.eye(len(cost), dtype=bool), np.inf, cost)
