"""What was spent, on what: every nano-USD of the ledger in exactly one row, except where a row is a tag."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct

from router.ledger.attempt_row import INPUT_TOKENS, OUTPUT_TOKENS
from router.ledger.connection import Connection
from router.report.report import Column, Kind, Report, Row
from router.report.source import Definition, Source
from router.types.money import usd_from_nano

# Both give one line a unit of work, with the same columns. `charged` is what a request cost; a request that was
# recovered after a crash was charged at its hold, whatever its attempts cost, so it is counted apart and once.
_BY_REQUEST = """
    SELECT id, started_ms, route, key_id, tags, data_class, task, NULL AS target, NULL AS model,
        (SELECT COUNT(*) FROM attempts WHERE request_id = requests.id) AS attempts,
        CASE WHEN error IS NULL THEN 0 ELSE 1 END AS failed,
        input_tokens, output_tokens, reasoning_tokens,
        (SELECT COUNT(*) FROM attempts WHERE request_id = requests.id AND output_visible > 0
            AND output_reasoning IS NULL) AS unsplit,
        (SELECT COUNT(*) FROM attempts WHERE request_id = requests.id AND cost_source = 'unpriced') AS unpriced,
        CASE WHEN state IN ('held', 'recovered') THEN 0 ELSE cost END AS charged,
        CASE WHEN state = 'recovered' THEN cost ELSE 0 END AS recovered,
        CASE WHEN state = 'held' THEN held ELSE 0 END AS reserved
    FROM requests WHERE started_ms >= :since AND started_ms < :until
"""
_BY_ATTEMPT = f"""
    SELECT id, requests.started_ms, route, key_id, tags, data_class, task, a.target, a.model,
        CASE WHEN number IS NULL THEN 0 ELSE 1 END AS attempts,
        CASE WHEN outcome = 'ok' OR number IS NULL AND error IS NULL THEN 0 ELSE 1 END AS failed,
        CASE WHEN number IS NULL THEN input_tokens
            ELSE {INPUT_TOKENS} END AS input_tokens,
        CASE WHEN number IS NULL THEN output_tokens
            ELSE {OUTPUT_TOKENS} END AS output_tokens,
        CASE WHEN number IS NULL THEN reasoning_tokens ELSE output_reasoning END AS reasoning_tokens,
        CASE WHEN output_visible > 0 AND output_reasoning IS NULL THEN 1 ELSE 0 END AS unsplit,
        CASE WHEN cost_source = 'unpriced' THEN 1 ELSE 0 END AS unpriced,
        CASE WHEN state IN ('held', 'recovered') THEN 0 ELSE COALESCE(a.cost, requests.cost) END AS charged,
        CASE WHEN state = 'recovered' AND COALESCE(number, 1) = 1 THEN requests.cost ELSE 0 END AS recovered,
        CASE WHEN state = 'held' AND COALESCE(number, 1) = 1 THEN held ELSE 0 END AS reserved
    FROM requests LEFT JOIN attempts AS a ON request_id = id
    WHERE requests.started_ms >= :since AND requests.started_ms < :until
