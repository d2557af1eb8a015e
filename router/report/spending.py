"""What each pot of a budget was charged, hour by hour: from the ledger's sums, by the budget's own filters."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from router.budget.budget import Budget
from router.ledger.facts.attempts import HOUR_MS, TABLE
from router.ledger.facts.query import Label, Query, Where
from router.ledger.rollups import sums
from router.report.forecast import LOOK_BACK_HOURS
from router.report.source import Source
from router.types.account import Unit

Hours = Mapping[int, int]
"""Unix hour → nano-USD, or thinking tokens."""
_FILTERS = {"organisations": "organisation", "teams": "team", "keys": "key", "routes": "route", "targets": "target"}
_ANYBODY = ""


def hourly(source: Source, budget: Budget) -> Mapping[str, Hours]:
    """By value of the budget's scope ("" where it has one pot). Keys count to the team that they are in today."""
    now, tagged = source.asked.now_ms, bool(budget.tags) or budget.scope == "tag"
    by = ["hour", *(["tags"] if tagged else []), *([budget.scope] if budget.scope not in ("all", "tag") else [])]
    found: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    query = Query(
        table=TABLE,
        by=tuple(by),
        measures=_measures(budget),
        where=tuple(_where(budget)),
        since_ms=(now // HOUR_MS - LOOK_BACK_HOURS) * HOUR_MS,
        until_ms=now // HOUR_MS * HOUR_MS,
    )
    for labels, amounts in sums(source.connection, query).items():
        told = dict(zip(by, labels, strict=True))
        for value in _values(budget, told):
            found[value][int(told["hour"] or 0)] += sum(amounts)
    return found


def _measures(budget: Budget) -> tuple[str, ...]:
    """What was recovered after a crash is charged to budgets too."""
    if budget.unit is Unit.USD:
        return "cost", "recovered"
    return ("output_reasoning",) if budget.targets or budget.scope == "target" else ("request_thinking",)


def _where(budget: Budget) -> Iterable[Where]:
    for name, dimension in _FILTERS.items():
        values = getattr(budget, name)
        if values:
            yield Where(dimension, frozenset(values))


def _values(budget: Budget, told: Mapping[str, Label]) -> Iterable[str]:
    """The pots that a group was charged to."""
    tags = set(str(told.get("tags") or "").split(",")) - {""}
    if budget.tags:
        tags &= set(budget.tags)
        if not tags:
            return ()
    if budget.scope == "tag":
        return tags
    return (_ANYBODY if budget.scope == "all" else str(told[budget.scope] or ""),)
