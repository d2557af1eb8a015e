"""Routes a request to its wire, lets the behaviour decide the fate of the reply, and delivers it."""

import asyncio
from weakref import WeakSet

import msgspec
from msgspec import Struct

from tests.upstream.anthropic import Anthropic
from tests.upstream.ask import Ask, Json, Refused
from tests.upstream.behaviours import Behaviour, Break, Framing, KeepAlive
from tests.upstream.connection import Connection, chunk, head
from tests.upstream.errors import RETRY_AFTER_S, Fault
from tests.upstream.flavours import FLAVOURS
from tests.upstream.gemini import Gemini
from tests.upstream.openai_chat import OpenAIChat
from tests.upstream.openai_responses import OpenAIResponses
from tests.upstream.openai_text import OpenAICompletions, OpenAIEmbeddings, models
from tests.upstream.recorded import Recorded
from tests.upstream.spoken import behaviour
from tests.upstream.sse import Frame, chunks, split
from tests.upstream.wire import Route, Wire

SLOW_S = 0.05
HTML = b"<html><body><h1>502 Bad Gateway</h1></body></html>"
GARBAGE = '{"choices": [{"delta": {"con'
CONTROL = "/_control/requests"
_GEMINI = "/v1beta/models/"


class Exchange(Struct, frozen=True):
    """One request on its way to an answer."""

    wire: Wire
    ask: Ask
    behaviour: Behaviour


class Server:
    """The scripted upstream. `requests` holds all that came in; `errors` what went wrong in the server itself."""

    def __init__(self) -> None:
        self.requests: list[Recorded] = []
        self.errors: list[BaseException] = []
        self.slow_s = SLOW_S
        self.connections: WeakSet[Connection] = WeakSet()
        self._met: set[tuple[str, str]] = set()
        self._wires = _wires()

    def clear(self) -> None:
        """Forget the requests, the faults that came once, and a changed pace."""
        self.requests, self.errors, self.slow_s, self._met = [], [], SLOW_S, set()

    def connect(self) -> Connection:
        """A new client."""
        connection = Connection(self.handle)
        self.connections.add(connection)
        return connection

    async def handle(self, connection: Connection, request: Recorded) -> None:
        if connection.closes_under_next:
            self.requests.append(request)
            connection.close()
            return
        try:
            if not await self._own(connection, request):
                self.requests.append(request)
                await self._answer(connection, request)
        except Exception as error:
            self.errors.append(error)
            connection.close()
        if request.headers.get("connection", "").lower() == "close":
            connection.close()

    async def _own(self, connection: Connection, request: Recorded) -> bool:
        """Whether it was a question about the server itself."""
        if request.path == CONTROL:
            if request.method == "DELETE":
                self.clear()
            await _send(connection, 200, [seen.public() for seen in self.requests])
            return True
        if request.method == "GET" and request.path.endswith("/v1/models"):
            await _send(connection, 200, models())
            return True
        return False

    async def _answer(self, connection: Connection, request: Recorded) -> None:
        route = self._route(request)
        if route is None:
            await _refuse(connection, self._wires["/v1/chat/completions"], Fault("path"))
            return
        try:
            ask = route.wire.ask(msgspec.json.decode(request.body, type=Json), route.ask)
        except Refused as refused:
            await _refuse(connection, route.wire, Fault("request", refused.message, refused.param))
        except msgspec.DecodeError:
            await _refuse(connection, route.wire, Fault("request", "We could not parse the JSON body of your request."))
        else:
            await self._act(connection, request, Exchange(route.wire, ask, behaviour(ask) or _MISSING))

    def _route(self, request: Recorded) -> Route | None:
        if request.method != "POST":
            return None
        if request.path.startswith(_GEMINI):
            model, _, verb = request.path.removeprefix(_GEMINI).rpartition(":")
            streams = verb == "streamGenerateContent" and "alt=sse" in request.query.split("&")
            known = streams or verb == "generateContent"
            return Route(Gemini(), Ask(model=model, stream=streams)) if known else None
        wire = self._wires.get(request.path)
        return Route(wire, Ask(model="")) if wire else None

    async def _act(self, connection: Connection, request: Recorded, exchange: Exchange) -> None:
        behaviour, key = exchange.behaviour, (request.path, exchange.ask.model)
        if behaviour.fault and not (behaviour.once and key in self._met):
            self._met.add(key)
            await _refuse(connection, exchange.wire, Fault(behaviour.fault))
            return
        if behaviour.breaks is Break.SILENCE:
            await _silence()
        await (self._stream if exchange.ask.stream else self._whole)(connection, exchange)
        connection.closes_under_next = behaviour.keep_alive is KeepAlive.CLOSE_UNDER_NEXT
        if behaviour.keep_alive is KeepAlive.CLOSE_AFTER:
            connection.close()

    async def _whole(self, connection: Connection, exchange: Exchange) -> None:
        wire, behaviour = exchange.wire, exchange.behaviour
        if behaviour.slow_first or behaviour.slow_chunks:
            await asyncio.sleep(self.slow_s)
        body = msgspec.json.encode(wire.whole(exchange.ask, behaviour))
        half = len(body) // 2
        if behaviour.breaks in (Break.CUT, Break.HANG):
            await connection.write(_head(200, len(body)) + body[:half])
            await _silence() if behaviour.breaks is Break.HANG else connection.close()
        elif behaviour.breaks is Break.ERROR:
            await _refuse(connection, wire, Fault("server"))
        elif behaviour.breaks is Break.HTML:
            await connection.write(_head(200, len(HTML), "text/html") + HTML)
        elif behaviour.breaks is Break.GARBAGE:
            await connection.write(_head(200, half) + body[:half])
        else:
            await connection.write(*_paced(body, behaviour.framing))

    async def _stream(self, connection: Connection, exchange: Exchange) -> None:
        wire, behaviour = exchange.wire, exchange.behaviour
        if behaviour.breaks is Break.HTML:
            await self._whole(connection, exchange)
            return
        headers = {"content-type": "text/event-stream; charset=utf-8", "transfer-encoding": "chunked"}
        await connection.write(head(200, {**headers, "cache-control": "no-cache", "x-request-id": "req_upstream"}))
        frames = _broken(wire.frames(exchange.ask, behaviour), behaviour, wire)
        await self._frames(connection, frames, wire, behaviour)
        if behaviour.breaks is Break.HANG:
            await _silence()
        elif behaviour.breaks is Break.CUT:
            connection.close()
        else:
            await connection.write(chunk(b""))

    async def _frames(self, connection: Connection, frames: list[Frame], wire: Wire, behaviour: Behaviour) -> None:
        if wire.preamble:
            await connection.write(chunk(wire.preamble.encode()))
        for i, parts in enumerate(chunks(frames, behaviour.framing, wire.newline)):
            if behaviour.slow_chunks or (behaviour.slow_first and i == 0):
                await asyncio.sleep(self.slow_s)
            if behaviour.pause_s:
                await asyncio.sleep(behaviour.pause_s)
            await connection.write(*_off_by_one([chunk(part) for part in parts]))


