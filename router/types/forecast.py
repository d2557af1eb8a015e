"""What is expected of each target for one request: numbers over all targets at once."""

from typing import TypeAlias

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

Vector: TypeAlias = NDArray[np.float64]
NODES = np.array([-(3**0.5), 0.0, 3**0.5])
NODE_WEIGHTS = np.array([1 / 6, 2 / 3, 1 / 6])
"""Gauss–Hermite quadrature of three points, over what is not known of a request's difficulty: places in standard
deviations, and weights."""


class Forecast(Struct, frozen=True, kw_only=True, eq=False):
    """One number per target in each array, in the order in which the targets were given."""

    p: Vector
    """Posterior mean of the pass rate, 0 … 1."""
    p_sd: Vector
    p_nodes: Vector
    """[3, targets]: pass rates, were the request easier than it looks, as it looks, or harder …"""
    p_own_sd: Vector
    """… and the standard deviation of what is not common to all targets."""
    outcomes: Vector
    """Outcomes that each target's rates were learned from; what is older counts less."""
    cost: Vector
    """Expected cost of one attempt, thinking included, in nano-USD: an expectation, not an amount."""
    cost_p10: Vector
    cost_p90: Vector
    output: Vector
    """Expected output tokens, thinking included."""
    thinking: Vector
    first_ms: Vector
    """Expected time until the first byte of the answer's body."""
    total_ms: Vector
    total_p90_ms: Vector
    usual_p: Vector
    """The pass rate over all of its traffic: what a fixed choice would go by."""
    usual_cost: Vector
