"""Gateways under test: real processes with their policy, keys and ledger; what their budgets and their books say."""

import http.client
import json
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

from msgspec import Struct

from bench.budgets.redis_server import serving
from bench.children import cores, free_port, last_lines, running
from bench.cpu import descendants
from bench.load import LoadError
from router.ledger import keys
from router.ledger.ledger import ledger_at
from router.types.price import nano_from_usd
from router.types.request import KeyTerms

STORES = ("sqlite", "redis")
KEYS = {"bench": "reports", "new": "reports"}
"""Names and scopes; of one team, so that any of them may use what another split off."""
_START_S = 30.0
_POLL_S = 0.02
_GREETING = b"lowpass answers at"
"""The last that a gateway says before it serves, with all of its workers."""
_BOOKED = "SELECT request_id, account, charged, held FROM bookings"
_OPEN = (
    "SELECT count(DISTINCT request_id) FROM bookings WHERE charged IS NULL AND request_id IN (SELECT id FROM requests)"
)


class Pot(Struct, frozen=True):
    """One budget as `GET /v1/budgets` shows it, in nano-USD."""

    limit: int
    spent: int
    held: int


class Gateway:
    """One `lowpass serve`, with its workers."""

    def __init__(self, home: Path, policy: Path, workers: int, env: dict[str, str], log: Path) -> None:
        self.home, self.port, self._log = home, free_port(), log
        self._env = {"LOWPASS_HOME": str(home)} | env
        serve = ("serve", "--policy", str(policy), "--port", str(self.port), "--workers", str(workers))
        self._argv = [sys.executable, "-m", "router.cli", *serve]
        self._running: ExitStack | None = None

    def launch(self) -> None:
        self._running = ExitStack()
        self.process = self._running.enter_context(running(self._argv, cores().all, self._log, self._env))

    def wait(self) -> None:
        """Until it answers. Raises LoadError."""
        deadline = time.monotonic() + _START_S
        while _GREETING not in self._log.read_bytes():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise LoadError(f"a gateway did not start; its output ends:\n{last_lines(self._log)}")
            time.sleep(_POLL_S)

    def revive(self) -> None:
        """Starts it again if its first process has ended, as a supervisor would. Raises LoadError."""
        family = self.pids()
        time.sleep(_POLL_S)  # what was killed a moment ago is told from what runs
        if self.process.poll() is not None:
            self.stop()
            until(lambda: not any(map(alive, family)), _START_S)  # workers end by themselves, and with them the address
            self.launch()
        self.wait()

    def stop(self) -> None:
        if self._running is not None:
            self._running.close()

    def pids(self) -> list[int]:
        """Its first process and its workers."""
        return [self.process.pid, *descendants(self.process.pid)]


class Site:
    """Gateways that share budgets; `key` is known to all of them under the same name."""

    def __init__(self, gateways: list[Gateway], secrets: dict[str, list[str]], redis_url: str) -> None:
        self.gateways, self._secrets, self.redis_url = gateways, secrets, redis_url

    @property
    def ledgers(self) -> set[Path]:
        return {gateway.home / "lowpass.db" for gateway in self.gateways}

    def door(self, number: int, key: str = "bench") -> tuple[int, str]:
        """Port and key: callers take turns."""
        index = number % len(self.gateways)
        return self.gateways[index].port, self._secrets[key][index]

    def call(self, method: str, path: str, body: object = None, number: int = 0) -> dict[str, Any]:
        """A document of `/v1`. Raises LoadError for any other status than 2xx."""
        port, key = self.door(number)
        status, document = get(port, path, key, method, body)
        if status >= 300:
            raise LoadError(f"{method} {path}: status {status}: {document}")
        return document

    def pots(self) -> dict[str, Pot]:
        """By id."""
        found = self.call("GET", "/v1/budgets")["data"]
        amounts = ("limit", "spent", "held")
        return {row["id"]: Pot(*(nano_from_usd(Decimal(row[name])) for name in amounts)) for row in found}

    def booked(self) -> dict[str, tuple[int, int]]:
        """(spent, held) of every account, from the rows of all ledgers."""
        rows: dict[tuple[str, str], tuple[int | None, int]] = {}
        for request, account, charged, held in (row for path in self.ledgers for row in query(path, _BOOKED)):
            # Of a request that two gateways know of one has ended it.
            if charged is not None or (request, account) not in rows:
                rows[request, account] = (charged, held)
        sums: dict[str, tuple[int, int]] = {}
        for (_, account), (charged, held) in rows.items():
            spent, open_ = sums.get(account, (0, 0))
            sums[account] = (spent + (charged or 0), open_ + (held if charged is None else 0))
        return sums

    def books_right(self, limit_s: float = 5.0) -> bool:
        """Whether spent and held of every pot are the sums of its rows, once nothing is on its way any more."""
        return until(self._agree, limit_s)

    def open_requests(self) -> int:
        """How many requests hold something."""
        return sum(query(path, _OPEN)[0][0] for path in self.ledgers)

    def processes_used(self) -> int:
        """How many gateway processes had a request."""
        return sum(query(path, "SELECT count(DISTINCT owner) FROM requests")[0][0] for path in self.ledgers)

    def _agree(self) -> bool:
        booked = self.booked()
        return all(booked.get(name, (0, 0)) == (pot.spent, pot.held) for name, pot in self.pots().items())


