"""Single look-ups by id. Each opens its own connection, so that it can run on any thread."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from router.ledger.journal import connect
from router.types.clock import now_ms


@contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that can't write."""
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
    try:
        yield connection
    finally:
        connection.close()


def decision(path: Path, identifier: str) -> bytes | None:
    """The JSON document of one decision."""
    with reading(path) as connection:
        row = connection.execute("SELECT document FROM decisions WHERE id = ?", (identifier,)).fetchone()
    return row[0].encode() if row else None


def give_feedback(path: Path, identifier: str, score: float) -> bool:
    """Adds an outcome to a request; False when there is no such request."""
    connection = connect(path)
    try:
        if connection.execute("SELECT 1 FROM requests WHERE id = ?", (identifier,)).fetchone() is None:
            return False
        row = (identifier, now_ms(), score, "client")
        connection.execute("INSERT INTO feedback VALUES (?, ?, ?, ?)", row)
        return True
    finally:
        connection.close()
