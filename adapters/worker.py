"""An answer that a thread writes and the event loop reads, at the reader's pace."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Mapping

from msgspec import Struct

from router.errors import UpstreamFailure
from router.types.failure import ErrorKind, Failure
from router.types.target import Timeouts

DEPTH = 16
"""Pieces that a thread may be ahead of its reader."""


class Head(Struct, frozen=True):
    status: int
    headers: Mapping[str, str]


Piece = Head | bytes | UpstreamFailure | None
"""What a thread writes, in this order: a head, bytes, None at the end; a failure ends it at any place."""


class Stopped(Exception):
    """Nobody reads any more."""


class Answer:
    """An `UpstreamResponse`; `write` belongs to the thread, everything else to the event loop that made it."""

    def __init__(self, timeouts: Timeouts) -> None:
        self._loop = asyncio.get_running_loop()
        self._timeouts = timeouts
        self._end = self._loop.time() + timeouts.total / 1000
        self._pieces: asyncio.Queue[Piece] = asyncio.Queue()
        self._room = threading.Semaphore(DEPTH)
        self._stopped = threading.Event()
        self._head = Head(0, {})

    @property
    def status(self) -> int:
        return self._head.status

    @property
    def headers(self) -> Mapping[str, str]:
        return self._head.headers

    @property
    def stopped(self) -> bool:
        return self._stopped.is_set()

    def write(self, piece: Piece) -> None:
        """Waits while the reader is far behind; raises `Stopped` once it is gone or overdue."""
        if not self._room.acquire(timeout=self._timeouts.total / 1000) or self.stopped:
            raise Stopped
        try:
            self._loop.call_soon_threadsafe(self._pieces.put_nowait, piece)
        except RuntimeError:  # the loop is closed
            raise Stopped from None

    async def opened(self) -> "Answer":
        """Waits for the head, at most `timeouts.first`."""
        head = await self._next(self._timeouts.first)
        if isinstance(head, Head):
            self._head = head
        return self

    async def read(self) -> bytes:
        return b"".join([data async for data in self.chunks()])

    async def chunks(self) -> AsyncGenerator[bytes]:
        while isinstance(data := await self._next(self._timeouts.between), bytes):
            yield data

    def close(self, *, complete: bool = False) -> None:
        """The thread stops at its next piece."""
        self._stopped.set()
        self._room.release()

    async def _next(self, limit_ms: int) -> Piece:
        seconds = min(limit_ms / 1000, self._end - self._loop.time())
        try:
            piece = await asyncio.wait_for(self._pieces.get(), seconds)
        except TimeoutError:
            raise UpstreamFailure(Failure(ErrorKind.TIMEOUT, "The provider did not answer in time.")) from None
        self._room.release()
        if isinstance(piece, UpstreamFailure):
            raise piece
        return piece
