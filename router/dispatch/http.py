"""The transport of all HTTP wires: kept connections by origin, one sweeping timer for all timeouts."""

import asyncio
import ssl
from collections import deque
from collections.abc import Iterable
from functools import lru_cache
from urllib.parse import urlsplit

from msgspec import Struct, structs

from router.dispatch.connection import Connection, Exchange
from router.errors import UpstreamFailure
from router.types.call import UpstreamRequest
from router.types.failure import ErrorKind, Failure
from router.types.target import Timeouts

SWEEP_S = 0.05
"""How often deadlines are looked at: a timeout may come this much late."""
LATE_S = 1.0
"""A process that was paused, or an event loop that was blocked, for so long has answers waiting in its sockets."""
IDLE_S = 20.0
"""A kept connection is dropped after this long without use."""


_STOPPED = Failure(ErrorKind.CUT, "The engine was stopped before its answer was complete.")


class Origin(Struct, frozen=True):
    host: str
    port: int
    tls: bool
    authority: str
    prefix: str


class HttpTransport:
    """Connections by origin, newest first. Use inside one running event loop; `close()` at the end."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._idle: dict[Origin, deque[Connection]] = {}
        self._active: dict[Connection, Origin] = {}
        self._tls: ssl.SSLContext | None = None
        self._sweep_due = 0.0
        self._sweep_later()

    async def send(self, base_url: str, request: UpstreamRequest, timeouts: Timeouts) -> Exchange:
        origin = _origin(base_url)
        head = _head(origin, request.method, request.path, request.headers)
        if request.request_id:
            head += b"x-request-id: %b\r\n" % request.request_id.encode()
        head += b"content-length: %d\r\n\r\n" % len(request.body)
        began = self._loop.time()
        connection = self._kept(origin) or await self._connect(origin, timeouts)
        exchange = connection.start(head, request.body, timeouts)
        try:
            return await exchange.opened()
        except UpstreamFailure as failure:
            # A kept connection may have been closed at the moment of reuse: once, on a fresh one (RFC 9112 §9.3.1).
            if connection.fresh or exchange.received or failure.failure.kind is not ErrorKind.CUT:
                raise
        except asyncio.CancelledError:
            exchange.close()
            raise
        gone_ms = int((self._loop.time() - began) * 1000)
        left = {name: max(1, getattr(timeouts, name) - gone_ms) for name in ("connect", "first", "total")}
        timeouts = structs.replace(timeouts, **left)
        exchange = (await self._connect(origin, timeouts)).start(head, request.body, timeouts)
        try:
            return await exchange.opened()
        except asyncio.CancelledError:
            exchange.close()
            raise

    def end(self, base_urls: Iterable[str]) -> None:
        """Nothing more will come from there, though the connections may not say so: what is in progress fails."""
        gone = set(map(_origin, base_urls))
        for connection in [one for one, origin in self._active.items() if origin in gone]:
            if connection.exchange is not None:
                connection.exchange.fail(_STOPPED)
        for connection in [kept for origin in gone for kept in self._idle.pop(origin, ())]:
            connection.abort()

    def close(self) -> None:
        self._timer.cancel()
        for connection in [*self._active, *(kept for pool in self._idle.values() for kept in pool)]:
            connection.abort()

    def _kept(self, origin: Origin) -> Connection | None:
        pool = self._idle.get(origin)
        while pool:
            connection = pool.pop()
            if connection.usable:
                self._active[connection] = origin
                return connection
        return None

    async def _connect(self, origin: Origin, timeouts: Timeouts) -> Connection:
        def release(connection: Connection) -> None:
            self._active.pop(connection, None)
            connection.idle_since, connection.fresh = self._loop.time(), False
            self._idle.setdefault(origin, deque()).append(connection)

        try:
            async with asyncio.timeout(timeouts.connect / 1000):
                _, connection = await self._loop.create_connection(
                    lambda: Connection(self._loop, release), origin.host, origin.port, ssl=self._context(origin)
                )
        except TimeoutError:
            raise UpstreamFailure(Failure(ErrorKind.CONNECT, "The upstream did not accept a connection.")) from None
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise UpstreamFailure(Failure(ErrorKind.CONNECT, f"No connection to the upstream: {reason}.")) from None
        self._active[connection] = origin
        return connection

    def _context(self, origin: Origin) -> ssl.SSLContext | None:
        if origin.tls and self._tls is None:
            self._tls = ssl.create_default_context()
        return self._tls if origin.tls else None

    def _sweep_later(self) -> None:
        self._sweep_due = self._loop.time() + SWEEP_S
        self._timer = self._loop.call_at(self._sweep_due, self._sweep)

    def _sweep(self) -> None:
        now, due = self._loop.time(), self._sweep_due
        self._sweep_later()
        if now - due > LATE_S:
            return  # the sockets are read first
        for connection in list(self._active):
            exchange = connection.exchange
            if exchange is None:
                if not connection.usable:
                    self._active.pop(connection)
            elif exchange.overdue(now):
                exchange.fail(Failure(ErrorKind.TIMEOUT, "The upstream took too long to answer."))
        for pool in self._idle.values():
            while pool and (now - pool[0].idle_since > IDLE_S or not pool[0].usable):
                pool.popleft().abort()


@lru_cache(maxsize=1024)
def _origin(base_url: str) -> Origin:
    parts = urlsplit(base_url)
    tls = parts.scheme == "https"
    host = parts.hostname or ""
    return Origin(
        host, parts.port or (443 if tls else 80), tls, parts.netloc.rpartition("@")[2], parts.path.rstrip("/")
    )


@lru_cache(maxsize=1024)
def _head(origin: Origin, method: str, path: str, headers: tuple[tuple[str, str], ...]) -> bytes:
    fields = "".join(f"{name}: {value}\r\n" for name, value in headers)
    start = f"{method} {origin.prefix}{path} HTTP/1.1\r\nhost: {origin.authority}\r\n"
    return f"{start}{fields}accept-encoding: identity\r\n".encode("latin-1")
