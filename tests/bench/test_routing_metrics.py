"""Figures of routing by hand and by their definitions, step by step: curves, calibration, pairs, cascades."""

from typing import cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.routing import calibration, metrics, pairs
from bench.routing.bootstrap import draw
from bench.routing.cascades import ALONE, Pairs, cascaded, choose, paid
from bench.routing.metrics import Floats, Truth

NAN = float("nan")


def truth(score: list[list[float]], cost: list[list[float]]) -> Truth:
    return Truth(np.array(score, float), np.array(cost, float))


@st.composite
def cases(draw_: st.DrawFn) -> tuple[Floats, Floats, Truth]:
    """What a router believes, and what is true; some cells are not observed, but one of each prompt and target is."""
    rng = np.random.default_rng(draw_(st.integers(0, 2**32)))
    n, targets = draw_(st.integers(1, 12)), draw_(st.integers(1, 5))
    coarse = draw_(st.booleans())
    p, score = rng.random((2, n, targets))
    cost, price = rng.integers(1, 4, (2, n, targets)) * 0.01 if coarse else rng.lognormal(-4, 1, (2, n, targets))
    score = (score > 0.5).astype(float)
    hidden = rng.random((n, targets)) < draw_(st.sampled_from([0.0, 0.3]))
    hidden[:, 0] = hidden[0] = False
    score[hidden] = NAN
    return p, price.astype(float), Truth(score, cost.astype(float))


def test_the_hull_rises_and_bends_down() -> None:
    rows: list[tuple[list[tuple[float, float]], list[tuple[float, float]]]] = [
        ([(3, 0.8), (1, 0.2), (2, 0.7), (4, 0.4)], [(1, 0.2), (2, 0.7), (3, 0.8)]),
        ([(1, 0.2), (1, 0.6), (2, 0.6)], [(1, 0.6)]),
        ([(1, 0.25), (2, 0.5), (3, 0.75)], [(1, 0.25), (3, 0.75)]),
        ([(1, NAN), (NAN, 1), (2, 0.4)], [(2, 0.4)]),
    ]
    for points, corners in rows:
        assert list(zip(*metrics.hull(*zip(*points, strict=True)), strict=True)) == corners


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=30))
def test_no_mixture_of_two_points_is_above_the_hull(points: list[tuple[int, int]]) -> None:
    x, y = metrics.hull(*zip(*points, strict=True))
    assert (np.diff(x) > 0).all()
    assert (np.diff(y) > 0).all()
    for cost, accuracy in points:
        assert accuracy <= (np.interp(cost, x, y) if cost >= x[0] else -1) + 1e-9
    assert {*zip(x, y, strict=True)} <= {(float(a), float(b)) for a, b in points}


def test_aiq_by_hand() -> None:
    """Two models: at 1 USD right on the first of two prompts, at 3 USD right on both. Mixing: from (1, ½) to (3, 1),
    mean ¾. The oracle adds (2, 1): mean of ½ → 1 → 1 is ⅞."""
    true = truth([[1, 1], [0, 1]], [[1, 3], [1, 3]])
    assert (metrics.aiq_zero(true).item(), metrics.aiq_oracle(true).item()) == pytest.approx((0.75, 0.875))
    for p, cost, expected in ((*true, 1), ([[0.1, 0.9], [0.9, 0.95]], true.cost, 0), ([[0.5, 0.9]] * 2, true.cost, 0)):
        assert metrics.aiq_norm(metrics.sweep(np.array(p), cost, true), true).item() == pytest.approx(expected)
    corners = (np.array([1.0, 2.0]), np.array([0.0, 1.0]))
    assert [metrics.height(corners, 1, 3), metrics.height(corners, 2, 2)] == [0.75, 1], "flat beyond the last corner"


def test_a_router_that_never_reaches_low_costs_claims_none_and_without_head_room_there_is_no_norm() -> None:
    """It thinks the dear one cheaper, so that its curve is one point: the dear one. Left of it there is only mixing."""
    true = truth([[0, 1]], [[1, 3]])
    swept = metrics.sweep(np.array([[0.0, 1.0]]), np.array([[2.0, 1.0]]), true)
    assert metrics.aiq(swept, true).item() == pytest.approx(0.5)
    assert np.isnan(metrics.aiq_norm(metrics.sweep(*true, true), true)).all()
    true = truth([[1, 0], [0, 0], [1, 0]], [[1, 5], [2, 5], [3, 5]])
    passes = [metrics.cost_of_pass(true, np.full(3, target)).item() for target in (0, 1)]
    assert passes == [pytest.approx(3), np.inf], "cost per right answer"


