"""All targets at once are as each by itself, and costs are what a price engine would make of them."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from router.estimate.estimate import estimate
from router.estimate.forecast import FRESH_MS, MOST_KNOWN, PRIOR_SPREAD, Forecaster, Index, delayed
from router.estimate.latency import Z90
from router.estimate.learn import Learned, Seen
from router.estimate.price import charge
from router.estimate.size import TYPICAL_ANSWER
from router.types.classification import Classification, Reading
from router.types.forecast import Forecast, Vector
from router.types.money import NANO_PER_USD
from router.types.price import Price, Rule
from router.types.queue import Queue
from router.types.request import Endpoint, Limits, Request
from router.types.target import Contract, Target, Thinking
from router.types.task import Task
from router.types.usage import Usage
from tests.decide.values import PRICE, request, target

SEEN = Classification(data_class="internal", difficulty=0.5, task=Task.CODE)
THINKS = Thinking(contract=Contract.LEVEL, levels=("none", "low", "high"), tokens=(0, 700, 5_000))
EXACT = Thinking(contract=Contract.EXACT, levels=("none", "low", "high"), tokens=(0, 700, 5_000), streamed=True)
DEAR = Price(input=3_000_000_000, output=15_000_000_000, reasoning=20_000_000_000, version="v")
TIERS = Price(
    input=1_000_000_000,
    output=2_000_000_000,
    rules=(Rule(above=10_000, times=(2, 1)), Rule(above=50_000, rates={"input": 5_000_000_000, "output": 2})),
    version="v",
)
PLACES = (
    target("plain", context=10**6, max_output=64_000),
    target("thinks", context=10**6, max_output=64_000, thinking=THINKS, price=DEAR),
    target("exact", context=10**6, max_output=3_000, thinking=EXACT, price=DEAR),
    structs.replace(target("low", context=10**6, max_output=64_000, thinking=THINKS, price=DEAR), effort="low"),
    target("free", context=10**6, price=Price(input=0, output=0, version="v")),
    target("short", context=2_000, max_output=50),
)
REQUESTS = st.builds(
    lambda size, n, cap, effort, budget, endpoint, images: request(
        prompt_bytes=size,
        dense_bytes=size // 3,
        n=n,
        max_output=cap,
        effort=effort,
        limits=Limits(thinking_budget=budget),
        endpoint=endpoint,
        images=images,
    ),
    st.integers(1, 10**5),
    st.integers(1, 8),
    st.none() | st.integers(1, 10**5),
    st.sampled_from([None, "none", "low", "high"]),
    st.none() | st.integers(0, 10**4),
    st.sampled_from([Endpoint.CHAT, Endpoint.EMBEDDINGS]),
    st.sampled_from([0, 0, 2]),
)
ATTEMPTS = st.lists(
    st.builds(
        lambda name, output, share, effort: Seen(
            target=name,
            effort=effort,
            task=Task.CODE,
            script="text",
            output=output,
            thinking=int(output * share) if name not in ("plain", "free", "short") else 0,
            input=output,
            expected_input=100,
        ),
        st.sampled_from([place.id for place in PLACES]),
        st.integers(1, 5_000),
        st.floats(0, 1),
        st.sampled_from(["", "low", "high"]),
    ),
    max_size=12,
)


class Ignorance:
    """Pass rates are not what this is about."""

    def expect(self, seen: Classification, at: Index) -> tuple[Vector, Vector]:
        return np.full(len(at), 0.6), np.full(len(at), 0.25)

    def usual(self, at: Index) -> Vector:
        return np.full(len(at), 0.6)


def forecast(
    places: tuple[Target, ...],
    asked: Request,
    learned: Learned | None = None,
    seen: Classification = SEEN,
    at_ms: int = 0,
) -> Forecast:
    cap = asked.limits.thinking_budget
    known = Forecaster(places, learned or Learned(), Ignorance())
    return known.forecast(places, asked, seen, at_ms, None if cap is None else cap // asked.choices)


def reading(work: float) -> Classification:
    nothing = np.zeros(1, dtype=np.float32)
    return structs.replace(SEEN, reading=Reading(nothing, nothing, work))


@given(REQUESTS, ATTEMPTS)
def test_all_at_once_is_each_by_itself(asked: Request, attempts: list[Seen]) -> None:
    """Tokens are the same within one a choice, costs within what these cost."""
    learned = Learned()
    for attempt in attempts:
        learned.observe(attempt)
    found = forecast(PLACES, asked, learned)
    for at, place in enumerate(PLACES):
        one = estimate(place, asked, learned, Task.CODE)
        rates = place.model.price or PRICE
        slack = (1 + one.input_tokens * 0.002) * rates.input / 1e6 + asked.choices * rates.output / 1e6 + 1
        assert abs(found.output[at] - one.output_tokens) <= asked.choices
        assert abs(found.thinking[at] - one.thinking_tokens) <= asked.choices
        assert abs(found.cost[at] - one.cost) <= slack * 1.01


@given(REQUESTS, ATTEMPTS, st.floats(0.1, 10))
def test_everything_is_a_number_and_in_order(asked: Request, attempts: list[Seen], work: float) -> None:
    learned = Learned()
    for attempt in attempts:
        learned.observe(attempt)
    found = forecast(PLACES, asked, learned, reading(work))
    for column in structs.astuple(found):
        assert np.isfinite(column).all()
        assert (column >= 0).all()
    assert (found.cost_p10 <= found.cost_p90).all()
    assert (found.first_ms <= found.total_ms).all()
    assert (found.thinking <= found.output + 1e-9).all()
    most = np.array([min(asked.max_output or 10**9, place.model.max_output) for place in PLACES]) * asked.choices
    assert (found.output <= most + 1e-6).all()


def test_targets_in_the_order_asked_for() -> None:
    every = Forecaster(PLACES, Learned(), Ignorance())
    whole = every.forecast(PLACES, request(), SEEN, 0)
    some = every.forecast((PLACES[4], PLACES[1]), request(), SEEN, 0)
    assert some.cost.tolist() == [whole.cost[4], whole.cost[1]]


@pytest.mark.parametrize(
    ("fields", "output"),
    [
        ({}, TYPICAL_ANSWER),
        ({"max_output": 100}, 100),
        ({"max_output": 100, "n": 3}, 300),
        ({"endpoint": Endpoint.EMBEDDINGS}, 0),
    ],
)
def test_what_a_cap_leaves(fields: dict[str, Any], output: int) -> None:
    assert forecast(PLACES[:1], request(**fields)).output.tolist() == [output]


def test_thoughts_are_counted_in_every_choice_and_at_their_own_price() -> None:
    for choices in (1, 3):
        asked = request(effort="low", n=choices)
        found = forecast(PLACES[1:2], asked)
        usage = Usage(input_uncached=10, output_visible=TYPICAL_ANSWER * choices, output_reasoning=700 // 2 * choices)
        one = estimate(PLACES[1], asked, Learned())
        usage = structs.replace(usage, input_uncached=one.input_tokens)
        assert found.cost[0] == pytest.approx(charge(DEAR, usage).nano, rel=1e-3)
        assert found.thinking[0] == 350 * choices


def test_an_answer_that_a_cap_cuts_is_no_dearer_and_no_slower_than_the_cap() -> None:
    """Else a short cap would still fail a deadline."""
    capped, free = (forecast(PLACES[:1], request(max_output=most)) for most in (400, None))
    assert capped.cost_p90[0] == pytest.approx(capped.cost[0])
    assert free.cost_p90[0] > 2 * free.cost[0]
    assert capped.total_p90_ms[0] < free.total_p90_ms[0]


@pytest.mark.parametrize(
    ("most", "work", "usual"), [(None, 2.0, 400), (500, 2.0, 400), (100, 2.0, 100), (None, 0.5, 400)]
)
def test_the_usual_cost_is_of_usual_work(most: int | None, work: float, usual: int) -> None:
    """Within the same cap: the cap is no part of how much work a request is."""
    found = forecast(PLACES[:1], request(max_output=most), seen=reading(work))
    plain = forecast(PLACES[:1], request(max_output=most))
    assert found.output[0] == min(400 * work, most or math.inf)
    assert found.usual_cost[0] == pytest.approx(plain.cost[0])
    assert plain.output[0] == usual


@pytest.mark.parametrize("tokens", [100, 5_000, 9_800, 10_300, 40_000, 60_000, 400_000])
def test_size_tiers(tokens: int) -> None:
    """A dearer tier reprices all of the request, and may begin anywhere."""
    place = target("tiers", context=10**6, price=TIERS, max_output=64_000)
    size = round(tokens / 0.73)
    asked = request(prompt_bytes=size, dense_bytes=size, max_output=10)
    expected = charge(TIERS, Usage(input_uncached=tokens, output_visible=10)).nano
    assert forecast((place,), asked).cost[0] == pytest.approx(expected, rel=0.01)


def test_a_tier_is_reached_by_the_tokens_that_a_target_makes_of_a_text() -> None:
    """This one takes twice as many as usual."""
    place, learned = target("tiers", context=10**6, price=TIERS), Learned()
    for _ in range(200):
        learned.observe(Seen(target="tiers", script="text", output=10, input=200, expected_input=100))
    asked = request(prompt_bytes=round(7_000 / 0.17), dense_bytes=0, max_output=10)
    found = forecast((place,), asked, learned)
    assert found.cost[0] == pytest.approx(estimate(place, asked, learned).cost, rel=0.01)
    assert found.cost[0] > 14_000 * 1_900


def test_service_tier_region_and_hour() -> None:
    rules = (
        Rule(service_tier="flex", times=(1, 2)),
        Rule(region="eu", times=(11, 10)),
        Rule(since_ms=1_000_000, times=(3, 1)),
    )
    price = structs.replace(PRICE, rules=rules)
    here, eu = target("here", price=price), target("eu", price=price, region="eu")
    usual = forecast((here, eu), request())
    assert usual.cost[1] / usual.cost[0] == pytest.approx(1.1)
    flex = forecast((here,), request(service_tier="flex"))
    assert flex.cost[0] / usual.cost[0] == pytest.approx(0.5)
    later = forecast((here,), request(), at_ms=1_000_000)
    assert later.cost[0] / usual.cost[0] == pytest.approx(3)


def test_a_price_that_changes_is_seen_within_a_second() -> None:
    place = target("timed", price=structs.replace(PRICE, rules=(Rule(since_ms=10_500, times=(3, 1)),)))
    known = Forecaster((place,), Learned(), Ignorance())
    before, after = (known.forecast((place,), request(), SEEN, at).cost[0] for at in (10_000, 10_000 + FRESH_MS))
    assert after / before == pytest.approx(3)


def test_without_a_price_the_worst_is_assumed() -> None:
    found = forecast((target("a", price=None), target("b")), request())
    assert found.cost[0] > found.cost[1]


def working(throughput: int) -> Learned:
    """Tokens a second, by requests that follow one another."""
    learned = Learned()
    for number in range(200):
        learned.observe(
            Seen(target="gpu", output=throughput, total_ms=1_000, ended_ms=number * 1_000, input=10, expected_input=10)
        )
    return learned


@pytest.mark.parametrize("throughput", [50, 500])
def test_an_hour_of_a_machine_over_what_it_writes_in_it(throughput: int) -> None:
    """2 USD an hour. The prompt is read for nothing: its time is in the throughput."""
    gpu = structs.replace(target("gpu", max_output=64_000), hourly=2 * NANO_PER_USD)
    found = forecast((gpu,), request(max_output=20), working(throughput))
    assert found.cost[0] == pytest.approx(20 * 2 * NANO_PER_USD / 3_600 / throughput, rel=0.01)


def test_before_anything_ran_on_it_a_machine_has_its_list_price() -> None:
    gpu = structs.replace(target("gpu"), hourly=2 * NANO_PER_USD)
    assert forecast((gpu,), request()).cost.tolist() == forecast((target("gpu"),), request()).cost.tolist()


def test_times_follow_what_was_measured() -> None:
    learned = Learned()
    for number in range(300):
        learned.observe(
            Seen(target="quick", output=100, first_ms=100, total_ms=600, ended_ms=number * 1_000, task=Task.CODE)
        )
    found = forecast((target("quick"), target("unseen")), request(), learned)
    assert found.total_ms[0] == pytest.approx(600, rel=0.15)
    assert found.total_p90_ms[0] < found.total_ms[1]
    choices = forecast((target("quick"),), request(n=4), learned)
    assert choices.total_ms[0] == pytest.approx(found.total_ms[0])


def spread(found: Forecast) -> float:
    """Of the logarithm of the output's cost, where the prompt costs next to nothing."""
    return float(np.log(found.cost_p90[0] / found.cost_p10[0]) / (2 * Z90))


