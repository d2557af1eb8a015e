"""In the order of the policy: the first that can serve does, the rest are fallbacks."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from router.types.plan import Candidate


class Ordered(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    kind: Literal["ordered"]
    targets: tuple[str, ...] = Field(min_length=1)

    def names(self) -> tuple[str, ...]:
        return self.targets

    def order(self, candidates: tuple[Candidate, ...], draw: float) -> tuple[Candidate, ...]:
        """`candidates` come in the order of `names()`."""
        return candidates
