"""What is expected of a target that nobody has seen, from its card: the more is known, the surer."""

from typing import Any

import numpy as np
import pytest

from router.priors import load
from router.priors.ability import Ability, Card, ability, card, facts
from router.types.price import WORST_CASE
from router.types.target import Benchmark, Contract, Target, Thinking
from tests.decide.values import LOCAL, PRICE, target


def expected(**known: Any) -> Ability:
    return ability(load(), facts(Card(**({"scores": {}} | known))))


def spread(found: Ability) -> float:
    return float(np.sqrt(np.trace(found.covariance)))


@pytest.mark.parametrize(
    ("weaker", "stronger"),
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
    assert expected().mean == pytest.approx(load().card_mean[:4])


@pytest.mark.parametrize("score", [0.0, 1.0])
def test_a_score_of_none_or_all_is_no_infinity(score: float) -> None:
    assert np.isfinite(expected(scores={Benchmark.CRUX: score}).mean).all()


THINKS = Thinking(contract=Contract.LEVEL, levels=("none", "low", "high"), tokens=(0, 1_024, 24_576))


@pytest.mark.parametrize(
    ("effort", "thinking", "tokens"),
    [("low", THINKS, 1_024), ("none", THINKS, 0), (None, THINKS, 24_576), (None, Thinking(), 0)],
)
def test_the_effort_says_how_much_is_thought(effort: str | None, thinking: Thinking, tokens: int) -> None:
    plain = target(thinking=thinking)
    asked = Target(id="t", model=plain.model, provider=plain.provider, base_url=plain.base_url, effort=effort)
    assert card(asked).thinking == tokens


@pytest.mark.parametrize(
    ("asked", "rate"),
    [
        (target(), PRICE.output),
        (target(provider=LOCAL), None),
        (target(price=None), None),
        (target(price=WORST_CASE), None),
    ],
)
def test_a_price_that_is_no_price_says_nothing(asked: Target, rate: int | None) -> None:
    assert card(asked).rate == rate
