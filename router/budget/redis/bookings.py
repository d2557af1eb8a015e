"""Bookings as Redis has them."""

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec import Struct, structs

from router.budget.redis.connection import Argument
from router.budget.redis.server import RECOVERED_MS, SETTLED_MS, RedisKeys, RedisServer, Reply, number, strings
from router.types.account import (
    GRANTED,
    INCIDENT,
    PARALLEL_ACCOUNTS,
    PASSING_ACCOUNTS,
    SPLIT,
    Account,
    Amount,
    Child,
    Hold,
    Journal,
    Refused,
    Reservation,
    StoreUnavailable,
    Unit,
)
from router.types.clock import least_id, now_ms
from router.types.price import usd_text
from router.types.request import Latest
from router.types.tables import patterns

# What the distributed store writes into the ledger: one row a request and account, so that the ledger is its audit.
#
# Rows follow what Redis has confirmed: what is not settled there stays `held` here. All may be written twice. Rates
# are in Redis alone: a minute later they count no more.

_SQL: Mapping[str, str] = patterns("budget/data/redis.yaml")


class BookingRows:
    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def held(self, reservation: Reservation) -> None:
        for hold in reservation.holds:
            if not hold.account.startswith(PASSING_ACCOUNTS):
                self.hold(reservation.request_id, hold.account, hold.window_start_ms, hold.amount)
        self.granted(reservation)

    def hold(self, request_id: str, account: str, window_start_ms: int, amount: int) -> None:
        self._journal.add(_SQL["hold"], (request_id, account, window_start_ms, amount))

    def extended(self, reservation: Reservation) -> None:
        for hold in reservation.holds:
            self._journal.change(_SQL["extended"], (hold.amount, reservation.request_id, hold.account))
        self.granted(reservation)

    def settled(self, request_id: str, holds: Sequence[Hold], charges: Sequence[int]) -> None:
        for hold, charge in zip(holds, charges, strict=True):
            if not hold.account.startswith(PASSING_ACCOUNTS):
                row = (request_id, hold.account, hold.window_start_ms, hold.amount, charge)
                self._journal.change(_SQL["settled"], (*row, request_id, hold.account))

    def recovered(self, request_id: str, holds: Iterable[tuple[str, int, int]], granted: Amount | None) -> None:
        """`holds`: account, window start, amount. `granted`: None where the ledger knows it best."""
        for account, start, amount in holds:
            if not account.startswith(PASSING_ACCOUNTS):
                row = (request_id, account, start, amount, amount)
                self._journal.change(_SQL["recovered"], (*row, request_id, account))
        usd, thinking = (None, None) if granted is None else (granted.usd, granted.thinking)
        self._journal.change(_SQL["crashed"], (usd, thinking, usd, thinking, request_id))

    def lost(self, request_id: str, scope: str, subject: str, reason: str) -> None:
        """Redis knew nothing of a request that was held, of the last of several."""
        now, kind = now_ms(), "lost_booking"
        self._journal.add(INCIDENT, (f"{kind}-{request_id}", now, kind, scope, subject, reason, now))

    def followed(self, moved: Sequence[object]) -> None:
        """Bookings of children in their parents, as the scripts tell them: child, parent, window, held, spent, done."""
        for at in range(0, len(moved), 6):
            child, parent, _, held, spent, done = moved[at : at + 6]
            if done:
                self._journal.change(_SQL["folded"], (number(spent), str(child), str(parent)))
            else:
                self._journal.change(_SQL["extended"], (number(held), str(child), str(parent)))

    def granted(self, reservation: Reservation) -> None:
        self._journal.change(_SQL["granted"], (*structs.astuple(reservation.granted), reservation.request_id))


# Budgets split off, in Redis. A child's booking in its parent is kept by the scripts; see lua/pot.lua.

LARGEST = 2**53 - 1
"""nano-USD or tokens, nine million dollars: Lua counts in doubles."""
CLOSED_MS = 35 * 86_400_000
"""How long a closed child can be looked up."""
_TRIES = 5


