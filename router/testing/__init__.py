"""Tools for tests of lowpass and of applications that use it: a gateway, an upstream and the command line in-process.

    with Gateway(folder, policy) as gateway:
        reply = gateway.chat("auto", "Say hello.")
        assert gateway.settled(reply.id)["cost"] == 2_000

`Gateway` is the real gateway with its own event loop in a thread, real SQLite, detectors and strategies. Requests are
passed directly to the ASGI application; official clients and raw sockets reach the same gateway at `gateway.url`, on
loopback. It starts in about a tenth of a second; a separate process (`lowpass serve`) takes twenty times as long.
"""

import asyncio
import concurrent.futures
import json
import logging
import os
import queue
import socket
import sqlite3
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import unquote

import msgspec
import uvloop
from msgspec import Struct
from typer.testing import CliRunner

from router import app, cli, server
from router.api.edge import client_left
from router.observe.observer import JsonFormatter
from router.settings import Settings
from router.settings import read as settings_of
from router.types import clock
from router.types.tables import patterns

if TYPE_CHECKING:
    import openai

T = TypeVar("T")
CHAT = "/v1/chat/completions"
LIMIT_S = 180.0
"""Timeout in seconds for anything that a test waits for; it only keeps a broken test from hanging."""
_OURS = ("lowpass", "router", "adapters", "local_serving")
_home: ContextVar[Path | None] = ContextVar("lowpass_testing_home", default=None)


class Done(NamedTuple):
    """A finished command. `output` is `out` and `error` interleaved, as in a terminal."""

    status: int
    out: str
    error: str
    output: str


def lowpass(home: Path, *words: str, **environ: str) -> Done:
    """Runs the command `lowpass *words` with the state in `home`.

    Of the variables `LOWPASS_…` the command sees only `environ`. An exception that the command does not handle is
    raised; in a separate process it would end in a traceback.
    """
    ours: dict[str, str | None] = dict.fromkeys(name for name in os.environ if name.startswith("LOWPASS_"))
    result = CliRunner().invoke(cli.app, words, env=ours | {"LOWPASS_HOME": str(home)} | environ)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Done(result.exit_code, result.stdout, result.stderr, result.output)


class Reply(Struct, frozen=True):
    """A whole answer; header names are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def id(self) -> str:
        """Id of the request's row in the ledger."""
        return self.headers["x-request-id"]

    @property
    def json(self) -> dict[str, Any]:
        return msgspec.json.decode(self.body, type=dict[str, Any])

    @property
    def error(self) -> dict[str, Any]:
        """Content of OpenAI's error envelope."""
        error: dict[str, Any] = self.json["error"]
        assert {"message", "type", "param", "code"} <= set(error)
        return error


