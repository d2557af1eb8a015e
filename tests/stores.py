"""Both places where a ledger can be, for tests that must not notice which. Fixtures: name them in a conftest."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from router.ledger.ledger import Ledger, SqliteLedger
from router.ledger.postgres import PostgresLedger
from router.types.target import Secret
from tests.postgres import Server

Make = Callable[[], Ledger]


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    server = Server()
    try:
        yield server.start() if server.mine else server
    finally:
        server.stop()


@pytest.fixture(scope="session", params=["sqlite", "postgres"])
def new_ledger(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Make:
    """Makes an empty ledger, at once and as often as it is called."""
    if request.param == "sqlite":
        return lambda: _made(SqliteLedger(tmp_path_factory.mktemp("ledger") / "lowpass.db"))
    server: Server = request.getfixturevalue("postgres")
    return lambda: PostgresLedger(Secret(server.database()))


@pytest.fixture
def new_sqlite(tmp_path: Path) -> SqliteLedger:
    return _made(SqliteLedger(tmp_path / "lowpass.db"))


@pytest.fixture
def ledger(new_ledger: Make) -> Ledger:
    return new_ledger()


def _made(ledger: SqliteLedger) -> SqliteLedger:
    ledger.migrate()
    return ledger
