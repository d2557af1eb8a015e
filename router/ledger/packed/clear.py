"""Takes packed rows out of the tables that they were born in, few at a time: nobody waits for long."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from router.ledger.connection import Connection
from router.ledger.ledger import Ledger
from router.ledger.packed import block, stored
from router.ledger.packed.segment import INDEX, blocks

CHUNK = 64
"""Requests in a transaction: one or two ms in which no other process can commit, in SQLite."""
_REST = 3
"""For each second that others may have had to wait, how many follow in which they need not."""
_UNBOOKED = (
    "DELETE FROM bookings WHERE state = 'settled' AND request_id IN ({}) RETURNING account, window_start_ms, charged"
)
_BOOKED = (
    "INSERT INTO bookings VALUES (?, ?, ?, 0, ?, 'settled')"
    " ON CONFLICT (request_id, account) DO UPDATE SET charged = bookings.charged + excluded.charged"
)
_GONE = tuple(
    f"DELETE FROM {table} WHERE {column} IN ({{}})"  # noqa: S608 - names of ours
    for table, column in (("decisions", "id"), ("attempts", "request_id"), ("requests", "id"))
)
_CLEARED = "UPDATE segments SET cleared = 1 WHERE number = ?"


def clear(ledger: Ledger, segment: int) -> None:
    """Raises `LedgerUnavailable`; what is left is done next time."""
    with ledger.writing() as connection:
        index = stored.part(connection, segment, INDEX)
        for name in () if index is None else blocks(index):
            data = stored.part(connection, segment, name)
            ids, settled = ([], set()) if data is None else block.identifiers(data)
            for at in range(0, len(ids), CHUNK):
                _rested(connection, ids[at : at + CHUNK], settled)
        connection.execute(_CLEARED, (segment,))


def drop(connection: Connection, ids: Sequence[str], settled: set[str]) -> None:
    """All rows of these requests; bookings only of those that are `settled`."""
    with transaction(connection):
        _delete(connection, ids, settled)


@contextmanager
def transaction(connection: Connection) -> Iterator[None]:
    """All of it or nothing."""
    connection.execute("BEGIN")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        with suppress(Exception):
            connection.execute("ROLLBACK")
        raise


def _moved(connection: Connection, ids: Sequence[str], settled: set[str]) -> None:
    """The sums of the bookings stay, so windows of budgets stay as they are."""
    with transaction(connection):
        sums: dict[tuple[str, int], int] = {}
        for account, window, charged in _delete(connection, ids, settled):
            sums[account, window] = sums.get((account, window), 0) + charged
        for (account, window), charged in sorted(sums.items()):
            connection.execute(_BOOKED, (f"packed-{window}", account, window, charged))


def _rested(connection: Connection, ids: Sequence[str], settled: set[str]) -> None:
    began = time.perf_counter()
    _moved(connection, ids, settled)
    time.sleep(_REST * (time.perf_counter() - began))


def _delete(connection: Connection, ids: Sequence[str], settled: set[str]) -> list[tuple[str, int, int]]:
    """Returns what was booked: account, window, charge."""
    closed = [identifier for identifier in ids if identifier in settled]
    booked = connection.execute(_UNBOOKED.format(_places(closed)), tuple(closed)).fetchall() if closed else []
    for statement in _GONE:
        connection.execute(statement.format(_places(ids)), tuple(ids))
    return booked


def _places(ids: Sequence[str]) -> str:
    return ", ".join("?" * len(ids))
