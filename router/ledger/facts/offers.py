"""One fact a request and target that could have served it: what was expected of that target, whoever was chosen.

Read from the documents of decisions. Where the strategy goes by forecasts these are all eligible targets, with pass
rates; else those that would have been tried, without.
"""

from collections.abc import Iterator

import msgspec

from router.ledger.facts.attempts import HOUR_MS, LEVELS
from router.ledger.facts.query import Label
from router.ledger.outcomes import decided
from router.types.price import nano_from_usd
from router.types.tables import table

TABLE = "offers"
DIMENSIONS = (
    *("hour", "route", "class", "task", "difficulty", "chosen", "candidate", "taken", "explored", "strategy"),
    *("app", "template"),
)
"""`taken`: 1 where the candidate was the choice."""
_WHERE_ANSWERED = ("expected", "rated", "pass_e4", "actual")
MEASURES = ("requests", "answered", *_WHERE_ANSWERED, *(f"answered_{name}" for name in _WHERE_ANSWERED))
"""`expected`: nano-USD that the candidate was expected to cost; `rated`: of how many there is a pass rate; `pass_e4`:
sum of these, in ten-thousandths; `actual`: nano-USD that the request was charged in the end, whoever answered it.
`answered_`: the same of those requests only that were answered."""
_NONE = (0,) * len(_WHERE_ANSWERED)
GROUPINGS: tuple[tuple[str, ...], ...] = tuple(map(tuple, table("ledger/data/groupings.yaml")["offers"]))


def facts(
    document: str,
    started_ms: int,
    route: str,
    data_class: str,
    task: str,
    difficulty: float,
    answered: int,
    cost: int | None,
) -> Iterator[tuple[tuple[Label, ...], tuple[int, ...]]]:
    """Of a decision and what came of it: labels in the order of `DIMENSIONS`, and measures; none where the document
    can't be read. `answered` is 0 or 1."""
    try:
        decision = decided.decode(document)
    except msgspec.DecodeError:
        return
    level = min(LEVELS - 1, int(difficulty * LEVELS))
    about = (started_ms // HOUR_MS, route, data_class, task, level, decision.chosen)
    seen = decision.classification
    rest = (decision.explored or None, decision.strategy, seen.app or None, seen.template or None)
    candidates = [(row.target, row.cost_nano, 1, round(row.p * 10_000)) for row in decision.weighed]
    if not candidates:
        candidates = [(row.target, nano_from_usd(row.cost_usd), 0, 0) for row in decision.considered]
    for target, expected, rated, rate in candidates:
        sums = (expected, rated, rate, cost or 0)
        taken = int(target == decision.chosen)
        yield (*about, target, taken, *rest), (1, answered, *sums, *(sums if answered else _NONE))
