"""Outage rules: what a budget that fails open may spend without its store, and that it never spends more."""

from collections.abc import Callable
from itertools import count
from random import Random
from typing import Any

import pytest

from router.budget.outage import LocalReservation, OutageBudgets
from router.budget.redis.store import RedisBudgets
from router.types.account import LEASE_MS, Account, Amount, Balance, HoldRequest, Refused, Reservation, StoreUnavailable
from router.types.clock import now_ms
from tests.budget.conformance.desk import HOUR, NOW, ONLY_A, account, ask, exactly, hourly, last_hour
from tests.budget.redis_gateways import POT, Gateways, at_own_redis, back, balance, comes_to, eventually, pause
from tests.tables import each_row

WITHIN = 1_000
CLOSED = account("closed", 10_000)
KEY = account("keys|alice", 10_000, budget="keys", scope="key", value="alice")
OF_KEY = account("small", 1_000, scope="key")
TARGET, SMALL = account("target", 10_000, **ONLY_A), account("small", 1_200)
OPEN = {"pot", "keys", "target", "small"}
_numbers = count(1)


class Outage:
    """A gateway whose leases are looked after when the test says so."""

    def __init__(self, gateways: Gateways, store: RedisBudgets, owner: str = "gateway") -> None:
        self.gateways, self.server, self.store = gateways, gateways.server, store
        self.leased = OutageBudgets(store, lambda at: WITHIN if at.budget in OPEN else 0, owner, store.rows)

    async def use(self, *accounts: Account, now: int = NOW) -> None:
        """Once, for nothing; and the leases are taken."""
        used = await self.grant(*accounts, usd=1, now=now)
        self.leased.settle(used, [0] * len(used.holds))
        await self.tick(now)

    async def tick(self, now: int = NOW) -> None:
        await self.leased.tick(now)
        await self.leased.settled()

    async def reserve(
        self, accounts: tuple[Account, ...], wanted: HoldRequest, now: int = NOW
    ) -> Reservation | Refused:
        return await self.leased.reserve(f"request-{next(_numbers)}", accounts, wanted, now)

    async def grant(
        self, *accounts: Account, usd: int = 0, now: int = NOW, wanted: HoldRequest | None = None
    ) -> Reservation:
        granted = await self.reserve(accounts, wanted or exactly(usd), now)
        assert isinstance(granted, Reservation), granted
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
        await self.tick(now)

    async def booked(self) -> Balance:
        booked = await balance(self.store)
        assert booked == self.gateways.rows()
        return booked


outage = at_own_redis(at=Outage)
"""The test gets a gateway, `at`, whose server it may kill."""


@outage
async def test_a_lease_is_taken_beforehand_spent_without_the_store_and_settled_when_it_is_back(at: Outage) -> None:
    await at.use(POT, KEY)
    assert await at.booked() == Balance(0, WITHIN)
    await at.gone()
    granted = [await at.grant(POT, KEY, usd=250) for _ in range(4)]
    assert [hold.amount for hold in granted[0].holds] == [250, 250]
    assert await at.refused(POT, KEY, usd=1)
    for reservation in granted[:3]:
        at.leased.settle(reservation, [200, 200])
        at.leased.settle(reservation, [999, 999])
    assert await at.refused(POT, KEY, usd=151)
    last = await at.grant(POT, KEY, usd=150)
    await at.here()
    # Two are open: nothing is settled, no second lease is taken.
    assert await at.booked() == Balance(0, WITHIN)
    for reservation in (granted[3], last):
        at.leased.settle(reservation, [100, 100])
    await at.tick()
    assert await at.booked() == Balance(800, WITHIN)


@each_row(
    "used, asked",
    [*((closed, closed) for closed in ((CLOSED,), (POT, CLOSED), (OF_KEY, CLOSED))), ((POT,), (POT, KEY))],
)
@outage
async def test_one_account_that_fails_closed_or_was_not_used_before_closes_the_request(
    at: Outage, used: tuple[Account, ...], asked: tuple[Account, ...]
) -> None:
    await at.use(*used)
    await at.gone()
    assert await at.refused(*asked, usd=1)


@outage
async def test_a_request_whose_answer_never_came_is_granted_from_the_lease(at: Outage) -> None:
    """The paused server may hold for it, too: that hold is given back."""
    await at.use(POT)
    pause(at.server, at.store)
    at.leased.settle(await at.grant(POT, usd=300), [300])
    at.server.resume()
    await back(at.store)
    await at.tick()
    assert await at.booked() == Balance(300, WITHIN)


@outage
async def test_grants_shrink_and_grow_as_the_lease_has_left(at: Outage) -> None:
    await at.use(POT, TARGET)
    await at.gone()
    first = await at.grant(POT, TARGET, wanted=ask(10, 700, 800))
    assert first.granted == Amount(700)
    assert (await at.leased.extend(first, [POT, TARGET], Amount(200), NOW)).granted == Amount(900)
    second = await at.grant(POT, wanted=ask(10, 700, 800))
    assert second.granted == Amount(100)
    assert await at.leased.extend(second, [POT], Amount(1), NOW) == second
    with pytest.raises(ValueError, match="one a hold"):
        at.leased.settle(second, [])
    at.leased.settle(second, [0])
    await at.grant(TARGET, usd=100)
    assert [hold.account for hold in (await at.grant(POT, TARGET, usd=1)).holds] == ["pot"]  # the target's is used up
    assert await at.refused(POT, usd=100)
    assert not await at.refused(POT, usd=99)


