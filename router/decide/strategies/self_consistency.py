"""Several answers of a cheap target, given if they agree; another target where they don't."""

from typing import Annotated, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from router.decide.pairs import Pairs, ranked, singles
from router.decide.situation import Ranked, Situation
from router.types.classification import Task
from router.types.forecast import Vector
from router.types.plan import Vote
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
        if situation.classification.task not in COMPARABLE or len(situation.targets) < 2:
            return ranked(situation, alone, None)
        votes = [(self._pairs(situation, count), Vote(count)) for count in range(2, self.samples + 1)]
        # A further sample is drawn only where it pays.
        pairs, vote = min(votes, key=lambda vote: vote[0].best(situation))
        return ranked(situation, alone, pairs, vote)

    def _pairs(self, situation: Situation, samples: int) -> Pairs:
        forecast = situation.forecast
        low = np.clip(forecast.p - self.caution * forecast.p_sd, 0.0, 1.0)
        expected = sample_value(forecast.cost, forecast.p, 0.0, samples)
        worse = sample_value(forecast.cost, low, 0.0, samples)
        slow = samples * forecast.total_p90_ms[:, None] + forecast.total_p90_ms[None, :]
        return Pairs(_apart(expected.cost), expected.p, _apart(worse.cost), worse.p, slow)


def _apart(cost: Vector) -> Vector:
    """Another target is asked in the end, not the same."""
    return np.where(np.eye(len(cost), dtype=bool), np.inf, cost)
