"""Costs: the bill comes out, intervals hold what they say, and little or bad data spoils nothing."""

import io
from typing import Any

import numpy as np
import pytest

from router.estimate.fitted.costs import CostPrediction, Costs
from router.estimate.fitted.folds import Floats, Ints, group_folds
from router.estimate.fitted.heads import splits, unseen
from router.estimate.fitted.space import Matrix
from router.features.embedding import DIMENSIONS
from router.features.look import SIZE
from tests.tables import each_row

PRICES = np.array([0.001, 0.01, 0.1])


def looks(rows: int, seed: int = 0) -> Matrix:
    rng = np.random.default_rng(seed)
    text = rng.standard_normal((rows, DIMENSIONS)) / np.sqrt(DIMENSIONS)
    marks = np.abs(rng.standard_normal((rows, SIZE - DIMENSIONS))) * 0.2
    return np.hstack([text, marks]).astype(np.float32)


def priced(rows: Matrix, seed: int = 1, noise: float = 0.4) -> Floats:
    """Longer requests cost more; noise is multiplicative."""
    rng = np.random.default_rng(seed)
    length = rows[:, [DIMENSIONS]].astype(float)
    found: Floats = PRICES * np.exp(4 * length + noise * rng.standard_normal((len(rows), len(PRICES))))
    return found


def fit(rows: Matrix, costs: Floats, groups: Ints | None = None, *more: Any) -> Costs:
    nothing = np.zeros(len(rows), np.intp)
    return Costs.fit(rows, nothing, costs, nothing if groups is None else groups, *more)


def predict(costs: Costs, rows: Matrix, unfamiliarity: float = 0.0) -> CostPrediction:
    return costs.predict(rows, np.full(len(rows), unfamiliarity))


def refit(rows: Matrix, costs: Floats) -> CostPrediction:
    """What is predicted of the same rows."""
    return predict(fit(rows, costs), rows)


def test_new_prompts_cost_in_total_what_was_said_and_four_in_five_within_the_interval() -> None:
    known, new = looks(900), looks(900, seed=5)
    guess, real = predict(fit(known, priced(known)), new), priced(new, seed=6)
    assert guess.mean.sum(0) / real.sum(0) == pytest.approx(np.ones(3), abs=0.08)
    assert ((real >= guess.p10) & (real <= guess.p90)).mean(0) == pytest.approx(np.full(3, 0.8), abs=0.06)
    assert np.median(np.abs(np.log(real / guess.median))) < np.median(np.abs(np.log(real / np.median(real, 0))))


def test_the_mean_is_the_bill_and_not_the_usual_cost_where_a_few_answers_run_away() -> None:
    known = looks(1000)
    costs = priced(known)
    costs[::20, 2] = 50.0
    guess = refit(known, costs)
    assert guess.mean[:, 2].sum() == pytest.approx(costs[:, 2].sum(), rel=0.08)
    assert np.median(guess.median[:, 2]) == pytest.approx(np.median(costs[:, 2]), rel=0.2)


def test_what_is_left_out_of_a_fold_does_not_show_in_what_is_said_of_it() -> None:
    """All is measured from the mean of all rows, so a large group shifts the others: that must not tell of it."""
    rows = looks(120).astype(float)
    groups = np.repeat([0, 1, 2], [80, 20, 20]).astype(np.intp)
    rows += np.where(groups == 0, 1.0, 0.0)[:, None]
    sides = splits(rows - rows.mean(0), group_folds(groups, 3))

    def guessed(level: float) -> Floats:
        outputs = rows[:, :1] + np.where(groups == 0, level, 0.0)[:, None]
        usual, added = unseen(sides, outputs - outputs.mean(0))
        found: Floats = (usual + added + outputs.mean(0))[:, groups == 0]
        return found

    np.testing.assert_allclose(guessed(0.0), guessed(50.0), atol=1e-6)


def test_one_group_is_no_evidence_that_a_text_foretells_costs_elsewhere() -> None:
    known = looks(300)
    far = predict(fit(known, priced(known)), looks(50, seed=8), 1.0)
    assert far.median == pytest.approx(np.broadcast_to(far.median[0], far.median.shape))


def test_strangers_cost_the_usual_and_their_intervals_are_wider() -> None:
    known = looks(600)
    groups = np.arange(600) % 6
    costs = fit(known, priced(known) * np.exp(0.8 * (groups - 2.5))[:, None], groups)
    new = looks(200, seed=7)
    near, far = predict(costs, new), predict(costs, new, 1.0)
    assert (np.log(far.p90 / far.p10) > np.log(near.p90 / near.p10)).mean() > 0.9
    assert np.log(far.median).std(0).max() <= np.log(near.median).std(0).max() + 1e-9


