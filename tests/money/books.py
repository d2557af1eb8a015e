"""Policies with a budget a route, and what the books say of a request and of a budget."""

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event
from typing import Any

from router.testing.upstream import WORD, Answer, Behaviour, Page, Tokens, Upstream
from tests.gateway.running import Client, Gateway, Reply, ordered, until

NANO = 1_000_000_000
PRICE = {"input": 1, "output": 100}
"""USD per million tokens …"""
IN, OUT = 1_000, 100_000
"""… in nano-USD a token."""
COST = 20 * IN + 40 * OUT
CAP: dict[str, Any] = {"max_completion_tokens": 40}


def rules(targets: object, routes: Mapping[str, str], budgets: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """A policy; routes name their targets in order."""
    by_name = {name: ordered(*names.split()) for name, names in routes.items()}
    return {"version": 1, "targets": targets, "routes": by_name, "budgets": budgets, **more}


def budgets(limits: Mapping[str, float], **more: Any) -> list[dict[str, Any]]:
    """In USD, for ever, each of the route of its name."""
    return [{"id": n, "limit_usd": round(x, 9), "window": "lifetime", "routes": [n], **more} for n, x in limits.items()]


def thoughts(limits: Mapping[str, int]) -> list[dict[str, Any]]:
    return [{"id": n, "limit_thinking_tokens": x, "window": "lifetime", "routes": [n]} for n, x in limits.items()]


def pot(gateway: Client, identifier: str) -> dict[str, Any]:
    reply = gateway.get(f"/v1/budgets/{identifier.replace('|', '%7C').replace('/', '%2F')}")
    assert reply.status == 200, reply.body
    return reply.json


def account(gateway: Client, identifier: str) -> tuple[int, float]:
    """What is spent, in nano-USD, and what is held."""
    budget = pot(gateway, identifier)
    return round(budget["spent"] * NANO), budget["held"]


def within(gateway: Client, identifier: str) -> float:
    """What is spent: no more than the limit, and nothing is held."""
    budget = pot(gateway, identifier)
    assert (budget["spent"] <= budget["limit"], budget["held"]) == (True, 0), budget
    return float(budget["spent"])


def row_of(gateway: Client, reply: Reply) -> dict[str, Any]:
    return gateway.settled(reply.id)


def bookings(gateway: Client, row: dict[str, Any]) -> list[tuple[str, int, int]]:
    """(account, held, charged) of a request."""
    rows = gateway.rows("SELECT account, held, charged FROM bookings WHERE request_id = ?", row["id"])
    return [(booking["account"], booking["held"], booking["charged"]) for booking in rows]


def change(gateway: Client, statement: str, *values: object) -> None:
    """What another process, or another time, has left in the books."""
    ledger = sqlite3.connect(gateway.ledger, timeout=60)
    with ledger:
        ledger.execute(statement, values)
    ledger.close()


def split(gateway: Client, parent: str, dollars: float) -> str:
    reply = gateway.post(f"/v1/budgets/{parent}/split", {"limit_usd": dollars})
    assert reply.status == 201, reply.body
    return str(reply.json["id"])


GATED = "gated"
"""A model whose answer of 100 tokens waits for the test."""


@contextmanager
def waiting(
    gateway: Gateway, upstream: Upstream, route: str, **headers: str
) -> Iterator[tuple[str, Callable[[], Reply]]]:
    """While a stream is held for: the id of its request, and what lets it come and returns it."""
    gate = Event()

    def answer(*_: object) -> Answer:
        gate.wait(60)
        return Answer(text=(WORD,) * 100)

    def end() -> Reply:
        gate.set()
        return reply.result()

    upstream.behaviours[GATED] = Behaviour(answer=answer, tokens=Tokens(uncached=20, visible=100))
    with ThreadPoolExecutor(1) as client:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        reply = client.submit(gateway.chat, route, stream=True, headers=named)
        query = "SELECT id FROM requests WHERE route = ? AND state = 'held' AND held > 0"
        try:
            yield str(until(lambda: gateway.rows(query, route))[0]["id"]), end
        finally:
            gate.set()


def saying(upstream: Upstream, name: str, page: Page) -> None:
    """The model `name` answers to the letter."""
    upstream.behaviours[name] = Behaviour(page=lambda _: page)
