"""A server that is killed, hangs, or hangs up in the middle of a commit: nothing waits for ever, nothing is lost."""

import asyncio
import logging
import os
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from router.ledger.postgres import connection as connection_module
from router.ledger.postgres import journal as journal_module
from router.ledger.postgres import pipe as pipe_module
from router.ledger.postgres import queue as queue_module
from router.ledger.postgres.journal import PostgresJournal
from router.ledger.postgres.ledger import PostgresLedger
from router.ledger.postgres.pipe import Pipe
from router.ledger.postgres.queue import Item
from router.types.journal import Journal, LedgerUnavailable
from router.types.secret import Secret
from tests.ledger.books import NOTES, found, with_ledger
from tests.ledger.proxy import Proxy
from tests.ledger.test_journal import DECISION, NOTE, available, scores
from tests.postgres import Server

SESSIONS = "SELECT pid FROM pg_stat_activity WHERE application_name = 'lowpass' AND pid <> pg_backend_pid()"


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "RETRY_S", 0.05)
    monkeypatch.setattr(journal_module, "END_S", 0.5)
    monkeypatch.setattr(pipe_module, "COMMIT_S", 0.5)
    monkeypatch.setattr(connection_module, "ANSWER_S", 0.5)


@pytest.fixture
def server() -> Iterator[Server]:
    """One that a test may kill."""
    server = Server()
    if not server.mine:
        pytest.skip("the server of LOWPASS_TEST_DATABASE_URL is not ours to kill")
    yield server.start()
    server.stop()


def at(url: str) -> PostgresLedger:
    return PostgresLedger(Secret(url))


def noted(server: Server) -> PostgresLedger:
    """With a table that asks nothing of its rows."""
    ledger = at(server.database())
    ledger.migrate()
    with ledger.writing() as connection:
        connection.execute(NOTES)
    return ledger


async def lost(journal: Journal) -> None:
    while journal.available:  # noqa: ASYNC110 - it is no event, it is read before each request
        await asyncio.sleep(0.02)


def decisions(ledger: PostgresLedger) -> list[str]:
    return [row["id"] for row in found(ledger, "SELECT id FROM decisions ORDER BY id")]


def test_a_server_that_was_killed_finds_every_row_when_it_is_back(server: Server) -> None:
    ledger = at(server.database())

    async def work(journal: Journal) -> None:
        journal.add(DECISION, ("d0", 0, "p", "{}"))
        await journal.committed()
        server.kill()
        journal.add(DECISION, ("d1", 0, "p", "{}"))
        with pytest.raises(LedgerUnavailable):
            await asyncio.wait_for(journal.committed(), 5)
        assert not journal.available
        journal.add(DECISION, ("d2", 0, "p", "{}"))
        with pytest.raises(LedgerUnavailable):
            await asyncio.wait_for(journal.committed(), 0.2)
        await asyncio.to_thread(server.start)
        await asyncio.wait_for(available(journal), 10)
        await journal.committed()

    with_ledger(ledger, work)
    assert decisions(ledger) == ["d0", "d1", "d2"]


def test_a_server_that_hangs_up_while_nothing_happens_is_called_again(
    postgres: Server, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = at(postgres.database())

    async def work(journal: Journal) -> None:
        with ledger.writing() as other:
            other.execute(SESSIONS.replace("pid FROM", "pg_terminate_backend(pid) FROM"))
        while "can be written again" not in caplog.text:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.02)
        assert journal.available

    with caplog.at_level(logging.WARNING):
        with_ledger(ledger, work)
    assert "the server closed the connection" in caplog.text


def test_a_server_that_hangs_is_left(postgres: Server) -> None:
    ledger = at(postgres.database())

    async def work(journal: Journal) -> None:
        with ledger.reading() as other:
            ((session,),) = other.execute(SESSIONS + " AND datname = current_database()").fetchall()
        os.kill(session, signal.SIGSTOP)
        try:
            journal.add(DECISION, ("d0", 0, "p", "{}"))
            with pytest.raises(LedgerUnavailable):
                await asyncio.wait_for(journal.committed(), 5)
            await asyncio.wait_for(available(journal), 5)
            assert decisions(ledger) == ["d0"]
        finally:
            os.kill(session, signal.SIGCONT)

    with_ledger(ledger, work)


