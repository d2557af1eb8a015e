"""What the parts run: a real engine by itself, and a gateway in front of it."""

import http.client
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from bench.children import cores, free_port, last_lines, running
from bench.load import LoadError
from bench.peers import lowpass_key
from local_serving.recipe import SETTING, EngineHome, recipe
from local_serving.spec import Llamacpp, Vllm, read

_ROOT = Path(__file__).parents[2]
_START_S = 60.0
_DRAIN_S = 25.0
"""More than vLLM is given to drain."""
_POLL_S = 0.05


class Running(Struct, frozen=True):
    port: int
    pid: int
    key: str = ""
    home: Path = Path()

    @property
    def ledger(self) -> Path:
        return self.home / "lowpass.db"


def embedded(shipped: str = "smollm2", **changes: Any) -> Llamacpp:
    """A shipped engine, changed; one thread, so that it computes on one core and does not spin on the others."""
    spec = read(shipped)
    assert isinstance(spec, Llamacpp)
    return spec.model_copy(update={"threads": 1, **changes})


@cache
def ours() -> frozenset[int]:
    """A core for the load that neither gateway nor engine has; with two cores it is the gateway's."""
    shared = cores().gateway
    return frozenset(sorted(os.sched_getaffinity(0))[2:3]) or shared


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
def engine(spec: Llamacpp | Vllm, home: Path) -> Iterator[Running]:
    """It alone, as `lowpass local up` would start it; llama.cpp on the second core if there is one.

    Raises EngineError or LoadError.
    """
    port = free_port()
    command, environment = recipe(spec, 0, port, EngineHome(home, os.environ.get(SETTING, "")))
    with on_core(cores().load if isinstance(spec, Llamacpp) else cores().all), (home / "engine.log").open("wb") as log:
        child = subprocess.Popen(
            command,
            env=environment,
            cwd=_ROOT,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        _wait(port, "/health", child, f"the engine {spec.name}", home / "engine.log", spec.start_s)
        yield Running(port, child.pid)
    finally:
        _end(child)


def _end(child: subprocess.Popen[bytes]) -> None:
    """With all of its processes."""
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        child.wait(_DRAIN_S)
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.communicate()


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
        _wait(port, "/health/ready", child, "the gateway", log, _START_S)
        yield Running(port, child.pid, key, home)


def _wait(port: int, path: str, child: subprocess.Popen[bytes], who: str, log: Path, limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline and child.poll() is None:
        if _serves(port, path):
            return
        time.sleep(_POLL_S)
    what = f"does not serve after {limit_s:g} s" if child.poll() is None else "ended before it served"
    raise LoadError(f"{who} {what}; its output ends:\n{last_lines(log)}")


def _serves(port: int, path: str) -> bool:
    """Status 200, and no engine that still starts: a gateway is there before them."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status == 200 and b'"status":"starting"' not in answer.read()
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
