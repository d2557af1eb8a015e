"""One supervised engine: a child process on a port of its own, started again whenever it ends."""

import asyncio
import logging
import os
import signal
import socket
import sys
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import AsyncIterator
from contextlib import suppress
from logging.handlers import RotatingFileHandler
from pathlib import Path

import msgspec

from local_serving.launch.llamacpp import HOST, LISTENING
from local_serving.spec import EngineError, EngineSpec
from router.types.engine import EngineState, Status

START_LIMIT_S = 120.0
"""A child that does not serve by then is killed. vLLM on a CPU needs up to 80 s, llama.cpp less than one."""
STEADY_S = 60.0
"""After serving this long, the next restart is prompt again."""
GRACE_S = 5.0
"""Between SIGTERM and SIGKILL."""
_FIRST_DELAY_S, _LONGEST_DELAY_S = 0.2, 10.0
_PROBE_EVERY_S = 0.05
_LOG_BYTES = 1_000_000
_LINE_CHARS = 500
_ROOT = Path(__file__).parents[2]


class Engine:
    """Owns one child at a time. Call `launch` once, then `stop` once."""

    def __init__(self, spec: EngineSpec, log_dir: Path) -> None:
        self.spec, self.port = spec, _free_port()
        self.url = f"http://{HOST}:{self.port}/v1"
        self.state = EngineState(name=spec.name, model=spec.model, status=Status.STARTING, url=self.url)
        self.log_path = log_dir / f"{spec.name}.log"
        self._settled, self._stopping = asyncio.Event(), asyncio.Event()
        self._log = logging.Logger(spec.name)
        self._life: asyncio.Task[None] | None = None
        self._process: Process | None = None

    def launch(self) -> None:
        self._log.addHandler(_log_file(self.log_path))
        self._life = asyncio.get_running_loop().create_task(self._keep_alive(), name=f"engine {self.spec.name}")

    async def ready(self, timeout_s: float) -> None:
        """Waits until the engine serves; raises `EngineError` if it failed, was stopped or is not ready in time."""
        try:
            await asyncio.wait_for(self._settled.wait(), timeout_s)
        except TimeoutError:
            raise self._error(f"is not ready after {timeout_s:g} s") from None
        if self.state.status is Status.FAILED:
            raise self._error("does not start")
        if self.state.status is Status.STOPPED:
            raise self._error("was stopped")

    async def stop(self) -> None:
        """Ends the child and its process group; safe at any moment."""
        self._stopping.set()
        if self._life:
            self._signal(signal.SIGTERM)
            await asyncio.wait({self._life}, timeout=GRACE_S)
            self._signal(signal.SIGKILL)
            await self._life

    async def _keep_alive(self) -> None:
        delay_s = _FIRST_DELAY_S
        while not self._stopping.is_set() and self.state.status is not Status.FAILED:
            served_s = await self._live()
            delay_s = _FIRST_DELAY_S if served_s >= STEADY_S else delay_s
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), delay_s)
            delay_s = min(2 * delay_s, _LONGEST_DELAY_S)
        if self.state.status is not Status.FAILED:
            self._update(status=Status.STOPPED)
            self._settled.set()
        self._log.handlers[0].close()

    async def _live(self) -> float:
        """One life of the child, to its end; for how many seconds it served."""
        try:
            process = self._process = await self._spawn()
        except OSError as error:
            self._ended(f"can't run {sys.executable}: {error.strerror}")
            return 0.0
        loop = asyncio.get_running_loop()
        overdue = loop.call_later(START_LIMIT_S, self._signal, signal.SIGKILL)
        started, served_from, last_line = loop.time(), None, ""
        async for line in _lines(process):
            if line.startswith(LISTENING) and await self._healthy(process):
                overdue.cancel()
                served_from = loop.time()
                self._serves(process.pid, served_from - started)
            else:
                last_line = line
                self._log.error("%s", line)
        status = await process.wait()
        overdue.cancel()
        self._ended(_reason(status, last_line))
        return loop.time() - served_from if served_from else 0.0

    async def _spawn(self) -> Process:
        """Its own session keeps a Ctrl-C in the terminal from it; the pipe to its stdin ends with this process."""
        spec = msgspec.json.encode(self.spec).decode()
        command = (sys.executable, "-m", "local_serving.launch.llamacpp", spec, str(self.port))
        process = await asyncio.create_subprocess_exec(
            *command, cwd=_ROOT, stdin=PIPE, stdout=PIPE, stderr=STDOUT, start_new_session=True
        )
        if self._stopping.is_set():
            process.kill()
        return process

    async def _healthy(self, process: Process) -> bool:
        """Whether GET /health answers 200 before the child ends."""
        while process.returncode is None:
            with suppress(OSError):
                if await _health_status(self.port) == 200:
                    return True
            await asyncio.sleep(_PROBE_EVERY_S)
        return False

    def _serves(self, pid: int, start_s: float) -> None:
        self._update(status=Status.READY, pid=pid)
        self._settled.set()
        self._log.info("serves %s on port %d after %.1f s, pid %d", self.spec.model, self.port, start_s, pid)

    def _ended(self, reason: str) -> None:
        if self._stopping.is_set():
            return self._update(pid=None)
        self._log.error("ended: %s", reason)
        if self.state.status is Status.STARTING:
            self._update(status=Status.FAILED, last_error=reason)
            return self._settled.set()
        self._settled.clear()
        self._update(status=Status.RESTARTING, restarts=self.state.restarts + 1, pid=None, last_error=reason)

    def _update(self, **changes: object) -> None:
        self.state = msgspec.structs.replace(self.state, **changes)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def _error(self, what: str) -> EngineError:
        reason = f": {self.state.last_error}" if self.state.last_error else ""
        return EngineError(f"local engine {self.spec.name} {what}{reason} (log: {self.log_path})")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _log_file(path: Path) -> RotatingFileHandler:
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handler = RotatingFileHandler(path, maxBytes=_LOG_BYTES, backupCount=1, encoding="utf-8")
    except OSError as error:
        raise EngineError(f"can't write the engine's log {path}: {error.strerror}; set LOWPASS_HOME") from error
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    return handler


async def _lines(process: Process) -> AsyncIterator[str]:
    while process.stdout and (line := await process.stdout.readline()):
        yield line.decode(errors="replace").rstrip()[:_LINE_CHARS]


async def _health_status(port: int) -> int:
    """The status of GET /health; 0 when the answer is not HTTP. Raises `OSError`."""
    reader, writer = await asyncio.open_connection(HOST, port)
    try:
        writer.write(b"GET /health HTTP/1.1\r\nHost: %b\r\nConnection: close\r\n\r\n" % HOST.encode())
        words = (await reader.readline()).split()
        return int(words[1]) if len(words) > 1 else 0
    finally:
        writer.close()


def _reason(status: int, last_line: str) -> str:
    """Why a child ended: the signal, its own last line, or at least its exit status."""
    if status < 0:
        return f"killed by {signal.Signals(-status).name}"
    return last_line or f"exit status {status}"
