"""What a session has seen survives the loss of Redis' data, and is not guessed at while Redis is gone."""

import asyncio

import pytest

from router.ledger.ledger import Ledger
from router.types.session import CLEAN, SessionStore, Taint
from router.types.store import StoreUnavailable
from tests.budget.redis_gateways import at_own_redis, at_redis, eventually, pause
from tests.budget.redis_process import RedisProcess
from tests.sessions.stores import in_redis

PII, PHI = Taint(found=frozenset({"pii"})), Taint(firm=frozenset({"phi"}))
BOTH = Taint(PHI.firm, PII.found)


async def answers(store: SessionStore) -> bool:
    try:
        await store.taint("k/s")
    except StoreUnavailable:
        return False
    return True


@at_own_redis()
async def test_a_server_that_lost_its_data_is_told_by_the_ledger(server: RedisProcess, ledger: Ledger) -> None:
    async with in_redis(server.url, ledger) as store:
        await store.add("k/s", PII)
        await store.add("k/t", PHI)
        await asyncio.to_thread(server.forget)
        await eventually(lambda: answers(store))
        assert [await store.taint(f"k/{name}") for name in "stu"] == [PII, PHI, CLEAN]


@at_redis
async def test_a_server_that_is_emptied_while_it_runs_answers_only_when_it_was_told(
    server: RedisProcess, ledger: Ledger
) -> None:
    async with in_redis(server.url, ledger) as store:
        await store.add("k/s", PII)
        with server.client() as client:
            client.flushall()
        with pytest.raises(StoreUnavailable):
            await store.taint("k/s")
        await eventually(lambda: answers(store))
        assert await store.taint("k/s") == PII


@at_own_redis()
async def test_a_server_that_is_gone_or_silent_is_no_answer_and_keeps_no_request_waiting(
    server: RedisProcess, ledger: Ledger
) -> None:
    async with in_redis(server.url, ledger) as store:
        await store.add("k/s", PII)
        pause(server, store)
        with pytest.raises(StoreUnavailable):
            await store.taint("k/s")
        with pytest.raises(StoreUnavailable):
            await store.add("k/s", PHI)
        server.resume()
        await eventually(lambda: answers(store))
        server.kill()
        with pytest.raises(StoreUnavailable):
            await store.taint("k/s")


@at_own_redis()
async def test_what_could_not_be_told_is_told_when_the_server_is_back(server: RedisProcess, ledger: Ledger) -> None:
    """Also to the other gateways."""
    async with in_redis(server.url, ledger) as one, in_redis(server.url, ledger) as other:
        server.kill()
        for taint in (PII, PHI):
            with pytest.raises(StoreUnavailable):
                await one.add("k/s", taint)
        server.start()

        async def both_know() -> bool:
            return await answers(other) and await other.taint("k/s") == BOTH

        await eventually(both_know)
        await eventually(lambda: answers(one))
        assert await one.taint("k/s") == await other.taint("k/s") == BOTH
