"""One server that is every upstream and every webhook: it keeps each byte, and answers, fails, hangs or breaks off."""

import asyncio
import json
import re
import time
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.dispatch.scripted import Reply, events, whole
from tests.invariant.oracle import Seen

FAULTS = ("error", "limited", "refused", "cut", "broken", "hang", "garbage")
_LENGTH = re.compile(rb"\r\ncontent-length: (\d+)\r\n", re.IGNORECASE)
_ERROR = b'{"error": {"message": "No.", "type": "server_error", "code": null}}'
_STATUS = {"error": 500, "limited": 429, "refused": 400}


@dataclass
class Arrival:
    """`world` and the place within it, from the address."""

    world: str
    seen: Seen


class Recorder:
    """`url` once it is started. `faulty` is the share of requests that fail."""

    def __init__(self, seed: int, faulty: float = 0.25) -> None:
        self._random, self._faulty = Random(seed), faulty  # noqa: S311 - repeatable
        self.arrived: list[Arrival] = []
        self.url = ""
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        self.url = f"http://{host}:{port}"

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while await self._exchange(reader, writer):
                continue
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            return  # the gateway hung up, or the test is over
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Whether the connection is kept."""
        head = await reader.readuntil(b"\r\n\r\n")
        at_ms = time.time_ns() // 1_000_000
        length = _LENGTH.search(head)
        body = await reader.readexactly(int(length[1]) if length else 0)
        _, world, place, *rest = head.split(b" ", 2)[1].decode().split("/", 4)
        # Headers are sent too: whatever they held would be judged with the body.
        self.arrived.append(Arrival(world, Seen(place, at_ms, body + b"\n" + head if _leaks(head) else body)))
        fault = self._random.choice(FAULTS) if self._random.random() < self._faulty else ""
        if fault == "hang":
            await reader.read(1)  # until the gateway has had enough
            return False
        return await self._answer(writer, "/".join(rest), body, fault)

    async def _answer(self, writer: asyncio.StreamWriter, path: str, body: bytes, fault: str) -> bool:
        asked = _asked(body)
        body_of, parts = answer(path, asked)
        if fault in _STATUS:
            _write(writer, _STATUS[fault], _ERROR)
        elif fault == "garbage":
            _write(writer, 200, b"<html>")
        elif fault == "cut":
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 10000\r\n\r\n{")
            await writer.drain()
            return False
        elif asked.get("stream") is True:
            return await self._stream(writer, parts, broken=fault == "broken")
        else:
            _write(writer, 200, json.dumps(body_of).encode())
        await writer.drain()
        return True

    async def _stream(self, writer: asyncio.StreamWriter, events: list[bytes], *, broken: bool) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        for event in events[: len(events) // 2] if broken else events:
            writer.write(b"%x\r\n%b\r\n" % (len(event), event))
            await writer.drain()
        if broken:
            return False
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True


def _leaks(head: bytes) -> bool:
    """More than the few headers that every request has."""
    return len(head) > 400


def _asked(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _write(writer: asyncio.StreamWriter, status: int, body: bytes) -> None:
    writer.write(b"HTTP/1.1 %d X\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % (status, len(body)))
    writer.write(body)


def answer(path: str, asked: dict[str, Any]) -> tuple[dict[str, Any], list[bytes]]:
    """The whole answer and its events, on the wire that the path belongs to."""
    if path.endswith("messages"):
        return _message()
    if path.endswith("embeddings"):
        return {"object": "list", "data": [{"index": 0, "embedding": [0.5]}], "usage": {"prompt_tokens": 3}}, []
    reply, chat = Reply(f"To {len(asked)} fields: well."), path.endswith("chat/completions")
    return whole(reply, chat), [_event(event) for event in events(reply, chat)]


def _message() -> tuple[dict[str, Any], list[bytes]]:
    usage, text = {"input_tokens": 3, "output_tokens": 2}, {"type": "text", "text": "Well."}
    head: dict[str, Any] = {"id": "m", "type": "message", "role": "assistant", "model": "c", "stop_reason": None}
    parts: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**head, "content": [], "usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": text},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage},
        {"type": "message_stop"},
    ]
    message = {**head, "content": [text], "stop_reason": "end_turn", "usage": usage}
    return message, [_event(part) for part in parts]


def _event(value: object) -> bytes:
    return b"data: %b\n\n" % (value if isinstance(value, bytes) else json.dumps(value).encode())
