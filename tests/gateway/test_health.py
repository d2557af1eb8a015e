"""Targets that fail or are slow, and warm caches: how much of the traffic each keeps, and that others take the rest."""

import json
import random
import re
from pathlib import Path
from typing import Any

from router.decide.health import LONGEST_RUN, WARM
from router.testing.upstream import BEHAVIOURS, Answer, Ask, Behaviour, Page, Tokens, Upstream
from router.types import clock
from tests.gateway.running import Gateway, ordered, serving, target, tried, until, user
from tests.tables import each_row

STRATEGIES = ("ordered", "cheapest", "weighted", "cost_of_pass")


class Brown(Upstream):
    """The model `brown` takes `slow_s` longer to begin: the clock jumps, and no time passes."""

    slow_s = 0.0

    def behaviour(self, ask: Ask) -> Behaviour | None:
        if ask.behaviour == "brown":
            clock.let_pass(self.slow_s)
            return BEHAVIOURS["normal"]
        return super().behaviour(ask)


server = Brown


def policy(url: str) -> dict[str, Any]:
    routes, targets = {}, {"alone": target(url, "failing")}
    for kind in STRATEGIES:
        first, second = names = f"{kind}-first", f"{kind}-second"
        targets[first] = target(url, f"brown@{kind}", price={"input": 0.1, "output": 0.2})
        targets[second] = target(url, f"normal@{kind}", price={"input": 3, "output": 6})
        listed = {"weights": {first: 1_000_000, second: 1}} if kind == "weighted" else {"targets": list(names)}
        floor = {"min_pass_rate": 0.01} if kind == "cost_of_pass" else {}
        routes[kind] = {"strategy": {"kind": kind, **listed}, **floor}
    return {"version": 1, "targets": targets, "routes": routes, "loops": {"enabled": False}}


@each_row("kind, stream", [(kind, stream) for kind in STRATEGIES for stream in (False, True)])
def test_a_brown_out_moves_traffic_and_its_end_brings_it_back(
    gateway: Gateway, upstream: Brown, kind: str, stream: bool
) -> None:
    def served(times: int) -> list[str]:
        replies = [gateway.chat(kind, stream=stream) for _ in range(times)]
        assert {reply.status for reply in replies} == {200}
        rows = [gateway.settled(reply.id) for reply in replies]
        return [row["attempts"][-1]["target"].removeprefix(f"{kind}-") for row in rows]

    assert served(2 * WARM).count("first") > WARM
    upstream.slow_s = 10
    names = served(40)
    upstream.slow_s = 0
    clock.let_pass(-10 * names.count("first"))
    assert names.count("first") < 20
    until(lambda: served(10) == ["first"] * 10)


def test_a_target_whose_streams_always_break_is_closed_off(gateway: Gateway, upstream: Brown) -> None:
    """They begin well, and none of them ends."""
    upstream.behaviours["failing"] = BEHAVIOURS["cut"]
    for _ in range(LONGEST_RUN):
        gateway.chat("alone", stream=True)
    assert gateway.get("/health/ready").json["targets"]["alone"] in ("open", "half-open")
    upstream.behaviours["failing"] = BEHAVIOURS["normal"]
    until(lambda: gateway.chat("alone").status == 200)


@each_row("pattern", ["every second", "at random"])
def test_a_single_target_that_fails_half_of_the_time_answers_the_other_half(
    gateway: Gateway, upstream: Upstream, pattern: str
) -> None:
    draw, statuses = random.Random(5), []  # noqa: S311
    for number in range(300):
        fails = number % 2 == 0 if pattern == "every second" else draw.random() < 0.5
        upstream.behaviours["failing"] = BEHAVIOURS["error-500" if fails else "normal"]
        statuses.append(gateway.chat("alone").status)
    assert set(statuses) == {200, 502}, "it is never closed off"
    assert statuses.count(200) > 130


