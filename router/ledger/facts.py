"""What the ledger knows, as a cube: sums of exact counts and amounts, by any of the dimensions of a table of facts."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from router.ledger.outcomes import decided
from router.ledger.rows import Connection
from router.ledger.write import INPUT_TOKENS, OUTPUT_TOKENS
from router.types.attempt import PASSED
from router.types.clock import least_id
from router.types.price import nano_from_usd
from router.types.tables import patterns, table

# A question to the ledger and its answer: which sums, by what, of what.

K = TypeVar("K")
Label = str | int | None
"""None: there is no such thing, or it is not known."""
Sums = dict[tuple[Label, ...], tuple[int, ...]]
"""Values of the dimensions → sums of the measures, both in the query's order. Money in nano-USD, times in ms."""


class LabelFilter(Struct, frozen=True):
    """Only what has one of these labels in this dimension; or, `inverted`, only what has none of them."""

    dimension: str
    labels: frozenset[Label]
    inverted: bool = False

    def holds(self, label: Label) -> bool:
        """By their texts, as in a database: what is asked for comes as text."""
        text = None if label is None else str(label)
        return any(text == (None if wanted is None else str(wanted)) for wanted in self.labels) != self.inverted


class Query(Struct, frozen=True, kw_only=True):
    """Of all facts of `table` whose request began in the window: `since_ms` is included, `until_ms` is not."""

    table: str
    by: tuple[str, ...]
    measures: tuple[str, ...]
    where: tuple[LabelFilter, ...] = ()
    since_ms: int | None = None
    until_ms: int | None = None

    @property
    def dimensions(self) -> frozenset[str]:
        """All that an answer needs to tell apart."""
        return frozenset((*self.by, *(where.dimension for where in self.where)))

    def check(self, dimensions: Collection[str], measures: Collection[str]) -> None:
        """Raises ValueError for what the table does not know."""
        for names, known in ((self.dimensions, dimensions), (self.measures, measures)):
            if unknown := sorted(set(names) - set(known)):
                raise ValueError(f"unknown: {', '.join(unknown)}. Known: {', '.join(known)}.")

    def collect(
        self,
        facts: Iterable[tuple[Sequence[Label], Sequence[int]]],
        dimensions: Sequence[str],
        measures: Sequence[str],
        sums: Sums,
    ) -> None:
        """Adds to `sums` the facts of which the conditions hold; `facts`: labels by `dimensions`, amounts by
        `measures`."""
        conditions = [(dimensions.index(where.dimension), where) for where in self.where]
        by = [dimensions.index(name) for name in self.by]
        wanted = [measures.index(name) for name in self.measures]
        for labels, amounts in facts:
            if all(where.holds(labels[place]) for place, where in conditions):
                add(sums, tuple([labels[place] for place in by]), tuple([amounts[place] for place in wanted]))


class RowsExpired(Exception):
    """Rows that the question needs are gone: what is left of them can't be told apart so."""

    def __init__(self, before_ms: int, dimensions: Iterable[str]) -> None:
        """`before_ms`: only from then on (Unix) can it be answered."""
        super().__init__(before_ms)
        self.before_ms, self.dimensions = before_ms, tuple(dimensions)


def add(sums: dict[K, tuple[int, ...]], key: K, amounts: tuple[int, ...]) -> None:
    """To what is there under this key."""
    before = sums.get(key)
    sums[key] = tuple(map(int.__add__, before, amounts)) if before else amounts


# One fact an attempt, or a request without any: its dimensions and measures, whose SQL is in `data/attempts.yaml`.
# Every request counts once, whatever the sums are by.

ATTEMPTS = "attempts"
JUDGE = "judge"
"""In the place of a route, where a judge was asked about another's answer (`router.pipeline.JUDGED`)."""
HOUR_MS = 3_600_000
QUARTER_MS = 900_000
STEP = 1.25
"""Times are told apart by this factor: a percentile is right within 12 %."""
EDGES_MS = tuple(sorted({round(STEP**power) for power in range(66)}))
"""1 ms to half an hour."""
EDGES_US = tuple(sorted({round(10 * STEP**power) for power in range(62)}))
"""10 µs to ten seconds."""
LEVELS = 5
"""Of difficulty, each a fifth of 0 … 1."""
BUDGETS = (1_024, 4_096, 16_384)
"""Thinking budgets in tokens are told apart by these: each request may have a number of its own."""


def _bucket(value: str, edges: Sequence[int]) -> str:
    """The greatest edge that is not above the value, by nested comparisons, so that each row takes few of them."""
    if len(edges) == 1:
        return str(edges[0])
    middle = len(edges) // 2
    low, high = _bucket(value, edges[:middle]), _bucket(value, edges[middle:])
    return f"CASE WHEN {value} < {edges[middle]} THEN {low} ELSE {high} END"


def level(difficulty: str) -> str:
    steps = " ".join(f"WHEN {difficulty} < {(level + 1) / LEVELS:g} THEN {level}" for level in range(LEVELS - 1))
    return f"CASE {steps} ELSE {LEVELS - 1} END"


def _effort(control: str) -> str:
    number = f"CAST(SUBSTR({control}, 8) AS BIGINT)"
    steps = " ".join(f"WHEN {number} <= {most} THEN 'budget<={most}'" for most in BUDGETS)
    budget = f"CASE {steps} ELSE 'budget>{BUDGETS[-1]}' END"
    return f"CASE WHEN {control} LIKE 'budget=%' THEN {budget} ELSE {control} END"


def _sum(sum: str = "1", when: str = "") -> str:
    return f"CASE WHEN {when} THEN COALESCE({sum}, 0) ELSE 0 END" if when else f"COALESCE({sum}, 0)"


