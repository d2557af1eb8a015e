"""How a route orders what is eligible, and what an experiment changes in that."""

from collections import Counter
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.decide.strategies import CascadeStrategy, Cheapest, CostOfPass, Ordered, Pinned, Weighted
from router.decide.weigh import ENOUGH, DecisionInput, Ranking, explore
from router.types.decision import Candidate
from tests.decide.situations import NAMES, situation, stakes, why
from tests.decide.values import candidate
from tests.tables import data, each_row

ABC = tuple(map(candidate, "abc"))


def names(candidates: Iterable[Candidate]) -> list[str]:
    return [step.target.id for step in candidates]


def test_ordered_keeps_the_order_pinned_the_only_one_and_cheapest_that_of_the_policy_for_ties() -> None:
    assert Ordered(kind="ordered", targets=("c", "b", "a")).order(ABC[::-1], 0.9) == ABC[::-1]
    assert Pinned(kind="pinned", target="a").order(ABC[:1], 0.9) == ABC[:1]
    many = tuple(candidate(name, cost) for name, cost in (("c", 5), ("a", 2), ("d", 5), ("b", 2), ("free", 0)))
    ordered = Cheapest(kind="cheapest", targets=("c", "a", "d", "b", "free")).order(many, 0.5)
    assert names(ordered) == ["free", "a", "b", "c", "d"]


@each_row("weights, eligible", data(__file__, "weights.yaml"))
def test_weighted_shares_are_exact(weights: dict[str, float], eligible: str) -> None:
    """Every draw of an even grid, one in the middle of each cell: the shares are the weights of those that may."""
    strategy, candidates = Weighted(kind="weighted", weights=weights), tuple(map(candidate, eligible))
    firsts = [names(strategy.order(candidates, (draw + 0.5) / DRAWS))[0] for draw in range(DRAWS)]
    total = Fraction(sum(weights[name] for name in eligible))
    for name in eligible:
        assert abs(Fraction(firsts.count(name), DRAWS) - Fraction(weights[name]) / total) <= Fraction(1, DRAWS)


def test_weighted_falls_back_to_the_heaviest_of_the_rest_for_any_draw_and_has_an_answer_for_no_candidate() -> None:
    strategy = Weighted(kind="weighted", weights={"a": 1.0, "b": 3.0, "c": 2.0})
    orders = {"".join(names(strategy.order(ABC, (draw + 0.5) / 60))) for draw in range(60)}
    assert orders == {"bca", "cba", "abc"}
    assert len(strategy.order(ABC, 1 - 2**-53)) == 3
    assert strategy.order((), 0.3) == ()


# Experiments: a share of the traffic for targets that may be better, never beyond the limits.


DRAWS = 2_000
FIRSTS = ([0.7, 0.8, 0.75], [0.05, 0.1, 0.1], [0.2, 0.2, 0.2])
MIDDLE = situation(*FIRSTS, stakes=stakes(1.0))
"""b is the choice; a costs half as much, c the same, and both may be better."""


def cost_of_pass(state: DecisionInput) -> Ranking:
    return CostOfPass(kind="cost_of_pass", targets=tuple(NAMES)).rank(state)


def sent(state: DecisionInput, share: float) -> dict[tuple[str, str], int]:
    """How often each target came first, and as what: of an even grid of draws. As often as its propensity says."""
    counts: Counter[tuple[str, str]] = Counter()
    likely: dict[tuple[str, str], float] = {}
    ranked = cost_of_pass(state)
    for draw in range(DRAWS):
        tried, arm, propensity = explore(ranked, state, share, (draw + 0.5) / DRAWS)
        key = (NAMES[tried.order[0]], arm)
        counts[key] += 1
        assert likely.setdefault(key, propensity) == propensity
        assert sorted(tried.order) == sorted(ranked.order)
    assert all(count / DRAWS == pytest.approx(likely[key], abs=1 / DRAWS) for key, count in counts.items())
    return dict(counts)


def test_what_is_tried_stays_within_its_share_and_the_target_that_is_tried_is_asked_alone_and_says_why() -> None:
    for share in (0.02, 0.1, 0.5):
        counts = sent(MIDDLE, share)
        assert set(counts) == {("a", "cheaper"), ("b", ""), ("c", "dearer")}
        assert DRAWS - counts["b", ""] <= share * DRAWS + 1
    far = sent(situation([0.7, 0.8, 0.75], [0.05, 0.1, 5.0], 0.2, stakes=stakes(1e3)), 0.5)
    assert far.get(("c", "dearer"), 0) * 5.0 <= 0.5 * DRAWS * 0.1
    assert 100 < far["a", "cheaper"] <= 0.5 * DRAWS * (1 - 0.8) / (1 - 0.7) + 1
    state = situation([0.5, 0.8, 0.95], [0.001, 0.1, 0.2], 0.3, verified=True, stakes=stakes(0.5))
    ranked = CascadeStrategy(kind="cascade", targets=("a", "b", "c")).rank(state)
    assert ranked.tactic is not None
    tried, arm, _ = explore(ranked, state, 0.5, 0.0)
    assert (arm != "", tried.tactic) == (True, None)
    assert why(explore(cost_of_pass(MIDDLE), MIDDLE, 0.5, 0.0)[0]) == {"a": "explored", "b": "chosen", "c": "dearer"}


@each_row(
    "changed",
    [
        {"outcomes": (ENOUGH - 1) / 3},
        {"stakes": stakes(1.0, 0.01)},
        {"stakes": stakes(1.0, deadline_ms=10)},
        {"stakes": stakes(1.0, min_pass_rate=0.99)},
    ],
)
def test_nothing_is_tried_without_feedback_or_beyond_a_limit(changed: dict[str, Any]) -> None:
    """Nor what is surely worse, nor without a share."""
    assert {arm for _, arm in sent(situation(*FIRSTS, **({"stakes": stakes(1.0)} | changed)), 0.5)} == {""}
    surely = situation([0.2, 0.8, 0.5], [0.05, 0.1, 0.1], 0.02, stakes=stakes(1.0))
    assert sent(surely, 0.5) == sent(MIDDLE, 0.0) == {("b", ""): DRAWS}


@given(
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=5),
    st.floats(0, 0.5),
    st.floats(0, 1, exclude_max=True),
    st.none() | st.floats(0, 1),
)
def test_none_breaks_a_limit(rows: list[tuple[float, float]], share: float, draw: float, most: float | None) -> None:
    p, cost = zip(*rows, strict=True)
    state = situation(p, cost, 0.3, stakes=stakes(1.0, most))
    tried, arm, propensity = explore(cost_of_pass(state), state, share, draw)
    assert 0 < propensity <= 1
    if arm and state.stakes.max_nano is not None:
        assert state.forecast.cost[tried.order[0]] <= state.stakes.max_nano
