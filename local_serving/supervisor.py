"""Supervision of the engines of a gateway, of external servers, and of engines that outlive the shell.

`python -m local_serving.supervisor FOLDER LOGS PYTHON` supervises one engine in its own process. It reads the spec from
standard input, because the spec's environment may hold secrets that a list of processes must not show.
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from random import sample
from time import monotonic, sleep
from types import MappingProxyType
from urllib.parse import urlsplit

import msgspec
from pydantic import TypeAdapter

from local_serving import EngineError, record, replica
from local_serving.llamacpp import HOST, why_unavailable
from local_serving.recipe import ENGINE_DRAIN_S, EngineHome, Launched, served
from local_serving.record import EngineRecord, Owner
from local_serving.replica import EngineProcess
from local_serving.spec import EngineSpec, External, Llamacpp
from router.types.target import SERVING, EngineState, ServedEngine, Status

DRAIN_S = 20.0
_OWN_PORTS = range(20_000, 32_768)
"""Ports for engines; Linux assigns those from 32768 on."""
_FOLLOW_EVERY_S, _ASK_EVERY_S = 0.1, 1.0
_LOST_AFTER = 3
"""Number of consecutive failures after which an external server that served counts as gone."""
_END_LIMIT_S = DRAIN_S + ENGINE_DRAIN_S + 10.0
"""Time in seconds within which an engine that was told to end has ended."""
_LOOK_EVERY_S = 0.05
_ENDED = (Status.FAILED, Status.STOPPED)


class Engine:
    """An engine with all of its replicas: run by this process, or by another one of the same home folder and followed.

    Call `launch` once, then `stop` or `drain` once. `urls` stay the same over restarts, whichever process runs it.
    """

    def __init__(self, spec: Launched, logs: Path, home: EngineHome, owner: Owner, changed: Callable[[], None]) -> None:
        """Blocks while the leftovers of a killed owner end. Raises `EngineError` if the record can't be written."""
        self.spec, self._logs, self._home, self._owner, self._changed = spec, logs, home, owner, changed
        self._digest, self._process = record.digest(spec), record.process(os.getpid())
        self._claim = record.claim(home.folder, spec.name)
        old_record = record.read(home.folder, spec.name)
        if self._claim and old_record:
            record.end_leftovers(old_record.children)
        old_urls = old_record.urls if old_record and old_record.digest == self._digest else ()
        is_free = not self._claim or not any(why_unavailable(urlsplit(url).port or 0) for url in old_urls)
        # Free ports below the system's; another process may still take one before the engine listens.
        ports = (port for port in sample(_OWN_PORTS, len(_OWN_PORTS) // 8) if not why_unavailable(port))
        new_urls = (f"http://{HOST}:{port}/v1" for port in islice(ports, spec.replicas))
        self.urls = old_urls if old_urls and is_free else tuple(new_urls)
        self._replicas: tuple[EngineProcess, ...] = ()
        self._followed: Sequence[EngineState] = self._all(Status.STARTING)
        self._following: asyncio.Task[None] | None = None
        if self._claim:
            self._write()

    @property
    def ours(self) -> bool:
        """Whether this process runs the engine."""
        return self._claim is not None

    @property
    def states(self) -> Sequence[EngineState]:
        return [process.state for process in self._replicas] or self._followed

    def launch(self) -> None:
        """Starts or follows the engine. Raises `EngineError` if logs can't be written."""
        if self._claim:
            self._run()
        else:
            self._following = asyncio.get_running_loop().create_task(self._follow(), name=f"engine {self.spec.name}")

    async def stop(self) -> None:
        """Ends the replicas that this process runs."""
        await self._end(process.stop() for process in self._replicas)

    async def drain(self, limit_s: float) -> None:
        """Waits up to `limit_s` for requests in progress, then stops the engine."""
        await self._end(process.drain(limit_s) for process in self._replicas)

    async def _end(self, ends: Iterable[Coroutine[None, None, None]]) -> None:
        if self._following:
            self._following.cancel()
            await asyncio.wait({self._following})
        await asyncio.gather(*ends)
        if self._claim:
            self._write(ended=True)
            self._claim.close()
            self._claim = None

    def _run(self) -> None:
        self._replicas = tuple(
            EngineProcess(self.spec, number, url, log_of(self._logs, self.spec, number), self._home, self._update)
            for number, url in enumerate(self.urls)
        )
        for process in self._replicas:
            process.launch()

    async def _follow(self) -> None:
        """Follows another owner's record. Takes the engine over if that was killed, or was a gateway and ended."""
        while not self._claim:
            before = record.read(self._home.folder, self.spec.name)
            self._take_over(before)
            if before and not before.owned and not (before.ended and before.owner == "up"):
                self._claim = record.claim(self._home.folder, self.spec.name)
                await asyncio.to_thread(record.end_leftovers, before.children if self._claim else ())
            await asyncio.sleep(_FOLLOW_EVERY_S)
        self._run()
        self._update()

    def _take_over(self, now: EngineRecord | None) -> None:
        """Takes the states over from a record of another process."""
        if now and now.ended and now.owner == "up":
            states = self._all(Status.STOPPED, f"it was ended: `lowpass local up {self.spec.name}` starts it again")
        elif now and now.digest != self._digest:
            remedy = f"`lowpass local down {self.spec.name}`, or end that process, and start again"
            states = self._all(Status.FAILED, f"process {now.process.pid} runs it with another spec: {remedy}")
        else:
            states = list(now.states if now else self._followed)
        if states != self._followed:
            self._followed = states
            self._changed()

    def _all(self, status: Status, reason: str = "") -> list[EngineState]:
        return _states(self.spec, self.urls, status, reason)

    def _update(self) -> None:
        self._write()
        self._changed()

    def _write(self, *, ended: bool = False) -> None:
        pids = [pid for row in self._replicas for pid in (row.guardian, row.state.pid) if pid is not None]
        now = EngineRecord(
            name=self.spec.name,
            kind="llamacpp" if isinstance(self.spec, Llamacpp) else "vllm",
            digest=self._digest,
            owner=self._owner,
            process=self._process,
            urls=self.urls,
            states=tuple(self.states),
            children=tuple(map(record.process, pids)),
            ended=ended,
        )
        with suppress(OSError):  # a running engine is kept even if the disk is full
            record.write(self._home.folder, now)


class WatchedServer:
    """An external server with the interface of `Engine`: never started or stopped, only checked."""

    def __init__(self, spec: External, changed: Callable[[], None]) -> None:
        self.spec, self.urls, self._changed = spec, spec.urls, changed
        self.states = _states(spec, spec.urls, Status.STARTING)
        self._tasks: list[asyncio.Task[None]] = []
        # llama.cpp accepts any name.
        names = () if spec.metrics == "llamacpp" else (spec.model, spec.model.rpartition("/")[2])
        self._names = spec.served or names

    def launch(self) -> None:
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._watch(number)) for number in range(len(self.urls))]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        for number in range(len(self.urls)):
            self._update(number, Status.STOPPED)

    async def drain(self, limit_s: float) -> None:
        """Stops watching; the server goes on."""
        await self.stop()

    async def _watch(self, number: int) -> None:
        failures = 0
        while True:
            reason = await self._ask(self.urls[number])
            failures = failures + 1 if reason else 0
            if not reason:
                self._update(number, Status.READY)
            elif failures >= _LOST_AFTER or self.states[number].status is not Status.READY:
                self._update(number, Status.FAILED, reason)
            await asyncio.sleep(_ASK_EVERY_S)

    async def _ask(self, url: str) -> str:
        """Returns why the server is not available; empty if it is."""
        try:
            if await replica.serves(url, self._names):
                return ""
        except replica.ForeignServer as stranger:
            return f"{stranger}: correct `urls` or `served` in the spec of {self.spec.name}"
        except OSError as error:
            return f"{url} does not answer ({error.strerror or type(error).__name__}): start it, or correct `urls`"
        return f"{url} says that it is not well"

    def _update(self, number: int, status: Status, reason: str = "") -> None:
        before = self.states[number]
        self.states[number] = msgspec.structs.replace(before, status=status, last_error=reason or before.last_error)
        if self.states[number] != before:
            self._changed()


