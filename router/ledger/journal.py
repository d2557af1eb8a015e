"""The journal: writes of many requests, committed in groups."""

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

# Group commit: one thread owns the connection. It gets everything queued during a turn of the event loop, and writes it
# in one transaction while the next transaction is gathered. So a slow disk or server, or another writing process,
# delays callers that wait for their commit, but never the event loop.
#
# With `synchronous=NORMAL`, committed rows survive a crash of the process; a power cut may lose the last of them.

T = TypeVar("T")
Item = tuple[str, Row]
RETRY_S = 0.5
"""Delay in seconds before a failed commit is retried."""
BUSY_MS = 10_000
"""Time in ms that a commit waits for another writing process."""
LARGEST_WAL = 64 * 1024 * 1024
"""Size of the write-ahead log in bytes above which it is truncated even if writers must wait."""
TRUNCATE_MS = 50
"""Maximum time in ms that writers wait for the write-ahead log to be truncated, once a second."""
LARGEST_QUEUE = 100_000
"""Number of queued changes above which `SqliteJournal.call` refuses new steps."""

_WRONG_ROW = (sqlite3.IntegrityError, OverflowError)
"""Errors of a row that conflicts with existing rows, or has a number beyond SQLite's 64 bits."""
_log = logging.getLogger(__name__)


class Transaction(Struct):
    """Rows, changes and steps that are written together, and their waiters."""

    rows: dict[str, list[Row]] = field(default_factory=dict)
    changes: list[Item] = []
    calls: list[tuple[Callable[[sqlite3.Connection], Any], asyncio.Future[Any]]] = []
    waiters: list[asyncio.Future[None]] = []
    followers: list[Callable[[], None]] = []
    """Callbacks to call in order after the commit."""
    results: list[Any] = []
    error: Exception | None = None

    def __len__(self) -> int:
        return sum(map(len, self.rows.values())) + len(self.changes)

    def items(self) -> Iterator[Item]:
        """Yields new rows, in the order in which their statements were first used, and then changes."""
        yield from ((statement, row) for statement, rows in self.rows.items() for row in rows)
        yield from self.changes


