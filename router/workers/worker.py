"""The crew as a worker has it."""

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from threading import Thread

from router.telemetry import Telemetry, Values
from router.types.engine import EngineState
from router.workers.messages import (
    Count,
    Counted,
    Drain,
    Engines,
    Ready,
    Sum,
    ToFirst,
    Total,
    ToWorker,
    frame,
    to_worker,
)


class Worker:
    """Use inside one running event loop. Ends the process when the first one is gone."""

    def __init__(self, channel: socket.socket) -> None:
        self.telemetry = Telemetry()
        self.engines: Sequence[EngineState] = ()
        self._loop = asyncio.get_running_loop()
        self._channel = channel
        self._drain: Callable[[bool], None] | None = None
        self._totals: deque[asyncio.Future[Values]] = deque()
        Thread(target=self._listen, name="channel", daemon=True).start()

    def ready(self, drain: Callable[[bool], None]) -> None:
        """Tells that requests are served from now on; `drain(at_once)` is called when that should end."""
        self._drain = drain
        self._send(Ready())

    async def values(self) -> Values:
        total: asyncio.Future[Values] = self._loop.create_future()
        self._totals.append(total)
        self._send(Sum())
        return await total

    def _listen(self) -> None:
        """In a thread of its own, so that the end is noticed even while the event loop is stuck."""
        try:
            for message in to_worker(self._channel):
                self._loop.call_soon_threadsafe(self._take, message)
        finally:
            os._exit(1)

    def _take(self, message: ToWorker) -> None:
        match message:
            case Engines():
                self.engines = message.states
            case Count():
                self._send(Counted(self.telemetry.values()))
            case Total():
                total = self._totals.popleft()
                if not total.done():
                    total.set_result(message.values)
            case Drain():
                if self._drain is not None:
                    self._drain(message.at_once)

    def _send(self, message: ToFirst) -> None:
        self._channel.sendall(frame(message))
