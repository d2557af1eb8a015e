"""Queues change the order of targets that may be asked anyway, by one rule, and say so."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from router.decide.experiment import NO_EXPLORATION, explore
from router.decide.plan import plan, weighed_plan
from router.decide.situation import Situation
from router.decide.spill import timely
from router.decide.strategies import Cheapest, CostOfPass, Ordered, Weighted
from router.decide.strategies import Plan as Planned
from router.types.plan import Candidate, Estimate, Plan, Queued
from router.types.queue import Queue
from router.types.request import Request
from router.types.target import Target, Timeouts
from tests.decide.situations import names, situation, stakes, why
from tests.decide.values import candidate, gate, target

ORDERED = Ordered(kind="ordered", targets=("local", "other", "cloud"))
USUAL_MS = 1_000.0
COST = {"local": 0, "other": 0, "cloud": 100}
FIRST_MS = Timeouts().first


def estimate(place: Target, request: Request) -> Estimate:
    return candidate(place.id, COST[place.id]).estimate


def takes(step: Candidate) -> tuple[float, float]:
    return USUAL_MS, 1.5 * USUAL_MS


def decided(queues: Mapping[str, Queue], deadline_ms: int | None = None, **max_wait_ms: int) -> Plan:
    places = [structs.replace(target(name), max_wait_ms=max_wait_ms.get(name)) for name in ORDERED.targets]
    asked = structs.replace(gate(), queues=queues, deadline_ms=deadline_ms)
    return plan("auto", ORDERED, places, asked, estimate, 0.5, takes)


def order(plan: Plan) -> str:
    return " ".join(step.target.id for step in plan.steps)


def waits(ms: int, waiting: int = 3) -> Queue:
    return Queue(wait_ms=ms, waiting=waiting)


@pytest.mark.parametrize(
    ("queues", "deadline_ms", "max_wait_ms", "expected"),
    [
        ({}, None, {}, "local other cloud"),
        # Nothing said: only to one that is no dearer and would be done before.
        ({"local": waits(900)}, None, {}, "local other cloud"),
        ({"local": waits(1_100)}, None, {}, "other local cloud"),
        ({"local": waits(3_000), "other": waits(2_500)}, None, {}, "local other cloud"),
        ({"local": waits(9_000), "other": waits(2_500)}, None, {}, "other local cloud"),
        # The policy says how long.
        ({"local": waits(500)}, None, {"local": 500}, "local other cloud"),
        ({"local": waits(501)}, None, {"local": 500}, "other cloud local"),
        ({"local": waits(1_100)}, None, {"local": 2_000}, "local other cloud"),
        ({"local": waits(900), "other": waits(700)}, None, {"local": 500, "other": 500}, "cloud other local"),
        # The deadline does: nine times in ten wait and answer have to fit. Of four requests 2.4 s scatter by 1.2 s.
        ({"local": waits(2_380)}, 5_000, {}, "local other cloud"),
        ({"local": waits(2_400)}, 5_000, {}, "other cloud local"),
        ({"local": waits(2_400, 99)}, 5_000, {}, "local other cloud"),
        ({"local": waits(2_400), "other": waits(4_500)}, 5_000, {}, "cloud local other"),
        # Nobody waits for longer than for the first byte.
        ({"local": waits(FIRST_MS)}, None, {"local": 10 * FIRST_MS}, "local other cloud"),
        ({"local": waits(FIRST_MS + 1)}, None, {"local": 10 * FIRST_MS}, "other cloud local"),
        # It turns requests away.
        ({"local": Queue(full=True)}, None, {}, "other cloud local"),
        ({"local": Queue(full=True), "other": waits(700)}, None, {"other": 500}, "cloud other local"),
        # All are: the shortest queue.
        ({"local": waits(9), "other": waits(7), "cloud": waits(8)}, None, dict.fromkeys(COST, 5), "other cloud local"),
    ],
)  # fmt: skip
def test_the_rule(
    queues: dict[str, Queue], deadline_ms: int | None, max_wait_ms: dict[str, int], expected: str
) -> None:
    assert order(decided(queues, deadline_ms, **max_wait_ms)) == expected


def test_what_is_told() -> None:
    found = decided({"local": Queue(wait_ms=2_140, waiting=14), "other": waits(300, 1)}, local=500)
    local, other = found.queued
    assert (local.spilled, local.told()) == (True, "local: 14 waiting, 2.1 s")
    assert (other.spilled, other.told()) == (False, "other: 1 waiting, 0.3 s")
    assert {step.target.id: step.wait_ms for step in found.steps} == {"local": 2_140, "other": 300, "cloud": 0}
    assert Queued(target="local", full=True).told() == "local: turns requests away"


def test_who_is_first_anyway_has_not_spilled() -> None:
    queues = {name: waits(700) for name in COST}
    assert not any(one.spilled for one in decided(queues, local=500, other=500, cloud=500).queued)


def test_an_engine_that_is_not_up_is_dropped() -> None:
    found = decided({"local": Queue(down="restarting")})
    assert order(found) == "other cloud"
    assert [(one.target, one.reason, one.detail) for one in found.dropped] == [
        ("local", "engine_down", "its engine is restarting")
    ]
    assert found.queued == ()


@pytest.mark.parametrize(("last_ms", "left"), [(4_999, True), (5_000, False)])
def test_where_none_would_begin_in_time_nobody_is_asked(last_ms: int, left: bool) -> None:
    found = decided({"local": waits(9_000), "other": waits(6_000), "cloud": waits(last_ms)}, 5_000)
    assert bool(found.steps) is left
    if not left:
        assert {one.target: one.reason for one in found.dropped} == dict.fromkeys(COST, "saturated")
        assert {one.target: one.wait_ms for one in found.queued} == {"local": 9_000, "other": 6_000, "cloud": 5_000}


def test_without_a_deadline_the_last_one_queues() -> None:
    asked = structs.replace(gate(), queues={"local": waits(10**7)})
    found = plan("auto", ORDERED, [target("local")], asked, estimate, 0.5, takes)
    assert order(found) == "local"


@pytest.mark.parametrize(
    "strategy", [Cheapest(kind="cheapest", targets=("a",)), Weighted(kind="weighted", weights={"local": 9, "cloud": 1})]
)
def test_other_orders_spill_too(strategy: Cheapest | Weighted) -> None:
    asked = structs.replace(gate(), queues={"local": waits(600)})
    places = [structs.replace(target("local"), max_wait_ms=500), target("cloud")]
    assert order(plan("auto", strategy, places, asked, estimate, 0.0, takes)) == "cloud local"


QUEUES = st.dictionaries(
    st.sampled_from(sorted(COST)),
    st.builds(Queue, wait_ms=st.integers(0, 90_000), waiting=st.integers(0, 9), full=st.booleans()),
)


@given(
    QUEUES, st.none() | st.integers(1, 90_000), st.dictionaries(st.sampled_from(sorted(COST)), st.integers(1, 90_000))
)
def test_nobody_is_lost_and_nobody_is_added(
    queues: dict[str, Queue], deadline_ms: int | None, max_wait_ms: dict[str, int]
) -> None:
    found = decided(queues, deadline_ms, **max_wait_ms)
    assert sorted([*order(found).split(), *(one.target for one in found.dropped)]) == sorted(COST)
    assert {one.target for one in found.queued} == set(queues)


# Strategies that go by forecasts.

BUSY = {"a": waits(2_000)}
RANKS: dict[str, Callable[[Situation], Any]] = {
    "cost_of_pass": CostOfPass(kind="cost_of_pass", targets=("a",)).rank,
    "plan": Planned(kind="plan", targets=("a",)).rank,
}


def busy(queues: Mapping[str, Queue], most_ms: int | None = 1_000, **more: Any) -> Situation:
    """a is the best and has an engine; b is nearly as good."""
    seen = situation([0.9, 0.89], [0.001, 0.01], **more)
    places = tuple(structs.replace(one, max_wait_ms=most_ms) if one.id == "a" else one for one in seen.targets)
    return structs.replace(seen, targets=places, queues=queues)


@pytest.mark.parametrize("rank", RANKS.values(), ids=RANKS)
def test_too_long_a_queue_comes_last(rank: Callable[[Situation], Any]) -> None:
    assert names(rank(busy({}))) == "ab"
    assert names(rank(busy(BUSY, None))) == "ab"
    ranked = rank(busy(BUSY))
    assert (names(ranked), why(ranked)["a"]) == ("ba", "queued")


@pytest.mark.parametrize("rank", RANKS.values(), ids=RANKS)
def test_the_only_ones_are_asked_however_long_their_queue(rank: Callable[[Situation], Any]) -> None:
    seen = busy({"a": waits(3_000), "b": Queue(full=True)})
    assert sorted(names(rank(seen))) == ["a", "b"]
    short = busy({"a": waits(3_000), "b": waits(70_000)})
    assert names(RANKS["cost_of_pass"](short)) == "ab"


def test_a_long_queue_is_better_than_a_target_below_the_floor() -> None:
    seen = busy(BUSY, stakes=stakes(1.0, min_pass_rate=0.895))
    assert names(RANKS["cost_of_pass"](seen)) == "ab"


def test_experiments_are_not_queued() -> None:
    seen = busy(BUSY)
    ranked = RANKS["cost_of_pass"](seen)
    assert [explore(ranked, seen, 0.5, draw)[0].order[0] for draw in (0.1, 0.4)] == [1, 1]


def test_the_nearer_the_deadline_the_dearer_the_queue() -> None:
    """The forecast has the wait in it: what is left of the chance to be in time is counted."""
    chances = [
        timely(busy(BUSY, None, total_ms=[at, 500.0], p90_ms=[at + 500, 800.0], stakes=stakes(1.0, deadline_ms=9_000)))
        for at in (1_000.0, 8_000.0, 9_000.0)
    ]
    assert [chance[0] for chance in chances] == pytest.approx([1, 0.9948, 0.5], abs=1e-3)
    assert [chance[1] for chance in chances] == [1, 1, 1]
    late = {"total_ms": [8_400.0, 500.0], "p90_ms": [8_990.0, 800.0], "stakes": stakes(1.0, deadline_ms=9_000)}
    assert names(RANKS["cost_of_pass"](busy({}, None, **late))) == "ab"
    assert names(RANKS["cost_of_pass"](busy(BUSY, None, **late))) == "ba"


def test_a_plan_notes_the_queues_that_it_saw() -> None:
    seen = busy(BUSY)
    asked = structs.replace(gate(), queues=BUSY)
    found = weighed_plan(
        "auto",
        CostOfPass(kind="cost_of_pass", targets=("a", "b")),
        seen.targets,
        asked,
        lambda place, request: candidate(place.id).estimate,
        lambda eligible: seen,
        NO_EXPLORATION,
        0.5,
    )
    assert order(found) == "b a"
    assert found.queued == (Queued(target="a", wait_ms=2_000, waiting=3, spilled=True),)
    assert [step.wait_ms for step in found.steps] == [0, 2_000]
