"""What a store has to say, from lists and sums: slow, and too simple to be wrong in the same way."""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from router.types.account import AMPLE, GRANTED, Account, Amount, Balance, Child, HoldRequest, Reservation, Unit


class Booked(Struct):
    """One hold; `charged` is None while it is open."""

    account: str
    window: int
    held: int
    charged: int | None = None

    @property
    def over(self) -> int:
        return 0 if self.charged is None else max(0, self.charged - self.held)


class Model:
    def __init__(self) -> None:
        self.booked: dict[str, list[Booked]] = {}
        self.children: dict[str, Child] = {}
        self.closed: set[str] = set()

    def reserved(self, reservation: Reservation) -> None:
        holds = reservation.holds
        self.booked[reservation.request_id] = [Booked(one.account, one.window_start_ms, one.amount) for one in holds]

    def charge(self, request_id: str, charges: Sequence[int]) -> None:
        for row, charge in zip(self.booked[request_id], charges, strict=True):
            row.charged = charge

    def rows(self, account: str) -> Iterator[Booked]:
        """Those of requests, and those that keep the limits of children."""
        for rows in self.booked.values():
            yield from (row for row in rows if row.account == account)
        for child in self.children.values():
            if child.parent == account:
                yield self._limit(child)

    def _limit(self, child: Child) -> Booked:
        spent, held = self.sums(child.id, 0)
        row = Booked(child.parent, child.parent_window_ms, max(child.limit, spent + held))
        if child.id in self.closed:
            row.held, row.charged = spent + held, None if held else spent
        return row

    def sums(self, account: str, window: int) -> tuple[int, int]:
        """(spent, held) in one window."""
        return self._summed([row for row in self.rows(account) if row.window == window])

    def windows(self) -> set[tuple[str, int]]:
        found = {(row.account, row.window) for rows in self.booked.values() for row in rows}
        return found | {(child.parent, child.parent_window_ms) for child in self.children.values()}

    def _summed(self, rows: Sequence[Booked]) -> tuple[int, int]:
        return sum(row.charged or 0 for row in rows), sum(row.held for row in rows if row.charged is None)

    def balance(self, account: Account) -> Balance:
        if account.since_ms == account.window_start_ms:
            return Balance(*self.sums(account.id, account.window_start_ms))
        rows = list(self.rows(account.id))
        spent = sum(row.charged or 0 for row in rows if row.window >= account.since_ms)
        return Balance(spent, self._summed(rows)[1])

    def left(self, account: Account) -> int:
        found = self.balance(account)
        return account.limit - found.spent - found.held

    def overrun(self, account: str) -> int:
        """By how much charges exceeded their holds, here and in all that was split off."""
        own = sum(row.over for rows in self.booked.values() for row in rows if row.account == account)
        return own + sum(self.overrun(child.id) for child in self.children.values() if child.parent == account)

    def shut(self, account: Account, now_ms: int) -> bool:
        child = self.children.get(account.id)
        ended = child is not None and child.expires_at_ms is not None and child.expires_at_ms <= now_ms
        return account.id in self.closed or ended

    def refuses(self, account: Account, ask: HoldRequest, now_ms: int) -> bool:
        binding = account.hard and not account.targets and account.needs(ask.least) > 0
        return self.shut(account, now_ms) or (binding and self.left(account) < self.needed(account, ask))

    def needed(self, account: Account, ask: HoldRequest) -> int:
        least, spare = account.needs(ask.least), ask.spare.get(account.id)
        return account.needs(ask.tight) + spare if least and spare else least

    def granted(self, accounts: Sequence[Account], ask: HoldRequest) -> Amount:
        return Amount(*(self._granted(accounts, ask, unit) for unit in GRANTED))

    def _granted(self, accounts: Sequence[Account], ask: HoldRequest, unit: Unit) -> int:
        binding = [one for one in accounts if one.unit is unit and one.hard and not one.targets]
        room = min((self.left(one) for one in binding), default=10**18)
        if room >= AMPLE * ask.whole.of(unit):
            return ask.whole.of(unit)
        return max(0, min(room, ask.tight.of(unit)))

    def below(self, identifier: str) -> set[str]:
        """It, and all that were split off it."""
        found = {identifier}
        for child in self.children.values():
            if child.parent == identifier:
                found |= self.below(child.id)
        return found
