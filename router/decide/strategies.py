"""The strategies of routes, each with its own policy object. `reads`: whether it uses the text of a request."""

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
        """Returns the candidates in the order to try; they come in the order of `names()`."""
        return candidates


# Cascade: a cheap answer first, checked by the route's verifiers; another target only if it fails the check.

Chance = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class CascadeStrategy(_Listed):
    """A cheap target is asked first, and a second one if verifiers reject its answer. The best pair is used only if it
    beats the best single target, also at pass rates that are `caution` standard deviations lower. Source: Cost-of-Pass
    (arXiv 2504.13359), sequential attempts with a verifier."""

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


# Cheapest: by expected cost, thinking included; ties keep the order of the policy.


class Cheapest(_Listed):
    reads: ClassVar[bool] = True
    kind: Literal["cheapest"]

    def order(self, candidates: tuple[Candidate, ...], draw: float) -> tuple[Candidate, ...]:
        return tuple(sorted(candidates, key=lambda candidate: candidate.estimate.cost))


# Cost of pass: the lowest expected cost of a right answer, given what a wrong one costs the user.

Caution = Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)]


class CostOfPass(_Listed):
    """Minimises cost + failure cost × (1 − p); without a failure cost, cost ÷ p above the floor.

    The baseline, the best single target for all traffic, is used unless another target gains more than `caution` times
    the expected regret of leaving it. The target that served the session before is kept while it is worse by at most
    the share `sticky` of its value. Sources: Cost-of-Pass (arXiv 2504.13359); for the failure cost, its correction for
    one-shot traffic.
    """

    reads: ClassVar[bool] = True
    kind: Literal["cost_of_pass"]
    caution: Caution = 0.3
    sticky: Annotated[float, Field(ge=0, le=1)] = 0.05

    def rank(self, situation: DecisionInput) -> Ranking:
        values = expected_loss(situation, excluded(situation, self.caution), self.caution)
        chosen = self._session_target(situation, values) if situation.last else values.best
        why = partial(reasons, chosen=chosen, word="chosen" if chosen == values.best else "kept")
        return Ranking(by_value(values, chosen), values.out, partial(weighed, situation, values, why))

    def _session_target(self, situation: DecisionInput, expected_loss: ExpectedLoss) -> int:
        """Returns the session's last target, unless another is better by more than the share `sticky`, or the evidence
        for keeping it lacks more than that; else the best."""
        for at, target in enumerate(situation.targets):
            if target.id == situation.last and not expected_loss.out[at]:
                tolerance, value = self.sticky * expected_loss.value[at], expected_loss.value
                if value[at] - value[expected_loss.best] <= tolerance and -expected_loss.margin[at] <= tolerance:
                    return at
        return expected_loss.best


# Ordered: the first target of the policy that can serve is asked, the rest are fallbacks.


class Ordered(_Listed):
    reads: ClassVar[bool] = False
    kind: Literal["ordered"]


# Pinned: always the same target, without a fallback.


