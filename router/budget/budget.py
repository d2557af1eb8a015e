"""Budgets: their windows, scopes and accounts."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from difflib import get_close_matches
from functools import cached_property
from typing import Annotated, Literal
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from msgspec import Struct, structs
from pydantic import AfterValidator, Discriminator, Field, PrivateAttr, StringConstraints, Tag, field_validator

from router.errors import ClientError, mistake
from router.types.account import UNBOUND, Account, BudgetBound, Child, Unit
from router.types.decision import Decision
from router.types.price import nano_from_usd, usd_from_nano
from router.types.request import Allowance, Caller, Request, seconds
from router.types.yaml_model import YamlPart, form

# Time windows determine which bookings count now. Nothing is reset: a window is a condition on timestamps.

Calendar = Literal["hour", "day", "week", "month", "year"]

STEPS_PER_WINDOW = 100
"""Steps per length of a rolling window; the effective window may be up to one step longer than configured."""
_HOUR_S = 3_600


class BudgetWindow(Struct, frozen=True):
    """A window, in Unix ms: bookings from `since` on count, new ones go to `start`; `resets_at` is None for never."""

    start: int
    since: int
    resets_at: int | None


LIFETIME = BudgetWindow(0, 0, None)


def calendar(window: Calendar, zone: ZoneInfo, now_ms: int) -> BudgetWindow:
    """Returns the calendar window that contains `now_ms`, by local time in `zone`. Weeks start on Monday (ISO 8601)."""
    if window == "hour":
        return _hour(zone, now_ms // 1000)
    start = datetime.fromtimestamp(now_ms / 1000, zone).replace(hour=0, minute=0, second=0, microsecond=0, fold=0)
    if window == "week":
        start -= timedelta(days=start.weekday())
    elif window in ("month", "year"):
        start = start.replace(day=1, month=start.month if window == "month" else 1)
    start_ms = _ms(start)
    return BudgetWindow(start_ms, start_ms, _ms(_next_start(window, start)))


def rolling(length_s: int, now_ms: int) -> BudgetWindow:
    """Returns the window of the last `length_s` seconds; at `resets_at`, nothing booked until now counts any more."""
    step = step_ms(length_s)
    start = now_ms // step * step
    return BudgetWindow(start, (now_ms - length_s * 1000) // step * step, start + step + length_s * 1000)


def step_ms(length_s: int) -> int:
    return max(1_000, length_s * 1000 // STEPS_PER_WINDOW)


def _hour(zone: ZoneInfo, now_s: int) -> BudgetWindow:
    """Returns the hour window, computed in UTC: an hour repeated when clocks go back gives two windows. Where clocks
    shift by half an hour (Lord Howe), the window ends at the shift."""
    offset_s = _hour_offset_s(zone, now_s)
    start = now_s - (now_s + offset_s) % _HOUR_S
    end = start + _HOUR_S
    if _hour_offset_s(zone, start) != offset_s:
        start = _clock_change_s(zone, start, now_s)
    if _hour_offset_s(zone, end - 1) != offset_s:
        end = _clock_change_s(zone, now_s, end - 1)
    return BudgetWindow(start * 1000, start * 1000, end * 1000)


def _hour_offset_s(zone: ZoneInfo, moment_s: int) -> int:
    """Returns by how many seconds the zone's hours start before those of UTC (its offset modulo one hour)."""
    offset = datetime.fromtimestamp(moment_s, zone).utcoffset() or timedelta()
    return int(offset.total_seconds()) % _HOUR_S


def _clock_change_s(zone: ZoneInfo, before_s: int, after_s: int) -> int:
    """Returns the Unix second of the clock change between two moments that differ in `_hour_offset_s`, by bisection."""
    offset_s = _hour_offset_s(zone, before_s)
    while after_s - before_s > 1:
        middle_s = (before_s + after_s) // 2
        before_s, after_s = (middle_s, after_s) if _hour_offset_s(zone, middle_s) == offset_s else (before_s, middle_s)
    return after_s


