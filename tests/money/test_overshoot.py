"""Crowds and long streams at budgets with room for a few: never a nano-dollar too much, nobody refused who fits."""

import json
import random
import sqlite3
import threading
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import count, product
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from router.dispatch import hold, meter
from router.testing.upstream import WORD, Answer, Ask, Behaviour, Break, Tokens, Upstream
from router.testing.upstream.behaviours import Framing, built_in
from tests.gateway.running import MESSAGES, Gateway, Process, Reply, local, serving, target, until
from tests.money import books
from tests.money.books import CAP, COST, IN, NANO, OUT, PRICE, account, budgets, row_of, rules, thoughts, within
from tests.money.crowd import Wish, crowd
from tests.tables import each_row

CROWD = 500
ROOM = 10
KINDS = {"cold-plain": False, "cold-stream": True, "warm-plain": False, "warm-stream": True}
"""Routes with targets of their own, and whether they are asked for streams."""
THINKERS: Mapping[str, dict[str, Any]] = {
    "exact": {"contract": "exact", "levels": ["none", "low", "high"], "tokens": [0, 100, 400], "streamed": True},
    "unasked": {"contract": "exact", "levels": ["none", "high"], "tokens": [0, 400], "streamed": True},
    "level": {"contract": "level", "levels": ["none", "low", "high"], "tokens": [0, 100, 400]},
    "switch": {"contract": "switch", "levels": ["on"], "tokens": [400]},
    "hidden": {"contract": "always_on", "levels": ["on"], "tokens": [400]},
}


THINKS = {"contract": "always_on", "levels": ["high"], "tokens": [400], "streamed": True}
EXACT = {"contract": "exact", "levels": ["none", "high"], "tokens": [0, 3000], "minimum": 1, "streamed": True}
TURNS = ("7", "\u4eca", "\U0001f680", "xq", "{[", WORD)
"""A token each of tables, Chinese, emoji, random letters and marks; or words that come when all are written."""
ENDS = [(1, 1, True), (1, 1, False), (60, 1, True), (1, 4, True), (20, 4, False)]
"""Of 300 tokens, caps ignored: words in a piece, choices, and whether a stream is asked for."""
PAST = (1, 2, 4, 8)
"""Choices of streams that run on past their caps."""
THOUGHTFUL = 20 * IN + 320 * OUT
SPOKEN = {"rich": "warmed", "poor": "talker", "whole": "talker", "thought": "thinker"}
SPOKEN |= {"mind": "thinker", "slowly": "thinker", "unbound": "thinker", "exactly": "exact", "short": "brief"}
SPOKEN |= {"calm": "calm-thinker", "past": "runs-past", "ran-past": "runs-past", "billed": "to-its-end"}


