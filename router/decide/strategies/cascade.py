"""A cheap answer first, checked by the route's verifiers; another target only where the check says no."""

from typing import Annotated, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from router.decide.pairs import Pairs, lower, ranked, singles, winner
from router.decide.situation import Ranked, Situation
from router.types.plan import Cascade as Levels
from router.worth import RHO, Check, cascade_value

Chance = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class Cascade(BaseModel):
    """Every ordered pair is valued; the best one wins only if it beats the best single target, also where the pass
    rates are `caution` standard deviations lower. Source of the value: Cost-of-Pass (arXiv 2504.13359), sequential
    attempts with a verifier.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    kind: Literal["cascade"]
    targets: tuple[str, ...] = Field(min_length=2)
    caution: Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)] = 0.5
    accepts_right: Chance = Field(0.98, description="Share of right answers that the verifiers accept.")
    accepts_wrong: Chance = Field(0.05, description="Share of wrong answers that the verifiers accept.")

    def names(self) -> tuple[str, ...]:
        return self.targets

    def rank(self, situation: Situation) -> Ranked:
        alone = singles(situation, self.caution)
        if not situation.verified or len(situation.targets) < 2:
            return ranked(situation, alone, None)
        return ranked(situation, alone, winner(situation, alone, self._pairs(situation)), Levels(2))

    def _pairs(self, situation: Situation) -> Pairs:
        forecast, check = situation.forecast, Check(self.accepts_right, self.accepts_wrong)
        expected = cascade_value(forecast.cost, forecast.p, 0.0, check, RHO)
        worse = cascade_value(forecast.cost, lower(situation, self.caution), 0.0, check, RHO)
        most, slow = (np.add.outer(each, each) for each in (forecast.cost, forecast.total_p90_ms))
        return Pairs(expected.cost, expected.p, worse.cost, worse.p, most, slow)
