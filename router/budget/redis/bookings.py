"""Bookings in Redis: their rows in the ledger, split-off budgets, settlement and recovery."""

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

_SQL: Mapping[str, str] = patterns("budget/data/redis.yaml")


class BookingRows:
    """Writes the bookings of the distributed store to the ledger, one row per request and account, for audit.

    Rows follow what Redis has confirmed, and each may be written twice. Bookings of rate limits stay in Redis only.
    """

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
        """Charges holds (account, window start, amount) in full. `granted`: None keeps the value in the ledger."""
        for account, start, amount in holds:
            if not account.startswith(PASSING_ACCOUNTS):
                row = (request_id, account, start, amount, amount)
                self._journal.change(_SQL["recovered"], (*row, request_id, account))
        usd, thinking = (None, None) if granted is None else (granted.usd, granted.thinking)
        self._journal.change(_SQL["crashed"], (usd, thinking, usd, thinking, request_id))

    def lost(self, request_id: str, scope: str, subject: str, reason: str) -> None:
        """Adds an incident about bookings missing in Redis. `request_id`: that of the request, or of the last one."""
        now, kind = now_ms(), "lost_booking"
        self._journal.add(INCIDENT, (f"{kind}-{request_id}", now, kind, scope, subject, reason, now))

    def followed(self, changes: Sequence[object]) -> None:
        """Writes changed bookings of children in their parents, given as six values each, as in lua/pot.lua."""
        for at in range(0, len(changes), 6):
            child, parent, _, held, spent, done = changes[at : at + 6]
            if done:
                self._journal.change(_SQL["folded"], (number(spent), str(child), str(parent)))
            else:
                self._journal.change(_SQL["extended"], (number(held), str(child), str(parent)))

    def granted(self, reservation: Reservation) -> None:
        self._journal.change(_SQL["granted"], (*structs.astuple(reservation.granted), reservation.request_id))


LARGEST = 2**53 - 1
"""Maximum amount, in nano-USD (nine million USD) or tokens: Lua counts in doubles."""
CLOSED_MS = 35 * 86_400_000
"""Time in ms for which a closed child can be looked up."""
_MAX_TRIES = 5


class RedisChildren:
    """Split-off budgets in Redis. The scripts keep a child's booking in its parent; see lua/pot.lua."""

    def __init__(self, server: RedisServer, rows: BookingRows) -> None:
        self._server, self._rows, self._keys = server, rows, server.keys

    async def split(self, parent: Account, child: Child, now_ms: int) -> Child | Refused:
        """See `BudgetStore.split`. Raises ValueError for an id in use, a wrong unit, or a limit not in 1 … LARGEST."""
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

    async def open_children(self) -> list[Child]:
        identifiers = strings(await self._server.ask("SMEMBERS", self._keys.children))
        if not identifiers:
            return []
        documents = await self._server.ask("MGET", *[self._keys.documents + name for name in identifiers])
        return sorted(map(_read, strings(documents)), key=lambda child: (child.created_ms, child.id))

    async def ancestors(self, identifier: str) -> list[str]:
        """Returns the ids of the accounts above a child, its parent first; empty if `identifier` is not a child."""
        accounts: list[str] = []
        while (child := await self.child(identifier)) is not None:
            identifier = child.parent
            accounts.append(identifier)
        return accounts

    async def close(self, identifier: str, now_ms: int) -> Child | None:
        for _ in range(_MAX_TRIES):
            child = await self.child(identifier)
            if child is None or child.closed_ms is not None:
                return child
            if await self._close_in_order([*_descendants(child, await self.open_children()), child], now_ms):
                return await self.child(identifier)
        raise RuntimeError(f"budget {identifier} could not be closed: new ones are split off all the time")

    async def close_expired(self, now_ms: int) -> None:
        """Closes expired children that hold nothing, deepest first: a child's own open children are holds in it."""
        still = await self.open_children()
        expired = {child.id for child in still if child.expires_at_ms is not None and child.expires_at_ms <= now_ms}
        tops = [child for child in still if child.parent not in {row.id for row in still}]
        for child in [child for top in tops for child in (*_descendants(top, still), top) if child.id in expired]:
            held = await self._server.ask("HGET", self._keys.accounts + child.id, "h:0")
            if held in (None, "0"):
                await self._close_in_order([child], now_ms)

    async def _close_in_order(self, children: Sequence[Child], now_ms: int) -> bool:
        """Closes children, given deepest first, their common ancestor last; False if another was split off since."""
        keys, ancestors = [self._keys.children], await self.ancestors(children[-1].id)
        arguments: list[Argument] = [CLOSED_MS, len(children)]
        for child in children:
            keys += (self._keys.accounts + child.id, self._keys.documents + child.id)
            arguments += (child.id, msgspec.json.encode(structs.replace(child, closed_ms=now_ms)))
        keys += [self._keys.accounts + name for name in ancestors]
        reply = await self._server.run("close", keys, *arguments, *ancestors)
        if reply[0]:
            self._rows.followed(reply[1:])
        return bool(reply[0])