@given(cases())
@settings(max_examples=60, deadline=None)
def test_the_sweep_is_every_choice_that_any_rate_leads_to(case: tuple[Floats, Floats, Truth]) -> None:
    """Nobody beats the oracle, and mixing is zero."""
    p, cost, true = case
    full = Truth(np.nan_to_num(true.score), true.cost)
    oracle = metrics.aiq_oracle(full).item() + 1e-9
    assert metrics.aiq(metrics.sweep(p, cost, full), full).item() <= oracle
    assert metrics.aiq_zero(full).item() <= oracle
    swept = metrics.sweep(p, cost, true)
    curve = metrics.points(swept)
    x, y = metrics.hull(curve.cost[0], curve.accuracy[0])
    middles = np.unique(np.concatenate([[0.0], swept.rate, (swept.rate[1:] + swept.rate[:-1]) / 2, [1e12]]))
    for rate in middles:
        gain = np.where(true.observed, p - rate * cost, -np.inf)
        if ((gain > gain.max(1, keepdims=True) - 1e-9).sum(1) > 1).any():
            continue
        choice = gain.argmax(1)
        at = metrics.at(true.cost, choice).mean(), metrics.at(true.score, choice).mean()
        assert min(np.hypot(curve.cost[0] - at[0], curve.accuracy[0] - at[1])) < 1e-9
        assert at[1] <= np.interp(at[0] + 1e-9, x, y) + 1e-6 or at[0] < x[0]


@given(cases(), st.sampled_from([0.05, 0.25, 1, 4]))
@settings(max_examples=40, deadline=None)
def test_failure_priced_cost_follows_its_definition(case: tuple[Floats, Floats, Truth], price: float) -> None:
    p, cost, true = case
    choice, seen, prompts, targets = metrics.choose(p, cost, price, true), true.observed, *map(range, p.shape)
    priced, expected = true.cost + price * (1 - true.score), cost + price * (1 - p)
    best = [min((expected[i, t], t) for t in targets if seen[i, t])[1] for i in prompts]
    paid = np.mean([priced[i, t] for i, t in enumerate(best)])
    alone = [np.mean([priced[i, t] for i in prompts if seen[i, t]]) for t in targets]
    assert metrics.failure_priced(true, choice, price).item() == pytest.approx(paid)
    assert metrics.failure_priced_singles(true, price)[0] == pytest.approx(alone)
    assert alone[metrics.best_single(true, price)] == pytest.approx(min(alone))
    assert metrics.harm(true, choice, price).item() == pytest.approx(paid / min(alone) - 1)


@given(cases())
@settings(max_examples=20, deadline=None)
def test_weights_are_repeated_prompts(case: tuple[Floats, Floats, Truth]) -> None:
    p, cost, true = case
    choice, weights = metrics.choose(p, cost, 0.25, true), draw(len(p), 3, seed=1)
    for drawn in weights:
        rows = np.repeat(np.arange(len(p)), drawn.astype(int))
        again = Truth(true.score[rows], true.cost[rows])
        if again.observed.any(0).all():
            swept, repeated = metrics.sweep(p, cost, true), metrics.sweep(p[rows], cost[rows], again)
            assert metrics.aiq(swept, true, drawn[None]) == pytest.approx(metrics.aiq(repeated, again))
            assert metrics.aiq_zero(true, drawn[None]) == pytest.approx(metrics.aiq_zero(again))
            expected = metrics.harm(again, choice[rows], 0.25)
            assert metrics.harm(true, choice, 0.25, drawn[None]) == pytest.approx(expected)


@given(st.integers(0, 2**32), st.integers(1, 20))
@settings(max_examples=40, deadline=None)
def test_ece_bin_after_bin(seed: int, bins: int) -> None:
    rng = np.random.default_rng(seed)
    p, score = rng.random((30, 3)), rng.integers(0, 2, (30, 3)).astype(float)
    score[rng.random((30, 3)) < 0.2] = NAN
    cells = [(a, b) for a, b in zip(p.ravel(), score.ravel(), strict=True) if b == b]
    wide = [[cell for cell in cells if int(cell[0] * bins) == k] for k in range(bins)]
    expected = sum(abs(sum(a for a, _ in each) - sum(b for _, b in each)) for each in wide) / len(cells)
    assert calibration.ece(p, score, bins=bins).item() == pytest.approx(expected)


