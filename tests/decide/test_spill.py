"""Queues change the order of targets that may be asked anyway, by one rule, and say so."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from router.choose import plan
from router.decide.strategies import Cheapest, CostOfPass, Ordered, Weighted
from router.decide.strategies import PlanStrategy as Planned
from router.decide.weigh import DecisionInput, Ranking, explore, timely
from router.types.decision import Estimate, Plan
from router.types.target import Queue, Target
from tests.decide.situations import names, situation, stakes, why
from tests.decide.values import candidate, gate, target
from tests.tables import data, each_row

ORDERED = Ordered(kind="ordered", targets=("local", "other", "cloud"))
COST = {"local": 0, "other": 0, "cloud": 100}
FULL = Queue(full=True)
Queues = Mapping[str, Queue]


def waits(ms: int, waiting: int = 3) -> Queue:
    return Queue(wait_ms=ms, waiting=waiting)


def estimates(targets: Sequence[Target], *, fits: object = ()) -> list[Estimate]:
    return [candidate(place.id, COST[place.id]).estimate for place in targets]


def decided(
    queues: Queues,
    deadline_ms: int | None = None,
    strategy: Ordered | Cheapest | Weighted = ORDERED,
    names: tuple[str, ...] = ORDERED.targets,
    **max_wait_ms: Any,
) -> Plan:
    """An answer takes a second, and one and a half nine times in ten."""
    places = [structs.replace(target(name), max_wait_ms=max_wait_ms.get(name)) for name in names]
    asked = structs.replace(gate(), queues=queues, deadline_ms=deadline_ms)
    return plan("auto", strategy, places, asked, estimates, 0.0, lambda step: (1_000.0, 1_500.0))


def order(plan: Plan) -> str:
    return " ".join(step.target.id for step in plan.steps)


@each_row("queues, deadline_ms, max_wait_ms, expected", data(__file__, "spill.yaml"))
def test_the_rule(queues: dict[str, Any], deadline_ms: int | None, max_wait_ms: dict[str, Any], expected: str) -> None:
    known = {name: FULL if queue == "full" else waits(*queue) for name, queue in queues.items()}
    assert order(decided(known, deadline_ms, **max_wait_ms)) == expected


def test_what_a_plan_says_of_queues_and_other_orders_spill_too() -> None:
    made = decided({"local": Queue(wait_ms=2_140, waiting=14), "other": waits(300, 1)}, local=500)
    local, other = made.queued
    assert (local.spilled, local.told()) == (True, "local: 14 waiting, 2.1 s")
    assert (other.spilled, other.told()) == (False, "other: 1 waiting, 0.3 s")
    assert {step.target.id: step.wait_ms for step in made.steps} == {"local": 2_140, "other": 300, "cloud": 0}
    assert Queue(target="local", full=True).told() == "local: turns requests away"
    first_anyway = decided({name: waits(700) for name in COST}, local=500, other=500, cloud=500)
    assert not any(queue.spilled for queue in first_anyway.queued)
    weighted = Weighted(kind="weighted", weights={"local": 9, "cloud": 1})
    for strategy in (Cheapest(kind="cheapest", targets=("a",)), weighted):
        assert order(decided({"local": waits(600)}, None, strategy, ("local", "cloud"), local=500)) == "cloud local"


def test_an_engine_that_is_not_up_is_dropped_and_where_none_would_begin_in_time_none_is_asked() -> None:
    made = decided({"local": Queue(down="restarting")})
    assert (order(made), made.queued) == ("other cloud", ())
    reasons = [(dropped.target, dropped.reason, dropped.detail) for dropped in made.dropped]
    assert reasons == [("local", "engine_down", "its engine is restarting")]
    queues = {"local": waits(9_000), "other": waits(6_000)}
    assert decided({**queues, "cloud": waits(4_999)}, 5_000).steps
    late = decided({**queues, "cloud": waits(5_000)}, 5_000)
    assert not late.steps
    assert {dropped.target: dropped.reason for dropped in late.dropped} == dict.fromkeys(COST, "saturated")
    assert {queue.target: queue.wait_ms for queue in late.queued} == {"local": 9_000, "other": 6_000, "cloud": 5_000}
    alone = decided({"local": waits(10**7)}, names=("local",))
    assert order(alone) == "local", "without a deadline the last one queues"


NAMES = st.sampled_from(sorted(COST))
QUEUE = st.builds(Queue, wait_ms=st.integers(0, 90_000), waiting=st.integers(0, 9), full=st.booleans())


@given(
    st.dictionaries(NAMES, QUEUE), st.none() | st.integers(1, 90_000), st.dictionaries(NAMES, st.integers(1, 90_000))
)
def test_no_target_is_lost_or_added(
    queues: dict[str, Queue], deadline_ms: int | None, max_wait_ms: dict[str, Any]
) -> None:
    made = decided(queues, deadline_ms, **max_wait_ms)
    assert sorted([*order(made).split(), *(dropped.target for dropped in made.dropped)]) == sorted(COST)
    assert {queue.target for queue in made.queued} == set(queues)


# Strategies that go by forecasts.

BUSY = {"a": waits(2_000)}
COST_OF_PASS = CostOfPass(kind="cost_of_pass", targets=("a",)).rank
RANKS = (COST_OF_PASS, Planned(kind="plan", targets=("a",)).rank)


def busy(queues: Queues, most_ms: int | None = 1_000, **more: Any) -> DecisionInput:
    """a is the best and has an engine; b is nearly as good."""
    state = situation([0.9, 0.89], [0.001, 0.01], **more)
    a, b = state.targets
    return structs.replace(state, targets=(structs.replace(a, max_wait_ms=most_ms), b), queues=queues)


@each_row("rank", RANKS)
def test_too_long_a_queue_comes_last(rank: Callable[[DecisionInput], Ranking]) -> None:
    assert names(rank(busy({}))) == names(rank(busy(BUSY, None))) == "ab"
    ranked = rank(busy(BUSY))
    assert (names(ranked), why(ranked)["a"]) == ("ba", "queued")
    failing = rank(busy({"a": Queue(degraded=True)}))
    assert (names(failing), why(failing)["a"]) == ("ba", "degraded"), "without an engine it has no queue"
    assert sorted(names(rank(busy({"a": waits(3_000), "b": FULL})))) == ["a", "b"], "the only ones are asked"


def test_a_long_queue_is_better_than_a_longer_one_and_than_a_target_below_the_floor_but_experiments_avoid_it() -> None:
    assert names(COST_OF_PASS(busy({"a": waits(3_000), "b": waits(70_000)}))) == "ab"
    assert names(COST_OF_PASS(busy(BUSY, stakes=stakes(1.0, min_pass_rate=0.895)))) == "ab"
    state = busy(BUSY)
    assert [explore(COST_OF_PASS(state), state, 0.5, draw)[0].order[0] for draw in (0.1, 0.4)] == [1, 1]


def test_the_nearer_the_deadline_the_dearer_the_queue() -> None:
    """The forecast has the wait in it: what is left of the chance to be in time is counted."""
    nine = stakes(1.0, deadline_ms=9_000)
    for total_ms, chance in ((1_000.0, 1), (8_000.0, 0.9948), (9_000.0, 0.5)):
        state = busy(BUSY, None, total_ms=[total_ms, 500.0], p90_ms=[total_ms + 500, 800.0], stakes=nine)
        assert timely(state).tolist() == pytest.approx([chance, 1], abs=1e-3)
    late = {"total_ms": [8_400.0, 500.0], "p90_ms": [8_990.0, 800.0], "stakes": nine}
    assert names(COST_OF_PASS(busy({}, None, **late))) == "ab"
    assert names(COST_OF_PASS(busy(BUSY, None, **late))) == "ba"
