"""Budget accounts, holds on them, and the ports of the budget store and the journal."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Container, Sequence
from enum import StrEnum
from functools import cached_property
from typing import Protocol, TypeVar

from msgspec import Struct, structs

from router.types.request import Caller

# Budgets as the stores see them: accounts with a limit, and what a request wants held, holds and is refused.

SPLIT = "split"
"""Scope of accounts that were split off others (`Child.account`)."""


class Unit(StrEnum):
    """What an account counts: money, or what a key may do in a minute or at once."""

    USD = "usd"
    """In nano-USD."""
    THINKING = "thinking_tokens"
    REQUESTS = "requests"
    TOKENS = "tokens"
    PARALLEL = "parallel_requests"
    """Requests in progress: held, and never charged."""


GRANTED = (Unit.USD, Unit.THINKING)
"""Units of what a request is granted (`Amount`); of the others each request takes the `size` of the account."""
SESSION_TURNS = "loops.session_turns"
"""Name of the accounts that count a session's requests."""
PASSING_ACCOUNTS = ("key.rpm|", "key.tpm|", "key.parallel|")
"""How the ids of accounts begin that limit requests and tokens of a key's minute, and its parallel requests."""
PARALLEL_ACCOUNTS = PASSING_ACCOUNTS[-1]
RATE_ACCOUNTS = (*PASSING_ACCOUNTS, f"{SESSION_TURNS}|")
"""Of all that count neither money nor thinking."""


class Amount(Struct, frozen=True):
    """One amount of each unit: nano-USD and thinking tokens."""

    usd: int = 0
    thinking: int = 0

    def of(self, unit: Unit) -> int:
        return self.usd if unit is Unit.USD else self.thinking

    def plus(self, more: "Amount") -> "Amount":
        return Amount(self.usd + more.usd, self.thinking + more.thinking)

    def beyond(self, held: "Amount") -> "Amount":
        """What `held` lacks of this."""
        return Amount(max(0, self.usd - held.usd), max(0, self.thinking - held.thinking))

    def within(self, caps: "Sequence[Account]") -> "Amount":
        """No more than any of `caps`, of either unit, allows."""
        usd = [cap.limit for cap in caps if cap.unit is Unit.USD]
        thinking = [cap.limit for cap in caps if cap.unit is Unit.THINKING]
        return Amount(min([self.usd, *usd]), min([self.thinking, *thinking]))


def growth(more: Amount, lefts: Sequence[tuple[Unit, int]]) -> Amount:
    """As much of `more` as all accounts have left; `lefts`: the unit of each, and what it has left."""
    return Amount(*(max(0, min([more.of(unit), *(left for kind, left in lefts if kind is unit)])) for unit in GRANTED))


ENDLESS = 2**62
"""Stands for no limit, in nano-USD and in tokens."""
ANY_AMOUNT = Amount(ENDLESS, ENDLESS)


class Account(Struct, frozen=True, kw_only=True):
    """A budget as it binds one request: the pot of one value of its scope, in the window of that moment.

    What was booked under `id` at `since_ms` or later counts against `limit`; what is booked now is booked at
    `window_start_ms`. In a calendar window the two are the same; in a rolling one `since_ms` moves with the clock.
    """

    id: str
    """The store's name for the pot, e.g. "monthly" or "per-key|alice"."""
    budget: str
    """The policy's name for the budget, or the id of a budget that was split off."""
    scope: str
    value: str = ""
    """Whose pot it is: a key's name, a session …"""
    unit: Unit = Unit.USD
    limit: int
    window_start_ms: int = 0
    since_ms: int = 0
    resets_at_ms: int | None = None
    """None: never."""
    hard: bool = True
    """A soft account is booked like any other and refuses nothing."""
    targets: frozenset[str] = frozenset()
    """It is charged for attempts at these targets only; empty: at all."""
    expires_at_ms: int | None = None
    """Of a budget that was split off: from then on it takes no new request."""
    size: int = 0
    """What each request takes of an account of a rate, or of a session's turns; 0: as its `HoldRequest` says."""

    def needs(self, least: Amount) -> int:
        return self.size or (least.usd if self.unit is Unit.USD else least.thinking)

    def hold(self, amount: int) -> "Hold":
        return Hold(self.id, self.window_start_ms, self.unit, amount, self.targets)


