"""The crew as the first process has it."""

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from router.telemetry import Telemetry, Values, together
from router.types.engine import EngineState
from router.workers.messages import Engines, Post
from router.workers.seat import Seat

GRACE_S = 5.0
"""How much longer than it may drain a worker is waited for, before SIGKILL."""
ENGINES_EVERY_S = 0.2
"""How often workers are told what became of the local engines, if anything did."""


class WorkerError(Exception):
    """A worker does not start; says why."""


class Workers:
    """The first process itself and `count` - 1 workers, in the running event loop.

    `launch()`, then `await ready()`; then `await stop()`, whatever happened.
    """

    def __init__(self, count: int, post: Post, engines: Callable[[], Sequence[EngineState]]) -> None:
        self.telemetry = Telemetry()
        self._states = engines
        self._seats = [Seat(self, msgspec.structs.replace(post, number=number)) for number in range(2, count + 1)]
        self._lives: list[asyncio.Future[None]] = []
        self._telling: asyncio.Future[None] | None = None

    @property
    def engines(self) -> Sequence[EngineState]:
        return self._states()

    def launch(self) -> None:
        """Spawns every worker and returns at once."""
        self._lives = [asyncio.ensure_future(seat.keep_filled()) for seat in self._seats]
        if self._seats:
            self._telling = asyncio.ensure_future(self._tell_engines())

    async def ready(self) -> None:
        """Waits until all serve and know of the engines what is known now. Raises `WorkerError`."""
        for seat in self._seats:
            if failure := await seat.opened:
                raise WorkerError(f"worker {seat.number} does not start ({failure}); what it said of it is above")
            seat.send(Engines(self.engines))
        # Messages are read in their order: who has answered this one knows the one before.
        await self.values()

    async def values(self) -> Values:
        await asyncio.gather(*(seat.count() for seat in self._seats))
        return together([self.telemetry.values(), *(seat.values for seat in self._seats)])

    def drain(self, at_once: bool = False) -> None:
        """No worker is replaced any more. Those that serve finish their requests; `at_once`: they cut them off."""
        for seat in self._seats:
            seat.drain(at_once)

    async def stop(self, drain_s: float) -> None:
        """Returns when all workers are gone: by themselves within `drain_s` and `GRACE_S`, else killed."""
        self.drain()
        if self._telling is not None:
            self._telling.cancel()
        if self._lives:
            await asyncio.wait(self._lives, timeout=drain_s + GRACE_S)
        for seat in self._seats:
            seat.kill()
        await asyncio.gather(*self._lives)

    async def _tell_engines(self) -> None:
        told = self.engines
        while True:
            await asyncio.sleep(ENGINES_EVERY_S)
            if told != self.engines:
                told = self.engines
                for seat in self._seats:
                    seat.send(Engines(told))
