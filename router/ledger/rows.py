"""Whole requests out of the ledger: the request's own row, its attempts, what it booked, and its decision."""

from collections.abc import Iterator
from itertools import islice

from router.ledger.connection import Connection
from router.ledger.kept import Kept, Line
from router.ledger.packed import stored, unpack
from router.ledger.tables import read

__all__ = ["Kept", "Line", "every", "newest", "one"]
CHUNK = 1_000
"""Requests read at a time."""
_NEWEST = "SELECT id FROM requests WHERE id > ? ORDER BY id DESC LIMIT ?"


def one(connection: Connection, identifier: str) -> Kept | None:
    """None: there is no such request, or its rows have expired."""
    packed = unpack.one(connection, identifier)
    return packed or next(iter(read(connection, "id = ?", (identifier,), 1)), None)


def every(connection: Connection, since_ms: int | None = None, until_ms: int | None = None) -> Iterator[Kept]:
    """In the order of their ids, which is that of time: requests that began in the window; its end is not included.

    What came late is there once it is packed, what has expired is not. Read inside one transaction.
    """
    for kept in unpack.every(connection, since_ms, until_ms):
        if _within(kept, since_ms, until_ms):
            yield kept
    beyond = stored.boundary(connection)
    while found := read(connection, "id > ?", (beyond,), CHUNK):
        beyond = found[-1].id
        yield from (kept for kept in found if _within(kept, since_ms, until_ms))


def newest(connection: Connection, most: int) -> list[Kept]:
    """The last ids first."""
    ids = [identifier for (identifier,) in connection.execute(_NEWEST, (stored.boundary(connection), most))]
    fresh = read(connection, "id >= ?", (ids[-1],)) if ids else []
    return [*reversed(fresh), *islice(unpack.newest(connection), most - len(fresh))]


def _within(kept: Kept, since_ms: int | None, until_ms: int | None) -> bool:
    began = kept.started_ms
    return (since_ms is None or began >= since_ms) and (until_ms is None or began < until_ms)
