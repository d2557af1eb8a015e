"""The few numbers that the first page shows, from the same reports that the command line prints."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

from msgspec import Struct

from router.ledger.connection import Connection
from router.report.chart import Chart, Point, brief, columns, lines
from router.report.egress import egress
from router.report.moment import iso
from router.report.render import NO_LABEL
from router.report.report import Report, Value
from router.report.source import Asked, Source
from router.report.spend import spend
from router.types.money import nano_from_usd

DAYS = 7
"""Days of the overview: today and the six before, in UTC."""
CHART_DAYS = 14
MOST_TARGETS = 6
"""Bars for targets; the table below has them all."""
_EGRESS = ("class", "sent_as", "target", "jurisdiction", "region", "redacted", "attempts", "refused", "violations")
_SPEND = (
    *("requests", "attempts", "failed_attempts", "input_tokens", "output_tokens", "reasoning_tokens"),
    *("reasoning_unknown", "unpriced", "cost_usd", "recovered_usd", "held_usd"),
)
_DAY_MS = 86_400_000
_THINKING = """
    SELECT SUM(output_reasoning), SUM(output_visible + output_reasoning + output_audio)
    FROM attempts JOIN requests ON requests.id = request_id
    WHERE output_reasoning IS NOT NULL AND requests.started_ms >= ?
"""


class Gauge(Struct, frozen=True):
    """A budget at a glance; shares in percent of the limit, together at most 100."""

    id: str
    binds: str
    window: str
    spent: str
    held: str
    limit: str
    remaining: str
    used_percent: float
    reserved_percent: float
    held_any: bool
    resets_at: str
    spent_up: bool
    """Nothing remains."""


class Overview(Struct, frozen=True, kw_only=True):
    today: Report
    """By target, like `week`."""
    week: Report
    thinking_percent: float | None
    """Reasoning's share of the output, over the attempts that tell them apart; None when none does."""
    gauges: tuple[Gauge, ...] | None
    """None: unknown, as the store of the budgets does not answer."""
    by_target: Chart
    by_day: Chart
    egress: Report
    """Where each class went."""


def overview(connection: Connection, budgets: Report | None, now_ms: int) -> Overview:
    """`budgets`: None where their store does not answer."""
    midnight = now_ms - now_ms % _DAY_MS
    since = midnight - (DAYS - 1) * _DAY_MS
    week = _spend(connection, "target", since, now_ms)
    return Overview(
        today=_spend(connection, "target", midnight, now_ms),
        week=week,
        thinking_percent=_thinking(connection, since),
        gauges=None if budgets is None else _gauges(budgets),
        by_target=lines(_points(week)[:MOST_TARGETS]),
        by_day=columns(_days(connection, midnight)),
        egress=egress(connection, since, None).narrowed(*_EGRESS),
    )


def _spend(connection: Connection, by: str, since_ms: int, now_ms: int) -> Report:
    asked = Asked(by=(by,), since_ms=since_ms, zone=UTC, now_ms=now_ms)
    return spend(Source(connection=connection, asked=asked, targets={})).narrowed(by, *_SPEND)


def spent(report: Report) -> str:
    """All that was charged, in short: with what was recovered after a crash."""
    charged = (report.total("cost_usd"), report.total("recovered_usd"))
    return brief(sum(_nano(value) for value in charged))


def _thinking(connection: Connection, since_ms: int) -> float | None:
    reasoning, output = connection.execute(_THINKING, (since_ms,)).fetchone()
    return 100 * reasoning / output if output else None


def _points(report: Report) -> list[Point]:
    labels = (row[0] for row in report.rows)
    charged = zip(labels, report.column("cost_usd"), report.column("recovered_usd"), strict=True)
    return [(str(label or NO_LABEL), _nano(cost) + _nano(recovered)) for label, cost, recovered in charged]


def _days(connection: Connection, midnight: int) -> list[Point]:
    """Every day of the chart, also those on which nothing happened."""
    since = midnight - (CHART_DAYS - 1) * _DAY_MS
    known = dict(_points(_spend(connection, "day", since, midnight)))
    first = datetime.fromtimestamp(since / 1000, UTC)
    days = [f"{first + timedelta(days=number):%Y-%m-%d}" for number in range(CHART_DAYS)]
    return [(day, known.get(day, 0)) for day in days]


def _gauges(report: Report) -> tuple[Gauge, ...]:
    names = [column.name for column in report.columns]
    return tuple(_gauge(dict(zip(names, row, strict=True))) for row in report.rows)


def _gauge(row: dict[str, Value]) -> Gauge:
    limit, used, held, left = (_count(row[name]) for name in ("limit", "spent", "held", "remaining"))
    used_percent = min(100.0, 100 * used / limit)
    ends_at = row["resets_at"] or row["expires_at"]
    return Gauge(
        id=str(row["id"]),
        binds=str(row["binds"]),
        window=str(row["window"]),
        spent=_text(row["spent"]),
        held=_text(row["held"]),
        limit=_text(row["limit"]),
        remaining=_text(row["remaining"]),
        used_percent=used_percent,
        reserved_percent=min(100 - used_percent, 100 * held / limit),
        held_any=held > 0,
        resets_at=iso(ends_at) if isinstance(ends_at, int) else "never",
        spent_up=left <= 0,
    )


def _count(amount: Value) -> int:
    """nano-USD, or tokens."""
    return amount if isinstance(amount, int) else _nano(amount)


def _text(amount: Value) -> str:
    return f"{amount:,} tokens" if isinstance(amount, int) else brief(_nano(amount))


def _nano(value: object) -> int:
    return nano_from_usd(value) if isinstance(value, Decimal) else 0
