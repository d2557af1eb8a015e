"""How every pot of every budget stands: the same numbers for HTTP, the command line and the dashboard."""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from router.budget.budget import Budget, KeyLimit
from router.types.account import Account, Balance, Child
from router.types.store import BudgetStore


class Pot(Struct, frozen=True, kw_only=True):
    """What a budget of the policy keeps for one value of its scope, or a child: one of the two is there."""

    account: Account
    budget: Budget | None = None
    child: Child | None = None

    @property
    def value(self) -> str | None:
        """None: of no value in particular."""
        return self.account.value or None

    @property
    def window(self) -> str:
        return "lifetime" if self.budget is None else self.budget.window_name


class Standing(Struct, frozen=True):
    pot: Pot
    balance: Balance

    @property
    def remaining(self) -> int:
        """Below 0 where a charge was larger than its hold; 0 in a child that is closed."""
        if self.pot.child is not None and self.pot.child.closed_ms is not None:
            return 0
        return self.pot.account.limit - self.balance.spent - self.balance.held


def of_child(child: Child) -> Pot:
    return Pot(account=child.account(), child=child)


async def every(store: BudgetStore, declared: Iterable[Budget], now_ms: int) -> list[Pot]:
    """All pots that hold or have booked something in their window; a budget that has none yet is there once, full.

    In the order of the policy; then the open children. Raises `StoreUnavailable`.
    """
    pots = [pot for budget in declared for pot in await of_budget(store, budget, now_ms)]
    return [*pots, *map(of_child, await store.children())]


async def measured(store: BudgetStore, pots: Sequence[Pot]) -> list[Standing]:
    """Raises `StoreUnavailable`."""
    balances = await store.balances([pot.account for pot in pots])
    return [Standing(pot, balance) for pot, balance in zip(pots, balances, strict=True)]


async def of_budget(store: BudgetStore, budget: Budget, now_ms: int) -> list[Pot]:
    """At least one. Raises `StoreUnavailable`."""
    if isinstance(budget, KeyLimit):
        return [Pot(account=budget.pot(name, now_ms), budget=budget) for name in budget.keys]
    values = sorted(await store.values(budget.id, budget.span(now_ms).since)) if budget.divided else []
    accounts = [budget.pot(value, now_ms) for value in values] or [budget.full(now_ms)]
    return [Pot(account=account, budget=budget) for account in accounts]
