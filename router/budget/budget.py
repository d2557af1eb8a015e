"""A budget as the policy declares it: a limit, a window, whom it binds, and what happens when it is used up."""

from collections.abc import Iterable, Mapping
from decimal import Decimal
from difflib import get_close_matches
from functools import cached_property
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

import msgspec
from msgspec import Struct
from pydantic import BaseModel, ConfigDict, Discriminator, Field, PrivateAttr, StringConstraints, Tag, field_validator
from pydantic_core import PydanticCustomError

from router.budget.window import LIFETIME, Span, calendar, rolling
from router.types.account import Account, Unit
from router.types.length import seconds
from router.types.money import nano_from_usd
from router.types.request import Caller

Scope = Literal["all", "organisation", "team", "key", "session", "request", "route", "tag", "target"]
Usd = Annotated[Decimal, Field(gt=0, le=9_000_000, decimal_places=9)]
"""Redis counts nano-USD in doubles, which are whole up to 2**53: nine million dollars."""
Tokens = Annotated[int, Field(gt=0, le=10**15)]
Share = Annotated[Decimal, Field(gt=0, le=10, decimal_places=4)]
Id = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]*$", max_length=128)]
WEBHOOK = r"^https?://[!\"$-.0->@-~][!\"$-~]*$"


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class Rolling(_Part):
    """The last so many seconds, minutes, hours, days or weeks: `{rolling: 36h}`."""

    rolling: str

    @field_validator("rolling")
    @classmethod
    def _readable(cls, text: str) -> str:
        try:
            seconds(text)
        except ValueError as error:
            raise _mistake("a length of time", str(error)) from None
        return text


class Downgrade(_Part):
    """Requests that no longer fit go to another route instead of being refused."""

    downgrade: Id


class FailOpenWithin(_Part):
    """While the store is gone each gateway may go on spending from this much, which it has taken beforehand."""

    fail_open_within_usd: Usd


def _mistake(expected: str, remedy: str) -> PydanticCustomError:
    """What a value must be, and what to write; the policy's reader adds the place."""
    return PydanticCustomError("mistake", "must be {expected}: {remedy}", {"expected": expected, "remedy": remedy})


def _form(value: object) -> str:
    return "form" if isinstance(value, dict | _Part) else "word"


_Word = Tag("word")
_Form = Tag("form")
Window = Literal["hour", "day", "week", "month", "year", "lifetime"]


class Charged(Struct, frozen=True, kw_only=True):
    """What decides which accounts a request is charged to."""

    request_id: str
    route: str
    caller: Caller
    session: str
    tags: tuple[str, ...]
    targets: tuple[str, ...]
    """Those that may serve it."""


