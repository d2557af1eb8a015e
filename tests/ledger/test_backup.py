"""Copies of a ledger in one file, and the other commands about it."""

import gzip
import json
import os
import resource
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from router.ledger import journal
from router.ledger.backup import BackupBroken, NotEmpty, backup, check, restore
from router.ledger.ledger import Ledger, SqliteLedger
from router.ledger.migrate import FIRST, SQLITE, LedgerTooNew, newest, tables
from router.ledger.postgres import PostgresLedger
from router.testing import Done, lowpass
from router.types.account import LedgerUnavailable
from router.types.target import Secret
from tests.gateway.running import ROOT, target
from tests.ledger.books import found
from tests.ledger.plain import (
    FRESH,
    NOW_MS,
    OLD,
    Row,
    attempt,
    booking,
    child,
    key,
    made,
    move,
    outcome,
    put,
    put_all,
    request,
)
from tests.postgres import Server
from tests.tables import data, each_row

NEWEST = newest(SQLITE)


def rows(ledger: Ledger) -> dict[str, list[tuple[Any, ...]]]:
    """Of all tables, in no order; without windows that are empty."""
    content = {}
    for table in tables(ledger.version()):
        query = f"SELECT {', '.join(table.columns)} FROM {table.name}"  # noqa: S608 - names of tables
        content[table.name] = sorted((tuple(row.values()) for row in found(ledger, query)), key=repr)
    return content


ROWS: dict[str, Row] = data(__file__, "others.yaml") | {
    "children": child(closed_ms=5),
    "keys": key(min_class="pii", routes='["a"]'),
    "outcomes": outcome(weight=1.0, score=0.5),
    "instance": {"id": 1, "secret": "s" * 64},
    "dictionaries": {"id": 1, "policy": "p", "data": bytes(range(256)) * 500},
}


@pytest.fixture
def filled(ledger: Ledger) -> Ledger:
    """With something in every table, and everything that a value can be."""
    for at, name in enumerate(("r1", "r2", "r3 \u202e 'ö\n")):
        put(ledger, "requests", **request(name, cost=2**59 + at, error=None if at else "x", difficulty=0.1 + at))
        put(ledger, "attempts", **attempt(name, cost=2**59 + at, verdict=1 / 3, units='{"web_search":2}'))
        put(ledger, "decisions", id=name, decided_ms=at, policy="p", document='{"id": "ü"}')
        put(ledger, "bookings", **booking(name, held=9 + at, state="settled", charged=at or None))
    for table, row in ROWS.items():
        put(ledger, table, **row)
    put_all(ledger, OLD[:20])
    assert move(ledger) >= 20
    return ledger


@pytest.fixture(params=["sqlite", "postgres"])
def empty(request: pytest.FixtureRequest, other: SqliteLedger) -> Ledger:
    if request.param == "sqlite":
        return other
    server: Server = request.getfixturevalue("postgres")
    return PostgresLedger(Secret(server.empty()))


@pytest.fixture
def other(tmp_path: Path) -> SqliteLedger:
    (tmp_path / "other").mkdir()
    return SqliteLedger(tmp_path / "other" / "lowpass.db")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return tmp_path / "copy"


def test_everything_comes_back_wherever_it_goes(filled: Ledger, empty: Ledger, copy: Path) -> None:
    before = rows(filled)
    assert all(before[table] for table in ROWS)
    copied = backup(filled, copy)
    assert (copied.version, copied.rows["past_requests"], copied.rows["dictionaries"]) == (NEWEST, 23, 2)
    assert copy.stat().st_mode & 0o777 == 0o600
    restore(empty, copy)
    after = rows(empty)
    if (filled.dialect, empty.dialect) != (SQLITE, SQLITE):
        # Sums are kept where the budgets are: they come from the bookings there.
        before.pop("budget_windows"), after.pop("budget_windows")
    assert after == before
    assert empty.version() == NEWEST
    # The log of outcomes goes on after the last one.
    put(empty, "outcomes", **outcome("r2"))
    first, second = found(empty, "SELECT position FROM outcomes ORDER BY request_id")
    assert first["position"] < second["position"]