class RedisChildren:
    def __init__(self, server: RedisServer, rows: BookingRows) -> None:
        self._server, self._rows, self._keys = server, rows, server.keys

    async def split(self, parent: Account, child: Child, now_ms: int) -> Child | Refused:
        """Raises ValueError for an id in use, a limit below 1 or above `LARGEST`, or a unit other than the parent's."""
        if child.limit > LARGEST:
            raise ValueError(f"a budget in Redis can't be larger than {LARGEST}")
        if child.limit < 1 or child.unit is not parent.unit:
            raise ValueError(f"a budget split off {parent.id} needs a limit of 1 or more, in {parent.unit}")
        keys = [self._keys.accounts + parent.id, self._keys.accounts + child.id, self._keys.documents + child.id]
        keys += [self._keys.children, self._keys.requests + child.id]
        ends: Argument = "" if child.expires_at_ms is None else child.expires_at_ms
        reply = await self._server.run(
            "split",
            keys,
            *(now_ms, child.id, msgspec.json.encode(child), child.limit, ends, int(child.outlives(parent))),
            *(parent.id, int(parent.scope == SPLIT), parent.limit, parent.window_start_ms, parent.since_ms),
        )
        if reply[0] == 2:
            raise ValueError(f"the id {child.id} is in use: an id is for one budget only")
        if reply[0] == 0:
            return Refused(account=parent, spent=number(reply[1]), held=number(reply[2]), needed=child.limit)
        self._rows.hold(child.id, parent.id, parent.window_start_ms, child.limit)
        return child

    async def child(self, identifier: str) -> Child | None:
        document = await self._server.ask("GET", self._keys.documents + identifier)
        return None if document is None else _read(document)

    async def still_open(self) -> list[Child]:
        identifiers = strings(await self._server.ask("SMEMBERS", self._keys.children))
        if not identifiers:
            return []
        documents = await self._server.ask("MGET", *[self._keys.documents + name for name in identifiers])
        return sorted(map(_read, strings(documents)), key=lambda child: (child.created_ms, child.id))

    async def ancestors(self, identifier: str) -> list[str]:
        """Accounts above a child, from its parent up; those above anything else are none."""
        accounts: list[str] = []
        while (child := await self.child(identifier)) is not None:
            identifier = child.parent
            accounts.append(identifier)
        return accounts

    async def close(self, identifier: str, now_ms: int) -> Child | None:
        for _ in range(_TRIES):
            child = await self.child(identifier)
            if child is None or child.closed_ms is not None:
                return child
            if await self._fold([*_below(child, await self.still_open()), child], now_ms):
                return await self.child(identifier)
        raise RuntimeError(f"budget {identifier} could not be closed: new ones are split off all the time")

    async def close_expired(self, now_ms: int) -> None:
        """Deepest first: a child that has an open one of its own holds something."""
        still = await self.still_open()
        ends = {child.id for child in still if child.expires_at_ms is not None and child.expires_at_ms <= now_ms}
        tops = [child for child in still if child.parent not in {row.id for row in still}]
        for child in [child for top in tops for child in (*_below(top, still), top) if child.id in ends]:
            held = await self._server.ask("HGET", self._keys.accounts + child.id, "h:0")
            if held in (None, "0"):
                await self._fold([child], now_ms)

    async def _fold(self, children: Sequence[Child], now_ms: int) -> bool:
        """Those below come first, the last is above all. False: another one has been split off in the meantime."""
        keys, above = [self._keys.children], await self.ancestors(children[-1].id)
        arguments: list[Argument] = [CLOSED_MS, len(children)]
        for child in children:
            keys += (self._keys.accounts + child.id, self._keys.documents + child.id)
            arguments += (child.id, msgspec.json.encode(structs.replace(child, closed_ms=now_ms)))
        keys += [self._keys.accounts + name for name in above]
        reply = await self._server.run("close", keys, *arguments, *above)
        if reply[0]:
            self._rows.followed(reply[1:])
        return bool(reply[0])


def _read(document: object) -> Child:
    return msgspec.json.decode(str(document), type=Child)


