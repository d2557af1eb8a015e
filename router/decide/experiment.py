"""A small share of the traffic for the cheapest and for the best target: it keeps the estimates honest.

Source: boundary-guided routing (arXiv 2602.21227): both ends of what routing can do, for ever and without bias.
"""

from typing import Annotated

import numpy as np
from msgspec import structs
from pydantic import BaseModel, ConfigDict, Field

from router.decide.situation import Ranked, Situation
from router.decide.weigh import BELOW_FLOOR, IN, excluded


class Exploration(BaseModel):
    """`share` of the requests is split evenly between the two ends."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    share: Annotated[float, Field(ge=0, le=0.5, allow_inf_nan=False)] = 0.0


NO_EXPLORATION = Exploration()


def explore(ranked: Ranked, situation: Situation, share: float, draw: float) -> tuple[Ranked, str, float]:
    """What is tried, which end it is for ("cheapest", "best" or ""), and how likely this first target was.

    `draw`: uniform in [0, 1). What is over the cap, too slow, unknown or queued is not even for an experiment.
    """
    if share <= 0:
        return ranked, "", 1.0
    out = excluded(situation, 0.0)
    allowed = (out == IN) | (out == BELOW_FLOOR)
    if not allowed.any():
        return ranked, "", 1.0
    cheapest = int(np.where(allowed, situation.forecast.cost, np.inf).argmin())
    best = int(np.where(allowed, situation.forecast.p, -np.inf).argmax())
    ends = {"cheapest": cheapest, "best": best}
    # An end whose share is too small for a number is never tried: what is tried has a chance above 0.
    each = share / 2
    arm = "cheapest" if draw < each else "best" if draw < 2 * each else ""
    first = ends[arm] if arm else ranked.order[0]
    likely = sum(each for end in ends.values() if end == first) + (1 - 2 * each) * (ranked.order[0] == first)
    return (_tried(ranked, first) if arm else ranked), arm, likely


def _tried(ranked: Ranked, first: int) -> Ranked:
    """Alone, without checks and samples; the others follow as they were."""
    rows = tuple(
        structs.replace(row, why="explored") if at == first and at != ranked.order[0] else row
        for at, row in enumerate(ranked.weighed)
    )
    return Ranked([first, *(at for at in ranked.order if at != first)], rows)
