"""Which requests are replayed, by what decisions and rows say of them."""

from collections.abc import Callable, Collection, Mapping

from router.ledger.facts.query import Label, Where
from router.replay.stored import Stored

DIMENSIONS: Mapping[str, Callable[[Stored], Label]] = {
    "route": lambda one: one.route,
    "class": lambda one: one.data_class,
    "task": lambda one: one.task.value,
    "target": lambda one: one.choice.target,
    "key": lambda one: one.caller.name or one.caller.id,
    "team": lambda one: one.caller.team,
    "organisation": lambda one: one.caller.organisation,
    "session": lambda one: one.session,
}


def wanted(where: Collection[Where]) -> Callable[[Stored], bool]:
    """All of `where` must hold. Raises ValueError for another dimension."""
    unknown = sorted({one.dimension for one in where} - set(DIMENSIONS))
    if unknown:
        raise ValueError(f"replay can't be filtered by {unknown[0]}: it knows {', '.join(DIMENSIONS)}")
    return lambda one: all(each.holds(DIMENSIONS[each.dimension](one) or None) for each in where)
