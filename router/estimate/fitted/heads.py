"""Ridge regressions of many outputs on one matrix, trusted as far as they foretell rows that were left out."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from router.estimate.fitted.folds import Floats, Ints

PENALTIES = (30.0, 100.0, 300.0, 1e3, 3e3, 1e4, 3e4, 1e5)


class Split(NamedTuple):
    """Rows without those of a fold: their mean [K], and the eigenvalues and eigenvectors of their scatter about it.

    About the mean of all rows, what remains would mirror what was left out, and give it away.
    """

    mean: Floats
    values: Floats
    vectors: Floats


class Splits(NamedTuple):
    """A matrix [n, K]; it without each fold; and all of it."""

    z: Floats
    folds: Ints
    without: tuple[Split, ...]
    whole: Split


def splits(z: Floats, folds: Ints) -> Splits:
    gram, total = z.T @ z, z.sum(0)
    parts = [z[folds == fold] for fold in range(folds.max() + 1)]
    without = [_split(gram - part.T @ part, total - part.sum(0), len(z) - len(part)) for part in parts]
    return Splits(z, folds, tuple(without), _split(gram, total, len(z)))


def _split(gram: Floats, total: Floats, rows: int) -> Split:
    mean = total / max(rows, 1)
    values, vectors = np.linalg.eigh(gram - np.outer(total, mean))
    return Split(mean, np.maximum(values, 0), vectors)


class Heads(NamedTuple):
    """Linear functions [K, H] of a row, and what they said [n, H] of rows left out: at random, and in whole groups."""

    weights: Floats
    said: tuple[Floats, Floats]


def heads(pair: tuple[Splits, Splits], outputs: Floats, seen: NDArray[np.bool_], judge: int, trust: float) -> Heads:
    """Of `outputs` [n, H] without gaps, where `seen` [n, H]. `pair`: one matrix, split at random and by whole groups;
    `judge`: by which of the two the heads are chosen and shrunk. `trust`, from 0 to 1, shrinks them further."""
    tries = [unseen(side, outputs) for side in pair]
    side, (usual, tried) = pair[judge], tries[judge]
    truth = outputs - usual
    importance = seen / np.maximum((seen * outputs**2).mean(0), 1e-9)
    weights = importance * _by_fold(side.folds)[:, None]
    best = int(np.argmin([float((weights * (truth - said) ** 2).sum()) for said in tried]))
    mixing = trust * _mixing(tried[best], truth, importance, side.folds)
    slope = (side.z - side.whole.mean).T @ outputs
    said = [usual + tried[best] @ mixing for usual, tried in tries]
    return Heads(_solution(slope, side.whole, PENALTIES[best]) @ mixing, (said[0], said[1]))


def unseen(side: Splits, outputs: Floats) -> tuple[Floats, Floats]:
    """Of rows left out: the mean of the others [n, H], and what the heads add to it, [penalties, n, H]."""
    usual, added = np.zeros_like(outputs), np.zeros((len(PENALTIES), *outputs.shape))
    for fold, split in enumerate(side.without):
        left = side.folds == fold
        usual[left] = outputs[~left].sum(0) / max(np.count_nonzero(~left), 1)
        slope = (side.z[~left] - split.mean).T @ outputs[~left]
        for place, penalty in enumerate(PENALTIES):
            added[place, left] = (side.z[left] - split.mean) @ _solution(slope, split, penalty)
    return usual, added


def _solution(slope: Floats, split: Split, penalty: float) -> Floats:
    found: Floats = split.vectors @ ((split.vectors.T @ slope) / (split.values[:, None] + penalty))
    return found


def _by_fold(folds: Ints) -> Floats:
    """[n]: a group of a hundred times the rows says ten times as much of how another group would fare."""
    found: Floats = 1 / np.sqrt(np.bincount(folds)[folds])
    return found


def _mixing(said: Floats, outputs: Floats, importance: Floats, folds: Ints) -> Floats:
    """[H, H]: shrinks what all outputs share, and what each has of its own, by as much as the folds ask for."""
    size = said.shape[1]
    mean = np.full((size, size), 1 / size)
    parts = np.stack([said @ mean, said - said @ mean])
    size_of, each = [], []
    for fold in range(folds.max() + 1):
        rows = folds == fold
        size_of.append(np.sqrt(rows.sum()))
        each.append(_factors(parts[:, rows], outputs[rows], importance[rows]))
    shared, own = _doubting_mean(np.array(each), np.array(size_of))
    found: Floats = own * np.eye(size) + (shared - own) * mean
    return found


def _doubting_mean(values: Floats, weights: Floats) -> Floats:
    """[P] of `values` [folds, P]: the mean less its standard error, not below 0."""
    share = weights[:, None] / weights.sum()
    mean = (share * values).sum(0)
    error = np.sqrt((share**2 * (values - mean) ** 2).sum(0))
    found: Floats = np.maximum(mean - error, 0)
    return found


def _factors(parts: Floats, outputs: Floats, importance: Floats) -> Floats:
    """[P], 0 … 1: least squares of `outputs` [n, H] on `parts` [P, n, H]."""
    gram = np.einsum("pnh,qnh,nh->pq", parts, parts, importance)
    slope = np.einsum("pnh,nh,nh->p", parts, outputs, importance)
    found: Floats = np.clip(np.linalg.lstsq(gram, slope, rcond=None)[0], 0, 1)
    return found