class Pinned(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    reads: ClassVar[bool] = False
    kind: Literal["pinned"]
    target: str

    def names(self) -> tuple[str, ...]:
        return (self.target,)

    def order(self, candidates: tuple[Candidate, ...], draw: float) -> tuple[Candidate, ...]:
        return candidates


# Plan: the way of asking that is likeliest to give a right answer within budget and deadline, by simulation.


class SessionTerms(BaseModel):
    """A session of several requests that share a budget and a deadline; each decision leaves enough for the rest."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    calls: Annotated[int, Field(gt=0)] = Field(description="Requests that a session is expected to take.")
    budget_usd: Usd | None = None
    deadline_s: Annotated[int, Field(gt=0)] | None = None


class PlanStrategy(_Listed):
    """Simulates each target alone, checked pairs if the route has verifiers, and hedged pairs, with `draws` costs and
    times from the forecasts. Takes the cheapest of those as likely to succeed as the best. A session is planned again
    with every request, from what its earlier ones cost and took. Source: Monte-Carlo portfolio planning (arXiv
    2605.06110)."""

    reads: ClassVar[bool] = True
    kind: Literal["plan"]
    draws: Annotated[int, Field(ge=50, le=2_000)] = 300
    session: SessionTerms | None = None

    def rank(self, situation: DecisionInput) -> Ranking:
        values = expected_loss(situation, excluded(situation, 0.0), 0.0)
        plans = candidate_plans(situation)
        chosen = plans[best(simulate(situation, plans, self.draws, self._remaining(situation)))]
        first = [chosen.first] if chosen.second is None else [chosen.first, chosen.second]
        # If the chosen targets fail, those that may be too slow or too dear come last.
        order = [*first, *(at for at in by_value(values, first[0]) if at not in first)]
        tactic: Tactic | None = None
        if chosen.second is not None:
            tactic = Levels(2) if chosen.hedge_ms is None else Hedge(chosen.hedge_ms)
        return Ranking(order, values.out, partial(weighed, situation, values, partial(_why, first=first)), tactic)

    def _remaining(self, situation: DecisionInput) -> RemainingLimits:
        """Returns the limits of this request and what must be left for the session's later ones."""
        stakes, session = situation.stakes, self.session
        funds, time = _or_infinite(stakes.max_nano), _or_infinite(stakes.deadline_ms)
        if session is None:
            return RemainingLimits(funds, time)
        calls_left = max(0, session.calls - situation.calls - 1)
        budget = _or_infinite(None if session.budget_usd is None else nano_from_usd(session.budget_usd))
        deadline = _or_infinite(None if session.deadline_s is None else session.deadline_s * 1000)
        return RemainingLimits(funds, time, calls_left, budget - situation.spent, deadline - situation.elapsed_ms)


def _why(values: ExpectedLoss, first: list[int]) -> list[Why]:
    """Returns why each target was or was not chosen: in simulation, the others were less likely to succeed or
    dearer."""
    words: list[Why] = ["chosen"] if len(first) == 1 else ["first", "second"]
    chosen = dict(zip(first, words, strict=True))
    return [chosen.get(at) or REASONS[out] or "less_likely" for at, out in enumerate(values.out.tolist())]


def _or_infinite(limit: int | None) -> float:
    return np.inf if limit is None else float(limit)


# Self-consistency: several answers of a cheap target, given if they agree; else another target.

COMPARABLE = frozenset({Task.MATHS, Task.REASONING, Task.CLASSIFICATION, Task.EXTRACTION, Task.TOOL_USE})
"""Tasks whose right answers are equal once normalised."""


class SelfConsistency(_Listed):
    """Asks a cheap target several times, and another if its answers differ. Uses the number of samples (up to
    `samples`) and the pair of targets of the highest value if they beat the best single target. Source:
    self-consistency cascade (arXiv 2512.02543)."""

    reads: ClassVar[bool] = True
    kind: Literal["self_consistency"]
    targets: tuple[str, ...] = Field(min_length=2)
    samples: Annotated[int, Field(ge=2, le=8)] = 3
    caution: Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)] = 0.5

    def rank(self, situation: DecisionInput) -> Ranking:
        comparable = situation.samples_differ and situation.classification.task in COMPARABLE
        # A further sample is drawn only if it pays.
        counts = range(2, self.samples + 1) if comparable and len(situation.targets) > 1 else ()
        by_count = [partial(sample_value, situation.forecast.weighed_cost, samples=count) for count in counts]
        votes = [PairOption(Vote(count), by, count) for count, by in zip(counts, by_count, strict=True)]
        return ranked(situation, self.caution, votes)


# Weighted: a share of the traffic for each target; the others follow as fallbacks, heaviest first.

Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Weighted(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    reads: ClassVar[bool] = False
    kind: Literal["weighted"]
    weights: dict[str, Weight] = Field(min_length=1)

    def names(self) -> tuple[str, ...]:
        return tuple(self.weights)

    def order(self, candidates: tuple[Candidate, ...], draw: float) -> tuple[Candidate, ...]:
        """Returns the candidates with the drawn one first. `draw`: uniform in [0, 1), a point in their summed
        weights."""
        heaviest_first = sorted(candidates, key=self._weight, reverse=True)
        point = draw * sum(map(self._weight, candidates))
        for index, candidate in enumerate(heaviest_first):
            point -= self._weight(candidate)
            if point < 0:
                return (candidate, *heaviest_first[:index], *heaviest_first[index + 1 :])
        return tuple(heaviest_first)

    def _weight(self, candidate: Candidate) -> float:
        return self.weights[candidate.target.id]


# The strategies of a route: a new one is a class and a name in one of these unions.

Ordering = Pinned | Ordered | Cheapest | Weighted
Weighing = CostOfPass | CascadeStrategy | SelfConsistency | PlanStrategy
"""Strategies that use forecasts."""
Strategy = Annotated[Ordering | Weighing, Field(discriminator="kind")]
