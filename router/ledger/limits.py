"""Limits of budgets that were set while gateways run: they stand in place of the policy's until they are taken back."""

from msgspec import Struct

from router.ledger.audit import note
from router.ledger.connection import Connection, transaction
from router.types.clock import now_ms

_EVERY = "SELECT id, size, set_ms, set_by, expires_ms FROM budget_limits ORDER BY id"
_SET = (
    "INSERT INTO budget_limits (id, size, set_ms, set_by, expires_ms) VALUES (?, ?, ?, ?, ?) ON CONFLICT (id)"
    " DO UPDATE SET size = excluded.size, set_ms = excluded.set_ms, set_by = excluded.set_by,"
    " expires_ms = excluded.expires_ms"
)
_TAKE_BACK = "DELETE FROM budget_limits WHERE id = ?"


class BudgetLimit(Struct, frozen=True):
    """`id`: of a budget of the policy, or of one of its accounts. `size`: nano-USD or thinking tokens."""

    id: str
    size: int
    set_ms: int
    set_by: str
    expires_ms: int | None


def limits(connection: Connection) -> list[BudgetLimit]:
    """Those that have not expired."""
    now = now_ms()
    every = [BudgetLimit(*row) for row in connection.execute(_EVERY).fetchall()]
    return [limit for limit in every if limit.expires_ms is None or limit.expires_ms > now]


def set_limit(connection: Connection, identifier: str, size: int | None, expires_ms: int | None, actor: str) -> None:
    """`size` None: the policy's limit counts again."""
    with transaction(connection):
        note(connection, actor, "budget limit set", identifier, {"limit": size, "expires_ms": expires_ms})
        if size is None:
            connection.execute(_TAKE_BACK, (identifier,))
        else:
            connection.execute(_SET, (identifier, size, now_ms(), actor, expires_ms))
