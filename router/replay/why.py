"""Why a decision changes, in the words that decisions have anyway."""

from router.decide.plan import weighs
from router.replay.sides import Decided, Side
from router.replay.stored import REFUSED, Stored
from router.types.plan import Cascade, Dropped, Hedge, Plan, Tactic, Vote

_TOLD = frozenset({"not_allowed", "evidence_expired", "data_class", "region", "capability", "unpriced"})
"""Reasons whose detail is of the policy alone: others have numbers of the request in it."""


def why(one: Stored, decided: Decided, new: Side) -> str:
    """`decided` is another choice than the stored one."""
    before, after, decision = one.choice, decided.choice, decided.decision
    if decision is None:
        return "the policy has no such route, or the key may not name it"
    plan = decision.plan
    if after == REFUSED:
        return _told(next((each for each in plan.dropped if each.target == before.target), None) or plan.dropped[0])
    if before == REFUSED:
        return "a target may serve it"
    if before.target != after.target:
        return _left(before.target, plan, new)
    if before.tactic != after.tactic or before.second != after.second:
        return f"{plan.strategy}: {how(after.tactic)}"
    return "sees placeholders" if after.redacted else "sees all of it"


def how(tactic: Tactic | None) -> str:
    """One word for it."""
    if tactic is None:
        return "alone"
    return {Cascade: "cascade", Vote: "vote", Hedge: "hedge"}[type(tactic)]


def _left(target: str, plan: Plan, new: Side) -> str:
    """Why `target` is not first any more."""
    dropped = next((each for each in plan.dropped if each.target == target), None)
    if dropped is not None:
        return _told(dropped)
    found = new.rules.routes.get(plan.route)
    if found is None or target not in (each.id for each in found[1]):
        return f"{target} is no target of the route"
    weighed = next((each.why for each in plan.weighed if each.target == target), "")
    if plan.explored:
        return f"an experiment ({plan.explored})"
    return f"{plan.strategy}: {target} is {weighed}" if weighs(found[0].strategy) and weighed else plan.strategy


def _told(dropped: Dropped) -> str:
    detail = f": {dropped.detail}" if dropped.reason in _TOLD else ""
    return f"{dropped.target} {dropped.reason}{detail}"
