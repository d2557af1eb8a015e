"""Formulas against simulation, and against what must hold whatever the numbers are."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from router import worth
from router.worth import Check
from tests.tables import each_row

CHANCE = st.floats(0, 1)
CHEAP, DEAR = 0, 1
COST, P = np.array([0.001, 0.1]), np.array([0.6, 0.9])
DRAWS = 200_000


def pairs(rng: np.random.Generator, rho: float) -> tuple[np.ndarray, np.ndarray]:
    """Draws of two targets' passes: with `rho` one luck for both, else two."""
    one, two = rng.random(DRAWS), rng.random(DRAWS)
    two = np.where(rng.random(DRAWS) < rho, one, two)
    return one < P[CHEAP], two < P[DEAR]


@each_row("rho", [0.0, 0.4, 1.0])
@each_row("check", [Check(), Check(0.9, 0.2, 0.002), Check(0.5, 0.5)])
def test_a_cascade_is_worth_what_a_simulation_of_it_costs(rho: float, check: Check) -> None:
    rng = np.random.default_rng(1)
    first, second = pairs(rng, rho)
    accepted = rng.random(DRAWS) < np.where(first, check.right, check.wrong)
    value = worth.cascade_value(COST, P, 1.0, check, rho)
    assert value.p[CHEAP, DEAR] == pytest.approx(np.where(accepted, first, second).mean(), abs=0.004)
    expected = COST[CHEAP] + check.cost_usd + (~accepted).mean() * COST[DEAR]
    assert value.cost[CHEAP, DEAR] == pytest.approx(expected, rel=0.01)
    assert value.priced[CHEAP, DEAR] == pytest.approx(expected + 1 - value.p[CHEAP, DEAR], abs=0.004)


@given(CHANCE, CHANCE, CHANCE, CHANCE, CHANCE)
def test_chances_stay_chances(one: float, two: float, right: float, wrong: float, rho: float) -> None:
    p = np.array([one, two])
    sampled = worth.sample_value(COST, p, 1.0, 3, wrong_answers=2, repeat_rho=right, rho=rho)
    for value in (worth.cascade_value(COST, p, 1.0, Check(right, wrong), rho), sampled):
        assert ((value.p >= -1e-12) & (value.p <= 1 + 1e-12)).all()
        assert not np.isnan(value.priced).any()
    assert max(0.0, one + two - 1) - 1e-12 <= worth.both_pass(one, two, rho) <= min(one, two) + 1e-12


def test_many_requests_are_valued_as_each_alone_and_no_target_follows_itself() -> None:
    assert np.isinf(worth.cascade_value(COST, P, 1.0).priced.diagonal()).all()
    cost, p = np.array([COST, 2 * COST]), np.array([P, P[::-1]])
    many = worth.cascade_value(cost, p, 0.5)
    for row in range(2):
        assert many.priced[row] == pytest.approx(worth.cascade_value(cost[row], p[row], 0.5).priced)
    assert [list(each) for each in worth.best_pair(many.priced)] == [[0, 0], [1, 1]]


def test_the_more_failures_go_together_the_less_a_second_attempt_helps() -> None:
    rescued = [worth.cascade_value(COST, P, 1.0, rho=rho).p[CHEAP, DEAR] for rho in (0.0, 0.5, 1.0)]
    assert rescued == sorted(rescued, reverse=True)
    assert (rescued[0], rescued[-1]) == (pytest.approx(0.6 + 0.4 * 0.9), pytest.approx(0.9))


def test_a_check_that_costs_more_than_the_best_saves_nothing() -> None:
    single = worth.failure_priced(COST, P, 1.0).min()
    assert worth.cascade_value(COST, P, 1.0, Check(cost_usd=0.2)).priced.min() > single
    assert worth.cascade_value(COST, P, 1.0).priced.min() < single


