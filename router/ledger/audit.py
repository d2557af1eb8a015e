"""Who changed what, when: keys, limits of budgets and corrections of charges, one row a change."""

from collections.abc import Mapping

import msgspec

from router.ledger.connection import Connection
from router.types.clock import now_ms
from router.types.ids import new_id

COMMAND_LINE = "command line"
"""The actor of changes by `lowpass` commands."""
_INSERT = "INSERT INTO audit (id, at_ms, actor, action, subject, document) VALUES (?, ?, ?, ?, ?, ?)"
_encode = msgspec.json.Encoder(decimal_format="number").encode


def note(connection: Connection, actor: str, action: str, subject: str, changes: Mapping[str, object]) -> None:
    """Belongs into the transaction of the change. `changes` never holds a secret."""
    connection.execute(_INSERT, (new_id(), now_ms(), actor, action, subject, _encode(changes).decode()))
