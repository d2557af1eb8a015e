"""A share of the traffic for targets that may be better: how much, for whom, never beyond the limits."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.decide.experiment import ENOUGH, explore
from router.decide.situation import Ranked, Situation
from router.decide.strategies import Cascade, CostOfPass
from tests.decide.situations import NAMES, situation, stakes, why
from tests.tables import each_row

DRAWS = 2_000
FIRSTS = ([0.7, 0.8, 0.75], [0.05, 0.1, 0.1], [0.2, 0.2, 0.2])
MIDDLE = situation(*FIRSTS, stakes=stakes(1.0))
"""b is the choice; a costs half as much, c the same, and both may be better."""


def cost_of_pass(state: Situation) -> Ranked:
    return CostOfPass(kind="cost_of_pass", targets=tuple(NAMES)).rank(state)


def cascade(state: Situation) -> Ranked:
    return Cascade(kind="cascade", targets=("a", "b", "c")).rank(state)


def sent(state: Situation, share: float, ranked: Ranked | None = None) -> dict[tuple[str, str], int]:
    """How often each target came first, and as what: of an even grid of draws. As often as its propensity says."""
    counts: Counter[tuple[str, str]] = Counter()
    likely: dict[tuple[str, str], float] = {}
    ranked = ranked or cost_of_pass(state)
    for draw in range(DRAWS):
        tried, arm, propensity = explore(ranked, state, share, (draw + 0.5) / DRAWS)
        key = (NAMES[tried.order[0]], arm)
        counts[key] += 1
        assert likely.setdefault(key, propensity) == propensity
        assert sorted(tried.order) == sorted(ranked.order)
    assert all(count / DRAWS == pytest.approx(likely[key], abs=1 / DRAWS) for key, count in counts.items())
    return dict(counts)


def test_what_may_be_better_is_tried_within_its_share_of_requests_and_spend() -> None:
    for share in (0.02, 0.1, 0.5):
        counts = sent(MIDDLE, share)
        assert set(counts) == {("a", "cheaper"), ("b", ""), ("c", "dearer")}
        assert DRAWS - counts["b", ""] <= share * DRAWS + 1
    far = sent(situation([0.7, 0.8, 0.75], [0.05, 0.1, 5.0], 0.2, stakes=stakes(1e3)), 0.5)
    assert far.get(("c", "dearer"), 0) * 5.0 <= 0.5 * DRAWS * 0.1
    assert far["a", "cheaper"] > 100


@each_row(
    "changed",
    [
        {"outcomes": (ENOUGH - 1) / 3},
        {"stakes": stakes(1.0, 0.01)},
        {"stakes": stakes(1.0, deadline_ms=10)},
        {"stakes": stakes(1.0, min_pass_rate=0.99)},
    ],
    ids=["nothing says how good answers are", "too dear", "too slow", "below the floor"],
)
def test_nothing_is_tried_without_feedback_or_beyond_a_limit(changed: dict[str, Any]) -> None:
    assert {arm for _, arm in sent(situation(*FIRSTS, **({"stakes": stakes(1.0)} | changed)), 0.5)} == {""}
    assert sent(MIDDLE, 0.0) == {("b", ""): DRAWS}


def test_what_is_surely_worse_is_not_tried() -> None:
    surely = situation([0.2, 0.8, 0.5], [0.05, 0.1, 0.1], 0.02, stakes=stakes(1.0))
    assert sent(surely, 0.5) == {("b", ""): DRAWS}


def test_the_target_that_is_tried_is_asked_alone_and_says_why() -> None:
    state = situation([0.5, 0.8, 0.95], [0.001, 0.1, 0.2], 0.3, verified=True, stakes=stakes(0.5))
    ranked = cascade(state)
    assert ranked.tactic is not None
    tried, arm, _ = explore(ranked, state, 0.5, 0.0)
    assert (arm != "", tried.tactic) == (True, None)
    tried, _, _ = explore(cost_of_pass(MIDDLE), MIDDLE, 0.5, 0.0)
    assert why(tried) == {"a": "explored", "b": "chosen", "c": "dearer"}


@given(
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=5),
    st.floats(0, 0.5),
    st.floats(0, 1, exclude_max=True),
    st.none() | st.floats(0, 1),
)
def test_no_experiment_breaks_a_limit(
    rows: list[tuple[float, float]], share: float, draw: float, most: float | None
) -> None:
    p, cost = zip(*rows, strict=True)
    state = situation(p, cost, 0.3, stakes=stakes(1.0, most))
    tried, arm, propensity = explore(cost_of_pass(state), state, share, draw)
    assert 0 < propensity <= 1
    if arm and state.stakes.max_nano is not None:
        assert state.forecast.cost[tried.order[0]] <= state.stakes.max_nano
