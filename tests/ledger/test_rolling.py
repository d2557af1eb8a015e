"""A rolling upgrade: gateways of two versions at one ledger, under load, with restarts of both and the way back."""

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from threading import Event

import pytest

from router.ledger.migrate import SQLITE, newest
from router.testing.upstream import Upstream
from tests.gateway.running import ROOT, Process, until
from tests.ledger.test_gateway import policy
from tests.postgres import Server
from tests.tables import each_row

NEWEST = newest(SQLITE)
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
