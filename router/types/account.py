"""Budgets as the stores see them: accounts with a limit, and what a request wants held, holds and is refused."""

from collections.abc import Container
from enum import StrEnum

from msgspec import Struct, structs

from router.types.request import Caller

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
RATE_ACCOUNTS = ("key.rpm|", "key.tpm|", "key.parallel|")
"""How the ids of accounts begin that limit rates: requests and tokens of a key's minute, and its parallel requests."""
PARALLEL_ACCOUNTS = RATE_ACCOUNTS[-1]


class Amount(Struct, frozen=True):
    """One amount of each unit: nano-USD and thinking tokens."""

    usd: int = 0
    thinking: int = 0

    def of(self, unit: Unit) -> int:
        return self.usd if unit is Unit.USD else self.thinking


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
    """What each request takes of an account of a rate; 0: as its `Ask` says."""

    def needs(self, least: Amount) -> int:
        return self.size or least.of(self.unit)

    def hold(self, amount: int) -> "Hold":
        return Hold(self.id, self.window_start_ms, self.unit, amount, self.targets)


class Bound(Struct, frozen=True, kw_only=True):
    """Everything that limits what one request may spend. Empty: nothing does."""

    accounts: tuple[Account, ...] = ()
    """Shared with other requests: kept by the store."""
    caps: tuple[Account, ...] = ()
    """This request's alone, such as `x-lowpass-budget-usd`: nothing is kept for them."""
    thinking: int | None = None
    """Tokens that it may think, over all its choices: the least of header, class and budgets."""

    def binds(self, unit: Unit) -> bool:
        return any(account.unit is unit and account.hard for account in (*self.accounts, *self.caps))


class Ask(Struct, frozen=True, kw_only=True):
    """What a request wants held, unit by unit; least and tight are at most whole.

    `whole` is the worst case of what would be sent. It is granted where there is ample room for it (`AMPLE` times
    that much); else `tight`, an upper quantile that is extended while the answer streams; else what is left, if that
    is at least `least`.
    """

    least: Amount
    tight: Amount
    whole: Amount
    born: Amount | None = None
    """What the request's row says that it holds, where it was born with another amount than `whole`."""


AMPLE = 100
"""An account with room for so many whole holds is not short: one that is too large, by at most a hundredth of what is
left, keeps nobody out, and spares the answer the metering."""


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
        granted = Amount(self.granted.usd + extra.usd, self.granted.thinking + extra.thinking)
        holds = tuple(
            structs.replace(hold, amount=hold.amount + extra.of(hold.unit)) if hold.account in accounts else hold
            for hold in self.holds
        )
        return structs.replace(self, granted=granted, holds=holds)

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
