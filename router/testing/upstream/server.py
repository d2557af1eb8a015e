"""The scripted server: routes a request to its wire, and delivers the reply as the behaviour requires."""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from http.client import responses
from itertools import count
from typing import Any, Self
from urllib.parse import unquote
from weakref import WeakSet

import httptools
import msgspec

from router.testing.upstream.behaviours import (
    RETRY_AFTER_S,
    Ask,
    Behaviour,
    Break,
    Fault,
    Framing,
    Json,
    Page,
    SseFrame,
    WireFormat,
    built_in,
    chunks,
    split,
)
from router.testing.upstream.openai import FLAVOURS, OpenAIChat, OpenAICompletions, OpenAIEmbeddings, models
from router.testing.upstream.wires import Anthropic, Gemini, OpenAIResponses


@dataclass
class Recorded:
    """A received request. Times are `time.monotonic` seconds; `client_gone`: the client left before the reply's end."""

    connection: int
    method: str = ""
    path: str = ""
    """Path without host and query, percent-decoded."""
    query: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    """Headers with names in lower case."""
    body: bytes = b""
    received: float = field(default_factory=time.monotonic)
    finished: float | None = None
    client_gone: bool = False
    keep_alive: bool = True
    """Whether the connection may be used for another request; false for HTTP/1.0."""
    ended: threading.Event = field(default_factory=threading.Event, repr=False)

    @property
    def json(self) -> Json:
        return msgspec.json.decode(self.body, type=Json)

    def wait(self, seconds: float = 60.0) -> "Recorded":
        """Waits until the reply has ended, in whatever way."""
        assert self.ended.wait(seconds), f"{self.method} {self.path} is still being answered after {seconds} s"
        return self

    def end(self, *, client_gone: bool = False) -> None:
        if not self.ended.is_set():
            self.client_gone, self.finished = client_gone, time.monotonic()
            self.ended.set()

    def public(self) -> Json:
        """Returns the form shown by `/_control/requests`."""
        names = ("connection", "method", "path", "query", "headers", "received", "finished", "client_gone")
        return {**{name: getattr(self, name) for name in names}, "body": self.body.decode(errors="replace")}


_NUMBERS = count(1)
PAUSE_S = 0.001
"""Time in seconds between TCP writes of one split event, so that the reader receives them separately."""


class HttpConnection(asyncio.Protocol):
    """Parses requests and passes them one by one to `handle`; a disconnect of the client cancels the handler."""

    def __init__(self, handle: Callable[["HttpConnection", Recorded], Awaitable[None]]) -> None:
        self._handle = handle
        self._parser = httptools.HttpRequestParser(self)
        self._waiting: deque[Recorded] = deque()
        self._writable = asyncio.Event()
        self._writable.set()
        self._task: asyncio.Task[None] | None = None
        self._number = next(_NUMBERS)
        self._request = Recorded(self._number)
        self._transport: Any = None
        self.closes_under_next = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
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
        self._request.keep_alive = self._parser.should_keep_alive()
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

    async def write(self, *pieces: bytes) -> None:
        """Writes each piece as a separate TCP write; waits while the client does not read."""
        for i, piece in enumerate(pieces):
            if i:
                await asyncio.sleep(PAUSE_S)
            self._transport.write(piece)
            await self._writable.wait()

    def close(self) -> None:
        """Closes the connection once all written data is sent."""
        self._transport.close()


