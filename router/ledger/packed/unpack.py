"""Whole requests out of segments."""

from collections.abc import Iterator
from heapq import merge

from msgspec import structs

from router.ledger.connection import Connection
from router.ledger.kept import Kept, Line
from router.ledger.packed import block, stored
from router.ledger.packed.segment import INDEX, TIMES, block_of, blocks, blocks_of
from router.ledger.packed.stored import Stored
from router.ledger.tables import booked
from router.types.journal import Value


def one(connection: Connection, identifier: str) -> Kept | None:
    for segment in stored.around(connection, identifier, identifier):
        index = stored.part(connection, segment.number, INDEX)
        data = None if index is None else stored.part(connection, segment.number, block_of(index, identifier))
        for kept in () if data is None else block.unpacked(data):
            if kept.id == identifier:
                return _booked_later(kept, booked(connection, identifier, identifier))
    return None


def every(connection: Connection, since_ms: int | None, until_ms: int | None) -> Iterator[Kept]:
    """By id; also some that are not of the window. Those that expired are not there."""
    for together in _overlapping(stored.within(connection, since_ms, until_ms)):
        yield from merge(*(rows(connection, segment) for segment in together), key=lambda kept: kept.id)


def newest(connection: Connection) -> Iterator[Kept]:
    """The last ids first."""
    for segment in reversed(stored.within(connection, None, None)):
        for name in reversed(_blocks(connection, segment)):
            yield from reversed(_rows(connection, segment, name))


def rows(connection: Connection, segment: Stored) -> Iterator[Kept]:
    for name in _blocks(connection, segment):
        yield from _rows(connection, segment, name)


def _blocks(connection: Connection, segment: Stored) -> list[str]:
    """None where they expired."""
    index = stored.part(connection, segment.number, INDEX)
    return [] if index is None else blocks(index)


def _rows(connection: Connection, segment: Stored, name: str) -> list[Kept]:
    data = stored.part(connection, segment.number, name)
    found = [] if data is None else block.unpacked(data)
    later = booked(connection, found[0].id, found[-1].id) if found else {}
    return [_booked_later(kept, later) for kept in found]


def decided(connection: Connection, segment: Stored, since_ms: int, until_ms: int) -> Iterator[Kept]:
    """Requests that began in the window, and their decisions: nothing else of them."""
    times = stored.part(connection, segment.number, TIMES)
    for name in () if times is None else blocks_of(times, since_ms, until_ms):
        data = stored.part(connection, segment.number, name)
        for kept in () if data is None else block.decided(data):
            if since_ms <= kept.started_ms < until_ms:
                yield kept


def _overlapping(segments: list[Stored]) -> Iterator[list[Stored]]:
    """Neighbours that have ids between each other's: some of their requests came late."""
    together: list[Stored] = []
    for segment in segments:
        if together and segment.first_id > max(one.last_id for one in together):
            yield together
            together = []
        together.append(segment)
    if together:
        yield together


def _booked_later(kept: Kept, later: dict[Value, list[Line]]) -> Kept:
    """What was not settled when it was packed stayed in its table."""
    if kept.id not in later:
        return kept
    bookings = {line["account"]: line for line in (*kept.bookings, *later[kept.id])}
    return structs.replace(kept, bookings=tuple(bookings[account] for account in sorted(bookings, key=str)))
