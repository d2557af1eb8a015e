"""How much of each budget is left in its current window."""

from collections.abc import Sequence

from router.budget.budget import Budget, window_bounds
from router.ledger.connection import Connection
from router.report.report import Column, Kind, Report, Row
from router.types.money import usd_from_nano

_WINDOW = "SELECT spent, held FROM budget_windows WHERE budget = ? AND window_start_ms = ?"
_COLUMNS = (
    Column("id"),
    Column("binds"),
    Column("window"),
    Column("limit_usd", Kind.USD),
    Column("spent_usd", Kind.USD),
    Column("held_usd", Kind.USD),
    Column("remaining_usd", Kind.USD),
    Column("resets_at", Kind.TIME),
)
_NOTE = "Held is kept back for requests in progress. Windows are calendar windows in UTC; a lifetime never resets."


def budgets(connection: Connection, declared: Sequence[Budget], now_ms: int) -> Report:
    """One row a budget, in the order of the policy. What remains may be below 0: a cost above its hold is booked."""
    rows = tuple(_row(connection, budget, now_ms) for budget in declared)
    return Report(name="budgets", title="Budgets", columns=_COLUMNS, rows=rows, note=_NOTE)


def _row(connection: Connection, budget: Budget, now_ms: int) -> Row:
    start, resets_at = window_bounds(budget.window_name, now_ms)
    spent, held = connection.execute(_WINDOW, (budget.id, start)).fetchone() or (0, 0)
    money = (budget.limit, spent, held, budget.limit - spent - held)
    return (budget.id, _binds(budget), budget.window_name, *map(usd_from_nano, money), resets_at)


def _binds(budget: Budget) -> str:
    filters = (("route", budget.routes), ("key", budget.keys), ("tag", budget.tags))
    return "; ".join(f"{name} {' or '.join(values)}" for name, values in filters if values) or "everything"
