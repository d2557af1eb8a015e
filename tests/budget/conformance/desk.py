"""One process at a store, as the tests use it: requests get ids, and each call what the gateway does along with it."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from typing import TypeVar

from msgspec import structs

from router.types.account import Account, Amount, Ask, Balance, Child, Refused, Reservation, Unit
from tests.budget.conformance.stores import Maker, Opened

S = TypeVar("S")
T = TypeVar("T")
NOW = 1_790_000_000_000
HOUR = 3_600_000
_numbers = count(1)


def account(name: str, limit: int, **fields: object) -> Account:
    """For ever, hard, in nano-USD and for all targets unless `fields` say otherwise."""
    plain = Account(id=name, budget=name, scope="all", limit=limit)
    return structs.replace(plain, **fields)


def thinking(name: str, limit: int, **fields: object) -> Account:
    return account(name, limit, unit=Unit.THINKING, **fields)


def ask(least: int, tight: int, whole: int, thinking: tuple[int, int, int] = (0, 0, 0)) -> Ask:
    return Ask(least=Amount(least, thinking[0]), tight=Amount(tight, thinking[1]), whole=Amount(whole, thinking[2]))


def exactly(usd: int, thinking: int = 0) -> Ask:
    return ask(usd, usd, usd, (thinking,) * 3)


class Desk:
    def __init__(self, opened: Opened) -> None:
        self.opened, self.store = opened, opened.store

    async def reserve(
        self, accounts: Sequence[Account], wanted: Ask, now_ms: int = NOW, request_id: str = ""
    ) -> Reservation | Refused:
        request_id = request_id or f"request-{next(_numbers)}"
        await self.opened.born(request_id, wanted.whole, now_ms)
        return await self.store.reserve(request_id, accounts, wanted, now_ms)

    async def hold(self, accounts: Sequence[Account], usd: int, now_ms: int = NOW, thinking: int = 0) -> Reservation:
        """Exactly so much, which has to fit."""
        granted = await self.reserve(accounts, exactly(usd, thinking), now_ms)
        assert isinstance(granted, Reservation), granted
        return granted

    async def settle(self, reservation: Reservation, *charges: int) -> None:
        self.store.settle(reservation, charges)
        await self.opened.ended(reservation.request_id)
        await self.store.settled()

    async def spend(self, at: Account, amount: int, now_ms: int = NOW) -> None:
        """Whatever its limit."""
        unbound = structs.replace(at, hard=False, targets=frozenset())
        by_unit = (amount, 0) if at.unit is Unit.USD else (0, amount)
        await self.settle(await self.hold([unbound], by_unit[0], now_ms, by_unit[1]), amount)

    async def balance(self, at: Account) -> tuple[int, int]:
        """(spent, held), which are the sums of the rows too."""
        (found,) = await self.store.balances([at])
        if at.since_ms == at.window_start_ms:
            rows = (await self.opened.sums()).get((at.id, at.window_start_ms), (0, 0))
            assert found == Balance(*rows)
        return found.spent, found.held

    async def leases_end(self, now_ms: int = NOW) -> int:
        """Every lease that nobody renews is over by the moment that is returned."""
        await self.opened.pass_time(self.opened.lease_ms + 1)
        return now_ms + self.opened.lease_ms + 1

    async def child(self, parent: Account, limit: int, name: str = "child", **fields: object) -> Child | Refused:
        wanted = Child(
            id=name,
            parent=parent.id,
            parent_window_ms=parent.window_start_ms,
            replaces=(parent.id,),
            unit=parent.unit,
            limit=limit,
            created_ms=NOW,
            expires_at_ms=NOW + HOUR,
            key="key",
        )
        return await self.store.split(parent, structs.replace(wanted, **fields), NOW)


def at_desk(maker: Maker, work: Callable[[Desk], Awaitable[T]]) -> T:
    """One process at an empty store."""

    async def run(place: str) -> T:
        async with maker.opened(place) as opened:
            return await work(Desk(opened))

    with maker.place() as place:
        return asyncio.run(run(place))


def after_a_kill(maker: Maker, first: Callable[[Desk], Awaitable[S]], then: Callable[[Desk, S], Awaitable[T]]) -> T:
    """One process is killed, and another one goes on; it is given what the first one returned."""

    async def run(place: str) -> T:
        async with maker.opened(place) as opened:
            result = await first(Desk(opened))
        async with maker.opened(place) as opened:
            return await then(Desk(opened), result)

    with maker.place() as place:
        return asyncio.run(run(place))
