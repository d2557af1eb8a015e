"""Cascades and votes: the pair wins only if it pays, and what it is worth is what happens."""

from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from router.decide import worth
from router.decide.strategies import COMPARABLE, CascadeStrategy, SelfConsistency
from router.decide.weigh import DecisionInput, Ranking
from router.decide.worth import RHO, VerifierQuality
from router.types.decision import Cascade as Levels
from router.types.decision import Vote
from router.types.price import NANO_PER_USD
from router.types.target import Task
from tests.decide.situations import names, situation, stakes, why
from tests.tables import each_row

PAYS: dict[str, Any] = {"p": [0.6, 0.9], "cost": [0.001, 0.1], "stakes": stakes(1.0), "verified": True}
DRAWS = 40_000


def cascade(state: DecisionInput, **fields: Any) -> Ranking:
    return CascadeStrategy(kind="cascade", targets=tuple(place.id for place in state.targets) * 2, **fields).rank(state)


def vote(cheap: float = 0.001, samples: int = 5, limits: dict[str, Any] | None = None, **more: Any) -> Ranking:
    state = situation([0.7, 0.95], [cheap, 0.2], stakes=stakes(1.0, **(limits or {})), **more)
    return SelfConsistency(kind="self_consistency", targets=("a", "b"), samples=samples).rank(state)


def test_a_cheap_answer_that_can_be_checked_comes_first_unless_anything_is_accepted() -> None:
    ranked = cascade(situation(**PAYS))
    assert (names(ranked), ranked.tactic, why(ranked)) == ("ab", Levels(2), {"a": "first", "b": "second"})
    alone = [(row.target, row.cost_nano) for row in ranked.weigh()]
    assert alone == [("a", round(0.001 * NANO_PER_USD)), ("b", round(0.1 * NANO_PER_USD))]
    assert [cascade(situation(**PAYS), accepts_wrong=wrong).tactic for wrong in (0.05, 1)] == [Levels(2), None]
    three = cascade(situation([0.6, 0.9, 0.91], [0.001, 0.1, 0.12], stakes=stakes(3.0), verified=True))
    assert sorted(why(three).values())[-2:] == ["first", "second"]
    assert "chosen" not in why(three).values(), "the best alone is no longer said to be chosen"
    state = situation(**PAYS)  # what is paid for later requests counts neither against a pair nor for it
    dear = structs.replace(state.forecast, cost=state.forecast.cost + NANO_PER_USD)
    assert cascade(structs.replace(state, forecast=dear)).tactic == Levels(2)


@each_row(
    "reason, more",
    {
        "no verifiers": {"verified": False},
        "never right": {"p": [0.01, 0.9]},
        "never rescued": {"p": [0.6, 0.0]},
        "failures are cheap": {"stakes": stakes(0.01)},
        "not cheap": {"cost": [0.6, 0.7]},
        "cap": {"stakes": stakes(1.0, 0.1)},
        "deadline": {"stakes": stakes(1.0, deadline_ms=3_900)},
        "unknown": {"sd": [0.9, 0.01]},
    }.items(),
)
def test_else_the_single_targets_by_their_value(reason: str, more: dict[str, Any]) -> None:
    ranked = cascade(situation(**(PAYS | more)), caution=2)
    assert ranked.tactic is None, reason
    assert "chosen" in why(ranked).values()


def test_one_target_is_no_pair() -> None:
    state = situation([0.5], [0.1], verified=True)
    for ranked in (cascade(state), SelfConsistency(kind="self_consistency", targets=("a", "b")).rank(state)):
        assert (names(ranked), ranked.tactic) == ("a", None)


