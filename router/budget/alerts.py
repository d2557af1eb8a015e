"""Budget alerts: sent once per account, window and share of the limit, whichever gateway process notices first."""

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime
from decimal import Decimal

import msgspec
from msgspec import UNSET, Struct, UnsetType, structs

from router.budget.budget import Budget, RollingWindow
from router.types.account import Account, BudgetStore, StoreUnavailable, Unit
from router.types.price import usd_text
from router.types.request import seconds

MOST_REMEMBERED = 100_000
"""Maximum number of account windows whose sent alerts are cached here; the ledger stores them for all processes."""
_PARTS = 10_000
"""Shares are stored as integers in units of 1/10,000, since the policy allows four decimals."""
_log = logging.getLogger(__name__)
_encode = msgspec.json.Encoder(decimal_format="number").encode

Claim = Callable[[str, int, Sequence[int]], Awaitable[Sequence[int]]]
"""Claims alerts: (account, window start in Unix ms, shares in ten-thousandths) → the shares not claimed before."""


class AlertNotice(Struct, frozen=True, kw_only=True):
    """JSON body of a webhook call. `limit` and `spent` are in USD or tokens; times are null for a lifetime budget."""

    budget: str
    scope: str
    value: str | None
    unit: Unit
    limit: Decimal | int
    spent: Decimal | int
    share: Decimal
    window_start: datetime | None
    resets_at: datetime | None
    withheld: tuple[str, ...] | UnsetType = UNSET
    """Sensitivity classes found in `value`, which is therefore null; absent if nothing was found."""


class Alerts(Struct, eq=False):
    """Sends alerts. Callers report each charge with `touch` and call `tick` periodically.

    `_send` takes a URL and a body and must not block. `_withheld` returns the classes that forbid sending a text out.
    """

    _store: BudgetStore
    _claim: Claim
    _send: Callable[[str, bytes], object]
    _withheld: Callable[[bytes], Iterable[str]]
    watched: dict[str, Budget] = {}
    _touched: dict[tuple[str, int], Account] = {}
    _refused: dict[tuple[str, int], int] = {}
    """(account id, window start) → limit at which a request was refused; such an account counts as used up."""
    _told: dict[tuple[str, int], set[int]] = {}
    _unseen: bool = False

    def adopt(self, budgets: Iterable[Budget]) -> None:
        """Watches `budgets`. The next tick checks all of their accounts, in case a process died before its own tick."""
        self.watched = {budget.id: budget for budget in budgets if budget.alerts}
        self._unseen = True

    def touch(self, account: Account) -> None:
        """Marks `account`, whose budget must be in `watched`, for the next tick."""
        self._touched[account.id, account.window_start_ms] = account

    def refuse(self, account: Account) -> None:
        """Records that a request was refused because `account` had too little left."""
        if account.budget in self.watched:
            self._refused[account.id, account.window_start_ms] = account.limit
            self.touch(account)

    async def tick(self, now_ms: int) -> None:
        """Sends alerts for shares crossed since the last tick. If the store is unavailable, the next tick retries."""
        touched, self._touched = self._touched, {}
        try:
            if self._unseen:
                touched |= {(pot.id, pot.window_start_ms): pot for pot in await self._every(now_ms)}
                self._unseen = False
            accounts = list(touched.values())
            balances = await self._store.balances(accounts) if accounts else ()
            for account, balance in zip(accounts, balances, strict=True):
                budget = self.watched.get(account.budget)
                if budget is not None:
                    await self._compare(budget, account, balance.spent, now_ms)
        except StoreUnavailable:
            self._touched = touched | self._touched

    async def _every(self, now_ms: int) -> list[Account]:
        """Returns the accounts of all watched budgets that have bookings in their current window."""
        pots = []
        for budget in self.watched.values():
            span = budget.span(now_ms)
            values = await self._store.values(budget.id, span.since) if budget.divided else [""]
            pots += [budget.pot(value, now_ms) for value in values]
        return pots

    async def _compare(self, budget: Budget, account: Account, spent: int, now_ms: int) -> None:
        window = account.window_start_ms
        if isinstance(budget.window, RollingWindow):
            # A rolling window has no fixed start: its alerts are sent at most once per window length.
            length_ms = seconds(budget.window.rolling) * 1000
            window = now_ms // length_ms * length_ms
        # The limit is part of the key: after a raise, alerts are sent again.
        pot = f"{account.id}#{account.limit}", window
        sent = self._told.get(pot, set())
        used_up = self._refused.pop((account.id, account.window_start_ms), None) == account.limit
        reached = _PARTS if used_up else spent * _PARTS // account.limit
        crossed = [part for part in sorted(int(share * _PARTS) for share in budget.alerts) if part <= reached]
        if fresh := [part for part in crossed if part not in sent]:
            claimed = await self._claim(*pot, fresh)
            if len(self._told) >= MOST_REMEMBERED:
                self._told.clear()
            self._told[pot] = sent | set(crossed)
            for part in claimed:
                self._tell(budget, _notice(account, spent, Decimal(part) / _PARTS))

    def _tell(self, budget: Budget, notice: AlertNotice) -> None:
        # `value` is the only text the operator did not write: a session name may contain personal data.
        if notice.value and (withheld := tuple(sorted(self._withheld(notice.value.encode())))):
            notice = structs.replace(notice, value=None, withheld=withheld)
        whose = f" of {notice.scope} {notice.value!r}" if notice.value else ""
        text = "budget '%s'%s has spent %s of %s %s: %s of its limit"
        _log.warning(text, notice.budget, whose, notice.spent, notice.limit, notice.unit, notice.share)
        if budget.webhook is not None:
            self._send(budget.webhook, _encode(notice))


def _notice(account: Account, spent: int, share: Decimal) -> AlertNotice:
    in_usd = account.unit is Unit.USD
    limit, booked = (Decimal(usd_text(amount)) if in_usd else amount for amount in (account.limit, spent))
    return AlertNotice(
        budget=account.budget,
        scope=account.scope,
        value=account.value or None,
        unit=account.unit,
        limit=limit,
        spent=booked,
        share=share.normalize(),
        window_start=_moment(account.since_ms or None),
        resets_at=_moment(account.resets_at_ms),
    )


def _moment(when_ms: int | None) -> datetime | None:
    return None if when_ms is None else datetime.fromtimestamp(when_ms // 1000, UTC)
