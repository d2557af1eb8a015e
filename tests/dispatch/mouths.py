"""An upstream whose targets say what a test puts into their mouths, one thing after the other, whole or as a stream."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
_APART_S = 0.03
"""So that what came before is read apart from what follows."""
_SSE = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


@dataclass(frozen=True)
class Said:
    """`after_s`: before the first byte. `cut`: the connection breaks in the middle of the answer.

    `broken`, `silent`: of a stream, after so many events. Then comes an error, and a regular end all the same, as vLLM
    has it; or nothing any more.
    """

    text: str = ""
    status: int = 200
    finish: str = "stop"
    after_s: float = 0.0
    cut: bool = False
    broken: int | None = None
    silent: int | None = None
    kind: str = ""
    """`type` of an error."""
    message: Mapping[str, Any] = field(default_factory=dict)


class Mouths:
    """`/<name>/v1/…` says `scripts[name]` in turn, the last one again and again. `gone`: whose client hung up first."""

    def __init__(self, scripts: Mapping[str, list[Said]]) -> None:
        self.scripts = {name: list(script) for name, script in scripts.items()}
        self.url = ""
        self.asked, self.gone, self.heard = list[str](), list[str](), asyncio.Event()
        self.bodies = list[dict[str, Any]]()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._one(reader, writer):
                await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            return
        finally:
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        body = json.loads(await reader.readexactly(length))
        _, name, *path = head.split(b" ")[1].decode().split("/")
        self.asked.append(name)
        self.heard.set()
        self.bodies.append(body)
        script = self.scripts[name]
        said = script.pop(0) if len(script) > 1 else script[0]
        if said.after_s and await self._left(reader, said.after_s):
            self.gone.append(name)
            return False
        goes_on = _speak(writer, said, body, chat="chat" in path)
        if body.get("stream") and said.silent is not None:
            await reader.read(1)
            self.gone.append(name)
            return False
        if body.get("stream") and said.broken is not None:
            await asyncio.sleep(_APART_S)
            _write(writer, [{"error": {"message": "the engine died", "code": 500}}, b"[DONE]"])
            writer.write(b"0\r\n\r\n")
        return goes_on

    async def _left(self, reader: asyncio.StreamReader, seconds: float) -> bool:
        try:
            return await asyncio.wait_for(reader.read(1), seconds) == b""
        except TimeoutError:
            return False


def _speak(writer: asyncio.StreamWriter, said: Said, asked: dict[str, Any], chat: bool) -> bool:
    if said.status == 200 and asked.get("stream"):
        writer.write(_SSE)
        first = 2 if said.cut else said.silent if said.broken is None else said.broken
        _write(writer, list(_events(said, chat))[:first])
        if first is None:
            writer.write(b"0\r\n\r\n")
        return not said.cut
    body = json.dumps(
        _whole(said, chat) if said.status == 200 else {"error": {"message": "no", "type": said.kind}}
    ).encode()
    writer.write(b"HTTP/1.1 %d X\r\ncontent-type: application/json\r\n" % said.status)
    writer.write(b"content-length: %d\r\n\r\n" % len(body) + (body[:5] if said.cut else body))
    return not said.cut


def _write(writer: asyncio.StreamWriter, events: list[Any]) -> None:
    for event in events:
        data = b"data: " + (event if isinstance(event, bytes) else json.dumps(event).encode()) + b"\n\n"
        writer.write(b"%x\r\n%b\r\n" % (len(data), data))


def _whole(said: Said, chat: bool) -> dict[str, Any]:
    message = {"role": "assistant", "content": said.text, **said.message}
    choice = {"index": 0, "finish_reason": said.finish} | ({"message": message} if chat else {"text": said.text})
    kind = "chat.completion" if chat else "text_completion"
    return {"id": "c", "object": kind, "created": 1, "model": "m", "choices": [choice], "usage": USAGE}


def _events(said: Said, chat: bool) -> list[Any]:
    head = {"id": "c", "object": "chat.completion.chunk" if chat else "text_completion", "created": 1, "model": "m"}
    texts = [said.text[start : start + 4] for start in range(0, len(said.text), 4)]
    pieces: list[dict[str, Any]] = [{"role": "assistant", "content": ""}, *({"content": text} for text in texts)]
    if calls := said.message.get("tool_calls"):
        pieces.append({"tool_calls": [{"index": number, **call} for number, call in enumerate(calls)]})
    choices = [{"delta": piece} if chat else {"text": piece["content"]} for piece in pieces]
    choices.append({"delta": {}} if chat else {"text": ""})
    reasons = [None] * (len(choices) - 1) + [said.finish]
    chunks = [
        {**head, "choices": [{"index": 0, **choice, "finish_reason": reason}]}
        for choice, reason in zip(choices, reasons, strict=True)
    ]
    return [*chunks, {**head, "choices": [], "usage": USAGE}, b"[DONE]"]


@asynccontextmanager
async def mouths(scripts: Mapping[str, list[Said]]) -> AsyncGenerator[Mouths]:
    """In the running event loop."""
    own = Mouths(scripts)
    server = await asyncio.start_server(own.answer, "127.0.0.1", 0)
    own.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield own
    finally:
        server.close()
