"""Expected cost and pass rate of tactics that ask several targets: cascades and votes.

Formulas only: arrays of costs (in any unit) and probabilities in, arrays out. They broadcast over [T] or [n, T].
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from router.types.decision import Vector

RHO = 0.5
"""Default correlation of failures on one request beyond what the pass rates say. 0: independent; 1: the weaker target
passes only if the other does. Measured on public sets, given linear predictions of the pass rates: short facts 0.62,
code and maths 0.60, MMLU-Pro 0.47, tool calls 0.40, easy questions 0.30."""


class VerifierQuality(NamedTuple):
    """Error rates of a verifier."""

    right: float = 1.0
    """Share of right answers that it accepts."""
    wrong: float = 0.0
    """Share of wrong answers that it accepts."""


PERFECT = VerifierQuality()


class CascadeValue(NamedTuple):
    cost: Vector
    p: Vector
    """Probability that the final answer is right."""


class Agreement(NamedTuple):
    draws: Vector
    """Expected number of samples drawn, up to the first that differs."""
    right: Vector
    """Probability that all agree and are right."""
    wrong: Vector
    """Probability that all agree and are wrong."""


def both_pass(p1: ArrayLike, p2: ArrayLike, rho: float = RHO) -> Vector:
    """Returns the probability that both are right: `rho` of the way from p1 p2 to its maximum, min(p1, p2)."""
    independent = np.asarray(p1) * np.asarray(p2)
    return np.asarray(independent + rho * (np.minimum(p1, p2) - independent), dtype=np.float64)


def cascade_value(cost: Vector, p: Vector, check: VerifierQuality = PERFECT, rho: float = RHO) -> CascadeValue:
    """Values every ordered pair [..., first, second] of targets [..., T]: the second is asked if the first is rejected.

    The second's answer is not checked. The diagonal has infinite cost: a target does not follow itself.
    """
    first, second = p[..., :, None], p[..., None, :]
    both = both_pass(first, second, rho)
    rejected = first * (1 - check.right) + (1 - first) * (1 - check.wrong)
    right = first * check.right + both * (1 - check.right) + (second - both) * (1 - check.wrong)
    expected_cost = cost[..., :, None] + rejected * cost[..., None, :]
    expected_cost = np.where(np.eye(p.shape[-1], dtype=bool), np.inf, expected_cost)
    return CascadeValue(expected_cost, right)


def agreement(p: Vector, samples: int, wrong_answers: float = 4.0, rho: float = 0.5) -> Agreement:
    """Values `samples` (≥ 1) answers of one target. Wrong answers are uniform over `wrong_answers` (≥ 1) options.

    `rho`: share of requests on which a target always gives the same answer; on the others it draws anew.
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
    """Values every pair [..., sampled, other]: up to `samples` answers of the first, then the other unless all agree.

    On the diagonal the same target is asked once more, and is as often right as its samples are where they differ.
    """
    agreed = agreement(p, samples, wrong_answers, repeat_rho)
    first, second = p[..., :, None], p[..., None, :]
    both = both_pass(first, second, rho)
    disagreed_right, disagreed_wrong = (p - agreed.right)[..., :, None], (1 - p - agreed.wrong)[..., :, None]
    rescued = disagreed_right * _share(both, first) + disagreed_wrong * _share(second - both, 1 - first)
    rescued = np.where(np.eye(p.shape[-1], dtype=bool), disagreed_right, rescued)
    disagreed = (1 - agreed.right - agreed.wrong)[..., :, None]
    total = (agreed.draws * cost)[..., :, None] + disagreed * cost[..., None, :]
    return CascadeValue(total, agreed.right[..., :, None] + rescued)


def _share(part: Vector, whole: Vector) -> Vector:
    """Returns part / whole; 0 where whole is 0."""
    return np.divide(part, whole, out=np.zeros(np.broadcast(part, whole).shape), where=whole > 0)
