"""Folds: at random for what is like the data, by whole groups for what is not."""

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.intp]
Floats = NDArray[np.float64]

SEED = 0


def random_folds(same: Ints, number: int) -> Ints:
    """The fold [n] of each row. Rows with equal `same` (one prompt under several ids) are never parted."""
    _, place = np.unique(same, return_inverse=True)
    fold = np.random.default_rng(SEED).permutation(np.arange(place.max(initial=-1) + 1) % number)
    return fold[place].astype(np.intp)


def group_folds(groups: Ints, number: int) -> Ints:
    """Likewise, but whole groups; at most `number` folds of about equal size, the largest group first."""
    _, place, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    number = min(number, len(sizes))
    fold, load = np.zeros(len(sizes), np.intp), np.zeros(number)
    for group in np.argsort(-sizes, kind="stable"):
        fold[group] = load.argmin()
        load[fold[group]] += sizes[group]
    return fold[place]


def clusters(rows: NDArray[np.float32], number: int, rounds: int = 12) -> Ints:
    """k-means [n], from centres far apart (k-means++); at most as many clusters as there are different rows."""
    rng = np.random.default_rng(SEED)
    centres = rows[[rng.integers(len(rows))]]
    far = _squares(rows, centres)[:, 0]
    while len(centres) < number and far.max() > 1e-6:
        centres = np.vstack([centres, rows[rng.choice(len(rows), p=far / far.sum())]])
        far = np.minimum(far, _squares(rows, centres[-1:])[:, 0])
    for _ in range(rounds):
        nearest = _squares(rows, centres).argmin(1)
        count = np.bincount(nearest, minlength=len(centres))
        sums = np.zeros_like(centres)
        np.add.at(sums, nearest, rows)
        centres = np.where(count[:, None] > 0, sums / np.maximum(count, 1)[:, None], centres).astype(np.float32)
    found: Ints = _squares(rows, centres).argmin(1)
    return found


def _squares(rows: NDArray[np.float32], centres: NDArray[np.float32]) -> Floats:
    products = (rows * rows).sum(1)[:, None] - 2 * rows @ centres.T + (centres * centres).sum(1)
    squares: Floats = np.maximum(products, 0).astype(float)
    return squares
