"""What a target would do with a request: expected tokens, the hold, the cap that makes the hold true."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.estimate.estimate import LEAST_ANSWER, affordable_output, estimate, least_cost
from router.estimate.price import charge
from router.estimate.tokens import TYPICAL_ANSWER, TYPICAL_THOUGHT, input_bound
from router.types.price import Price
from router.types.request import Endpoint, Limits, Request
from router.types.target import Contract, Target, Thinking
from router.types.usage import Usage
from tests.decide.values import PRICE, request, target

THINKS = Thinking(contract=Contract.LEVEL, levels=("none", "low", "high"), tokens=(0, 700, 5_000))
REQUESTS = st.builds(
    lambda size, n, cap: request(prompt_bytes=size, n=n, max_output=cap),
    st.integers(1, 10**6),
    st.integers(1, 128),
    st.none() | st.integers(1, 10**6),
)
TARGETS = st.builds(
    lambda rate_in, rate_out, reasoning, most: target(
        price=Price(input=rate_in, output=rate_out, reasoning=reasoning, version="v"), max_output=most
    ),
    st.integers(0, 10**11),
    st.integers(0, 10**11),
    st.none() | st.integers(0, 10**11),
    st.integers(1, 10**5),
)


@given(TARGETS, REQUESTS)
def test_the_hold_covers_every_answer_within_the_caps(place: Target, asked: Request) -> None:
    """However the output splits into visible and thinking, in every choice."""
    figures = estimate(place, asked)
    most = figures.max_output * asked.n
    for usage in (Usage(output_visible=most), Usage(output_reasoning=most)):
        worst = Usage(
            input_uncached=input_bound(asked),
            output_visible=usage.output_visible,
            output_reasoning=usage.output_reasoning,
        )
        assert charge(place.model.price, worst).nano <= figures.hold
    assert figures.cost <= figures.hold
    assert least_cost(place, asked) <= figures.hold


@given(TARGETS, REQUESTS, st.integers(0, 10**12))
def test_the_affordable_output_is_the_most_that_fits(place: Target, asked: Request, nano: int) -> None:
    output = affordable_output(place, asked, nano)
    price = place.model.price
    assert price is not None
    if output < 1:
        return

    def cost(tokens: int) -> int:
        both = Usage(input_uncached=input_bound(asked), output_visible=tokens * asked.n)
        thought = Usage(input_uncached=input_bound(asked), output_reasoning=tokens * asked.n)
        return max(charge(price, both).nano, charge(price, thought).nano)

    if price.output:
        assert cost(output) <= nano + 1
    bound = min(asked.max_output or place.model.max_output, place.model.max_output)
    assert output == bound or cost(output + 1) >= nano


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
    assert estimate(target(), request(**fields)).output_tokens == tokens


@pytest.mark.parametrize(
    ("fields", "thought"),
    [
        ({"effort": "none"}, 0),
        ({"effort": "low"}, 700),
        ({"effort": "high"}, 5_000),
        ({}, TYPICAL_THOUGHT),
        ({"effort": "high", "limits": Limits(thinking_budget=256)}, 256),
        ({"effort": "low", "limits": Limits(thinking_budget=4_096)}, 700),
    ],
)
def test_expected_thinking_by_effort_and_budget(fields: dict[str, Any], thought: int) -> None:
    place = target(thinking=THINKS, max_output=100_000)
    assert estimate(place, request(**fields)).output_tokens == TYPICAL_ANSWER + thought


def test_the_target_s_own_effort_wins() -> None:
    place = target(thinking=THINKS, max_output=100_000)
    low = Target(id="low", model=place.model, provider=place.provider, base_url="", effort="low")
    assert estimate(low, request(effort="high")).output_tokens == TYPICAL_ANSWER + 700


def test_embeddings_hold_no_output() -> None:
    figures = estimate(target(), request(endpoint=Endpoint.EMBEDDINGS))
    assert (figures.max_output, figures.hold) == (0, -(-input_bound(request()) * PRICE.input // 10**6))


def test_the_least_answer_is_what_the_client_asks_for_if_that_is_less() -> None:
    assert least_cost(target(), request(max_output=10)) < least_cost(target(), request())
    assert least_cost(target(), request()) == least_cost(target(), request(max_output=LEAST_ANSWER))


def test_a_target_without_a_price_holds_nothing() -> None:
    figures = estimate(target(price=None), request())
    assert (figures.cost, figures.hold, least_cost(target(price=None), request())) == (0, 0, 0)
