"""What is expected to be in a target's cache, and what that makes of its price."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from router.estimate import caches
from router.estimate.caches import LIFETIME_MS, LONG_LIFETIME_MS, Caches
from router.estimate.estimate import estimate
from router.estimate.forecast import Forecaster
from router.estimate.learn import Learned
from router.estimate.pass_rate import PassRateModel
from router.types.classification import Classification
from router.types.plan import Prefix
from router.types.target import Target, Wire
from router.types.task import Task
from router.types.usage import Usage
from tests.decide.values import PRICE, REMOTE, reading, request, target
from tests.tables import each_row

TURN = Prefix(7, "0a", 0.25)
KEPT = structs.replace(PRICE, cache_read=PRICE.input // 10, cache_write=PRICE.input * 5 // 4)
ANTHROPIC = structs.replace(REMOTE, wire=Wire.ANTHROPIC)
LONG: dict[str, Any] = {"context": 200_000, "price": KEPT}
SEEN = Classification(data_class="internal", difficulty=0.5, task=Task.CHAT, reading=reading())


def told(tokens: int = 20_000, read: int = 0, prefix: Prefix = TURN, times: int = 1) -> Caches:
    known = Caches()
    for _ in range(times):
        known.note(prefix, "t", Usage(cache_read=read, cache_write=tokens - read), 1_000)
    return known


def test_the_next_turn_finds_what_was_sent_and_another_conversation_the_instructions() -> None:
    known = told()
    assert 0.5 < known.expected(TURN, 21_000, 2_000)["t"] / 20_000 <= 1
    other = known.expected(structs.replace(TURN, conversation=8), 21_000, 2_000)
    assert 0.5 < other["t"] / 5_000 <= 1
    assert known.expected(Prefix(8, "0b", 0.25), 21_000, 2_000) == {}


def test_it_is_kept_for_its_lifetime() -> None:
    long = structs.replace(TURN, long=True)
    for prefix, lifetime in ((TURN, LIFETIME_MS), (long, LONG_LIFETIME_MS)):
        known = told(prefix=prefix)
        assert known.expected(prefix, 21_000, 1_000 + lifetime)
        assert not known.expected(prefix, 21_000, 1_001 + lifetime)


def test_too_little_is_not_kept() -> None:
    assert told(1_000).expected(TURN, 1_100, 2_000) == {}


def test_how_much_is_really_read_is_learned() -> None:
    never, always = told(times=60), told(read=20_000, times=60)
    assert never.expected(TURN, 20_000, 2_000)["t"] < 1_500
    assert always.expected(TURN, 20_000, 2_000)["t"] > 19_000


def test_memory_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caches, "MOST", 10)
    known = Caches()
    for number in range(50):
        known.note(Prefix(number, f"{number}", 0.5), "t", Usage(input_uncached=9_000), 1_000)
    assert not known.expected(Prefix(0, "", 0.5), 9_000, 1_000)
    assert known.expected(Prefix(49, "", 0.5), 9_000, 1_000)


@each_row(
    "place, asks, shares",
    [
        (target("t", **LONG), False, (1.25, 0.1)),
        (target("t", **LONG | {"price": PRICE}), False, (1.0, 1.0)),
        (target("t", provider=ANTHROPIC, **LONG), False, (1.0, 1.0)),
        (target("t", provider=ANTHROPIC, **LONG), True, (1.25, 0.1)),
    ],
)
def test_a_cold_prompt_is_written_and_a_warm_one_read(place: Target, asks: bool, shares: tuple[float, float]) -> None:
    """As shares of the price of other input; what chooses and what is shown are the same."""
    asked, learned = request(prompt_bytes=80_000, caches=asks), Learned()
    plain = estimate(structs.replace(place, model=structs.replace(place.model, price=PRICE)), asked, learned)
    output = PRICE.output * plain.output_tokens / 1e6
    forecaster = Forecaster((place,), learned, PassRateModel((place,)))
    for cached, share in zip(({}, {"t": 1e9}), shares, strict=True):
        cost = estimate(place, asked, learned, cached=cached).cost
        assert cost - output == pytest.approx(share * (plain.cost - output), rel=0.01)
        forecast = forecaster.forecast((place,), asked, structs.replace(SEEN, reading=None), 0, None, cached)
        assert float(forecast.cost[0]) == pytest.approx(cost, rel=0.01)


@given(st.floats(0, 1e6), st.integers(1, 400_000))
def test_what_is_in_a_cache_never_makes_a_prompt_dearer(cached: float, size: int) -> None:
    place, asked = target("t", **LONG), request(prompt_bytes=size)
    warm = estimate(place, asked, Learned(), cached={"t": cached}).cost
    assert 0 < warm <= estimate(place, asked, Learned()).cost
