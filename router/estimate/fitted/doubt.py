"""How far off predicted chances are, beyond the luck of single answers: judged on heaps of similar prompts."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from router.estimate.fitted.folds import Floats, Ints, clusters
from router.estimate.fitted.space import Matrix

if TYPE_CHECKING:
    from router.estimate.fitted.chances import Chance

HEAP = 25
"""Prompts of a heap, about."""
MOST_HEAPS = 200
LEAST = 0.02**2
PRIOR = 0.15**2
"""Variance before anything is known, with the weight of PRIOR_HEAPS heaps."""
PRIOR_HEAPS = 5.0


class Doubt(NamedTuple):
    """Variances [T] of the error at p = 0.5: of prompts like the known ones, and of strangers."""

    known: Floats
    strange: Floats

    @classmethod
    def none(cls, targets: int) -> "Doubt":
        return cls(np.full(targets, PRIOR), np.full(targets, PRIOR))

    def sd(self, p: Floats, unfamiliarity: Floats) -> Floats:
        """[n, T]; less where p is near 0 or 1, as there is less room for error."""
        variance = self.known + unfamiliarity * (self.strange - self.known)
        found: Floats = np.sqrt(variance * np.maximum(4 * p * (1 - p), 0.1))
        return found


def doubt(score: Floats, near: Matrix, groups: Ints, known: "Chance", strange: "Chance") -> Doubt:
    """From predictions of rows held out, at random and by whole groups."""
    heaps = clusters(near, max(min(MOST_HEAPS, len(near) // HEAP), 1), rounds=3)
    by_group = np.unique(heaps * (int(groups.max()) + 1) + groups, return_inverse=True)[1].reshape(-1)
    familiar = _excess(score, known.p, heaps)
    return Doubt(familiar, np.maximum(familiar, _excess(score, strange.p, by_group)))


def _excess(score: Floats, p: Floats, heaps: Ints) -> Floats:
    """[T]: mean square of the heaps' mean errors less what luck explains, and what a target's own mean lacks."""
    seen = np.isfinite(score)
    error = np.where(seen, score - p, 0.0)
    room = np.where(seen, 4 * p * (1 - p), 0.0)
    count, sums, squares, rooms = (_by(values, heaps) for values in (seen * 1.0, error, error * error, room))
    heaped = np.maximum(count, 1)
    pairs = (sums**2 - squares) * (count > 1)
    weight = np.maximum(count - 1, 0) * rooms / heaped
    excess = (pairs / heaped).sum(0) / np.maximum(weight.sum(0), 1e-9)
    number = (count > 1).sum(0)
    found = (np.maximum(excess, 0) * number + PRIOR * PRIOR_HEAPS) / (number + PRIOR_HEAPS)
    spread: Floats = np.maximum(found + 0.25 / np.maximum(seen.sum(0), 1), LEAST)
    return spread


def _by(values: Floats, heaps: Ints) -> Floats:
    sums = np.zeros((int(heaps.max()) + 1, values.shape[1]))
    np.add.at(sums, heaps, values)
    return sums
