"""Where requests went, per class, and whether any of it broke the policy that was in force then."""

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from router.ledger.attempt_row import INPUT_TOKENS, OUTPUT_TOKENS
from router.ledger.connection import Connection
from router.ledger.policies import documents
from router.report.proof import Judge, Sent
from router.report.report import Column, Kind, Report, Row

_SENT = ", ".join(
    (
        *("r.policy", "r.data_class", "r.classes AS held", "a.classes", "a.target"),
        *("a.redacted", "a.region", "a.region_source"),
    )
)
_FROM = """
    FROM requests AS r JOIN attempts AS a ON a.request_id = r.id
    WHERE r.started_ms >= :since AND r.started_ms < :until
"""
_LEFT = "CASE WHEN a.outcome = 'circuit_open' THEN 0 ELSE 1 END"
"""Nothing is sent to a target that rests after failures."""
_GROUPS = f"""
    SELECT {_SENT}, {_LEFT} AS went, COUNT(DISTINCT r.id), COUNT(*), MAX(a.started_ms),
        SUM({INPUT_TOKENS}), SUM({OUTPUT_TOKENS}) {_FROM}
    GROUP BY r.policy, r.data_class, r.classes, a.classes, a.target, a.redacted, a.region, a.region_source, {_LEFT}
"""
_EACH = f"""
    SELECT r.id, a.number, a.started_ms {_FROM} AND r.policy = :policy AND r.data_class = :data_class
        AND r.classes = :held AND a.classes = :classes AND a.target = :target AND a.redacted = :redacted
        AND a.region = :region AND a.region_source = :region_source AND {_LEFT} = :went
    ORDER BY r.id, a.number
"""
_REQUESTS = f"SELECT COUNT(DISTINCT r.id) {_FROM} AND {_LEFT} = 1"
_REFUSED = """
    SELECT data_class, COUNT(*) FROM requests
    WHERE error = 'no_eligible_target' AND started_ms >= :since AND started_ms < :until
    GROUP BY data_class ORDER BY data_class
"""
_UNWRITTEN = """
    SELECT COUNT(*) FROM requests WHERE state IN ('held', 'recovered') AND started_ms >= :since AND started_ms < :until
        AND NOT EXISTS (SELECT 1 FROM attempts WHERE request_id = id)
"""
_COLUMNS = (
    Column("class", Kind.LABEL),
    Column("sent_as"),
    Column("target"),
    Column("entity"),
    Column("jurisdiction"),
    Column("region"),
    Column("region_is"),
    Column("redacted"),
    Column("requests", Kind.COUNT),
    Column("attempts", Kind.COUNT),
    Column("refused", Kind.COUNT, rare=True),
    Column("input_tokens", Kind.COUNT),
    Column("output_tokens", Kind.COUNT),
    Column("unchecked", Kind.COUNT, rare=True),
    Column("violations", Kind.COUNT, rare=True),
)
_COUNTS_FROM = next(number for number, column in enumerate(_COLUMNS) if column.kind is Kind.COUNT)
_VIOLATION_COLUMNS = (
    Column("request", Kind.REQUEST),
    Column("attempt", Kind.COUNT),
    Column("time", Kind.TIME),
    Column("class", Kind.LABEL),
    Column("sent_as"),
    Column("target"),
    Column("rule"),
)
MOST_VIOLATIONS = 1_000
"""Listed; all are counted."""
_ALWAYS = (-(2**63), 2**63 - 1)
_Window = dict[str, int]


class _Group(NamedTuple):
    """Attempts that are alike; `last_ms` is when the last of them began."""

    sent: Sent
    went: int
    requests: int
    attempts: int
    last_ms: int
    input_tokens: int | None
    output_tokens: int | None


class _Verdict(NamedTuple):
    unknown: str
    """Why they can't be checked."""
    violations: list[Row]


def egress(connection: Connection, since_ms: int | None, until_ms: int | None) -> Report:
    """Of requests that began in the window. Reads the ledger as of one moment if it is in a transaction."""
    window = _window(since_ms, until_ms)
    judge = Judge(documents(connection))
    groups = [_group(line) for line in connection.execute(_GROUPS, window).fetchall()]
    judged = [(group, _verdict(connection, window, judge, group)) for group in groups]
    refused = connection.execute(_REFUSED, window).fetchall()
    rows = [*_rows(judge, judged), *(_refusal(name, count) for name, count in refused)]
    (requests,) = connection.execute(_REQUESTS, window).fetchone()
    violations = [row for _, verdict in judged for row in verdict.violations]
    return Report(
        name="egress",
        title="Egress",
        columns=_COLUMNS,
        rows=tuple(sorted(rows, key=_by_place)),
        totals=_totals(rows, requests),
        note=" ".join(_notes(connection, window, judged, len(violations))),
        since_ms=since_ms,
        until_ms=until_ms,
        sound=not violations,
        below=_listed(violations),
    )


