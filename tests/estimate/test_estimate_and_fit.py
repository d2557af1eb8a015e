"""What a target would do with a request, what is held for it, and how it is made to fit what is granted."""

from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import structs

from router.estimate.estimate import LEAST_ANSWER, affordable_output, fit, worst_cost
from router.estimate.learn import TargetStats
from router.estimate.price import charge
from router.estimate.tokens import SCALE, fits_thinking, p90
from router.types.account import ANY_AMOUNT, Amount
from router.types.attempt import AttemptSample, Usage
from router.types.decision import Candidate, Estimate, FittedRequest
from router.types.price import Price, Rule
from router.types.request import USUAL_OUTPUT, USUAL_THINKING, Endpoint, Limits, Request
from router.types.target import Contract, Provider, Target, Thinking, Wire
from tests.decide.values import BILLS_ALL, PRICE, REMOTE, estimate, request, target
from tests.tables import data, each_row

NEW = TargetStats()
"""Of the target nothing is known but that its streams come piece by piece."""
NEW.observe(AttemptSample(target="t", largest=1))
ENDLESS = 2**62
LEVELS = ("none", "low", "high")
TOKENS = (0, 700, 5_000)
HIGH = request(effort="high")


def thinks(contract: Contract, **fields: Any) -> Thinking:
    shape = {"levels": LEVELS, "tokens": TOKENS} if contract is not Contract.NONE else {}
    return Thinking(contract=contract, **({**shape, **fields}))


LEVEL, SHOWN = thinks(Contract.LEVEL), thinks(Contract.LEVEL, streamed=True)
EXACT = thinks(Contract.EXACT, streamed=True)
ALWAYS = thinks(Contract.ALWAYS_ON, levels=("high",), tokens=(5_000,))
REQUESTS = st.builds(
    lambda budget, **fields: request(limits=Limits(thinking_budget=budget), **fields),
    st.none() | st.integers(0, 10**5),
    prompt_bytes=st.integers(1, 10**6),
    n=st.integers(1, 128),
    max_output=st.none() | st.integers(1, 10**6),
    effort=st.sampled_from([None, "none", "low", "medium", "high"]),
)
RATES = st.integers(0, 10**11)
TARGETS = st.builds(
    lambda price, most, thinking: target(price=price, max_output=most, thinking=thinking, context=10**6),
    st.builds(
        Price,
        input=RATES,
        output=RATES,
        reasoning=st.none() | RATES,
        rules=st.sampled_from([(), (Rule(above=1_000, times=(2, 1)),)]),
        version=st.just("v"),
    ),
    st.integers(1, 10**5),
    st.sampled_from([Thinking(), LEVEL, ALWAYS, EXACT, SHOWN]),
)


def figures(thinking: Thinking = LEVEL, limit: int | None = None, **fields: Any) -> Estimate:
    """Of a target with room for everything; `limit` is the request's own on its thinking."""
    asked = request(limits=Limits(thinking_budget=limit), **fields)
    return estimate(target(thinking=thinking, max_output=100_000), asked, NEW)


@given(TARGETS, REQUESTS)
def test_the_whole_hold_covers_every_answer_within_the_caps(place: Target, asked: Request) -> None:
    """However the output splits into visible and thinking, in every choice."""
    held = estimate(place, asked, NEW)
    most = held.max_output * asked.n
    for usage in (Usage(output_visible=most), Usage(output_reasoning=most)):
        assert charge(place.model.price, structs.replace(usage, input_uncached=held.input_bound)).nano <= held.hold
    assert held.cost <= held.hold == held.whole.usd
    for small, large in ((held.least, held.tight), (held.tight, held.whole)):
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


