"""One process at a store, as the tests use it: requests get ids, and each call what the gateway does along with it."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from functools import wraps
from itertools import count
from typing import Any

from msgspec import structs

from router.budget.budget import rolling
from router.types.account import LEASE_MS, Account, Amount, Balance, Child, HoldRequest, Refused, Reservation, Unit
from tests.budget.conformance.stores import Place, empty, opened

NOW = 1_790_000_000_000
HOUR = 3_600_000
ONLY_A = {"targets": frozenset({"a"})}
_numbers = count(1)


def account(name: str, limit: int, **fields: object) -> Account:
    """For ever, hard, in nano-USD and for all targets unless `fields` say otherwise."""
    return structs.replace(Account(id=name, budget=name, scope="all", limit=limit), **fields)


def thinking(name: str, limit: int, **fields: object) -> Account:
    return account(name, limit, unit=Unit.THINKING, **fields)


def hourly(now_ms: int, name: str = "p", limit: int = 1_000, **fields: object) -> Account:
    start = now_ms // HOUR * HOUR
    own = {"window_start_ms": start, "since_ms": start, "resets_at_ms": start + HOUR}
    return account(name, limit, **own | fields)


def last_hour(now_ms: int, name: str = "p", limit: int = 1_000) -> Account:
    span = rolling(3_600, now_ms)
    return account(name, limit, window_start_ms=span.start, since_ms=span.since, resets_at_ms=span.resets_at)


def ask(least: int, tight: int, whole: int, thinking: tuple[int, int, int] = (0, 0, 0)) -> HoldRequest:
    return HoldRequest(
        least=Amount(least, thinking[0]), tight=Amount(tight, thinking[1]), whole=Amount(whole, thinking[2])
    )


def exactly(usd: int, thinking: int = 0) -> HoldRequest:
    return ask(usd, usd, usd, (thinking,) * 3)


class Desk:
    def __init__(self, place: Place) -> None:
        self.place, self._process = place, AsyncExitStack()

    async def __aenter__(self) -> "Desk":
        self.opened = await self._process.enter_async_context(opened(self.place))
        self.store = self.opened.store
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._process.aclose()

    async def killed(self) -> None:
        """Its process dies, and another one goes on."""
        await self.__aexit__()
        await self.__aenter__()

    async def reserve(
        self, accounts: Sequence[Account], wanted: HoldRequest, now_ms: int = NOW, request_id: str = ""
    ) -> Reservation | Refused:
        request_id = request_id or f"request-{next(_numbers)}"
        await self.opened.born(request_id, now_ms)
        return await self.store.reserve(request_id, accounts, wanted, now_ms)

    async def granted(self, accounts: Sequence[Account], wanted: HoldRequest, now_ms: int = NOW) -> Reservation:
        granted = await self.reserve(accounts, wanted, now_ms)
        assert isinstance(granted, Reservation), granted
        return granted

    async def hold(self, accounts: Sequence[Account], usd: int, now_ms: int = NOW, thinking: int = 0) -> Reservation:
        """Exactly so much, which has to fit."""
        return await self.granted(accounts, exactly(usd, thinking), now_ms)

    async def refuses(self, at: Account, usd: int, now_ms: int = NOW, thinking: int = 0) -> bool:
        return isinstance(await self.reserve([at], exactly(usd, thinking), now_ms), Refused)

    async def settle(self, reservation: Reservation, *charges: int) -> None:
        self.store.settle(reservation, charges)
        await self.opened.ended(reservation.request_id)
        await self.store.settled()

    async def spend(self, at: Account, amount: int, now_ms: int = NOW) -> None:
        unbound = structs.replace(at, hard=False, targets=frozenset())
        by_unit = (amount, 0) if at.unit is Unit.USD else (0, amount)
        await self.settle(await self.hold([unbound], by_unit[0], now_ms, by_unit[1]), amount)

    async def balance(self, at: Account) -> tuple[int, int]:
        """(spent, held), which are the sums of the rows too."""
        (balance,) = await self.store.balances([at])
        if at.since_ms == at.window_start_ms:
            rows = (await self.opened.sums()).get((at.id, at.window_start_ms), (0, 0))
            assert balance == Balance(*rows)
        return balance.spent, balance.held

    async def balances(self, *accounts: Account) -> list[tuple[int, int]]:
        return [await self.balance(account) for account in accounts]

    async def leases_end(self, now_ms: int = NOW) -> int:
        """Every lease that is not renewed is over by the moment that is returned."""
        await self.opened.pass_time(LEASE_MS + 1)
        return now_ms + LEASE_MS + 1

    async def child(
        self, parent: Account, limit: int, name: str = "child", now_ms: int = NOW, **fields: object
    ) -> Child | Refused:
        own = {"id": name, "parent": parent.id, "parent_window_ms": parent.window_start_ms, "unit": parent.unit}
        times = {"created_ms": NOW, "expires_at_ms": NOW + HOUR}
        wanted: Any = own | times | {"replaces": (parent.id,), "limit": limit, "key": "key"} | fields
        return await self.store.split(parent, Child(**wanted), now_ms)

    async def split(self, parent: Account, limit: int, name: str = "child", **fields: object) -> Account:
        """The account of a child that fits."""
        child = await self.child(parent, limit, name, NOW, **fields)
        assert isinstance(child, Child), child
        return child.account()


def at_desk(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """The test gets the `desk` of one process at an empty store: once on each kind, a fresh one for each row."""

    @wraps(test)
    def run(kind: str, **others: Any) -> None:
        async def work(place: Place) -> None:
            async with Desk(place) as desk:
                await test(desk=desk, **others)

        with empty(kind) as place:
            asyncio.run(work(place))

    run.__signature__ = without(test, "desk", also=["kind"])  # type: ignore[attr-defined]
    return run


def without(test: Callable[..., object], *given: str, also: Sequence[str] = ()) -> inspect.Signature:
    """What is left for pytest to give, by name."""
    names = [name for name in inspect.signature(test).parameters if name not in given] + [*also]
    return inspect.Signature([inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in names])
