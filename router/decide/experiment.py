"""A small share of the traffic for targets that may turn out to be better: it keeps the estimates honest.

Source: probability matching (Thompson 1933): a target is tried as often as it is likely to be the better choice.
"""

from typing import Annotated

import numpy as np
from msgspec import structs
from pydantic import BaseModel, ConfigDict, Field

from router.decide.situation import Ranked, Situation
from router.decide.weigh import IN, chance_of_better, excluded

ENOUGH = 20
"""Outcomes of a route's targets from which on they are tried: without feedback nothing would be learned from it."""


class Exploration(BaseModel):
    """At most `share` of the requests, and of what they cost, goes to targets that may be better than the choice."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    share: Annotated[float, Field(ge=0, le=0.5, allow_inf_nan=False)] = 0.02


def explore(ranked: Ranked, situation: Situation, share: float, draw: float) -> tuple[Ranked, str, float]:
    """What is tried; "cheaper" or "dearer" than the choice where chance tries another, else ""; the propensity of what
    is now first.

    A target has the chance share · P(better than the choice) · min(1, cost of the choice ÷ its cost), so that neither
    requests nor spend exceed `share`. `draw`: uniform in [0, 1). Floors, caps, deadlines and queues hold for it too.
    """
    if share <= 0 or len(situation.targets) < 2 or situation.forecast.outcomes.sum() < ENOUGH:
        return ranked, "", 1.0
    choice, cost = ranked.order[0], situation.forecast.cost
    allowed = excluded(situation, 0.0) == IN
    allowed[choice] = False
    if not allowed.any() or not np.isfinite(cost[choice]):
        return ranked, "", 1.0
    better = np.where(allowed, chance_of_better(situation, choice), 0.0)
    cheap = np.where(allowed, np.minimum(1.0, cost[choice] / np.maximum(cost, 1e-9)), 0.0)
    chances = share * better / max(1.0, better.sum()) * cheap
    ends = np.cumsum(chances)
    if draw >= ends[-1]:
        return ranked, "", 1.0 - float(ends[-1])
    tried = int(np.searchsorted(ends, draw, side="right"))
    arm = "cheaper" if cost[tried] < cost[choice] else "dearer"
    return _alone(ranked, tried), arm, float(chances[tried])


def _alone(ranked: Ranked, tried: int) -> Ranked:
    """Without checks and samples; the others follow as they were."""
    rows = tuple(structs.replace(row, why="explored") if at == tried else row for at, row in enumerate(ranked.weighed))
    return Ranked([tried, *(at for at in ranked.order if at != tried)], rows)
