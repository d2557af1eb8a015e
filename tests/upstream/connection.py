"""HTTP/1.1 on one socket, bare enough to misbehave on purpose."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from http.client import responses
from itertools import count
from urllib.parse import unquote

import httptools

from tests.upstream.recorded import Recorded

_NUMBERS = count(1)
PAUSE_S = 0.001
"""Between the TCP writes of one split event, so that the reader sees them apart."""


class Connection(asyncio.Protocol):
    """Parses requests and hands them one by one to `handle`; a client that hangs up cancels the handler."""

    def __init__(self, handle: Callable[["Connection", Recorded], Awaitable[None]]) -> None:
        self._handle = handle
        self._parser = httptools.HttpRequestParser(self)
        self._waiting: deque[Recorded] = deque()
        self._writable = asyncio.Event()
        self._writable.set()
        self._task: asyncio.Task[None] | None = None
        self._number = next(_NUMBERS)
        self._request = Recorded(self._number)
        self._transport: asyncio.Transport | None = None
        self.answered = 0
        self.closes_under_next = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._writable.set()
        if self._task:
            self._task.cancel()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def on_message_begin(self) -> None:
        self._request = Recorded(self._number)

    def on_url(self, url: bytes) -> None:
        self._request.path += url.decode()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._request.headers[name.decode().lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        self._request.body += body

    def on_message_complete(self) -> None:
        path, _, self._request.query = self._request.path.partition("?")
        self._request.path, self._request.method = unquote(path), self._parser.get_method().decode()
        self._waiting.append(self._request)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._serve())

    async def _serve(self) -> None:
        while self._waiting:
            request = self._waiting.popleft()
            try:
                await self._handle(self, request)
            except asyncio.CancelledError:
                request.end(client_gone=True)
                raise
            request.end()
            self.answered += 1

    async def write(self, *pieces: bytes) -> None:
        """Each piece is a TCP write of its own; waits while the client does not read."""
        for i, piece in enumerate(pieces):
            if i:
                await asyncio.sleep(PAUSE_S)
            assert self._transport is not None
            self._transport.write(piece)
            await self._writable.wait()

    def close(self) -> None:
        """After what has been written so far."""
        if self._transport is not None:
            self._transport.close()


def head(status: int, headers: dict[str, str]) -> bytes:
    """Status line and headers, closed."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} {_reason(status)}\r\n{lines}\r\n".encode()


def _reason(status: int) -> str:
    return responses.get(status, "Overloaded")


def chunk(data: bytes) -> bytes:
    """One piece of a chunked body; of no data, its end."""
    return b"%x\r\n%s\r\n" % (len(data), data)
