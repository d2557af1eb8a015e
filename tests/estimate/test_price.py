"""The one price function against an independent calculation in exact decimals."""

from decimal import ROUND_HALF_UP, Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from router.estimate.price import charge
from router.types.money import NANO_PER_USD, nano_from_usd, usd_from_nano, usd_json, usd_text
from router.types.price import Cost, CostSource, Price
from router.types.usage import Source, Usage

# Rates in nano-USD per million tokens, up to 1,000 USD per million; many are no whole nano-USD per token.
RATES = st.integers(0, 10**12)
TOKENS = st.integers(0, 10**9)
MAYBE = st.none() | RATES
PRICES = st.builds(
    Price,
    input=RATES,
    output=RATES,
    cache_read=MAYBE,
    cache_write=MAYBE,
    cache_write_1h=MAYBE,
    reasoning=MAYBE,
    input_audio=MAYBE,
    output_audio=MAYBE,
    version=st.just("v"),
)
USAGES = st.builds(
    Usage,
    input_uncached=TOKENS,
    cache_read=TOKENS,
    cache_write=TOKENS,
    cache_write_1h=TOKENS,
    input_audio=TOKENS,
    output_visible=TOKENS,
    output_reasoning=st.none() | TOKENS,
    output_audio=TOKENS,
)
KIN = {
    "cache_read": ("input",),
    "cache_write": ("input",),
    "cache_write_1h": ("cache_write", "input"),
    "reasoning": ("output",),
    "input_audio": ("input",),
    "output_audio": ("output",),
}
BUCKETS = {
    "input": "input_uncached",
    "cache_read": "cache_read",
    "cache_write": "cache_write",
    "cache_write_1h": "cache_write_1h",
    "input_audio": "input_audio",
    "output": "output_visible",
    "reasoning": "output_reasoning",
    "output_audio": "output_audio",
}


def usd_per_token(price: Price, rate: str) -> Decimal:
    names = (rate, *KIN.get(rate, ()))
    nano = next(value for value in (getattr(price, name) for name in names) if value is not None)
    return Decimal(nano) / NANO_PER_USD / 1_000_000


@given(PRICES, USAGES)
def test_a_charge_is_tokens_times_rates_rounded_once(price: Price, usage: Usage) -> None:
    exact = sum(
        (usd_per_token(price, rate) * (getattr(usage, bucket) or 0) for rate, bucket in BUCKETS.items()), Decimal(0)
    )
    rounded = (exact * NANO_PER_USD).to_integral_value(ROUND_HALF_UP)
    assert charge(price, usage) == Cost(int(rounded), CostSource.PRICED, "v", own=int(rounded))


@pytest.mark.parametrize(("rate", "tokens", "nano"), [(1, 499_999, 0), (1, 500_000, 1), (3, 500_000, 2), (1, 1, 0)])
def test_half_a_nano_is_rounded_up_once(rate: int, tokens: int, nano: int) -> None:
    price = Price(input=rate, output=rate, version="v")
    assert charge(price, Usage(input_uncached=tokens)).nano == nano
    split = Usage(input_uncached=tokens // 2, output_visible=tokens - tokens // 2)
    assert charge(price, split).nano == nano


def test_a_rate_that_the_list_leaves_out_is_never_free() -> None:
    price = Price(input=2_000_000, output=6_000_000, version="v")
    for bucket, nano in (("cache_read", 2), ("cache_write", 2), ("cache_write_1h", 2), ("output_reasoning", 6)):
        assert charge(price, replace(Usage(), **{bucket: 1})).nano == nano


@pytest.mark.parametrize(
    ("price", "usage", "source"),
    [
        (Price(input=1, output=1, version="v"), Usage(), CostSource.PRICED),
        (Price(input=1, output=1, version="v"), Usage(source=Source.ESTIMATED), CostSource.ESTIMATED),
        (Price(input=1, output=1, version="v"), Usage(source=Source.DERIVED), CostSource.ESTIMATED),
        (Price(input=1, output=1, version="v"), Usage(provider_cost=7), CostSource.PROVIDER),
        (None, Usage(provider_cost=7), CostSource.PROVIDER),
        (None, Usage(input_uncached=9), CostSource.UNPRICED),
    ],
)
def test_the_row_says_where_its_cost_comes_from(price: Price | None, usage: Usage, source: CostSource) -> None:
    assert charge(price, usage).source is source


def test_the_provider_s_own_figure_wins_even_when_it_is_nothing() -> None:
    price = Price(input=10**9, output=10**9, version="v")
    assert charge(price, Usage(input_uncached=10**6, provider_cost=0)).nano == 0


@given(st.integers(-(10**18), 10**18))
def test_nano_to_usd_and_back(nano: int) -> None:
    assert nano_from_usd(usd_from_nano(nano)) == nano
    text = usd_json(nano).decode()
    assert nano_from_usd(Decimal(text)) == nano
    assert "e" not in text.lower()
    assert usd_text(nano) == text


@pytest.mark.parametrize(
    ("nano", "text"),
    [(0, "0"), (1, "0.000000001"), (-1, "-0.000000001"), (10**9, "1"), (1_500_000_000, "1.5"), (100 * 10**9, "100")],
)
def test_money_as_text(nano: int, text: str) -> None:
    assert usd_text(nano) == text


@pytest.mark.parametrize(
    ("usd", "nano"), [("0.0000000005", 1), ("0.00000000049", 0), ("1e-9", 1), ("12.5", 12_500_000_000)]
)
def test_dollars_are_rounded_half_up(usd: str, nano: int) -> None:
    assert nano_from_usd(Decimal(usd)) == nano
