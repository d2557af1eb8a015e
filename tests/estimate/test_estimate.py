"""What a target would do with a request: expected tokens, and what is held for it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from router.estimate.estimate import affordable_output, estimate, worst_cost
from router.estimate.learn import Learned, Seen
from router.estimate.price import charge
from router.estimate.size import LEAST_ANSWER, TYPICAL_ANSWER
from router.estimate.thinking import SCALE, fits_thinking
from router.types.account import Amount
from router.types.plan import Candidate
from router.types.price import Price, Rule
from router.types.request import Endpoint, Limits, Request
from router.types.target import Contract, Provider, Target, Thinking, Wire
from router.types.usage import Usage
from tests.decide.values import PRICE, request, target

NEW = Learned()
THINKS = Thinking(contract=Contract.LEVEL, levels=("none", "low", "high"), tokens=(0, 700, 5_000))
ALWAYS = Thinking(contract=Contract.ALWAYS_ON, levels=("high",), tokens=(5_000,))
EXACT = Thinking(contract=Contract.EXACT, levels=("none", "low", "high"), tokens=(0, 700, 5_000), streamed=True)
CONTRACTS = st.sampled_from([Thinking(), THINKS, ALWAYS, EXACT, structs.replace(THINKS, streamed=True)])
REQUESTS = st.builds(
    lambda size, n, cap, effort, budget: request(
        prompt_bytes=size, n=n, max_output=cap, effort=effort, limits=Limits(thinking_budget=budget)
    ),
    st.integers(1, 10**6),
    st.integers(1, 128),
    st.none() | st.integers(1, 10**6),
    st.sampled_from([None, "none", "low", "medium", "high"]),
    st.none() | st.integers(0, 10**5),
)
TARGETS = st.builds(
    lambda rate_in, rate_out, reasoning, most, thinking, rules: target(
        price=Price(input=rate_in, output=rate_out, reasoning=reasoning, rules=rules, version="v"),
        max_output=most,
        thinking=thinking,
        context=10**6,
    ),
    st.integers(0, 10**11),
    st.integers(0, 10**11),
    st.none() | st.integers(0, 10**11),
    st.integers(1, 10**5),
    CONTRACTS,
    st.sampled_from([(), (Rule(above=1_000, times=(2, 1)),)]),
)


@given(TARGETS, REQUESTS)
def test_the_whole_hold_covers_every_answer_within_the_caps(place: Target, asked: Request) -> None:
    """However the output splits into visible and thinking, in every choice."""
    figures = estimate(place, asked, NEW)
    most = figures.max_output * asked.n
    for usage in (Usage(output_visible=most), Usage(output_reasoning=most)):
        worst = structs.replace(usage, input_uncached=figures.input_bound)
        assert charge(place.model.price, worst).nano <= figures.hold
    assert figures.cost <= figures.hold == figures.whole.usd


@given(TARGETS, REQUESTS)
def test_a_hold_is_at_least_a_short_answer_and_at_most_the_worst_case(place: Target, asked: Request) -> None:
    figures = estimate(place, asked, NEW)
    for small, large in ((figures.least, figures.tight), (figures.tight, figures.whole)):
        assert small.usd <= large.usd
        assert small.thinking <= large.thinking


@given(TARGETS, REQUESTS, st.integers(0, 10**14))
def test_the_affordable_output_is_the_most_that_fits(place: Target, asked: Request, nano: int) -> None:
    step = Candidate(place, estimate(place, asked, NEW))
    output = affordable_output(step, asked, nano)
    assert 0 <= output <= step.estimate.max_output
    if output:
        assert worst_cost(step, asked, output * asked.n) <= nano
    if output < step.estimate.max_output:
        assert worst_cost(step, asked, (output + 1) * asked.n) > nano


@pytest.mark.parametrize(
    ("fields", "tokens"),
    [
        ({}, TYPICAL_ANSWER),
        ({"max_output": 100}, 100),
        ({"max_output": 100, "n": 3}, 300),
        ({"endpoint": Endpoint.EMBEDDINGS}, 0),
    ],
)
def test_expected_output_without_thinking(fields: dict[str, Any], tokens: int) -> None:
    assert estimate(target(), request(**fields), NEW).output_tokens == tokens


@pytest.mark.parametrize(
    ("fields", "effort", "p90"),
    [
        ({"effort": "none"}, "none", 0),
        ({"effort": "low"}, "low", 700),
        ({"effort": "medium"}, "low", 700),
        ({"effort": "high"}, "high", 5_000),
        ({}, "", 700),
        ({"effort": "high", "limits": Limits(thinking_budget=1_000)}, "low", 700),
        ({"limits": Limits(thinking_budget=8_000)}, "high", 5_000),
        ({"limits": Limits(thinking_budget=1_000)}, "low", 700),
        ({"effort": "low", "limits": Limits(thinking_budget=100)}, "none", 0),
        ({"effort": "high", "n": 10, "limits": Limits(thinking_budget=8_000)}, "low", 7_000),
    ],
)
def test_thinking_by_effort_and_budget(fields: dict[str, Any], effort: str, p90: int) -> None:
    """The mean is half of the card's p90 until anything was seen; a budget is for all choices together."""
    figures = estimate(target(thinking=THINKS, max_output=100_000), request(**fields), NEW)
    assert (figures.effort, figures.thinking_tokens) == (effort, p90 // 2)


def test_a_class_s_cap_counts_like_the_header_s() -> None:
    place = target(thinking=THINKS, max_output=100_000)
    assert estimate(place, request(effort="high"), NEW, thinking_cap=1_000).effort == "low"


def test_the_target_s_own_effort_wins() -> None:
    place = target(thinking=THINKS, max_output=100_000)
    low = structs.replace(place, effort="low")
    assert estimate(low, request(effort="high"), NEW).effort == "low"


def test_an_exact_contract_bounds_the_thinking_apart_from_the_output() -> None:
    place = target(thinking=EXACT, max_output=100_000)
    assert estimate(place, request(limits=Limits(thinking_budget=2_000)), NEW).whole.thinking == 2_000
    assert estimate(place, request(effort="low", n=2), NEW).whole.thinking == 1_400
    assert estimate(place, request(), NEW).whole.thinking == 100_000


def test_hidden_thoughts_are_held_with_the_whole_cap_that_is_sent() -> None:
    hidden = estimate(target(thinking=ALWAYS, max_output=100_000), request(), NEW)
    shown = estimate(target(thinking=structs.replace(ALWAYS, streamed=True), max_output=100_000), request(), NEW)
    assert not hidden.metered
    assert shown.metered
    assert hidden.tight.thinking > 2 * 5_000 > shown.tight.thinking
    assert hidden.tight.usd > 5 * shown.tight.usd


@pytest.mark.parametrize(
    ("thinking", "tokens"),
    [
        (Thinking(), 0),
        (THINKS, 0),
        (ALWAYS, 5_000),
        (structs.replace(THINKS, levels=("low", "high"), tokens=(700, 5_000)), 700),
        (Thinking(contract=Contract.LEVEL, levels=("low", "high")), SCALE["low"]),
        (Thinking(contract=Contract.TARGET, levels=("low",), tokens=(1_024,), minimum=128), 128),
        (Thinking(contract=Contract.SWITCH, levels=("none", "high"), tokens=(0, 9)), 0),
    ],
)
def test_the_least_thinking_that_a_target_can_be_held_to(thinking: Thinking, tokens: int) -> None:
    place = target(thinking=thinking)
    assert fits_thinking(place, tokens, NEW)
    assert not fits_thinking(place, tokens - 1, NEW)


def test_a_model_that_always_thinks_fits_once_it_was_seen_to() -> None:
    place, learned = target(thinking=ALWAYS), Learned()
    for _ in range(100):
        learned.observe(Seen(target=place.id, output=900, thinking=800))
    assert fits_thinking(place, 1_000, learned)
    assert not fits_thinking(place, 700, learned)


def test_embeddings_hold_no_output() -> None:
    figures = estimate(target(), request(endpoint=Endpoint.EMBEDDINGS), NEW)
    usd = -(-figures.input_bound * PRICE.input // 10**6)
    assert (figures.max_output, figures.least, figures.hold) == (0, Amount(usd), usd)


def test_the_least_answer_is_what_the_client_asks_for_if_that_is_less() -> None:
    def least(cap: int | None) -> int:
        return estimate(target(), request(max_output=cap), NEW).least.usd

    assert least(10) < least(None) == least(LEAST_ANSWER)


def test_a_model_without_a_price_holds_the_worst_case() -> None:
    assert estimate(target(price=None), request(), NEW).hold > estimate(target(), request(), NEW).hold


def test_every_prompt_and_every_completion_to_choose_from_is_paid_for() -> None:
    one, many = (
        estimate(target(), request(endpoint=Endpoint.COMPLETIONS, **fields), NEW)
        for fields in ({}, {"prompts": 3, "n": 2, "best_of": 4})
    )
    assert many.output_tokens == 12 * one.output_tokens


def test_cache_writes_are_held_where_the_provider_may_make_them() -> None:
    price = structs.replace(PRICE, cache_write=2 * PRICE.input, cache_write_1h=4 * PRICE.input)
    anthropic = Provider(id="a", wire=Wire.ANTHROPIC, base_url="http://127.0.0.1:9")

    def held(**fields: Any) -> int:
        return estimate(target(provider=anthropic, price=price), request(max_output=1, **fields), NEW).hold

    assert held() < held(caches=True) < held(caches=True, caches_long=True)
    assert estimate(target(price=price), request(max_output=1), NEW).hold == held(caches=True)
