"""The stores under test: a new one is a `Maker` here, and every test of `test_conformance.py` runs on it."""

from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

from router.budget.redis import RedisBudgets
from router.budget.redis.rebuild import Books
from router.ledger.journal import SqliteJournal
from router.ledger.ledger import Ledger, SqliteLedger
from router.ledger.query import taints
from router.ledger.write import LEASE_MS
from router.sessions.redis import RedisSessions, hashes
from router.sessions.sqlite import SqliteSessions
from router.types.secret import Secret
from router.types.session import SessionStore
from tests.budget.redis_process import redis_place


class Maker(Protocol):
    @property
    def name(self) -> str: ...

    def place(self) -> AbstractContextManager[str]:
        """An empty store. What it yields is enough for another process to open it."""
        ...

    def opened(self, place: str) -> AbstractAsyncContextManager[SessionStore]:
        """What one process has of it, in a running event loop."""
        ...


class Sqlite:
    name = "sqlite"

    @contextmanager
    def place(self) -> Iterator[str]:
        with TemporaryDirectory() as folder:
            yield str(Path(folder) / "lowpass.db")

    @asynccontextmanager
    async def opened(self, place: str) -> AsyncIterator[SqliteSessions]:
        journal = SqliteJournal(Path(place))
        try:
            yield SqliteSessions(journal)
        finally:
            await journal.end()


class Redis:
    """A place is a hash tag in a server that the whole run shares, and a ledger."""

    name = "redis"

    def place(self) -> AbstractContextManager[str]:
        return redis_place()

    @asynccontextmanager
    async def opened(self, place: str) -> AsyncIterator[RedisSessions]:
        url, tag, path = place.split(" ")
        async with in_redis(Secret(url), SqliteLedger(Path(path)), tag) as store:
            yield store


@asynccontextmanager
async def in_redis(url: Secret, ledger: Ledger, tag: str = "lowpass") -> AsyncIterator[RedisSessions]:
    """As a gateway has it."""
    journal = ledger.open_journal()
    budgets = RedisBudgets(url, journal, lambda: Books((), (), hashes(taints(ledger))), LEASE_MS, tag)
    store = RedisSessions(budgets.server, budgets.server.keys.sessions, journal)
    budgets.server.tell(store.resume)
    await budgets.start()
    try:
        yield store
    finally:
        await budgets.stop()
        await journal.end()


MAKERS: tuple[Maker, ...] = (Sqlite(), Redis())


def maker(name: str) -> Maker:
    return next(found for found in MAKERS if found.name == name)
