"""Simple predictors of the same responses, each from a look: by label, by linear and bent functions, by neighbours."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from router.estimate.fitted.folds import Floats, Ints
from router.estimate.fitted.soft_labels import SoftLabels, label_sums, probabilities, soft_labels
from router.estimate.fitted.space import Matrix

RIDGES = (1000.0, 10000.0)
SHARPNESS = (8.0, 16.0)
"""Of neighbourhoods: weight exp(sharpness · (similarity − 1))."""
REFERENCES = 4096
NEAREST = 5


class Views(NamedTuple):
    """The same rows in the three forms that parts read."""

    z: Matrix
    waves: Matrix
    near: Matrix

    def at(self, rows: Ints) -> "Views":
        return Views(*(view[rows] for view in self))


class Seen(NamedTuple):
    """What all parts make of rows: `guess` [n, parts, K], label probabilities [n, L] and similarities [n, NEAREST]."""

    guess: NDArray[np.float32]
    probability: Matrix
    similar: Matrix

    def at(self, rows: Ints | NDArray[np.bool_]) -> "Seen":
        return Seen(*(values[rows] for values in self))


class Parts(NamedTuple):
    labels: SoftLabels
    temperature: float
    by_label: Matrix
    linear: tuple[Matrix, ...]
    near: Matrix
    nearby: Matrix
    doubt: tuple[float, ...]

    def look_at(self, views: Views) -> Seen:
        probability = probabilities(self.labels.logits(views.z), self.temperature)
        similarity = views.near @ self.near.T
        guesses = [probability @ self.by_label]
        guesses += [views.waves @ weights for weights in self.linear]
        for sharpness, doubt in zip(SHARPNESS, self.doubt, strict=True):
            weight = np.exp(np.float32(sharpness) * (similarity - 1))
            guesses.append(weight @ self.nearby / (weight.sum(1, keepdims=True) + doubt))
        return Seen(np.stack(guesses, 1), probability, _nearest(similarity))


def _nearest(similarity: Matrix) -> Matrix:
    """[n, NEAREST], falling; where fewer are known, the last one again."""
    number = min(NEAREST, similarity.shape[1])
    top = np.partition(similarity, -number, axis=1)[:, -number:]
    top.sort(axis=1)
    return top[:, np.maximum(number - 1 - np.arange(NEAREST), 0)]


def parts(views: Views, responses: Floats, weight: Floats, labels: Ints, number: int, temperature: float) -> Parts:
    """Fitted to `responses` [n, K] of rows that count `weight` [n]; `labels` from 0 to `number` − 1.

    Responses are 0 on average over all that is known, and no part moves that: the mean of the rows that are left when a
    group is held out is off to the other side, which would look as if the text misled.
    """
    values, share = responses.astype(np.float32), weight.astype(np.float32)[:, None]
    linear = ridges(views.waves, values, share)
    chosen = np.random.default_rng(0).permutation(len(values))[:REFERENCES]
    near = views.near[chosen]
    return Parts(
        soft_labels(views.z, labels, number),
        temperature,
        _by_label(values, share, labels, number),
        linear,
        near,
        values[chosen],
        _doubt(near),
    )


def ridges(rows: Matrix, values: Matrix, share: Matrix) -> tuple[Matrix, ...]:
    weighted = rows * share
    gram, product = (rows.T @ weighted).astype(float), (weighted.T @ values).astype(float)
    eye = np.eye(len(gram))
    return tuple(np.linalg.solve(gram + ridge * eye, product).astype(np.float32) for ridge in RIDGES)


def _by_label(values: Matrix, share: Matrix, labels: Ints, number: int) -> Matrix:
    """Means by label, each shrunk to 0 as far as chance explains it (empirical Bayes)."""
    sums, count = label_sums(values * share, labels, number), label_sums(share, labels, number)
    means = sums / np.maximum(count, 1e-6)
    within = ((values - means[labels]) ** 2 * share).sum(0) / share.sum()
    present = (count > 0).sum()
    excess = (count * means**2).sum(0) - present * within
    between = np.maximum(excess / share.sum(), 1e-4 * within + 1e-12)
    kept = count / np.maximum(count + within / between, 1e-6)
    shrunk: Matrix = (kept * means).astype(np.float32)
    return shrunk


def _doubt(near: Matrix) -> tuple[float, ...]:
    """Weight of the overall mean in a neighbourhood: a quarter of what a usual prompt has around it."""
    sample = near[:512] @ near.T
    return tuple(0.25 * float(np.median(np.exp(sharp * (sample - 1)).sum(1))) for sharp in SHARPNESS)
