"""Budget accounts, holds on them, and the ports of the budget store and the ledger's journal."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from enum import StrEnum
from functools import cached_property
from typing import Protocol, TypeVar

from msgspec import Struct, structs

from router.types.request import Caller

# Budgets as the stores see them: accounts with a limit; a request's wanted hold, its reservation, or its refusal.

SPLIT = "split"
"""Scope of the accounts of child budgets, which are split off other budgets (`Child.account`)."""


class Unit(StrEnum):
    """Unit that an account counts: money, thinking tokens, or a key's requests and tokens per minute and at once."""

    USD = "usd"
    THINKING = "thinking_tokens"
    REQUESTS = "requests"
    TOKENS = "tokens"
    PARALLEL = "parallel_requests"
    """Requests in progress: held while they run, and never charged."""


GRANTED = (Unit.USD, Unit.THINKING)
"""Units that a request is granted (`Amount`). In every other unit, each request takes the account's `size`."""
SESSION_TURNS = "loops.session_turns"
"""Budget name of the accounts that count the requests of a session."""
PASSING_ACCOUNTS = ("key.rpm|", "key.tpm|", "key.parallel|")
"""Prefixes of the ids of a key's short-lived accounts: requests and tokens per minute, and parallel requests."""
PARALLEL_ACCOUNTS = PASSING_ACCOUNTS[-1]
RATE_ACCOUNTS = (*PASSING_ACCOUNTS, f"{SESSION_TURNS}|")
"""Prefixes of the ids of all accounts that count neither money nor thinking tokens."""


class Amount(Struct, frozen=True):
    """An amount of money in nano-USD and of thinking tokens."""

    usd: int = 0
    thinking: int = 0

    def of(self, unit: Unit) -> int:
        return self.usd if unit is Unit.USD else self.thinking

    def plus(self, more: "Amount") -> "Amount":
        return Amount(self.usd + more.usd, self.thinking + more.thinking)

    def beyond(self, held: "Amount") -> "Amount":
        """Returns the part of this amount that `held` does not cover, per unit."""
        return Amount(max(0, self.usd - held.usd), max(0, self.thinking - held.thinking))

    def within(self, caps: "Sequence[Account]") -> "Amount":
        """Returns this amount, reduced in each unit to the lowest limit among `caps`."""
        usd = [cap.limit for cap in caps if cap.unit is Unit.USD]
        thinking = [cap.limit for cap in caps if cap.unit is Unit.THINKING]
        return Amount(min([self.usd, *usd]), min([self.thinking, *thinking]))


def growth(more: Amount, lefts: Sequence[tuple[Unit, int]]) -> Amount:
    """Returns as much of `more` as all accounts have left. `lefts` has each account's unit and what it has left."""
    return Amount(*(max(0, min([more.of(unit), *(left for kind, left in lefts if kind is unit)])) for unit in GRANTED))


ENDLESS = 2**62
"""Stands for "no limit", in nano-USD and in tokens."""
ANY_AMOUNT = Amount(ENDLESS, ENDLESS)


class Account(Struct, frozen=True, kw_only=True):
    """A budget as it binds one request: the counter for one value of the budget's scope, in the current window.

    Amounts booked under `id` at `since_ms` or later count against `limit`. New amounts are booked at `window_start_ms`.
    In a calendar window the two times are equal; in a rolling window `since_ms` moves with the clock.
    """

    id: str
    """Id of the account in the store, e.g. `monthly` or `per-key|alice`."""
    budget: str
    """Name of the budget in the policy, or the id of a child budget."""
    scope: str
    value: str = ""
    """Value of the budget's scope, such as a key's name or a session."""
    unit: Unit = Unit.USD
    limit: int
    window_start_ms: int = 0
    since_ms: int = 0
    resets_at_ms: int | None = None
    """Unix time in ms at which the window ends; None if it never does."""
    hard: bool = True
    """Whether the account can refuse requests. A soft account is booked in the same way but refuses none."""
    targets: frozenset[str] = frozenset()
    """Targets whose attempts the account is charged for; empty means all targets."""
    expires_at_ms: int | None = None
    """Unix time in ms after which a child budget takes no new requests; None for other budgets or without an end."""
    size: int = 0
    """Amount that each request takes of a rate account or of a session's turns; 0 if the `HoldRequest` decides."""

    def needs(self, least: Amount) -> int:
        return self.size or (least.usd if self.unit is Unit.USD else least.thinking)

    def hold(self, amount: int) -> "Hold":
        return Hold(self.id, self.window_start_ms, self.unit, amount, self.targets)