def _states(spec: EngineSpec, urls: Sequence[str], status: Status, reason: str = "") -> list[EngineState]:
    """Returns the same state for every replica."""
    return [
        EngineState(name=spec.name, model=spec.model, status=status, replica=number, url=url, last_error=reason)
        for number, url in enumerate(urls)
    ]


def log_of(logs: Path, spec: Launched, number: int) -> Path:
    return logs / (f"{spec.name}.log" if spec.replicas == 1 else f"{spec.name}.{number}.log")


class Supervisor:
    """The local engines of a gateway: started together, each kept alive, stopped together.

    They are children of this process, in the running event loop. Each logs up to 2 MB to
    `log_dir`/<engine>[.<replica>].log. An engine that another process of the same home runs is used, not started again.

    Call `launch()`, later `await ready(name)`, and in any case `await stop()` at the end.
    """

    def __init__(self, specs: Iterable[EngineSpec], log_dir: Path, home: EngineHome, owner: Owner = "serve") -> None:
        """Raises `EngineError` if nothing can be written to `home`."""
        self._changed_event, self._logs = asyncio.Event(), log_dir
        self._engines: dict[str, Engine | WatchedServer] = {
            spec.name: WatchedServer(spec, self._changed_event.set)
            if isinstance(spec, External)
            else Engine(spec, log_dir, home, owner, self._changed_event.set)
            for spec in specs
        }
        self.served: Mapping[str, ServedEngine] = MappingProxyType(
            {name: served(engine.spec, engine.urls) for name, engine in self._engines.items()}
        )
        """Engines by name. Their ports are chosen once, so that URLs stay the same over restarts."""

    @property
    def states(self) -> tuple[EngineState, ...]:
        """States of all replicas."""
        return tuple(state for engine in self._engines.values() for state in engine.states)

    def runs(self, name: str) -> bool:
        """Whether this process runs the engine, rather than another process of this home or an external operator."""
        engine = self._engine(name)
        return isinstance(engine, Engine) and engine.ours

    def launch(self) -> None:
        """Starts every engine and returns at once. Raises `EngineError` if a log can't be written."""
        for engine in self._engines.values():
            engine.launch()

    async def ready(self, name: str, timeout_s: float | None = None) -> None:
        """Waits until a replica serves, for at most `timeout_s`, or by default for the start time in its spec.

        Raises `EngineError` if the engine is unknown or not ready in time, or if all replicas failed or were stopped.
        """
        engine = self._engine(name)
        limit_s = engine.spec.start_s + 5.0 if timeout_s is None else timeout_s
        try:
            async with asyncio.timeout(limit_s):
                while not (_serves(engine) or all(state.status in _ENDED for state in engine.states)):
                    self._changed_event.clear()
                    await self._changed_event.wait()
        except TimeoutError:
            raise self._error(engine, f"is not ready after {limit_s:g} s") from None
        if not _serves(engine):
            failed = any(state.status is Status.FAILED for state in engine.states)
            raise self._error(engine, "does not start" if failed else "was stopped")

    async def drain(self, name: str) -> None:
        """Drains an engine for at most `DRAIN_S`, then stops it. Raises `EngineError`."""
        await self._engine(name).drain(DRAIN_S)

    async def stop(self) -> None:
        """Sends SIGTERM to every engine, later SIGKILL to what is left, and returns when all children have exited."""
        await asyncio.gather(*(engine.stop() for engine in self._engines.values()))

    def _error(self, engine: Engine | WatchedServer, problem: str) -> EngineError:
        name, reason = engine.spec.name, next((f": {row.last_error}" for row in engine.states if row.last_error), "")
        if isinstance(engine, WatchedServer):
            return EngineError(f"engine {name} {problem}{reason}")
        return EngineError(f"local engine {name} {problem}{reason} (log: {log_of(self._logs, engine.spec, 0)})")

    def _engine(self, name: str) -> Engine | WatchedServer:
        if name not in self._engines:
            raise EngineError(f"there is no engine {name!r}: running are {', '.join(self._engines) or 'none'}")
        return self._engines[name]


