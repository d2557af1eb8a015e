"""What a look says beyond difficulty: who gains and who loses with it, and how much more it makes everybody write."""

import numpy as np

from router.priors.fitting.sets import Outcomes
from router.priors.priors import INTERACTIONS, Vector

_RIDGE = 3_000.0
"""In prompts' worth of evidence."""
_LEAST = 100
"""Prompts of a set that a model must have answered to count."""


def interactions(scaled: Vector, outcomes: Outcomes, expected: Vector, difficulty: Vector) -> Vector:
    """[L, INTERACTIONS]: reduced-rank regression of what is left of the scores on looks, difficulty taken out.

    Each set has the same say, however many its models are. Directions have a spread of 0.4, so that few reach 1.
    """
    total = np.zeros((scaled.shape[1], scaled.shape[1]))
    for part in np.unique(outcomes.part):
        total += _directions(scaled, outcomes, expected, difficulty, part)
    root = _root(np.cov(scaled.T) + 1e-3 * np.eye(scaled.shape[1]))
    strongest = np.linalg.eigh(root @ total @ root)[1][:, ::-1][:, :INTERACTIONS]
    found = np.linalg.solve(root, strongest)
    found *= np.sign(found[np.abs(found).argmax(axis=0), np.arange(INTERACTIONS)])
    return np.asarray(0.4 * found / (scaled @ found).std(axis=0))


def _directions(scaled: Vector, outcomes: Outcomes, expected: Vector, difficulty: Vector, part: int) -> Vector:
    """[L, L]: outer products of the models' coefficients in one set."""
    rows = outcomes.part == part
    models = outcomes.asked[rows].sum(axis=0) >= _LEAST
    left = np.where(outcomes.asked, outcomes.score - expected, np.nan)[rows][:, models]
    left = np.nan_to_num(left - np.nanmean(left, axis=1, keepdims=True))
    hard = np.stack([np.ones(rows.sum()), difficulty[rows]], axis=1)
    left -= hard @ np.linalg.lstsq(hard, left, rcond=None)[0]
    found = ridge(scaled[rows], left, _RIDGE)
    return np.asarray(found @ found.T / models.sum())


def work(scaled: Vector, outcomes: Outcomes) -> Vector:
    """[L]: what makes all models of a set write more than they usually do, in logarithms."""
    with np.errstate(invalid="ignore"):
        tokens = np.log1p(outcomes.output)
    rows, values = [], []
    for part in np.unique(outcomes.part):
        inside = np.flatnonzero(outcomes.part == part)
        known = tokens[inside][:, ~np.isnan(tokens[inside]).all(axis=0)]
        if known.size:
            above = np.nanmean(known - np.nanmean(known, axis=0), axis=1)
            rows.append(scaled[inside] - scaled[inside].mean(axis=0))
            values.append(np.nan_to_num(above))
    return ridge(np.concatenate(rows), np.concatenate(values), _RIDGE)


def ridge(scaled: Vector, values: Vector, penalty: float) -> Vector:
    return np.asarray(np.linalg.solve(scaled.T @ scaled + penalty * np.eye(scaled.shape[1]), scaled.T @ values))


def _root(matrix: Vector) -> Vector:
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray((vectors * np.sqrt(np.maximum(values, 1e-9))) @ vectors.T)
