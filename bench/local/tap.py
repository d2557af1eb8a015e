"""A wire between gateway and engine that notes when a request went in and when its first token came out."""

import asyncio
import re
from time import perf_counter
from typing import cast

from msgspec import Struct

from bench.local.streams import FIRST_TOKEN

TICKET = re.compile(rb"Ticket (\d+)")


class Times(Struct):
    """Of one request, of `perf_counter`; 0: not yet."""

    asked: float = 0.0
    first: float = 0.0


class Tap:
    """Listens on a port of its own; bytes pass untouched."""

    def __init__(self, engine: int) -> None:
        self.engine, self.times = engine, dict[str, Times]()

    async def open(self) -> int:
        self._server = await asyncio.get_running_loop().create_server(lambda: _Inner(self), "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    def close(self) -> None:
        self._server.close()

    def asked(self, data: bytes) -> Times | None:
        found = TICKET.search(data)
        return None if found is None else self.times.setdefault(found[1].decode(), Times(perf_counter()))


class _Inner(asyncio.Protocol):
    """The gateway's side of a connection."""

    def __init__(self, tap: Tap) -> None:
        self.tap, self.waiting = tap, list[bytes]()
        self.outer: asyncio.Transport | None = None
        self.now: Times | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._dial = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_connection(lambda: _Outer(self), "127.0.0.1", self.tap.engine)
        self.outer = transport
        for data in self.waiting:
            transport.write(data)

    def data_received(self, data: bytes) -> None:
        self.now = self.tap.asked(data) or self.now
        self.outer.write(data) if self.outer else self.waiting.append(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.outer:
            self.outer.close()


class _Outer(asyncio.Protocol):
    """The engine's side."""

    def __init__(self, inner: _Inner) -> None:
        self.inner = inner

    def data_received(self, data: bytes) -> None:
        now = self.inner.now
        if now is not None and not now.first and FIRST_TOKEN.search(data):
            now.first = perf_counter()
        self.inner.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.inner.transport.close()