class BudgetBound(Struct, frozen=True, kw_only=True, dict=True):
    """Everything that limits what one request may spend; no limits by default."""

    accounts: tuple[Account, ...] = ()
    """Accounts that are shared with other requests and kept by the store."""
    caps: tuple[Account, ...] = ()
    """Limits of this request alone, such as `x-lowpass-budget-usd`. The store keeps no account for them."""
    thinking: int | None = None
    """Maximum thinking tokens over all choices: the lowest limit of header, class and budgets; None if unlimited."""

    @cached_property
    def spending(self) -> tuple[Account, ...]:
        """Accounts that limit spending, without the rate accounts."""
        return tuple([account for account in self.accounts if not account.size])

    @cached_property
    def usd(self) -> bool:
        """Whether a hard account or cap limits money."""
        return any([row.hard and row.unit is Unit.USD for row in (*self.spending, *self.caps)])

    @cached_property
    def thinks(self) -> bool:
        """Whether a hard account or cap limits thinking tokens."""
        return any([row.hard and row.unit is Unit.THINKING for row in (*self.spending, *self.caps)])

    @cached_property
    def partial(self) -> bool:
        """Whether some spending account applies to certain targets only."""
        return any([account.targets for account in self.spending])


UNBOUND = BudgetBound()


class HoldRequest(Struct, frozen=True, kw_only=True):
    """The amounts that a request wants held. In each unit, `least` and `tight` are at most `whole`.

    `whole` is the worst case of what would be sent. It is granted if the accounts have at least `AMPLE` times as much
    left. Otherwise `tight` is granted, an upper quantile that is extended while the answer streams; or else what is
    left, if that is at least `least`.
    """

    least: Amount
    tight: Amount
    whole: Amount
    shortest: Amount | None = None
    """Amount that a short answer needs, if `least` is for the answer as it was decided; None otherwise."""
    targets: tuple[str, ...] = ()
    """The targets of the request, if accounts for some of them only bind it: it is refused where these exclude all."""
    spare: Mapping[str, int] = {}
    """Account id → amount that has to be left beside `tight`, for streams in progress whose holds will grow."""

    def needed(self, account: "Account") -> int:
        """Returns what the account must have left."""
        least, spare = account.needs(self.least), self.spare.get(account.id, 0)
        return account.needs(self.tight) + spare if spare and least else least

    def granted(self, unit: Unit, left: int) -> int:
        """Returns what is granted if the accounts that bind all targets have `left`, which must be at least `least`."""
        whole = self.whole.of(unit)
        return whole if left >= AMPLE * whole else max(0, min(self.tight.of(unit), left))


NOTHING = HoldRequest(least=Amount(), tight=Amount(), whole=Amount())
AMPLE = 25
"""Multiple of the worst case that an account must have left for the worst case to be held. Such a hold is at most 1/25
of what is left, so it keeps no other request out, and the answer needs neither metering nor a lower cap."""


class Hold(Struct, frozen=True):
    """Amount that one account keeps for one request."""

    account: str
    window_start_ms: int
    unit: Unit
    amount: int
    targets: frozenset[str] = frozenset()


class Reservation(Struct, frozen=True):
    """What a request may spend. `granted` is held in each account that binds all targets; `holds` lists all holds."""

    request_id: str
    granted: Amount
    holds: tuple[Hold, ...] = ()
    room: Amount = Amount()
    """What those accounts had left beyond `granted` at that time; no extension can get more."""
    rates: tuple[tuple[Account, int], ...] = ()
    """Rate accounts, each with what it had left after this request."""

    def grown(self, extra: Amount, accounts: Container[str]) -> "Reservation":
        """Returns this reservation with `extra` more granted, and held in the given accounts."""
        holds = tuple(
            structs.replace(hold, amount=hold.amount + extra.of(hold.unit)) if hold.account in accounts else hold
            for hold in self.holds
        )
        return structs.replace(self, granted=self.granted.plus(extra), holds=holds, room=self.room.beyond(extra))

    def at(self, target: str) -> Amount:
        """Returns what may be spent at `target`: `granted`, or less if an account for that target has less."""
        usd, thinking = self.granted.usd, self.granted.thinking
        for hold in self.holds:
            if target in hold.targets:
                if hold.unit is Unit.USD:
                    usd = min(usd, hold.amount)
                else:
                    thinking = min(thinking, hold.amount)
        return Amount(usd, thinking)