class GroupJournal(ABC):
    """A `Journal` over any database; to be used within one running event loop."""

    def __init__(self, prefix: str = "") -> None:
        """`prefix`: prefix of `owner`."""
        self.owner = prefix + new_id()
        self.available = True
        self._loop = asyncio.get_running_loop()
        self._queued = Transaction()
        self._in_progress: Transaction | None = None
        self._backlog: list[Item] = []
        """Statements of failed commits, to be written before anything else."""
        self._backlog_size = 0
        """Number of statements in the backlog after the last transaction."""
        self._handed_over, self._written = SimpleQueue[Transaction | None](), SimpleQueue[Transaction]()
        self._has_work = False
        """Whether anything is queued or being written."""
        self._retry: asyncio.TimerHandle | None = None
        self.dropped = 0
        """Number of rows dropped for lack of room since the last commit."""
        self._thread = Thread(target=self._write_forever, name="ledger", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Number of statements that are not committed yet."""
        return len(self._queued) + self._backlog_size + (0 if self._in_progress is None else len(self._in_progress))

    @abstractmethod
    def _write(self, transaction: Transaction) -> None:
        """Writes a transaction; runs in the thread. On failure, keeps its statements in the backlog, except wrong rows,
        and raises."""

    def add(self, statement: str, row: Row) -> None:
        self._queued.rows.setdefault(statement, []).append(row)
        if not self._has_work:
            self._has_work = True
            self._loop.call_soon(self._hand_over)

    def change(self, statement: str, row: Row) -> None:
        self._queued.changes.append((statement, row))
        if not self._has_work:
            self._has_work = True
            self._loop.call_soon(self._hand_over)

    def committed(self) -> Awaitable[None]:
        future = self._loop.create_future()
        if self._has_work:
            self._queued.waiters.append(future)
        else:
            future.set_result(None)
        return future

    def then(self, follower: Callable[[], None]) -> None:
        """Calls `follower` when everything queued so far is committed; at once if nothing is queued."""
        if self._has_work:
            self._queued.followers.append(follower)
        else:
            follower()

    def _hand_over(self) -> None:
        self._in_progress, self._queued = self._queued, Transaction()
        self._handed_over.put(self._in_progress)

    def _write_forever(self) -> None:
        while (transaction := self._handed_over.get()) is not None:
            try:
                self._write(transaction)
            except Exception as error:
                transaction.error = error
            self._written.put(transaction)
            with suppress(RuntimeError):  # The loop is closed: `close` finishes the transaction.
                self._loop.call_soon_threadsafe(self._finish)

    def _finish(self, *, wait: bool = False) -> None:
        if self._written.empty() and not wait:  # `flush` has finished it already
            return
        transaction, queued, self._in_progress = self._written.get(), self._queued, None
        self._backlog_size = len(self._backlog)
        if transaction.error is not None:
            self._fail(transaction, transaction.error)
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
        self._has_work = bool(queued.rows or queued.changes or queued.calls or queued.waiters or queued.followers)
        if self._has_work:
            self._loop.call_soon(self._hand_over)

    def _fail(self, transaction: Transaction, error: Exception) -> None:
        """Fails the steps and waiters of a transaction; its rows stay in the backlog and are retried."""
        # The text of other exceptions may contain a value of a row.
        reason = error if isinstance(error, LedgerUnavailable | sqlite3.Error) else type(error).__name__
        if self.available:
            _log.error("the ledger can't be written (%s), and is tried again every %s s", reason, RETRY_S)
        self.available = False
        self._queued.followers[:0] = transaction.followers
        unavailable = LedgerUnavailable(f"the ledger could not be written: {reason}")
        for future in [*(future for _, future in transaction.calls), *transaction.waiters]:
            if not future.done():
                future.set_exception(unavailable)
        self._retry = self._loop.call_later(RETRY_S if self._backlog else 0, self._hand_over)


class SqliteJournal(GroupJournal):
    """A `LocalJournal` over one SQLite file."""

    def __init__(self, path: Path, prefix: str = "") -> None:
        """`prefix`: prefix of `owner`."""
        self.path = path
        self._wal = path.with_name(path.name + "-wal")
        self._connection, self._reader = connect(path), connect(path)
        migrate(self._connection)
        self._connection.execute("PRAGMA wal_autocheckpoint = 0")
        self._checkpoint_failed = False
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
            if not self._has_work:
                self._has_work = True
                self._loop.call_soon(self._hand_over)
        return future

    def checkpoint(self) -> None:
        """Moves the write-ahead log into the database file; logs a failure and leaves the log as it is.

        It waits for the disk: call it in a worker thread.
        """
        try:
            with closing(connect(self.path)) as connection:
                connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
                if self._wal.exists() and self._wal.stat().st_size > LARGEST_WAL:
                    # Under steady load the log is never empty by itself: this makes writers wait until it restarts,
                    # but not for a reader that takes minutes.
                    connection.execute(f"PRAGMA busy_timeout = {TRUNCATE_MS}")
                    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except sqlite3.Error as error:
            if not self._checkpoint_failed:
                _log.error("the write-ahead log could not be moved into the ledger (%s), trying again", error)
            self._checkpoint_failed = True
        else:
            self._checkpoint_failed = False

    async def end(self) -> None:
        self.close()

    def close(self) -> None:
        if not self._thread.is_alive():
            return
        self.flush()
        self._handed_over.put(None)
        self._thread.join()
        for follower in self._queued.followers:  # those of a last commit that failed
            follower()
        self._connection.close()
        self._reader.close()

    def flush(self) -> None:
        """Blocks until everything queued has been tried once."""
        if self._in_progress is not None:
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
        """Writes the statements of the backlog one by one and drops wrong rows, which must not block the others."""
        while self._backlog:
            try:
                self._connection.execute(*self._backlog[0])
            except _WRONG_ROW as error:
                _log.error("a row was dropped: %s", error)
            except sqlite3.Error:
                break
            self._backlog.pop(0)


def connect(path: Path) -> sqlite3.Connection:
    """Opens a connection in WAL mode, without Python's implicit transactions. Only its owner may read the file, which
    has data about requests; SQLite gives the files beside it the same mode."""
    with suppress(OSError):  # An existing file is not opened, since closing it would drop this process's locks.
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    with suppress(OSError):  # The file belongs to another user, who lets this one write.
        if path.stat().st_mode & 0o077:
            path.chmod(0o600)
    connection = sqlite3.connect(path, isolation_level=None, timeout=BUSY_MS / 1000, check_same_thread=False)
    _set_wal_mode(connection)
    connection.execute("PRAGMA synchronous = NORMAL")
    # A trigger updates the parent's booking of a child's spending, and so fires again for each further ancestor.
    connection.execute("PRAGMA recursive_triggers = ON")
    return connection


def _set_wal_mode(connection: sqlite3.Connection) -> None:
    """Sets WAL mode, retrying for `BUSY_MS`: SQLite's own busy timeout does not apply when several processes open a
    new file at once."""
    deadline_s = time.monotonic() + BUSY_MS / 1000
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline_s:
                raise
        time.sleep(0.01)


# If the ledger is elsewhere and the budgets are local, request rows are in both: local budgets use their leases.
BESIDE = "beside-"
"""Prefix of owners whose bookings are in a local file instead of the ledger."""


class TeeJournal:
    """A `Journal` that writes everything to `ledger`, and rows of requests to `local` first. So a process that dies
    between the two commits leaves nothing in the ledger that the local budgets do not know."""

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
