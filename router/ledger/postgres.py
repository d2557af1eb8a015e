"""The ledger in PostgreSQL: the journal's group commit over one pipelined connection, and the `Ledger` port.

Not imported while the ledger is a file: the client library takes a while.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress

import psycopg
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGresult

from router.ledger.migrate import POSTGRES, current, migrate, newest, readable
from router.ledger.postgres_connection import (
    Encoded,
    PostgresConnection,
    ServerAddress,
    StatementRefused,
    encoded,
    numbered,
)
from router.ledger.rows import Connection
from router.types.account import LedgerUnavailable, Row
from router.types.clock import new_id
from router.types.tables import patterns
from router.types.target import Secret

# What waits for the next transaction, in the order in which it is written.

LARGEST = 50_000
"""Statements that wait at most, about 50 MB; so many come together only from requests that are refused meanwhile."""
Item = tuple[str, Encoded]
"""A statement and its values."""


class StatementQueue:
    """Statements beyond `LARGEST` are dropped and counted."""

    def __init__(self) -> None:
        self.dropped = 0
        self._rows: dict[str, list[Encoded]] = {}
        self._changes: list[Item] = []

    def __len__(self) -> int:
        return sum(map(len, self._rows.values())) + len(self._changes)

    def add(self, statement: str, row: Row) -> None:
        if self._room():
            self._rows.setdefault(statement, []).append(encoded(row))

    def change(self, statement: str, row: Row) -> None:
        if self._room():
            self._changes.append((statement, encoded(row)))

    def take(self, most: int) -> list[Item]:
        """New rows first, in the order in which their statements were first used; then changes."""
        items: list[Item] = []
        for statement, rows in self._rows.items():
            room = most - len(items)
            items += [(statement, row) for row in rows[:room]]
            del rows[:room]
        room = most - len(items)
        items += self._changes[:room]
        del self._changes[:room]
        return items

    def _room(self) -> bool:
        full = len(self) >= LARGEST
        self.dropped += full
        return not full


# One connection in libpq's pipeline mode: a whole transaction goes out at once, its answers come back together.
#
# Straight on `psycopg.pq`, since a cursor costs 50 µs a statement: https://www.psycopg.org/psycopg3/docs/api/pq.html
# Nothing is left on the server's side when a transaction is over, so a pooler may give the next one another session.

COMMIT_S = 2.0
"""How long a transaction may take; a server that hangs is left then."""
_BEGIN = (
    b"BEGIN",
    b"SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'",
)
"""What is committed survives a power cut, whatever the server's own setting."""
_OTHER = -1
"""Place of an answer that belongs to no item."""


class WrongRow(Exception):
    """One item of a transaction can't be written; nothing was. The connection is as good as before."""

    def __init__(self, place: int, why: StatementRefused) -> None:
        super().__init__(str(why))
        self.place = place