def head(status: int, headers: dict[str, str]) -> bytes:
    """Returns the status line and all headers."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} {responses.get(status, 'Overloaded')}\r\n{lines}\r\n".encode()


def chunk(data: bytes) -> bytes:
    """Returns a chunk of a chunked body; without data, its end."""
    return b"%x\r\n%s\r\n" % (len(data), data)


SLOW_S = 0.05
APART_S = 0.05
"""Time in seconds between the pieces of a page, so that a reader receives them separately."""
GATE_S = 0.005
"""Interval in seconds at which a closed gate is checked."""
HTML = b"<html><body><h1>502 Bad Gateway</h1></body></html>"
GARBAGE = '{"choices": [{"delta": {"con'
CONTROL = "/_control/requests"
_GEMINI = "/v1beta/models/"


class ScriptedServer:
    """The scripted upstream. `requests` are those received; `errors` are exceptions in the server itself."""

    def __init__(self) -> None:
        self.requests: list[Recorded] = []
        self.errors: list[BaseException] = []
        self.slow_s = SLOW_S
        self.connections: WeakSet[HttpConnection] = WeakSet()
        self.behaviours: dict[str, Behaviour] = {}
        """A test's own behaviours by name; they take precedence over the built-in ones."""
        self._met: set[tuple[str, str]] = set()
        self._wires: dict[str, WireFormat] = {"/v1/messages": Anthropic()}
        """Wire formats by path; OpenAI's own needs no prefix."""
        for name, flavour in FLAVOURS.items():
            for prefix in ("", f"/{name}") if name == "openai" else (f"/{name}",):
                self._wires[f"{prefix}/v1/chat/completions"] = OpenAIChat(flavour)
                self._wires[f"{prefix}/v1/completions"] = OpenAICompletions(flavour)
                self._wires[f"{prefix}/v1/embeddings"] = OpenAIEmbeddings(flavour)
                if flavour.responses:
                    self._wires[f"{prefix}/v1/responses"] = OpenAIResponses()

    def clear(self) -> None:
        """Forgets requests, faults that have occurred once, and a changed pace."""
        self.requests, self.errors, self.slow_s, self._met = [], [], SLOW_S, set()

    def behaviour(self, ask: Ask) -> Behaviour | None:
        """Returns the behaviour of a model's name; None if there is no such model."""
        return self.behaviours.get(ask.behaviour) or built_in(ask)

    def page(self, request: Recorded) -> Page | None:
        """Returns a literal answer, in subclasses; None if the wire answers."""
        return None

    def connect(self) -> HttpConnection:
        """Returns the protocol of a new connection."""
        connection = HttpConnection(self.handle)
        self.connections.add(connection)
        return connection

    async def handle(self, connection: HttpConnection, request: Recorded) -> None:
        try:
            page = self.page(request)
            about_itself = self._about_itself(request) if page is None else None
            if about_itself is None:
                self.requests.append(request)
            if connection.closes_under_next:
                connection.close()
            elif reply := page or about_itself:
                await _send(connection, reply)
            else:
                await self._answer(connection, request)
        except Exception as error:
            self.errors.append(error)
            connection.close()
        if not request.keep_alive:
            connection.close()

    def _about_itself(self, request: Recorded) -> Page | None:
        """Returns the answer to a request about the server itself; None for other requests."""
        if request.path == CONTROL:
            if request.method == "DELETE":
                self.clear()
            return _json_page(200, [request.public() for request in self.requests])
        return _json_page(200, models()) if request.method == "GET" and request.path.endswith("/v1/models") else None

    async def _answer(self, connection: HttpConnection, request: Recorded) -> None:
        wire = self._route(request)
        try:
            if wire is None:
                raise Fault("path")
            ask = wire.ask(_body(request))
            behaviour = self.behaviour(ask) or Behaviour(fault="model")
            ask, key = msgspec.structs.replace(ask, served=behaviour.served), (request.path, ask.model)
            if behaviour.fault and not (behaviour.once and key in self._met):
                self._met.add(key)
                raise Fault(behaviour.fault)
            await self._act(connection, wire, ask, behaviour)
        except Fault as fault:
            status, body = (wire or self._wires["/v1/chat/completions"]).error(fault)
            later = {"retry-after": str(RETRY_AFTER_S)} if fault.kind == "rate" else {}
            await _send(connection, _json_page(status, body, **later))

    def _route(self, request: Recorded) -> WireFormat | None:
        """Returns the wire of a path; None if there is none."""
        wire = self._wires.get(request.path)
        if request.path.startswith(_GEMINI):
            model, _, verb = request.path.removeprefix(_GEMINI).rpartition(":")
            streams = verb == "streamGenerateContent" and "alt=sse" in request.query.split("&")
            wire = Gemini(model, streams) if streams or verb == "generateContent" else None
        return wire if request.method == "POST" else None

    async def _act(self, connection: HttpConnection, wire: WireFormat, ask: Ask, behaviour: Behaviour) -> None:
        if behaviour.breaks is Break.SILENCE:
            await _silence()
        await asyncio.sleep(behaviour.delay_s)
        if behaviour.page is not None:
            return await _send(connection, behaviour.page(ask))
        await (self._stream if ask.stream else self._whole)(connection, wire, ask, behaviour)
        connection.closes_under_next = behaviour.keep_alive == "close_under_next"
        if behaviour.keep_alive == "close_after":
            connection.close()

    async def _whole(self, connection: HttpConnection, wire: WireFormat, ask: Ask, behaviour: Behaviour) -> None:
        if behaviour.slow_first or behaviour.slow_chunks:
            await asyncio.sleep(self.slow_s)
        body = msgspec.json.encode(wire.whole(ask, behaviour))
        half = len(body) // 2
        if behaviour.breaks in (Break.CUT, Break.HANG):
            await connection.write(_head(len(body), **behaviour.headers) + body[:half])
            await _silence() if behaviour.breaks is Break.HANG else connection.close()
        elif behaviour.breaks is Break.ERROR:
            raise Fault("server")
        elif behaviour.breaks is Break.HTML:
            await connection.write(_head(len(HTML), "text/html") + HTML)
        elif behaviour.breaks is Break.GARBAGE:
            await connection.write(_head(half) + body[:half])
        else:
            framing = behaviour.framing
            if framing is Framing.CRLF_COMMENTS:
                body = b"\r\n\n" + body  # some providers send blank lines to keep a slow request alive
            start = _head(len(body), **behaviour.headers)
            parts = (start[:7], start[7:], *split(body)) if framing is Framing.SPLIT else (start + body,)
            await connection.write(*parts)

    async def _stream(self, connection: HttpConnection, wire: WireFormat, ask: Ask, behaviour: Behaviour) -> None:
        if behaviour.breaks is Break.HTML:
            return await self._whole(connection, wire, ask, behaviour)
        headers = {"content-type": "text/event-stream; charset=utf-8", "transfer-encoding": "chunked"}
        headers |= behaviour.headers
        await connection.write(head(200, {**headers, "cache-control": "no-cache", "x-request-id": "req_upstream"}))
        await self._frames(connection, _broken(wire.frames(ask, behaviour), behaviour, wire), wire, behaviour)
        if behaviour.breaks is Break.HANG:
            await _silence()
        elif behaviour.breaks is Break.CUT:
            connection.close()
        else:
            await connection.write(chunk(b""))

    async def _frames(
        self, connection: HttpConnection, frames: list[SseFrame], wire: WireFormat, behaviour: Behaviour
    ) -> None:
        if wire.preamble:
            await connection.write(chunk(wire.preamble.encode()))
        for i, parts in enumerate(chunks(frames, behaviour.framing, wire.newline)):
            if behaviour.slow_chunks or (behaviour.slow_first and i == 0):
                await asyncio.sleep(self.slow_s)
            if behaviour.pause_s:
                await asyncio.sleep(behaviour.pause_s)
            while i and behaviour.gate is not None and not behaviour.gate.is_set():  # noqa: ASYNC110 - by a thread
                await asyncio.sleep(GATE_S)
            await connection.write(*_off_by_one([chunk(part) for part in parts]))


