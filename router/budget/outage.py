"""The outage rule of each budget: what happens while the budget store is unavailable.

`fail_closed`: no request is admitted. `fail_open_within`: each process reserves a part of the account beforehand, with
a hold like that of a request, and may spend that part while the store is unavailable. So the limit is kept however many
processes hold a part. When the store is back, the spending is settled against the hold and a new hold is taken. The
hold of a process that has died is charged in full, like any other.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from router.types.account import (
    GRANTED,
    Account,
    Amount,
    BudgetStore,
    Hold,
    HoldRequest,
    Refused,
    Reservation,
    StoreUnavailable,
    Unit,
    growth,
)
from router.types.clock import new_id
from router.types.clock import now_ms as clock

if TYPE_CHECKING:
    from router.budget.redis.bookings import BookingRows

TICK_S = 1.0
"""Interval in seconds at which leases are taken, topped up and given back; the first of an account is taken at once."""
LEASE_PAUSE_MS = 30_000
"""Time in ms without a new lease after an account had too little room for one, or had to give it up for a request."""
IDLE_MS = 600_000
"""Time in ms without use after which the lease of an account is given back."""

LeaseLimit = Callable[[Account], int]
"""Returns how much of an account a process may lease, in the account's unit; 0 or less if its budget fails closed."""
_log = logging.getLogger(__name__)


class OutageLease(Struct):
    """A part of an account that this process has reserved to spend during outages."""

    account: Account
    hold: Reservation
    open: int = 0
    """Amount held by requests in progress."""
    spent: dict[int, int] = {}
    """Amount spent, by start of the window (Unix ms): a rolling window moves on during the lease."""

    @property
    def amount(self) -> int:
        return self.hold.holds[0].amount

    @property
    def left(self) -> int:
        return self.amount - self.open - sum(self.spent.values())

    def covers(self, account: Account) -> bool:
        """Whether a charge of the lease, even by another process that recovers it, counts in the account's window."""
        return account.since_ms <= self.account.window_start_ms <= account.window_start_ms

    def should_replace(self, account: Account) -> bool:
        """Whether to replace the lease: it no longer covers the account, or for less than half of a rolling window."""
        middle = (account.since_ms + account.window_start_ms) // 2
        return not self.covers(account) or self.account.window_start_ms < middle


class LocalReservation(Reservation, frozen=True):
    """A reservation granted from leases, unknown to the store."""


class _LeasedAccount(Struct):
    """An account that may be spent without the store, and its current lease."""

    account: Account
    used_ms: int
    lease: OutageLease | None = None
    no_lease_until_ms: int = 0


