"""A share of the traffic for the cheapest and the best target: how much, for whom, and never beyond the limits."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.decide.experiment import explore
from router.decide.situation import Ranked, Situation
from router.decide.strategies import Cascade, CostOfPass
from tests.decide.situations import NAMES, situation, stakes, why
from tests.tables import each_row

DRAWS = 2_000
FIRSTS = ([0.2, 0.8, 0.95], [0.001, 0.01, 0.2])
MIDDLE = situation(*FIRSTS, stakes=stakes(0.5))
"""b is the best choice, a the cheapest, c the likeliest."""


def cost_of_pass(state: Situation) -> Ranked:
    return CostOfPass(kind="cost_of_pass", targets=tuple(NAMES)).rank(state)


def cascade(state: Situation) -> Ranked:
    return Cascade(kind="cascade", targets=("a", "b", "c")).rank(state)


def sent(state: Situation, share: float, ranked: Ranked | None = None) -> dict[tuple[str, str], tuple[int, float]]:
    """How often each target came first for each reason, and how likely it was said to be: draws of an even grid."""
    counts: Counter[tuple[str, str]] = Counter()
    likely: dict[tuple[str, str], float] = {}
    ranked = ranked or cost_of_pass(state)
    for draw in range(DRAWS):
        tried, arm, chance = explore(ranked, state, share, (draw + 0.5) / DRAWS)
        key = (NAMES[tried.order[0]], arm)
        counts[key] += 1
        assert likely.setdefault(key, chance) == chance
        assert sorted(tried.order) == sorted(ranked.order)
    return {key: (count, likely[key]) for key, count in counts.items()}


def test_both_ends_have_half_of_the_share() -> None:
    counts = {key: count for key, (count, _) in sent(MIDDLE, 0.1).items()}
    assert counts == {("a", "cheapest"): 100, ("c", "best"): 100, ("b", ""): 1_800}
    assert sent(MIDDLE, 0.0) == {("b", ""): (DRAWS, 1.0)}


@each_row("share", [0.02, 0.1, 0.5])
@each_row("failure", [0.001, 0.5, 100.0], ids=["cheapest is chosen", "neither", "best is chosen"])
def test_propensities_are_the_shares(share: float, failure: float) -> None:
    """Whatever sent it there, what is said to be likely is as frequent as that."""
    draws = sent(situation(*FIRSTS, stakes=stakes(failure)), share)
    firsts = {name: sum(count for (first, _), (count, _) in draws.items() if first == name) for name, _ in draws}
    for (name, _), (_, likely) in draws.items():
        assert firsts[name] / DRAWS == pytest.approx(likely)
    assert sum({name: likely for (name, _), (_, likely) in draws.items()}.values()) == pytest.approx(1)


@each_row(
    "limits, ends",
    [({"most": 0.1}, "ab"), ({"deadline_ms": 3_000}, "bc"), ({"most": 0.1, "deadline_ms": 3_000}, "b")],
)
def test_what_is_too_dear_or_too_slow_is_not_tried(limits: dict[str, Any], ends: str) -> None:
    state = situation(*FIRSTS, total_ms=[5_000, 1_000, 1_000], stakes=stakes(0.5, **limits))
    assert {name for name, arm in sent(state, 0.5) if arm} == set(ends)


def test_where_none_keeps_within_the_limits_nothing_is_tried() -> None:
    assert sent(situation([0.2, 0.8], [0.1, 0.2], stakes=stakes(0.5, 0.01)), 0.5) == {("a", ""): (DRAWS, 1.0)}


def test_below_the_floor_is_tried_for_else_no_outcome_would_show_that_it_is_above() -> None:
    assert ("a", "cheapest") in sent(situation([0.2, 0.8], [0.001, 0.01], stakes=stakes(0.5, min_pass_rate=0.5)), 0.5)


def test_the_second_of_a_pair_is_no_better_an_end_for_it() -> None:
    """c alone is over the cap, so the pair is no choice, and c no end."""
    state = situation([0.2, 0.8, 0.99], [0.001, 0.01, 0.2], verified=True, stakes=stakes(0.5, 0.1))
    assert {name for name, _ in sent(state, 0.5, cascade(state))} == {"a", "b"}


def test_the_target_that_is_tried_is_asked_alone_and_says_why() -> None:
    state = situation([0.5, 0.8, 0.95], [0.001, 0.1, 0.2], verified=True, stakes=stakes(0.5))
    ranked = cascade(state)
    assert ranked.tactic is not None
    for draw, first in ((0.1, "a"), (0.3, "c")):
        tried, _, _ = explore(ranked, state, 0.5, draw)
        assert (NAMES[tried.order[0]], tried.tactic) == (first, None)
    tried, _, _ = explore(cost_of_pass(MIDDLE), MIDDLE, 0.5, 0.3)
    assert why(tried) == {"a": "dearer", "b": "chosen", "c": "explored"}


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
    state = situation(p, cost, stakes=stakes(1.0, most))
    tried, arm, likely = explore(cost_of_pass(state), state, share, draw)
    assert 0 < likely <= 1
    if arm and state.stakes.max_nano is not None:
        assert state.forecast.cost[tried.order[0]] <= state.stakes.max_nano
