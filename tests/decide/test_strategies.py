"""How a route orders what is eligible."""

from fractions import Fraction

import pytest

from router.decide.strategies import Cheapest, Ordered, Pinned, Weighted
from tests.decide.values import candidate

DRAWS = 1_000


def names(candidates: object) -> list[str]:
    return [one.target.id for one in candidates]  # type: ignore[attr-defined]


def test_ordered_keeps_the_order_and_pinned_the_only_one() -> None:
    many = (candidate("a", 9), candidate("b", 1))
    assert Ordered(kind="ordered", targets=("a", "b")).order(many, 0.9) == many
    assert Pinned(kind="pinned", target="a").order(many[:1], 0.9) == many[:1]


def test_cheapest_first_and_ties_keep_the_order_of_the_policy() -> None:
    many = tuple(candidate(name, cost) for name, cost in (("c", 5), ("a", 2), ("d", 5), ("b", 2), ("free", 0)))
    ordered = Cheapest(kind="cheapest", targets=("c", "a", "d", "b", "free")).order(many, 0.5)
    assert names(ordered) == ["free", "a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("weights", "eligible"),
    [
        ({"a": 1.0}, "a"),
        ({"a": 3.0, "b": 1.0}, "ab"),
        ({"a": 1.0, "b": 3.0}, "ab"),
        ({"a": 0.5, "b": 0.25, "c": 0.25}, "abc"),
        ({"a": 0.5, "b": 0.25, "c": 0.25}, "bc"),
        ({"a": 50.0, "b": 30.0, "c": 20.0}, "ca"),
    ],
)
def test_weighted_shares_are_exact(weights: dict[str, float], eligible: str) -> None:
    """Every draw of an even grid, one in the middle of each cell: the shares are the weights of those that may."""
    strategy = Weighted(kind="weighted", weights=weights)
    candidates = tuple(candidate(name) for name in eligible)
    firsts = [names(strategy.order(candidates, (draw + 0.5) / DRAWS))[0] for draw in range(DRAWS)]
    total = Fraction(sum(weights[name] for name in eligible))
    for name in eligible:
        assert abs(Fraction(firsts.count(name), DRAWS) - Fraction(weights[name]) / total) <= Fraction(1, DRAWS)


def test_weighted_falls_back_to_the_heaviest_of_the_rest() -> None:
    strategy = Weighted(kind="weighted", weights={"a": 1.0, "b": 3.0, "c": 2.0})
    candidates = tuple(candidate(name) for name in "abc")
    orders = {tuple(names(strategy.order(candidates, (draw + 0.5) / 60))) for draw in range(60)}
    assert orders == {("b", "c", "a"), ("c", "b", "a"), ("a", "b", "c")}


def test_weighted_has_an_answer_for_the_largest_draw_and_for_nobody() -> None:
    strategy = Weighted(kind="weighted", weights={"a": 0.1, "b": 0.2, "c": 0.7})
    candidates = tuple(candidate(name) for name in "abc")
    assert len(strategy.order(candidates, 1 - 2**-53)) == 3
    assert strategy.order((), 0.3) == ()
