"""One fact an attempt, or a request without any: its dimensions and measures, whose SQL is in `data/attempts.yaml`.
Every request counts once, whatever the sums are by."""

from collections.abc import Mapping, Sequence

from router.ledger.write import INPUT_TOKENS, OUTPUT_TOKENS
from router.types.tables import patterns, table

TABLE = "attempts"
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
DIMENSIONS: Mapping[str, str] = _SQL["dimensions"]
MEASURES: Mapping[str, str] = {name: _sum(**row) for name, row in _SQL["measures"].items()}
GROUPINGS: tuple[tuple[str, ...], ...] = tuple(map(tuple, table("ledger/data/groupings.yaml")["attempts"]))
