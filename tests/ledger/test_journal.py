"""Group commit, wherever the ledger is: all or nothing, in order, and nothing that was promised is lost.

Also on a server that is killed, hangs, or hangs up in the middle of a commit.
"""

import asyncio
import logging
import os
import select
import signal
import socket
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingUnixStreamServer
from threading import Event, Thread
from urllib.parse import quote, unquote, urlsplit, urlunsplit

import pytest

from router.ledger import journal as sqlite_journal
from router.ledger import postgres as journals
from router.ledger.journal import Item, SqliteJournal
from router.ledger.ledger import Ledger, SqliteLedger
from router.ledger.postgres import PostgresConnection, PostgresLedger
from router.ledger.write import recover, renew, settle
from router.types.account import LEASE_MS, Journal, LedgerUnavailable, Row
from router.types.target import Secret
from tests.ledger.books import NOTES, found, with_journal, with_ledger
from tests.postgres import Server
from tests.report.filled import Happened, Tried, fill
from tests.stores import Make
from tests.tables import each_row

NOTE = "INSERT INTO notes VALUES (?, ?, ?, ?)"
DECISION = "INSERT INTO live_decisions VALUES (?, ?, ?, ?)"
RESCORE = "UPDATE notes SET score = score * ? + 1"
SESSIONS = (
    "SELECT pid FROM pg_stat_activity WHERE application_name = 'lowpass' AND pid <> pg_backend_pid()"
    " AND datname = current_database()"
)


def note(journal: Journal, score: int, *, at: int | None = None) -> None:
    journal.change(NOTE, ("r", score if at is None else at, score, "client"))


def decide(journal: Journal, name: str) -> None:
    journal.add(DECISION, (name, 0, "p", "{}"))


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


async def refused(journal: Journal) -> None:
    with pytest.raises(LedgerUnavailable):
        await journal.committed()


async def available(journal: Journal, wanted: bool = True) -> None:
    while journal.available != wanted:  # noqa: ASYNC110 - it is no event, it is read before each request
        await asyncio.sleep(0.01)


def test_what_was_queued_is_committed_together_new_rows_first_and_changes_in_their_order(ledger: Ledger) -> None:
    async def work(journal: Journal) -> None:
        for number in range(3):
            note(journal, number)
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
        decide(journal, "d")
        await journal.committed()
        note(journal, 1)
        for _ in range(times):
            journal.change(statement, row)
        note(journal, 2)
        await refused(journal)
        await available(journal)

    with caplog.at_level(logging.ERROR):
        with_ledger(ledger, work)
    assert scores(ledger) == [1, 2]
    assert caplog.text.count("a row was dropped") == times


def test_values_come_back_as_they_went_in(ledger: Ledger) -> None:
    texts = ["a\0b", "", "'; DROP TABLE notes; --", "$1 ? :name %s", "\\", "日本 🙂", '{"a": "\\u0000"}', "\n\t"]
    numbers = [(-(2**63), 0.1), (0, 1e-9), (1_793_577_600_000, 0.30000000000000004), (2**63 - 1, 1e300)]

    async def work(journal: Journal) -> None:
        for number, text in enumerate(texts):
            journal.add(DECISION, (f"d{number}", number, "p", text))
        for whole, score in numbers:
            journal.add(NOTE, ("r", whole, score, "client"))
        await journal.committed()

    with_ledger(ledger, work)
    if isinstance(ledger, PostgresLedger):
        texts[0] = "a\ufffdb"  # it takes no NUL
    assert [row["document"] for row in found(ledger, "SELECT document FROM live_decisions ORDER BY id")] == texts
    rows = found(ledger, "SELECT given_ms, score FROM notes ORDER BY given_ms")
    assert [tuple(row.values()) for row in rows] == numbers
    (counted,) = found(ledger, "SELECT COUNT(*) AS n, SUM(score) AS s, MAX(given_ms) AS m, NULL AS none FROM notes")
    assert [type(value) for value in counted.values()] == [int, float, int, type(None)]


