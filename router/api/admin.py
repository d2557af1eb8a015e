"""The routes `/v1/budgets` and `/v1/keys`."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from decimal import Decimal
from typing import Annotated, Any, TypeVar

import msgspec
from fastapi import APIRouter, Request, Response
from msgspec import UNSET, Meta, Raw, Struct, UnsetType, structs

from router.api.auth import REPORTS
from router.api.rest import answer, body_of
from router.api.text import limits
from router.budget.budget import Budget, ChargedTo, KeyLimit
from router.choose import CompiledPolicy, may_name
from router.config.check import check_terms
from router.dispatch.refusals import amount_json, budget_exceeded
from router.errors import ClientError, invalid
from router.ledger import keys
from router.ledger.keys import Key, set_limit
from router.ledger.ledger import Ledger
from router.ledger.rows import Connection
from router.report.budgets import BudgetAccount, BudgetStanding, every, measured, of_budget, of_child, spent_in_window
from router.types.account import NOTHING, Account, Balance, BudgetStore, Child, Refused, Reservation, Unit
from router.types.clock import iso, new_id, now_ms
from router.types.price import NANO_PER_USD, nano_from_usd, usd_json
from router.types.request import Caller, KeyTerms, Limits

# The body of a split → the child budget to open.

DAY_S = 86_400
USUAL_LIFE_S = 31 * DAY_S
"""Default lifetime of a child budget in seconds, so that the limit of a forgotten one returns to its parent."""
LONGEST_LIFE_S = 3_660 * DAY_S
MOST_USD, MOST_LIMIT_USD = Decimal(10**9), Decimal(9_000_000)
"""Maximum limit in USD of a child budget, and of a limit that an administrator sets (as in a policy)."""
MOST_TOKENS = 10**15


class SplitBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a split: one of the two limits, in the parent's unit."""

    limit_usd: Decimal | None = None
    limit_thinking_tokens: int | None = None
    expires_in_s: int | None = None
    session: Annotated[str, Meta(min_length=1, max_length=256)] = ""
    """Session whose account is split, if the budget has one for each; if empty, `x-lowpass-session` names it."""


