"""What commands do with a policy and a ledger without the gateway: read budgets, correct charges."""

import asyncio
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from msgspec import Struct, structs

from router.api.auth import ledger_of
from router.budget.budget import Budget, BudgetAccounts, KeyLimit
from router.config.load import load_policy, shipped
from router.export.focus import Directory
from router.ledger.adjust import Adjusted, Booking, Correction, adjust, learn_billing
from router.ledger.engines import versions
from router.ledger.journal import SqliteJournal
from router.ledger.keys import COMMAND_LINE, callers, limits
from router.ledger.ledger import Ledger, SqliteLedger
from router.ledger.reconcile import Comparison, Reconciliation, StatementError, date_of, read
from router.ledger.rows import Connection
from router.ledger.verify import VerifyFinding
from router.report.budgets import BudgetStanding, all_standings, beyond_bookings
from router.settings import Settings
from router.types.account import NOTHING, Account, Reservation, Unit
from router.types.clock import now_ms
from router.types.price import ANY_MODEL, Prices, usd_text
from router.types.request import DAY_MS


def budget_standings(settings: Settings) -> Sequence[BudgetStanding]:
    """Returns the standings in the store, without a gateway. Raises `ConfigError`, `StoreUnavailable`."""
    from router.app import Stores  # imports the whole gateway

    ledger = ledger_of(settings)
    budgets = declared(settings, ledger)

    async def read() -> Sequence[BudgetStanding]:
        journal = SqliteJournal(settings.sqlite)
        stores = Stores(settings.redis_url, journal, journal, ledger, lambda: budgets)
        try:
            await stores.start()
            return await all_standings(stores.store, budgets, now_ms())
        finally:
            await stores.stop()
            await journal.end()

    return asyncio.run(read())


def known_prices(ledger: Ledger) -> Prices:
    """Returns every price table that each catalog model has had, and the measured prices of local engines."""
    with ledger.reading() as connection:
        return {**shipped().prices, ANY_MODEL: versions(connection)}


def directory(path: pathlib.Path, ledger: Ledger) -> Directory:
    """Returns prices of catalog, policy and ledger, and the providers. Raises `ConfigError`, `LedgerUnavailable`."""
    targets = load_policy(path).targets.values()
    prices = {model: dict(tables) for model, tables in known_prices(ledger).items()}
    for target in targets:
        if target.model.price is not None:
            prices.setdefault(target.model.id, {})[target.model.price.version] = target.model.price
    providers = [*shipped().providers.values(), *(target.provider for target in targets)]
    entities = {provider.id: provider.entity or provider.id for provider in providers}
    return Directory(prices, entities, frozenset(provider.id for provider in providers if provider.local))


# Corrections of charges while gateways run: rows in the ledger, and changes in the budgets' store.


class Reconciled(Struct, frozen=True):
    """`form`: kind of statement. `corrections`: number of rows written. `left_out`: lines of today or later."""

    form: str
    comparison: Comparison
    corrections: int = 0
    left_out: int = 0


def adjust_request(settings: Settings, ledger: Ledger, request_id: str, cost: int, reason: str) -> Adjusted:
    """Sets the total charge of a request, in nano-USD. Raises `NotAdjustable`, `ConfigError` and `StoreUnavailable`."""
    budgets = declared(settings, ledger)
    follow(settings, ledger, budgets, [])
    correction = Correction(actor=COMMAND_LINE, source="operator", cause="stated", reason=reason)
    with writing(settings, ledger) as (connection, books):
        adjusted = adjust(connection, books, request_id, lambda _: cost, correction, units(budgets))
    follow(settings, ledger, budgets, [adjusted])
    return adjusted


def reconcile(
    settings: Settings,
    ledger: Ledger,
    provider: str,
    lines: Sequence[str],
    *,
    book: bool,
    today: bool,
    whole: bool,
    any_size: bool,
) -> Reconciled:
    """Compares a provider's statement with the ledger. `book`: differences are booked, and estimates learn from them;
    `today`: includes the current day (UTC); `whole`: what the statement lacks was not billed;
    `any_size`: books `doubtful` differences, too.

    Raises `StatementError`, `LookupError` for a provider without rows in the ledger, and as `adjust_request`.
    """
    form, every_line = read(lines)
    unfinished = now_ms() // DAY_MS
    statement = [line for line in every_line if line.day < unfinished + today]
    left_out = len(every_line) - len(statement)
    if all(line.day > unfinished for line in every_line):
        raise StatementError("all of its lines are of days to come: look at its dates")
    if not statement:
        raise StatementError("all of its lines are of today (UTC), which is not over: wait, or add --today")
    budgets = declared(settings, ledger)
    with ledger.reading() as connection:
        known = sorted(name for (name,) in connection.execute("SELECT DISTINCT provider FROM attempts") if name)
        if provider not in known:
            raise LookupError(f"the ledger has no provider '{provider}'. Known: {', '.join(known) or 'none'}")
        reconciliation = Reconciliation(connection, provider, statement, whole=whole)
        comparison = reconciliation.compare()
        if not book:
            return Reconciled(form, comparison, left_out=left_out)
        large = next((row for row in comparison.differences if row.doubtful), None)
        if large is not None and not any_size:
            amounts = f"${usd_text(large.billed)} for {large.model} where the ledger has ${usd_text(large.ledger)}"
            raise StatementError(f"{date_of(large.day)}: it bills {amounts}. Nothing was booked: --any-size books it")
        follow(settings, ledger, budgets, [])
        differences, adjusted = [], []
        with writing(settings, ledger) as (writer, books):
            for difference in comparison.differences:
                written = reconciliation.book(writer, books, difference, COMMAND_LINE, units(budgets))
                differences.append(structs.replace(difference, booked=sum(adjustment.added for adjustment in written)))
                adjusted += written
            source = f"statement of {provider}"
            learn_billing(writer, comparison.factors, comparison.ratios, source, COMMAND_LINE)
    follow(settings, ledger, budgets, adjusted)
    return Reconciled(form, structs.replace(comparison, differences=tuple(differences)), len(adjusted), left_out)