def test_a_reader_does_not_wait_for_a_server_that_hangs(postgres: Server) -> None:
    ledger = at(postgres.database())
    with ledger.reading() as reader, ledger.reading() as other:
        ((session,),) = other.execute(SESSIONS + " AND datname = current_database()").fetchall()
        os.kill(session, signal.SIGSTOP)
        try:
            with pytest.raises(LedgerUnavailable, match=r"within 0\.5 s"):
                reader.execute("SELECT 1")
        finally:
            os.kill(session, signal.SIGCONT)


def test_a_commit_whose_answer_is_lost_is_not_made_twice(
    postgres: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    direct = at(postgres.database())
    proxy = Proxy(direct_url(direct), tmp_path)

    async def work(journal: Journal) -> None:
        journal.add(DECISION, ("d0", 0, "p", "{}"))
        await journal.committed()
        proxy.swallow.set()
        journal.add(DECISION, ("d1", 0, "p", "{}"))
        journal.change("UPDATE decisions SET policy = ? WHERE id = ?", ("q", "d1"))
        with pytest.raises(LedgerUnavailable):
            await asyncio.wait_for(journal.committed(), 5)
        assert decisions(direct) == ["d0", "d1"], "the commit itself had arrived"
        journal.add(DECISION, ("d2", 0, "p", "{}"))
        await asyncio.wait_for(available(journal), 5)

    with caplog.at_level(logging.INFO):
        with_ledger(at(proxy.url), work)
    proxy.close()
    assert decisions(direct) == ["d0", "d1", "d2"]
    assert "a row was dropped" not in caplog.text


def direct_url(ledger: PostgresLedger) -> str:
    return ledger._place._url.reveal()


def test_the_end_does_not_wait_for_ever_and_says_what_is_lost(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    ledger = at(server.database())

    async def work(journal: Journal) -> None:
        server.kill()
        journal.add(DECISION, ("d0", 0, "p", "{}"))
        await asyncio.wait_for(lost(journal), 5)

    started = time.monotonic()
    with caplog.at_level(logging.ERROR):
        with_ledger(ledger, work)
    assert time.monotonic() - started < 10
    assert "1 rows are lost" in caplog.text
    server.start()


def test_what_waits_is_bounded(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(queue_module, "LARGEST", 10)
    ledger = noted(server)

    async def work(journal: Journal) -> None:
        server.kill()
        await asyncio.wait_for(lost(journal), 5)
        for number in range(25):
            journal.add(NOTE, ("r", number, number, "client"))
        await asyncio.to_thread(server.start)
        await asyncio.wait_for(available(journal), 5)

    with caplog.at_level(logging.WARNING):
        with_ledger(ledger, work)
    assert scores(ledger) == list(range(10))
    assert "15 rows found no room" in caplog.text


def test_a_crowd_that_is_refused_meanwhile_keeps_no_ledger_from_its_return(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each refusal is a row, so that another one waits whenever a transaction is over."""
    ledger, commit = noted(server), Pipe.commit

    async def work(journal: Journal) -> None:
        async def crowded(pipe: Pipe, items: Sequence[Item]) -> None:
            await commit(pipe, items)
            if not journal.available:
                journal.add(NOTE, ("r", len(items), 1, "client"))

        monkeypatch.setattr(Pipe, "commit", crowded)
        server.kill()
        journal.add(NOTE, ("r", 0, 1, "client"))
        await asyncio.wait_for(lost(journal), 5)
        await asyncio.to_thread(server.start)
        await asyncio.wait_for(available(journal), 10)
        await journal.committed()

    with_ledger(ledger, work)
    assert len(scores(ledger)) == 2


def test_a_journal_is_a_journal_from_its_first_moment(postgres: Server) -> None:
    """`lowpass serve` greets with a ledger that can be written."""

    async def work() -> bool:
        journal = PostgresJournal(at(postgres.database())._place)
        try:
            return journal.available
        finally:
            await journal.end()

    assert asyncio.run(work())
