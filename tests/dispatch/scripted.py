"""An upstream in the test's own event loop whose targets answer from scripts, whole or as a stream."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
_LOOK_S = 0.005
_SSE = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
Condition = Callable[["Scripted"], bool]


def after(count: int) -> Condition:
    """Once so many requests have come here."""
    return lambda upstream: len(upstream.asked) >= count


def booked(count: int) -> Condition:
    """Once so many attempts are over."""
    return lambda upstream: len(upstream.attempts) >= count


def never(_: "Scripted") -> bool:
    return False


@dataclass(frozen=True)
class Reply:
    """`when`: it waits for that before its first byte. `cut`: the connection breaks in the middle of the answer.

    `broken`, `silent`: of a stream, after so many events. Then comes an error, and a regular end all the same, as vLLM
    has it; or nothing any more.
    """

    text: str = ""
    status: int = 200
    finish: str = "stop"
    when: Condition | None = None
    cut: bool = False
    broken: int | None = None
    silent: int | None = None
    kind: str = ""
    """`type` of an error."""
    message: Mapping[str, Any] = field(default_factory=dict)


def called(arguments: str) -> Reply:
    """Calls the tool `look`."""
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": arguments}}
    return Reply(finish="tool_calls", message={"content": None, "tool_calls": [call]})


class Scripted:
    """`/<name>/v1/…` answers `scripts[name]` in turn, the last again and again. `gone`: whose client hung up first."""

    def __init__(self, scripts: Mapping[str, list[Reply]]) -> None:
        self.scripts = {name: list(script) for name, script in scripts.items()}
        self.url = ""
        self.asked, self.silent, self.gone = list[str](), list[str](), list[str]()
        self.heard = asyncio.Event()
        self.bodies = list[dict[str, Any]]()
        self.attempts: Sequence[object] = ()
        self.tasks = set[asyncio.Task[None] | None]()
        self._tick: asyncio.Task[None] | None = None

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.tasks.add(asyncio.current_task())
        try:
            while await self._next(reader, writer):
                await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            return
        finally:
            writer.close()

    async def _next(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        body = json.loads(await reader.readexactly(length))
        _, name, *path = head.split(b" ")[1].decode().split("/")
        self.asked.append(name)
        self.heard.set()
        self.bodies.append(body)
        script, streams = self.scripts[name], body.get("stream")
        reply = script.pop(0) if len(script) > 1 else script[0]
        if reply.when is not None and not await self._waited(reader, reply.when):
            self.gone.append(name)
            return False
        goes_on = _write(writer, reply, streams, chat="chat" in path)
        if streams and reply.silent is not None:
            self.silent.append(name)
            await reader.read(1)
            self.gone.append(name)
            return False
        if streams and reply.broken is not None:
            await asyncio.sleep(_LOOK_S)  # a turn of the loop, in which the client reads what came before
            _write_events(writer, [{"error": {"message": "the engine died", "code": 500}}, b"[DONE]"])
            writer.write(b"0\r\n\r\n")
        return goes_on

    async def _waited(self, reader: asyncio.StreamReader, when: Condition) -> bool:
        """False where the client leaves first. All that wait for the same go on in one turn of the loop."""
        left = asyncio.ensure_future(reader.read(1))
        while not left.done():
            if self._tick is None or self._tick.done():
                self._tick = asyncio.ensure_future(asyncio.sleep(_LOOK_S))
            await asyncio.wait({left, self._tick}, return_when=asyncio.FIRST_COMPLETED)
            if when(self):
                left.cancel()
                await asyncio.wait({left})
                return True
        return False


def _write(writer: asyncio.StreamWriter, reply: Reply, streams: bool, chat: bool) -> bool:
    if reply.status == 200 and streams:
        writer.write(_SSE)
        first = 2 if reply.cut else reply.silent if reply.broken is None else reply.broken
        _write_events(writer, events(reply, chat)[:first])
        if first is None:
            writer.write(b"0\r\n\r\n")
        return not reply.cut
    error = {"error": {"message": "no", "type": reply.kind}}
    body = json.dumps(whole(reply, chat) if reply.status == 200 else error).encode()
    writer.write(b"HTTP/1.1 %d X\r\ncontent-type: application/json\r\n" % reply.status)
    writer.write(b"content-length: %d\r\n\r\n" % len(body) + (body[:5] if reply.cut else body))
    return not reply.cut


def _write_events(writer: asyncio.StreamWriter, every: list[Any]) -> None:
    for event in every:
        data = b"data: " + (event if isinstance(event, bytes) else json.dumps(event).encode()) + b"\n\n"
        writer.write(b"%x\r\n%b\r\n" % (len(data), data))


def whole(reply: Reply, chat: bool) -> dict[str, Any]:
    message = {"role": "assistant", "content": reply.text, **reply.message}
    choice = {"index": 0, "finish_reason": reply.finish} | ({"message": message} if chat else {"text": reply.text})
    kind = "chat.completion" if chat else "text_completion"
    return {"id": "c", "object": kind, "created": 1, "model": "m", "choices": [choice], "usage": USAGE}


def events(reply: Reply, chat: bool) -> list[Any]:
    head = {"id": "c", "object": "chat.completion.chunk" if chat else "text_completion", "created": 1, "model": "m"}
    texts = [reply.text[start : start + 4] for start in range(0, len(reply.text), 4)]
    pieces: list[dict[str, Any]] = [{"role": "assistant", "content": ""}, *({"content": text} for text in texts)]
    if calls := reply.message.get("tool_calls"):
        pieces.append({"tool_calls": [{"index": number, **call} for number, call in enumerate(calls)]})
    choices = [{"delta": piece} if chat else {"text": piece["content"]} for piece in pieces]
    choices.append({"delta": {}} if chat else {"text": ""})
    reasons = [None] * (len(choices) - 1) + [reply.finish]
    ends = zip(choices, reasons, strict=True)
    chunks = [{**head, "choices": [{"index": 0, **choice, "finish_reason": reason}]} for choice, reason in ends]
    return [*chunks, {**head, "choices": [], "usage": USAGE}, b"[DONE]"]


@asynccontextmanager
async def scripted(scripts: Mapping[str, list[Reply]]) -> AsyncGenerator[Scripted]:
    """Its clients hang up before it ends: then it has heard of it."""
    upstream = Scripted(scripts)
    server = await asyncio.start_server(upstream.answer, "127.0.0.1", 0)
    upstream.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield upstream
    finally:
        server.close()
        await asyncio.gather(*filter(None, upstream.tasks))