def _serves(engine: Engine | WatchedServer) -> bool:
    return any(state.status in SERVING for state in engine.states)


# Engines that outlive the shell, each with its own supervisor process.


def start_detached(spec: Launched, logs: Path, home: EngineHome) -> "subprocess.Popen[bytes]":
    """Starts a supervisor process and returns at once. Raises `EngineError` if nothing can be written."""
    try:
        logs.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _output_path(logs, spec.name).open("wb") as output:
            process = subprocess.Popen(  # noqa: S603 - ourselves
                (sys.executable, "-P", "-m", "local_serving.supervisor", str(home.folder), str(logs), home.python),
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=output,
                start_new_session=True,
            )
    except OSError as error:
        raise EngineError(f"can't write to {logs}: {error.strerror}; set LOWPASS_HOME") from error
    assert process.stdin is not None  # noqa: S101
    with process.stdin as stdin:
        stdin.write(spec.model_dump_json().encode())
    return process


def why_ended(logs: Path, name: str) -> str:
    """Returns why a supervisor ended: the last line of its output."""
    lines = _output_path(logs, name).read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1] if lines else f"{name} was ended before it served"


def end_detached(engine: EngineRecord, folder: Path) -> bool:
    """Drains and ends an engine, and waits for it; returns whether it ended, else kills its supervisor."""
    os.kill(engine.process.pid, signal.SIGTERM)
    deadline = monotonic() + _END_LIMIT_S
    while (now := record.read(folder, engine.name)) and now.owned and monotonic() < deadline:
        sleep(_LOOK_EVERY_S)
    if now and now.owned:
        os.kill(engine.process.pid, signal.SIGKILL)
    return not (now and now.owned)


def _output_path(logs: Path, name: str) -> Path:
    """Returns the file for the output of an engine's supervisor."""
    return logs / f"{name}.up.log"


async def _keep(spec: EngineSpec, logs: Path, home: EngineHome) -> None:
    """Runs an engine until SIGTERM, or until its first start has failed."""
    ended, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, ended.set)
    supervisor = Supervisor([spec], logs, home, "up")
    if not supervisor.runs(spec.name):
        raise EngineError(f"{spec.name} runs already")
    supervisor.launch()
    starting = loop.create_task(supervisor.ready(spec.name))
    ending = loop.create_task(ended.wait())
    await asyncio.wait({starting, ending}, return_when=asyncio.FIRST_COMPLETED)
    try:
        if starting.done():
            starting.result()
            await ending
            await supervisor.drain(spec.name)
    finally:
        starting.cancel()
        await supervisor.stop()


if __name__ == "__main__":
    try:
        asyncio.run(
            _keep(
                TypeAdapter[EngineSpec](EngineSpec).validate_json(sys.stdin.buffer.read()),
                Path(sys.argv[2]),
                EngineHome(Path(sys.argv[1]), sys.argv[3]),
            )
        )
    except EngineError as error:
        sys.exit(str(error))
