"""Budgets in a real Redis server, with a SQLite ledger for their rows."""

from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager
from pathlib import Path

import redis

from router.budget.redis import RedisBudgets
from router.budget.redis.rebuild import Books
from router.ledger.journal import SqliteJournal
from router.ledger.write import LEASE_MS
from router.types.account import Amount
from router.types.secret import Secret
from tests.budget.redis_process import redis_place
from tests.ledger.books import rows


def books(path: Path) -> Books:
    """What the ledger knows, for a server that lost its data."""
    spent = rows(
        path, "SELECT account, window_start_ms, sum(charged) FROM bookings WHERE charged NOT NULL GROUP BY 1, 2"
    )
    held = rows(path, "SELECT request_id, account, window_start_ms, held FROM bookings WHERE charged IS NULL")
    return Books([tuple(row.values()) for row in spent], [tuple(row.values()) for row in held])


class RedisOpened:
    lease_ms = LEASE_MS

    def __init__(self, store: RedisBudgets, journal: SqliteJournal, client: "redis.Redis", tag: str) -> None:
        self.store, self.journal, self._client, self._tag = store, journal, client, tag

    def _key(self, name: str) -> str:
        return f"{{{self._tag}}}:{name}"

    async def born(self, request_id: str, whole: Amount, now_ms: int) -> None:
        """Leases are kept in Redis."""

    async def ended(self, request_id: str) -> None:
        """See `born`."""

    async def pass_time(self, ms: int) -> None:
        for owner in self._client.zrange(self._key("owners"), 0, -1):
            self._client.zincrby(self._key("owners"), -ms, str(owner))

    async def sums(self) -> dict[tuple[str, int], tuple[int, int]]:
        await self.store.settled()
        query = (
            "SELECT account, window_start_ms, sum(coalesce(charged, 0)) spent, sum((charged IS NULL) * held) held"
            " FROM bookings GROUP BY 1, 2"
        )
        found = rows(self.journal.path, query)
        return {(row["account"], row["window_start_ms"]): (row["spent"], row["held"]) for row in found}

    async def forget(self, request_id: str) -> None:
        kept = self._client.hgetall(self._key(f"r:{request_id}"))
        for name, amount in kept.items():
            start, bar, account = str(name).partition("|")
            if bar:
                self._client.hincrby(self._key(f"a:{account}"), f"h:{start}", -int(amount))
        self._client.delete(self._key(f"r:{request_id}"))
        self.journal.change("DELETE FROM bookings WHERE request_id = ?", (request_id,))
        await self.journal.committed()


class Redis:
    """A place is a hash tag in a server that the whole run shares, and a ledger."""

    name = "redis"

    def place(self) -> AbstractContextManager[str]:
        return redis_place()

    @asynccontextmanager
    async def opened(self, place: str) -> AsyncIterator[RedisOpened]:
        url, tag, path = place.split(" ")
        journal = SqliteJournal(Path(path))
        store = RedisBudgets(Secret(url), journal, lambda: books(Path(path)), LEASE_MS, tag)
        await store.start()
        try:
            with redis.Redis.from_url(url, decode_responses=True) as client:
                yield RedisOpened(store, journal, client, tag)
        finally:
            await store.stop()
            await journal.end()
