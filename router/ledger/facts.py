"""The ledger as a data cube: sums of exact counts and amounts, by any dimensions of a table of facts."""

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

# A query to the ledger and its result: sums of measures by dimensions.

K = TypeVar("K")
Label = str | int | None
"""Value of a dimension; None if absent or unknown."""
Sums = dict[tuple[Label, ...], tuple[int, ...]]
"""Values of the dimensions → sums of the measures, both in the query's order. Money in nano-USD, times in ms."""


class LabelFilter(Struct, frozen=True):
    """Selects facts that have one of `labels` in a dimension or, if `inverted`, none of them."""

    dimension: str
    labels: frozenset[Label]
    inverted: bool = False

    def holds(self, label: Label) -> bool:
        """Whether the filter selects `label`. Labels are compared as text, as in the database."""
        text = None if label is None else str(label)
        return any(text == (None if wanted is None else str(wanted)) for wanted in self.labels) != self.inverted


class Query(Struct, frozen=True, kw_only=True):
    """A query of the facts of `table` whose request began from `since_ms` to before `until_ms` (Unix ms)."""

    table: str
    by: tuple[str, ...]
    measures: tuple[str, ...]
    where: tuple[LabelFilter, ...] = ()
    since_ms: int | None = None
    until_ms: int | None = None

    @property
    def dimensions(self) -> frozenset[str]:
        """All dimensions used by the query, including those of its filters."""
        return frozenset((*self.by, *(where.dimension for where in self.where)))

    def check(self, dimensions: Collection[str], measures: Collection[str]) -> None:
        """Raises ValueError for dimensions or measures that the table does not have."""
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
        """Adds the facts that pass the filters to `sums`. `facts`: labels in the order of `dimensions`, and amounts in
        that of `measures`."""
        conditions = [(dimensions.index(where.dimension), where) for where in self.where]
        by = [dimensions.index(name) for name in self.by]
        wanted = [measures.index(name) for name in self.measures]
        for labels, amounts in facts:
            if all(where.holds(labels[index]) for index, where in conditions):
                add(sums, tuple([labels[index] for index in by]), tuple([amounts[index] for index in wanted]))


class RowsExpired(Exception):
    """Rows that a query needs have expired, and the remaining sums do not have its dimensions."""

    def __init__(self, before_ms: int, dimensions: Iterable[str]) -> None:
        """`before_ms`: Unix ms from which the query can be answered."""
        super().__init__(before_ms)
        self.before_ms, self.dimensions = before_ms, tuple(dimensions)


def add(sums: dict[K, tuple[int, ...]], key: K, amounts: tuple[int, ...]) -> None:
    """Adds `amounts` to the sums under `key`."""
    before = sums.get(key)
    sums[key] = tuple(map(int.__add__, before, amounts)) if before else amounts


# Table "attempts": one fact per attempt, or per request without attempts; its SQL is in `data/attempts.yaml`. Every
# request counts once, whatever the dimensions of the sums.

ATTEMPTS = "attempts"
JUDGE = "judge"
"""Value of `route` in requests that ask a judge about another request's answer (`router.pipeline.JUDGED`)."""
HOUR_MS = 3_600_000
QUARTER_MS = 900_000
BUCKET_RATIO = 1.25
"""Ratio of neighbouring edges of time buckets; percentiles are accurate to 12 %."""
EDGES_MS = tuple(sorted({round(BUCKET_RATIO**power) for power in range(66)}))
"""Lower edges of time buckets in ms, from 1 ms to half an hour."""
EDGES_US = tuple(sorted({round(10 * BUCKET_RATIO**power) for power in range(62)}))
"""Lower edges of time buckets in µs, from 10 µs to ten seconds."""
LEVELS = 5
"""Number of levels of difficulty, each a fifth of 0 … 1."""
BUDGET_EDGES = (1_024, 4_096, 16_384)
"""Upper edges of the groups of thinking budgets in tokens; ungrouped, every number would be a label."""


def _bucket_sql(value: str, edges: Sequence[int]) -> str:
    """Returns SQL for the greatest edge not above `value`; nested, so that each row takes few comparisons."""
    if len(edges) == 1:
        return str(edges[0])
    middle = len(edges) // 2
    low, high = _bucket_sql(value, edges[:middle]), _bucket_sql(value, edges[middle:])
    return f"CASE WHEN {value} < {edges[middle]} THEN {low} ELSE {high} END"


def level(difficulty: str) -> str:
    steps = " ".join(f"WHEN {difficulty} < {(level + 1) / LEVELS:g} THEN {level}" for level in range(LEVELS - 1))
    return f"CASE {steps} ELSE {LEVELS - 1} END"


def _effort_sql(control: str) -> str:
    number = f"CAST(SUBSTR({control}, 8) AS BIGINT)"
    steps = " ".join(f"WHEN {number} <= {edge} THEN 'budget<={edge}'" for edge in BUDGET_EDGES)
    budget = f"CASE {steps} ELSE 'budget>{BUDGET_EDGES[-1]}' END"
    return f"CASE WHEN {control} LIKE 'budget=%' THEN {budget} ELSE {control} END"


def _measure_sql(sum: str = "1", when: str = "") -> str:
    return f"CASE WHEN {when} THEN COALESCE({sum}, 0) ELSE 0 END" if when else f"COALESCE({sum}, 0)"


_SQL = patterns(
    "ledger/data/attempts.yaml",
    hour_ms=str(HOUR_MS),
    quarter_ms=str(QUARTER_MS),
    judge=JUDGE,
    difficulty=level("r.difficulty"),
    effort=_effort_sql("a.thinking"),
    total_ms=_bucket_sql("a.total_ms", (0, *EDGES_MS)),
    first_ms=_bucket_sql("a.first_ms", (0, *EDGES_MS)),
    overhead_us=_bucket_sql("r.overhead_us", (0, *EDGES_US)),
    input_tokens=INPUT_TOKENS,
    output_tokens=OUTPUT_TOKENS,
)


