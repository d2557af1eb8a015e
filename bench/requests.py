"""What scripted upstreams have in common: a connection that gathers requests, a timer of its own, how they serve."""

import asyncio
import sys
from typing import cast

import httptools


class Requests(asyncio.Protocol):
    """One keep-alive connection; `on_message_complete` answers the request in `url` and `body`."""

    transport: asyncio.Transport
    url: bytes
    body: list[bytes]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.loop = asyncio.get_running_loop()
        self.parser = httptools.HttpRequestParser(self)
        self.timer: asyncio.TimerHandle | None = None

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.timer is not None:
            self.timer.cancel()

    def on_message_begin(self) -> None:
        self.url, self.body = b"", []

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_body(self, data: bytes) -> None:
        self.body.append(data)


async def serve(connection: type[Requests]) -> None:
    """Listen on a free loopback port, print it, and stop when standard input closes."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(connection, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    closed = asyncio.Event()
    loop.add_reader(sys.stdin, closed.set)
    await closed.wait()
