"""The embedded store: budgets in the ledger's own SQLite file, in the same transactions as the rows of the requests.

Only `bookings` and `children` are written here; triggers keep `budget_windows` the sum of the bookings.
"""

import asyncio
import logging
import sqlite3
from collections.abc import Sequence
from contextlib import suppress

from router.budget.sqlite import children as split_off
from router.budget.sqlite import reserve as steps
from router.budget.sqlite.standing import standing
from router.types.account import Account, Amount, Ask, Balance, Child, Refused, Reservation
from router.types.journal import LocalJournal
from router.types.store import StoreUnavailable

_SETTLE = (
    "INSERT INTO bookings VALUES (?, ?, ?, ?, ?, 'lost') ON CONFLICT DO UPDATE"
    " SET charged = excluded.charged, state = 'settled' WHERE state IN ('held', 'recovered')"
)
# A lease that ends later than a new one would was made by a clock that has gone back since.
_RENEW = "UPDATE live_requests SET lease_until_ms = ?1 WHERE state = 'held' AND (owner = ?2 OR lease_until_ms > ?1)"
_CHARGE_DEAD = (
    "UPDATE bookings SET charged = held, state = 'recovered' WHERE state = 'held'"
    " AND request_id IN (SELECT id FROM live_requests WHERE state = 'held' AND lease_until_ms < ?)"
)
_RECOVER = (
    "UPDATE live_requests SET state = 'recovered', cost = held, thinking = held_thinking, error = 'crashed'"
    " WHERE state = 'held' AND lease_until_ms < ?"
)
_LOST = "SELECT request_id, account, charged FROM bookings WHERE state = 'lost'"
_REPORTED = "UPDATE bookings SET state = 'settled' WHERE state = 'lost'"
_VALUES = (
    "SELECT DISTINCT substr(budget, ?) FROM budget_windows WHERE budget >= ? AND budget < ?"
    " AND (window_start_ms >= ? OR held != 0)"
)
_log = logging.getLogger(__name__)


class SqliteBudgets:
    """The `BudgetStore` port over a `LocalJournal`.

    Leases are those of the ledger's rows: a request's row is born in the same commit as its hold, with the whole of
    its `Ask` as what it holds, and is corrected here when it is granted less, or more later.
    """

    def __init__(self, journal: LocalJournal, lease_ms: int) -> None:
        self._journal, self._lease_ms = journal, lease_ms

    @property
    def available(self) -> bool:
        return self._journal.available

    async def reserve(
        self, request_id: str, accounts: Sequence[Account], ask: Ask, now_ms: int
    ) -> Reservation | Refused:
        """Waits for nothing where no account binds. Raises ValueError for a request that has reserved before."""
        if not accounts:
            return Reservation(request_id, ask.whole)
        if len(accounts) > 1 and len({account.id for account in accounts}) < len(accounts):
            raise ValueError(f"request {request_id} would be charged to one account twice")
        step = self._journal.call(lambda connection: steps.reserve(connection, request_id, accounts, ask, now_ms))
        try:
            granted = await step
        except asyncio.CancelledError:
            self._give_back(step)
            raise
        if granted is None:
            raise ValueError(f"request {request_id} has reserved before: an id is for one request only")
        return granted

    def _give_back(self, step: "asyncio.Future[Reservation | Refused | None]") -> None:
        """The request was cancelled after its hold was made, and before it heard of it."""
        granted = None if step.cancelled() or step.exception() else step.result()
        if isinstance(granted, Reservation):
            self.settle(granted, [0] * len(granted.holds))

    async def extend(
        self, reservation: Reservation, accounts: Sequence[Account], more: Amount, now_ms: int
    ) -> Reservation:
        """`accounts`: those whose holds are to grow; nothing limits a reservation without holds."""
        bound = {account.id: account for account in accounts}
        if not any(hold.account in bound for hold in reservation.holds):
            return steps.grown(reservation, more, bound)
        return await self._journal.call(lambda connection: steps.extend(connection, reservation, bound, more, now_ms))

    def settle(self, reservation: Reservation, charges: Sequence[int]) -> None:
        """Raises ValueError where there are not as many charges as holds."""
        if len(charges) != len(reservation.holds):
            raise ValueError(f"request {reservation.request_id} needs {len(reservation.holds)} charges, one a hold")
        for hold, charge in zip(reservation.holds, charges, strict=True):
            row = (reservation.request_id, hold.account, hold.window_start_ms, hold.amount, charge)
            self._journal.change(_SETTLE, row)

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
        if self._journal.read(lambda connection: split_off.has_expired(connection, now_ms)):
            await self._journal.call(lambda connection: split_off.close_expired(connection, now_ms))

    async def balances(self, accounts: Sequence[Account]) -> list[Balance]:
        def step(connection: sqlite3.Connection) -> list[Balance]:
            found = [standing(connection, account, account.window_start_ms) for account in accounts]
            return [Balance(at.spent, at.held) for at in found]

        return await self._journal.call(step)

    async def values(self, budget: str, since_ms: int) -> list[str]:
        # "}" follows "|": these are the bounds of the ids that begin with "<budget>|".
        bounds = (len(budget) + 2, f"{budget}|", f"{budget}}}", since_ms)
        return await self._journal.call(lambda connection: [row[0] for row in connection.execute(_VALUES, bounds)])

    async def split(self, parent: Account, child: Child, now_ms: int) -> Child | Refused:
        """Raises ValueError for an id in use, a limit below 1, or a unit other than the parent's."""
        if child.limit < 1 or child.unit is not parent.unit:
            raise ValueError(f"a budget split off {parent.id} needs a limit of 1 or more, in {parent.unit}")
        opened = await self._journal.call(lambda connection: split_off.split(connection, parent, child, now_ms))
        if opened is None:
            raise ValueError(f"the id {child.id} is in use: an id is for one budget only")
        return opened

    async def child(self, identifier: str) -> Child | None:
        return await self._journal.call(lambda connection: split_off.find(connection, identifier))

    async def children(self) -> list[Child]:
        return await self._journal.call(split_off.still_open)

    async def close(self, identifier: str, now_ms: int) -> Child | None:
        return await self._journal.call(lambda connection: split_off.close(connection, identifier, now_ms))


def _recover(
    connection: sqlite3.Connection, lease: tuple[int, str], now_ms: int
) -> tuple[int, list[tuple[str, str, int]]]:
    connection.execute(_RENEW, lease)
    connection.execute(_CHARGE_DEAD, (now_ms,))
    recovered = connection.execute(_RECOVER, (now_ms,)).rowcount
    split_off.close_expired(connection, now_ms)
    lost = connection.execute(_LOST).fetchall()
    connection.execute(_REPORTED)
    return recovered, lost
