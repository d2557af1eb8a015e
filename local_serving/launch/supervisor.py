"""The supervisor of all engines of a gateway, and engines that others run."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from random import sample
from types import MappingProxyType
from urllib.parse import urlsplit

import msgspec

from local_serving.launch import record, replica
from local_serving.launch.llamacpp import HOST, taken
from local_serving.launch.recipe import Launched, Place
from local_serving.launch.record import Owner, Record
from local_serving.launch.replica import Replica
from local_serving.served import served
from local_serving.spec.spec import EngineError, EngineSpec, External, Llamacpp
from router.types.target import SERVING, EngineState, Served, Status

# One engine with all of its replicas: run by this process, or by another one of the same home folder and followed.

OWN_PORTS = range(20_000, 32_768)
"""Linux gives away those from 32768 on."""
_FOLLOW_EVERY_S = 0.1


class Engine:
    """Call `launch` once, then `stop` or `drain` once. `urls` outlive restarts, whoever runs it."""

    def __init__(self, spec: Launched, logs: Path, place: Place, owner: Owner, changed: Callable[[], None]) -> None:
        """Blocks while leftovers of a killed owner end. Raises `EngineError` if its record can't be written."""
        self.spec, self._logs, self._place, self._owner, self._changed = spec, logs, place, owner, changed
        self._digest, self._process = record.digest(spec), record.this_process()
        self._claim = record.claim(place.folder, spec.name)
        before = record.read(place.folder, spec.name)
        if self._claim and before:
            record.end_leftovers(before.children)
        known = before.urls if before and before.digest == self._digest else ()
        free = not self._claim or not any(taken(urlsplit(url).port or 0) for url in known)
        self.urls = known if known and free else _addresses(spec.replicas)
        self._replicas: tuple[Replica, ...] = ()
        self._followed: Sequence[EngineState] = self._all(Status.STARTING)
        self._following: asyncio.Task[None] | None = None
        if self._claim:
            self._write()

    @property
    def ours(self) -> bool:
        """Whether this process runs it."""
        return self._claim is not None

    @property
    def states(self) -> Sequence[EngineState]:
        return [one.state for one in self._replicas] or self._followed

    def launch(self) -> None:
        """Raises `EngineError` if logs can't be written."""
        if self._claim:
            self._run()
        else:
            self._following = asyncio.get_running_loop().create_task(self._follow(), name=f"engine {self.spec.name}")

    async def stop(self) -> None:
        """Ends what this process runs of it."""
        await self._end(one.stop() for one in self._replicas)

    async def drain(self, limit_s: float) -> None:
        """Requests in progress have `limit_s` to finish; then it is stopped."""
        await self._end(one.drain(limit_s) for one in self._replicas)

    def error(self, what: str) -> EngineError:
        reason = next((f": {state.last_error}" for state in self.states if state.last_error), "")
        return EngineError(f"local engine {self.spec.name} {what}{reason} (log: {self._log(0)})")

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
            Replica(self.spec, number, url, self._log(number), self._place, self._tell)
            for number, url in enumerate(self.urls)
        )
        for one in self._replicas:
            one.launch()

    async def _follow(self) -> None:
        """What its owner writes of it. When that was killed, or was a gateway that ended, the engine becomes ours."""
        while not self._claim:
            self._hear(before := record.read(self._place.folder, self.spec.name))
            if before and not before.owned and not (before.ended and before.owner == "up"):
                self._claim = record.claim(self._place.folder, self.spec.name)
                await asyncio.to_thread(record.end_leftovers, before.children if self._claim else ())
            await asyncio.sleep(_FOLLOW_EVERY_S)
        self._run()
        self._tell()

    def _hear(self, now: Record | None) -> None:
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

    def _all(self, status: Status, why: str = "") -> list[EngineState]:
        name, model = self.spec.name, self.spec.model
        return [
            EngineState(name=name, model=model, status=status, replica=number, url=url, last_error=why)
            for number, url in enumerate(self.urls)
        ]

    def _log(self, number: int) -> Path:
        return self._logs / (f"{self.spec.name}.log" if self.spec.replicas == 1 else f"{self.spec.name}.{number}.log")

    def _tell(self) -> None:
        self._write()
        self._changed()

    def _write(self, *, ended: bool = False) -> None:
        pids = [pid for one in self._replicas for pid in (one.guardian, one.state.pid) if pid is not None]
        now = Record(
            name=self.spec.name,
            kind="llamacpp" if isinstance(self.spec, Llamacpp) else "vllm",
            digest=self._digest,
            owner=self._owner,
            process=self._process,
            urls=self.urls,
            states=tuple(self.states),
            children=tuple(record.process(pid) for pid in pids),
            ended=ended,
        )
        with suppress(OSError):  # a full disk is no reason to let a running engine go
            record.write(self._place.folder, now)


