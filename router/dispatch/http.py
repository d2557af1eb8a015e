"""The HTTP/1.1 client for upstreams: kept connections, timeouts, one request at a time on each."""

import asyncio
import fcntl
import os
import select
import socket
import ssl
import sys
import termios
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import suppress
from functools import lru_cache, partial
from typing import Self
from urllib.parse import urlsplit

import httptools
from msgspec import Struct, structs

from router.dispatch.hold import OUTRUN, Outrun
from router.errors import UpstreamFailure
from router.types.attempt import ErrorKind, Failure, UpstreamRequest
from router.types.clock import clock_ms
from router.types.target import Timeouts

# A connection to an upstream, and one request with its response on it (HTTP/1.1, parsed by httptools).

HIGH_WATER = 262_144
"""Number of unread bytes of a stream at which reading from the upstream is paused."""
PIECE = 2_048
"""Maximum bytes of a stream that are returned in one turn of the event loop."""
LARGEST_BODY = 64 * 1024 * 1024
LAST_S = 1.0
LARGEST_HEAD = 65_536
"""Maximum bytes of a response besides its body: status line, headers, interim responses, chunk sizes, trailers."""
FRAMING_PER_BYTE = 16
"""Additional such bytes allowed per byte of the body: a chunk of one byte needs five."""

AGAIN = 10
"""A late answer is read on for at most this many times as long as it was waited for."""
_LATE = Failure(ErrorKind.TIMEOUT, "The upstream took too long to answer.")
_CLOSED = Failure(ErrorKind.CUT, "The upstream closed the connection before its answer was complete.")
_NOT_HTTP = Failure(ErrorKind.BAD_RESPONSE, "The upstream's answer is not HTTP.")
_UNASKED = Failure(ErrorKind.BAD_RESPONSE, "The upstream sent an answer that was not asked for.")
_HEAD_TOO_LARGE = Failure(ErrorKind.BAD_RESPONSE, f"The answer's headers are larger than {LARGEST_HEAD} bytes.")
_BODY_TOO_LARGE = Failure(ErrorKind.BAD_RESPONSE, f"The answer is larger than {LARGEST_BODY} bytes.")
_SWITCHED = Failure(ErrorKind.BAD_RESPONSE, "The upstream switched to a protocol that the request did not ask for.")