"""  # noqa: S608 - names of columns
_SUMS = """COUNT(DISTINCT id), COALESCE(SUM(attempts), 0), COALESCE(SUM(failed), 0), SUM(input_tokens),
    SUM(output_tokens), SUM(reasoning_tokens), COALESCE(SUM(unsplit), 0), COALESCE(SUM(unpriced), 0),
    COALESCE(SUM(charged), 0), COALESCE(SUM(recovered), 0), COALESCE(SUM(reserved), 0)"""
_EVERYTHING = "unit"
_DAY_S = 86_400
_WITH_KEY = "(SELECT unit.*, COALESCE(keys.name, key_id) AS key FROM unit LEFT JOIN keys ON keys.id = key_id) AS named"

_COLUMNS = (
    Column("requests", Kind.COUNT),
    Column("attempts", Kind.COUNT),
    Column("errors", Kind.COUNT),
    Column("input_tokens", Kind.COUNT),
    Column("output_tokens", Kind.COUNT),
    Column("reasoning_tokens", Kind.COUNT),
    Column("reasoning_unknown", Kind.COUNT, rare=True),
    Column("unpriced", Kind.COUNT, rare=True),
    Column("cost_usd", Kind.USD),
    Column("recovered_usd", Kind.USD, rare=True),
    Column("held_usd", Kind.USD, rare=True),
)
_MONEY_FROM = next(number for number, column in enumerate(_COLUMNS) if column.kind is Kind.USD)
"""Place of the first amount, the cost, among the sums."""

_PER_REQUEST = "Money and errors are counted by request."
_PER_ATTEMPT = (
    "Money and errors are counted by attempt, each at the target that was asked;"
    " a request that asked several counts in each of their rows, and once in the total."
)
_PER_TAG = _PER_REQUEST + " A request with several tags counts in each of their rows, and once in the total."
_LEGEND = {
    "reasoning_unknown": "Reasoning unknown: attempts whose provider does not tell reasoning from other output.",
    "unpriced": "Unpriced: attempts at a target without a price, charged at the policy's worst case.",
    "recovered_usd": "Recovered: charged at the hold because the gateway died meanwhile.",
    "held_usd": "Held: kept back, not spent yet.",
}
"""What a rare column means; said when there is something in it."""


def _as_it_is(label: Any) -> list[Any]:
    return [label]


def _tags(label: Any) -> list[Any]:
    return sorted(set(label.split(",")))


def _day(label: Any) -> list[Any]:
    return [f"{datetime.fromtimestamp(label * _DAY_S, UTC):%Y-%m-%d}"]


class _Grouping(Struct, frozen=True):
    """`label` is an expression over `source`, one line a unit; `labels` are the rows that a value of it counts in."""

    unit: str
    label: str
    source: str = _EVERYTHING
    note: str = _PER_REQUEST
    labels: Callable[[Any], list[Any]] = _as_it_is


_BY: Mapping[str, _Grouping] = {
    "model": _Grouping(_BY_ATTEMPT, "model", note=_PER_ATTEMPT),
    "target": _Grouping(_BY_ATTEMPT, "target", note=_PER_ATTEMPT),
    "key": _Grouping(_BY_REQUEST, "key", _WITH_KEY),
    "tag": _Grouping(_BY_REQUEST, "tags", note=_PER_TAG, labels=_tags),
    "day": _Grouping(_BY_REQUEST, "started_ms / 86400000", labels=_day),
    "route": _Grouping(_BY_REQUEST, "route"),
    "class": _Grouping(_BY_REQUEST, "data_class"),
    "task": _Grouping(_BY_REQUEST, "task"),
}
BY = tuple(_BY)
"""What spend can be grouped by."""
_ALWAYS = (-(2**63), 2**63 - 1)


def spend(connection: Connection, by: str, since_ms: int | None, until_ms: int | None) -> Report:
    """Requests that began in the window, in groups. Raises ValueError for an unknown `by`.

    A row whose label is None holds the requests that have none: no tag, no key, or no target asked (yet).
    """
    grouping = _BY.get(by)
    if grouping is None:
        raise ValueError(f"spend can't be grouped by '{by}'. Known: {', '.join(BY)}.")
    earliest, latest = _ALWAYS
    window = {
        "since": earliest if since_ms is None else since_ms,
        "until": latest if until_ms is None else until_ms,
    }
    *lines, total = connection.execute(_query(grouping), window).fetchall()
    found = _merged(lines, grouping)
    found.sort(key=_by_label if by == "day" else _by_cost)
    return Report(
        name="spend",
        title=f"Spend by {by}",
        columns=(Column(by, Kind.LABEL), *_COLUMNS),
        rows=tuple(map(_row, found)),
        totals=_row((1, "total", *total[2:])),
        note=" ".join([grouping.note, *_legend(total)]),
        since_ms=since_ms,
        until_ms=until_ms,
    )


def _query(grouping: _Grouping) -> str:
    """Groups and total in one statement, so that both see the same ledger; the total comes last."""
    return (
        f"WITH unit AS ({grouping.unit})"  # noqa: S608 - constants of this file
        f" SELECT 0 AS is_total, {grouping.label} AS label, {_SUMS} FROM {grouping.source} GROUP BY {grouping.label}"
        f" UNION ALL SELECT 1, NULL, {_SUMS} FROM unit ORDER BY is_total"
    )


def _merged(lines: list[tuple[Any, ...]], grouping: _Grouping) -> list[tuple[Any, ...]]:
    """One line a label; no label and an empty one are the same."""
    found: dict[Any, tuple[Any, ...]] = {}
    for is_total, value, *sums in lines:
        for label in grouping.labels(value):
            before = found.get(label or None)
            added = map(_plus, before[2:], sums) if before else sums
            found[label or None] = (is_total, label or None, *added)
    return list(found.values())


def _plus(one: int | None, other: int | None) -> int | None:
    """Unknown counts for nothing beside what is known."""
    return one if other is None else other if one is None else one + other


def _legend(total: tuple[Any, ...]) -> list[str]:
    _, _, *sums = total
    return [_LEGEND[column.name] for column, amount in zip(_COLUMNS, sums, strict=True) if column.rare and amount]


def _row(line: tuple[Any, ...]) -> Row:
    _, label, *sums = line
    return (label, *sums[:_MONEY_FROM], *map(usd_from_nano, sums[_MONEY_FROM:]))


def _by_label(line: tuple[Any, ...]) -> tuple[Any, ...]:
    return line[1] is None, line[1]


def _by_cost(line: tuple[Any, ...]) -> tuple[Any, ...]:
    """Dearest first; what has no label last."""
    _, label, *sums = line
    return label is None, -sums[_MONEY_FROM], label


def _made(source: Source) -> Report:
    asked = source.asked
    return spend(source.connection, (asked.by or ("target",))[0], asked.since_ms, asked.until_ms)


REPORT = Definition(name="spend", summary="What was spent, on what.", make=_made, by=BY)
