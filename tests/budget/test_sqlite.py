"""The embedded store beyond its port: the ledger's rows, an older ledger, a file that another process keeps locked."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
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