class BudgetBound(Struct, frozen=True, kw_only=True, dict=True):
    """Everything that limits what one request may spend. Empty: nothing does."""

    accounts: tuple[Account, ...] = ()
    """Shared with other requests: kept by the store."""
    caps: tuple[Account, ...] = ()
    """This request's alone, such as `x-lowpass-budget-usd`: nothing is kept for them."""
    thinking: int | None = None
    """Tokens that it may think, over all its choices: the least of header, class and budgets."""

    @cached_property
    def spending(self) -> tuple[Account, ...]:
        """Accounts that limit what it spends, the others being rates."""
        return tuple([account for account in self.accounts if not account.size])

    @cached_property
    def usd(self) -> bool:
        """Some of these, or of the caps, limit money …"""
        return any([row.hard and row.unit is Unit.USD for row in (*self.spending, *self.caps)])

    @cached_property
    def thinks(self) -> bool:
        """… or thinking …"""
        return any([row.hard and row.unit is Unit.THINKING for row in (*self.spending, *self.caps)])

    @cached_property
    def partial(self) -> bool:
        """… or are for some targets only."""
        return any([account.targets for account in self.spending])


UNBOUND = BudgetBound()


class HoldRequest(Struct, frozen=True, kw_only=True):
    """What a request wants held, unit by unit; least and tight are at most whole.

    `whole` is the worst case of what would be sent. It is granted where there is ample room for it (`AMPLE` times
    that much); else `tight`, an upper quantile that is extended while the answer streams; else what is left, if that
    is at least `least`.
    """

    least: Amount
    tight: Amount
    whole: Amount
    shortest: Amount | None = None
    """The least that any answer takes, where `least` is for the one that was decided."""

    def granted(self, unit: Unit, left: int) -> int:
        """Where the accounts that bind all targets have so much left, which is `least` or more."""
        whole = self.whole.of(unit)
        return whole if left >= AMPLE * whole else max(0, min(self.tight.of(unit), left))


NOTHING = HoldRequest(least=Amount(), tight=Amount(), whole=Amount())
AMPLE = 25
"""An account with room for so many whole holds is not short: one that is too large, by at most 1/25 of what is left,
keeps no other request out, and spares the answer the metering and the cap."""


class Hold(Struct, frozen=True):
    """What one account keeps for one request."""

    account: str
    window_start_ms: int
    unit: Unit
    amount: int
    targets: frozenset[str] = frozenset()


class Reservation(Struct, frozen=True):
    """What a request may spend. `granted` is in every account that binds all targets; `holds` has those of some too."""

    request_id: str
    granted: Amount
    holds: tuple[Hold, ...] = ()
    room: Amount = Amount()
    """What these accounts had left beyond that when it was granted: more can't be had, so more is not asked for."""
    rates: tuple[tuple[Account, int], ...] = ()
    """Accounts of rates, and what was left of each after this request."""

    def grown(self, extra: Amount, accounts: Container[str]) -> "Reservation":
        """With so much more granted, and held in these accounts."""
        holds = tuple(
            structs.replace(hold, amount=hold.amount + extra.of(hold.unit)) if hold.account in accounts else hold
            for hold in self.holds
        )
        return structs.replace(self, granted=self.granted.plus(extra), holds=holds, room=self.room.beyond(extra))

    def at(self, target: str) -> Amount:
        """What may be spent at `target`: `granted`, or less where an account for that target alone has less."""
        usd, thinking = self.granted.usd, self.granted.thinking
        for hold in self.holds:
            if target in hold.targets:
                if hold.unit is Unit.USD:
                    usd = min(usd, hold.amount)
                else:
                    thinking = min(thinking, hold.amount)
        return Amount(usd, thinking)


