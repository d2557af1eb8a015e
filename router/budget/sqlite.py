"""The embedded store: budgets in the ledger's own SQLite file, in the same transactions as the rows of the requests.

Only `bookings` and `children` are written here; triggers keep `budget_windows` the sum of the bookings, and a child's
row in its parent's account follows the child. The steps share a transaction with others, so none of them may raise.
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
    """The `BudgetStore` port over a `LocalJournal`.

    Leases are those of the ledger's rows: a request's row is born in the same commit as its hold, without one, and says
    here what was granted.
    """

    def __init__(self, journal: LocalJournal, lease_ms: int, rows: Journal | None = None) -> None:
        """`rows`: writes the rows of requests to another ledger too, so that both are charged alike after a crash."""
        self._journal, self._lease_ms, self._rows = journal, lease_ms, None if rows is journal else rows

    @property
    def available(self) -> bool:
        return self._journal.available

    async def reserve(
        self, request_id: str, accounts: Sequence[Account], ask: HoldRequest, now_ms: int
    ) -> Reservation | Refused:
        """Waits for nothing where no account binds. Raises ValueError for a request that has reserved before."""
        if not accounts:
            return Reservation(request_id, ask.whole)
        if len(accounts) > 1 and len({account.id for account in accounts}) < len(accounts):
            raise ValueError(f"request {request_id} would be charged to one account twice")
        step = self._journal.call(lambda connection: _reserve(connection, request_id, accounts, ask, now_ms))
        try:
            granted = await asyncio.shield(step)
        except asyncio.CancelledError:  # its hold may be made already, or still be
            step.add_done_callback(self._give_back)
            raise
        if granted is None:
            raise ValueError(f"request {request_id} has reserved before: an id is for one request only")
        if self._rows is not None and isinstance(granted, Reservation):
            self._rows.change(_SQL["granted"], (granted.granted.usd, granted.granted.thinking, request_id))
        return granted

    def _give_back(self, step: "asyncio.Future[Reservation | Refused | None]") -> None:
        if step.exception() is None and isinstance(made := step.result(), Reservation):
            self.settle(made, [0] * len(made.holds))

    async def extend(
        self, reservation: Reservation, accounts: Sequence[Account], more: Amount, now_ms: int
    ) -> Reservation:
        """`accounts`: those whose holds are to grow; nothing limits a reservation without holds."""
        bound = {account.id: account for account in accounts}
        if not any(hold.account in bound for hold in reservation.holds):
            return reservation.grown(more, bound)
        grown = await self._journal.call(lambda connection: _extend(connection, reservation, bound, more, now_ms))
        if self._rows is not None:
            self._rows.change(_SQL["granted"], (grown.granted.usd, grown.granted.thinking, grown.request_id))
        return grown

    def settle(self, reservation: Reservation, charges: Sequence[int]) -> None:
        """Raises ValueError where there are not as many charges as holds."""
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
        count, lost = await self._journal.call(lambda connection: _recover(connection, lease, now_ms))
        for request_id, account, charged in lost:
            _log.error("request %s was charged %d in %s, where it held nothing", request_id, charged, account)
        return count

    async def expire(self, now_ms: int) -> None:
        if self._journal.read(lambda connection: connection.execute(_SQL["expired"], (now_ms,)).fetchone() is not None):
            await self._journal.call(lambda connection: _close_expired(connection, now_ms))

    async def balances(self, accounts: Sequence[Account]) -> list[Balance]:
        def step(connection: sqlite3.Connection) -> list[Balance]:
            standings = [_standing(connection, account, account.window_start_ms) for account in accounts]
            return [Balance(at.spent, at.held) for at in standings]

        return await self._journal.call(step)

    async def values(self, budget: str, since_ms: int) -> list[str]:
        # "}" follows "|": these are the bounds of the ids that begin with "<budget>|".
        bounds = (len(budget) + 2, f"{budget}|", f"{budget}}}", since_ms)
        return await self._journal.call(
            lambda connection: [row[0] for row in connection.execute(_SQL["values"], bounds)]
        )

    async def split(self, parent: Account, child: Child, now_ms: int) -> Child | Refused:
        """Raises ValueError for an id in use, a limit below 1, or a unit other than the parent's."""
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
                _end(connection, below, now_ms)
            return _find(connection, identifier)

        return await self._journal.call(step)


def _recover(
    connection: sqlite3.Connection, lease: tuple[int, str], now_ms: int
) -> tuple[int, list[tuple[str, str, int]]]:
    connection.execute(_SQL["renew"], lease)
    connection.execute(_SQL["charge_dead"], (now_ms,))
    recovered = connection.execute(_SQL["recover"], (now_ms,)).rowcount
    _close_expired(connection, now_ms)
    lost = connection.execute("SELECT request_id, account, charged FROM bookings WHERE state = 'lost'").fetchall()
    connection.execute("UPDATE bookings SET state = 'settled' WHERE state = 'lost'")
    return recovered, lost


# How an account stands


