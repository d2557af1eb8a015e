"""What is left to learn on top of any prior mean: a Bayesian linear model of residuals, with a part that targets share.

residual(target, phi) = phi · (common + own[target]) + noise, common ~ N(0, diag), own[target] ~ N(0, diag).
Exact: the own parts are integrated out, so a query costs O(T K²) and an observation O(K²), solved when next asked.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from router.estimate.evidence import Evidence, pack, unpack
from router.types.forecast import Vector

HALF_LIFE_MS = 30 * 86_400_000
STEPS = 256
"""Evidence fades in steps of the half-life over this: 2.8 hours of 30 days, 0.3 % each."""
LEAST_VARIANCE = 1e-8
"""In the place of a smaller variance of the prior, so that its precision stays finite."""
MOST = 1e6
"""A feature, a residual, a variance of noise and one over it are at most so much: beyond it is a mistake."""
NOISE_FLOOR = 0.03
"""Added to p(1 − p): nobody is so sure of a target that one surprise could overturn everything."""
ROWS = 512
"""Requests solved at once, which bounds memory."""


class Prior(Struct, frozen=True, eq=False):
    """Variances of the weights, before anything was observed."""

    common: Vector
    """[K]. Of the part that all targets share: how wrong the difficulty can be."""
    own: Vector
    """[T, K]. Of each target's own part; larger for a target that nothing is known of."""

    @classmethod
    def usual(cls, targets: int, features: int) -> "Prior":
        """For residuals of pass rates where nothing better was fitted; the first feature is the constant 1."""
        common, own = np.full(features, 0.05**2), np.full((targets, features), 0.08**2)
        common[0], own[:, 0] = 0.1**2, 0.15**2
        return cls(common, own)


class Belief(NamedTuple):
    """[T], or [n, T] where n requests were asked about."""

    mean: Vector
    sd: Vector
    """Of the mean: the noise of one outcome is not in it."""


def noise(p: float) -> float:
    """Variance of one score where `p` (0 … 1) is expected."""
    return p * (1 - p) + NOISE_FLOOR


