"""The embedded store beyond its port: the ledger's rows, an older ledger, a file that another process keeps locked."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from importlib.resources import files
from pathlib import Path

import pytest

from router.ledger import journal
from router.types.account import LEASE_MS, Amount, StoreUnavailable
from tests.budget.conformance.desk import NOW, Desk, account, ask, exactly, thinking
from tests.budget.conformance.stores import Place
from tests.ledger.books import rows, windows

POT, THOUGHT = account("p", 1_000), thinking("t", 1_000)


def at_file(path: Path, work: Callable[[Desk], Awaitable[None]]) -> None:
    async def run() -> None:
        async with Desk(Place(path)) as desk:
            await work(desk)

    asyncio.run(run())


def test_the_request_s_row_says_what_was_granted_and_is_charged_that_when_its_process_dies(tmp_path: Path) -> None:
    ledger = tmp_path / "lowpass.db"
    query = "SELECT state, held, held_thinking, cost, thinking, error FROM requests"
    born = {"state": "held", "held": 200, "held_thinking": 20, "cost": None, "thinking": None, "error": None}
    charged = {"state": "recovered", "held": 250, "held_thinking": 25, "cost": 250, "thinking": 25, "error": "crashed"}

    async def work(desk: Desk) -> None:
        held = await desk.granted([POT, THOUGHT], ask(100, 200, 5_000, (10, 20, 900)))
        assert rows(ledger, query) == [born]
        await desk.store.extend(held, [POT, THOUGHT], Amount(50, 5), NOW)
        assert rows(ledger, query) == [born | {"held": 250, "held_thinking": 25}]
        await desk.killed()
        assert [await desk.store.recover(NOW + LEASE_MS + late) for late in (0, 1, 2)] == [0, 1, 0]

    at_file(ledger, work)
    assert rows(ledger, query) == [charged]
    assert rows(ledger, "SELECT DISTINCT state FROM bookings") == [{"state": "recovered"}]


def test_a_ledger_of_the_first_version_keeps_what_it_spent_and_held(tmp_path: Path) -> None:
    ledger = tmp_path / "lowpass.db"
    first = files("router.ledger").joinpath("migrations", "0001_ledger.sql").read_text()
    with closing(sqlite3.connect(ledger)) as connection:
        connection.executescript(first)
        connection.executescript(
            "INSERT INTO budget_windows VALUES ('p', 0, 300, 200), ('p', 7, 40, 0), ('q', 0, 0, 150);"
            "INSERT INTO holds VALUES ('r1', 'p', 0, 200), ('r2', 'q', 0, 150);"
            "INSERT INTO requests (id, started_ms, state, held, lease_until_ms, owner, endpoint, requested, route,"
            " stream, key_id, session, tags, data_class, task, difficulty)"
            " VALUES ('r1', 0, 'held', 200, 0, 'dead', '', '', '', 0, '', '', '', '', '', 0);"
            "PRAGMA user_version = 1;"
        )

    async def work(desk: Desk) -> None:
        assert await desk.balances(POT, account("q", 1_000)) == [(300, 200), (0, 150)]
        assert await desk.opened.sums() == {("p", 0): (300, 200), ("p", 7): (40, 0), ("q", 0): (0, 150)}
        assert await desk.store.recover(NOW + 1) == 1
        assert await desk.balance(POT) == (500, 0)

    at_file(ledger, work)


def test_a_file_that_another_process_keeps_locked_refuses_soon_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A settlement that comes meanwhile is booked when the lock is gone, without a restart."""
    ledger = tmp_path / "lowpass.db"
    monkeypatch.setattr(journal, "BUSY_MS", 50)
    monkeypatch.setattr(journal, "RETRY_S", 0.05)

    async def work(desk: Desk) -> None:
        held = await desk.hold([POT], 400)
        with closing(sqlite3.connect(ledger, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            assert desk.store.available
            for call in (
                lambda: desk.reserve([POT], exactly(100)),
                lambda: desk.store.extend(held, [POT], Amount(10, 0), NOW),
                lambda: desk.store.recover(NOW),
                lambda: desk.store.balances([POT]),
                lambda: desk.child(POT, 10),
            ):
                with pytest.raises(StoreUnavailable):
                    await call()
            assert not desk.store.available
            await desk.settle(held, 300)
            assert windows(ledger) == {("p", 0): (0, 400)}
            other.execute("ROLLBACK")
        await desk.opened.journal.committed()
        assert desk.store.available
        assert await desk.balance(POT) == (300, 0)

    at_file(ledger, work)