def _read(document: object) -> Child:
    return msgspec.json.decode(str(document), type=Child)


def _descendants(child: Child, among: Sequence[Child]) -> list[Child]:
    """Returns all descendants of a child, deepest first."""
    return [below for row in among if row.parent == child.id for below in (*_descendants(row, among), row)]


# Holds in Redis end by a settlement, which is sent in order and repeated until the server confirms it, or by recovery,
# which charges the holds of a process that has stopped renewing its lease.

REPEATED, REPEATED_MS = 4_096, 1_200_000
"""Maximum number, and age in ms of the request, of settlements that a process repeats after Redis has lost its data;
see `SETTLED_MS`."""
DONE, LOST, NEEDS_ANCESTORS = 1, 3, 4
"""Reply codes of settle.lua: done; the request held nothing; the accounts above a child are needed."""

_Held = list[tuple[str, int, int]]
"""Holds: account, window start (Unix ms), amount."""
_log = logging.getLogger(__name__)


class RequestEnd(Struct):
    """The charges that end a request's holds; `drop`: they are 0, since its reserve was never answered."""

    number: int
    request_id: str
    holds: Sequence[Hold]
    charges: Sequence[int]
    drop: bool
    maybe_booked: bool = False
    """Whether it was sent without an answer, so that it may have been booked."""
    ancestors: Sequence[str] = ()
    """Ids of the accounts above those of the holds; they change too if a child is closed or overrun."""

    def charge(self, unit: Unit) -> int:
        """Returns the request's charge in `unit`: the highest, as accounts for some targets are charged less."""
        pairs = zip(self.holds, self.charges, strict=True)
        return max((charge for hold, charge in pairs if hold.unit is unit), default=0)


class Settlements:
    """Settlements not yet confirmed by the server: at most one per request that was open when it became unavailable."""

    def __init__(self, server: RedisServer, children: RedisChildren, rows: BookingRows, owner: str) -> None:
        self._server, self._children, self._rows, self._owner = server, children, rows, owner
        self._open: dict[str, RequestEnd] = {}
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._ancestor_tasks: set[asyncio.Task[None]] = set()
        self._number = 0
        self._settled = Latest[str, RequestEnd](REPEATED)
        """Settlements last confirmed by Redis, to repeat if it loses them before the ledger has them."""
        self._of = "", ""
        """Epoch and run id of the server that confirmed them."""
        self._lost: list[RequestEnd] = []
        """Settlements of requests unknown to Redis, since the last `report_lost`."""
        self.written: list[str] = []
        """Ids of requests whose rows are queued; Redis lists them as this process's until the ledger has the rows."""

    def end(self, request_id: str, holds: Sequence[Hold], charges: Sequence[int], *, drop: bool = False) -> None:
        """Queues the charges of a request; ignored if an earlier end of the same request is not confirmed yet."""
        if request_id in self._open:
            return
        self._number += 1
        ending = self._open[request_id] = RequestEnd(self._number, request_id, holds, charges, drop)
        if self._server.available:
            self._send(ending)

    async def confirmed(self) -> None:
        """Waits until all settlements queued so far are confirmed; returns at once if the server is unavailable."""
        if self._open and self._server.available:
            future = asyncio.get_running_loop().create_future()
            self._waiters.append((self._number, future))
            await future

    def resume(self) -> None:
        """Sends all open settlements when the server is back, and the last confirmed ones if it is another one or was
        restarted: it may lack data, all or the latest."""
        if self._of != (self._server.epoch, self._server.run_id):
            self._of, first = (self._server.epoch, self._server.run_id), least_id(now_ms() - REPEATED_MS)
            again = {row.request_id: row for row in self._settled.values() if row.request_id >= first}
            self._open = again | self._open
        for ending in list(self._open.values()):
            self._send(ending)

    def _send(self, ending: RequestEnd) -> None:
        header = ("drop" if ending.drop else "settle", ending.request_id, self._owner, SETTLED_MS)
        pairs = zip(ending.holds, ending.charges, strict=True)
        charges = [(hold.account, hold.window_start_ms, charge) for hold, charge in pairs]
        touched_keys, arguments = _settle_input(self._server.keys, header, charges, ending.ancestors)
        self._server.call("settle", touched_keys, arguments, lambda reply: self._on_reply(ending, reply))

    def _on_reply(self, ending: RequestEnd, reply: Reply | Exception) -> None:
        if isinstance(reply, StoreUnavailable):
            ending.maybe_booked = True
            self._wake_waiters(None)
            return
        if isinstance(reply, Exception):
            _log.error("request %s could not be settled: %s", ending.request_id, reply)
        elif reply[0] == NEEDS_ANCESTORS:
            task = asyncio.get_running_loop().create_task(self._add_ancestors(ending, str(reply[1])))
            self._ancestor_tasks.add(task)
            task.add_done_callback(self._ancestor_tasks.discard)
            return
        else:
            self._note_booked(ending, number(reply[0]), reply[1:])
        self._open.pop(ending.request_id, None)
        self._wake_waiters(next((waiting.number for waiting in self._open.values()), self._number + 1))

    async def _add_ancestors(self, ending: RequestEnd, child: str) -> None:
        try:
            ending.ancestors = (*ending.ancestors, *await self._children.ancestors(child))
            self._send(ending)
        except StoreUnavailable:
            self._wake_waiters(None)

    def _note_booked(self, ending: RequestEnd, code: int, changes: Sequence[object]) -> None:
        if code == LOST:
            self._lost.append(ending)
        # 0 means done before: either by this settlement, whose answer was lost, or by one that has written its rows.
        if code or ending.maybe_booked:
            if not ending.drop:
                self._rows.settled(ending.request_id, ending.holds, ending.charges)
            self._rows.followed(changes)
        if not ending.drop:
            self.written.append(ending.request_id)
            self._settled.put(ending.request_id, ending)

    def report_lost(self) -> None:
        """Records an incident with the sum of settlements unknown to Redis, as after a rebuild from an older ledger."""
        if not self._lost:
            return
        usd, thinking = (sum(ending.charge(unit) for ending in self._lost) for unit in GRANTED)
        amounts = f"{usd_text(usd)} USD and {thinking} thinking tokens"
        reason = f"Redis knew nothing of {len(self._lost)} requests that are charged {amounts}"
        _log.error("%s, the last of them %s", reason, self._lost[-1].request_id)
        self._rows.lost(self._lost[-1].request_id, "store", "redis", reason)
        self._lost = []

    def _wake_waiters(self, before: int | None) -> None:
        """Wakes the waiters for settlements before number `before`; None wakes all, as the server is unavailable."""
        while self._waiters and (before is None or self._waiters[0][0] < before):
            _, future = self._waiters.popleft()
            if not future.done():
                future.set_result(None)


