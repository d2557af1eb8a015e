"""Settlements on their way to Redis: each until it is confirmed, in order, however often the server goes."""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence

from msgspec import Struct

from router.budget.redis.children import RedisChildren
from router.budget.redis.link import Argument
from router.budget.redis.rows import Rows
from router.budget.redis.scripts import number
from router.budget.redis.server import RedisServer, Reply
from router.types.account import Hold
from router.types.store import StoreUnavailable

SETTLED_MS = 1_800_000
"""How long a settled request is remembered: a settlement that is repeated later counts as one of a lost hold."""
DONE, LOST, NEEDS = 1, 3, 4
"""Replies of settle.lua."""

_log = logging.getLogger(__name__)


class Ending(Struct):
    """What a request is charged for its holds; `drop`: nothing, its reserve was never answered."""

    number: int
    request_id: str
    holds: Sequence[Hold]
    charges: Sequence[int]
    drop: bool
    unsure: bool = False
    """It was sent, and no answer came: it may have been booked."""
    above: Sequence[str] = ()
    """Accounts above those of the holds: where a child is closed or overrun they change too."""


class Settlements:
    """At most one a request; they never outnumber the requests that were open when the server went."""

    def __init__(self, server: RedisServer, children: RedisChildren, rows: Rows, owner: str) -> None:
        self._server, self._children, self._rows, self._owner = server, children, rows, owner
        self._open: dict[str, Ending] = {}
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._climbing: set[asyncio.Task[None]] = set()
        self._number = 0
        self._written: list[str] = []
        """Requests whose rows are queued: this process answers for them until the ledger has them."""

    def written(self) -> list[str]:
        """Since the last time."""
        written, self._written = self._written, []
        return written

    def end(self, request_id: str, holds: Sequence[Hold], charges: Sequence[int], *, drop: bool = False) -> None:
        """A second end of the same request, while the first is on its way, is none."""
        if request_id in self._open:
            return
        self._number += 1
        ending = self._open[request_id] = Ending(self._number, request_id, holds, charges, drop)
        if self._server.available:
            self._send(ending)

    async def confirmed(self) -> None:
        """All that were queued so far; at once where the server is gone."""
        if self._open and self._server.available:
            future = asyncio.get_running_loop().create_future()
            self._waiters.append((self._number, future))
            await future

    def resume(self) -> None:
        """The server is there again."""
        for ending in list(self._open.values()):
            self._send(ending)

    def _send(self, ending: Ending) -> None:
        keys = self._server.keys
        names = (*(hold.account for hold in ending.holds), *ending.above)
        touched = [keys.requests + ending.request_id, keys.owner(self._owner), keys.owners]
        touched += [keys.accounts + name for name in names]
        arguments: list[Argument] = ["drop" if ending.drop else "settle", ending.request_id, self._owner, SETTLED_MS]
        arguments.append(len(ending.holds))
        for hold, charge in zip(ending.holds, ending.charges, strict=True):
            arguments += (hold.account, hold.window_start_ms, charge)
        arguments += ending.above
        self._server.call("settle", touched, arguments, lambda reply: self._ended(ending, reply))

    def _ended(self, ending: Ending, reply: Reply | Exception) -> None:
        if isinstance(reply, StoreUnavailable):
            ending.unsure = True
            self._wake(None)
            return
        if isinstance(reply, Exception):
            _log.error("request %s could not be settled: %s", ending.request_id, reply)
        elif reply[0] == NEEDS:
            self._climb(ending, str(reply[1]))
            return
        else:
            self._booked(ending, number(reply[0]), reply[1:])
        self._open.pop(ending.request_id, None)
        self._wake(next((waiting.number for waiting in self._open.values()), self._number + 1))

    def _climb(self, ending: Ending, child: str) -> None:
        task = asyncio.get_running_loop().create_task(self._look_above(ending, child))
        self._climbing.add(task)
        task.add_done_callback(self._climbing.discard)

    async def _look_above(self, ending: Ending, child: str) -> None:
        try:
            above = await self._children.ancestors(child)
        except StoreUnavailable:
            self._wake(None)
            return
        ending.above = (*ending.above, *above)
        self._send(ending)

    def _booked(self, ending: Ending, how: int, moved: Sequence[object]) -> None:
        if how == LOST:
            for hold, charge in zip(ending.holds, ending.charges, strict=True):
                told = (ending.request_id, charge, hold.account)
                _log.error("request %s was charged %d in %s, where it held nothing", *told)
        # Done before: by this one, whose answer was lost, or by another one, which has written its rows.
        if how or ending.unsure:
            if not ending.drop:
                self._rows.settled(ending.request_id, ending.holds, ending.charges)
            self._rows.followed(moved)
        if not ending.drop:
            self._written.append(ending.request_id)

    def _wake(self, upto: int | None) -> None:
        """Those who wait for endings before this one; None: all, as the server is gone."""
        while self._waiters and (upto is None or self._waiters[0][0] < upto):
            _, future = self._waiters.popleft()
            if not future.done():
                future.set_result(None)
