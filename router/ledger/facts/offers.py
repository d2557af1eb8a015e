"""One fact a request and target that could have served it: what was expected of that target, whoever was chosen.

Read from the documents of decisions. Where the strategy goes by forecasts these are all eligible targets, with pass
rates; else those that would have been tried, without.
"""

from collections.abc import Iterator, Mapping
from decimal import Decimal

import msgspec
from msgspec import Struct

from router.ledger.facts.attempts import HOUR_MS, LEVELS
from router.ledger.facts.query import Label, Sums, add
from router.types.price import nano_from_usd

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
GROUPINGS = (
    ("route", "strategy", "chosen", "candidate", "explored"),
    ("route", "class", "chosen", "candidate"),
    ("task", "difficulty", "candidate", "taken"),
    ("route", "strategy", "class", "task", "chosen", "candidate", "taken", "explored"),
)
"""What sums by hour tell apart, beside the hour itself."""


class Decided(Struct, frozen=True):
    """A decision and what came of it."""

    started_ms: int
    route: str
    data_class: str
    task: str
    difficulty: float
    answered: bool
    cost: int | None
    document: bytes


class _Weighed(Struct):
    target: str
    p: float
    cost_nano: int


class _Considered(Struct):
    target: str
    cost_usd: Decimal


class _Seen(Struct):
    app: str = ""
    template: str = ""


class _Document(Struct):
    classification: _Seen = msgspec.field(default_factory=_Seen)
    strategy: str = ""
    chosen: str | None = None
    explored: str = ""
    weighed: list[_Weighed] = []
    considered: list[_Considered] = []


_document = msgspec.json.Decoder(_Document)


def facts(one: Decided) -> Iterator[tuple[tuple[Label, ...], tuple[int, ...]]]:
    """Labels in the order of `DIMENSIONS`, and measures; none where the document can't be read."""
    try:
        found = _document.decode(one.document)
    except msgspec.DecodeError:
        return
    level = min(LEVELS - 1, int(one.difficulty * LEVELS))
    about = (one.started_ms // HOUR_MS, one.route, one.data_class, one.task, level, found.chosen)
    seen = found.classification
    rest = (found.explored or None, found.strategy, seen.app or None, seen.template or None)
    candidates = [(row.target, row.cost_nano, 1, round(row.p * 10_000)) for row in found.weighed]
    if not candidates:
        candidates = [(row.target, nano_from_usd(row.cost_usd), 0, 0) for row in found.considered]
    for target, expected, rated, rate in candidates:
        sums = (expected, rated, rate, one.cost or 0)
        taken = int(target == found.chosen)
        yield (*about, target, taken, *rest), (1, int(one.answered), *sums, *(sums if one.answered else _NONE))


def grouped(sums: Sums, by: Mapping[str, int], measures: Mapping[str, int]) -> Sums:
    """Fewer dimensions and measures, by their places."""
    found: Sums = {}
    for labels, amounts in sums.items():
        add(found, tuple(labels[at] for at in by.values()), tuple(amounts[at] for at in measures.values()))
    return found
