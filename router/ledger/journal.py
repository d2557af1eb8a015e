"""Group commit: everything queued during one turn of the event loop becomes one SQLite transaction.

It runs in the event loop: a commit in WAL mode without fsync takes tens of microseconds, a hop to a thread costs more.
`synchronous=NORMAL` keeps every committed row through a crash of the process; a power cut may lose the last ones.
"""

import asyncio
import logging
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from router.ledger.migrate import migrate
from router.types.journal import Row

T = TypeVar("T")
RETRY_S = 0.5
"""How long after a failed commit it is tried again."""
BUSY_MS = 2_000
"""How long a commit waits for another process that writes."""
LARGEST_QUEUE = 100_000
"""Queued statements at which new requests are refused while the disk does not take them."""

_log = logging.getLogger(__name__)


class LedgerUnavailable(Exception):
    """The ledger can't be written: full or broken disk, or another process holds it."""


class SqliteJournal:
    """The `Journal` port over one SQLite file; use inside one running event loop."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._loop = asyncio.get_running_loop()
        self._connection = connect(path)
        migrate(self._connection)
        self._connection.execute("PRAGMA wal_autocheckpoint = 0")
        self._queue: list[tuple[str, Row]] = []
        self._calls: list[tuple[Callable[[sqlite3.Connection], Any], asyncio.Future[Any]]] = []
        self.available = True
        self._waiters: list[asyncio.Future[None]] = []
        self._flush_due = False

    def write(self, statement: str, row: Row) -> None:
        self._queue.append((statement, row))
        self._schedule()

    def call(self, operation: Callable[[sqlite3.Connection], T]) -> asyncio.Future[T]:
        future: asyncio.Future[T] = self._loop.create_future()
        if len(self._queue) > LARGEST_QUEUE:
            future.set_exception(LedgerUnavailable("the ledger does not keep up"))
        else:
            self._calls.append((operation, future))
            self._schedule()
        return future

    def committed(self) -> Awaitable[None]:
        future = self._loop.create_future()
        self._waiters.append(future)
        self._schedule()
        return future

    def checkpoint(self) -> None:
        """Moves the write-ahead log into the database; runs in a worker thread, since it waits for the disk."""
        connection = connect(self.path)
        try:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
        finally:
            connection.close()

    def close(self) -> None:
        self._flush()
        self._connection.close()

    def _schedule(self) -> None:
        if not self._flush_due:
            self._flush_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_due = False
        calls, self._calls = self._calls, []
        waiters, self._waiters = self._waiters, []
        try:
            results = self._transact(calls)
        except sqlite3.Error as error:
            self._refuse([*(future for _, future in calls), *waiters], error)
            return
        self.available = True
        self._queue.clear()
        for (_, future), result in zip(calls, results, strict=True):
            _resolve(future, result)
        for waiter in waiters:
            _resolve(waiter, None)

    def _transact(self, calls: list[tuple[Callable[[sqlite3.Connection], Any], asyncio.Future[Any]]]) -> list[Any]:
        execute = self._connection.execute
        if not (self._queue or calls):
            return []
        execute("BEGIN IMMEDIATE")
        try:
            for statement, row in self._queue:
                execute(statement, row)
            results = [operation(self._connection) for operation, _ in calls]
            execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                execute("ROLLBACK")
            raise
        return results

    def _refuse(self, futures: list[asyncio.Future[Any]], error: sqlite3.Error) -> None:
        """Rows of work already done stay queued for the next try; steps that nobody has acted on yet are refused."""
        self.available = False
        _log.error("the ledger could not be written (%s), trying again", error)
        unavailable = LedgerUnavailable(f"the ledger could not be written: {error}")
        for future in futures:
            if not future.done():
                future.set_exception(unavailable)
        self._flush_due = True
        self._loop.call_later(RETRY_S, self._flush)


def _resolve(future: asyncio.Future[Any], result: Any) -> None:
    if not future.done():
        future.set_result(result)


def connect(path: Path) -> sqlite3.Connection:
    """A connection in WAL mode, without Python's own transactions."""
    connection = sqlite3.connect(path, isolation_level=None, timeout=BUSY_MS / 1000)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    return connection
