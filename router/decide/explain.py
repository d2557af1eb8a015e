"""A decision as a JSON document: what was seen, allowed, estimated and chosen. No text of the request, no secret."""

import msgspec
from msgspec import Raw, Struct

from router.types.classification import Classification
from router.types.money import usd_json
from router.types.plan import Candidate, Decision, Dropped

encode = msgspec.json.encode


class Considered(Struct, frozen=True):
    """One eligible target and what it would have cost: exact JSON numbers in USD, and tokens."""

    target: str
    model: str
    effort: str | None
    cost_usd: Raw
    hold_usd: Raw
    input_tokens: int
    output_tokens: int
    max_output: int


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
        Raw(usd_json(estimate.cost)),
        Raw(usd_json(estimate.hold)),
        estimate.input_tokens,
        estimate.output_tokens,
        estimate.max_output,
    )
