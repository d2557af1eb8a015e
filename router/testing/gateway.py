"""The real gateway inside the test's process: its own event loop in a thread, real SQLite, detectors and strategies.

    with Gateway(folder, policy) as gateway:
        reply = gateway.chat("auto", "Say hello.")
        assert gateway.settled(reply.id)["cost"] == 2_000

Requests go straight to the ASGI application. Official clients and raw sockets find the same gateway at `gateway.url`,
on loopback. It starts in about a tenth of a second; a process of its own (`lowpass serve`) needs twenty times as long.
"""

import asyncio
import concurrent.futures
import logging
import os
import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import uvloop

from router import app, server
from router.observe.observer import JsonFormatter
from router.settings import Settings
from router.settings import read as settings_of
from router.testing.client import LIMIT_S, Client, Reply, encoded
from router.types import clock

_OURS = ("lowpass", "router", "adapters", "local_serving")
_home: ContextVar[Path | None] = ContextVar("lowpass_testing_home", default=None)


class Stream:
    """An answer as it comes: iterate over its pieces; `close()` hangs up as a client does that is tired of waiting."""

    def __init__(self, gateway: "Gateway", scope: dict[str, Any], body: bytes) -> None:
        self._messages: queue.Queue[Mapping[str, Any] | None] = queue.Queue()
        self._loop, self._gone = gateway.loop, asyncio.Event()
        self._parts = iter([{"type": "http.request", "body": body, "more_body": False}])
        self._call = asyncio.run_coroutine_threadsafe(self._run(gateway, scope), gateway.loop)
        head = self._next()
        self.status: int = head["status"] if head else 0
        """0: nothing was answered."""
        self.headers = {name.decode().lower(): value.decode() for name, value in head["headers"]} if head else {}

    def __iter__(self) -> Iterator[bytes]:
        while message := self._next():
            if message.get("body"):
                yield message["body"]
            if not message.get("more_body"):
                break
        self._call.result(LIMIT_S)

    def close(self) -> None:
        """Returns once the gateway has ended its work for this request."""
        self._loop.call_soon_threadsafe(self._gone.set)
        concurrent.futures.wait([self._call], LIMIT_S)

    async def _run(self, gateway: "Gateway", scope: dict[str, Any]) -> None:
        try:
            await gateway.app.app(scope, self._receive, self._send)
        finally:
            self._messages.put(None)

    async def _receive(self) -> dict[str, Any]:
        if part := next(self._parts, None):
            return part
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        self._messages.put(message)

    def _next(self) -> Mapping[str, Any] | None:
        message = self._messages.get(timeout=LIMIT_S)
        if message is None:
            self._call.result(LIMIT_S)
        return message


class Gateway(Client):
    """`start()` it or use it as a context manager.

    `tick_s`: how often it looks at the policy file, the keys and leases; `tick()` looks at once.
    """

    def __init__(
        self, home: Path, policy: object, environ: Mapping[str, str] | None = None, tick_s: float = 0.1
    ) -> None:
        super().__init__(home, policy, environ)
        self.app: app.Gateway
        self.loop: asyncio.AbstractEventLoop
        self._tick_s, self._passed_s = tick_s, 0.0
        self._thread: threading.Thread | None = None
        self._drain: Callable[[bool], None] | None = None
        self._before: dict[str, str] = {}

    # Its life

    def __enter__(self) -> "Gateway":
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.stop()

    @property
    def running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> "Gateway":
        """Returns once it answers. Raises `StartError` or `ConfigError` as `lowpass serve` would print it."""
        # What a process would inherit; the policy's own variables are read again with every edit.
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
        """Requests in progress may end by themselves; `at_once`: they are cut off."""
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
        handler = _handler(self.log, settings.json_log)
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

        def on_drain(drain: Callable[[bool], None]) -> None:
            self._drain = drain

        def on_open(settings: Settings, gateway: app.Gateway, url: str) -> None:
            self.app, self.url = gateway, url
            opened.set_result(None)

        try:
            await server.serve(settings, on_drain, on_open, self._tick_s)
        finally:
            self._drain = None

    # Time

    def tick(self) -> None:
        """What a second brings: edits of the policy, new keys, leases that ended, alerts that are due."""
        asyncio.run_coroutine_threadsafe(self.app.tick(recover=True), self.loop).result(LIMIT_S)

    def let_pass(self, seconds: float) -> None:
        """Both clocks of this process jump ahead, until the gateway stops; then a tick."""
        self._passed_s += seconds
        clock.let_pass(seconds)
        self.tick()

    # Requests

    def stream(self, path: str, body: object, headers: Mapping[str, str] | None = None) -> Stream:
        """The answer as it comes, after its status; whole answers come in one piece."""
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


@contextmanager
def serving(home: Path, policy: object, environ: Mapping[str, str] | None = None) -> Iterator[Gateway]:
    """A started gateway; a test may stop it before the end."""
    with Gateway(home, policy, environ) as gateway:
        yield gateway


def _handler(path: Path, as_json: bool) -> logging.Handler:
    """Writes what this gateway logs; records of other gateways in the same process are not its own."""
    handler = logging.FileHandler(path)
    home = _home.get()
    handler.addFilter(lambda record: _home.get() == home or (_home.get() is None and record.name.startswith(_OURS)))
    form = "%(asctime)s %(levelname)s %(name)s: %(message)s"
    handler.setFormatter(JsonFormatter("%(name)s") if as_json else logging.Formatter(form))
    logging.getLogger().setLevel(logging.INFO)
    return handler
