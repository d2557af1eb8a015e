"""What is left in each pot of each budget, how long that will last, and what was refused for the lack of it."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from zoneinfo import ZoneInfo

from router.budget.budget import Budget, Rolling
from router.report.forecast import Forecast, Profile
from router.report.refused import TABLES, since
from router.report.report import Column, Kind, Mark, Plot, Report, Row, Shape, Value
from router.report.source import Definition, Source
from router.report.spending import Hours, hourly
from router.report.standing import Pot, Standing, every, measured
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
    Column("policy_limit", Kind.AMOUNT, rare=True),
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
_AHEAD = (
    Column("forecast", Kind.AMOUNT, rare=True),
    Column("forecast_low", Kind.AMOUNT, rare=True),
    Column("forecast_high", Kind.AMOUNT, rare=True),
    Column("lasts_until", Kind.TIME, rare=True),
    Column("refused_since", Kind.TIME, rare=True),
)
_AHEAD_NOTE = (
    "Forecast: of what will have been spent when the window ends, if nothing were refused: what is spent, and for each"
    " hour to come the mean of alike hours of the last four weeks (of the same weekday after two weeks of history, of"
    " any day after two days), with the interval in which it ends four times of five. Lasts until: when the limit would"
    " be reached so, where that is before the window ends. Rolling windows, sessions and budgets that were split off"
    " have no forecast."
)
_UNANSWERED = "The store of the budgets does not answer: what is spent and left is not known."
LONGEST_MS = 366 * 86_400_000
"""How far ahead a limit that never resets is looked for."""
_MOST_BARS = 20
_FILTERS = ("organisations", "teams", "keys", "routes", "tags", "targets")


class Pots(Report, frozen=True, kw_only=True):
    """The standing of budgets as a report, with what its rows were made from."""

    standings: tuple[Standing, ...] = ()

    @property
    def pots(self) -> tuple[Pot, ...]:
        return tuple(standing.pot for standing in self.standings)


async def budgets(store: BudgetStore, declared: Sequence[Budget], now_ms: int) -> Pots:
    """One row a pot, in the order of the policy. What remains may be below 0: a cost above its hold is booked.

    Raises `StoreUnavailable`.
    """
    found = await measured(store, await every(store, declared, now_ms))
    rows = tuple(map(_row, found))
    return Pots(name="budgets", title="Budgets", columns=_COLUMNS, rows=rows, note=_NOTE, standings=tuple(found))


def _made(source: Source) -> Report:
    below = tuple(table(source) for table in TABLES)
    since_ms, until_ms = source.asked.since_ms, source.asked.until_ms
    pots = source.pots
    if not isinstance(pots, Pots):
        return Report(
            name="budgets", title="Budgets", columns=(*_COLUMNS, *_AHEAD), rows=(), note=_UNANSWERED, below=below
        )
    ahead = _Ahead(source)
    told = [ahead.of(standing) for standing in pots.standings]
    return Report(
        name="budgets",
        title="Budgets",
        columns=(*_COLUMNS, *_AHEAD),
        rows=tuple((*row, *more) for row, more in zip(pots.rows, told, strict=True)),
        note=f"{_NOTE} {_AHEAD_NOTE}",
        since_ms=since_ms,
        until_ms=until_ms,
        below=below,
        plots=_plots(pots.standings),
    )


REPORT = Definition(
    name="budgets",
    summary="Limit, spent, held, left and a forecast of each budget; refusals, over-reservation, loop trips.",
    make=_made,
    needs_pots=True,
)


class _Ahead:
    """The ledger is asked once a budget, not once a pot."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._spent: dict[str, Mapping[str, Hours]] = {}
        self._refused = since(source.connection)

    def of(self, standing: Standing) -> Row:
        """In the order of `_AHEAD`."""
        account = standing.pot.account
        refused = self._refused.get(account.id)
        now = refused if refused is not None and refused >= account.since_ms else None
        profile = self._profile(standing.pot)
        if profile is None:
            return (None, None, None, None, now)
        spent, ends = standing.balance.spent, account.resets_at_ms
        last = self._source.asked.now_ms + LONGEST_MS if ends is None else ends
        lasts = profile.reaches(account.limit - spent, last)
        found = None if ends is None else profile.until(ends)
        return (*_forecast(account.unit, spent, found), lasts, now)

    def _profile(self, pot: Pot) -> Profile | None:
        """None where nothing tells what is to come."""
        budget = pot.budget
        if budget is None or isinstance(budget.window, Rolling) or budget.scope in ("session", "request"):
            return None
        if budget.id not in self._spent:
            self._spent[budget.id] = hourly(self._source, budget)
        hours = self._spent[budget.id].get(pot.account.value)
        try:
            return None if hours is None else Profile(hours, self._source.asked.now_ms, ZoneInfo(budget.timezone))
        except ValueError:
            return None


def _forecast(unit: Unit, spent: int, found: Forecast | None) -> tuple[Value, Value, Value]:
    if found is None:
        return None, None, None
    low, high = (None if more is None else _amount(unit, spent + round(more)) for more in (found.low, found.high))
    return _amount(unit, spent + round(found.expected)), low, high


def _plots(standings: Sequence[Standing]) -> tuple[Plot, ...]:
    """Of hard limits in any unit: the share that is spent and held."""
    marks = [
        Mark(label=one.pot.account.id, value=amount / one.pot.account.limit, series=series)
        for one in standings[:_MOST_BARS]
        for series, amount in (("spent", one.balance.spent), ("held", one.balance.held))
        if amount
    ]
    title = "Spent and held, of the limit"
    return (Plot(title=title, shape=Shape.DAYS, unit=Kind.SHARE, marks=tuple(marks)),) if marks else ()


def _row(standing: Standing) -> Row:
    pot, account = standing.pot, standing.pot.account
    amounts = (standing.balance.spent, standing.balance.held, standing.remaining)
    policy = account.limit if pot.budget is None else pot.budget.limit
    return (
        account.id,
        None if pot.child is None else pot.child.parent,
        account.scope,
        pot.value,
        _binds(pot.budget),
        pot.window,
        account.unit.value,
        _amount(account.unit, account.limit),
        None if policy in (None, account.limit) else _amount(account.unit, policy),
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