def test_a_pair_that_reaches_the_floor_wins_and_a_target_of_which_nothing_is_known_keeps_no_others_from_it() -> None:
    """Though it costs more than the likeliest alone."""
    state = situation([0.6, 0.8], [0.09, 0.1], verified=True, stakes=stakes(0.01, min_pass_rate=0.82))
    assert cascade(state).tactic == Levels(2)
    ranked = cascade(situation([0.6, 0.9, np.nan], [0.001, 0.1, 0.0001], stakes=stakes(1.0), verified=True))
    assert (names(ranked), ranked.tactic) == ("abc", Levels(2))


@settings(max_examples=25)
@given(
    st.lists(st.tuples(st.floats(0.05, 0.95), st.floats(0.001, 0.5)), min_size=2, max_size=4),
    st.floats(0.5, 1),
    st.floats(0, 0.5),
)
def test_no_target_and_no_other_pair_does_better(rows: list[tuple[float, float]], right: float, wrong: float) -> None:
    """Played with the same luck: every pair and every target alone, against what is chosen."""
    p, cost = map(np.array, zip(*rows, strict=True))
    state = situation(p.tolist(), cost.tolist(), stakes=stakes(1.0), verified=True)
    ranked = cascade(state, accepts_right=right, accepts_wrong=wrong)
    chance = np.random.default_rng(0)
    luck = np.where(chance.random((DRAWS, 1)) < RHO, chance.random((DRAWS, 1)), chance.random((DRAWS, len(p))))
    passes, check = luck < p, chance.random(DRAWS)
    accepted = np.where(passes, (check < right)[:, None], (check < wrong)[:, None])

    def played(first: int, second: int | None) -> float:
        if second is None:
            return float(cost[first] + 1 - passes[:, first].mean())
        given = np.where(accepted[:, first], passes[:, first], passes[:, second])
        return float(cost[first] + (~accepted[:, first]).mean() * cost[second] + 1 - given.mean())

    courses = [(at, None) for at in range(len(p))] + list(permutations(range(len(p)), 2))
    chosen = (ranked.order[0], ranked.order[1] if ranked.tactic else None)
    assert played(*chosen) <= min(played(*course) for course in courses) + 0.02


def test_samples_that_agree_are_believed_where_that_pays_and_a_further_one_is_drawn_only_where_it_does() -> None:
    """The dearer a sample, the fewer; none where one answer of the better is cheaper."""
    assert names(vote()) == "ab"
    assert {task for task in Task if isinstance(vote(task=task).tactic, Vote)} == set(COMPARABLE)
    same = vote(samples_differ=False)
    assert (names(same), same.tactic) == ("ba", None), "no target is asked twice that would say the same"
    tactics = [vote(cheap, samples=8).tactic for cheap in (0.0001, 0.01, 0.03, 0.3)]
    counts = [tactic.samples if isinstance(tactic, Vote) else 1 for tactic in tactics]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > counts[-1] == 1
    rows: tuple[dict[str, Any], ...] = ({}, {"most": 0.201}, {"deadline_ms": 5_000})
    assert [vote(samples=2, limits=limits).tactic is None for limits in rows] == [False, True, True]


# What a pair is worth: formulas against simulation, and against what must hold whatever the numbers are.


CHANCE = st.floats(0, 1)
CHEAP, DEAR = 0, 1
COST, P = np.array([0.001, 0.1]), np.array([0.6, 0.9])
DRAWN = 200_000


def passes_of(rng: np.random.Generator, rho: float) -> tuple[np.ndarray, np.ndarray]:
    """Draws of two targets' passes: with `rho` one luck for both, else two."""
    one, two = rng.random(DRAWN), rng.random(DRAWN)
    two = np.where(rng.random(DRAWN) < rho, one, two)
    return one < P[CHEAP], two < P[DEAR]