def test_sums_of_windows_are_those_of_the_bookings_that_were_restored(
    new_sqlite: SqliteLedger, other: SqliteLedger, copy: Path
) -> None:
    with new_sqlite.writing() as connection:
        connection.execute("BEGIN")
        for at in range(3_000):
            connection.execute("INSERT INTO bookings VALUES (?, 'day', ?, 9, ?, 'settled')", (f"r{at:05}", at % 3, at))
        connection.execute("COMMIT")
    backup(new_sqlite, copy)
    restore(other, copy)
    assert rows(other) == rows(new_sqlite)
    assert found(other, "SELECT SUM(spent) AS spent FROM budget_windows") == [{"spent": sum(range(3_000))}]


def test_what_is_there_is_not_written_over(filled: Ledger, copy: Path) -> None:
    copy.write_text("mine")
    with pytest.raises(FileExistsError):
        backup(filled, copy)
    assert copy.read_text() == "mine"
    copy.unlink()
    backup(filled, copy)
    before = rows(filled)
    with pytest.raises(NotEmpty, match=r"is not empty \(\w+: \d+\).* LOWPASS_HOME or LOWPASS_DATABASE_URL"):
        restore(filled, copy)
    assert rows(filled) == before


def test_a_ledger_that_was_only_started_counts_as_empty(filled: Ledger, empty: Ledger, copy: Path) -> None:
    empty.migrate()
    put(empty, "instance", id=1, secret="another")
    put(empty, "policies", hash="q", adopted_ms=1, document="{}")
    backup(filled, copy)
    restore(empty, copy)
    assert found(empty, "SELECT secret FROM instance") == [{"secret": "s" * 64}]
    assert rows(empty)["policies"] == rows(filled)["policies"]


def test_an_older_ledger_is_copied_as_it_is_and_brought_up(ledger: Ledger, empty: Ledger, copy: Path) -> None:
    put(ledger, "requests", **request("r1"))
    put(ledger, "attempts", **attempt("r1"))
    ledger.migrate(FIRST)
    assert backup(ledger, copy).version == FIRST
    restore(empty, copy)
    assert empty.version() == newest(SQLITE)
    assert found(empty, "SELECT id, number FROM requests JOIN attempts ON request_id = id") == [
        {"id": "r1", "number": 1}
    ]


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_a_damaged_backup_restores_nothing(
    new_sqlite: SqliteLedger, other: SqliteLedger, tmp_path: Path, data: st.DataObject
) -> None:
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
    with suppress(OSError, EOFError, zlib.error):  # the bits that fill the last byte before the checksum say nothing
        assume(gzip.decompress(broken.read_bytes()) != gzip.decompress(content))
    with pytest.raises(BackupBroken, match="broken"):
        restore(other, broken)
    assert not other.exists()


OTHERS = [b"", b"no backup", *map(gzip.compress, (b"text", b"\x00\x00\x00\x01\x01", b"\xff" * 9))]


@each_row("content", OTHERS, ids=["empty", "text", "packed text", "a number", "noise"])
def test_other_files_are_told_from_backups(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "copy").write_bytes(content)
    with pytest.raises(BackupBroken, match="copy is no backup of a ledger, or not all of one"):
        check(tmp_path / "copy")


def test_a_backup_of_a_newer_ledger_is_left_alone(
    new_sqlite: SqliteLedger, other: SqliteLedger, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backup(new_sqlite, copy)
    monkeypatch.setattr("router.ledger.backup.newest", lambda _: NEWEST - 1)
    with pytest.raises(LedgerTooNew, match="install a newer lowpass"):
        restore(other, copy)
    assert other.version() == 0


def test_there_is_no_backup_of_no_ledger(empty: Ledger, copy: Path) -> None:
    with pytest.raises(LedgerUnavailable, match="`lowpass serve` makes it"):
        backup(empty, copy)
    assert not copy.exists()


def test_a_full_disk_leaves_no_half_of_a_backup(new_sqlite: SqliteLedger, copy: Path) -> None:
    for at in range(100):
        put(new_sqlite, "decisions", id=f"d{at}", decided_ms=1, policy="p", document=os.urandom(1_000).hex())
    command = [sys.executable, "-m", "router.cli", "ledger", "backup", str(copy)]
    environ = os.environ | {"LOWPASS_HOME": str(new_sqlite.path.parent), "PYTHONPATH": str(ROOT)}
    small = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (65_536, 65_536))
    with subprocess.Popen(command, env=environ, stderr=subprocess.PIPE, text=True, preexec_fn=small) as full:
        error = full.communicate()[1]
    assert (full.returncode, error.count("\n")) == (1, 1), error
    assert "copy can't be written: File too large" in error
    assert not copy.exists()


