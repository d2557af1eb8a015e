"""Every policy that was in force, by the hash that rows of requests hold."""

from router.ledger.connection import Connection
from router.types.journal import Journal

_ADOPTED = "INSERT INTO policies (hash, adopted_ms, document) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"


def adopted(journal: Journal, policy: str, now_ms: int, document: bytes) -> None:
    """Before the first decision under it. Keeps the first time; several processes may say it."""
    journal.add(_ADOPTED, (policy, now_ms, document.decode()))


def documents(connection: Connection) -> dict[str, bytes]:
    return {policy: document.encode() for policy, document in connection.execute("SELECT hash, document FROM policies")}
