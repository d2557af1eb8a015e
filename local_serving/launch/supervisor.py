"""The local engines of a gateway: started together, each kept alive, stopped together."""

import asyncio
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

from local_serving.launch.engine import Engine
from local_serving.launch.external import Watched
from local_serving.launch.recipe import Place
from local_serving.launch.record import Owner
from local_serving.served import served
from local_serving.spec import EngineError, EngineSpec, External
from router.types.engine import SERVING, EngineState, Served, Status

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

    async def drain(self, name: str, replica: int | None = None, limit_s: float = DRAIN_S) -> None:
        """DRAINING while it finishes what it has, for `limit_s` at most; then it is stopped. Raises `EngineError`."""
        engine = self._engine(name)
        await (engine.drain(limit_s) if replica is None else engine.replica(replica).drain(limit_s))

    async def wake(self, name: str, replica: int = 0) -> None:
        """At once; it also wakes by itself when requests reach it. Raises `EngineError`."""
        await self._engine(name).replica(replica).wake()

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
