"""Which accounts a request is charged to, with the windows computed once and not for every request."""

from collections.abc import Iterable

from router.budget.budget import Budget, Charged, KeyLimit, Rolling
from router.budget.window import LIFETIME, Span, step_ms
from router.types.account import Account, Unit
from router.types.length import seconds
from router.types.money import usd_from_nano
from router.types.request import Allowance, Caller

MINUTE_MS = 60_000


class Pots:
    """The budgets of one policy. Not thread-safe: one event loop."""

    def __init__(self, budgets: Iterable[Budget]) -> None:
        self.budgets = tuple(budgets)
        self._spans: dict[tuple[str, object], tuple[int, int, Span]] = {}
        self._of_keys: dict[tuple[str, Allowance], KeyLimit] = {}

    def binding(self, charged: Charged, named: frozenset[str]) -> list[Budget]:
        """The budgets that bind a request: those whose filters match it, those that it names, and its key's limit."""
        binds = [budget for budget in self.budgets if budget.binds(charged) or budget.id in named]
        limit = self.of_key(charged.caller)
        return binds if limit is None else [*binds, limit]

    def of_key(self, caller: Caller) -> KeyLimit | None:
        """What the key may spend, as a budget; None: as much as the policy's budgets leave it."""
        allowance = caller.allowance
        if allowance is None or allowance.nano is None:
            return None
        budget = self._of_keys.get((caller.name, allowance))
        if budget is None:
            usd = usd_from_nano(allowance.nano)
            budget = KeyLimit(limit_usd=usd, window=allowance.window, keys=(caller.name,))
            self._of_keys[caller.name, allowance] = budget
        return budget

    def of_keys(self, callers: Iterable[Caller]) -> list[Budget]:
        """The limits of all keys that have one, by name."""
        limits = {caller.name: limit for caller in callers if (limit := self.of_key(caller)) is not None}
        return [limits[name] for name in sorted(limits)]

    def accounts(self, charged: Charged, budgets: Iterable[Budget], now_ms: int) -> list[Account]:
        return [account for budget in budgets for account in budget.accounts(charged, self.span(budget, now_ms))]

    def span(self, budget: Budget, now_ms: int) -> Span:
        """`budget.span`, remembered while it stays the same."""
        key = (budget.id, budget.window)
        known = self._spans.get(key)
        if known is not None and known[0] <= now_ms < known[1]:
            return known[2]
        span = budget.span(now_ms)
        self._spans[key] = (span.start, _until(budget, span), span)
        return span


def rates(caller: Caller, tokens: int, now_ms: int) -> list[Account]:
    """Accounts of what a key may do in this minute of the clock, and at once.

    `tokens`: what a request may use; one that may use more than the limit has to wait for a minute of its own. What it
    did use is charged when it is settled.
    """
    allowance = caller.allowance
    if allowance is None:
        return []
    start = now_ms // MINUTE_MS * MINUTE_MS
    ends = start + MINUTE_MS
    limits = (
        ("key.parallel", Unit.PARALLEL, allowance.parallel, 1, 0, None),
        ("key.rpm", Unit.REQUESTS, allowance.rpm, 1, start, ends),
        ("key.tpm", Unit.TOKENS, allowance.tpm, min(max(1, tokens), allowance.tpm or 1), start, ends),
    )
    return [
        Account(
            id=f"{name}|{caller.name}",
            budget=name,
            scope="key",
            value=caller.name,
            unit=unit,
            limit=limit,
            window_start_ms=begins,
            since_ms=begins,
            resets_at_ms=resets,
            size=size,
        )
        for name, unit, limit, size, begins, resets in limits
        if limit is not None
    ]


_FOREVER = 2**62


def _until(budget: Budget, span: Span) -> int:
    """When the span is another one, in Unix ms."""
    if isinstance(budget.window, Rolling):
        return span.start + step_ms(seconds(budget.window.rolling))
    return _FOREVER if span == LIFETIME or span.resets_at is None else span.resets_at