class Budget(_Part):
    """Binds every request that matches all given filters; each value of its scope has a pot of its own."""

    id: Id
    limit_usd: Usd | None = None
    limit_thinking_tokens: Tokens | None = None
    scope: Scope = "all"
    window: Annotated[Annotated[Window, _Word] | Annotated[Rolling, _Form], Discriminator(_form)] | None = None
    timezone: str = "UTC"
    organisations: tuple[str, ...] = ()
    teams: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    routes: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    soft: bool = False
    alerts: tuple[Share, ...] = ()
    webhook: Annotated[str, StringConstraints(pattern=WEBHOOK)] | None = None
    exhausted: Annotated[Annotated[Literal["refuse"], _Word] | Annotated[Downgrade, _Form], Discriminator(_form)] = (
        "refuse"
    )
    outage: Annotated[
        Annotated[Literal["fail_closed"], _Word] | Annotated[FailOpenWithin, _Form], Discriminator(_form)
    ] = "fail_closed"
    thinking_cap: Annotated[int, Field(ge=0, le=10**15)] | None = None
    _raised: Mapping[str, int] = PrivateAttr(default_factory=dict)

    def with_limits(self, limits: Mapping[str, int]) -> "Budget":
        """With limits in place of its own: of its id for all of its accounts, of the id of an account for that one."""
        budget = self.model_copy()
        budget._raised = limits
        return budget

    def limit_of(self, account: str) -> int:
        """nano-USD or thinking tokens of one account: as was set for it or for the budget, else as in the policy."""
        return self._raised.get(account) or self._raised.get(self.id) or self.limit if self._raised else self.limit

    @field_validator("timezone")
    @classmethod
    def _known_zone(cls, name: str) -> str:
        try:
            return ZoneInfo(name).key
        except (ZoneInfoNotFoundError, ValueError, OSError):
            close = get_close_matches(name, available_timezones(), n=1)
            remedy = f"did you mean '{close[0]}'?" if close else "write one such as Europe/Berlin, or UTC"
            raise _mistake("a time zone of the tz database", remedy) from None

    @field_validator("webhook")
    @classmethod
    def _reachable(cls, url: str | None) -> str | None:
        try:
            reachable = url is None or (urlsplit(url).hostname and urlsplit(url).port != 0)
        except ValueError:
            reachable = False
        if not reachable:
            raise _mistake("a web address", "give it a host, and a port from 1 to 65535 or none")
        return url

    @property
    def unit(self) -> Unit:
        return Unit.USD if self.limit_usd is not None else Unit.THINKING

    @cached_property
    def limit(self) -> int:
        """nano-USD or thinking tokens."""
        return nano_from_usd(self.limit_usd) if self.limit_usd is not None else self.limit_thinking_tokens or 0

    @property
    def window_name(self) -> str:
        if self.scope == "request":
            return "request"
        return f"rolling {self.window.rolling}" if isinstance(self.window, Rolling) else self._named

    @property
    def _named(self) -> Window:
        if self.window is None or isinstance(self.window, Rolling):
            return "lifetime" if self.scope in ("session", "request") else "month"
        return self.window

    @cached_property
    def _zone(self) -> ZoneInfo:
        return ZoneInfo(self.timezone)

    def span(self, now_ms: int) -> Span:
        if isinstance(self.window, Rolling):
            return rolling(seconds(self.window.rolling), now_ms)
        named = self._named
        return LIFETIME if named == "lifetime" else calendar(named, self._zone, now_ms)

    def binds(self, charged: Charged) -> bool:
        caller = charged.caller
        return (
            _among(self.routes, charged.route)
            and _among(self.keys, caller.name)
            and _among(self.teams, caller.team)
            and _among(self.organisations, caller.organisation)
            and (not self.tags or any(tag in self.tags for tag in charged.tags))
            and (not self.targets or any(target in self.targets for target in charged.targets))
        )

    def caps(self, charged: Charged) -> bool:
        """It limits each request by itself; a request that names no session is a session of its own."""
        return self.scope == "request" or (self.scope == "session" and not charged.session)

    def accounts(self, charged: Charged, span: Span) -> list[Account]:
        """The pots that a request which it binds is charged to; none for one that it only caps."""
        if self.caps(charged):
            return []
        return [self.account(value, span, self._targets(value)) for value in self._values(charged)]

    def account(self, value: str, span: Span, targets: frozenset[str] = frozenset()) -> Account:
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
            targets=targets,
        )

    @property
    def divided(self) -> bool:
        """It has a pot for each value of its scope."""
        return self.scope not in ("all", "request")

    def pot(self, value: str, now_ms: int) -> Account:
        """The pot of one value of the scope."""
        return self.account(value, self.span(now_ms), self._targets(value))

    def full(self, now_ms: int) -> Account:
        """The only pot, or one that stands for all that nothing was booked in yet."""
        account = self.account("", self.span(now_ms), frozenset(self.targets))
        return msgspec.structs.replace(account, id=self.id, limit=self.limit_of(self.id))

    def _targets(self, value: str) -> frozenset[str]:
        return frozenset({value}) if self.scope == "target" else frozenset(self.targets)

    def _values(self, charged: Charged) -> Iterable[str]:
        if self.scope == "target":
            return [target for target in charged.targets if not self.targets or target in self.targets]
        if self.scope == "tag":
            return dict.fromkeys(tag for tag in charged.tags if not self.tags or tag in self.tags)
        return (_value(self.scope, charged),)


class KeyLimit(Budget):
    """`lowpass keys create --limit-usd`: what one key may spend in a window."""

    id: Id = "key.limit"
    scope: Scope = "key"


class SessionLimit(Budget):
    """`loops.session_usd`: what a session may spend in its whole life."""

    id: Id = "loops.session_usd"
    scope: Scope = "session"
    exempt: tuple[str, ...] = ()
    """Names of keys."""

    def binds(self, charged: Charged) -> bool:
        return bool(charged.session) and charged.caller.name not in self.exempt


def _value(scope: Scope, charged: Charged) -> str:
    values: dict[str, Any] = {
        "all": "",
        "organisation": charged.caller.organisation,
        "team": charged.caller.team,
        "key": charged.caller.name,
        "session": charged.session,
        "route": charged.route,
    }
    return str(values[scope])


def _among(wanted: tuple[str, ...], value: str) -> bool:
    return not wanted or value in wanted
