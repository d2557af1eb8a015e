"""Log costs taken apart: a level for each target, and how far each prompt is from it."""

from typing import NamedTuple

import numpy as np

from router.estimate.fitted.folds import Floats

CHEAPEST, DEAREST = 4.0, 6.0
"""Logarithms below and above a target's median beyond which a cost is no farther away: a free one has no logarithm."""
NOTHING = 1e-9
"""Stands for the median of a target that was always free."""
ROUNDS = 20


class Levels(NamedTuple):
    """`level` [T]: mean log of each target over all rows, NaN where nothing is known. `away` [n, T]: logs from it, NaN
    where unknown. `shared` [n]: what a row's known targets have in common."""

    level: Floats
    away: Floats
    shared: Floats

    def filled(self) -> Floats:
        """[n, T]: `away`, and where a target was not tried, what the others show."""
        return np.where(np.isfinite(self.away), self.away, self.shared[:, None])


def levels(values: Floats) -> Levels:
    """Of costs or tokens [n, T], NaN where unknown. Targets that were tried on different rows are made comparable."""
    log = _logs(values)
    known = np.isfinite(log)
    filled = np.where(known, log, 0.0)
    by_row, by_target = np.maximum(known.sum(1), 1), known.sum(0)
    level, shared = np.zeros(log.shape[1]), np.zeros(len(log))
    for _ in range(ROUNDS):
        level = ((filled - shared[:, None]) * known).sum(0) / np.maximum(by_target, 1)
        shared = ((filled - level) * known).sum(1) / by_row
        shared -= shared.mean() if len(shared) else 0.0
    level[by_target == 0] = np.nan
    return Levels(level, log - level, shared)


def _logs(values: Floats) -> Floats:
    real = np.where(values > 0, values, np.nan)
    middle = np.array([_median(column) for column in real.T])
    found = np.where(values == 0, -np.inf, np.log(real))
    with_bounds: Floats = np.clip(found, middle - CHEAPEST, middle + DEAREST)
    return with_bounds


def _median(column: Floats) -> float:
    """The log of the median of what is above zero."""
    known = column[np.isfinite(column)]
    return float(np.log(np.median(known))) if len(known) else np.log(NOTHING)
