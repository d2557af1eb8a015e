"""How a route orders what is eligible."""

from collections.abc import Iterable
from fractions import Fraction

from router.decide.strategies import Cheapest, Ordered, Pinned, Weighted
from router.types.plan import Candidate
from tests.decide.values import candidate
from tests.tables import each_row

DRAWS = 1_000
ABC = tuple(map(candidate, "abc"))


def names(candidates: Iterable[Candidate]) -> list[str]:
    return [step.target.id for step in candidates]


def test_ordered_keeps_the_order_pinned_the_only_one_and_cheapest_that_of_the_policy_for_ties() -> None:
    assert Ordered(kind="ordered", targets=("c", "b", "a")).order(ABC[::-1], 0.9) == ABC[::-1]
    assert Pinned(kind="pinned", target="a").order(ABC[:1], 0.9) == ABC[:1]
    many = tuple(candidate(name, cost) for name, cost in (("c", 5), ("a", 2), ("d", 5), ("b", 2), ("free", 0)))
    ordered = Cheapest(kind="cheapest", targets=("c", "a", "d", "b", "free")).order(many, 0.5)
    assert names(ordered) == ["free", "a", "b", "c", "d"]


@each_row(
    "weights, eligible",
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
    strategy, candidates = Weighted(kind="weighted", weights=weights), tuple(map(candidate, eligible))
    firsts = [names(strategy.order(candidates, (draw + 0.5) / DRAWS))[0] for draw in range(DRAWS)]
    total = Fraction(sum(weights[name] for name in eligible))
    for name in eligible:
        assert abs(Fraction(firsts.count(name), DRAWS) - Fraction(weights[name]) / total) <= Fraction(1, DRAWS)


def test_weighted_falls_back_to_the_heaviest_of_the_rest() -> None:
    strategy = Weighted(kind="weighted", weights={"a": 1.0, "b": 3.0, "c": 2.0})
    orders = {"".join(names(strategy.order(ABC, (draw + 0.5) / 60))) for draw in range(60)}
    assert orders == {"bca", "cba", "abc"}


def test_weighted_has_an_answer_for_the_largest_draw_and_for_no_candidate() -> None:
    strategy = Weighted(kind="weighted", weights={"a": 0.1, "b": 0.2, "c": 0.7})
    assert len(strategy.order(ABC, 1 - 2**-53)) == 3
    assert strategy.order((), 0.3) == ()
