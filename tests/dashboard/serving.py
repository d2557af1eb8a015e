"""The reports' routes behind the real HTTP app, on a port of the loopback, and what a browser gets of them."""

import asyncio
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import uvicorn
from fastapi import FastAPI

from router.api import admin
from router.api.auth import Keyring
from router.api.dashboard.pages import Dashboard
from router.api.dashboard.routes import routes as pages
from router.api.rest import reports_routes, rest
from router.budget.budget import Budget
from router.budget.sqlite import SqliteBudgets
from router.choose import index
from router.config.policy import Config, Sensitivity
from router.ledger.journal import SqliteJournal
from router.ledger.ledger import Ledger
from router.report.budgets import all_standings
from router.types.account import LEASE_MS
from router.types.target import Secret
from tests.report.filled import target

HOSTILE = '<script>alert("x")</script>'
TURNING = "a\u202eb\x1b[31m\u2066c"
"""Turns the direction of text and the colour of a terminal."""
NOW_MS = 1_767_268_800_000
"""2026-01-01T12:00:00Z: the dashboard's clock stands still."""
CONFIG = Config(
    path="policy.yaml",
    hash="0123456789abcdef",
    targets={"local": target("local"), "mini": target("mini", HOSTILE)},
    routes={},
    sensitivity=Sensitivity(),
    budgets=(Budget(id="daily", limit_usd=Decimal("0.25"), window="day"), Budget(id="team", limit_usd=Decimal(7))),
    budget_status=402,
)
ENGINES = [{"name": "smollm2", "model": "local/smollm2", "status": "restarting", "restarts": 3, "last_error": HOSTILE}]
SECRET = Secret("0123456789abcdef" * 4)


@contextmanager
def serving(ledger: Ledger, ring: Keyring | None = None, config: Config = CONFIG) -> Iterator[str]:
    """Yields the base URL. Budgets have an empty store of their own. Without a `ring` of keys everybody is let in."""
    with TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(lambda: None, log_config=None, lifespan="off", ws="none"))
        keyring = ring or Keyring(ledger, loopback=True)
        keyring.open_to_all = ring is None

        async def work() -> None:
            journal = SqliteJournal(Path(folder, "budgets.db"))
            server.config.app = _app(ledger, SqliteBudgets(journal, LEASE_MS), keyring, config)
            await server.serve(sockets=[listener])
            await journal.end()

        thread = threading.Thread(target=lambda: asyncio.run(work()))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


def _app(ledger: Ledger, store: SqliteBudgets, ring: Keyring, config: Config) -> FastAPI:
    pots = partial(all_standings, store, CONFIG.budgets, NOW_MS)
    limits = admin.Admin(lambda: index(CONFIG, Secret("test")), store, lambda: CONFIG.budgets, lambda: NOW_MS).routes
    kept: dict[str, Any] = {"ledger": ledger, "keyring": ring, "secret": SECRET, "policy": lambda: config}
    seen: dict[str, Any] = {"health": lambda: {"mini": "half-open"}, "engines": lambda: ENGINES, "in_flight": lambda: 3}
    site = Dashboard(**kept, **seen, budgets=pots, clock=lambda: NOW_MS)
    reports = [lambda router: reports_routes(router, ledger, pots), limits]
    return rest(ring, public=[pages(site)], calls=[], reports=reports, admin=[])


_TRANSPORT = httpx.HTTPTransport()
"""Keeps no cookies and follows no redirects: they are answers too."""
OURS = {"sec-fetch-site": "same-origin"}
"""What a browser sends along with a form of the page itself."""


def get(url: str, headers: Mapping[str, str] = {}, fields: Mapping[str, str] | None = None) -> httpx.Response:
    """With `fields` of a form it is posted."""
    sent = {"accept": "text/html", **headers}
    request = httpx.Request("GET" if fields is None else "POST", url, headers=sent, data=fields)
    answer = _TRANSPORT.handle_request(request)
    answer.read()
    return answer


def post(url: str, fields: Mapping[str, str], headers: Mapping[str, str] = OURS) -> httpx.Response:
    return get(url, headers, fields)
