"""Whole requests out of the tables that they are born in."""

from router.ledger.connection import Connection
from router.ledger.kept import Kept, Line
from router.types.journal import Value

_ATTEMPTS = "SELECT * FROM attempts WHERE request_id BETWEEN ? AND ? ORDER BY request_id, number"
_BOOKINGS = "SELECT * FROM bookings WHERE request_id BETWEEN ? AND ? ORDER BY request_id, account"
_DECISIONS = "SELECT * FROM decisions WHERE id BETWEEN ? AND ?"


def read(connection: Connection, which: str, values: tuple[Value, ...], most: int | None = None) -> list[Kept]:
    """Requests of which the condition `which` holds, by id; the first of them, where there are more than `most`."""
    limit = "" if most is None else f" LIMIT {most}"
    requests = _lines(connection, f"SELECT * FROM requests WHERE {which} ORDER BY id{limit}", values)  # noqa: S608
    if not requests:
        return []
    span = (requests[0]["id"], requests[-1]["id"])
    attempts = _by(_lines(connection, _ATTEMPTS, span), "request_id")
    bookings = booked(connection, *map(str, span))
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


def booked(connection: Connection, first_id: str, last_id: str) -> dict[Value, list[Line]]:
    """What requests from one id to the other booked, by request and account."""
    return _by(_lines(connection, _BOOKINGS, (first_id, last_id)), "request_id")


def _lines(connection: Connection, statement: str, values: tuple[Value, ...]) -> list[Line]:
    rows = connection.execute(statement, values)
    names = [column for column, *_ in rows.description]
    return [dict(zip(names, row, strict=True)) for row in rows]


def _by(lines: list[Line], column: str) -> dict[Value, list[Line]]:
    found: dict[Value, list[Line]] = {}
    for line in lines:
        found.setdefault(line[column], []).append(line)
    return found
