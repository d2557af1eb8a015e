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

from router.decide.rehearse import Course, Rest, rehearse
from router.decide.situation import Ranked, Situation
from router.decide.strategies.plan import Errands, Plan
from router.types.plan import Cascade, Hedge
from router.worth import both_pass
from tests.decide.situations import names, situation, stakes, usd, why

ENDLESS = Rest(np.inf, np.inf)
Z90 = NormalDist().inv_cdf(0.9)


def rank(seen: Situation, session: Errands | None = None, **fields: Any) -> Ranked:
    return Plan(kind="plan", targets=tuple(one.id for one in seen.targets), session=session, **fields).rank(seen)


def success(seen: Situation, *courses: Course, rest: Rest = ENDLESS, draws: int = 2_000) -> list[float]:
    return [float(row.mean()) for row in rehearse(seen, courses, draws, rest).right]


def within(mean: float, p90: float, limit: float) -> float:
    """Chance that a lognormal keeps within the limit."""
    spread = Z90 - sqrt(Z90**2 - 2 * log(p90 / mean))
    return NormalDist(log(mean) - spread**2 / 2, spread).cdf(log(limit))


@pytest.mark.parametrize("limit", [700, 1_000, 1_500, 2_500])
def test_the_chance_to_be_right_in_time(limit: int) -> None:
    seen = situation([0.8], [0.01], p90_ms=1_800.0)
    found = success(seen, Course(0), rest=Rest(np.inf, limit))
    assert found == pytest.approx([0.8 * within(1_000, 1_800, limit)], abs=0.002)


@pytest.mark.parametrize("limit", [0.005, 0.01, 0.02])
def test_the_chance_to_be_right_within_the_cap(limit: float) -> None:
    seen = situation([0.8], [0.01])
    found = success(seen, Course(0), rest=Rest(usd(limit), np.inf))
    assert found == pytest.approx([0.8 * within(0.01, 0.02, limit)], abs=0.002)


def test_the_chance_and_the_cost_of_a_checked_pair() -> None:
    seen = situation([0.6, 0.9], [0.01, 0.1], cost_spread=1.5)
    played = rehearse(seen, [Course(0, 1)], 2_000, ENDLESS)
    assert played.right.mean() == pytest.approx(0.6 + 0.9 - float(both_pass(0.6, 0.9)))
    assert played.cost.mean() == pytest.approx(usd(0.01 + 0.4 * 0.1), rel=0.02)


def test_what_a_second_answer_takes_too_long_for_it_does_not_rescue() -> None:
    seen = situation([0.6, 0.9], [0.01, 0.1], total_ms=[500.0, 5_000.0], p90_ms=[550.0, 5_500.0])
    assert success(seen, Course(0, 1), rest=Rest(np.inf, 2_000)) == pytest.approx([0.6])


def test_a_hedge_is_there_for_the_slow_tail() -> None:
    """One in three answers takes longer than the deadline; its rival, started in time, hardly ever does."""
    seen = situation(
        [0.9, 0.9], [0.01, 0.01], total_ms=[1_000.0, 300.0], p90_ms=[2_000.0, 400.0], stakes=stakes(deadline_ms=1_200)
    )
    alone, hedged = success(seen, Course(0), Course(0, 1, 700), rest=Rest(np.inf, 1_200))
    assert alone == pytest.approx(0.9 * within(1_000, 2_000, 1_200), abs=0.01)
    assert hedged > 0.88


def test_a_stream_that_has_begun_has_no_rival() -> None:
    """Its first byte comes at once, whatever its end."""
    columns: dict[str, Any] = {"first_ms": 10.0, "total_ms": [1_000.0, 300.0], "p90_ms": [2_000.0, 400.0]}
    seen = situation([0.9, 0.1], [0.01, 0.01], **columns, stream=True)
    played = rehearse(seen, [Course(0), Course(0, 1, 700)], 500, ENDLESS)
    assert (played.cost[0] == played.cost[1]).all()
    assert (played.right[0] == played.right[1]).all()


def test_a_stream_that_is_late_to_begin_has_one() -> None:
    columns: dict[str, Any] = {"first_ms": [900.0, 10.0], "total_ms": [1_000.0, 300.0], "p90_ms": [2_000.0, 400.0]}
    seen = situation([0.1, 0.9], [0.01, 0.01], **columns, stream=True)
    played = rehearse(seen, [Course(0), Course(0, 1, 700)], 500, ENDLESS)
    assert played.cost[1].mean() > 1.2 * played.cost[0].mean()
    assert played.right[1].mean() > 0.3


def test_pairs_that_differ_by_chance_only_are_as_good_as_the_cheapest_of_them() -> None:
    """Twenty pairs of five equals: some is always ahead by its draws."""
    seen = situation(
        [0.6] * 5, [0.01 * at for at in range(1, 6)], verified=True, stakes=stakes(deadline_ms=2_500), stream=True
    )
    for draw in range(10):
        assert names(rank(structs.replace(seen, draw=draw / 10))).startswith("ab")


