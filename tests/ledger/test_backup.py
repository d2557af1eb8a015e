"""A backup is the whole ledger as of one moment, in one file that either database takes, or it is refused."""

import gzip
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from router.ledger.backup import BackupBroken, NotEmpty, backup, check, restore
from router.ledger.ledger import Ledger, SqliteLedger
from router.ledger.migrate import SQLITE, LedgerTooNew, newest
from router.ledger.postgres.ledger import PostgresLedger
from router.ledger.schema import tables
from router.types.journal import LedgerUnavailable
from router.types.secret import Secret
from tests.gateway.running import ROOT, Gateway
from tests.ledger.books import found
from tests.ledger.plain import Row, attempt, put, request
from tests.postgres import Server

NEWEST = newest(SQLITE)
Rows = dict[str, list[tuple[Any, ...]]]


def rows(ledger: Ledger) -> Rows:
    """Of all tables, in no order; without windows that are empty."""
    content = {}
    for table in tables(ledger.version()):
        query = f"SELECT {', '.join(table.columns)} FROM {table.name}"  # noqa: S608 - names of tables
        content[table.name] = sorted((tuple(row.values()) for row in found(ledger, query)), key=repr)
    return content


@pytest.fixture
def filled(ledger: Ledger) -> Ledger:
    """With something in every table, and everything that a value can be."""
    for at, identifier in enumerate(("r1", "r2", "r3 \u202e 'ö\n")):
        put(ledger, "requests", **request(identifier, cost=2**62 + at, error=None if at else "x", difficulty=0.1 + at))
        put(ledger, "attempts", **attempt(identifier, cost=2**62 + at, verdict=1 / 3, units='{"web_search":2}'))
        put(ledger, "decisions", id=identifier, decided_ms=at, policy="p", document='{"id": "ü"}')
        booking: Row = {
            "request_id": identifier,
            "account": "day",
            "window_start_ms": 0,
            "held": 9 + at,
            "state": "settled",
        }
        put(ledger, "bookings", **booking, charged=at or None)
    child: Row = {"id": "c1", "parent": "day", "parent_window_ms": 0, "replaces": "[]", "unit": "usd", "size": 3}
    put(ledger, "children", **child, created_ms=1, key_id="", team="", closed_ms=5)
    lists = dict.fromkeys(("routes", "targets", "tags", "scopes"), '["a"]')
    put(ledger, "keys", id="k1", hash="ab", name="one", created_ms=1, budget="", min_class="pii", **lists)
    said: Row = {"request_id": "r1", "attempt": 1, "target": "t", "source": "client", "revision": 0, "weight": 1.0}
    said |= {"was_weight": 0, "decides": 1, "task": "chat", "difficulty": 0.25, "traits": "", "given_ms": 5}
    put(ledger, "outcomes", **said, told_key="", score=0.5)
    put(ledger, "posteriors", name="all", position=1, at_ms=2, state="YQ==")
    put(ledger, "policies", hash="p", adopted_ms=1, document="{}")
    put(ledger, "taints", session="a/b", data_class="pii", firm=1)
    put(ledger, "instance", id=1, secret="s" * 64)
    put(ledger, "alerts", account="day", window_start_ms=1, share=8000)
    put(ledger, "loops", id="s", changed_ms=1, document="{}")
    put(ledger, "incidents", id="i", at_ms=1, kind="k", scope="s", subject="x", reason="r", until_ms=None)
    put(
        ledger,
        "segments",
        number=1,
        previous=0,
        first_id="a",
        last_id="b",
        first_ms=1,
        last_ms=2,
        requests=3,
        cleared=1,
    )
    put(ledger, "segment_parts", segment=1, part="rows.00", data=bytes(range(256)) * 500)
    return ledger


@pytest.fixture(params=["sqlite", "postgres"])
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> Ledger:
    """A place where no ledger is."""
    if request.param == "sqlite":
        return SqliteLedger(tmp_path / "other" / "lowpass.db")
    server: Server = request.getfixturevalue("postgres")
    return PostgresLedger(Secret(server.empty()))


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()


