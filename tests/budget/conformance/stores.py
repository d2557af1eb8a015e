"""The stores under test, at places of their own: every test of this folder runs on each of `KINDS`.

What the suite takes for granted beyond the port's docstrings:

- The clock is the `now_ms` that each call is given. It jumps in both directions; a lease that a clock which went back
  has made too long ends `LEASE_MS` after the next `recover`.
- An account whose `since_ms` is its `window_start_ms` (calendar, lifetime) counts what is booked at that very start:
  windows don't see each other. In any other (rolling) what was booked at `since_ms` or later counts as spent, and
  every open hold counts as held, in whatever window it was made: also the limits of children that are open.
- A unit of which nothing is needed (`least` 0) is never refused: 0 is granted where nothing is left, or less.
- A second `reserve` under the same request id raises `ValueError`, and so does a `split` under an id in use, with a
  limit below 1, or in another unit than its parent's.
- A child that overran its limit counts in its parent at once with what it spent and holds, since that money is gone.
- A child that is closed or expired gives holds no more to grow by.
- `settle` raises `ValueError`, and books nothing, where there are not as many charges as holds.
- A settlement of a hold that the store does not know is booked once; the next `recover` at the latest logs an error
  that names the request.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from router.budget.redis.server import LedgerTotals
from router.budget.redis.store import RedisBudgets
from router.budget.sqlite import SqliteBudgets
from router.ledger.journal import SqliteJournal
from router.types.account import LEASE_MS, BudgetStore
from router.types.target import Secret
from tests.budget.redis_process import connected, shared_part
from tests.ledger.books import rows

KINDS = ("sqlite", "redis")
Sums = dict[tuple[str, int], tuple[int, int]]
"""(account, window start) → (spent, held)."""


class Place(NamedTuple):
    """Enough for another process to open the same store: a ledger and, where budgets are in Redis, a hash tag there."""

    ledger: Path
    url: str = ""
    tag: str = ""


@contextmanager
def empty(kind: str) -> Iterator[Place]:
    with TemporaryDirectory() as folder:
        ledger = Path(folder) / "lowpass.db"
        if kind == "sqlite":
            yield Place(ledger)
        else:
            with shared_part() as (url, tag):
                yield Place(ledger, url, tag)


class Opened:
    """What one process has of a store, and what else the gateway does with it."""

    def __init__(self, store: BudgetStore, journal: SqliteJournal) -> None:
        self.store, self.journal = store, journal

    async def born(self, request_id: str, now_ms: int) -> None:
        """Before each `reserve`: whatever the gateway writes for a request so that its holds can be recovered."""

    async def ended(self, request_id: str) -> None:
        """With each `settle`: whatever the gateway writes then."""

    async def pass_time(self, ms: int) -> None:
        """For leases that the store keeps by its own clock; the suite's `now_ms` has moved already."""

    async def sums(self) -> Sums:
        """Of the rows, one a request and account: what is charged is spent, the rest is held."""
        await self.store.settled()
        query = (
            "SELECT account, window_start_ms, sum(coalesce(charged, 0)) spent, sum((charged IS NULL) * held) held"
            " FROM bookings GROUP BY 1, 2"
        )
        found = rows(self.journal.path, query)
        return {(row["account"], row["window_start_ms"]): (row["spent"], row["held"]) for row in found}

    async def forget(self, request_id: str) -> None:
        """The store loses the holds of a request, as after a restore from a backup."""
        self.journal.change("DELETE FROM bookings WHERE request_id = ?", (request_id,))
        await self.journal.committed()


class SqliteOpened(Opened):
    """Leases are rows, in the time that the calls are given."""

    async def born(self, request_id: str, now_ms: int) -> None:
        self.journal.add(
            "INSERT INTO live_requests (id, started_ms, state, held, lease_until_ms, owner, endpoint, requested, route,"
            " stream, key_id, session, tags, data_class, task, difficulty)"
            " VALUES (?, ?, 'held', 0, ?, ?, '', '', '', 0, '', '', '', '', '', 0)",
            (request_id, now_ms, now_ms + LEASE_MS, self.journal.owner),
        )

    async def ended(self, request_id: str) -> None:
        self.journal.change("UPDATE live_requests SET state = 'settled' WHERE id = ?", (request_id,))


class RedisOpened(Opened):
    """Leases are kept in Redis, by its clock."""

    def __init__(self, store: RedisBudgets, journal: SqliteJournal, client: Any, tag: str) -> None:
        super().__init__(store, journal)
        self._client, self._tag = client, tag

    async def pass_time(self, ms: int) -> None:
        for owner in self._client.zrange(f"{{{self._tag}}}:owners", 0, -1):
            self._client.zincrby(f"{{{self._tag}}}:owners", -ms, str(owner))

    async def forget(self, request_id: str) -> None:
        for name, amount in self._client.hgetall(f"{{{self._tag}}}:r:{request_id}").items():
            start, bar, account = str(name).partition("|")
            if bar:
                self._client.hincrby(f"{{{self._tag}}}:a:{account}", f"h:{start}", -int(amount))
        self._client.delete(f"{{{self._tag}}}:r:{request_id}")
        await super().forget(request_id)


def books(path: Path) -> LedgerTotals:
    """What the ledger knows, for a server that lost its data."""
    query = "SELECT account, window_start_ms, sum(charged) FROM bookings WHERE charged NOT NULL GROUP BY 1, 2"
    spent = [tuple(row.values()) for row in rows(path, query)]
    query = "SELECT request_id, account, window_start_ms, held FROM bookings WHERE charged IS NULL"
    held = [tuple(row.values()) for row in rows(path, query)]
    query = "SELECT request_id, account, window_start_ms, charged, state FROM bookings WHERE charged NOT NULL"
    return LedgerTotals(spent, held, ended=[tuple(row.values()) for row in rows(path, query)])


@asynccontextmanager
async def in_redis(url: Secret, journal: SqliteJournal, tag: str, **more: Any) -> AsyncIterator[RedisBudgets]:
    store = RedisBudgets(url, journal, lambda: books(journal.path), LEASE_MS, tag, **more)
    try:
        await store.start()
        yield store
    finally:
        await store.stop()


@asynccontextmanager
async def opened(place: Place) -> AsyncIterator[Opened]:
    """In a running event loop. Leaving it is a `kill -9`: nothing is settled, no lease is given back."""
    journal = SqliteJournal(place.ledger)
    try:
        if not place.url:
            yield SqliteOpened(SqliteBudgets(journal, LEASE_MS), journal)
            return
        async with in_redis(Secret(place.url), journal, place.tag) as store:
            with connected(place.url) as client:
                yield RedisOpened(store, journal, client, place.tag)
    finally:
        await journal.end()
