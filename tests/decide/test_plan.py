"""Budget and deadline: the course that is likeliest to end well, against what can be worked out by hand."""

from decimal import Decimal
from math import log, sqrt
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from router.decide.rehearse import Course, Played, Rest, rehearse
from router.decide.situation import Ranked, Situation
from router.decide.strategies.plan import Errands, Plan
from router.types.plan import Cascade, Hedge
from router.worth import both_pass
from tests.decide.situations import names, situation, stakes, usd, why
from tests.tables import each_row

ENDLESS = Rest(np.inf, np.inf)
Z90 = NormalDist().inv_cdf(0.9)
CHEAP_BETTER: dict[str, Any] = {"p": [0.6, 0.9], "cost": [0.01, 0.1]}


def rank(state: Situation, session: Errands | None = None, **fields: Any) -> Ranked:
    targets = tuple(place.id for place in state.targets)
    return Plan(kind="plan", targets=targets, session=session, **fields).rank(state)


def success(state: Situation, *courses: Course, rest: Rest = ENDLESS) -> list[float]:
    return [float(row.mean()) for row in rehearse(state, courses, 2_000, rest).right]


def within(mean: float, p90: float, limit: float) -> float:
    """Chance that a lognormal keeps within the limit."""
    spread = Z90 - sqrt(Z90**2 - 2 * log(p90 / mean))
    return NormalDist(log(mean) - spread**2 / 2, spread).cdf(log(limit))


@each_row("limit", [700, 1_000, 1_500, 2_500])
def test_the_chance_to_be_right_in_time_and_within_the_cap(limit: int) -> None:
    state = situation([0.8], [0.01], p90_ms=1_800.0)
    in_time = success(state, Course(0), rest=Rest(np.inf, limit))
    assert in_time == pytest.approx([0.8 * within(1_000, 1_800, limit)], abs=0.002)
    within_cap = success(state, Course(0), rest=Rest(usd(limit / 100_000), np.inf))
    assert within_cap == pytest.approx([0.8 * within(0.01, 0.02, limit / 100_000)], abs=0.002)


def test_the_chance_and_the_cost_of_a_checked_pair() -> None:
    played = rehearse(situation(**CHEAP_BETTER, cost_spread=1.5), [Course(0, 1)], 2_000, ENDLESS)
    assert played.right.mean() == pytest.approx(0.6 + 0.9 - float(both_pass(0.6, 0.9)))
    assert played.cost.mean() == pytest.approx(usd(0.01 + 0.4 * 0.1), rel=0.02)
    slow = situation(**CHEAP_BETTER, total_ms=[500.0, 5_000.0], p90_ms=[550.0, 5_500.0])
    late = success(slow, Course(0, 1), rest=Rest(np.inf, 2_000))
    assert late == pytest.approx([0.6]), "a second answer that comes too late rescues nothing"


TAIL: dict[str, Any] = {"total_ms": [1_000.0, 300.0], "p90_ms": [2_000.0, 400.0]}
"""One in three answers of the first takes longer than 1.2 s; its rival, started in time, hardly ever does."""


def test_a_hedge_is_there_for_the_slow_tail() -> None:
    state = situation([0.9, 0.9], [0.01, 0.01], **TAIL, stakes=stakes(deadline_ms=1_200))
    alone, hedged = success(state, Course(0), Course(0, 1, 700), rest=Rest(np.inf, 1_200))
    assert alone == pytest.approx(0.9 * within(1_000, 2_000, 1_200), abs=0.01)
    assert hedged > 0.88


def test_a_stream_has_a_rival_only_if_it_is_late_to_begin() -> None:
    def played(p: list[float], first_ms: Any) -> Played:
        state = situation(p, [0.01, 0.01], **TAIL, first_ms=first_ms, stream=True)
        return rehearse(state, [Course(0), Course(0, 1, 700)], 500, ENDLESS)

    begun = played([0.9, 0.1], 10.0)
    assert (begun.cost[0] == begun.cost[1]).all()
    assert (begun.right[0] == begun.right[1]).all()
    late = played([0.1, 0.9], [900.0, 10.0])
    assert late.cost[1].mean() > 1.2 * late.cost[0].mean()
    assert late.right[1].mean() > 0.3


def test_pairs_that_differ_by_chance_only_are_as_good_as_the_cheapest_of_them() -> None:
    """Twenty pairs of five equals: some is always ahead by its draws."""
    columns: dict[str, Any] = {"p": [0.6] * 5, "cost": [0.01 * at for at in range(1, 6)]}
    state = situation(**columns, verified=True, stakes=stakes(deadline_ms=2_500), stream=True)
    for draw in range(10):
        assert names(rank(structs.replace(state, draw=draw / 10))).startswith("ab")


