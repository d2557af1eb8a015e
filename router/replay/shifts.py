"""The changes themselves: alike ones together, and the most consequential one by one."""

import numpy as np
from numpy.typing import NDArray

from router.replay.estimate import Differences
from router.replay.part import Part
from router.replay.replayed import Changed, Shift


def shifted(part: Part, found: Differences, most: int) -> tuple[tuple[Shift, ...], tuple[Changed, ...]]:
    """Who begins or ceases to be served comes first; then by what is at stake: money, and what failures cost."""
    changed = part.changed
    if not len(changed):
        return (), ()
    at = changed["row"]
    cost, passes, turned = found.cost[at], found.passes[at], found.refusals[at] != 0
    weight = np.abs(cost) + changed["failure"] * np.abs(passes)
    order = np.lexsort((changed["id"], -weight, ~turned))
    decisions = tuple(
        Changed(
            bytes(changed["id"][one]).decode(),
            int(changed["at_ms"][one]),
            part.moves[changed["move"][one]],
            float(cost[one]),
            float(passes[one]),
        )
        for one in order[:most]
    )
    return _shifts(part, changed["move"], cost, passes, weight, turned), decisions


def _shifts(
    part: Part,
    moves: NDArray[np.int32],
    cost: NDArray[np.float64],
    passes: NDArray[np.float64],
    weight: NDArray[np.float64],
    turned: NDArray[np.bool_],
) -> tuple[Shift, ...]:
    size = len(part.moves)
    counts = np.bincount(moves, minlength=size)
    sums = [np.bincount(moves, each, size) for each in (cost, passes, weight, turned.astype(np.float64))]
    order = np.lexsort((np.arange(size), -sums[2], sums[3] == 0))
    return tuple(
        Shift(part.moves[one], int(counts[one]), float(sums[0][one]), float(sums[1][one]))
        for one in order
        if counts[one]
    )