class OutageBudgets:
    """A `BudgetStore` that adds outage rules to another store. Call `start` and `stop`, or `tick` every second."""

    def __init__(self, store: BudgetStore, lease_limit: LeaseLimit, owner: str, rows: "BookingRows") -> None:
        """`rows` writes what is granted and settled without the store to the ledger."""
        self._store, self._lease_limit, self._owner, self._rows = store, lease_limit, owner, rows
        # Methods that outage rules do not affect are the store's own.
        self.settled, self.recover, self.expire = store.settled, store.recover, store.expire
        self.balances, self.values, self.split = store.balances, store.values, store.split
        self.child, self.children, self.close = store.child, store.children, store.close
        self._accounts: dict[str, _LeasedAccount] = {}
        self._fail_closed: set[str] = set()
        """Ids of budgets found to fail closed since the last tick."""
        self._dropped: list[OutageLease] = []
        """Leases to be settled once no request is open on them."""
        self._local: dict[str, list[tuple[OutageLease, Hold]]] = {}
        self._soft: dict[str, list[Account]] = {}
        """Request id → soft accounts of its local reservation; they refuse nothing, so they need no lease."""
        self._owed: list[tuple[Account, int]] = []
        """Amounts to charge to soft accounts once the store is back."""
        self._was_unavailable = False
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._watch())

    async def stop(self) -> None:
        """Gives back all leases that have no open requests, if the store is available."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        for entry in self._accounts.values():
            self._drop_lease(entry)
        with suppress(StoreUnavailable):
            await self._settle_dropped(clock())
        await self._store.settled()

    @property
    def available(self) -> bool:
        return self._store.available

    async def reserve(
        self, request_id: str, accounts: Sequence[Account], ask: HoldRequest, now_ms: int
    ) -> Reservation | Refused:
        """Reserves from the store or, if it is unavailable, from the leases.

        Raises StoreUnavailable if the store is unavailable and a hard account has no lease with enough left.
        """
        for account in accounts:
            self._note_use(account, now_ms)
        if self._store.available or not accounts:
            try:
                outcome = await self._store.reserve(request_id, accounts, ask, now_ms)
                if isinstance(outcome, Refused) and self._yield_lease(outcome, now_ms):
                    await self._settle_dropped(now_ms)
                    outcome = await self._store.reserve(request_id, accounts, ask, now_ms)
                return outcome
            except StoreUnavailable:
                self._was_unavailable = True
        return self._grant(request_id, accounts, ask)

    def _note_use(self, account: Account, now_ms: int) -> None:
        entry = self._accounts.get(account.id)
        if entry is not None:
            entry.account, entry.used_ms = account, now_ms
        elif account.budget not in self._fail_closed:
            if self._lease_limit(account) > 0:
                self._accounts[account.id] = _LeasedAccount(account, now_ms)
                self._wake.set()
            else:
                self._fail_closed.add(account.budget)

    def _yield_lease(self, refused: Refused, now_ms: int) -> bool:
        """Drops the lease of the refusing account if the request fits without it; returns whether it did."""
        entry = self._accounts.get(refused.account.id)
        if entry is None or entry.lease is None or refused.left + entry.lease.left < refused.needed:
            return False
        entry.no_lease_until_ms = now_ms + LEASE_PAUSE_MS
        self._drop_lease(entry)
        return True

    def _grant(self, request_id: str, accounts: Sequence[Account], ask: HoldRequest) -> Reservation:
        hard = [account for account in accounts if account.hard]
        leases = []
        for account in hard:
            entry = self._accounts.get(account.id)
            if entry is None or entry.lease is None or not entry.lease.covers(account):
                raise StoreUnavailable(f"the budget store is gone, and {account.budget} can't be spent without it")
            leases.append(entry.lease)
        granted = Amount(*(_grantable(leases, hard, ask, unit) for unit in GRANTED))
        parts: list[tuple[OutageLease, Hold]] = []
        for lease, account in zip(leases, hard, strict=True):
            amount = granted.of(account.unit)
            if account.targets:
                # If an account for some targets has too little, the request may not use those targets.
                if 0 < ask.least.of(account.unit) > lease.left:
                    continue
                amount = max(0, min(amount, lease.left))
            lease.open += amount
            parts.append((lease, account.hold(amount)))
        self._local[request_id] = parts
        self._soft[request_id] = [account for account in accounts if not account.hard]
        soft = (account.hold(granted.of(account.unit)) for account in self._soft[request_id])
        reservation = LocalReservation(request_id, granted, (*(hold for _, hold in parts), *soft))
        self._rows.granted(reservation)
        return reservation

    async def extend(
        self, reservation: Reservation, accounts: Sequence[Account], more: Amount, now_ms: int
    ) -> Reservation:
        if not isinstance(reservation, LocalReservation):
            return await self._store.extend(reservation, accounts, more, now_ms)
        parts = self._local.get(reservation.request_id, [])
        growing = {account.id for account in (*accounts, *self._soft.get(reservation.request_id, ()))}
        bound = [(hold.unit, lease.left) for lease, hold in parts if hold.account in growing]
        grown = reservation.grown(growth(more, bound), growing)
        pairs = list(zip(parts, grown.holds, strict=False))
        for (lease, before), hold in pairs:
            lease.open += hold.amount - before.amount
        self._local[reservation.request_id] = [(lease, hold) for (lease, _), hold in pairs]
        self._rows.granted(grown)
        return grown

    def settle(self, reservation: Reservation, charges: Sequence[int]) -> None:
        if not isinstance(reservation, LocalReservation):
            self._store.settle(reservation, charges)
            return
        if len(charges) != len(reservation.holds):
            raise ValueError(f"request {reservation.request_id} needs charges, one a hold")
        # The accounts are charged through the leases, so the request's own bookings are 0.
        self._rows.settled(reservation.request_id, reservation.holds, [0] * len(charges))
        parts = self._local.pop(reservation.request_id, [])
        for (lease, hold), charge in zip(parts, charges, strict=False):
            lease.open -= hold.amount
            lease.spent[hold.window_start_ms] = lease.spent.get(hold.window_start_ms, 0) + charge
        soft = self._soft.pop(reservation.request_id, [])
        self._owed += zip(soft, charges[len(parts) :], strict=False)

    async def tick(self, now_ms: int) -> None:
        """Takes, tops up, replaces and gives back leases, if the store is available."""
        self._fail_closed.clear()
        if not self._store.available:
            self._was_unavailable = True
            return
        if self._was_unavailable:
            # Other processes may have recovered the leases meanwhile, and spending from them has to be settled.
            self._was_unavailable = False
            for entry in self._accounts.values():
                self._drop_lease(entry)
        for entry in list(self._accounts.values()):
            idle = now_ms - entry.used_ms > IDLE_MS or self._lease_limit(entry.account) <= 0
            if idle or (entry.lease is not None and (entry.lease.spent or entry.lease.should_replace(entry.account))):
                self._drop_lease(entry)
            if idle:
                del self._accounts[entry.account.id]
        try:
            await self._settle_dropped(now_ms)
            for entry in list(self._accounts.values()):
                await self._fill(entry, now_ms)
        except StoreUnavailable:
            self._was_unavailable = True

    def _drop_lease(self, entry: _LeasedAccount) -> None:
        if entry.lease is not None:
            self._dropped.append(entry.lease)
            entry.lease = None

    async def _settle_dropped(self, now_ms: int) -> None:
        """Settles dropped leases without open requests, and charges soft accounts what they owe."""
        while self._owed:
            await self._charge(*self._owed[-1], now_ms)
            self._owed.pop()
        for lease in [lease for lease in self._dropped if not lease.open]:
            if lease not in self._dropped:
                continue
            self._dropped.remove(lease)
            try:
                # Spending in later windows is booked there before the lease is settled, so it always counts.
                for window in [window for window in lease.spent if window != lease.account.window_start_ms]:
                    moved = structs.replace(lease.account, window_start_ms=window)
                    await self._charge(moved, lease.spent[window], now_ms)
                    del lease.spent[window]
            except BaseException:
                self._dropped.append(lease)
                raise
            self._store.settle(lease.hold, [lease.spent.get(lease.account.window_start_ms, 0)])

    async def _charge(self, account: Account, amount: int, now_ms: int) -> None:
        """Books `amount` in full, even if the account has less left."""
        account = structs.replace(account, hard=False, targets=frozenset())
        booked = await self._store.reserve(self._lease_id(account), [account], _exactly(account, amount), now_ms)
        if isinstance(booked, Reservation):
            self._store.settle(booked, [amount])

    async def _fill(self, entry: _LeasedAccount, now_ms: int) -> None:
        """Fills up the lease of an account to what its budget allows, less its dropped leases not yet settled."""
        account = entry.account
        unsettled = sum(lease.amount for lease in self._dropped if lease.account.id == account.id)
        leased_before = entry.lease.amount if entry.lease is not None else 0
        more = self._lease_limit(account) - unsettled - leased_before
        if more <= 0 or now_ms < entry.no_lease_until_ms:
            return
        if entry.lease is None:
            bound = structs.replace(account, targets=frozenset())
            ask = structs.replace(_exactly(account, more), least=_amount_of(account, 1))
            taken = await self._store.reserve(self._lease_id(account), [bound], ask, now_ms)
            entry.lease = OutageLease(account, taken) if isinstance(taken, Reservation) else None
        else:
            entry.lease.hold = await self._store.extend(entry.lease.hold, [account], _amount_of(account, more), now_ms)
        if entry.lease is None or entry.lease.amount - leased_before < more:
            entry.no_lease_until_ms = now_ms + LEASE_PAUSE_MS

    def _lease_id(self, account: Account) -> str:
        return f"lease:{self._owner}:{new_id()}:{account.id}"

    async def _watch(self) -> None:
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), TICK_S)
            self._wake.clear()
            try:
                await self.tick(clock())
            except Exception:
                _log.exception("leases of budgets could not be looked after")


def _amount_of(account: Account, amount: int) -> Amount:
    return Amount(usd=amount) if account.unit is Unit.USD else Amount(thinking=amount)


def _exactly(account: Account, amount: int) -> HoldRequest:
    whole = _amount_of(account, amount)
    return HoldRequest(least=whole, tight=whole, whole=whole)


def _grantable(leases: Iterable[OutageLease], accounts: Iterable[Account], ask: HoldRequest, unit: Unit) -> int:
    """Returns the amount to grant, by the rules of `HoldRequest`. Raises StoreUnavailable if too little is left."""
    binding = zip(leases, accounts, strict=True)
    lefts = [lease.left for lease, account in binding if account.unit is unit and not account.targets]
    if not lefts:
        return ask.whole.of(unit)
    if 0 < ask.least.of(unit) > min(lefts):
        raise StoreUnavailable("the budget store is gone, and what may be spent without it is used up")
    return ask.granted(unit, min(lefts))
