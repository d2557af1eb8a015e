"""What several answers cost and how likely the last one is right: a cheap one checked, several compared.

Formulas only: arrays of costs (USD) and chances in, arrays out. They broadcast: one request [T], or many [n, T].
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from router.types.decision import Vector

RHO = 0.5
"""How far failures on one request go together beyond what the pass rates say, where it was not measured. 0: apart;
1: the target with the lower chance passes only with the other. Measured on public sets, given linear predictions: short
facts 0.62, code and maths 0.60, MMLU-Pro 0.47, tool calls 0.40, easy questions 0.30."""


class VerifierQuality(NamedTuple):
    """How good a verifier is."""

    right: float = 1.0
    """Share of right answers that it accepts."""
    wrong: float = 0.0
    """Share of wrong answers that it accepts."""


PERFECT = VerifierQuality()


class CascadeValue(NamedTuple):
    cost: Vector
    """Expected, of all attempts and checks (USD)."""
    p: Vector
    """Chance that the answer given in the end is right."""


class Agreement(NamedTuple):
    draws: Vector
    """Samples drawn until the first that differs, or all."""
    right: Vector
    """Chance that all agree and are right."""
    wrong: Vector
    """Chance that all agree and are wrong."""


def both_pass(p1: ArrayLike, p2: ArrayLike, rho: float = RHO) -> Vector:
    """Chance that both are right on one request: `rho` of the way from p1 p2 to min(p1, p2), the most there can be."""
    apart = np.asarray(p1) * np.asarray(p2)
    return np.asarray(apart + rho * (np.minimum(p1, p2) - apart), dtype=np.float64)


def cascade_value(cost: Vector, p: Vector, check: VerifierQuality = PERFECT, rho: float = RHO) -> CascadeValue:
    """Every ordered pair [..., first, second] of targets [..., T]: the second is asked where the first's check says no.

    The second's answer is given unchecked. A target does not follow itself: infinite cost on the diagonal.
    """
    first, second = p[..., :, None], p[..., None, :]
    both = both_pass(first, second, rho)
    turned_down = first * (1 - check.right) + (1 - first) * (1 - check.wrong)
    right = first * check.right + both * (1 - check.right) + (second - both) * (1 - check.wrong)
    total = cost[..., :, None] + turned_down * cost[..., None, :]
    total = np.where(np.eye(p.shape[-1], dtype=bool), np.inf, total)
    return CascadeValue(total, right)


def agreement(p: Vector, samples: int, wrong_answers: float = 4.0, rho: float = 0.5) -> Agreement:
    """Of `samples` (≥ 1) answers of one target. Wrong ones spread evenly over `wrong_answers` (≥ 1) plausible answers.

    `rho`: share of requests on which a target always says the same, right or wrong; on the others it draws anew.
    """
    p = np.asarray(p, dtype=np.float64)
    right = rho * p + (1 - rho) * p**samples
    wrong = rho * (1 - p) + (1 - rho) * (1 - p) ** samples / wrong_answers ** (samples - 1)
    draws = np.ones_like(p)
    for drawn in range(1, samples):
        same = p**drawn + (1 - p) ** drawn / wrong_answers ** (drawn - 1)
        draws = draws + rho + (1 - rho) * same
    return Agreement(draws, right, wrong)


def sample_value(
    cost: Vector, p: Vector, samples: int, *, wrong_answers: float = 4.0, repeat_rho: float = 0.5, rho: float = RHO
) -> CascadeValue:
    """Every pair [..., sampled, other]: `samples` of the first, given if all agree; where one differs the other.

    The diagonal: the same target is asked once more, and it is as right as its samples are where they differ.
    """
    agreed = agreement(p, samples, wrong_answers, repeat_rho)
    first, second = p[..., :, None], p[..., None, :]
    both = both_pass(first, second, rho)
    apart_right, apart_wrong = (p - agreed.right)[..., :, None], (1 - p - agreed.wrong)[..., :, None]
    rescued = apart_right * _share(both, first) + apart_wrong * _share(second - both, 1 - first)
    rescued = np.where(np.eye(p.shape[-1], dtype=bool), apart_right, rescued)
    apart = (1 - agreed.right - agreed.wrong)[..., :, None]
    total = (agreed.draws * cost)[..., :, None] + apart * cost[..., None, :]
    return CascadeValue(total, agreed.right[..., :, None] + rescued)


def _share(part: Vector, whole: Vector) -> Vector:
    """part / whole; 0 where there is no whole."""
    return np.divide(part, whole, out=np.zeros(np.broadcast(part, whole).shape), where=whole > 0)
