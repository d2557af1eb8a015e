"""The one price function against an independent calculation in exact decimals."""

from decimal import ROUND_HALF_UP, Decimal
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from router.estimate.price import KIN, UNLIMITED, call_price, charge
from router.types.attempt import CountSource, Usage
from router.types.price import (
    NANO_PER_USD,
    CallScope,
    Cost,
    CostSource,
    Price,
    PriceHours,
    Rule,
    TokenPrices,
    Writes,
    nano_from_usd,
    usd_from_nano,
    usd_json,
    usd_text,
)
from tests.tables import each_row

# Rates in nano-USD per million tokens, up to 1,000 USD per million; many are no whole nano-USD per token.
RATES = st.integers(0, 10**12)
TOKENS = st.integers(0, 10**9)
OPTIONAL = [name for name in TokenPrices.__struct_fields__ if name not in ("input", "output")]
SOME_RATES = st.fixed_dictionaries({}, optional=dict.fromkeys(OPTIONAL, RATES))
PRICES = st.builds(
    lambda input, output, rest: Price(input=input, output=output, version="v", **rest), RATES, RATES, SOME_RATES
)
BUCKETS = {"input_uncached": "input", "output_visible": "output", "output_reasoning": "reasoning"} | {
    name: name for name in OPTIONAL if name != "reasoning"
}
"""Bucket → rate."""
USAGES = st.builds(lambda buckets: Usage(**buckets), st.fixed_dictionaries({}, optional=dict.fromkeys(BUCKETS, TOKENS)))

MONDAY = 1_795_392_000_000
"""2026-11-23 00:00 UTC."""
HOURS = st.builds(
    PriceHours,
    start=st.integers(0, 1_439),
    end=st.integers(0, 1_439),
    days=st.frozensets(st.integers(1, 7), max_size=3),
    zone=st.sampled_from(["UTC", "Europe/Berlin", "America/New_York"]),
)
MOMENTS = st.integers(MONDAY - 10**9, MONDAY + 10**9)
RULES = st.builds(
    Rule,
    above=st.sampled_from([0, 0, 1_000, 50_000, 200_000]),
    service_tier=st.sampled_from(["", "", "flex", "priority"]),
    region=st.sampled_from(["", "", "us", "eu"]),
    since_ms=st.none() | MOMENTS,
    until_ms=st.none() | MOMENTS,
    windows=st.lists(HOURS, max_size=2).map(tuple),
    rates=st.fixed_dictionaries({}, optional=dict.fromkeys(TokenPrices.__struct_fields__, RATES)),
    each=st.fixed_dictionaries({}, optional={"web_search": RATES}),
    times=st.tuples(st.integers(1, 30), st.integers(1, 30)),
)
RULED = st.builds(lambda price, rules: replace(price, rules=tuple(rules)), PRICES, st.lists(RULES, max_size=4))


def usd_per_token(price: Price, rate: str) -> Decimal:
    names = (rate, *KIN.get(rate, ()))
    nano = next(value for value in (getattr(price, name) for name in names) if value is not None)
    return Decimal(nano) / NANO_PER_USD / 1_000_000


@example(Price(input=1, output=1, version="v"), Usage(input_uncached=250_000, output_visible=250_000))
@example(Price(input=3, output=0, version="v"), Usage(input_uncached=500_000))
@given(PRICES, USAGES)
def test_a_charge_is_tokens_times_rates_rounded_once(price: Price, usage: Usage) -> None:
    exact = sum(usd_per_token(price, rate) * (getattr(usage, bucket) or 0) for bucket, rate in BUCKETS.items())
    rounded = (Decimal(exact) * NANO_PER_USD).to_integral_value(ROUND_HALF_UP)
    cost = replace(charge(price, usage), thinking=None, saved=None)
    assert cost == Cost(int(rounded), CostSource.PRICED, "v", own=int(rounded))


Call = tuple[Usage, int, int, CallScope, int, int]


