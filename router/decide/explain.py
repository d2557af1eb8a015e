"""A decision as a JSON document: what was seen, allowed, estimated and chosen. No text of the request, no secret."""

from decimal import Decimal

from msgspec import Struct

from router.types.classification import Classification
from router.types.money import usd_from_nano
from router.types.plan import Candidate, Decision, Dropped


class Considered(Struct, frozen=True):
    """One eligible target and what it would have cost, in USD and tokens."""

    target: str
    model: str
    effort: str | None
    cost_usd: Decimal
    hold_usd: Decimal
    input_tokens: int
    output_tokens: int
    max_output: int
    pass_rate: float | None


class Explained(Struct, frozen=True, kw_only=True):
    """`considered` is in the order of the attempts; the first is the choice."""

    id: str
    requested: str
    route: str
    strategy: str
    policy: str
    classification: Classification
    chosen: str | None
    considered: tuple[Considered, ...]
    dropped: tuple[Dropped, ...]


def explain(decision: Decision) -> Explained:
    plan = decision.plan
    return Explained(
        id=decision.id,
        requested=decision.requested,
        route=plan.route,
        strategy=plan.strategy,
        policy=decision.policy,
        classification=decision.classification,
        chosen=plan.steps[0].target.id if plan.steps else None,
        considered=tuple(map(_considered, plan.steps)),
        dropped=plan.dropped,
    )


def _considered(candidate: Candidate) -> Considered:
    target, estimate = candidate.target, candidate.estimate
    return Considered(
        target.id,
        target.model.id,
        target.effort,
        usd_from_nano(estimate.cost),
        usd_from_nano(estimate.hold),
        estimate.input_tokens,
        estimate.output_tokens,
        estimate.max_output,
        estimate.pass_rate,
    )
