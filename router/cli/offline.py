"""What commands do with a policy and a ledger by themselves: explain a request, read the budgets, correct charges."""

import asyncio
import pathlib
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from msgspec import Struct, structs
from rich.console import RenderableType, group
from rich.text import Text

from router.api.auth import OPEN, ledger_of
from router.api.parse import parse
from router.app import Stores
from router.budget.budget import Budget, BudgetAccounts, KeyLimit
from router.budget.redis.server import windows
from router.choose import check, choose, index
from router.classify.difficulty import read_too
from router.classify.ner import NamesReader
from router.classify.views import where
from router.config.load import load_policy, shipped
from router.decide.explain import PlacedExplanation, encode, examine, reason
from router.decide.health import Health
from router.errors import ConfigError
from router.estimate.forecast import FRESH_MS
from router.export.focus import Directory
from router.ledger import rows
from router.ledger.adjust import Adjusted, Booking, Correction, adjust, learn_billing
from router.ledger.engines import versions
from router.ledger.journal import SqliteJournal
from router.ledger.keys import COMMAND_LINE, callers, limits
from router.ledger.ledger import Ledger, SqliteLedger
from router.ledger.query import Held, Spent, booked
from router.ledger.reconcile import Comparison, Reconciliation, StatementError, read
from router.ledger.rows import Connection
from router.ledger.verify import VerifyFinding, lasting
from router.replay.sides import forecasters
from router.report.budgets import BudgetStanding, all_standings
from router.report.render import table as drawn
from router.report.report import Row, made
from router.screen import Screen, Screened
from router.settings import Settings
from router.types.account import NOTHING, RATE_ACCOUNTS, Account, Reservation, Unit
from router.types.clock import new_id, now_ms
from router.types.decision import Weighed
from router.types.price import ANY_MODEL, Prices, usd_about, usd_text
from router.types.request import DAY_MS, Caller, Endpoint, Request
from router.types.target import Secret, Target


def budget_standings(settings: Settings) -> Sequence[BudgetStanding]:
    """As the store has it now, gateway or not. Raises `ConfigError`, `StoreUnavailable`."""
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


def policy_read(settings: Settings, ledger: Ledger) -> tuple[Mapping[str, Target], str]:
    """The targets of the policy file, and which file that is: also where it is another policy than that of the ledger's
    newest request, or can't be read. Reports tell less without it, but they do."""
    path = settings.policy
    try:
        config = load_policy(path)
    except ConfigError:
        return {}, f"{path} can't be read: what a policy says is left out."
    with ledger.reading() as connection:
        newest = rows.newest(connection, 1)
    if any(record.request["policy"] not in ("", config.in_force.hash) for record in newest):
        remedy = "name that one with --policy or LOWPASS_POLICY"
        return config.targets, f"By {path}, which is not the policy of the newest request: {remedy}."
    return config.targets, f"By {path}."


def known_prices(ledger: Ledger) -> Prices:
    """Every table that each model of the catalog has had, and what was measured of local engines."""
    with ledger.reading() as connection:
        return {**shipped().prices, ANY_MODEL: versions(connection)}


def directory(path: pathlib.Path, ledger: Ledger) -> Directory:
    """Every price that catalog, policy or ledger know, and who provides. Raises `ConfigError`, `LedgerUnavailable`."""
    targets = load_policy(path).targets.values()
    prices = {model: dict(tables) for model, tables in known_prices(ledger).items()}
    for target in targets:
        if target.model.price is not None:
            prices.setdefault(target.model.id, {})[target.model.price.version] = target.model.price
    providers = [*shipped().providers.values(), *(target.provider for target in targets)]
    entities = {provider.id: provider.entity or provider.id for provider in providers}
    return Directory(prices, entities, frozenset(provider.id for provider in providers if provider.local))


def explain_request(
    settings: Settings, body: bytes, headers: Sequence[tuple[bytes, bytes]] = (), key: str = ""
) -> PlacedExplanation:
    """Steps 3–5 on one chat request, with every target in good health, and what the ledger has taught, if there is one.
    `key`: the name of the one that asks; without, it is a request of a gateway that has none.

    Raises `ClientError`, `ConfigError` and `SettingError`, and `LookupError` for a key that there is not.
    """
    config = load_policy(settings.policy)
    rules = index(config, Secret(new_id()))
    ledger, caller = ledger_of(settings), OPEN
    if key:
        with ledger.reading() as connection:
            named = [known for known in callers(connection).values() if key in (known.id, known.name)]
        if not named:
            raise LookupError(f"there is no key '{key}': `lowpass keys list` names them")
        caller = named[0]
    request = parse(Endpoint.CHAT, new_id(), body, headers)
    check(rules, request, caller)
    screened = asyncio.run(_screened(rules.screen, request, caller))
    targets = tuple(config.targets.values())
    forecaster = forecasters(ledger, targets)(targets, FRESH_MS)
    decision, _ = choose(rules, request, caller, screened, Health(time.monotonic), forecaster)
    return examine(read_too(decision, request))


