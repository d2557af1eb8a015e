"""Ledgers in SQLite: that PostgreSQL gives the same reports is tested in `test_postgres.py`, of all of them at once."""

import pytest

from router.ledger.ledger import Ledger, SqliteLedger
from tests.stores import Make, postgres

__all__ = ["postgres"]


@pytest.fixture(scope="session")
def new_ledger(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """Makes an empty ledger, at once and as often as it is called."""

    def make() -> Ledger:
        ledger = SqliteLedger(tmp_path_factory.mktemp("ledger") / "lowpass.db")
        ledger.migrate()
        return ledger

    return make


@pytest.fixture
def ledger(new_ledger: Make) -> Ledger:
    return new_ledger()