_SQL = patterns(
    "ledger/data/attempts.yaml",
    hour_ms=str(HOUR_MS),
    quarter_ms=str(QUARTER_MS),
    judge=JUDGE,
    difficulty=level("r.difficulty"),
    effort=_effort("a.thinking"),
    total_ms=_bucket("a.total_ms", (0, *EDGES_MS)),
    first_ms=_bucket("a.first_ms", (0, *EDGES_MS)),
    overhead_us=_bucket("r.overhead_us", (0, *EDGES_US)),
    input_tokens=INPUT_TOKENS,
    output_tokens=OUTPUT_TOKENS,
)


# One fact a request and target that could have served it: what was expected of that target, whoever was chosen.
#
# Read from the documents of decisions. Where the strategy goes by forecasts these are all eligible targets, with pass
# rates; else those that would have been tried, without.

OFFERS = "offers"
_OF_OFFERS = (
    *("hour", "route", "class", "task", "difficulty", "chosen", "candidate", "taken", "explored", "strategy"),
    *("app", "template"),
)
"""`taken`: 1 where the candidate was the choice."""
_WHERE_ANSWERED = ("expected", "rated", "pass_e4", "actual")
_SUMS_OF_OFFERS = ("requests", "answered", *_WHERE_ANSWERED, *(f"answered_{name}" for name in _WHERE_ANSWERED))
"""`expected`: nano-USD that the candidate was expected to cost; `rated`: of how many there is a pass rate; `pass_e4`:
sum of these, in ten-thousandths; `actual`: nano-USD that the request was charged in the end, whoever answered it.
`answered_`: the same of those requests only that were answered."""
_NONE = (0,) * len(_WHERE_ANSWERED)


def offered(document: str, request: Sequence[Any]) -> Iterator[tuple[tuple[Label, ...], tuple[int, ...]]]:
    """Of a decision and what came of it: labels in the order of `DIMENSIONS`, and measures; none where the
    document can't be read. `request`: columns of its row, and whether it was answered (0 or 1)."""
    started_ms, route, data_class, task, difficulty, answered, cost = request
    try:
        decision = decided.decode(document)
    except msgspec.DecodeError:
        return
    level = min(LEVELS - 1, int(difficulty * LEVELS))
    about = (started_ms // HOUR_MS, route, data_class, task, level, decision.chosen)
    known = decision.classification
    rest = (decision.explored or None, decision.strategy, known.app or None, known.template or None)
    candidates = [(row.target, row.cost_nano, 1, round(row.p * 10_000)) for row in decision.weighed]
    if not candidates:
        candidates = [(row.target, nano_from_usd(row.cost_usd), 0, 0) for row in decision.considered]
    for target, expected, rated, rate in candidates:
        sums = (expected, rated, rate, cost or 0)
        taken = int(target == decision.chosen)
        yield (*about, target, taken, *rest), (1, answered, *sums, *(sums if answered else _NONE))


DIMENSIONS: Mapping[str, Mapping[str, str]] = {ATTEMPTS: _SQL["dimensions"], OFFERS: dict.fromkeys(_OF_OFFERS, "")}
MEASURES: Mapping[str, Mapping[str, str]] = {
    ATTEMPTS: {name: _sum(**row) for name, row in _SQL["measures"].items()},
    OFFERS: dict.fromkeys(_SUMS_OF_OFFERS, ""),
}
"""By table and name; their SQL, where rows have them."""


class Grouping(Struct, frozen=True):
    """What sums by hour of a table tell apart."""

    table: str
    by: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.table}.{','.join(self.by)}"

    @property
    def since(self) -> str:
        """The row of `progress` that a grouping has which came with a later lowpass, when rows had expired already:
        from when on it has sums of all requests (Unix ms)."""
        return f"{self.name} since"

    @property
    def measures(self) -> tuple[str, ...]:
        return tuple(MEASURES[self.table])


GROUPINGS = tuple(
    Grouping(name, tuple(by)) for name, some in table("ledger/data/groupings.yaml").items() for by in some
)
LATE = [grouping for grouping in GROUPINGS if grouping.table == ATTEMPTS][-1]
"""Has nearly as many sums as there are rows: made when these expire."""


# How many answers were right, of those that somebody judged: sums over the log of outcomes, which stays as it is.
#
# Of what one source said of an attempt the newest counts. An attempt counts once, whoever judged it: with the mean of
# its scores by their weights, and as much as the weightiest of them. A verifier that only saw nothing wrong has not
# judged; where nobody else did, its answer is taken to be right as often as was expected of it.

PASSES = "passes"
PASS_DIMENSIONS = ("target", "task", "difficulty", "app", "template")
PASS_MEASURES = ("judged", "weight_e6", "passed_e6", "assumed", "assumed_e6", "expected_e6")
"""Attempts that were judged, their weights, and weights × scores, both in millionths; and the same of those of which
only nothing wrong was seen, with what was expected in the place of a score."""
_PASSES: str = patterns("ledger/data/passes.yaml", passed=str(PASSED), difficulty=level("o.difficulty"))["sums"]
_LAST_ID = "g"
"""Beyond every id, which are hexadecimal."""


def passes(connection: Connection, query: Query) -> Sums:
    """Of requests whose id was made in the window. Raises ValueError for what is not known of a judgement."""
    query.check(PASS_DIMENSIONS, PASS_MEASURES)
    window = least_id(query.since_ms or 0), _LAST_ID if query.until_ms is None else least_id(query.until_ms)
    facts = (
        ((target or None, task or None, difficulty, app or None, template or None), amounts)
        for target, task, difficulty, app, template, *amounts in connection.execute(_PASSES, window)
    )
    sums: Sums = {}
    query.collect(facts, PASS_DIMENSIONS, PASS_MEASURES, sums)
    return sums
