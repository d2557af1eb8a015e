"""What the journal in a SQLite file does beyond `test_journal.py`: decisions in its transactions, locks, its log."""

import asyncio
import sqlite3
from pathlib import Path

import pytest

from router.ledger import journal as journal_module
from router.ledger.journal import SqliteJournal
from router.ledger.ledger import SqliteLedger
from router.types.journal import LedgerUnavailable
from tests.ledger.books import NOTES, rows, with_journal

NOTE = "INSERT INTO notes VALUES (?, ?, ?, ?)"
DECISION = "INSERT INTO decisions VALUES (?, ?, ?, ?)"


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    with SqliteLedger(tmp_path / "lowpass.db").writing() as connection:
        connection.execute(NOTES)
    return tmp_path / "lowpass.db"


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test need not wait as long for another process as a gateway does."""
    monkeypatch.setattr(journal_module, "BUSY_MS", 20)
    monkeypatch.setattr(journal_module, "RETRY_S", 0.05)


def scores(ledger: Path) -> list[float]:
    return [row["score"] for row in rows(ledger, "SELECT score FROM notes ORDER BY rowid")]


def count(connection: sqlite3.Connection) -> int:
    (found,) = connection.execute("SELECT count(*) FROM notes").fetchone()
    return int(found)


async def available(journal: SqliteJournal) -> None:
    while not journal.available:  # noqa: ASYNC110 - it is no event, it is read before each request
        await asyncio.sleep(0.02)


def test_what_was_queued_together_is_committed_together_and_calls_see_it(ledger: Path) -> None:
    async def work(journal: SqliteJournal) -> list[int]:
        for number in range(3):
            journal.change(NOTE, ("r", 0, number, "client"))
        first, second = journal.call(count), journal.call(count)
        assert scores(ledger) == []
        await journal.committed()
        assert scores(ledger) == [0, 1, 2]
        return [await first, await second]

    assert with_journal(ledger, work) == [3, 3]


def test_while_another_process_writes_calls_are_refused_and_rows_wait(ledger: Path) -> None:
    async def work(journal: SqliteJournal) -> None:
        with sqlite3.connect(ledger, isolation_level=None) as other:
            other.execute("BEGIN IMMEDIATE")
            journal.change(NOTE, ("r", 0, 1, "client"))
            refused = journal.call(count)
            with pytest.raises(LedgerUnavailable):
                await journal.committed()
            with pytest.raises(LedgerUnavailable):
                await refused
            assert not journal.available
            other.execute("COMMIT")
        other.close()
        await available(journal)

    with_journal(ledger, work)
    assert scores(ledger) == [1]


def test_a_refused_call_does_not_spoil_the_next(ledger: Path) -> None:
    def broken(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO notes VALUES ('r', 0, 9, 'client')")
        raise ZeroDivisionError

    async def work(journal: SqliteJournal) -> int:
        with pytest.raises(LedgerUnavailable):
            await journal.call(broken)
        await available(journal)
        journal.change(NOTE, ("r", 0, 1, "client"))
        return await journal.call(count)

    assert with_journal(ledger, work) == 1
    assert scores(ledger) == [1]


def test_the_write_ahead_log_is_emptied(ledger: Path) -> None:
    async def work(journal: SqliteJournal) -> int:
        for number in range(200):
            journal.change(DECISION, (f"d{number}", 0, "p", "x" * 1_000))
            await journal.committed()
        journal.checkpoint()
        return len(rows(ledger, "SELECT * FROM decisions"))

    assert with_journal(ledger, work) == 200
    assert ledger.stat().st_size > 200_000


def test_a_file_that_can_not_be_used_is_told_from_a_mistake(tmp_path: Path) -> None:
    (tmp_path / "broken.db").write_bytes(b"no database at all" * 100)
    for name in ("none.db", "broken.db"):
        with pytest.raises(LedgerUnavailable, match=name), SqliteLedger(tmp_path / name).reading() as connection:
            connection.execute("SELECT 1 FROM requests")
    sound = SqliteLedger(tmp_path / "sound.db")
    sound.migrate()
    with pytest.raises(sqlite3.OperationalError, match="no such table"), sound.reading() as connection:
        connection.execute("SELECT 1 FROM nowhere")


def test_a_file_that_another_process_keeps_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    ledger = SqliteLedger(tmp_path / "lowpass.db")
    ledger.migrate()
    with ledger.writing() as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerUnavailable, match="locked"), ledger.writing() as connection:
            connection.execute("DELETE FROM outcomes")