def test_commands(new_sqlite: SqliteLedger, other: SqliteLedger, copy: Path) -> None:
    put(new_sqlite, "requests", **request("r1"))
    for ledger, word, file, status, says in (
        (new_sqlite, "backup", copy, 0, f"{copy}: 4 rows, "),
        (new_sqlite, "backup", copy, 1, "is there already"),
        (new_sqlite, "restore", copy, 1, "is not empty"),
        (other, "restore", copy, 0, "4 rows"),
        (new_sqlite, "restore", copy.with_name("nowhere"), 1, "can't be read"),
    ):
        done = lowpass(ledger.path.parent, "ledger", word, str(file))
        assert (done.status, says in done.output, done.output.count("\n")) == (status, True, 1), done
    assert found(other, "SELECT id FROM requests") == [{"id": "r1"}]


COMMANDS = [["ledger", "verify"], ["ledger", "info"], ["report"], ["ledger", "backup"], ["serve", "--port", "0"]]
PAGE = 4_096


def told(home: Path, *words: str) -> Any:
    done = lowpass(home, "ledger", *words, "--json")
    assert done.status == 0, done
    return json.loads(done.out)


def test_info(new_sqlite: SqliteLedger) -> None:
    home = new_sqlite.path.parent
    assert told(home, "info")["oldest_ms"] is None
    put_all(new_sqlite, OLD)
    move(new_sqlite)
    put_all(new_sqlite, FRESH)
    about = told(home, "info")
    assert (about["requests"], about["past"], about["expired"]) == (110, 90, 0)
    assert (about["rows"]["live_requests"], about["rows"]["past_requests"]) == (20, 90)
    assert about["oldest_ms"] == OLD[0].started_ms
    assert about["bytes"] == new_sqlite.path.stat().st_size
    assert about["bytes_per_request"] == about["bytes"] / 110
    done = lowpass(home, "ledger", "info")
    lines = {line[:28].strip(): line[28:] for line in done.out.splitlines()}
    assert done.status == 0
    assert (lines["requests"], lines["expired until"], lines["version"]) == ("110", "-", str(NEWEST))
    assert lines["oldest"].endswith(" UTC")


def test_migrate(tmp_path: Path) -> None:
    file = tmp_path / "lowpass.db"
    for options, says in (
        ([], f"version {NEWEST}, was 0"),
        ([], f"version {NEWEST}, as before"),
        (["--to", str(NEWEST - 1)], f"version {NEWEST - 1}, was {NEWEST}"),
        ([], f"version {NEWEST}, was {NEWEST - 1}"),
    ):
        done = lowpass(tmp_path, "ledger", "migrate", *options)
        assert (done.status, done.output) == (0, f"{file}: {says}\n")
    put(SqliteLedger(file), "previous_secrets", hash="h", key_id="k", until_ms=1)
    down = ("ledger", "migrate", "--to", str(FIRST))
    done = lowpass(tmp_path, *down)
    assert (done.status, "--lose-data gives them up" in done.output, done.output.count("\n")) == (1, True, 1), done
    assert lowpass(tmp_path, *down, "--lose-data").status == 0
    done = lowpass(tmp_path, "ledger", "migrate", "--to", str(NEWEST + 1))
    assert (done.status, f"no version {NEWEST + 1}" in done.output) == (1, True), done


def run(home: Path, words: list[str]) -> Done:
    more = [str(home / "copy")] if words[-1] == "backup" else []
    if words[0] == "serve":
        policy = {"version": 1, "targets": {"a": target("http://127.0.0.1:9", "x")}, "routes": {}}
        (home / "policy.yaml").write_text(json.dumps(policy))
        more = ["--policy", str(home / "policy.yaml")]
    return lowpass(home, *words, *more)