def redis_findings(settings: Settings, ledger: Ledger) -> list[VerifyFinding]:
    """Returns the windows in Redis that differ from their bookings, except rates. Raises `StoreUnavailable`.

    With a ledger in a file a surplus in Redis is no error: gateways with other files may have booked it."""
    assert settings.redis_url is not None  # noqa: S101
    now = now_ms()
    since = {
        f"{budget.id}|{budget.keys[0]}" if isinstance(budget, KeyLimit) else budget.id: budget.span(now).since
        for budget in declared(settings, ledger)
    }
    differing = beyond_bookings(settings.redis_url, ledger, since)
    kinds = {"s": "spent", "h": "held"}
    return [
        VerifyFinding("redis", f"{account} from {start}", f"it has {beyond:+} {kinds[kind]} beside its bookings")
        for account, start, kind, beyond in sorted(differing)
        if settings.database_url is not None or beyond < 0
    ]


def declared(settings: Settings, ledger: Ledger) -> Sequence[Budget]:
    """Returns the policy's budgets, with limits set by administrators, and the limits of keys."""
    policy = load_policy(settings.policy).budgets
    with ledger.reading() as connection:
        raised = limits(connection)
        accounts = BudgetAccounts([budget.with_limits(raised) for budget in policy])
        return [*accounts.budgets, *accounts.key_limits(callers(connection).values())]


def units(budgets: Sequence[Budget]) -> Mapping[str, Unit]:
    return {budget.id: budget.unit for budget in budgets}


@contextmanager
def writing(settings: Settings, ledger: Ledger) -> Iterator[tuple[Connection, Connection]]:
    """Yields connections to the ledger and to its bookings, in a local file with PostgreSQL but no Redis."""
    ledger.migrate()
    with ledger.writing() as connection:
        if settings.database_url is None or settings.redis_url is not None:
            yield connection, connection
            return
        with SqliteLedger(settings.sqlite).writing() as books:
            yield connection, books


def follow(settings: Settings, ledger: Ledger, budgets: Sequence[Budget], adjusted: Sequence[Adjusted]) -> None:
    """Applies corrections to the accounts in Redis that still count them. Without Redis the bookings are the accounts.

    Raises `StoreUnavailable`, even if there is nothing to apply.
    """
    if settings.redis_url is None:
        return
    from router.app import Stores

    now = now_ms()
    counting = [
        (each.id, [(account, line.charged) for line in each.bookings if (account := _counting(line, budgets, now))])
        for each in adjusted
    ]

    async def book() -> None:
        journal = ledger.open_journal()
        local = journal if isinstance(journal, SqliteJournal) else SqliteJournal(settings.sqlite)
        stores = Stores(settings.redis_url, journal, local, ledger, lambda: budgets)
        try:
            await stores.start()
            for identifier, lines in counting:
                reserved = await stores.store.reserve(identifier, [account for account, _ in lines], NOTHING, now)
                if isinstance(reserved, Reservation):
                    stores.store.settle(reserved, [charged for _, charged in lines])
            await stores.store.settled()
        finally:
            await stores.stop()
            await journal.end()

    asyncio.run(book())


def _counting(booking: Booking, budgets: Sequence[Budget], at_ms: int) -> Account | None:
    """Returns the account to correct, as a soft one; None if its window has passed or its budget is gone."""
    name, _, value = booking.account.partition("|")
    budget = next((budget for budget in budgets if budget.id == name), None)
    if budget is None:
        # A child budget; accounts of budgets that the policy no longer has limit nothing.
        return None if value else Account(id=name, budget=name, scope="", limit=1, hard=False)
    account = budget.account_of(value, at_ms)
    if booking.window_start_ms < account.since_ms:
        return None
    return structs.replace(account, window_start_ms=booking.window_start_ms, hard=False, targets=frozenset())
