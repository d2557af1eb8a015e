"""How long a request would wait: by what replicas say, by what this process has sent, by how long requests take."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from router.engines import backlog
from router.engines.fleet import WAKE_MS, Fleet
from router.engines.replicas import Replicas
from router.types.engine import EngineState, Load, Status
from router.types.queue import Queue
from router.types.target import Target
from tests.decide.values import request, target
from tests.engines.values import engine, state, urls
from tests.tables import each_row

ONE, TWO = urls(1)[0], urls(2)
USUAL_MS = 1_000.0


class Watched:
    """A fleet, and what is known of its replicas."""

    def __init__(self, *states: EngineState) -> None:
        self.states: Sequence[EngineState] = states
        self.replicas = Replicas()
        self.fleet = Fleet(self.replicas, lambda: self.states)

    def hear(self, *loads: Load, url: str = ONE) -> None:
        """One after the other, without a question in between."""
        for load in loads:
            self.states = [structs.replace(state(url), load=load)]
            self.fleet.hear(self.states)

    def send(self, place: Target, count: int) -> None:
        for _ in range(count):
            self.replicas.pick(place, request())

    def queue(self, place: Target) -> Queue | None:
        return self.fleet.queue(place, lambda _: USUAL_MS)


def load(running: int = 0, waiting: int = 0, *, at_ms: int = 1, finished: int = 0, cache: float | None = None) -> Load:
    return Load(at_ms=at_ms, running=running, waiting=waiting, finished=finished, kv_cache=cache)


@each_row(
    "said, sent, queue",
    [
        (None, 0, None),
        (None, 3, None),
        (None, 4, Queue(wait_ms=250)),  # of four, one ends every 250 ms
        (None, 6, Queue(wait_ms=750, waiting=2)),
        (load(3), 0, None),
        (load(4), 0, Queue(wait_ms=250)),
        (load(4, 6), 0, Queue(wait_ms=1_750, waiting=6)),
        (load(4, 6), 3, Queue(wait_ms=2_500, waiting=9)),  # it has not seen what was sent since
        (load(0), 5, Queue(wait_ms=500, waiting=1)),
    ],
)
def test_slots_and_what_was_sent_since(said: Load | None, sent: int, queue: Queue | None) -> None:
    watched, place = Watched(state(ONE)), engine([ONE], slots=4)
    watched.hear(*([said] if said else []))
    watched.send(place, sent)
    assert watched.queue(place) == queue


def test_what_the_engine_has_seen_is_not_counted_twice() -> None:
    watched, place = Watched(state(ONE)), engine([ONE], slots=4)
    watched.send(place, 6)
    watched.hear(load(4, 2))
    assert watched.queue(place) == Queue(wait_ms=750, waiting=2)
    for _ in range(4):
        watched.replicas.done(ONE)
    assert watched.queue(place) is None


def test_targets_of_one_engine_share_its_queue_and_others_have_none() -> None:
    watched, place = Watched(state(ONE)), engine([ONE], slots=2)
    watched.send(structs.replace(place, id="adapter"), 2)
    assert watched.queue(place) == Queue(wait_ms=500)
    assert watched.queue(target()) is None


def test_the_time_that_requests_take_is_measured() -> None:
    """Two at a time, one ending every two seconds: each takes four; and the usual second counts as one of them."""
    watched, place = Watched(state(ONE)), engine([ONE], slots=2)
    watched.hear(*(load(2, 2, at_ms=1 + 2_000 * number, finished=5 + number) for number in range(200)))
    queue = watched.queue(place)
    assert queue is not None
    # Of 30 s of half-life some twenty count: (20 · 4 + 1) / 21 each, three have to end, two at a time.
    assert queue.wait_ms == pytest.approx(3 * 3_870 / 2, rel=0.02)


@each_row(
    "counts, apart_ms",
    [((900, 3), 1_000), ((0, 0, 0), 1_000), ((5, 9), backlog.LONGEST_MS + 1), ((5, 9), -1)],
    ids=["it started anew", "it does not count", "too far apart", "the clock was set"],
)
def test_what_can_t_be_known_teaches_nothing(counts: tuple[int, ...], apart_ms: int) -> None:
    watched, place = Watched(state(ONE)), engine([ONE], slots=2)
    watched.hear(*(load(2, 1, at_ms=9 + apart_ms * number, finished=count) for number, count in enumerate(counts)))
    assert watched.queue(place) == Queue(wait_ms=1_000, waiting=1)


@each_row(
    "loads, slots",
    [
        ([load(2, 3, at_ms=1)], 8),  # a moment may look so
        ([load(2, 3, at_ms=1), load(2, 3, at_ms=2)], 2),
        ([load(2, 0, at_ms=1, cache=0.97)], 2),
        ([load(2, 0, at_ms=1, cache=0.97), load(2, 0, at_ms=2, cache=0.5)], 8),
        ([load(0, 3, at_ms=1), load(0, 3, at_ms=2)], 8),
    ],
)
def test_an_engine_without_memory_left_has_fewer_slots(loads: list[Load], slots: int) -> None:
    watched, place = Watched(state(ONE)), engine([ONE], slots=8)
    watched.hear(*loads)
    waiting = loads[-1].running + loads[-1].waiting - slots
    expected = Queue(wait_ms=int((waiting + 1) * USUAL_MS / slots), waiting=waiting) if waiting >= 0 else None
    assert watched.queue(place) == expected


def test_the_best_replica_counts() -> None:
    watched, place = Watched(), engine(TWO, slots=1)
    watched.states = [state(TWO[0], running=9), state(TWO[1], running=2)]
    assert watched.queue(place) == Queue(wait_ms=2_000, waiting=1)
    watched.states = [state(TWO[0], running=9, at_ms=2), state(TWO[1], running=0, at_ms=2)]
    assert watched.queue(place) is None


@each_row(
    "statuses, queue",
    [
        ([Status.READY, Status.FAILED], None),
        ([Status.STARTING, Status.FAILED], Queue(down="starting")),
        ([Status.STOPPED, Status.RESTARTING], Queue(down="restarting")),
        ([Status.DRAINING, Status.DRAINING], Queue(down="draining")),
        ([Status.SLEEPING, Status.FAILED], Queue(wait_ms=WAKE_MS)),
        ([Status.SLEEPING, Status.READY], None),
    ],
)
def test_one_that_is_up_counts_and_else_why_none_is(statuses: list[Status], queue: Queue | None) -> None:
    states = [state(url, status) for url, status in zip(TWO, statuses, strict=True)]
    assert Watched(*states).queue(engine(TWO)) == queue
    assert Watched().queue(engine(TWO)) is None, "what is not watched is taken to be up"


def test_one_that_turned_a_request_away_is_full_until_it_reports_again_or_a_while_has_passed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watched, place, now = Watched(state(ONE)), engine([ONE]), 5_000.0
    monkeypatch.setattr(backlog, "clock_ms", lambda: now)
    watched.hear(load(1, at_ms=1))
    watched.fleet.refused(place)
    assert watched.queue(place) == Queue(full=True)
    watched.hear(load(1, at_ms=1))
    assert watched.queue(place) == Queue(full=True)
    watched.hear(load(1, at_ms=2))
    assert watched.queue(place) is None
    watched.fleet.refused(place)
    assert watched.queue(place) is not None
    now += backlog.REFUSED_MS
    assert watched.queue(place) is None
    watched.fleet.refused(target())


@given(
    st.lists(st.builds(load, st.integers(0, 9), st.integers(0, 9), at_ms=st.integers(0, 99), finished=st.integers(0)))
)
def test_whatever_it_says_a_wait_is_a_time(loads: list[Load]) -> None:
    watched, place = Watched(state(ONE)), engine([ONE], slots=3)
    watched.hear(*loads)
    queue = watched.queue(place)
    assert queue is None or (queue.wait_ms >= 0 and queue.waiting >= 0 and not queue.down)


def test_more_requests_never_wait_less() -> None:
    watched, place = Watched(state(ONE)), engine([ONE], slots=3)
    waits = []
    for _ in range(12):
        found = watched.queue(place)
        waits.append(found.wait_ms if found else 0)
        watched.send(place, 1)
    assert waits == sorted(waits)
    assert waits[-1] > waits[3] > waits[2] == 0
