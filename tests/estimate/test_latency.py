"""How long targets take: what is forgotten, and how much they write at once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.estimate.latency import PRIOR_FIRST_MS, Pace


def paced(
    times: int, *, first_ms: int | None = 500, total_ms: int = 2_500, output: int = 100, pace: Pace | None = None
) -> Pace:
    known = pace or Pace()
    for number in range(times):
        known.observe(first_ms=first_ms, total_ms=total_ms, output=output, ended_ms=(number + 1) * 10_000)
    return known


def test_what_was_seen_often_is_what_is_expected_and_once_says_little() -> None:
    """The first byte's time is no part of what a token takes."""
    pace = paced(300)
    assert [pace.first_ms, pace.ms_per_token] == pytest.approx([500, 20], rel=0.06)
    assert pace.sd < 0.25
    assert paced(1, first_ms=50).first_ms == pytest.approx(PRIOR_FIRST_MS, rel=0.6)


def test_a_change_of_pace_is_seen_within_some_dozen_requests() -> None:
    pace = paced(60, total_ms=20_500, pace=paced(500, total_ms=2_500))
    assert pace.ms_per_token > 100
    assert pace.sd > 0.5


def test_without_a_stream_nothing_is_learned_of_the_first_byte() -> None:
    pace = paced(300, first_ms=None)
    assert pace.first_ms == pytest.approx(PRIOR_FIRST_MS)
    assert pace.first_ms + 100 * pace.ms_per_token == pytest.approx(2_500, rel=0.06)


def test_odd_times_are_no_error() -> None:
    """Quicker than the usual first byte; no time at all, or nothing written, which says nothing."""
    assert 0 < paced(50, first_ms=None, total_ms=5).ms_per_token < 5
    for total_ms, output in ((0, 10), (10, 0), (-5, 10)):
        assert paced(5, total_ms=total_ms, output=output) == Pace()


def test_throughput_is_of_all_requests_at_once_and_idle_time_does_not_count() -> None:
    """Four at a time, of 100 tokens in a second each."""
    pace = Pace()
    for number in range(396):
        pace.observe(first_ms=None, total_ms=1_000, output=100, ended_ms=(number // 4 + 1) * 1_000)
    assert pace.throughput == pytest.approx(400, rel=0.05)
    assert paced(100, total_ms=1_000, output=100).throughput == pytest.approx(100, rel=0.01)


def test_a_long_request_that_others_ran_in_counts_once_from_its_beginning() -> None:
    pace = Pace()
    for began, ended in ((500, 600), (700, 800), (0, 1_000)):
        pace.observe(first_ms=None, total_ms=ended - began, output=1, ended_ms=ended)
    assert pace.busy_ms == pytest.approx(1_000, rel=0.02)


@given(st.lists(st.tuples(st.integers(0, 100_000), st.integers(1, 20_000)), min_size=1, max_size=12))
def test_time_counts_once_in_any_order(spans: list[tuple[int, int]]) -> None:
    """But for what is forgotten: at most 3 % with every request."""
    pace, covered = Pace(), set[int]()
    for began, length in spans:
        pace.observe(first_ms=None, total_ms=length, output=1, ended_ms=began + length)
        covered |= set(range(began, began + length))
    assert len(covered) * 0.97 ** len(spans) <= pace.busy_ms * (1 + 1e-9)
    assert pace.busy_ms <= len(covered) * (1 + 1e-9)
