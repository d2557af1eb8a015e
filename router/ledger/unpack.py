"""Packed rows back into the tables that they were born in, before a ledger goes down to a version without segments."""

from router.ledger.connection import Connection
from router.ledger.kept import Line
from router.ledger.packed import stored, unpack

_LIVE = "SELECT COUNT(*) FROM bookings WHERE request_id = ? AND account = ?"
_UNSUMMED = "UPDATE bookings SET charged = charged - ? WHERE request_id = ? AND account = ?"
_NOTHING = "DELETE FROM bookings WHERE request_id LIKE 'packed-%' AND charged = 0"


def unpack_all(connection: Connection) -> None:
    """What expired is gone; what it was charged stays summed up in its windows."""
    for segment in stored.within(connection, None, None):
        if segment.expired_ms is None:
            for kept in unpack.rows(connection, segment):
                decisions = () if kept.decision is None else (kept.decision,)
                for table, lines in (
                    ("requests", (kept.request,)),
                    ("attempts", kept.attempts),
                    ("decisions", decisions),
                ):
                    for line in lines:
                        _insert(connection, table, line)
                for line in kept.bookings:
                    _book(connection, line)
    connection.execute(_NOTHING)


def _book(connection: Connection, line: Line) -> None:
    """One that is there never left."""
    if connection.execute(_LIVE, (line["request_id"], line["account"])).fetchone()[0]:
        return
    connection.execute(_UNSUMMED, (line["charged"], f"packed-{line['window_start_ms']!s}", line["account"]))
    _insert(connection, "bookings", line)


def _insert(connection: Connection, table: str, line: Line) -> None:
    """What was not cleared yet is there."""
    places = ", ".join("?" * len(line))
    statement = f"INSERT INTO {table} ({', '.join(line)}) VALUES ({places}) ON CONFLICT DO NOTHING"  # noqa: S608
    connection.execute(statement, tuple(line.values()))
