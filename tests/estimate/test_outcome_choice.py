"""The best single target is left only where that paid on prompts held out, known and strange ones."""

import numpy as np

from router.estimate.outcome_choice import Rules, Trial
from router.estimate.outcome_table import Floats, Ints

ROWS = 400
FOLDS = np.arange(ROWS) % 5
EASY = np.arange(ROWS) % 2 == 0
"""Of two targets, the first is right on these and the second on the others."""
SCORE = np.column_stack([EASY | (np.arange(ROWS) % 20 == 1), ~EASY]).astype(float)
RIGHT, WRONG = (np.clip(score, 0.2, 0.8) for score in (SCORE, 1 - SCORE))
DOUBT = np.full(ROWS, 0.1)


def chosen(p: Floats, strange: Floats) -> Ints:
    known, strangers = (Trial(each, np.zeros(each.shape), DOUBT, FOLDS) for each in (p, strange))
    free = np.zeros(SCORE.shape)
    return Rules(SCORE, free, known, strangers).choose(p, free, DOUBT, 1.0)


def test_predictions_that_came_true_are_followed_unless_they_harmed_groups_left_out() -> None:
    assert (chosen(RIGHT, RIGHT) == np.where(SCORE[:, 0] > 0, 0, 1)).all()
    assert (chosen(WRONG, RIGHT) == 0).all()
    assert (chosen(RIGHT, WRONG) == 0).all()


def test_of_targets_that_barely_differ_the_cheaper_one_is_the_baseline() -> None:
    rng = np.random.default_rng(0)
    score = (rng.random((ROWS, 2)) < 0.5).astype(float)
    score[:, 0] = score[:, 1].mean() + np.where(EASY, 0.3, -0.3)
    cost = np.tile([0.002, 0.001], (ROWS, 1))
    nothing = Trial(score, cost, np.zeros(ROWS), FOLDS)
    for ahead, baseline in ((0.001, 1), (0.2, 0)):
        assert Rules(score + np.array([ahead, 0.0]), cost, nothing, nothing).baseline(10.0) == baseline