# Table "offers": one fact per request and candidate target, with what was expected of that target.
#
# Facts are read from the documents of decisions. If the strategy uses forecasts, the candidates are all eligible
# targets, with pass rates; else they are the targets that would have been tried, without pass rates.

OFFERS = "offers"
_OFFER_NAMES = (
    *("hour", "route", "class", "task", "difficulty", "chosen", "candidate", "taken", "explored", "strategy"),
    *("app", "template"),
)
"""Dimensions of the table "offers"; `taken`: 1 if the candidate was chosen."""
_OFFER_AMOUNTS = ("expected", "rated", "pass_e4", "actual")
_OFFER_MEASURES = ("requests", "answered", *_OFFER_AMOUNTS, *(f"answered_{name}" for name in _OFFER_AMOUNTS))
"""Measures of the table "offers". `expected`: candidate's expected cost in nano-USD; `rated`: number with a pass rate;
`pass_e4`: sum of pass rates in ten-thousandths; `actual`: request's final charge in nano-USD, whichever target
answered; `answered_…`: the same, over answered requests only."""
_NO_AMOUNTS = (0,) * len(_OFFER_AMOUNTS)


def offered(document: str, request: Sequence[Any]) -> Iterator[tuple[tuple[Label, ...], tuple[int, ...]]]:
    """Yields the facts of one decision: labels in the order of `DIMENSIONS`, and measures; none if the document can't
    be read. `request`: started_ms, route, class, task, difficulty, answered (0 or 1), and cost in nano-USD."""
    started_ms, route, data_class, task, difficulty, answered, cost = request
    try:
        decision = decided.decode(document)
    except msgspec.DecodeError:
        return
    level = min(LEVELS - 1, int(difficulty * LEVELS))
    first = (started_ms // HOUR_MS, route, data_class, task, level, decision.chosen)
    known = decision.classification
    others = (decision.explored or None, decision.strategy, known.app or None, known.template or None)
    candidates = [(row.target, row.cost_nano, 1, round(row.p * 10_000)) for row in decision.weighed]
    if not candidates:
        candidates = [(row.target, nano_from_usd(row.cost_usd), 0, 0) for row in decision.considered]
    for target, expected, rated, rate in candidates:
        sums = (expected, rated, rate, cost or 0)
        taken = int(target == decision.chosen)
        yield (*first, target, taken, *others), (1, answered, *sums, *(sums if answered else _NO_AMOUNTS))


DIMENSIONS: Mapping[str, Mapping[str, str]] = {ATTEMPTS: _SQL["dimensions"], OFFERS: dict.fromkeys(_OFFER_NAMES, "")}
MEASURES: Mapping[str, Mapping[str, str]] = {
    ATTEMPTS: {name: _measure_sql(**row) for name, row in _SQL["measures"].items()},
    OFFERS: dict.fromkeys(_OFFER_MEASURES, ""),
}
"""Table → measure → its SQL, empty for offers."""


class Grouping(Struct, frozen=True):
    """The dimensions of a set of hourly sums of a table."""

    table: str
    by: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.table}.{','.join(self.by)}"

    @property
    def since(self) -> str:
        """Name of the row of `progress` with the time (Unix ms) from which a grouping has sums of all requests. It
        exists for groupings added by a later version of lowpass, after rows had expired."""
        return f"{self.name} since"

    @property
    def measures(self) -> tuple[str, ...]:
        return tuple(MEASURES[self.table])


GROUPINGS = tuple(
    Grouping(name, tuple(by)) for name, some in table("ledger/data/groupings.yaml").items() for by in some
)
FINEST = [grouping for grouping in GROUPINGS if grouping.table == ATTEMPTS][-1]
"""The finest grouping of attempts. It has nearly as many sums as rows, and is summed only when the rows expire."""


# Table "passes": how many of the judged answers were right, summed over the log of outcomes.
#
# Of each source, only its newest score of an attempt counts. Each attempt counts once, with the weighted mean of its
# scores and the largest of their weights. A verifier that can only find errors does not judge an answer in which it
# found none; if no other source did either, the answer is assumed right at the expected pass rate.

PASSES = "passes"
PASS_DIMENSIONS = ("target", "task", "difficulty", "app", "template")
PASS_MEASURES = ("judged", "weight_e6", "passed_e6", "assumed", "assumed_e6", "expected_e6")
"""Number of judged attempts, and sums of their weights and of weights × scores, in millionths; the same for attempts in
which only no error was found (`assumed`), with the expected pass rate in place of a score."""
_PASSES: str = patterns("ledger/data/passes.yaml", passed=str(PASSED), difficulty=level("o.difficulty"))["sums"]
_LAST_ID = "g"
"""Upper bound of all ids, which are hexadecimal."""


def passes(connection: Connection, query: Query) -> Sums:
    """Returns sums over requests with ids from the window. Raises ValueError for an unknown dimension or measure."""
    query.check(PASS_DIMENSIONS, PASS_MEASURES)
    window = least_id(query.since_ms or 0), _LAST_ID if query.until_ms is None else least_id(query.until_ms)
    facts = (
        ((target or None, task or None, difficulty, app or None, template or None), amounts)
        for target, task, difficulty, app, template, *amounts in connection.execute(_PASSES, window)
    )
    sums: Sums = {}
    query.collect(facts, PASS_DIMENSIONS, PASS_MEASURES, sums)
    return sums
