"""A process that dies loses nothing: its holds are charged, and corrected if the truth turns up."""

import asyncio

from router.types.account import Amount, Reservation
from tests.budget.conformance.desk import HOUR, NOW, Desk, account, after_a_kill, at_desk, exactly, thinking
from tests.budget.conformance.stores import Maker

POT, THOUGHT = account("p", 1_000), thinking("t", 1_000)


async def hold(desk: Desk) -> Reservation:
    return await desk.hold([POT, THOUGHT], 400, thinking=70)


def test_a_dead_process_is_charged_what_it_held_once_and_only_after_its_lease(maker: Maker) -> None:
    async def sweep(desk: Desk, held: Reservation) -> list[tuple[int, tuple[int, int]]]:
        early = await desk.store.recover(NOW + 1), await desk.balance(POT)
        later = await desk.leases_end()
        return [early, *[(await desk.store.recover(later), await desk.balance(POT)) for _ in range(2)]]

    assert after_a_kill(maker, hold, sweep) == [(0, (0, 400)), (1, (400, 0)), (0, (400, 0))]


def test_what_grew_is_charged_too(maker: Maker) -> None:
    async def grow(desk: Desk) -> Reservation:
        return await desk.store.extend(await hold(desk), [POT, THOUGHT], Amount(100, 5), NOW)

    async def sweep(desk: Desk, held: Reservation) -> tuple[tuple[int, int], tuple[int, int]]:
        await desk.store.recover(await desk.leases_end())
        return await desk.balance(POT), await desk.balance(THOUGHT)

    assert after_a_kill(maker, grow, sweep) == ((500, 0), (75, 0))


def test_a_late_settlement_corrects_what_was_recovered_once(maker: Maker) -> None:
    async def late(desk: Desk, held: Reservation) -> list[tuple[int, int]]:
        await desk.store.recover(await desk.leases_end())
        booked = []
        for charge in (250, 999):
            await desk.settle(held, charge, 90)
            booked.append(await desk.balance(POT))
        return [*booked, await desk.balance(THOUGHT)]

    assert after_a_kill(maker, hold, late) == [(250, 0), (250, 0), (90, 0)]


def test_a_settlement_before_the_sweep_leaves_nothing_to_recover(maker: Maker) -> None:
    async def sweep(desk: Desk, held: Reservation) -> tuple[int, tuple[int, int]]:
        await desk.settle(held, 250, 0)
        return await desk.store.recover(await desk.leases_end()), await desk.balance(POT)

    assert after_a_kill(maker, hold, sweep) == (0, (250, 0))


def test_a_recovered_hold_does_not_grow(maker: Maker) -> None:
    async def sweep(desk: Desk, held: Reservation) -> tuple[bool, tuple[int, int]]:
        later = await desk.leases_end()
        await desk.store.recover(later)
        same = await desk.store.extend(held, [POT, THOUGHT], Amount(100, 5), later)
        return same == held, await desk.balance(POT)

    assert after_a_kill(maker, hold, sweep) == (True, (400, 0))


def test_a_process_that_lives_keeps_its_holds(maker: Maker) -> None:
    """Through twenty leases, and though another one sweeps; that one ends, and nobody renews for it."""

    async def live(place: str) -> list[int]:
        async with maker.opened(place) as ours, maker.opened(place) as theirs:
            one, other = Desk(ours), Desk(theirs)
            await one.hold([POT], 400)
            await other.hold([POT], 50)
            now, counts = NOW, []
            for _ in range(40):
                now += ours.lease_ms // 2
                await ours.pass_time(ours.lease_ms // 2)
                counts.append(await one.store.recover(now))
            balance = await one.balance(POT)
        return [sum(counts), *balance]

    with maker.place() as place:
        assert asyncio.run(live(place)) == [1, 50, 400]


def test_a_clock_that_goes_back_does_not_keep_a_dead_process_alive(maker: Maker) -> None:
    async def sweep(desk: Desk, held: Reservation) -> list[tuple[int, tuple[int, int]]]:
        back = NOW - 24 * HOUR
        first = await desk.store.recover(back), await desk.balance(POT)
        later = await desk.leases_end(back)
        return [first, (await desk.store.recover(later), await desk.balance(POT))]

    assert after_a_kill(maker, hold, sweep) == [(0, (0, 400)), (1, (400, 0))]


def test_a_clock_that_jumps_ahead_does_not_end_a_living_process(maker: Maker) -> None:
    async def jump(desk: Desk) -> tuple[int, tuple[int, int]]:
        await hold(desk)
        return await desk.store.recover(NOW + 24 * HOUR), await desk.balance(POT)

    assert at_desk(maker, jump) == (0, (0, 400))


def test_a_request_that_is_refused_leaves_nothing_to_recover(maker: Maker) -> None:
    async def refused(desk: Desk) -> None:
        await desk.reserve([POT], exactly(1_001))

    async def sweep(desk: Desk, _: None) -> tuple[int, int]:
        await desk.store.recover(await desk.leases_end())
        return await desk.balance(POT)

    assert after_a_kill(maker, refused, sweep) == (0, 0)
