"""The distributed budget store: budgets in Redis, shared by several gateways; each step is one Lua script.

Confirmed bookings are also written to the ledger (`bookings.py`). It needs Redis 6.2 or newer with `appendonly yes`.
With `appendfsync always`, not even a crash of the server loses a booking. In a cluster, all keys are in one slot.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from router.budget.redis.bookings import LARGEST, BookingRows, Recovery, RedisChildren, Settlements
from router.budget.redis.connection import Argument
from router.budget.redis.server import LedgerTotals, RedisServer, number, strings
from router.types.account import (
    SPLIT,
    Account,
    Amount,
    Balance,
    HoldRequest,
    Journal,
    LedgerUnavailable,
    Refused,
    Reservation,
    StoreUnavailable,
    Unit,
)
from router.types.request import DAY_MS
from router.types.target import Secret

Held = tuple[str, str, int, int]
"""A booking: request, account, window start (Unix ms), amount."""
RECONCILE_EVERY = 6
"""Number of lease checks per comparison of the ledger with Redis: the first one, then one a minute."""
MAX_TARGETS = 31
"""Maximum number of targets of a request that reserve.lua tells apart, by a bit each."""
IDLE_SESSION_MS = 35 * DAY_MS
"""Time in ms without bookings after which a session's account is dropped: clients can start a new session anyway."""