class Refused(Struct, frozen=True, kw_only=True):
    """The account that a request does not fit, as it stood in that moment; `needed` in the account's unit."""

    account: Account
    spent: int
    held: int
    needed: int
    lent: int = 0
    """The part of `held` that was split off: nobody knows when it comes back."""
    short: bool = False
    """There is room for an answer, if not for the one that was decided."""

    @property
    def left(self) -> int:
        return self.account.limit - self.spent - self.held

    @property
    def passing(self) -> bool:
        """Only requests in progress stand in the way: once they are settled there may be room.

        An account that is refused with enough left was closed.
        """
        return not self.account.size and self.left < self.needed <= self.account.limit - self.spent - self.lent


class Balance(Struct, frozen=True):
    """What an account has booked in its window, and what it keeps for requests in progress and for its children."""

    spent: int
    held: int


class Child(Struct, frozen=True, kw_only=True):
    """A budget split off another: its limit is held in the parent until it closes; then the parent has spent what it
    spent, and has the rest back. It can't be larger than what the parent had left, and closes before it."""

    id: str
    parent: str
    """The account id of the parent, which may be a child too."""
    parent_window_ms: int
    replaces: tuple[str, ...]
    """Account ids of all its ancestors: a request that is charged to the child is not charged to them as well."""
    unit: Unit
    limit: int
    created_ms: int
    expires_at_ms: int | None
    key: str
    """Id of the key that made it: only that key, or one of its team, may use it."""
    team: str = ""
    closed_ms: int | None = None

    def open_at(self, now_ms: int) -> bool:
        """It takes new requests."""
        return self.closed_ms is None and (self.expires_at_ms is None or self.expires_at_ms > now_ms)

    def outlives(self, parent: "Account") -> bool:
        ends = [end for end in (parent.resets_at_ms, parent.expires_at_ms) if end is not None]
        return bool(ends) and (self.expires_at_ms is None or self.expires_at_ms > min(ends))

    def usable_by(self, caller: Caller) -> bool:
        """It is for the key that split it off, and for that key's team."""
        return caller.id == self.key or bool(self.team and caller.team == self.team)

    def account(self) -> Account:
        return Account(
            id=self.id,
            budget=self.id,
            scope=SPLIT,
            unit=self.unit,
            limit=self.limit,
            resets_at_ms=self.expires_at_ms,
            expires_at_ms=self.expires_at_ms,
        )


# The lease of this process on what its requests hold.

LEASE_MS = 30_000
"""What a process holds that did not renew its lease for so long belongs to the dead: others charge its holds."""


class Lease:
    """Whether it may have ended while a request ran. A process that was paused renews too late."""

    def __init__(self, clock: Callable[[], int]) -> None:
        """`clock` gives Unix ms."""
        self._clock, self._renewed_ms, self._lost_ms = clock, clock(), 0

    def renew(self) -> None:
        now = self._clock()
        if now - self._renewed_ms > LEASE_MS:
            self._lost_ms = now
        self._renewed_ms = now

    def lost_since(self, start_ms: int) -> bool:
        """Others may have charged what was held from then on: only what a provider reports is known better."""
        now = self._clock()
        return self._lost_ms > start_ms or now - max(self._renewed_ms, start_ms) > LEASE_MS


# The port of the budget stores: SQLite for one machine, Redis for several.


class StoreUnavailable(Exception):
    """The store can't be reached or does not answer in time; nothing was held."""


