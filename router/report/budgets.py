"""`lowpass report budgets`: standing, forecast, and what budgets and the loop breaker refused."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from zoneinfo import ZoneInfo

from msgspec import Struct

from router.budget.budget import Budget, KeyLimit, Rolling
from router.budget.loops import Kind as Loop
from router.ledger.facts.attempts import HOUR_MS, TABLE
from router.ledger.facts.query import Label, Query, Where
from router.ledger.incident import EXHAUSTED
from router.ledger.rollups import sums
from router.ledger.rows import Connection
from router.report.query import Definition, Source
from router.report.report import Column, Kind, Mark, Plot, Report, Row, Shape, Value
from router.report.statistics import LOOK_BACK_HOURS, Forecast, Profile
from router.types.account import Account, Balance, BudgetStore, Child, Unit
from router.types.price import usd_from_nano

# What budgets and the loop breaker stopped, and how much more was held than it cost.

_REFUSED = "budget_exceeded"
"""`requests.error`; with status 200 it began to answer, and was stopped."""
_ANSWERED = 200
_BY = ("route", "state", "status", "error")
_MEASURES = ("requests", "lowered_requests", "overruns", "request_held", "cost")
_COLUMNS = (
    Column("route", Kind.LABEL),
    Column("requests", Kind.COUNT),
    Column("refused", Kind.COUNT),
    Column("stopped", Kind.COUNT),
    Column("lowered", Kind.COUNT),
    Column("overruns", Kind.COUNT),
    Column("held_usd", Kind.USD),
    Column("cost_usd", Kind.USD),
    Column("over_reservation", Kind.FACTOR),
)
_NOTE = (
    "Refused: answered with budget_exceeded; stopped: cut where the budget ended; lowered: made smaller until it"
    " fitted; overruns: charged more than was held. Over-reservation: held, of what settled requests cost. Held is what"
    " a request asked its budgets to keep, the worst case also where none binds it. Rows don't name the budget that"
    " refused: its answer does, and the first refusal in a window is an incident."
)
_TRIPS = """
    SELECT kind, scope, COUNT(*), MIN(at_ms), MAX(at_ms) FROM incidents
    WHERE at_ms >= ? AND at_ms < ? GROUP BY kind, scope ORDER BY COUNT(*) DESC, kind, scope
