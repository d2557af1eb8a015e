"""By the expected cost of this request, thinking included; ties keep the order of the policy."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from router.types.plan import Candidate


class Cheapest(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    kind: Literal["cheapest"]
    targets: tuple[str, ...] = Field(min_length=1)

    def names(self) -> tuple[str, ...]:
        return self.targets

    def order(self, candidates: tuple[Candidate, ...], draw: float) -> tuple[Candidate, ...]:
        return tuple(sorted(candidates, key=lambda candidate: candidate.estimate.cost))
