"""The steps of the embedded store that split budgets off and close them. They share a transaction, so none may raise.

Money is moved by triggers alone: a child's row in its parent's account follows the child.
"""

import sqlite3

import msgspec

from router.budget.sqlite.standing import shut, standing
from router.types.account import Account, Child, Refused, Unit

_KNOWN = "SELECT 1 FROM bookings WHERE request_id = ? LIMIT 1"
_COLUMNS = "id, parent, parent_window_ms, replaces, unit, size, created_ms, expires_at_ms, key_id, team, closed_ms"
_INSERT = f"INSERT INTO children ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608 - names of ours
_FIND = f"SELECT {_COLUMNS} FROM children WHERE id = ?"  # noqa: S608
_ALL_OPEN = f"SELECT {_COLUMNS} FROM children WHERE closed_ms IS NULL ORDER BY created_ms, id"  # noqa: S608
_HOLD = "INSERT INTO bookings VALUES (?, ?, ?, ?, NULL, 'held')"
_ACCOUNT = "INSERT INTO budget_windows VALUES (?, 0, 0, 0) ON CONFLICT DO NOTHING"
_BELOW = (
    "WITH RECURSIVE below (id, depth) AS (SELECT ?, 0 UNION ALL"
    " SELECT children.id, depth + 1 FROM children JOIN below ON parent = below.id)"
    " SELECT id FROM below ORDER BY depth DESC"
)
_EXPIRED = (
    "SELECT id FROM children WHERE closed_ms IS NULL AND expires_at_ms <= ?"
    " AND NOT EXISTS (SELECT 1 FROM budget_windows WHERE budget = id AND held != 0)"
)
_CLOSE = "UPDATE children SET closed_ms = ? WHERE id = ? AND closed_ms IS NULL"
_FOLLOW = "UPDATE budget_windows SET held = held WHERE budget = ?"
"""Lets the child's row in its parent follow."""


def split(connection: sqlite3.Connection, parent: Account, child: Child, now_ms: int) -> Child | Refused | None:
    """None: something has this id."""
    if connection.execute(_KNOWN, (child.id,)).fetchone() is not None:
        return None
    at = standing(connection, parent, parent.window_start_ms)
    if at.left < child.limit or _outlives(child, parent) or shut(connection, parent, now_ms):
        return at.refusal(child.limit)
    connection.execute(_INSERT, _row(child))
    connection.execute(_ACCOUNT, (child.id,))
    connection.execute(_HOLD, (child.id, parent.id, parent.window_start_ms, child.limit))
    return child


def _outlives(child: Child, parent: Account) -> bool:
    ends = [end for end in (parent.resets_at_ms, parent.expires_at_ms) if end is not None]
    return bool(ends) and (child.expires_at_ms is None or child.expires_at_ms > min(ends))


def find(connection: sqlite3.Connection, identifier: str) -> Child | None:
    row = connection.execute(_FIND, (identifier,)).fetchone()
    return None if row is None else _child(row)


def still_open(connection: sqlite3.Connection) -> list[Child]:
    return [_child(row) for row in connection.execute(_ALL_OPEN)]


def close(connection: sqlite3.Connection, identifier: str, now_ms: int) -> Child | None:
    for (below,) in connection.execute(_BELOW, (identifier,)).fetchall():
        _end(connection, below, now_ms)
    return find(connection, identifier)


def has_expired(connection: sqlite3.Connection, now_ms: int) -> bool:
    return connection.execute(_EXPIRED, (now_ms,)).fetchone() is not None


def close_expired(connection: sqlite3.Connection, now_ms: int) -> None:
    """Deepest first: a child that has an open one of its own holds something."""
    while expired := connection.execute(_EXPIRED, (now_ms,)).fetchall():
        for (identifier,) in expired:
            _end(connection, identifier, now_ms)


def _end(connection: sqlite3.Connection, identifier: str, now_ms: int) -> None:
    connection.execute(_CLOSE, (now_ms, identifier))
    connection.execute(_FOLLOW, (identifier,))


def _row(child: Child) -> tuple[str | int | None, ...]:
    replaces = msgspec.json.encode(child.replaces).decode()
    return (
        child.id,
        child.parent,
        child.parent_window_ms,
        replaces,
        child.unit.value,
        child.limit,
        child.created_ms,
        child.expires_at_ms,
        child.key,
        child.team,
        child.closed_ms,
    )


def _child(row: tuple[str, str, int, str, str, int, int, int | None, str, str, int | None]) -> Child:
    identifier, parent, window, replaces, unit, size, created, expires, key, team, closed = row
    return Child(
        id=identifier,
        parent=parent,
        parent_window_ms=window,
        replaces=msgspec.json.decode(replaces, type=tuple[str, ...]),
        unit=Unit(unit),
        limit=size,
        created_ms=created,
        expires_at_ms=expires,
        key=key,
        team=team,
        closed_ms=closed,
    )
