"""Single look-ups by id. Each opens its own connection, so that it can run on any thread."""

from router.ledger.ledger import Ledger
from router.types.clock import now_ms


def decision(ledger: Ledger, identifier: str) -> bytes | None:
    """The JSON document of one decision."""
    with ledger.reading() as connection:
        row = connection.execute("SELECT document FROM decisions WHERE id = ?", (identifier,)).fetchone()
    return row[0].encode() if row else None


def give_feedback(ledger: Ledger, identifier: str, score: float) -> bool:
    """Adds an outcome to a request; False when there is no such request."""
    with ledger.writing() as connection:
        if connection.execute("SELECT 1 FROM requests WHERE id = ?", (identifier,)).fetchone() is None:
            return False
        row = (identifier, now_ms(), score, "client")
        connection.execute("INSERT INTO feedback VALUES (?, ?, ?, ?)", row)
        return True
