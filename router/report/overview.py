"""The overview of the dashboard."""

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC
from decimal import Decimal
from typing import Any, NamedTuple

from msgspec import Struct

from router.ledger.facts import attempts
from router.ledger.facts.query import Label, Sums
from router.ledger.rows import Connection
from router.report import savings
from router.report.charts import OTHERS, dollars
from router.report.incidents import incidents
from router.report.judged import CellGroup, cells, pooled, together
from router.report.query import Asked, Source, summed
from router.report.render import NO_LABEL
from router.report.report import Kind, Mark, Plot, Report, Shape, Value, bars, day, iso
from router.types.price import nano_from_usd
from router.types.target import Target

# Budgets at a glance.


class Gauge(Struct, frozen=True):
    """Shares in percent of the limit, together at most 100."""

    id: str
    whose: str
    """Which of the budget's pots it is; empty where it has one."""
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


def gauges(budgets: Report) -> tuple[Gauge, ...]:
    """Of the report of that name; the fullest first."""
    return tuple(sorted(map(_gauge, _named(budgets)), key=lambda gauge: -(gauge.used_percent + gauge.reserved_percent)))


def _gauge(row: dict[str, Value]) -> Gauge:
    limit, used, held, left = (_count(row[name]) for name in ("limit", "spent", "held", "remaining"))
    used_percent = min(100.0, 100 * used / limit)
    ends_at = row["resets_at"] or row["expires_at"]
    return Gauge(
        id=str(row["id"]),
        whose=f"{row['scope']} {row['value']}" if row["value"] else f"binds {row['binds']}",
        window=str(row["window"]),
        spent=_text(row["spent"]),
        held=_text(row["held"]),
        limit=_text(row["limit"]),
        remaining=_text(row["remaining"]),
        used_percent=round(used_percent, 2),
        reserved_percent=round(min(100 - used_percent, 100 * held / limit), 2),
        held_any=held > 0,
        resets_at=iso(ends_at) if isinstance(ends_at, int) else "never",
        spent_up=left <= 0,
    )


def _count(amount: Value) -> int:
    """nano-USD, or tokens."""
    return amount if isinstance(amount, int) else nano_from_usd(amount) if isinstance(amount, Decimal) else 0


def _text(amount: Value) -> str:
    return f"{amount:,} tokens" if isinstance(amount, int) else dollars(_count(amount))


# The few numbers that the first page shows: one look at the ledger's sums by hour, and at the budgets.

WEEK, MONTH = 7, 30
"""Days, today included; they begin at midnight UTC."""
MOST_TARGETS = 6
"""Bars for targets; the report of spend has them all."""
_DAY_MS = 24 * attempts.HOUR_MS


class Period(NamedTuple):
    """Sums of the ledger, named as there; in nano-USD. Reasoning is a share of `split_output`: the output of those
    who tell it from the rest."""

    requests: int = 0
    errors: int = 0
    cost: int = 0
    recovered: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    output_reasoning: int = 0
    split_output: int = 0
    thinking_cost: int = 0

    @property
    def charged(self) -> int:
        """With what was charged for requests that were lost."""
        return self.cost + self.recovered

    @property
    def spent(self) -> str:
        return dollars(self.charged)

    @property
    def thinking(self) -> float | None:
        """Share of the output; None where no provider says."""
        return self.output_reasoning / self.split_output if self.split_output else None


class Overview(Struct, frozen=True, kw_only=True):
    today: Period
    week: Period
    month: Period
    by_day: Plot
    """Of the month, by target."""
    by_target: Plot
    """Of the week."""
    gauges: tuple[Gauge, ...] | None
    """None: unknown, as the store of the budgets does not answer."""
    answers: CellGroup
    """What is known of the week's answers: how many are right, and what a right one costs."""
    saved: Mapping[str, Any] | None
    """In the week, against the target that is right most often: as a row of savings. None: nothing to compare with."""
    incidents: Report
    """Of the week."""


def overview(connection: Connection, targets: Mapping[str, Target], pots: Report | None, now_ms: int) -> Overview:
    """`connection` is inside a read transaction; `pots`: None where their store does not answer."""
    midnight = now_ms - now_ms % _DAY_MS
    month, week = (midnight - (days - 1) * _DAY_MS for days in (MONTH, WEEK))
    long, short = (
        Source(connection=connection, asked=Asked(since_ms=since, zone=UTC, now_ms=now_ms), targets=targets)
        for since in (month, week)
    )
    by_hour = long.sums(attempts.TABLE, ("hour", "target"), Period._fields)
    return Overview(
        today=_since(by_hour, midnight),
        week=_since(by_hour, week),
        month=_since(by_hour, month),
        by_day=_by_day(by_hour, month),
        by_target=_by_target(by_hour, week),
        gauges=None if pots is None else gauges(pots),
        answers=together(cells(short), lambda labels: ()).get((), pooled(())),
        saved=next(_named(savings.savings(short)), None),
        incidents=incidents(short),
    )


def _named(report: Report) -> Iterator[dict[str, Any]]:
    names = [column.name for column in report.columns]
    return (dict(zip(names, row, strict=True)) for row in report.rows)


def _since(by_hour: Sums, since_ms: int) -> Period:
    return summed(Period, (sums for (hour, _), sums in by_hour.items() if _at(hour) >= since_ms))


def _at(hour: Label) -> int:
    return int(hour or 0) * attempts.HOUR_MS


def _by_day(by_hour: Sums, since_ms: int) -> Plot:
    """Also days on which nothing happened."""
    series = {target for target, _ in _ranked(by_hour)[:MOST_TARGETS]}
    costs = Counter({(day(since_ms + number * _DAY_MS, UTC), ""): 0 for number in range(MONTH)})
    for (hour, target), sums in by_hour.items():
        costs[day(_at(hour), UTC), _name(target) if target in series else OTHERS] += Period(*sums).charged
    marks = (Mark(label=date, series=name, value=cost) for (date, name), cost in costs.items())
    return Plot(title="Spend by day and target", shape=Shape.DAYS, unit=Kind.USD, marks=tuple(marks))


def _by_target(by_hour: Sums, since_ms: int) -> Plot:
    recent = _ranked({labels: sums for labels, sums in by_hour.items() if _at(labels[0]) >= since_ms})
    marks = bars([(_name(target), cost) for target, cost in recent], MOST_TARGETS)
    return Plot(title="Spend by target", shape=Shape.BARS, unit=Kind.USD, marks=tuple(marks))


def _ranked(by_hour: Sums) -> list[tuple[Label, int]]:
    """nano-USD by target, the dearest first."""
    costs: Counter[Label] = Counter()
    for (_, target), sums in by_hour.items():
        costs[target] += Period(*sums).charged
    return sorted(costs.items(), key=lambda item: (-item[1], str(item[0])))


def _name(target: Label) -> str:
    return str(target or NO_LABEL)
