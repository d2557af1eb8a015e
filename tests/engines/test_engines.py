"""Engines with replicas: which one a request goes to, and how long it would wait there."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some
from msgspec import structs

from router.api.parse import parse
from router.decide import replicas as engines
from router.decide.replicas import Fleet, Replicas, conversation
from router.types.request import Endpoint, Limits, Passage, Request
from router.types.target import EngineState, Load, Queue, ServedEngine, Status, Target
from tests.decide.values import request, target
from tests.dispatch.values import Clock
from tests.tables import each_row

SECRET = b"secret of a ledger"


def urls(count: int) -> tuple[str, ...]:
    return tuple(f"http://127.0.0.1:{number}/v1" for number in range(1, count + 1))


def engine(addresses: Sequence[str], slots: int = 8) -> Target:
    served = ServedEngine(name="e", urls=tuple(addresses), slots=slots)
    return structs.replace(target("local"), base_url=served.urls[0], engine=served)


def said(*texts: tuple[str, str], session: str = "") -> Request:
    passages = [Passage(("messages", number, "content"), text, role) for number, (role, text) in enumerate(texts)]
    return request(passages=tuple(passages), limits=Limits(session=session))


def talk(number: int) -> Request:
    """The beginning of one of many, all under the same instructions."""
    return said(("system", "Be brief."), ("user", f"Question {number}?"))


def state(url: str, status: Status = Status.READY, *, running: int | None = None, at_ms: int = 1) -> EngineState:
    load = None if running is None else Load(at_ms=at_ms, running=running)
    return EngineState(name="e", model="m", status=status, url=url, load=load)


def picked(replicas: Replicas, place: Target, asked: Request) -> str:
    """Of a request that is over at once."""
    url = replicas.pick(place, asked)
    replicas.done(url)
    return url


FOUR = urls(4)
PLACE = engine(FOUR)
TALKS = [talk(number) for number in range(400)]
IDLE = {Status.STARTING, Status.DRAINING, Status.SLEEPING, Status.RESTARTING, Status.FAILED, Status.STOPPED}

SYSTEM, FIRST = {"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is a fjord?"}
ANSWER, NEXT = {"role": "assistant", "content": "A drowned valley."}, {"role": "user", "content": "Where?"}
TOOLS = {"tools": [{"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}]}
BRIEF = {"instructions": "Be brief."}
PARTS = {"role": "user", "content": [{"type": "text", "text": "What is a fjord?"}]}
LONG = "So it was, and so it will be. " * 100
CHAT, RESPONSES, COMPLETIONS = Endpoint.CHAT, Endpoint.RESPONSES, Endpoint.COMPLETIONS


def conversation_of(endpoint: Endpoint, headers: dict[str, str] | None = None, **body: Any) -> int:
    raw = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
    return conversation(parse(endpoint, "r", json.dumps({"model": "m", **body}).encode(), raw), SECRET)


@each_row(
    "same, endpoint, one, other",
    [
        (True, CHAT, {"messages": [SYSTEM, FIRST]}, {"messages": [SYSTEM, FIRST, ANSWER, NEXT]}),
        (True, CHAT, {"messages": [FIRST]}, {"messages": [FIRST, ANSWER, NEXT]}),
        (True, CHAT, {"messages": [SYSTEM, PARTS]}, {"messages": [SYSTEM, PARTS, ANSWER, NEXT]}),
        (True, CHAT, {"messages": [SYSTEM, FIRST], **TOOLS}, {"messages": [SYSTEM, FIRST, ANSWER], **TOOLS}),
        (True, RESPONSES, {"input": [FIRST]}, {"input": [FIRST, ANSWER, NEXT]}),
        (True, RESPONSES, {"instructions": "Be brief.", "input": "Hi"}, {**BRIEF, "input": "Hi", "top_p": 1}),
        (True, COMPLETIONS, {"prompt": LONG}, {"prompt": LONG + "And then it was not."}),
        (False, CHAT, {"messages": [SYSTEM, FIRST]}, {"messages": [SYSTEM, NEXT]}),
        (False, CHAT, {"messages": [SYSTEM, FIRST]}, {"messages": [FIRST]}),
        (False, RESPONSES, {**BRIEF, "input": "Hi"}, {**BRIEF, "input": "Ho"}),
        (False, COMPLETIONS, {"prompt": "Once"}, {"prompt": "Twice"}),
    ],
)
def test_a_conversation_is_known_by_its_beginning(
    same: bool, endpoint: Endpoint, one: dict[str, Any], other: dict[str, Any]
) -> None:
    assert (conversation_of(endpoint, **one) == conversation_of(endpoint, **other)) == same


def test_a_session_is_one_whatever_is_said_in_it_and_only_a_long_beginning_counts() -> None:
    named = {"x-lowpass-session": "s"}
    assert conversation_of(CHAT, named, messages=[FIRST]) == conversation_of(CHAT, named, messages=[SYSTEM, NEXT])
    assert conversation_of(CHAT, named, messages=[FIRST]) != conversation_of(CHAT, messages=[FIRST])
    questions = [{"role": "user", "content": "word " * engines.LONGEST + question} for question in ("Who?", "When?")]
    assert len({conversation_of(CHAT, messages=[SYSTEM, question]) for question in questions}) == 1


def homes(replicas: Replicas, place: Target = PLACE) -> list[str]:
    return [picked(replicas, place, asked) for asked in TALKS]


@given(some.lists(some.tuples(some.sampled_from(["assistant", "user", "tool"]), some.text()), max_size=6), some.text())
def test_a_conversation_keeps_its_replica_as_it_grows(later: list[tuple[str, str]], first: str) -> None:
    begun = (("system", "Be brief."), ("user", first))
    replicas = Replicas(SECRET)
    assert picked(replicas, PLACE, said(*begun)) == picked(replicas, PLACE, said(*begun, *later))


def test_conversations_and_sessions_are_spread_evenly_and_a_session_keeps_its_replica() -> None:
    replicas = Replicas(SECRET)
    share = Counter(homes(replicas))
    assert set(share) == set(FOUR)
    assert max(share.values()) < 1.25 * len(TALKS) / len(FOUR)
    assert homes(replicas) != homes(Replicas(b"another")), "without the secret it can't be foretold"
    words = [said(("user", f"Something else: {number}"), session="s") for number in range(50)]
    assert len({picked(replicas, PLACE, asked) for asked in words}) == 1
    sessions = [said(("user", "Hi"), session=f"s{number}") for number in range(50)]
    assert {picked(replicas, PLACE, asked) for asked in sessions} == set(FOUR)


def test_all_processes_choose_alike() -> None:
    """Python hashes texts by a secret of each process; the second one has another."""
    code = (
        "from tests.engines.test_engines import SECRET, homes;"
        "from router.decide.replicas import Replicas; print(*homes(Replicas(SECRET)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout.split() == homes(Replicas(SECRET))


@each_row("status", sorted(IDLE))
def test_one_that_is_not_ready_gets_nothing_new_and_has_its_own_back_later(status: Status) -> None:
    replicas = Replicas(SECRET)
    before = homes(replicas)
    replicas.hear([state(FOUR[0], status)])
    meanwhile = homes(replicas)
    assert FOUR[0] not in meanwhile
    assert all(new == old for new, old in zip(meanwhile, before, strict=True) if old != FOUR[0]), "others stay"
    replicas.hear([state(FOUR[0])])
    assert homes(replicas) == before


def test_where_none_is_ready_one_that_wakes_is_asked_and_else_any() -> None:
    replicas = Replicas(SECRET)
    replicas.hear([state(url, Status.RESTARTING) for url in FOUR])
    assert set(homes(replicas)) == set(FOUR)
    replicas.hear([state(FOUR[2], Status.SLEEPING)])
    assert set(homes(replicas)) == {FOUR[2]}


@given(some.integers(1, 64), some.integers(2, 6), some.integers(1, 100))
def test_one_conversation_asked_by_all_at_once_is_spread(slots: int, count: int, requests: int) -> None:
    """The same words from everybody, as of a few-shot prompt."""
    addresses = urls(count)
    replicas, place = Replicas(SECRET), engine(addresses, slots)
    for _ in range(requests):
        replicas.pick(place, talk(1))
    loads = [replicas.sent(url) for url in addresses]
    assert sum(loads) == requests
    fair = engines.SPREAD * requests / count
    assert max(loads) <= max(1, slots // 2 + 1, fair + 1)
    if requests <= slots * count:
        assert max(loads) <= slots, "none waits while another has room"
    else:
        assert max(loads) - min(loads) <= max(1, fair)


def test_a_replica_that_others_keep_busy_is_spared() -> None:
    replicas = Replicas(SECRET)
    home = picked(replicas, PLACE, talk(1))
    replicas.hear([state(url, running=0) for url in FOUR])
    replicas.hear([state(home, running=8, at_ms=2)])
    assert picked(replicas, PLACE, talk(1)) != home
    replicas.hear([state(home, running=1, at_ms=3)])
    assert picked(replicas, PLACE, talk(1)) == home


def test_what_a_replica_reports_of_our_own_requests_counts_once() -> None:
    replicas = Replicas(SECRET)
    home = replicas.pick(PLACE, talk(1))
    replicas.pick(PLACE, talk(1))
    replicas.pick(PLACE, talk(1))
    replicas.hear([state(home, running=3)])
    assert picked(replicas, PLACE, talk(1)) == home, "3 of 8 slots; 6 would be too many"


def test_embeddings_go_where_least_is_to_do() -> None:
    replicas = Replicas(SECRET)
    asked: Request = structs.replace(talk(1), endpoint=Endpoint.EMBEDDINGS)
    assert {replicas.pick(PLACE, asked) for _ in FOUR} == set(FOUR)


def test_a_replica_that_failed_rests_longer_each_time_and_one_request_tries_it() -> None:
    clock = Clock()
    replicas = Replicas(SECRET, clock)
    home = picked(replicas, PLACE, talk(1))
    rests = []
    for _ in range(8):
        assert not replicas.failed(PLACE, home), "the others stand ready"
        began = clock.now
        while picked(replicas, PLACE, talk(1)) != home:
            clock.now += 250
        rests.append(clock.now - began)
        assert picked(replicas, PLACE, talk(1)) != home, "the first one tries it for all"
    assert rests[:3] == [engines.FIRST_REST_MS, 2 * engines.FIRST_REST_MS, 4 * engines.FIRST_REST_MS]
    assert rests[-1] == engines.LONGEST_REST_MS
    replicas.succeeded(home)
    assert {picked(replicas, PLACE, talk(1)) for _ in range(3)} == {home}


@each_row("status", sorted(Status))
def test_what_a_replica_was_sent_is_lost_when_it_is_gone(status: Status) -> None:
    """A drained one finishes, a sleeping one had nothing to do; one that failed may be somebody else's, and busy."""
    replicas = Replicas(SECRET)
    replicas.hear([state(url) for url in FOUR])
    gone = status in {Status.STARTING, Status.RESTARTING, Status.STOPPED}
    assert replicas.hear([state(FOUR[0], status)]) == ([FOUR[0]] if gone else [])
    assert replicas.hear([state(FOUR[0], status)]) == [], "told once"


