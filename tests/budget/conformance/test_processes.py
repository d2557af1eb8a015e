"""Processes at one store that race, live on, or die: nothing that one of them held is lost, or charged twice."""

import asyncio
import multiprocessing
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier

from router.budget.redis import connection
from router.ledger import journal
from router.types.account import LEASE_MS, Amount, Reservation
from tests.budget.conformance.desk import HOUR, NOW, Desk, account, at_desk, exactly, thinking
from tests.budget.conformance.stores import Place, empty
from tests.budget.redis_process import LONG_S

SPAWN = multiprocessing.get_context("spawn")
SCARCE, POT, THOUGHT = account("p", 1_099), account("p", 1_000), thinking("t", 10**6)


def race(place: Place, number: int, start: Barrier, results: "Queue[int]") -> None:
    """In a process of its own: all at once, 100 each; every second one that got it is settled."""
    connection.CONNECT_S = connection.COMMAND_S = LONG_S
    journal.BUSY_MS = int(LONG_S * 1000)

    async def run() -> int:
        async with Desk(place) as desk:
            start.wait(LONG_S)
            names = [f"request-{number}-{which}" for which in range(100)]
            tried = (desk.reserve([THOUGHT, SCARCE], exactly(100, 1), request_id=name) for name in names)
            granted = [outcome for outcome in await asyncio.gather(*tried) if isinstance(outcome, Reservation)]
            for reservation in granted[::2]:
                await desk.settle(reservation, 1, 100)
            return len(granted)

    results.put(asyncio.run(run()))


def test_four_processes_that_race_share_room_for_10(kind: str) -> None:
    """400 requests in all, each for 100 of 1,099."""
    with empty(kind) as place:
        start, results = SPAWN.Barrier(4), SPAWN.Queue()
        workers = [SPAWN.Process(target=race, args=(place, number, start, results)) for number in range(4)]
        for worker in workers:
            worker.start()
        assert sum(results.get(timeout=LONG_S) for _ in workers) == 10
        for worker in workers:
            worker.join(LONG_S)
        assert [worker.exitcode for worker in workers] == [0] * 4

        async def books() -> list[tuple[int, int]]:
            async with Desk(place) as desk:
                return await desk.balances(SCARCE, THOUGHT)

        assert [sum(balance) for balance in asyncio.run(books())] == [1_000, 10]


def hold_until_killed(place: Place, results: "Queue[int]") -> None:
    """In a process of its own: half of what is there is held when it dies."""
    connection.CONNECT_S = connection.COMMAND_S = LONG_S

    async def run() -> None:
        async with Desk(place) as desk:
            for _ in range(5):
                await desk.hold([SCARCE], 100)
            await desk.store.settled()
            results.put(5)
            await asyncio.Event().wait()

    asyncio.run(run())


@at_desk
async def test_a_killed_process_is_charged_by_another_one_after_its_lease(desk: Desk) -> None:
    results = SPAWN.Queue()
    victim = SPAWN.Process(target=hold_until_killed, args=(desk.place, results))
    victim.start()
    assert results.get(timeout=LONG_S) == 5
    victim.kill()
    victim.join(LONG_S)
    assert await desk.balance(SCARCE) == (0, 500)
    assert await desk.store.recover(await desk.leases_end()) == 5
    assert await desk.balance(SCARCE) == (500, 0)


async def held_by_the_dead(desk: Desk) -> Reservation:
    held = await desk.hold([POT, THOUGHT], 300, thinking=70)
    grown = await desk.store.extend(held, [POT, THOUGHT], Amount(100, 5), NOW)
    await desk.killed()
    return grown


@at_desk
async def test_a_dead_process_is_charged_what_it_held_once_and_only_after_its_lease(desk: Desk) -> None:
    """With what its hold had grown by; a late settlement corrects that, once."""
    held = await held_by_the_dead(desk)
    assert (await desk.store.recover(NOW + 1), await desk.balance(POT)) == (0, (0, 400))
    later = await desk.leases_end()
    for recovered in (1, 0):
        assert await desk.store.recover(later) == recovered
        assert await desk.balances(POT, THOUGHT) == [(400, 0), (75, 0)]
    assert await desk.store.extend(held, [POT, THOUGHT], Amount(100, 5), later) == held
    assert await desk.balance(POT) == (400, 0)
    for charge in (250, 999):
        await desk.settle(held, charge, 90)
        assert await desk.balances(POT, THOUGHT) == [(250, 0), (90, 0)]


@at_desk
async def test_a_settlement_before_the_sweep_or_a_refusal_leaves_nothing_to_recover(desk: Desk) -> None:
    await desk.settle(await held_by_the_dead(desk), 250, 0)
    assert await desk.store.recover(await desk.leases_end()) == 0
    assert await desk.refuses(POT, 1_001)
    await desk.killed()
    await desk.store.recover(await desk.leases_end())
    assert await desk.balance(POT) == (250, 0)


@at_desk
async def test_a_process_that_lives_keeps_its_holds(desk: Desk) -> None:
    """Through twenty leases, and though another one sweeps; that one ends, and its leases are not renewed."""
    async with Desk(desk.place) as other:
        await desk.hold([POT], 400)
        await other.hold([POT], 50)
        now = recovered = 0
        for _ in range(40):
            now += LEASE_MS // 2
            await desk.opened.pass_time(LEASE_MS // 2)
            recovered += await desk.store.recover(NOW + now)
        assert (recovered, await desk.balance(POT)) == (1, (50, 400))


@at_desk
async def test_a_clock_that_goes_back_does_not_keep_a_dead_process_alive(desk: Desk) -> None:
    await held_by_the_dead(desk)
    back = NOW - 24 * HOUR
    assert (await desk.store.recover(back), await desk.balance(POT)) == (0, (0, 400))
    assert (await desk.store.recover(await desk.leases_end(back)), await desk.balance(POT)) == (1, (400, 0))


@at_desk
async def test_a_clock_that_jumps_ahead_does_not_end_a_living_process(desk: Desk) -> None:
    await desk.hold([POT], 400)
    assert (await desk.store.recover(NOW + 24 * HOUR), await desk.balance(POT)) == (0, (0, 400))
