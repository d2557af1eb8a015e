"""`lowpass report reliability`: failures, retries and fallbacks, and the latency of targets and of the gateway."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import msgspec
from msgspec import structs

from router.ledger import rows
from router.ledger.facts import ATTEMPTS, EDGES_MS, EDGES_US, LabelFilter
from router.ledger.rows import RequestRecord
from router.report.egress import CIRCUIT_OPEN
from router.report.query import LedgerView
from router.report.report import Kind, Mark, Report, Row, Shape, Value, made, plots
from router.report.statistics import percentile, wilson
from router.types.attempt import ErrorKind

OK = "ok"
GIVEN_UP = frozenset({"client_gone", "outrun"})
"""Outcomes that say nothing about a target, because its answer was not awaited to the end."""
REFUSED = frozenset({ErrorKind.CONTEXT_LENGTH, ErrorKind.CONTENT_FILTER, ErrorKind.BAD_REQUEST})
"""Outcomes of a target that was available but refused the request."""


_COUNTED: Sequence[tuple[str, tuple[str, ...], tuple[LabelFilter, ...]]] = (
    ("outcome", ("attempts", "retries", "fallbacks"), ()),
    ("role", ("attempts",), ()),
    ("total_ms", ("attempts",), (LabelFilter("outcome", frozenset({OK})),)),
    ("first_ms", ("attempts",), (LabelFilter("stream", frozenset({1})),)),
    ("overhead_us", ("requests",), ()),
)
"""Dimensions, with the measures that are counted by them and filters on the attempts."""


_LabelCounts = defaultdict[tuple[str, str], Counter[Any]]
"""Counts of one target or of all: (dimension, measure) → label → count."""
_OUTCOMES = "outcome", "attempts"


def reliability(source: LedgerView) -> Report:
    label_counts, every = _counted(source)
    ranked = sorted(label_counts.items(), key=lambda item: (-_sent_to(item[1]), item[0]))
    totals = _row("total", every) if ranked else None
    wrong = [
        (name, outcome, count, count / _sent_to(counts) if outcome != CIRCUIT_OPEN else None)
        for name, counts in ranked
        for outcome, count in sorted(counts[_OUTCOMES].items(), key=lambda item: (-item[1], item[0]))
        if outcome != OK and count
    ]
    below = (*((made("reliability/outcomes", wrong),) if wrong else ()), *_skipped(source))
    report = made("reliability", (_row(name, counts) for name, counts in ranked), totals=totals, below=below)
    names = [str(name) for name in report.column("target")]
    rates = zip(names, *map(report.column, ("error_rate", "error_low", "error_high")), strict=True)
    errors = (Mark(label=name, value=rate, low=low, high=high) for name, rate, low, high in rates if rate is not None)
    times = zip(names, report.column("p90_ms"), strict=True)
    slow = (Mark(label=name, value=p90) for name, p90 in times if isinstance(p90, int))
    charts = (
        *plots("Error rate, with 95 % intervals", Shape.BARS, Kind.SHARE, errors),
        *plots("Nine of ten answers were complete within", Shape.BARS, Kind.MS, slow),
    )
    return structs.replace(report, plots=charts)


def _counted(source: LedgerView) -> tuple[Mapping[str, _LabelCounts], _LabelCounts]:
    """Returns the counts by target and of all targets, without requests that no target was asked for."""
    by_target, every = defaultdict[str, _LabelCounts](lambda: defaultdict(Counter)), _LabelCounts(Counter)
    for dimension, measures, where in _COUNTED:
        for (target, label), amounts in source.sums(ATTEMPTS, ("target", dimension), measures, *where).items():
            places = () if target is None else (by_target[str(target)], every)
            for label_counts, (measure, amount) in product(places, zip(measures, amounts, strict=True)):
                if label is not None:
                    label_counts[dimension, measure][label] += amount
    return by_target, every


def _sent_to(label_counts: _LabelCounts) -> int:
    return label_counts[_OUTCOMES].total() - label_counts[_OUTCOMES][CIRCUIT_OPEN]


def _row(label: str, label_counts: _LabelCounts) -> Row:
    """Returns a target's row. Its error rate excludes attempts refused or given up; unknown outcomes are failures."""
    outcomes, roles, sent_to = label_counts[_OUTCOMES], label_counts["role", "attempts"], _sent_to(label_counts)
    refused, given_up = (sum(outcomes[outcome] for outcome in some) for some in (REFUSED, GIVEN_UP))
    judged = sent_to - refused - given_up
    failed = judged - outcomes[OK]
    rates: tuple[Value, ...] = wilson(failed / judged, judged) if judged else (None, None, None)
    retries = label_counts["outcome", "retries"].total() + roles["retry"]
    fallbacks = label_counts["outcome", "fallbacks"].total() + roles["fallback"]
    return (
        *(label, sent_to, outcomes[OK], failed, *rates, refused, given_up, outcomes[CIRCUIT_OPEN]),
        *(retries, fallbacks, *(roles[role] for role in ("hedge", "cascade", "vote"))),
        *(percentile(label_counts["total_ms", "attempts"], EDGES_MS, share) for share in (0.5, 0.9, 0.99)),
        *(percentile(label_counts["first_ms", "attempts"], EDGES_MS, share) for share in (0.5, 0.9, 0.99)),
        *(percentile(label_counts["overhead_us", "requests"], EDGES_US, share) for share in (0.5, 0.99)),
    )


# Targets that a decision left out, or that were planned but never asked.

_LOOKED_AT = 2_000
_LEFT_OUT = {"circuit_open": "circuit", "engine_down": "circuit", "saturated": "queue", "over_cost": "budget"}
"""Reasons of decisions to leave out a target that the policy allows."""
_SHORT = (ErrorKind.BUDGET, "budget_exceeded")


def _skipped(source: LedgerView) -> tuple[Report, ...]:
    counts, (since_ms, until_ms) = Counter[tuple[str, str]](), source.request.bounds
    for record in rows.newest(source.connection, _LOOKED_AT):
        if since_ms <= record.started_ms < until_ms and record.decision is not None:
            counts.update(dict.fromkeys(_passed_by(record, msgspec.json.decode(record.decision["document"])), 1))
    holds = [where.holds for where in source.request.where]
    ranked = [(*names, count) for names, count in sorted(counts.items()) if all(hold(names[0]) for hold in holds)]
    return (made("reliability/skipped", ranked),) if ranked else ()


def _passed_by(record: RequestRecord, document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields (target, reason) for targets that were not attempted, from the document of the decision."""
    reasons = [(row["target"], _LEFT_OUT.get(row["reason"])) for row in document.get("dropped", ())]
    yield from ((target, why) for target, why in reasons if why)
    spilled = [row for row in document.get("queued", ()) if row.get("spilled")]
    yield from ((row["target"], "health" if row.get("degraded") else "queue") for row in spilled)
    planned = [row["target"] for row in document.get("considered", ())]
    attempted = {attempt["target"] for attempt in record.attempts}
    served, limits = record.request["target"], document.get("stakes", {})
    why = "budget" if limits.get("deadline_ms") is None else "deadline"
    if record.request["status"] == 200 and served in planned:
        yield from ((target, why) for target in planned[: planned.index(served)] if target not in attempted)
    elif record.request["error"] in _SHORT:
        yield from ((target, "budget") for target in planned if target not in attempted)