def test_a_request_whose_process_died_is_charged_at_its_hold(ledger: Ledger) -> None:
    """Its lease ran out; those that are renewed, and those that are settled, stay as they are."""
    over = Happened(id="over", tried=(Tried("local", 3, more={"passed_over": True}),), status=502)
    fill(ledger, [Happened(id="dead", ends="held", held=700), Happened(id="done", tried=(Tried("local", 3),)), over])

    async def work(journal: Journal) -> None:
        (row,) = found(ledger, "SELECT lease_until_ms FROM requests WHERE id = 'dead'")
        over = row["lease_until_ms"] + 1
        journal.change("UPDATE live_requests SET owner = ?", (journal.owner,))
        renew(journal, over)
        recover(journal, over)
        await journal.committed()
        states = found(ledger, "SELECT state FROM requests ORDER BY id")
        assert [row["state"] for row in states] == ["held", "settled", "settled"]
        recover(journal, over + LEASE_MS + 1)
        settle(journal, "done", status=500, cost=9)
        await journal.committed()

    with_ledger(ledger, work)
    dead, done, passed_over = found(ledger, "SELECT id, state, cost, error, target FROM requests ORDER BY id")
    assert dead == {"id": "dead", "state": "recovered", "cost": 700, "error": "crashed", "target": None}
    assert (done["state"], done["cost"], done["target"]) == ("settled", 3, "local")
    assert (passed_over["cost"], passed_over["target"]) == (3, None)


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
            note(journal, number)
        return list(await asyncio.gather(journal.call(count), journal.call(count)))

    assert with_journal(file, work) == [3, 3]


def test_another_process_that_writes_is_waited_for_but_not_by_the_event_loop(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_journal, "BUSY_MS", 3_600_000)

    async def work(journal: SqliteJournal) -> int:
        monkeypatch.setattr(sqlite_journal, "BUSY_MS", 20)
        with SqliteLedger(file).writing() as other:
            other.execute("BEGIN IMMEDIATE")
            note(journal, 1)
            called = journal.call(count)
            await asyncio.sleep(0.01)
            with pytest.raises(LedgerUnavailable, match="locked"), SqliteLedger(file).writing() as connection:
                connection.execute("DELETE FROM outcomes")
            assert not called.done()
            other.execute("COMMIT")
        return await called

    assert with_journal(file, work) == 1