@each_row("rho", [0.0, 0.4, 1.0])
@each_row("check", [VerifierQuality(), VerifierQuality(0.9, 0.2), VerifierQuality(0.5, 0.5)])
def test_a_cascade_is_worth_what_a_simulation_of_it_costs(rho: float, check: VerifierQuality) -> None:
    rng = np.random.default_rng(1)
    first, second = passes_of(rng, rho)
    accepted = rng.random(DRAWN) < np.where(first, check.right, check.wrong)
    value = worth.cascade_value(COST, P, check, rho)
    assert value.p[CHEAP, DEAR] == pytest.approx(np.where(accepted, first, second).mean(), abs=0.004)
    expected = COST[CHEAP] + (~accepted).mean() * COST[DEAR]
    assert value.cost[CHEAP, DEAR] == pytest.approx(expected, rel=0.01)


@given(CHANCE, CHANCE, CHANCE, CHANCE, CHANCE)
def test_chances_stay_chances(one: float, two: float, right: float, wrong: float, rho: float) -> None:
    p = np.array([one, two])
    sampled = worth.sample_value(COST, p, 3, wrong_answers=2, repeat_rho=right, rho=rho)
    for value in (worth.cascade_value(COST, p, VerifierQuality(right, wrong), rho), sampled):
        assert ((value.p >= -1e-12) & (value.p <= 1 + 1e-12)).all()
        assert not np.isnan(value.cost).any()
    assert max(0.0, one + two - 1) - 1e-12 <= worth.both_pass(one, two, rho) <= min(one, two) + 1e-12


def test_many_requests_are_valued_as_each_alone_and_the_more_failures_go_together_the_less_a_second_helps() -> None:
    assert np.isinf(worth.cascade_value(COST, P).cost.diagonal()).all()
    cost, p = np.array([COST, 2 * COST]), np.array([P, P[::-1]])
    many = worth.cascade_value(cost, p)
    for row in range(2):
        assert many.cost[row] == pytest.approx(worth.cascade_value(cost[row], p[row]).cost)
    rescued = [worth.cascade_value(COST, P, rho=rho).p[CHEAP, DEAR] for rho in (0.0, 0.5, 1.0)]
    assert rescued == sorted(rescued, reverse=True)
    assert (rescued[0], rescued[-1]) == (pytest.approx(0.6 + 0.4 * 0.9), pytest.approx(0.9))
    checked = worth.cascade_value(COST, P)
    assert (COST + 1 - P).min() > (checked.cost + 1 - checked.p).min()


@each_row("samples, wrong_answers, rho", [(1, 4, 0.5), (2, 1, 0.0), (3, 3, 0.4), (5, 8, 0.2)])
def test_agreement_is_what_a_simulation_draws(samples: int, wrong_answers: int, rho: float) -> None:
    rng, p = np.random.default_rng(3), 0.7
    drawn = rng.integers(1, wrong_answers + 1, (DRAWN, samples)) * (rng.random((DRAWN, samples)) >= p)
    drawn = np.where((rng.random(DRAWN) < rho)[:, None], drawn[:, :1], drawn)
    same = np.logical_and.accumulate(drawn == drawn[:, :1], axis=1)
    agreed = worth.agreement(np.array([p]), samples, wrong_answers, rho)
    assert agreed.right[0] == pytest.approx((same[:, -1] & (drawn[:, 0] == 0)).mean(), abs=0.004)
    assert agreed.wrong[0] == pytest.approx((same[:, -1] & (drawn[:, 0] > 0)).mean(), abs=0.004)
    assert agreed.draws[0] == pytest.approx(1 + same[:, :-1].sum(axis=1).mean(), rel=0.01)


def test_samples_that_must_agree_make_a_cheap_target_safer_than_one_answer() -> None:
    once, thrice = (worth.sample_value(COST, P, n, repeat_rho=0.2) for n in (1, 3))
    assert thrice.p[CHEAP, DEAR] > once.p[CHEAP, DEAR] == pytest.approx(P[CHEAP])
    assert thrice.cost[CHEAP, DEAR] < COST[DEAR]
    assert (thrice.cost - thrice.p)[CHEAP, DEAR] < (once.cost - once.p)[CHEAP, DEAR]
