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

MAX_CACHED_WINDOWS = 100_000
"""Maximum number of account windows whose sent alerts are cached here; the ledger stores them for all processes."""
_SHARE_SCALE = 10_000
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
    _sent_shares: dict[tuple[str, int], set[int]] = {}
    _check_all: bool = False

    def adopt(self, budgets: Iterable[Budget]) -> None:
        """Watches `budgets`. The next tick checks all of their accounts, in case a process died before its own tick."""
        self.watched = {budget.id: budget for budget in budgets if budget.alerts}
        self._check_all = True

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
            if self._check_all:
                touched |= {(item.id, item.window_start_ms): item for item in await self._booked_accounts(now_ms)}
                self._check_all = False
            accounts = list(touched.values())
            balances = await self._store.balances(accounts) if accounts else ()
            for item, balance in zip(accounts, balances, strict=True):
                budget = self.watched.get(item.budget)
                if budget is not None:
                    await self._send_crossed(budget, item, balance.spent, now_ms)
        except StoreUnavailable:
            self._touched = touched | self._touched

    async def _booked_accounts(self, now_ms: int) -> list[Account]:
        """Returns the accounts of all watched budgets that have bookings in their current window."""
        accounts = []
        for budget in self.watched.values():
            span = budget.span(now_ms)
            values = await self._store.values(budget.id, span.since) if budget.divided else [""]
            accounts += [budget.account_of(value, now_ms) for value in values]
        return accounts

    async def _send_crossed(self, budget: Budget, account: Account, spent: int, now_ms: int) -> None:
        window = account.window_start_ms
        if isinstance(budget.window, RollingWindow):
            # A rolling window has no fixed start: its alerts are sent at most once per window length.
            length_ms = seconds(budget.window.rolling) * 1000
            window = now_ms // length_ms * length_ms
        # The limit is part of the key: after a raise, alerts are sent again.
        window_key = f"{account.id}#{account.limit}", window
        sent_shares = self._sent_shares.get(window_key, set())
        used_up = self._refused.pop((account.id, account.window_start_ms), None) == account.limit
        reached = _SHARE_SCALE if used_up else spent * _SHARE_SCALE // account.limit
        crossed = [part for part in sorted(int(share * _SHARE_SCALE) for share in budget.alerts) if part <= reached]
        if fresh := [part for part in crossed if part not in sent_shares]:
            claimed = await self._claim(*window_key, fresh)
            if len(self._sent_shares) >= MAX_CACHED_WINDOWS:
                self._sent_shares.clear()
            self._sent_shares[window_key] = sent_shares | set(crossed)
            for part in claimed:
                self._send_alert(budget, _notice(account, spent, Decimal(part) / _SHARE_SCALE))

    def _send_alert(self, budget: Budget, notice: AlertNotice) -> None:
        # `value` is the only text the operator did not write: a session name may contain personal data.
        if notice.value and (withheld := tuple(sorted(self._withheld(notice.value.encode())))):
            notice = structs.replace(notice, value=None, withheld=withheld)
        owner_text = f" of {notice.scope} {notice.value!r}" if notice.value else ""
        text = "budget '%s'%s has spent %s of %s %s: %s of its limit"
        _log.warning(text, notice.budget, owner_text, notice.spent, notice.limit, notice.unit, notice.share)
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
        window_start=_utc_time(account.since_ms or None),
        resets_at=_utc_time(account.resets_at_ms),
    )


def _utc_time(when_ms: int | None) -> datetime | None:
    return None if when_ms is None else datetime.fromtimestamp(when_ms // 1000, UTC)