class PostgresPipe:
    """Made from a fresh connection, inside the event loop. `lost` is called when the server hangs up while idle.

    After `LedgerUnavailable` it can only be closed.
    """

    def __init__(self, connection: psycopg.Connection, lost: Callable[[], None]) -> None:
        self._connection, self._pgconn = connection, connection.pgconn
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._busy = self._expired = False
        self._stirred: asyncio.Future[None] = self._loop.create_future()
        self._socket = self._pgconn.socket
        self._pgconn.nonblocking = 1
        self._pgconn.enter_pipeline_mode()
        self._loop.add_reader(self._socket, self._readable)

    async def commit(self, items: Sequence[Item]) -> None:
        """All of them or none. Raises `WrongRow` or `LedgerUnavailable`."""
        timer = self._loop.call_later(COMMIT_S, self._expire)
        self._busy = True
        try:
            place, failure = await self._answers(list(self._sent(items)))
            if failure is not None:
                await self._answers(list(self._plain(b"ROLLBACK")))
        except TimeoutError:
            raise LedgerUnavailable(f"the database did not answer within {COMMIT_S:g} s") from None
        except psycopg.Error:
            raise LedgerUnavailable("the connection to the database broke") from None
        finally:
            self._busy = False
            timer.cancel()
        if failure is not None:
            if failure.wrong_row and place != _OTHER:
                raise WrongRow(place, failure)
            raise LedgerUnavailable(f"the database refused: {failure}")

    def close(self) -> None:
        self._loop.remove_reader(self._socket)
        self._connection.close()

    def _sent(self, items: Sequence[Item]) -> Iterator[int]:
        """Queues the transaction; yields, for every answer that will come, the place of its item."""
        pgconn, prepared = self._pgconn, ""
        for command in _BEGIN:
            pgconn.send_query_params(command, None)
            yield _OTHER
        for place, (statement, values) in enumerate(items):
            if statement != prepared:
                pgconn.send_prepare(b"", numbered(statement)[0])
                prepared = statement
                yield _OTHER
            pgconn.send_query_prepared(b"", values)
            yield place
        yield from self._plain(b"COMMIT")

    def _plain(self, command: bytes) -> Iterator[int]:
        self._pgconn.send_query_params(command, None)
        self._pgconn.pipeline_sync()
        yield _OTHER

    async def _answers(self, places: Sequence[int]) -> tuple[int, StatementRefused | None]:
        """Sends what is queued and reads to its end; returns the first failure and the place of its item."""
        while self._pgconn.flush():
            self._loop.add_writer(self._socket, self._stir)
            try:
                await self._stirring()
            finally:
                self._loop.remove_writer(self._socket)
            self._pgconn.consume_input()
        first: tuple[int, StatementRefused | None] = (_OTHER, None)
        for place in places:
            result = await self._result()
            if result is None:
                raise psycopg.OperationalError("the answers ended early")
            if result.status == ExecStatus.FATAL_ERROR and first[1] is None:
                first = place, StatementRefused(result)
            await self._result()
        await self._result()
        return first

    async def _result(self) -> PGresult | None:
        """Every answer is followed by None, and the last None by the answer to the sync."""
        while self._pgconn.is_busy():
            await self._stirring()
            self._pgconn.consume_input()
        return self._pgconn.get_result()

    async def _stirring(self) -> None:
        """Until the socket can be read, or written where that is waited for too."""
        if self._expired:
            raise TimeoutError
        self._stirred = self._loop.create_future()
        await self._stirred
        if self._expired:
            raise TimeoutError

    def _stir(self) -> None:
        if not self._stirred.done():
            self._stirred.set_result(None)

    def _expire(self) -> None:
        self._expired = True
        self._stir()

    def _readable(self) -> None:
        if self._busy:
            self._stir()
            return
        try:
            self._pgconn.consume_input()
        except psycopg.Error:
            self._loop.remove_reader(self._socket)
            self._lost()


# Group commit to a server: while one transaction is under way the next one gathers.
#
# A server that is gone is looked for until it is back. New requests are refused meanwhile (`available`); rows of
# requests that were answered wait in memory.

RETRY_S = 0.5
"""How long after a failure the server is tried again."""
END_S = 5.0
"""How long the end of a gateway waits for rows to be written."""
LARGEST_COMMIT = 500
"""Statements of one transaction: what gathered during an outage is written in several, each well within its time."""
_log = logging.getLogger(__name__)


