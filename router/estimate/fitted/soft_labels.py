"""Which label a prompt would have, as probabilities: a linear discriminant of its look."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from router.estimate.fitted.folds import Floats, Ints
from router.estimate.fitted.space import Matrix

RIDGE = 0.2
"""Share of the identity in the covariance within labels."""
MEAN_WEIGHT = 2.0
"""Prompts' worth of the overall mean in each label's."""
TEMPERATURES = (0.03, 0.05, 0.07, 0.1, 0.14, 0.2, 0.28, 0.4, 0.56, 0.8, 1.0, 1.4)


class SoftLabels(NamedTuple):
    weights: Matrix
    intercept: Matrix

    def logits(self, z: Matrix) -> Matrix:
        """[n, labels]; too sure of themselves until they are cooled (`probabilities`)."""
        logits: Matrix = z @ self.weights + self.intercept
        return logits


def soft_labels(z: Matrix, labels: Ints, number: int) -> SoftLabels:
    """`labels` [n] from 0 to number − 1; one that does not occur is never likely."""
    count = np.bincount(labels, minlength=number)
    rough = label_sums(z, labels, number) + MEAN_WEIGHT * z.mean(0)
    means = rough / (count + MEAN_WEIGHT)[:, None].astype(np.float32)
    within = z - means[labels]
    covariance = (within.T @ within / len(z)).astype(float)
    trace = max(np.trace(covariance) / len(covariance), 1e-6)
    covariance = (1 - RIDGE) * covariance + RIDGE * trace * np.eye(len(covariance))
    weights = np.linalg.solve(covariance, means.T)
    prior = np.log((count + 0.01) / (count + 0.01).sum())
    return SoftLabels(weights.astype(np.float32), (prior - 0.5 * (means.T * weights).sum(0)).astype(np.float32))


def probabilities(logits: Matrix, temperature: float) -> Matrix:
    """Softmax of logits × temperature [n, labels]."""
    scaled = logits * np.float32(temperature)
    raised = np.exp(scaled - scaled.max(1, keepdims=True))
    found: Matrix = raised / raised.sum(1, keepdims=True)
    return found


def temperature(logits: Matrix, labels: Ints) -> float:
    """What makes logits of rows held out most likely (Guo et al. 2017)."""

    def loss(value: float) -> float:
        right = probabilities(logits, value)[np.arange(len(labels)), labels]
        return float(-np.log(right + 1e-9).mean())

    return min(TEMPERATURES, key=loss)


def label_sums(values: NDArray[np.float32] | Floats, labels: Ints, number: int) -> NDArray[np.float32]:
    """Sums of rows [n, K] by label [number, K]."""
    order = np.argsort(labels, kind="stable")
    sums = np.zeros((number, values.shape[1]), np.float32)
    if len(order):
        present, first = np.unique(labels[order], return_index=True)
        sums[present] = np.add.reduceat(values[order], first, axis=0)
    return sums
