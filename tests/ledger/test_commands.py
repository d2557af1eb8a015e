"""`lowpass ledger` beside gateways that go on, wherever the ledger and the budgets are."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from router.ledger.ledger import SqliteLedger
from router.ledger.migrate import SQLITE, newest
from router.ledger.packed.pack import pack
from tests.budget.redis_process import RedisProcess
from tests.gateway.running import Gateway, ordered, serving, target, until
from tests.ledger.plain import put_all
from tests.ledger.test_verify import NOW_MS, ROWS
from tests.postgres import Server
from tests.upstream import Upstream

DATABASE = "LOWPASS_DATABASE_URL"
NEWEST = newest(SQLITE)


def policy(upstream: Upstream) -> dict[str, Any]:
    return {
        "version": 1,
        "targets": {"plain": target(upstream.url, "normal"), "broken": target(upstream.url, "error-500")},
        "routes": {"auto": ordered("plain"), "other": ordered("broken", "plain")},
        "budgets": [
            {"id": "day", "limit_usd": 1_000, "window": "day"},
            {"id": "thoughts", "limit_thinking_tokens": 1_000_000, "window": "hour"},
        ],
    }


@contextmanager
def busy(gateway: Gateway) -> Iterator[None]:
    """Clients that go on asking."""
    stop = threading.Event()

    def ask(number: int) -> None:
        while not stop.is_set():
            gateway.chat(("auto", "other")[number % 2], stream=number > 1)

    crowd = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in crowd:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in crowd:
            thread.join(10)


def told(gateway: Gateway, *command: str) -> Any:
    status, output = gateway.lowpass("ledger", *command, "--json")
    assert status == 0, output
    return json.loads(output)


def test_a_busy_ledger_is_sound_and_so_is_its_copy(tmp_path: Path, upstream: Upstream) -> None:
    with serving(tmp_path / "one", policy(upstream)) as gateway, busy(gateway):
        until(lambda: len(gateway.rows("SELECT id FROM requests")) > 50)
        (known,) = told(gateway, "verify")
        assert (known["sound"], known["requests"] > 50, known["findings"]) == (True, True, [])
        copied = told(gateway, "backup", str(tmp_path / "copy"))
        assert copied["rows"]["requests"] >= known["requests"]
    other = Gateway(tmp_path / "other", "")
    status, output = other.lowpass("ledger", "restore", str(tmp_path / "copy"))
    assert status == 0, output
    (known,) = told(other, "verify")
    assert (known["sound"], known["requests"]) == (True, copied["rows"]["requests"]), known["findings"]


@pytest.mark.parametrize("redis", [False, True], ids=["budgets here", "budgets in Redis"])
def test_a_ledger_in_a_server_moves_to_a_file(
    tmp_path: Path, upstream: Upstream, postgres: Server, redis: bool
) -> None:
    with RedisProcess() as server:
        urls = {DATABASE: postgres.empty()} | ({"LOWPASS_REDIS_URL": server.url.reveal()} if redis else {})
        with serving(tmp_path / "one", policy(upstream), urls) as gateway:
            for route in ("auto", "other") * 3:
                assert gateway.chat(route).status == 200
            known = told(gateway, "verify")
            assert [one["ledger"].partition(":")[0] for one in known] == ["postgresql", *[str(gateway.ledger)][redis:]]
            assert [(one["sound"], one["findings"]) for one in known] == [(True, [])] * len(known)
            assert known[0]["attempts"] == 9
            about = told(gateway, "info")
            assert (about["version"], about["requests"], about["packed"]) == (NEWEST, 6, 0)
            assert about["bytes"] > 10_000
            told(gateway, "backup", str(tmp_path / "copy"))
    other = Gateway(tmp_path / "other", "")
    assert other.lowpass("ledger", "restore", str(tmp_path / "copy"))[0] == 0
    (known,) = told(other, "verify")
    assert (known["requests"], known["attempts"], known["findings"]) == (6, 9, [])
    again = other.lowpass("report", "spend", "--by", "route", "--json")
    assert (again[0], json.loads(again[1])["totals"]["requests"]) == (0, 6)


def test_info(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path, "")
    ledger = SqliteLedger(gateway.ledger)
    ledger.migrate()
    assert told(gateway, "info")["oldest_ms"] is None
    for rows in ROWS:
        put_all(ledger, rows)
        pack(ledger, NOW_MS)
    about = told(gateway, "info")
    assert (about["requests"], about["packed"], about["expired"], about["segments"]) == (110, 90, 0, 1)
    assert (about["rows"]["requests"], about["rows"]["segments"]) == (20, 1)
    assert about["oldest_ms"] == ROWS[0][0].started_ms
    assert about["bytes"] == gateway.ledger.stat().st_size
    assert about["bytes_per_request"] == about["bytes"] / 110
    status, output = gateway.lowpass("ledger", "info")
    lines = {line[:28].strip(): line[28:] for line in output.splitlines()}
    assert status == 0
    assert (lines["requests"], lines["expired until"], lines["version"]) == ("110", "-", str(NEWEST))
    assert lines["oldest"].endswith(" UTC")


def test_migrate(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path, "")
    for command, says in (
        (["migrate"], f"version {NEWEST}, was 0"),
        (["migrate"], f"version {NEWEST}, as before"),
        (["migrate", "--to", str(NEWEST - 1)], f"version {NEWEST - 1}, was {NEWEST}"),
        (["migrate"], f"version {NEWEST}, was {NEWEST - 1}"),
    ):
        assert gateway.lowpass("ledger", *command) == (0, f"{gateway.ledger}: {says}\n")
    put_all(SqliteLedger(gateway.ledger), ROWS[1])
    status, output = gateway.lowpass("ledger", "migrate", "--to", "9")
    assert (status, "--lose-data gives them up" in output, output.count("\n")) == (1, True, 1), output
    assert gateway.lowpass("ledger", "migrate", "--to", "9", "--lose-data")[0] == 0
    status, output = gateway.lowpass("ledger", "migrate", "--to", str(NEWEST + 1))
    assert (status, f"no version {NEWEST + 1}" in output) == (1, True), output


@pytest.mark.parametrize("command", ["verify", "info", "backup"])
def test_there_is_nothing_to_look_at_yet(tmp_path: Path, command: str) -> None:
    gateway = Gateway(tmp_path, "")
    status, output = gateway.lowpass("ledger", command, *([str(tmp_path / "copy")] if command == "backup" else []))
    assert (status, output) == (1, f"lowpass: there is no ledger at {gateway.ledger} yet: `lowpass serve` makes it\n")
    assert not gateway.ledger.exists()
