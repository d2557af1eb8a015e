"""How holds in Redis end: by a settlement, sent until it is confirmed, in order, however often the server goes; or by
recovery, which charges what a process that stopped renewing its lease still holds."""

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from router.budget.redis.children import RedisChildren
from router.budget.redis.connection import Argument
from router.budget.redis.rows import Rows
from router.budget.redis.server import RedisServer, Reply, number, strings
from router.types.account import PARALLEL_ACCOUNTS, Amount, Hold, Unit
from router.types.clock import now_ms
from router.types.store import StoreUnavailable

SETTLED_MS = 1_800_000
"""How long a settled request is remembered: a settlement that is repeated later counts as one of a lost hold."""
RECOVERED_MS = 86_400_000
"""How long a hold that was recovered can still be corrected to the true charge."""
DONE, LOST, NEEDS = 1, 3, 4
"""Replies of settle.lua."""

_Held = list[tuple[str, int, int]]
"""Account, window start, amount."""
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


class Recovery:
    """A process renews one key; see lease.lua."""

    def __init__(self, server: RedisServer, children: RedisChildren, rows: Rows, owner: str, lease_ms: int) -> None:
        self._server, self._children, self._rows = server, children, rows
        self._owner, self._lease_ms = owner, lease_ms
        self._quiet_until = 0.0
        self.policy, self.policies = "", frozenset[str]()
        """Hash of the policy that this process is under; those of all gateways at this server."""

    def resume(self) -> None:
        """While the server was gone no process could renew its lease: for the time of one, the living come first."""
        if self._server.interruptions:
            self._quiet_until = asyncio.get_running_loop().time() + self._lease_ms / 1000

    async def run(self) -> int:
        """Returns how many requests were charged."""
        keys = [self._server.keys.owners, self._server.keys.policies]
        dead, policies = await self._server.run("lease", keys, self._owner, self._lease_ms, self.policy)
        self.policies = frozenset(strings(policies))
        if asyncio.get_running_loop().time() < self._quiet_until:
            return 0
        return sum([await self._bury(owner) for owner in strings(dead)])

    async def reconcile(self, bookings: Iterable[tuple[str, str, int, int]]) -> None:
        """Bookings of the ledger that are held for long: what Redis says of them is written, which the process that
        ended them, and died, did not write. One that Redis does not know any more is charged what it held.

        `bookings`: request, account, window start, amount.
        """
        held: dict[str, _Held] = {}
        for request_id, account, start, amount in bookings:
            held.setdefault(request_id, []).append((account, start, amount))
        for request_id, kept in held.items():
            request = await self._request(request_id)
            if "s" in request:
                self._rows.settled(request_id, *_settled(request))
            elif "r" in request:
                self._rows.recovered(request_id, _held(request), _granted(request))
            elif "o" not in request:
                _log.error("Redis knows nothing of request %s, which the ledger has as held", request_id)
                self._rows.recovered(request_id, kept, None)
                self._rows.lost(request_id, now_ms())

    async def _request(self, request_id: str) -> Mapping[str, str]:
        fields = strings(await self._server.ask("HGETALL", self._server.keys.requests + request_id))
        return dict(zip(fields[::2], fields[1::2], strict=True))

    async def _bury(self, owner: str) -> int:
        keys = self._server.keys
        requests = strings(await self._server.ask("SMEMBERS", keys.owner(owner)))
        count = sum([await self._charge(owner, request_id) for request_id in requests])
        if not await self._server.ask("EXISTS", keys.owner(owner)):
            await self._server.ask("ZREM", keys.owners, owner)
            await self._server.ask("HDEL", keys.policies, owner)
        return count

    async def _charge(self, owner: str, request_id: str) -> bool:
        request = await self._request(request_id)
        if "s" in request:
            self._rows.settled(request_id, *_settled(request))
            await self._server.ask("SREM", self._server.keys.owner(owner), request_id)
            return False
        held = _held(request)
        reply = await self._settle(owner, request_id, held, ())
        if reply[0] == NEEDS:
            above = await self._children.ancestors(str(reply[1]))
            reply = await self._settle(owner, request_id, held, above)
        if reply[0] != DONE:
            return False
        self._rows.recovered(request_id, held, _granted(request))
        self._rows.followed(reply[1:])
        return True

    async def _settle(self, owner: str, request_id: str, held: _Held, above: Sequence[str]) -> Reply:
        keys = self._server.keys
        touched = [keys.requests + request_id, keys.owner(owner), keys.owners]
        touched += [keys.accounts + name for name in (*(account for account, _, _ in held), *above)]
        arguments: list[Argument] = ["recover", request_id, owner, RECOVERED_MS, len(held)]
        for account, start, amount in held:
            arguments += (account, start, 0 if account.startswith(PARALLEL_ACCOUNTS) else amount)
        return await self._server.run("settle", touched, *arguments, *above)


def _held(request: Mapping[str, str]) -> _Held:
    holds = []
    for name, amount in request.items():
        start, bar, account = name.partition("|")
        if bar:
            holds.append((account, int(start), int(amount)))
    return holds


def _granted(request: Mapping[str, str]) -> Amount | None:
    """None for one that was written anew from the ledger."""
    return Amount(int(request["u"]), int(request["t"])) if "u" in request else None


def _settled(request: Mapping[str, str]) -> tuple[list[Hold], list[int]]:
    """What settle.lua noted of a request whose owner died before it wrote the rows."""
    holds, charges = [], []
    for name, amounts in request.items():
        if name.startswith("c|"):
            _, start, account = name.split("|", 2)
            held, charged = amounts.split("|")
            holds.append(Hold(account, int(start), Unit.USD, int(held)))
            charges.append(int(charged))
    return holds, charges