MINUTE = stakes(deadline_ms=60_000)
HEDGED: dict[str, Any] = {"total_ms": [1_000.0, 400.0], "p90_ms": [2_000.0, 450.0], "p": [0.9, 0.5]}
HEDGED |= {"cost": [0.01, 0.01], "stakes": stakes(deadline_ms=1_300)}


@each_row(
    "more, order, tactic, reasons",
    [
        ({"stakes": MINUTE}, "ba", None, "less_likely chosen"),
        ({"stakes": MINUTE, "p": [0.9, 0.9]}, "ab", None, ""),
        ({"stakes": stakes(most=0.05)}, "ab", None, "chosen over_cost"),
        ({"stakes": MINUTE, "verified": True}, "ab", Cascade(2), "first second"),
        ({"stakes": stakes(deadline_ms=5_000), "total_ms": [500.0, 90_000.0]}, "ab", None, "chosen too_slow"),
        ({"stakes": stakes(deadline_ms=1)}, "ab", None, "chosen too_slow"),
        (HEDGED, "ab", Hedge(850), "first second"),
    ],
    ids=["likeliest", "a tie goes to the cheapest", "cap", "pair", "deadline", "none in time", "hedge"],
)
def test_the_course_that_is_taken(more: dict[str, Any], order: str, tactic: object, reasons: str) -> None:
    ranked = rank(situation(**(CHEAP_BETTER | more)))
    assert (names(ranked), ranked.tactic) == (order, tactic)
    assert not reasons or why(ranked) == dict(zip("ab", reasons.split(), strict=True))


@each_row(
    "calls, spent, first",
    [(0, 0, "b"), (5, 0.5, "b"), (5, 0.95, "a"), (9, 0.8, "b"), (30, 0.8, "b"), (9, 2, "a")],
    ids=["fresh", "as planned", "spent", "the last call", "beyond the plan", "overspent"],
)
def test_a_session_is_planned_anew_from_what_is_left(calls: int, spent: float, first: str) -> None:
    """Ten calls for one dollar; the better target takes ten cents."""
    state = situation([0.6, 0.9], [0.001, 0.09], cost_spread=1.1, calls=calls, spent=usd(spent))
    assert names(rank(state, Errands(calls=10, budget_usd=Decimal(1))))[0] == first


def test_time_of_a_session_runs_out_as_money_does() -> None:
    """Ten calls in two minutes, of which the better target takes ten seconds each."""
    columns: dict[str, Any] = {"total_ms": [100.0, 10_000.0], "p90_ms": [120.0, 11_000.0]}
    for elapsed, first in ((0.0, "b"), (112_000.0, "a")):
        state = situation([0.6, 0.9], [0.01, 0.01], **columns, elapsed_ms=elapsed)
        assert names(rank(state, Errands(calls=10, deadline_s=120)))[0] == first


def test_a_long_session_is_not_given_up_for_it_is_unlikely_to_be_right_all_along() -> None:
    assert names(rank(situation([0.3, 0.6], [0.001, 0.002]), Errands(calls=200, budget_usd=Decimal(10))))[0] == "b"


@settings(max_examples=30)
@given(
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1), st.floats(1, 20_000)), min_size=1, max_size=7),
    st.none() | st.integers(1, 30_000),
    st.none() | st.floats(0.001, 1),
    st.fixed_dictionaries(
        {"draw": st.floats(0, 1, exclude_max=True), "verified": st.booleans(), "stream": st.booleans()}
    ),
)
def test_whatever_is_forecast(
    rows: list[tuple[float, float, float]], deadline: int | None, most: float | None, more: dict[str, Any]
) -> None:
    """All once, the same again for the same draw, and a tactic that fits."""
    p, cost, total = zip(*rows, strict=True)
    state = situation(p, cost, total_ms=list(total), stakes=stakes(None, most, deadline_ms=deadline), **more)
    ranked = rank(state, draws=50)
    assert sorted(ranked.order) == list(range(len(p)))
    assert ranked == rank(state, draws=50)
    assert not isinstance(ranked.tactic, Cascade) or more["verified"]
    assert not isinstance(ranked.tactic, Hedge) or (deadline is not None and 0 < ranked.tactic.after_ms < deadline)


def test_what_is_no_number_is_not_planned_with() -> None:
    state = situation([np.nan, 0.5, 0.9], [0.01, np.nan, 0.02], stakes=stakes(most=1.0), verified=True)
    ranked = rank(state)
    assert (names(ranked)[0], ranked.tactic) == ("c", None)
