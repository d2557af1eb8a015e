"""What one hold and its settlement cost the process that asks for them, 32 in flight."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import uvloop
from msgspec import Struct

from bench.budgets.redis_server import serving
from router.budget.redis.server import LedgerTotals
from router.budget.redis.store import RedisBudgets
from router.budget.sqlite import SqliteBudgets
from router.ledger.journal import SqliteJournal
from router.types.account import LEASE_MS, Account, Amount, BudgetStore, HoldRequest, Reservation
from router.types.clock import new_id, now_ms
from router.types.target import Secret

IN_FLIGHT = 32
ROUNDS = 5
_AMOUNT = Amount(1_000)
_ASK = HoldRequest(least=_AMOUNT, tight=_AMOUNT, whole=_AMOUNT)


class Cost(Struct, frozen=True):
    """CPU time of the process, all threads, divided by the requests: the median, the least and the most of the rounds.
    The time of the Redis server is not in it."""

    store: str
    accounts: int
    requests: int
    """In each round."""
    cpu_us: float
    least_us: float
    most_us: float


def costs(folder: Path, requests: int) -> tuple[Cost, ...]:
    folder.mkdir()
    found = [uvloop.run(_sqlite(folder / f"{accounts}.db", accounts, requests)) for accounts in (1, 3)]
    with serving(folder / "redis") as url:
        found.append(uvloop.run(_redis(folder / "rows.db", url, requests)))
    return tuple(found)


async def _sqlite(ledger: Path, accounts: int, requests: int) -> Cost:
    async with _journal(ledger) as journal:
        return await _measured("sqlite", SqliteBudgets(journal, LEASE_MS), accounts, requests)


async def _redis(ledger: Path, url: str, requests: int) -> Cost:
    async with _journal(ledger) as journal:
        store = RedisBudgets(Secret(url), journal, lambda: LedgerTotals([], []), LEASE_MS)
        await store.start()
        try:
            return await _measured("redis", store, 1, requests)
        finally:
            await store.stop()


@asynccontextmanager
async def _journal(ledger: Path) -> AsyncIterator[SqliteJournal]:
    journal = SqliteJournal(ledger)
    try:
        yield journal
    finally:
        await journal.end()


async def _measured(name: str, store: BudgetStore, accounts: int, requests: int) -> Cost:
    """After a round that warms up."""
    bound = [
        Account(id=f"pot-{number}", budget=f"pot-{number}", scope="all", limit=10**15) for number in range(accounts)
    ]
    rounds = sorted([await _round(store, bound, requests) for _ in range(ROUNDS + 1)][1:])
    return Cost(name, accounts, requests, rounds[len(rounds) // 2], rounds[0], rounds[-1])


async def _round(store: BudgetStore, bound: list[Account], requests: int) -> float:
    """CPU µs a request. Ids are made before."""
    ids = iter([new_id() for _ in range(requests)])

    async def lane() -> None:
        for request_id in ids:
            granted = await store.reserve(request_id, bound, _ASK, now_ms())
            assert isinstance(granted, Reservation)
            store.settle(granted, [900] * len(granted.holds))
            await store.settled()

    before = time.process_time()
    await asyncio.gather(*(lane() for _ in range(IN_FLIGHT)))
    return round((time.process_time() - before) * 1e6 / requests, 1)