class Posterior:
    """Of T targets by name, in K features; `basis` says what the features mean (a version, a digest). One thread."""

    def __init__(
        self, targets: Sequence[str], prior: Prior, *, basis: str = "", half_life_ms: float = HALF_LIFE_MS
    ) -> None:
        """ValueError: shapes that do not fit, a variance that is not a number ≥ 0, a half-life ≤ 0, a name twice."""
        shape = (len(targets), len(prior.common))
        if np.shape(prior.own) != shape or len(set(targets)) != len(targets) or not half_life_ms > 0:
            raise ValueError(f"a prior of {np.shape(prior.own)} for {shape} targets × features, or no half-life")
        if not all(np.isfinite(each).all() and (each >= 0).all() for each in (prior.common, prior.own)):
            raise ValueError("a variance of the prior is not a number ≥ 0")
        self.targets, self.basis, self.at_ms = tuple(targets), basis, 0
        self._index = {name: index for index, name in enumerate(self.targets)}
        self._half_life = half_life_ms
        self._common = 1 / np.maximum(prior.common, LEAST_VARIANCE)
        self._own = 1 / np.maximum(prior.own, LEAST_VARIANCE)
        self._clear()

    def _clear(self) -> None:
        targets, features = self._own.shape
        self._all, self._fresh = Evidence(targets, features), Evidence(targets, features)
        self._variance = np.zeros((targets, features, features))
        self._solution, self._shared = np.zeros((targets, features)), np.zeros((targets, features, features))
        self._stale = np.ones(targets, dtype=bool)

    @property
    def count(self) -> Vector:
        """[T]. Observations of each target, as far as they are remembered."""
        return self._all.count.copy()

    def update(self, target: int, phi: Vector, residual: float, noise: float = 0.25, at_ms: int | None = None) -> None:
        """One outcome: `residual` = observed − prior mean, of variance `noise`. `at_ms`: Unix, None for no time passed.

        Negative noise takes the same outcome back. What is older than the last one counts as much less as it has faded.
        ValueError: a number that is not finite, noise of 0, or taken back what never was. Duplicates are the caller's.
        """
        if np.shape(phi) != self._common.shape or not 0 <= target < len(self.targets):
            raise ValueError(f"target {target}, features {np.shape(phi)}: known are {self._own.shape}")
        if not (1 / MOST <= abs(noise) <= MOST and abs(residual) <= MOST and np.abs(phi).max() <= MOST):
            raise ValueError("an outcome is not finite, or its noise is 0")
        self.advance(at_ms)
        share = self._left(at_ms)
        if noise < 0 and not self._sound([target], -np.outer(phi, phi)[None] * (share / -noise)):
            raise ValueError("an outcome is taken back that never was finite evidence here")
        for evidence in (self._all, self._fresh):
            evidence.observe(target, phi, residual, noise / share, math.copysign(share, noise))
        self._stale[target] = True

    def _left(self, at_ms: int | None) -> float:
        """Share of what was observed then that still counts."""
        return 0.5 ** ((self.at_ms - at_ms) / self._half_life) if at_ms else 1.0

    def _sound(self, at: Sequence[int], more: Vector) -> bool:
        """With `more` precision [len(at), K, K] nothing about these targets is known less than not at all."""
        known = self._all.precision[at] + self._own[at][:, :, None] * np.eye(len(self._common)) + more
        return bool((np.linalg.eigvalsh(known)[:, 0] > 0).all())

    def advance(self, at_ms: int | None) -> None:
        """Time passes: evidence fades by half in each half-life, and the prior comes back. None, the past: nothing."""
        if not at_ms:
            return
        passed = (at_ms - self.at_ms) / self._half_life
        if self.at_ms and passed * STEPS < 1:
            return
        if self.at_ms:
            self._fade(0.5**passed)
        self.at_ms = at_ms

    def _fade(self, share: float) -> None:
        self._all.scale(share)
        self._fresh.scale(share)
        self._stale[:] = True

    def widen(self, target: int, factor: float) -> None:
        """`target` is not what it was: what was observed of it counts 1/`factor` (≥ 1) from now on."""
        if not 1 <= factor < np.inf:
            raise ValueError(f"a factor of {factor}: at least 1")
        self._all.scale(1 / factor, target)
        self._fresh.scale(1 / factor, target)
        self._stale[target] = True

    @property
    def weights(self) -> Vector:
        """[T, K]: of each target's expected residuals."""
        self._solve()
        return np.asarray(self._weights)

    def mean(self, phi: Vector) -> Vector:
        """Expected residuals: [T] of `phi` [K], or [n, T] of [n, K]."""
        self._solve()
        return np.asarray(phi @ self._weights.T)

    def sd(self, phi: Vector) -> Vector:
        """Standard deviations of the expected residuals, shaped as `mean`."""
        return self.belief(phi).sd

    def belief(self, phi: Vector) -> Belief:
        """Both at once, of `phi` [K] or [n, K]."""
        self._solve()
        if phi.ndim == 1:
            return Belief(self._weights @ phi, self._sd(phi))
        parts = [self._sds(phi[start : start + ROWS]) for start in range(0, len(phi), ROWS)]
        return Belief(phi @ self._weights.T, np.concatenate([np.zeros((0, len(self.targets))), *parts]))

    def _sd(self, phi: Vector) -> Vector:
        own = self._variance @ phi
        common = own * self._own
        variance = own @ phi + ((common @ self._common_variance) * common).sum(axis=1)
        return np.asarray(np.sqrt(np.maximum(variance, 0)))

    def own_sd(self, phi: Vector) -> Vector:
        """[T]: of `phi` [K], sd of each target's own part: what is unknown of all of them is not in it."""
        self._solve()
        return np.asarray(np.sqrt(np.maximum((self._variance @ phi) @ phi, 0)))

    def _sds(self, phi: Vector) -> Vector:
        own = phi @ self._variance
        common = own * self._own[:, None, :]
        variance = (own * phi).sum(axis=2) + ((common @ self._common_variance) * common).sum(axis=2)
        return np.asarray(np.sqrt(np.maximum(variance.T, 0)))

    def _solve(self) -> None:
        """With P a target's prior precision, A its evidence and M = (A + P)⁻¹: what it says of the common part has the
        precision P − P M P and the pull P M b; its weights given the common part are M (b + P common)."""
        stale = np.flatnonzero(self._stale)
        if not stale.size:
            return
        own, precision = self._own[stale], self._all.precision[stale]
        precision[:, range(own.shape[1]), range(own.shape[1])] += own
        variance = np.linalg.inv(precision)
        variance = (variance + variance.swapaxes(1, 2)) / 2
        shared = -own[:, :, None] * variance * own[:, None, :]
        shared[:, range(own.shape[1]), range(own.shape[1])] += own
        self._variance[stale], self._shared[stale] = variance, shared
        self._solution[stale] = (variance @ self._all.pull[stale][:, :, None])[:, :, 0]
        self._stale[stale] = False
        common = np.linalg.inv(np.diag(self._common) + self._shared.sum(axis=0))
        self._common_variance = (common + common.T) / 2
        mean = self._common_variance @ (self._own * self._solution).sum(axis=0)
        self._weights = self._solution + ((self._variance @ (self._own * mean)[:, :, None])[:, :, 0])

    def state(self) -> bytes:
        """Everything observed, for `restore`."""
        return pack(self._all, self.targets, self.basis, self.at_ms)

    def restore(self, data: bytes) -> bool:
        """In the place of what was observed here. False, and back to the prior: not understood, or of other features.

        Targets go by name: what was observed of one that is unknown here is dropped.
        """
        self._clear()
        self.at_ms = 0
        return self.add(data)

    def take(self) -> bytes:
        """What was observed here since the last `take`, for the other workers to `add`."""
        data = pack(self._fresh, self.targets, self.basis, self.at_ms)
        self._fresh = Evidence(*self._own.shape)
        return data

    def add(self, data: bytes) -> bool:
        """What another worker took, once. False, and nothing changes: as with `restore`."""
        unpacked = unpack(data, self.basis, len(self._common))
        if unpacked is None:
            return False
        known = [row for row, name in enumerate(unpacked.targets) if name in self._index]
        at, told = [self._index[unpacked.targets[row]] for row in known], unpacked.evidence.of(known)
        if not self._sound(at, told.precision):
            return False
        self.advance(unpacked.at_ms)
        self._all.add(told, at, self._left(unpacked.at_ms))
        self._stale[at] = True
        return True
