"""The strategies of routes. Each is its own policy object; `reads`: it chooses by what a request's text foretells."""

from functools import partial
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from router.decide.eligibility import Usd
from router.decide.simulate import RemainingLimits, best, candidate_plans, simulate
from router.decide.weigh import (
    REASONS,
    DecisionInput,
    ExpectedLoss,
    PairOption,
    Ranking,
    by_value,
    excluded,
    expected_loss,
    ranked,
    reasons,
    weighed,
)
from router.decide.worth import VerifierQuality, cascade_value, sample_value
from router.types.decision import Candidate, Hedge, Tactic, Vote, Why
from router.types.decision import Cascade as Levels
from router.types.price import nano_from_usd
from router.types.target import Task


class _Listed(BaseModel):
    """A strategy that chooses among a list of targets, in the order of the policy."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    targets: tuple[str, ...] = Field(min_length=1)

    def names(self) -> tuple[str, ...]:
        return self.targets

    def order(self, candidates: tuple[Candidate, ...], draw: float) -> tuple[Candidate, ...]:
        """`candidates` come in the order of `names()`."""
        return candidates


# A cheap answer first, checked by the route's verifiers; another target only where the check says no.

Chance = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class CascadeStrategy(_Listed):
    """Every ordered pair is valued; the best one wins only if it beats the best single target, also where the pass
    rates are `caution` standard deviations lower. Source of the value: Cost-of-Pass (arXiv 2504.13359), sequential
    attempts with a verifier.
    """

    reads: ClassVar[bool] = True
    kind: Literal["cascade"]
    targets: tuple[str, ...] = Field(min_length=2)
    caution: Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)] = 0.5
    accepts_right: Chance = Field(0.98, description="Share of right answers that the verifiers accept.")
    accepts_wrong: Chance = Field(0.05, description="Share of wrong answers that the verifiers accept.")

    def rank(self, situation: DecisionInput) -> Ranking:
        check = VerifierQuality(self.accepts_right, self.accepts_wrong)
        checked = PairOption(Levels(2), lambda p: cascade_value(situation.forecast.weighed_cost, p, check))
        return ranked(situation, self.caution, [checked] if situation.verified and len(situation.targets) > 1 else [])


# By the expected cost of this request, thinking included; ties keep the order of the policy.


class Cheapest(_Listed):
    reads: ClassVar[bool] = True
    kind: Literal["cheapest"]

    def order(self, candidates: tuple[Candidate, ...], draw: float) -> tuple[Candidate, ...]:
        return tuple(sorted(candidates, key=lambda candidate: candidate.estimate.cost))


# The target of the lowest expected cost of a right answer, at the user's own price of a wrong one.

Caution = Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)]


class CostOfPass(_Listed):
    """Minimises cost + failure cost × (1 − p); without a price of failure, cost ÷ p above the floor.

    The baseline, the best single target for all traffic, stays unless another gains more than `caution` times the
    expected regret of leaving it. What served the session before stays while it is worse by at most `sticky` of its
    value.
    Source of the ratio: Cost-of-Pass (arXiv 2504.13359); of the price of failure: its correction for one-shot traffic.
    """

    reads: ClassVar[bool] = True
    kind: Literal["cost_of_pass"]
    caution: Caution = 0.3
    sticky: Annotated[float, Field(ge=0, le=1)] = 0.05

    def rank(self, situation: DecisionInput) -> Ranking:
        worths = expected_loss(situation, excluded(situation, self.caution), self.caution)
        chosen = self._kept(situation, worths) if situation.last else worths.best
        why = partial(reasons, chosen=chosen, word="chosen" if chosen == worths.best else "kept")
        return Ranking(by_value(worths, chosen), worths.out, partial(weighed, situation, worths, why))

    def _kept(self, situation: DecisionInput, expected_loss: ExpectedLoss) -> int:
        """What served the session before, while no other is better by more than a trifle, and the evidence for it
        does not lack more."""
        for at, target in enumerate(situation.targets):
            if target.id == situation.last and not expected_loss.out[at]:
                trifle, value = self.sticky * expected_loss.value[at], expected_loss.value
                if value[at] - value[expected_loss.best] <= trifle and -expected_loss.margin[at] <= trifle:
                    return at
        return expected_loss.best


# In the order of the policy: the first that can serve does, the rest are fallbacks.


class Ordered(_Listed):
    reads: ClassVar[bool] = False
    kind: Literal["ordered"]


# Always the same target, no fallback.


class Pinned(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    reads: ClassVar[bool] = False
    kind: Literal["pinned"]
    target: str

    def names(self) -> tuple[str, ...]:
        return (self.target,)

    def order(self, candidates: tuple[Candidate, ...], draw: float) -> tuple[Candidate, ...]:
        return candidates


# Budget and deadline: whichever course is likeliest to end in a right answer within both, found by simulation.


class SessionTerms(BaseModel):
    """A session of several requests that share a budget and a deadline: each decision leaves enough for the rest."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    calls: Annotated[int, Field(gt=0)] = Field(description="Requests that a session is expected to take.")
    budget_usd: Usd | None = None
    deadline_s: Annotated[int, Field(gt=0)] | None = None


