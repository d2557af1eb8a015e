"""The process that packs the ledger: started when there is something to pack, gone when it is done."""

import os
import sys
import threading

from router.ledger.ledger import SqliteLedger, ledger_at
from router.ledger.packed.upkeep import upkeep
from router.settings import SettingError, read
from router.types.clock import now_ms
from router.types.journal import LedgerUnavailable

NICE = 10
"""Requests come first."""


def main() -> None:
    """Ends when standard input does: then its parent has ended. Whatever it is doing, another one goes on with it."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.nice(NICE)
    try:
        settings = read(os.environ)
        upkeep(ledger_at(settings.sqlite, settings.database_url), now_ms(), settings.keep_rows_ms)
        if settings.database_url is not None and settings.redis_url is None:
            # The budgets of this machine: the ledger is elsewhere, of their own rows only the sums are of use.
            upkeep(SqliteLedger(settings.sqlite), now_ms(), 0)
    except (LedgerUnavailable, SettingError) as error:
        sys.exit(str(error))


def _end_with_parent() -> None:
    """Reads past Python's own buffer, whose lock would be in the way of an orderly end."""
    while os.read(0, 1):
        pass
    os._exit(1)


if __name__ == "__main__":
    main()
