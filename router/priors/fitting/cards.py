"""A joint Gaussian of models' abilities and the facts of their cards, from models of which much is not known."""

import numpy as np

from router.priors.ability import ABILITIES, condition
from router.priors.priors import Vector

_STEPS = 200
_PRIOR = 4.0
"""Models' worth of belief that variables have nothing to do with each other."""


def fit(known: Vector) -> tuple[Vector, Vector]:
    """Mean [V] and covariance [V, V] of the rows [n, V], NaN where not known, by expectation maximisation."""
    told = ~np.isnan(known)
    count = np.maximum(told.sum(axis=0), 1)
    mean = np.where(told, known, 0).sum(axis=0) / count
    variance = np.maximum((np.where(told, known - mean, 0) ** 2).sum(axis=0) / count, 0.05)
    covariance = np.diag(variance)
    for _ in range(_STEPS):
        filled, spread = zip(*(_fill(mean, covariance, row) for row in known), strict=True)
        rows = np.array(filled)
        mean = rows.mean(axis=0)
        apart = rows - mean
        covariance = apart.T @ apart + np.sum(spread, axis=0) + _PRIOR * np.diag(variance)
        covariance /= len(known) + _PRIOR
    return mean, covariance


def _fill(mean: Vector, covariance: Vector, row: Vector) -> tuple[Vector, Vector]:
    """What is expected of all variables given those that are known, and its covariance."""
    at = np.flatnonzero(~np.isnan(row))
    gain = np.linalg.solve(covariance[np.ix_(at, at)], covariance[at]).T
    return mean + gain @ (row[at] - mean[at]), covariance - gain @ covariance[at]


def leave_one_out(known: Vector) -> Vector:
    """[n, ABILITIES]: how far each model's abilities are from what its card alone would say; NaN where not known."""
    errors = np.full((len(known), ABILITIES), np.nan)
    for left in range(len(known)):
        mean, covariance = fit(np.delete(known, left, axis=0))
        errors[left] = known[left, :ABILITIES] - condition(mean, covariance, known[left, ABILITIES:]).mean
    return errors
