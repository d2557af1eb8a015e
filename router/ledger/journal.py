"""The journal: writes of requests, committed in groups."""

import asyncio
import logging
import os
import sqlite3
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

from msgspec import Struct, field

from router.ledger.migrate import migrate
from router.types.account import Journal, LedgerUnavailable, Row
from router.types.clock import new_id

# Group commit: one thread owns the connection. It is handed everything that was queued during one turn of the event
# loop; while it writes that in one transaction, the next one gathers. So a slow disk, a server, or another process that
# writes costs those who wait for their commit, and never the event loop.
#
# `synchronous=NORMAL` keeps every committed row through a crash of the process; a power cut may lose the last ones.

T = TypeVar("T")
Item = tuple[str, Row]
"""A statement and its values."""
RETRY_S = 0.5
"""How long after a failed commit it is tried again."""
BUSY_MS = 10_000
"""How long a commit waits for another process that writes."""
LARGEST_WAL = 64 * 1024 * 1024
"""Bytes of write-ahead log at which it is emptied even if writers must wait for that."""
TRUNCATE_MS = 50
"""How long writers wait at most for the write-ahead log to be emptied, once a second."""
LARGEST_QUEUE = 100_000
"""Queued changes at which new requests are refused while the disk does not take them."""

_WRONG_ROW = (sqlite3.IntegrityError, OverflowError)
"""It contradicts the rows that are there, or holds a number that SQLite's 64 bits don't."""
_log = logging.getLogger(__name__)


class Transaction(Struct):
    """What is written at once, and who waits for it."""

    rows: dict[str, list[Row]] = field(default_factory=dict)
    """By statement."""
    changes: list[Item] = []
    calls: list[tuple[Callable[[sqlite3.Connection], Any], asyncio.Future[Any]]] = []
    waiters: list[asyncio.Future[None]] = []
    followers: list[Callable[[], None]] = []
    """Called in this order once it is committed."""
    results: list[Any] = []
    """Of `calls`, once it is committed."""
    error: Exception | None = None
    """Why it was not."""

    def __len__(self) -> int:
        return sum(map(len, self.rows.values())) + len(self.changes)

    def items(self) -> Iterator[Item]:
        """New rows first, in the order in which their statements were first used; then changes."""
        yield from ((statement, row) for statement, rows in self.rows.items() for row in rows)
        yield from self.changes


