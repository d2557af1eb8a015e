"""Which alerts were told: an alert belongs to whoever inserts its row first, of all gateways and restarts."""

import sqlite3
from collections.abc import Sequence

from router.ledger.ledger import Ledger
from router.types.journal import LedgerUnavailable

_CLAIM = "INSERT INTO alerts (account, window_start_ms, share) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"


def claim(ledger: Ledger, account: str, window_start_ms: int, shares: Sequence[int]) -> list[int]:
    """The shares (in ten-thousandths) that nobody claimed before. Waits for locks: call it in a thread.

    All of them in one transaction. Raises `LedgerUnavailable`: then none is claimed.
    """
    try:
        with ledger.writing() as connection:
            connection.execute("BEGIN")
            rows = [(account, window_start_ms, share) for share in shares]
            claimed = [row[2] for row in rows if connection.execute(_CLAIM, row).rowcount == 1]
            connection.execute("COMMIT")
            return claimed
    except sqlite3.Error as error:
        raise LedgerUnavailable(str(error)) from None
