"""How long somebody else was at work, where several may be so at once."""

from hypothesis import given
from hypothesis import strategies as st

from router.dispatch.waits import Waits

SPANS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=6)


@given(SPANS, st.integers(0, 90))
def test_every_moment_counts_once_however_many_are_at_work(spans: list[tuple[int, int]], now: int) -> None:
    """Against a count of the moments themselves, also while some have not ended."""
    events = [(start, 0) for start, _ in spans if start <= now]
    events += [(start + length, 1) for start, length in spans if start + length <= now]
    waits = Waits()
    for at, ends in sorted(events):
        (waits.end if ends else waits.begin)(at)
    busy = {moment for start, length in spans for moment in range(start, min(start + length, now))}
    assert waits.total(now) == len(busy)