def _below(child: Child, among: Sequence[Child]) -> list[Child]:
    """All below a child, the deepest first."""
    return [below for row in among if row.parent == child.id for below in (*_below(row, among), row)]


# How holds in Redis end: by a settlement, sent until it is confirmed, in order, however often the server goes; or by
# recovery, which charges what a process that stopped renewing its lease still holds.

REPEATED, REPEATED_MS = 4_096, 1_200_000
"""The last settlements that a process repeats where Redis lost its data, of requests that are not older; see
`SETTLED_MS`."""
DONE, LOST, NEEDS = 1, 3, 4
"""Replies of settle.lua."""

_Held = list[tuple[str, int, int]]
"""Account, window start, amount."""
_log = logging.getLogger(__name__)


class RequestEnd(Struct):
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

    def charge(self, unit: Unit) -> int:
        """An account for some targets is charged less than the others."""
        pairs = zip(self.holds, self.charges, strict=True)
        return max((charge for hold, charge in pairs if hold.unit is unit), default=0)


class Settlements:
    """At most one a request; they never outnumber the requests that were open when the server went."""

    def __init__(self, server: RedisServer, children: RedisChildren, rows: BookingRows, owner: str) -> None:
        self._server, self._children, self._rows, self._owner = server, children, rows, owner
        self._open: dict[str, RequestEnd] = {}
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._climbing: set[asyncio.Task[None]] = set()
        self._number = 0
        self._settled = Latest[str, RequestEnd](REPEATED)
        """The last that Redis confirmed: should it lose them, the ledger may not have them yet, or no longer."""
        self._epoch = ""
        self._lost: list[RequestEnd] = []
        """Those that Redis knew nothing of, since that was told last."""
        self.written: list[str] = []
        """Requests whose rows are queued: this process answers for them until the ledger has them."""

    def end(self, request_id: str, holds: Sequence[Hold], charges: Sequence[int], *, drop: bool = False) -> None:
        """A second end of the same request, while the first is on its way, is none."""
        if request_id in self._open:
            return
        self._number += 1
        ending = self._open[request_id] = RequestEnd(self._number, request_id, holds, charges, drop)
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
        if self._epoch != self._server.epoch:
            self._epoch, first = self._server.epoch, least_id(now_ms() - REPEATED_MS)
            again = {row.request_id: row for row in self._settled.values() if row.request_id >= first}
            self._open = again | self._open
        for ending in list(self._open.values()):
            self._send(ending)

    def _send(self, ending: RequestEnd) -> None:
        head = ("drop" if ending.drop else "settle", ending.request_id, self._owner, SETTLED_MS)
        pairs = zip(ending.holds, ending.charges, strict=True)
        charges = [(hold.account, hold.window_start_ms, charge) for hold, charge in pairs]
        touched, arguments = _ending(self._server.keys, head, charges, ending.above)
        self._server.call("settle", touched, arguments, lambda reply: self._ended(ending, reply))

    def _ended(self, ending: RequestEnd, reply: Reply | Exception) -> None:
        if isinstance(reply, StoreUnavailable):
            ending.unsure = True
            self._wake(None)
            return
        if isinstance(reply, Exception):
            _log.error("request %s could not be settled: %s", ending.request_id, reply)
        elif reply[0] == NEEDS:
            task = asyncio.get_running_loop().create_task(self._look_above(ending, str(reply[1])))
            self._climbing.add(task)
            task.add_done_callback(self._climbing.discard)
            return
        else:
            self._booked(ending, number(reply[0]), reply[1:])
        self._open.pop(ending.request_id, None)
        self._wake(next((waiting.number for waiting in self._open.values()), self._number + 1))

    async def _look_above(self, ending: RequestEnd, child: str) -> None:
        try:
            ending.above = (*ending.above, *await self._children.ancestors(child))
            self._send(ending)
        except StoreUnavailable:
            self._wake(None)

    def _booked(self, ending: RequestEnd, how: int, moved: Sequence[object]) -> None:
        if how == LOST:
            self._lost.append(ending)
        # Done before: by this one, whose answer was lost, or by another one, which has written its rows.
        if how or ending.unsure:
            if not ending.drop:
                self._rows.settled(ending.request_id, ending.holds, ending.charges)
            self._rows.followed(moved)
        if not ending.drop:
            self.written.append(ending.request_id)
            self._settled.put(ending.request_id, ending)

    def tell_lost(self) -> None:
        """The ledger that Redis was written anew from was older than Redis, say: an incident, with its size."""
        if not self._lost:
            return
        usd, thinking = (sum(ending.charge(unit) for ending in self._lost) for unit in GRANTED)
        amounts = f"{usd_text(usd)} USD and {thinking} thinking tokens"
        reason = f"Redis knew nothing of {len(self._lost)} requests that are charged {amounts}"
        _log.error("%s, the last of them %s", reason, self._lost[-1].request_id)
        self._rows.lost(self._lost[-1].request_id, "store", "redis", reason)
        self._lost = []

    def _wake(self, upto: int | None) -> None:
        """Those who wait for endings before this one; None: all, as the server is gone."""
        while self._waiters and (upto is None or self._waiters[0][0] < upto):
            _, future = self._waiters.popleft()
            if not future.done():
                future.set_result(None)


