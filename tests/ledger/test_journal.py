"""Group commit, wherever the ledger is: all or nothing, in order, and nothing that was promised is lost."""

import asyncio
import logging
import sqlite3
from pathlib import Path

import pytest

from router.ledger import journal as sqlite_journal
from router.ledger.journal import SqliteJournal
from router.ledger.ledger import Ledger, SqliteLedger
from router.ledger.write import recover, renew
from router.types.journal import Journal, LedgerUnavailable, Row
from router.types.lease import LEASE_MS
from tests.ledger.books import NOTES, found, with_journal, with_ledger
from tests.report.filled import Happened, Tried, fill
from tests.stores import Make
from tests.tables import each_row

NOTE = "INSERT INTO notes VALUES (?, ?, ?, ?)"
DECISION = "INSERT INTO live_decisions VALUES (?, ?, ?, ?)"
RESCORE = "UPDATE notes SET score = score * ? + 1"


def noted(ledger: Ledger) -> Ledger:
    """With a table that asks nothing of its rows."""
    with ledger.writing() as connection:
        connection.execute(NOTES)
    return ledger


@pytest.fixture
def ledger(ledger: Ledger) -> Ledger:
    return noted(ledger)


def scores(ledger: Ledger) -> list[float]:
    return [row["score"] for row in found(ledger, "SELECT score FROM notes ORDER BY given_ms")]


async def available(journal: Journal, wanted: bool = True) -> None:
    while journal.available != wanted:  # noqa: ASYNC110 - it is no event, it is read before each request
        await asyncio.sleep(0.01)


def test_what_was_queued_is_committed_together_new_rows_first_and_changes_in_their_order(ledger: Ledger) -> None:
    async def work(journal: Journal) -> None:
        for number in range(3):
            journal.change(NOTE, ("r", number, number, "client"))
        assert scores(ledger) == []
        await journal.committed()
        assert scores(ledger) == [0, 1, 2]
        await journal.committed()  # waiting for nothing is over at once
        journal.change(RESCORE, (10,))
        journal.change(RESCORE, (2,))
        journal.add(NOTE, ("r", 3, 3, "client"))

    with_ledger(ledger, work)
    assert scores(ledger) == [(score * 10 + 1) * 2 + 1 for score in range(4)], "the end writes what is queued"


def test_a_commit_is_waited_for_by_all_that_queued_before_it(ledger: Ledger) -> None:
    """While a commit is under way the next one gathers; a later wait finds the rows of both."""

    async def work(journal: Journal) -> list[float]:
        journal.add(NOTE, ("r", 0, 0, "client"))
        first = asyncio.ensure_future(journal.committed())
        await asyncio.sleep(0)
        journal.add(NOTE, ("r", 1, 1, "client"))
        await journal.committed()
        assert first.done()
        return scores(ledger)

    assert with_ledger(ledger, work) == [0, 1]


def test_more_than_a_transaction_s_worth_is_all_written(ledger: Ledger) -> None:
    async def work(journal: Journal) -> None:
        for number in range(5_000):
            journal.add(NOTE, ("r", number, 1, "client"))
        journal.change(RESCORE, (0,))
        await journal.committed()
        assert journal.available
        assert scores(ledger) == [1.0] * 5_000

    with_ledger(ledger, work)


POISON: list[tuple[str, Row, int]] = [
    (NOTE, ("r", 2**63, 0.5, "client"), 1),
    (NOTE, ("r", None, 0.5, "client"), 3),
    (DECISION, ("d", 0, "p", "{}"), 3),
]