class Exchange:
    """One request and its response (the `UpstreamResponse` port), with its own parser.

    The connection feeds it and the dispatcher reads it. Bytes after the end of the response belong to no request.
    """

    def __init__(self, connection: "UpstreamConnection", request: bytes, timeouts: Timeouts) -> None:
        """Sends `request` on a connected connection."""
        assert connection.transport is not None  # noqa: S101 - the pool hands out connected ones only
        self._pieces = list[bytes]()
        self.on_body = self._pieces.append
        """Called by the parser with each piece of the body; the pieces are taken at the end of `feed`."""
        self._own: int | None = None
        """Number of those pieces that belong to this response, once it has ended; None before."""
        self._connection: UpstreamConnection | None = connection
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)
        self._loop = connection.pool.loop
        now = self._loop.time()
        self._first, self._between = timeouts.first / 1000, timeouts.between / 1000
        self._read_on = timeouts.read_on / 1000
        self._last = now + timeouts.total / 1000
        self._deadline = min(now + timeouts.first / 1000, self._last)
        self._progress = self._paused = self._held_up = self._waited = False
        self.status = 0
        self.received = False
        self._raw_headers: list[tuple[bytes, bytes]] = []
        self._chunks: deque[bytes] = deque()
        self.looks = False
        self.buffered = 0
        self._fed = self._body = self._waiting = 0
        """Bytes of the whole response, of its body, and of what was left unread in the socket when it was closed."""
        self._whole = False
        self.headers_done = False
        self._ended = self._surplus = self._keep_alive = False
        self._complete = False
        self.arrived_ms: float | None = None
        self._failure: Failure | None = None
        self._late: UpstreamFailure | None = None
        """Error for a late answer; raised once, by `more`."""
        self._waiter: asyncio.Future[None] | None = None
        connection.exchange = self
        connection.transport.write(request)

    @property
    def headers(self) -> Mapping[str, str]:
        return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in self._raw_headers}

    async def read(self) -> bytes:
        self._whole = True
        if self._paused:
            self._resume()
        while not self._complete:
            await self.more()
        self.buffered = 0
        return self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)

    def chunks(self, *, looks: bool = False) -> AsyncIterator[bytes]:
        self.looks = looks
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        self._waited = not self._chunks
        while not self._chunks:
            if self._complete:
                raise StopAsyncIteration
            await self.more()
            if self.looks and not self._chunks and not self._complete:
                return b""
        data = self._chunks.popleft() if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks.clear()
        self.buffered = 0
        if len(data) > PIECE:  # perhaps hundreds of events: let other tasks run between them
            end = data.rfind(b"\n\n", 0, PIECE) + 2
            size = end if end > 1 else PIECE
            self._chunks.append(data[size:])
            self.buffered = len(data) - size
            data = data[:size]
            await asyncio.sleep(0)
        if self._paused and self.buffered < HIGH_WATER // 2:
            self._resume()
        return data

    def overdue(self, now: float) -> bool:
        """Returns whether a deadline has passed. Time in which the client reads too slowly does not count."""
        if self._progress or self._paused:
            self._progress = False
            self._deadline = self._last if self._paused else min(now + self._between, self._last)
        return now > self._deadline

    def late(self, now: float) -> None:
        """Handles a passed deadline: fails, or if the answer is read on, reports it late and waits longer."""
        read_on, self._read_on = self._read_on, 0.0
        if not read_on:
            return self.fail(_LATE)
        read_on = min(read_on, AGAIN * (self._between if self.headers_done else self._first))
        self._deadline, self._last, self._between = now + read_on, now + read_on, read_on
        self._late = UpstreamFailure(_LATE, late=self)
        return self.wake()

    def close(self, *, complete: bool = False) -> None:
        """Gives up the response if it is not complete, which closes its connection. `complete`: the body has ended by
        its own protocol, so the end of the response is awaited for up to `LAST_S` seconds."""
        if complete and self._connection is not None and not self._paused:
            if self._waited and not self._held_up:  # otherwise a slow client may have delayed it
                self.arrived_ms = clock_ms()
            self._last = self._deadline = self._loop.time() + LAST_S
            return
        self._parser = None
        connection, self._connection = self._connection, None
        if connection is not None:
            self._waiting = connection.abort()

    def unread(self) -> tuple[bytes, int]:
        return b"".join(self._chunks), self._waiting

    def fail(self, failure: Failure) -> None:
        if not self._complete and self._failure is None:
            self._failure = failure
            self.wake()
            self.close()

    def feed(self, data: bytes) -> None:
        """Takes bytes of the response, cut anywhere; completes it once all of them are parsed."""
        if self._parser is None:
            return
        self.received = True
        self._fed += len(data)
        sound = True
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            sound = False
        if self._pieces:
            self._take()
        if self._fed - self._body > LARGEST_HEAD + FRAMING_PER_BYTE * self._body:
            self.fail(_HEAD_TOO_LARGE)
        elif self._ended:
            # If a used connection has two answers, the first may belong to the previous request.
            if self._surplus and self._connection is not None and not self._connection.fresh:
                self.fail(_UNASKED)
            else:
                self._end(reusable=sound and self._keep_alive and not self._surplus)
        elif not sound:
            self.fail(_NOT_HTTP)
        self.wake()

    def lost(self) -> None:
        """Handles a closed connection: the regular end of a body without a length, otherwise a cut."""
        framed = any(name.lower() in (b"content-length", b"transfer-encoding") for name, _ in self._raw_headers)
        if self.headers_done and not framed:
            self._end(reusable=False)
            self.wake()
        else:
            self.fail(_CLOSED)

    # Callbacks of the parser.

    def on_message_begin(self) -> None:
        self._surplus = self._ended
        if self._ended and self._connection is not None:
            self._connection.pool.distrust(self._connection.origin)

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.headers_done:
            self._raw_headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self._ended or self._parser is None:
            return
        status = self._parser.get_status_code()
        # A framing that the request did not allow (RFC 9112 §6.1, §7.4) makes the end ambiguous.
        coding = b""
        for name, value in self._raw_headers:
            if name.lower() == b"transfer-encoding":
                coding += b"," + value.lower()
        if status == 101:
            self.fail(_SWITCHED)
        elif status < 100 or coding not in (b"", b",chunked"):
            self.fail(_NOT_HTTP)
        elif status < 200:
            self._raw_headers.clear()
        else:
            self.status, self.headers_done = status, True

    def _take(self) -> None:
        data = b"".join(self._pieces[: self._own])
        self._pieces.clear()
        self._chunks.append(data)
        self.buffered += len(data)
        self._body += len(data)
        self._progress = True
        if self.buffered > HIGH_WATER and not self._whole and self._connection is not None:
            self._paused = self._held_up = True
            self._connection.pause()
        elif self._whole and self.buffered > LARGEST_BODY:
            self.fail(_BODY_TOO_LARGE)

    def on_message_complete(self) -> None:
        if self.headers_done and not self._ended and self._parser is not None:
            self._ended, self._own = True, len(self._pieces)
            self._keep_alive = self._parser.should_keep_alive() and self._parser.get_http_version() == "1.1"

    def _end(self, *, reusable: bool) -> None:
        self._complete, self._parser = True, None
        self.arrived_ms = None if self._held_up else clock_ms()
        connection, self._connection = self._connection, None
        if connection is not None:
            if self._paused:  # paused by the last bytes; the next answer must be read
                connection.resume()
            connection.pool.release(connection, reusable)

    def _resume(self) -> None:
        """Resumes reading after the buffer was full."""
        self._paused, self._progress = False, True
        if self._connection is not None:
            self._connection.resume()

    def more(self) -> asyncio.Future[None]:
        """Returns a future that is done when more of the response has arrived or it has failed."""
        late, self._late = self._late, None
        if self._failure is not None:
            raise UpstreamFailure(self._failure)
        if late is not None:
            raise late
        self._waiter = self._loop.create_future()
        return self._waiter

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class UpstreamConnection(asyncio.Protocol):
    """One connection to an upstream, which carries one exchange at a time."""

    def __init__(self, pool: "HttpTransport", origin: "Origin") -> None:
        self.pool, self.origin = pool, origin
        self.transport: asyncio.Transport | None = None
        self._poll: select.poll | None = None
        self.exchange: Exchange | None = None
        self.idle_since = 0.0
        self.fresh = True

    @property
    def usable(self) -> bool:
        """Whether it is connected and, if idle, has received nothing unrequested."""
        if self.transport is None or self.transport.is_closing():
            return False
        return self.exchange is not None or self._poll is None or not self._poll.poll(0)

    def pause(self) -> None:
        if self.transport is not None:
            self.transport.pause_reading()

    def resume(self) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.resume_reading()

    def abort(self) -> int:
        """Closes the connection, which fails its exchange. Returns the number of bytes left unread in its socket."""
        exchange, self.exchange = self.exchange, None
        waiting = bytearray(4)
        if self.transport is not None and not self.transport.is_closing():
            file = self.transport.get_extra_info("socket").fileno()
            with suppress(OSError), socket.socket(fileno=os.dup(file)) as twin:
                fcntl.ioctl(file, termios.FIONREAD, waiting)
                twin.shutdown(socket.SHUT_RDWR)  # at once: a busy event loop would close it later
            self.transport.abort()
        if exchange is not None:
            exchange.fail(_CLOSED)
        return int.from_bytes(waiting, sys.byteorder)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        self._poll = select.poll()
        self._poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = self._poll = None
        exchange, self.exchange = self.exchange, None
        if exchange is not None:
            exchange.lost()

    def data_received(self, data: bytes) -> None:
        if self.exchange is None:
            if data.strip() and not data.startswith(b"HTTP/1.1 408 "):  # a server may send this before it closes
                self.pool.distrust(self.origin)
            self.abort()
        else:
            self.exchange.feed(data)


