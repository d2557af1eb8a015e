"""The process that packs beside a gateway: started when there is something to do, killed at any moment."""

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

from router.ledger.kept import Kept
from router.ledger.ledger import SqliteLedger
from router.ledger.postgres.ledger import PostgresLedger
from router.settings import SettingError, read
from router.testing.cli import lowpass
from router.types.secret import Secret
from router.workers import Packer
from tests.gateway.running import until
from tests.ledger.books import found
from tests.ledger.packed.drawn import DAY_MS, WHOLE, booked, contents, fill, kept, windows
from tests.ledger.packed.test_pack import at
from tests.postgres import Server


def home(path: Path, count: int) -> SqliteLedger:
    """A ledger of so many old requests, in the folder that LOWPASS_HOME names."""
    ledger = SqliteLedger(path / "lowpass.db")
    ledger.migrate()
    fill(ledger, old(count))
    return ledger


def old(count: int) -> list[Kept]:
    """Older than anything that is kept, on any day on which the test runs."""
    return [at(one, one.started_ms - 10 * 365 * DAY_MS) for one in kept(range(count))]


def start(path: Path, **settings: str) -> "subprocess.Popen[bytes]":
    environ, command = {**os.environ, "LOWPASS_HOME": str(path), **settings}, (sys.executable, "-m")
    pipe = subprocess.PIPE
    return subprocess.Popen((*command, "router.workers.packing"), env=environ, stdin=pipe, stderr=pipe)


@contextmanager
def locked(path: Path, how: str) -> Iterator[None]:
    locker = sqlite3.connect(path / "lowpass.db", isolation_level=None)
    locker.execute(f"BEGIN {how}")
    yield
    locker.close()


def test_killed_at_any_moment_it_leaves_everything_countable(tmp_path: Path) -> None:
    ledger = home(tmp_path, 1500)
    before = contents(ledger, WHOLE[:4])
    for moment in ("segment_parts) > 0", "segment_parts) > 60", "requests) < 1500"):
        process, query = start(tmp_path), f"SELECT 1 WHERE (SELECT COUNT(*) FROM {moment}"  # noqa: S608
        until(lambda: process.poll() is not None or found(ledger, query), 60)  # noqa: B023 - called at once
        process.kill()
        process.communicate()
        assert contents(ledger, WHOLE[:4]) == before
    with start(tmp_path) as last:
        assert last.wait(60) == 0
    assert contents(ledger, WHOLE[:4]) == before
    assert found(ledger, "SELECT id FROM requests") == []
    sums = found(ledger, "SELECT SUM(requests) AS packed, MIN(cleared) AS cleared FROM segments")
    assert sums == [{"packed": 1500, "cleared": 1}]


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
    assert found(ledger, "SELECT number FROM segments") == []


def serve(ledger: SqliteLedger, over: Callable[[], bool]) -> None:
    """As a gateway does it, until then."""

    async def work() -> None:
        packer = Packer(ledger, None, every_s=0.01)
        packer.launch()
        while not over():  # noqa: ASYNC110 - another process does it
            await asyncio.sleep(0.05)
        await packer.stop()

    asyncio.run(work())


def test_a_gateway_has_it_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = home(tmp_path, 5)
    monkeypatch.setenv("LOWPASS_HOME", str(tmp_path))
    serve(ledger, lambda: not found(ledger, "SELECT id FROM requests"))
    assert found(ledger, "SELECT requests FROM segments") == [{"requests": 5}]


def test_a_gateway_says_why_it_can_not_be_packed_and_goes_on(
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
    done = lowpass(tmp_path, "ledger", "pack")
    assert (done.status, done.out) == (0, "packed 5 requests; the rows of 0 segments have expired\n")
    assert found(ledger, "SELECT id FROM requests") == []


def test_a_ledger_apart_from_the_budgets_leaves_their_file_small(tmp_path: Path, postgres: Server) -> None:
    """Of the requests that are in both only sums of bookings are of use here."""
    local, url = home(tmp_path, 5), postgres.database()
    fill(PostgresLedger(Secret(url)), old(3))
    before = booked(local), windows(local)
    with start(tmp_path, LOWPASS_DATABASE_URL=url) as process:
        assert process.wait(60) == 0
    segments = found(PostgresLedger(Secret(url)), "SELECT requests, expired_ms FROM segments")
    assert segments == [{"requests": 3, "expired_ms": None}]
    assert found(local, "SELECT id FROM requests") == []
    assert found(local, "SELECT part FROM segment_parts WHERE part LIKE 'rows.%'") == []
    assert (booked(local), windows(local)) == before


def test_days_that_rows_are_kept() -> None:
    def keep_rows_ms(days: str) -> int | None:
        return read({"LOWPASS_HOME": "/nowhere", "LOWPASS_KEEP_ROWS_DAYS": days}).keep_rows_ms

    assert [keep_rows_ms(days) for days in ("", "1", "400")] == [None, DAY_MS, 400 * DAY_MS]
    for days in ("0", "-1", "1.5", "a week", "²"):
        with pytest.raises(SettingError, match="LOWPASS_KEEP_ROWS_DAYS"):
            keep_rows_ms(days)
