"""What is expected of each target for one request: numbers over all targets at once."""

from typing import TypeAlias

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

Vector: TypeAlias = NDArray[np.float64]


class Forecast(Struct, frozen=True, kw_only=True, eq=False):
    """One number per target in each array, in the order in which the targets were given."""

    p: Vector
    """Posterior mean of the pass rate, 0 … 1."""
    p_sd: Vector
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