def alive(pid: int) -> bool:
    """A zombie is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def query(path: Path, statement: str, *values: object) -> list[tuple[Any, ...]]:
    """Rows of a ledger that others write."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=10)) as connection:
        return connection.execute(statement, values).fetchall()


def until(done: Callable[[], bool], limit_s: float) -> bool:
    """Whether it was so within that time."""
    deadline = time.monotonic() + limit_s
    while not (found := done()) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return found


def get(port: int, path: str, key: str = "", method: str = "GET", body: object = None) -> tuple[int, dict[str, Any]]:
    """Status and document, its amounts exact. Raises OSError if no whole answer comes."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        data = None if body is None else json.dumps(body)
        connection.request(method, path, data, {"authorization": f"Bearer {key}"} if key else {})
        response = connection.getresponse()
        return response.status, json.loads(response.read() or b"{}", parse_float=Decimal)
    except (http.client.HTTPException, ValueError) as error:
        raise OSError(f"not a whole answer: {error!r}") from error
    finally:
        connection.close()


@contextmanager
def site(
    store: str, processes: int, folder: Path, policy: dict[str, Any], one_ledger: bool = False, workers: int = 0
) -> Iterator[Site]:
    """So many gateway processes with one store: workers of one gateway in SQLite; in Redis gateways, each with a home
    of its own unless they share `one_ledger`. With `workers` gateways of so many in either store. Raises LoadError."""
    folder.mkdir(parents=True)
    path = folder / "policy.yaml"
    path.write_text(json.dumps(policy))
    with ExitStack() as stack:
        alone = store == "sqlite"
        url = "" if alone else stack.enter_context(serving(folder / "redis"))
        env = {"LOWPASS_REDIS_URL": url} if url else {}
        gateways = []
        for number in range(1 if alone and not workers else processes):
            home = folder / ("home" if one_ledger else f"home-{number}")
            each = workers or (processes if alone else 1)
            gateways.append(Gateway(home, path, each, env, folder / f"gateway-{number}.log"))
        secrets = _keys([gateway.home for gateway in gateways])
        for gateway in gateways:
            gateway.launch()
            stack.callback(gateway.stop)
        for gateway in gateways:
            gateway.wait()
        yield Site(gateways, secrets, url)


def _keys(homes: list[Path]) -> dict[str, list[str]]:
    """Secrets by name, one for each home."""
    made = {home: _keys_of(home) for home in dict.fromkeys(homes)}
    return {name: [made[home][name] for home in homes] for name in KEYS}


def _keys_of(home: Path) -> dict[str, str]:
    home.mkdir(mode=0o700)
    ledger = ledger_at(home / "lowpass.db", None)
    ledger.migrate()
    with ledger.writing() as connection:
        return {
            name: keys.create(connection, KeyTerms(name=name, scopes=(scope,), team="bench"), "bench")[1]
            for name, scope in KEYS.items()
        }
