"""The reports' routes behind the real HTTP app, on a port of the loopback."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal

import uvicorn

from router.api import dashboard, reports
from router.api.auth import Keyring
from router.api.rest import rest
from router.budget.budget import Budget
from router.config import Config, Sensitivity
from router.ledger.ledger import Ledger
from tests.report.filled import target

HOSTILE = '<script>alert("x")</script>'
NOW_MS = time.time_ns() // 1_000_000
"""The dashboard's clock stands still, so that no test straddles midnight."""
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


@contextmanager
def serving(ledger: Ledger) -> Iterator[str]:
    """Yields the base URL."""
    routers = [
        reports.routes(ledger, lambda: CONFIG),
        dashboard.routes(ledger, lambda: CONFIG, lambda: {"mini": "half-open"}, lambda: ENGINES, lambda: NOW_MS),
    ]
    app = rest(Keyring({}, open_to_all=True), public=[], calls=[], reports=routers)
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="off", ws="none"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()
