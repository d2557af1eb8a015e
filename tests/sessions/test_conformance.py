"""What every store of sessions does: classes are added, never taken away, and every process sees them at once."""

import asyncio
import multiprocessing
from multiprocessing.queues import Queue

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from router.types.session import CLEAN, Taint, session_key
from tests.budget.conformance.stores import Place, empty
from tests.budget.redis_process import LONG_S
from tests.ledger.books import rows
from tests.sessions.stores import opened

SPAWN = multiprocessing.get_context("spawn")
CLASSES = st.frozensets(st.sampled_from(["pii", "phi", "secret", "1st", "0th", "a.b:c/d-e_f"]), max_size=4)
TAINTS = st.builds(Taint, CLASSES, CLASSES)
SESSIONS = st.sampled_from(["key/a", "key/b", "/a", "other/a", "key/a b\n{x}", "key/ü"])
PII = Taint(firm=frozenset({"pii"}))


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(SESSIONS, TAINTS), max_size=12))
def test_a_session_has_all_that_was_ever_added_and_nothing_of_others(kind: str, added: list[tuple[str, Taint]]) -> None:
    async def work(place: Place) -> None:
        async with opened(place) as one, opened(place) as other:
            expected: dict[str, Taint] = {}
            for number, (session, taint) in enumerate(added):
                await (one if number % 2 else other).add(session, taint)
                before = expected.get(session, CLEAN)
                expected[session] = Taint(before.firm | taint.firm, before.found | taint.found)
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
            taints = [Taint(found=frozenset({name})) for name in names]
            await asyncio.gather(*((one, other)[number % 2].add(session, add) for number, add in enumerate(taints)))
            assert await one.taint(session) == Taint(found=frozenset(names))
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

        async def look() -> list[Taint]:
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
