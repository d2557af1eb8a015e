"""A share of the traffic for each target; the others follow as fallbacks, heaviest first."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from router.types.plan import Candidate

Weight = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Weighted(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    kind: Literal["weighted"]
    weights: dict[str, Weight] = Field(min_length=1)

    def names(self) -> tuple[str, ...]:
        return tuple(self.weights)

    def order(self, candidates: tuple[Candidate, ...], draw: float) -> tuple[Candidate, ...]:
        """`draw` is uniform in [0, 1): the point in the eligible targets' summed weights that picks the first."""
        heaviest_first = sorted(candidates, key=self._weight, reverse=True)
        point = draw * sum(map(self._weight, candidates))
        for index, candidate in enumerate(heaviest_first):
            point -= self._weight(candidate)
            if point < 0:
                return (candidate, *heaviest_first[:index], *heaviest_first[index + 1 :])
        return tuple(heaviest_first)

    def _weight(self, candidate: Candidate) -> float:
        return self.weights[candidate.target.id]
