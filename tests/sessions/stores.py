"""The stores of sessions under test, at the places of the budgets' suite: `test_conformance.py` runs on each."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from router.budget.redis import RedisBudgets
from router.budget.redis.server import Books
from router.ledger.journal import SqliteJournal
from router.ledger.ledger import Ledger, SqliteLedger
from router.ledger.query import taints
from router.sessions.redis import RedisSessions, hashes
from router.sessions.sqlite import SqliteSessions
from router.types.lease import LEASE_MS
from router.types.secret import Secret
from router.types.session import SessionStore
from tests.budget.conformance.stores import Place


@asynccontextmanager
async def opened(place: Place) -> AsyncIterator[SessionStore]:
    """What one process has of it, in a running event loop."""
    if place.url:
        async with in_redis(Secret(place.url), SqliteLedger(place.ledger), place.tag) as store:
            yield store
        return
    journal = SqliteJournal(place.ledger)
    try:
        yield SqliteSessions(journal)
    finally:
        await journal.end()


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
