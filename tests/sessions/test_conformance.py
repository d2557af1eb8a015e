"""What every store of sessions does: classes are added, never taken away, and every process sees them at once."""

import asyncio
import multiprocessing
import os
import signal
from multiprocessing.queues import Queue
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from router.types.session import CLEAN, SessionStore, Taint, session_key
from tests.ledger.books import rows
from tests.sessions.stores import MAKERS, Maker
from tests.sessions.stores import maker as found

SPAWN = multiprocessing.get_context("spawn")
LONG_S = 20
CLASSES = st.frozensets(st.sampled_from(["pii", "phi", "secret", "1st", "0th", "a.b:c/d-e_f"]), max_size=4)
TAINTS = st.builds(Taint, CLASSES, CLASSES)
SESSIONS = st.sampled_from(["key/a", "key/b", "/a", "other/a", "key/a b\n{x}", "key/ü"])


@pytest.fixture(params=MAKERS, ids=lambda maker: maker.name)
def maker(request: pytest.FixtureRequest, patient_redis: None) -> Maker:
    made: Maker = request.param
    return made


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(SESSIONS, TAINTS), max_size=12))
def test_a_session_has_all_that_was_ever_added_and_nothing_of_others(
    maker: Maker, added: list[tuple[str, Taint]]
) -> None:
    async def work(place: str) -> None:
        async with maker.opened(place) as one, maker.opened(place) as other:
            expected: dict[str, Taint] = {}
            for number, (session, taint) in enumerate(added):
                await (one if number % 2 else other).add(session, taint)
                before = expected.get(session, CLEAN)
                expected[session] = Taint(before.firm | taint.firm, before.found | taint.found)
                assert await one.taint(session) == await other.taint(session) == expected[session]
            for session in ("key/a", "key/b", "/a", "other/a", "nobody/x"):
                assert await one.taint(session) == expected.get(session, CLEAN)

    with maker.place() as place:
        asyncio.run(work(place))


def test_what_many_add_at_once_is_all_there(maker: Maker) -> None:
    names = [f"class-{number}" for number in range(50)]

    async def work(place: str) -> Taint:
        async with maker.opened(place) as one, maker.opened(place) as other:
            stores: list[SessionStore] = [one, other] * 25
            pairs = zip(stores, names, strict=True)
            await asyncio.gather(*(store.add("k/s", Taint(found=frozenset({name}))) for store, name in pairs))
            return await one.taint("k/s")

    with maker.place() as place:
        assert asyncio.run(work(place)) == Taint(found=frozenset(names))


def test_another_keys_session_of_the_same_name_is_another_one(maker: Maker) -> None:
    async def work(place: str) -> list[Taint]:
        async with maker.opened(place) as store:
            await store.add(session_key("k1", "s"), Taint(firm=frozenset({"pii"})))
            return [await store.taint(session_key(caller, "s")) for caller in ("k1", "k2", "")]

    with maker.place() as place:
        assert asyncio.run(work(place)) == [Taint(firm=frozenset({"pii"})), CLEAN, CLEAN]


def add_until_killed(store: str, place: str, results: "Queue[int]") -> None:
    """In a process of its own: it tells of each one that it was promised."""

    async def run() -> None:
        async with found(store).opened(place) as opened:
            for number in range(1, 1_000_000):
                await opened.add(f"k/{number}", Taint(found=frozenset({"pii"})))
                results.put(number)

    asyncio.run(run())


def test_a_kill_right_after_loses_nothing(maker: Maker) -> None:
    with maker.place() as place:
        results = SPAWN.Queue()
        victim = SPAWN.Process(target=add_until_killed, args=(maker.name, place, results))
        victim.start()
        assert victim.pid is not None
        told = results.get(timeout=LONG_S)
        while told < 50:
            told = results.get(timeout=LONG_S)
        os.kill(victim.pid, signal.SIGKILL)
        victim.join(LONG_S)

        async def look() -> list[Taint]:
            async with maker.opened(place) as store:
                return [await store.taint(f"k/{number}") for number in range(1, told + 1)]

        assert set(asyncio.run(look())) == {Taint(found=frozenset({"pii"}))}


def test_a_clean_session_has_no_row() -> None:
    """Nothing grows with sessions that never had more than the default."""
    sqlite = found("sqlite")

    async def work(place: str) -> None:
        async with sqlite.opened(place) as store:
            assert await store.taint("k/s") == CLEAN
            await store.add("k/s", CLEAN)

    with TemporaryDirectory() as folder:
        asyncio.run(work(f"{folder}/lowpass.db"))
        assert rows(Path(folder) / "lowpass.db", "SELECT * FROM taints") == []