def test_a_target_without_costs_is_unknown_and_one_with_few_is_wide() -> None:
    known = looks(300)
    costs = priced(known)
    costs[:, 1], costs[1:, 2] = np.nan, np.nan
    guess = refit(known, costs)
    assert np.isnan(np.array(guess)[:, :, 1]).all()
    assert np.isfinite(np.array(guess)[:, :, [0, 2]]).all()
    assert np.median(guess.p90[:, 2] / guess.p10[:, 2]) > np.median(guess.p90[:, 0] / guess.p10[:, 0])


def test_one_row_is_its_own_mean_within_a_wide_interval() -> None:
    guess = predict(fit(looks(1), np.array([[0.01, 0.5, np.nan]])), looks(3, seed=2))
    assert guess.mean[:, :2] == pytest.approx(np.tile([0.01, 0.5], (3, 1)))
    assert (guess.p90 / guess.p10)[:, :2].min() > 4
    assert np.isnan(guess.mean[:, 2]).all()


def test_costs_that_can_not_be_are_unknown() -> None:
    known = looks(200)
    costs = priced(known)
    costs[::3, 1] = np.nan
    expected = refit(known, costs)
    costs[3::9, 1], costs[6::9, 1] = np.inf, -1.0
    np.testing.assert_array_equal(refit(known, costs), expected)


def test_free_answers_count_in_the_mean_and_break_nothing() -> None:
    known = looks(400)
    costs = priced(known)
    costs[:, 0], costs[::10, 2] = 0.0, 0.0
    guess = refit(known, costs)
    assert np.isfinite(np.array(guess)).all()
    assert guess.mean[:, 0].max() < 1e-6
    assert guess.mean[:, 2].sum() == pytest.approx(costs[:, 2].sum(), rel=0.1)


@each_row("cost", [0.0, 0.2])
def test_what_always_costs_the_same_will(cost: float) -> None:
    guess = predict(fit(looks(100), np.full((100, 2), cost)), looks(5, seed=3))
    assert guess.mean == pytest.approx(np.full((5, 2), cost), abs=1e-9)
    assert guess.p90 == pytest.approx(np.full((5, 2), cost), rel=0.01, abs=1e-9)


def test_one_absurd_cost_spoils_no_other_target() -> None:
    known = looks(300)
    costs = priced(known)
    costs[5:, 1] = np.nan
    usual = refit(known, costs).mean[:, 1:].sum(0)
    costs[3, 0] = 1e9
    assert refit(known, costs).mean[:, 1:].sum(0) == pytest.approx(usual, rel=0.5)


@each_row("rows", [0, 3])
def test_without_any_costs_all_is_unknown(rows: int) -> None:
    guess = predict(fit(looks(rows), np.full((rows, 2), np.nan)), looks(2))
    assert np.isnan(np.array(guess)).all()


def test_work_is_one_on_average_and_follows_the_output() -> None:
    known = looks(600)
    tokens = 500 * np.exp(4 * known[:, [DIMENSIONS]].astype(float)) * np.ones(3)
    work = fit(known, priced(known), None, tokens).work(known, np.zeros(600))
    assert work.mean() == pytest.approx(1, abs=0.05)
    assert np.corrcoef(np.log(work), np.log(tokens[:, 0]))[0, 1] > 0.9


def test_intervals_hold_at_the_unfamiliarity_that_they_were_fitted_with() -> None:
    known = looks(900)
    groups = np.arange(900) % 6
    real = priced(known) * np.exp(0.8 * (groups - 2.5))[:, None]
    doubt = np.full(900, 0.3)
    guess = fit(known, real, groups, None, (doubt, np.ones(900))).predict(known, doubt)
    assert ((real >= guess.p10) & (real <= guess.p90)).mean() == pytest.approx(0.8, abs=0.1)


def test_arrays_are_all_there_is_to_keep() -> None:
    known, file = looks(100), io.BytesIO()
    costs = fit(known, priced(known))
    np.savez(file, **costs._asdict())
    file.seek(0)
    with np.load(file) as kept:
        again = Costs(**{name: kept[name] for name in kept.files})
    np.testing.assert_array_equal(predict(again, known), predict(costs, known))
