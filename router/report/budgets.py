"""What is left in each pot of each budget, as a report."""

from collections.abc import Sequence
from decimal import Decimal

from router.budget.budget import Budget
from router.report.report import Column, Kind, Report, Row
from router.report.standing import Standing, every, measured
from router.types.account import Unit
from router.types.money import usd_from_nano
from router.types.store import BudgetStore

_COLUMNS = (
    Column("id"),
    Column("parent", rare=True),
    Column("scope"),
    Column("value"),
    Column("binds"),
    Column("window"),
    Column("unit"),
    Column("limit", Kind.AMOUNT),
    Column("spent", Kind.AMOUNT),
    Column("held", Kind.AMOUNT),
    Column("remaining", Kind.AMOUNT),
    Column("soft", rare=True),
    Column("resets_at", Kind.TIME),
    Column("expires_at", Kind.TIME, rare=True),
)
_NOTE = (
    "Held is kept back for requests in progress and for budgets that were split off. A budget whose pots are all full"
    " stands here once."
)
_FILTERS = ("organisations", "teams", "keys", "routes", "tags", "targets")


async def budgets(store: BudgetStore, declared: Sequence[Budget], now_ms: int) -> Report:
    """One row a pot, in the order of the policy. What remains may be below 0: a cost above its hold is booked.

    Raises `StoreUnavailable`.
    """
    found = await measured(store, await every(store, declared, now_ms))
    return Report(name="budgets", title="Budgets", columns=_COLUMNS, rows=tuple(map(_row, found)), note=_NOTE)


def _row(standing: Standing) -> Row:
    pot, account = standing.pot, standing.pot.account
    amounts = (account.limit, standing.balance.spent, standing.balance.held, standing.remaining)
    return (
        account.id,
        None if pot.child is None else pot.child.parent,
        account.scope,
        pot.value,
        _binds(pot.budget),
        pot.window,
        account.unit.value,
        *(_amount(account.unit, amount) for amount in amounts),
        None if account.hard else "soft",
        account.resets_at_ms if pot.child is None else None,
        account.expires_at_ms,
    )


def _amount(unit: Unit, amount: int) -> Decimal | int:
    return usd_from_nano(amount) if unit is Unit.USD else amount


def _binds(budget: Budget | None) -> str:
    if budget is None:
        return "who names it"
    filters = ((name.removesuffix("s"), getattr(budget, name)) for name in _FILTERS)
    return "; ".join(f"{name} {' or '.join(values)}" for name, values in filters if values) or "everything"
