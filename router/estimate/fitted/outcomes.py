"""Scores as an easy-to-hard part that targets share, and what sets them apart."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from router.estimate.fitted.folds import Floats

ROUNDS = 6
MEAN_WEIGHT = 2.0
"""Observations' worth of the mean of all targets in each target's, and of 0.5 in that."""
PROMPT_WEIGHT = 1.0
"""Observations at which half is known of how easy a prompt is."""


class Outcomes(NamedTuple):
    """score = usual + common + apart, where observed (`seen`); `weight` [n]: how much is known of each prompt, to 1."""

    usual: Floats
    common: Floats
    apart: Floats
    seen: NDArray[np.bool_]
    weight: Floats


def outcomes(score: Floats) -> Outcomes:
    """Two-way means of [n, T] with gaps: a target that was only asked easy prompts is not taken for a good one."""
    seen = np.isfinite(score)
    count, filled = seen.sum(0), np.where(seen, score, 0.0)
    overall = (filled.sum() + MEAN_WEIGHT * 0.5) / (count.sum() + MEAN_WEIGHT)
    common, usual = np.zeros(len(score)), np.full(score.shape[1], overall)
    asked = seen.sum(1)
    for _ in range(ROUNDS):
        usual = ((filled - seen * common[:, None]).sum(0) + MEAN_WEIGHT * overall) / (count + MEAN_WEIGHT)
        common = (filled - seen * usual).sum(1) / np.maximum(asked, 1)
        common -= common.mean()
    apart = np.where(seen, score - usual - common[:, None], 0.0)
    return Outcomes(usual, common, apart, seen, asked / (asked + PROMPT_WEIGHT))