_MISSING = Behaviour(fault="model")


def _wires() -> dict[str, Wire]:
    """Path → wire; OpenAI itself needs no prefix."""
    found: dict[str, Wire] = {"/v1/messages": Anthropic()}
    for name, flavour in FLAVOURS.items():
        for prefix in ("", f"/{name}") if name == "openai" else (f"/{name}",):
            found[f"{prefix}/v1/chat/completions"] = OpenAIChat(flavour)
            found[f"{prefix}/v1/completions"] = OpenAICompletions(flavour)
            found[f"{prefix}/v1/embeddings"] = OpenAIEmbeddings(flavour)
            if flavour.responses:
                found[f"{prefix}/v1/responses"] = OpenAIResponses()
    return found


def _broken(frames: list[Frame], behaviour: Behaviour, wire: Wire) -> list[Frame]:
    """The events that are really sent."""
    if behaviour.breaks is None:
        return frames
    content = [i for i, frame in enumerate(frames) if frame.content]
    stop = content[0 if behaviour.breaks_early else (len(content) - 1) // 2] + 1
    if behaviour.breaks is Break.ERROR:
        return [*frames[:stop], *wire.error_frames(Fault("overloaded"))]
    if behaviour.breaks is Break.GARBAGE:
        return [*frames[:stop], Frame(GARBAGE, event=frames[stop - 1].event), *frames[stop:]]
    return frames[:stop]


def _off_by_one(pieces: list[bytes]) -> list[bytes]:
    """TCP writes that end one byte into the next HTTP chunk: no layer's borders coincide."""
    joined, cuts = b"".join(pieces), [0]
    for piece in pieces[:-1]:
        cuts.append(cuts[-1] + len(piece) + (1 if len(cuts) == 1 else 0))
    return [joined[start:end] for start, end in zip(cuts, [*cuts[1:], len(joined)], strict=True)]


def _paced(body: bytes, framing: Framing) -> list[bytes]:
    """A whole reply as TCP writes; blank lines before it are what some send to keep a slow request alive."""
    if framing is Framing.SPLIT:
        return [_head(200, len(body))[:7], _head(200, len(body))[7:], *split(body)]
    if framing is Framing.CRLF_COMMENTS:
        body = b"\r\n\n" + body
    return [_head(200, len(body)) + body]


def _head(status: int, length: int, kind: str = "application/json", **more: str) -> bytes:
    return head(status, {"content-type": kind, "content-length": str(length), "x-request-id": "req_upstream", **more})


async def _send(connection: Connection, status: int, value: object, **headers: str) -> None:
    body = msgspec.json.encode(value)
    await connection.write(_head(status, len(body), **headers) + body)


async def _refuse(connection: Connection, wire: Wire, fault: Fault) -> None:
    status, body = wire.error(fault)
    later = {"retry-after": str(RETRY_AFTER_S)} if fault.kind == "rate" else {}
    await _send(connection, status, body, **later)


async def _silence() -> None:
    """Until the client or the server goes."""
    await asyncio.Event().wait()