class GroupJournal(ABC):
    """The `Journal` port over any database; use inside one running event loop."""

    def __init__(self, prefix: str = "") -> None:
        """`prefix`: of its `owner`."""
        self.owner = prefix + new_id()
        self.available = True
        self._loop = asyncio.get_running_loop()
        self._queued = Transaction()
        self._under_way: Transaction | None = None
        self._backlog: list[Item] = []
        """Could not be written, and must be before anything else."""
        self._behind = 0
        """How many statements were in the backlog when the thread was through with the last transaction."""
        self._handed, self._written = SimpleQueue[Transaction | None](), SimpleQueue[Transaction]()
        self._due = False
        """Something is queued or under way."""
        self._retry: asyncio.TimerHandle | None = None
        self.dropped = 0
        """Rows that found no room since the last commit."""
        self._thread = Thread(target=self._write_forever, name="ledger", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Statements that are not committed yet."""
        return len(self._queued) + self._behind + (0 if self._under_way is None else len(self._under_way))

    @abstractmethod
    def _write(self, transaction: Transaction) -> None:
        """Runs in the thread. What it can't write it leaves in the backlog, but for wrong rows, and raises why."""

    def add(self, statement: str, row: Row) -> None:
        self._queued.rows.setdefault(statement, []).append(row)
        if not self._due:
            self._due = True
            self._loop.call_soon(self._hand_over)

    def change(self, statement: str, row: Row) -> None:
        self._queued.changes.append((statement, row))
        if not self._due:
            self._due = True
            self._loop.call_soon(self._hand_over)

    def committed(self) -> Awaitable[None]:
        future = self._loop.create_future()
        if self._due:
            self._queued.waiters.append(future)
        else:
            future.set_result(None)
        return future

    def then(self, follower: Callable[[], None]) -> None:
        """Calls it once all that is queued by now is committed; at once where that is nothing."""
        if self._due:
            self._queued.followers.append(follower)
        else:
            follower()

    def _hand_over(self) -> None:
        self._under_way, self._queued = self._queued, Transaction()
        self._handed.put(self._under_way)

    def _write_forever(self) -> None:
        while (transaction := self._handed.get()) is not None:
            try:
                self._write(transaction)
            except Exception as error:
                transaction.error = error
            self._written.put(transaction)
            with suppress(RuntimeError):  # The loop is closed: `close` goes on from here.
                self._loop.call_soon_threadsafe(self._finish)

    def _finish(self, *, wait: bool = False) -> None:
        if self._written.empty() and not wait:  # `flush` was first
            return
        transaction, queued, self._under_way = self._written.get(), self._queued, None
        self._behind = len(self._backlog)
        if transaction.error is not None:
            self._refuse(transaction, transaction.error)
            return
        if not self.available:
            dropped, self.dropped, self.available = self.dropped, 0, True
            _log.warning("the ledger can be written again; %d rows found no room meanwhile", dropped)
        for follower in transaction.followers:
            follower()
        for (_, future), result in zip(transaction.calls, transaction.results, strict=True):
            if not future.done():
                future.set_result(result)
        for waiter in transaction.waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._due = bool(queued.rows or queued.changes or queued.calls or queued.waiters or queued.followers)
        if self._due:
            self._loop.call_soon(self._hand_over)

    def _refuse(self, transaction: Transaction, error: Exception) -> None:
        """Rows of work already done wait for the next try; steps that nobody has acted on yet are refused."""
        # What others raise may hold a value.
        why = error if isinstance(error, LedgerUnavailable | sqlite3.Error) else type(error).__name__
        if self.available:
            _log.error("the ledger can't be written (%s), and is tried again every %s s", why, RETRY_S)
        self.available = False
        self._queued.followers[:0] = transaction.followers
        unavailable = LedgerUnavailable(f"the ledger could not be written: {why}")
        for future in [*(future for _, future in transaction.calls), *transaction.waiters]:
            if not future.done():
                future.set_exception(unavailable)
        self._retry = self._loop.call_later(RETRY_S if self._backlog else 0, self._hand_over)


class SqliteJournal(GroupJournal):
    """The `LocalJournal` port over one SQLite file."""

    def __init__(self, path: Path, prefix: str = "") -> None:
        """`prefix`: of its `owner`."""
        self.path = path
        self._wal = path.with_name(path.name + "-wal")
        self._connection, self._reader = connect(path), connect(path)
        migrate(self._connection)
        self._connection.execute("PRAGMA wal_autocheckpoint = 0")
        self._stuck = False
        super().__init__(prefix)

    def read(self, operation: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return operation(self._reader)
        except sqlite3.Error as error:
            raise LedgerUnavailable(f"the ledger could not be read: {error}") from None

    def call(self, operation: Callable[[sqlite3.Connection], T]) -> asyncio.Future[T]:
        future: asyncio.Future[T] = self._loop.create_future()
        if len(self._queued.changes) > LARGEST_QUEUE:
            future.set_exception(LedgerUnavailable("the ledger does not keep up"))
        else:
            self._queued.calls.append((operation, future))
            if not self._due:
                self._due = True
                self._loop.call_soon(self._hand_over)
        return future

    def checkpoint(self) -> None:
        """Moves the write-ahead log into the database, if the disk takes it; else it stays where it is.

        Runs in a worker thread, since it waits for the disk.
        """
        try:
            with closing(connect(self.path)) as connection:
                connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
                if self._wal.exists() and self._wal.stat().st_size > LARGEST_WAL:
                    # Under steady load the log never comes to rest by itself: this makes writers wait until it starts
                    # anew, but not for somebody who reads for minutes.
                    connection.execute(f"PRAGMA busy_timeout = {TRUNCATE_MS}")
                    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except sqlite3.Error as error:
            if not self._stuck:
                _log.error("the write-ahead log could not be moved into the ledger (%s), trying again", error)
            self._stuck = True
        else:
            self._stuck = False

    async def end(self) -> None:
        self.close()

    def close(self) -> None:
        if not self._thread.is_alive():
            return
        self.flush()
        self._handed.put(None)
        self._thread.join()
        for follower in self._queued.followers:  # of a commit that failed to the end
            follower()
        self._connection.close()
        self._reader.close()

    def flush(self) -> None:
        """Waits for the disk, until all that is queued was tried."""
        if self._under_way is not None:
            self._finish(wait=True)
        if self._retry is not None:
            self._retry.cancel()
        self._hand_over()
        self._finish(wait=True)

    def _write(self, transaction: Transaction) -> None:
        connection, backlog = self._connection, self._backlog
        try:
            if backlog or transaction.rows or transaction.changes or transaction.calls:
                connection.execute("BEGIN IMMEDIATE")
                for statement, row in backlog:
                    connection.execute(statement, row)
                for statement, rows in transaction.rows.items():
                    connection.executemany(statement, rows)
                for statement, row in transaction.changes:
                    connection.execute(statement, row)
                for operation, future in transaction.calls:
                    transaction.results.append(None if future.cancelled() else operation(connection))
                connection.execute("COMMIT")
        except Exception as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            backlog += transaction.items()
            if isinstance(error, _WRONG_ROW):
                self._salvage()
            raise
        backlog.clear()

    def _salvage(self) -> None:
        """A row that the ledger can't take must not keep all the others out: each is tried alone, it is dropped."""
        while self._backlog:
            try:
                self._connection.execute(*self._backlog[0])
            except _WRONG_ROW as error:
                _log.error("a row was dropped: %s", error)
            except sqlite3.Error:
                break
            self._backlog.pop(0)


def connect(path: Path) -> sqlite3.Connection:
    """A connection in WAL mode, without Python's own transactions. The file is its owner's alone: it says who asked
    what, and SQLite gives the files beside it the same mode."""
    with suppress(OSError):  # A file that exists is not opened: to close it would drop this process's locks.
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    with suppress(OSError):  # It belongs to another user, who lets this one write.
        if path.stat().st_mode & 0o077:
            path.chmod(0o600)
    connection = sqlite3.connect(path, isolation_level=None, timeout=BUSY_MS / 1000, check_same_thread=False)
    _write_ahead(connection)
    connection.execute("PRAGMA synchronous = NORMAL")
    # A child's spending is followed by its parent's, and that by its own parent's: one trigger, several times.
    connection.execute("PRAGMA recursive_triggers = ON")
    return connection


def _write_ahead(connection: sqlite3.Connection) -> None:
    """Processes that open a new file at the same time are refused this at once, without SQLite's own patience."""
    patience = time.monotonic() + BUSY_MS / 1000
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > patience:
                raise
        time.sleep(0.01)


# The ledger elsewhere, the budgets here: a request's row is in both, since the local budgets go by its lease.


BESIDE = "beside-"
"""How owners begin whose bookings are not in the ledger, but in the file beside it."""


class TeeJournal:
    """The `Journal` port: everything goes to `ledger`, what becomes of requests goes to `local` too, and first: a
    process that dies between the two commits leaves nothing in the ledger that the budgets know nothing of."""

    def __init__(self, ledger: Journal, local: SqliteJournal) -> None:
        self._ledger, self._local = ledger, local

    @property
    def owner(self) -> str:
        return self._local.owner

    @property
    def available(self) -> bool:
        return self._ledger.available and self._local.available

    def add(self, statement: str, row: Row) -> None:
        if statement.startswith("INSERT INTO live_requests"):
            self._local.add(statement, row)
        self._local.then(partial(self._ledger.add, statement, row))

    def change(self, statement: str, row: Row) -> None:
        if statement.startswith("UPDATE live_requests"):
            self._local.change(statement, row)
        self._local.then(partial(self._ledger.change, statement, row))

    async def committed(self) -> None:
        await self._local.committed()
        await self._ledger.committed()

    async def end(self) -> None:
        await self._local.end()
        await self._ledger.end()
