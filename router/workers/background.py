"""Background work of the first process: metering of engines, measured prices, and upkeep of the ledger."""

import asyncio
import logging
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable, Sequence
from contextlib import suppress

from local_serving.meter import Metered
from local_serving.spec import EngineSpec
from router.estimate.latency import Measured
from router.ledger.engines import GATEWAY, in_force, keep, newest
from router.ledger.ledger import Ledger
from router.ledger.upkeep import EVERY_S, needed, seal_all
from router.types.account import LedgerUnavailable
from router.types.clock import now_ms
from router.types.price import EngineHour, EnginePrice, added
from router.types.target import EngineState

# Meters the local engines. Their work per hour and the measured prices of their tokens go into the ledger, where every
# process of every gateway reads them.

READ_EVERY_S = 0.5
"""Seconds between two reads of the engines' loads."""
WRITE_EVERY_S = 10.0
"""Seconds between two writes, and so the most that is lost if the gateway is killed."""
_log = logging.getLogger("lowpass")


class Metering:
    """Meters engines. Call `launch()` in the running event loop of the first process, and `await stop()` at the end."""

    def __init__(
        self,
        ledger: Ledger,
        engines: Sequence[tuple[EngineSpec, int]],
        states: Callable[[], Sequence[EngineState]],
        read_s: float = READ_EVERY_S,
        write_s: float = WRITE_EVERY_S,
    ) -> None:
        """`engines` are given with the cost of all their replicas in nano-USD per hour; 0 if unknown."""
        self._ledger, self._engines, self._states = ledger, engines, states
        self._read_s, self._write_s = read_s, write_s
        self._metered: dict[str, Metered] = {}
        self._hours: dict[tuple[str, int], EngineHour] = {}
        self._prices: list[EnginePrice] = []
        self._stopping = asyncio.Event()
        self._task: asyncio.Future[None] | None = None

    def launch(self) -> None:
        if self._engines:
            self._task = asyncio.ensure_future(self._run_until_stopped())
            self._task.add_done_callback(_log_failure)

    async def stop(self) -> None:
        """Stops metering and writes what was measured."""
        self._stopping.set()
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _run_until_stopped(self) -> None:
        loop = asyncio.get_running_loop()
        priced: dict[str, EnginePrice] = {}
        with suppress(LedgerUnavailable):  # without a ledger, assume that no price was in force
            priced = in_force(await asyncio.to_thread(self._read_prices))
        self._metered = {
            spec.name: Metered(spec, hourly, GATEWAY, priced.get(spec.name)) for spec, hourly in self._engines
        }
        await self._write_measurements()
        write_at = loop.time() + self._write_s
        while not self._stopping.is_set():
            for state in self._states():
                if state.name in self._metered:
                    self._metered[state.name].read(state.replica, state.load)
            if loop.time() >= write_at:
                await self._write_measurements()
                write_at = loop.time() + self._write_s
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), self._read_s)
        await self._write_measurements()

    def _read_prices(self) -> list[EnginePrice]:
        with self._ledger.reading() as connection:
            return newest(connection)

    async def _write_measurements(self) -> None:
        """Writes new hours and prices. If that fails, they are written next time."""
        now = now_ms()
        for metered in self._metered.values():
            if (hour := metered.hour(now)) is not None:
                hour_key = (hour.engine, hour.hour)
                self._hours[hour_key] = added(self._hours[hour_key], hour) if hour_key in self._hours else hour
            if (price := metered.price(now)) is not None:
                self._prices.append(price)
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


def _log_failure(task: asyncio.Future[None]) -> None:
    """Logs a bug in metering, which costs the measurement and nothing else."""
    error = None if task.cancelled() else task.exception()
    if error is not None:
        _log.error("local engines are not metered any more, prices stay as they are", exc_info=error)


# Measured prices are read from the ledger, so that all processes use what one gateway's first process measured.

OVERLAP_MS = 120_000
"""Time in ms that a read goes back, as rows of overlapping transactions may appear late."""


class MeasuredPrices:
    """The measured prices of one process."""

    def __init__(self, ledger: Ledger, measured: Measured) -> None:
        self._ledger, self._measured = ledger, measured
        self._known: dict[tuple[str, str], EnginePrice] = {}

    def read(self) -> None:
        """Reads new prices, which later decisions use. Waits for the database, so call it in a thread.

        Raises `LedgerUnavailable`; then prices stay as they are.
        """
        since = max((price.since_ms for price in self._known.values()), default=OVERLAP_MS) - OVERLAP_MS
        with self._ledger.reading() as connection:
            rows = {(price.engine, price.gateway): price for price in newest(connection, since)}
        if any(self._known.get(key) != price for key, price in rows.items()):
            self._known |= rows
            self._measured.publish({engine: price.price for engine, price in in_force(self._known.values()).items()})


# Keeps the ledger in order beside the requests, in a process that runs while there is work.


class Upkeep:
    """Runs upkeep. Call `launch()` in the running event loop of the first process, and `await stop()` at the end."""

    def __init__(self, ledger: Ledger, keep_ms: int | None, every_s: float = EVERY_S) -> None:
        """`keep_ms` is how long rows are kept; None for ever."""
        self._ledger, self._keep_ms, self._every_s = ledger, keep_ms, every_s
        self._process: Process | None = None
        self._task: asyncio.Future[None] | None = None

    def launch(self) -> None:
        self._task = asyncio.ensure_future(self._run_forever())

    async def stop(self) -> None:
        """Kills the upkeep process, which may end at any moment, and seals what was settled last. Call it after the
        workers have ended."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
        with suppress(LedgerUnavailable):
            await asyncio.to_thread(seal_all, self._ledger)

    async def _run_forever(self) -> None:
        with suppress(LedgerUnavailable):  # what a killed gateway had settled last
            await asyncio.to_thread(seal_all, self._ledger)
        while True:
            await asyncio.sleep(self._every_s)
            try:
                if await asyncio.to_thread(needed, self._ledger, now_ms(), self._keep_ms):
                    await self._run()
            except (LedgerUnavailable, OSError) as error:
                _log.error("settled rows of the ledger could not be moved (%s), trying again", error)

    async def _run(self) -> None:
        """Runs the process, which ends if its stdin closes. In its own session, a Ctrl-C in the terminal misses it."""
        process = self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "router.ledger.upkeep"),
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdin=PIPE,
            stdout=DEVNULL,
            stderr=PIPE,
            start_new_session=True,
        )
        assert process.stderr is not None  # noqa: S101
        stderr_bytes = await process.stderr.read()
        status = await process.wait()
        self._process = None
        if status:
            reason = (stderr_bytes.decode(errors="replace").strip().splitlines() or [f"exit status {status}"])[-1]
            raise OSError(reason)