@pytest.mark.parametrize(
    ("more", "order", "tactic"),
    [
        ({"stakes": stakes(deadline_ms=60_000)}, "ba", None),
        ({"stakes": stakes(deadline_ms=60_000), "p": [0.9, 0.9]}, "ab", None),
        ({"stakes": stakes(most=0.05)}, "ab", None),
        ({"stakes": stakes(deadline_ms=60_000), "verified": True}, "ab", Cascade(2)),
        ({"stakes": stakes(deadline_ms=5_000), "total_ms": [500.0, 90_000.0]}, "ab", None),
    ],
    ids=["the likeliest", "a tie goes to the cheapest", "the cap", "a checked pair", "the deadline"],
)
def test_the_course_that_is_taken(more: dict[str, Any], order: str, tactic: object) -> None:
    ranked = rank(situation(**({"p": [0.6, 0.9], "cost": [0.01, 0.1]} | more)))
    assert names(ranked) == order
    assert ranked.tactic == tactic


def test_a_deadline_near_the_usual_time_is_hedged() -> None:
    columns: dict[str, Any] = {"total_ms": [1_000.0, 400.0], "p90_ms": [2_000.0, 450.0], "p": [0.9, 0.5]}
    ranked = rank(situation(**columns, cost=[0.01, 0.01], stakes=stakes(deadline_ms=1_300)))
    assert (names(ranked), ranked.tactic) == ("ab", Hedge(850))
    assert why(ranked) == {"a": "first", "b": "second"}


def test_what_nobody_can_keep_is_tried_by_the_cheapest() -> None:
    ranked = rank(situation([0.6, 0.9], [0.01, 0.1], stakes=stakes(deadline_ms=1)))
    assert names(ranked) == "ab"
    assert why(ranked) == {"a": "chosen", "b": "too_slow"}


@pytest.mark.parametrize(
    ("done", "first"),
    [
        ({}, "b"),
        ({"calls": 5, "spent": usd(0.5)}, "b"),
        ({"calls": 5, "spent": usd(0.95)}, "a"),
        ({"calls": 9, "spent": usd(0.8)}, "b"),
        ({"calls": 30, "spent": usd(0.8)}, "b"),
        ({"calls": 9, "spent": usd(2)}, "a"),
    ],
    ids=["fresh", "as planned", "spent", "the last call", "beyond the plan", "overspent"],
)
def test_a_session_is_planned_anew_from_what_is_left(done: dict[str, Any], first: str) -> None:
    """Ten calls for one dollar; the better target takes ten cents."""
    seen = situation([0.6, 0.9], [0.001, 0.09], cost_spread=1.1, **done)
    assert names(rank(seen, Errands(calls=10, budget_usd=Decimal(1))))[0] == first


@pytest.mark.parametrize(("elapsed", "first"), [(0.0, "b"), (112_000.0, "a")])
def test_time_of_a_session_runs_out_as_money_does(elapsed: float, first: str) -> None:
    """Ten calls in two minutes, of which the better target takes ten seconds each."""
    seen = situation([0.6, 0.9], [0.01, 0.01], total_ms=[100.0, 10_000.0], p90_ms=[120.0, 11_000.0], elapsed_ms=elapsed)
    assert names(rank(seen, Errands(calls=10, deadline_s=120)))[0] == first


def test_a_long_session_is_not_given_up_for_it_is_unlikely_to_be_right_all_along() -> None:
    assert names(rank(situation([0.3, 0.6], [0.001, 0.002]), Errands(calls=200, budget_usd=Decimal(10))))[0] == "b"


@settings(max_examples=30)
@given(
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1), st.floats(1, 20_000)), min_size=1, max_size=7),
    st.floats(0, 1, exclude_max=True),
    st.none() | st.integers(1, 30_000),
    st.none() | st.floats(0.001, 1),
    st.booleans(),
    st.booleans(),
)
def test_whatever_is_forecast(
    rows: list[tuple[float, float, float]],
    draw: float,
    deadline: int | None,
    most: float | None,
    verified: bool,
    stream: bool,
) -> None:
    """Everybody once, the same again for the same draw, and a tactic that fits."""
    p, cost, total = zip(*rows, strict=True)
    seen = situation(
        p,
        cost,
        total_ms=list(total),
        stakes=stakes(None, most, deadline_ms=deadline),
        draw=draw,
        verified=verified,
        stream=stream,
    )
    ranked = rank(seen, draws=50)
    assert sorted(ranked.order) == list(range(len(p)))
    assert ranked == rank(seen, draws=50)
    assert not isinstance(ranked.tactic, Cascade) or verified
    assert not isinstance(ranked.tactic, Hedge) or (deadline is not None and 0 < ranked.tactic.after_ms < deadline)


def test_what_is_no_number_is_not_planned_with() -> None:
    seen = situation([np.nan, 0.5, 0.9], [0.01, np.nan, 0.02], stakes=stakes(most=1.0), verified=True)
    assert names(rank(seen))[0] == "c"
    assert rank(seen).tactic is None
