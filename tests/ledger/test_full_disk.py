"""A gateway with a full disk refuses, loses nothing, and goes on when there is room."""

import resource
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from router.ledger.ledger import SqliteLedger
from router.ledger.verify import verify
from router.testing.upstream import Upstream
from tests.gateway.running import Process, Reply, processing, until
from tests.ledger.test_gateway import STREAM, policy


@pytest.fixture
def served(tmp_path: Path, upstream: Upstream) -> Iterator[Process]:
    with processing(tmp_path, policy(upstream.url)) as gateway:
        yield gateway


SMALL = 40_960
"""Less than an empty ledger, more than what SQLite shares among processes (lowpass.db-shm)."""


def no_room(gateway: Process, size: int | None = None) -> Callable[[], None]:
    """No file of the gateway may grow beyond `size`: what its write-ahead log has. Returns what makes room again."""
    process = gateway.process.pid
    before = resource.prlimit(process, resource.RLIMIT_FSIZE)
    size = size or gateway.ledger.with_name("lowpass.db-wal").stat().st_size
    resource.prlimit(process, resource.RLIMIT_FSIZE, (size, before[1]))
    return lambda: resource.prlimit(process, resource.RLIMIT_FSIZE, before) and None


def test_a_gateway_lives_on_while_nothing_can_be_moved_into_its_ledger(served: Process) -> None:
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
    served: Process, upstream: Upstream
) -> None:
    assert [served.chat("auto").status for _ in range(3)] == [200] * 3
    stream = served.raw()
    stream.sendall(STREAM)
    until(lambda: len(upstream.requests) == 4)
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
    with stream:
        while stream.recv(65_536):
            pass
    until(lambda: not served.rows("SELECT 1 FROM requests WHERE state = 'held'"))
    for identifier in answered:
        assert served.row(identifier)["state"] == "settled"
    served.check_books()
    status, output = served.lowpass("ledger", "verify")
    assert (status, output.count("\n")) == (0, 1), output
    # A disk that is full to the end leaves a sound ledger.
    no_room(served)
    until(lambda: _until_refused(served))
    served.stop()
    known = verify(SqliteLedger(served.ledger))
    assert (known.sound, known.requests >= 3) == (True, True), known.findings
    served.start()
    assert served.chat("auto").status == 200
    assert "Traceback" not in served.log.read_text()


def _until_refused(gateway: Process) -> list[Reply]:
    """Until two in a row were: what one transaction has no room for another may have."""
    replies: list[Reply] = []
    while not (len(replies) > 1 and all(reply.status == 503 for reply in replies[-2:])):
        replies.append(gateway.chat("auto"))
        assert len(replies) < 500
    return replies
