"""The process that packs beside a gateway: started when there is something to do, killed at any moment."""

import asyncio
import logging
import os
import random
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from router.cli import app
from router.ledger.kept import Kept
from router.ledger.ledger import SqliteLedger
from router.ledger.postgres.ledger import PostgresLedger
from router.settings import SettingError, read
from router.types.secret import Secret
from router.workers import Packer
from tests.ledger.books import found
from tests.ledger.packed.asked import WHOLE, answers, booked, everything, windows
from tests.ledger.packed.drawn import DAY_MS, fill, kept
from tests.ledger.packed.test_pack import at
from tests.postgres import Server

PROCESS = (sys.executable, "-m", "router.workers.packing")
PATIENCE_S = 50


def home(path: Path, count: int) -> SqliteLedger:
    """A ledger of so many old requests, in the folder that LOWPASS_HOME names."""
    ledger = SqliteLedger(path / "lowpass.db")
    ledger.migrate()
    fill(ledger, old(count))
    return ledger


def old(count: int) -> list[Kept]:
    """Whatever day it is today."""
    return [at(one, one.started_ms - 10 * 365 * DAY_MS) for one in kept(range(count))]


def start(path: Path, **settings: str) -> "subprocess.Popen[bytes]":
    environ = {**os.environ, "LOWPASS_HOME": str(path), **settings}
    return subprocess.Popen(PROCESS, env=environ, stdin=subprocess.PIPE, stderr=subprocess.PIPE)


def test_killed_at_any_moment_it_leaves_everything_countable(tmp_path: Path) -> None:
    ledger, dice = home(tmp_path, 1500), random.Random(7)  # noqa: S311 - any moment will do
    before = answers(ledger, WHOLE[:4]), booked(ledger), windows(ledger), everything(ledger)
    for _ in range(3):
        process = start(tmp_path)
        while process.poll() is None and not found(ledger, "SELECT segment FROM segment_parts LIMIT 1"):
            time.sleep(0.005)
        time.sleep(dice.random() / 10)
        process.kill()
        process.communicate()
        assert (answers(ledger, WHOLE[:4]), booked(ledger), windows(ledger), everything(ledger)) == before
    last = start(tmp_path)
    assert last.wait(PATIENCE_S) == 0
    last.communicate()
    assert (answers(ledger, WHOLE[:4]), booked(ledger), windows(ledger), everything(ledger)) == before
    assert found(ledger, "SELECT id FROM requests") == []
    assert found(ledger, "SELECT SUM(requests) AS packed, MIN(cleared) AS cleared FROM segments") == [
        {"packed": 1500, "cleared": 1}
    ]


def test_it_ends_with_its_parent(tmp_path: Path) -> None:
    """It waits for a lock here, or it would be done first."""
    home(tmp_path, 3)
    locker = sqlite3.connect(tmp_path / "lowpass.db", isolation_level=None)
    locker.execute("BEGIN EXCLUSIVE")
    with start(tmp_path) as process:
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(PATIENCE_S) == 1
        assert process.stderr is not None
        assert process.stderr.read() == b""
    locker.close()


def test_a_locked_ledger_is_left_as_it_was_and_the_reason_told_in_one_line(tmp_path: Path) -> None:
    ledger = home(tmp_path, 3)
    locker = sqlite3.connect(tmp_path / "lowpass.db", isolation_level=None)
    locker.execute("BEGIN IMMEDIATE")
    with start(tmp_path) as process:
        assert process.wait(PATIENCE_S) == 1
        assert process.stderr is not None
        said = process.stderr.read()
    locker.close()
    (line,) = said.decode().splitlines()
    assert "lowpass.db" in line
    assert "locked" in line
    assert found(ledger, "SELECT number FROM segments") == []


def test_a_gateway_has_it_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = home(tmp_path, 5)
    monkeypatch.setenv("LOWPASS_HOME", str(tmp_path))

    async def serve() -> None:
        packer = Packer(ledger, None, every_s=0.01)
        packer.launch()
        while found(ledger, "SELECT id FROM requests"):  # noqa: ASYNC110 - another process does it
            await asyncio.sleep(0.05)
        await packer.stop()

    asyncio.run(serve())
    assert found(ledger, "SELECT requests FROM segments") == [{"requests": 5}]


def test_a_gateway_says_why_it_can_not_be_packed_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = home(tmp_path, 5)
    monkeypatch.setenv("LOWPASS_HOME", str(tmp_path))
    monkeypatch.setenv("LOWPASS_KEEP_ROWS_DAYS", "soon")

    async def serve() -> None:
        packer = Packer(ledger, None, every_s=0.01)
        packer.launch()
        while len(caplog.records) < 2:  # noqa: ASYNC110 - logging knows no events
            await asyncio.sleep(0.05)
        await packer.stop()

    with caplog.at_level(logging.ERROR, "lowpass"):
        asyncio.run(serve())
    assert "LOWPASS_KEEP_ROWS_DAYS=soon is not a number of days" in caplog.messages[0]
    assert "trying again" in caplog.messages[0]


def test_it_can_be_done_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = home(tmp_path, 5)
    monkeypatch.setenv("LOWPASS_HOME", str(tmp_path))
    first = CliRunner().invoke(app, ["ledger", "pack"])
    assert (first.exit_code, first.stdout) == (0, "packed 5 requests; the rows of 0 segments have expired\n")
    assert found(ledger, "SELECT id FROM requests") == []


def test_a_ledger_apart_from_the_budgets_leaves_their_file_small(
    tmp_path: Path, postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the requests that are in both only sums of bookings are of use here."""
    local, url = home(tmp_path, 5), postgres.database()
    fill(PostgresLedger(Secret(url)), old(3))
    before = booked(local), windows(local)
    with start(tmp_path, LOWPASS_DATABASE_URL=url) as process:
        assert process.wait(PATIENCE_S) == 0
    assert found(PostgresLedger(Secret(url)), "SELECT requests, expired_ms FROM segments") == [
        {"requests": 3, "expired_ms": None}
    ]
    assert found(local, "SELECT id FROM requests") == []
    assert found(local, "SELECT part FROM segment_parts WHERE part LIKE 'rows.%'") == []
    assert (booked(local), windows(local)) == before


@pytest.mark.parametrize(("given", "days"), [("", None), ("1", 1), ("400", 400)])
def test_days_that_rows_are_kept(tmp_path: Path, given: str, days: int | None) -> None:
    settings = read({"LOWPASS_HOME": str(tmp_path), "LOWPASS_KEEP_ROWS_DAYS": given})
    assert settings.keep_rows_ms == (None if days is None else days * 86_400_000)


@pytest.mark.parametrize("given", ["0", "-1", "1.5", "a week", "²"])
def test_what_is_no_number_of_days_is_refused(tmp_path: Path, given: str) -> None:
    with pytest.raises(SettingError, match="LOWPASS_KEEP_ROWS_DAYS"):
        read({"LOWPASS_HOME": str(tmp_path), "LOWPASS_KEEP_ROWS_DAYS": given})
