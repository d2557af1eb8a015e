"""Whole requests out of the ledger: the request's own row, its attempts, what it booked, and its decision."""

from collections.abc import Iterator, Mapping

from msgspec import Struct

from router.ledger.connection import Connection
from router.types.journal import Value

Line = Mapping[str, Value]
"""Column → value."""
CHUNK = 1_000
"""Requests read at a time."""


class Kept(Struct, frozen=True):
    """`attempts` by number, `bookings` by account; `decision` is None where there is none."""

    request: Line
    attempts: tuple[Line, ...]
    bookings: tuple[Line, ...]
    decision: Line | None

    @property
    def id(self) -> str:
        return str(self.request["id"])


def one(connection: Connection, identifier: str) -> Kept | None:
    found = _fresh(connection, "id = ?", (identifier,))
    return found[0] if found else None


def every(connection: Connection, since_ms: int | None = None, until_ms: int | None = None) -> Iterator[Kept]:
    """In the order of their ids, which is that of time: requests that began in the window; its end is not included."""
    beyond = ""
    while found := _fresh(connection, "id > ?", (beyond,)):
        beyond = found[-1].id
        yield from (kept for kept in found if _within(kept, since_ms, until_ms))


def _within(kept: Kept, since_ms: int | None, until_ms: int | None) -> bool:
    began = kept.request["started_ms"]
    assert isinstance(began, int)  # noqa: S101
    return (since_ms is None or began >= since_ms) and (until_ms is None or began < until_ms)


def _fresh(connection: Connection, which: str, values: tuple[Value, ...]) -> list[Kept]:
    requests = _lines(
        connection,
        f"SELECT * FROM requests WHERE {which} ORDER BY id LIMIT {CHUNK}",
        values,  # noqa: S608 - constants
    )
    if not requests:
        return []
    span = (requests[0]["id"], requests[-1]["id"])
    attempts = _by(_lines(connection, _ATTEMPTS, span), "request_id")
    bookings = _by(_lines(connection, _BOOKINGS, span), "request_id")
    decisions = _by(_lines(connection, _DECISIONS, span), "id")
    return [
        Kept(
            request,
            tuple(attempts.get(request["id"], ())),
            tuple(bookings.get(request["id"], ())),
            next(iter(decisions.get(request["id"], ())), None),
        )
        for request in requests
    ]


_ATTEMPTS = "SELECT * FROM attempts WHERE request_id BETWEEN ? AND ? ORDER BY request_id, number"
_BOOKINGS = "SELECT * FROM bookings WHERE request_id BETWEEN ? AND ? ORDER BY request_id, account"
_DECISIONS = "SELECT * FROM decisions WHERE id BETWEEN ? AND ?"


def _lines(connection: Connection, statement: str, values: tuple[Value, ...]) -> list[Line]:
    rows = connection.execute(statement, values)
    names = [column for column, *_ in rows.description]
    return [dict(zip(names, row, strict=True)) for row in rows]


def _by(lines: list[Line], column: str) -> dict[Value, list[Line]]:
    found: dict[Value, list[Line]] = {}
    for line in lines:
        found.setdefault(line[column], []).append(line)
    return found
