"""Ledgers of every version are brought up and back; gateways of two versions at one ledger, under load."""

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from router.ledger.ledger import Ledger, SqliteLedger
from router.ledger.migrate import FIRST, SQLITE, LedgerTooNew, LedgerTooOld, WouldLose, newest
from router.testing import lowpass
from router.testing.upstream import Upstream
from router.types.account import LedgerUnavailable
from tests.gateway.running import ROOT, Process, until
from tests.ledger.books import found
from tests.ledger.plain import attempt, key, put, request
from tests.ledger.test_gateway import policy
from tests.postgres import Server
from tests.stores import Make
from tests.tables import data, each_row

NEWEST = newest(SQLITE)
Schema = list[tuple[Any, ...]]
_SCHEMA = data(__file__, "schema.yaml")
"""Tables, then indexes and triggers."""


def schema(ledger: Ledger) -> Schema:
    with ledger.reading(any_version=True) as connection:
        return [tuple(row) for query in _SCHEMA[ledger.dialect.name] for row in connection.execute(query)]


def rows(ledger: Ledger) -> dict[str, list[dict[str, Any]]]:
    orders = {"requests": "id", "attempts": "request_id, number", "bookings": "request_id, account", "keys": "id"}
    orders |= {"budget_windows": "budget", "outcomes": "position", "live_decisions": "id", "taints": "session"}
    return {table: found(ledger, f"SELECT * FROM {table} ORDER BY {order}") for table, order in orders.items()}  # noqa: S608


@pytest.fixture
def filled(ledger: Ledger) -> Ledger:
    return fill(ledger)


def fill(ledger: Ledger) -> Ledger:
    for identifier in ("r1", "r2"):
        put(ledger, "requests", **request(identifier))
        put(ledger, "attempts", **attempt(identifier))
    put(ledger, "decisions", id="r1", decided_ms=1, policy="p", document="{}")
    put(ledger, "keys", **key())
    return ledger


def test_down_and_up_again_everything_is_as_it_was(filled: Ledger) -> None:
    before = schema(filled), rows(filled)
    for version in range(NEWEST - 1, FIRST - 1, -1):
        assert filled.migrate(version) == version == filled.version()
    for _ in range(2):
        assert filled.migrate() == NEWEST
        assert (schema(filled), rows(filled)) == before
        assert filled.migrate(FIRST) == FIRST


def test_what_a_version_has_no_place_for_is_given_up_only_when_asked(new_ledger: Make) -> None:
    ledger = fill(new_ledger())
    put(ledger, "previous_secrets", hash="h", key_id="k", until_ms=1)
    before, content = schema(ledger), rows(ledger)
    with pytest.raises(WouldLose, match=r"version 14 has no place for secrets of keys .* --lose-data"):
        ledger.migrate(FIRST)
    assert (schema(ledger), rows(ledger), ledger.version()) == (before, content, NEWEST)
    assert (ledger.migrate(FIRST, lose_data=True), ledger.migrate()) == (FIRST, NEWEST)
    assert (schema(ledger), rows(ledger)) == (before, content)


@each_row("version", [0, FIRST - 1, NEWEST + 1])
def test_there_are_no_other_versions(ledger: Ledger, version: int) -> None:
    with pytest.raises(ValueError, match=f"no version {version}"):
        ledger.migrate(version)
    assert ledger.version() == NEWEST


def test_an_older_ledger_is_told_from_a_broken_one(ledger: Ledger) -> None:
    ledger.migrate(NEWEST - 1)
    with pytest.raises(LedgerTooOld, match=f"has version {NEWEST - 1} .* needs {NEWEST}: run `lowpass ledger migrate`"):
        found(ledger, "SELECT 1")
    with pytest.raises(LedgerUnavailable), ledger.reading():
        pass
    ledger.migrate()
    assert found(ledger, "SELECT 1 AS one") == [{"one": 1}]


def test_what_was_never_released_is_left_alone(new_sqlite: SqliteLedger) -> None:
    put(new_sqlite, "keys", **key())
    with new_sqlite.writing() as connection:
        connection.execute(f"PRAGMA user_version = {FIRST - 1}")
    for words in (["ledger", "migrate"], ["report"], ["keys", "list"]):
        done = lowpass(new_sqlite.path.parent, *words)
        assert (done.status, done.output.count("\n"), "begin a new ledger" in done.output) == (1, 1, True), done


def test_commands_on_an_older_ledger_say_what_to_do_or_bring_it_up(new_sqlite: SqliteLedger) -> None:
    new_sqlite.migrate(NEWEST - 1)
    for words in (["report"], ["ledger", "verify"], ["ledger", "info"]):
        done = lowpass(new_sqlite.path.parent, *words)
        assert (done.status, done.output.count("\n")) == (1, 1), done
        assert all(text in done.output for text in (f"has version {NEWEST - 1}", "run `lowpass ledger migrate`")), done
    assert lowpass(new_sqlite.path.parent, "keys", "list").status == 0
    assert new_sqlite.version() == NEWEST


