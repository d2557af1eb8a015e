"""Files that can't be used: each command says why in one line; and a gateway with a full disk loses nothing."""

import os
import pwd
import resource
import shutil
import socket
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from router.ledger.ledger import SqliteLedger
from router.ledger.verify import verify
from router.types.journal import LedgerUnavailable
from tests.gateway.running import Gateway, Reply, ordered, serving, target, until
from tests.ledger.plain import put_all
from tests.ledger.test_verify import NOW_MS, made
from tests.upstream import Upstream

COMMANDS = [["ledger", "verify"], ["ledger", "info"], ["report"], ["ledger", "backup"], ["serve", "--port", "0"]]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    ledger = SqliteLedger(tmp_path_factory.mktemp("whole") / "lowpass.db")
    ledger.migrate()
    put_all(ledger, made(60, NOW_MS, 1))
    return ledger.path.read_bytes()


@pytest.fixture
def gateway(tmp_path: Path) -> Gateway:
    return Gateway(tmp_path, {"version": 1, "targets": {"a": target("http://127.0.0.1:9", "x")}, "routes": {}})


def run(gateway: Gateway, command: list[str]) -> tuple[int, str]:
    more = [str(gateway.home / "copy")] if command[-1] == "backup" else []
    more += ["--policy", str(gateway.policy)] if command[0] == "serve" else []
    return gateway.lowpass(*command, *more)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"Dear diary, this is no database.\n" * 200, "it is no ledger, or its beginning is lost"),
        (b"SQLite format 3\x00" + b"\x07" * 5_000, "is"),
    ],
    ids=["text", "garbage"],
)
def test_what_is_no_ledger(gateway: Gateway, command: list[str], content: bytes, why: str) -> None:
    gateway.ledger.write_bytes(content)
    status, output = run(gateway, command)
    assert (status, output.count("\n")) == (1, 1), output
    assert str(gateway.ledger) in output
    assert why in output
    assert gateway.ledger.read_bytes() == content


@pytest.mark.parametrize("command", COMMANDS[:4], ids=" ".join)
def test_a_database_of_something_else(gateway: Gateway, command: list[str]) -> None:
    with sqlite3.connect(gateway.ledger) as connection:
        connection.execute("CREATE TABLE songs (name TEXT)")
    connection.close()
    status, output = run(gateway, command)
    assert (status, output.count("\n")) == (1, 1), output
    assert "there is no ledger in" in output


def test_pages_of_garbage_are_found_and_the_remedy_is_named(gateway: Gateway, whole: bytes) -> None:
    middle = len(whole) // 2 // 4_096 * 4_096
    gateway.ledger.write_bytes(whole[:middle] + os.urandom(8 * 4_096) + whole[middle + 8 * 4_096 :])
    status, output = gateway.lowpass("ledger", "verify")
    assert status == 1
    assert all(str(gateway.ledger) in line for line in output.splitlines()), output
    assert "`lowpass ledger restore`" in output
    assert "Traceback" not in output


