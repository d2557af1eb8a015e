"""The loop breaker: nothing sound is stopped, every loop is, and what that looks like."""

from collections.abc import Callable
from functools import partial, wraps
from pathlib import Path
from typing import Any

import pytest

from router.budget.loop_breaker import ROWS, LoopBreaker
from router.budget.loops import Loops, Tripped
from router.dispatch.refusals import loop_detected
from router.ledger.journal import SqliteJournal
from router.ledger.ledger import SqliteLedger
from router.report.catalog import read
from router.report.query import Parameters
from router.types.clock import new_id
from tests.budget.conformance.desk import without
from tests.budget.loops.endless import ENDLESS
from tests.budget.loops.messages import DAY, MINUTE, Message, exchange, user
from tests.budget.loops.seeds import KINDS, drawn
from tests.budget.loops.sound import SOUND
from tests.budget.loops.world import Case, Stopped, World, play
from tests.ledger.books import rows, with_journal
from tests.tables import data, each_row

STRICT = Loops(cool_down="1h")
"""A loop of which each turn takes half an hour is stopped by its first trip."""
WATCHED = data(__file__, "watched.yaml")


def in_world(test: Callable[..., None]) -> Callable[..., None]:
    """The test gets a `world` over a ledger of its own, and what else it names."""

    @wraps(test)
    def run(tmp_path: Path, seed: int = 1, loops: Loops = STRICT, **row: Any) -> None:
        async def work(journal: SqliteJournal) -> None:
            test(world=World(journal, loops, seed), **row)

        with_journal(tmp_path / "lowpass.db", work)

    run.__signature__ = without(test, "world", also=["tmp_path"])  # type: ignore[attr-defined]
    return run


def stop(world: World, case: str | Case) -> Tripped:
    with pytest.raises(Stopped) as stopped:
        (ENDLESS[case][0] if isinstance(case, str) else case)(world)
    return stopped.value.tripped


def report(world: World, query: str) -> list[dict[str, Any]]:
    world.journal.flush()  # type: ignore[attr-defined]
    return rows(world.journal.path, query)  # type: ignore[attr-defined]


@each_row("case", SOUND)
@in_world
def test_sound_traffic_passes(world: World, case: str) -> None:
    SOUND[case](world)


@each_row("seed, case", [(seed, case) for seed in (1, 2) for case in ENDLESS])
@in_world
def test_what_goes_in_a_circle_trips_soon(world: World, case: str) -> None:
    stop(world, case)
    assert world.requests <= ENDLESS[case][1]


@each_row("drawing, kind", [(seed, kind) for seed in range(12) for kind in range(len(KINDS))])
@in_world
def test_of_500_requests_drawn_by_chance_none_is_stopped_but_loops(world: World, drawing: int, kind: int) -> None:
    row, most = drawn(drawing, kind)
    if most:
        stop(world, partial(play, row=row))
        assert world.requests <= most
    else:
        play(world, row)


@each_row("case, kind, scope, subject", WATCHED["called"])
@in_world
def test_what_it_is_called(world: World, case: str, kind: str, scope: str, subject: str) -> None:
    tripped = stop(world, case)
    assert (tripped.kind, tripped.scope, tripped.subject) == (kind, scope, subject)
    assert tripped.seen >= tripped.limit


@each_row("case, loops", [(case, Loops(**limits)) for case, limits in WATCHED["off"]])
@in_world
def test_each_kind_of_watch_can_be_off_and_each_limit_raised(world: World, case: str) -> None:
    ENDLESS[case][0](world)


@in_world
def test_a_session_is_refused_as_a_whole_and_no_other(world: World) -> None:
    stop(world, "same_request_in_a_session")
    new = world.prose(30)
    assert not world.passes("agent", new, "task")
    assert world.passes("agent", new, "another task")
    assert world.passes("agent", new)
    assert world.passes("another key", new, "task")


