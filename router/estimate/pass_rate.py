"""How likely each target is right: a prior by request and card, and on top of it what own outcomes say."""

from collections.abc import Sequence
from math import log

import numpy as np
from numpy.typing import NDArray

from router.estimate.posterior import Posterior, Prior, noise
from router.priors.ability import ability, card, facts
from router.priors.priors import DIFFICULTY, KNOWN, LOGIT, SHARE, STEPS, TRAITS, UNFAMILIARITY, Priors
from router.types.classification import Classification
from router.types.forecast import Vector
from router.types.outcome import Outcome
from router.types.target import Target

Index = NDArray[np.intp]
WIDER = 4.0
"""A target that drifts has what was observed of it count a quarter."""
_KNOWN = slice(SHARE, SHARE + len(KNOWN))
_MEAN = np.full(len(KNOWN), 1 / len(KNOWN))
_NOBODY = np.zeros(TRAITS)
_NOBODY[0], _NOBODY[UNFAMILIARITY] = 1, 1


class PassRates:
    """Of one policy's targets, in their order. What was observed outlives it: in `posterior`, by the targets' names.

    logit p = ability of the target in the request's tasks − difficulty; towards the target's own mean over all requests
    as the request is less familiar.
    """

    def __init__(self, targets: Sequence[Target], priors: Priors) -> None:
        self._at = {target.id: at for at, target in enumerate(targets)}
        known = [ability(priors, facts(card(target))) for target in targets]
        means = np.array([each.mean for each in known]).reshape(-1, len(KNOWN))
        covariances = np.array([each.covariance for each in known]).reshape(-1, len(KNOWN), len(KNOWN))
        stated = [at for at, target in enumerate(targets) if target.pass_rate is not None]
        covariances[stated] = 0.0
        overall, variance = means @ _MEAN, covariances @ _MEAN @ _MEAN
        # The mean of a logistic over a Gaussian is one of a flatter slope.
        flat = 1 / np.sqrt(1 + np.pi / 8 * variance)
        self._weights = np.zeros((len(targets), TRAITS))
        self._weights[:, 0], self._weights[:, DIFFICULTY] = overall, -LOGIT
        self._weights[:, _KNOWN] = means - overall[:, None]
        self._weights *= flat[:, None]
        self._usual = _sigmoid(self._weights[:, 0])
        slope = (self._usual * (1 - self._usual))[:, None]
        self._state(targets)
        own = np.tile(priors.variances[1], (len(targets), 1))
        own[:, :1] += slope**2 * variance[:, None]
        own[:, _KNOWN] += slope**2 * _apart(covariances)
        self.posterior = Posterior(tuple(self._at), Prior(priors.variances[0], own), basis=priors.version)

    def _state(self, targets: Sequence[Target]) -> None:
        """Of a specialist whose policy says how good it is, that is the prior, whatever the card and the request."""
        for at, target in enumerate(targets):
            if target.pass_rate is not None:
                self._weights[at] = 0
                self._weights[at, 0] = log(target.pass_rate / (1 - target.pass_rate))
                self._usual[at] = target.pass_rate

    def expect(self, seen: Classification, at: Index) -> tuple[Vector, Vector]:
        """Mean and standard deviation of the pass rate [len(at)], for the targets with these indexes."""
        traits = _NOBODY if seen.reading is None else seen.reading.traits.astype(np.float64)
        belief = self.posterior.belief(traits)
        expected = np.clip(self._prior(traits) + belief.mean, 0.001, 0.999)
        return expected[at], belief.sd[at]

    def expect_each(self, traits: Vector) -> tuple[Vector, Vector]:
        """Of many requests [n, TRAITS] at once, for all targets: [n, T] each."""
        belief = self.posterior.belief(traits)
        return np.clip(self._prior(traits) + belief.mean, 0.001, 0.999), belief.sd

    def usual(self, at: Index) -> Vector:
        """Mean over all requests."""
        return np.asarray(np.clip(self._usual + self.posterior.mean(_NOBODY), 0.001, 0.999)[at])

    def observe(self, outcome: Outcome) -> bool:
        """Learn from one score. False: it is of no target here, of traits that are not ours, or counts for nothing."""
        at = self._at.get(outcome.target)
        traits = np.frombuffer(outcome.traits, np.int8) / STEPS
        if at is None or len(traits) != TRAITS or not 0 <= outcome.score <= 1 or not outcome.weight:
            return False
        expected = float(self._prior(traits)[at])
        spread = noise(expected) / outcome.weight
        self.posterior.update(at, traits, outcome.score - expected, spread, outcome.given_ms)
        return True

    def widen(self, target: str) -> None:
        """It is not what it was: what was observed of it counts less."""
        if (at := self._at.get(target)) is not None:
            self.posterior.widen(at, WIDER)

    def _prior(self, traits: Vector) -> Vector:
        """[T], or [n, T] of [n, TRAITS]: before anything was observed. By traits alone, so that an outcome can be
        learned from later."""
        strange = np.minimum(np.maximum(traits[..., UNFAMILIARITY, None], 0.0), 1.0)
        familiar = _sigmoid(traits @ self._weights.T)
        return np.asarray(familiar + strange * (self._usual - familiar))


def _sigmoid(logit: Vector) -> Vector:
    return np.asarray(1 / (1 + np.exp(-logit)))


def _apart(covariances: Vector) -> Vector:
    """[T, 4]: variances of what each ability is above their mean."""
    centring = np.eye(len(KNOWN)) - _MEAN
    return np.asarray(np.einsum("ij,tjk,ik->ti", centring, covariances, centring))
