"""A part of an account that this process holds beforehand, and what it may grant from it."""

from collections.abc import Iterable

from msgspec import Struct

from router.types.account import AMPLE, Account, Amount, Ask, Hold, Reservation, Unit
from router.types.store import StoreUnavailable


class Lease(Struct):
    """A part of an account that this process holds."""

    account: Account
    hold: Reservation
    open: int = 0
    """Of requests in progress that were granted from it."""
    spent: dict[int, int] = {}
    """By start of the window that it belongs to, which in a rolling account moves on while the lease stays."""

    @property
    def amount(self) -> int:
        return self.hold.holds[0].amount

    @property
    def used(self) -> int:
        return self.open + sum(self.spent.values())

    @property
    def left(self) -> int:
        return self.amount - self.used

    def covers(self, account: Account) -> bool:
        """Even if it was recovered meanwhile its charge counts in the account's window, which may be a rolling one."""
        return account.since_ms <= self.account.window_start_ms <= account.window_start_ms

    def ages(self, account: Account) -> bool:
        """It should be replaced: it covers the account no more, or for less than half of a rolling window."""
        middle = (account.since_ms + account.window_start_ms) // 2
        return not self.covers(account) or self.account.window_start_ms < middle


def amount_of(account: Account, amount: int) -> Amount:
    return Amount(usd=amount) if account.unit is Unit.USD else Amount(thinking=amount)


def exactly(account: Account, amount: int) -> Ask:
    whole = amount_of(account, amount)
    return Ask(least=whole, tight=whole, whole=whole)


def room(leases: Iterable[Lease], accounts: Iterable[Account], ask: Ask, unit: Unit) -> int:
    """As the stores grant (see `Ask`), with what the leases have left. Raises StoreUnavailable for too little."""
    binding = zip(leases, accounts, strict=True)
    lefts = [lease.left for lease, account in binding if account.unit is unit and not account.targets]
    least, tight, whole = ask.least.of(unit), ask.tight.of(unit), ask.whole.of(unit)
    if not lefts or min(lefts) >= AMPLE * whole:
        return whole
    if 0 < least > min(lefts):
        raise StoreUnavailable("the budget store is gone, and what may be spent without it is used up")
    return max(0, min(tight, *lefts))


def part(lease: Lease, account: Account, granted: Amount, ask: Ask) -> int | None:
    """None: an account for some targets only has too little; these are left out."""
    if not account.targets:
        return granted.of(account.unit)
    if 0 < ask.least.of(account.unit) > lease.left:
        return None
    return max(0, min(granted.of(account.unit), lease.left))


def extra_of(parts: Iterable[tuple[Lease, Hold]], growing: set[str], more: int, unit: Unit) -> int:
    lefts = [lease.left for lease, hold in parts if hold.account in growing and hold.unit is unit]
    return max(0, min([more, *lefts]))
