"""The loop breaker: nothing sound is stopped, every loop is, and what that looks like."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from router.budget.loops.breaker import ROWS, Breaker
from router.budget.loops.loops import Kind, Loops, Scope, Spike, Tripped
from router.ledger.journal import SqliteJournal
from router.refusals import loop_detected
from router.report.incidents import incidents
from tests.budget.loops import batches, endless, talks
from tests.budget.loops.words import prose, small_talk
from tests.budget.loops.world import MINUTE, Message, Stopped, World, assistant, user
from tests.ledger.books import rows, with_journal

SOUND = (*batches.ALL, *talks.ALL)
SEEDS = (1, 2, 3)
Case = Callable[[World], None]
WHOLE = 520
"""Messages of nine days, at one in 25 minutes."""


def played(path: Path, case: Case, seed: int = 1, loops: Loops = Loops()) -> tuple[World, Tripped | None]:  # noqa: B008
    async def work(journal: SqliteJournal) -> tuple[World, Tripped | None]:
        world = World(journal, loops, seed)
        try:
            case(world)
        except Stopped as stopped:
            return world, stopped.tripped
        return world, None

    return with_journal(path / "lowpass.db", work)


def test_there_is_enough_to_judge_by() -> None:
    assert len(SOUND) >= 40
    assert len(endless.ALL) >= 20


@pytest.mark.parametrize("case", SOUND, ids=lambda case: case.__name__)
def test_what_is_sound_passes(case: Case, tmp_path: Path) -> None:
    _, tripped = played(tmp_path, case)
    assert tripped is None


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("case", endless.ALL, ids=lambda case: case.__name__)
def test_what_goes_in_a_circle_trips(case: Case, seed: int, tmp_path: Path) -> None:
    """Long before nine days are over: in a quarter, with answers known in a sixth; fast ones within 85 requests."""
    world, tripped = played(tmp_path, case, seed)
    assert tripped is not None
    slow = case.__name__.startswith("nine_days")
    known = case in (
        endless.nine_days_with_answers,
        endless.nine_days_without_memory,
        endless.nine_days_quoted,
        endless.nine_days_of_three,
    )
    others = case is endless.nine_days_unknown_answers_among_others
    assert world.requests <= (WHOLE // 6 if known else WHOLE if others else WHOLE // 4 if slow else 85)


KINDS: list[tuple[Case, Kind, Scope, str]] = [
    (endless.nine_days_with_answers, Kind.PING_PONG, Scope.PAIR, "alice, bob"),
    (endless.nine_days_unknown_answers, Kind.PING_PONG, Scope.PAIR, "alice, bob"),
    (endless.nine_days_of_three, Kind.PING_PONG, Scope.PAIR, "alice, bob, carol"),
    (endless.stuck_tool, Kind.NO_PROGRESS, Scope.CONVERSATION, "agent"),
    (endless.three_calls_in_a_circle, Kind.NO_PROGRESS, Scope.SESSION, "task"),
    (endless.same_request_in_a_session, Kind.REPEATS, Scope.SESSION, "task"),
    (endless.same_transcript_again, Kind.REPEATS, Scope.CONVERSATION, "agent"),
    (endless.sudden_spending, Kind.SPEND_SPIKE, Scope.KEY, "team"),
]


@pytest.mark.parametrize(("case", "kind", "scope", "subject"), KINDS, ids=lambda value: getattr(value, "__name__", ""))
def test_what_it_is_called(case: Case, kind: Kind, scope: Scope, subject: str, tmp_path: Path) -> None:
    _, tripped = played(tmp_path, case)
    assert tripped is not None
    assert (tripped.kind, tripped.scope, tripped.subject) == (kind, scope, subject)
    assert tripped.seen >= tripped.limit


@pytest.mark.parametrize("loops", [Loops(enabled=False), Loops(exempt=("agent",))], ids=("off", "exempt"))
def test_who_is_not_watched_is_not_stopped(loops: Loops, tmp_path: Path) -> None:
    assert played(tmp_path, endless.stuck_tool, loops=loops)[1] is None


@pytest.mark.parametrize(
    ("case", "loops"),
    [
        (endless.nine_days_with_answers, Loops(no_progress=10_000)),
        (endless.same_request_in_a_session, Loops(repeats=10_000)),
        (endless.sudden_spending, Loops(spike=None)),
        (endless.sudden_spending, Loops(spike=Spike(factor=1_000_000))),
    ],
)
def test_every_limit_can_be_raised(case: Case, loops: Loops, tmp_path: Path) -> None:
    assert played(tmp_path, case, loops=loops)[1] is None


def stop(world: World, case: Case) -> Tripped:
    with pytest.raises(Stopped) as stopped:
        case(world)
    return stopped.value.tripped


def passes(world: World, key: str, messages: list[Message], session: str = "") -> bool:
    try:
        world.ask(key, messages, session=session)
    except Stopped:
        return False
    return True


def in_world(path: Path, work: Callable[[World], None], loops: Loops = Loops()) -> None:  # noqa: B008
    async def run(journal: SqliteJournal) -> None:
        work(World(journal, loops, 1))

    with_journal(path / "lowpass.db", run)


def test_a_session_is_refused_as_a_whole_and_nobody_else(tmp_path: Path) -> None:
    def work(world: World) -> None:
        stop(world, endless.same_request_in_a_session)
        new = [user(prose(world.random, 30))]
        assert not passes(world, "agent", new, "task")
        assert passes(world, "agent", new, "another task")
        assert passes(world, "agent", new)
        assert passes(world, "another key", new, "task")

    in_world(tmp_path, work)


def _stuck(world: World, messages: list[Message], turns: int) -> int:
    """Goes on with a conversation that gets nowhere; the turns that it was let have."""
    for turn in range(turns):
        if not passes(world, "agent", messages):
            return turn
        messages += [assistant("I could not open the file."), user("Try again.")]
    return turns


def test_a_conversation_is_refused_however_it_goes_on_until_the_cool_down_ends(tmp_path: Path) -> None:
    def work(world: World) -> None:
        messages = [user("Open the file.")]
        assert _stuck(world, messages, 100) < 40
        asked_again, explained = (
            list(messages),
            [*messages, assistant("429"), user("What happened? Tell me in French.")],
        )
        assert not passes(world, "agent", asked_again)
        assert not passes(world, "agent", explained)
        assert passes(world, "agent", [user("Another matter entirely.")])
        world.wait(59 * MINUTE)
        assert not passes(world, "agent", explained)
        world.wait(2 * MINUTE)
        assert passes(world, "agent", explained)

    in_world(tmp_path, work)


def test_a_loop_that_goes_on_rests_twice_as_long(tmp_path: Path) -> None:
    def work(world: World) -> None:
        messages = [user("Open the file.")]
        first = _stuck(world, messages, 100)
        world.wait(61 * MINUTE)
        assert _stuck(world, messages, 100) <= first // 2
        world.wait(61 * MINUTE)
        assert not passes(world, "agent", messages)
        world.wait(60 * MINUTE)
        assert passes(world, "agent", messages)

    in_world(tmp_path, work)


def test_two_keys_may_still_do_their_work(tmp_path: Path) -> None:
    """After a ping-pong that only its words gave away, what is new passes."""

    def work(world: World) -> None:
        stop(world, endless.nine_days_unknown_answers)
        assert not all(passes(world, "alice", [user(small_talk(world.random, 0))]) for _ in range(10))
        assert all(passes(world, "alice", [user(prose(world.random, 30))]) for _ in range(10))

    in_world(tmp_path, work)


def test_who_is_quoted_by_chance_is_not_refused(tmp_path: Path) -> None:
    """Two keys in a loop; a third one happens to send what the one has just answered."""

    def work(world: World) -> None:
        said = small_talk(world.random)
        for number in range(200):
            answer = small_talk(world.random)
            try:
                world.ask(("alice", "bob")[number % 2], [user(said)], answer=answer)
            except Stopped:
                break
            said = answer
        world.ask("carol", [user(said)], answer=prose(world.random, 20))

    in_world(tmp_path, work)


def test_a_session_has_an_end(tmp_path: Path) -> None:
    def work(world: World) -> None:
        for _ in range(10):
            world.ask("person", [user(prose(world.random, 20))], session="s", cost=100)
        tripped = stop(world, lambda world: world.ask("person", [user(prose(world.random, 20))], session="s"))
        assert (tripped.kind, tripped.seen, tripped.limit, tripped.until_ms) == (Kind.SESSION_TURNS, 10, 10, None)
        world.breaker.loops = Loops(session_usd=0.000001)
        tripped = stop(world, lambda world: world.ask("person", [user(prose(world.random, 20))], session="s"))
        assert (tripped.kind, tripped.seen, tripped.limit) == (Kind.SESSION_USD, 1_000, 1_000)
        world.breaker.loops = Loops()
        assert passes(world, "person", [user(prose(world.random, 20))], "s")

    in_world(tmp_path, work, Loops(session_turns=10))


def test_trips_are_rows_of_a_report_and_counted(tmp_path: Path) -> None:
    world, tripped = played(tmp_path, endless.nine_days_with_answers)
    assert tripped is not None
    with sqlite3.connect(tmp_path / "lowpass.db") as connection:
        report = incidents(connection, None, None)
        assert report.rows == (
            (tripped.at_ms, "ping_pong", "pair", "alice, bob", tripped.reason, tripped.at_ms + 60 * MINUTE),
        )
        assert incidents(connection, tripped.at_ms + 1, None).rows == ()
    connection.close()
    assert {kind: count for kind, count in world.breaker.trips.items() if count} == {"ping_pong": 1}


def test_a_session_that_is_over_is_one_incident(tmp_path: Path) -> None:
    def work(world: World) -> None:
        for _ in range(5):
            passes(world, "person", [user(prose(world.random, 20))], "s")

    in_world(tmp_path, work, Loops(session_turns=1))
    assert [row["kind"] for row in rows(tmp_path / "lowpass.db", "SELECT kind FROM incidents")] == ["session_turns"]


def test_the_client_hears_what_when_and_for_how_long(tmp_path: Path) -> None:
    _, tripped = played(tmp_path, endless.sudden_spending)
    assert tripped is not None
    error = loop_detected(tripped)
    loop = error.envelope()["error"]["loop"]  # type: ignore[index]
    assert (error.status, error.code, ("x-should-retry", "false") in error.headers) == (429, "loop_detected", True)
    assert (loop["kind"], loop["scope"], loop["subject"], loop["unit"]) == ("spend_spike", "key", "team", "usd")
    assert (bytes(loop["limit"]), loop["until"] > loop["at"]) == (b"50", True)
    over = Tripped(Kind.SESSION_TURNS, Scope.SESSION, "s", "all turns are over", 10, 10, 0, None)
    assert (loop_detected(over).status, loop_detected(over).code) == (429, "turn_limit")


def restarting(world: World, path: Path, every: int) -> None:
    """The gateway of that world is restarted after every so many requests."""
    ask = world.ask

    def asking(*values: Any, **named: Any) -> None:
        if world.requests % every == 0:
            world.breaker.save()
            world.journal._flush()  # type: ignore[attr-defined]
            world.breaker = Breaker(world.loops, world.clock, world.journal)
            world.breaker.restore((row["id"], row["document"]) for row in rows(path, ROWS))
        ask(*values, **named)

    world.ask = asking  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("case", "every"),
    [
        (endless.stuck_tool, 15),
        (endless.same_request_in_a_session, 40),
        (endless.nine_days_unknown_answers, 70),
        (endless.sudden_spending, 500),
    ],
)
def test_a_loop_trips_through_restarts(case: Case, every: int, tmp_path: Path) -> None:
    def work(world: World) -> None:
        restarting(world, tmp_path / "lowpass.db", every)
        stop(world, case)

    in_world(tmp_path, work)


@pytest.mark.parametrize("case", [batches.two_monitors, batches.batch_with_two_keys_in_turn, talks.patient_poll])
def test_what_is_sound_passes_through_restarts(case: Case, tmp_path: Path) -> None:
    def work(world: World) -> None:
        restarting(world, tmp_path / "lowpass.db", 60)
        case(world)

    in_world(tmp_path, work)


def test_nothing_of_a_text_is_kept(tmp_path: Path) -> None:
    """What is written down of a loop holds none of its words."""

    def work(world: World) -> None:
        stop(world, endless.apologies)
        world.breaker.save()

    in_world(tmp_path, work)
    path = tmp_path / "lowpass.db"
    written = str(rows(path, "SELECT * FROM loops") + rows(path, "SELECT * FROM incidents"))
    assert "chain|" in written
    assert not [word for word in ("apologise", "wrong", "right", "continue") if word in written]


def test_old_rows_are_forgotten(tmp_path: Path) -> None:
    def work(world: World) -> None:
        world.ask("person", [user("Hello")])
        world.breaker.save()
        world.wait(31 * 24 * 60 * MINUTE)
        world.breaker.forget()

    in_world(tmp_path, work)
    assert rows(tmp_path / "lowpass.db", "SELECT * FROM loops") == []


def test_a_request_that_was_not_settled_harms_nobody(tmp_path: Path) -> None:
    def work(world: World) -> None:
        for _ in range(200):
            world.begin("agent", [user("the same")], session="s")

    in_world(tmp_path, work)