def _broken(frames: list[SseFrame], behaviour: Behaviour, wire: WireFormat) -> list[SseFrame]:
    """Returns the events that are sent."""
    if behaviour.breaks is None:
        return frames
    content = [i for i, frame in enumerate(frames) if frame.content]
    stop = content[0 if behaviour.breaks_early else (len(content) - 1) // 2] + 1
    if behaviour.breaks is Break.ERROR:
        return [*frames[:stop], *wire.error_frames(Fault("overloaded"))]
    if behaviour.breaks is Break.GARBAGE:
        return [*frames[:stop], SseFrame(GARBAGE, event=frames[stop - 1].event), *frames[stop:]]
    return frames[:stop]


def _off_by_one(pieces: list[bytes]) -> list[bytes]:
    """Splits into TCP writes that end one byte into the next HTTP chunk, so that no borders coincide."""
    joined, cuts = b"".join(pieces), [0]
    for piece in pieces[:-1]:
        cuts.append(cuts[-1] + len(piece) + (1 if len(cuts) == 1 else 0))
    return [joined[start:end] for start, end in zip(cuts, [*cuts[1:], len(joined)], strict=True)]


def _body(request: Recorded) -> Json:
    try:
        return request.json
    except msgspec.DecodeError:
        raise Fault("request", "We could not parse the JSON body of your request.") from None


def _head(length: int, kind: str = "application/json", **more: str) -> bytes:
    return head(200, {"content-type": kind, "content-length": str(length), "x-request-id": "req_upstream", **more})


def _json_page(status: int, value: object, **headers: str) -> Page:
    usual = {"content-type": "application/json", "x-request-id": "req_upstream"}
    return Page((msgspec.json.encode(value),), status, usual | headers)


async def _send(connection: HttpConnection, page: Page) -> None:
    length = {"content-length": str(sum(map(len, page.body)))}
    await connection.write(head(page.status, {**page.headers, **length}) + page.body[0])
    for piece in page.body[1:]:
        await asyncio.sleep(APART_S)
        await connection.write(piece)


async def _silence() -> None:
    """Waits until the client or the server ends the connection."""
    await asyncio.Event().wait()


async def listen(server: ScriptedServer, port: int) -> asyncio.Server:
    """Listens on loopback; port 0 selects a free port."""
    return await asyncio.get_running_loop().create_server(server.connect, "127.0.0.1", port)


class Upstream(ScriptedServer):
    """A server in a thread: `with Upstream() as upstream:` listens on a free loopback port until the block ends."""

    def __init__(self) -> None:
        super().__init__()
        self.url = ""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="scripted upstream", daemon=True)
        self._listening = threading.Event()

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._listening.wait(60), "the scripted upstream does not listen"
        return self

    def __exit__(self, *error: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)

    def base_url(self, flavour: str) -> str:
        """Returns the base URL of an OpenAI-compatible flavour, ending in `/v1`, as an `openai` client expects it."""
        return f"{self.url}/{flavour}/v1"

    @property
    def last(self) -> Recorded:
        """The latest request."""
        return self.requests[-1]

    def _run(self) -> None:
        listener = self._loop.run_until_complete(listen(self, 0))
        self.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        self._listening.set()
        self._loop.run_forever()
        self._loop.run_until_complete(self._stop(listener))
        self._loop.close()

    async def _stop(self, listener: asyncio.Server) -> None:
        for socket in listener.sockets:
            self._loop.remove_reader(socket.fileno())
        await asyncio.sleep(0)  # a client accepted in the last turn can't be attached to a closed listener
        listener.close()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for connection in self.connections:
            connection.close()
        await asyncio.sleep(0)  # transports close their sockets one turn later
