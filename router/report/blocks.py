"""How far sums over hours may be off: a moving-block bootstrap (Künsch 1989, Annals of Statistics 17, 1217), which
keeps hours that follow each other together, as traffic is alike from one to the next."""

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
DRAWS = 1_000
LEAST = 8
"""Hours; of fewer nothing can be said."""
_SEED = 20_261_121
"""The same ledger gives the same interval."""


def drawn(hours: Vector) -> Vector | None:
    """[hours, V] → [DRAWS, V]: sums of V amounts as they might have been. Blocks are as long as the cube root of the
    number of hours, and pass from the last hour to the first, so that all hours are drawn alike."""
    number = len(hours)
    if number < LEAST:
        return None
    length = max(1, round(number ** (1 / 3)))
    running = np.cumsum(np.concatenate([np.zeros((1, hours.shape[1])), hours, hours[:length]]), axis=0)
    blocks = running[length : length + number] - running[:number]
    starts = np.random.default_rng(_SEED).integers(number, size=(DRAWS, -(-number // length)))
    sums = np.stack([column[starts].sum(axis=1) for column in blocks.T], axis=1)
    return np.asarray(sums * (number / (starts.shape[1] * length)))


def bounds(draws: Vector) -> tuple[float, float]:
    """Between which 95 % of the draws lie."""
    low, high = np.percentile(draws, (2.5, 97.5))
    return float(low), float(high)
