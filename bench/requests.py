"""What both scripted upstreams have in common: a connection that gathers requests, and a timer of its own."""

import asyncio
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
