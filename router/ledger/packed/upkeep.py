"""All that a ledger needs done now and then; and whether anything is to be done."""

from router.ledger.ledger import Ledger
from router.ledger.packed import expire, pack


def upkeep(ledger: Ledger, now_ms: int, keep_ms: int | None) -> tuple[int, int]:
    """Packs whatever is old enough, and drops rows older than `keep_ms`; None keeps them.

    Returns how many requests were packed, and the rows of how many segments expired. Raises `LedgerUnavailable`: what
    is done by then is done, the next call goes on.
    """
    packed = 0
    while some := pack.pack(ledger, now_ms):
        packed += some
    return packed, 0 if keep_ms is None else expire.expire(ledger, now_ms, keep_ms)


def needed(ledger: Ledger, now_ms: int, keep_ms: int | None) -> bool:
    """Reads a few rows; raises `LedgerUnavailable`."""
    with ledger.reading() as connection:
        connection.execute("BEGIN")
        return pack.needed(connection, now_ms) or (keep_ms is not None and expire.needed(connection, now_ms - keep_ms))
