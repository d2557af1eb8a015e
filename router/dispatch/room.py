"""Where requests wait for room in a budget: what others hold comes back when they are settled."""

import asyncio
from collections.abc import Awaitable, Callable

from router.types.account import Refused, Reservation
from router.types.clock import clock_ms

LOOK_S = 0.1
"""How often a waiting request looks again by itself: other processes settle without a word."""
PATIENCE_MS = 10_000
"""How long a request waits for room that others hold; its own deadline may be sooner."""


class Room:
    """Use inside one running event loop."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Future[None]] = set()

    def wake(self) -> None:
        """Something was settled here."""
        waiting, self._waiting = self._waiting, set()
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def until_there_is(
        self, reserve: Callable[[], Awaitable[Reservation | Refused]], patience_ms: float
    ) -> Reservation | Refused:
        """Tries again and again while only requests in progress stand in the way."""
        until = clock_ms() + patience_ms
        while True:
            outcome = await reserve()
            if isinstance(outcome, Reservation) or not outcome.passing or clock_ms() >= until:
                return outcome
            await self._turn()

    async def _turn(self) -> None:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self._waiting.add(future)
        timer = loop.call_later(LOOK_S, _done, future)
        try:
            await future
        finally:
            timer.cancel()
            self._waiting.discard(future)


def _done(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
