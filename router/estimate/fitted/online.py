"""What outcomes after the fit teach: residuals of the chance, and of the log of the cost, learnt on top of the fit."""

from typing import NamedTuple

import numpy as np

from router.estimate.fitted.doubt import Doubt
from router.estimate.fitted.folds import Floats
from router.estimate.fitted.space import Matrix
from router.estimate.posterior import Posterior, Prior, noise

DIRECTIONS = 8
COST_NOISE = 0.5
"""Variance of the log of one cost around its mean: thinking makes it a factor of two."""
MOST_RATIO = 50.0
"""Costs farther off than that teach no more than at that distance."""
SHARED, SLOPE = 0.02**2, 0.04**2
"""Variances of each weight of the part that all targets share, and of a target's own along each main direction."""
COST_DRIFT = 0.1


class Expected(NamedTuple):
    """Of one prompt, before anything was learnt: `features` [K], `p` and `cost` [T]."""

    features: Floats
    p: Floats
    cost: Floats


class Online:
    """Of one estimator. One thread."""

    def __init__(self, targets: tuple[str, ...], known: Doubt) -> None:
        shape = (len(targets), DIRECTIONS + 1)
        own, common = np.full(shape, SLOPE), np.full(shape[1], SHARED)
        own[:, 0] = known.strange
        self._variance = common + own
        self._chance = Posterior(targets, Prior(common, own))
        self._cost = Posterior(targets, Prior(np.full(shape[1], COST_DRIFT), np.full(shape, COST_DRIFT)))

    def update(self, expected: Expected, target: int, score: float, cost: float) -> None:
        """One outcome; NaN where the score or the cost is unknown."""
        p, usual = float(expected.p[target]), float(expected.cost[target])
        if np.isfinite(score):
            self._chance.update(target, expected.features, score - p, noise(p))
        if np.isfinite(cost) and usual > 0:
            ratio = np.clip(cost / usual, 1 / MOST_RATIO, MOST_RATIO)
            self._cost.update(target, expected.features, float(np.log(ratio)), COST_NOISE)

    def chance(self, features: Floats) -> tuple[Floats, Floats]:
        """[n, T]: what to add to p, and what its spread is multiplied by, at most 1."""
        belief = self._chance.belief(features)
        return belief.mean, np.minimum(belief.sd / np.sqrt(features**2 @ self._variance.T), 1.0)

    def cost(self, features: Floats) -> Floats:
        """[n, T]: what costs are multiplied by."""
        factor: Floats = np.exp(self._cost.mean(features))
        return factor


def features(near: Matrix) -> Floats:
    """[n, K] from unit vectors [n, D]: 1, and the main directions, about 1 in size."""
    rows = near[:, :DIRECTIONS].astype(float) * 4
    return np.column_stack([np.ones(len(rows)), rows])
