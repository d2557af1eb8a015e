"""What a session has seen survives the loss of Redis' data, and is not guessed at while Redis is gone."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import TypeVar

import pytest
import uvloop

from router.ledger.ledger import Ledger
from router.types.session import CLEAN, SessionStore, Taint
from router.types.store import StoreUnavailable
from tests.budget.redis_gateways import eventually
from tests.budget.redis_process import RedisProcess
from tests.sessions.stores import in_redis

T = TypeVar("T")
PII, PHI = Taint(found=frozenset({"pii"})), Taint(firm=frozenset({"phi"}))


def at_redis(ledger: Ledger, work: Callable[[RedisProcess, Ledger], Coroutine[None, None, T]]) -> T:
    with RedisProcess() as server:
        return uvloop.run(work(server, ledger))


async def _answers(store: SessionStore) -> bool:
    try:
        await store.taint("k/s")
    except StoreUnavailable:
        return False
    return True


def test_a_server_that_lost_its_data_is_told_by_the_ledger(ledger: Ledger) -> None:
    async def work(server: RedisProcess, ledger: Ledger) -> list[Taint]:
        async with in_redis(server.url, ledger) as store:
            await store.add("k/s", PII)
            await store.add("k/t", PHI)
            await asyncio.to_thread(server.forget)
            await eventually(lambda: _answers(store))
            return [await store.taint(f"k/{name}") for name in "stu"]

    assert at_redis(ledger, work) == [PII, PHI, CLEAN]


def test_a_server_that_is_emptied_while_it_runs_answers_nobody_before_it_was_told(ledger: Ledger) -> None:
    async def work(server: RedisProcess, ledger: Ledger) -> Taint:
        async with in_redis(server.url, ledger) as store:
            await store.add("k/s", PII)
            with server.client() as client:
                client.flushall()
            with pytest.raises(StoreUnavailable):
                await store.taint("k/s")
            await eventually(lambda: _answers(store))
            return await store.taint("k/s")

    assert at_redis(ledger, work) == PII


def test_a_server_that_is_gone_or_silent_is_no_answer_and_keeps_nobody_waiting(ledger: Ledger) -> None:
    async def work(server: RedisProcess, ledger: Ledger) -> None:
        async with in_redis(server.url, ledger) as store:
            await store.add("k/s", PII)
            server.pause()
            async with asyncio.timeout(5):
                with pytest.raises(StoreUnavailable):
                    await store.taint("k/s")
                with pytest.raises(StoreUnavailable):
                    await store.add("k/s", PHI)
            server.resume()
            await eventually(lambda: _answers(store))
            server.kill()
            async with asyncio.timeout(5):
                with pytest.raises(StoreUnavailable):
                    await store.taint("k/s")

    at_redis(ledger, work)


def test_what_could_not_be_told_is_told_when_the_server_is_back(ledger: Ledger) -> None:
    """Also to the other gateways."""

    async def work(server: RedisProcess, ledger: Ledger) -> list[Taint]:
        async with in_redis(server.url, ledger) as one, in_redis(server.url, ledger) as other:
            server.kill()
            for taint in (PII, PHI):
                with pytest.raises(StoreUnavailable):
                    await one.add("k/s", taint)
            server.start()
            both = Taint(PHI.firm, PII.found)

            async def told() -> bool:
                return await _answers(other) and await other.taint("k/s") == both

            await eventually(told)
            return [await one.taint("k/s"), await other.taint("k/s")]

    assert at_redis(ledger, work) == [Taint(PHI.firm, PII.found)] * 2