class AccountRow(Struct):
    account: Account
    spent: int
    held: int
    left: int

    def refusal(self, needed: int) -> Refused:
        return Refused(account=self.account, spent=self.spent, held=self.held, needed=needed)


def _standing(connection: sqlite3.Connection, account: Account, window_start_ms: int) -> AccountRow:
    """Windows of the calendar stand alone; in a rolling one an open hold counts, however long ago it was made."""
    if account.since_ms == account.window_start_ms:
        row = connection.execute(_SQL["window"], (account.id, window_start_ms)).fetchone()
    else:
        row = connection.execute(_SQL["rolling"], (account.id, account.since_ms)).fetchone()
    spent, held = row or (0, 0)
    return AccountRow(account, spent, held, account.limit - spent - held)


def _shut(connection: sqlite3.Connection, account: Account, now_ms: int) -> bool:
    """It was split off, and takes no new request: closed, expired or unknown."""
    return account.scope == SPLIT and connection.execute(_SQL["open_child"], (account.id, now_ms)).fetchone() is None


# What a request gets

_NO_LIMIT = 2**100


def _reserve(
    connection: sqlite3.Connection, request_id: str, accounts: Sequence[Account], ask: HoldRequest, now_ms: int
) -> Reservation | Refused | None:
    """None: something was booked for this request before."""
    if connection.execute(_SQL["known"], (request_id,)).fetchone() is not None:
        return None
    standings, usd, thinking = [], _NO_LIMIT, _NO_LIMIT
    for account in accounts:
        at, needed = _standing(connection, account, account.window_start_ms), account.needs(ask.least)
        # A request that needs nothing is not refused, not even by an account that is overdrawn.
        short = account.hard and at.left < needed and needed > 0
        if (short and not account.targets) or _shut(connection, account, now_ms):
            return at.refusal(needed)
        standings.append((at, short))
        # What the accounts that bind every target have left.
        if account.hard and not account.size and not account.targets:
            usd = min(usd, at.left) if account.unit is Unit.USD else usd
            thinking = min(thinking, at.left) if account.unit is not Unit.USD else thinking
    granted = Amount(ask.granted(Unit.USD, usd), ask.granted(Unit.THINKING, thinking))
    holds, rates = [], []
    for at, short in standings:
        account = at.account
        if account.size:
            rates.append((account, at.left - account.size))
        if short:
            continue
        amount = account.needs(granted)
        if account.targets and account.hard:
            amount = max(0, min(amount, at.left))
        holds.append(account.hold(amount))
        connection.execute(_SQL["hold"], (request_id, account.id, account.window_start_ms, amount))
    connection.execute(_SQL["granted"], (granted.usd, granted.thinking, request_id))
    room = Amount(_rest(usd, granted.usd), _rest(thinking, granted.thinking))
    return Reservation(request_id, granted, tuple(holds), room, tuple(rates))


def _rest(left: int, granted: int) -> int:
    return max(0, left - granted) if left < _NO_LIMIT else 0


def _extend(
    connection: sqlite3.Connection, reservation: Reservation, accounts: Mapping[str, Account], more: Amount, now_ms: int
) -> Reservation:
    """`accounts`, by id: those whose holds grow. A request recovered or settled in the meantime gets nothing."""
    if connection.execute(_SQL["open"], (reservation.request_id,)).fetchone() is None:
        return reservation
    holds = [hold for hold in reservation.holds if hold.account in accounts]
    lefts = []
    for hold in holds:
        account = accounts[hold.account]
        if account.hard:
            left = _standing(connection, account, hold.window_start_ms).left
            lefts.append((hold.unit, 0 if _shut(connection, account, now_ms) else left))
    extra = growth(more, lefts)
    for hold in holds:
        connection.execute(_SQL["extend"], (extra.of(hold.unit), reservation.request_id, hold.account))
    connection.execute(_SQL["granted_more"], (extra.usd, extra.thinking, reservation.request_id))
    return reservation.grown(extra, accounts)


# Budgets split off


def _split(connection: sqlite3.Connection, parent: Account, child: Child, now_ms: int) -> Child | Refused | None:
    """None: something has this id."""
    if connection.execute(_SQL["known"], (child.id,)).fetchone() is not None:
        return None
    at = _standing(connection, parent, parent.window_start_ms)
    if at.left < child.limit or child.outlives(parent) or _shut(connection, parent, now_ms):
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
    """Deepest first: a child that has an open one of its own holds something."""
    while expired := connection.execute(_SQL["expired"], (now_ms,)).fetchall():
        for (identifier,) in expired:
            _end(connection, identifier, now_ms)


def _end(connection: sqlite3.Connection, identifier: str, now_ms: int) -> None:
    connection.execute("UPDATE children SET closed_ms = ? WHERE id = ? AND closed_ms IS NULL", (now_ms, identifier))
    connection.execute(_SQL["follow"], (identifier,))


def _child(row: Sequence[object]) -> Child:
    values = dict(zip(Child.__struct_fields__, row, strict=True))
    return msgspec.convert(values | {"replaces": msgspec.json.decode(str(values["replaces"]))}, Child)
