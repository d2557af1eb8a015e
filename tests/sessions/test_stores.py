"""What every store of sessions does: classes are added, never taken away, every process sees them, nothing is lost."""

import asyncio
import multiprocessing
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from multiprocessing.queues import Queue

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from router.budget.redis.server import LedgerTotals
from router.budget.redis.store import RedisBudgets
from router.classify.sessions import RedisSessions, SessionStore, SqliteSessions, hash_fields
from router.ledger.journal import SqliteJournal
from router.ledger.ledger import Ledger, SqliteLedger
from router.ledger.query import taints
from router.types.account import LEASE_MS, StoreUnavailable
from router.types.request import CLEAN, SessionClasses, session_key
from router.types.target import Secret
from tests.budget.conformance.stores import Place, empty
from tests.budget.redis_gateways import at_own_redis, eventually, pause
from tests.budget.redis_process import LONG_S, RedisProcess
from tests.ledger.books import rows
from tests.tables import each_row

SPAWN = multiprocessing.get_context("spawn")
CLASSES = st.frozensets(st.sampled_from(["pii", "phi", "secret", "1st", "0th", "a.b:c/d-e_f"]), max_size=4)
TAINTS = st.builds(SessionClasses, CLASSES, CLASSES)
SESSIONS = st.sampled_from(["key/a", "key/b", "/a", "other/a", "key/a b\n{x}", "key/ü"])
PII = SessionClasses(permanent=frozenset({"pii"}))


@asynccontextmanager
async def opened(place: Place) -> AsyncIterator[SessionStore]:
    """What one process has of it, in a running event loop."""
    if place.url:
        async with in_redis(Secret(place.url), SqliteLedger(place.ledger), place.tag) as store:
            yield store
        return
    journal = SqliteJournal(place.ledger)
    try:
        yield SqliteSessions(journal)
    finally:
        await journal.end()


@asynccontextmanager
async def in_redis(url: Secret, ledger: Ledger, tag: str = "lowpass") -> AsyncIterator[RedisSessions]:
    journal = ledger.open_journal()
    budgets = RedisBudgets(url, journal, lambda: LedgerTotals((), (), hash_fields(taints(ledger))), LEASE_MS, tag)
    store = RedisSessions(budgets.server, budgets.server.keys.sessions, journal)
    budgets.server.on_available.append(store.resume)
    await budgets.start()
    try:
        yield store
    finally:
        await budgets.stop()
        await journal.end()


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(SESSIONS, TAINTS), max_size=12))
def test_a_session_has_all_that_was_ever_added_and_nothing_of_others(
    kind: str, added: list[tuple[str, SessionClasses]]
) -> None:
    async def work(place: Place) -> None:
        async with opened(place) as one, opened(place) as other:
            expected: dict[str, SessionClasses] = {}
            for number, (session, taint) in enumerate(added):
                await (one if number % 2 else other).add(session, taint)
                before = expected.get(session, CLEAN)
                expected[session] = SessionClasses(before.permanent | taint.permanent, before.found | taint.found)
                assert await one.taint(session) == await other.taint(session) == expected[session]
            for session in ("key/a", "key/b", "/a", "other/a", "unknown/x"):
                assert await one.taint(session) == expected.get(session, CLEAN)

    with empty(kind) as place:
        asyncio.run(work(place))


def test_what_many_add_at_once_is_all_there_and_of_one_key_alone(kind: str) -> None:
    names = [f"class-{number}" for number in range(50)]

    async def work(place: Place) -> None:
        async with opened(place) as one, opened(place) as other:
            session = session_key("k1", "s")
            taints = [SessionClasses(found=frozenset({name})) for name in names]
            await asyncio.gather(*((one, other)[number % 2].add(session, add) for number, add in enumerate(taints)))
            assert await one.taint(session) == SessionClasses(found=frozenset(names))
            for key in ("k2", ""):
                assert await one.taint(session_key(key, "s")) == CLEAN

    with empty(kind) as place:
        asyncio.run(work(place))


def add_until_killed(place: Place, results: "Queue[int]") -> None:
    """In a process of its own: it tells of each one that it was promised."""

    async def run() -> None:
        async with opened(place) as store:
            for number in range(1, 1_000_000):
                await store.add(f"k/{number}", PII)
                results.put(number)

    asyncio.run(run())


def test_a_kill_right_after_loses_nothing(kind: str) -> None:
    with empty(kind) as place:
        results = SPAWN.Queue()
        victim = SPAWN.Process(target=add_until_killed, args=(place, results))
        victim.start()
        last = 0
        while last < 50:
            last = results.get(timeout=LONG_S)
        victim.kill()
        victim.join(LONG_S)

        async def look() -> list[SessionClasses]:
            async with opened(place) as store:
                return [await store.taint(f"k/{number}") for number in range(1, last + 1)]

        assert set(asyncio.run(look())) == {PII}


def test_a_clean_session_has_no_row() -> None:
    """Nothing grows with sessions that never had more than the default."""

    async def work(place: Place) -> None:
        async with opened(place) as store:
            assert await store.taint("k/s") == CLEAN
            await store.add("k/s", CLEAN)

    with empty("sqlite") as place:
        asyncio.run(work(place))
        assert rows(place.ledger, "SELECT * FROM taints") == []


PHI = SessionClasses(found=frozenset({"phi"}))
BOTH = SessionClasses(PII.permanent, PHI.found)


async def answers(store: SessionStore) -> bool:
    try:
        await store.taint("k/s")
    except StoreUnavailable:
        return False
    return True


@each_row("running", [False, True])
@at_own_redis()
async def test_a_server_that_lost_its_data_answers_only_when_the_ledger_has_told_it(
    server: RedisProcess, ledger: Ledger, running: bool
) -> None:
    async with in_redis(server.url, ledger) as store:
        await store.add("k/s", PII)
        await store.add("k/t", PHI)
        if running:
            with server.client() as client:
                client.flushall()
            with pytest.raises(StoreUnavailable):
                await store.taint("k/s")
        else:
            await asyncio.to_thread(server.forget)
        await eventually(lambda: answers(store))
        assert [await store.taint(f"k/{name}") for name in "stu"] == [PII, PHI, CLEAN]


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