class PostgresJournal:
    """The `Journal` port over one connection; make it inside the event loop. Raises `LedgerUnavailable` at first."""

    def __init__(self, place: ServerAddress) -> None:
        self.owner = new_id()
        self.available = True
        self._place = place
        self._loop = asyncio.get_running_loop()
        self._queue = StatementQueue()
        self._batch: list[Item] = []
        """Is being written, or must be written again before anything else."""
        self._waiters: list[asyncio.Future[None]] = []
        self._wanted = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "ledger")
        self._pipe: PostgresPipe | None = PostgresPipe(place.connect(), self._hung_up)
        self._writing = self._loop.create_task(self._write_forever())

    def add(self, statement: str, row: Row) -> None:
        self._queue.add(statement, row)
        self._wanted.set()

    def change(self, statement: str, row: Row) -> None:
        self._queue.change(statement, row)
        self._wanted.set()

    def committed(self) -> Awaitable[None]:
        future = self._loop.create_future()
        if self.available:
            self._waiters.append(future)
            self._wanted.set()
        else:
            _refuse([future])
        return future

    async def end(self) -> None:
        give_up = self._loop.time() + END_S
        while (self._queue or self._batch) and self._loop.time() < give_up:
            with suppress(LedgerUnavailable):
                await self.committed()
            await asyncio.sleep(0.01)
        self._writing.cancel()
        await asyncio.wait([self._writing])
        self._thread.shutdown(wait=False)
        if self._pipe is not None:
            self._pipe.close()
        if lost := len(self._queue) + len(self._batch):
            _log.error("%d rows are lost: the ledger could not be written before the end", lost)

    async def _write_forever(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            while self._pipe is None or self._batch or self._queue or self._waiters:
                try:
                    if self._pipe is None:
                        # In a thread of its own, since looking up a host's name blocks; no reader keeps it from that.
                        connection = await self._loop.run_in_executor(self._thread, self._place.connect)
                        self._pipe = PostgresPipe(connection, self._hung_up)
                    await self._write(self._pipe)
                except Exception as error:  # a mistake of ours must not end the writing for ever
                    self._lose(str(error) if isinstance(error, LedgerUnavailable) else type(error).__name__)
                    await asyncio.sleep(RETRY_S)

    async def _write(self, pipe: PostgresPipe) -> None:
        self._batch = self._batch or self._queue.take(LARGEST_COMMIT)
        waiters: list[asyncio.Future[None]] = []
        if not self._queue:  # they wait for nothing beyond this transaction
            waiters, self._waiters = self._waiters, []
        try:
            if self._batch:
                await pipe.commit(self._batch)
        except WrongRow as error:
            del self._batch[error.place]
            _log.error("a row was dropped: %s", error)
            _refuse(waiters)
        except BaseException:
            # The answer was lost, not the work, perhaps: rows that are there already are left alone.
            self._batch = [
                (f"{statement} ON CONFLICT DO NOTHING", values)
                if statement.startswith("INSERT") and "ON CONFLICT" not in statement
                else (statement, values)
                for statement, values in self._batch
            ]
            _refuse(waiters)
            raise
        else:
            self._batch = []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)
            # Requests that are refused add rows meanwhile: an empty queue may never come.
            if not self.available and len(self._queue) < LARGEST_COMMIT:
                self.available = True
                dropped, self._queue.dropped = self._queue.dropped, 0
                _log.warning("the ledger can be written again; %d rows found no room meanwhile", dropped)

    def _hung_up(self) -> None:
        self._lose("the server closed the connection")
        self._wanted.set()

    def _lose(self, why: str) -> None:
        if self.available:
            _log.error("the ledger can't be written, and is tried again every %s s: %s", RETRY_S, why)
        self.available = False
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None
        waiters, self._waiters = self._waiters, []
        _refuse(waiters)


def _refuse(waiters: Iterable[asyncio.Future[None]]) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_exception(LedgerUnavailable("the ledger could not be written"))


# The ledger as a PostgreSQL database.

_SQL: dict[str, str] = patterns("ledger/data/sql.yaml")["postgres"]


class PostgresLedger:
    """The `Ledger` port over the database of a URL. Raises `SettingError` for a URL that is none."""

    dialect = POSTGRES

    def __init__(self, url: Secret) -> None:
        self._place = ServerAddress(url)
        self.name = self._place.name
        self._readable = False

    def exists(self) -> bool:
        with self.reading(any_version=True) as connection:
            return bool(connection.execute(_SQL["made"]).fetchone()[0])

    def version(self) -> int:
        with self.reading(any_version=True) as connection:
            return _version(connection)

    def size(self, connection: Connection) -> int:
        return int(connection.execute(_SQL["size"]).fetchone()[0])

    def damage(self) -> list[str]:
        return []

    def migrate(self, to: int | None = None, *, lose_data: bool = False) -> int:
        goal, self._readable = newest(POSTGRES) if to is None else to, False
        with self.writing() as connection:
            # What is there already is left alone: the role may then do without the right to create tables.
            return goal if _version(connection) == goal else migrate(connection, POSTGRES, to, lose_data=lose_data)

    def open_journal(self) -> PostgresJournal:
        return PostgresJournal(self._place)

    @contextmanager
    def reading(self, *, any_version: bool = False) -> Iterator[Connection]:
        with closing(PostgresConnection(self._place, read_only=True)) as connection:
            if not (any_version or self._readable):
                readable(self.name, _version(connection), POSTGRES)
                self._readable = True
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        with closing(PostgresConnection(self._place)) as connection:
            yield connection


def _version(connection: Connection) -> int:
    return current(connection, POSTGRES) if connection.execute(_SQL["made"]).fetchone()[0] else 0
