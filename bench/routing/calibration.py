"""Whether probabilities and costs are what they say, over all observed (prompt, target). Shapes as in `metrics`."""

from typing import NamedTuple

import numpy as np

from bench.routing.metrics import Floats, Ints, once

BINS = 15
"""Guo et al. 2017, arXiv 1706.04599."""


class _Cells(NamedTuple):
    """Cells in which all are finite, with the prompt of each."""

    prompt: Ints
    values: tuple[Floats, ...]


def _cells(*arrays: Floats) -> _Cells:
    seen = np.isfinite(arrays).all(0)
    return _Cells(np.nonzero(seen)[0], tuple(array[seen] for array in arrays))


def _per_prompt(n: int, cells: _Cells, values: Floats) -> Floats:
    return np.bincount(cells.prompt, values, minlength=n).astype(float)


def ece(p: Floats, score: Floats, weights: Floats | None = None, bins: int = BINS) -> Floats:
    """Expected calibration error [R], bins of equal width."""
    cells = _cells(p, score)
    return _ece(len(p), cells, np.minimum((cells.values[0] * bins).astype(int), bins - 1), bins, weights)


def ece_equal_mass(p: Floats, score: Floats, weights: Floats | None = None, bins: int = BINS) -> Floats:
    """Likewise, bins of equally many cells; equal p are never parted."""
    cells = _cells(p, score)
    edges = np.quantile(cells.values[0], np.arange(1, bins) / bins) if len(cells.prompt) else np.zeros(bins - 1)
    return _ece(len(p), cells, np.searchsorted(edges, cells.values[0], side="left"), bins, weights)


def _ece(n: int, cells: _Cells, bin_of: Ints, bins: int, weights: Floats | None) -> Floats:
    p, score = cells.values
    given = once(n) if weights is None else weights
    gap, count = np.zeros((n, bins)), np.zeros((n, bins))
    np.add.at(gap, (cells.prompt, bin_of), p - score)
    np.add.at(count, (cells.prompt, bin_of), 1.0)
    with np.errstate(invalid="ignore"):
        found: Floats = np.abs(given @ gap).sum(1) / (given @ count).sum(1)
    return found


def brier(p: Floats, score: Floats, weights: Floats | None = None) -> Floats:
    """Mean of (p − score)² [R]."""
    cells = _cells(p, score)
    return _ratio(len(p), cells, (cells.values[0] - cells.values[1]) ** 2, np.ones(len(cells.prompt)), weights)


def coverage(low: Floats, high: Floats, true: Floats, weights: Floats | None = None) -> Floats:
    """Share of the true values within [low, high] [R]."""
    cells = _cells(low, high, true)
    inside = (cells.values[0] <= cells.values[2]) & (cells.values[2] <= cells.values[1])
    return _ratio(len(low), cells, inside.astype(float), np.ones(len(cells.prompt)), weights)


def total_bias(predicted: Floats, true: Floats, weights: Floats | None = None) -> Floats:
    """Σ predicted / Σ true − 1 [R]."""
    cells = _cells(predicted, true)
    said, real = cells.values
    return _ratio(len(predicted), cells, said, real, weights) - 1


def _ratio(n: int, cells: _Cells, above: Floats, below: Floats, weights: Floats | None) -> Floats:
    given = once(n) if weights is None else weights
    with np.errstate(invalid="ignore", divide="ignore"):
        found: Floats = (given @ _per_prompt(n, cells, above)) / (given @ _per_prompt(n, cells, below))
    return found


def median_ratio(predicted: Floats, true: Floats, weights: Floats | None = None) -> Floats:
    """Median of max(predicted / true, true / predicted) [R], where both are above 0: 1.8 is off by a factor of 1.8."""
    cells = _cells(np.where(predicted > 0, predicted, np.nan), np.where(true > 0, true, np.nan))
    given = once(len(predicted)) if weights is None else weights
    if not len(cells.prompt):
        return np.full(len(given), np.nan)
    off = np.exp(np.abs(np.log(cells.values[0] / cells.values[1])))
    order = np.argsort(off)
    ranked, prompt = off[order], cells.prompt[order]
    return np.array([_median(ranked, drawn[prompt]) for drawn in given])


def _median(ranked: Floats, weights: Floats) -> float:
    """Lower weighted median of what is sorted."""
    sums = np.cumsum(weights)
    return float(ranked[np.searchsorted(sums, sums[-1] / 2)]) if sums[-1] else float("nan")
