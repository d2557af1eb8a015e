"""The HTTP server: request bodies and answers over ASGI, client connections, disconnects, uvicorn's configuration."""

import asyncio
import logging
import re
import resource
import socket
import traceback
import zlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager, suppress
from enum import Enum, auto
from typing import Any

import httptools
import msgspec
import uvicorn
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from router.dispatch.hold import MOST_READ_ON, READ_ON_S, ClientPresence
from router.errors import ClientError, invalid
from router.types.clock import monotonic_s, new_id

_log = logging.getLogger(__name__)

# The part of ASGI that the hot routes need.

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

ALIVE = "/health/live"
"""Path of the liveness check: answered at once while the event loop runs; checks nothing else."""
READY = "/health/ready"
"""Path of the readiness check: whether a target can be asked, and the state of the gateway's parts."""
LARGEST_BODY = 32 * 1024 * 1024
"""Maximum size of a request body in bytes; larger ones get 413, before they are read if their length is stated."""

encode = msgspec.json.Encoder(decimal_format="number").encode
CRASHED = ClientError(500, "internal_error", "lowpass failed; its log says where.", type="api_error")


async def read_body(
    headers: Mapping[bytes, bytes], receive: Receive, content_type: bytes = b"application/json"
) -> bytes:
    """Returns the body, decompressed. Raises `ClientError` 413 if it is too large, 415 if a page in a browser sends it
    under another type than `content_type`, which needs no CORS preflight; an empty `content_type` allows any."""
    if b"origin" in headers and not headers.get(b"content-type", b"").lower().startswith(content_type):
        raise ClientError(415, "unsupported_media_type", "Pages in a browser send `content-type: application/json`.")
    length = headers.get(b"content-length", b"")
    if length.isdigit() and int(length) > LARGEST_BODY:
        raise _body_too_large()
    message = await receive()
    parts = [message.get("body", b"")]
    size = len(parts[0])
    while message.get("more_body"):
        message = await receive()
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > LARGEST_BODY:
            raise _body_too_large()
    if message["type"] == "http.disconnect":
        raise ClientError(400, "invalid_request_error", "The connection was closed before the body was complete.")
    body = b"".join(parts)
    coding = headers.get(b"content-encoding", b"identity").strip().lower()
    return body if coding == b"identity" else await asyncio.to_thread(_unpacked, body, coding)


def _unpacked(body: bytes, coding: bytes) -> bytes:
    """Decompresses gzip or deflate, up to `LARGEST_BODY`. Raises `ClientError` 400, 413 or 415."""
    if coding not in (b"gzip", b"deflate"):
        message = "`content-encoding` may be gzip or deflate, or be left out."
        raise ClientError(415, "unsupported_media_type", message, param="content-encoding")
    unpacker, whole = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32), b""
    with suppress(zlib.error):  # the check of `eof` below then reports it
        whole = unpacker.decompress(body, LARGEST_BODY + 1)
    if len(whole) > LARGEST_BODY:
        raise _body_too_large()
    if not unpacker.eof or unpacker.unused_data:
        message = "The body is not what `content-encoding` says: it is something else, is cut off, or goes on."
        raise ClientError(400, "invalid_request_error", message, param="content-encoding")
    return whole


def _body_too_large() -> ClientError:
    message = f"The body is larger than {LARGEST_BODY // 1024**2} MiB. Send files by reference."
    return ClientError(413, "request_too_large", message)


async def send_json(status: int, body: bytes, headers: Headers, send: Send) -> None:
    head = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), *headers]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})


async def refuse(error: ClientError, request_id: str, send: Send, envelope: Mapping[str, object] | None = None) -> None:
    """Sends an error; `envelope` is Anthropic's error body, which replaces OpenAI's."""
    headers = [(name.encode(), value.encode()) for name, value in error.headers]
    names = (b"x-request-id",) if envelope is None else (b"x-request-id", b"request-id")
    headers += [(name, request_id.encode()) for name in names]
    await send_json(error.status, encode(envelope or error.envelope()), headers, send)


