"""`/v1/budgets` behind the real HTTP app, over a real store, on a port of the loopback."""

import asyncio
import json
import socket
import threading
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
import uvicorn
from msgspec import Struct

from router.api import budgets
from router.api.auth import Keyring
from router.api.rest import rest
from router.budget.budget import Budget
from router.budget.sqlite import SqliteBudgets
from router.choose import index
from router.config import Config, Route, Sensitivity
from router.decide.strategies import Ordered
from router.ledger.journal import SqliteJournal
from router.ledger.keys import digest
from router.types.account import Account, Amount, Ask, Refused, Reservation
from router.types.lease import LEASE_MS
from router.types.request import Caller
from router.types.secret import Secret
from tests.report.filled import target

T = TypeVar("T")
START_MS = 1_795_262_400_000
"""2026-11-21T12:00:00Z."""
DAY_MS = 86_400_000


def config(*declared: Budget) -> Config:
    routes = {"auto": ("mini", "local"), "free": ("local",)}
    return Config(
        path="policy.yaml",
        hash="0123456789abcdef",
        targets={"local": target("local"), "mini": target("mini")},
        routes={name: Route(name, Ordered(kind="ordered", targets=targets)) for name, targets in routes.items()},
        sensitivity=Sensitivity(),
        budgets=declared,
        budget_status=402,
    )


class Reply(Struct, frozen=True):
    status: int
    body: Any
    headers: Mapping[str, str]

    @property
    def param(self) -> str | None:
        param: str | None = self.body["error"]["param"]
        return param


class Served:
    """Ask it as a key by its name; the store is there for what requests would do. Its clock is `now`."""

    def __init__(self, ledger: Path, policy: Config, callers: list[Caller]) -> None:
        self._ready, self.now, self.url = threading.Event(), START_MS, ""
        self._ring = Keyring({digest(caller.name.encode()): caller for caller in callers}, open_to_all=not callers)
        self._ledger, self.rules = ledger, index(policy, Secret("test"))
        self.client = httpx.Client(timeout=60, trust_env=False, verify=False)  # noqa: S501 - it speaks plain HTTP
        self.thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.journal = SqliteJournal(self._ledger)
        self.store = SqliteBudgets(self.journal, LEASE_MS)
        calls = [budgets.routes(lambda: self.rules, self.store, lambda: self.rules.pots.budgets, lambda: self.now)]
        app = rest(self._ring, public=[], calls=calls, reports=[], admin=[])
        self.server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="off", ws="none"))
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            self._ready.set()
            await self.server.serve(sockets=[listener])
        await self.journal.end()

    def start(self) -> "Served":
        self.thread.start()
        assert self._ready.wait(60)
        return self

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """In the server's own loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def ask(self, method: str, path: str, key: str = "", body: object = None, **headers: str) -> Reply:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        sent |= {"authorization": f"Bearer {key}"} if key else {}
        data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        reply = self.client.request(method, self.url + path, content=data, headers=sent)
        return Reply(reply.status_code, json.loads(reply.content, parse_float=Decimal), reply.headers)

    def get(self, identifier: str = "", key: str = "", **headers: str) -> Reply:
        return self.ask("GET", f"/v1/budgets{identifier and '/'}{quote(identifier, safe='')}", key, **headers)

    def split(self, identifier: str, key: str = "", body: object = None, **headers: str) -> Reply:
        return self.ask("POST", f"/v1/budgets/{quote(identifier, safe='')}/split", key, body, **headers)

    def close(self, identifier: str, key: str = "") -> Reply:
        return self.ask("DELETE", f"/v1/budgets/{quote(identifier, safe='')}", key)

    def listed(self, key: str = "", **headers: str) -> list[dict[str, Any]]:
        reply = self.get(key=key, **headers)
        assert (reply.status, reply.body["object"]) == (200, "list")
        rows: list[dict[str, Any]] = reply.body["data"]
        return rows

    def hold(self, request_id: str, accounts: list[Account], amount: Amount) -> Reservation:
        ask = Ask(least=amount, tight=amount, whole=amount)
        granted = self.run(self.store.reserve(request_id, accounts, ask, self.now))
        assert not isinstance(granted, Refused)
        return granted

    def spend(self, request_id: str, accounts: list[Account], amount: Amount) -> None:
        reservation = self.hold(request_id, accounts, amount)

        async def settle() -> None:
            self.store.settle(reservation, [amount.of(hold.unit) for hold in reservation.holds])
            await self.store.settled()

        self.run(settle())


@contextmanager
def serving(ledger: Path, policy: Config, callers: list[Caller]) -> Iterator[Served]:
    served = Served(ledger, policy, callers).start()
    try:
        yield served
    finally:
        served.client.close()
        served.server.should_exit = True
        served.thread.join(60)
