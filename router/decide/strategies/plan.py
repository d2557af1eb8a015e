"""Budget and deadline: whichever course is likeliest to end in a right answer within both, found by simulation."""

from typing import Annotated, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from router.decide.rehearse import Course, Rest, best, courses, rehearse
from router.decide.requirements import Usd
from router.decide.situation import Ranked, Situation
from router.decide.weigh import REASONS, Worth, by_value, excluded, weighed, worth
from router.types.money import nano_from_usd
from router.types.plan import Cascade, Hedge, Tactic, Why


class Errands(BaseModel):
    """A session of several requests that share a budget and a deadline: each decision leaves enough for the rest."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    calls: Annotated[int, Field(gt=0)] = Field(description="Requests that a session is expected to take.")
    budget_usd: Usd | None = None
    deadline_s: Annotated[int, Field(gt=0)] | None = None


class Plan(BaseModel):
    """Draws costs and times from the forecasts `draws` times, for every target alone, checked pairs where the route
    has verifiers, and hedged pairs. Among courses as likely to succeed the cheapest is taken. A session is planned
    anew with every request, from what its last ones cost and took. Source: Monte-Carlo portfolio planning
    (arXiv 2605.06110).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    kind: Literal["plan"]
    targets: tuple[str, ...] = Field(min_length=1)
    draws: Annotated[int, Field(ge=50, le=2_000)] = 300
    session: Errands | None = None

    def names(self) -> tuple[str, ...]:
        return self.targets

    def rank(self, situation: Situation) -> Ranked:
        found = worth(situation, excluded(situation, 0.0), 0.0)
        possible = courses(situation)
        chosen = possible[best(rehearse(situation, possible, self.draws, self._rest(situation)))]
        first = [chosen.first] if chosen.second is None else [chosen.first, chosen.second]
        # If it fails, what may take too long or cost too much comes last.
        order = by_value(found, first[0])
        rows = weighed(situation, found, _why(found, first))
        return Ranked([*first, *(at for at in order if at not in first)], rows, _tactic(chosen))

    def _rest(self, situation: Situation) -> Rest:
        """What this request may take, and what has to be left for those after it."""
        stakes, session = situation.stakes, self.session
        funds, time = _or_endless(stakes.max_nano), _or_endless(stakes.deadline_ms)
        if session is None:
            return Rest(funds, time)
        left = max(0, session.calls - situation.calls - 1)
        budget = _or_endless(None if session.budget_usd is None else nano_from_usd(session.budget_usd))
        deadline = _or_endless(None if session.deadline_s is None else session.deadline_s * 1000)
        return Rest(funds, time, left, budget - situation.spent, deadline - situation.elapsed_ms)


def _why(found: Worth, first: list[int]) -> list[Why]:
    """Played through, the others were less likely to end well, or as likely and dearer."""
    words: list[Why] = ["chosen"] if len(first) == 1 else ["first", "second"]
    told = dict(zip(first, words, strict=True))
    return [told.get(at) or REASONS[out] or "less_likely" for at, out in enumerate(found.out.tolist())]


def _tactic(course: Course) -> Tactic | None:
    if course.second is None:
        return None
    return Cascade(2) if course.hedge_ms is None else Hedge(course.hedge_ms)


def _or_endless(limit: int | None) -> float:
    return np.inf if limit is None else float(limit)