def policy(url: str) -> dict[str, Any]:
    small, turns = (ROOM * COST + COST // 2) / NANO, [f"turns-{number}" for number in range(len(TURNS))]
    turns += (f"ends-{number}" for number in range(len(ENDS)))
    turns += (f"{kind}-{n}" for kind in ("past", "large") for n in PAST)
    wide: dict[str, Any] = {"price": PRICE, "max_output": 5_000}
    spoken = {"chatty": "say-400-ms-2", "left": "say-400-ms-2@left", "known": "say-400-ms-2@known"}
    longer = {"talker": "say-600-ms-1", "warmed": "say-3000", "brief": "say-300-ms-4"}
    targets = {f"at-{name}": target(url, "say-40-ms-2", price=PRICE) for name in KINDS}
    targets |= {"paced": target(url, "say-40-ms-5", price=PRICE)}
    targets |= {"runs-past": target(url, "say-20-think-300-ms-1-deaf", thinking=THINKERS["hidden"], **wide)}
    targets |= {name: target(url, model, **wide) for name, model in spoken.items()}
    targets |= {"to-its-end": target(url, "say-400-ms-2@billed", abandoned="read_on", **wide)}
    for name, thinking in THINKERS.items():
        place = local if thinking.get("streamed") else target
        targets[f"thinks-{name}"] = place(url, "say-20-think-300-ms-1", thinking=thinking, **wide)
    wide["max_output"] = 20_000
    targets |= {name: target(url, model, **wide) for name, model in longer.items()}
    for name, thinking in {"thinker": THINKS, "exact": EXACT}.items():
        targets[name] = local(url, "say-20-think-3000-ms-1", thinking=thinking, **wide)
    targets["calm-thinker"] = local(url, "say-1500-think-100-ms-1", thinking=THINKS, **wide)
    routes = {f"{kind}{name}": f"at-{name}" for kind in ("", "warm-up/") for name in KINDS}
    routes |= {f"mind/{name}": f"thinks-{name}" for name in THINKERS}
    routes |= {"last": "thinks-hidden", "grows": "chatty", "leavers": "left", "late-leavers": "known"}
    targets |= {f"at-{turn}": target(url, turn, **wide) for turn in turns}
    routes |= {f"{kind}{turn}": f"at-{turn}" for turn in turns for kind in ("", "warm-up/")}
    limits = dict.fromkeys(KINDS, small) | {"grows": 0.5, "billed": 0.5, "leavers": 0.5, "kills": 0.3, "past": 0.33}
    limits |= dict.fromkeys(turns[:-8], 0.5)
    limits |= {f"ends-{i}": (200 * IN + (4 * 300 + 290) * n * OUT) / NANO for i, (_, n, _) in enumerate(ENDS)}
    limits |= {"late-leavers": (20 * IN + 410 * OUT) / NANO}
    limits |= {"poor": 0.12, "whole": 0.12, "thought": 0.15, "last": 12.5 * THOUGHTFUL / NANO}
    rich = {"id": "rich", "limit_usd": 20, "window": "day", "routes": ["rich", "short"]}
    minds = thoughts({f"mind/{name}": 3_000 for name in THINKERS} | {"exactly": 1_500, "calm": 1_200})
    minds += thoughts({"mind": 1_500, "slowly": 7_000})
    pots = [
        {
            "id": f"past-{n}",
            "limit_usd": ((5_120 + 200 * n) * OUT + 400 * IN) / NANO,
            "window": "lifetime",
            "routes": [f"past-{n}", f"large-{n}"],
        }
        for n in PAST
    ]
    return rules(targets, {**routes, **SPOKEN, "kills": "paced"}, [*budgets(limits), rich, *minds, *pots])


def served_and_refused(replies: list[Reply]) -> tuple[int, int]:
    statuses = Counter(reply.status for reply in replies)
    assert set(statuses) <= {200, 402}, statuses
    return statuses[200], statuses[402]


@each_row("kind", KINDS)
def test_500_at_once_get_what_is_there_for_10(gateway: Gateway, kind: str) -> None:
    if kind.startswith("warm"):
        assert {reply.status for reply in crowd(gateway, [Wish(f"warm-up/{kind}", CAP)] * 30)} == {200}
    replies = crowd(gateway, [Wish(kind, {**CAP, "stream": KINDS[kind]})] * CROWD)
    assert served_and_refused(replies) == (ROOM, CROWD - ROOM)
    rows = gateway.rows("SELECT cost, held, overrun FROM requests WHERE route = ? AND status = 200", kind)
    assert [(row["cost"], row["overrun"]) for row in rows] == [(COST, 0)] * ROOM
    assert all(row["held"] >= row["cost"] for row in rows)
    assert account(gateway, kind) == (ROOM * COST, 0)


@each_row("route, stream", [("grows", False), ("grows", True), ("billed", True)])
def test_streams_that_grow_share_what_is_there(gateway: Gateway, route: str, stream: bool) -> None:
    """None is stopped that would be billed to its end all the same."""
    replies = crowd(gateway, [Wish(route, {"stream": stream})] * 100)
    served, _ = served_and_refused(replies)
    assert within(gateway, route) > 0.8 * 0.5
    rows = [row_of(gateway, reply) for reply in replies]
    assert sum(row["status"] == 200 and row["error"] == "budget_exceeded" for row in rows) <= served / 4
    assert {row["overrun"] for row in rows} == {0}
    assert route == "grows" or {attempt["usage_source"] for row in rows for attempt in row["attempts"]} == {"reported"}


@each_row("contract", THINKERS)
def test_thinking_tokens_are_never_overspent(gateway: Gateway, contract: str) -> None:
    """A model that is told nothing, as its levels are none and high, may think all the same."""
    wishes = [Wish(f"mind/{contract}", {"stream": number % 4 != 0}) for number in range(100)]
    replies = crowd(gateway, wishes)
    served, _ = served_and_refused(replies)
    assert served > 0
    thought = gateway.rows("SELECT sum(thinking) AS spent FROM requests WHERE route = ?", f"mind/{contract}")
    assert thought == [{"spent": within(gateway, f"mind/{contract}")}]


def test_a_budget_of_hidden_thoughts_is_used_to_its_last_answer(gateway: Gateway) -> None:
    """What answers are known to need is asked for, and no more."""
    crowd(gateway, [Wish("thinks-hidden")] * 40)
    replies = [gateway.chat("last") for _ in range(13)]
    assert [reply.status for reply in replies] == [200] * 12 + [402]
    assert {row_of(gateway, reply)["overrun"] for reply in replies} == {0}
    assert account(gateway, "last") == (12 * THOUGHTFUL, 0)


def test_a_target_that_thought_past_its_cap_is_held_for_as_much(tmp_path: Path, upstream: Upstream) -> None:
    """Its answers are flagged and an incident, and another process knows of them."""
    with serving(tmp_path, policy(upstream.url)) as gateway:
        rows = [row_of(gateway, reply) for reply in crowd(gateway, [Wish("ran-past", CAP)] * 5)]
        assert {(row["cost"], row["attempts"][0]["flagged"]) for row in rows} == {(THOUGHTFUL, 1)}
        reasons = gateway.rows("SELECT reason FROM incidents WHERE kind = 'impossible_usage'")
        assert reasons == [{"reason": "cap_exceeded: 320 of 40 tokens"}]
    with serving(tmp_path, policy(upstream.url)) as gateway:
        replies = crowd(gateway, [Wish("past", {**CAP, "stream": number % 2 == 0}) for number in range(100)])
        assert served_and_refused(replies) == (ROOM, 100 - ROOM)
        assert account(gateway, "past") == (ROOM * THOUGHTFUL, 0)


def test_a_waiting_request_is_woken_when_another_settles(
    tmp_path: Path, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would not look again by itself. There is room for one hold and, later, for the true costs of both."""
    monkeypatch.setattr(hold, "LOOK_S", 1e9)
    targets = {model: target(upstream.url, model, price=PRICE) for model in (books.GATED, "say-40")}
    routes = {"slow": books.GATED, "plain": "say-40"}
    room = {**budgets({"room": 0.04})[0], "routes": list(routes)}
    with (
        serving(tmp_path, rules(targets, routes, [room])) as gateway,
        ThreadPoolExecutor(1) as client,
        books.waiting(gateway, upstream, "slow") as (_, end),
    ):
        second = client.submit(gateway.chat, "plain")
        until(lambda: gateway.rows("SELECT id FROM requests WHERE route = 'plain' AND state = 'held'"))
        for _ in range(20):  # each look at the budget goes the way that the looks of the second request go
            assert books.pot(gateway, "room")["held"] > 0
        assert not second.done()
        assert end().status == second.result().status == 200
        assert row_of(gateway, second.result())["cost"] == COST
        within(gateway, "room")
        gateway.check_books()


@each_row("stream, binds", product([False, True], [{}, {"targets": ["one", "two"]}, {"scope": "target"}]))
def test_no_request_is_refused_that_would_have_fitted(
    tmp_path: Path, upstream: Upstream, stream: bool, binds: dict[str, Any]
) -> None:
    """Room for the true costs of all and one hold more: while others hold too much, requests wait for them."""
    targets = {name: target(upstream.url, "say-40-ms-5", price=PRICE) for name in ("one", "two")}
    limit, name, order = (24 * COST + 1_100 * OUT) / NANO, "fits", "one two"
    if "scope" in binds:
        name, order = "fits|one", "one"
    with serving(tmp_path, rules(targets, {"fits": order}, budgets({"fits": limit}, **binds))) as gateway:
        assert served_and_refused(crowd(gateway, [Wish("fits", {"stream": stream})] * 24)) == (24, 0)
        within(gateway, name)
        gateway.check_books()


def test_clients_that_leave_spend_no_more_than_is_there(gateway: Gateway) -> None:
    draw = random.Random(7)  # noqa: S311 - a test's
    wishes = [Wish("leavers", {"stream": True}, leaves_after=draw.randrange(300, 45_000)) for _ in range(80)]
    replies = crowd(gateway, wishes)
    assert {reply.status for reply in replies} == {0}
    until(lambda: gateway.rows("SELECT 1 FROM requests WHERE route = 'leavers' AND state = 'held'") == [])
    assert within(gateway, "leavers") > 0
    left = gateway.rows("SELECT cost, held FROM requests WHERE route = 'leavers' AND status = 499")
    assert left
    assert all(row["cost"] <= row["held"] for row in left)


def test_a_client_that_leaves_late_is_charged_no_more_than_was_held(gateway: Gateway, upstream: Upstream) -> None:
    """Its target is known to keep caps, and to need five bytes for a token, so what was held paid for all that came."""
    crowd(gateway, [Wish("known", {"stream": True})] * 30 + [Wish("known", CAP)])
    long = built_in(Ask(model="say-800"))
    assert long is not None
    # The stream waits in its middle, after some 400 tokens, until its client has left.
    upstream.behaviours["say-400-ms-2"] = structs.replace(long, breaks=Break.HANG)
    try:
        crowd(gateway, [Wish("late-leavers", {"stream": True}, leaves_after=80_000)])
    finally:
        del upstream.behaviours["say-400-ms-2"]
    row = gateway.only("late-leavers")
    assert (row["status"], row["error"]) == (499, "client_gone")
    assert row["overrun"] == 0
    within(gateway, "late-leavers")


@each_row("kind", ["cold-plain", "cold-stream"])
def test_500_at_two_processes_get_what_is_there_for_10(tmp_path: Path, upstream: Upstream, kind: str) -> None:
    gateway = Process(tmp_path, policy(upstream.url)).start("--workers", "2")
    try:
        replies = crowd(gateway, [Wish(kind, {**CAP, "stream": KINDS[kind]})] * CROWD)
        assert served_and_refused(replies) == (ROOM, CROWD - ROOM)
        more = [Wish(kind, {**CAP, "stream": KINDS[kind]})] * 20
        owners = "SELECT DISTINCT owner FROM requests"
        until(lambda: len(gateway.rows(owners)) == 2 or not served_and_refused(crowd(gateway, more)))
        gateway.check_books()
    finally:
        gateway.stop()
    assert gateway.rows("SELECT spent, held FROM budget_windows") == [{"spent": ROOM * COST, "held": 0}]


@pytest.mark.parametrize("kills", [1, pytest.param(8, marks=pytest.mark.nightly)])
def test_kill_9_at_any_moment_loses_nothing_and_overspends_nothing(
    tmp_path: Path, upstream: Upstream, kills: int
) -> None:
    """Holds of the dead are charged once their leases are over; every answer that somebody has is in the books."""
    gateway, draw = Process(tmp_path, policy(upstream.url)), random.Random(7)  # noqa: S311 - a test's
    answered: list[str] = []

    def kill_at(number: int) -> None:
        until(lambda: len(gateway.rows("SELECT id FROM requests")) >= number)
        gateway.process.kill()

    for _ in range(kills):
        gateway.start()
        known = len(gateway.rows("SELECT id FROM requests"))
        killer = threading.Thread(target=kill_at, args=(known + draw.randint(1, 40),))
        killer.start()
        replies = crowd(gateway, [Wish("kills", {"stream": number % 2 == 0}) for number in range(60)])
        killer.join()
        gateway.process.wait(60)
        whole = [reply for reply in replies if reply.status == 200 and reply.body.endswith((b"[DONE]\n\n", b"}"))]
        answered += [reply.id for reply in whole]
        books.change(gateway, "UPDATE live_requests SET lease_until_ms = 1 WHERE state = 'held'")
    gateway.start()
    try:
        until(lambda: gateway.rows("SELECT 1 FROM requests WHERE state = 'held'") == [])
        states = {row["id"]: row["state"] for row in gateway.rows("SELECT id, state FROM requests")}
        assert {states[identifier] for identifier in answered} <= {"settled"}
        recovered = "SELECT 1 FROM requests WHERE state = 'recovered'"
        assert gateway.rows(f"{recovered} AND (cost != held OR error != 'crashed')") == []
        (costs,) = gateway.rows("SELECT SUM(cost) AS of_all FROM requests")
        assert within(gateway, "kills") == costs["of_all"] / NANO > 0
        gateway.check_books()
    finally:
        gateway.stop()


def test_the_money_of_a_session_s_life_is_a_budget_like_any_other(
    tmp_path_factory: pytest.TempPathFactory, upstream: Upstream
) -> None:
    """`loops.session_usd`, asked for by forty at once; requests without a session, and exempt keys, are not bound."""
    targets, limit = {"plain": target(upstream.url, "say-40", price=PRICE)}, (ROOM * COST + COST // 2) / NANO
    loops = {"session_usd": limit, "spike": None, "repeats": 1_000, "resent": 1_000}
    with serving(tmp_path_factory.mktemp("life"), rules(targets, {"auto": "plain"}, [], loops=loops)) as gateway:
        wishes = [Wish("auto", CAP, {"x-lowpass-session": "life"}) for _ in range(40)]
        assert served_and_refused(crowd(gateway, wishes)) == (ROOM, 40 - ROOM)
        refused = gateway.chat("auto", headers={"x-lowpass-session": "life"})
        assert (refused.status, refused.error["budget"]["id"]) == (402, "loops.session_usd")
        assert within(gateway, "loops.session_usd") == pytest.approx(ROOM * COST / NANO)
        assert served_and_refused(crowd(gateway, [Wish("auto", CAP)] * 15)) == (15, 0)
        gateway.check_books()


def streamed(gateway: Gateway, model: str, **fields: Any) -> list[Any]:
    with gateway.client() as client:
        return list(client.chat.completions.create(model=model, messages=MESSAGES, stream=True, **fields))


def test_a_long_answer_has_more_held_for_it_while_it_comes(gateway: Gateway) -> None:
    chunks = streamed(gateway, "rich", stream_options={"include_usage": True})
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == 3_000 * WORD
    row = gateway.only("rich")
    assert (row["cost"], row["overrun"], row["error"]) == (3_000 * OUT + 20 * IN, 0, None)
    assert row["cost"] <= row["held"] <= 3 * row["cost"], "two bytes a token are assumed at first, and it has five"


@each_row("route, stream", [("poor", True), ("whole", False)])
def test_an_answer_ends_where_its_budget_does(gateway: Gateway, route: str, stream: bool) -> None:
    """0.12 USD pay for 1,200 tokens: two answers of 600 don't fit. One that is not streamed is metered all the same."""
    replies = [gateway.chat(route, stream=stream) for _ in range(3)]
    assert [reply.status for reply in replies] == [200, 200, 402]
    assert replies[2].error["code"] == "budget_exceeded"
    rows = [row_of(gateway, reply) for reply in replies[:2]]
    assert [(row["attempts"][0]["finish_reason"], row["overrun"]) for row in rows] == [("stop", 0), ("length", 0)]
    assert replies[0].body.count(b"word") == 600 > replies[1].body.count(b"word")
    within(gateway, route)


@each_row("number", range(len(ENDS)))
def test_the_last_answer_is_ended_though_it_ignores_its_cap(gateway: Gateway, upstream: Upstream, number: int) -> None:
    """Four answers fit, and the most of another one. Its target has never been seen to keep a cap."""
    together, n, stream = ENDS[number]
    answer, counted = Answer(text=(WORD * together,) * (300 // together)), Tokens(uncached=20, visible=300)
    slow = Behaviour(answer=lambda *_: answer, tokens=counted, pause_s=0.002 * together)
    upstream.behaviours[f"ends-{number}"] = slow
    crowd(gateway, [Wish(f"warm-up/ends-{number}", {"stream": True, "n": n})] * 12)
    replies = [gateway.chat(f"ends-{number}", stream=stream, n=n) for _ in range(6)]
    assert [reply.status for reply in replies[:4]] == [200] * 4
    assert {row_of(gateway, reply)["overrun"] for reply in replies} == {0}
    assert within(gateway, f"ends-{number}") > 0.12 * n


@each_row("n", PAST)
def test_what_came_past_a_cap_is_charged_where_more_was_held(gateway: Gateway, upstream: Upstream, n: int) -> None:
    """Its cap goes by what is left while another holds much. That ends, and the stream writes 300 tokens instead."""
    model, gates = f"past-{n}", (threading.Event(), threading.Event())
    slow = Behaviour(tokens=Tokens(uncached=20, visible=40), pause_s=0.008)
    for word in (WORD, "abc ") * 3:
        upstream.behaviours[model] = slow = structs.replace(slow, answer=lambda *_, it=(word,) * 40: Answer(text=it))
        assert gateway.chat(f"warm-up/{model}", stream=True).status == 200
    upstream.behaviours[f"large-{n}"] = structs.replace(slow, gate=gates[0])
    deaf = Answer(text=("abc ",) * 600)
    upstream.behaviours[model] = Behaviour(answer=lambda *_: deaf, gate=gates[1], pause_s=0.006, breaks=Break.HANG)
    with ThreadPoolExecutor(1) as pool, gateway.client() as client:
        large = pool.submit(gateway.chat, f"large-{n}", stream=True)
        until(lambda: gateway.rows("SELECT 1 FROM requests WHERE route = ? AND held > 0", f"large-{n}"))
        stream = client.chat.completions.create(model=model, messages=MESSAGES, stream=True, n=n)
        gates[0].set()
        assert row_of(gateway, large.result())["status"] == 200
        gates[1].set()
        come = 0
        while come < 300 * n and (chunk := next(stream, None)) is not None:
            come += sum(len(choice.delta.content or "") for choice in chunk.choices) // 4
        stream.close()
    row = gateway.only(model)
    assert row["attempts"][0]["output_visible"] >= come
    assert (row["attempts"][0]["usage_source"], row["overrun"]) == ("estimated", 0)
    assert books.bookings(gateway, row) == [(model, row["held"], row["cost"])]


@each_row("number", range(len(TURNS)))
def test_a_stream_that_turns_into_another_is_stopped_in_time(gateway: Gateway, upstream: Upstream, number: int) -> None:
    """Four answers of 0.15 USD: what the tokens of a word had says nothing of these."""
    gathered = TURNS[number] == WORD
    for text, tokens, times in ((WORD, 100, 12), (TURNS[number], 1_500, 0)):
        together = 4 if gathered and times else 1
        answer, counted = Answer(text=(text * together,) * tokens), Tokens(uncached=20, visible=tokens * together)
        paced = {"pause_s": 3, "framing": Framing.MERGED} if gathered and not times else {"pause_s": 0.001}
        behaviour = Behaviour(answer=lambda *_, it=answer: it, tokens=counted, **paced)
        upstream.behaviours[f"turns-{number}"] = behaviour
        assert all(gateway.chat(f"warm-up/turns-{number}", stream=True).status == 200 for _ in range(times))
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: gateway.chat(f"turns-{number}", stream=True), range(4)))
    cut = [reply for reply in answers if b'"lowpass":{"stopped":"budget_exceeded"' in reply.body]
    for reply in cut:
        events = [json.loads(line[6:]) for line in reply.body.split(b"\n\n") if line.startswith(b"data: {")]
        assert (events[-2]["choices"][0]["finish_reason"], reply.body[-14:]) == ("length", b"data: [DONE]\n\n")
        row = row_of(gateway, reply)
        assert (row["status"], row["error"], row["overrun"]) == (200, "budget_exceeded", 0)
        assert events[-1]["usage"]["completion_tokens"] == row["attempts"][0]["output_visible"] > 0
        assert row["attempts"][0]["usage_source"] == "estimated"
    assert cut
    within(gateway, f"turns-{number}")


def test_streams_are_stopped_before_a_slow_store_answers(gateway: Gateway) -> None:
    """Of three times 3,000 tokens of thought 7,000 are paid for; whether there are more is not said for three seconds:
    none counts on what all of them might have."""
    assert len(streamed(gateway, "unbound")) > 3_000, "it has shown its pace"
    with sqlite3.connect(gateway.ledger, check_same_thread=False) as ledger, ThreadPoolExecutor(3) as pool:
        answers = [pool.submit(streamed, gateway, "slowly") for _ in range(3)]
        until(lambda: len(gateway.rows("SELECT 1 FROM requests WHERE route = 'slowly' AND held > 0")) == 3)
        ledger.execute("BEGIN IMMEDIATE")
        threading.Timer(3, ledger.commit).start()
        come = [len(answer.result()) - 3 for answer in answers]
    assert 0 < sum(come) <= within(gateway, "slowly")


@each_row("route", ["thought", "mind"])
def test_a_stream_ends_in_mid_thought(gateway: Gateway, route: str) -> None:
    """3,000 tokens of thought cost 0.30 USD; there is less, in money or in thinking tokens."""
    assert [chunk.choices[0].finish_reason for chunk in streamed(gateway, route) if chunk.choices][-1] == "length"
    row = gateway.only(route)
    (attempt,) = row["attempts"]
    assert (row["status"], row["state"], attempt["answered"], attempt["finish_reason"]) == (200, "settled", 0, "length")
    assert within(gateway, route) > 0


def test_a_long_answer_is_no_thought(gateway: Gateway) -> None:
    """1,500 tokens are said under a budget of 1,200 thoughts, of which 100 are used each time."""
    assert gateway.chat("calm-thinker", stream=True).status == 200, "it has shown that its tokens come piece by piece"
    for used in (100, 200):
        assert [chunk.choices[0].finish_reason for chunk in streamed(gateway, "calm") if chunk.choices][-1] == "stop"
        assert within(gateway, "calm") == used


def test_a_model_that_keeps_to_a_number_is_sent_it_and_answers(gateway: Gateway, upstream: Upstream) -> None:
    """No thought is cut: it ends by itself where the thinking budget does, and the answer follows."""
    assert streamed(gateway, "exactly", reasoning_effort="high")[-1].choices[0].finish_reason == "stop"
    sent = int(str(upstream.last.json["thinking_token_budget"]))
    assert 500 < sent <= 1_500
    row = gateway.only("exactly")
    (attempt,) = row["attempts"]
    assert (row["thinking"], attempt["answered"], row["overrun"], attempt["thinking"]) == (sent, 1, 0, f"budget={sent}")


def test_what_is_learned_makes_the_next_holds_tight(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the meter's clock each look at a stream is four ms after the last one."""
    monkeypatch.setattr(meter, "clock_ms", count(step=4.0).__next__)
    rows = [row_of(gateway, gateway.chat("short", stream=True)) for _ in range(12)]
    ratios = [row["held"] / row["cost"] for row in rows]
    assert ratios[-1] < 1.6 < ratios[0]
    assert all(ratio >= 1 for ratio in ratios)
