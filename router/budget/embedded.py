"""Budgets in the ledger's own SQLite file: check and hold are one step of one transaction."""

import asyncio
import sqlite3
from collections.abc import Sequence

from router.budget.budget import Budget, window_bounds
from router.types.journal import LocalJournal
from router.types.reservation import Refused, Reservation

_LEFT = "SELECT spent, held FROM budget_windows WHERE budget = ? AND window_start_ms = ?"
_HOLD = (
    "INSERT INTO budget_windows VALUES (?, ?, 0, ?)"
    " ON CONFLICT (budget, window_start_ms) DO UPDATE SET held = held + excluded.held"
)
_KEEP = "INSERT INTO holds VALUES (?, ?, ?, ?)"
# Both statements act only while the hold is there, so a second settlement of the same request changes nothing.
_SETTLE = (
    "UPDATE budget_windows SET spent = spent + ?, held = held - (SELECT amount FROM holds WHERE request_id = ? AND"
    " holds.budget = budget_windows.budget) WHERE budget = ? AND window_start_ms = ?"
    " AND EXISTS (SELECT 1 FROM holds WHERE request_id = ? AND holds.budget = budget_windows.budget)"
)
_DROP = "DELETE FROM holds WHERE request_id = ? AND budget = ?"
_GRANTED = "UPDATE requests SET held = ? WHERE id = ?"
_EXPIRED_HOLDS = (
    "SELECT request_id, budget, window_start_ms, amount FROM holds JOIN requests ON requests.id = request_id"
    " WHERE state = 'held' AND lease_until_ms < ?"
)
_RECOVER = (
    "UPDATE requests SET state = 'recovered', cost = held, error = 'crashed'"
    " WHERE state = 'held' AND lease_until_ms < ?"
)


class EmbeddedBudgets:
    """Reserve and settle over a `Journal`. All amounts are nano-USD."""

    def __init__(self, journal: LocalJournal) -> None:
        self._journal = journal

    async def reserve(
        self, request_id: str, budgets: Sequence[Budget], wanted: int, least: int, now_ms: int
    ) -> Reservation | Refused:
        """Holds `wanted` in every budget, or what all still have if that is at least `least`; durable on return.

        Where no budget binds, nothing is held, and nothing is waited for.
        """
        if not budgets:
            return Reservation(request_id, wanted, ())

        def step(connection: sqlite3.Connection) -> Reservation | Refused:
            return _reserve(connection, request_id, budgets, wanted, least, now_ms)

        granting = self._journal.call(step)
        try:
            return await granting
        except asyncio.CancelledError:
            granted = None if granting.cancelled() or granting.exception() else granting.result()
            if isinstance(granted, Reservation):
                self.settle(granted, 0)
            raise

    def settle(self, reservation: Reservation, cost: int) -> None:
        """Books `cost` and gives the rest of the hold back; a cost above the hold is booked in full."""
        for budget, window in reservation.windows:
            request_id = reservation.request_id
            self._journal.change(_SETTLE, (cost, request_id, budget, window, request_id))
            self._journal.change(_DROP, (request_id, budget))

    async def recover(self, now_ms: int) -> int:
        """Charges every hold whose lease has run out: its process died, what it spent can't be known. Returns rows."""
        return await self._journal.call(lambda connection: _recover(connection, now_ms))


def _reserve(
    connection: sqlite3.Connection, request_id: str, budgets: Sequence[Budget], wanted: int, least: int, now_ms: int
) -> Reservation | Refused:
    amount, windows = wanted, []
    for budget in budgets:
        start, resets_at = window_bounds(budget.window_name, now_ms)
        spent, held = connection.execute(_LEFT, (budget.id, start)).fetchone() or (0, 0)
        left = budget.limit - spent - held
        if left < least:
            return Refused(budget.id, budget.window_name, budget.limit, spent, held, resets_at)
        amount = min(amount, left)
        windows.append((budget.id, start))
    if amount < wanted:
        connection.execute(_GRANTED, (amount, request_id))
    for name, start in windows:
        connection.execute(_HOLD, (name, start, amount))
        connection.execute(_KEEP, (request_id, name, start, amount))
    return Reservation(request_id, amount, tuple(windows))


def _recover(connection: sqlite3.Connection, now_ms: int) -> int:
    for request_id, budget, window, amount in connection.execute(_EXPIRED_HOLDS, (now_ms,)).fetchall():
        connection.execute(_SETTLE, (amount, request_id, budget, window, request_id))
        connection.execute(_DROP, (request_id, budget))
    return connection.execute(_RECOVER, (now_ms,)).rowcount
