"""The chance of a correct answer, with its spread.

Parts of a guess are weighed once for prompts like the known ones and once for strangers; unfamiliarity mixes both.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from router.estimate.fitted.doubt import Doubt, doubt
from router.estimate.fitted.familiarity import Familiarity, familiarity, signs
from router.estimate.fitted.folds import Floats, Ints, clusters, group_folds, random_folds
from router.estimate.fitted.outcomes import Outcomes, axes, outcomes
from router.estimate.fitted.parts import Parts, Seen, Views, parts, ridges
from router.estimate.fitted.soft_labels import soft_labels, temperature
from router.estimate.fitted.space import Matrix, Space, space
from router.estimate.fitted.stack import slopes, weights

FOLDS = 5
RANK = 8
CLUSTER_SIZE = 100
MOST_CLUSTERS = 16
STRANGE_CLUSTERS = 8
LEAST = 0.001


class Chance(NamedTuple):
    """`p`, `p_sd` [n, T]; `unfamiliarity` [n]."""

    p: Floats
    p_sd: Floats
    unfamiliarity: Floats


class HeldOut(NamedTuple):
    """What would have been said of the rows of the fit, had they not been in it."""

    known: Chance
    """A random part of all rows left out."""
    strange: Chance
    """The whole group of each left out."""


class Weights(NamedTuple):
    """Of parts [parts, 1 + axes], then of what comes out for each target [T]."""

    parts: Floats
    slopes: Floats


class Chances(NamedTuple):
    space: Space
    parts: Parts
    usual: Floats
    axes: Floats
    familiar: Weights
    strange: Weights
    familiarity: Familiarity
    doubt: Doubt

    def look_at(self, looks: Matrix) -> Chance:
        """Of prompts by their looks [n, D]."""
        return self.mixed(self.parts.look_at(views(self.space, looks)))

    def mixed(self, seen: Seen) -> Chance:
        share = self.familiarity.unfamiliarity(signs(seen.similar, seen.probability))
        strange = share[:, None]
        p = (1 - strange) * self._by(self.familiar, seen.guess) + strange * self._by(self.strange, seen.guess)
        p = np.clip(p, LEAST, 1 - LEAST)
        return Chance(p, self.doubt.sd(p, strange), share)

    def _by(self, weighed: Weights, guess: NDArray[np.float32]) -> Floats:
        found = np.einsum("npk,pk->nk", guess, weighed.parts)
        apart = found[:, 1:] @ self.axes.T
        p: Floats = self.usual + found[:, :1] + apart * weighed.slopes
        return p


def views(place: Space, looks: Matrix) -> Views:
    z = place.z(looks)
    return Views(z, place.waves(z), place.near(z))


class _Case(NamedTuple):
    """What all fits of one set of data have in common."""

    views: Views
    outcomes: Outcomes
    responses: Floats
    axes: Floats
    labels: Ints
    number: int
    temperature: float

    def parts(self, rows: Ints) -> Parts:
        responses, weight = self.responses[rows], self.outcomes.weight[rows]
        return parts(self.views.at(rows), responses, weight, self.labels[rows], self.number, self.temperature)

    def held_out(self, fold: Ints) -> Seen:
        """What parts say of each row that they were fitted without."""
        found: list[NDArray[np.float32]] = []
        for number in np.unique(fold):
            rest, out = np.flatnonzero(fold != number), np.flatnonzero(fold == number)
            seen = self.parts(rest).look_at(self.views.at(out))
            found = found or [np.zeros((len(fold), *values.shape[1:]), np.float32) for values in seen]
            for whole, values in zip(found, seen, strict=True):
                whole[out] = values
        return Seen(*found)

    def weighed(self, seen: Seen) -> Weights:
        result = self.outcomes
        found = weights(seen.guess, self.responses, result.weight)
        apart = np.einsum("npk,pk->nk", seen.guess[:, :, 1:], found[:, 1:]) @ self.axes.T
        return Weights(found, slopes(apart, result.apart, result.seen))


def chances(looks: Matrix, score: Floats, labels: Ints, groups: Ints, same: Ints) -> tuple[Chances, HeldOut]:
    """From `looks` [n, D] and `score` [n, T] (NaN: unknown); `same` [n]: equal for equal prompts."""
    place = space(looks)
    case, groups = _case(views(place, looks), score, labels, groups, same)
    known = case.held_out(_several(random_folds(same, FOLDS)))
    strange = case.held_out(_several(group_folds(groups, FOLDS)))
    trust = familiarity(*(signs(seen.similar, seen.probability) for seen in (known, strange)))
    whole = case.parts(np.arange(len(looks)))
    weighed = case.weighed(known), case.weighed(strange)
    rough = Chances(place, whole, case.outcomes.usual, case.axes, *weighed, trust, Doubt.none(score.shape[1]))
    near = case.views.near
    found = rough._replace(doubt=doubt(score, near, groups, *(rough.mixed(seen) for seen in (known, strange))))
    return found, HeldOut(found.mixed(known), found.mixed(strange))


def _several(fold: Ints) -> Ints:
    """One fold alone is its own training part: there is nothing else to learn from."""
    return fold if len(np.unique(fold)) > 1 else np.arange(len(fold)) % max(min(len(fold), 2), 1)


def _case(seen: Views, score: Floats, labels: Ints, groups: Ints, same: Ints) -> tuple[_Case, Ints]:
    if len(np.unique(labels)) == 1:
        labels = clusters(seen.near, min(MOST_CLUSTERS, 1 + len(labels) // CLUSTER_SIZE))
    if len(np.unique(groups)) == 1:
        groups = clusters(seen.near, STRANGE_CLUSTERS)
    number, result = int(labels.max()) + 1, outcomes(score)
    linear = ridges(seen.waves, result.apart.astype(np.float32), result.weight[:, None].astype(np.float32))[-1]
    main = axes((seen.waves @ linear).astype(float), min(RANK, score.shape[1] - 1))
    responses = np.column_stack([result.common, result.apart @ main])
    return _Case(seen, result, responses, main, labels, number, _temperature(seen.z, labels, number, same)), groups


def _temperature(z: Matrix, labels: Ints, number: int, same: Ints) -> float:
    fold = _several(random_folds(same, FOLDS))
    logits = np.zeros((len(z), number), np.float32)
    for at in np.unique(fold):
        out = fold == at
        rest = ~out if not out.all() else out
        logits[out] = soft_labels(z[rest], labels[rest], number).logits(z[out])
    return temperature(logits, labels)
