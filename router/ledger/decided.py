"""Requests with their decisions and nothing else, in stretches that several processes can share: quicker than whole
rows, for those who look at all of them."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

from router.ledger.connection import Connection
from router.ledger.documents import Documents
from router.ledger.rows import EVER_MS, NOT_MOVED

LENGTH = 16_384
"""Requests in a stretch."""
_CHUNK = 1_000
_COLUMNS = (
    *("id", "started_ms", "state", "endpoint", "requested", "route", "stream", "key_id", "session", "tags"),
    *("data_class", "status", "cost", "lowered", "task"),
)
_ROWS = f"""
    SELECT {{}}, {", ".join(f"r.{name}" for name in _COLUMNS)},
        (SELECT COUNT(*) FROM {{}} AS a WHERE a.request_id = r.id), {{}}, d.document
    FROM {{}} AS r LEFT JOIN {{}} AS d ON d.id = r.id WHERE {{}} ORDER BY 1 LIMIT {_CHUNK}
"""  # noqa: S608 - names of ours
_PAST = _ROWS.format(
    *("r.position", "past_attempts", "d.dictionary", "past_requests_named", "past_decisions"),
    "r.position > ? AND (? = 0 OR r.position <= ?)",
)
_LIVE = _ROWS.format("r.id", "live_attempts", "NULL", "live_requests", "live_decisions", "r.id > ? AND " + NOT_MOVED)
_POSITIONS = "SELECT MIN(position), MAX(position) FROM past_requests WHERE started_ms >= ? AND started_ms < ?"


class Stretch(NamedTuple):
    """Of positions: `first` is not included, `last` is; 0: open, so that what is not of the past yet belongs to it."""

    first: int = 0
    last: int = 0


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
    """All that may have requests of the window. What moves to the past meanwhile stays in its stretch, the last one."""
    window = (since_ms or 0, EVER_MS if until_ms is None else until_ms)
    first, last = connection.execute(_POSITIONS, window).fetchone()
    edges = range(first - 1, last, LENGTH) if first else ()
    return [Stretch(*pair) for pair in pairwise((*edges, last or 0))] + [Stretch(last or 0)]


def decided(
    connection: Connection, stretch: Stretch, since_ms: int | None = None, until_ms: int | None = None
) -> Iterator[Row]:
    """Requests of the stretch that began in the window, whose end is not included. Read inside one transaction."""
    documents = Documents(connection)
    for *values, dictionary, document in _every(connection, stretch):
        text = document if dictionary is None else documents.restored(dictionary, document)
        row = Row._make((*values, text))
        if (since_ms is None or row.started_ms >= since_ms) and (until_ms is None or row.started_ms < until_ms):
            yield row


def _every(connection: Connection, stretch: Stretch) -> Iterator[list[Any]]:
    beyond: int | str = stretch.first
    while found := connection.execute(_PAST, (beyond, stretch.last, stretch.last)).fetchall():
        beyond = found[-1][0]
        yield from (row[1:] for row in found)
    beyond = ""
    while not stretch.last and (found := connection.execute(_LIVE, (beyond,)).fetchall()):
        beyond = found[-1][0]
        yield from (row[1:] for row in found)