"""
_TRIP_COLUMNS = (
    Column("loop", Kind.LABEL),
    Column("scope"),
    Column("trips", Kind.COUNT),
    Column("first", Kind.TIME),
    Column("last", Kind.TIME),
)
_SINCE = "SELECT subject, MAX(at_ms) FROM incidents WHERE kind = ? GROUP BY subject"


def since(connection: Connection) -> Mapping[str, int]:
    """By account: when it first refused a request in the last window in which it did (Unix ms)."""
    return dict(connection.execute(_SINCE, (EXHAUSTED,)).fetchall())


def by_route(source: Source) -> Report:
    found: dict[str | None, list[int]] = defaultdict(lambda: [0] * 7)
    every = source.sums(TABLE, _BY, _MEASURES)
    for (route, state, status, error), (requests, lowered, overruns, held, cost) in every.items():
        refused = requests if error == _REFUSED else 0
        stopped = refused if status == _ANSWERED else 0
        settled = state == "settled"
        line = (requests, refused - stopped, stopped, lowered, overruns, held * settled, cost * settled)
        place = found[None if route is None else str(route)]
        place[:] = [one + other for one, other in zip(place, line, strict=True)]
    rows = tuple(_row(route, found[route]) for route in sorted(found, key=lambda name: (name is None, name or "")))
    totals = [sum(column) for column in zip(*found.values(), strict=True)]
    return Report(
        name="refused",
        title="Refusals and holds by route",
        columns=_COLUMNS,
        rows=rows,
        totals=_row("total", totals) if rows else None,
        note=_NOTE,
    )


def _row(route: str | None, sums: Sequence[int]) -> Row:
    *counts, held, cost = sums
    return (route, *counts, usd_from_nano(held), usd_from_nano(cost), held / cost if cost else None)


def trips(source: Source) -> Report:
    found = source.connection.execute(_TRIPS, source.asked.bounds).fetchall()
    rows = tuple(tuple(line) for line in found if line[0] in set(Loop))
    return Report(name="loops", title="Loops that were stopped", columns=_TRIP_COLUMNS, rows=rows)


TABLES: tuple[Callable[[Source], Report], ...] = (by_route, trips)


# How every pot of every budget stands: the same numbers for HTTP, the command line and the dashboard.


class Pot(Struct, frozen=True, kw_only=True):
    """What a budget of the policy keeps for one value of its scope, or a child: one of the two is there."""

    account: Account
    budget: Budget | None = None
    child: Child | None = None

    @property
    def value(self) -> str | None:
        """None: of no value in particular."""
        return self.account.value or None

    @property
    def window(self) -> str:
        return "lifetime" if self.budget is None else self.budget.window_name


class Standing(Struct, frozen=True):
    pot: Pot
    balance: Balance

    @property
    def remaining(self) -> int:
        """Below 0 where a charge was larger than its hold; 0 in a child that is closed."""
        if self.pot.child is not None and self.pot.child.closed_ms is not None:
            return 0
        return self.pot.account.limit - self.balance.spent - self.balance.held


def of_child(child: Child) -> Pot:
    return Pot(account=child.account(), child=child)


async def every(store: BudgetStore, declared: Iterable[Budget], now_ms: int) -> list[Pot]:
    """All pots that hold or have booked something in their window; a budget that has none yet is there once, full.

    In the order of the policy; then the open children. Raises `StoreUnavailable`.
    """
    pots = [pot for budget in declared for pot in await of_budget(store, budget, now_ms)]
    return [*pots, *map(of_child, await store.children())]


async def measured(store: BudgetStore, pots: Sequence[Pot]) -> list[Standing]:
    """Raises `StoreUnavailable`."""
    balances = await store.balances([pot.account for pot in pots])
    return [Standing(pot, balance) for pot, balance in zip(pots, balances, strict=True)]


async def of_budget(store: BudgetStore, budget: Budget, now_ms: int) -> list[Pot]:
    """At least one. Raises `StoreUnavailable`."""
    if isinstance(budget, KeyLimit):
        return [Pot(account=budget.pot(name, now_ms), budget=budget) for name in budget.keys]
    values = sorted(await store.values(budget.id, budget.span(now_ms).since)) if budget.divided else []
    accounts = [budget.pot(value, now_ms) for value in values] or [budget.full(now_ms)]
    return [Pot(account=account, budget=budget) for account in accounts]


# What each pot of a budget was charged, hour by hour: from the ledger's sums, by the budget's own filters.

Hours = Mapping[int, int]
"""Unix hour → nano-USD, or thinking tokens."""
_FILTERS = {"organisations": "organisation", "teams": "team", "keys": "key", "routes": "route", "targets": "target"}
_ANYBODY = ""


def hourly(source: Source, budget: Budget) -> Mapping[str, Hours]:
    """By value of the budget's scope ("" where it has one pot). Keys count to the team that they are in today."""
    now, tagged = source.asked.now_ms, bool(budget.tags) or budget.scope == "tag"
    by = ["hour", *(["tags"] if tagged else []), *([budget.scope] if budget.scope not in ("all", "tag") else [])]
    found: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    query = Query(
        table=TABLE,
        by=tuple(by),
        measures=_measures(budget),
        where=tuple(_where(budget)),
        since_ms=(now // HOUR_MS - LOOK_BACK_HOURS) * HOUR_MS,
        until_ms=now // HOUR_MS * HOUR_MS,
    )
    for labels, amounts in sums(source.connection, query).items():
        told = dict(zip(by, labels, strict=True))
        for value in _values(budget, told):
            found[value][int(told["hour"] or 0)] += sum(amounts)
    return found


def _measures(budget: Budget) -> tuple[str, ...]:
    """What was recovered after a crash is charged to budgets too."""
    if budget.unit is Unit.USD:
        return "cost", "recovered"
    return ("output_reasoning",) if budget.targets or budget.scope == "target" else ("request_thinking",)


def _where(budget: Budget) -> Iterable[Where]:
    for name, dimension in _FILTERS.items():
        values = getattr(budget, name)
        if values:
            yield Where(dimension, frozenset(values))


def _values(budget: Budget, told: Mapping[str, Label]) -> Iterable[str]:
    """The pots that a group was charged to."""
    tags = set(str(told.get("tags") or "").split(",")) - {""}
    if budget.tags:
        tags &= set(budget.tags)
        if not tags:
            return ()
    if budget.scope == "tag":
        return tags
    return (_ANYBODY if budget.scope == "all" else str(told[budget.scope] or ""),)


# What is left in each pot of each budget, how long that will last, and what was refused for the lack of it.

_BUDGETS_COLUMNS = (
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
_BUDGETS_NOTE = (
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
_BUDGETS_FILTERS = ("organisations", "teams", "keys", "routes", "tags", "targets")


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
    rows = tuple(map(_budgets_row, found))
    return Pots(
        name="budgets", title="Budgets", columns=_BUDGETS_COLUMNS, rows=rows, note=_BUDGETS_NOTE, standings=tuple(found)
    )


def _made(source: Source) -> Report:
    below = tuple(table(source) for table in TABLES)
    since_ms, until_ms = source.asked.since_ms, source.asked.until_ms
    pots = source.pots
    if not isinstance(pots, Pots):
        return Report(
            name="budgets",
            title="Budgets",
            columns=(*_BUDGETS_COLUMNS, *_AHEAD),
            rows=(),
            note=_UNANSWERED,
            below=below,
        )
    ahead = _Ahead(source)
    told = [ahead.of(standing) for standing in pots.standings]
    return Report(
        name="budgets",
        title="Budgets",
        columns=(*_BUDGETS_COLUMNS, *_AHEAD),
        rows=tuple((*row, *more) for row, more in zip(pots.rows, told, strict=True)),
        note=f"{_BUDGETS_NOTE} {_AHEAD_NOTE}",
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


def _budgets_row(standing: Standing) -> Row:
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
    filters = ((name.removesuffix("s"), getattr(budget, name)) for name in _BUDGETS_FILTERS)
    return "; ".join(f"{name} {' or '.join(values)}" for name, values in filters if values) or "everything"
