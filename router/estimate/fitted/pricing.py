"""Costs that can always be compared, also of targets without a price."""

from typing import NamedTuple

import numpy as np

from router.estimate.fitted.costs import CostPrediction
from router.estimate.fitted.folds import Floats


class Priced(NamedTuple):
    """[n, T], USD."""

    mean: Floats
    p10: Floats
    p90: Floats


def priced(found: CostPrediction) -> Priced:
    """What is unknown is taken to be as dear as the dearest known one: no target wins because its price is missing."""
    return Priced(*(dearest(values, found.mean) for values in found[:3]))


def dearest(values: Floats, means: Floats) -> Floats:
    """`values` [n, T] with the greatest of `means` [n, T] in its row in the place of NaN; 0 where none is known."""
    most = np.where(np.isfinite(means), means, 0.0).max(1, keepdims=True)
    filled: Floats = np.where(np.isfinite(values), values, most)
    return filled
