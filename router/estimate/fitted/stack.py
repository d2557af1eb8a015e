"""How much to believe each part, learnt from rows that the parts had not seen."""

import numpy as np
from numpy.typing import NDArray

from router.estimate.fitted.folds import Floats

ROUNDS = 100
MOST = 2.0
"""A part that says next to nothing, as neighbours do of strangers, is not multiplied until it says something."""
PULL = 0.02
"""Of the pooled weights on each axis' own, as a share of the axis' own evidence, per 1/axes."""


CALM = 0.5
"""How far deviations are drawn to what labels alone say of them, and of strangers to none: who is best is chosen by
them, and the best of many guesses is mostly a lucky one."""


def weights(guess: NDArray[np.float32], truth: Floats, share: Floats, strange: bool) -> Floats:
    """Non-negative [parts, K]: `guess` [n, parts, K], `truth` [n, K], rows count `share` [n]. The first column, common
    to all targets, stands alone; the axes lean towards weights that they share."""
    grams = np.einsum("npk,nqk,n->kpq", guess, guess, share, optimize=True)
    products = np.einsum("npk,nk,n->kp", guess, truth, share, optimize=True)
    found = np.zeros(products.shape)
    found[0] = _non_negative(grams[0], products[0])
    if len(found) > 1:
        alone = products[1:, 0] / np.maximum(grams[1:, 0, 0], 1e-12)
        pooled = _non_negative(grams[1:].sum(0), products[1:].sum(0))
        pull = PULL * np.trace(grams[1:].sum(0)) / grams.shape[1] * np.eye(grams.shape[1])
        for axis in range(1, len(found)):
            found[axis] = _non_negative(grams[axis] + pull, products[axis] + pull @ pooled)
        found[1:] *= 1 - CALM
        found[1:, 0] += 0 if strange else CALM * np.clip(alone, 0, 1)
    return found.T


def slopes(predicted: Floats, truth: Floats, seen: NDArray[np.bool_]) -> Floats:
    """[T]: how far each target's own deviations [n, T] follow what is predicted, leaning towards a half as long as
    little is known; never more than all the way."""
    evidence = (predicted**2 * seen).sum(0)
    lean = np.median(evidence) + 1e-12
    found: Floats = np.clip((np.where(seen, predicted * truth, 0.0).sum(0) + lean / 2) / (evidence + lean), 0, 1)
    return found


def _non_negative(gram: Floats, product: Floats) -> Floats:
    """Least squares with weights from 0 to MOST, by coordinate descent."""
    diagonal = np.maximum(np.diag(gram), 1e-12)
    gram = gram + np.diag(1e-3 * diagonal)
    found = np.zeros(len(product))
    for _ in range(ROUNDS):
        for at in range(len(found)):
            wanted = found[at] + (product[at] - gram[at] @ found) / diagonal[at]
            found[at] = min(max(wanted, 0.0), MOST)
    return found
