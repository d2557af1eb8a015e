"""`lowpass ledger` and its neighbours on files: sound ones, none yet, and those that can't be used: each says why."""

import json
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from router.ledger import journal
from router.ledger.ledger import SqliteLedger
from router.ledger.migrate import SQLITE, newest
from router.testing import Done, lowpass
from router.types.account import LedgerUnavailable
from tests.gateway.running import target
from tests.ledger.plain import FRESH, NOW_MS, OLD, made, move, put_all
from tests.tables import each_row

NEWEST = newest(SQLITE)
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
    put_all(SqliteLedger(file), FRESH)
    done = lowpass(tmp_path, "ledger", "migrate", "--to", "9")
    assert (done.status, "--lose-data gives them up" in done.output, done.output.count("\n")) == (1, True, 1), done
    assert lowpass(tmp_path, "ledger", "migrate", "--to", "9", "--lose-data").status == 0
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
