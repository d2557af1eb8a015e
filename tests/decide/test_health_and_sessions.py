"""What a gateway keeps in mind: circuit breakers of targets (closed, open, half-open, resting), and sessions."""

import random
from functools import partial

import pytest

from router.decide.health import (
    FIRST_REST_S,
    LONGEST_REST_S,
    LONGEST_RUN,
    LONGEST_WISH_S,
    PATIENT_MS,
    SUSPENSION_S,
    TRIP_AFTER,
    WARM,
    Health,
)
from router.decide.profile import MOST_SESSIONS, NEW, SessionState, SessionStates
from tests.tables import each_row


class Circuits(Health):
    def __init__(self) -> None:
        self.now = 1_000.0
        super().__init__(lambda: self.now)
        for _ in range(200):
            self.succeeded("t")

    def trip(self, times: int = TRIP_AFTER) -> None:
        for _ in range(times):
            self.failed("t", trips=True)

    def admits(self, times: int = 3) -> list[bool]:
        return [self.admit("t") for _ in range(times)]


@pytest.fixture
def health() -> Circuits:
    return Circuits()


def test_the_circuit_opens_at_the_last_of_the_failures_in_a_row_that_trip(health: Circuits) -> None:
    assert (health.resting("t"), health.snapshot()) == (0, {})
    for _ in range(3 * TRIP_AFTER):
        health.failed("t", trips=False)
    assert (health.admit("t"), health.snapshot()) == (True, {})
    health.trip(TRIP_AFTER - 1)
    assert (health.admit("t"), health.snapshot()) == (True, {"t": "failing"})
    for _ in range(50):
        health.succeeded("t")
    health.trip(TRIP_AFTER - 1)
    assert health.admit("t"), "a success starts the count anew"
    health.trip(1)
    assert (health.admit("t"), health.resting("t"), health.snapshot()) == (False, FIRST_REST_S, {"t": "open"})
    assert health.admit("another")


def test_requests_that_fail_together_are_one_outage_and_a_failed_probe_opens_again_for_longer(health: Circuits) -> None:
    """All were in flight when the upstream died: no failed probes, and the last does not prolong the rest."""
    health.trip(40)
    assert health.resting("t") == FIRST_REST_S
    health.now += FIRST_REST_S / 4
    health.failed("t", trips=True)
    assert health.resting("t") == FIRST_REST_S * 3 / 4
    health.now += FIRST_REST_S * 3 / 4
    rest = FIRST_REST_S
    for _ in range(8):
        assert health.admit("t")
        health.failed("t", trips=True)
        rest = min(2 * rest, LONGEST_REST_S)
        assert health.resting("t") == rest
        health.now += rest
    assert rest == LONGEST_REST_S


def test_half_open_lets_one_probe_through_until_one_succeeds(health: Circuits) -> None:
    """One that is abandoned or meets a rate limit is given to the next caller."""
    health.trip()
    health.now += FIRST_REST_S
    assert health.snapshot() == {"t": "half-open"}
    assert health.admits() == [True, False, False]
    health.abandoned("t")
    assert health.admits() == [True, False, False]
    health.failed("t", trips=False)
    assert health.admits() == [True, False, False]
    assert [health.admit("t", last=True) for _ in range(8)].count(True) == 6, "those with no other place, at its rate"
    health.succeeded("t")
    assert health.admits() == [True] * 3


def test_a_request_without_another_target_waits_for_no_longer_than_a_first_rest(health: Circuits) -> None:
    health.trip()
    for _ in range(4):
        health.now += health.resting("t")
        assert health.admit("t")
        health.failed("t", trips=True)
    health.now += FIRST_REST_S
    assert (health.admit("t"), health.resting("t", alone=True), health.admit("t", last=True)) == (False, 0.0, True)


@each_row("wish, rest", [(3.0, 3.0), (10_000.0, LONGEST_WISH_S)])
def test_retry_after_is_kept_without_opening_the_circuit(wish: float, rest: float) -> None:
    health = Circuits()
    health.failed("t", trips=True, retry_after_s=wish)
    assert health.admits() == [True] * 3, "one failure is no outage, whatever it wishes"
    health.succeeded("t")
    health.failed("t", trips=False, limited=True, retry_after_s=wish)
    assert (health.admit("t"), health.resting("t"), health.snapshot()) == (False, rest, {"t": "resting"})
    health.now += rest
    assert health.admits() == [True] * 3
    health.trip(TRIP_AFTER - 1)
    health.failed("t", trips=True, retry_after_s=4 * FIRST_REST_S)
    assert health.resting("t") == 4 * FIRST_REST_S, "the longer of it and the own rest"


