"""What the books say of a request and of a budget."""

from typing import Any

from tests.gateway.running import Gateway, Reply

NANO = 1_000_000_000
PRICE = {"input": 1, "output": 100}
"""USD per million tokens …"""
IN, OUT = 1_000, 100_000
"""… in nano-USD a token."""


def pot(gateway: Gateway, identifier: str) -> dict[str, Any]:
    reply = gateway.get(f"/v1/budgets/{identifier.replace('|', '%7C')}")
    assert reply.status == 200, reply.body
    return reply.json


def row_of(gateway: Gateway, reply: Reply) -> dict[str, Any]:
    return gateway.settled(reply.headers["x-request-id"])


def bookings(gateway: Gateway, row: dict[str, Any]) -> list[tuple[str, int, int]]:
    """(account, held, charged) of a request."""
    rows = gateway.rows("SELECT account, held, charged FROM bookings WHERE request_id = ?", row["id"])
    return [(booking["account"], booking["held"], booking["charged"]) for booking in rows]


def split(gateway: Gateway, parent: str, dollars: float) -> str:
    """The id of the child."""
    reply = gateway.post(f"/v1/budgets/{parent}/split", {"limit_usd": dollars})
    assert reply.status == 201, reply.body
    return str(reply.json["id"])