class PlanStrategy(_Listed):
    """Draws costs and times from the forecasts `draws` times, for every target alone, checked pairs where the route
    has verifiers, and hedged pairs. Among courses as likely to succeed the cheapest is taken. A session is planned
    anew with every request, from what its last ones cost and took. Source: Monte-Carlo portfolio planning
    (arXiv 2605.06110).
    """

    reads: ClassVar[bool] = True
    kind: Literal["plan"]
    draws: Annotated[int, Field(ge=50, le=2_000)] = 300
    session: SessionTerms | None = None

    def rank(self, situation: DecisionInput) -> Ranking:
        worths = expected_loss(situation, excluded(situation, 0.0), 0.0)
        possible = candidate_plans(situation)
        chosen = possible[best(simulate(situation, possible, self.draws, self._rest(situation)))]
        first = [chosen.first] if chosen.second is None else [chosen.first, chosen.second]
        # If it fails, what may take too long or cost too much comes last.
        order = [*first, *(at for at in by_value(worths, first[0]) if at not in first)]
        tactic: Tactic | None = None
        if chosen.second is not None:
            tactic = Levels(2) if chosen.hedge_ms is None else Hedge(chosen.hedge_ms)
        return Ranking(order, worths.out, partial(weighed, situation, worths, partial(_why, first=first)), tactic)

    def _rest(self, situation: DecisionInput) -> RemainingLimits:
        """What this request may take, and what has to be left for those after it."""
        stakes, session = situation.stakes, self.session
        funds, time = _or_endless(stakes.max_nano), _or_endless(stakes.deadline_ms)
        if session is None:
            return RemainingLimits(funds, time)
        left = max(0, session.calls - situation.calls - 1)
        budget = _or_endless(None if session.budget_usd is None else nano_from_usd(session.budget_usd))
        deadline = _or_endless(None if session.deadline_s is None else session.deadline_s * 1000)
        return RemainingLimits(funds, time, left, budget - situation.spent, deadline - situation.elapsed_ms)


def _why(worths: ExpectedLoss, first: list[int]) -> list[Why]:
    """Played through, the others were less likely to end well, or as likely and dearer."""
    words: list[Why] = ["chosen"] if len(first) == 1 else ["first", "second"]
    chosen = dict(zip(first, words, strict=True))
    return [chosen.get(at) or REASONS[out] or "less_likely" for at, out in enumerate(worths.out.tolist())]


def _or_endless(limit: int | None) -> float:
    return np.inf if limit is None else float(limit)


# Several answers of a cheap target, given if they agree; another target where they don't.

COMPARABLE = frozenset({Task.MATHS, Task.REASONING, Task.CLASSIFICATION, Task.EXTRACTION, Task.TOOL_USE})
"""Tasks whose right answers are the same once they are normalised."""


class SelfConsistency(_Listed):
    """The number of samples, up to `samples`, and the pair of targets are those of the highest value; they win only
    if they beat the best single target. Source: self-consistency cascade (arXiv 2512.02543).
    """

    reads: ClassVar[bool] = True
    kind: Literal["self_consistency"]
    targets: tuple[str, ...] = Field(min_length=2)
    samples: Annotated[int, Field(ge=2, le=8)] = 3
    caution: Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)] = 0.5

    def rank(self, situation: DecisionInput) -> Ranking:
        comparable = situation.samples_differ and situation.classification.task in COMPARABLE
        # A further sample is drawn only where it pays.
        counts = range(2, self.samples + 1) if comparable and len(situation.targets) > 1 else ()
        by_count = [partial(sample_value, situation.forecast.weighed_cost, samples=count) for count in counts]
        votes = [PairOption(Vote(count), by, count) for count, by in zip(counts, by_count, strict=True)]
        return ranked(situation, self.caution, votes)


# A share of the traffic for each target; the others follow as fallbacks, heaviest first.

Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Weighted(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    reads: ClassVar[bool] = False
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


# How a route orders its eligible targets: a new strategy is a class and a name in a union.

Ordering = Pinned | Ordered | Cheapest | Weighted
Weighing = CostOfPass | CascadeStrategy | SelfConsistency | PlanStrategy
"""They go by forecasts."""
Strategy = Annotated[Ordering | Weighing, Field(discriminator="kind")]
