"""One connection to Redis for all requests.

The `redis` package opens it, with TLS, users and Sentinel. Commands are pipelined: those of one turn of the event loop
are sent in one write. While the server answers, commands wait, at most `MAX_WAIT_S`; if it is silent for `COMMAND_S`,
all waiting commands are answered with `RedisUnreachable`, and none is sent again.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import hiredis
from msgspec import Struct
from redis import exceptions as redis_errors
from redis.asyncio.connection import AbstractConnection, Connection, parse_url
from redis.asyncio.sentinel import Sentinel

from router.settings import SettingError
from router.types.target import Secret

CONNECT_S = 1.0
COMMAND_S = 2.0
"""Maximum time in seconds without any answer while commands wait; syncing a busy disk takes up to a second."""
MAX_WAIT_S = 30.0
"""Maximum time in seconds that a command waits while the server answers others."""
GRACE_S = 0.02
"""Extra time in seconds after a limit has passed, so that a delayed event loop reads its sockets first."""
REDIRECTS = 3

REFUSALS = (redis_errors.ResponseError, redis_errors.AuthenticationError)
"""Errors that the server returns for a refused command. After an AuthenticationError, the package disconnects."""
Argument = str | int | bytes
OnReply = Callable[[object], None]
"""Callback for a reply: int, str, list, None or `redis.ResponseError`; or `RedisUnreachable`."""


class RedisUnreachable(Exception):
    """No answer in time, or no connection."""


class RedisRefused(SettingError):
    """The server refuses this client. The message says why and what to do, and never contains a password."""

    def __init__(self, why: str) -> None:
        super().__init__(f"LOWPASS_REDIS_URL: {why}")


class RedisConnection:
    """One connection, from `Servers.connect` until it fails or is closed."""

    def __init__(self, connection: AbstractConnection, gone: Callable[["RedisConnection"], None]) -> None:
        self._connection, self._on_closed = connection, gone
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[tuple[float, OnReply]] = deque()
        self._answered_at = 0.0
        self._unsent: list[bytes] = []
        self._has_unsent = asyncio.Event()
        self._deadline_timer: asyncio.TimerHandle | None = None
        self.timeout_s = COMMAND_S
        self.is_open = True
        self._tasks = [self._loop.create_task(self._read()), self._loop.create_task(self._write())]

    def send(self, command: tuple[Argument, ...], on_reply: OnReply) -> None:
        if not self.is_open:
            on_reply(RedisUnreachable("not connected"))
            return
        self._unsent.append(hiredis.pack_command(command))  # type: ignore[arg-type]
        self._has_unsent.set()
        self._waiting.append((self._loop.time(), on_reply))
        if self._deadline_timer is None:
            self._deadline_timer = self._loop.call_later(self.timeout_s, self.check_overdue)

    def ask(self, *command: Argument) -> "asyncio.Future[object]":
        """Sends a command and returns its reply, which may be a `redis.ResponseError`. Raises `RedisUnreachable`."""
        future: asyncio.Future[object] = self._loop.create_future()
        self.send(command, lambda reply: resolve(future, reply))
        return future

    def close(self, reason: str = "closed") -> None:
        if not self.is_open:
            return
        self.is_open = False
        if self._deadline_timer is not None:
            self._deadline_timer.cancel()
        for task in self._tasks:
            task.cancel()
        self._unsent.clear()
        waiting, self._waiting = self._waiting, deque()
        for _, on_reply in waiting:
            on_reply(RedisUnreachable(reason))
        self._on_closed(self)

    async def ended(self) -> None:
        """Waits, after `close`, until the connection's tasks have ended."""
        await asyncio.wait(self._tasks)

    async def _read(self) -> None:
        """Reads replies until an error or cancellation; the package then closes the connection."""
        reason = "the connection broke"
        try:
            while True:
                try:
                    reply = await self._connection.read_response()
                except REFUSALS as refusal:
                    reply = refusal
                self._answered_at = self._loop.time()
                if not self._waiting:
                    reason = "the server says what was not asked"
                    break
                self._waiting.popleft()[1](reply)
        except redis_errors.RedisError as error:
            reason = f"the connection broke ({type(error).__name__})"
        self.close(reason)

    async def _write(self) -> None:
        with suppress(redis_errors.RedisError):
            while True:
                await self._has_unsent.wait()
                self._has_unsent.clear()
                data, self._unsent = b"".join(self._unsent), []
                await self._connection.send_packed_command(data, check_health=False)
        self.close("the connection broke")

    def check_overdue(self, *, is_last_check: bool = False) -> None:
        """Closes the connection if an answer is overdue; one timer serves all commands."""
        self._deadline_timer = None
        if not self._waiting:
            return
        oldest, now = self._waiting[0][0], self._loop.time()
        due = min(max(oldest, self._answered_at) + self.timeout_s, oldest + max(self.timeout_s, MAX_WAIT_S))
        if due > now:
            self._deadline_timer = self._loop.call_at(due, self.check_overdue)
        elif is_last_check:
            self.close("the server does not answer")
        else:
            self._deadline_timer = self._loop.call_later(GRACE_S, lambda: self.check_overdue(is_last_check=True))