class Client(ABC):
    """A client of a gateway with its state in `home`: `ledger` is its SQLite file, and `log` its own log file.

    `policy` is YAML, or a value that is written as JSON. `environ` are further environment variables of the gateway.
    """

    def __init__(self, home: Path, policy: object, environ: Mapping[str, str] | None = None) -> None:
        self.home, self.policy = home, home / "policy.yaml"
        self.log, self.ledger = home / "output.log", home / "lowpass.db"
        self.url = ""
        self.environ = dict(environ or {})
        home.mkdir(parents=True, exist_ok=True)
        self.write_policy(policy)

    def write_policy(self, policy: object) -> None:
        """Replaces the policy file atomically; a running gateway loads it at its next tick."""
        edited = self.policy.with_suffix(".edited")
        edited.write_text(policy if isinstance(policy, str) else json.dumps(policy, indent=1))
        edited.replace(self.policy)

    def lowpass(self, *words: str) -> tuple[int, str]:
        """Runs a command with this gateway's state; returns exit status and output."""
        done = lowpass(self.home, *words, **{"LOWPASS_POLICY": str(self.policy), **self.environ})
        return done.status, done.output

    @abstractmethod
    def request(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Reply:
        """Sends one request and returns the whole answer."""

    def get(self, path: str, **headers: str) -> Reply:
        """Sends a GET request; `x_lowpass_tags="a"` becomes the header `x-lowpass-tags`."""
        return self.request("GET", path, headers=_named(headers))

    def post(self, path: str, body: object, **headers: str) -> Reply:
        return self.request("POST", path, encoded(body), _named(headers) | {"content-type": "application/json"})

    def chat(
        self, model: str, text: str = "Say hello.", headers: Mapping[str, str] | None = None, **body: Any
    ) -> Reply:
        fields = {"model": model, "messages": [{"role": "user", "content": text}], **body}
        return self.request("POST", CHAT, json.dumps(fields).encode(), headers)

    def client(self, key: str = "unused", timeout: float = LIMIT_S) -> "openai.OpenAI":
        """Returns the official OpenAI client, over HTTP."""
        import openai

        return openai.OpenAI(base_url=f"{self.url}/v1", api_key=key, max_retries=0, timeout=timeout)

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.url.removeprefix("http://").partition(":")
        return host, int(port)

    def raw(self) -> socket.socket:
        """Opens a connection on which the test writes raw bytes."""
        return socket.create_connection(self.address, timeout=LIMIT_S)

    def rows(self, query: str, *values: object) -> list[dict[str, Any]]:
        """Returns rows of the ledger for an SQL query."""
        with closing(sqlite3.connect(f"file:{self.ledger}?mode=ro", uri=True, timeout=LIMIT_S)) as connection:
            connection.row_factory = sqlite3.Row
            return [dict(row) for row in connection.execute(query, values)]

    def stored(self) -> bytes:
        """Returns the ledger's pages, including its write-ahead log, to search for data that must not be stored.

        SQLite reads them: a process that opens and closes the file itself loses all of its locks, and the next process
        that closes the ledger deletes the log (https://www.sqlite.org/howtocorrupt.html, section 2.2).
        """
        with closing(sqlite3.connect(f"file:{self.ledger}?mode=ro", uri=True, timeout=LIMIT_S)) as connection:
            return connection.serialize()

    def row(self, request_id: str) -> dict[str, Any]:
        """Returns the row of a request, with its `attempts` in order."""
        (row,) = self.rows("SELECT * FROM requests WHERE id = ?", request_id)
        return {**row, "attempts": self.rows("SELECT * FROM attempts WHERE request_id = ? ORDER BY number", request_id)}

    def values(self, query: str) -> set[tuple[Any, ...]]:
        return {tuple(row.values()) for row in self.rows(query)}

    def settled(self, request_id: str) -> dict[str, Any]:
        """Waits until a request is no longer held, and returns its row."""
        return until(lambda: row if (row := self.row(request_id))["state"] != "held" else None)

    def only(self, route: str) -> dict[str, Any]:
        """Returns the settled row of a route's only request."""
        (row,) = self.rows("SELECT id FROM requests WHERE route = ?", route)
        return self.settled(row["id"])

    def check_books(self) -> None:
        """Asserts that `spent + held` of every window is the sum of its rows, and that no hold outlives its request."""
        # A single statement, because a request may settle between two statements.
        queries = patterns("testing/books.yaml")["problems"]
        wrong = {problem: rows for problem, query in queries.items() if (rows := self.rows(query))}
        assert not wrong, wrong


def until(look: Callable[[], T | None], seconds: float = LIMIT_S) -> T:
    """Calls `look` until its result is true, and returns that."""
    end = time.monotonic() + seconds
    while not (result := look()):
        assert time.monotonic() < end, f"still nothing after {seconds} s"
        time.sleep(0.005)
    return result


def encoded(body: object) -> bytes:
    return body if isinstance(body, bytes) else json.dumps(body).encode()


def _named(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


class Stream:
    """An answer as it arrives: iterating yields its pieces; `close()` disconnects like an impatient client."""

    def __init__(self, gateway: "Gateway", scope: dict[str, Any], body: bytes) -> None:
        self._messages: queue.Queue[Mapping[str, Any] | None] = queue.Queue()
        self._loop, self._scope = gateway.loop, scope
        self._parts = iter([{"type": "http.request", "body": body, "more_body": False}])
        self._call = asyncio.run_coroutine_threadsafe(self._run(gateway, scope), gateway.loop)
        head = self._next()
        self.status: int = head["status"] if head else 0
        self.headers = {name.decode().lower(): value.decode() for name, value in head["headers"]} if head else {}

    def __iter__(self) -> Iterator[bytes]:
        while message := self._next():
            if message.get("body"):
                yield message["body"]
            if not message.get("more_body"):
                break
        self._call.result(LIMIT_S)

    def close(self) -> None:
        """Disconnects, and returns once the gateway has ended its work for the request."""
        self._loop.call_soon_threadsafe(client_left, self._scope)
        concurrent.futures.wait([self._call], LIMIT_S)

    async def _run(self, gateway: "Gateway", scope: dict[str, Any]) -> None:
        try:
            await gateway.app.app(scope, self._receive, self._send)
        finally:
            self._messages.put(None)

    async def _receive(self) -> dict[str, Any]:
        return next(self._parts, None) or {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        self._messages.put(message)

    def _next(self) -> Mapping[str, Any] | None:
        message = self._messages.get(timeout=LIMIT_S)
        if message is None:
            self._call.result(LIMIT_S)
        return message


class Gateway(Client):
    """A gateway in this process; call `start()` or use it as a context manager.

    `tick_s` is the interval in seconds at which it checks the policy file, keys and leases; `tick()` checks at once.
    """

    def __init__(
        self, home: Path, policy: object, environ: Mapping[str, str] | None = None, tick_s: float = 0.1
    ) -> None:
        super().__init__(home, policy, environ)
        self.app: app.GatewayProcess
        self.loop: asyncio.AbstractEventLoop
        self._tick_s, self._passed_s = tick_s, 0.0
        self._thread: threading.Thread | None = None
        self._drain: Callable[[bool], None] | None = None
        self._before: dict[str, str] = {}

    # Life cycle

    def __enter__(self) -> "Gateway":
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.stop()

    @property
    def running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> "Gateway":
        """Starts the gateway and waits until it answers. Raises `StartError` or `ConfigError`, as `lowpass serve`."""
        # The environment of a separate process; variables in the policy are read again with every edit.
        self._before = dict(os.environ)
        for name in [name for name in os.environ if name.startswith("LOWPASS_")]:
            del os.environ[name]
        os.environ.update({"LOWPASS_HOME": str(self.home)} | self.environ)
        settings = settings_of(os.environ, policy=self.policy, port=0)
        opened: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._thread = threading.Thread(target=self._live, args=(settings, opened), name="gateway", daemon=True)
        self._thread.start()
        try:
            opened.result(LIMIT_S)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self, at_once: bool = False) -> None:
        """Stops the gateway after the requests in progress, or `at_once` by cutting them off."""
        if self.running and self._drain is not None:
            self.loop.call_soon_threadsafe(self._drain, at_once)
        if self._thread is not None:
            self._thread.join(LIMIT_S)
            assert not self._thread.is_alive(), "the gateway does not end"
        self._thread = None
        clock.let_pass(-self._passed_s)
        self._passed_s = 0.0
        if self._before:
            os.environ.clear()
            os.environ.update(self._before)
            self._before = {}

    def _live(self, settings: Settings, opened: "concurrent.futures.Future[None]") -> None:
        _home.set(self.home)
        # Log records of other gateways in the same process are left out.
        handler, form = logging.FileHandler(self.log), "%(asctime)s %(levelname)s %(name)s: %(message)s"
        handler.addFilter(
            lambda record: _home.get() == self.home or (_home.get() is None and record.name.startswith(_OURS))
        )
        handler.setFormatter(JsonFormatter("%(name)s") if settings.json_log else logging.Formatter(form))
        logging.getLogger().setLevel(logging.INFO)
        logging.getLogger().addHandler(handler)
        try:
            uvloop.run(self._serve(settings, opened))
        except BaseException as error:
            if opened.done():
                raise
            opened.set_exception(error)
        finally:
            logging.getLogger().removeHandler(handler)
            handler.close()

    async def _serve(self, settings: Settings, opened: "concurrent.futures.Future[None]") -> None:
        self.loop = asyncio.get_running_loop()

        def on_open(settings: Settings, gateway: app.GatewayProcess, url: str) -> None:
            self.app, self.url = gateway, url
            opened.set_result(None)

        try:
            await server.serve(settings, partial(setattr, self, "_drain"), on_open, self._tick_s)
        finally:
            self._drain = None

    # Time

    def tick(self) -> None:
        """Does now what the gateway does every second: policy edits, new keys, expired leases, due alerts."""
        asyncio.run_coroutine_threadsafe(self.app.tick(recover=True), self.loop).result(LIMIT_S)

    def let_pass(self, seconds: float) -> None:
        """Advances both clocks of this process until the gateway stops, and ticks."""
        self._passed_s += seconds
        clock.let_pass(seconds)
        self.tick()

    # Requests

    def stream(self, path: str, body: object, headers: Mapping[str, str] | None = None) -> Stream:
        """Returns the answer as it arrives, after its status; an unstreamed answer is a single piece."""
        return self._call("POST", path, encoded(body), dict(headers or {}))

    def request(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Reply:
        answer = self._call(method, path, body or b"", dict(headers or {}))
        return Reply(answer.status, answer.headers, b"".join(answer))

    def _call(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> Stream:
        path, _, query = path.partition("?")
        named = {"host": self.url.removeprefix("http://")} | {name.lower(): value for name, value in headers.items()}
        if body or method == "POST":
            named.setdefault("content-length", str(len(body)))
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "scheme": "http",
            "method": method,
            "path": unquote(path),
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": query.encode(),
            "headers": [
                (name.encode(), (value if isinstance(value, bytes) else value.encode("latin-1")))
                for name, value in named.items()
            ],
            "client": ("127.0.0.1", 1),
            "server": self.address,
        }
        return Stream(self, scope, body)


serving = Gateway
"""`with serving(home, policy) as gateway` starts a gateway, which the test may stop before the end."""
