"""The journal: writes of requests, committed in groups."""

import asyncio
import logging
import os
import sqlite3
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, TypeVar

from router.ledger.migrate import migrate
from router.types.account import Journal, LedgerUnavailable, LocalJournal, Row
from router.types.clock import new_id

# Group commit: everything queued during one turn of the event loop becomes one SQLite transaction.
#
# It runs in the event loop: a commit in WAL mode without fsync takes tens of microseconds, a hop to a thread costs
# more. `synchronous=NORMAL` keeps every committed row through a crash of the process; a power cut may lose the last
# ones.

T = TypeVar("T")
RETRY_S = 0.5
"""How long after a failed commit it is tried again."""
BUSY_MS = 2_000
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


class SqliteJournal:
    """The `LocalJournal` port over one SQLite file; use inside one running event loop."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._loop = asyncio.get_running_loop()
        self._wal = path.with_name(path.name + "-wal")
        self._connection = connect(path)
        migrate(self._connection)
        self._connection.execute("PRAGMA wal_autocheckpoint = 0")
        self._rows: dict[str, list[Row]] = {}
        self._changes: list[tuple[str, Row]] = []
        self._calls: list[tuple[Callable[[sqlite3.Connection], Any], asyncio.Future[Any]]] = []
        self.owner = new_id()
        self.available = True
        self._waiters: list[asyncio.Future[None]] = []
        self._flush_due = False
        self._stuck = False

    def add(self, statement: str, row: Row) -> None:
        self._rows.setdefault(statement, []).append(row)
        if not self._flush_due:
            self._schedule()

    def change(self, statement: str, row: Row) -> None:
        self._changes.append((statement, row))
        if not self._flush_due:
            self._schedule()

    def read(self, operation: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return operation(self._connection)
        except sqlite3.Error as error:
            raise LedgerUnavailable(f"the ledger could not be read: {error}") from None

    def call(self, operation: Callable[[sqlite3.Connection], T]) -> asyncio.Future[T]:
        future: asyncio.Future[T] = self._loop.create_future()
        if len(self._changes) > LARGEST_QUEUE:
            future.set_exception(LedgerUnavailable("the ledger does not keep up"))
        else:
            self._calls.append((operation, future))
            if not self._flush_due:
                self._schedule()
        return future

    def committed(self) -> Awaitable[None]:
        future = self._loop.create_future()
        self._waiters.append(future)
        if not self._flush_due:
            self._schedule()
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
        self._flush()
        self._connection.close()

    def _schedule(self) -> None:
        self._flush_due = True
        self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_due = False
        calls, self._calls = self._calls, []
        waiters, self._waiters = self._waiters, []
        try:
            results = self._transact(calls) if calls or self._changes or self._rows else ()
        except Exception as error:
            self._refuse([*(future for _, future in calls), *waiters], error)
            return
        self.available = True
        for (_, future), result in zip(calls, results, strict=True):
            if not future.done():
                future.set_result(result)
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _transact(self, calls: list[tuple[Callable[[sqlite3.Connection], Any], asyncio.Future[Any]]]) -> list[Any]:
        connection, results = self._connection, list[Any]()
        connection.execute("BEGIN IMMEDIATE")
        try:
            for statement, rows in self._rows.items():
                connection.executemany(statement, rows)
            for statement, row in self._changes:
                connection.execute(statement, row)
            for operation, future in calls:
                results.append(None if future.cancelled() else operation(connection))
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        self._rows.clear()
        self._changes.clear()
        return results

    def _refuse(self, futures: list[asyncio.Future[Any]], error: Exception) -> None:
        """Rows of work already done stay queued for the next try; steps that nobody has acted on yet are refused."""
        self.available = False
        if isinstance(error, _WRONG_ROW):
            self._salvage()
        _log.error("the ledger could not be written (%s), trying again", error)
        unavailable = LedgerUnavailable(f"the ledger could not be written: {error}")
        for future in futures:
            if not future.done():
                future.set_exception(unavailable)
        self._flush_due = True
        self._loop.call_later(RETRY_S, self._flush)

    def _salvage(self) -> None:
        """A row that the ledger can't take must not keep all the others out: each is tried alone, it is dropped."""
        singles = deque([(statement, row) for statement, rows in self._rows.items() for row in rows] + self._changes)
        self._rows.clear()
        self._changes.clear()
        while singles:
            try:
                self._connection.execute(*singles[0])
            except _WRONG_ROW as error:
                _log.error("a row was dropped: %s", error)
            except sqlite3.Error:
                break
            singles.popleft()
        self._changes.extend(singles)


def connect(path: Path) -> sqlite3.Connection:
    """A connection in WAL mode, without Python's own transactions. The file is its owner's alone: it says who asked
    what, and SQLite gives the files beside it the same mode."""
    with suppress(OSError):  # A file that exists is not opened: to close it would drop this process's locks.
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    with suppress(OSError):  # It belongs to another user, who lets this one write.
        if path.stat().st_mode & 0o077:
            path.chmod(0o600)
    connection = sqlite3.connect(path, isolation_level=None, timeout=BUSY_MS / 1000)
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


class Doubled:
    """The `Journal` port: everything goes to `ledger`, what becomes of requests goes to `local` too."""

    def __init__(self, ledger: Journal, local: LocalJournal) -> None:
        self._ledger, self._local = ledger, local

    @property
    def owner(self) -> str:
        return self._local.owner

    @property
    def available(self) -> bool:
        return self._ledger.available and self._local.available

    def add(self, statement: str, row: Row) -> None:
        self._ledger.add(statement, row)
        if statement.startswith("INSERT INTO live_requests"):
            self._local.add(statement, row)

    def change(self, statement: str, row: Row) -> None:
        self._ledger.change(statement, row)
        if statement.startswith("UPDATE live_requests"):
            self._local.change(statement, row)

    async def committed(self) -> None:
        await self._local.committed()
        await self._ledger.committed()

    async def end(self) -> None:
        await self._ledger.end()
        await self._local.end()
