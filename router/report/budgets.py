"""`lowpass report budgets`: state and forecast of each account, and what budgets and the loop breaker refused."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from zoneinfo import ZoneInfo

from msgspec import Struct

from router.budget.budget import Budget, BudgetAccounts, KeyLimit, RollingWindow
from router.budget.loops import LoopKind as Loop
from router.ledger.facts import ATTEMPTS, HOUR_MS, Label, LabelFilter, Query, add
from router.ledger.keys import Key
from router.ledger.ledger import Ledger
from router.ledger.query import booked
from router.ledger.rollups import sums
from router.ledger.rows import Connection
from router.ledger.verify import lasting
from router.ledger.write import EXHAUSTED
from router.report.query import LedgerView, listed
from router.report.report import Kind, Mark, Report, Row, Shape, columns, declared, made, plots, tallied
from router.report.statistics import LOOK_BACK_HOURS, ProfileInterval
from router.types.account import RATE_ACCOUNTS, Account, Balance, BudgetStore, Child, Unit
from router.types.clock import now_ms
from router.types.price import NANO_PER_USD, usd_from_nano
from router.types.target import Secret

# Requests that budgets and the loop breaker stopped, and how much more was held than they cost.

_REFUSED = "budget_exceeded"
"""Value of `requests.error`; with status 200, an answer that had begun and was stopped."""
_BY = ("route", "state", "status", "error")
_MEASURES = ("requests", "lowered_requests", "overruns", "request_held", "cost")


def _refused(source: LedgerView) -> Report:
    routes: dict[str | None, tuple[int, ...]] = {}
    known = source.sums(ATTEMPTS, _BY, _MEASURES)
    for (route, state, status, error), (requests, lowered, overruns, held, cost) in known.items():
        refused = requests if error == _REFUSED else 0
        stopped = refused if status == 200 else 0
        settled = state == "settled"
        line = (requests, refused - stopped, stopped, lowered, overruns, held * settled, cost * settled)
        add(routes, None if route is None else str(route), line)
    ordered = sorted(routes.items(), key=lambda item: (item[0] is None, item[0] or ""))
    total = [sum(amounts) for amounts in zip(*routes.values(), strict=True)]
    return tallied("refused", ["route"], [((route,), sums) for route, sums in ordered], total)


# State of every account of every budget: the same numbers for HTTP, the command line and the dashboard.


class BudgetAccount(Struct, frozen=True, kw_only=True):
    """An account of a budget for one value of its scope, or of a child; exactly one of `budget` and `child` is set."""

    account: Account
    budget: Budget | None = None
    child: Child | None = None

    @property
    def value(self) -> str | None:
        """Value of the budget's scope; None if the account is not for a particular value."""
        return self.account.value or None

    @property
    def binds(self) -> str:
        return "who names it" if self.budget is None else binds(self.budget)

    @property
    def resets_at_ms(self) -> int | None:
        return self.account.resets_at_ms if self.child is None else None

    @property
    def window(self) -> str:
        return "lifetime" if self.budget is None else self.budget.window_name


class BudgetStanding(Struct, frozen=True):
    pot: BudgetAccount
    balance: Balance

    @property
    def remaining(self) -> int:
        """Amount left: below 0 if a charge exceeded its hold, and 0 for a closed child."""
        if self.pot.child is not None and self.pot.child.closed_ms is not None:
            return 0
        return self.pot.account.limit - self.balance.spent - self.balance.held

    @property
    def used(self) -> float:
        """Share of the limit that is spent or held."""
        limit = self.pot.account.limit
        return (self.balance.spent + self.balance.held) / limit if limit else 1.0


def of_child(child: Child) -> BudgetAccount:
    return BudgetAccount(account=child.account(), child=child)


async def every(store: BudgetStore, declared: Iterable[Budget], now_ms: int) -> list[BudgetAccount]:
    """Returns the accounts with amounts in their current window, or one full account for a budget without any.

    They are in the policy's order, followed by the open children. Raises `StoreUnavailable`.
    """
    accounts = [account for budget in declared for account in await of_budget(store, budget, now_ms)]
    return [*accounts, *map(of_child, await store.children())]


async def all_standings(store: BudgetStore, declared: Iterable[Budget], now_ms: int) -> list[BudgetStanding]:
    """Returns the standing of every account and child. Raises `StoreUnavailable`."""
    return await measured(store, await every(store, declared, now_ms))


async def measured(store: BudgetStore, accounts: Sequence[BudgetAccount]) -> list[BudgetStanding]:
    """Returns the standings of some accounts. Raises `StoreUnavailable`."""
    balances = await store.balances([account.account for account in accounts])
    return [BudgetStanding(account, balance) for account, balance in zip(accounts, balances, strict=True)]