class Refused(Struct, frozen=True, kw_only=True):
    """The account that refused a request, as it stood then. `needed` is in the account's unit."""

    account: Account
    spent: int
    held: int
    needed: int
    lent: int = 0
    """Part of `held` that belongs to child budgets; when it is released is unknown."""
    short: bool = False
    """Whether there is room for a short answer, though not for the answer as it was decided."""

    @property
    def left(self) -> int:
        return self.account.limit - self.spent - self.held

    @property
    def passing(self) -> bool:
        """Whether only holds of requests in progress are in the way, so that waiting may help.

        An account that refuses although it has enough left is closed or expired.
        """
        return not self.account.size and self.left < self.needed <= self.account.limit - self.spent - self.lent


class Balance(Struct, frozen=True):
    """The amount booked in an account's window, and the amount held for requests in progress and for child budgets."""

    spent: int
    held: int


class Child(Struct, frozen=True, kw_only=True):
    """A budget split off another. The parent holds the child's limit until the child closes; then the parent is charged
    what was spent, and gets the rest back. The child can't exceed what the parent had left, nor outlast it."""

    id: str
    parent: str
    """Account id of the parent, which may itself be a child."""
    parent_window_ms: int
    replaces: tuple[str, ...]
    """Account ids of all ancestors. A request that is charged to the child is not charged to them as well."""
    unit: Unit
    limit: int
    created_ms: int
    expires_at_ms: int | None
    key: str
    """Id of the key that created the child. Only that key and keys of its team may use it."""
    team: str = ""
    closed_ms: int | None = None

    def open_at(self, now_ms: int) -> bool:
        """Whether the child accepts new requests at `now_ms`."""
        return self.closed_ms is None and (self.expires_at_ms is None or self.expires_at_ms > now_ms)

    def outlives(self, parent: "Account") -> bool:
        ends = [end for end in (parent.resets_at_ms, parent.expires_at_ms) if end is not None]
        return bool(ends) and (self.expires_at_ms is None or self.expires_at_ms > min(ends))

    def usable_by(self, caller: Caller) -> bool:
        """Whether `caller` is the key that created the child, or belongs to that key's team."""
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


# The lease that a process has on the holds of its requests.

LEASE_MS = 30_000
"""Time in ms without renewal after which a process counts as dead, and other processes charge its holds."""


class Lease:
    """Tracks whether this process's lease may have ended while a request ran, as when the process was paused."""

    def __init__(self, clock: Callable[[], int]) -> None:
        """`clock` returns Unix time in ms."""
        self._clock, self._renewed_ms, self._lost_ms = clock, clock(), 0

    def renew(self) -> None:
        now = self._clock()
        if now - self._renewed_ms > LEASE_MS:
            self._lost_ms = now
        self._renewed_ms = now

    def lost_since(self, start_ms: int) -> bool:
        """Returns whether the lease may have ended since `start_ms`, and other processes may have charged the holds."""
        now = self._clock()
        return self._lost_ms > start_ms or now - max(self._renewed_ms, start_ms) > LEASE_MS


# The port of the budget stores: SQLite for a single machine, Redis for several.


class StoreUnavailable(Exception):
    """The store can't be reached or does not answer in time. Nothing was held."""


