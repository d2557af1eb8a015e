"""Group commit on a real file: all or nothing, in order, and nothing that was promised is lost."""

import asyncio
import logging
import sqlite3
from pathlib import Path

import pytest

from router.budget.embedded import EmbeddedBudgets
from router.ledger import journal as journal_module
from router.ledger.journal import SqliteJournal
from router.ledger.migrate import LedgerTooNew, migrate
from router.types.journal import LedgerUnavailable
from router.types.reservation import Reservation
from tests.budget.test_reserve import BUDGETS, START_MS, born
from tests.ledger.books import rows, windows, with_journal

FEEDBACK = "INSERT INTO feedback VALUES (?, ?, ?, ?)"
DECISION = "INSERT INTO decisions VALUES (?, ?, ?, ?)"


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    return tmp_path / "lowpass.db"


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test need not wait as long for another process as a gateway does."""
    monkeypatch.setattr(journal_module, "BUSY_MS", 20)
    monkeypatch.setattr(journal_module, "RETRY_S", 0.05)


def scores(ledger: Path) -> list[float]:
    return [row["score"] for row in rows(ledger, "SELECT score FROM feedback ORDER BY rowid")]


def count(connection: sqlite3.Connection) -> int:
    (found,) = connection.execute("SELECT count(*) FROM feedback").fetchone()
    return int(found)


async def available(journal: SqliteJournal) -> None:
    while not journal.available:  # noqa: ASYNC110 - it is no event, it is read before each request
        await asyncio.sleep(0.02)


def test_what_was_queued_together_is_committed_together_and_calls_see_it(ledger: Path) -> None:
    async def work(journal: SqliteJournal) -> list[int]:
        for number in range(3):
            journal.change(FEEDBACK, ("r", 0, number, "client"))
        first, second = journal.call(count), journal.call(count)
        assert scores(ledger) == []
        await journal.committed()
        assert scores(ledger) == [0, 1, 2]
        return [await first, await second]

    assert with_journal(ledger, work) == [3, 3]


def test_closing_writes_what_is_queued(ledger: Path) -> None:
    async def work(journal: SqliteJournal) -> None:
        journal.change(FEEDBACK, ("r", 0, 1, "client"))

    with_journal(ledger, work)
    assert scores(ledger) == [1]


def test_while_another_process_writes_calls_are_refused_and_rows_wait(ledger: Path) -> None:
    async def work(journal: SqliteJournal) -> None:
        with sqlite3.connect(ledger, isolation_level=None) as other:
            other.execute("BEGIN IMMEDIATE")
            journal.change(FEEDBACK, ("r", 0, 1, "client"))
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


@pytest.mark.parametrize(
    "poison",
    [(FEEDBACK, ("r", 2**63, 0.5, "client")), (FEEDBACK, ("r", None, 0.5, "client")), (DECISION, ("d", 0, "p", "{}"))],
)
def test_a_row_that_can_not_be_written_keeps_no_other_out(
    ledger: Path, poison: tuple[str, tuple[str | int | float | None, ...]], caplog: pytest.LogCaptureFixture
) -> None:
    async def work(journal: SqliteJournal) -> None:
        journal.change(DECISION, ("d", 0, "p", "{}"))
        await journal.committed()
        journal.change(FEEDBACK, ("r", 0, 1, "client"))
        journal.change(*poison)
        journal.change(FEEDBACK, ("r", 0, 2, "client"))
        with pytest.raises(LedgerUnavailable):
            await journal.committed()
        await available(journal)

    with caplog.at_level(logging.ERROR):
        with_journal(ledger, work)
    assert scores(ledger) == [1, 2]
    assert "a row was dropped" in caplog.text


@pytest.mark.parametrize("moment", ["before the commit", "after the commit"])
def test_a_reservation_that_nobody_waits_for_any_more_holds_nothing(ledger: Path, moment: str) -> None:
    async def work(journal: SqliteJournal) -> None:
        budgets = EmbeddedBudgets(journal)
        name = born(journal, 1, 500, START_MS)
        step = budgets.reserve(name, [BUDGETS["small"]], 500, 10, START_MS)
        waiting: asyncio.Task[object] = asyncio.ensure_future(step)
        if moment == "after the commit":
            loop = asyncio.get_running_loop()
            loop.call_soon(lambda: loop.call_soon(waiting.cancel))
        await asyncio.sleep(0)
        if moment == "before the commit":
            waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await journal.committed()

    with_journal(ledger, work)
    assert sum(map(sum, windows(ledger).values())) == 0
    assert rows(ledger, "SELECT * FROM holds") == []


def test_a_refused_call_does_not_spoil_the_next(ledger: Path) -> None:
    def broken(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO feedback VALUES ('r', 0, 9, 'client')")
        raise ZeroDivisionError

    async def work(journal: SqliteJournal) -> object:
        with pytest.raises(LedgerUnavailable):
            await journal.call(broken)
        await available(journal)
        return await EmbeddedBudgets(journal).reserve(born(journal, 1, 5, START_MS), [BUDGETS["small"]], 5, 5, START_MS)

    assert isinstance(with_journal(ledger, work), Reservation)
    assert scores(ledger) == []


def test_the_write_ahead_log_is_emptied(ledger: Path) -> None:
    async def work(journal: SqliteJournal) -> int:
        for number in range(200):
            journal.change(DECISION, (f"d{number}", 0, "p", "x" * 1_000))
            await journal.committed()
        journal.checkpoint()
        return len(rows(ledger, "SELECT * FROM decisions"))

    assert with_journal(ledger, work) == 200
    assert ledger.stat().st_size > 200_000


def test_migrations_are_applied_once_and_a_newer_ledger_is_left_alone(ledger: Path) -> None:
    with sqlite3.connect(ledger, isolation_level=None) as connection:
        newest = migrate(connection)
        assert migrate(connection) == newest
        connection.execute(f"PRAGMA user_version = {newest + 1}")
        with pytest.raises(LedgerTooNew, match="install a newer one"):
            migrate(connection)
    connection.close()