def test_one_that_is_ready_again_need_not_rest() -> None:
    replicas = Replicas(SECRET, Clock())
    home = picked(replicas, PLACE, talk(1))
    replicas.failed(PLACE, home)
    replicas.hear([state(home)])
    assert picked(replicas, PLACE, talk(1)) != home, "nothing is new about it"
    for status in (Status.RESTARTING, Status.READY):
        replicas.hear([state(home, status)])
    assert picked(replicas, PLACE, talk(1)) == home


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
    [((900, 3), 1_000), ((0, 0, 0), 1_000), ((5, 9), engines.LONGEST_MS + 1), ((5, 9), -1)],
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
    for at_ms, running, queue in ((1, 2, Queue(wait_ms=2_000, waiting=1)), (2, 0, None)):
        watched.states = [state(TWO[0], running=9, at_ms=at_ms), state(TWO[1], running=running, at_ms=at_ms)]
        assert watched.queue(place) == queue


@each_row(
    "statuses, queue",
    [
        ([Status.READY, Status.FAILED], None),
        ([Status.STARTING, Status.FAILED], Queue(down="starting")),
        ([Status.STOPPED, Status.RESTARTING], Queue(down="restarting")),
        ([Status.DRAINING, Status.DRAINING], Queue(down="draining")),
        ([Status.SLEEPING, Status.FAILED], Queue(wait_ms=engines.WAKE_MS)),
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
    monkeypatch.setattr(engines, "clock_ms", lambda: now)
    watched.hear(load(1, at_ms=1))
    watched.fleet.refused(place)
    assert watched.queue(place) == Queue(full=True)
    watched.hear(load(1, at_ms=1))
    assert watched.queue(place) == Queue(full=True)
    watched.hear(load(1, at_ms=2))
    assert watched.queue(place) is None
    watched.fleet.refused(place)
    assert watched.queue(place) is not None
    now += engines.REFUSED_MS
    assert watched.queue(place) is None
    watched.fleet.refused(target())


@given(
    some.lists(
        some.builds(
            load, some.integers(0, 9), some.integers(0, 9), at_ms=some.integers(0, 99), finished=some.integers(0)
        )
    )
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
