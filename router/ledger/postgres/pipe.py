"""One connection in libpq's pipeline mode: a whole transaction goes out at once, its answers come back together.

Straight on `psycopg.pq`, since a cursor costs 50 µs a statement: https://www.psycopg.org/psycopg3/docs/api/pq.html
Nothing is left on the server's side when a transaction is over, so a pooler may give the next one another session.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence

import psycopg
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGresult

from router.ledger.postgres.queue import Item
from router.ledger.postgres.wire import StatementRefused, numbered
from router.types.journal import LedgerUnavailable

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


class Pipe:
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
            refused = await self._transact(items)
        except TimeoutError:
            raise LedgerUnavailable(f"the database did not answer within {COMMIT_S:g} s") from None
        except psycopg.Error:
            raise LedgerUnavailable("the connection to the database broke") from None
        finally:
            self._busy = False
            timer.cancel()
        if refused is not None:
            raise refused

    def close(self) -> None:
        self._loop.remove_reader(self._socket)
        self._connection.close()

    async def _transact(self, items: Sequence[Item]) -> Exception | None:
        place, failure = await self._answers(list(self._sent(items)))
        if failure is None:
            return None
        await self._answers(list(self._plain(b"ROLLBACK")))
        if failure.wrong_row and place != _OTHER:
            return WrongRow(place, failure)
        return LedgerUnavailable(f"the database refused: {failure}")

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
        await self._flush()
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

    async def _flush(self) -> None:
        while self._pgconn.flush():
            self._loop.add_writer(self._socket, self._stir)
            try:
                await self._stirring()
            finally:
                self._loop.remove_writer(self._socket)
            self._pgconn.consume_input()

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
