"""Gateways at a Redis server that a test may kill, as the tests of outages use them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import uvloop

from router.budget.redis import RedisBudgets
from router.ledger.journal import SqliteJournal
from router.ledger.write import LEASE_MS
from router.types.account import Balance
from router.types.secret import Secret
from router.types.store import StoreUnavailable
from tests.budget.conformance.desk import account
from tests.budget.conformance.redis_store import books
from tests.budget.redis_process import RedisProcess
from tests.ledger.books import rows

T = TypeVar("T")
PATIENCE_S = 20
POT = account("pot", 10_000)


class Gateways:
    """All at one server, with one ledger."""

    def __init__(self, server: RedisProcess, folder: Path) -> None:
        self.server, self.ledger = server, folder / "lowpass.db"

    @asynccontextmanager
    async def opened(self, url: Secret | None = None, tag: str = "lowpass") -> AsyncIterator[RedisBudgets]:
        journal = SqliteJournal(self.ledger)
        store = RedisBudgets(url or self.server.url, journal, lambda: books(self.ledger), LEASE_MS, tag)
        try:
            await store.start()
            yield store
        finally:
            await store.stop()
            await journal.end()

    def rows(self, name: str = POT.id) -> Balance:
        """What the ledger says about an account."""
        query = (
            "SELECT coalesce(sum(charged), 0) spent, coalesce(sum((charged IS NULL) * held), 0) held"
            " FROM bookings WHERE account = ?"
        )
        (found,) = rows(self.ledger, query, name)
        return Balance(found["spent"], found["held"])


def at_gateways(work: Callable[[Gateways], Coroutine[None, None, T]], *options: str, started: bool = True) -> T:
    """In the event loop that gateways run in."""
    with TemporaryDirectory() as folder, RedisProcess(*options) as server:
        if not started:
            server.kill()
        return uvloop.run(work(Gateways(server, Path(folder))))


async def eventually(done: Callable[[], bool | Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            outcome = done()
            if outcome if isinstance(outcome, bool) else await outcome:
                return
            await asyncio.sleep(0.01)


async def back(store: RedisBudgets) -> None:
    """It answers again, and everything is settled that was queued."""

    async def answers() -> bool:
        try:
            await store.balances([POT])
        except StoreUnavailable:
            return False
        return True

    await eventually(answers)
    await store.settled()


async def balance(store: RedisBudgets) -> Balance:
    (found,) = await store.balances([POT])
    return found
