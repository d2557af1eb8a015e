"""How an account stands in the embedded store at this moment of its transaction."""

import sqlite3

from msgspec import Struct

from router.types.account import Account, Amount, Refused

SPLIT = "split"
"""Scope of the accounts that are children (`Child.account`)."""

_WINDOW = "SELECT spent, held FROM budget_windows WHERE budget = ? AND window_start_ms = ?"
_ROLLING = (
    "SELECT (SELECT coalesce(sum(spent), 0) FROM budget_windows WHERE budget = ?1 AND window_start_ms >= ?2),"
    " (SELECT coalesce(sum(held), 0) FROM budget_windows WHERE budget = ?1 AND held != 0)"
)
_OPEN = "SELECT 1 FROM children WHERE id = ? AND closed_ms IS NULL AND (expires_at_ms IS NULL OR expires_at_ms > ?)"


class Standing(Struct):
    account: Account
    spent: int
    held: int
    left: int

    def short_of(self, least: Amount) -> bool:
        """Whoever needs nothing is not refused, not even by an account that is overdrawn."""
        needed = least.of(self.account.unit)
        return self.account.hard and needed > 0 and self.left < needed

    def refusal(self, needed: int) -> Refused:
        return Refused(account=self.account, spent=self.spent, held=self.held, needed=needed)


def standing(connection: sqlite3.Connection, account: Account, window_start_ms: int) -> Standing:
    """Windows of the calendar stand alone; in a rolling one an open hold counts, however long ago it was made."""
    if account.since_ms == account.window_start_ms:
        found = connection.execute(_WINDOW, (account.id, window_start_ms)).fetchone()
    else:
        found = connection.execute(_ROLLING, (account.id, account.since_ms)).fetchone()
    spent, held = found or (0, 0)
    return Standing(account, spent, held, account.limit - spent - held)


def shut(connection: sqlite3.Connection, account: Account, now_ms: int) -> bool:
    """A child that takes no new request: closed, expired or unknown."""
    return account.scope == SPLIT and connection.execute(_OPEN, (account.id, now_ms)).fetchone() is None
