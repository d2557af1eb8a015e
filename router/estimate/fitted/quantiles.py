"""Intervals from residuals of rows that were held out: by target, leaning on all targets, and on a wide guess."""

from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from router.estimate.fitted.folds import Floats, Ints

LOWER, MIDDLE, UPPER = 0.1, 0.5, 0.9
COVERAGE = UPPER - LOWER
WIDE = 1.0
"""Half an interval, in logarithms (a factor of 2.7), before any residual is seen: what one benchmark's costs say of
another's is off by as much."""
PRIOR_ROWS = 5.0
"""What the wide guess weighs, in rows, against the residuals of all targets."""
TARGET_ROWS = 20.0
"""What all targets weigh, in rows, against a target's own residuals."""
NARROWEST = 1e-3
WIDEST = 7.0
"""A factor of 1,100: who is surer than that of being unsure only overflows."""
NORMAL = np.array([NormalDist().inv_cdf(0.5 + step / 200) for step in range(100)]) / NormalDist().inv_cdf(UPPER)
"""Sizes of normal residuals, evenly likely, in units of half an interval."""


class Band(NamedTuple):
    """Each [T], in logarithms: the median residual, and how far below and above it the interval ends."""

    middle: Floats
    below: Floats
    above: Floats


def band(residuals: Floats) -> Band:
    """Of residuals [n, T], NaN where unknown."""
    known = [column[np.isfinite(column)] for column in residuals.T]
    whole = np.concatenate(known) if known else np.zeros(0)
    pooled = _towards(_three(whole), np.array([0.0, WIDE, WIDE]), len(whole), PRIOR_ROWS)
    rows = np.array([_towards(_three(column), pooled, len(column), TARGET_ROWS) for column in known])
    rows[:, 1:] *= np.sqrt(1 + 1 / np.maximum([len(column) for column in known], 1))[:, None]
    return Band(rows[:, 0], *np.maximum(rows[:, 1:], NARROWEST).T)


def widening(residuals: Floats, found: Band, width: Floats, grown: Floats, folds: Ints, doubt: float) -> float:
    """By how much `found` × `width` × `grown` ([n, 1] each) must grow to hold the stated share of `residuals` [n, T].

    Each fold [n] weighs as the root of its rows. `doubt`: weight, in folds, of one that is farther off, as WIDE says.
    """
    off = residuals - found.middle
    score = np.maximum(off / found.above, -off / found.below) / (width * grown)
    known = np.isfinite(score)
    if not known.any():
        return 1.0
    weight = np.broadcast_to((1 / np.sqrt(np.bincount(folds)[folds]))[:, None], score.shape)[known]
    half = (found.above + found.below) * width / 2
    strange = np.median((np.hypot(half, WIDE) / (half * grown))[known]) * NORMAL
    share = doubt * weight.sum() / len(np.unique(folds)) / len(NORMAL)
    values = np.append(score[known], strange)
    return max(weighted_quantile(values, np.append(weight, np.full(len(NORMAL), share)), COVERAGE), NARROWEST)


def weighted_quantile(values: Floats, weights: Floats, share: float) -> float:
    """The least of `values` [n] that, with all below it, has that share of the `weights` [n]."""
    order = np.argsort(values)
    reached = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(reached, share * reached[-1]).clip(max=len(order) - 1)])


def _three(values: Floats) -> Floats:
    """The median and the two distances from it; conformal, so a little outside of what few values show."""
    if not len(values):
        return np.zeros(3)
    outer = 0.5 / (len(values) + 1)
    low, middle, high = np.quantile(values, [max(LOWER - outer, 0), MIDDLE, min(UPPER + outer, 1)])
    return np.array([middle, middle - low, high - middle])


def _towards(own: Floats, prior: Floats, rows: int, weight: float) -> Floats:
    found: Floats = (rows * own + weight * prior) / (rows + weight)
    return found
