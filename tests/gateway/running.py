"""A gateway as its users have it: a process of its own, HTTP in front of it, its ledger behind it."""

import http.client
import json
import os
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import openai
from msgspec import Struct

T = TypeVar("T")
ROOT = Path(__file__).parents[2]
CHAT = "/v1/chat/completions"
MESSAGES: list[Any] = [{"role": "user", "content": "Say hello."}]
_ANSWERS = b"lowpass answers at "


class Reply(Struct, frozen=True):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        return msgspec.json.decode(self.body, type=dict[str, Any])

    @property
    def error(self) -> dict[str, Any]:
        """The envelope's content; every refusal has all of OpenAI's fields."""
        error: dict[str, Any] = self.json["error"]
        assert {"message", "type", "param", "code"} <= set(error)
        return error


class Gateway:
    """`start` it, then talk to `url`; `log` holds everything that it printed since its first start."""

    def __init__(self, home: Path, policy: object, environ: Mapping[str, str] | None = None) -> None:
        self.home = home
        self.policy = home / "policy.yaml"
        self.log = home / "output.log"
        self.ledger = home / "lowpass.db"
        self.url = ""
        self._environ = dict(environ or {})
        self._process: subprocess.Popen[bytes] | None = None
        home.mkdir(parents=True, exist_ok=True)
        self.write_policy(policy)

    def write_policy(self, policy: object) -> None:
        """JSON is YAML."""
        self.policy.write_text(policy if isinstance(policy, str) else json.dumps(policy, indent=1))

    def start(self, *options: str, within_s: float = 20) -> "Gateway":
        """Returns once it answers; fails with its output when it ends instead."""
        before = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as output:
            self._process = self.popen("serve", "--policy", str(self.policy), "--port", "0", *options, stdout=output)
        self.url = until(lambda: self._greeting(before), within_s)
        return self

    def _greeting(self, before: int) -> str:
        lines = self.log.read_bytes()[before:].splitlines()
        found = [line for line in lines if line.startswith(_ANSWERS)]
        assert self.process.poll() is None, self.log.read_text()
        return found[0].split()[3].decode() if found and len(lines) > 3 else ""

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    def popen(self, *arguments: str, stdout: Any = subprocess.PIPE) -> subprocess.Popen[bytes]:
        """Any `lowpass` command on this gateway's home."""
        environ = {name: value for name, value in os.environ.items() if not name.startswith("LOWPASS_")}
        return subprocess.Popen(
            [sys.executable, "-m", "router.cli", *arguments],
            cwd=ROOT,
            env=environ | {"LOWPASS_HOME": str(self.home)} | self._environ,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.STDOUT,
        )

    def lowpass(self, *arguments: str) -> tuple[int, str]:
        """Runs a command to its end: exit status and output."""
        with self.popen(*arguments) as process:
            output, _ = process.communicate(timeout=30)
            return process.returncode, output.decode()

    def kill(self) -> None:
        """As a crash would end it."""
        self.process.kill()
        self.process.wait(10)

    def stop(self) -> int:
        self.process.terminate()
        try:
            return self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.url.removeprefix("http://").partition(":")
        return host, int(port)

    def client(self, key: str = "unused", timeout: float = 10) -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key=key, max_retries=0, timeout=timeout)

    def request(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Reply:
        """On a connection of its own."""
        connection = http.client.HTTPConnection(*self.address, timeout=10)
        try:
            connection.request(method, path, body, dict(headers or {}))
            response = connection.getresponse()
            return Reply(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Reply:
        return self.request("GET", path, headers=_named(headers))

    def post(self, path: str, body: object, **headers: str) -> Reply:
        """`x_lowpass_tags="a"` becomes the header `x-lowpass-tags`."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.request("POST", path, data, _named(headers) | {"content-type": "application/json"})

    def chat(
        self, model: str, text: str = "Say hello.", headers: Mapping[str, str] | None = None, **body: Any
    ) -> Reply:
        fields = {"model": model, "messages": [{"role": "user", "content": text}], **body}
        return self.request("POST", CHAT, json.dumps(fields).encode(), headers)

    def raw(self) -> socket.socket:
        return socket.create_connection(self.address, timeout=10)

    def rows(self, query: str, *values: object) -> list[dict[str, Any]]:
        """What the ledger says."""
        connection = sqlite3.connect(f"file:{self.ledger}?mode=ro", uri=True, timeout=10)
        connection.row_factory = sqlite3.Row
        try:
            return [dict(row) for row in connection.execute(query, values)]
        finally:
            connection.close()

    def row(self, request_id: str) -> dict[str, Any]:
        """The one row of a request, with its `attempts` in order."""
        (row,) = self.rows("SELECT * FROM requests WHERE id = ?", request_id)
        attempts = self.rows("SELECT * FROM attempts WHERE request_id = ? ORDER BY number", request_id)
        return {**row, "attempts": attempts}

    def values(self, query: str) -> set[tuple[Any, ...]]:
        return {tuple(row.values()) for row in self.rows(query)}

    def settled(self, request_id: str) -> dict[str, Any]:
        """The row once it is not held any more."""
        return until(lambda: row if (row := self.row(request_id))["state"] != "held" else None)

    def only(self, route: str) -> dict[str, Any]:
        """The settled row of the only request that this route has had."""
        (found,) = self.rows("SELECT id FROM requests WHERE route = ?", route)
        return self.settled(found["id"])

    def check_books(self) -> None:
        """`spent + held` of every window is the sum of the rows, and no hold outlives its request."""
        windows = "SELECT budget, window_start_ms, spent, held FROM budget_windows WHERE spent != 0 OR held != 0"
        booked = (
            "SELECT account, window_start_ms, coalesce(sum(charged), 0),"
            " coalesce(sum(CASE WHEN charged IS NULL THEN held END), 0) FROM bookings GROUP BY 1, 2"
            " HAVING sum(coalesce(charged, held)) != 0"
        )
        # One statement sees one moment: between two, a request may settle.
        assert self.rows(f"SELECT * FROM ({windows} EXCEPT {booked})") == []  # noqa: S608 - constants
        assert self.rows(f"SELECT * FROM ({booked} EXCEPT {windows})") == []  # noqa: S608 - constants
        orphans = (
            "SELECT * FROM bookings JOIN requests ON id = request_id"
            " WHERE (bookings.state = 'held') != (requests.state = 'held')"
        )
        assert self.rows(orphans) == []
        costs = self.rows(
            "SELECT id, cost, (SELECT sum(cost) FROM attempts WHERE request_id = id) AS attempts FROM requests"
            " WHERE state = 'settled' AND cost != attempts"
        )
        assert costs == []


@contextmanager
def serving(home: Path, policy: object, environ: Mapping[str, str] | None = None) -> Iterator[Gateway]:
    gateway = Gateway(home, policy, environ).start()
    try:
        yield gateway
    finally:
        if gateway.process.poll() is None:
            gateway.stop()


def until(look: Callable[[], T | None], seconds: float = 10) -> T:
    """What `look` finds, as soon as it finds something."""
    end = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < end, f"still nothing after {seconds} s"
        time.sleep(0.01)
    return found


def target(url: str, behaviour: str, **row: Any) -> dict[str, Any]:
    """A remote target of the scripted upstream. `flavour` and `provider` say who it is; `price` is USD per million."""
    flavour, provider = row.pop("flavour", "openai"), row.pop("provider", "openai")
    model = {
        "name": behaviour,
        "provider": provider,
        "context": row.pop("context", 100_000),
        "max_output": row.pop("max_output", 1_000),
        "capabilities": row.pop("capabilities", ["chat", "tools", "json_schema", "n", "completions", "embeddings"]),
        "price": row.pop("price", {"input": 1, "output": 2}),
        "thinking": row.pop("thinking", None),
    }
    row = {"retries": 0, "api_key": "sk-upstream", **row}
    return {"model": {k: v for k, v in model.items() if v is not None}, "base_url": f"{url}/{flavour}/v1", **row}


def local(url: str, behaviour: str, **row: Any) -> dict[str, Any]:
    """The same on the user's own machine."""
    return target(url, behaviour, flavour="vllm", provider="vllm", **row)


def ordered(*targets: str) -> dict[str, Any]:
    return {"strategy": {"kind": "ordered", "targets": list(targets)}}


def usd(nano: int) -> float:
    return nano / 1e9


def _named(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}