class BudgetStore(Protocol):
    """Every method that is awaited raises `StoreUnavailable`, soon, where the store is slow or gone.

    At every moment, in every account: spent + held = the sum of its rows. Amounts are in the account's unit.
    """

    @property
    def available(self) -> bool:
        """The last answer came in time; else a try is under way by itself."""
        ...

    async def reserve(
        self, request_id: str, accounts: Sequence[Account], ask: HoldRequest, now_ms: int
    ) -> Reservation | Refused:
        """One atomic step over all accounts: all of the holds, or none and the account that has not enough left.

        Per unit the same amount is held in every hard account without `targets`: see `HoldRequest`. An account with
        `targets` holds at most that; with less than `least` left it is left out, and the reservation has no hold of
        it (`unpaid` tells). A soft account holds the granted amount whatever it has left.
        """
        ...

    async def extend(
        self, reservation: Reservation, accounts: Sequence[Account], more: Amount, now_ms: int
    ) -> Reservation:
        """Holds up to `more` in addition, as much as all of the accounts have left; the same reservation if nothing."""
        ...

    def settle(self, reservation: Reservation, charges: Sequence[int]) -> None:
        """Queues the end of the holds: `charges[i]` is booked in full for `reservation.holds[i]`, whatever it held. A
        correction of another charge may be below 0.

        Idempotent. A hold that was recovered in the meantime is corrected to the charge; one that the store has lost
        is booked all the same, and logged.
        """
        ...

    async def settled(self) -> None:
        """Done when everything queued so far can't be lost any more, or at once where the store is not available."""
        ...

    async def recover(self, now_ms: int) -> int:
        """Renews this process' leases; charges each hold whose process died at its amount. Then as `expire`.
        Returns how many requests were charged."""
        ...

    async def expire(self, now_ms: int) -> None:
        """Folds children whose time is over, and that have no open holds, into their parents."""
        ...

    async def balances(self, accounts: Sequence[Account]) -> list[Balance]: ...

    async def values(self, budget: str, since_ms: int) -> list[str]:
        """The values of the budget's scope that have an account with a hold or a booking since then."""
        ...

    async def split(self, parent: Account, child: Child, now_ms: int) -> Child | Refused:
        """Opens the child and holds its limit in the parent, in one step; refused when the parent has less left, is
        closed or expires before it."""
        ...

    async def child(self, identifier: str) -> Child | None: ...

    async def children(self) -> list[Child]:
        """Those that are open."""
        ...

    async def close(self, identifier: str, now_ms: int) -> Child | None:
        """Ends a child and all below it: they take no new request; what is not spent returns to the parent now, what
        requests in progress hold when they are settled. None: there is no such child. Closing twice changes nothing."""
        ...


def unpaid(accounts: Sequence[Account], reservation: Reservation) -> frozenset[str]:
    """The targets that an account for them alone refuses."""
    held = {hold.account for hold in reservation.holds}
    return frozenset().union(*(account.targets for account in accounts if account.hard and account.id not in held))


# The port through which rows reach the ledger, many requests to a transaction.

T = TypeVar("T")
Value = str | int | float | None
Row = tuple[Value, ...]
INCIDENT = """INSERT INTO incidents (id, at_ms, kind, scope, subject, reason, until_ms) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING"""


class Journal(Protocol):
    """Many requests to a transaction: all of their rows and changes, or none.

    Where the answer to a commit is lost with the connection, the commit is repeated: every row needs a key, and every
    change must be one that may be made twice.
    """

    @property
    def owner(self) -> str:
        """Names this process in the rows that it holds."""
        ...

    @property
    def available(self) -> bool:
        """The last commit succeeded."""
        ...

    def add(self, statement: str, row: Row) -> None:
        """Queue a new row; new rows come first in a commit, in the order in which their statements were first used."""
        ...

    def change(self, statement: str, row: Row) -> None:
        """Queue a change; changes follow the new rows, in the order given."""
        ...

    def committed(self) -> Awaitable[None]:
        """Done when everything queued so far is on disk for every other process; raises when it can't be."""
        ...

    async def end(self) -> None:
        """Writes what is queued, as far as that is possible within seconds, and closes."""
        ...


class LocalJournal(Journal, Protocol):
    """A journal over a file of this machine, whose transactions can hold decisions."""

    def read(self, operation: Callable[[sqlite3.Connection], T]) -> T:
        """A step that writes nothing, at once; it sees what is committed, by whichever process.

        Raises `LedgerUnavailable`.
        """
        ...

    def call(self, operation: Callable[[sqlite3.Connection], T]) -> "asyncio.Future[T]":
        """Queue a read-and-write step; it sees all rows and changes of its commit and is atomic with the commit."""
        ...


class LedgerUnavailable(StoreUnavailable):
    """The ledger can't be read or written: full or broken disk, a lock of another process, a server out of reach."""