@st.composite
def calls(draw: st.DrawFn) -> Call:
    """A usage; bounds on its input and output; what the call asked for; when it was held, and when it began."""
    sent = draw(st.lists(st.integers(0, 100_000), min_size=10, max_size=10))
    made = draw(st.lists(st.integers(0, 100_000), min_size=5, max_size=5))
    names = [name for name in BUCKETS if name.startswith(("input", "cache"))]
    units = draw(st.fixed_dictionaries({}, optional={"web_search": st.integers(0, 9), "other": st.integers(0, 9)}))
    asked, place = draw(st.sampled_from(["", "flex", "priority"])), draw(st.sampled_from(["", "us", "eu"]))
    buckets: dict[str, Any] = dict(zip(names, sent, strict=True))
    buckets |= zip([name for name in BUCKETS if name not in names], made, strict=True)
    tier, region = draw(st.sampled_from(["", asked])), draw(st.sampled_from(["", place, "elsewhere"]))
    usage = Usage(**buckets, units=units, service_tier=tier, region_served=region)
    within, held = draw(st.integers(0, 2 * 86_400_000)), draw(MOMENTS)
    began = held + draw(st.integers(0, within))
    scope = CallScope(within_ms=within, service_tier=asked, region=place, units=units)
    bounds = usage.totals.input + draw(st.integers(0, 300_000)), usage.totals.output + draw(st.integers(0, 9))
    return usage, *bounds, scope, held, began


@given(RULED, calls())
def test_no_usage_in_bounds_costs_more_than_the_ceiling(price: Price, call: Call) -> None:
    usage, most_in, most_out, scope, held, began = call
    took = held + scope.within_ms - began
    cost = charge(price, usage, at_ms=began, took_ms=took, region=scope.region)
    assert cost.nano <= call_price(price, most_in, held, scope).amounts((most_out, 0))[0].usd


@given(RULED, calls(), st.integers(0, 10**13))
def test_the_most_output_that_fits_is_left(price: Price, call: Call, nano: int) -> None:
    _, tokens, _, scope, held, _ = call
    bound = call_price(price, tokens, held, scope)
    left = bound.output(nano)
    assert 0 <= left <= UNLIMITED
    paid, unpaid = bound.amounts((left, 0), (left + 1, 0))
    assert paid.usd <= nano or not left
    assert unpaid.usd > nano or left == UNLIMITED


def test_caches_saved_what_reads_were_cheaper_less_what_writes_were_dearer() -> None:
    price = Price(input=1_000_000, output=1_000_000, cache_read=100_000, cache_write=1_250_000, version="v")
    assert charge(price, Usage(input_uncached=10, cache_read=1_000, cache_write=400)).saved == 900 - 100


def test_the_ceiling_is_as_narrow_as_what_is_known_of_the_call() -> None:
    """Of 1 a token of input and 5 of output; more for what may be written to a cache, for media and for tiers."""
    rates: dict[str, Any] = {"cache_write": 3_000_000, "cache_write_1h": 4_000_000, "reasoning": 5_000_000}
    rates |= {"input_audio": 60_000_000, "output_audio": 70_000_000}
    rules = (Rule(service_tier="priority", times=(2, 1)), Rule(above=100, rates={"input": 9_000_000}))
    price = Price(input=1_000_000, output=2_000_000, **rates, rules=rules, version="v")

    def most(input: int, output: int, **known: Any) -> int:
        scope = replace(CallScope(writes=Writes.NONE, media=False), **known)
        return call_price(price, input, scope=scope).amounts((output, 0))[0].usd

    assert most(100, 10) == 100 * 1 + 10 * 5
    assert most(101, 10) == 101 * 9 + 10 * 5
    assert most(100, 10, writes=Writes.DEFAULT) == 100 * 3 + 10 * 5
    assert most(100, 10, writes=Writes.ANY) == 100 * 4 + 10 * 5
    assert most(100, 10, media=True) == 100 * 60 + 10 * 70
    assert most(100, 10, service_tier="priority") == 2 * (100 * 1 + 10 * 5)
    assert most(0, 10, service_tier="priority") == 2 * 10 * 5
    assert most(0, 0, units={"web_search": 1}) == 50_000_000
    assert call_price(None, 1).amounts((1, 0))[0].usd == 150_000 + 600_000