def test_few_observations_do_not_make_sure() -> None:
    place, learned = target("a", max_output=10**5), Learned()
    empty = request(prompt_bytes=1)
    assert spread(forecast((place,), empty)) == pytest.approx(PRIOR_SPREAD, rel=0.02)
    learned.observe(Seen(target="a", output=400, task=Task.CODE))
    assert spread(forecast((place,), empty, learned)) > 0.3
    for _ in range(300):
        learned.observe(Seen(target="a", output=400, task=Task.CODE))
    assert spread(forecast((place,), empty, learned)) < 0.25


def test_pictures_count() -> None:
    with_picture, without = (forecast(PLACES[:1], request(images=images)).cost[0] for images in (1, 0))
    assert with_picture > without


def test_efforts_and_caps_of_clients_do_not_fill_the_memory() -> None:
    known = Forecaster(PLACES, Learned(), Ignorance())
    for cap in range(3 * MOST_KNOWN):
        known.forecast(PLACES, request(), SEEN, 0, cap)
    assert len(known._known) <= MOST_KNOWN


@pytest.mark.parametrize(("waiting", "spread_ms"), [(0, 2_000), (3, 1_000), (99, 200)])
def test_a_queue_delays_all_of_an_answer(waiting: int, spread_ms: int) -> None:
    """The longer it is, the better its time is known: a sum of many scatters less than one."""
    plain = forecast(PLACES, request())
    found = delayed(plain, PLACES, {PLACES[1].id: Queue(wait_ms=2_000, waiting=waiting)})
    for name, more in (("first_ms", 2_000), ("total_ms", 2_000)):
        difference = getattr(found, name) - getattr(plain, name)
        assert difference == pytest.approx([more * (at == 1) for at in range(len(PLACES))])
    own = plain.total_p90_ms[1] - plain.total_ms[1]
    assert found.total_p90_ms[1] - found.total_ms[1] == pytest.approx(np.hypot(own, 1.2816 * spread_ms))
    assert found.cost is plain.cost
