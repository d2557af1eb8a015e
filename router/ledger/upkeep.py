"""Periodic maintenance of a ledger, and the process that does it."""

import os
import sys
import threading
import time

from router.ledger.facts import GROUPINGS
from router.ledger.ledger import Ledger, SqliteLedger, ledger_at
from router.ledger.past import due, expire, expiring, move, seal, unseal, unsealed
from router.ledger.rollups import behind, roll_up
from router.ledger.rows import transaction
from router.settings import SettingError, read
from router.types.account import LedgerUnavailable
from router.types.clock import now_ms as clock
from router.types.request import DAY_MS

EVERY_S = 5.0
"""Interval in seconds between runs of maintenance."""
IDLE_S = 60.0
"""Time in seconds without work after which the process ends."""
MONTH_MS = 32 * DAY_MS
_OF_LEDGERS = ("live_attempts", "past_attempts", "live_decisions", "past_decisions", "outcomes")
"""Tables that have rows only in a ledger, not in a file that has just the budgets."""


def upkeep(ledger: Ledger, now_ms: int, keep_ms: int | None, *, all_of_them: bool = False) -> tuple[int, int]:
    """Moves settled requests into compact rows, sums them, and drops rows older than `keep_ms`; None keeps them.

    Returns the numbers of requests moved and dropped. `all_of_them`: moves even a few requests at once. Raises
    `LedgerUnavailable`; the next call continues from there.
    """
    moved, some = 0, 1
    while some:
        some = move(ledger, now_ms, all_of_them=all_of_them)
        moved += some
        while roll_up(ledger):
            pass
    seal_all(ledger, prune=moved > 0)
    if keep_ms is None:
        return moved, 0
    with ledger.reading() as connection:
        position = expiring(connection, now_ms, keep_ms)
    while position and roll_up(ledger, position):
        pass
    return moved, expire(ledger, now_ms, keep_ms, [grouping.name for grouping in GROUPINGS])


def seal_all(ledger: Ledger, *, prune: bool = False) -> None:
    """Seals rows that have no seal yet, and drops the seals of moved requests if there were such rows or `prune` is
    set. Raises `LedgerUnavailable`."""
    with ledger.reading() as connection:
        prune = unsealed(connection) or prune
    if prune:
        with ledger.writing() as connection, transaction(connection):
            seal(connection)
            unseal(connection)


def needed(ledger: Ledger, now_ms: int, keep_ms: int | None) -> bool:
    """Whether maintenance has anything to do; reads a few rows. Raises `LedgerUnavailable`."""
    with ledger.reading() as connection:
        old = keep_ms is not None and expiring(connection, now_ms, keep_ms) > 0
        return old or behind(connection) or unsealed(connection) or bool(due(connection, now_ms))


def main() -> None:
    """Runs the maintenance process until it is idle, or until standard input ends, which means its parent has ended."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        settings = read(os.environ)
        ledger = ledger_at(settings.sqlite, settings.database_url)
        worked = time.monotonic()
        while time.monotonic() - worked < IDLE_S:
            if any(upkeep(ledger, clock(), settings.keep_rows_ms)):
                worked = time.monotonic()
            if settings.database_url is not None and settings.redis_url is None:
                # The local budgets' rows are kept for a month, for budgets that get another window. A file that was a
                # ledger before keeps all of its rows.
                local = SqliteLedger(settings.sqlite)
                with local.reading() as connection:
                    some = (f"SELECT 1 FROM {table} LIMIT 1" for table in _OF_LEDGERS)  # noqa: S608 - names of ours
                    ledgers = any(connection.execute(sql).fetchone() for sql in some)
                upkeep(local, clock(), None if ledgers else min(settings.keep_rows_ms or MONTH_MS, MONTH_MS))
            time.sleep(EVERY_S)
    except (LedgerUnavailable, SettingError) as error:
        sys.exit(str(error))


def _end_with_parent() -> None:
    """Exits at the end of standard input; unbuffered, since the buffer's lock would block an orderly exit."""
    while os.read(0, 1):
        pass
    os._exit(1)


if __name__ == "__main__":
    main()
