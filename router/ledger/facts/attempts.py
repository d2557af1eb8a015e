"""One fact an attempt, or a request without any: its dimensions and measures, as SQL over requests `r`, attempts `a`
and keys `k`. What belongs to the request as a whole counts at its last attempt, which gave the answer if any did; so
every request counts once, whatever the sums are by."""

from collections.abc import Mapping, Sequence

from router.ledger.write import BUCKETS, INPUT_TOKENS, OUTPUT_TOKENS

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

_LAST = "NOT EXISTS (SELECT 1 FROM attempts AS n WHERE n.request_id = r.id AND n.number = a.number + 1)"
_EARLIER = (
    "a.number > 1 AND EXISTS (SELECT 1 FROM attempts AS e WHERE e.request_id = r.id AND e.number < a.number AND {})"
)
_SENT = "{}.outcome <> 'circuit_open'"
_SENT_BEFORE = _EARLIER.format(_SENT.format("e"))
_PLACE = ("target", "classes", "redacted", "region", "region_source")
_SENT_THERE_BEFORE = _EARLIER.format(" AND ".join((_SENT.format("e"), *(f"e.{name} = a.{name}" for name in _PLACE))))
_AGAIN = "e.number = a.number - 1 AND e.target = a.target AND e.outcome <> 'ok'"
_ELSEWHERE = "e.target <> a.target AND e.outcome <> 'ok'"
_GIVEN = f"a.outcome = 'ok' AND a.passed_over = 0 AND {_LAST}"
_ANSWER = "a.outcome = 'ok' AND a.answered = 1"
_MICRO = "CASE WHEN a.cost >= 10000000000 THEN 10000000 ELSE (COALESCE(a.cost, 0) + 999) / 1000 END"
_WASTED = "a.answered = 0 AND a.finish_reason = 'length' AND COALESCE(a.output_visible, 0) = 0"


def _bucket(value: str, edges: Sequence[int]) -> str:
    """The greatest edge that is not above the value."""
    return _halved(value, (0, *edges))


def _halved(value: str, edges: Sequence[int]) -> str:
    """As nested comparisons, so that each row takes few of them."""
    if len(edges) == 1:
        return str(edges[0])
    middle = len(edges) // 2
    low, high = _halved(value, edges[:middle]), _halved(value, edges[middle:])
    return f"CASE WHEN {value} < {edges[middle]} THEN {low} ELSE {high} END"


def level(difficulty: str) -> str:
    steps = " ".join(f"WHEN {difficulty} < {(level + 1) / LEVELS:g} THEN {level}" for level in range(LEVELS - 1))
    return f"CASE {steps} ELSE {LEVELS - 1} END"


def _effort(control: str) -> str:
    number = f"CAST(SUBSTR({control}, 8) AS BIGINT)"
    steps = " ".join(f"WHEN {number} <= {most} THEN 'budget<={most}'" for most in BUDGETS)
    budget = f"CASE {steps} ELSE 'budget>{BUDGETS[-1]}' END"
    return f"CASE WHEN {control} LIKE 'budget=%' THEN {budget} ELSE {control} END"


def _known(value: str, bucket: str) -> str:
    return f"CASE WHEN {value} IS NOT NULL THEN {bucket} END"


def _or_planned(column: str) -> str:
    """Of a request that is in progress, or was lost with its gateway: of the target that its plan begins with."""
    return f"COALESCE(a.{column}, CASE WHEN {_OPEN} THEN r.{column} END)"


_OPEN = "r.state IN ('held', 'recovered')"
DIMENSIONS: Mapping[str, str] = {
    "hour": f"r.started_ms / {HOUR_MS}",
    "quarter": f"r.started_ms / {QUARTER_MS}",
    "organisation": "k.organisation",
    "team": "k.team",
    "key": "COALESCE(k.name, r.key_id)",
    "tags": "r.tags",
    "session": "r.session",
    "endpoint": "r.endpoint",
    "stream": "r.stream",
    "route": "r.route",
    "judging": f"CASE WHEN r.route = '{JUDGE}' THEN 1 ELSE 0 END",
    "state": "r.state",
    "status": "r.status",
    "error": "r.error",
    "lowered": "r.lowered",
    "policy": "r.policy",
    "class": "r.data_class",
    "classes": "r.classes",
    "task": "r.task",
    "difficulty": level("r.difficulty"),
    "app": "r.app",
    "template": "r.template",
    "target": _or_planned("target"),
    "model": _or_planned("model"),
    "provider": "a.provider",
    "region": "a.region",
    "region_source": "a.region_source",
    "sent_classes": "a.classes",
    "redacted": "a.redacted",
    "effort": _effort("a.thinking"),
    "role": "a.role",
    "outcome": "a.outcome",
    "finish": "a.finish_reason",
    "cost_source": "a.cost_source",
    "price_version": "a.price_version",
    "total_ms": _known("a.total_ms", _bucket("a.total_ms", EDGES_MS)),
    "first_ms": _known("a.first_ms", _bucket("a.first_ms", EDGES_MS)),
    "overhead_us": _known("r.overhead_us", _bucket("r.overhead_us", EDGES_US)),
}
"""An empty text and NULL are the same label. Times are the lower edges of their buckets. `judging`: 1 where a judge
was asked, so that nobody's question was answered."""


def _when(condition: str, value: str = "1") -> str:
    return f"CASE WHEN {condition} THEN COALESCE({value}, 0) ELSE 0 END"


