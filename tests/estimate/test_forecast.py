"""All targets at once are as each by itself, costs are what a price engine would make of them, and times follow."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from router.estimate.forecast import FRESH_MS, MOST_KNOWN, PRIOR_SPREAD, Forecaster, ForecastInput
from router.estimate.learn import TargetStats
from router.estimate.pass_rate import PassRateModel
from router.estimate.price import charge
from router.types.attempt import AttemptSample, Usage
from router.types.decision import Z90, Forecast
from router.types.price import NANO_PER_USD, Price, Rule
from router.types.request import USUAL_THINKING, Classification, Endpoint, Limits, Request, TokensRead
from router.types.target import Contract, Queue, ServedEngine, Target, Task, Thinking
from tests.decide.values import PRICE, estimate, reading, request, target
from tests.tables import each_row

SEEN = Classification(data_class="internal", difficulty=0.5, task=Task.CODE)
THINKS = Thinking(contract=Contract.LEVEL, levels=("none", "low", "high"), tokens=(0, 700, 5_000))
EXACT = structs.replace(THINKS, contract=Contract.EXACT, streamed=True)
DEAR = Price(input=3_000_000_000, output=15_000_000_000, reasoning=20_000_000_000, version="v")
TIERS = Price(
    input=1_000_000_000,
    output=2_000_000_000,
    rules=(Rule(above=10_000, times=(2, 1)), Rule(above=50_000, rates={"input": 5_000_000_000, "output": 2})),
    version="v",
)
TIERED = target("tiers", context=10**6, price=TIERS, max_output=64_000)
LARGE: dict[str, Any] = {"context": 10**6, "max_output": 64_000}
PLACES = (
    target("plain", **LARGE),
    target("thinks", **LARGE, thinking=THINKS, price=DEAR),
    target("exact", context=10**6, max_output=3_000, thinking=EXACT, price=DEAR),
    structs.replace(target("low", **LARGE, thinking=THINKS, price=DEAR), effort="low"),
    target("free", context=10**6, price=Price(input=0, output=0, version="v")),
    target("short", context=2_000, max_output=50),
)
PLAIN, THINKING = PLACES[:1], PLACES[1:2]
REQUESTS = st.builds(
    lambda size, budget, **fields: request(
        prompt_bytes=size, dense_bytes=size // 3, limits=Limits(thinking_budget=budget), **fields
    ),
    st.integers(1, 10**5),
    st.none() | st.integers(0, 10**4),
    n=st.integers(1, 8),
    max_output=st.none() | st.integers(1, 10**5),
    effort=st.sampled_from([None, "none", "low", "high"]),
    endpoint=st.sampled_from([Endpoint.CHAT, Endpoint.EMBEDDINGS]),
    images=st.sampled_from([0, 0, 2]),
)


def attempt(place: Target, output: int, share: float, effort: str) -> AttemptSample:
    thinking = int(output * share) if place.model.thinking.contract is not Contract.NONE else 0
    plain = AttemptSample(target=place.id, effort=effort, task=Task.CODE, script="text", expected_input=100)
    return structs.replace(plain, input=output, output=output, thinking=thinking)


EFFORTS = st.sampled_from(["", "low", "high"])
ATTEMPT = st.builds(attempt, st.sampled_from(PLACES), st.integers(1, 5_000), st.floats(0, 1), EFFORTS)
ATTEMPTS = st.lists(ATTEMPT, max_size=12)


def taught(*attempts: AttemptSample) -> TargetStats:
    learned = TargetStats()
    for attempt in attempts:
        learned.observe(attempt)
    return learned


def forecast(
    places: tuple[Target, ...], asked: Request, learned: TargetStats | None = None, seen: Classification = SEEN
) -> Forecast:
    known = Forecaster(places, learned or TargetStats(), PassRateModel(places))
    return known.forecast(places, ForecastInput(asked, seen))


def reads(output: float, thinking: float = USUAL_THINKING) -> Classification:
    return structs.replace(SEEN, reading=reading(output, thinking))


READ = st.just(SEEN) | st.builds(reads, st.floats(1, 30_000), st.floats(0, 2))


@given(REQUESTS, ATTEMPTS, READ)
def test_all_at_once_is_each_by_itself(asked: Request, attempts: list[AttemptSample], seen: Classification) -> None:
    """The usual cost is of a usual request within the same cap: the cap is no part of what a request asks for."""
    learned = taught(*attempts)
    every, usual = (forecast(PLACES, asked, learned, of) for of in (seen, SEEN))
    assert every.usual_cost == pytest.approx(usual.cost)
    for at, place in enumerate(PLACES):
        alone = forecast((place,), asked, learned, seen)
        assert np.ravel(alone.foretold) == pytest.approx(np.array(every.foretold)[:, at])


@given(REQUESTS, ATTEMPTS, READ)
def test_everything_is_a_number_and_in_order(
    asked: Request, attempts: list[AttemptSample], seen: Classification
) -> None:
    every = forecast(PLACES, asked, taught(*attempts), seen)
    ranges = every.ranges()
    columns = np.hstack([np.ravel(column) for column in (*structs.astuple(every), *ranges) if np.ndim(column)])
    assert (np.isfinite(columns) & (columns >= 0)).all()
    assert (ranges.cost_p10 <= ranges.cost_p90).all()
    assert (ranges.first_ms <= ranges.total_ms).all()
    assert (every.foretold[2] <= every.foretold[1] + 1e-9).all()
    most = np.array([min(asked.max_output or 10**9, place.model.max_output) for place in PLACES]) * asked.choices
    assert (every.foretold[1] <= most + 1e-6).all()


def test_targets_in_the_order_asked_for_and_efforts_and_caps_of_clients_do_not_fill_the_memory() -> None:
    known = Forecaster(PLACES, TargetStats(), PassRateModel(PLACES))
    whole = known.forecast(PLACES, ForecastInput(request(), SEEN))
    some = known.forecast((PLACES[4], PLACES[1]), ForecastInput(request(), SEEN))
    assert some.cost.tolist() == [whole.cost[4], whole.cost[1]]
    for cap in range(3 * MOST_KNOWN):
        known.forecast(PLACES, ForecastInput(request(limits=Limits(thinking_budget=cap)), SEEN))
    assert len(known._known) <= MOST_KNOWN


@each_row("choices", [1, 3])
def test_thoughts_are_counted_in_every_choice_and_at_their_own_price(choices: int) -> None:
    asked = request(effort="low", n=choices)
    known = forecast(THINKING, asked, seen=reads(400, 1))
    tokens = estimate(THINKING[0], asked, TargetStats()).input_tokens
    usage = Usage(input_uncached=tokens, output_visible=400 * choices, output_reasoning=700 // 2 * choices)
    assert known.cost[0] == pytest.approx(charge(DEAR, usage).nano, rel=3e-3)
    assert known.foretold[2][0] == pytest.approx(350 * choices, rel=3e-3)


def test_an_answer_that_a_cap_cuts_is_no_dearer_and_no_slower_than_the_cap() -> None:
    """Else a short cap would still fail a deadline."""
    capped, free = (forecast(PLAIN, request(max_output=most)) for most in (400, None))
    assert capped.ranges().cost_p90[0] == pytest.approx(capped.cost[0])
    assert free.ranges().cost_p90[0] > 2 * free.cost[0]
    assert capped.ranges().total_p90_ms[0] < free.ranges().total_p90_ms[0]


CAPS = (None, 100_000, 1_000, 100)


def test_a_cap_that_thoughts_fill_leaves_no_answer_to_be_right() -> None:
    thinking, plain = (
        [float(forecast(places, request(effort="high", max_output=cap), seen=reads(50)).p[0]) for cap in CAPS]
        for places in (THINKING, PLAIN)
    )
    assert thinking == sorted(thinking, reverse=True)
    assert thinking[1] > 0.9 * thinking[0] > 5 * thinking[-1]
    assert min(plain) > 0.98 * max(plain)


@each_row("tokens", [100, 5_000, 9_800, 10_300, 40_000, 60_000, 400_000])
def test_size_tiers(tokens: int) -> None:
    """A dearer tier reprices all of the request, and may begin anywhere."""
    size = round(tokens / 0.73)
    cost = forecast((TIERED,), request(prompt_bytes=size, dense_bytes=size, max_output=10)).cost[0]
    assert cost == pytest.approx(charge(TIERS, Usage(input_uncached=tokens, output_visible=10)).nano, rel=0.01)


def test_a_tier_is_reached_by_the_tokens_that_a_target_makes_of_a_text() -> None:
    """This one takes twice as many as usual."""
    sizes, sample = (100, 1_000) * 100, AttemptSample(target="tiers", script="text", output=10)
    learned = taught(*(structs.replace(sample, input=2 * size, expected_input=size) for size in sizes))
    asked = request(prompt_bytes=round(7_000 / 0.17), dense_bytes=0, max_output=10)
    cost = forecast((TIERED,), asked, learned).cost[0]
    assert 14_000 * 1_900 < cost == pytest.approx(estimate(TIERED, asked, learned).cost, rel=0.01)


def test_service_tier_region_and_hour() -> None:
    """A price that changes is seen within a second."""
    rules = (Rule(service_tier="flex", times=(1, 2)), Rule(region="eu", times=(11, 10)))
    price = structs.replace(PRICE, rules=(*rules, Rule(since_ms=10_500, times=(3, 1))))
    places = here, eu = target("here", price=price), target("eu", price=price, region="eu")
    known = Forecaster(places, TargetStats(), PassRateModel(places))
    usual, abroad = known.forecast((here, eu), ForecastInput(request(), SEEN, 10_000)).cost
    (flex,) = known.forecast((here,), ForecastInput(request(service_tier="flex"), SEEN, 10_000)).cost
    (later,) = known.forecast((here,), ForecastInput(request(), SEEN, 10_000 + FRESH_MS)).cost
    assert [abroad / usual, flex / usual, later / usual] == pytest.approx([1.1, 0.5, 3])


def test_without_a_price_the_worst_is_assumed_and_pictures_count() -> None:
    unpriced, priced = forecast((target("a", price=None), target("b")), request()).cost
    assert unpriced > priced
    with_picture, without = (forecast(PLAIN, request(images=images)).cost[0] for images in (1, 0))
    assert with_picture > without


HOURLY = 2 * NANO_PER_USD
MEASURED = Price(input=4 * NANO_PER_USD, cache_read=NANO_PER_USD, output=40 * NANO_PER_USD, version="measured e 2026")
ENGINE = ServedEngine(name="e", urls=("http://127.0.0.1:9/v1",), hourly=HOURLY)


MACHINE = structs.replace(target("gpu", max_output=64_000), engine=ENGINE, hourly=HOURLY)


def working(throughput: int) -> TargetStats:
    """Tokens a second, by requests that follow one another."""
    attempt = AttemptSample(target="gpu", total_ms=1_000, input=10, expected_input=10, output=throughput)
    return taught(*(structs.replace(attempt, ended_ms=number * 1_000) for number in range(200)))


@each_row("throughput", [50, 500])
def test_an_hour_of_a_machine_over_what_it_writes_in_it_until_its_price_is_measured(throughput: int) -> None:
    """2 USD an hour. The prompt is read for nothing: its time is in the throughput."""
    asked = request(max_output=20)
    for gpu in (MACHINE, structs.replace(MACHINE, engine=None)):
        cost = forecast((gpu,), asked, working(throughput)).cost[0]
        assert cost == pytest.approx(20 * HOURLY / 3_600 / throughput, rel=0.01)
    gpu = structs.replace(target("gpu"), hourly=HOURLY)
    assert forecast((gpu,), asked).cost == forecast((target("gpu"),), asked).cost, "its list price before it ran"


def test_forecast_hold_and_charge_are_at_the_measured_price() -> None:
    """Neither the list nor the throughput of one's own requests: others have their part of the engine."""
    learned, listed, asked = working(50), (MACHINE,), request(max_output=20)
    learned.measured.publish({"e": MEASURED})
    (priced,) = learned.measured.priced(listed)
    known = Forecaster(listed, learned, PassRateModel(listed)).forecast((priced,), ForecastInput(asked, SEEN))
    held = estimate(priced, asked, learned, Task.CHAT)
    assert known.cost[0] == pytest.approx(held.input_tokens * 4_000 + 20 * 40_000, rel=0.2)
    assert held.hold >= 20 * 40_000
    cost = charge(priced.model.price, Usage(input_uncached=100, cache_read=50, output_visible=20))
    assert (cost.nano, cost.price_version) == (100 * 4_000 + 50 * 1_000 + 20 * 40_000, MEASURED.version)
    unpaid = tuple(structs.replace(MACHINE, hourly=hourly) for hourly in (None, 0))
    assert learned.measured.priced(unpaid) == unpaid


