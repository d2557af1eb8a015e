"""The port of the budget stores: SQLite for one machine, Redis for several."""

from collections.abc import Sequence
from typing import Protocol

from router.types.account import Account, Amount, Ask, Balance, Child, Refused, Reservation


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
        self, request_id: str, accounts: Sequence[Account], ask: Ask, now_ms: int
    ) -> Reservation | Refused:
        """One atomic step over all accounts: all of the holds, or none and the account that has not enough left.

        Per unit the same amount is held in every hard account without `targets`: see `Ask`. An account with
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