class Recovery:
    """Renews this process's lease (see lease.lua), and charges the holds of processes whose lease has ended."""

    def __init__(
        self, server: RedisServer, children: RedisChildren, rows: BookingRows, owner: str, lease_ms: int
    ) -> None:
        self._server, self._children, self._rows = server, children, rows
        self._owner, self._lease_ms = owner, lease_ms
        self._paused_until_s = 0.0
        self.policy, self.policies = "", frozenset[str]()
        """Hash of this process's policy, and the hashes of the policies of all gateways that use this server."""

    def resume(self) -> None:
        """Suspends recovery for one lease after an outage, in which no process could renew its lease."""
        if self._server.interruptions:
            self._paused_until_s = asyncio.get_running_loop().time() + self._lease_ms / 1000

    async def run(self) -> int:
        """Renews the lease and recovers dead processes; returns the number of requests charged."""
        keys = [self._server.keys.owners, self._server.keys.policies]
        dead, policies = await self._server.run("lease", keys, self._owner, self._lease_ms, self.policy)
        self.policies = frozenset(strings(policies))
        if asyncio.get_running_loop().time() < self._paused_until_s:
            return 0
        return sum([await self._recover_owner(owner) for owner in strings(dead)])

    async def reconcile(self, bookings: Iterable[tuple[str, str, int, int]]) -> None:
        """Writes rows for long-held bookings of the ledger whose end in Redis was never written, since the process
        died. A booking unknown to Redis is charged what it held.

        `bookings`: request, account, window start (Unix ms), amount.
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

    async def _recover_owner(self, owner: str) -> int:
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
        if reply[0] == NEEDS_ANCESTORS:
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
        keys, arguments = _settle_input(self._server.keys, ("recover", request_id, owner, RECOVERED_MS), charges, above)
        return await self._server.run("settle", keys, *arguments)


def _settle_input(
    keys: RedisKeys, head: tuple[str, str, str, int], charges: _Held, ancestors: Sequence[str]
) -> tuple[list[str], list[Argument]]:
    """Returns the keys and arguments of settle.lua. `head`: mode, request id, owner, ms to remember the settlement."""
    _, request_id, owner, _ = head
    touched_keys = [keys.requests + request_id, keys.owned + owner, keys.owners]
    touched_keys += [keys.accounts + name for name in (*(account for account, _, _ in charges), *ancestors)]
    return touched_keys, [*head, len(charges), *(value for charge in charges for value in charge), *ancestors]


def _held(request: Mapping[str, str]) -> _Held:
    holds = []
    for name, amount in request.items():
        start, bar, account = name.partition("|")
        if bar:
            holds.append((account, int(start), int(amount)))
    return holds


def _granted(request: Mapping[str, str]) -> Amount | None:
    """Returns the granted amounts; None for a request rebuilt from the ledger."""
    return Amount(int(request["u"]), int(request["t"])) if "u" in request else None


def _settled(request: Mapping[str, str]) -> tuple[list[Hold], list[int]]:
    """Returns the holds and charges that settle.lua stored for a request, to write rows its owner did not write."""
    holds, charges = [], []
    for name, amounts in request.items():
        if name.startswith("c|"):
            _, start, account = name.split("|", 2)
            held, charged = amounts.split("|")
            holds.append(Hold(account, int(start), Unit.USD, int(held)))
            charges.append(int(charged))
    return holds, charges
