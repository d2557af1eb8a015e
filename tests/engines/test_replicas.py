"""Which replica a request goes to: where its beginning is known, unless that one is busy, or not there."""

import json
import subprocess
import sys
from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as some
from msgspec import structs

from router.api.parse import parse
from router.engines.affinity import LONGEST, conversation
from router.engines.replicas import FIRST_REST_MS, LONGEST_REST_MS, SPREAD, Replicas
from router.types.engine import Status
from router.types.request import Endpoint, Request
from router.types.target import Target
from tests.engines.values import SECRET, Clock, engine, picked, said, state, talk, urls
from tests.tables import each_row

FOUR = urls(4)
PLACE = engine(FOUR)
TALKS = [talk(number) for number in range(400)]
IDLE = {Status.STARTING, Status.DRAINING, Status.SLEEPING, Status.RESTARTING, Status.FAILED, Status.STOPPED}

SYSTEM, FIRST = {"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is a fjord?"}
ANSWER, NEXT = {"role": "assistant", "content": "A drowned valley."}, {"role": "user", "content": "Where?"}
TOOLS = [{"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}]
PARTS = {"role": "user", "content": [{"type": "text", "text": "What is a fjord?"}]}
LONG = "So it was, and so it will be. " * 100
CHAT, RESPONSES, COMPLETIONS = Endpoint.CHAT, Endpoint.RESPONSES, Endpoint.COMPLETIONS


def conversation_of(endpoint: Endpoint, headers: dict[str, str] | None = None, **body: Any) -> int:
    raw = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
    return conversation(parse(endpoint, "r", json.dumps({"model": "m", **body}).encode(), raw), SECRET)


@each_row(
    "endpoint, before, after",
    [
        (CHAT, {"messages": [SYSTEM, FIRST]}, {"messages": [SYSTEM, FIRST, ANSWER, NEXT]}),
        (CHAT, {"messages": [FIRST]}, {"messages": [FIRST, ANSWER, NEXT]}),
        (CHAT, {"messages": [SYSTEM, PARTS]}, {"messages": [SYSTEM, PARTS, ANSWER, NEXT]}),
        (CHAT, {"messages": [SYSTEM, FIRST], "tools": TOOLS}, {"messages": [SYSTEM, FIRST, ANSWER], "tools": TOOLS}),
        (RESPONSES, {"input": [FIRST]}, {"input": [FIRST, ANSWER, NEXT]}),
        (RESPONSES, {"instructions": "Brief.", "input": "Hi"}, {"instructions": "Brief.", "input": "Hi", "top_p": 1}),
        (COMPLETIONS, {"prompt": LONG}, {"prompt": LONG + "And then it was not."}),
    ],
)
def test_a_conversation_is_known_by_its_beginning(
    endpoint: Endpoint, before: dict[str, Any], after: dict[str, Any]
) -> None:
    assert conversation_of(endpoint, **before) == conversation_of(endpoint, **after)


@each_row(
    "endpoint, one, other",
    [
        (CHAT, {"messages": [SYSTEM, FIRST]}, {"messages": [SYSTEM, NEXT]}),
        (CHAT, {"messages": [SYSTEM, FIRST]}, {"messages": [FIRST]}),
        (RESPONSES, {"instructions": "Be brief.", "input": "Hi"}, {"instructions": "Be brief.", "input": "Ho"}),
        (COMPLETIONS, {"prompt": "Once"}, {"prompt": "Twice"}),
    ],
)
def test_others_are_told_apart(endpoint: Endpoint, one: dict[str, Any], other: dict[str, Any]) -> None:
    assert conversation_of(endpoint, **one) != conversation_of(endpoint, **other)


def test_a_session_is_one_whatever_is_said_in_it_and_only_a_long_beginning_counts() -> None:
    named = {"x-lowpass-session": "s"}
    assert conversation_of(CHAT, named, messages=[FIRST]) == conversation_of(CHAT, named, messages=[SYSTEM, NEXT])
    assert conversation_of(CHAT, named, messages=[FIRST]) != conversation_of(CHAT, messages=[FIRST])
    document = "word " * LONGEST
    questions = [{"role": "user", "content": document + question} for question in ("Who?", "When?")]
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
        "from tests.engines.test_replicas import homes; from tests.engines.values import SECRET;"
        "from router.engines.replicas import Replicas; print(*homes(Replicas(SECRET)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
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
    fair = SPREAD * requests / count
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
    assert rests[:3] == [FIRST_REST_MS, 2 * FIRST_REST_MS, 4 * FIRST_REST_MS]
    assert rests[-1] == LONGEST_REST_MS
    replicas.succeeded(home)
    assert {picked(replicas, PLACE, talk(1)) for _ in range(3)} == {home}


def test_a_target_fails_as_a_whole_when_its_last_replica_does() -> None:
    replicas, alone = Replicas(SECRET, Clock()), engine(urls(1))
    assert [replicas.failed(PLACE, url) for url in FOUR] == [False, False, False, True]
    assert not replicas.spare(PLACE)
    assert set(homes(replicas)) == set(FOUR), "there is no other"
    replicas = Replicas(SECRET)
    assert picked(replicas, alone, talk(1)) == alone.base_url
    assert replicas.failed(alone, alone.base_url)
    assert not replicas.spare(alone)


def test_those_that_were_tried_are_asked_again_only_when_all_were() -> None:
    replicas, tried = Replicas(SECRET), list[str]()
    for _ in FOUR:
        tried.append(replicas.pick(PLACE, talk(1), tried))
    assert sorted(tried) == sorted(FOUR)
    assert replicas.pick(PLACE, talk(1), tried) in FOUR


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