class RedisBudgets:
    """A `BudgetStore` in Redis, for one event loop. Call `start` before use and `stop` at the end.

    While the server is unavailable, settlements wait here, at most one per open request, and are sent in order when it
    is back. Counters that the server lacks, since it is new or has lost its data, are rebuilt from the ledger.
    """

    def __init__(
        self,
        url: Secret,
        journal: Journal,
        books: Callable[[], LedgerTotals],
        lease_ms: int,
        tag: str = "lowpass",
        held_long: Callable[[], Sequence[Held]] = tuple,
    ) -> None:
        """`books` and `held_long` read the totals and the long-held bookings of the ledger, each in a thread. Gateways
        that share budgets have the same `tag`, the hash tag of all keys. Raises `RedisRefused` for a wrong URL."""
        self._journal, self._lease_ms, owner = journal, lease_ms, journal.owner
        self.server = RedisServer(url, books, lease_ms=lease_ms, tag=tag)
        """The server, also used for session data, which is rebuilt together with the budgets."""
        self._keys, self.rows = self.server.keys, BookingRows(journal)
        self._owned_key = self._keys.owned + owner
        self._held_long, self._recoveries = held_long, 0
        self._without_holds: set[str] = set()
        """Ids of open requests known to Redis without holds, since all their accounts are for targets left out."""
        children = RedisChildren(self.server, self.rows)
        self.split, self.child, self.children = children.split, children.child, children.open_children
        self.close, self.expire = children.close, children.close_expired
        self._settlements = Settlements(self.server, children, self.rows, owner)
        self._recovery = Recovery(self.server, children, self.rows, owner, lease_ms)
        self.server.on_available += (self._recovery.resume, self._settlements.resume)

    async def start(self) -> None:
        """Connects to the server, in the background if it can't be reached now. Raises `RedisRefused` if it will never
        work, as with a wrong password or an old version."""
        await self.server.start()

    async def stop(self) -> None:
        """Settles what can be settled now, and disconnects."""
        await self.settled()
        with suppress(StoreUnavailable):
            await self._release_settled()
        await self.server.stop()

    @property
    def available(self) -> bool:
        return self.server.available

    def policies(self, own: str) -> frozenset[str]:
        """Returns the policy hashes of all gateways on this server as of the last `recover`, plus `own`, this one's."""
        self._recovery.policy = own
        return self._recovery.policies | {own}

    async def reserve(
        self, request_id: str, accounts: Sequence[Account], ask: HoldRequest, now_ms: int
    ) -> Reservation | Refused:
        """See `BudgetStore.reserve`; returns at once without accounts. Raises ValueError if `request_id` was used, and
        for amounts above `LARGEST`."""
        if not accounts:
            return Reservation(request_id, ask.whole)
        if len(accounts) > 1 and len({account.id for account in accounts}) < len(accounts):
            raise ValueError(f"request {request_id} would be charged to one account twice")
        largest = max(ask.whole.usd, ask.whole.thinking, *(account.limit for account in accounts))
        if largest > LARGEST:
            raise ValueError(f"budgets in Redis count to {LARGEST}, not to {largest}: lower the limit")
        if not self.server.available:
            raise StoreUnavailable("the budget store can't be reached")
        keys, arguments = self._reserve_arguments(request_id, accounts, ask, now_ms)
        try:
            reply = await self.server.run("reserve", keys, *arguments)
        except (StoreUnavailable, asyncio.CancelledError):
            # The hold may have been granted, or may be later: release it.
            self._settlements.end(request_id, [account.hold(0) for account in accounts], [0] * len(accounts), drop=True)
            raise
        return self._granted(request_id, accounts, ask, reply)

    def _reserve_arguments(
        self, request_id: str, accounts: Sequence[Account], ask: HoldRequest, now_ms: int
    ) -> tuple[list[str], list[Argument]]:
        """Returns the keys and arguments of reserve.lua."""
        keys = [self._keys.requests + request_id, self._owned_key, self._keys.owners]
        arguments: list[Argument] = [request_id, self._journal.owner, now_ms, self._lease_ms]
        arguments += (ask.tight.usd, ask.whole.usd, ask.tight.thinking, ask.whole.thinking)
        targets = ask.targets if len(ask.targets) <= MAX_TARGETS else ()
        arguments.append((1 << len(targets)) - 1)
        for account in accounts:
            keys += (self._keys.accounts + account.id, self._keys.values + account.budget)
            arguments += _limits(account, account.window_start_ms, account.since_ms, targets)
            arguments += (_keep_ms(account), account.value, account.size, ask.needed(account))
        return keys, arguments

    def _granted(
        self, request_id: str, accounts: Sequence[Account], ask: HoldRequest, reply: Sequence[object]
    ) -> Reservation | Refused:
        code, first, second, *rest = map(number, (*reply, 0, 0))
        if code == 2:
            raise ValueError(f"request {request_id} has reserved before: an id is for one request only")
        if code == 0:
            account = accounts[first - 1]
            return Refused(account=account, spent=second, held=rest[0], needed=ask.needed(account))
        pairs = list(zip(accounts, rest, strict=False))
        holds = tuple([account.hold(account.size or amount) for account, amount in pairs if amount >= 0])
        room = Amount(*rest[len(accounts) : len(accounts) + 2])
        rates = tuple([(account, left) for account, left in pairs if account.size])
        reservation = Reservation(request_id, Amount(first, second), holds, room, rates)
        if not holds:
            self._without_holds.add(request_id)
        self.rows.held(reservation)
        return reservation

    async def extend(
        self, reservation: Reservation, accounts: Sequence[Account], more: Amount, now_ms: int
    ) -> Reservation:
        """Grows the holds in `accounts`; a reservation without holds in them grows by `more` without limit."""
        bound = {account.id: account for account in accounts}
        holds = [hold for hold in reservation.holds if hold.account in bound]
        if not holds:
            return reservation.grown(more, ())
        keys = [self._keys.requests + reservation.request_id, *(self._keys.accounts + hold.account for hold in holds)]
        arguments: list[Argument] = [now_ms, more.usd, more.thinking]
        for hold in holds:
            account, start = bound[hold.account], hold.window_start_ms
            calendar = account.since_ms == account.window_start_ms
            # `since` equal to `start` means a calendar window; one ms earlier counts the same windows of a rolling one.
            arguments += _limits(account, start, start if calendar else account.since_ms - 1)
        reply = [number(value) for value in await self.server.run("extend", keys, *arguments)]
        if not any(reply[1:]):
            return reservation
        grown = reservation.grown(Amount(*reply[1:]), [hold.account for hold in holds])
        self.rows.extended(grown)
        return grown

    def settle(self, reservation: Reservation, charges: Sequence[int]) -> None:
        """Queues the charges. Raises ValueError if they don't match the holds or are above `LARGEST`."""
        if len(charges) != len(reservation.holds) or not all(-LARGEST <= charge <= LARGEST for charge in charges):
            raise ValueError(f"request {reservation.request_id} needs charges, one a hold, of at most {LARGEST}")
        if reservation.holds or reservation.request_id in self._without_holds:
            self._without_holds.discard(reservation.request_id)
            self._settlements.end(reservation.request_id, reservation.holds, charges)

    async def settled(self) -> None:
        await self._settlements.confirmed()
        if self._journal.available:
            with suppress(StoreUnavailable):
                await self._journal.committed()

    async def recover(self, now_ms: int) -> int:
        """See `BudgetStore.recover`. Leases are timed by the server's clock."""
        await self._release_settled()
        count = await self._recovery.run()
        self._settlements.report_lost()
        if self._recoveries % RECONCILE_EVERY == 0:
            with suppress(LedgerUnavailable):
                await self._recovery.reconcile(await asyncio.to_thread(self._held_long))
        self._recoveries += 1
        await self.expire(now_ms)
        return count

    async def _release_settled(self) -> None:
        """Gives up settled requests once the ledger has their rows; until then, a recovery would write the rows."""
        if written := self._settlements.written:
            self._settlements.written = []
            await self._journal.committed()
            await self.server.ask("SREM", self._owned_key, *written)

    async def balances(self, accounts: Sequence[Account]) -> list[Balance]:
        arguments = [at for account in accounts for at in (account.window_start_ms, account.since_ms)]
        keys = [self._keys.accounts + account.id for account in accounts]
        amounts = [number(value) for value in await self.server.run("balances", keys, *arguments)]
        return [Balance(spent, held) for spent, held in zip(amounts[::2], amounts[1::2], strict=True)]

    async def values(self, budget: str, since_ms: int) -> list[str]:
        return strings(await self.server.ask("ZRANGEBYSCORE", self._keys.values + budget, since_ms, "+inf"))


def _limits(account: Account, start: int, since: int, targets: Sequence[str] = ()) -> tuple[Argument, ...]:
    """Returns the arguments of reserve.lua and extend.lua for one account. `targets`: those of the request."""
    target_bits = sum(1 << at for at, target in enumerate(targets) if target in account.targets)
    kind: Argument = "soft" if not account.hard else target_bits if account.targets else "all"
    unit = 2 if account.unit is Unit.THINKING else 1
    return (account.id, unit, kind, int(account.scope == SPLIT), account.limit, start, since)


def _keep_ms(account: Account) -> Argument:
    """Returns for how many ms an account is kept after a booking (its window plus a day); empty means forever."""
    if account.scope == SPLIT:
        return ""
    if account.resets_at_ms is not None:
        return account.resets_at_ms - account.window_start_ms + DAY_MS
    return IDLE_SESSION_MS if account.scope == "session" else ""