class Recovery:
    """A process renews one key; see lease.lua."""

    def __init__(
        self, server: RedisServer, children: RedisChildren, rows: BookingRows, owner: str, lease_ms: int
    ) -> None:
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
        for request_id, holds in held.items():
            request = await self._request(request_id)
            if "s" in request:
                self._rows.settled(request_id, *_settled(request))
            elif "r" in request:
                self._rows.recovered(request_id, _held(request), _granted(request))
            elif "o" not in request:
                _log.error("Redis knows nothing of request %s, which the ledger has as held", request_id)
                self._rows.recovered(request_id, holds, None)
                reason = "held in the ledger and unknown to Redis: charged what was held"
                self._rows.lost(request_id, "request", request_id, reason)

    async def _request(self, request_id: str) -> Mapping[str, str]:
        fields = strings(await self._server.ask("HGETALL", self._server.keys.requests + request_id))
        return dict(zip(fields[::2], fields[1::2], strict=True))

    async def _bury(self, owner: str) -> int:
        keys = self._server.keys
        requests = strings(await self._server.ask("SMEMBERS", keys.owned + owner))
        count = sum([await self._charge(owner, request_id) for request_id in requests])
        if not await self._server.ask("EXISTS", keys.owned + owner):
            await self._server.ask("ZREM", keys.owners, owner)
            await self._server.ask("HDEL", keys.policies, owner)
        return count

    async def _charge(self, owner: str, request_id: str) -> bool:
        request = await self._request(request_id)
        if "s" in request:
            self._rows.settled(request_id, *_settled(request))
            await self._server.ask("SREM", self._server.keys.owned + owner, request_id)
            return False
        held = _held(request)
        reply = await self._settle(owner, request_id, held, ())
        if reply[0] == NEEDS:
            reply = await self._settle(owner, request_id, held, await self._children.ancestors(str(reply[1])))
        if reply[0] != DONE:
            return False
        self._rows.recovered(request_id, held, _granted(request))
        self._rows.followed(reply[1:])
        return True

    async def _settle(self, owner: str, request_id: str, held: _Held, above: Sequence[str]) -> Reply:
        charges = [
            (account, start, 0 if account.startswith(PARALLEL_ACCOUNTS) else amount) for account, start, amount in held
        ]
        touched, arguments = _ending(self._server.keys, ("recover", request_id, owner, RECOVERED_MS), charges, above)
        return await self._server.run("settle", touched, *arguments)


def _ending(
    keys: RedisKeys, head: tuple[str, str, str, int], charges: _Held, above: Sequence[str]
) -> tuple[list[str], list[Argument]]:
    """Keys and arguments of settle.lua. `head`: how, request, owner, ms for which the end is remembered."""
    _, request_id, owner, _ = head
    touched = [keys.requests + request_id, keys.owned + owner, keys.owners]
    touched += [keys.accounts + name for name in (*(account for account, _, _ in charges), *above)]
    return touched, [*head, len(charges), *(value for charge in charges for value in charge), *above]


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
