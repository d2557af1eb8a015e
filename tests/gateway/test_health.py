"""Targets that fail or are slow: how much of the traffic they keep, and that others take the rest."""

import random
from typing import Any

from router.decide.health import LONGEST_RUN, WARM
from router.testing.upstream import BEHAVIOURS, Ask, Behaviour, Upstream
from router.types import clock
from tests.gateway.running import Gateway, target, until
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
    routes, targets = {}, {"alone": target(url, "failing", retries=0)}
    for kind in STRATEGIES:
        first, second = names = f"{kind}-first", f"{kind}-second"
        targets[first] = target(url, f"brown@{kind}", price={"input": 0.1, "output": 0.2}, retries=0)
        targets[second] = target(url, f"normal@{kind}", price={"input": 3, "output": 6}, retries=0)
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