def crash(error: Exception) -> ClientError:
    """Logs where the error occurred, but not its message, which may quote a prompt. Returns the client's error."""
    frames = traceback.extract_tb(error.__traceback__)
    places = " < ".join(f"{frame.filename}:{frame.lineno}" for frame in reversed(frames[-4:]))
    _log.error("%s at %s", type(error).__name__, places)
    return CRASHED


# Requests in progress. A connection that is closed by its client notifies the request that it is answering.


class ActiveRequest(ClientPresence, kw_only=True):
    """A request in progress, as an entry of `all_active`. `cancelled`: whether `cancel` has cancelled its task."""

    id: str
    all_active: "ActiveRequests"
    task: "asyncio.Task[Any] | None"
    cancelled: bool = False
    _timer: asyncio.TimerHandle | None = None

    def cancel(self) -> None:
        if self.task is not None:
            self.cancelled = True
            self.task.cancel()

    def leave(self) -> None:
        """Handles the client's departure: cancels the request, or lets it be read to its end if it is billed anyway."""
        if self not in self.all_active:
            return
        if not self.reads_on or sum(active.gone for active in self.all_active) >= MOST_READ_ON:
            self.cancel()
        else:
            self.gone = True
            self._timer = asyncio.get_running_loop().call_later(READ_ON_S, self.cancel)

    def end(self) -> None:
        self.all_active.discard(self)
        if self._timer is not None:
            self._timer.cancel()


def client_left(scope: Mapping[str, Any]) -> None:
    """Notifies the request of this scope that its client closed the connection."""
    if isinstance(active := scope.get("active"), ActiveRequest):
        active.leave()


class ActiveRequests(set[ActiveRequest]):
    """All requests in progress."""

    async def end(self) -> None:
        """Cancels the requests in progress and waits until they are settled."""
        for active in self:
            active.cancel()
        tasks = [active.task for active in self if active.task is not None]
        if tasks:
            await asyncio.wait(tasks)


# The connection of one client: uvicorn's HTTP protocol with limits on the size and duration of requests.
#
# An invalid request is answered in OpenAI's envelope, after the answers to earlier requests; then the connection is
# closed. Connections have no timers of their own: `review` is called for all of them twice a second.

LARGEST_HEAD = 65_536
"""Maximum bytes of a request besides its body: request line, headers, chunk sizes, trailers."""
FRAMING_PER_BYTE = 16
"""Further such bytes allowed for each byte of the body: a chunk of one byte needs five."""
MOST_HEADERS = 256
"""Maximum number of header lines, or of trailers: short ones take fifty times their size in memory."""
MOST_AHEAD = 16
"""Maximum number of requests on a connection that wait for the answers to those before them (pipelining)."""
STARTED_A_TURN = 8
"""Maximum number of requests begun in one turn of the event loop, each about a millisecond of work, so that streams go
on and `/health/live` is answered while hundreds of requests arrive at once."""
KEPT_ASIDE = 64
"""File descriptors reserved for the ledger, logs and policies. Half of the others are for clients, since each request
needs another one for its upstream."""
ADDRESS_SHARE = 0.75
"""Maximum share of all client connections that one address may hold, so that it can't shut out the others."""
MOST_REFUSED = 32
"""Maximum number of surplus connections that get an error answer at a time; others are closed without one."""

_ONCE = frozenset({b"host", b"transfer-encoding", b"authorization", b"x-api-key", b"api-key"})
"""Headers that may occur only once: a proxy in front and lowpass might each use a different value."""
_HOST = re.compile(rb"[\w.:%\[\]!$&'()*+,;=~-]*[ \t]*", re.ASCII)
_FRAMING = (b"content-length", b"transfer-encoding")