def _window(since_ms: int | None, until_ms: int | None) -> _Window:
    earliest, latest = _ALWAYS
    return {
        "since": earliest if since_ms is None else since_ms,
        "until": latest if until_ms is None else until_ms,
    }


def _group(line: Any) -> _Group:
    fields = len(Sent._fields)
    return _Group(Sent(*line[:fields]), *line[fields:])


def _verdict(connection: Connection, window: _Window, judge: Judge, group: _Group) -> _Verdict:
    unknown = judge.unknown(group.sent)
    if unknown or not judge.violation(group.sent, group.last_ms):
        return _Verdict(unknown, [])
    sent = group.sent
    found = connection.execute(_EACH, {**window, **sent._asdict(), "went": group.went}).fetchall()
    judged = ((line, judge.violation(sent, line[2])) for line in found)
    return _Verdict("", [(*line, sent.data_class, sent.classes, sent.target, rule) for line, rule in judged if rule])


def _rows(judge: Judge, judged: list[tuple[_Group, _Verdict]]) -> Iterator[Row]:
    """One row a place: groups that differ in nothing but their policy are one."""
    found: dict[Row, list[int | None]] = {}
    for group, verdict in judged:
        if group.went or verdict.violations:
            label, counts = _label(judge, group.sent), _counts(group, verdict)
            before = found.get(label)
            found[label] = counts if before is None else [_plus(*pair) for pair in zip(before, counts, strict=True)]
    for label, counts in found.items():
        yield (*label, *counts)


def _label(judge: Judge, sent: Sent) -> Row:
    """Entity and jurisdiction as the policy of that time had them; None where that is not known."""
    past = judge.past(sent.policy)
    target = None if past is None else past.targets.get(sent.target)
    entity = None if target is None else target.provider.entity or target.provider.id
    law = None if target is None else target.provider.jurisdiction or None
    said = "local" if target is not None and target.local else sent.region_source or None
    return (
        *(sent.data_class, sent.classes or None, sent.target, entity, law, sent.region or None, said),
        "yes" if sent.redacted else "no",
    )


def _counts(group: _Group, verdict: _Verdict) -> list[int | None]:
    went = group.went
    unchecked = group.attempts if verdict.unknown else 0
    tokens = (group.input_tokens, group.output_tokens)
    return [went and group.requests, went and group.attempts, 0, *tokens, unchecked, len(verdict.violations)]


def _refusal(data_class: str, count: int) -> Row:
    return (data_class, *(None for _ in _COLUMNS[1:_COUNTS_FROM]), count, 0, count, None, None, 0, 0)


def _totals(rows: list[Row], requests: int) -> Row:
    """A request that went to several places counts once."""
    columns = list(zip(*rows, strict=True))[_COUNTS_FROM:] if rows else [()] * (len(_COLUMNS) - _COUNTS_FROM)
    _, attempts, refused, *rest = [sum(value for value in column if isinstance(value, int)) for column in columns]
    return ("total", *(None for _ in _COLUMNS[1:_COUNTS_FROM]), requests + refused, attempts, refused, *rest)


def _notes(
    connection: Connection, window: _Window, judged: list[tuple[_Group, _Verdict]], violations: int
) -> Iterator[str]:
    checked = sum(group.attempts for group, verdict in judged if not verdict.unknown)
    yield f"{_number(checked, 'attempt')} checked again, each under the policy that was in force for it:"
    yield f"{_number(violations, 'violation')}."
    unknown: Counter[str] = Counter()
    for group, verdict in judged:
        unknown[verdict.unknown] += group.attempts if verdict.unknown else 0
    for why, count in unknown.items():
        if count:
            yield f"{count:,} can't be checked: {why}."
    (unwritten,) = connection.execute(_UNWRITTEN, window).fetchone()
    if unwritten:
        yield f"{_number(unwritten, 'request')} in progress, or lost with the gateway: where to is not written."
    misplaced = sum(group.attempts for group, _ in judged if group.sent.region_source == "mismatch")
    if misplaced:
        yield f"{_number(misplaced, 'attempt')} came from another region than the target states."
    yield "A request that went to several places counts in each of their rows, and once in the total."


def _listed(violations: list[Row]) -> tuple[Report, ...]:
    if not violations:
        return ()
    shown = tuple(violations[:MOST_VIOLATIONS])
    note = f"The first {MOST_VIOLATIONS:,} of {len(violations):,}." if len(violations) > len(shown) else ""
    return (Report(name="violations", title="Violations", columns=_VIOLATION_COLUMNS, rows=shown, note=note),)


def _by_place(row: Row) -> tuple[str, ...]:
    return tuple(str(value or "") for value in row[:_COUNTS_FROM])


def _plus(one: int | None, other: int | None) -> int | None:
    """Unknown counts for nothing beside what is known."""
    return one if other is None else other if one is None else one + other


def _number(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
