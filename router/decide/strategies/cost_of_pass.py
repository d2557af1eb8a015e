"""The target of the lowest expected cost of a right answer, at the user's own price of a wrong one."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from router.decide.situation import Ranked, Situation
from router.decide.weigh import Worth, by_value, excluded, reasons, weighed, worth

Caution = Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)]


class CostOfPass(BaseModel):
    """Minimises cost + failure cost × (1 − p); without a price of failure, cost ÷ p above the floor.

    The baseline, the best single target for all traffic, stays unless another gains more than `caution` times the
    expected regret of leaving it. What served the session before stays while it is worse by at most `sticky` of its
    value.
    Source of the ratio: Cost-of-Pass (arXiv 2504.13359); of the price of failure: its correction for one-shot traffic.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    kind: Literal["cost_of_pass"]
    targets: tuple[str, ...] = Field(min_length=1)
    caution: Caution = 0.5
    sticky: Annotated[float, Field(ge=0, le=1)] = 0.05

    def names(self) -> tuple[str, ...]:
        return self.targets

    def rank(self, situation: Situation) -> Ranked:
        out = excluded(situation, self.caution)
        found = worth(situation, out, self.caution)
        chosen = self._kept(situation, found)
        why = reasons(found, chosen, "chosen" if chosen == found.best else "kept")
        return Ranked(by_value(found, chosen), weighed(situation, found, why))

    def _kept(self, situation: Situation, found: Worth) -> int:
        """The one that served the session before, while nobody is better by more than a trifle, and the evidence for it
        does not lack more."""
        last = next((at for at, one in enumerate(situation.targets) if one.id == situation.last), None)
        if last is None or found.out[last]:
            return found.best
        trifle, value = self.sticky * found.value[last], found.value
        return last if value[last] - value[found.best] <= trifle and -found.margin[last] <= trifle else found.best