class Phase(Enum):
    """What a connection waits for."""

    IDLE = auto()
    """Waits for the next request."""
    HEAD = auto()
    """Waits for the rest of a request line and headers."""
    BODY = auto()
    """Waits for more of a body."""
    REFUSED = auto()
    """Waits for nothing from the client: the refusal is sent after the answers to earlier requests."""
    LEAVING = auto()
    """Waits for the client to close its side. Further input is dropped: a reset could overtake the answer."""
    UNREAD = auto()
    """Waits for the client to read what was written."""


LIMIT_S = {Phase.IDLE: 75.0, Phase.HEAD: 10.0, Phase.BODY: 30.0, Phase.LEAVING: 10.0, Phase.UNREAD: 60.0}
"""Maximum time in seconds in each phase: for all headers together, else without progress by a single byte."""


class ServerTurns(ServerState):
    """State that all connections of an event loop share: `tasks`, the number of connections of each address, and the
    requests that wait for a turn of the loop."""

    def __init__(self) -> None:
        super().__init__()
        self.most = max((resource.getrlimit(resource.RLIMIT_NOFILE)[0] - KEPT_ASIDE) // 2, 1)
        self.clients, self.by_address = 0, Counter[str]()
        self._loop = asyncio.get_running_loop()
        self._waiting: list[tuple[RequestResponseCycle, ASGI3Application]] = []
        self._started = 0

    def admit(self, address: str) -> ClientError | None:
        """Counts a connection from `address`; returns the error if it is one too many."""
        if self.clients >= self.most:
            return ClientError(503, "too_many_connections", f"All {self.most} connections are in use: try again later.")
        if self.by_address[address] >= (most := int(self.most * ADDRESS_SHARE)):
            return ClientError(429, "too_many_connections", f"{address} has {most} connections: use those again.")
        self.clients += 1
        self.by_address[address] += 1
        return None

    def leave(self, address: str) -> None:
        self.clients -= 1
        self.by_address[address] -= 1
        if not self.by_address[address]:
            del self.by_address[address]

    def start(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        """Begins the request in this turn of the event loop, or in a later one."""
        if cycle.scope["path"] != ALIVE:
            if not self._started:
                self._loop.call_soon(self._next_turn)
            if self._started == STARTED_A_TURN:
                self._waiting.append((cycle, app))
                return
            self._started += 1
        task = self._loop.create_task(cycle.run_asgi(app))
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)

    def _next_turn(self) -> None:
        waiting, self._waiting, self._started = self._waiting, [], 0
        for cycle, app in waiting:
            self.start(cycle, app)


class ClientConnection(HttpToolsProtocol):
    """Protocol set by `uvicorn.Config(http=…)`. `cycle` is the newest request, `_answering` the one being answered."""

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerTurns,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._turns = server_state
        self._start_asgi_task = server_state.start  # type: ignore[method-assign]
        self.headers = []
        self._phase = Phase.IDLE
        self._begun = self._fed = self._body = 0
        self._segment = self._uncounted = 0
        """Bytes of the last segment; bytes of the segment in which the last request ended, which `_fed` leaves out."""
        self._answering: RequestResponseCycle | None = None
        self._refusal = b""
        self._waits: tuple[Phase, int, int] | None = None
        self._since = 0.0

    def data_received(self, data: bytes) -> None:
        if self._phase is Phase.REFUSED or self._phase is Phase.LEAVING:
            return
        self._segment = len(data)
        self._fed += self._segment
        try:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as pause:
                self._go_on(data[pause.args[0] :])
        except httptools.HttpParserError as error:
            reason = error.__context__
            self._refuse(reason if isinstance(reason, ClientError) else invalid(None, "This is not HTTP/1.1."))
            return
        if self._fed - self._body > LARGEST_HEAD + FRAMING_PER_BYTE * self._body or len(self.headers) > MOST_HEADERS:
            self._refuse(_too_large())

    def _go_on(self, data: bytes) -> None:
        """Goes on with `data` after a request to change the protocol, which is answered in HTTP/1.1 (RFC 9110 §7.8).
        The parser ends such a request with its headers, so a new parser reads its body, given the framing headers."""
        if framing := self._framing():
            self.parser = httptools.HttpRequestParser(self)
            self.parser.feed_data(b"POST / HTTP/1.1\r\n%b\r\n" % framing)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as pause:
            self._go_on(data[pause.args[0] :])

    def _framing(self) -> bytes:
        return b"".join(b"%b: %b\r\n" % line for line in self.scope["headers"] if line[0] in _FRAMING)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._address = self.client[0] if self.client else ""
        error = self._turns.admit(self._address)
        self._admitted = error is None
        if error and len(self.connections) - self._turns.clients > MOST_REFUSED:
            transport.abort()
        elif error:
            self._refuse(error)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._admitted:
            self._turns.leave(self._address)
        if self._answering is not None and not self._answering.response_complete:
            self._answering.disconnected = True
            self._answering.message_event.set()
            client_left(self._answering.scope)
        self.pipeline.clear()
        super().connection_lost(exc)

    # Callbacks of the parser. What they raise surfaces as the `__context__` of the error of `feed_data`.

    def on_message_begin(self) -> None:
        if self._phase is Phase.BODY:
            return
        super().on_message_begin()
        self._phase = Phase.HEAD
        self._begun += 1

    def on_headers_complete(self) -> None:
        if self._phase is Phase.BODY:
            return
        self._check_head()
        if len(self.pipeline) == MOST_AHEAD:
            raise invalid(None, f"More than {MOST_AHEAD} requests wait for the answer to one before them.")
        super().on_headers_complete()
        self.headers = []  # so that trailers are not added to the headers
        self._phase = Phase.BODY
        if self.expect_100_continue:
            # After an answer before the body, the client may send the body or the next request: both look the same.
            self.cycle.keep_alive = False
        if self.pipeline:
            # uvicorn stops reading here, which would hide the end of the connection.
            self.flow.resume_reading()
        else:
            self._answering = self.cycle

    def _check_head(self) -> None:
        """Raises `ClientError` for an invalid head that the parser accepts."""
        version = self.parser.get_http_version()
        if version != "1.1" and version != "1.0":
            raise invalid(None, f"lowpass speaks HTTP/1.1, not HTTP/{version}.")
        if self.parser.get_method() == b"CONNECT":
            raise ClientError(405, "method_not_allowed", "lowpass is no proxy for other protocols.")
        once: dict[bytes, bytes] = {}
        for name, value in self.headers:
            if name in once:
                raise invalid(name.decode(), f"Send one header `{name.decode()}`.")
            if name in _ONCE:
                once[name] = value
        if version == "1.1" and b"host" not in once:
            raise invalid("host", "Send one header `host`.")
        if not _HOST.fullmatch(once.get(b"host", b"")):
            raise invalid("host", "The header `host` is no name of a host.")
        if once.get(b"transfer-encoding", b"chunked").strip().lower() != b"chunked":
            raise invalid("transfer-encoding", "lowpass reads no other transfer coding than `chunked`.")
        if len(self.headers) > MOST_HEADERS:
            raise _too_large()
        if self._fed + self._uncounted > LARGEST_HEAD:
            size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
            if size > LARGEST_HEAD:
                raise _too_large()

    def on_body(self, body: bytes) -> None:
        self._body += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade() and self._framing():
            return
        super().on_message_complete()
        self._phase = Phase.IDLE
        self._fed, self._body, self._uncounted = 0, 0, self._segment

    # End of the connection

    def on_response_complete(self) -> None:
        """Begins the next request. Replaces uvicorn's method, which also starts a keep-alive timer."""
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._answering, app = self.pipeline.pop()
            self._start_asgi_task(self._answering, app)
        elif self._phase is Phase.REFUSED:
            self._leave()

    def review(self, now_s: float) -> None:
        """Ends the connection if the client has exceeded a limit of `LIMIT_S`."""
        waits = self._waits_for()
        if waits is None or waits != self._waits:
            self._waits, self._since = waits, now_s
        elif now_s - self._since > (limit_s := LIMIT_S[waits[0]]):
            late = {Phase.HEAD: "The headers were not complete within", Phase.BODY: "Nothing more of the body came for"}
            if waits[0] in late:
                self._refuse(ClientError(408, "request_timeout", f"{late[waits[0]]} {limit_s:.0f} s."))
            else:
                self.transport.abort()

    def _waits_for(self) -> tuple[Phase, int, int] | None:
        """Returns (phase, number of the request, bytes of progress); None if it does not wait for the client."""
        if self.flow.write_paused or self.transport.is_closing():
            return Phase.UNREAD, self._begun, self.transport.get_write_buffer_size()
        answered = self._answering is None or self._answering.response_complete
        if self.flow.read_paused or (self._phase is Phase.IDLE and not answered) or self._phase is Phase.REFUSED:
            return None
        if self._phase is Phase.BODY and self.cycle.response_complete:
            return Phase.LEAVING, self._begun, 0
        return self._phase, self._begun, self._fed if self._phase is Phase.BODY else 0

    def _refuse(self, error: ClientError) -> None:
        """Stops reading and sends `error`, after the answers to earlier requests."""
        body = encode(error.envelope())
        head = b"content-type: application/json\r\ncontent-length: %d\r\nx-request-id: %b\r\nconnection: close\r\n\r\n"
        self._refusal = STATUS_LINE[error.status] + head % (len(body), new_id().encode()) + body
        cycle = self._answering
        if self._phase is Phase.BODY and self.pipeline:
            self.pipeline.popleft()
        elif self._phase is Phase.BODY and cycle is not None:
            if cycle.response_started:
                self._refusal = b""
            cycle.disconnected = cycle.response_complete = True
            cycle.message_event.set()
        self._phase = Phase.REFUSED
        if cycle is None or cycle.response_complete:
            self._leave()

    def _leave(self) -> None:
        """Sends the refusal and the end of the stream; the connection closes when the client closes its side."""
        self._phase = Phase.LEAVING
        if not self.transport.is_closing():
            self.transport.write(self._refusal)
            self.transport.write_eof()
            self.flow.resume_reading()


def _too_large() -> ClientError:
    limits = f"{LARGEST_HEAD // 1024} KiB, or more than {MOST_HEADERS} lines"
    return ClientError(431, "headers_too_large", f"The request line and headers are larger than {limits}.")


# The HTTP server: uvicorn and its configuration.

DRAIN_S = 10
"""Maximum time in seconds for requests in progress to finish after Ctrl-C."""
REVIEW_EVERY = 5
"""Number of uvicorn's ticks, of 0.1 s each, between two reviews of all connections."""


class HttpServer(uvicorn.Server):
    """uvicorn without signal handlers: it re-raises signals at its end, before local engines are stopped."""

    def __init__(self, app: App) -> None:
        config = uvicorn.Config(
            app,
            interface="asgi3",  # since the app's `__call__` is not a coroutine function
            http=ClientConnection,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
        )
        super().__init__(config)
        self.listens = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self.server_state = ServerTurns()
        await super().startup(sockets)
        self.listens.set()

    async def on_tick(self, counter: int) -> bool:
        if counter % REVIEW_EVERY == 0:
            now_s = monotonic_s()
            for connection in tuple(self.server_state.connections):
                if isinstance(connection, ClientConnection):
                    connection.review(now_s)
        return await super().on_tick(counter)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def drain(self, at_once: bool) -> None:
        """Lets requests in progress finish until `DRAIN_S` have passed; a call with `at_once` ends them."""
        if not self.should_exit:
            asyncio.get_running_loop().call_later(DRAIN_S, self.drain, True)
        self.should_exit = True
        self.force_exit = self.force_exit or at_once
