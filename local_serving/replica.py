"""One process of an engine: its start, health checks, restarts, and the reason of a failed start."""

import asyncio
import logging
import os
import re
import signal
import sys
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import Callable, Collection
from contextlib import suppress
from logging.handlers import RotatingFileHandler
from pathlib import Path
from textwrap import shorten
from typing import Any
from urllib.parse import urlsplit

import msgspec

from local_serving import EngineError, guardian, watch
from local_serving.recipe import ENGINE_DRAIN_S, EngineHome, Launched, names, recipe
from local_serving.spec import Llamacpp, Vllm
from local_serving.watch import LIMIT_S, ask
from router.types.target import SERVING, EngineState, Status
from router.types.yaml_file import load_data

# Reasons of failed starts, from the engine's output, with remedies (`causes.yaml`); and the small part of the output
# that is kept once requests are served.

_LINE_CHARS, _CAUSE_CHARS = 300, 160
_PREFIX = re.compile(r"^(?:\([^)]*\)\s*)?((?:ERROR|WARNING|INFO|CRITICAL)\s+\S+\s+\S+\s+\[[^\]]*\])?\s*")
"""Prefix of vLLM's log lines: "(EngineCore pid=7) ERROR 11-21 20:34:11 [core.py:945] "."""
_NATIVE = re.compile(r"^[\d.]+ [A-Z] ")
"""Prefix of llama.cpp's log lines, from a thread that may be late: "0.00.007.158 E srv …". They are not the reason."""
_STATISTICS = re.compile(r"Engine \d+: Avg prompt throughput|Avg prompt throughput")
_EXCEPTION = re.compile(r"^(?:[a-z_0-9]+\.)*[A-Z]\w*(?:Error|Exception|Exit)\b")
_VAGUE_MESSAGES = ("Engine core initialization failed", "WorkerProc initialization failed", "See root cause above")


_CAUSES: list[dict[str, Any]] = load_data(__file__, "causes.yaml")


class EngineOutput:
    """Output of an engine since its start, and what it reveals."""

    def __init__(self) -> None:
        self._last = self._exception = ""
        self._cause: tuple[str, str] | None = None

    def add(self, line: str) -> None:
        text = _PREFIX.sub("", line).strip()
        remedy = next((cause["remedy"] for cause in _CAUSES if any(word in text for word in cause["words"])), "")
        if remedy and self._cause is None:
            self._cause = text, remedy
        if _EXCEPTION.match(text) and not any(vague in text for vague in _VAGUE_MESSAGES):
            self._exception = text
        if text and not (self._last and _NATIVE.match(text)):
            self._last = text

    def why(self, status: int) -> str:
        """Returns why the engine ended: a known cause with its remedy, else its last output or exit status."""
        if self._cause is not None:
            text, remedy = self._cause
            return f"{shorten(text, _CAUSE_CHARS, placeholder=' …')}: {remedy}"
        if status < 0:
            return f"killed by {signal.Signals(-status).name}"
        return self.last or f"exit status {status}"

    @property
    def last(self) -> str:
        return (self._exception or self._last)[:_LINE_CHARS]


def discreet(line: str) -> str:
    """Returns what may be kept of a line once an engine serves requests, which the line might quote.

    Kept are its source and kind, statistics, and the words of known causes.
    """
    prefix = _PREFIX.match(line)
    place = prefix[0].rstrip() if prefix and prefix[1] else ""
    if place and _STATISTICS.search(line):
        return line
    kind = _EXCEPTION.match(_PREFIX.sub("", line).strip())
    known = next((word for cause in _CAUSES for word in cause["words"] if word in line), "")
    return " ".join(filter(None, (place, kind[0] if kind else "", known)))


# What an engine reports over HTTP: its health, its models and its load.


class ForeignServer(Exception):
    """Another server than the engine answers; the message says which."""


async def serves(url: str, names: Collection[str]) -> bool:
    """Whether the engine at the base URL is healthy and serves one of `names`. Raises `OSError` and `ForeignServer`.

    A mere 200 is not enough, since another server may have taken the port. Without /health, having the name suffices.
    """
    health = await ask(url, "/health")
    if health.status not in (200, 401, 403, 404):
        return False
    models = await ask(url, "/v1/models")
    if models.status in (401, 403) and health.status == 200:
        return True  # it requires a key, which only the policy has
    try:
        served = {str(model["id"]) for model in msgspec.json.decode(models.body)["data"]}
    except (msgspec.MsgspecError, KeyError, TypeError):
        served = None
    if served is not None and not served.isdisjoint(names):
        return True
    parts = urlsplit(url)
    where = f"port {parts.port} is" if parts.hostname == "127.0.0.1" else f"{url} is"
    if served is None:
        problem = f"its /v1/models ({models.status}) is no list of models"
    else:
        problem = f"it serves {', '.join(sorted(served)[:5]) or 'nothing'}, not {', '.join(names)}"
    raise ForeignServer(f"{where} answered by something else: {problem}")


