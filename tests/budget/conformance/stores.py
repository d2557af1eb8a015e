"""The stores under test. A new one is a `Maker` here, with a line in `MAKERS`: every test of this folder runs on it.

What the suite takes for granted beyond the port's docstrings:

- The clock is the `now_ms` that each call is given. It jumps in both directions; a lease that a clock which went back
  has made too long ends `lease_ms` after the next `recover`.
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
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

from router.budget.sqlite import SqliteBudgets
from router.ledger.journal import SqliteJournal
from router.ledger.write import LEASE_MS
from router.types.account import Amount
from router.types.store import BudgetStore
from tests.budget.conformance.redis_store import Redis
from tests.ledger.books import rows

Sums = dict[tuple[str, int], tuple[int, int]]
"""(account, window start) → (spent, held)."""


class Opened(Protocol):
    """What one process has of a store."""

    @property
    def store(self) -> BudgetStore: ...

    @property
    def lease_ms(self) -> int:
        """A hold that nobody renewed for longer may be recovered."""
        ...

    async def born(self, request_id: str, whole: Amount, now_ms: int) -> None:
        """Before each `reserve`: whatever else the gateway writes for a request so that its holds can be recovered."""
        ...

    async def ended(self, request_id: str) -> None:
        """With each `settle`: whatever else the gateway writes then."""
        ...

    async def pass_time(self, ms: int) -> None:
        """For leases that the store keeps by its own clock; the suite's `now_ms` has moved already."""
        ...

    async def sums(self) -> Sums:
        """The sum of the rows, read from the rows themselves, one row a request and account: what is charged is spent,
        what is not charged yet is held. Windows without rows may be missing."""
        ...

    async def forget(self, request_id: str) -> None:
        """The store loses the holds of a request, as after a restore from a backup."""
        ...


class Maker(Protocol):
    @property
    def name(self) -> str: ...

    def place(self) -> AbstractContextManager[str]:
        """An empty store. What it yields is enough for another process to open it."""
        ...

    def opened(self, place: str) -> AbstractAsyncContextManager[Opened]:
        """In a running event loop. Leaving it is a `kill -9`: nothing is settled, no lease is given back."""
        ...


class SqliteOpened:
    lease_ms = LEASE_MS

    def __init__(self, journal: SqliteJournal) -> None:
        self.journal, self.store = journal, SqliteBudgets(journal, LEASE_MS)

    async def born(self, request_id: str, whole: Amount, now_ms: int) -> None:
        self.journal.add(
            "INSERT INTO requests (id, started_ms, state, held, held_thinking, lease_until_ms, owner, endpoint,"
            " requested, route, stream, key_id, session, tags, data_class, task, difficulty)"
            " VALUES (?, ?, 'held', ?, ?, ?, ?, '', '', '', 0, '', '', '', '', '', 0)",
            (request_id, now_ms, whole.usd, whole.thinking, now_ms + LEASE_MS, self.journal.owner),
        )

    async def ended(self, request_id: str) -> None:
        self.journal.change("UPDATE requests SET state = 'settled' WHERE id = ?", (request_id,))

    async def pass_time(self, ms: int) -> None:
        """Leases are kept in the time that the calls are given."""

    async def sums(self) -> Sums:
        query = (
            "SELECT account, window_start_ms, sum(coalesce(charged, 0)) spent, sum((charged IS NULL) * held) held"
            " FROM bookings GROUP BY 1, 2"
        )
        found = rows(self.journal.path, query)
        return {(row["account"], row["window_start_ms"]): (row["spent"], row["held"]) for row in found}

    async def forget(self, request_id: str) -> None:
        self.journal.change("DELETE FROM bookings WHERE request_id = ?", (request_id,))
        await self.journal.committed()


class Sqlite:
    name = "sqlite"

    @contextmanager
    def place(self) -> Iterator[str]:
        with TemporaryDirectory() as folder:
            yield str(Path(folder) / "lowpass.db")

    @asynccontextmanager
    async def opened(self, place: str) -> AsyncIterator[SqliteOpened]:
        journal = SqliteJournal(Path(place))
        try:
            yield SqliteOpened(journal)
        finally:
            await journal.end()


MAKERS: tuple[Maker, ...] = (Sqlite(), Redis())


def maker(name: str) -> Maker:
    return next(found for found in MAKERS if found.name == name)
