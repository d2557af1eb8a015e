"""What the first process and a worker tell each other: each message is its length in four bytes, and msgpack."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import suppress

import msgspec
from msgspec import Struct

from router.telemetry import Values
from router.types.engine import EngineState, Served

_LENGTH_BYTES = 4


class Post(Struct, frozen=True):
    """Told a worker at birth: `listener` and `channel` are file descriptors, `engines` by the policy's names."""

    listener: int
    policy: str
    host: str
    engines: Mapping[str, Served]
    number: int = 1
    channel: int = -1


class Engines(Struct, frozen=True, tag=True):
    """What became of the local engines."""

    states: Sequence[EngineState]


class Count(Struct, frozen=True, tag=True):
    """Asks a worker what it has counted."""


class Total(Struct, frozen=True, tag=True):
    """What all have counted."""

    values: Values


class Drain(Struct, frozen=True, tag=True):
    """The first process ends; `at_once`: requests in progress are not waited for."""

    at_once: bool


class Ready(Struct, frozen=True, tag=True):
    """The worker serves."""


class Counted(Struct, frozen=True, tag=True):
    """What the worker has counted."""

    values: Values


class Sum(Struct, frozen=True, tag=True):
    """Asks the first process what all have counted."""


ToWorker = Engines | Count | Total | Drain
ToFirst = Ready | Counted | Sum
_to_worker: msgspec.msgpack.Decoder[ToWorker] = msgspec.msgpack.Decoder(ToWorker)
_to_first: msgspec.msgpack.Decoder[ToFirst] = msgspec.msgpack.Decoder(ToFirst)


def frame(message: ToWorker | ToFirst) -> bytes:
    body = msgspec.msgpack.encode(message)
    return len(body).to_bytes(_LENGTH_BYTES, "big") + body


async def to_first(reader: asyncio.StreamReader) -> AsyncIterator[ToFirst]:
    """Until the worker is gone."""
    with suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            length = int.from_bytes(await reader.readexactly(_LENGTH_BYTES), "big")
            yield _to_first.decode(await reader.readexactly(length))


def to_worker(channel: socket.socket) -> Iterator[ToWorker]:
    """Until the first process is gone; blocks."""
    with channel.makefile("rb") as stream:
        while head := stream.read(_LENGTH_BYTES):
            yield _to_worker.decode(stream.read(int.from_bytes(head, "big")))