def test_everything_comes_back_wherever_it_goes(filled: Ledger, empty: Ledger, tmp_path: Path) -> None:
    before = rows(filled)
    copied = backup(filled, tmp_path / "copy")
    assert (copied.version, copied.rows["requests"], copied.rows["segments"]) == (NEWEST, 3, 1)
    assert (tmp_path / "copy").stat().st_mode & 0o777 == 0o600
    restore(empty, tmp_path / "copy")
    after = rows(empty)
    if (filled.dialect, empty.dialect) != (SQLITE, SQLITE):
        # Sums are kept where the budgets are: they come from the bookings there.
        before.pop("budget_windows"), after.pop("budget_windows")
    assert after == before
    assert empty.version() == NEWEST


def test_the_log_of_outcomes_goes_on_after_the_last_one(filled: Ledger, empty: Ledger, tmp_path: Path) -> None:
    backup(filled, tmp_path / "copy")
    restore(empty, tmp_path / "copy")
    said: Row = {"request_id": "r2", "attempt": 1, "target": "t", "source": "client", "revision": 0, "weight": 1.0}
    said |= {"was_weight": 0, "decides": 1, "task": "chat", "difficulty": 0.25, "traits": "", "given_ms": 5}
    put(empty, "outcomes", **said, told_key="", score=1.0)
    positions = [row["position"] for row in found(empty, "SELECT position FROM outcomes ORDER BY position")]
    assert len(positions) == 2
    assert positions[0] < positions[1]


def test_sums_of_windows_are_those_of_the_bookings_that_were_restored(new_sqlite: SqliteLedger, tmp_path: Path) -> None:
    with new_sqlite.writing() as connection:
        connection.execute("BEGIN")
        for at in range(3_000):
            connection.execute("INSERT INTO bookings VALUES (?, 'day', ?, 9, ?, 'settled')", (f"r{at:05}", at % 3, at))
        connection.execute("COMMIT")
    backup(new_sqlite, tmp_path / "copy")
    other = SqliteLedger(tmp_path / "other" / "lowpass.db")
    restore(other, tmp_path / "copy")
    assert rows(other) == rows(new_sqlite)
    assert sum(row["spent"] for row in found(other, "SELECT spent FROM budget_windows")) == sum(range(3_000))


def test_what_is_there_is_not_written_over(filled: Ledger, empty: Ledger, tmp_path: Path) -> None:
    (tmp_path / "copy").write_text("mine")
    with pytest.raises(FileExistsError):
        backup(filled, tmp_path / "copy")
    assert (tmp_path / "copy").read_text() == "mine"
    backup(filled, tmp_path / "other copy")
    before = rows(filled)
    with pytest.raises(NotEmpty, match=r"is not empty \(requests: 3\).* LOWPASS_HOME or LOWPASS_DATABASE_URL"):
        restore(filled, tmp_path / "other copy")
    assert rows(filled) == before


def test_a_ledger_that_was_only_started_counts_as_empty(filled: Ledger, empty: Ledger, tmp_path: Path) -> None:
    empty.migrate()
    put(empty, "instance", id=1, secret="another")
    put(empty, "policies", hash="q", adopted_ms=1, document="{}")
    backup(filled, tmp_path / "copy")
    restore(empty, tmp_path / "copy")
    assert found(empty, "SELECT secret FROM instance") == [{"secret": "s" * 64}]
    assert rows(empty)["policies"] == rows(filled)["policies"]


