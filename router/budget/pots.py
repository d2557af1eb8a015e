"""Which pots a request is charged to, with the windows computed once and not for every request."""

from collections.abc import Iterable

from router.budget.budget import Budget, Charged, Rolling
from router.budget.window import LIFETIME, Span, seconds, step_ms
from router.types.account import Account


class Pots:
    """The budgets of one policy. Not thread-safe: one event loop."""

    def __init__(self, budgets: Iterable[Budget]) -> None:
        self.budgets = tuple(budgets)
        self._spans: dict[str, tuple[int, int, Span]] = {}

    def binding(self, charged: Charged, named: frozenset[str]) -> list[Budget]:
        """The budgets that bind a request: those whose filters match it, and those that it names."""
        return [budget for budget in self.budgets if budget.binds(charged) or budget.id in named]

    def accounts(self, charged: Charged, budgets: Iterable[Budget], now_ms: int) -> list[Account]:
        return [one for budget in budgets for one in budget.accounts(charged, self.span(budget, now_ms))]

    def span(self, budget: Budget, now_ms: int) -> Span:
        """`budget.span`, remembered while it stays the same."""
        known = self._spans.get(budget.id)
        if known is not None and known[0] <= now_ms < known[1]:
            return known[2]
        span = budget.span(now_ms)
        self._spans[budget.id] = (span.start, _until(budget, span), span)
        return span


_FOREVER = 2**62


def _until(budget: Budget, span: Span) -> int:
    """When the span is another one, in Unix ms."""
    if isinstance(budget.window, Rolling):
        return span.start + step_ms(seconds(budget.window.rolling))
    return _FOREVER if span == LIFETIME or span.resets_at is None else span.resets_at