@pytest.mark.parametrize("share", [0.02, 0.3, 0.6, 0.95])
def test_a_file_that_was_cut_off(gateway: Gateway, whole: bytes, share: float) -> None:
    gateway.ledger.write_bytes(whole[: int(len(whole) * share) // 4_096 * 4_096])
    for command in COMMANDS[:2]:
        status, output = run(gateway, command)
        assert "Traceback" not in output
        assert status == 1 or command[-1] == "info", output
        assert str(gateway.ledger) in output


@pytest.mark.parametrize("command", [["ledger", "verify"], ["ledger", "migrate"], ["keys", "list"]], ids=" ".join)
def test_a_file_that_somebody_keeps_for_himself(gateway: Gateway, whole: bytes, command: list[str]) -> None:
    gateway.ledger.write_bytes(whole)
    other = sqlite3.connect(gateway.ledger, isolation_level=None)
    other.execute("PRAGMA locking_mode = EXCLUSIVE")
    other.execute("BEGIN EXCLUSIVE")
    status, output = run(gateway, command)
    other.close()
    assert (status, output.count("\n")) == (1, 1), output
    assert "another process keeps it" in output


@pytest.fixture
def readable() -> Iterator[Path]:
    """A folder whose files this process may read, and not write: root has to be somebody else for that."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o555)
    user = os.geteuid()
    if user == 0:
        os.seteuid(pwd.getpwnam("nobody").pw_uid)
    yield folder
    os.seteuid(user)
    folder.chmod(0o755)
    shutil.rmtree(folder)


def test_a_file_that_may_only_be_read(whole: bytes, readable: Path) -> None:
    path = readable / "lowpass.db"
    with as_owner(readable):
        path.write_bytes(whole)
        path.chmod(0o444)
    with pytest.raises(LedgerUnavailable, match="let the user of this process write it"):
        SqliteLedger(path).migrate()
    with pytest.raises(LedgerUnavailable, match="let the user of this process write it"):
        SqliteLedger(readable / "other.db").migrate()
    assert path.read_bytes() == whole


@contextmanager
def as_owner(folder: Path) -> Iterator[None]:
    user = os.geteuid()
    os.seteuid(os.getuid())
    folder.chmod(0o755)
    yield
    folder.chmod(0o555)
    os.seteuid(user)


@pytest.fixture
def served(tmp_path: Path, upstream: Upstream) -> Iterator[Gateway]:
    policy = {
        "version": 1,
        "targets": {"plain": target(upstream.url, "normal"), "slow": target(upstream.url, "slow-chunks")},
        "routes": {"auto": ordered("plain"), "streams": ordered("slow")},
        "budgets": [{"id": "day", "limit_usd": 1_000, "window": "day"}],
    }
    with serving(tmp_path, policy) as gateway:
        yield gateway


SMALL = 40_960
"""Less than an empty ledger, more than what SQLite shares among processes (lowpass.db-shm)."""


def no_room(gateway: Gateway, size: int | None = None) -> Callable[[], None]:
    """No file of the gateway may grow beyond `size`: what its write-ahead log has. Returns what makes room again."""
    process = gateway.process.pid
    before = resource.prlimit(process, resource.RLIMIT_FSIZE)
    size = size or gateway.ledger.with_name("lowpass.db-wal").stat().st_size
    resource.prlimit(process, resource.RLIMIT_FSIZE, (size, before[1]))
    return lambda: resource.prlimit(process, resource.RLIMIT_FSIZE, before) and None


def test_a_gateway_lives_on_while_nothing_can_be_moved_into_its_ledger(served: Gateway) -> None:
    """Commits may still find room in the write-ahead log, and checkpoints none in the database."""
    served.chat("auto")
    make_room = no_room(served, SMALL)
    until(lambda: _until_refused(served))
    until(lambda: "the write-ahead log could not be moved" in served.log.read_text())
    assert served.get("/health/live").status == 200
    assert served.get("/v1/reports/spend").status == 200
    make_room()
    until(lambda: served.chat("auto").status == 200)
    assert served.log.read_text().count("the write-ahead log could not be moved") == 1
    assert served.lowpass("ledger", "verify")[0] == 0


def test_a_gateway_whose_disk_is_full_refuses_and_goes_on_when_there_is_room(
    served: Gateway, upstream: Upstream
) -> None:
    for _ in range(3):
        assert served.chat("auto").status == 200
    stream = served.raw()
    stream.sendall(_stream())
    until(lambda: served.rows("SELECT 1 FROM requests WHERE state = 'held'"))
    make_room = no_room(served)
    replies = until(lambda: _until_refused(served))
    asked = len(upstream.requests)
    for _ in range(5):
        refused = served.chat("auto")
        assert (refused.status, refused.error["code"]) == (503, "ledger_unavailable")
    assert len(upstream.requests) == asked
    assert served.get("/health/live").status == 200
    make_room()
    until(lambda: served.chat("auto").status == 200)
    answered = [reply.headers["x-request-id"] for reply in replies if reply.status == 200]
    _drain(stream)
    until(lambda: not served.rows("SELECT 1 FROM requests WHERE state = 'held'"))
    for identifier in answered:
        assert served.row(identifier)["state"] == "settled"
    served.check_books()
    status, output = served.lowpass("ledger", "verify")
    assert (status, output.count("\n")) == (0, 1), output
    assert "Traceback" not in served.log.read_text()


def test_a_disk_that_is_full_to_the_end_leaves_a_sound_ledger(served: Gateway) -> None:
    for _ in range(3):
        served.chat("auto")
    no_room(served)
    until(lambda: _until_refused(served))
    served.stop()
    known = verify(SqliteLedger(served.ledger))
    assert (known.sound, known.requests >= 3) == (True, True), known.findings
    served.start()
    assert served.chat("auto").status == 200


def _until_refused(gateway: Gateway) -> list[Reply]:
    """Until two in a row were: what one transaction has no room for another may have."""
    replies: list[Reply] = []
    while not (len(replies) > 1 and all(reply.status == 503 for reply in replies[-2:])):
        replies.append(gateway.chat("auto"))
        assert len(replies) < 500
    return replies


def _stream() -> bytes:
    body = b'{"model": "streams", "stream": true, "messages": [{"role": "user", "content": "Hi"}]}'
    return b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%b" % (
        len(body),
        body,
    )


def _drain(stream: socket.socket) -> None:
    with stream:
        while stream.recv(65_536):
            pass