@each_row("status, message", [(404, "Item with id 'x' not found."), (404, "Not Found"), (403, "Not for this user.")])
def test_what_may_be_the_fault_of_one_request_closes_off_no_target_that_answers_others(
    gateway: Gateway, upstream: Upstream, status: int, message: str
) -> None:
    body, kind = json.dumps({"error": {"message": message}}).encode(), {"content-type": "application/json"}
    for behaviour, expected in (
        (BEHAVIOURS["normal"], {200}),
        (Behaviour(page=lambda _: Page((body,), status, kind)), {400} if "Item" in message else {502}),
        (BEHAVIOURS["normal"], {200}),
    ):
        upstream.behaviours["failing"] = behaviour
        assert {gateway.chat("alone").status for _ in range(12)} == expected


def test_the_circuit_opens_and_recovers(tmp_path: Path, upstream: Brown) -> None:
    """An open circuit is not asked; after an edit and a while it is probed."""
    targets = {name: target(upstream.url, "normal") for name in ("first", "second")}
    rules = {"version": 1, "targets": targets, "routes": {"auto": ordered(*targets)}}
    broken = {**rules, "targets": {**targets, "first": target(upstream.url, "error-500")}}
    with serving(tmp_path, {**broken, "loops": {"enabled": False}}) as gateway:

        def serves(name: str) -> bool:
            return gateway.chat("auto").headers["x-lowpass-model"] == name

        def closed_off() -> dict[str, str]:
            gateway.tick()
            return dict(gateway.get("/health/ready").json["targets"])

        for _ in range(30):
            assert serves("second")
            gateway.let_pass(120)  # the longest pause before a probe
        until(lambda: serves("second") and closed_off() == {"first": "open"})
        upstream.clear()
        assert tried(gateway.settled(gateway.chat("auto").id)) == [("second", "ok")]
        assert len(upstream.requests) == 1
        # A probe that is due by now fails, and the circuit opens again.
        reply = until(lambda: next((reply for reply in [gateway.chat("first")] if reply.status != 502), None))
        assert (reply.status, reply.error["code"]) == (503, "upstream_error")
        assert reply.error["targets"][0]["reason"] == "circuit_open"
        gateway.write_policy({**rules, "loops": {"enabled": False}})
        gateway.tick()
        assert serves("second")
        gateway.let_pass(120)
        until(lambda: serves("first"))
        until(lambda: serves("first") and closed_off() == {})
    rest = r"target 'first' rests 1 s after \d+ failures: server_error \(500\)(.|\n)*'first' answers again after \d+"
    assert re.search(rest, gateway.log.read_text())


class Counting(Upstream):
    def behaviour(self, ask: Ask) -> Behaviour:
        words = sum(len(message["content"].split()) for message in ask.body["messages"])
        return Behaviour(answer=lambda *_: Answer(text=("Yes.",)), tokens=Tokens(uncached=words, visible=1))


def test_a_long_conversation_stays_where_it_is_warm_and_another_does_not(tmp_path: Path) -> None:
    """It goes on more cheaply where it was answered, so it stays there while nothing else is gained."""
    text, price = "word " * 4_000, {"input": 1, "output": 1, "cache_read": 0.1}
    with Counting() as upstream:
        targets = {name: target(upstream.url, name, price=price) for name in ("first", "second")}
        routes = {"auto": {"strategy": {"kind": "cheapest", "targets": list(targets)}}}
        with serving(tmp_path, {"version": 1, "targets": targets, "routes": routes}) as gateway:
            for name in targets:  # so that as much is known of one as of the other
                assert gateway.chat(name, "word " * 10).status == 200
            gateway.chat("second", text, {"x-lowpass-session": "talk"})
            for session, expected in (("talk", "second"), ("another", "first")):
                reply = gateway.chat("auto", text, {"x-lowpass-session": session})
                assert gateway.settled(reply.id)["target"] == expected
            talk = {"model": "auto", "messages": user(text) + user("And now?")}
            shown = gateway.post("/v1/route", talk, x_lowpass_session="talk").json
            cost = {row["target"]: float(row["cost_usd"]) for row in shown["considered"]}
            assert cost["second"] < cost["first"] * 0.6
