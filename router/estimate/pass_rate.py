"""How likely each target is right: a prior by request and card, and on top of it what own outcomes say."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from router.estimate.cards import ABILITIES, KNOWN, ability, card, load
from router.estimate.posterior import Posterior, Prior, noise
from router.estimate.templates import Templates
from router.types.classification import (
    DIFFICULTY,
    DIFFICULTY_SD,
    SCALES,
    SHARE,
    STEPS,
    TASKS,
    TRAITS,
    UNFAMILIARITY,
    Classification,
)
from router.types.forecast import NODE_WEIGHTS, NODES, Vector
from router.types.outcome import Outcome
from router.types.target import Target

Index = NDArray[np.intp]
WIDER = 4.0
"""A target that drifts has what was observed of it count a quarter."""
USUAL_DIFFICULTIES = np.array([-7.0, -4.2, -2.0, -0.6, 0.7, 2.2])
"""Of everyday traffic, equally often: the tiers of the anchors that difficulty was fitted on (tools/anchors)."""
LEARNED = np.array([0, DIFFICULTY, UNFAMILIARITY, *range(SHARE, TRAITS)])
"""Traits that residuals are learned by."""
_COMMON_VARIANCES = np.array([0.0049, 0.0225, 0.0225, *[0.0225] * len(TASKS)])
_OWN_VARIANCES = np.array([0.0001, 0.0016, 0.0225, *[0.0004] * len(TASKS)])
"""Of what own outcomes will have to correct, in all targets and in each: by the likelihood of public sets left out."""
LEAST = 0.001
_MEAN = np.full(ABILITIES, 1 / ABILITIES)
_SHARES = SHARE + np.array([TASKS.index(task) for task in KNOWN])
_USUAL = np.zeros(len(LEARNED))
_USUAL[0] = 1


class Expected(NamedTuple):
    """Pass rates of n targets for one request."""

    p: Vector
    """[n]: mean."""
    sd: Vector
    """[n]: standard deviation."""
    nodes: Vector
    """[3, n]: mean, were the request easier than it looks, as it looks, or harder: weights are `NODE_WEIGHTS`."""
    own_sd: Vector
    """[n]: standard deviation of what is not common to all targets."""
    outcomes: Vector
    """[n]: so many outcomes of each were learned from; what is older counts less."""


class PassRateModel:
    """Of the policy in force: its targets, in their order. One for a process.

    logit p = ability of the target in the request's tasks − difficulty; both are normal, and p is the mean over them.
    """

    posterior: Posterior
    templates: Templates

    def __init__(self, targets: Sequence[Target] = ()) -> None:
        self._build(targets)

    def adopt(self, targets: Sequence[Target]) -> None:
        """Another policy is in force: what was observed goes on with the targets' names."""
        state = self.state()
        self._build(targets)
        self.restore(state)

    def state(self) -> bytes:
        return msgspec.msgpack.encode((self.posterior.state(), self.templates.state()))

    def restore(self, state: bytes) -> bool:
        """False: the state is of another version, and nothing is known of it."""
        try:
            posterior, templates = msgspec.msgpack.decode(state, type=tuple[bytes, bytes])
        except msgspec.DecodeError:
            return False
        return self.posterior.restore(posterior) and self.templates.restore(templates)

    def _build(self, targets: Sequence[Target]) -> None:
        self._at = {target.id: at for at, target in enumerate(targets)}
        cards = load()
        known = [ability(cards, card(target)) for target in targets]
        means = np.array([each.mean for each in known]).reshape(-1, ABILITIES)
        covariances = np.array([each.covariance for each in known]).reshape(-1, ABILITIES, ABILITIES)
        stated = [at for at, target in enumerate(targets) if target.pass_rate is not None]
        covariances[stated] = 0.0
        self._overall, self._variance = means @ _MEAN, covariances @ _MEAN @ _MEAN
        self._apart = means - self._overall[:, None]
        for at in stated:
            self._overall[at], self._apart[at] = _ability_for(targets[at].pass_rate or 0.5), 0.0
        self._usual = self._rates(self._overall - USUAL_DIFFICULTIES[:, None]).mean(axis=0)
        slope = self._usual * (1 - self._usual)
        self._room = np.maximum(slope, 0.02)
        own = np.tile(_OWN_VARIANCES, (len(targets), 1))
        own[:, 0] += slope**2 * self._variance
        at_tasks = 3 + _SHARES - SHARE
        own[:, at_tasks] += slope[:, None] ** 2 * _variances_apart(covariances)
        self.posterior = Posterior(tuple(self._at), Prior(_COMMON_VARIANCES, own), basis=cards.version)
        self.templates = Templates(tuple(self._at), len(LEARNED))

    def expect(self, seen: Classification, at: Index) -> Expected:
        """Of the targets with these indexes [n]."""
        if seen.reading is None:
            p = self.usual(at)
            return Expected(p, np.full(len(p), 0.3), np.tile(p, (3, 1)), np.full(len(p), 0.3), self.outcomes[at])
        traits = seen.reading.traits.astype(np.float64)
        phi = traits[LEARNED]
        belief = self.posterior.belief(phi)
        prior = self._nodes(traits)
        nodes = np.clip(prior + belief.mean, LEAST, 1 - LEAST)[:, at]
        p = NODE_WEIGHTS @ nodes
        # What is known to be passed or failed by all leaves little room for a target's own part.
        own_sd = self.posterior.own_sd(phi)[at] * np.minimum(p * (1 - p) / self._room[at], 1.0)
        if seen.template in self.templates:
            nodes, own_sd = self.templates.apply(seen.template, nodes, own_sd, self.posterior.weights[at], at)
            nodes = np.clip(nodes, LEAST, 1 - LEAST)
            p = NODE_WEIGHTS @ nodes
        return Expected(p, np.sqrt(own_sd**2 + NODE_WEIGHTS @ (nodes - p) ** 2), nodes, own_sd, self.outcomes[at])

    def expect_each(self, traits: Vector) -> tuple[Vector, Vector, Vector, Vector]:
        """As `expect`, of many requests [n, TRAITS] at once, for all T targets: [n, T], [n, T], [n, 3, T], [n, T]."""
        phi = traits[:, LEARNED]
        belief = self.posterior.belief(phi)
        prior = np.stack([self._nodes(row) for row in traits]) if len(traits) else np.zeros((0, 3, len(self._at)))
        nodes = np.clip(prior + belief.mean[:, None, :], LEAST, 1 - LEAST)
        p = np.einsum("j,njt->nt", NODE_WEIGHTS, nodes)
        spread = np.einsum("j,njt->nt", NODE_WEIGHTS, (nodes - p[:, None, :]) ** 2)
        own_sd = np.stack([self.posterior.own_sd(row) for row in phi]) if len(phi) else p
        own_sd = own_sd * np.minimum(p * (1 - p) / self._room, 1.0)
        return p, np.sqrt(own_sd**2 + spread), nodes, own_sd

    @property
    def outcomes(self) -> Vector:
        """[T]: that were learned from; what is older counts less."""
        return self.posterior.count

    def usual(self, at: Index) -> Vector:
        """Mean over all requests."""
        return np.asarray(np.clip(self._usual + self.posterior.mean(_USUAL), LEAST, 1 - LEAST)[at])

    def observe(self, outcome: Outcome) -> bool:
        """Learn from one score. False: it is of no target here, of traits that are not ours, or counts for nothing."""
        at = self._at.get(outcome.target)
        traits = np.frombuffer(outcome.traits, np.int8) / STEPS
        if at is None or len(traits) != TRAITS or not 0 <= outcome.score <= 1 or not outcome.weight:
            return False
        expected = float((NODE_WEIGHTS @ self._nodes(traits))[at])
        spread = noise(expected) / outcome.weight
        residual = outcome.score - expected
        self.posterior.update(at, traits[LEARNED], residual, spread, outcome.given_ms)
        if outcome.template:
            self.templates.observe(outcome.template, at, traits[LEARNED], residual, spread, outcome.given_ms)
        return True

    def widen(self, target: str) -> None:
        """It is not what it was: what was observed of it counts less."""
        if (at := self._at.get(target)) is not None:
            self.posterior.widen(at, WIDER)
            self.templates.widen(at, WIDER)

    def _nodes(self, traits: Vector) -> Vector:
        """[3, T] before anything was observed, by traits alone, so that an outcome can be learned from later."""
        hard = traits[DIFFICULTY] * SCALES[DIFFICULTY] + NODES * (traits[DIFFICULTY_SD] * SCALES[DIFFICULTY_SD])
        able = self._overall + self._apart @ traits[_SHARES]
        return self._rates(able - hard[:, None])

    def _rates(self, logits: Vector) -> Vector:
        """The mean of a logistic over a normal ability is about one of a flatter slope."""
        return np.asarray(1 / (1 + np.exp(-logits / np.sqrt(1 + np.pi / 8 * self._variance))))


def _ability_for(rate: float) -> float:
    """What passes this share of everyday requests, by bisection."""
    low, high = -15.0, 15.0
    for _ in range(50):
        middle = (low + high) / 2
        reached = (1 / (1 + np.exp(USUAL_DIFFICULTIES - middle))).mean()
        low, high = (middle, high) if reached < rate else (low, middle)
    return middle


def _variances_apart(covariances: Vector) -> Vector:
    """[T, 4]: variances of what each ability is above their mean."""
    centring = np.eye(ABILITIES) - _MEAN
    return np.asarray(np.einsum("ij,tjk,ik->ti", centring, covariances, centring))
