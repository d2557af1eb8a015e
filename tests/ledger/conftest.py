"""Every test that asks for a ledger gets one in each place, and none depends on how fast a machine is."""

from collections.abc import Iterator

import pytest

from router.ledger import journal
from router.ledger import postgres as server
from tests.budget.redis_process import patient
from tests.postgres import Server
from tests.stores import ledger, new_ledger, new_sqlite, postgres

__all__ = ["ledger", "new_ledger", "new_sqlite", "patient", "postgres"]


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Databases have a minute for what they must do within seconds; what failed is tried again at once."""
    for name in ("CONNECT_S", "ANSWER_S", "COMMIT_S", "END_S"):
        monkeypatch.setattr(server, name, 60)
    monkeypatch.setattr(journal, "BUSY_MS", 60_000)
    monkeypatch.setattr(journal, "RETRY_S", 0.01)


@pytest.fixture(scope="session")
def _mortal() -> Iterator[Server]:
    server = Server()
    if not server.mine:
        pytest.skip("the server of LOWPASS_TEST_DATABASE_URL is not ours to kill")
    yield server.start()
    server.stop()


@pytest.fixture
def mortal(_mortal: Server) -> Server:
    """A server of PostgreSQL that a test may kill; it lives when a test begins."""
    return _mortal if _mortal.process.poll() is None else _mortal.start()