@in_world
def test_of_a_request_without_a_transcript_only_itself_is_refused(world: World) -> None:
    again = [user("Is the big red door open, or is it shut?")]
    passed = [world.passes("agent", again) for _ in range(150)]
    assert 100 < passed.index(False) == passed.count(True) < 130
    assert world.passes("agent", [user("Is the door open?")])
    assert not world.passes("agent", again)


def turns_of(world: World, messages: list[Message]) -> int:
    """Goes on with a conversation that gets nowhere; the turns that it was let have."""
    for turn in range(100):
        if not world.passes("agent", messages):
            return turn
        messages += exchange("I could not open the file.", "Try again.")
    return 100


@in_world
def test_a_conversation_is_refused_however_it_goes_on_until_the_cool_down_ends(world: World) -> None:
    messages = [user("Open the file.")]
    assert turns_of(world, messages) < 40
    explained = messages + exchange("429", "What happened? Tell me in French.")
    assert not world.passes("agent", messages)
    assert not world.passes("agent", explained)
    assert world.passes("agent", "Another matter entirely.")
    world.wait(59 * MINUTE)
    assert not world.passes("agent", explained)
    world.wait(2 * MINUTE)
    assert world.passes("agent", explained)


@in_world
def test_a_loop_that_goes_on_rests_twice_as_long(world: World) -> None:
    messages = [user("Open the file.")]
    first = turns_of(world, messages)
    world.wait(61 * MINUTE)
    assert turns_of(world, messages) <= first // 2
    world.wait(61 * MINUTE)
    assert not world.passes("agent", messages)
    world.wait(60 * MINUTE)
    assert world.passes("agent", messages)


@each_row("case", ["stuck_tool", "same_request_in_a_session", "in_chinese"])
@in_world
def test_the_first_trip_refuses_minutes_and_a_loop_that_goes_on_is_stopped_for_longer(world: World, case: str) -> None:
    world.breaker.loops = Loops()
    stop(world, case)
    rests = [row["until_ms"] - row["at_ms"] for row in report(world, "SELECT at_ms, until_ms FROM incidents")]
    assert rests == [5 * MINUTE << number for number in range(len(rests))]


@each_row("case, warning", [("stuck_tool", "no_progress 12/24"), ("same_request_in_a_session", "repeats 60/120")])
@in_world
def test_a_client_is_warned_at_half_of_a_limit(world: World, case: str, warning: str) -> None:
    stop(world, case)
    assert world.warnings[0] == warning


@in_world
def test_two_keys_may_still_do_their_work(world: World) -> None:
    """After a ping-pong that only its words gave away, what is new passes."""
    stop(world, "unknown_answers")
    assert not all(world.passes("alice", world.small_talk(0)) for _ in range(10))
    assert all(world.passes("alice", world.prose(30)) for _ in range(10))


@in_world
def test_a_key_that_is_quoted_by_chance_is_not_refused(world: World) -> None:
    """Two keys in a loop; a third one happens to send what the one has just answered."""
    text = world.small_talk()
    for number in range(200):
        answer = world.small_talk()
        try:
            world.ask(("alice", "bob")[number % 2], text, answer=answer)
        except Stopped:
            break
        text = answer
    world.ask("carol", text, answer=world.prose(20))


@in_world
def test_trips_are_rows_of_a_report_and_counted(world: World) -> None:
    tripped = stop(world, "known_answers")
    assert len(report(world, "SELECT * FROM incidents")) == 1
    row = (tripped.at_ms, "ping_pong", "pair", "alice, bob", tripped.reason, tripped.at_ms + 60 * MINUTE)
    ledger = SqliteLedger(world.journal.path)  # type: ignore[attr-defined]
    assert read(ledger, "incidents").rows == (row,)
    assert read(ledger, "incidents", Parameters(since="2099-01-01")).rows == ()
    assert {kind: count for kind, count in world.breaker.trips.items() if count} == {"ping_pong": 1}


