"""What of a charge is thinking, and what caches saved: the same charge with and without them, kept apart."""

from fractions import Fraction
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from router.estimate.price import charge
from router.types.attempt import Usage
from router.types.price import Cost, Price, Rule
from tests.estimate.test_price import BUCKETS, MOMENTS, PRICES, RULED, TOKENS
from tests.tables import data, each_row

NAMES = [name for name in BUCKETS if name != "output_reasoning"]
READS = ("cache_read", "cache_read_explicit", "cache_read_audio")
WRITES = ("cache_write", "cache_write_1h", "cache_write_12h")
TOLD: dict[str, st.SearchStrategy[Any]] = {"output_reasoning": st.none() | TOKENS}
TOLD["service_tier"] = st.sampled_from(["", "flex", "priority"])
COUNTS: dict[str, st.SearchStrategy[Any]] = dict.fromkeys(NAMES, TOKENS)
USAGES = st.fixed_dictionaries(TOLD, optional=COUNTS).map(lambda fields: Usage(**fields))


def uncached(usage: Usage) -> Usage:
    """The same tokens, none of them cached."""
    plain = {name: getattr(usage, name) for name in (*READS, *WRITES)}
    audio = plain["cache_read_audio"]
    tokens = {"input_uncached": usage.input_uncached + sum(plain.values()) - audio}
    return replace(usage, **dict.fromkeys(plain, 0), **tokens, input_audio=usage.input_audio + audio)


@given(RULED, USAGES, MOMENTS)
def test_thinking_and_caches_are_what_the_charge_differs_by_without_them(
    price: Price, usage: Usage, at_ms: int
) -> None:
    """Each of three amounts is rounded once."""
    cost = charge(price, usage, at_ms=at_ms)
    assert cost.saved is not None
    assert abs(cost.saved - (charge(price, uncached(usage), at_ms=at_ms).nano - cost.nano)) <= 1
    assert (cost.thinking is None) == (usage.output_reasoning is None)
    if cost.thinking is not None:
        without = charge(price, replace(usage, output_reasoning=0), at_ms=at_ms)
        assert abs(cost.thinking - (cost.nano - without.nano)) <= 1
        assert 0 <= cost.thinking <= cost.nano


@given(PRICES, USAGES, st.integers(0, 10**12))
def test_where_the_provider_states_the_amount_each_part_keeps_its_share(price: Price, usage: Usage, paid: int) -> None:
    own, cost = charge(price, usage), charge(price, replace(usage, provider_cost=paid))
    if cost.thinking is None or own.thinking is None:
        assert usage.output_reasoning is None or (paid and not own.nano)
        return
    assert 0 <= cost.thinking <= paid
    if own.nano > 10**6:
        assert abs(Fraction(cost.thinking, 1) - Fraction(paid * own.thinking, own.nano)) <= 1 + Fraction(paid, 10**5)


@given(PRICES, TOKENS, TOKENS)
def test_no_thinking_costs_nothing_and_no_cache_saves_nothing(price: Price, sent: int, made: int) -> None:
    usage = Usage(input_uncached=sent, output_visible=made)
    assert parts(charge(price, usage)) == (None, 0)
    assert parts(charge(price, replace(usage, output_reasoning=0))) == (0, 0)


def parts(cost: Cost) -> tuple[int | None, int | None]:
    return cost.thinking, cost.saved


LIST = Price(input=1_000_000, output=4_000_000, cache_read=100_000, cache_write=1_250_000, version="v")
LIST = replace(LIST, cache_write_1h=2_000_000)
PEAK = replace(LIST, rules=(Rule(since_ms=1_000, times=(3, 1)),))


NAMED = {"list": LIST, "peak": PEAK, "free": Price(input=0, output=0, version="v"), "unknown": None}
NAMED["dear thoughts"] = replace(LIST, reasoning=9_000_000)


@each_row("price, counts, took_ms, expected", data(__file__, "parts.yaml"))
def test_parts_by_hand(price: str, counts: dict[str, Any], took_ms: int, expected: list[int | None]) -> None:
    assert [*parts(charge(NAMED[price], Usage(**counts), at_ms=0, took_ms=took_ms))] == expected