def test_a_rate_that_the_list_leaves_out_is_never_free_nor_is_no_price_and_the_provider_s_own_figure_wins() -> None:
    """U15: in pieces or whole, an unknown price is the dearest, and a contradiction is marked."""
    price = Price(input=2_000_000, output=6_000_000, version="v")
    for bucket, nano in (("cache_read", 2), ("cache_write", 2), ("cache_write_1h", 2), ("output_reasoning", 6)):
        assert charge(price, replace(Usage(), **{bucket: 1})).nano == nano
    free = charge(Price(input=10**9, output=10**9, version="v"), Usage(input_uncached=10**6, provider_cost=0))
    assert (free.nano, free.own) == (0, 10**9)
    cost = charge(None, Usage(input_uncached=1_000, output_visible=1_000, violations=("x",)))
    assert (cost.nano, cost.source, cost.flagged) == (750_000_000, CostSource.UNPRICED, True)
    assert [charge(UNIT, Usage(units={unit: 1})).flagged for unit in ("web_search", "seance")] == [False, True]


UNIT = Price(input=1, output=1, version="v", each={"web_search": 1_000_000})


@each_row(
    "price, usage, source",
    [
        (UNIT, Usage(), CostSource.PRICED),
        (UNIT, Usage(source=CountSource.ESTIMATED), CostSource.ESTIMATED),
        (UNIT, Usage(source=CountSource.DERIVED), CostSource.ESTIMATED),
        (UNIT, Usage(provider_cost=7), CostSource.PROVIDER),
        (None, Usage(provider_cost=7), CostSource.PROVIDER),
        (None, Usage(input_uncached=9), CostSource.UNPRICED),
        (replace(UNIT, assumed=True), Usage(), CostSource.UNPRICED),
    ],
)
def test_the_row_says_where_its_cost_comes_from(price: Price | None, usage: Usage, source: CostSource) -> None:
    assert charge(price, usage).source is source


@given(st.integers(-(10**18), 10**18))
def test_nano_to_usd_and_back(nano: int) -> None:
    assert nano_from_usd(usd_from_nano(nano)) == nano
    text = usd_json(nano).decode()
    assert (nano_from_usd(Decimal(text)), usd_text(nano)) == (nano, text)
    assert "e" not in text.lower()


def test_money_as_text_and_dollars_rounded_half_up() -> None:
    texts = {0: "0", 1: "0.000000001", -1: "-0.000000001", 10**9: "1", 15 * 10**8: "1.5", 100 * 10**9: "100"}
    assert {nano: usd_text(nano) for nano in texts} == texts
    dollars = {"0.0000000005": 1, "0.00000000049": 0, "1e-9": 1, "12.5": 12_500_000_000}
    assert {usd: nano_from_usd(Decimal(usd)) for usd in dollars} == dollars


BERLIN = PriceHours(start=180, end=240, zone="Europe/Berlin")
LATER = MONDAY + 5_400_000


@each_row(
    "rule, soon, late",
    [
        (Rule(windows=(PriceHours(start=0, end=60),), times=(1, 2)), (59, 50), (61, 100)),  # ends at 01:00
        (Rule(windows=(PriceHours(start=90, end=120),), times=(3, 1)), (59, 100), (91, 300)),
        (Rule(since_ms=LATER, rates={"input": 4_000_000}), (59, 100), (91, 400)),
        (Rule(until_ms=LATER, times=(1, 2)), (59, 50), (91, 100)),
        (Rule(windows=(BERLIN,), times=(3, 1)), (119, 100), (121, 300)),  # 03:00 in Berlin is 02:00 UTC
    ],
)
def test_a_hold_looks_ahead_to_the_end_of_the_call(rule: Rule, soon: tuple[int, int], late: tuple[int, int]) -> None:
    """100 tokens, held at midnight UTC, by a call that may take so many minutes: what they cost."""
    price = Price(input=1_000_000, output=1_000_000, rules=(rule,), version="v")
    for minutes, nano in (soon, late):
        took_ms = minutes * 60_000
        scope = CallScope(within_ms=took_ms, writes=Writes.NONE, media=False)
        assert call_price(price, 100, MONDAY, scope).amounts((0, 0))[0].usd == nano
        assert charge(price, Usage(input_uncached=100), at_ms=MONDAY, took_ms=took_ms).nano == nano
