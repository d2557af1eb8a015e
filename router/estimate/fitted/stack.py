"""How much to believe each part, learnt from rows that the parts had not seen."""

import numpy as np
from numpy.typing import NDArray

from router.estimate.fitted.folds import Floats, Ints
from router.estimate.fitted.soft_labels import label_sums

ROUNDS = 100
MOST = 2.0
"""A part that says next to nothing, as neighbours do of strangers, is not multiplied until it says something."""
LEAN = 0.75
"""Who is best is chosen by deviations, and the best of many guesses is mostly a lucky one."""


def weights(guess: NDArray[np.float32] | Floats, truth: Floats, share: Floats, seen: NDArray[np.bool_]) -> Floats:
    """Non-negative [parts, 2]: what each part counts for the first column, which all targets have in common, and for
    the others. `guess` [n, parts, 1 + T], `truth` [n, 1 + T], rows count `share` [n] in the first column and as far as
    `seen` [n, T] in the others. Targets share their weights: of each alone too little is known.
    """
    common, apart = guess[:, :, 0].astype(float), guess[:, :, 1:]
    wanted = np.where(seen, truth[:, 1:], 0.0)
    weighted = np.where(seen[:, None, :], apart, 0.0)
    first = _non_negative((common * share[:, None]).T @ common, (common * share[:, None]).T @ truth[:, 0])
    gram = np.einsum("npt,nqt->pq", weighted, apart, optimize=True)
    return np.column_stack([first, _non_negative(gram, np.einsum("npt,nt->p", weighted, wanted, optimize=True))])


def within(values: NDArray[np.float32] | Floats, fold: Ints) -> Floats:
    """Values [n, …] less the mean of their fold [n]: how far off whole groups are is chance, as there are few of them,
    and would drown what tells their prompts apart."""
    rows = values.reshape(len(values), -1).astype(float)
    number = int(fold.max(initial=0)) + 1
    means = label_sums(rows, fold, number) / np.maximum(np.bincount(fold, minlength=number), 1)[:, None]
    centred: Floats = (rows - means[fold]).reshape(values.shape)
    return centred


def slopes(predicted: Floats, truth: Floats, seen: NDArray[np.bool_]) -> Floats:
    """[T]: how far each target's own deviations [n, T] follow what is predicted, leaning towards LEAN as long as
    little is known; never more than all the way."""
    evidence = (predicted**2 * seen).sum(0)
    lean = np.median(evidence) + 1e-12
    found: Floats = np.clip((np.where(seen, predicted * truth, 0.0).sum(0) + lean * LEAN) / (evidence + lean), 0, 1)
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