@outage
async def test_a_lease_gives_way_to_a_request_that_fits_without_it(at: Outage) -> None:
    await at.use(SMALL)
    assert await balance(at.store, SMALL) == Balance(0, 1_000)
    assert isinstance(await at.reserve((SMALL,), exactly(1_201)), Refused)  # which would not help
    granted = await at.grant(SMALL, usd=1_200)
    await at.leased.tick(NOW)
    assert await balance(at.store, SMALL) == Balance(0, 1_200)
    at.leased.settle(granted, [100])
    await at.leased.tick(NOW + HOUR)  # longer than an account without requests keeps its lease
    assert await balance(at.store, SMALL) == Balance(100, 0)


@outage
async def test_a_lease_is_topped_up_when_there_is_room_again(at: Outage) -> None:
    held = await at.grant(SMALL, usd=900)
    for now, expected in ((NOW, 1_200), (NOW + 1, 300), (NOW + 60_000, 1_000)):
        await at.leased.tick(now)
        assert await balance(at.store, SMALL) == Balance(0, expected)
        at.leased.settle(held, [0])
        await at.leased.settled()


@at_own_redis()
async def test_the_lease_of_a_process_that_died_is_charged_in_full(gateways: Gateways, client: Any) -> None:
    async with gateways.opened() as dying:
        await Outage(gateways, dying).use(POT)
    async with gateways.opened() as other:
        for owner in client.zrange("{lowpass}:owners", 0, -1):
            client.zincrby("{lowpass}:owners", -2 * LEASE_MS, owner)
        assert await other.recover(NOW) == 1
        await other.settled()
        assert await balance(other) == gateways.rows() == Balance(WITHIN, 0)


@outage
async def test_leases_are_taken_without_being_asked_for_and_given_back_at_the_end(at: Outage) -> None:
    await at.leased.start()
    await at.grant(POT, usd=1, now=now_ms())
    await comes_to(at.store, Balance(0, WITHIN + 1))
    await at.leased.stop()
    assert await balance(at.store) == Balance(0, 1)


@each_row(
    "kind, minutes, covered", [(hourly, 20, True), (hourly, 59, False), (last_hour, 59, True), (last_hour, 70, False)]
)
@outage
async def test_a_lease_covers_the_window_it_was_taken_in(
    at: Outage, kind: Callable[[int, str, int], Account], minutes: int, covered: bool
) -> None:
    start = NOW // HOUR * HOUR + 5 * 60_000
    later = start + minutes * 60_000
    await at.use(kind(start, "pot", 10_000), now=start)
    await at.gone()
    assert await at.refused(kind(later, "pot", 10_000), usd=400, now=later) == (not covered)
    if covered:
        await at.here(later)  # the 400 are open still, so the lease stands
        assert await balance(at.store, kind(later, "pot", 10_000)) == Balance(0, WITHIN)


@outage
async def test_what_was_spent_late_in_a_rolling_window_counts_from_then(at: Outage) -> None:
    def pot(minutes: int) -> Account:
        return last_hour(start + minutes * 60_000, "pot", 10_000)

    start = NOW // HOUR * HOUR
    later = start + 50 * 60_000
    await at.use(pot(0), now=start)
    await at.gone()
    at.leased.settle(await at.grant(pot(50), usd=400, now=later), [300])
    await at.here(later)
    await at.leased.stop()
    assert [(await balance(at.store, pot(minutes))).spent for minutes in (50, 65, 120)] == [300, 300, 0]


LIMIT = 2_100
SHARED = account("pot", LIMIT)


class Chaos:
    """Two gateways, one server that is killed and paused at random: together they never promise more than the limit."""

    def __init__(self, stores: list[Outage], random: Random) -> None:
        self.server, self.all, self.random = stores[0].server, stores, random
        self.open: list[tuple[Outage, Reservation]] = []
        self.charged = self.local = 0
        self.state = "dead"

    async def step(self) -> None:
        chosen = self.random.choices((self.ask, self.settle, self.tick, self.stop, self.resume), (8, 5, 4, 2, 3))[0]
        await chosen()
        promised = self.charged + sum(reservation.granted.usd for _, reservation in self.open)
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
                self.local += isinstance(granted, LocalReservation)

    async def settle(self) -> None:
        self.random.shuffle(self.open)
        for at, reservation in self.open[: len(self.open) // 2]:
            charge = self.random.randint(reservation.granted.usd // 2, reservation.granted.usd)
            at.leased.settle(reservation, [charge])
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
            pause(self.server, *(at.store for at in self.all))
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
            await back(*(at.store for at in self.all))

    async def end(self) -> None:
        """The server stays, and all is settled."""
        self.server.resume()
        self.server.kill()
        self.server.start()
        for at, reservation in self.open:
            at.leased.settle(reservation, [1])
            self.charged += 1
        for at in self.all:
            await back(at.store)
            await at.leased.stop()
            await back(at.store)


@pytest.mark.parametrize("seeds", [2, pytest.param(24, marks=[pytest.mark.nightly, pytest.mark.timeout(900)])])
def test_an_outage_at_any_moment_never_lets_a_limit_be_exceeded(seeds: int) -> None:
    @at_own_redis()
    async def work(gateways: Gateways, seed: int) -> None:
        async with gateways.opened() as first, gateways.opened() as second:
            left, right = Outage(gateways, first, "left"), Outage(gateways, second, "right")
            chaos = Chaos([left, right], Random(seed))  # noqa: S311
            for at in (left, right):
                await at.use(SHARED)
            await left.gone()
            await chaos.ask()
            for _ in range(40):
                await chaos.step()
            await chaos.end()
            assert await left.booked() == Balance(chaos.charged, 0)
            assert chaos.local > 0

    for seed in range(seeds):
        work(seed=seed)
