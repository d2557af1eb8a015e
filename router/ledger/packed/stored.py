"""Segments as the ledger has them."""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from router.ledger.connection import Connection

_COLUMNS = "number, first_id, last_id, first_ms, last_ms, requests, cleared, expired_ms"
_ALL = f"SELECT {_COLUMNS} FROM segments"  # noqa: S608 - names of ours
_PARTS = "SELECT segment, part, data FROM segment_parts WHERE segment IN ({}) AND part IN ({})"
_BOUNDARY = "SELECT COALESCE(MAX(last_id), '') FROM segments"
_TOGETHER = 1_000
"""Segments asked for at once: databases take so many parameters and no more."""


class Stored(Struct, frozen=True):
    """One row of `segments`. Ids and times of its requests, the last ones included."""

    number: int
    first_id: str
    last_id: str
    first_ms: int
    last_ms: int
    requests: int
    cleared: int
    expired_ms: int | None


def boundary(connection: Connection) -> str:
    """Requests up to this id are packed, or came late and will be."""
    return str(connection.execute(_BOUNDARY).fetchone()[0])


def within(connection: Connection, since_ms: int | None, until_ms: int | None) -> list[Stored]:
    """Those that have requests of the window, the oldest ids first; its end is not included."""
    text, values = _ALL, list[int]()
    for condition, value in (("last_ms >= ?", since_ms), ("first_ms < ?", until_ms)):
        if value is not None:
            text += f" {'AND' if values else 'WHERE'} {condition}"
            values.append(value)
    return _found(connection, f"{text} ORDER BY first_id", values)


def around(connection: Connection, first_id: str, last_id: str) -> list[Stored]:
    """Those that may have requests from one id to the other."""
    return _found(connection, f"{_ALL} WHERE last_id >= ? AND first_id <= ? ORDER BY first_id", (first_id, last_id))


def which(connection: Connection, condition: str, values: Sequence[str | int] = ()) -> list[Stored]:
    """The oldest first."""
    return _found(connection, f"{_ALL} WHERE {condition} ORDER BY number", values)


def uncleared(connection: Connection) -> list[Stored]:
    return which(connection, "cleared = 0")


def parts(connection: Connection, segments: Sequence[int], names: Sequence[str]) -> Iterator[tuple[int, str, bytes]]:
    """Number of the segment, name of the part, and what it holds; those that are not there are left out."""
    for at in range(0, len(segments), _TOGETHER):
        some = segments[at : at + _TOGETHER]
        places = [", ".join("?" * len(values)) for values in (some, names)]
        yield from connection.execute(_PARTS.format(*places), (*some, *names))


def part(connection: Connection, segment: int, name: str) -> bytes | None:
    return next((data for _, _, data in parts(connection, [segment], [name])), None)


def _found(connection: Connection, statement: str, values: Sequence[str | int]) -> list[Stored]:
    return [Stored(*row) for row in connection.execute(statement, values)]
