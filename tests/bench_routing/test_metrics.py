"""Routing metrics against hand-computed cases, and against the definitions followed step by step."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.routing import metrics
from bench.routing.bootstrap import draw, interval
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


@pytest.mark.parametrize(
    ("points", "corners"),
    [
        ([(1, 0.5)], [(1, 0.5)]),
        ([(1, 0.5), (2, 0.4)], [(1, 0.5)]),
        ([(1, 0.2), (2, 0.3), (3, 0.8)], [(1, 0.2), (3, 0.8)]),
        ([(3, 0.8), (1, 0.2), (2, 0.7)], [(1, 0.2), (2, 0.7), (3, 0.8)]),
        ([(1, 0.2), (1, 0.6), (2, 0.6)], [(1, 0.6)]),
        ([(1, 0.25), (2, 0.5), (3, 0.75)], [(1, 0.25), (3, 0.75)]),
        ([(1, NAN), (NAN, 1), (2, 0.4)], [(2, 0.4)]),
    ],
)
def test_the_hull_rises_and_bends_down(points: list[tuple[float, float]], corners: list[tuple[float, float]]) -> None:
    x, y = metrics.hull(*zip(*points, strict=True))
    assert list(zip(x, y, strict=True)) == corners


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=30))
def test_no_mixture_of_two_points_is_above_the_hull(points: list[tuple[int, int]]) -> None:
    x, y = metrics.hull(*zip(*points, strict=True))
    assert (np.diff(x) > 0).all()
    assert (np.diff(y) > 0).all()
    for cost, accuracy in points:
        assert accuracy <= (np.interp(cost, x, y) if cost >= x[0] else -1) + 1e-9
    assert {*zip(x, y, strict=True)} <= {(float(a), float(b)) for a, b in points}


def test_the_height_is_flat_beyond_the_last_corner() -> None:
    corners = (np.array([1.0, 2.0]), np.array([0.0, 1.0]))
    assert metrics.height(corners, 1, 3) == pytest.approx(0.75)
    assert metrics.height(corners, 2, 2) == 1


def test_aiq_by_hand() -> None:
    """Two models: at 1 USD right on the first of two prompts, at 3 USD right on both. Mixing: from (1, ½) to (3, 1),
    mean ¾. The oracle adds (2, 1): mean of ½ → 1 → 1 is ⅞."""
    true = truth([[1, 1], [0, 1]], [[1, 3], [1, 3]])
    assert metrics.aiq_zero(true).item() == pytest.approx(0.75)
    assert metrics.aiq_oracle(true).item() == pytest.approx(0.875)
    knows = metrics.sweep(*true, true)
    wrong = metrics.sweep(np.array([[0.1, 0.9], [0.9, 0.95]]), true.cost, true)
    same = metrics.sweep(np.array([[0.5, 0.9], [0.5, 0.9]]), true.cost, true)
    assert metrics.aiq_norm(knows, true).item() == pytest.approx(1)
    assert metrics.aiq_norm(same, true).item() == pytest.approx(0)
    assert metrics.aiq_norm(wrong, true).item() == pytest.approx(0)


def test_a_router_that_never_reaches_low_costs_claims_none() -> None:
    """It thinks the dear one cheaper, so that its curve is one point: the dear one. Left of it there is only mixing."""
    true = truth([[0, 1]], [[1, 3]])
    swept = metrics.sweep(np.array([[0.0, 1.0]]), np.array([[2.0, 1.0]]), true)
    assert metrics.aiq(swept, true).item() == pytest.approx(0.5)


def test_without_head_room_there_is_no_normed_value() -> None:
    true = truth([[0, 1]], [[1, 3]])
    assert np.isnan(metrics.aiq_norm(metrics.sweep(*true, true), true)).all()


@given(cases())
@settings(max_examples=60, deadline=None)
def test_the_sweep_is_every_choice_that_any_rate_leads_to(case: tuple[Floats, Floats, Truth]) -> None:
    p, cost, true = case
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


@given(cases())
@settings(max_examples=40, deadline=None)
def test_nobody_beats_the_oracle_and_mixing_is_zero(case: tuple[Floats, Floats, Truth]) -> None:
    p, cost, true = case
    full = Truth(np.nan_to_num(true.score), true.cost)
    oracle, zero = metrics.aiq_oracle(full).item(), metrics.aiq_zero(full).item()
    assert metrics.aiq(metrics.sweep(p, cost, full), full).item() <= oracle + 1e-9
    assert zero <= oracle + 1e-9


@given(cases(), st.sampled_from([0.05, 0.25, 1, 4]))
@settings(max_examples=40, deadline=None)
def test_failure_priced_cost_follows_its_definition(case: tuple[Floats, Floats, Truth], price: float) -> None:
    p, cost, true = case
    choice = metrics.choose(p, cost, price, true)
    seen = true.observed
    paid = [
        true.cost[i, t] + price * (1 - true.score[i, t])
        for i, t in (
            (i, min((j for j in range(p.shape[1]) if seen[i, j]), key=lambda j: cost[i, j] + price * (1 - p[i, j])))
            for i in range(len(p))
        )
    ]
    assert metrics.failure_priced(true, choice, price).item() == pytest.approx(np.mean(paid))
    alone = [
        np.mean([true.cost[i, t] + price * (1 - true.score[i, t]) for i in range(len(p)) if seen[i, t]])
        for t in range(p.shape[1])
    ]
    assert metrics.failure_priced_singles(true, price)[0] == pytest.approx(alone)
    assert alone[metrics.best_single(true, price)] == pytest.approx(min(alone))
    assert metrics.harm(true, choice, price).item() == pytest.approx(np.mean(paid) / min(alone) - 1)


def test_cost_of_pass_is_cost_per_right_answer() -> None:
    true = truth([[1, 0], [0, 0], [1, 0]], [[1, 5], [2, 5], [3, 5]])
    assert metrics.cost_of_pass(true, np.array([0, 0, 0])).item() == pytest.approx(3)
    assert metrics.cost_of_pass(true, np.array([1, 1, 1])).item() == np.inf


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


def test_grouped_switches_move_a_curve_very_little(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    ability = rng.random((4_000, 6))
    true = Truth((rng.random((4_000, 6)) < ability).astype(float), rng.lognormal(-6, 1, (4_000, 6)))
    swept = metrics.sweep(ability, true.cost, true)
    grouped = metrics.aiq_norm(swept, true).item()
    monkeypatch.setattr(metrics, "POINTS", 10**9)
    assert grouped == pytest.approx(metrics.aiq_norm(swept, true).item(), abs=1e-3)


def test_an_interval_holds_the_value_and_is_the_same_again() -> None:
    values = np.random.default_rng(0).normal(5, 1, 400)
    found = interval(lambda w: metrics.mean(values, w), 400)
    assert found == interval(lambda w: metrics.mean(values, w), 400)
    assert found.value is not None
    assert found.low is not None
    assert found.high is not None
    assert found.low < found.value < found.high
    assert found.high - found.low == pytest.approx(4 * values.std() / 20, rel=0.2)
    assert interval(lambda w: metrics.mean(np.full(3, NAN), w), 3).value is None
