"""What is expected of a target that was never seen, by the facts of its card."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from router.estimate import cards
from router.estimate.cards import ABILITIES, ARRAYS, FACTS, FOLDER, Ability, Card, CardsError, ability, card, load
from router.types.price import WORST_CASE
from router.types.target import Benchmark, Contract, Target, Thinking
from tests.decide.values import LOCAL, PRICE, target
from tests.tables import each_row


def expected(**known: Any) -> Ability:
    return ability(load(), Card(**({"scores": {}} | known)))


def spread(found: Ability) -> float:
    return float(np.sqrt(np.trace(found.covariance)))


@each_row(
    "weaker, stronger",
    [
        ({"active_b": 3, "parameters_b": 3}, {"active_b": 70, "parameters_b": 70}),
        ({"rate": 300_000_000}, {"rate": 15_000_000_000}),
        ({"scores": {Benchmark.MMLU_PRO: 0.3}}, {"scores": {Benchmark.MMLU_PRO: 0.8}}),
        ({"scores": {Benchmark.SIMPLEQA: 0.1}}, {"scores": {Benchmark.SIMPLEQA: 0.6}}),
        ({"thinking": 0}, {"thinking": 24_576}),
    ],
)
def test_larger_dearer_and_better_scored_models_can_do_more(weaker: dict[str, Any], stronger: dict[str, Any]) -> None:
    assert expected(**weaker).mean.mean() < expected(**stronger).mean.mean()


def test_each_fact_makes_it_surer() -> None:
    nothing, size = expected(), expected(active_b=70, parameters_b=70)
    scored = expected(active_b=70, parameters_b=70, scores={Benchmark.MMLU_PRO: 0.56})
    assert spread(nothing) > spread(size) > spread(scored) > 0


def test_of_a_target_without_facts_nothing_is_expected_but_the_mean() -> None:
    assert load().mean.shape == (ABILITIES + len(FACTS),)
    assert expected().mean == pytest.approx(load().mean[:ABILITIES])


@each_row("score", [0.0, 1.0])
def test_a_score_of_none_or_all_is_no_infinity(score: float) -> None:
    assert np.isfinite(expected(scores={Benchmark.CRUX: score}).mean).all()


THINKS = Thinking(contract=Contract.LEVEL, levels=("none", "low", "high"), tokens=(0, 1_024, 24_576))


@each_row(
    "effort, thinking, tokens",
    [("low", THINKS, 1_024), ("none", THINKS, 0), (None, THINKS, 24_576), (None, Thinking(), 0)],
)
def test_the_effort_says_how_much_is_thought(effort: str | None, thinking: Thinking, tokens: int) -> None:
    plain = target(thinking=thinking)
    asked = Target(id="t", model=plain.model, provider=plain.provider, base_url=plain.base_url, effort=effort)
    assert card(asked).thinking == tokens


UNPRICED = [target(provider=LOCAL), target(price=None), target(price=WORST_CASE)]


@each_row("asked, rate", [(target(), PRICE.output), *((asked, None) for asked in UNPRICED)])
def test_a_price_that_is_no_price_says_nothing(asked: Target, rate: int | None) -> None:
    assert card(asked).rate == rate


SHIPPED = (FOLDER / ARRAYS).read_bytes()
MIDDLE = len(SHIPPED) // 2
DAMAGES = {
    "lost": None,
    "empty": b"",
    "cut": SHIPPED[:MIDDLE],
    "flipped": SHIPPED[:MIDDLE] + bytes([SHIPPED[MIDDLE] ^ 1]) + SHIPPED[MIDDLE + 1 :],
    "noise": b"no arrays",
}


@each_row("data", DAMAGES.values(), ids=[*DAMAGES])
def test_a_damaged_file_is_refused_and_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes | None
) -> None:
    if data is not None:
        (tmp_path / ARRAYS).write_bytes(data)
    monkeypatch.setattr(cards, "FOLDER", tmp_path)
    with pytest.raises(CardsError, match=rf"{ARRAYS} can't be read .* install lowpass again"):
        load.__wrapped__()
