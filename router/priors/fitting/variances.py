"""How wrong the priors are where they were not fitted: variances of what own outcomes will have to correct."""

from collections.abc import Sequence

import numpy as np

from router.priors.priors import DIFFICULTY, INTERACTION, SHARE, TRAITS, UNFAMILIARITY, Vector

_GRID = np.array([0.0, 0.01, 0.02, 0.04, 0.07, 0.1, 0.15, 0.2, 0.3, 0.45]) ** 2
_GROUPS = (slice(0, 1), slice(DIFFICULTY, DIFFICULTY + 1), slice(SHARE, INTERACTION), slice(INTERACTION, TRAITS))
_STRANGE = 0.15**2
"""A request of a kind that nobody has seen may go as much better or worse than usual."""
_ROUNDS = 3
_NOISE = 0.2
"""Variance of one score, about: p (1 - p)."""


def likeliest(traits: Sequence[Vector], left: Sequence[Vector]) -> Vector:
    """[TRAITS]: variances of weights under which residuals `left` [n] at `traits` [n, TRAITS] are the most likely.

    One variance for a group of traits, by coordinate ascent on a grid; unfamiliarity has a variance that is chosen,
    since nothing here is far from what was fitted.
    """
    sums = [(each.T @ each / _NOISE, each.T @ residual / _NOISE) for each, residual in zip(traits, left, strict=True)]
    found = np.full(TRAITS, 0.05**2)
    found[UNFAMILIARITY] = _STRANGE
    for _ in range(_ROUNDS):
        for group in _GROUPS:
            found[group] = max(_GRID, key=lambda variance: _evidence(_with(found, group, variance), sums))
    return found


def _with(variances: Vector, group: slice, variance: float) -> Vector:
    changed = variances.copy()
    changed[group] = variance
    return changed


def _evidence(variances: Vector, sums: Sequence[tuple[Vector, Vector]]) -> float:
    """Logarithm of the marginal likelihood, up to a constant: weights ~ N(0, variances)."""
    root = np.sqrt(variances)
    total = 0.0
    for precision, pull in sums:
        inner = np.eye(len(root)) + root[:, None] * precision * root
        scaled = root * pull
        total += 0.5 * float(scaled @ np.linalg.solve(inner, scaled)) - 0.5 * float(np.linalg.slogdet(inner)[1])
    return total
