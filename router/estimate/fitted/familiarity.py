"""How far a prompt is from what an estimate was built on: learnt from groups of prompts that were held out whole."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from router.estimate.fitted.folds import Floats
from router.estimate.fitted.space import Matrix

UNFAMILIAR = 0.2
"""Share of unfamiliar prompts before anything is known of one."""
RIDGE = 1.0
STEPS = 12
FAR, NEAR = 0.05, 0.1
"""Shares of the known prompts that are less similar to the others than a prompt that is wholly unfamiliar, whatever the
groups that were held out were like, and than one of which that can't be said at all."""
SIMILAR = 1
"""Of the signs, similarity to the nearest few."""


class Familiarity(NamedTuple):
    """Logistic regression on signs of strangeness; strangers of any other kind are outside of what is known."""

    mean: Floats
    scale: Floats
    weights: Floats
    intercept: float
    far: float
    near: float
    """Similarities at FAR and NEAR."""

    def unfamiliarity(self, signs: Floats) -> Floats:
        """[n] in 0 … 1, from `signs` [n, K]."""
        alike = _logistic((signs - self.mean) / self.scale @ self.weights + self.intercept)
        outside = (self.near - signs[:, SIMILAR]) / max(self.near - self.far, 1e-6)
        found: Floats = np.maximum(alike, np.clip(outside, 0, 1))
        return found


def signs(similar: Matrix, probability: Matrix) -> Floats:
    """What gives strangers away [n, 3]: similarity to the nearest prompt and to the nearest few ([n, k], falling), and
    how undecided the labels are."""
    entropy = -(probability * np.log(probability + 1e-9)).sum(1) / np.log(max(probability.shape[1], 2))
    return np.column_stack([similar[:, 0], similar.mean(1), entropy]).astype(float)


def familiarity(known: Floats, strange: Floats) -> Familiarity:
    """From the signs of rows that were held out at random and of rows whose whole group was."""
    both = np.vstack([known, strange])
    mean, scale = both.mean(0), np.maximum(both.std(0), 1e-6)
    rows = np.column_stack([(both - mean) / scale, np.ones(len(both))])
    truth = np.repeat([0.0, 1.0], [len(known), len(strange)])
    share = np.repeat(
        [(1 - UNFAMILIAR) / max(len(known), 1), UNFAMILIAR / max(len(strange), 1)], [len(known), len(strange)]
    )
    weights = _newton(rows, truth, share * len(both))
    far, near = np.quantile(known[:, SIMILAR], [FAR, NEAR])
    return Familiarity(mean, scale, weights[:-1], float(weights[-1]), float(far), float(near))


def _newton(rows: Floats, truth: Floats, share: NDArray[np.float64]) -> Floats:
    weights, ridge = np.zeros(rows.shape[1]), RIDGE * np.eye(rows.shape[1])
    for _ in range(STEPS):
        p = _logistic(rows @ weights)
        slope = rows.T @ (share * (truth - p)) - ridge @ weights
        curve = (rows * (share * p * (1 - p))[:, None]).T @ rows + ridge
        weights = weights + np.linalg.solve(curve, slope)
    return weights


def _logistic(value: Floats) -> Floats:
    found: Floats = 1 / (1 + np.exp(-np.clip(value, -30, 30)))
    return found