def test_only_an_outage_closes_a_target_off() -> None:
    """Failing at random, however often, it goes on: its answers are as many as it has; dead, it rests."""
    for rate in (0.9, 0.5, 0.3):
        draw, health, answered = random.Random(7), Circuits(), 0  # noqa: S311
        for _ in range(5_000):
            health.now += 0.01
            if not health.admit("t"):
                continue
            if draw.random() < rate:
                health.succeeded("t")
                answered += 1
            else:
                health.failed("t", trips=True)
        assert answered / 5_000 > rate - 0.03, rate
        health.trip(LONGEST_RUN)
        assert not health.admit("t")


def test_where_there_is_a_choice_a_target_has_the_share_that_its_success_rate_is() -> None:
    health = Circuits()
    assert not any(health.unwell("t")[1] for _ in range(100))
    for number in range(200):
        (health.succeeded if number % 3 else partial(health.failed, trips=True))("t")
    assert health.snapshot() == {"t": "degraded"}
    assert 60 < sum(not health.unwell("t")[1] for _ in range(100)) < 75
    for _ in range(30):
        health.succeeded("t")
    assert (health.unwell("t")[1], health.snapshot()) == (frozenset(), {})
    health.took("new", PATIENT_MS, None, 100, at_least=True)
    assert health.unwell("new")[1], "it has never answered within a deadline"


@each_row("first_ms, later", [(None, 1), (500, 10), (500, 1)])
def test_a_target_that_is_ten_times_as_slow_has_a_tenth_until_it_is_quick_again(
    first_ms: int | None, later: int
) -> None:
    """Whole answers, streams, and streams that begin as quickly as ever."""
    health = Circuits()

    def answer(times: int, slower: int = 1) -> None:
        for output in range(times):
            health.took("t", (1_000 + 16 * output) * slower, first_ms and first_ms * min(later, slower), output)

    answer(2 * WARM)
    assert not health.unwell("t")[1]
    answer(3, slower=10)
    assert sum(not health.unwell("t")[1] for _ in range(1_000)) in (99, 100)
    for _ in range(100):
        answer(20, slower=5)
    assert health.snapshot() == {"t": "degraded"}, "it is not forgotten how quick it was"
    answer(5)
    assert not health.unwell("t")[1]


@each_row("outputs", [(1_500, 6), (6, 1_500)])
def test_short_answers_after_long_ones_are_not_slow_nor_the_reverse(outputs: tuple[int, int]) -> None:
    """A third of a second to begin, and 2,000 tokens in a second."""
    health = Circuits()
    for output in (outputs[0],) * 20 + (outputs[1],) * 20:
        health.took("t", 300 + output / 2, None, output)
    assert not health.unwell("t")[1]


def test_a_suspension_outlives_answers_and_failures_and_ends_with_its_hour_or_the_policy(health: Circuits) -> None:
    health.suspend("t")
    health.succeeded("t")
    health.failed("t", trips=True)
    assert (health.resting("t"), health.admit("t")) == (SUSPENSION_S, False)
    assert (health.resting("u"), health.snapshot()) == (0, {"t": "region mismatch"})
    health.now += SUSPENSION_S
    assert (health.admit("t"), health.snapshot()) == (True, {"t": "failing"})
    health.suspend("t")
    health.pardon()
    assert health.admit("t")


def test_a_session_adds_up_and_the_one_that_is_unused_for_longest_is_forgotten() -> None:
    recall = SessionStates()
    recall.note("s", "a", 5, 1_000)
    recall.note("s", "b", 7, 2_000)
    assert recall.of("s") == SessionState("b", 12, 2, 1_000)
    recall.note("s", "", 0, 3_000)
    assert recall.of("s") == SessionState("b", 12, 3, 1_000), "without an answer, who answered before stays"
    assert recall.of("other") == NEW
    for number in [*range(MOST_SESSIONS), 0, MOST_SESSIONS]:
        recall.note(str(number), "a", 1, 0)
    assert (recall.of("1"), recall.of("0").calls) == (NEW, 2)
