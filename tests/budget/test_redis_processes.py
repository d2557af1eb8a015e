"""500 requests at once want what 10 can have, from 1, 2 and 4 gateway processes."""

import asyncio
import multiprocessing
import sqlite3
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from router.types.account import Balance, Reservation
from router.types.secret import Secret
from tests.budget.conformance.desk import NOW, account, exactly
from tests.budget.redis_gateways import Gateways
from tests.budget.redis_process import RedisProcess

SPAWN = multiprocessing.get_context("spawn")
LONG_S = 30
ALL, KEY = account("all", 10_050), account("keys|new", 10_400, budget="keys", scope="key", value="new")


class _There(RedisProcess):
    """A server that somebody else started."""

    def __init__(self, url: str) -> None:
        self.url = Secret(url)


def crowd(url: str, folder: str, number: int, size: int, start: Barrier, results: "Queue[int]") -> None:
    async def run() -> int:
        async with Gateways(_There(url), Path(folder)).opened() as store:
            start.wait(LONG_S)
            tried = (store.reserve(f"r-{number}-{one}", [KEY, ALL], exactly(1_000), NOW) for one in range(size))
            outcomes = await asyncio.gather(*tried)
            granted = [one for one in outcomes if isinstance(one, Reservation)]
            for one in granted[::2]:
                store.settle(one, [1_000, 1_000])
            await store.settled()
            return len(granted)

    results.put(asyncio.run(run()))


@pytest.mark.parametrize("processes", [1, 2, 4])
def test_500_at_once_get_what_is_there_for_10(processes: int) -> None:
    with TemporaryDirectory() as folder, RedisProcess() as server:
        sqlite3.connect(Path(folder) / "lowpass.db").close()
        start, results = SPAWN.Barrier(processes), SPAWN.Queue()
        given = [(server.url.reveal(), folder, number, 500 // processes, start, results) for number in range(processes)]
        workers = [SPAWN.Process(target=crowd, args=one) for one in given]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(LONG_S)
        assert [worker.exitcode for worker in workers] == [0] * processes
        assert sum(results.get(timeout=1) for _ in workers) == 10

        async def found() -> list[Balance]:
            async with Gateways(server, Path(folder)).opened() as store:
                return await store.balances([KEY, ALL])

        balances = asyncio.run(found())
        assert balances[0] == balances[1] == Gateways(server, Path(folder)).rows("all")
        assert balances[0].spent + balances[0].held == 10_000
