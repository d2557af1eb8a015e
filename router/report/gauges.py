"""Budgets at a glance."""

from decimal import Decimal

from msgspec import Struct

from router.report.charts.units import dollars
from router.report.moment import iso
from router.report.report import Report, Value
from router.types.money import nano_from_usd


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
    names = [column.name for column in budgets.columns]
    found = [_gauge(dict(zip(names, row, strict=True))) for row in budgets.rows]
    return tuple(sorted(found, key=lambda one: -(one.used_percent + one.reserved_percent)))


def _gauge(row: dict[str, Value]) -> Gauge:
    limit, used, held, left = (_count(row[name]) for name in ("limit", "spent", "held", "remaining"))
    used_percent = min(100.0, 100 * used / limit)
    ends_at = row["resets_at"] or row["expires_at"]
    return Gauge(
        id=str(row["id"]),
        whose=_whose(row),
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


def _whose(row: dict[str, Value]) -> str:
    value = row["value"]
    return f"{row['scope']} {value}" if value else f"binds {row['binds']}"


def _count(amount: Value) -> int:
    """nano-USD, or tokens."""
    return amount if isinstance(amount, int) else _nano(amount)


def _text(amount: Value) -> str:
    return f"{amount:,} tokens" if isinstance(amount, int) else dollars(_nano(amount))


def _nano(value: object) -> int:
    return nano_from_usd(value) if isinstance(value, Decimal) else 0
