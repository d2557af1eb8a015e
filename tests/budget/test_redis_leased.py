"""Outage rules: what a budget that fails open may spend without its store, and that it never spends more."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count
from random import Random

import pytest

from router.budget.outage.leased import Leased, Local
from router.budget.redis import RedisBudgets
from router.budget.window import rolling
from router.ledger.write import LEASE_MS
from router.types.account import Account, Amount, Ask, Balance, Refused, Reservation
from router.types.clock import now_ms
from router.types.store import StoreUnavailable
from tests.budget.conformance.desk import HOUR, NOW, account, ask, exactly
from tests.budget.redis_gateways import POT, Gateways, at_gateways, back, balance, eventually

WITHIN = 1_000
CLOSED = account("closed", 10_000)
KEY = account("keys|alice", 10_000, budget="keys", scope="key", value="alice")
TARGET = account("target", 10_000, targets=frozenset({"a"}))
OPEN = {"pot", "keys", "target", "small"}
_numbers = count(1)


class Outage:
    """A gateway whose leases are looked after when the test says so."""

    def __init__(self, gateways: Gateways, store: RedisBudgets, owner: str) -> None:
        self.server, self.rows, self.store = gateways.server, gateways.rows, store
        self.leased = Leased(store, lambda at: WITHIN if at.budget in OPEN else 0, owner)

    async def use(self, *accounts: Account, now: int = NOW) -> None:
        """Once, for nothing; and the leases are taken."""
        used = await self.reserve(accounts, exactly(1), now)
        assert isinstance(used, Reservation)
        self.leased.settle(used, [0] * len(used.holds))
        await self.leased.tick(now)
        await self.leased.settled()

    async def reserve(self, accounts: tuple[Account, ...], wanted: Ask, now: int = NOW) -> Reservation | Refused:
        return await self.leased.reserve(f"request-{next(_numbers)}", accounts, wanted, now)

    async def grant(self, *accounts: Account, usd: int, now: int = NOW) -> Reservation:
        granted = await self.reserve(accounts, exactly(usd), now)
        assert isinstance(granted, Reservation)
        return granted

    async def refused(self, *accounts: Account, usd: int, now: int = NOW) -> bool:
        try:
            await self.reserve(accounts, exactly(usd), now)
        except StoreUnavailable:
            return True
        return False

    async def gone(self) -> None:
        self.server.kill()
        await eventually(lambda: not self.store.available)

    async def here(self, now: int = NOW) -> None:
        self.server.start()
        await back(self.store)
        await self.leased.tick(now)
        await self.leased.settled()


@asynccontextmanager
async def outage(gateways: Gateways, owner: str = "one") -> AsyncIterator[Outage]:
    async with gateways.opened() as store:
        yield Outage(gateways, store, owner)


def test_a_lease_is_taken_beforehand_spent_without_the_store_and_settled_when_it_is_back() -> None:
    async def work(gateways: Gateways) -> None:
        async with outage(gateways) as at:
            await at.use(POT, KEY)
            assert await balance(at.store) == gateways.rows() == Balance(0, WITHIN)
            await at.gone()
            granted = [await at.grant(POT, KEY, usd=250) for _ in range(4)]
            assert [hold.amount for hold in granted[0].holds] == [250, 250]
            assert await at.refused(POT, KEY, usd=1)
            for one in granted[:3]:
                at.leased.settle(one, [200, 200])
                at.leased.settle(one, [999, 999])
            assert await at.refused(POT, KEY, usd=151)
            last = await at.grant(POT, KEY, usd=150)
            await at.here()
            # Two are open: nothing is settled, no second lease is taken.
            assert await balance(at.store) == gateways.rows() == Balance(0, WITHIN)
            for one in (granted[3], last):
                at.leased.settle(one, [100, 100])
            await at.leased.tick(NOW)
            await at.leased.settled()
            assert await balance(at.store) == gateways.rows() == Balance(800, WITHIN)

    at_gateways(work)


@pytest.mark.parametrize("accounts", [(CLOSED,), (POT, CLOSED), (account("small", 1_000, scope="key"), CLOSED)])
def test_one_account_that_fails_closed_closes_the_request(accounts: tuple[Account, ...]) -> None:
    async def work(gateways: Gateways) -> bool:
        async with outage(gateways) as at:
            await at.use(*accounts)
            await at.gone()
            return await at.refused(*accounts, usd=1)

    assert at_gateways(work)


def test_an_account_that_was_not_used_before_has_no_lease() -> None:
    async def work(gateways: Gateways) -> bool:
        async with outage(gateways) as at:
            await at.use(POT)
            await at.gone()
            return await at.refused(POT, KEY, usd=1)

    assert at_gateways(work)


def test_a_request_whose_answer_never_came_is_granted_from_the_lease() -> None:
    """The paused server may hold for it, too: that hold is given back."""

    async def work(gateways: Gateways) -> tuple[Balance, Balance]:
        async with outage(gateways) as at:
            await at.use(POT)
            at.server.pause()
            granted = await at.grant(POT, usd=300)
            at.leased.settle(granted, [300])
            at.server.resume()
            await back(at.store)
            await at.leased.tick(NOW)
            await at.leased.settled()
            return await balance(at.store), gateways.rows()

    assert at_gateways(work) == (Balance(300, WITHIN), Balance(300, WITHIN))


def test_grants_shrink_and_grow_as_the_lease_has_left() -> None:
    async def work(gateways: Gateways) -> None:
        async with outage(gateways) as at:
            await at.use(POT, TARGET)
            await at.gone()
            first = await at.reserve((POT, TARGET), ask(10, 700, 800))
            assert isinstance(first, Reservation)
            assert first.granted == Amount(700)
            grown = await at.leased.extend(first, [POT, TARGET], Amount(200), NOW)
            assert grown.granted == Amount(900)
            second = await at.reserve((POT,), ask(10, 700, 800))
            assert isinstance(second, Reservation)
            assert second.granted == Amount(100)
            assert await at.leased.extend(second, [POT], Amount(1), NOW) == second
            with pytest.raises(ValueError, match="one a hold"):
                at.leased.settle(second, [])
            at.leased.settle(second, [0])
            assert await at.refused(POT, usd=101)
            assert not await at.refused(POT, usd=100)

    at_gateways(work)


def test_a_target_whose_lease_is_used_up_is_left_out() -> None:
    async def work(gateways: Gateways) -> tuple[str, ...]:
        async with outage(gateways) as at:
            await at.use(POT, KEY, TARGET)
            await at.gone()
            await at.grant(TARGET, usd=1_000)
            granted = await at.grant(POT, TARGET, usd=10)
            return tuple(hold.account for hold in granted.holds)

    assert at_gateways(work) == ("pot",)


def test_a_lease_gives_way_to_a_request_that_fits_without_it() -> None:
    small = account("small", 1_200)

    async def work(gateways: Gateways) -> list[object]:
        async with outage(gateways) as at:
            await at.use(small)
            (before,) = await at.store.balances([small])
            granted = await at.reserve((small,), exactly(1_200))
            assert isinstance(granted, Reservation)
            await at.leased.tick(NOW)
            (during,) = await at.store.balances([small])
            at.leased.settle(granted, [100])
            await at.leased.tick(NOW + HOUR)
            (rested,) = await at.store.balances([small])
            return [before, during, rested]

    # The hour is longer than an account without requests keeps its lease.
    assert at_gateways(work) == [Balance(0, 1_000), Balance(0, 1_200), Balance(100, 0)]


def test_a_lease_is_topped_up_when_there_is_room_again() -> None:
    small = account("small", 1_200)

    async def work(gateways: Gateways) -> list[Balance]:
        async with outage(gateways) as at:
            found = []
            held = await at.grant(small, usd=900)
            for now in (NOW, NOW + 1, NOW + 60_000):
                await at.leased.tick(now)
                found += await at.store.balances([small])
                at.leased.settle(held, [0])
                await at.leased.settled()
            return found

    assert at_gateways(work) == [Balance(0, 1_200), Balance(0, 300), Balance(0, 1_000)]


def test_the_lease_of_a_process_that_died_is_charged_in_full() -> None:
    async def work(gateways: Gateways) -> tuple[Balance, Balance]:
        async with outage(gateways) as at:
            await at.use(POT)
        async with gateways.opened() as other:
            with gateways.server.client() as client:
                for owner in client.zrange("{lowpass}:owners", 0, -1):
                    client.zincrby("{lowpass}:owners", -2 * LEASE_MS, owner)
            assert await other.recover(NOW) == 1
            await other.settled()
            return await balance(other), gateways.rows()

    assert at_gateways(work) == (Balance(WITHIN, 0), Balance(WITHIN, 0))


def test_a_process_that_stops_gives_its_leases_back() -> None:
    async def work(gateways: Gateways) -> Balance:
        async with outage(gateways) as at:
            await at.use(POT)
            await at.leased.stop()
            return await balance(at.store)

    assert at_gateways(work) == Balance(0, 0)


def test_leases_are_taken_without_being_asked_for() -> None:
    async def work(gateways: Gateways) -> bool:
        async with outage(gateways) as at:
            await at.leased.start()
            await at.grant(POT, usd=1, now=now_ms())

            async def taken() -> bool:
                return await balance(at.store) == Balance(0, WITHIN + 1)

            await eventually(taken)
            await at.leased.stop()
            return await balance(at.store) == Balance(0, 1)

    assert at_gateways(work)


def hourly(now: int) -> Account:
    start = now // HOUR * HOUR
    return account("pot", 10_000, window_start_ms=start, since_ms=start, resets_at_ms=start + HOUR)


def sliding(now: int) -> Account:
    span = rolling(3_600, now)
    return account("pot", 10_000, window_start_ms=span.start, since_ms=span.since, resets_at_ms=span.resets_at)


@pytest.mark.parametrize(
    ("at_time", "minutes", "covered"),
    [(hourly, 20, True), (hourly, 59, False), (sliding, 59, True), (sliding, 70, False)],
)
def test_a_lease_covers_the_window_it_was_taken_in(
    at_time: Callable[[int], Account], minutes: int, covered: bool
) -> None:
    """What is spent in a later part of a rolling window is booked there."""
    start = NOW // HOUR * HOUR + 5 * 60_000
    later = start + minutes * 60_000

    async def work(gateways: Gateways) -> list[Balance]:
        async with outage(gateways) as at:
            await at.use(at_time(start), now=start)
            await at.gone()
            if await at.refused(at_time(later), usd=400, now=later):
                return []
            await at.here(later)
            return await at.store.balances([at_time(later), at_time(later + 50 * 60_000)])

    found = at_gateways(work)
    # The 400 are open still, so the lease stands.
    assert found[:1] == ([Balance(0, WITHIN)] if covered else [])


def test_what_was_spent_late_in_a_rolling_window_counts_from_then() -> None:
    start = NOW // HOUR * HOUR
    later = start + 50 * 60_000

    async def work(gateways: Gateways) -> list[Balance]:
        async with outage(gateways) as at:
            await at.use(sliding(start), now=start)
            await at.gone()
            at.leased.settle(await at.grant(sliding(later), usd=400, now=later), [300])
            await at.here(later)
            await at.leased.stop()
            after = [sliding(later), sliding(start + 65 * 60_000), sliding(later + 70 * 60_000)]
            return await at.store.balances(after)

    assert [found.spent for found in at_gateways(work)] == [300, 300, 0]


LIMIT = 2_100
SHARED = account("pot", LIMIT)


class Chaos:
    """Two gateways, one server that is killed and paused at random: together they never promise more than the limit."""

    def __init__(self, gateways: Gateways, stores: list[Outage], random: Random) -> None:
        self.server, self.all, self.random = gateways.server, stores, random
        self.open: list[tuple[Outage, Reservation]] = []
        self.charged = self.local = 0
        self.state = "dead"

    async def step(self) -> None:
        chosen = self.random.choices((self.ask, self.settle, self.tick, self.stop, self.resume), (8, 5, 4, 2, 3))[0]
        await chosen()
        promised = self.charged + sum(one.granted.usd for _, one in self.open)
        assert promised <= LIMIT

    async def ask(self) -> None:
        at = self.random.choice(self.all)
        for _ in range(self.random.randint(1, 5)):
            try:
                granted = await at.reserve((SHARED,), ask(20, 150, 300))
            except StoreUnavailable:
                return
            if isinstance(granted, Reservation):
                self.open.append((at, granted))
                self.local += isinstance(granted, Local)

    async def settle(self) -> None:
        self.random.shuffle(self.open)
        for at, one in self.open[: len(self.open) // 2]:
            charge = self.random.randint(one.granted.usd // 2, one.granted.usd)
            at.leased.settle(one, [charge])
            self.charged += charge
        del self.open[: len(self.open) // 2]

    async def tick(self) -> None:
        for at in self.all:
            await at.leased.tick(NOW)

    async def stop(self) -> None:
        if self.state != "runs":
            return
        self.state = self.random.choice(("paused", "dead"))
        if self.state == "paused":
            self.server.pause()
        else:
            self.server.kill()
            await eventually(lambda: not any(at.store.available for at in self.all))

    async def resume(self) -> None:
        if self.state == "paused":
            self.server.resume()
        elif self.state == "dead":
            self.server.start()
        self.state = "runs"
        if self.random.random() < 0.7:
            for at in self.all:
                await back(at.store)

    async def end(self) -> None:
        """The server stays, and all is settled."""
        self.server.resume()
        self.server.kill()
        self.server.start()
        for at, one in self.open:
            at.leased.settle(one, [1])
            self.charged += 1
        for at in self.all:
            await back(at.store)
            await at.leased.stop()
            await back(at.store)


@pytest.mark.parametrize("seed", range(12))
def test_an_outage_at_any_moment_never_lets_a_limit_be_exceeded(seed: int) -> None:
    async def work(gateways: Gateways) -> None:
        async with outage(gateways, "one") as one, outage(gateways, "two") as two:
            chaos = Chaos(gateways, [one, two], Random(seed))  # noqa: S311
            for at in (one, two):
                await at.use(SHARED)
            await one.gone()
            await chaos.ask()
            for _ in range(40):
                await chaos.step()
            await chaos.end()
            assert await balance(one.store) == Balance(chaos.charged, 0)
            assert gateways.rows() == Balance(chaos.charged, 0)
            assert chaos.local > 0

    at_gateways(work)
