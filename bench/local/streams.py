"""Clients of streamed chats on kept connections: when the first token came, how many came, and who answered."""

import asyncio
import re
from collections.abc import Iterable, Iterator
from time import perf_counter
from typing import cast

import httptools
import msgspec
from msgspec import Struct

from bench.load import PATH

FIRST_TOKEN = re.compile(rb'"content": ?"[^"]')
"""In the event that holds it: events before it say the role, or nothing."""
_TOKENS = re.compile(rb'"completion_tokens": ?(\d+)')
_DONE = b"data: [DONE]"
_SERVED_BY = b"x-lowpass-model"
STAGGER_S = 0.03


class Door(Struct, frozen=True):
    """Where a chat goes, and as what."""

    port: int
    model: str
    key: str = ""


class Answer(Struct, frozen=True):
    """Times of `perf_counter`. `first` is that of the first token; 0: there was none. `target` as the gateway says."""

    sent: float
    first: float
    last: float
    status: int
    tokens: int
    whole: bool
    """Status 200, and a stream that ended as it should."""
    target: str = ""

    @property
    def seconds(self) -> float:
        return self.last - self.sent


class Ask(Struct, frozen=True):
    """`ticket` tells it from all others."""

    ticket: str
    tokens: int
    words: str = "Count aloud."

    @property
    def prompt(self) -> str:
        return f"Ticket {self.ticket}. {self.words}"


class Client(asyncio.Protocol):
    """One kept connection, one request at a time."""

    transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._answer: asyncio.Future[Answer] | None = None

    async def ask(self, door: Door, ask: Ask) -> Answer:
        """Raises OSError if the connection ends before the answer does."""
        self._parser, self._body, self._first, self._target = httptools.HttpResponseParser(self), b"", 0.0, ""
        self._answer = asyncio.get_running_loop().create_future()
        self._sent = perf_counter()
        self.transport.write(request(door, ask))
        return await self._answer

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc if isinstance(exc, OSError) else ConnectionResetError("in an answer"))

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == _SERVED_BY:
            self._target = value.decode()

    def on_body(self, data: bytes) -> None:
        self._body += data
        if not self._first and FIRST_TOKEN.search(self._body):
            self._first = perf_counter()

    def on_message_complete(self) -> None:
        status, counted = self._parser.get_status_code(), _TOKENS.findall(self._body)
        whole = status == 200 and _DONE in self._body and b'"error"' not in self._body
        tokens = int(counted[-1]) if counted else 0
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(
                Answer(self._sent, self._first, perf_counter(), status, tokens, whole, self._target)
            )


def request(door: Door, ask: Ask) -> bytes:
    """A chat of exactly so many tokens: engines are told not to stop before."""
    body = {
        "model": door.model,
        "messages": [{"role": "user", "content": ask.prompt}],
        "max_tokens": ask.tokens,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    data = msgspec.json.encode(body)
    key = f"authorization: Bearer {door.key}\r\n" if door.key else ""
    head = f"POST {PATH} HTTP/1.1\r\nhost: 127.0.0.1:{door.port}\r\ncontent-type: application/json\r\n{key}"
    return f"{head}content-length: {len(data)}\r\n\r\n".encode() + data


async def connect(port: int) -> Client:
    _, client = await asyncio.get_running_loop().create_connection(Client, "127.0.0.1", port)
    return client


async def keep_busy(door: Door, asks: Iterable[Ask], streams: int) -> list[Answer]:
    """A closed loop: each stream sends its next request when its last is answered. They start one after the other,
    since clients that all send in the same microsecond are nobody's. The answers, in the order of `asks`."""
    left, answers = iter(enumerate(asks)), dict[int, Answer]()
    await asyncio.gather(*(_drain(door, left, answers, number * STAGGER_S) for number in range(streams)))
    return [answers[number] for number in sorted(answers)]


async def _drain(door: Door, left: Iterator[tuple[int, Ask]], answers: dict[int, Answer], after_s: float) -> None:
    client = await connect(door.port)
    await asyncio.sleep(after_s)
    for number, ask in left:
        try:
            answers[number] = await client.ask(door, ask)
        except ConnectionResetError:  # llama.cpp may close a kept connection under a request
            client = await connect(door.port)
            answers[number] = await client.ask(door, ask)
    client.transport.abort()
