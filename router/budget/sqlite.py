"""The embedded budget store: budgets in the ledger's SQLite file, in the same transactions as the rows of requests.

This module writes `bookings` and `children`. Triggers keep `budget_windows` the sum of the bookings, and update a
child's booking in its parent's account. The steps share a transaction with others, so none of them may raise.
"""

import asyncio
import logging
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import suppress

import msgspec
from msgspec import Struct, structs

from router.types.account import (
    SPLIT,
    Account,
    Amount,
    Balance,
    Child,
    HoldRequest,
    Journal,
    LocalJournal,
    Refused,
    Reservation,
    StoreUnavailable,
    Unit,
    growth,
)
from router.types.tables import patterns

_SQL: Mapping[str, str] = patterns("budget/data/sqlite.yaml")
_log = logging.getLogger(__name__)


class SqliteBudgets:
    """A `BudgetStore` over a `LocalJournal`.

    A hold's lease is that of the ledger's row of the request, which is inserted in the same commit and updated here
    with the granted amounts.
    """

    def __init__(self, journal: LocalJournal, lease_ms: int, rows: Journal | None = None) -> None:
        """`rows`: journal of another ledger with request rows, so that both ledgers charge the same after a crash."""
        self._journal, self._lease_ms, self._rows = journal, lease_ms, None if rows is journal else rows

    @property
    def available(self) -> bool:
        return self._journal.available

    async def reserve(
        self, request_id: str, accounts: Sequence[Account], ask: HoldRequest, now_ms: int
    ) -> Reservation | Refused:
        """See `BudgetStore.reserve`; returns at once without accounts. Raises ValueError if `request_id` was used."""
        if not accounts:
            return Reservation(request_id, ask.whole)
        if len(accounts) > 1 and len({account.id for account in accounts}) < len(accounts):
            raise ValueError(f"request {request_id} would be charged to one account twice")
        step = self._journal.call(lambda connection: _reserve(connection, request_id, accounts, ask, now_ms))
        try:
            granted = await asyncio.shield(step)
        except asyncio.CancelledError:  # the hold may exist already, or be made later
            step.add_done_callback(self._release_if_granted)
            raise
        if granted is None:
            raise ValueError(f"request {request_id} has reserved before: an id is for one request only")
        if self._rows is not None and isinstance(granted, Reservation):
            self._rows.change(_SQL["granted"], (granted.granted.usd, granted.granted.thinking, request_id))
        return granted

    def _release_if_granted(self, step: "asyncio.Future[Reservation | Refused | None]") -> None:
        if step.exception() is None and isinstance(reservation := step.result(), Reservation):
            self.settle(reservation, [0] * len(reservation.holds))

    async def extend(
        self, reservation: Reservation, accounts: Sequence[Account], more: Amount, now_ms: int
    ) -> Reservation:
        """Grows the holds in `accounts`; a reservation without holds in them grows by `more` without limit."""
        bound = {account.id: account for account in accounts}
        if not any(hold.account in bound for hold in reservation.holds):
            return reservation.grown(more, bound)
        grown = await self._journal.call(lambda connection: _extend(connection, reservation, bound, more, now_ms))
        if self._rows is not None:
            self._rows.change(_SQL["granted"], (grown.granted.usd, grown.granted.thinking, grown.request_id))
        return grown

    def settle(self, reservation: Reservation, charges: Sequence[int]) -> None:
        """Queues the charges. Raises ValueError if there are not as many charges as holds."""
        if len(charges) != len(reservation.holds):
            raise ValueError(f"request {reservation.request_id} needs {len(reservation.holds)} charges, one a hold")
        for hold, charge in zip(reservation.holds, charges, strict=True):
            row = (reservation.request_id, hold.account, hold.window_start_ms, hold.amount, charge)
            self._journal.change(_SQL["settle"], row)

    async def settled(self) -> None:
        if self._journal.available:
            with suppress(StoreUnavailable):
                await self._journal.committed()

    async def recover(self, now_ms: int) -> int:
        lease = (now_ms + self._lease_ms, self._journal.owner)
        count, unheld = await self._journal.call(lambda connection: _recover(connection, lease, now_ms))
        for request_id, account, charged in unheld:
            _log.error("request %s was charged %d in %s, where it held nothing", request_id, charged, account)
        return count

    async def expire(self, now_ms: int) -> None:
        if self._journal.read(lambda connection: connection.execute(_SQL["expired"], (now_ms,)).fetchone() is not None):
            await self._journal.call(lambda connection: _close_expired(connection, now_ms))

    async def balances(self, accounts: Sequence[Account]) -> list[Balance]:
        def step(connection: sqlite3.Connection) -> list[Balance]:
            rows = [_balance_row(connection, account, account.window_start_ms) for account in accounts]
            return [Balance(row.spent, row.held) for row in rows]

        return await self._journal.call(step)

    async def values(self, budget: str, since_ms: int) -> list[str]:
        # "}" follows "|" in ASCII: these bounds enclose the ids that start with "<budget>|".
        bounds = (len(budget) + 2, f"{budget}|", f"{budget}}}", since_ms)
        return await self._journal.call(
            lambda connection: [row[0] for row in connection.execute(_SQL["values"], bounds)]
        )

    async def split(self, parent: Account, child: Child, now_ms: int) -> Child | Refused:
        """See `BudgetStore.split`. Raises ValueError for an id in use, a limit below 1, or a unit not the parent's."""
        if child.limit < 1 or child.unit is not parent.unit:
            raise ValueError(f"a budget split off {parent.id} needs a limit of 1 or more, in {parent.unit}")
        opened = await self._journal.call(lambda connection: _split(connection, parent, child, now_ms))
        if opened is None:
            raise ValueError(f"the id {child.id} is in use: an id is for one budget only")
        return opened

    async def child(self, identifier: str) -> Child | None:
        return await self._journal.call(lambda connection: _find(connection, identifier))

    async def children(self) -> list[Child]:
        return await self._journal.call(
            lambda connection: [_child(row) for row in connection.execute(_SQL["all_open"])]
        )

    async def close(self, identifier: str, now_ms: int) -> Child | None:
        def step(connection: sqlite3.Connection) -> Child | None:
            for (below,) in connection.execute(_SQL["below"], (identifier,)).fetchall():
                _close_child(connection, below, now_ms)
            return _find(connection, identifier)

        return await self._journal.call(step)