_ASKED = "r.endpoint <> 'adjustment'"
"""A correction of a charge is a row that costs, and nothing else (`router.ledger.adjust`)."""
MEASURES: Mapping[str, str] = {
    "requests": _when(f"{_ASKED} AND {_LAST}"),
    "errors": _when(f"r.error IS NOT NULL AND {_LAST}"),
    "lowered_requests": _when(f"r.lowered <> '' AND {_LAST}"),
    "attempts": _when(f"a.number IS NOT NULL AND {_ASKED}"),
    "failed_attempts": _when("a.number IS NOT NULL AND a.outcome <> 'ok'"),
    "passed_over": _when("a.passed_over = 1"),
    "answers": _when(_ANSWER),
    "answers_cost": _when(_ANSWER, "a.cost"),
    "cost_square": _when(_ASKED, f"({_MICRO}) * ({_MICRO})"),
    "retries": _when(_EARLIER.format(_AGAIN)),
    "fallbacks": _when(f"{_EARLIER.format(_ELSEWHERE)} AND {_GIVEN}"),
    "sent_requests": _when(f"{_ASKED} AND {_SENT.format('a')} AND NOT ({_SENT_BEFORE})"),
    "sent_there": _when(f"{_ASKED} AND {_SENT.format('a')} AND NOT ({_SENT_THERE_BEFORE})"),
    "unwritten": _when(f"a.number IS NULL AND {_OPEN}"),
    "counted": _when("a.input_uncached IS NOT NULL"),
    "split": _when("a.output_reasoning IS NOT NULL"),
    "unsplit": _when("a.output_visible > 0 AND a.output_reasoning IS NULL"),
    "unpriced": _when("a.cost_source = 'unpriced'"),
    "input_tokens": f"COALESCE({INPUT_TOKENS}, 0)",
    "output_tokens": f"COALESCE({OUTPUT_TOKENS}, 0)",
    "split_output": _when("a.output_reasoning IS NOT NULL", OUTPUT_TOKENS),
    **{bucket: f"COALESCE(a.{bucket}, 0)" for bucket in BUCKETS},
    "cost": f"CASE WHEN {_OPEN} THEN 0 ELSE COALESCE(a.cost, r.cost, 0) END",
    "own_cost": f"CASE WHEN {_OPEN} THEN 0 ELSE COALESCE(a.own_cost, a.cost, r.cost, 0) END",
    "recovered": _when(f"r.state = 'recovered' AND {_LAST}", "r.cost"),
    "held": _when(f"r.state = 'held' AND {_LAST}", "r.held"),
    "request_held": _when(_LAST, "r.held"),
    "request_thinking": _when(_LAST, "r.thinking"),
    "overruns": _when(f"r.overrun = 1 AND {_LAST}"),
    "thinking_cost": "COALESCE(a.thinking_cost, 0)",
    "thinking_known": _when("a.thinking_cost IS NOT NULL"),
    "thinking_of": _when("a.thinking_cost IS NOT NULL", "a.cost"),
    "cache_saved": "COALESCE(a.cache_saved, 0)",
    "passed_over_cost": _when("a.passed_over = 1", "a.cost"),
    "lowered_effort": _when(f"r.lowered LIKE '%effort%' AND {_LAST}"),
    "cut": _when("a.finish_reason = 'length'"),
    "wasted": _when(_WASTED),
    "wasted_tokens": _when(_WASTED, "a.output_reasoning"),
    "wasted_cost": _when(_WASTED, "a.cost"),
    "total_ms_sum": "COALESCE(a.total_ms, 0)",
    "first_ms_sum": "COALESCE(a.first_ms, 0)",
}
"""`counted`: attempts whose usage is known, `split`: whose provider tells reasoning from other output; without any of
them the token sums mean nothing. `split_output`: all output of the latter, of which reasoning is a share. `wasted`:
thought up to the cap, and never answered. `retries`: the attempt before it failed at the same target; `fallbacks`: it
gave the answer after another target had failed. Requests of which anything was sent: `sent_requests` at their first
such attempt, `sent_there` at their first at each place as the same classes. `unwritten`: no attempt was written, and
may have been made. `request_thinking`: thinking tokens that it was charged. `answers`: attempts that had something for
the client; `thinking_known`: those of which `thinking_cost` is known, `thinking_of`: what they cost; `cost_square`:
their costs squared, in square micro-USD, each rounded up and at 10 USD at most, so that no sum leaves 63 bits.
`lowered_effort`: requests that were made to think less; `cut`: attempts that ended at a cap."""

GROUPINGS: tuple[tuple[str, ...], ...] = (
    ("organisation", "team", "key"),
    ("tags",),
    ("route", "role", "state", "status", "error", "lowered"),
    ("target", "model", "provider", "policy", "route", "outcome", "cost_source"),
    ("class", "classes", "sent_classes", "target", "region", "region_source", "redacted", "policy", "outcome", "error"),
    ("target", "model", "task", "difficulty", "judging"),
    ("target", "model", "task", "effort", "finish", "role"),
    ("target", "stream", "outcome", "total_ms"),
    ("target", "stream", "first_ms"),
    ("target", "overhead_us"),
    ("target", "price_version"),
    (
        *("organisation", "team", "key", "tags", "route", "task", "effort", "target", "model", "provider", "region"),
        *("price_version", "cost_source"),
    ),
)
"""What sums by hour tell apart, beside the hour itself: a question that needs no more than one of these is answered
from few numbers, and also after the rows have expired. The last one has nearly as many sums as there are rows, and is
summed up only when these expire."""
