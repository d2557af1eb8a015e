"""Group commit to a server: while one transaction is under way the next one gathers.

A server that is gone is looked for until it is back. New requests are refused meanwhile (`available`); rows of requests
that were answered wait in memory.
"""

import asyncio
import logging
from collections.abc import Awaitable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from router.ledger.postgres.pipe import Pipe, WrongRow
from router.ledger.postgres.place import Place
from router.ledger.postgres.queue import Item, Queue, repeatable
from router.types.ids import new_id
from router.types.journal import LedgerUnavailable, Row

RETRY_S = 0.5
"""How long after a failure the server is tried again."""
END_S = 5.0
"""How long the end of a gateway waits for rows to be written."""
LARGEST_COMMIT = 500
"""Statements of one transaction: what gathered during an outage is written in several, each well within its time."""
_log = logging.getLogger(__name__)


class PostgresJournal:
    """The `Journal` port over one connection; make it inside the event loop. Raises `LedgerUnavailable` at first."""

    def __init__(self, place: Place) -> None:
        self.owner = new_id()
        self.available = True
        self._place = place
        self._loop = asyncio.get_running_loop()
        self._queue = Queue()
        self._batch: list[Item] = []
        """Is being written, or must be written again before anything else."""
        self._waiters: list[asyncio.Future[None]] = []
        self._wanted = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "ledger")
        self._pipe: Pipe | None = Pipe(place.connect(), self._hung_up)
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
            future.set_exception(_refusal())
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
                    await self._write(self._pipe or await self._connected())
                except LedgerUnavailable as error:
                    self._lose(str(error))
                    await asyncio.sleep(RETRY_S)
                except Exception as error:  # a mistake of ours must not end the writing for ever
                    self._lose(type(error).__name__)
                    await asyncio.sleep(RETRY_S)

    async def _connected(self) -> Pipe:
        """In a thread, since looking up a host's name blocks; its own, so that no reader keeps it from that."""
        connection = await self._loop.run_in_executor(self._thread, self._place.connect)
        self._pipe = Pipe(connection, self._hung_up)
        return self._pipe

    async def _write(self, pipe: Pipe) -> None:
        self._batch = self._batch or self._queue.take(LARGEST_COMMIT)
        waiters = self._released()
        try:
            if self._batch:
                await pipe.commit(self._batch)
        except WrongRow as error:
            del self._batch[error.place]
            _log.error("a row was dropped: %s", error)
            _refuse(waiters)
        except BaseException:
            self._batch = [repeatable(item) for item in self._batch]
            _refuse(waiters)
            raise
        else:
            self._batch = []
            self._succeed(waiters)

    def _released(self) -> list[asyncio.Future[None]]:
        """Those that wait for nothing beyond this transaction."""
        if self._queue:
            return []
        waiters, self._waiters = self._waiters, []
        return waiters

    def _succeed(self, waiters: Iterable[asyncio.Future[None]]) -> None:
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
            waiter.set_exception(_refusal())


def _refusal() -> LedgerUnavailable:
    return LedgerUnavailable("the ledger could not be written")