@each_row("statement, row, times", POISON)
def test_a_row_that_can_not_be_written_keeps_no_other_out(
    new_ledger: Make, statement: str, row: Row, times: int, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = noted(new_ledger())
    caplog.clear()

    async def work(journal: Journal) -> None:
        journal.change(DECISION, ("d", 0, "p", "{}"))
        await journal.committed()
        journal.change(NOTE, ("r", 0, 1, "client"))
        for _ in range(times):
            journal.change(statement, row)
        journal.change(NOTE, ("r", 1, 2, "client"))
        with pytest.raises(LedgerUnavailable):
            await journal.committed()
        await available(journal)

    with caplog.at_level(logging.ERROR):
        with_ledger(ledger, work)
    assert scores(ledger) == [1, 2]
    assert caplog.text.count("a row was dropped") == times


def test_values_come_back_as_they_went_in(ledger: Ledger) -> None:
    texts = ["", "'; DROP TABLE notes; --", "$1 ? :name %s", "\\", "日本 🙂", '{"a": "\\u0000"}', "\n\t"]
    numbers = [(-(2**63), 0.1), (0, 1e-9), (1_793_577_600_000, 0.30000000000000004), (2**63 - 1, 1.0)]

    async def work(journal: Journal) -> None:
        for number, text in enumerate(texts):
            journal.add(DECISION, (f"d{number}", number, "p", text))
        for whole, score in numbers:
            journal.add(NOTE, ("r", whole, score, "client"))
        await journal.committed()

    with_ledger(ledger, work)
    assert [row["document"] for row in found(ledger, "SELECT document FROM live_decisions ORDER BY id")] == texts
    rows = found(ledger, "SELECT given_ms, score FROM notes ORDER BY given_ms")
    assert [tuple(row.values()) for row in rows] == numbers
    (counted,) = found(ledger, "SELECT COUNT(*) AS n, SUM(score) AS s, MAX(given_ms) AS m, NULL AS none FROM notes")
    assert [type(value) for value in counted.values()] == [int, float, int, type(None)]


def test_a_request_whose_process_died_is_charged_at_its_hold(ledger: Ledger) -> None:
    """Its lease ran out; those that are renewed, and those that are settled, stay as they are."""
    fill(ledger, [Happened(id="dead", ends="held", held=700), Happened(id="done", tried=(Tried("local", 3),))])

    async def work(journal: Journal) -> None:
        (row,) = found(ledger, "SELECT lease_until_ms FROM requests WHERE id = 'dead'")
        over = row["lease_until_ms"] + 1
        journal.change("UPDATE live_requests SET owner = ?", (journal.owner,))
        renew(journal, over)
        recover(journal, over)
        await journal.committed()
        assert [row["state"] for row in found(ledger, "SELECT state FROM requests ORDER BY id")] == ["held", "settled"]
        recover(journal, over + LEASE_MS + 1)
        await journal.committed()

    with_ledger(ledger, work)
    dead, done = found(ledger, "SELECT id, state, cost, error FROM requests ORDER BY id")
    assert dead == {"id": "dead", "state": "recovered", "cost": 700, "error": "crashed"}
    assert (done["state"], done["cost"]) == ("settled", 3)


# A file's journal: decisions in its transactions, locks, its log.


@pytest.fixture
def file(new_sqlite: SqliteLedger) -> Path:
    noted(new_sqlite)
    return new_sqlite.path


def count(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT count(*) FROM notes").fetchone()[0])


def test_calls_see_what_is_committed_with_them(file: Path) -> None:
    async def work(journal: SqliteJournal) -> list[int]:
        for number in range(3):
            journal.change(NOTE, ("r", 0, number, "client"))
        return list(await asyncio.gather(journal.call(count), journal.call(count)))

    assert with_journal(file, work) == [3, 3]


def test_while_another_process_writes_calls_are_refused_and_rows_wait(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_journal, "BUSY_MS", 20)

    async def work(journal: SqliteJournal) -> None:
        with SqliteLedger(file).writing() as other:
            other.execute("BEGIN IMMEDIATE")
            journal.change(NOTE, ("r", 0, 1, "client"))
            refused = journal.call(count)
            for future in (journal.committed(), refused):
                with pytest.raises(LedgerUnavailable):
                    await future
            assert not journal.available
            with pytest.raises(LedgerUnavailable, match="locked"), SqliteLedger(file).writing() as connection:
                connection.execute("DELETE FROM outcomes")
            other.execute("COMMIT")
        await available(journal)

    with_journal(file, work)
    assert scores(SqliteLedger(file)) == [1]


def test_a_refused_call_does_not_spoil_the_next(file: Path) -> None:
    def broken(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO notes VALUES ('r', 0, 9, 'client')")
        raise ZeroDivisionError

    async def work(journal: SqliteJournal) -> int:
        with pytest.raises(LedgerUnavailable):
            await journal.call(broken)
        await available(journal)
        journal.change(NOTE, ("r", 0, 1, "client"))
        return await journal.call(count)

    assert with_journal(file, work) == 1
    assert scores(SqliteLedger(file)) == [1]


def test_the_write_ahead_log_is_emptied(file: Path) -> None:
    async def work(journal: SqliteJournal) -> int:
        for number in range(200):
            journal.change(DECISION, (f"d{number}", 0, "p", "x" * 1_000))
            await journal.committed()
        journal.checkpoint()
        return (await asyncio.to_thread(file.stat)).st_size

    assert with_journal(file, work) > 200_000
    assert len(found(SqliteLedger(file), "SELECT id FROM decisions")) == 200


def test_a_file_that_can_not_be_used_is_told_from_a_mistake(new_sqlite: SqliteLedger, tmp_path: Path) -> None:
    (tmp_path / "broken.db").write_bytes(b"no database at all" * 100)
    for name in ("none.db", "broken.db"):
        with pytest.raises(LedgerUnavailable, match=name):
            found(SqliteLedger(tmp_path / name), "SELECT 1 FROM requests")
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        found(new_sqlite, "SELECT 1 FROM nowhere")