def test_expected_output_without_thinking() -> None:
    """Every prompt and every completion to choose from is paid for; embeddings hold no output."""
    rows: list[tuple[dict[str, Any], int]] = [({}, int(USUAL_OUTPUT)), ({"max_output": 100}, 100)]
    rows += [({"max_output": 100, "n": 3}, 300), ({"endpoint": Endpoint.EMBEDDINGS}, 0)]
    rows += [({"endpoint": Endpoint.COMPLETIONS, "prompts": 3, "n": 2, "best_of": 4}, 12 * int(USUAL_OUTPUT))]
    for fields, tokens in rows:
        assert estimate(target(), request(**fields), NEW).output_tokens == tokens
    held = estimate(target(), request(endpoint=Endpoint.EMBEDDINGS), NEW)
    usd = -(-held.input_bound * PRICE.input // 10**6)
    assert (held.max_output, held.metered, held.least, held.hold) == (0, False, Amount(usd), usd)


@each_row("fields, effort, p90", data(__file__, "efforts.yaml"))
def test_thinking_by_effort_and_budget(fields: dict[str, Any], effort: str, p90: int) -> None:
    """First half of the card's p90, of that what a usual request needs; a budget is for all choices together."""
    expected = figures(**fields)
    assert expected.effort == effort
    assert expected.thinking_tokens == pytest.approx(p90 / 2 * USUAL_THINKING, rel=0.01)


def test_caps_of_a_class_and_efforts_of_a_target_count_and_an_exact_contract_bounds_thinking_apart() -> None:
    place = target(thinking=LEVEL, max_output=100_000)
    made = fit(Candidate(place, estimate(place, HIGH, NEW)), HIGH, ANY_AMOUNT, NEW, 1_000)
    assert made == FittedRequest(effort="low", lowered=("effort",), thinks=True)
    assert estimate(structs.replace(place, effort="low"), HIGH, NEW).effort == "low"
    assert figures(EXACT, 2_000).whole.thinking == 2_000
    assert figures(EXACT, effort="low", n=2).whole.thinking == 1_400
    assert figures(EXACT).whole.thinking == 100_000


@each_row(
    "thinking, tokens",
    [
        (Thinking(), 0),
        (LEVEL, 0),
        (ALWAYS, 5_000),
        (structs.replace(LEVEL, levels=("low", "high"), tokens=(700, 5_000)), 700),
        (Thinking(contract=Contract.LEVEL, levels=("low", "high")), SCALE["low"]),
        (Thinking(contract=Contract.TARGET, levels=("low",), tokens=(1_024,), minimum=128), 128),
        (Thinking(contract=Contract.SWITCH, levels=("none", "high"), tokens=(0, 9)), 0),
    ],
)
def test_the_least_thinking_that_a_target_can_be_held_to(thinking: Thinking, tokens: int) -> None:
    place = target(thinking=thinking)
    assert fits_thinking(place, tokens, NEW)
    assert not fits_thinking(place, tokens - 1, NEW)


def test_the_least_answer_is_what_the_client_asks_for_and_hidden_thoughts_are_held_with_the_whole_cap() -> None:
    caps = (10, None, LEAST_ANSWER)
    short, usual, own = (estimate(target(), request(max_output=most), NEW).least.usd for most in caps)
    assert short < usual == own
    hidden, shown = figures(ALWAYS), figures(visible := structs.replace(ALWAYS, streamed=True))
    billed = estimate(target(provider=BILLS_ALL, thinking=visible, max_output=100_000), request(), NEW)
    assert (hidden.metered, hidden.blind, shown.metered, shown.blind, billed.blind) == (False, True, True, False, True)
    assert hidden.tight.thinking == billed.tight.thinking > 2 * 5_000 > shown.tight.thinking
    assert hidden.tight.usd == billed.tight.usd > 5 * shown.tight.usd


def test_cache_writes_are_held_where_the_provider_may_make_them_and_without_a_price_the_worst_case() -> None:
    price = structs.replace(PRICE, cache_write=2 * PRICE.input, cache_write_1h=4 * PRICE.input)
    anthropic = structs.replace(REMOTE, wire=Wire.ANTHROPIC)

    def held(provider: Provider = anthropic, price: Price | None = price, **fields: Any) -> int:
        return estimate(target(provider=provider, price=price), request(max_output=1, **fields), NEW).hold

    assert held() < held(caches=True) < held(caches=True, caches_long=True)
    assert held(REMOTE) == held(caches=True)
    assert held(REMOTE, None) > held(REMOTE, PRICE)


# Made to fit what is granted: effort first, then the cap, and never without room for an answer.


def step(thinking: Thinking, asked: Request, learned: TargetStats = NEW) -> Candidate:
    place = target(thinking=thinking, max_output=50_000, context=100_000)
    return Candidate(place, estimate(place, asked, learned))


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
SMALL = st.builds(
    request,
    prompt_bytes=st.integers(1, 20_000),
    n=st.integers(1, 4),
    max_output=st.none() | st.integers(1, 60_000),
    effort=st.sampled_from([None, "none", "low", "high", "max"]),
)
GRANTED = st.builds(Amount, st.integers(0, 10**8), st.integers(0, 10**5) | st.just(ENDLESS))


def taught(outputs: list[tuple[int, str]]) -> TargetStats:
    """What is learned of whole answers says nothing of streams."""
    learned = TargetStats()
    for output, effort in outputs:
        learned.observe(AttemptSample(target="t", effort=effort, output=output, thinking=output * 9 // 10))
    return learned


LEARNED = st.lists(st.tuples(st.integers(1, 30_000), st.sampled_from(["", "low", "high"])), max_size=20).map(taught)


def worst_thinking(thinking: Thinking, made: FittedRequest, output: int) -> int:
    if thinking.contract is Contract.NONE or made.effort == "none":
        return 0
    exact = thinking.contract is Contract.EXACT and made.thinking_budget is not None
    return min(output, made.thinking_budget or 0) if exact else output


@given(CONTRACTS, SMALL, LEARNED, GRANTED)
def test_what_is_granted_is_kept_within(
    thinking: Thinking, asked: Request, learned: TargetStats, granted: Amount
) -> None:
    """Unless it is metered; and there is room for the usual thinking and an answer."""
    sent = step(thinking, asked, learned)
    made = fit(sent, asked, granted, learned)
    if made is None:
        return
    output = sent.estimate.max_output if made.max_output is None else made.max_output
    assert output > 0
    if not made.metered:
        assert worst_cost(sent, asked, output * asked.n) <= granted.usd
        assert worst_thinking(thinking, made, output) * asked.n <= granted.thinking
    if made.max_output is None:
        return
    usual = 0 if made.effort == "none" else p90(sent.target, made.effort or "", learned)
    if made.thinking_budget is not None:
        usual = min(usual, made.thinking_budget)
    elif thinking.contract is Contract.LEVEL:  # a level that was not seen yet counts no more than those above it
        above = (level for level in ("", "high", "low") if made.effort != level)
        usual = min([usual, *(p90(sent.target, level, learned) for level in above)])
    assert made.max_output >= min(sent.estimate.max_output, usual + LEAST_ANSWER)


@example(thinks(Contract.EXACT, levels=("low",), tokens=(700,), minimum=1_024), request(max_output=1_025), NEW)
@given(CONTRACTS, SMALL, LEARNED)
def test_what_was_asked_for_as_least_or_whole_is_enough(
    thinking: Thinking, asked: Request, learned: TargetStats
) -> None:
    sent = step(thinking, asked, learned)
    figures = sent.estimate
    least, tight, whole = (fit(sent, asked, each, learned) for each in (figures.least, figures.tight, figures.whole))
    room = figures.max_output - min(LEAST_ANSWER, figures.max_output // 2)
    assert least is not None or (thinking.minimum > room and not thinking.can_stop)  # no room for both
    assert max(figures.least.usd, figures.tight.usd) <= figures.whole.usd
    assert tight is not None
    assert whole is not None
    assert (tight.lowered, whole.lowered, whole.max_output, whole.metered) == ((), (), None, False)


@given(CONTRACTS, SMALL, st.integers(0, 20_000))
def test_a_cap_on_thinking_is_honoured_or_the_target_refused(thinking: Thinking, asked: Request, cap: int) -> None:
    sent = step(thinking, asked)
    made = fit(sent, asked, Amount(ENDLESS, ENDLESS), NEW, cap)
    share = cap // asked.n
    if made is None:
        assert not thinking.can_stop
    elif thinking.contract is Contract.NONE or made.effort == "none":
        return
    elif thinking.contract in (Contract.EXACT, Contract.TARGET):
        assert made.thinking_budget is not None
        assert thinking.minimum <= made.thinking_budget <= share
    else:
        assert p90(sent.target, made.effort or "", NEW) <= share
        assert made.effort or thinking.contract is Contract.ALWAYS_ON, "something was said"


SWITCH = thinks(Contract.SWITCH, levels=("none", "high"), tokens=(0, 5_000))
EFFORT = ("effort",)
KINDS = {"level": LEVEL, "shown level": SHOWN, "switch": SWITCH, "always": ALWAYS, "none": Thinking()}
KINDS |= {"exact": thinks(Contract.EXACT), "target": thinks(Contract.TARGET, minimum=1_024)}


@each_row("kind, output, expected", data(__file__, "fits.yaml"))
def test_order(kind: str, output: int, expected: dict[str, Any] | None) -> None:
    """Enough is granted for so many output tokens, and no more."""
    asked = request() if kind == "always" else HIGH
    sent = step(KINDS[kind], asked)
    fitted = fit(sent, asked, Amount(worst_cost(sent, asked, output), ENDLESS), NEW)
    assert fitted == msgspec.convert(expected, FittedRequest | None)


def test_thinking_tokens_that_are_short_lower_the_effort_too_and_an_exact_number_is_what_is_granted() -> None:
    sent = step(thinks(Contract.LEVEL, streamed=True), HIGH)
    low = FittedRequest(effort="low", lowered=EFFORT, metered=True, thinks=True)
    assert fit(sent, HIGH, Amount(ENDLESS, 800), NEW) == low
    assert fit(sent, HIGH, Amount(ENDLESS, 0), NEW) == FittedRequest(effort="none", lowered=EFFORT)
    asked = request(effort="high", limits=Limits(thinking_budget=3_000))
    made = fit(step(thinks(Contract.EXACT), asked), asked, Amount(ENDLESS, 2_000), NEW)
    assert made is not None
    assert (made.effort, made.thinking_budget, made.lowered) == ("high", 2_000, EFFORT)


def test_the_client_s_own_small_cap_needs_no_more_room_and_embeddings_fit_or_do_not() -> None:
    asked = request(effort="high", max_output=50)
    sent = step(LEVEL, asked)
    assert fit(sent, asked, sent.estimate.whole, NEW) == FittedRequest(effort="high", thinks=True)
    asked = request(endpoint=Endpoint.EMBEDDINGS)
    sent = step(Thinking(), asked)
    tight = sent.estimate.tight
    assert fit(sent, asked, tight, NEW) == FittedRequest()
    assert fit(sent, asked, structs.replace(tight, usd=tight.usd - 1), NEW) is None
