"""`/v1/budgets`: what is left in each pot that binds a key, and parts that it splits off for others to use."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import msgspec
from fastapi import APIRouter, Request, Response

from router.api import split
from router.api.asgi import read_body
from router.api.auth import REPORTS
from router.api.limits import limits
from router.api.rest import answer
from router.api.split import wrong
from router.budget.budget import Budget, Charged, KeyLimit
from router.choose import Rules, may_name
from router.errors import ClientError
from router.ledger.ledger import Ledger
from router.ledger.limits import set_limit
from router.refusals import amount_json, budget_exceeded
from router.report.moment import iso
from router.report.standing import Pot, Standing, every, measured, of_budget, of_child
from router.types.account import Balance, Child, Refused
from router.types.clock import now_ms
from router.types.request import Caller, Limits
from router.types.store import BudgetStore


def routes(
    rules: Callable[[], Rules],
    store: BudgetStore,
    declared: Callable[[], Sequence[Budget]],
    clock: Callable[[], int] = now_ms,
) -> APIRouter:
    """`declared`: budgets of the policy and limits of keys. `clock` is Unix time in ms."""
    router = APIRouter()
    desk = Desk(rules, store, declared, clock)

    @router.get("/v1/budgets")
    async def listed(request: Request) -> Response:
        found = await desk.listed(request.state.caller, _limits(request))
        return answer({"object": "list", "data": [as_json(one) for one in found]})

    @router.get("/v1/budgets/{identifier:path}")
    async def one(request: Request, identifier: str) -> Response:
        found = await desk.one(identifier, request.state.caller, _limits(request))
        return answer(as_json(found))

    @router.post("/v1/budgets/{identifier:path}/split")
    async def split_off(request: Request, identifier: str) -> Response:
        wanted = split.read(await read_body(dict(request.scope["headers"]), request.receive), split.Split)
        opened = await desk.split(identifier, wanted, request.state.caller, _limits(request))
        return answer(as_json(opened), 201)

    @router.delete("/v1/budgets/{identifier:path}")
    async def close(request: Request, identifier: str) -> Response:
        closed = await desk.close(identifier, request.state.caller)
        return answer(as_json(closed))

    return router


def limits_of_budgets(
    rules: Callable[[], Rules],
    store: BudgetStore,
    declared: Callable[[], Sequence[Budget]],
    ledger: Ledger,
    refresh: Callable[[], Awaitable[None]],
) -> APIRouter:
    """For administrators. `refresh` lets this process know of a new limit at once; others see it within a second."""
    router = APIRouter()
    desk = Desk(rules, store, declared, now_ms)

    @router.patch("/v1/budgets/{identifier:path}")
    async def limit(request: Request, identifier: str) -> Response:
        wanted = split.read(await read_body(dict(request.scope["headers"]), request.receive), split.NewLimit)
        pot = await desk.limited(identifier)
        size = split.new_limit(pot, wanted)
        expires_ms = None if wanted.expires_in_s is None else now_ms() + wanted.expires_in_s * 1000
        actor = request.state.caller.name or "open gateway"
        await asyncio.to_thread(_set_limit, ledger, identifier, size, expires_ms, actor)
        await refresh()
        return answer(as_json((await measured(store, [await desk.limited(identifier)]))[0]))

    return router


def _set_limit(ledger: Ledger, identifier: str, size: int | None, expires_ms: int | None, actor: str) -> None:
    with ledger.writing() as connection:
        set_limit(connection, identifier, size, expires_ms, actor)


class Desk:
    """What callers may see and do. A key sees the pots that bind it and the children that it or its team made; with
    the scope `reports` it sees all, but splits and closes no more than before."""

    def __init__(
        self,
        rules: Callable[[], Rules],
        store: BudgetStore,
        declared: Callable[[], Sequence[Budget]],
        clock: Callable[[], int],
    ) -> None:
        self._rules, self._store, self._declared, self._clock = rules, store, declared, clock

    async def limited(self, identifier: str) -> Pot:
        """What an administrator sets a limit of: all accounts of a budget, or one. Raises `ClientError`."""
        now, (name, _, value) = self._clock(), identifier.partition("|")
        budget = next((budget for budget in self._rules().pots.budgets if budget.id == name), None)
        if budget is not None and (budget.divided or not value):
            return Pot(account=budget.pot(value, now) if value else budget.full(now), budget=budget)
        if name == KeyLimit.model_fields["id"].default:
            raise wrong("id", f"The limit of a key is changed by PATCH /v1/keys/{value}.")
        if await self._store.child(identifier) is not None:
            raise wrong("id", f"'{identifier}' was split off: its limit is what was split. Close it, and split anew.")
        known = ", ".join(budget.id for budget in self._rules().pots.budgets) or "none"
        raise ClientError(404, "not_found", f"There is no budget '{identifier}'. Known: {known}.", param="id")

    async def listed(self, caller: Caller, said: Limits) -> list[Standing]:
        if REPORTS in caller.scopes:
            return await measured(self._store, await every(self._store, self._declared(), self._clock()))
        own = [of_child(child) for child in await self._store.children() if child.usable_by(caller)]
        return await measured(self._store, [*self._binding(caller, said).values(), *own])

    async def one(self, identifier: str, caller: Caller, said: Limits) -> Standing:
        pot = await self._own(identifier, caller, said)
        if pot is None and REPORTS in caller.scopes:
            pot = await self._any(identifier)
        if pot is None:
            raise self._unknown(identifier, caller, said)
        return (await measured(self._store, [pot]))[0]

    async def split(self, identifier: str, wanted: split.Split, caller: Caller, said: Limits) -> Standing:
        said = msgspec.structs.replace(said, session=wanted.session) if wanted.session else said
        pot = await self._own(identifier, caller, said)
        if pot is None:
            raise self._unknown(identifier, caller, said)
        child = split.child_of(pot, wanted, caller, self._clock())
        if child.limit > pot.account.limit:
            (balance,) = await self._store.balances([pot.account])
            opened: Child | Refused = Refused(
                account=pot.account, spent=balance.spent, held=balance.held, needed=child.limit
            )
        else:
            opened = await self._store.split(pot.account, child, child.created_ms)
        if isinstance(opened, Refused):
            raise budget_exceeded(opened, self._rules().config.budget_status)
        return Standing(of_child(opened), Balance(0, 0))

    async def close(self, identifier: str, caller: Caller) -> Standing:
        child = await self._store.child(identifier)
        if child is None and any(identifier.partition("|")[0] == budget.id for budget in self._rules().pots.budgets):
            raise wrong("id", f"'{identifier}' is a budget of the policy: only what was split off can be closed.")
        if child is None or not child.usable_by(caller):
            raise ClientError(404, "not_found", f"This key has split off no budget '{identifier}'.", param="id")
        closed = await self._store.close(identifier, self._clock())
        return (await measured(self._store, [of_child(closed or child)]))[0]

    def _binding(self, caller: Caller, said: Limits) -> dict[str, Pot]:
        """By account id: the pots that a request of this key may be charged to, whichever model it names."""
        rules, now = self._rules(), self._clock()
        found: dict[str, Pot] = {}
        for name, (_, targets) in rules.routes.items():
            if may_name(rules, caller, name):
                charged = _charged(name, caller, said, tuple(target.id for target in targets))
                for budget in rules.pots.binding(charged, frozenset({caller.budget})):
                    for account in rules.pots.accounts(charged, [budget], now):
                        found.setdefault(account.id, Pot(account=account, budget=budget))
        return found

    async def _own(self, identifier: str, caller: Caller, said: Limits) -> Pot | None:
        """By the id of the pot, or of its budget where that has one pot for this key."""
        pots = self._binding(caller, said)
        if identifier in pots:
            return pots[identifier]
        of_budget = [pot for pot in pots.values() if pot.account.budget == identifier]
        if len(of_budget) > 1:
            raise _several(identifier, of_budget)
        child = await self._store.child(identifier)
        if child is not None and child.usable_by(caller):
            return of_child(child)
        return of_budget[0] if of_budget else None

    async def _any(self, identifier: str) -> Pot | None:
        """For readers of reports: also the pot of a value that nothing was booked for yet."""
        now, (name, _, value) = self._clock(), identifier.partition("|")
        named = [budget for budget in self._declared() if budget.id == name]
        budget = next((one for one in named if not isinstance(one, KeyLimit) or value in one.keys), None)
        if budget is None:
            child = await self._store.child(identifier)
            return None if child is None else of_child(child)
        if value:
            return Pot(account=budget.pot(value, now), budget=budget) if budget.divided else None
        pots = await of_budget(self._store, budget, now)
        if len(pots) > 1:
            raise _several(identifier, pots)
        return pots[0]

    def _unknown(self, identifier: str, caller: Caller, said: Limits) -> ClientError:
        budget = next((budget for budget in self._rules().pots.budgets if budget.id == identifier), None)
        if budget is not None and budget.scope == "request":
            return wrong("id", f"'{identifier}' limits each request by itself: nothing is kept for it.")
        if budget is not None and budget.scope == "session" and not said.session:
            return wrong("x-lowpass-session", f"'{identifier}' has a pot for each session: send x-lowpass-session.")
        known = ", ".join(self._binding(caller, said)) or "none"
        message = f"There is no budget '{identifier}' that binds this key. Known: {known}."
        return ClientError(404, "not_found", message, param="id")


def as_json(standing: Standing) -> dict[str, object]:
    """One row: amounts are exact JSON numbers, in USD or in tokens."""
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


def _charged(route: str, caller: Caller, said: Limits, targets: tuple[str, ...]) -> Charged:
    tags = (*caller.tags, *said.tags)
    return Charged(request_id="", route=route, caller=caller, session=said.session, tags=tags, targets=targets)


def _several(identifier: str, pots: Sequence[Pot]) -> ClientError:
    known = ", ".join(pot.account.id for pot in pots[:12])
    return wrong("id", f"'{identifier}' has several pots: name one of {known}{', …' if len(pots) > 12 else ''}.")
