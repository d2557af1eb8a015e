"""Several processes at one store: real ones, started and killed."""

import asyncio
import multiprocessing
import os
import signal
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier

import pytest

from router.types.account import Reservation
from tests.budget.conformance.desk import Desk, account, exactly, thinking
from tests.budget.conformance.stores import Maker
from tests.budget.conformance.stores import maker as found

SPAWN = multiprocessing.get_context("spawn")
LONG_S = 20
POT, THOUGHT = account("p", 1_099), thinking("t", 10**6)


def race(store: str, place: str, number: int, tries: int, start: Barrier, results: "Queue[int]") -> None:
    """In a process of its own: all at once, 100 each."""

    async def run() -> int:
        async with found(store).opened(place) as opened:
            desk = Desk(opened)
            start.wait(LONG_S)
            names = [f"request-{number}-{one}" for one in range(tries)]
            tried = (desk.reserve([THOUGHT, POT], exactly(100, 1), request_id=name) for name in names)
            outcomes = await asyncio.gather(*tried)
        return sum(isinstance(outcome, Reservation) for outcome in outcomes)

    results.put(asyncio.run(run()))


def hold_until_killed(store: str, place: str, results: "Queue[int]") -> None:
    """In a process of its own: half of what is there is held when it dies."""

    async def run() -> None:
        async with found(store).opened(place) as opened:
            for _ in range(5):
                await Desk(opened).hold([POT], 100)
            await opened.store.settled()
            results.put(5)
            await asyncio.sleep(LONG_S)

    asyncio.run(run())


@pytest.mark.parametrize("processes", [2, 4])
def test_processes_that_race_share_room_for_10(maker: Maker, processes: int) -> None:
    """200 requests in all, each for 100 of 1,099."""
    with maker.place() as place:
        start, results = SPAWN.Barrier(processes), SPAWN.Queue()
        workers = [
            SPAWN.Process(target=race, args=(maker.name, place, number, 200 // processes, start, results))
            for number in range(processes)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(LONG_S)
        assert [worker.exitcode for worker in workers] == [0] * processes
        assert sum(results.get(timeout=1) for _ in workers) == 10

        async def books() -> list[tuple[int, int]]:
            async with maker.opened(place) as opened:
                return [await Desk(opened).balance(POT), await Desk(opened).balance(THOUGHT)]

        assert asyncio.run(books()) == [(0, 1_000), (0, 10)]


def test_a_killed_process_is_charged_by_another_one_after_its_lease(maker: Maker) -> None:
    with maker.place() as place:
        results = SPAWN.Queue()
        victim = SPAWN.Process(target=hold_until_killed, args=(maker.name, place, results))
        victim.start()
        assert results.get(timeout=LONG_S) == 5
        assert victim.pid is not None
        os.kill(victim.pid, signal.SIGKILL)
        victim.join(LONG_S)

        async def sweep() -> list[object]:
            async with maker.opened(place) as opened:
                desk = Desk(opened)
                before = await desk.balance(POT)
                later = await desk.leases_end()
                return [before, await desk.store.recover(later), await desk.balance(POT)]

        assert asyncio.run(sweep()) == [(0, 500), 5, (500, 0)]
