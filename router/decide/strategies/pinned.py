"""Always the same target, no fallback."""

from typing import Literal

from pydantic import BaseModel, ConfigDict

from router.types.plan import Candidate


class Pinned(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    kind: Literal["pinned"]
    target: str

    def names(self) -> tuple[str, ...]:
        return (self.target,)

    def order(self, candidates: tuple[Candidate, ...], draw: float) -> tuple[Candidate, ...]:
        return candidates