class BudgetStore(Protocol):
    """Port of a budget store. Awaited methods raise `StoreUnavailable` promptly if the store is slow or unreachable.

    At any time, spent + held of an account is the sum of its bookings. Amounts are in the account's unit.
    """

    @property
    def available(self) -> bool:
        """Whether the store's last answer came in time. While it is False, the store retries by itself."""
        ...

    async def reserve(
        self, request_id: str, accounts: Sequence[Account], ask: HoldRequest, now_ms: int
    ) -> Reservation | Refused:
        """Holds in all accounts in one atomic step, or in none, and then returns the account that has too little left.

        In each unit, the same amount is held in every hard account without `targets` (see `HoldRequest`). A hard
        account with `targets` holds at most that; if it has less than `least` left it is skipped, and the reservation
        has no hold in it (see `unpaid`); if that excludes all of `ask.targets`, nothing is held. A soft account holds
        the granted amount whatever it has left.
        """
        ...

    async def extend(
        self, reservation: Reservation, accounts: Sequence[Account], more: Amount, now_ms: int
    ) -> Reservation:
        """Holds up to `more` in addition, as much as all accounts have left. Returns the resulting reservation."""
        ...

    def settle(self, reservation: Reservation, charges: Sequence[int]) -> None:
        """Queues the end of the holds: `charges[i]` is booked in full for `reservation.holds[i]`, whatever the hold
        was. A charge that corrects another may be negative.

        Idempotent. A hold recovered in the meantime is corrected to the charge. A charge whose hold the store has lost
        is booked and logged.
        """
        ...

    async def settled(self) -> None:
        """Returns when everything queued so far is durable, or at once if the store is unavailable."""
        ...

    async def recover(self, now_ms: int) -> int:
        """Renews this process's leases and charges the holds of dead processes in full, then does what `expire` does.
        Returns the number of requests that were charged."""
        ...

    async def expire(self, now_ms: int) -> None:
        """Closes expired children that have no open holds, and books what they spent in their parents."""
        ...

    async def balances(self, accounts: Sequence[Account]) -> list[Balance]: ...

    async def values(self, budget: str, since_ms: int) -> list[str]:
        """Returns the values of the budget's scope that have a hold or a booking since `since_ms`."""
        ...

    async def split(self, parent: Account, child: Child, now_ms: int) -> Child | Refused:
        """Opens the child and holds its limit in the parent, in one step. Refuses if the parent has less left, is
        closed, or expires before the child."""
        ...

    async def child(self, identifier: str) -> Child | None: ...

    async def children(self) -> list[Child]:
        """Returns the open children."""
        ...

    async def close(self, identifier: str, now_ms: int) -> Child | None:
        """Closes a child and all children below it to new requests. What is not spent returns to the parent now; what
        requests in progress hold returns when they settle. Returns None if there is no such child. Idempotent."""
        ...


def unpaid(accounts: Sequence[Account], reservation: Reservation) -> frozenset[str]:
    """Returns the targets that are refused by a hard account of their own."""
    held = {hold.account for hold in reservation.holds}
    return frozenset().union(*(account.targets for account in accounts if account.hard and account.id not in held))


# The port through which rows reach the ledger. Many requests share a transaction.

T = TypeVar("T")
Value = str | int | float | None
Row = tuple[Value, ...]
INCIDENT = """INSERT INTO incidents (id, at_ms, kind, scope, subject, reason, until_ms) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING"""


class Journal(Protocol):
    """Writes rows to the ledger. Many requests share a transaction, which commits all of its rows and changes or none.

    If the connection breaks before a commit is confirmed, the commit is repeated. So every row needs a key, and every
    change must be idempotent.
    """

    @property
    def owner(self) -> str:
        """Name of this process in the rows that it holds."""
        ...

    @property
    def available(self) -> bool:
        """Whether the last commit succeeded."""
        ...

    def add(self, statement: str, row: Row) -> None:
        """Queues a new row. In a commit, new rows come first, in the order in which statements were first used."""
        ...

    def change(self, statement: str, row: Row) -> None:
        """Queues a change. Changes follow the new rows, in the order given."""
        ...

    def committed(self) -> Awaitable[None]:
        """Returns when everything queued so far is on disk and visible to all processes. Raises if that fails."""
        ...

    async def end(self) -> None:
        """Writes what is queued, as far as that is possible within seconds, and closes."""
        ...


class LocalJournal(Journal, Protocol):
    """A journal on a local file, whose transactions can run code that reads before it writes."""

    def read(self, operation: Callable[[sqlite3.Connection], T]) -> T:
        """Runs a read-only step at once. It sees what any process has committed.

        Raises `LedgerUnavailable`.
        """
        ...

    def call(self, operation: Callable[[sqlite3.Connection], T]) -> "asyncio.Future[T]":
        """Queues a read-and-write step. It sees all rows and changes of its commit and is atomic with the commit."""
        ...


class LedgerUnavailable(StoreUnavailable):
    """The ledger can't be read or written: disk full or broken, locked by another process, or server unreachable."""