def _recover(
    connection: sqlite3.Connection, lease: tuple[int, str], now_ms: int
) -> tuple[int, list[tuple[str, str, int]]]:
    connection.execute(_SQL["renew"], lease)
    connection.execute(_SQL["charge_dead"], (now_ms,))
    recovered = connection.execute(_SQL["recover"], (now_ms,)).rowcount
    _close_expired(connection, now_ms)
    unheld = connection.execute("SELECT request_id, account, charged FROM bookings WHERE state = 'lost'").fetchall()
    connection.execute("UPDATE bookings SET state = 'settled' WHERE state = 'lost'")
    return recovered, unheld


# Account balances


class AccountRow(Struct):
    account: Account
    spent: int
    held: int
    left: int

    def refusal(self, needed: int) -> Refused:
        return Refused(account=self.account, spent=self.spent, held=self.held, needed=needed)


def _balance_row(connection: sqlite3.Connection, account: Account, window_start_ms: int) -> AccountRow:
    """Returns the account's balance in a window; in a rolling window, open holds of any age count."""
    if account.since_ms == account.window_start_ms:
        row = connection.execute(_SQL["window"], (account.id, window_start_ms)).fetchone()
    else:
        row = connection.execute(_SQL["rolling"], (account.id, account.since_ms)).fetchone()
    spent, held = row or (0, 0)
    return AccountRow(account, spent, held, account.limit - spent - held)


def _is_closed(connection: sqlite3.Connection, account: Account, now_ms: int) -> bool:
    """Whether the account is a split-off budget that takes no new request: closed, expired or unknown."""
    return account.scope == SPLIT and connection.execute(_SQL["open_child"], (account.id, now_ms)).fetchone() is None


# Holds of requests

_NO_LIMIT = 2**100