async def _screened(screen: Screen, request: Request, caller: Caller) -> Screened:
    """As in a session of its own."""
    reader = NamesReader()
    try:
        return screen.alone(request, caller, read=await screen.read(request, reader))
    finally:
        await reader.close()


# A decision as tables for people.

MOST_FINDINGS = 100
"""Shown; the causes count all."""


@group()
def explanation(examined: PlacedExplanation) -> Iterator[RenderableType]:
    classification = examined.classification
    others = ", ".join(name for name in classification.classes if name != classification.data_class)
    classes = f"class {classification.data_class}{f' (and {others})' if others else ''}"
    summary = f"route {examined.route} ({examined.strategy}), {classes}, task {classification.task}"
    yield Text(f"{summary}, difficulty {classification.difficulty:.2f}\n\n{reason(encode(examined))}")
    yield from _table("causes", ((cause.data_class, cause.by, cause.count) for cause in classification.causes))
    more = len(examined.findings) - MOST_FINDINGS
    rest = [(f"and {more} more", "", "", "")] if more > 0 else []
    places = (  # where, never what
        (each.detector, each.data_class, where(each.path), f"{each.start}–{each.end}{'' if each.exact else ' hidden'}")
        for each in examined.findings[:MOST_FINDINGS]
    )
    yield from _table("findings", (*places, *rest))
    if examined.possible:
        possible = ", ".join(sorted({finding.data_class for finding in examined.possible}))
        yield Text(
            f"{len(examined.possible)} of them only possibly so ({possible}): there is no second opinion"
            " here, so they count as found"
        )
    stakes = examined.stakes
    limits = (
        None if stakes.failure_nano is None else f"a failure costs ${usd_text(stakes.failure_nano)}",
        None if stakes.min_pass_rate is None else f"pass rate at least {stakes.min_pass_rate:g}",
        None if stakes.max_nano is None else f"at most ${usd_text(stakes.max_nano)}",
        None if stakes.deadline_ms is None else f"within {stakes.deadline_ms / 1000:g} s",
    )
    if examined.weighed and any(limits):
        yield Text(f"at stake: {', '.join(filter(None, limits))}")
    yield from _table("weighed", map(_weighed, examined.weighed))
    for row in examined.queued:
        yield Text(f"{'spilled' if row.spilled else 'health' if row.degraded else 'queue'}: {row.told()}")
    considered = (
        (
            f"{step.target} ({step.model}{f' at effort {step.effort}' if step.effort else ''})"
            + (f", lowered: {', '.join(step.lowered)}" if step.lowered else ""),
            "placeholders" if step.redacted else "all of it",
            *(bytes(step.cost_usd).decode(), bytes(step.hold_usd).decode()),
            *map(str, (step.input_tokens, step.output_tokens, step.max_output)),
        )
        for step in examined.considered
    )
    yield from _table("considered", considered)
    yield from _table("dropped", ((row.target, row.reason, row.detail) for row in examined.dropped))


def _table(name: str, rows: Iterable[Row]) -> Iterator[RenderableType]:
    report = made(f"explain/{name}", rows)
    if report.rows:
        yield drawn(report)


def _weighed(row: Weighed) -> Row:
    """p with its standard deviation, cost with the middle 80 % of what it may be, time to the first byte and in all."""
    spread = f"{usd_about(row.cost_nano_p10, 2)}–{usd_about(row.cost_nano_p90, 2)}"
    times = f"{row.first_ms / 1000:.1f} / {row.total_ms / 1000:.1f}"
    money = (usd_about(row.cost_nano), spread, times, usd_about(row.value_nano))
    return row.target, f"{row.p:.2f} ± {row.p_sd:.2f}", *money, row.why


# Corrections of charges, as commands make them while gateways run: rows of the ledger, and the budgets' own store.


class Reconciled(Struct, frozen=True):
    """`form`: what kind of statement it was. `corrections`: rows that were written. `left_out`: lines of today."""

    form: str
    comparison: Comparison
    corrections: int = 0
    left_out: int = 0


