"""Batches of rows of the past, each with a digest over its rows and the digest before: what is changed, taken out or
put in afterwards shows (`lowpass ledger verify`)."""

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from router.ledger.connection import PARAMETERS, Connection, Rows, places

_SIZE = 16
_LAST = "SELECT last, digest FROM chain ORDER BY last DESC LIMIT 1"
_ADD = "INSERT INTO chain (last, first, digest, complete) VALUES (?, ?, ?, 1)"
_BATCHES = "SELECT first, last, digest, complete FROM chain WHERE last > ? ORDER BY last LIMIT ?"
_REQUESTS = "SELECT * FROM past_requests WHERE position >= ? AND position <= ? ORDER BY position"
_ATTEMPTS = "SELECT * FROM past_attempts WHERE request_id IN ({}) ORDER BY request_id, number"
_BOOKINGS = "SELECT * FROM past_bookings WHERE request_id IN ({}) ORDER BY request_id, account"
_NAMES = "SELECT id, name FROM names WHERE id IN ({}) ORDER BY id"
_DROPPED = "UPDATE chain SET complete = 0 WHERE last >= ? AND first <= ?"
_ALONE = "SELECT position FROM past_requests WHERE position > ? AND position < ? LIMIT 1"
_PAGE = 1_000
NAMED_OF_REQUESTS = frozenset(
    {
        *("state", "owner", "endpoint", "requested", "route", "key_id", "tags", "data_class", "classes", "policy"),
        *("task", "target", "model", "error", "lowered", "app", "template"),
    }
)
NAMED_OF_ATTEMPTS = frozenset(
    {
        *("target", "model", "provider", "model_served", "outcome", "finish_reason", "thinking", "usage_source"),
        *("reasoning_source", "service_tier", "region", "region_source", "cost_source", "price_version", "classes"),
        "role",
    }
)
"""Columns whose texts are numbers of `names` in narrow rows."""


class Broken(Struct, frozen=True):
    """Rows that are not those that were written: positions in `past_requests`."""

    first: int
    last: int
    says: str


def add(connection: Connection, first: int, last: int) -> None:
    """A batch that was written just now, in the transaction that wrote it."""
    before = connection.execute(_LAST).fetchone()
    digest = _digest(connection, first, last, "" if before is None else str(before[1]))
    connection.execute(_ADD, (last, first, digest))


def dropped(connection: Connection, positions: Sequence[int]) -> None:
    """Rows have expired: the rest of their batches can't be told from what was written any more."""
    connection.execute(_DROPPED, (min(positions), max(positions)))


def head(connection: Connection) -> str:
    """The newest digest, which all rows of the past are in; empty: there is none. Who notes it elsewhere can tell later
    whether the chain itself was written anew."""
    row = connection.execute(_LAST).fetchone()
    return "" if row is None else str(row[1])


def broken(connection: Connection) -> Iterator[Broken]:
    """Inside one transaction."""
    before, end = "", 0
    last = 0
    while batches := connection.execute(_BATCHES, (last, _PAGE)).fetchall():
        for first, last, digest, complete in batches:
            if end and first != end + 1:
                yield Broken(end + 1, first - 1, "the chain has no batch of them")
            if complete and _digest(connection, first, last, before) != digest:
                yield Broken(first, last, "a row, attempt, booking or name is not what was written, or is gone")
            before, end = digest, last
    if end and (row := connection.execute(_ALONE, (end, 2**62)).fetchone()):
        yield Broken(row[0], row[0], "it stands beyond the end of the chain")


def _digest(connection: Connection, first: int, last: int, before: str) -> str:
    rows = _lines(connection.execute(_REQUESTS, (first, last)))
    identifiers = [str(row["id"]) for row in rows]
    attempts, bookings = (
        _lines(connection.execute(statement.format(places(identifiers)), identifiers))
        for statement in (_ATTEMPTS, _BOOKINGS)
    )
    named = ((rows, NAMED_OF_REQUESTS), (attempts, NAMED_OF_ATTEMPTS), (bookings, ("account",)))
    used = sorted({line[name] for lines, names in named for line in lines for name in names if name in line})
    content: list[Any] = [before, first, last, rows, attempts, bookings]
    for at in range(0, len(used), PARAMETERS):
        some = used[at : at + PARAMETERS]
        content.append(connection.execute(_NAMES.format(places(some)), some).fetchall())
    return hashlib.blake2b(msgspec.json.encode(content, order="sorted"), digest_size=_SIZE).hexdigest()


def _lines(rows: Rows) -> list[dict[str, Any]]:
    """By column, without what is NULL: so a column that is added later changes no digest."""
    names = [column for column, *_ in rows.description]
    return [{name: value for name, value in zip(names, row, strict=True) if value is not None} for row in rows]
