"""Intervals over prompts: the same draws for everything that is compared."""

from collections.abc import Callable

import numpy as np
from msgspec import Struct

from bench.routing.metrics import Floats, once

RESAMPLES = 500

Statistic = Callable[[Floats], Floats]
"""Weights [R, n] → values [R]."""


class Interval(Struct, frozen=True):
    """A value with its 95 % percentile interval. None: it could not be computed."""

    value: float | None
    low: float | None = None
    high: float | None = None


def draw(n: int, resamples: int = RESAMPLES, seed: int = 0) -> Floats:
    """How often each of n prompts stands in each resample [resamples, n]."""
    rng = np.random.default_rng(seed)
    return rng.multinomial(n, np.full(n, 1 / n), size=resamples).astype(float)


def interval(statistic: Statistic, n: int, weights: Floats | None = None) -> Interval:
    """`weights`: what `draw` gave, for paired comparisons; else draws of its own, always the same ones."""
    drawn = draw(n) if weights is None else weights
    value = float(statistic(once(n))[0])
    found = statistic(drawn) if len(drawn) else np.zeros(0)
    found = found[np.isfinite(found)]
    if not np.isfinite(value):
        return Interval(None)
    if not len(found):
        return Interval(value)
    low, high = np.quantile(found, [0.025, 0.975])
    return Interval(value, float(low), float(high))
