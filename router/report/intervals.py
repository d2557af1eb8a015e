"""Estimates with intervals of 95 %, from sums alone: rates, means, and ratios of both."""

from collections.abc import Sequence
from math import exp, hypot, log, sqrt
from typing import NamedTuple

from router.report.wilson import Z_95, wilson

_LEAST = 2
"""Observations that a spread takes."""


class Estimate(NamedTuple):
    """None: not known; for `high` also: without a bound."""

    value: float
    low: float | None = None
    high: float | None = None


def rate(share: float, seen: float) -> Estimate:
    """A share of so many observations, which may be weighed; the interval is Wilson's (1927)."""
    bounds = wilson(share * seen, seen)
    if bounds is None:
        return Estimate(share)
    return Estimate(share, min(share, bounds[0]), max(share, bounds[1]))


def skewed(value: float, variance: float, seen: int) -> Estimate:
    """A mean of something positive, of so many observations: symmetric on the scale of logarithms (delta method)."""
    if value <= 0:
        return Estimate(value, value, value)
    if seen < _LEAST:
        return Estimate(value)
    factor = exp(_student(seen - 1) * sqrt(max(0.0, variance)) / value)
    return Estimate(value, value / factor, value * factor)


def _student(freedom: int) -> float:
    """Two-sided 95 % of Student's distribution, to the first term beyond the normal one (Cornish and Fisher 1938)."""
    return Z_95 + (Z_95**3 + Z_95) / (4 * freedom)


def quotient(over: Estimate, under: Estimate) -> Estimate | None:
    """The bounds are put together from those of both, on the scale of logarithms, so that they stay as lopsided as they
    are (MOVER: Zou and Donner 2008, Statistics in Medicine 27, 1693). None: nothing is below the line."""
    if under.value <= 0:
        return None
    value = over.value / under.value
    if over.value <= 0:
        return Estimate(value, value, value)
    low = _off(over.value, over.low, under.high, under.value)
    high = _off(over.high, over.value, under.value, under.low)
    return Estimate(value, None if low is None else value / low, None if high is None else value * high)


def weighted(parts: Sequence[tuple[float, Estimate]]) -> Estimate:
    """A mean of independent estimates, by weights above 0: how far each may be off, on either side, adds up as squares
    do (MOVER for sums)."""
    whole = sum(weight for weight, _ in parts)
    value = sum(weight * one.value for weight, one in parts) / whole

    def off(side: int) -> float | None:
        bounds = [(weight, one[side], one.value) for weight, one in parts]
        gaps = [weight * (bound - mean) for weight, bound, mean in bounds if bound is not None]
        return hypot(*gaps) / whole if len(gaps) == len(parts) else None

    down, up = off(1), off(2)
    return Estimate(value, None if down is None else value - down, None if up is None else value + up)


def _off(*pairs: float | None) -> float | None:
    """The factor that a quotient may be off by, where above and below the line are off by a ÷ b and by c ÷ d."""
    if any(each is None or each <= 0 for each in pairs):
        return None
    a, b, c, d = (each for each in pairs if each is not None)
    return exp(hypot(log(a / b), log(c / d)))
