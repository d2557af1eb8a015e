"""What a test does with a gateway, wherever it runs: it sends requests and reads the ledger."""

import json
import socket
import sqlite3
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import Struct

from router.testing.cli import lowpass

if TYPE_CHECKING:
    import openai

T = TypeVar("T")
CHAT = "/v1/chat/completions"
LIMIT_S = 60.0
"""For whatever a test waits for; it only keeps a broken test from hanging."""


class Reply(Struct, frozen=True):
    """A whole answer; names of headers are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def id(self) -> str:
        """Of the request's row in the ledger."""
        return self.headers["x-request-id"]

    @property
    def json(self) -> dict[str, Any]:
        return msgspec.json.decode(self.body, type=dict[str, Any])

    @property
    def error(self) -> dict[str, Any]:
        """The content of OpenAI's envelope."""
        error: dict[str, Any] = self.json["error"]
        assert {"message", "type", "param", "code"} <= set(error)
        return error


class Client(ABC):
    """Of a gateway whose state is in `home`: `ledger` is its SQLite file, `log` is what it wrote about itself.

    `policy` is YAML, or a value that is written as JSON. `environ` are further variables of its environment.
    """

    def __init__(self, home: Path, policy: object, environ: Mapping[str, str] | None = None) -> None:
        self.home, self.policy = home, home / "policy.yaml"
        self.log, self.ledger = home / "output.log", home / "lowpass.db"
        self.url = ""
        self.environ = dict(environ or {})
        home.mkdir(parents=True, exist_ok=True)
        self.write_policy(policy)

    def write_policy(self, policy: object) -> None:
        """JSON is YAML. A running gateway takes it up at its next tick, and never sees half of it."""
        edited = self.policy.with_suffix(".edited")
        edited.write_text(policy if isinstance(policy, str) else json.dumps(policy, indent=1))
        edited.replace(self.policy)

    def lowpass(self, *words: str) -> tuple[int, str]:
        """Runs a command for this gateway's state: its status and output."""
        done = lowpass(self.home, *words, **{"LOWPASS_POLICY": str(self.policy), **self.environ})
        return done.status, done.output

    @abstractmethod
    def request(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Reply:
        """Sends one request and returns the whole answer."""

    def get(self, path: str, **headers: str) -> Reply:
        """`x_lowpass_tags="a"` becomes the header `x-lowpass-tags`."""
        return self.request("GET", path, headers=_named(headers))

    def post(self, path: str, body: object, **headers: str) -> Reply:
        return self.request("POST", path, encoded(body), _named(headers) | {"content-type": "application/json"})

    def chat(
        self, model: str, text: str = "Say hello.", headers: Mapping[str, str] | None = None, **body: Any
    ) -> Reply:
        fields = {"model": model, "messages": [{"role": "user", "content": text}], **body}
        return self.request("POST", CHAT, json.dumps(fields).encode(), headers)

    def client(self, key: str = "unused", timeout: float = LIMIT_S) -> "openai.OpenAI":
        """The official client, over HTTP."""
        import openai

        return openai.OpenAI(base_url=f"{self.url}/v1", api_key=key, max_retries=0, timeout=timeout)

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.url.removeprefix("http://").partition(":")
        return host, int(port)

    def raw(self) -> socket.socket:
        """A connection that says what the test says."""
        return socket.create_connection(self.address, timeout=LIMIT_S)

    def rows(self, query: str, *values: object) -> list[dict[str, Any]]:
        """Of the ledger, in SQL."""
        with closing(sqlite3.connect(f"file:{self.ledger}?mode=ro", uri=True, timeout=LIMIT_S)) as connection:
            connection.row_factory = sqlite3.Row
            return [dict(row) for row in connection.execute(query, values)]

    def stored(self) -> bytes:
        """The pages of the ledger, those of its write-ahead log included, to search for what must not be there.

        SQLite reads them: a process that opens and closes the file itself loses all of its locks on it, and the next
        process that closes the ledger takes the log away (https://www.sqlite.org/howtocorrupt.html, section 2.2).
        """
        with closing(sqlite3.connect(f"file:{self.ledger}?mode=ro", uri=True, timeout=LIMIT_S)) as connection:
            return connection.serialize()

    def row(self, request_id: str) -> dict[str, Any]:
        """The row of a request, with its `attempts` in order."""
        (row,) = self.rows("SELECT * FROM requests WHERE id = ?", request_id)
        attempts = self.rows("SELECT * FROM attempts WHERE request_id = ? ORDER BY number", request_id)
        return {**row, "attempts": attempts}

    def values(self, query: str) -> set[tuple[Any, ...]]:
        return {tuple(row.values()) for row in self.rows(query)}

    def settled(self, request_id: str) -> dict[str, Any]:
        """The row of a request, once it is not held any more."""
        return until(lambda: row if (row := self.row(request_id))["state"] != "held" else None)

    def only(self, route: str) -> dict[str, Any]:
        """The settled row of the only request that this route has had."""
        (row,) = self.rows("SELECT id FROM requests WHERE route = ?", route)
        return self.settled(row["id"])

    def check_books(self) -> None:
        """Fails unless `spent + held` of every window is the sum of its rows, and no hold outlives its request."""
        windows = "SELECT budget, window_start_ms, spent, held FROM budget_windows WHERE spent != 0 OR held != 0"
        booked = (
            "SELECT account, window_start_ms, coalesce(sum(charged), 0),"
            " coalesce(sum(CASE WHEN charged IS NULL THEN held END), 0) FROM bookings GROUP BY 1, 2"
            " HAVING sum(coalesce(charged, held)) != 0"
        )
        # One statement sees one moment: between two, a request may settle.
        queries = {
            "windows without such bookings": f"SELECT * FROM ({windows} EXCEPT {booked})",  # noqa: S608
            "bookings without such windows": f"SELECT * FROM ({booked} EXCEPT {windows})",  # noqa: S608
            "holds that outlived their request": "SELECT * FROM bookings JOIN requests ON id = request_id"
            " WHERE (bookings.state = 'held') != (requests.state = 'held')",
            "requests whose cost is not that of their attempts": "SELECT id, cost,"
            " (SELECT sum(cost) FROM attempts WHERE request_id = id) AS attempts FROM requests"
            " WHERE state = 'settled' AND cost != attempts",
        }
        wrong = {problem: rows for problem, query in queries.items() if (rows := self.rows(query))}
        assert not wrong, wrong


def until(look: Callable[[], T | None], seconds: float = LIMIT_S) -> T:
    """What `look` returns, as soon as it is something."""
    end = time.monotonic() + seconds
    while not (result := look()):
        assert time.monotonic() < end, f"still nothing after {seconds} s"
        time.sleep(0.005)
    return result


def encoded(body: object) -> bytes:
    return body if isinstance(body, bytes) else json.dumps(body).encode()


def _named(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}