def refusal(home: Path, words: list[str]) -> str:
    """The one line that a command that can't be done leaves."""
    done = run(home, words)
    assert (done.status, done.output.count("\n")) == (1, 1), done
    return done.output


@each_row("words", [*COMMANDS[:2], COMMANDS[3]])
def test_there_is_nothing_to_look_at_yet(tmp_path: Path, words: list[str]) -> None:
    file = tmp_path / "lowpass.db"
    assert refusal(tmp_path, words) == f"lowpass: there is no ledger at {file} yet: `lowpass serve` makes it\n"
    assert not file.exists()


@each_row("words", COMMANDS)
def test_what_is_no_ledger(tmp_path: Path, words: list[str]) -> None:
    file = tmp_path / "lowpass.db"
    for content, why in (
        (b"Dear diary, this is no database.\n" * 200, "it is no ledger, or its beginning is lost"),
        (b"SQLite format 3\x00" + b"\x07" * 5_000, "is"),
    ):
        file.write_bytes(content)
        line = refusal(tmp_path, words)
        assert str(file) in line
        assert why in line
        assert file.read_bytes() == content
    if words != COMMANDS[4]:
        file.unlink()
        with closing(sqlite3.connect(file)) as connection:
            connection.execute("CREATE TABLE songs (name TEXT)")
        assert "there is no ledger in" in refusal(tmp_path, words)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    ledger = SqliteLedger(tmp_path_factory.mktemp("whole") / "lowpass.db")
    ledger.migrate()
    put_all(ledger, made(60, NOW_MS, 1))
    return ledger.path.read_bytes()


def test_pages_of_garbage_are_found_and_the_remedy_is_named(tmp_path: Path, whole: bytes) -> None:
    file, middle = tmp_path / "lowpass.db", len(whole) // 2 // PAGE * PAGE
    file.write_bytes(whole[:middle] + os.urandom(8 * PAGE) + whole[middle + 8 * PAGE :])
    done = lowpass(tmp_path, "ledger", "verify")
    assert done.status == 1
    assert all(str(file) in line for line in done.output.splitlines()), done
    assert "`lowpass ledger restore`" in done.output


@each_row("share", [0.02, 0.3, 0.6, 0.95])
def test_a_file_that_was_cut_off(tmp_path: Path, whole: bytes, share: float) -> None:
    file = tmp_path / "lowpass.db"
    file.write_bytes(whole[: int(len(whole) * share) // PAGE * PAGE])
    for words in COMMANDS[:2]:
        done = run(tmp_path, words)
        assert done.status == 1 or words[-1] == "info", done
        assert str(file) in done.output


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "BUSY_MS", 20)


@pytest.mark.usefixtures("_impatient")
def test_a_file_that_another_process_keeps(tmp_path: Path, whole: bytes) -> None:
    (tmp_path / "lowpass.db").write_bytes(whole)
    with closing(sqlite3.connect(tmp_path / "lowpass.db", isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        for words in (["ledger", "verify"], ["ledger", "migrate"], ["keys", "list"]):
            assert "another process keeps it" in refusal(tmp_path, words)


@pytest.fixture
def readable(whole: bytes) -> Iterator[Path]:
    """A file in a folder that this process may read, and not write: root has to be another user for that."""
    folder, user = Path(tempfile.mkdtemp()), os.geteuid()
    file = folder / "lowpass.db"
    file.write_bytes(whole)
    file.chmod(0o444)
    folder.chmod(0o555)
    if user == 0:
        os.seteuid(65_534)
    yield file
    os.seteuid(user)
    folder.chmod(0o755)
    shutil.rmtree(folder)


@pytest.mark.usefixtures("_impatient")
def test_a_file_that_may_only_be_read(whole: bytes, readable: Path) -> None:
    for file in (readable, readable.with_name("other.db")):
        with pytest.raises(LedgerUnavailable, match="let the user of this process write it"):
            SqliteLedger(file).migrate()
    assert readable.read_bytes() == whole
