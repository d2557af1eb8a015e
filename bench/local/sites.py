"""What the parts run: a real engine by itself, and a gateway in front of it."""

import http.client
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, structs

from bench.children import cores, free_port, last_lines, running
from bench.load import LoadError
from bench.peers import lowpass_key
from local_serving.spec import Llamacpp, read

_ROOT = Path(__file__).parents[2]
_START_S = 60.0
_POLL_S = 0.05


class Running(Struct, frozen=True):
    port: int
    pid: int
    key: str = ""
    home: Path = Path()

    @property
    def ledger(self) -> Path:
        return self.home / "lowpass.db"


def embedded(**changes: Any) -> Llamacpp:
    """The shipped engine, changed; one thread, so that it computes on one core and does not spin on the others."""
    spec = read("smollm2")
    assert isinstance(spec, Llamacpp)
    return structs.replace(spec, threads=1, **changes)


def ours() -> frozenset[int]:
    """A core for the load that neither gateway nor engine has; with two cores it is the gateway's."""
    allowed = sorted(os.sched_getaffinity(0))
    return frozenset(allowed[2:3] or allowed[:1])


@contextmanager
def on_core(chosen: frozenset[int]) -> Iterator[None]:
    """This process, on some cores only until the block ends."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, chosen)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def llamacpp(spec: Llamacpp) -> Iterator[Running]:
    """The engine alone, on the second core if there is one. Raises LoadError."""
    port, said = free_port(), msgspec.json.encode(spec).decode()
    argv = [sys.executable, "-m", "local_serving.launch.llamacpp", said, str(port)]
    with on_core(cores().load):
        child = subprocess.Popen(argv, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    with child:
        try:
            _wait(port, "/health", lambda: child.poll() is not None, f"the engine {spec.name}")
            yield Running(port, child.pid)
        finally:
            child.terminate()


@contextmanager
def gateway(home: Path, policy: dict[str, Any], on: frozenset[int] | None = None) -> Iterator[Running]:
    """`lowpass serve`, on the first core unless said otherwise, with a key and a ledger in `home`. Raises LoadError.

    `policy`: as JSON, which is YAML.
    """
    home.mkdir(parents=True, exist_ok=True)
    path, log, port = home / "policy.yaml", home / "output.log", free_port()
    path.write_bytes(msgspec.json.encode(policy))
    env = {"LOWPASS_HOME": str(home)}
    key = lowpass_key(env)
    argv = [sys.executable, "-m", "router.cli", "serve", "--policy", str(path), "--port", str(port)]
    with running(argv, on or cores().gateway, log, env) as child:
        try:
            _wait(port, "/health/ready", lambda: child.poll() is not None, "the gateway")
        except LoadError as problem:
            raise LoadError(f"{problem}; its output ends:\n{last_lines(log)}") from problem
        yield Running(port, child.pid, key, home)


def _wait(port: int, path: str, ended: Callable[[], bool], who: str) -> None:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline and not ended():
        if status(port, path) == 200:
            return
        time.sleep(_POLL_S)
    raise LoadError(f"{who} ended before it served" if ended() else f"{who} does not serve after {_START_S:g} s")


def status(port: int, path: str) -> int:
    """0: nobody answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()
