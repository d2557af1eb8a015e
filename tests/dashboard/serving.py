"""The reports' routes behind the real HTTP app, on a port of the loopback."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory

import uvicorn

from adapters import catalog
from router.api import budgets, dashboard, reports
from router.api.auth import Keyring
from router.api.rest import rest
from router.budget.budget import Budget
from router.budget.sqlite import SqliteBudgets
from router.choose import index
from router.config import Config, Sensitivity
from router.ledger.journal import SqliteJournal
from router.ledger.ledger import Ledger
from router.report.budgets import budgets as budgets_report
from router.report.report import Report
from router.types.lease import LEASE_MS
from router.types.secret import Secret
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
    """Yields the base URL. The budgets have a store of their own, in which nothing is booked yet. Without a `ring` of
    keys everybody is let in."""
    with TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(lambda: None, log_config=None, lifespan="off", ws="none"))
        keyring = ring or Keyring({}, open_to_all=True)
        work = _serve(server, listener, ledger, Path(folder) / "budgets.db", keyring, config)
        thread = threading.Thread(target=asyncio.run, args=(work,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


async def _serve(
    server: uvicorn.Server, listener: socket.socket, ledger: Ledger, path: Path, ring: Keyring, config: Config
) -> None:
    journal = SqliteJournal(path)
    store = SqliteBudgets(journal, LEASE_MS)

    async def pots() -> Report:
        return await budgets_report(store, CONFIG.budgets, NOW_MS)

    routers = [
        reports.routes(ledger, pots),
        budgets.routes(lambda: index(CONFIG, Secret("test")), store, lambda: CONFIG.budgets, lambda: NOW_MS),
    ]
    site = dashboard.Site(
        ledger=ledger,
        keyring=ring,
        secret=SECRET,
        policy=lambda: config,
        health=lambda: {"mini": "half-open"},
        engines=lambda: ENGINES,
        budgets=pots,
        in_flight=lambda: 3,
        catalog=catalog.shipped,
        clock=lambda: NOW_MS,
    )
    server.config.app = rest(ring, public=[dashboard.routes(site)], calls=[], reports=routers, admin=[])
    await server.serve(sockets=[listener])
    await journal.end()
