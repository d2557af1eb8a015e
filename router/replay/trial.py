"""Experiments of the past as trials of another policy."""

from typing import NamedTuple

from router.replay.stored import Stored, Weighed
from router.types.plan import Plan
from router.types.plan import Weighed as Planned

_CHOSEN, _PAIRED = ("chosen", "kept"), "first"
_OUT = ("below_floor", "over_cost", "too_slow", "unknown", "queued")


class Trial(NamedTuple):
    """`target`: whom the new policy would choose, and an experiment asked; empty where none did."""

    target: str = ""
    supported: bool = False
    """The new choice is another one, and chance might have asked it."""


def trial(one: Stored, plan: Plan) -> Trial:
    """`plan`: the new policy's. Only of single targets: experiments ask one alone."""
    document = one.document
    if document.propensity >= 1 or not plan.steps:
        return Trial()
    new = _chosen(plan.weighed) if plan.weighed else plan.steps[0].target.id
    if not new or new == _chosen(document.weighed):
        return Trial()
    asked = new if document.explored and one.choice.target == new else ""
    return Trial(asked, not plan.explored and new in _could_be_tried(document.weighed))


def _chosen(weighed: tuple[Weighed, ...] | tuple[Planned, ...]) -> str:
    """The choice without chance; empty where it is a pair."""
    return next((one.target for one in weighed if one.why in _CHOSEN), "")


def _could_be_tried(weighed: tuple[Weighed, ...]) -> set[str]:
    """Targets within all limits: each has some chance."""
    return {row.target for row in weighed if row.why not in _OUT}
