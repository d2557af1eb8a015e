"""The local engines of a gateway: started together, each kept alive, stopped together."""

import asyncio
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

from local_serving.launch.engine import Engine
from local_serving.served import served
from local_serving.spec import EngineError, EngineSpec
from router.types.engine import EngineState, Served

READY_LIMIT_S = 60.0


class Supervisor:
    """Children of this process, in the running event loop; each logs to `log_dir`/<engine>.log, bounded to twice 1 MB.

    Either `await start()`, or `launch()` and later `await ready(name)`; then `await stop()`, whatever happened.
    """

    def __init__(self, specs: Iterable[EngineSpec], log_dir: Path) -> None:
        self._engines = {spec.name: Engine(spec, log_dir) for spec in specs}
        self.served: Mapping[str, Served] = MappingProxyType(
            {name: served(engine.spec, [engine.url]) for name, engine in self._engines.items()}
        )
        """By engine's name. Ports are chosen here, once: the URLs outlive restarts."""

    @property
    def states(self) -> tuple[EngineState, ...]:
        return tuple(engine.state for engine in self._engines.values())

    def launch(self) -> None:
        """Spawns every engine and returns at once."""
        for engine in self._engines.values():
            engine.launch()

    async def ready(self, name: str, timeout_s: float = READY_LIMIT_S) -> None:
        """Waits until the engine serves. Raises `EngineError` if it is unknown, failed or not ready in time."""
        if name not in self._engines:
            raise EngineError(f"there is no engine {name!r}: running are {', '.join(self._engines) or 'none'}")
        await self._engines[name].ready(timeout_s)

    async def start(self, timeout_s: float = READY_LIMIT_S) -> None:
        """Launches every engine and waits for all; when one fails, stops the others and raises its `EngineError`."""
        self.launch()
        try:
            for name in self._engines:
                await self.ready(name, timeout_s)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """SIGTERM to every process group, SIGKILL 5 s later to what is left; returns when all children are gone."""
        await asyncio.gather(*(engine.stop() for engine in self._engines.values()))