def test_an_older_ledger_is_copied_as_it_is_and_brought_up(ledger: Ledger, empty: Ledger, tmp_path: Path) -> None:
    put(ledger, "requests", **request("r1"))
    put(ledger, "attempts", **attempt("r1"))
    ledger.migrate(8)
    for at, score in enumerate((0.5, 1.0)):
        put(ledger, "feedback", request_id="r1", given_ms=at, score=score, source="client")
    assert backup(ledger, tmp_path / "copy").version == 8
    restore(empty, tmp_path / "copy")
    told = found(empty, "SELECT request_id, attempt, score, was_score FROM outcomes ORDER BY revision")
    assert told == [
        {"request_id": "r1", "attempt": 1, "score": 0.5, "was_score": None},
        {"request_id": "r1", "attempt": 1, "score": 1.0, "was_score": 0.5},
    ]


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_a_damaged_backup_restores_nothing(new_sqlite: SqliteLedger, tmp_path: Path, data: st.DataObject) -> None:
    """Cut off anywhere, or with any byte changed."""
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    if not whole.exists():
        for at in range(20):
            put(new_sqlite, "requests", **request(f"r{at}"))
        backup(new_sqlite, whole)
    content = whole.read_bytes()
    at = data.draw(st.integers(10, len(content) - 1))
    flipped = content[:at] + bytes([content[at] ^ data.draw(st.integers(1, 255))]) + content[at + 1 :]
    broken.write_bytes(data.draw(st.sampled_from([content[:at], flipped])))
    other = SqliteLedger(tmp_path / "other" / "lowpass.db")
    with pytest.raises(BackupBroken, match="broken"):
        restore(other, broken)
    assert not other.exists()


@pytest.mark.parametrize(
    "content",
    [b"", b"no backup", gzip.compress(b"text"), gzip.compress(b"\x00\x00\x00\x01\x01"), gzip.compress(b"\xff" * 9)],
    ids=["empty", "text", "packed text", "a number", "noise"],
)
def test_other_files_are_told_from_backups(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "copy").write_bytes(content)
    with pytest.raises(BackupBroken, match="copy is no backup of a ledger, or not all of one"):
        check(tmp_path / "copy")


def test_a_backup_of_a_newer_ledger_is_left_alone(
    ledger: Ledger, empty: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backup(ledger, tmp_path / "copy")
    monkeypatch.setattr("router.ledger.backup.newest", lambda _: NEWEST - 1)
    with pytest.raises(LedgerTooNew, match="install a newer lowpass"):
        restore(empty, tmp_path / "copy")
    assert empty.version() == 0


def test_there_is_no_backup_of_no_ledger(empty: Ledger, tmp_path: Path) -> None:
    with pytest.raises(LedgerUnavailable, match="`lowpass serve` makes it"):
        backup(empty, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_a_full_disk_leaves_no_half_of_a_backup(new_sqlite: SqliteLedger, tmp_path: Path) -> None:
    for at in range(100):
        put(new_sqlite, "decisions", id=f"d{at}", decided_ms=1, policy="p", document=os.urandom(1_000).hex())
    command = [sys.executable, "-m", "router.cli", "ledger", "backup", str(tmp_path / "copy")]
    environ = os.environ | {"LOWPASS_HOME": str(new_sqlite.path.parent), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, env=environ, capture_output=True, text=True, timeout=30, preexec_fn=_no_large_files, check=False
    )
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert "copy can't be written: File too large" in done.stderr
    assert not (tmp_path / "copy").exists()


def _no_large_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (65_536, 65_536))


@pytest.fixture
def lowpass(new_sqlite: SqliteLedger) -> Callable[..., tuple[int, str]]:
    return Gateway(new_sqlite.path.parent, "").lowpass


def test_commands(lowpass: Callable[..., tuple[int, str]], new_sqlite: SqliteLedger, tmp_path: Path) -> None:
    put(new_sqlite, "requests", **request("r1"))
    copy = str(tmp_path / "copy")
    status, output = lowpass("ledger", "backup", copy)
    assert (status, output.startswith(f"{copy}: 1 rows, ")) == (0, True), output
    status, output = lowpass("ledger", "backup", copy)
    assert (status, "is there already" in output) == (1, True), output
    status, output = lowpass("ledger", "restore", copy)
    assert (status, "is not empty" in output, output.count("\n")) == (1, True, 1), output
    other = Gateway(tmp_path / "other", "")
    status, output = other.lowpass("ledger", "restore", copy)
    assert (status, "1 rows" in output) == (0, True), output
    assert other.rows("SELECT id FROM requests") == [{"id": "r1"}]
    status, output = lowpass("ledger", "restore", str(tmp_path / "nowhere"))
    assert (status, "can't be read" in output, output.count("\n")) == (1, True, 1), output
