"""The process that keeps the ledger in order: there while there is something to do, killed at any moment."""

import asyncio
import logging
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec import structs

from router.ledger.ledger import SqliteLedger
from router.ledger.postgres import PostgresLedger
from router.ledger.rows import RequestRecord
from router.ledger.upkeep import needed
from router.settings import SettingError, read
from router.testing import lowpass
from router.types.clock import now_ms
from router.types.target import Secret
from router.workers.background import Upkeep
from tests.gateway.running import until
from tests.ledger.books import found
from tests.ledger.drawn import DAY_MS, WHOLE, booked, contents, fill, kept, windows
from tests.ledger.test_past import at
from tests.postgres import Server


def home(path: Path, count: int) -> SqliteLedger:
    """A ledger of so many old requests, in the folder that LOWPASS_HOME names."""
    ledger = SqliteLedger(path / "lowpass.db")
    ledger.migrate()
    fill(ledger, old(count))
    return ledger


def old(count: int) -> list[RequestRecord]:
    """Older than anything that is kept, on any day on which the test runs."""
    return [at(one, one.started_ms - 10 * 365 * DAY_MS) for one in kept(range(count))]


def start(path: Path, **settings: str) -> "subprocess.Popen[bytes]":
    environ, command = {**os.environ, "LOWPASS_HOME": str(path), **settings}, (sys.executable, "-m")
    pipe = subprocess.PIPE
    return subprocess.Popen((*command, "router.ledger.upkeep"), env=environ, stdin=pipe, stderr=pipe)


@contextmanager
def locked(path: Path, how: str) -> Iterator[None]:
    locker = sqlite3.connect(path / "lowpass.db", isolation_level=None)
    locker.execute(f"BEGIN {how}")
    yield
    locker.close()


def test_killed_at_any_moment_it_leaves_everything_countable(tmp_path: Path) -> None:
    ledger = home(tmp_path, 1500)
    before = contents(ledger, WHOLE[:4])
    for moment in ("past_requests) > 0", "past_requests) > 700", "hourly_attempts) > 0"):
        process, query = start(tmp_path), f"SELECT 1 WHERE (SELECT COUNT(*) FROM {moment}"  # noqa: S608
        until(lambda: process.poll() is not None or found(ledger, query), 60)  # noqa: B023 - called at once
        process.kill()
        process.communicate()
        assert contents(ledger, WHOLE[:4]) == before
    with start(tmp_path) as last:
        until(lambda: not needed(ledger, now_ms(), None), 60)
        last.kill()
    assert contents(ledger, WHOLE[:4]) == before
    assert found(ledger, "SELECT id FROM live_requests") == []
    assert found(ledger, "SELECT COUNT(*) AS moved FROM past_requests") == [{"moved": 1500}]


def test_it_ends_with_its_parent(tmp_path: Path) -> None:
    """It waits for a lock here, or it would be done first."""
    home(tmp_path, 3)
    with locked(tmp_path, "EXCLUSIVE"), start(tmp_path) as process:
        assert process.communicate()[1] == b""
        assert process.returncode == 1


def test_a_locked_ledger_is_left_as_it_was_and_the_reason_told_in_one_line(tmp_path: Path) -> None:
    ledger = home(tmp_path, 3)
    with locked(tmp_path, "IMMEDIATE"), start(tmp_path) as process:
        assert process.wait(60) == 1
        assert process.stderr is not None
        (line,) = process.stderr.read().decode().splitlines()
    assert "lowpass.db" in line
    assert "locked" in line
    assert found(ledger, "SELECT id FROM past_requests") == []


def serve(ledger: SqliteLedger, over: Callable[[], bool]) -> None:
    """As a gateway does it, until then."""

    async def work() -> None:
        upkeep = Upkeep(ledger, None, every_s=0.01)
        upkeep.launch()
        while not over():  # noqa: ASYNC110 - another process does it
            await asyncio.sleep(0.05)
        await upkeep.stop()

    asyncio.run(work())


def test_a_gateway_has_it_kept_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = home(tmp_path, 5)
    monkeypatch.setenv("LOWPASS_HOME", str(tmp_path))
    serve(ledger, lambda: not found(ledger, "SELECT id FROM live_requests"))
    assert found(ledger, "SELECT COUNT(*) AS moved FROM past_requests") == [{"moved": 5}]


def test_a_gateway_says_why_that_can_not_be_done_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("LOWPASS_HOME", str(tmp_path))
    monkeypatch.setenv("LOWPASS_KEEP_ROWS_DAYS", "soon")
    with caplog.at_level(logging.ERROR, "lowpass"):
        serve(home(tmp_path, 5), lambda: len(caplog.records) >= 2)
    assert "LOWPASS_KEEP_ROWS_DAYS=soon is not a number of days" in caplog.messages[0]
    assert "trying again" in caplog.messages[0]


def test_it_can_be_done_by_hand(tmp_path: Path) -> None:
    ledger = home(tmp_path, 5)
    done = lowpass(tmp_path, "ledger", "upkeep")
    assert (done.status, done.out) == (0, "moved 5 requests; dropped the rows of 0\n")
    assert found(ledger, "SELECT id FROM live_requests") == []


def test_a_ledger_apart_from_the_budgets_leaves_their_file_small(tmp_path: Path, postgres: Server) -> None:
    """Of the requests that are in both only sums of bookings are of use here."""
    local, url = home(tmp_path, 0), postgres.database()
    there = PostgresLedger(Secret(url))
    fill(local, [structs.replace(one, attempts=(), decision=None) for one in old(5)])
    fill(there, old(3))
    before = booked(local), windows(local)
    with start(tmp_path, LOWPASS_DATABASE_URL=url) as process:
        until(lambda: not needed(there, now_ms(), None) and not needed(local, now_ms(), 0), 60)
        process.kill()
    assert found(there, "SELECT COUNT(*) AS moved FROM past_requests") == [{"moved": 3}]
    for table in ("live_requests", "past_requests", "past_attempts", "past_bookings"):
        assert found(local, f"SELECT 1 FROM {table}") == []  # noqa: S608
    assert (booked(local), windows(local)) == before


def test_a_ledger_that_was_here_before_keeps_its_rows(tmp_path: Path, postgres: Server) -> None:
    local, url = home(tmp_path, 20), postgres.database()
    before = contents(local, WHOLE[:2])
    with start(tmp_path, LOWPASS_DATABASE_URL=url) as process:
        until(lambda: found(local, "SELECT 1 FROM past_requests") and not needed(local, now_ms(), None), 60)
        process.kill()
    assert contents(local, WHOLE[:2]) == before


def test_days_that_rows_are_kept() -> None:
    environ = {"LOWPASS_HOME": "/nowhere"}
    for days, kept_ms in (("", None), ("1", DAY_MS), ("400", 400 * DAY_MS)):
        assert read(environ | {"LOWPASS_KEEP_ROWS_DAYS": days}).keep_rows_ms == kept_ms
    for days in ("0", "-1", "1.5", "a week", "²"):
        with pytest.raises(SettingError, match="LOWPASS_KEEP_ROWS_DAYS"):
            read(environ | {"LOWPASS_KEEP_ROWS_DAYS": days})
