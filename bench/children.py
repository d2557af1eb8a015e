"""The bench's own processes: each pinned to its core and ended with the bench."""

import http.client
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import msgspec

from bench.load import PATH, Job, LoadError, Outcome, Result, chat_body, wrong_with

_ROOT = Path(__file__).parent.parent
_POLL_S = 0.05


class Cores(msgspec.Struct, frozen=True):
    """Where things run: the gateways on one core, the load generator and the upstream on another, if there are two."""

    gateway: frozenset[int]
    load: frozenset[int]

    @property
    def all(self) -> frozenset[int]:
        return self.gateway | self.load

    @property
    def apart(self) -> bool:
        return self.gateway != self.load


@cache
def cores() -> Cores:
    """Of those that this process could use when it first asked; it may pin itself later."""
    allowed = sorted(os.sched_getaffinity(0))
    return Cores(frozenset(allowed[:1]), frozenset(allowed[1:2] or allowed))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(
    argv: Sequence[str], on: frozenset[int], log: Path, env: dict[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server until the block ends. Its output goes to `log`."""
    with log.open("wb") as output:
        child = subprocess.Popen(
            argv,
            cwd=_ROOT,
            env=surroundings() | env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            preexec_fn=lambda: os.sched_setaffinity(0, on),
        )
    try:
        yield child
    finally:
        _end(child)


def until_answering(job: Job, ended: Callable[[], bool], limit_s: float) -> None:
    """Wait until a gateway gives one right answer. Raises LoadError if it ends first, or gives none in time."""
    deadline, problem = time.monotonic() + limit_s, "no answer"
    while time.monotonic() < deadline:
        if ended():
            raise LoadError("ended before it answered")
        found = _problem_now(job)
        if found is None:
            return
        problem = found
        time.sleep(_POLL_S)
    raise LoadError(f"not ready after {limit_s:g} s: {problem}")


def _problem_now(job: Job) -> str | None:
    try:
        status, body = post(job.port, b"00000000".join(chat_body(job)), job.key)
    except OSError as error:
        return str(error)
    return wrong_with(status, body, job.stream)


def post(port: int, body: bytes, key: str | None) -> tuple[int, bytes]:
    """One chat request on a connection of its own: status and body. Raises OSError if there is no whole answer."""
    headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {key}"} if key else {})
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("POST", PATH, body, headers)
        response = connection.getresponse()
        return response.status, response.read()
    except http.client.HTTPException as error:
        raise OSError(f"not a whole answer: {error!r}") from error
    finally:
        connection.close()


def surroundings() -> dict[str, str]:
    """The environment for what is measured: no settings of the caller's own gateway, and bytecode may be cached."""
    ours = ("LOWPASS_", "PYTHONDONTWRITEBYTECODE")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}


def last_lines(log: Path) -> str:
    """The end of a server's output, to quote in an error."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-15:])


def _end(child: subprocess.Popen[bytes]) -> None:
    child.terminate()
    try:
        child.wait(10)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _module(name: str, on: frozenset[int]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", name],
        cwd=_ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        preexec_fn=lambda: os.sched_setaffinity(0, on),
    )


@contextmanager
def upstream(on: frozenset[int], module: str = "bench.upstream") -> Iterator[int]:
    """A scripted upstream in a process of its own; yields its port."""
    with _module(module, on) as child:
        assert child.stdout
        try:
            yield int(child.stdout.readline())
        finally:
            _end(child)


class Generator:
    """The load generator in a process of its own: one job at a time."""

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        self._child = child

    def run(self, job: Job) -> Result:
        """Raises LoadError if any answer was wrong, late or missing."""
        assert self._child.stdin
        assert self._child.stdout
        self._child.stdin.write(msgspec.json.encode(job) + b"\n")
        self._child.stdin.flush()
        outcome = msgspec.json.decode(
            self._child.stdout.readline() or b'{"error": "the load generator died"}', type=Outcome
        )
        if outcome.result is None:
            raise LoadError(outcome.error)
        return outcome.result


@contextmanager
def generator(on: frozenset[int]) -> Iterator[Generator]:
    with _module("bench.load", on) as child:
        try:
            yield Generator(child)
        finally:
            _end(child)