def test_a_refused_call_does_not_spoil_the_next(file: Path) -> None:
    def broken(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO notes VALUES ('r', 0, 9, 'client')")
        raise ZeroDivisionError

    async def work(journal: SqliteJournal) -> int:
        with pytest.raises(LedgerUnavailable):
            await journal.call(broken)
        await available(journal)
        note(journal, 1)
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


# A server's journal.


class Proxy(ThreadingUnixStreamServer):
    """`swallow`: from now on nothing that the server says arrives, and after its next words the line is cut."""

    daemon_threads = True

    def __init__(self, url: str, folder: Path) -> None:
        parts = urlsplit(url)
        user, _, host = parts.netloc.rpartition("@")
        self.behind, self.swallow = f"{unquote(host)}/.s.PGSQL.5432", Event()
        self.url = urlunsplit(parts._replace(netloc=f"{user}@{quote(str(folder), safe='')}"))
        super().__init__(str(folder / ".s.PGSQL.5432"), Relay)
        Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()


class Relay(BaseRequestHandler):
    server: Proxy

    def handle(self) -> None:
        with suppress(OSError), socket.socket(socket.AF_UNIX) as behind:
            behind.connect(self.server.behind)
            others = {self.request: behind, behind: self.request}
            while True:
                for source in select.select(list(others), [], [])[0]:
                    data = source.recv(65_536)
                    if source is behind and self.server.swallow.is_set():
                        self.server.swallow.clear()
                        return
                    if not data:
                        return
                    others[source].sendall(data)


def at(url: str) -> PostgresLedger:
    return PostgresLedger(Secret(url))


@pytest.fixture
def shared(postgres: Server) -> PostgresLedger:
    return at(postgres.database())


@pytest.fixture
def mortal_ledger(mortal: Server) -> PostgresLedger:
    """In a server that a test may kill."""
    ledger = at(mortal.database())
    noted(ledger)
    return ledger


def decisions(ledger: PostgresLedger) -> list[str]:
    return [row["id"] for row in found(ledger, "SELECT id FROM decisions ORDER BY id")]


@contextmanager
def hanging(session: int) -> Iterator[None]:
    os.kill(session, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(session, signal.SIGCONT)


def test_a_server_that_was_killed_finds_every_row_when_it_is_back(
    mortal: Server, mortal_ledger: PostgresLedger, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As far as there is room for what waits."""
    monkeypatch.setattr(journals, "LARGEST", 10)

    async def work(journal: Journal) -> None:
        decide(journal, "d0")
        await journal.committed()
        mortal.kill()
        for row in ("d1", "d2"):
            decide(journal, row)
            await refused(journal)
            assert not journal.available
        for number in range(25):
            note(journal, number)
        await asyncio.to_thread(mortal.start)
        await available(journal)
        await journal.committed()

    with caplog.at_level(logging.WARNING):
        with_ledger(mortal_ledger, work)
    assert decisions(mortal_ledger) == ["d0", "d1", "d2"]
    assert scores(mortal_ledger) == list(range(8)), "beside d1 and d2"
    assert "17 rows found no room" in caplog.text


def test_a_server_that_hung_up_while_nothing_happened_is_called_again_before_anything_is_refused(
    shared: PostgresLedger, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(journal: Journal) -> None:
        assert journal.available, "from its first moment"
        found(shared, SESSIONS.replace("pid FROM", "pg_terminate_backend(pid, 60000) FROM"))
        decide(journal, "d0")
        await journal.committed()

    with caplog.at_level(logging.WARNING):
        with_ledger(shared, work)
    assert decisions(shared) == ["d0"]
    assert caplog.text == ""


def test_a_server_that_hangs_is_left(shared: PostgresLedger, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(journal: Journal) -> None:
        (row,) = found(shared, SESSIONS)
        with hanging(row["pid"]):
            with monkeypatch.context() as patch:
                patch.setattr(journals, "COMMIT_S", 0.01)
                decide(journal, "d0")
                await refused(journal)
            await available(journal)
            assert decisions(shared) == ["d0"]

    with_ledger(shared, work)


def test_a_reader_does_not_wait_for_a_server_that_hangs(
    shared: PostgresLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    with shared.reading() as reader:
        (row,) = found(shared, SESSIONS)
        monkeypatch.setattr("router.ledger.postgres.ANSWER_S", 0.01)
        with hanging(row["pid"]), pytest.raises(LedgerUnavailable, match=r"within 0\.01 s"):
            reader.execute("SELECT 1")


def test_a_commit_whose_answer_is_lost_is_not_made_twice(
    postgres: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url = postgres.database()
    direct, proxy = at(url), Proxy(url, tmp_path)

    async def work(journal: Journal) -> None:
        decide(journal, "d0")
        await journal.committed()
        proxy.swallow.set()
        decide(journal, "d1")
        journal.change("UPDATE live_decisions SET policy = ? WHERE id = ?", ("q", "d1"))
        await refused(journal)
        assert decisions(direct) == ["d0", "d1"], "the commit itself had arrived"
        decide(journal, "d2")
        await available(journal)

    with caplog.at_level(logging.INFO):
        with_ledger(at(proxy.url), work)
    proxy.shutdown()
    proxy.server_close()
    assert decisions(direct) == ["d0", "d1", "d2"]
    assert "a row was dropped" not in caplog.text


def test_the_end_does_not_wait_for_ever_and_says_what_is_lost(
    mortal: Server, mortal_ledger: PostgresLedger, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(journals, "END_S", 0.01)

    async def work(journal: Journal) -> None:
        mortal.kill()
        decide(journal, "d0")
        await available(journal, False)

    with caplog.at_level(logging.ERROR):
        with_ledger(mortal_ledger, work)
    assert "1 rows are lost" in caplog.text


def test_a_crowd_that_is_refused_meanwhile_keeps_no_ledger_from_its_return(
    mortal: Server, mortal_ledger: PostgresLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each refusal is a row, so that another one waits whenever a transaction is over."""
    commit = PostgresConnection.commit

    async def work(journal: Journal) -> None:
        loop = asyncio.get_running_loop()

        def crowded(connection: PostgresConnection, items: Sequence[Item]) -> None:
            commit(connection, items)
            if not journal.available:
                loop.call_soon_threadsafe(journal.add, NOTE, ("r", len(items), 1, "client"))

        monkeypatch.setattr(PostgresConnection, "commit", crowded)
        mortal.kill()
        note(journal, 1, at=0)
        await available(journal, False)
        await asyncio.to_thread(mortal.start)
        await available(journal)
        await journal.committed()

    with_ledger(mortal_ledger, work)
    assert len(scores(mortal_ledger)) == 2


def test_the_file_is_its_owner_s_alone(tmp_path: Path) -> None:
    """With those that SQLite puts beside it; one that was made too open is closed."""
    before = os.umask(0)
    try:
        for found in (False, True):
            path = tmp_path / f"{found}.db"
            if found:
                path.touch(0o666)
            with closing(sqlite_journal.connect(path)) as connection:
                connection.execute("CREATE TABLE t (a)")
                modes = {file.name: file.stat().st_mode & 0o777 for file in tmp_path.glob(f"{found}.db*")}
            assert modes == {f"{found}.db{end}": 0o600 for end in ("", "-wal", "-shm")}
    finally:
        os.umask(before)