WEAK, STRONG = np.array([1.0, 0, 0, 1]), np.array([1.0, 1, 1, 0])
"""The strong one wins two prompts and loses one: a gap of one."""


@given(st.integers(0, 2**32))
@settings(max_examples=40, deadline=None)
def test_one_share_after_the_other(seed: int) -> None:
    rng = np.random.default_rng(seed)
    merit, weak, strong = rng.normal(size=9), rng.integers(0, 2, 9).astype(float), np.append(rng.integers(0, 2, 8), 1.0)
    weak[-1] = 0
    if strong.sum() <= weak.sum():
        return
    order = np.argsort(-merit)
    reached = [np.where(np.isin(np.arange(9), order[:k]), strong, weak).mean() for k in range(10)]
    recovered = (np.array(reached) - weak.mean()) / (strong.mean() - weak.mean())
    curve = pairs.gain(merit, weak, strong)
    assert curve.recovered[0] == pytest.approx(recovered)
    assert pairs.apgr(curve).item() == pytest.approx((recovered[1:] + recovered[:-1]).mean() / 2)
    fine = np.interp(np.linspace(0, 1, 9_001), np.arange(10) / 9, recovered)
    assert pairs.cpt(curve, 0.5).item() == pytest.approx(np.argmax(fine >= 0.5 - 1e-9) / 9_000, abs=2e-4)


def test_ranks_within_folds_ignore_the_level_of_a_fold_and_a_prompt_without_a_grade_does_not_count() -> None:
    merit = np.array([0.1, 0.3, 0.3, 5.1, 5.0, 5.2])
    within = pairs.within(merit, np.array([0, 0, 0, 1, 1, 1]))
    assert within == pytest.approx([1 / 6, 4 / 6, 4 / 6, 3 / 6, 1 / 6, 5 / 6])
    assert (pairs.within(np.array([1.0, 1, 2, 2]), np.array([0, 0, 1, 1])) == 0.5).all()
    curve = pairs.gain(np.array([9.0, 0, 3, 2, -1]), np.append(np.nan, WEAK), np.append(1, STRONG))
    assert pairs.apgr(curve).item() == pytest.approx(1.375)


COST = np.tile([0.001, 0.1], (4, 1))
PAIR = Truth(np.array([[1.0, 1.0], [1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]), COST)
CHEAP, DEAR = 0, 1


def test_the_second_is_paid_only_where_the_first_failed() -> None:
    spent, score = paid(PAIR, Pairs(np.full(4, CHEAP), np.full(4, DEAR)), 1.0)
    assert [*spent, *score] == pytest.approx([0.001, 0.001, 0.101, 1.101, 1, 1, 1, 0])
    spent, score = paid(PAIR, Pairs(np.full(4, DEAR), np.full(4, ALONE)), 1.0)
    assert [*spent, *score] == pytest.approx([0.1, 1.1, 0.1, 1.1, 1, 0, 1, 0])


def test_a_pair_is_asked_where_it_pays() -> None:
    rows = [([0.6, 0.9], 1.0, DEAR), ([0.6, 0.9], 0.01, ALONE), ([0.01, 0.9], 0.3, DEAR), ([0.9, 0.01], 0.05, ALONE)]
    for p, price, second in rows:
        chosen = choose(np.array([p]), COST[:1], price)
        assert (chosen.first[0], chosen.second[0]) == (CHEAP, second), (p, price)


def test_a_verifier_saves_what_the_dear_model_would_have_cost() -> None:
    rng, n = np.random.default_rng(0), 2_000
    p = np.tile([0.7, 0.9], (n, 1))
    truth = Truth((rng.random((n, 2)) < p).astype(float), np.tile([0.001, 0.1], (n, 1)))
    result = cascaded(truth, p, truth.cost, ("cheap", "dear"), price=1.0, rho=0.0)
    assert result.best == "dear"
    # cheap first: 0.001 + 0.3 · (0.1 + 0.1 · 1), against 0.1 + 0.1 · 1
    assert result.router.value == pytest.approx(0.061 / 0.2 - 1, abs=0.05)
    low, value, high = cast(tuple[float, float, float], (result.router.low, result.router.value, result.router.high))
    assert low < value < high
    assert result.fixed == pytest.approx(result.router.value)
    assert result.paired == 1
    assert result.right > result.right_single
