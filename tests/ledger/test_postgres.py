"""A server that is killed, hangs, or hangs up in the middle of a commit: nothing waits for ever, nothing is lost."""

import asyncio
import logging
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from router.ledger.postgres import connection as connection_module
from router.ledger.postgres import journal as journal_module
from router.ledger.postgres import pipe as pipe_module
from router.ledger.postgres import queue as queue_module
from router.ledger.postgres.ledger import PostgresLedger
from router.ledger.postgres.pipe import Pipe
from router.ledger.postgres.queue import Item
from router.types.journal import Journal, LedgerUnavailable
from router.types.secret import Secret
from tests.ledger.books import found, with_ledger
from tests.ledger.proxy import Proxy
from tests.ledger.test_journal import DECISION, NOTE, available, noted, scores
from tests.postgres import Server

SESSIONS = "SELECT pid FROM pg_stat_activity WHERE application_name = 'lowpass' AND pid <> pg_backend_pid()"
SESSIONS += " AND datname = current_database()"


@pytest.fixture
def shared(postgres: Server) -> PostgresLedger:
    return at(postgres.database())


@pytest.fixture
def ledger(mortal: Server) -> PostgresLedger:
    """In a server that a test may kill."""
    ledger = at(mortal.database())
    noted(ledger)
    return ledger


def at(url: str) -> PostgresLedger:
    return PostgresLedger(Secret(url))


def decisions(ledger: PostgresLedger) -> list[str]:
    return [row["id"] for row in found(ledger, "SELECT id FROM decisions ORDER BY id")]


async def refused(journal: Journal) -> None:
    with pytest.raises(LedgerUnavailable):
        await journal.committed()


@contextmanager
def hanging(session: int) -> Iterator[None]:
    """This session of the server."""
    os.kill(session, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(session, signal.SIGCONT)


def test_a_server_that_was_killed_finds_every_row_when_it_is_back(
    mortal: Server, ledger: PostgresLedger, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As far as there is room for what waits."""
    monkeypatch.setattr(queue_module, "LARGEST", 10)

    async def work(journal: Journal) -> None:
        journal.add(DECISION, ("d0", 0, "p", "{}"))
        await journal.committed()
        mortal.kill()
        for row in ("d1", "d2"):
            journal.add(DECISION, (row, 0, "p", "{}"))
            await refused(journal)
            assert not journal.available
        for number in range(25):
            journal.add(NOTE, ("r", number, number, "client"))
        await asyncio.to_thread(mortal.start)
        await available(journal)
        await journal.committed()

    with caplog.at_level(logging.WARNING):
        with_ledger(ledger, work)
    assert decisions(ledger) == ["d0", "d1", "d2"]
    assert scores(ledger) == list(range(9)), "beside d2"
    assert "16 rows found no room" in caplog.text


def test_a_server_that_hangs_up_while_nothing_happens_is_called_again(
    shared: PostgresLedger, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(journal: Journal) -> None:
        assert journal.available, "from its first moment"
        found(shared, SESSIONS.replace("pid FROM", "pg_terminate_backend(pid) FROM"))
        while "can be written again" not in caplog.text:  # noqa: ASYNC110 - logging knows no events
            await asyncio.sleep(0.01)
        assert journal.available

    with caplog.at_level(logging.WARNING):
        with_ledger(shared, work)
    assert "the server closed the connection" in caplog.text


def test_a_server_that_hangs_is_left(shared: PostgresLedger, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(journal: Journal) -> None:
        (row,) = found(shared, SESSIONS)
        with hanging(row["pid"]):
            with monkeypatch.context() as patch:
                patch.setattr(pipe_module, "COMMIT_S", 0.01)
                journal.add(DECISION, ("d0", 0, "p", "{}"))
                await refused(journal)
            await available(journal)
            assert decisions(shared) == ["d0"]

    with_ledger(shared, work)


def test_a_reader_does_not_wait_for_a_server_that_hangs(
    shared: PostgresLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    with shared.reading() as reader:
        (row,) = found(shared, SESSIONS)
        monkeypatch.setattr(connection_module, "ANSWER_S", 0.01)
        with hanging(row["pid"]), pytest.raises(LedgerUnavailable, match=r"within 0\.01 s"):
            reader.execute("SELECT 1")


def test_a_commit_whose_answer_is_lost_is_not_made_twice(
    postgres: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url = postgres.database()
    direct, proxy = at(url), Proxy(url, tmp_path)

    async def work(journal: Journal) -> None:
        journal.add(DECISION, ("d0", 0, "p", "{}"))
        await journal.committed()
        proxy.swallow.set()
        journal.add(DECISION, ("d1", 0, "p", "{}"))
        journal.change("UPDATE live_decisions SET policy = ? WHERE id = ?", ("q", "d1"))
        await refused(journal)
        assert decisions(direct) == ["d0", "d1"], "the commit itself had arrived"
        journal.add(DECISION, ("d2", 0, "p", "{}"))
        await available(journal)

    with caplog.at_level(logging.INFO):
        with_ledger(at(proxy.url), work)
    proxy.close()
    assert decisions(direct) == ["d0", "d1", "d2"]
    assert "a row was dropped" not in caplog.text


def test_the_end_does_not_wait_for_ever_and_says_what_is_lost(
    mortal: Server, ledger: PostgresLedger, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(journal_module, "END_S", 0.01)

    async def work(journal: Journal) -> None:
        mortal.kill()
        journal.add(DECISION, ("d0", 0, "p", "{}"))
        await available(journal, False)

    with caplog.at_level(logging.ERROR):
        with_ledger(ledger, work)
    assert "1 rows are lost" in caplog.text


def test_a_crowd_that_is_refused_meanwhile_keeps_no_ledger_from_its_return(
    mortal: Server, ledger: PostgresLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each refusal is a row, so that another one waits whenever a transaction is over."""
    commit = Pipe.commit

    async def work(journal: Journal) -> None:
        async def crowded(pipe: Pipe, items: Sequence[Item]) -> None:
            await commit(pipe, items)
            if not journal.available:
                journal.add(NOTE, ("r", len(items), 1, "client"))

        monkeypatch.setattr(Pipe, "commit", crowded)
        mortal.kill()
        journal.add(NOTE, ("r", 0, 1, "client"))
        await available(journal, False)
        await asyncio.to_thread(mortal.start)
        await available(journal)
        await journal.committed()

    with_ledger(ledger, work)
    assert len(scores(ledger)) == 2
