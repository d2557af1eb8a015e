"""Intervals over prompts: the same draws for everything that is compared."""

from collections.abc import Callable

import numpy as np
from msgspec import Struct

from bench.routing.metrics import Floats, once

RESAMPLES = 500

Statistic = Callable[[Floats], Floats]
"""Weights [R, n] → values [R]."""


class Interval(Struct, frozen=True):
    """A value with its 95 % interval. None: it could not be computed."""

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
    return bounds(float(statistic(once(n))[0]), statistic(drawn) if len(drawn) else np.zeros(0))


def bounds(value: float, drawn: Floats) -> Interval:
    """The middle 95 % of what the resamples gave, moved so that their median is the value: hulls, minima and bins take
    the noise that resampling adds for signal. What is never negative stays so."""
    found = drawn[np.isfinite(drawn)]
    if not np.isfinite(value):
        return Interval(None)
    if not len(found):
        return Interval(value)
    low, middle, high = np.quantile(found, [0.025, 0.5, 0.975])
    least = 0.0 if found.min() >= 0 and value >= 0 else -np.inf
    return Interval(value, float(max(low - middle + value, least)), float(max(high - middle + value, least)))
