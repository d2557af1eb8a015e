"""Requests with their decisions and nothing else, in stretches that several processes can share: quicker than whole
rows, for whoever looks at all of them."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from router.ledger.connection import Connection
from router.ledger.packed import block, stored
from router.ledger.packed.segment import INDEX, blocks
from router.types.journal import Value

COLUMNS = (
    *("id", "started_ms", "state", "endpoint", "requested", "route", "stream", "key_id", "session", "tags"),
    *("data_class", "status", "cost", "lowered", "task"),
)
FRESH = 16_384
"""Requests that are not packed yet, in one stretch."""
_CHUNK = 1_000
_BESIDE = "(SELECT COUNT(*) FROM attempts AS a WHERE a.request_id = r.id), d.document"
_ROWS = f"""
    SELECT {", ".join(f"r.{name}" for name in COLUMNS)}, {_BESIDE}
    FROM requests AS r LEFT JOIN decisions AS d ON d.id = r.id
    WHERE r.id > ? AND r.id >= ? AND (? = '' OR r.id < ?) ORDER BY r.id LIMIT {_CHUNK}
"""  # noqa: S608 - names of ours
_FIRSTS = f"""
    SELECT id FROM (SELECT id, ROW_NUMBER() OVER (ORDER BY id) AS place FROM requests WHERE id > ?) AS numbered
    WHERE place % {FRESH} = 1 ORDER BY id
"""  # noqa: S608 - a number of ours
_SEGMENTS = "last_id >= ? AND (? = '' OR first_id < ?)"


class Stretch(NamedTuple):
    """Of ids: `first` is included, `end` is not; empty: open."""

    first: str = ""
    end: str = ""


class Row(NamedTuple):
    """Columns of `requests`; how many attempts it has; its decision's document, None where there is none."""

    id: str
    started_ms: int
    state: str
    endpoint: str
    requested: str
    route: str
    stream: int
    key_id: str
    session: str
    tags: str
    data_class: str
    status: int | None
    cost: int | None
    lowered: str
    task: str
    attempts: int
    document: str | None


def stretches(connection: Connection, since_ms: int | None = None, until_ms: int | None = None) -> list[Stretch]:
    """All that may have requests of the window, in the order of ids. What is packed meanwhile stays in its stretch."""
    fresh = connection.execute(_FIRSTS, (stored.boundary(connection),)).fetchall()
    firsts = [*_packed(connection, since_ms, until_ms), *(str(identifier) for (identifier,) in fresh)]
    return [Stretch(*pair) for pair in pairwise([*firsts, ""])]


def decided(
    connection: Connection, stretch: Stretch, since_ms: int | None = None, until_ms: int | None = None
) -> Iterator[Row]:
    """Requests of the stretch that began in the window, whose end is not included. Read inside one transaction."""
    for row in _every(connection, stretch):
        if (since_ms is None or row.started_ms >= since_ms) and (until_ms is None or row.started_ms < until_ms):
            yield row


def expired(connection: Connection, since_ms: int | None = None, until_ms: int | None = None) -> int:
    """Requests whose rows are gone; of those beside the window as well, where they were packed with some of it."""
    return sum(one.requests for one in stored.within(connection, since_ms, until_ms) if one.expired_ms is not None)


def _every(connection: Connection, stretch: Stretch) -> Iterator[Row]:
    first, end = stretch
    for segment in stored.which(connection, _SEGMENTS, (first, end, end)):
        index = stored.part(connection, segment.number, INDEX)
        for name in () if index is None else blocks(index):
            data = stored.part(connection, segment.number, name)
            rows = [] if data is None else block.some(data, COLUMNS)
            yield from (row for row in map(_row, rows) if row.id >= first and (not end or row.id < end))
    beyond = stored.boundary(connection)
    while found := connection.execute(_ROWS, (beyond, first, end, end)).fetchall():
        yield from (Row(*row) for row in found)
        beyond = found[-1][0]


def _row(found: tuple[Sequence[Value], int, str | None]) -> Row:
    values, attempts, document = found
    return Row._make((*values, attempts, document))


def _packed(connection: Connection, since_ms: int | None, until_ms: int | None) -> Iterator[str]:
    """First ids of segments; of those with ids between each other's only one."""
    last = ""
    for segment in stored.within(connection, since_ms, until_ms):
        if not last or segment.first_id > last:
            yield segment.first_id
        last = max(last, segment.last_id)