@each_row("rho", [0.0, 0.3, 0.8])
def test_rho_is_found_again_in_what_it_made(rho: float) -> None:
    first, second = pairs(np.random.default_rng(2), rho)
    score, expected = np.column_stack([first, second]).astype(float), np.tile(P, (DRAWS, 1))
    assert worth.measure_rho(score, expected) == pytest.approx(rho, abs=0.02)
    score[::2, 0] = np.nan
    assert worth.measure_rho(score, expected) == pytest.approx(rho, abs=0.03)


def test_rho_of_nothing_is_none() -> None:
    assert worth.measure_rho(np.full((3, 2), np.nan), np.full((3, 2), 0.5)) == 0
    assert worth.measure_rho(np.ones((3, 1)), np.full((3, 1), 0.5)) == 0


@each_row("samples, wrong_answers, rho", [(1, 4, 0.5), (2, 1, 0.0), (3, 3, 0.4), (5, 8, 0.2)])
def test_agreement_is_what_a_simulation_draws(samples: int, wrong_answers: int, rho: float) -> None:
    rng, p = np.random.default_rng(3), 0.7
    drawn = rng.integers(1, wrong_answers + 1, (DRAWS, samples)) * (rng.random((DRAWS, samples)) >= p)
    drawn = np.where((rng.random(DRAWS) < rho)[:, None], drawn[:, :1], drawn)
    same = np.logical_and.accumulate(drawn == drawn[:, :1], axis=1)
    agreed = worth.agreement(np.array([p]), samples, wrong_answers, rho)
    assert agreed.right[0] == pytest.approx((same[:, -1] & (drawn[:, 0] == 0)).mean(), abs=0.004)
    assert agreed.wrong[0] == pytest.approx((same[:, -1] & (drawn[:, 0] > 0)).mean(), abs=0.004)
    assert agreed.draws[0] == pytest.approx(1 + same[:, :-1].sum(axis=1).mean(), rel=0.01)


def test_samples_that_must_agree_make_a_cheap_target_safer_than_one_answer() -> None:
    once, thrice = (worth.sample_value(COST, P, 1.0, n, repeat_rho=0.2) for n in (1, 3))
    assert thrice.p[CHEAP, DEAR] > once.p[CHEAP, DEAR] == pytest.approx(P[CHEAP])
    assert thrice.cost[CHEAP, DEAR] < COST[DEAR]
    assert thrice.priced[CHEAP, DEAR] < once.priced[CHEAP, DEAR]


def test_trying_pays_where_much_is_unknown_and_little_is_lost() -> None:
    gain = worth.worth_trying(np.array([0.30, 0.35, 0.35, 0.90]), np.array([0.01, 0.10, 0.01, 0.10]), 0.5, 300)
    assert gain[0] == 0
    assert gain.argmax() == 1
    assert gain[1] > 0 > max(gain[2:])


def test_trying_never_pays_without_a_future_and_always_ends() -> None:
    value = np.array([0.30, 0.31])
    assert (worth.worth_trying(value, np.array([0.2, 0.2]), 0.5, 0) <= 0).all()
    assert (worth.worth_trying(value, np.array([0.0, 0.0]), 0.5, 1e6) <= 0).all()
    tried = [worth.worth_trying(value, np.array([0.0, sd]), 0.5, 300)[1] for sd in (0.2, 0.05, 0.01, 0.001)]
    assert tried == sorted(tried, reverse=True)


@each_row("gap", [0.0, 0.3, 1.0, 2.0])
def test_a_trial_is_worth_what_a_simulation_of_it_saves(gap: float) -> None:
    rng = np.random.default_rng(4)
    sd, trials, noise = 0.1, 64, 0.5
    truth = rng.normal(gap * sd, sd, DRAWS)
    seen = truth + rng.normal(0, noise / np.sqrt(trials), DRAWS)
    shrunk = gap * sd + (seen - gap * sd) * sd**2 / (sd**2 + noise**2 / trials)
    gain = worth.worth_trying(np.array([0.0, gap * sd]), np.array([0.0, sd]), noise, 1e6)[1]
    assert gain >= 1e6 * np.maximum(0, -shrunk).mean() / trials * 0.9 - gap * sd