def _reserve(
    connection: sqlite3.Connection, request_id: str, accounts: Sequence[Account], ask: HoldRequest, now_ms: int
) -> Reservation | Refused | None:
    """Reserves in all accounts; returns None if the request has bookings already."""
    if connection.execute(_SQL["known"], (request_id,)).fetchone() is not None:
        return None
    rows, usd, thinking = [], _NO_LIMIT, _NO_LIMIT
    short_targets, refused = set[str](), None
    for account in accounts:
        at = _balance_row(connection, account, account.window_start_ms)
        needed = ask.needed(account) if ask.spare else account.needs(ask.least)
        # A request that needs nothing is not refused, not even by an overdrawn account.
        is_short = account.hard and at.left < needed and needed > 0
        if (is_short and not account.targets) or _is_closed(connection, account, now_ms):
            return at.refusal(needed)
        if is_short:
            short_targets |= account.targets
            refused = at.refusal(needed) if refused is None or not refused.passing else refused
        rows.append((at, is_short))
        # The least that is left in the accounts that apply to every target.
        if account.hard and not account.size and not account.targets:
            usd = min(usd, at.left) if account.unit is Unit.USD else usd
            thinking = min(thinking, at.left) if account.unit is not Unit.USD else thinking
    if refused is not None and ask.targets and short_targets.issuperset(ask.targets):
        return refused
    granted = Amount(ask.granted(Unit.USD, usd), ask.granted(Unit.THINKING, thinking))
    holds, rates = [], []
    for at, is_short in rows:
        account = at.account
        if account.size:
            rates.append((account, at.left - account.size))
        if is_short:
            continue
        amount = account.needs(granted)
        if account.targets and account.hard:
            amount = max(0, min(amount, at.left))
        holds.append(account.hold(amount))
        connection.execute(_SQL["hold"], (request_id, account.id, account.window_start_ms, amount))
    connection.execute(_SQL["granted"], (granted.usd, granted.thinking, request_id))
    room = Amount(_remaining(usd, granted.usd), _remaining(thinking, granted.thinking))
    return Reservation(request_id, granted, tuple(holds), room, tuple(rates))


def _remaining(left: int, granted: int) -> int:
    return max(0, left - granted) if left < _NO_LIMIT else 0


def _extend(
    connection: sqlite3.Connection, reservation: Reservation, accounts: Mapping[str, Account], more: Amount, now_ms: int
) -> Reservation:
    """Grows the holds in `accounts` (by id); a request recovered or settled in the meantime is not extended."""
    if connection.execute(_SQL["open"], (reservation.request_id,)).fetchone() is None:
        return reservation
    holds = [hold for hold in reservation.holds if hold.account in accounts]
    lefts = []
    for hold in holds:
        account = accounts[hold.account]
        if account.hard:
            left = _balance_row(connection, account, hold.window_start_ms).left
            lefts.append((hold.unit, 0 if _is_closed(connection, account, now_ms) else left))
    extra = growth(more, lefts)
    for hold in holds:
        connection.execute(_SQL["extend"], (extra.of(hold.unit), reservation.request_id, hold.account))
    connection.execute(_SQL["granted_more"], (extra.usd, extra.thinking, reservation.request_id))
    return reservation.grown(extra, accounts)


# Split-off budgets (children)


def _split(connection: sqlite3.Connection, parent: Account, child: Child, now_ms: int) -> Child | Refused | None:
    """Opens a child and holds its limit in the parent; returns None if the id is in use."""
    if connection.execute(_SQL["known"], (child.id,)).fetchone() is not None:
        return None
    at = _balance_row(connection, parent, parent.window_start_ms)
    if at.left < child.limit or child.outlives(parent) or _is_closed(connection, parent, now_ms):
        return at.refusal(child.limit)
    replaces = msgspec.json.encode(child.replaces).decode()
    row = structs.asdict(child) | {"replaces": replaces, "unit": child.unit.value}
    connection.execute(_SQL["insert"], tuple(row.values()))
    connection.execute(_SQL["account"], (child.id,))
    connection.execute(_SQL["hold"], (child.id, parent.id, parent.window_start_ms, child.limit))
    return child


def _find(connection: sqlite3.Connection, identifier: str) -> Child | None:
    row = connection.execute(_SQL["child"], (identifier,)).fetchone()
    return None if row is None else _child(row)


def _close_expired(connection: sqlite3.Connection, now_ms: int) -> None:
    """Closes expired children that hold nothing, deepest first: a child's own open children are holds in it."""
    while expired := connection.execute(_SQL["expired"], (now_ms,)).fetchall():
        for (identifier,) in expired:
            _close_child(connection, identifier, now_ms)


def _close_child(connection: sqlite3.Connection, identifier: str, now_ms: int) -> None:
    connection.execute("UPDATE children SET closed_ms = ? WHERE id = ? AND closed_ms IS NULL", (now_ms, identifier))
    connection.execute(_SQL["follow"], (identifier,))


def _child(row: Sequence[object]) -> Child:
    values = dict(zip(Child.__struct_fields__, row, strict=True))
    return msgspec.convert(values | {"replaces": msgspec.json.decode(str(values["replaces"]))}, Child)
