"""Meters the local engines beside the requests: what they did by the hour and what their tokens cost goes into the
ledger, where every process of every gateway reads it."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress

from local_serving.meter import Machine, Metered
from router.ledger.engines import GATEWAY, in_force, keep, newest
from router.ledger.ledger import Ledger
from router.types.clock import now_ms
from router.types.engine import EngineState
from router.types.journal import LedgerUnavailable
from router.types.metered import EngineHour, EnginePrice, added

READ_S = 0.5
"""Between two looks at the engines' loads."""
KEEP_S = 10.0
"""Between two writes: so much is lost when the gateway is killed."""
_log = logging.getLogger("lowpass")


class Metering:
    """`launch()` in the running event loop of the first process; then `await stop()`."""

    def __init__(
        self,
        ledger: Ledger,
        machines: Sequence[Machine],
        states: Callable[[], Sequence[EngineState]],
        read_s: float = READ_S,
        keep_s: float = KEEP_S,
    ) -> None:
        self._ledger, self._machines, self._states = ledger, machines, states
        self._read_s, self._keep_s = read_s, keep_s
        self._metered: dict[str, Metered] = {}
        self._hours: dict[tuple[str, int], EngineHour] = {}
        self._prices: list[EnginePrice] = []
        self._ended = asyncio.Event()
        self._life: asyncio.Future[None] | None = None

    def launch(self) -> None:
        if self._machines:
            self._life = asyncio.ensure_future(self._meter())
            self._life.add_done_callback(_tell)

    async def stop(self) -> None:
        """Writes what is known."""
        self._ended.set()
        if self._life is not None:
            await asyncio.wait([self._life])

    async def _meter(self) -> None:
        loop = asyncio.get_running_loop()
        await self._remember()
        due = loop.time() + self._keep_s
        while not self._ended.is_set():
            for state in self._states():
                if state.name in self._metered:
                    self._metered[state.name].read(state.replica, state.load)
            if loop.time() >= due:
                await self._keep()
                due = loop.time() + self._keep_s
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), self._read_s)
        await self._keep()

    async def _remember(self) -> None:
        """The prices that were in force; without a ledger to ask, none was."""
        known: dict[str, EnginePrice] = {}
        with suppress(LedgerUnavailable):
            known = in_force(await asyncio.to_thread(self._newest))
        self._metered = {one.engine: Metered(one, GATEWAY, known.get(one.engine)) for one in self._machines}
        await self._keep()

    def _newest(self) -> list[EnginePrice]:
        with self._ledger.reading() as connection:
            return newest(connection)

    async def _keep(self) -> None:
        """What can't be written now is written with what comes next."""
        now = now_ms()
        for metered in self._metered.values():
            self._note(metered.hour(now), metered.price(now))
        hours, prices = tuple(self._hours.values()), tuple(self._prices)
        if not (hours or prices):
            return
        try:
            await asyncio.to_thread(keep, self._ledger, hours, prices)
        except LedgerUnavailable as error:
            _log.error("what local engines did could not be written (%s), trying again", error)
            return
        self._hours.clear()
        self._prices.clear()

    def _note(self, hour: EngineHour | None, price: EnginePrice | None) -> None:
        if hour is not None:
            at = (hour.engine, hour.hour)
            self._hours[at] = added(self._hours[at], hour) if at in self._hours else hour
        if price is not None:
            self._prices.append(price)


def _tell(life: asyncio.Future[None]) -> None:
    """A mistake of ours costs the measurement, and nothing else."""
    error = None if life.cancelled() else life.exception()
    if error is not None:
        _log.error("local engines are not metered any more, prices stay as they are", exc_info=error)