class LimitPatch(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a PATCH: one of the two limits, in the budget's unit; null restores the policy's limit."""

    limit_usd: Decimal | UnsetType | None = UNSET
    limit_thinking_tokens: int | UnsetType | None = UNSET
    expires_in_s: Annotated[int, Meta(ge=1, le=LONGEST_LIFE_S)] | None = None
    """Time in seconds after which the policy's limit applies again."""


def child_of(pot: BudgetAccount, wanted: SplitBody, caller: Caller, now: int) -> Child:
    """Returns the child to open; the store checks what its parent has left. Raises `ClientError` 400."""
    account, above = pot.account, pot.child.replaces if pot.child is not None else ()
    life_s = USUAL_LIFE_S if wanted.expires_in_s is None else wanted.expires_in_s
    if not 0 < life_s <= LONGEST_LIFE_S:
        raise invalid("expires_in_s", f"Send a whole number of seconds from 1 to {LONGEST_LIFE_S}.")
    # A child ends with its parent or the parent's window at the latest.
    ends = (now + life_s * 1000, account.resets_at_ms, account.expires_at_ms)
    if pot.child is not None and not pot.child.open_at(now):
        raise invalid("id", f"'{account.id}' is closed: nothing can be split off any more.")
    return Child(
        id=new_id(),
        parent=account.id,
        parent_window_ms=account.window_start_ms,
        replaces=(*above, account.id),
        unit=account.unit,
        limit=_limit(account, wanted.limit_usd, wanted.limit_thinking_tokens),
        created_ms=now,
        expires_at_ms=min(end for end in ends if end is not None),
        key=caller.id,
        team=caller.team,
    )


def new_limit(pot: BudgetAccount, wanted: LimitPatch) -> int | None:
    """Returns the limit in the account's unit; None for the policy's own. Raises `ClientError` 400."""
    usd, thinking = wanted.limit_usd, wanted.limit_thinking_tokens
    if usd is UNSET and thinking is UNSET:
        raise invalid("limit_usd", "Send limit_usd or limit_thinking_tokens; null gives the policy's limit back.")
    if usd is None or thinking is None:
        if {usd, thinking} != {None, UNSET} or wanted.expires_in_s is not None:
            raise invalid("limit_usd", "null gives the policy's limit back: send nothing beside it.")
        return None
    return _limit(pot.account, None if usd is UNSET else usd, None if thinking is UNSET else thinking, MOST_LIMIT_USD)


def _limit(account: Account, amount: Decimal | None, tokens: int | None, most: Decimal = MOST_USD) -> int:
    """Returns the limit in the account's unit. Raises `ClientError` 400."""
    if account.unit is Unit.THINKING:
        if amount is not None:
            raise invalid("limit_usd", f"'{account.id}' counts {account.unit}: send limit_thinking_tokens.")
        if tokens is None or not 0 < tokens <= MOST_TOKENS:
            raise invalid("limit_thinking_tokens", f"Send a whole number of tokens from 1 to {MOST_TOKENS}.")
        return tokens
    if tokens is not None:
        raise invalid("limit_thinking_tokens", f"'{account.id}' counts {account.unit}: send limit_usd.")
    if amount is None or not amount.is_finite() or not 0 < amount <= most:
        raise invalid("limit_usd", f"Send an amount in USD above 0, up to {most}.")
    nano = int(amount * NANO_PER_USD)  # fractions of a nano-USD are cut off
    if nano == 0:
        raise invalid("limit_usd", "Send at least 0.000000001 USD.")
    return nano


# `/v1/keys`, and PATCH of `/v1/budgets`: an administrator creates, changes, rotates and revokes keys and sets limits.

LONGEST_GRACE_S = 30 * 86_400
T = TypeVar("T")


class NewKey(KeyTerms, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of a POST that creates a key."""

    new_tags: tuple[str, ...] = ()
    """Tags that no budget of the policy names, marked as intended."""

    def terms(self) -> KeyTerms:
        given = structs.asdict(self)
        del given["new_tags"]
        return KeyTerms(**{**given, "tags": (*self.tags, *self.new_tags)})


class Rotation(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a rotation."""

    grace_s: Annotated[int, Meta(ge=0, le=LONGEST_GRACE_S)] = 86_400
    """Time in seconds for which the previous secret stays valid."""


class KeyAdmin(Struct, eq=False):
    """The administrator's routes for keys and limits; every change adds a row to the audit table."""

    _rules: Callable[[], CompiledPolicy]
    _store: BudgetStore
    _ledger: Ledger
    _refresh: Callable[[], Awaitable[None]]
    """Applies a change in this process at once; other processes read it within a second."""

    def routes(self, router: APIRouter) -> None:
        router.add_api_route("/v1/keys", self.listed)
        router.add_api_route("/v1/keys", self.create, methods=["POST"])
        router.add_api_route("/v1/keys/{identifier}", self.one)
        router.add_api_route("/v1/keys/{identifier}", self.change, methods=["PATCH"])
        router.add_api_route("/v1/keys/{identifier}", self.revoke, methods=["DELETE"])
        router.add_api_route("/v1/keys/{identifier}/rotate", self.rotate, methods=["POST"])
        router.add_api_route("/v1/budgets/{identifier:path}", self.limit, methods=["PATCH"])

    async def listed(self) -> Response:
        every = await asyncio.to_thread(self._reading, keys.every)
        return answer({"object": "list", "data": [await self._shown(key) for key in every]})

    async def one(self, identifier: str) -> Response:
        for key in reversed(await asyncio.to_thread(self._reading, keys.every)):
            if identifier in (key.id, key.terms.name):
                return answer(await self._shown(key))
        raise ClientError(404, "not_found", f"There is no key '{identifier}'.", param="id")

    async def create(self, request: Request) -> Response:
        wanted, actor = await body_of(request, NewKey, b"{}"), _actor(request)
        terms = wanted.terms()

        def step(connection: Connection) -> tuple[Key, str]:
            check_terms(terms, self._rules().config, wanted.new_tags)
            return keys.create(connection, terms, actor)

        key, secret = await self._write(step)
        return answer(await self._shown(key, secret), 201)

    async def change(self, request: Request, identifier: str) -> Response:
        changes, actor = await body_of(request, dict[str, Any], b"{}"), _actor(request)

        def step(connection: Connection) -> Key:
            fields = KeyTerms.__struct_fields__
            if unknown := [name for name in changes if name not in fields]:
                raise ValueError(f"there is no field '{unknown[0]}'. Known: {', '.join(fields)}")
            # Fields that don't change may name what the policy no longer has.
            check_terms(msgspec.convert({"name": "-", **changes}, KeyTerms), self._rules().config)
            return keys.change(connection, identifier, changes, actor)

        key = await self._write(step)
        if "window" in changes:
            await self._carry_over(key)
        return answer(await self._shown(key))

    async def _carry_over(self, key: Key) -> None:
        """Books in the key's new window what it has spent since that began, which was booked in the old window."""
        limit, now = self._rules().accounts.key_limit(key.caller()), now_ms()
        if limit is not None:
            account = structs.replace(limit.account_of(key.terms.name, now), hard=False)
            # Read before the balance, so that what is settled in between is not booked twice.
            spent = await asyncio.to_thread(self._reading, lambda connection: spent_in_window(connection, key))
            (balance,) = await self._store.balances([account])
            opening = await self._store.reserve(f"opening-{new_id()}", [account], NOTHING, now)
            if isinstance(opening, Reservation):
                self._store.settle(opening, [max(0, sum(spent) - balance.spent)])
                await self._store.settled()

    async def rotate(self, request: Request, identifier: str) -> Response:
        grace_ms, actor = (await body_of(request, Rotation, b"{}")).grace_s * 1000, _actor(request)
        key, secret = await self._write(lambda connection: keys.rotate(connection, identifier, grace_ms, actor))
        return answer(await self._shown(key, secret))

    async def revoke(self, request: Request, identifier: str) -> Response:
        actor = _actor(request)
        key = await self._write(lambda connection: keys.revoke(connection, identifier, actor))
        return answer({"id": key.id, "object": "api_key", "name": key.terms.name, "deleted": True})

    async def limit(self, request: Request, identifier: str) -> Response:
        wanted, actor = await body_of(request, LimitPatch), _actor(request)
        pot = await self._limited(identifier)
        size, unit = new_limit(pot, wanted), pot.account.unit
        ends_ms = None if wanted.expires_in_s is None else now_ms() + wanted.expires_in_s * 1000

        def step(connection: Connection) -> None:
            if pot.account.scope == "key" and pot.account.value:
                keys.in_force(connection, pot.account.value)
            set_limit(connection, identifier, size, ends_ms, actor, unit)

        await self._write(step)
        (standing,) = await measured(self._store, [await self._limited(identifier)])
        return answer(budgets_as_json(standing))

    async def _limited(self, identifier: str) -> BudgetAccount:
        """Returns the account or, without a value in its id, the whole budget to limit. Raises `ClientError`."""
        now, (name, _, value) = now_ms(), identifier.partition("|")
        budget = next((budget for budget in self._rules().accounts.budgets if budget.id == name), None)
        if budget is not None and (budget.divided or not value):
            return BudgetAccount(account=budget.account_of(value, now) if value else budget.full(now), budget=budget)
        if name == KeyLimit.model_fields["id"].default:
            raise invalid("id", f"The limit of a key is changed by PATCH /v1/keys/{value}.")
        if await self._store.child(identifier) is not None:
            raise invalid("id", f"'{identifier}' was split off: its limit is what was split. Close it, and split anew.")
        known = ", ".join(budget.id for budget in self._rules().accounts.budgets) or "none"
        raise ClientError(404, "not_found", f"There is no budget '{identifier}'. Known: {known}.", param="id")

    def _reading(self, step: Callable[[Connection], T]) -> T:
        with self._ledger.reading() as connection:
            return step(connection)

    async def _write(self, step: Callable[[Connection], T]) -> T:
        """Runs `step` in a transaction. Raises `ClientError` 404 or 400 for its LookupError or ValueError."""

        def write() -> T:
            with self._ledger.writing() as connection:
                return step(connection)

        try:
            written = await asyncio.to_thread(write)
        except LookupError as error:
            raise ClientError(404, "not_found", f"{error.args[0]}.", param="id") from None
        except ValueError as error:
            raise invalid(None, f"{error}.") from None
        await self._refresh()
        return written

    async def _shown(self, key: Key, secret: str = "") -> dict[str, object]:
        limit = self._rules().accounts.key_limit(key.caller())
        own = [] if limit is None else [BudgetAccount(account=limit.account_of(key.terms.name, now_ms()), budget=limit)]
        return as_json(key, [standing.balance.spent for standing in await measured(self._store, own)], secret)


def as_json(key: Key, spent: list[int], secret: str = "") -> dict[str, object]:
    """Returns a key as JSON. `spent`: nano-USD in its window, empty without a limit; `secret`: a new one."""
    times = ("created", "revoked", "expires", "used", "previous_until")
    limit = key.terms.limit_usd
    moments = {name: getattr(key, f"{name}_ms") for name in times}
    return {
        "id": key.id,
        "object": "api_key",
        **structs.asdict(key.terms),
        "limit_usd": None if limit is None else Raw(usd_json(nano_from_usd(limit))),
        "spent_usd": Raw(usd_json(spent[0])) if spent else None,
        **{f"{name}_at": None if moment is None else iso(moment) for name, moment in moments.items()},
        **({"key": secret} if secret else {}),
    }


def _actor(request: Request) -> str:
    return request.state.caller.name or "open gateway"


# `/v1/budgets`: what is left in each account that binds a key, and child budgets that it splits off for others.


class Admin(Struct, eq=False):
    """The routes for callers. A key sees the accounts that bind it and the children that it or its team split off. The
    scope `reports` shows all accounts, but permits no further splits or closes."""

    _rules: Callable[[], CompiledPolicy]
    _store: BudgetStore
    _declared: Callable[[], Sequence[Budget]]
    """Returns the budgets of the policy and the limits of keys."""
    _clock: Callable[[], int] = now_ms

    def routes(self, router: APIRouter) -> None:
        router.add_api_route("/v1/budgets", self.listed)
        router.add_api_route("/v1/budgets/{identifier:path}", self.one)
        router.add_api_route("/v1/budgets/{identifier:path}/split", self.split, methods=["POST"])
        router.add_api_route("/v1/budgets/{identifier:path}", self.close, methods=["DELETE"])

    async def shown(self, pot: BudgetAccount) -> Response:
        (standing,) = await measured(self._store, [pot])
        return answer(budgets_as_json(standing))

    async def listed(self, request: Request) -> Response:
        caller: Caller = request.state.caller
        if REPORTS in caller.scopes:
            pots = await every(self._store, self._declared(), self._clock())
        else:
            own = [of_child(child) for child in await self._store.children() if child.usable_by(caller)]
            pots = [*self._binding(caller, _limits(request)).values(), *own]
        standings = await measured(self._store, pots)
        return answer({"object": "list", "data": [budgets_as_json(standing) for standing in standings]})

    async def one(self, request: Request, identifier: str) -> Response:
        caller, limits = request.state.caller, _limits(request)
        return await self.shown(await self._named(identifier, caller, limits, reads=REPORTS in caller.scopes))

    async def split(self, request: Request, identifier: str) -> Response:
        wanted = await body_of(request, SplitBody)
        caller, limits = request.state.caller, _limits(request)
        limits = structs.replace(limits, session=wanted.session) if wanted.session else limits
        pot = await self._named(identifier, caller, limits)
        child = child_of(pot, wanted, caller, self._clock())
        if child.limit > pot.account.limit:
            (balance,) = await self._store.balances([pot.account])
            opened: Child | Refused = Refused(
                account=pot.account, spent=balance.spent, held=balance.held, needed=child.limit
            )
        else:
            opened = await self._store.split(pot.account, child, child.created_ms)
        if isinstance(opened, Refused):
            raise budget_exceeded(opened, self._rules().config.budget_status)
        return answer(budgets_as_json(BudgetStanding(of_child(opened), Balance(0, 0))), 201)

    async def close(self, request: Request, identifier: str) -> Response:
        child = await self._store.child(identifier)
        if child is None and any(
            identifier.partition("|")[0] == budget.id for budget in self._rules().accounts.budgets
        ):
            raise invalid("id", f"'{identifier}' is a budget of the policy: only what was split off can be closed.")
        if child is None or not child.usable_by(request.state.caller):
            raise ClientError(404, "not_found", f"This key has split off no budget '{identifier}'.", param="id")
        return await self.shown(of_child(await self._store.close(identifier, self._clock()) or child))

    def _binding(self, caller: Caller, limits: Limits) -> dict[str, BudgetAccount]:
        """Returns, by id, the accounts that a request of this key may be charged to, whichever model it names."""
        rules, now = self._rules(), self._clock()
        pots: dict[str, BudgetAccount] = {}
        for name, (_, targets) in rules.routes.items():
            if may_name(rules, caller, name):
                places = tuple(target.id for target in targets)
                charged = ChargedTo("", name, caller, limits.session, (*caller.tags, *limits.tags), places)
                for budget in rules.accounts.binding(charged, frozenset({caller.budget})):
                    for account in rules.accounts.accounts(charged, [budget], now):
                        pots.setdefault(account.id, BudgetAccount(account=account, budget=budget))
        return pots

    async def _named(self, identifier: str, caller: Caller, limits: Limits, *, reads: bool = False) -> BudgetAccount:
        """Returns the account of that id, or the only account of that budget for this key; any with `reads` (the scope
        `reports`). Raises `ClientError`."""
        pots = self._binding(caller, limits)
        if identifier in pots:
            return pots[identifier]
        of_budget = [pot for pot in pots.values() if pot.account.budget == identifier]
        if len(of_budget) > 1:
            raise _several(identifier, of_budget)
        child = await self._store.child(identifier)
        if child is not None and child.usable_by(caller):
            return of_child(child)
        pot = of_budget[0] if of_budget else await self._any(identifier) if reads else None
        if pot is None:
            raise self._unknown(identifier, caller, limits)
        return pot

    async def _any(self, identifier: str) -> BudgetAccount | None:
        """Returns any account, also one of a value without bookings, or a child; for readers of reports."""
        now, (name, _, value) = self._clock(), identifier.partition("|")
        named = [budget for budget in self._declared() if budget.id == name]
        budget = next((limit for limit in named if not isinstance(limit, KeyLimit) or value in limit.keys), None)
        if budget is None:
            child = await self._store.child(identifier)
            return None if child is None else of_child(child)
        if value:
            return BudgetAccount(account=budget.account_of(value, now), budget=budget) if budget.divided else None
        pots = await of_budget(self._store, budget, now)
        if len(pots) > 1:
            raise _several(identifier, pots)
        return pots[0]

    def _unknown(self, identifier: str, caller: Caller, limits: Limits) -> ClientError:
        budget = next((budget for budget in self._rules().accounts.budgets if budget.id == identifier), None)
        if budget is not None and budget.scope == "request":
            return invalid("id", f"'{identifier}' limits each request by itself: nothing is kept for it.")
        if budget is not None and budget.scope == "session" and not limits.session:
            return invalid("x-lowpass-session", f"'{identifier}' has an account per session: send x-lowpass-session.")
        known = ", ".join(self._binding(caller, limits)) or "none"
        message = f"There is no budget '{identifier}' that binds this key. Known: {known}."
        return ClientError(404, "not_found", message, param="id")


def budgets_as_json(standing: BudgetStanding) -> dict[str, object]:
    """Returns the JSON of one account; amounts are exact numbers, in USD or tokens."""
    pot, balance = standing.pot, standing.balance
    account, child, unit = pot.account, pot.child, pot.account.unit
    amounts = {"limit": account.limit, "spent": balance.spent, "held": balance.held, "remaining": standing.remaining}
    return {
        "id": account.id,
        "object": "budget",
        "budget": account.budget,
        "parent": None if child is None else child.parent,
        "scope": account.scope,
        "value": pot.value,
        "unit": unit,
        **{name: amount_json(unit, amount) for name, amount in amounts.items()},
        "policy_limit": None if pot.budget is None else amount_json(unit, pot.budget.limit),
        "window": pot.window,
        "soft": not account.hard,
        "resets_at": _time(account.resets_at_ms if child is None else None),
        "expires_at": _time(account.expires_at_ms),
        "closed_at": _time(None if child is None else child.closed_ms),
    }


def _time(moment_ms: int | None) -> str | None:
    return None if moment_ms is None else iso(moment_ms)


def _limits(request: Request) -> Limits:
    return limits(request.scope["headers"], None)


def _several(identifier: str, pots: Sequence[BudgetAccount]) -> ClientError:
    known = ", ".join(pot.account.id for pot in pots[:12])
    return invalid("id", f"'{identifier}' has several accounts: name one of {known}{', …' if len(pots) > 12 else ''}.")
