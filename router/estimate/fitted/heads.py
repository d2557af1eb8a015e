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
    """Linear functions [K, H] of a row, and what they said of rows left out: at random, and in whole groups, [n, H]."""

    weights: Floats
    said: tuple[Floats, Floats]


def heads(pair: tuple[Splits, Splits], outputs: Floats, seen: NDArray[np.bool_], trusts: Floats) -> tuple[Heads, Heads]:
    """Of `outputs` [n, H] without gaps, judged where `seen` [n, H]: the first for rows like those left out at random
    (the first of `pair`), the second for rows like those of groups left out whole. `trusts` [2] shrinks each."""
    importance = seen / np.maximum((seen * outputs**2).mean(0), 1e-9)
    tries = [_unseen(side, outputs) for side in pair]
    found = []
    for tried, trust in zip(tries, trusts, strict=True):
        best = int(np.argmin([float((importance * (outputs - said) ** 2).sum()) for said in tried]))
        mixing = trust * _mixing(tried[best], outputs, importance)
        weights = _solution(pair[0].z.T @ outputs, *pair[0].solved[-1], PENALTIES[best]) @ mixing
        found.append(Heads(weights, (tries[0][best] @ mixing, tries[1][best] @ mixing)))
    return found[0], found[1]


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


def _mixing(said: Floats, outputs: Floats, importance: Floats) -> Floats:
    """[H, H]: shrinks what all outputs share, and what each has of its own, by as much as rows left out ask for."""
    size = said.shape[1]
    mean = np.full((size, size), 1 / size)
    parts = np.stack([said @ mean, said - said @ mean])
    gram = np.einsum("pnh,qnh,nh->pq", parts, parts, importance)
    slope = np.einsum("pnh,nh,nh->p", parts, outputs, importance)
    shared, own = np.clip(np.linalg.lstsq(gram, slope, rcond=None)[0], 0, 1)
    found: Floats = own * np.eye(size) + (shared - own) * mean
    return found