@in_world
def test_the_client_hears_of_the_loop_when_and_for_how_long(world: World) -> None:
    error = loop_detected(stop(world, "sudden_spending"))
    loop = error.envelope()["error"]["loop"]  # type: ignore[index]
    assert (error.status, error.code, ("x-should-retry", "false") in error.headers) == (429, "loop_detected", True)
    assert (loop["kind"], loop["scope"], loop["subject"], loop["unit"]) == ("spend_spike", "key", "team", "usd")
    assert (bytes(loop["limit"]), loop["until"] > loop["at"]) == (b"50", True)


class Renamed:
    def __init__(self, journal: Any) -> None:
        self._journal, self.owner = journal, new_id()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)


def restarting(world: World, every: int) -> None:
    """The gateway of that world is restarted after every so many requests."""

    def restart() -> None:
        if world.requests % every == 0:
            world.breaker.save()
            world.breaker = LoopBreaker(world.loops, world.clock, Renamed(world.journal))
            world.breaker.restore((row["id"], row["document"]) for row in report(world, ROWS))

    world.before = restart


@each_row(
    "case, every",
    [("stuck_tool", 15), ("same_request_in_a_session", 40), ("unknown_answers", 70), ("sudden_spending", 500)],
)
@in_world
def test_a_loop_trips_through_restarts(world: World, case: str, every: int) -> None:
    restarting(world, every)
    stop(world, case)


@each_row("case", ["two_monitors", "two_keys_in_turn", "patient_poll"])
@in_world
def test_what_is_sound_passes_through_restarts(world: World, case: str) -> None:
    restarting(world, 60)
    SOUND[case](world)


@in_world
def test_nothing_of_a_text_is_kept_and_old_rows_are_forgotten(world: World) -> None:
    stop(world, "apologies")
    world.breaker.save()
    written = str(report(world, "SELECT * FROM loops") + report(world, "SELECT * FROM incidents"))
    assert "chain|" in written
    assert not [word for word in ("apologise", "wrong", "right", "continue") if word in written]
    world.wait(31 * DAY)
    world.breaker.forget()
    assert report(world, "SELECT * FROM loops") == []


@in_world
def test_what_one_process_stops_and_counts_another_knows(world: World) -> None:
    """They read what the others wrote, every second."""
    first, second = world.breaker, LoopBreaker(world.loops, world.clock, Renamed(world.journal))

    def share() -> None:
        for breaker in (first, second):
            breaker.save()
            changed = report(world, "SELECT id, document FROM loops")
            for other in (first, second):
                other.merge((row["id"], row["document"]) for row in changed)

    stop(world, "same_request_in_a_session")
    share()
    world.breaker = second
    assert not world.passes("agent", world.prose(30), "task")
    assert world.passes("agent", world.prose(30), "another")
    world.wait(61 * MINUTE)
    assert world.passes("agent", world.prose(30), "task")
    again = [user("Is the big red door open, or is it shut?")]
    for number in range(150):
        world.breaker = (first, second)[number % 2]
        if not world.passes("monitor", again):
            break
        share()
    assert 115 < number < 130


@each_row("case", ["stuck_tool", "apologies", "agents", "echo_in_a_transcript", "three_calls_in_a_circle"])
@in_world
def test_a_loop_is_stopped_whose_turns_three_processes_serve(world: World, case: str) -> None:
    """Each judges what the others served; of turns that are word for word the same it counts its own."""
    breakers = [LoopBreaker(world.loops, world.clock, Renamed(world.journal)) for _ in range(3)]
    world.before = lambda: setattr(world, "breaker", world.random.choice(breakers))
    stop(world, case)
    assert world.requests <= ENDLESS[case][1] * (1 if case in ("stuck_tool", "apologies", "agents") else 3)


@in_world
def test_requests_that_were_never_settled_harm_no_other(world: World) -> None:
    for _ in range(200):
        world.begin("agent", "the same", session="s")