def resolve(future: "asyncio.Future[Any]", reply: object) -> None:
    """Resolves `future` with a reply; exceptions in `REFUSALS` become its result, others its exception."""
    if future.done():
        return
    if isinstance(reply, Exception) and not isinstance(reply, REFUSALS):
        future.set_exception(reply)
    else:
        future.set_result(reply)


def code(error: redis_errors.RedisError) -> str:
    """Returns the first word of a refusal, such as READONLY; the package removes known codes from the text."""
    return error.status_code or str(error).split(" ", 1)[0]


_URL_FORMS = (
    "redis://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]…][/DATABASE], rediss://… (TLS, with ?ssl_ca_certs=FILE),"
    " redis+sentinel://[USER:PASSWORD@]SENTINEL[:PORT][,…]/SERVICE[/DATABASE] or unix://PATH"
)
_OPTIONS = {"ssl_ca_certs", "db"}
Node = tuple[str, int]
_UNIX_SOCKET: Node = ("", 0)
"""Placeholder node for the Unix socket named in the options."""


class Servers(Struct):
    """The address of Redis: one server, seeds of a cluster, or Sentinels that know the server."""

    kind: Callable[..., Any]
    """The `redis` package's connection class."""
    options: Mapping[str, Any]
    seeds: list[Node]
    """Servers or Sentinels; empty for a Unix socket."""
    service: str = ""
    """The name by which the Sentinels know the server."""
    learned: list[Node] = []
    """Nodes reported by the cluster, tried after the seeds."""

    def __str__(self) -> str:
        return str(self.options.get("path") or ",".join(f"{host}:{port}" for host, port in self.seeds))

    async def connect(self, probe_key: str, on_closed: Callable[[RedisConnection], None]) -> RedisConnection:
        """Returns an authenticated connection to the server that stores `probe_key` (in a cluster, the node of its
        slot) and accepts writes.

        Raises `RedisUnreachable` if there is no such server now, and `RedisRefused` if it refuses this client.
        """
        nodes = [await self._master()] if self.service else dict.fromkeys([*self.seeds, *self.learned])
        failures = []
        for node in nodes or (_UNIX_SOCKET,):
            try:
                return await self._follow(node, probe_key, on_closed)
            except RedisUnreachable as failure:
                failures.append(str(failure))
        raise RedisUnreachable("; ".join(dict.fromkeys(failures)))

    async def _master(self) -> Node:
        sentinels = Sentinel(self.seeds, sentinel_kwargs={"socket_timeout": CONNECT_S})  # type: ignore[no-untyped-call]
        try:
            host, port = await sentinels.discover_master(self.service)
        except redis_errors.RedisError as error:
            raise RedisUnreachable(
                f"no Sentinel of {self} knows a master '{self.service}' ({type(error).__name__})"
            ) from None
        finally:
            for client in sentinels.sentinels:
                await client.aclose()
        return host, int(port)

    async def _follow(self, node: Node, probe_key: str, closed: Callable[[RedisConnection], None]) -> RedisConnection:
        """Connects to `node`, and follows the redirects of a cluster to the node of `probe_key`."""
        for _ in range(REDIRECTS):
            link = RedisConnection(await self._open(node), closed)
            try:
                # A write, since a replica and a server with full memory or disk refuse it.
                reply = await link.ask("SET", probe_key, 1, "PX", 1000)
                if not isinstance(reply, redis_errors.MovedError):
                    _check_accepted(reply, self)
                    # A server outside a cluster, or one that hides its nodes, refuses this command.
                    slots = await link.ask("CLUSTER", "SLOTS")
                    if isinstance(slots, list):
                        nodes = [place for slot in slots for place in slot[2:]]
                        self.learned = list(dict.fromkeys((place[0] or node[0], int(place[1])) for place in nodes))
                    return link
            except BaseException:
                link.close("not usable")
                raise
            link.close("moved")
            node = reply.host or node[0], reply.port
        raise RedisUnreachable("the nodes of the cluster point to each other")

    async def _open(self, node: Node) -> AbstractConnection:
        options = {**self.options, "socket_timeout": CONNECT_S, "socket_connect_timeout": CONNECT_S}
        if node != _UNIX_SOCKET:
            options |= {"host": node[0], "port": node[1]}
        connection: AbstractConnection = self.kind(**options)
        try:
            async with asyncio.timeout(2 * CONNECT_S):
                await connection.connect()  # type: ignore[no-untyped-call]
        except (redis_errors.RedisError, TimeoutError) as error:
            cause = error if isinstance(error, REFUSALS) else error.__cause__ or error.__context__
            _check_accepted(cause, self)
            if isinstance(cause, ssl.SSLCertVerificationError):
                raise RedisRefused(
                    f"the certificate of Redis at {self} is not trusted ({cause.verify_message}):"
                    " name its authority with ?ssl_ca_certs=FILE"
                ) from None
            where = self if node == _UNIX_SOCKET else f"{node[0]}:{node[1]}"
            raise RedisUnreachable(f"Redis at {where} can't be reached ({type(error).__name__})") from None
        connection.socket_timeout = None  # `RedisConnection` has its own timer
        return connection