def _addresses(count: int) -> tuple[str, ...]:
    """Base URLs of free ports, below those that the system gives away: one of these may be taken before the engine
    listens on it."""
    free = (port for port in sample(OWN_PORTS, len(OWN_PORTS) // 8) if not taken(port))
    return tuple(f"http://{HOST}:{port}/v1" for port in islice(free, count))


# Servers that somebody else runs: never started or stopped, only asked whether they serve.

ASK_EVERY_S = 1.0
LOST_AFTER = 3
"""Failures in a row until a server that served counts as gone."""


class Watched:
    """As `Engine` is used."""

    def __init__(self, spec: External, changed: Callable[[], None]) -> None:
        self.spec, self.urls, self._changed = spec, spec.urls, changed
        self._states = [
            EngineState(name=spec.name, model=spec.model, status=Status.STARTING, replica=number, url=url)
            for number, url in enumerate(spec.urls)
        ]
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def states(self) -> Sequence[EngineState]:
        return tuple(self._states)

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
        """It goes on without us."""
        await self.stop()

    def error(self, what: str) -> EngineError:
        reason = next((f": {state.last_error}" for state in self._states if state.last_error), "")
        return EngineError(f"engine {self.spec.name} {what}{reason}")

    async def _watch(self, number: int) -> None:
        failures = 0
        while True:
            why = await self._asked(self.urls[number])
            failures = failures + 1 if why else 0
            if not why:
                self._update(number, Status.READY)
            elif failures >= LOST_AFTER or self._states[number].status is not Status.READY:
                self._update(number, Status.FAILED, why)
            await asyncio.sleep(ASK_EVERY_S)

    async def _asked(self, url: str) -> str:
        """Why it does not serve; empty: it does."""
        try:
            if await replica.serves(url, self._names()):
                return ""
        except replica.Stranger as stranger:
            return f"{stranger}: correct `urls` or `served` in the spec of {self.spec.name}"
        except OSError as error:
            return f"{url} does not answer ({error.strerror or type(error).__name__}): start it, or correct `urls`"
        return f"{url} says that it is not well"

    def _names(self) -> tuple[str, ...]:
        """llama.cpp answers to any name."""
        anything = self.spec.metrics == "llamacpp"
        return self.spec.served or (() if anything else (self.spec.model, self.spec.model.rpartition("/")[2]))

    def _update(self, number: int, status: Status, why: str = "") -> None:
        before = self._states[number]
        self._states[number] = msgspec.structs.replace(before, status=status, last_error=why or before.last_error)
        if self._states[number] != before:
            self._changed()


# The local engines of a gateway: started together, each kept alive, stopped together.

DRAIN_S = 20.0
_OVER = (Status.FAILED, Status.STOPPED)


class Supervisor:
    """Children of this process, in the running event loop; each logs to `log_dir`/<engine>[.<replica>].log, bounded to
    twice 1 MB. An engine that another process of the same place runs already is used, not started again.

    Either `await start()`, or `launch()` and later `await ready(name)`; then `await stop()`, whatever happened.
    """

    def __init__(
        self, specs: Iterable[EngineSpec], log_dir: Path, place: Place | None = None, owner: Owner = "serve"
    ) -> None:
        """`place`: else state is kept in `log_dir`/engines. Raises `EngineError` if nothing can be written there."""
        self._news = asyncio.Event()
        where = place or Place(log_dir / "engines")
        self._engines: dict[str, Engine | Watched] = {
            spec.name: Watched(spec, self._tell)
            if isinstance(spec, External)
            else Engine(spec, log_dir, where, owner, self._tell)
            for spec in specs
        }
        self.served: Mapping[str, Served] = MappingProxyType(
            {name: served(engine.spec, engine.urls) for name, engine in self._engines.items()}
        )
        """By engine's name. Ports are chosen here, once: the URLs outlive restarts."""

    @property
    def states(self) -> tuple[EngineState, ...]:
        """Of every replica."""
        return tuple(state for engine in self._engines.values() for state in engine.states)

    def runs(self, name: str) -> bool:
        """Whether this process runs the engine; else it belongs to another one of this place, or to somebody else."""
        engine = self._engine(name)
        return isinstance(engine, Engine) and engine.ours

    def launch(self) -> None:
        """Spawns every engine and returns at once. Raises `EngineError` if its log can't be written."""
        for engine in self._engines.values():
            engine.launch()

    async def ready(self, name: str, timeout_s: float | None = None) -> None:
        """Waits until a replica of the engine serves; at most `timeout_s`, or for as long as its spec lets it start.

        Raises `EngineError` if it is unknown, all its replicas failed or were stopped, or it is not ready in time.
        """
        engine = self._engine(name)
        limit_s = engine.spec.start_s + 5.0 if timeout_s is None else timeout_s
        try:
            async with asyncio.timeout(limit_s):
                while not self._settled(engine):
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise engine.error(f"is not ready after {limit_s:g} s") from None
        if not any(state.status in SERVING for state in engine.states):
            failed = any(state.status is Status.FAILED for state in engine.states)
            raise engine.error("does not start" if failed else "was stopped")

    async def start(self, timeout_s: float | None = None) -> None:
        """Launches every engine and waits for all; when one fails, stops the others and raises its `EngineError`."""
        try:
            self.launch()
            for name in self._engines:
                await self.ready(name, timeout_s)
        except BaseException:
            await self.stop()
            raise

    async def drain(self, name: str) -> None:
        """DRAINING while it finishes what it has, for `DRAIN_S` at most; then it is stopped. Raises `EngineError`."""
        await self._engine(name).drain(DRAIN_S)

    async def stop(self) -> None:
        """SIGTERM to every engine, SIGKILL to the group of what is left later; returns when all children are gone."""
        await asyncio.gather(*(engine.stop() for engine in self._engines.values()))

    def _engine(self, name: str) -> Engine | Watched:
        if name not in self._engines:
            raise EngineError(f"there is no engine {name!r}: running are {', '.join(self._engines) or 'none'}")
        return self._engines[name]

    def _settled(self, engine: Engine | Watched) -> bool:
        """A replica serves, or none is going to."""
        statuses = [state.status for state in engine.states]
        return any(status in SERVING for status in statuses) or all(status in _OVER for status in statuses)

    def _tell(self) -> None:
        self._news.set()