def test_a_newer_ledger_is_left_alone(ledger: Ledger) -> None:
    with ledger.writing() as connection:
        if isinstance(ledger, SqliteLedger):
            connection.execute(f"PRAGMA user_version = {NEWEST + 1}")
        else:
            connection.execute("UPDATE schema_version SET version = version + 1")
        connection.execute("UPDATE compatible SET version = ?", (NEWEST + 1,))
    with pytest.raises(LedgerTooNew, match="install a newer one"):
        ledger.migrate()
    if isinstance(ledger, SqliteLedger):
        for words in (["ledger", "migrate"], ["ledger", "info"], ["keys", "list"]):
            done = lowpass(ledger.path.parent, *words)
            assert (done.status, done.output.count("\n"), "install a newer one" in done.output) == (1, 1, True), done


ADDS = """
CREATE TABLE added (id TEXT PRIMARY KEY) WITHOUT ROWID;
ALTER TABLE live_requests ADD COLUMN added TEXT NOT NULL DEFAULT '';
ALTER TABLE past_requests ADD COLUMN added TEXT;
ALTER TABLE keys ADD COLUMN added BIGINT;
ALTER TABLE bookings ADD COLUMN added BIGINT;
ALTER TABLE live_decisions ADD COLUMN added BIGINT;
"""
CHANGES = "ALTER TABLE bookings ADD COLUMN added BIGINT; UPDATE compatible SET version = 999;"


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The code as it is, to which a test adds a migration."""
    place = tmp_path_factory.mktemp("next")
    for name in ("router", "adapters", "local_serving", "policies", "engines"):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, place / name, ignore=shutil.ignore_patterns("__pycache__"))
    return place


def next_version(packages: Path, script: str) -> Path:
    folder = packages / "router" / "ledger" / "migrations"
    (folder / f"{NEWEST + 1:04}_next.sql").write_text(script)
    (folder / f"{NEWEST + 1:04}_next.down.sql").write_text("DROP TABLE IF EXISTS added;")
    return packages


@contextmanager
def load(gateway: Process) -> Iterator[list[int]]:
    """Two clients; while it is down they ask again."""
    done, statuses = Event(), list[int]()

    def ask(number: int) -> None:
        while not done.wait(0.01):
            try:
                reply = gateway.chat("streams" if number else "auto", stream=bool(number))
            except (OSError, HTTPException):
                continue
            # On a machine so busy that another process keeps the ledger for seconds, clients ask again.
            if reply.status != 503:
                statuses.append(reply.status)

    with ThreadPoolExecutor(2) as pool:
        work = [pool.submit(ask, number) for number in range(2)]
        try:
            yield statuses
        finally:
            done.set()
    for client in work:
        client.result()


@each_row("place", ["file", "server"])
def test_the_version_before_goes_on_starts_again_and_comes_back(
    tmp_path: Path, upstream: Upstream, packages: Path, postgres: Server, place: str
) -> None:
    environ = {} if place == "file" else {"LOWPASS_DATABASE_URL": postgres.empty()}
    code = next_version(packages, ADDS)
    old = Process(tmp_path / "home", policy(upstream.url), environ).start()
    new = Process(tmp_path / "home", policy(upstream.url), environ, code)
    new.log = tmp_path / "new.log"
    with load(old) as statuses:
        until(lambda: len(statuses) > 10)
        new.start()
        with load(new) as others:
            until(lambda: len(others) > 10)
            old.kill()
            old.start()
            before = len(statuses)
            until(lambda: len(statuses) > before + 10)
        new.stop()
        before = len(statuses)
        until(lambda: len(statuses) > before + 10)
    assert {*statuses, *others} == {200}
    # What was killed between two commits is mended a lease and a minute later at most.
    until(lambda: old.lowpass("ledger", "verify")[0] == 0, 180)
    old.stop()
    assert old.lowpass("ledger", "upkeep")[0] == 0
    status, output = old.lowpass("ledger", "verify")
    assert (status, output.splitlines()[-1].endswith(": ok")) == (0, True), output
    assert f"version{'':<21}{NEWEST + 1}" in old.lowpass("ledger", "info")[1]
    status, output = old.lowpass("ledger", "backup", str(tmp_path / "copy"))
    assert (status, "newer lowpass" in output) == (1, True), output


def test_a_change_that_the_version_before_can_not_bear_keeps_it_out(
    tmp_path: Path, upstream: Upstream, packages: Path
) -> None:
    new = Process(tmp_path / "home", policy(upstream.url), code=next_version(packages, CHANGES)).start()
    assert new.chat("auto").status == 200
    new.stop()
    old = Process(tmp_path / "home", policy(upstream.url))
    process = old.popen("serve", "--policy", str(old.policy), "--port", "0")
    output = process.communicate(timeout=60)[0].decode()
    assert (process.returncode, "install a newer one" in output) == (1, True), output
