"""The port between the server and the wire formats: requests, answers, and events as they reach the network."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Protocol

import msgspec
from msgspec import Struct

from router.testing.upstream.behaviours import Ask, Behaviour, Framing, Json
from router.testing.upstream.errors import Fault


class Frame(Struct, frozen=True):
    """One event; `content` marks those that carry a piece of the answer."""

    data: object
    event: str = ""
    content: bool = False

    def encode(self, newline: str) -> bytes:
        text = self.data if isinstance(self.data, str) else msgspec.json.encode(self.data).decode()
        name = f"event: {self.event}{newline}" if self.event else ""
        return f"{name}data: {text}{newline}{newline}".encode()


def chunks(frames: list[Frame], framing: Framing, newline: str = "\n") -> Iterator[tuple[bytes, ...]]:
    """HTTP chunks, grouped by the event they belong to."""
    if framing is Framing.MERGED:
        yield (b"".join(frame.encode(newline) for frame in frames),)
        return
    for frame in frames:
        if framing is Framing.SPLIT:
            yield tuple(split(frame.encode(newline)))
        elif framing is Framing.CRLF_COMMENTS:
            yield (b": keep-alive\r\n\r\n", b":\r\n", frame.encode("\r\n"))
        else:
            yield (frame.encode(newline),)


def split(data: bytes) -> Iterator[bytes]:
    """Cut inside the field's name, after its colon, inside a UTF-8 character and between the closing newlines."""
    inside_character = next((i for i in range(len(data)) if data[i] & 0xC0 == 0x80), len(data) // 2)
    cuts = sorted({0, 2, 5, inside_character, len(data) - 1, len(data)})
    for start, end in pairwise(cuts):
        yield data[start:end]


class Wire(Protocol):
    """One wire format: reads a request, writes answers and errors. Knows nothing of sockets."""

    newline: str
    """How this provider ends the lines of its streams."""
    preamble: str
    """Comments that it sends before a stream's first event."""

    def ask(self, body: Json, ask: Ask) -> Ask:
        """`ask` (what the path told) completed from the body; raises `Refused` where the real one answers 400."""
        ...

    def whole(self, ask: Ask, behaviour: Behaviour) -> object: ...

    def frames(self, ask: Ask, behaviour: Behaviour) -> list[Frame]: ...

    def error(self, fault: Fault) -> tuple[int, object]:
        """Status and body."""
        ...

    def error_frames(self, fault: Fault) -> list[Frame]:
        """An error after the stream has begun."""
        ...
