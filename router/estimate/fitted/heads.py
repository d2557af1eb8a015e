"""Ridge regressions of many outputs on one matrix, trusted as far as they foretell rows that were left out."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from router.estimate.fitted.folds import Floats, Ints

PENALTIES = (30.0, 100.0, 300.0, 1e3, 3e3, 1e4, 3e4, 1e5)


class Splits(NamedTuple):
    """A matrix [n, K], and the eigenvalues and eigenvectors of it without each fold, and last of all of it."""

    z: Floats
    folds: Ints
    solved: tuple[tuple[Floats, Floats], ...]


def splits(z: Floats, folds: Ints) -> Splits:
    gram = z.T @ z
    parts = [z[folds == fold] for fold in range(folds.max() + 1)]
    return Splits(z, folds, (*(_decomposed(gram - part.T @ part) for part in parts), _decomposed(gram)))


def _decomposed(gram: Floats) -> tuple[Floats, Floats]:
    values, vectors = np.linalg.eigh(gram)
    return np.maximum(values, 0), vectors


class Heads(NamedTuple):
    """Linear functions [K, H] of a row, and what they said [n, H] of rows left out: at random, and in whole groups."""

    weights: Floats
    said: tuple[Floats, Floats]


def heads(pair: tuple[Splits, Splits], outputs: Floats, seen: NDArray[np.bool_], judge: int, trust: float) -> Heads:
    """Of `outputs` [n, H] without gaps, where `seen` [n, H]. `pair`: one matrix, split at random and by whole groups;
    `judge`: by which of the two the heads are chosen and shrunk. `trust`, from 0 to 1, shrinks them further."""
    tries = [_unseen(side, outputs) for side in pair]
    side, tried = pair[judge], tries[judge]
    importance = seen / np.maximum((seen * outputs**2).mean(0), 1e-9)
    weights = importance * _by_fold(side.folds)[:, None]
    best = int(np.argmin([float((weights * (outputs - said) ** 2).sum()) for said in tried]))
    mixing = trust * _mixing(tried[best], outputs, importance, side.folds)
    whole = _solution(side.z.T @ outputs, *side.solved[-1], PENALTIES[best]) @ mixing
    return Heads(whole, (tries[0][best] @ mixing, tries[1][best] @ mixing))


def _unseen(side: Splits, outputs: Floats) -> Floats:
    """[penalties, n, H]"""
    slope = side.z.T @ outputs
    unseen = np.zeros((len(PENALTIES), *outputs.shape))
    for fold, (values, vectors) in enumerate(side.solved[:-1]):
        left = side.folds == fold
        rest = slope - side.z[left].T @ outputs[left]
        for place, penalty in enumerate(PENALTIES):
            unseen[place, left] = side.z[left] @ _solution(rest, values, vectors, penalty)
    return unseen


def _solution(slope: Floats, values: Floats, vectors: Floats, penalty: float) -> Floats:
    found: Floats = vectors @ ((vectors.T @ slope) / (values[:, None] + penalty))
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
