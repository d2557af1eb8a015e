"""The best single target is left only where that paid on prompts held out, known ones and strangers."""

import numpy as np

from router.estimate.fitted.choice import Rules, Trial
from router.estimate.fitted.folds import Floats, Ints

ROWS = 400
FOLDS = np.arange(ROWS) % 5
EASY = np.arange(ROWS) % 2 == 0
"""Of two targets, the first is right on these and the second on the others."""


def trial(p: Floats) -> Trial:
    return Trial(p, np.zeros(p.shape), np.full(len(p), 0.1), FOLDS)


def chosen(p: Floats, score: Floats, strange: Floats) -> Ints:
    rules = Rules(score, np.zeros(score.shape), trial(p), trial(strange))
    return rules.choose(p, np.zeros(p.shape), np.full(len(p), 0.1), 1.0)


def right() -> Floats:
    return np.column_stack([EASY | (np.arange(ROWS) % 20 == 1), ~EASY]).astype(float)


def told(score: Floats) -> Floats:
    return np.clip(score, 0.2, 0.8)


def test_predictions_that_came_true_are_followed() -> None:
    score = right()
    assert (chosen(told(score), score, told(score)) == np.where(score[:, 0] > 0, 0, 1)).all()


def test_predictions_that_did_not_come_true_are_not_followed() -> None:
    score = right()
    assert (chosen(told(1 - score), score, told(score)) == 0).all()


def test_what_harmed_groups_left_out_is_not_done() -> None:
    score = right()
    assert (chosen(told(score), score, told(1 - score)) == 0).all()


def test_of_targets_that_barely_differ_the_cheaper_one_is_the_baseline() -> None:
    rng = np.random.default_rng(0)
    score = (rng.random((ROWS, 2)) < 0.5).astype(float)
    score[:, 0] = score[:, 1].mean() + np.where(EASY, 0.3, -0.3)
    cost = np.tile([0.002, 0.001], (ROWS, 1))
    nothing = Trial(score, cost, np.zeros(ROWS), FOLDS)
    assert Rules(score + np.array([0.001, 0.0]), cost, nothing, nothing).baseline(10.0) == 1
    assert Rules(score + np.array([0.2, 0.0]), cost, nothing, nothing).baseline(10.0) == 0