def test_times_follow_what_was_measured_and_few_observations_do_not_make_sure() -> None:
    quick = AttemptSample(target="quick", output=100, first_ms=100, total_ms=600, task=Task.CODE)
    learned = taught(*(structs.replace(quick, ended_ms=number * 1_000) for number in range(300)))
    known = forecast((target("quick"), target("unseen")), request(), learned).ranges()
    assert known.total_ms[0] == pytest.approx(600, rel=0.15)
    assert known.total_p90_ms[0] < known.total_ms[1]
    assert forecast((target("quick"),), request(n=4), learned).ranges().total_ms[0] == pytest.approx(known.total_ms[0])

    def spread(times: int) -> float:
        """Of the logarithm of the output's cost, where the prompt costs next to nothing."""
        learned = taught(*[AttemptSample(target="a", output=400, task=Task.CODE)] * times)
        known = forecast((target("a", max_output=10**5),), request(prompt_bytes=1), learned).ranges()
        return float(np.log(known.cost_p90[0] / known.cost_p10[0]) / (2 * Z90))

    assert spread(0) == pytest.approx(PRIOR_SPREAD, rel=0.02)
    assert spread(1) > 0.3 > 0.25 > spread(301)
    unread = taught(*[AttemptSample(target="a", output=40, read=TokensRead(0))] * 99)  # after a restart: lengths only
    assert 400 < forecast((target("a"),), request(), unread).foretold[1][0] < 600


@each_row("waiting, spread_ms", [(0, 2_000), (3, 1_000), (99, 200)])
def test_a_queue_delays_all_of_an_answer(waiting: int, spread_ms: int) -> None:
    """The longer it is, the better its time is known: a sum of many scatters less than one."""
    known, busy = Forecaster(PLACES, TargetStats(), PassRateModel(PLACES)), Queue(wait_ms=2_000, waiting=waiting)
    every = (known.forecast(PLACES, ForecastInput(request(), SEEN), queues) for queues in ({}, {PLACES[1].id: busy}))
    plain, late = (each.ranges() for each in every)
    for difference in (late.first_ms - plain.first_ms, late.total_ms - plain.total_ms):
        assert difference == pytest.approx([2_000 * (at == 1) for at in range(len(PLACES))])
    own = plain.total_p90_ms[1] - plain.total_ms[1]
    assert late.total_p90_ms[1] - late.total_ms[1] == pytest.approx(np.hypot(own, 1.2816 * spread_ms))