def adjust_request(settings: Settings, ledger: Ledger, request_id: str, cost: int, reason: str) -> Adjusted:
    """Lets a request cost so many nano-USD in all. Raises `NotAdjustable`, `ConfigError` and `StoreUnavailable`."""
    budgets = declared(settings, ledger)
    follow(settings, ledger, budgets, [])
    correction = Correction(actor=COMMAND_LINE, source="operator", cause="stated", reason=reason)
    with writing(settings, ledger) as (connection, books):
        adjusted = adjust(connection, books, request_id, lambda _: cost, correction, units(budgets))
    follow(settings, ledger, budgets, [adjusted])
    return adjusted


def reconcile(
    settings: Settings, ledger: Ledger, provider: str, lines: Sequence[str], *, book: bool, today: bool, whole: bool
) -> Reconciled:
    """A provider's statement against the ledger; `book`: differences are booked, and the estimates learn from them.
    `today`: the day (UTC) that is not over counts too. `whole`: what the statement lacks was not billed.

    Raises `StatementError`, `LookupError` for a provider that the ledger does not have, and as `adjust_request`.
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
    """Windows in Redis beside the bookings, in both directions, without rates. Raises `StoreUnavailable`.

    Where the ledger is a file Redis may have more: what gateways with other files booked."""
    assert settings.redis_url is not None  # noqa: S101
    now = now_ms()
    since = {
        f"{budget.id}|{budget.keys[0]}" if isinstance(budget, KeyLimit) else budget.id: budget.span(now).since
        for budget in declared(settings, ledger)
    }
    url = settings.redis_url
    differing = lasting(lambda: _differing(asyncio.run(windows(url)), *booked(ledger)[:2], since))
    words = {"s": "spent", "h": "held"}
    return [
        VerifyFinding("redis", f"{account} from {start}", f"it has {beyond:+} {words[kind]} beside its bookings")
        for account, start, kind, beyond in sorted(differing)
        if settings.database_url is not None or beyond < 0
    ]


def _differing(
    there: Mapping[tuple[str, int, str], int], spent: Sequence[Spent], held: Sequence[Held], since: Mapping[str, int]
) -> set[tuple[str, int, str, int]]:
    """Account, window, kind, and what Redis has beyond the bookings. `since`: from when on windows of a budget, or of
    an account, count: others may be gone from Redis."""
    sums = Counter({(account, start, "s"): amount for account, start, amount in spent})
    for _, account, start, amount in held:
        sums[account, start, "h"] += amount
    differing = set()
    for account, start, kind in there.keys() | sums.keys():
        key, first = (account, start, kind), since.get(account, since.get(account.partition("|")[0], start + 1))
        beyond = there.get(key, 0) - sums[key]
        if beyond and (key in there or start >= first) and not account.startswith(RATE_ACCOUNTS):
            differing.add((*key, beyond))
    return differing


def declared(settings: Settings, ledger: Ledger) -> Sequence[Budget]:
    """Budgets of the policy, with the limits that stand in their place now, and limits of keys."""
    policy = load_policy(settings.policy).budgets
    with ledger.reading() as connection:
        raised = limits(connection)
        accounts = BudgetAccounts([budget.with_limits(raised) for budget in policy])
        return [*accounts.budgets, *accounts.of_keys(callers(connection).values())]


def units(budgets: Sequence[Budget]) -> Mapping[str, Unit]:
    return {budget.id: budget.unit for budget in budgets}


@contextmanager
def writing(settings: Settings, ledger: Ledger) -> Iterator[tuple[Connection, Connection]]:
    """The ledger, and what has its bookings: the same, but for budgets of this machine beside a ledger elsewhere."""
    ledger.migrate()
    with ledger.writing() as connection:
        if settings.database_url is None or settings.redis_url is not None:
            yield connection, connection
            return
        with SqliteLedger(settings.sqlite).writing() as books:
            yield connection, books


def follow(settings: Settings, ledger: Ledger, budgets: Sequence[Budget], adjusted: Sequence[Adjusted]) -> None:
    """In Redis the accounts that still count what was corrected. Elsewhere the bookings are the accounts.

    Raises `StoreUnavailable`, for nothing to follow too.
    """
    if settings.redis_url is None:
        return
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
    """The account, as one that refuses nothing; None: its window has passed."""
    name, _, value = booking.account.partition("|")
    budget = next((budget for budget in budgets if budget.id == name), None)
    if budget is None:
        # One that was split off; those of budgets that the policy has no longer limit nothing.
        return None if value else Account(id=name, budget=name, scope="", limit=1, hard=False)
    account = budget.pot(value, at_ms)
    if booking.window_start_ms < account.since_ms:
        return None
    return structs.replace(account, window_start_ms=booking.window_start_ms, hard=False, targets=frozenset())
