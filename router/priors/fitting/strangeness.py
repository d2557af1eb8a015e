"""How far a request is from those that estimates were built on: the space, its centroids, and what a distance means."""

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from router.priors.priors import Vector

COORDINATES = 48
CENTROIDS = 256
_ROWS = 8_000
_ROUNDS = 15


class Space(Struct, frozen=True, eq=False):
    axes: Vector
    """[L, E], orthonormal, of standardised looks."""
    centroids: Vector
    """[G, E]."""


def space(scaled: Vector, weight: Vector, random: np.random.Generator) -> Space:
    """`weight` [n]: how likely each row is to be among those that are looked at."""
    rows = scaled[random.choice(len(scaled), min(_ROWS, len(scaled)), replace=False, p=weight / weight.sum())]
    axes = np.linalg.eigh(rows.T @ rows)[1][:, ::-1][:, :COORDINATES]
    return Space(axes, _means(rows @ axes, random))


def _means(points: Vector, random: np.random.Generator) -> Vector:
    """Lloyd's algorithm; a centroid that loses all of its points stays where it was."""
    centroids = points[random.choice(len(points), CENTROIDS, replace=False)].copy()
    for _ in range(_ROUNDS):
        nearest = _squares(points, centroids).argmin(axis=1)
        for at in np.unique(nearest):
            centroids[at] = points[nearest == at].mean(axis=0)
    return centroids


def _squares(points: Vector, centroids: Vector) -> Vector:
    own = (points**2).sum(axis=1)[:, None] + (centroids**2).sum(axis=1)
    return np.asarray(np.maximum(own - 2 * points @ centroids.T, 0))


def log_distance(scaled: Vector, found: Space) -> Vector:
    """[n]: logarithm of the squared distance to the nearest centroid, per number of a look."""
    points = scaled @ found.axes
    outside = np.maximum((scaled**2).sum(axis=1) - (points**2).sum(axis=1), 0)
    return np.asarray(np.log(1e-6 + (_squares(points, found.centroids).min(axis=1) + outside) / scaled.shape[1]))


def calibrate(known: Sequence[Vector]) -> tuple[float, float]:
    """Offset and slope of the logit: of held-out prompts of known kinds half are below 0.1, and one in 20 above 0.5.

    `known`: distances [n], a set each; sets count alike.
    """
    grid = np.linspace(0, 1, 1001)
    pooled = np.concatenate([np.quantile(each, grid) for each in known])
    usual, far = np.quantile(pooled, (0.5, 0.95))
    slope = np.log(9) / (far - usual)
    return float(-slope * far), float(slope)
