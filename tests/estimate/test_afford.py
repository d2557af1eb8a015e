"""A request is made to fit what is granted: effort first, then the cap, and never without room for an answer."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from router.estimate.afford import Fit, fit
from router.estimate.estimate import estimate, worst_cost
from router.estimate.learn import Learned, Seen
from router.estimate.size import LEAST_ANSWER
from router.estimate.thinking import p90
from router.types.account import Amount
from router.types.plan import Candidate
from router.types.request import Endpoint, Limits, Request
from router.types.target import Contract, Target, Thinking
from router.types.task import Task
from tests.decide.values import request, target

NEW = Learned()
ENDLESS = 2**62
LEVELS = ("none", "low", "high")
TOKENS = (0, 700, 5_000)


def thinks(contract: Contract, **fields: Any) -> Thinking:
    shape = {"levels": LEVELS, "tokens": TOKENS} if contract is not Contract.NONE else {}
    return Thinking(contract=contract, **({**shape, **fields}))


def place(thinking: Thinking, **fields: Any) -> Target:
    return target(thinking=thinking, max_output=50_000, context=100_000, **fields)


def step(thinking: Thinking, asked: Request, learned: Learned = NEW) -> Candidate:
    found = place(thinking)
    return Candidate(found, estimate(found, asked, learned))


def paying(one: Candidate, asked: Request, output: int, thinking: int = ENDLESS) -> Amount:
    """Enough for so many output tokens, and no more."""
    return Amount(worst_cost(one, asked, output), thinking)


CONTRACTS = st.builds(
    lambda contract, streamed, least, stops: (
        thinks(contract, streamed=streamed)
        if stops or contract in (Contract.NONE, Contract.SWITCH)
        else thinks(contract, streamed=streamed, levels=LEVELS[1:], tokens=TOKENS[1:], minimum=least)
    ),
    st.sampled_from(list(Contract)),
    st.booleans(),
    st.sampled_from([0, 128, 1_024]),
    st.booleans(),
)
REQUESTS = st.builds(
    lambda size, n, cap, effort: request(prompt_bytes=size, n=n, max_output=cap, effort=effort),
    st.integers(1, 20_000),
    st.integers(1, 4),
    st.none() | st.integers(1, 60_000),
    st.sampled_from([None, "none", "low", "high", "max"]),
)
SEEN = st.lists(st.tuples(st.integers(1, 30_000), st.sampled_from(["", "low", "high"])), max_size=20)


def taught(outputs: list[tuple[int, str]]) -> Learned:
    learned = Learned()
    for output, effort in outputs:
        learned.observe(Seen(target="t", effort=effort, output=output, thinking=output * 9 // 10))
    return learned


@given(CONTRACTS, REQUESTS, SEEN, st.integers(0, 10**8), st.integers(0, 10**5) | st.just(ENDLESS))
def test_what_is_sent_costs_no_more_than_is_granted_unless_it_is_metered(
    thinking: Thinking, asked: Request, outputs: list[tuple[int, str]], usd: int, thoughts: int
) -> None:
    learned = taught(outputs)
    one = step(thinking, asked, learned)
    found = fit(one, asked, Amount(usd, thoughts), learned)
    if found is None:
        return
    output = one.estimate.max_output if found.max_output is None else found.max_output
    assert output > 0
    if not found.metered:
        assert worst_cost(one, asked, output * asked.n) <= usd
        assert worst_thinking(thinking, found, output) * asked.n <= thoughts


def worst_thinking(thinking: Thinking, found: Fit, output: int) -> int:
    if thinking.contract is Contract.NONE or found.effort == "none":
        return 0
    exact = thinking.contract is Contract.EXACT and found.thinking_budget is not None
    return min(output, found.thinking_budget or 0) if exact else output


@given(CONTRACTS, REQUESTS, SEEN, st.integers(0, 10**8), st.integers(0, 10**5) | st.just(ENDLESS))
def test_a_cap_leaves_room_for_the_usual_thinking_and_an_answer(
    thinking: Thinking, asked: Request, outputs: list[tuple[int, str]], usd: int, thoughts: int
) -> None:
    learned = taught(outputs)
    one = step(thinking, asked, learned)
    found = fit(one, asked, Amount(usd, thoughts), learned)
    if found is None or found.max_output is None:
        return
    usual = 0 if found.effort == "none" else p90(one.target, found.effort or "", learned, Task.CHAT)
    if found.thinking_budget is not None:
        usual = min(usual, found.thinking_budget)
    elif thinking.contract is Contract.LEVEL:  # a level that was not seen yet counts no more than those above it
        above = (level for level in ("", "high", "low") if found.effort != level)
        usual = min([usual, *(p90(one.target, level, learned, Task.CHAT) for level in above)])
    assert found.max_output >= min(one.estimate.max_output, usual + LEAST_ANSWER)


@given(CONTRACTS, REQUESTS, SEEN)
def test_what_was_asked_for_as_least_tight_and_whole_is_enough(
    thinking: Thinking, asked: Request, outputs: list[tuple[int, str]]
) -> None:
    learned = taught(outputs)
    one = step(thinking, asked, learned)
    figures = one.estimate
    assert fit(one, asked, figures.least, learned) is not None
    tight, whole = fit(one, asked, figures.tight, learned), fit(one, asked, figures.whole, learned)
    assert tight is not None
    assert tight.lowered == ()
    assert whole is not None
    assert (whole.lowered, whole.max_output, whole.metered) == ((), None, False)


@given(CONTRACTS, REQUESTS, st.integers(0, 20_000))
def test_a_cap_on_thinking_is_honoured_or_the_target_refused(thinking: Thinking, asked: Request, cap: int) -> None:
    one = step(thinking, asked)
    found = fit(one, asked, Amount(ENDLESS, ENDLESS), NEW, cap)
    share = cap // asked.n
    if found is None:
        assert not thinking.can_stop
        return
    if thinking.contract is Contract.NONE or found.effort == "none":
        return
    if thinking.contract in (Contract.EXACT, Contract.TARGET):
        assert found.thinking_budget is not None
        assert thinking.minimum <= found.thinking_budget <= share
    else:
        assert p90(one.target, found.effort or "", NEW, None) <= share
        assert found.effort or thinking.contract is Contract.ALWAYS_ON, "something was said"


ROUTES: dict[str, tuple[Thinking, str | None, int, Fit | None]] = {
    "the effort goes down before the answer is cut": (
        thinks(Contract.LEVEL),
        "high",
        4_000,
        Fit(max_output=4_000, effort="low", lowered=("effort", "output"), thinks=True),
    ),
    "the effort stays where only the answer has to be shorter": (
        thinks(Contract.LEVEL),
        "high",
        6_000,
        Fit(max_output=6_000, effort="high", lowered=("output",), thinks=True),
    ),
    "the effort goes down to none": (
        thinks(Contract.LEVEL),
        "high",
        900,
        Fit(max_output=900, effort="none", lowered=("effort", "output")),
    ),
    "no answer, no request": (thinks(Contract.LEVEL), "high", LEAST_ANSWER - 1, None),
    "a lower effort that fits is not cut as well": (
        thinks(Contract.LEVEL, streamed=True),
        "high",
        1_400,
        Fit(effort="low", lowered=("effort",), metered=True, thinks=True),
    ),
    "a switch is turned off": (
        thinks(Contract.SWITCH, levels=("none", "high"), tokens=(0, 5_000)),
        "high",
        2_000,
        Fit(effort="none", lowered=("effort",), metered=True),
    ),
    "what always thinks has its answer cut": (
        thinks(Contract.ALWAYS_ON),
        None,
        6_000,
        Fit(max_output=6_000, lowered=("output",), thinks=True),
    ),
    "or is not asked": (thinks(Contract.ALWAYS_ON), None, 5_000, None),
    "a number goes down": (
        thinks(Contract.EXACT),
        "high",
        2_000,
        Fit(max_output=2_000, effort="high", thinking_budget=1_744, lowered=("effort", "output"), thinks=True),
    ),
    "a number below the provider's least turns it off": (
        thinks(Contract.TARGET, minimum=1_024),
        "high",
        1_200,
        Fit(effort="none", max_output=None, lowered=("effort",), metered=True),
    ),
    "a model that does not think is cut": (Thinking(), "high", 500, Fit(max_output=500, lowered=("output",))),
    "or metered": (Thinking(), "high", 1_100, Fit(metered=True)),
}


@pytest.mark.parametrize("name", ROUTES)
def test_order(name: str) -> None:
    thinking, effort, output, expected = ROUTES[name]
    asked = request(effort=effort)
    one = step(thinking, asked)
    assert fit(one, asked, paying(one, asked, output), NEW) == expected


def test_thinking_tokens_that_are_short_lower_the_effort_too() -> None:
    asked = request(effort="high")
    one = step(thinks(Contract.LEVEL, streamed=True), asked)
    assert fit(one, asked, Amount(ENDLESS, 800), NEW) == Fit(
        effort="low", lowered=("effort",), metered=True, thinks=True
    )
    assert fit(one, asked, Amount(ENDLESS, 0), NEW) == Fit(effort="none", lowered=("effort",))


def test_an_exact_number_makes_the_thinking_it_is_granted_true() -> None:
    asked = request(effort="high", limits=Limits(thinking_budget=3_000))
    one = step(thinks(Contract.EXACT), asked)
    found = fit(one, asked, Amount(ENDLESS, 2_000), NEW)
    assert found is not None
    assert (found.effort, found.thinking_budget, found.lowered) == ("high", 2_000, ("effort",))


def test_the_client_s_own_small_cap_needs_no_more_room() -> None:
    asked = request(effort="high", max_output=50)
    one = step(thinks(Contract.LEVEL), asked)
    assert fit(one, asked, one.estimate.whole, NEW) == Fit(effort="high", thinks=True)


def test_embeddings_fit_or_do_not() -> None:
    asked = request(endpoint=Endpoint.EMBEDDINGS)
    one = step(Thinking(), asked)
    assert fit(one, asked, one.estimate.tight, NEW) == Fit()
    assert fit(one, asked, structs.replace(one.estimate.tight, usd=one.estimate.tight.usd - 1), NEW) is None