# The transport of all HTTP wires: kept connections by origin, and one timer for all timeouts.

SWEEP_S = 0.05
"""Interval in seconds at which deadlines are checked; a timeout may be this late."""
LATE_S = 1.0
"""Delay of the timer, in seconds, after which a check is skipped: after a pause, sockets hold unread answers."""
IDLE_S = 20.0
"""Time in seconds after which an unused connection is dropped."""
QUIET_S = 0.02
"""Time in seconds without a byte after which a kept connection is reused. HTTP/1.1 does not number answers, so an
unrequested second answer would be taken for the next one."""
DISTRUST_S = 600.0
"""Time in seconds for which no connections to an upstream are kept after it sent an unrequested answer."""


_STOPPED = Failure(ErrorKind.CUT, "The engine was stopped before its answer was complete.")


class Origin(Struct, frozen=True):
    host: str
    port: int
    tls: bool
    authority: str
    prefix: str


class HttpTransport:
    """Sends requests over HTTP/1.1, keeping connections by origin. Use inside one event loop; `close()` at the end."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.idle: dict[Origin, deque[UpstreamConnection]] = {}
        self._active = set[UpstreamConnection]()
        self._distrusted: dict[Origin, float] = {}
        self._tls: ssl.SSLContext | None = None
        self._sweep_due = 0.0
        self.quiet_s = QUIET_S
        self._sweep_later()

    async def send(self, base_url: str, request: UpstreamRequest, timeouts: Timeouts) -> Exchange:
        origin = _origin(base_url)
        head = _head(origin, request.method, request.path, request.headers)
        if request.request_id:
            head += b"x-request-id: %b\r\n" % request.request_id.encode()
        head += b"content-length: %d\r\n\r\n" % len(request.body)
        began, left = self.loop.time(), timeouts
        connection = self._kept(origin, began - self.quiet_s)
        while True:
            if connection is None:
                connection = await self._connect(origin, left)
                left = _left(timeouts, self.loop.time() - began)
            exchange = Exchange(connection, head + request.body, left)
            try:
                while not exchange.headers_done:
                    await exchange.more()
                return exchange
            except asyncio.CancelledError as cancelled:
                if timeouts.read_on and OUTRUN in cancelled.args:
                    raise Outrun(exchange) from None
                exchange.close()
                raise
            except UpstreamFailure as failure:
                # A kept connection may be closed just when it is reused: retry once on a new one (RFC 9112 §9.3.1).
                if connection.fresh or exchange.received or failure.failure.kind is not ErrorKind.CUT:
                    raise
            connection, left = None, _left(timeouts, self.loop.time() - began)

    def end(self, base_urls: Iterable[str]) -> None:
        """Fails all exchanges with these servers, which have stopped, and closes their connections."""
        gone = set(map(_origin, base_urls))
        for connection in [active for active in self._active if active.origin in gone]:
            if connection.exchange is not None:
                connection.exchange.fail(_STOPPED)
        for connection in [idle for origin in gone for idle in self.idle.pop(origin, ())]:
            connection.abort()

    def close(self) -> None:
        self._timer.cancel()
        for connection in [*self._active, *(idle for pool in self.idle.values() for idle in pool)]:
            connection.abort()

    def _kept(self, origin: Origin, quiet_since: float) -> UpstreamConnection | None:
        pool = self.idle.get(origin)
        if not pool:
            return None
        idle, resting = None, []
        while pool and idle is None:
            connection = pool.pop()
            if connection.idle_since > quiet_since:
                resting.append(connection)
            elif connection.usable:
                self._active.add(connection)
                idle = connection
        if resting:
            pool.extend(reversed(resting))
        return idle

    def release(self, connection: UpstreamConnection, reusable: bool) -> None:
        """Takes back a connection after its exchange. `reusable`: the response ended exactly where its bytes did."""
        connection.exchange, transport, now = None, connection.transport, self.loop.time()
        if transport is None:
            return
        distrusted = self._distrusted and self._distrusted.get(connection.origin, 0.0) > now
        if distrusted or not reusable or transport.is_closing() or transport.get_write_buffer_size():
            transport.abort()
            return
        self._active.discard(connection)
        connection.idle_since, connection.fresh = now, False
        self.idle.setdefault(connection.origin, deque()).append(connection)

    def distrust(self, origin: Origin) -> None:
        """Drops an origin's kept connections, and keeps none for `DISTRUST_S`: it sent an unrequested answer."""
        self._distrusted[origin] = self.loop.time() + DISTRUST_S
        for connection in self.idle.pop(origin, ()):
            connection.abort()

    async def _connect(self, origin: Origin, timeouts: Timeouts) -> UpstreamConnection:
        if origin.tls and self._tls is None:
            self._tls = ssl.create_default_context()
        made, tls = partial(UpstreamConnection, self, origin), self._tls if origin.tls else None
        try:
            async with asyncio.timeout(timeouts.connect / 1000):
                _, connection = await self.loop.create_connection(made, origin.host, origin.port, ssl=tls)
        except TimeoutError:
            raise UpstreamFailure(Failure(ErrorKind.CONNECT, "The upstream did not accept a connection.")) from None
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise UpstreamFailure(Failure(ErrorKind.CONNECT, f"No connection to the upstream: {reason}.")) from None
        self._active.add(connection)
        return connection

    def _sweep_later(self) -> None:
        self._sweep_due = self.loop.time() + SWEEP_S
        self._timer = self.loop.call_at(self._sweep_due, self._sweep)

    def _sweep(self) -> None:
        now, due = self.loop.time(), self._sweep_due
        self._sweep_later()
        if now - due > LATE_S:
            return  # read the sockets first
        for connection in list(self._active):
            exchange = connection.exchange
            if exchange is None:
                if not connection.usable:
                    self._active.discard(connection)
            elif exchange.overdue(now):
                exchange.late(now)
            elif exchange.looks:
                exchange.wake()
        for pool in self.idle.values():
            while pool and (pool[0].idle_since < now - IDLE_S or not pool[0].usable):
                pool.popleft().abort()


def _left(timeouts: Timeouts, passed_s: float) -> Timeouts:
    """Returns the timeouts less the time already spent on connecting."""
    left = {name: max(1, getattr(timeouts, name) - int(passed_s * 1000)) for name in ("connect", "first", "total")}
    return structs.replace(timeouts, **left)


@lru_cache(maxsize=1024)
def _origin(base_url: str) -> Origin:
    parts = urlsplit(base_url)
    tls = parts.scheme == "https"
    host, port = parts.hostname or "", parts.port or (443 if tls else 80)
    return Origin(host, port, tls, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"))


@lru_cache(maxsize=1024)
def _head(origin: Origin, method: str, path: str, headers: tuple[tuple[str, str], ...]) -> bytes:
    fields = "".join(f"{name}: {value}\r\n" for name, value in headers)
    start = f"{method} {origin.prefix}{path} HTTP/1.1\r\nhost: {origin.authority}\r\n"
    return f"{start}{fields}accept-encoding: identity\r\n".encode("latin-1")
