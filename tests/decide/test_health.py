"""The circuit breaker: closed, open, half-open with one probe, and the upstream's own wish to rest."""

from itertools import pairwise

import pytest

from router.decide.health import FIRST_REST_S, LONGEST_REST_S, SUSPENSION_S, TRIP_AFTER, Health


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def health(clock: Clock) -> Health:
    return Health(clock)


def trip(health: Health, times: int = TRIP_AFTER) -> None:
    for _ in range(times):
        health.failed("t", trips=True)


def test_a_target_that_nobody_asked_is_healthy(health: Health) -> None:
    assert health.resting("t") == 0
    assert health.admit("t")
    assert health.snapshot() == {}


def test_the_circuit_opens_at_the_last_of_the_failures_in_a_row(health: Health) -> None:
    trip(health, TRIP_AFTER - 1)
    assert health.admit("t")
    assert health.snapshot() == {"t": "failing"}
    trip(health, 1)
    assert not health.admit("t")
    assert health.resting("t") == FIRST_REST_S
    assert health.snapshot() == {"t": "open"}
    assert health.admit("another")


def test_a_success_between_failures_starts_the_count_anew(health: Health) -> None:
    trip(health, TRIP_AFTER - 1)
    health.succeeded("t")
    trip(health, TRIP_AFTER - 1)
    assert health.admit("t")


def test_failures_that_do_not_trip_are_not_counted(health: Health) -> None:
    for _ in range(3 * TRIP_AFTER):
        health.failed("t", trips=False)
    assert health.admit("t")
    assert health.snapshot() == {}


def test_half_open_lets_one_probe_through_and_its_success_closes(health: Health, clock: Clock) -> None:
    trip(health)
    clock.now += FIRST_REST_S
    assert health.snapshot() == {"t": "half-open"}
    assert [health.admit("t") for _ in range(3)] == [True, False, False]
    health.succeeded("t")
    assert [health.admit("t") for _ in range(3)] == [True, True, True]
    assert health.snapshot() == {}


def test_a_failed_probe_opens_again_for_longer_up_to_a_bound(health: Health, clock: Clock) -> None:
    trip(health)
    rests = [health.resting("t")]
    for _ in range(8):
        clock.now += rests[-1]
        assert health.admit("t")
        health.failed("t", trips=True)
        rests.append(health.resting("t"))
    assert rests[-1] == LONGEST_REST_S
    assert all(later == min(2 * sooner, LONGEST_REST_S) for sooner, later in pairwise(rests))


def test_an_abandoned_probe_is_given_to_the_next_caller(health: Health, clock: Clock) -> None:
    trip(health)
    clock.now += FIRST_REST_S
    assert health.admit("t")
    health.abandoned("t")
    assert [health.admit("t") for _ in range(2)] == [True, False]


def test_a_probe_that_meets_a_rate_limit_is_given_back(health: Health, clock: Clock) -> None:
    trip(health)
    clock.now += FIRST_REST_S
    assert health.admit("t")
    health.failed("t", trips=False)
    assert health.admit("t")


@pytest.mark.parametrize(("wish", "rest"), [(3.0, 3.0), (10_000.0, LONGEST_REST_S)])
def test_retry_after_is_kept_without_opening_the_circuit(
    health: Health, clock: Clock, wish: float, rest: float
) -> None:
    health.failed("t", trips=False, retry_after_s=wish)
    assert not health.admit("t")
    assert health.resting("t") == rest
    assert health.snapshot() == {"t": "resting"}
    clock.now += rest
    assert [health.admit("t") for _ in range(3)] == [True, True, True]


def test_requests_that_fail_together_open_the_circuit_for_the_first_rest_only(health: Health) -> None:
    """All were in flight when the upstream died: that is one outage, not many failed probes."""
    trip(health, 40)
    assert health.resting("t") == FIRST_REST_S


def test_a_late_failure_does_not_prolong_the_rest(health: Health, clock: Clock) -> None:
    trip(health)
    clock.now += 3
    health.failed("t", trips=True)
    assert health.resting("t") == FIRST_REST_S - 3


def test_the_longer_of_retry_after_and_the_own_rest_counts(health: Health) -> None:
    trip(health, TRIP_AFTER - 1)
    health.failed("t", trips=True, retry_after_s=4 * FIRST_REST_S)
    assert health.resting("t") == 4 * FIRST_REST_S


def test_a_suspension_outlives_answers_and_failures_and_ends_with_its_hour_or_the_policy(
    health: Health, clock: Clock
) -> None:
    health.suspend("t")
    health.succeeded("t")
    health.failed("t", trips=True)
    assert health.resting("t") == SUSPENSION_S
    assert not health.admit("t")
    assert health.snapshot() == {"t": "region mismatch"}
    assert health.resting("u") == 0
    clock.now += SUSPENSION_S
    assert health.admit("t")
    assert health.snapshot() == {"t": "failing"}
    health.suspend("t")
    health.pardon()
    assert health.admit("t")
