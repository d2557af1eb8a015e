"""One connection to Redis for all requests: what is asked in one turn of the event loop leaves as one write.

It never waits longer than `COMMAND_S`: a server that does not answer by then is gone, all that was asked is answered
with `LinkDown`, and the next connection is a new one. Nothing is sent again by itself.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Callable
from typing import cast
from urllib.parse import parse_qs, unquote, urlsplit

import hiredis
from msgspec import Struct

from router.errors import LowpassError
from router.types.secret import Secret

CONNECT_S = 0.5
COMMAND_S = 0.5
"""How long a request waits for a slow server at most; an answer takes less than a millisecond."""
REDIRECTS = 3

Argument = str | int | bytes
Answered = Callable[[object], None]
"""Is called with the reply: int, str, list, None, `hiredis.ReplyError`; or with `LinkDown`."""


class LinkDown(Exception):
    """No answer in time, or no connection."""


class RedisRefused(LowpassError):
    """The server can be reached and will not serve us; says why and what to do, never a password."""


class Address(Struct, frozen=True, kw_only=True):
    """Where the server is: a host and port, or the path of a Unix socket."""

    host: str = "localhost"
    port: int = 6379
    path: str = ""
    user: str = ""
    password: Secret | None = None
    database: int = 0
    tls: bool = False
    ca_file: str = ""

    def __str__(self) -> str:
        return self.path or f"{self.host}:{self.port}"


_FORMS = "redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE], rediss://… (TLS, with ?ssl_ca_certs=FILE) or unix://PATH"


def address(url: Secret) -> Address:
    """Raises `RedisRefused` where the URL is no address of a server, without repeating it: it may hold a password."""
    try:
        return _address(url.reveal())
    except ValueError:
        raise RedisRefused(f"the address of the Redis server can't be read: write {_FORMS}") from None


def _address(url: str) -> Address:
    parts = urlsplit(url)
    options = {name: values[-1] for name, values in parse_qs(parts.query, strict_parsing=bool(parts.query)).items()}
    local = parts.scheme == "unix"
    if parts.scheme not in ("redis", "rediss", "unix") or options.keys() - {"ssl_ca_certs", "db"}:
        raise ValueError
    database = options.get("db") or ("" if local else parts.path.strip("/")) or "0"
    return Address(
        host=unquote(parts.hostname or "localhost"),
        port=parts.port or 6379,
        path=unquote(parts.path) if local else "",
        user=unquote(parts.username or ""),
        password=Secret(unquote(parts.password)) if parts.password else None,
        database=int(database),
        tls=parts.scheme == "rediss",
        ca_file=options.get("ssl_ca_certs", ""),
    )


class Link(asyncio.Protocol):
    """One connection, from `connect` until it fails or is closed."""

    def __init__(self, gone: Callable[["Link"], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._gone = gone
        self._reader = hiredis.Reader(encoding="utf-8")
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[tuple[float, Answered]] = deque()
        self._out: list[bytes] = []
        self._watch: asyncio.TimerHandle | None = None
        self.patience_s = COMMAND_S
        self.up = False

    def send(self, command: tuple[Argument, ...], answered: Answered) -> None:
        if not self.up:
            answered(LinkDown("not connected"))
            return
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(hiredis.pack_command(command))  # type: ignore[arg-type]
        now = self._loop.time()
        self._waiting.append((now, answered))
        if self._watch is None:
            self._watch = self._loop.call_at(now + self.patience_s, self._look)

    def ask(self, *command: Argument) -> "asyncio.Future[object]":
        """Raises `LinkDown`; a refusal of the server is the result, a `hiredis.ReplyError`."""
        future: asyncio.Future[object] = self._loop.create_future()
        self.send(command, lambda reply: resolve(future, reply))
        return future

    def close(self, reason: str = "closed") -> None:
        if not self.up:
            return
        self.up = False
        if self._watch is not None:
            self._watch.cancel()
        if self._transport is not None:
            self._transport.abort()
        self._out.clear()
        waiting, self._waiting = self._waiting, deque()
        for _, answered in waiting:
            answered(LinkDown(reason))
        self._gone(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport, self.up = cast(asyncio.Transport, transport), True

    def data_received(self, data: bytes) -> None:
        try:
            self._reader.feed(data)
            while (reply := self._reader.gets()) is not False and self._waiting:
                self._waiting.popleft()[1](reply)
        except hiredis.ProtocolError:
            self.close("the server does not speak the Redis protocol")

    def connection_lost(self, exc: Exception | None) -> None:
        self.close("the connection broke")

    def _flush(self) -> None:
        if self.up and self._transport is not None:
            out, self._out = self._out, []
            self._transport.write(b"".join(out))

    def _look(self) -> None:
        """One timer for all commands: the oldest one tells whether the server still answers."""
        self._watch = None
        if not self._waiting:
            return
        due = self._waiting[0][0] + self.patience_s
        if due <= self._loop.time():
            self.close("the server does not answer")
        else:
            self._watch = self._loop.call_at(due, self._look)


def resolve(future: "asyncio.Future[object]", reply: object) -> None:
    if future.done():
        return
    if isinstance(reply, LinkDown):
        future.set_exception(reply)
    else:
        future.set_result(reply)


async def connect(where: Address, probe_key: str, gone: Callable[[Link], None]) -> Link:
    """A connection that is logged in, at the server that keeps `probe_key` (in a cluster: of its slot) and may write.

    Raises `LinkDown` where there is no such server now, `RedisRefused` where it won't have us.
    """
    for _ in range(REDIRECTS):
        link = await _open(where, gone)
        try:
            elsewhere = await _greet(link, where, probe_key)
        except BaseException:
            link.close("not usable")
            raise
        if elsewhere is None:
            return link
        link.close("moved")
        where = elsewhere
    raise LinkDown("the nodes of the cluster point to each other")


async def _open(where: Address, gone: Callable[[Link], None]) -> Link:
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(CONNECT_S):
            if where.path:
                _, link = await loop.create_unix_connection(lambda: Link(gone), where.path)
            else:
                tls = ssl.create_default_context(cafile=where.ca_file or None) if where.tls else None
                _, link = await loop.create_connection(lambda: Link(gone), where.host, where.port, ssl=tls)
    except ssl.SSLCertVerificationError as error:
        raise RedisRefused(
            f"the certificate of Redis at {where} is not trusted ({error.verify_message}):"
            " name its authority with ?ssl_ca_certs=FILE"
        ) from None
    except (OSError, TimeoutError) as error:
        raise LinkDown(f"Redis at {where} can't be reached ({type(error).__name__})") from None
    return link


async def _greet(link: Link, where: Address, probe_key: str) -> Address | None:
    if where.password is not None:
        login = (where.user, where.password.reveal()) if where.user else (where.password.reveal(),)
        _accepted(await link.ask("AUTH", *login), where)
    if where.database:
        _accepted(await link.ask("SELECT", where.database), where)
    # A write: full memory, a full disk and a replica refuse it.
    reply = await link.ask("SET", probe_key, 1, "PX", 1000)
    moved = _moved(reply, where)
    if moved is None:
        _accepted(reply, where)
    return moved


def _moved(reply: object, where: Address) -> Address | None:
    """`MOVED 3999 10.0.0.2:6381`; an empty host is the one that was asked."""
    if not isinstance(reply, hiredis.ReplyError) or not str(reply).startswith("MOVED "):
        return None
    host, _, port = str(reply).split()[2].rpartition(":")
    return Address(
        host=host or where.host,
        port=int(port),
        user=where.user,
        password=where.password,
        tls=where.tls,
        ca_file=where.ca_file,
    )


_NOT_WELCOME = ("WRONGPASS", "NOAUTH", "NOPERM", "ERR")


def _accepted(reply: object, where: Address) -> None:
    if isinstance(reply, hiredis.ReplyError):
        code = str(reply).split(" ", 1)[0]
        if code in _NOT_WELCOME:
            raise RedisRefused(
                f"Redis at {where} refuses this user, password or database ({code}):"
                " correct LOWPASS_REDIS_URL, or allow the user its keys and commands"
            )
        raise LinkDown(f"Redis at {where} can't be written ({code})")