async def of_budget(store: BudgetStore, budget: Budget, now_ms: int) -> list[BudgetAccount]:
    """Returns a budget's accounts, or one full account if there are none yet. Raises `StoreUnavailable`."""
    if isinstance(budget, KeyLimit):
        return [BudgetAccount(account=budget.account_of(name, now_ms), budget=budget) for name in budget.keys]
    values = sorted(await store.values(budget.id, budget.span(now_ms).since)) if budget.divided else []
    accounts = [budget.account_of(value, now_ms) for value in values] or [budget.full(now_ms)]
    return [BudgetAccount(account=account, budget=budget) for account in accounts]


def as_metrics(standings: Iterable[BudgetStanding]) -> Mapping[str, Mapping[tuple[str, ...], float]]:
    """Returns metric → labels → value over all accounts of a budget; children, which clients name, are left out."""
    measured_sums: defaultdict[str, defaultdict[tuple[str, ...], float]] = defaultdict(lambda: defaultdict(float))
    for standing in standings:
        budget, account, balance = standing.pot.budget, standing.pot.account, standing.balance
        if budget is None:
            continue
        unit, scale = ("usd", NANO_PER_USD) if account.unit is Unit.USD else ("tokens", 1)
        for name, amount in {"limit": account.limit, "spent": balance.spent, "held": balance.held}.items():
            measured_sums[f"lowpass_budget_{name}_{unit}"][budget.id,] += amount / scale
        shares = measured_sums["lowpass_budget_used_share"]
        shares[budget.id,] = max(shares[budget.id,], standing.used)
    return measured_sums


# Charges of each account by hour: from the ledger's hourly sums, with the budget's own filters.

Hours = Mapping[int, int]
_FILTERS = ("organisations", "teams", "keys", "routes", "tags", "targets")
"""Fields of a budget that filter requests; without the final "s" they are dimensions, except for tags."""


def hourly(source: LedgerView, budget: Budget) -> Mapping[str, Hours]:
    """Returns a budget's charges by value of its scope ("" if it has one account). A key's charges count for its
    current team. Amounts that were recovered after a crash are included."""
    hour, tagged = source.request.now_ms // HOUR_MS, bool(budget.tags) or budget.scope == "tag"
    by = ["hour", *(["tags"] if tagged else []), *([budget.scope] if budget.scope not in ("all", "tag") else [])]
    filters = {name.removesuffix("s"): frozenset(getattr(budget, name)) for name in _FILTERS if name != "tags"}
    thinking = "output_reasoning" if budget.targets or budget.scope == "target" else "request_thinking"
    query = Query(
        table=ATTEMPTS,
        by=tuple(by),
        measures=("cost", "recovered") if budget.unit is Unit.USD else (thinking,),
        where=tuple(LabelFilter(dimension, labels) for dimension, labels in filters.items() if labels),
        since_ms=(hour - LOOK_BACK_HOURS) * HOUR_MS,
        until_ms=hour * HOUR_MS,
    )
    by_value: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for labels, amounts in sums(source.connection, query).items():
        group = dict(zip(by, labels, strict=True))
        for value in _values(budget, group):
            by_value[value][int(group["hour"] or 0)] += sum(amounts)
    return by_value


def _values(budget: Budget, group: Mapping[str, Label]) -> Iterable[str]:
    """Returns the scope values whose accounts a group was charged to."""
    tags = set(str(group.get("tags") or "").split(",")) - {""}
    if budget.tags:
        tags &= set(budget.tags)
        if not tags:
            return ()
    if budget.scope == "tag":
        return tags
    return ("" if budget.scope == "all" else str(group[budget.scope] or ""),)


# What is left in each account, how long it will last, and what was refused because too little was left.

_UNANSWERED = "The store of the budgets does not answer: what is spent and left is not known."
MAX_FORECAST_MS = 366 * 86_400_000
"""Maximum time ahead, in ms, for which the end of a limit without reset is forecast."""
_MAX_BARS = 20


def report(source: LedgerView) -> Report:
    """Returns one row per account; the remaining amount is negative if costs exceeded their holds. The ledger is
    queried once per budget."""
    standings, now_ms = source.standings or (), source.request.now_ms
    budgets = (standing.pot.budget for standing in standings)
    named = {budget.id: budget for budget in budgets if budget and not isinstance(budget.window, RollingWindow)}
    bounded = (item for item in named.items() if item[1].scope not in ("session", "request"))
    spent = {name: hourly(source, budget) for name, budget in bounded}
    first_refusals = "SELECT subject, MAX(at_ms) FROM incidents WHERE kind = ? GROUP BY subject"
    refused: dict[str, int] = dict(source.connection.execute(first_refusals, (EXHAUSTED,)).fetchall())
    trips = [row for row in listed("loops", source).rows if row[0] in set(Loop)]
    notes = declared()["budgets"].note, declared()["budgets-ahead"].note
    # Share of the limit that is spent and held, in any unit.
    marks = [
        Mark(label=standing.pot.account.id, value=amount / standing.pot.account.limit, series=series)
        for standing in standings[:_MAX_BARS]
        for series, amount in (("spent", standing.balance.spent), ("held", standing.balance.held))
        if amount
    ]
    return made(
        "budgets",
        ((*_row(standing), *_forecast(standing, spent, refused, now_ms)) for standing in standings),
        columns=(*columns("budgets"), *columns("budgets-ahead")),
        note=" ".join(notes) if source.standings is not None else _UNANSWERED,
        below=(_refused(source), made("loops", trips)),
        plots=plots("Spent and held, of the limit", Shape.DAYS, Kind.SHARE, marks),
    )