def _next_start(window: Literal["day", "week", "month", "year"], start: datetime) -> datetime:
    """Returns the start of the next window in local time: a day with a clock change may have 23 or 25 hours."""
    if window == "day":
        return start + timedelta(days=1)
    if window == "week":
        return start + timedelta(days=7)
    if window == "month":
        return start.replace(year=start.year + start.month // 12, month=start.month % 12 + 1)
    return start.replace(year=start.year + 1)


def _ms(moment: datetime) -> int:
    return int(moment.timestamp()) * 1000


# Budgets as declared in the policy: limit, window, filters, and what happens when the limit is reached.

Scope = Literal["all", "organisation", "team", "key", "session", "request", "route", "tag", "target"]
Usd = Annotated[Decimal, Field(gt=0, le=9_000_000, decimal_places=9)]
"""USD amount, at most nine million: Redis scripts count nano-USD in doubles, which are exact up to 2**53."""
Tokens = Annotated[int, Field(gt=0, le=10**15)]
Share = Annotated[Decimal, Field(gt=0, le=10, decimal_places=4)]
Id = Annotated[str, form("name"), StringConstraints(max_length=128)]


def _length(text: str) -> str:
    try:
        seconds(text)
    except ValueError as error:
        raise mistake("a length of time", str(error)) from None
    return text


Length = Annotated[str, AfterValidator(_length)]
"""Duration such as 30m, 36h or 7d."""


class RollingWindow(YamlPart):
    """A window of the most recent seconds, minutes, hours, days or weeks: `{rolling: 36h}`."""

    rolling: Length


class Downgrade(YamlPart):
    """Sends requests that no longer fit the budget to another route instead of refusing them."""

    downgrade: Id


class FailOpenWithin(YamlPart):
    """While the budget store is unavailable, each gateway may spend up to this amount, which it reserved beforehand."""

    fail_open_within_usd: Usd


def _form(value: object) -> str:
    return "form" if isinstance(value, dict | YamlPart) else "word"


_Word = Tag("word")
_Form = Tag("form")
Window = Literal["hour", "day", "week", "month", "year", "lifetime"]


class ChargedTo(Struct, frozen=True):
    """The properties of a request that determine which accounts it is charged to."""

    request_id: str
    route: str
    caller: Caller
    session: str
    tags: tuple[str, ...]
    targets: tuple[str, ...]


_SINGLE_VALUE = ("",)


class Budget(YamlPart):
    """A spending limit on every request that matches all given filters, counted separately per value of its scope."""

    id: Id
    limit_usd: Usd | None = None
    limit_thinking_tokens: Tokens | None = None
    scope: Scope = "all"
    window: Annotated[Annotated[Window, _Word] | Annotated[RollingWindow, _Form], Discriminator(_form)] | None = None
    timezone: str = "UTC"
    organisations: tuple[str, ...] = ()
    teams: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    routes: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    soft: bool = False
    alerts: tuple[Share, ...] = ()
    webhook: Annotated[str, form("webhook")] | None = None
    exhausted: Annotated[Annotated[Literal["refuse"], _Word] | Annotated[Downgrade, _Form], Discriminator(_form)] = (
        "refuse"
    )
    outage: Annotated[
        Annotated[Literal["fail_closed"], _Word] | Annotated[FailOpenWithin, _Form], Discriminator(_form)
    ] = "fail_closed"
    thinking_cap: Annotated[int, Field(ge=0, le=10**15)] | None = None
    _limits: Mapping[str, int] = PrivateAttr(default_factory=dict)

    def with_limits(self, limits: Mapping[str, int]) -> "Budget":
        """Returns a copy with other limits, keyed by budget id (for all of its accounts) or by account id."""
        budget = self.model_copy()
        budget._limits = limits
        return budget

    def limit_of(self, account: str) -> int:
        """Returns an account's limit in nano-USD or thinking tokens: the one set at run time, else the policy's."""
        return self._limits.get(account, self._limits.get(self.id, self.limit)) if self._limits else self.limit

    @field_validator("timezone")
    @classmethod
    def _known_zone(cls, name: str) -> str:
        try:
            return ZoneInfo(name).key
        except (ZoneInfoNotFoundError, ValueError, OSError):
            close = get_close_matches(name, available_timezones(), n=1)
            remedy = f"did you mean '{close[0]}'?" if close else "write one such as Europe/Berlin, or UTC"
            raise mistake("a time zone of the tz database", remedy) from None

    @field_validator("webhook")
    @classmethod
    def _reachable(cls, url: str | None) -> str | None:
        try:
            reachable = url is None or (urlsplit(url).hostname and urlsplit(url).port != 0)
        except ValueError:
            reachable = False
        if not reachable:
            raise mistake("a web address", "give it a host, and a port from 1 to 65535 or none")
        return url

    @property
    def unit(self) -> Unit:
        return Unit.USD if self.limit_usd is not None else Unit.THINKING

    @cached_property
    def limit(self) -> int:
        """The policy's limit, in nano-USD or thinking tokens."""
        return nano_from_usd(self.limit_usd) if self.limit_usd is not None else self.limit_thinking_tokens or 0

    @property
    def window_name(self) -> str:
        if self.scope == "request":
            return "request"
        return f"rolling {self.window.rolling}" if isinstance(self.window, RollingWindow) else self._window_kind

    @property
    def _window_kind(self) -> Window:
        if self.window is None or isinstance(self.window, RollingWindow):
            return "lifetime" if self.scope in ("session", "request") else "month"
        return self.window

    def span(self, now_ms: int) -> BudgetWindow:
        if isinstance(self.window, RollingWindow):
            return rolling(seconds(self.window.rolling), now_ms)
        kind = self._window_kind
        return LIFETIME if kind == "lifetime" else calendar(kind, ZoneInfo(self.timezone), now_ms)

    @cached_property
    def unfiltered(self) -> bool:
        """Whether the budget has no filters and so applies to every request."""
        return type(self) is Budget and not (
            self.routes or self.keys or self.teams or self.organisations or self.tags or self.targets
        )

    def binds(self, charged: ChargedTo) -> bool:
        caller = charged.caller
        return (
            (not self.routes or charged.route in self.routes)
            and (not self.keys or caller.name in self.keys)
            and (not self.teams or caller.team in self.teams)
            and (not self.organisations or caller.organisation in self.organisations)
            and (not self.tags or any(tag in self.tags for tag in charged.tags))
            and (not self.targets or any(target in self.targets for target in charged.targets))
        )

    def caps(self, charged: ChargedTo) -> bool:
        """Whether the budget limits this request individually; one without a session counts as its own session."""
        return self.scope == "request" or (self.scope == "session" and not charged.session)

    def account(self, value: str, span: BudgetWindow) -> Account:
        """Returns the account for one value of the scope in the window `span`."""
        identifier = self.id if self.scope == "all" else f"{self.id}|{value}"
        return Account(
            id=identifier,
            budget=self.id,
            scope=self.scope,
            value=value,
            unit=self.unit,
            limit=self.limit_of(identifier),
            window_start_ms=span.start,
            since_ms=span.since,
            resets_at_ms=span.resets_at,
            hard=not self.soft,
            targets=frozenset({value}) if self.scope == "target" else frozenset(self.targets),
        )

    @property
    def divided(self) -> bool:
        """Whether the budget has a separate account for each value of its scope."""
        return self.scope not in ("all", "request")

    def account_of(self, value: str, now_ms: int) -> Account:
        return self.account(value, self.span(now_ms))

    def full(self, now_ms: int) -> Account:
        """Returns the budget's only account, or a placeholder for all accounts that have no bookings yet."""
        targets, limit = frozenset(self.targets), self.limit_of(self.id)
        return structs.replace(self.account_of("", now_ms), id=self.id, limit=limit, targets=targets)

    def values(self, charged: ChargedTo) -> Iterable[str]:
        """Returns the scope values (team, key, session, …) whose accounts a matching request is charged to."""
        if self.scope == "target":
            return [target for target in charged.targets if not self.targets or target in self.targets]
        if self.scope == "tag":
            return dict.fromkeys(tag for tag in charged.tags if not self.tags or tag in self.tags)
        caller = charged.caller
        values = {
            "organisation": caller.organisation,
            "team": caller.team,
            "key": caller.name,
            "session": charged.session,
            "route": charged.route,
        }
        return (values[self.scope],)


class KeyLimit(Budget):
    """Limit on what one key may spend in a window, set with `lowpass keys create --limit-usd`."""

    id: Id = "key.limit"
    scope: Scope = "key"


class SessionLimit(Budget):
    """Limit on what a session may spend over its lifetime: the policy's `loops.session_usd`."""

    id: Id = "loops.session_usd"
    scope: Scope = "session"
    exempt: tuple[str, ...] = ()
    """Names of the keys whose sessions have no limit."""

    def binds(self, charged: ChargedTo) -> bool:
        return bool(charged.session) and charged.caller.name not in self.exempt


# Accounts that a request is charged to. Each account is created once per window, not once per request.

MINUTE_MS = 60_000
_FOREVER = 2**62
MAX_CACHED_ACCOUNTS = 4_096
"""Maximum number of cached accounts; it bounds memory, since clients choose session names and tags."""


class BudgetAccounts:
    """The budgets of one policy, with a cache of their accounts. Not thread-safe: use it from one event loop."""

    def __init__(self, budgets: Iterable[Budget]) -> None:
        self.budgets = tuple(budgets)
        self.can_cap = any(row.scope in ("request", "session") or row.thinking_cap is not None for row in self.budgets)
        """Whether any budget may limit requests individually."""
        self._accounts: dict[tuple[int, str], tuple[int, int, Account, Budget]] = {}
        """(id() of the budget, scope value) → start and end of validity (Unix ms), account, and the budget itself."""
        self._key_limits: dict[tuple[str, Allowance], KeyLimit] = {}
        self._same_for_all = all(row.unfiltered and row.scope == "all" for row in self.budgets)
        """Whether all requests are charged to the same accounts."""
        self._shared_bound = 0, 0, UNBOUND
        """Start and end of validity (Unix ms) of the bound shared by all requests, and the bound."""

    def binding(self, charged: ChargedTo, named: frozenset[str]) -> list[Budget]:
        """Returns the budgets that apply to a request: those it matches, those in `named`, and its key's limit."""
        binds = [budget for budget in self.budgets if budget.unfiltered or budget.binds(charged) or budget.id in named]
        if charged.caller.allowance is not None and (limit := self.key_limit(charged.caller)) is not None:
            binds.append(limit)
        return binds

    def key_limit(self, caller: Caller) -> KeyLimit | None:
        """Returns the caller key's spending limit as a budget; None if the key has none."""
        allowance = caller.allowance
        if allowance is None or allowance.nano is None:
            return None
        budget = self._key_limits.get((caller.name, allowance))
        if budget is None:
            budget = KeyLimit(limit_usd=usd_from_nano(allowance.nano), window=allowance.window, keys=(caller.name,))
            self._key_limits[caller.name, allowance] = budget
        return budget

    def key_limits(self, callers: Iterable[Caller]) -> list[Budget]:
        """Returns the spending limits of all keys that have one, sorted by key name."""
        limits = {caller.name: limit for caller in callers if (limit := self.key_limit(caller)) is not None}
        return [limits[name] for name in sorted(limits)]

    def accounts(self, charged: ChargedTo, budgets: Iterable[Budget], now_ms: int) -> list[Account]:
        """Returns the accounts of `budgets` for a request, except for budgets that only cap it individually."""
        accounts = []
        for budget in budgets:
            is_all = budget.scope == "all"
            if not is_all and budget.caps(charged):
                continue
            for value in _SINGLE_VALUE if is_all else budget.values(charged):
                cached = self._accounts.get((id(budget), value))
                if cached is not None and cached[0] <= now_ms < cached[1]:
                    accounts.append(cached[2])
                else:
                    accounts.append(self._cache_account(budget, value, now_ms))
        return accounts

    def _cache_account(self, budget: Budget, value: str, now_ms: int) -> Account:
        if len(self._accounts) >= MAX_CACHED_ACCOUNTS:
            self._accounts.clear()
        span = budget.span(now_ms)
        valid_until_ms = _FOREVER if span == LIFETIME or span.resets_at is None else span.resets_at
        if isinstance(budget.window, RollingWindow):
            valid_until_ms = span.start + step_ms(seconds(budget.window.rolling))
        account = budget.account(value, span)
        self._accounts[id(budget), value] = span.start, valid_until_ms, account, budget
        return account

    def caps(
        self,
        request: Request,
        caller: Caller,
        route: str,
        targets: tuple[str, ...],
        max_nano: int | None,
        thinking_cap: int | None,
    ) -> tuple[tuple[Account, ...], int | None]:
        """Returns the request's individual caps (from its header, its stakes' `max_nano` in nano-USD, and budgets), and
        the most thinking tokens over all its choices (None: no limit); `thinking_cap` is the limit of its class."""
        limits, caps = request.limits, list[Account]()
        if limits.budget_nano is not None:
            caps.append(_cap("x-lowpass-budget-usd", limits.budget_nano))
        if max_nano is not None:
            caps.append(_cap("max_cost_usd", max_nano))
        thinking_limits = [limits.thinking_budget, thinking_cap]
        if self.can_cap:
            charged = ChargedTo(request.id, route, caller, limits.session, (*caller.tags, *limits.tags), targets)
            for budget in self.binding(charged, self.named(request, caller)):
                thinking_limits.append(budget.thinking_cap)
                if budget.scope != "all" and not budget.soft and budget.caps(charged):
                    caps.append(_cap(budget.id, budget.limit_of(budget.id), budget.unit))
        return tuple(caps), min([tokens for tokens in thinking_limits if tokens is not None], default=None)

    def bound(
        self, request: Request, caller: Caller, decision: Decision, children: Sequence[Child], at_ms: int
    ) -> BudgetBound:
        """Returns everything that limits a request's spending: matching budgets, those named by its key or header, the
        split-off budgets in `children`, and its individual caps. Raises `ClientError` if a named budget needs tags."""
        limits, uncapped = request.limits, decision.thinking is None and not decision.caps
        is_shared = uncapped and self._same_for_all and not (children or caller.allowance)
        if is_shared and (not self.budgets or self._shared_bound[0] <= at_ms < self._shared_bound[1]):
            return self._shared_bound[2]
        targets, tags = tuple([step.target.id for step in decision.plan.steps]), (*caller.tags, *limits.tags)
        charged = ChargedTo(request.id, decision.plan.route, caller, limits.session, tags, targets)
        names = self.named(request, caller) if caller.budget or limits.budget else frozenset[str]()
        budgets = self.binding(charged, names)
        tagged = [budget.id for budget in budgets if budget.scope == "tag" and budget.id in names] if names else ()
        if tagged and not charged.tags:
            message = f"The budget '{tagged[0]}' has a pot for each tag: say which in x-lowpass-tags."
            raise ClientError(400, "invalid_request_error", message, param="x-lowpass-budget")
        accounts = self.accounts(charged, budgets, at_ms)
        if children:
            replaced = {account for child in children for account in child.replaces}
            accounts += [child.account() for child in children]
            accounts = [account for account in accounts if account.id not in replaced]
        # An account that all targets of the request are charged to binds it as one without targets does.
        accounts = [
            structs.replace(account, targets=frozenset()) if account.targets.issuperset(targets) else account
            for account in accounts
        ]
        if caller.allowance is not None:
            # Counted as OpenAI does: prompt plus maximum output, or the estimated output if the request has no cap.
            estimate, most = decision.plan.steps[0].estimate, request.max_output
            output = estimate.output_tokens if most is None else min(most, estimate.max_output) * request.choices
            accounts = [*rates(caller.name, caller.allowance, estimate.input_tokens + output, at_ms), *accounts]
        bound = BudgetBound(accounts=tuple(accounts), caps=decision.caps, thinking=decision.thinking)
        if is_shared:
            spans = [self._accounts.get((id(budget), ""), (0, 0))[:2] for budget in self.budgets]
            self._shared_bound = max(begins for begins, _ in spans), min(ends for _, ends in spans), bound
        return bound

    def named(self, request: Request, caller: Caller) -> frozenset[str]:
        """Returns the ids of the policy's budgets that the key or the request's header names."""
        names = {caller.budget, request.limits.budget}
        return frozenset(budget.id for budget in self.budgets if budget.id in names)

    def downgrade(self, budget_id: str) -> str:
        """Returns the route for requests that no longer fit a budget; empty if they are refused."""
        budget = next((budget for budget in self.budgets if budget.id == budget_id), None)
        return budget.exhausted.downgrade if budget and isinstance(budget.exhausted, Downgrade) else ""


def _cap(name: str, limit: int, unit: Unit = Unit.USD) -> Account:
    return Account(id=name, budget=name, scope="request", unit=unit, limit=limit)


def rates(key: str, allowance: Allowance, tokens: int, now_ms: int) -> list[Account]:
    """Returns the accounts of a key's rate limits: parallel requests, and requests and tokens per clock minute.

    `tokens` is the most that the request may use. It is clipped to the limit, so a larger request fits only into an
    otherwise unused minute; the tokens actually used are charged at settlement.
    """
    start = now_ms // MINUTE_MS * MINUTE_MS
    end_ms = start + MINUTE_MS
    limits = (
        ("key.parallel", Unit.PARALLEL, allowance.parallel, 1, 0, None),
        ("key.rpm", Unit.REQUESTS, allowance.rpm, 1, start, end_ms),
        ("key.tpm", Unit.TOKENS, allowance.tpm, min(max(1, tokens), allowance.tpm or 1), start, end_ms),
    )
    return [
        Account(
            id=f"{name}|{key}",
            budget=name,
            scope="key",
            value=key,
            unit=unit,
            limit=limit,
            window_start_ms=start_ms,
            since_ms=start_ms,
            resets_at_ms=resets,
            size=size,
        )
        for name, unit, limit, size, start_ms, resets in limits
        if limit is not None
    ]
