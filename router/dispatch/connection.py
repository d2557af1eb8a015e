"""One kept connection to an upstream, and one request with its response on it (HTTP/1.1 by httptools)."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Self

import httptools

from router.errors import UpstreamFailure
from router.types.failure import ErrorKind, Failure
from router.types.target import Timeouts

HIGH_WATER = 262_144
"""Bytes of an unread stream at which the upstream is no longer read from."""
LARGEST_BODY = 64 * 1024 * 1024


class Exchange:
    """One request and its response (the `UpstreamResponse` port). The connection fills it, the dispatcher reads it."""

    def __init__(self, connection: "Connection", timeouts: Timeouts, now: float) -> None:
        self._connection: Connection | None = connection
        self._loop = connection.loop
        self._between = timeouts.between / 1000
        self._last = now + timeouts.total / 1000
        self._deadline = min(now + timeouts.first / 1000, self._last)
        self._fed = self._paused = False
        self.status = 0
        self.received = False
        self._raw_headers: list[tuple[bytes, bytes]] = []
        self._chunks: deque[bytes] = deque()
        self._buffered = 0
        self._whole = False
        self._headers_done = False
        self._complete = False
        self._failure: Failure | None = None
        self._waiter: asyncio.Future[None] | None = None

    @property
    def headers(self) -> Mapping[str, str]:
        return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in self._raw_headers}

    async def opened(self) -> Self:
        """Returns once status and headers are here."""
        while not self._headers_done:
            await self._wait()
        return self

    async def read(self) -> bytes:
        self._whole = True
        if self._paused:
            self._resume()
        while not self._complete:
            await self._wait()
        return self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)

    def chunks(self) -> AsyncIterator[bytes]:
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        while not self._chunks:
            if self._complete:
                raise StopAsyncIteration
            if self._failure is not None:
                raise UpstreamFailure(self._failure)
            self._waiter = self._loop.create_future()
            await self._waiter
        data = self._chunks.popleft() if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks.clear()
        if self._paused:
            self._resume()
        self._buffered = 0
        return data

    def overdue(self, now: float) -> bool:
        """Asked by the transport's timer. Time in which the client reads too slowly is not the upstream's."""
        if self._fed or self._paused:
            self._fed = False
            self._deadline = self._last if self._paused else min(now + self._between, self._last)
        return now > self._deadline

    def _resume(self) -> None:
        """Reads on, where what arrived before anybody asked for it had filled the buffer."""
        self._paused, self._fed = False, True
        if self._connection is not None:
            self._connection.resume()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.abort()
            self._connection = None

    async def _wait(self) -> None:
        if self._failure is not None:
            raise UpstreamFailure(self._failure)
        self._waiter = self._loop.create_future()
        await self._waiter

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def on_head(self, status: int) -> None:
        self.status, self._headers_done = status, True
        self._wake()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._raw_headers.append((name, value))

    def on_body(self, data: bytes) -> None:
        self._chunks.append(data)
        self._buffered += len(data)
        self._fed = True
        if self._buffered > HIGH_WATER:
            self._crowded()
        self._wake()

    def _crowded(self) -> None:
        if self._whole and self._buffered > LARGEST_BODY:
            self.fail(Failure(ErrorKind.BAD_RESPONSE, f"The answer is larger than {LARGEST_BODY} bytes."))
        elif not self._whole and self._connection is not None:
            self._paused = True
            self._connection.pause()

    def on_complete(self) -> None:
        self._complete, self._connection = True, None
        self._wake()

    def on_lost(self) -> None:
        """The upstream closed the connection: the regular end of a body that states no length, else a cut."""
        framed = any(name.lower() in (b"content-length", b"transfer-encoding") for name, _ in self._raw_headers)
        if self._headers_done and not framed:
            self.on_complete()
        else:
            self.fail(Failure(ErrorKind.CUT, "The upstream closed the connection before its answer was complete."))

    def fail(self, failure: Failure) -> None:
        if not self._complete and self._failure is None:
            self._failure = failure
            self._wake()
            self.close()


class Connection(asyncio.Protocol):
    """One connection to an upstream; carries one exchange at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, release: Callable[["Connection"], None]) -> None:
        self.loop = loop
        self._release = release
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._exchange: Exchange | None = None
        self.idle_since = 0.0
        self.fresh = True

    @property
    def usable(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def exchange(self) -> Exchange | None:
        return self._exchange

    def start(self, head: bytes, body: bytes, timeouts: Timeouts) -> Exchange:
        assert self._transport is not None  # noqa: S101 - the pool hands out connected ones only
        self._exchange = Exchange(self, timeouts, self.loop.time())
        self._transport.write(head + body)
        return self._exchange

    def pause(self) -> None:
        if self._transport is not None:
            self._transport.pause_reading()

    def resume(self) -> None:
        if self.usable and self._transport is not None:
            self._transport.resume_reading()

    def abort(self) -> None:
        self._exchange = None
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.on_lost()

    def data_received(self, data: bytes) -> None:
        if self._exchange is None:
            self.abort()
            return
        self._exchange.received = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            if self._exchange is not None:
                self._exchange.fail(Failure(ErrorKind.BAD_RESPONSE, "The upstream's answer is not HTTP."))
            self.abort()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._exchange is not None:
            self._exchange.on_header(name, value)

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if self._exchange is not None and status >= 200:
            self._exchange.on_head(status)

    def on_body(self, data: bytes) -> None:
        if self._exchange is not None:
            self._exchange.on_body(data)

    def on_message_complete(self) -> None:
        exchange = self._exchange
        if exchange is None or self._parser.get_status_code() < 200:
            return
        self._exchange = None
        exchange.on_complete()
        self.resume()  # the last bytes may have filled the buffer; the next answer must be read
        if self._parser.should_keep_alive():
            self._release(self)
        else:
            self.abort()