def _forecast(
    standing: BudgetStanding, spent: Mapping[str, Mapping[str, Hours]], refused: Mapping[str, int], now_ms: int
) -> Row:
    """Returns the columns of `budgets-ahead`; None where no forecast is possible. `spent`: hourly charges by budget id
    and scope value; `refused`: the first refusal of each account in its latest window with one, in Unix ms."""
    pot, account, booked = standing.pot, standing.pot.account, standing.balance.spent
    refused_ms = refused.get(account.id, -1)
    since_ms = refused_ms if refused_ms >= account.since_ms else None
    hours = {} if pot.budget is None else spent.get(pot.budget.id, {}).get(account.value, {})
    if pot.budget is None or not any(hours.values()):
        return (None, None, None, None, since_ms)
    profile, ends = ProfileInterval(hours, now_ms, ZoneInfo(pot.budget.timezone)), account.resets_at_ms
    ends_at_ms = profile.reaches(account.limit - booked, now_ms + MAX_FORECAST_MS if ends is None else ends)
    forecast = (None, None, None) if ends is None else profile.until(ends)
    amounts = (None if more is None else amount_of(account.unit, booked + round(more)) for more in forecast)
    return (*amounts, ends_at_ms, since_ms)


def _row(standing: BudgetStanding) -> Row:
    pot, account = standing.pot, standing.pot.account
    policy = account.limit if pot.budget is None else pot.budget.limit
    limits = (account.limit, None if policy == account.limit else policy)
    amounts = (*limits, standing.balance.spent, standing.balance.held, standing.remaining)
    return (
        *(account.id, None if pot.child is None else pot.child.parent, account.scope, pot.value),
        *(pot.binds, pot.window, account.unit.value, *(amount_of(account.unit, amount) for amount in amounts)),
        *(None if account.hard else "soft", pot.resets_at_ms, account.expires_at_ms),
    )


def amount_of(unit: Unit | None, amount: int | None) -> Decimal | int | None:
    """Converts nano-USD to USD; tokens, and amounts without a unit, are returned unchanged."""
    return usd_from_nano(amount) if unit is Unit.USD and amount is not None else amount


def binds(budget: Budget) -> str:
    """Describes which requests a budget applies to, by its filters."""
    filters = ((name.removesuffix("s"), getattr(budget, name)) for name in _FILTERS)
    return "; ".join(f"{name} {' or '.join(values)}" for name, values in filters if values) or "everything"


def spent_in_window(connection: Connection, key: Key) -> list[int]:
    """Returns a list with the key's cost in its limit's current window, in nano-USD; empty if it has no limit."""
    limit = BudgetAccounts(()).key_limit(key.caller())
    if limit is None:
        return []
    ours = LabelFilter("key", frozenset({key.terms.name}))
    measures, since_ms = ("cost", "recovered"), limit.span(now_ms()).since or None
    costs = sums(connection, Query(table="attempts", by=(), measures=measures, where=(ours,), since_ms=since_ms))
    return [sum(map(sum, costs.values()))]


def beyond_bookings(url: Secret, ledger: Ledger, since: Mapping[str, int]) -> set[tuple[str, int, str, int]]:
    """Returns lasting differences: (account, window start, kind, what Redis has beyond the bookings); the kind is `s`
    for spent or `h` for held. `since`: by account or budget, the start of the first window that Redis must still have.

    Waits and compares again while they differ, so it must not run in an event loop. Raises `StoreUnavailable`.
    """
    from router.budget.redis.server import windows  # imports the Redis client

    def differences() -> set[tuple[str, int, str, int]]:
        in_redis, (spent, held, _), differing = asyncio.run(windows(url)), booked(ledger), set()
        booked_amounts = Counter({(account, start, "s"): amount for account, start, amount in spent})
        for _, account, start, amount in held:
            booked_amounts[account, start, "h"] += amount
        for key in in_redis.keys() | booked_amounts.keys():
            account, start, _ = key
            first = since.get(account, since.get(account.partition("|")[0], start + 1))
            difference = in_redis.get(key, 0) - booked_amounts[key]
            if difference and (key in in_redis or start >= first) and not account.startswith(RATE_ACCOUNTS):
                differing.add((*key, difference))
        return differing

    return lasting(differences)