def servers(url: Secret) -> Servers:
    """Parses a URL. Raises `RedisRefused` if it is invalid, without quoting it, since it may contain a password."""
    try:
        return _servers(url.reveal())
    except ValueError:
        raise RedisRefused(f"the address of the Redis server can't be read: write {_URL_FORMS}") from None


def _servers(url: str) -> Servers:
    scheme, _, rest = url.partition("://")
    sentinel = scheme.endswith("+sentinel")
    rest, _, query = rest.partition("?")
    login, at, rest = rest.rpartition("@")
    hosts, slash, path = rest.partition("/")
    service = ""
    if sentinel:
        service, slash, path = path.partition("/")
        if not service:
            raise ValueError
    seeds = [] if scheme == "unix" else [_node(host, 26379 if sentinel else 6379) for host in hosts.split(",")]
    first = rest if scheme == "unix" else f"localhost{slash}{path}"
    options: dict[str, Any] = dict(parse_url(f"{scheme.removesuffix('+sentinel')}://{login}{at}{first}?{query}"))
    kind = options.pop("connection_class", Connection)
    options.pop("host", None)
    if options.keys() - {"username", "password", "path", *_OPTIONS} or (
        path.strip("/") and not options.keys() & {"db", "path"}
    ):
        raise ValueError
    if "db" in options:
        options["db"] = int(options["db"])
    # RESP 2 replies are plain lists. Without driver_info, no CLIENT SETINFO is sent.
    options |= {"protocol": 2, "decode_responses": True, "driver_info": None}
    return Servers(kind, options, seeds, service)


def _node(text: str, port: int) -> Node:
    host, colon, given = text.rpartition(":") if not text.endswith("]") else (text, "", "")
    return (host.strip("[]") or "localhost", int(given)) if colon else (text.strip("[]") or "localhost", port)


_ACCESS_ERRORS = ("WRONGPASS", "NOAUTH", "NOPERM", "ERR", "Invalid")


def _check_accepted(reply: object, where: Servers) -> None:
    if isinstance(reply, REFUSALS):
        if code(reply) in _ACCESS_ERRORS:
            raise RedisRefused(
                f"Redis at {where} refuses this user, password or database ({code(reply)}):"
                " correct LOWPASS_REDIS_URL, or allow the user its keys and commands"
            )
        raise RedisUnreachable(f"Redis at {where} can't be written ({code(reply)})")