async def calls(url: str) -> int:
    """Returns the number of unanswered requests at vLLM's server, including those that wait while it sleeps."""
    try:
        return int(msgspec.json.decode((await ask(url, "/load")).body)["server_load"])
    except (OSError, msgspec.MsgspecError, KeyError, TypeError, ValueError):
        return 0


# One supervised replica of an engine: a child process on its own port, restarted whenever it ends.

STEADY_S = 60.0
"""Seconds of serving after which the restart delay is reset."""
GRACE_S = 5.0
"""Time in seconds between SIGTERM and SIGKILL, in addition to the time for requests in progress."""
HEALTH_EVERY_S = 2.0
HUNG_AFTER = 6
"""Number of consecutive /health failures after which the engine is killed and restarted."""
_FIRST_DELAY_S, _LONGEST_DELAY_S = 0.2, 10.0
_PROBE_EVERY_S = 0.05
_NAP_LOOK_S, _BUSY_EVERY_S = 0.5, 0.1
_LOG_BYTES = 1_000_000
_LINE_BYTES, _REPLICA_LINE_CHARS = 1 << 20, 500


class EngineProcess:
    """Owns one child at a time. Call `launch` once, then `stop` once. `changed` is called when `state` changes."""

    def __init__(
        self, spec: Launched, number: int, url: str, log: Path, home: EngineHome, changed: Callable[[], None]
    ) -> None:
        self.spec, self.number, self.url, self.log_path = spec, number, url, log
        self.state = EngineState(name=spec.name, model=spec.model, status=Status.STARTING, replica=number, url=url)
        self.guardian: int | None = None
        self._home, self._changed = home, changed
        self._stopping = asyncio.Event()
        self._log = logging.Logger(spec.name)
        self._task: asyncio.Task[None] | None = None
        self._process: Process | None = None
        self._engine: int | None = None
        self._served_from: float | None = None
        self._failure, self._calls = "", 0

    def launch(self) -> None:
        """Starts the replica. Raises `EngineError` if the log can't be written."""
        try:
            self.log_path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            handler = RotatingFileHandler(self.log_path, maxBytes=_LOG_BYTES, backupCount=1, encoding="utf-8")
        except OSError as error:
            problem = f"can't write the engine's log {self.log_path}: {error.strerror}"
            raise EngineError(f"{problem}; set LOWPASS_HOME") from error
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        self._log.addHandler(handler)
        self._task = asyncio.get_running_loop().create_task(self._keep_alive(), name=f"engine {self.spec.name}")

    async def stop(self) -> None:
        """Ends the child and its process group; safe at any moment."""
        self._stopping.set()
        if self._task:
            self._signal_guardian(signal.SIGTERM)
            # A serving engine may finish its requests; a starting one has none (and vLLM ignores SIGTERM then).
            finishes = isinstance(self.spec, Vllm) and self._served_from is not None
            await asyncio.wait({self._task}, timeout=GRACE_S + (ENGINE_DRAIN_S if finishes else 0))
            self._kill()
            await self._task

    async def drain(self, limit_s: float) -> None:
        """Waits up to `limit_s` for requests in progress, then stops. The state is DRAINING meanwhile."""
        if self.state.status in SERVING:
            self._stopping.set()
            self._update(status=Status.DRAINING)
            with suppress(TimeoutError):
                async with asyncio.timeout(limit_s):
                    while await self._busy():  # noqa: ASYNC110 - another process knows it
                        await asyncio.sleep(_BUSY_EVERY_S)
        await self.stop()

    async def _busy(self) -> int:
        """Returns the number of running and waiting requests; 0 if unknown."""
        load = await watch.read(self.url, watch.format_of(self.spec), LIMIT_S)
        return load.running + load.waiting if load else 0

    async def _command(self, path: str, then: Status) -> None:
        with suppress(OSError):
            if (await ask(self.url, path, "POST", limit_s=60)).status == 200:
                self._update(status=then)

    async def _keep_alive(self) -> None:
        delay_s = _FIRST_DELAY_S
        while not self._stopping.is_set() and not self._failed:
            served_s = await self._live()
            delay_s = _FIRST_DELAY_S if served_s >= STEADY_S else delay_s
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), 0 if self._failed else delay_s)
            delay_s = min(2 * delay_s, _LONGEST_DELAY_S)
        if not self._failed:
            self._update(status=Status.STOPPED)
        self._log.handlers[0].close()

    @property
    def _failed(self) -> bool:
        return self.state.status is Status.FAILED

    async def _live(self) -> float:
        """Runs the child until it ends, and returns the seconds for which it served."""
        output, self._served_from, self._failure = EngineOutput(), None, ""
        try:
            process = await self._spawn()
        except EngineError as error:
            self._ended(str(error))
            return 0.0
        watch = asyncio.ensure_future(self._watch(output))
        ending = asyncio.ensure_future(self._reap(process))
        while process.stdout and not process.stdout.at_eof():
            with suppress(ValueError):  # longer than any useful line
                line = await process.stdout.readline()
                self._read_line(line.decode(errors="replace").rstrip()[:_REPLICA_LINE_CHARS], output)
        status = await ending
        watch.cancel()
        self._ended(self._failure or output.why(status))
        return asyncio.get_running_loop().time() - self._served_from if self._served_from else 0.0

    async def _spawn(self) -> Process:
        """Starts the guardian, in a session without the terminal's Ctrl-C; its stdin ends with this process."""
        command, environment = recipe(self.spec, self.number, urlsplit(self.url).port or 0, self._home)
        try:
            process = self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", guardian.__file__, *command),
                env=environment,
                stdin=PIPE,
                stdout=PIPE,
                stderr=STDOUT,
                limit=_LINE_BYTES,
                start_new_session=True,
            )
        except OSError as error:
            raise EngineError(f"can't run {sys.executable}: {error.strerror}") from error
        self.guardian = process.pid
        if self._stopping.is_set():
            process.kill()
        return process

    def _read_line(self, line: str, output: EngineOutput) -> None:
        if self._engine is None and line.startswith(guardian.GUARDS):
            self._engine = int(line.removeprefix(guardian.GUARDS))
            return self._update(pid=self._engine)
        if self._served_from is not None or self.state.restarts:
            line = discreet(line)
        if line:
            output.add(line)
            self._log.log(logging.INFO if "INFO" in line[:40] else logging.ERROR, "%s", line)

    async def _reap(self, process: Process) -> int:
        """Returns the exit status. If the guardian was killed, kills the engine's group, so that its output ends."""
        status = await process.wait()
        if status < 0:
            self._kill()
        self._process = self._engine = self.guardian = None
        return 128 - status if status > 128 else status

    async def _watch(self, output: EngineOutput) -> None:
        """Waits until the engine serves, then checks its health; kills it if it does not start or hangs."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        try:
            async with asyncio.timeout(self.spec.start_s):
                while not await self._serves():  # noqa: ASYNC110 - another process knows it
                    await asyncio.sleep(_PROBE_EVERY_S)
        except TimeoutError:
            last = f", and said last: {output.last}" if output.last else ""
            self._failure = f"it does not serve after {self.spec.start_s} s{last}: see its log, or raise `start_s`"
        except ForeignServer as stranger:
            self._failure = f"{stranger}: stop that, or start again"
        else:
            self._served_from = loop.time()
            start_s = self._served_from - started
            self._log.info("serves %s on %s after %.1f s, pid %s", self.spec.model, self.url, start_s, self._engine)
            self._update(status=Status.READY)
            await self._until_it_hangs()
            self._failure = f"killed, since /health failed {HUNG_AFTER} times in a row"
        self._kill()

    async def _serves(self) -> bool:
        with suppress(OSError):
            return await serves(self.url, (self.spec.model,) if isinstance(self.spec, Llamacpp) else names(self.spec))
        return False

    async def _until_it_hangs(self) -> None:
        """Checks the health until it fails repeatedly; lets an idle engine sleep if allowed, and wakes it."""
        failures, idle_s = 0, 0.0
        sleep_after_s = self.spec.sleep_after_s if isinstance(self.spec, Vllm) and self.spec.gpu else 0
        pause_s = _NAP_LOOK_S if sleep_after_s else HEALTH_EVERY_S
        while failures < HUNG_AFTER:
            await asyncio.sleep(pause_s)
            failures += 1
            with suppress(OSError):
                failures = 0 if (await ask(self.url, "/health")).status == 200 else failures
            if sleep_after_s and not failures:
                is_idle = self.state.status is Status.READY and not await self._busy()
                idle_s = idle_s + pause_s if is_idle else 0.0
                await self._nap(idle_s >= sleep_after_s)

    async def _nap(self, idle: bool) -> None:
        """Lets the engine sleep (vLLM's sleep mode frees GPU memory) once it is idle, or wakes it. vLLM keeps counting
        lost requests, so it is woken when the count exceeds that at the start of the sleep."""
        if self.state.status is Status.READY and idle:
            self._calls = await calls(self.url)
            await self._command("/sleep?level=1&mode=wait", Status.SLEEPING)
        elif self.state.status is Status.SLEEPING and await calls(self.url) > self._calls:
            await self._command("/wake_up", Status.READY)

    def _ended(self, reason: str) -> None:
        if self._stopping.is_set():
            return self._update(pid=None)
        self._log.error("ended: %s", reason)
        if self.state.status is Status.STARTING:
            return self._update(status=Status.FAILED, pid=None, last_error=reason)
        self._update(status=Status.RESTARTING, restarts=self.state.restarts + 1, pid=None, last_error=reason)

    def _update(self, **changes: object) -> None:
        self.state = msgspec.structs.replace(self.state, **changes)
        self._changed()

    def _signal_guardian(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)

    def _kill(self) -> None:
        """Kills the engine's process group, by which its guardian ends; without an engine, kills the guardian."""
        if self._engine is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._engine, signal.SIGKILL)
        else:
            self._signal_guardian(signal.SIGKILL)
