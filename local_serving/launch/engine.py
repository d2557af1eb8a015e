"""One engine with all of its replicas: run by this process, or by another one of the same home folder and followed."""

import asyncio
import socket
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from random import sample
from urllib.parse import urlsplit

from local_serving.launch import record
from local_serving.launch.recipe import HOST, Launched, Place
from local_serving.launch.record import Owner, Record
from local_serving.launch.replica import Replica
from local_serving.spec import EngineError, Llamacpp
from router.types.engine import EngineState, Status

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
        self.urls = known if known and (not self._claim or _free(known)) else _addresses(spec.replicas)
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

    def replica(self, number: int) -> Replica:
        """Raises `EngineError` where this process does not run it."""
        if number >= len(self._replicas):
            raise EngineError(f"replica {number} of {self.spec.name} is not run by this process")
        return self._replicas[number]

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
            self._claim.release()
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
    free = (port for port in sample(OWN_PORTS, len(OWN_PORTS) // 8) if _bindable(port))
    return tuple(f"http://{HOST}:{port}/v1" for port in islice(free, count))


def _free(urls: Iterable[str]) -> bool:
    return all(_bindable(urlsplit(url).port or 0) for url in urls)


def _bindable(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
