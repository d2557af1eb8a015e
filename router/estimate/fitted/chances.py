"""The chance of a correct answer, with its spread.

Parts of a guess are weighed once for prompts like the known ones and once for strangers; unfamiliarity mixes both.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from router.estimate.fitted.doubt import Doubt, doubt
from router.estimate.fitted.familiarity import Familiarity, familiarity, signs
from router.estimate.fitted.folds import Floats, Ints, clusters, group_folds, random_folds
from router.estimate.fitted.outcomes import Outcomes, outcomes
from router.estimate.fitted.parts import Parts, Seen, Views, parts
from router.estimate.fitted.soft_labels import soft_labels, temperature
from router.estimate.fitted.space import Matrix, Space, space
from router.estimate.fitted.stack import slopes, weights, within

FOLDS = 5
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
    folds: tuple[Ints, Ints]
    """[n]: what was left out together, of both."""


class Weights(NamedTuple):
    """Of parts [parts, 2]: common to all targets, and apart; then of what comes out for each target [T]."""

    parts: Floats
    slopes: Floats


class Chances(NamedTuple):
    space: Space
    parts: Parts
    usual: Floats
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
        common, apart = guess[:, :, 0] @ weighed.parts[:, 0], _apart(guess, weighed.parts)
        p: Floats = self.usual + common[:, None] + apart * weighed.slopes
        return p


def _apart(guess: NDArray[np.float32] | Floats, weight: Floats) -> Floats:
    """[n, T]"""
    found: Floats = np.matmul(weight[:, 1].astype(guess.dtype), guess[:, :, 1:])
    return found


def views(place: Space, looks: Matrix) -> Views:
    z = place.z(looks)
    return Views(z, place.waves(z), place.near(z))


class _Held(NamedTuple):
    """What was said of rows, each without its fold."""

    seen: Seen
    fold: Ints
    strange: bool
    """Folds are whole groups."""


class _Case(NamedTuple):
    """What all fits of one set of data have in common."""

    views: Views
    outcomes: Outcomes
    responses: Floats
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
            seen = self.parts(rest if len(rest) else out).look_at(self.views.at(out))
            found = found or [np.zeros((len(fold), *values.shape[1:]), np.float32) for values in seen]
            for whole, values in zip(found, seen, strict=True):
                whole[out] = values
        return Seen(*found)

    def weighed(self, held: _Held, rows: Ints | NDArray[np.bool_]) -> Weights:
        """From what was said of these rows without them."""
        guess, truth = held.seen.guess[rows], self.responses[rows]
        weight, seen = self.outcomes.weight[rows], self.outcomes.seen[rows]
        found = weights(guess, truth, weight, seen)
        if not held.strange:
            return Weights(found, slopes(_apart(guess, found), truth[:, 1:], seen))
        alike, truth = within(guess, held.fold[rows]), within(truth, held.fold[rows])
        found[:, 1] = weights(alike, truth, weight, seen)[:, 1]
        return Weights(found, slopes(_apart(alike, found), truth[:, 1:], seen))


def chances(looks: Matrix, score: Floats, labels: Ints, groups: Ints, same: Ints) -> tuple[Chances, HeldOut]:
    """From `looks` [n, D] and `score` [n, T] (NaN: unknown); `same` [n]: equal for equal prompts."""
    place = space(looks)
    case, groups = _case(views(place, looks), score, labels, groups, same)
    folds = _several(random_folds(same, FOLDS)), _several(group_folds(groups, FOLDS))
    known, strange = (_Held(case.held_out(fold), fold, bool(at)) for at, fold in enumerate(folds))
    trust = familiarity(*(signs(held.seen.similar, held.seen.probability) for held in (known, strange)))
    every = np.arange(len(looks))
    weighed = case.weighed(known, every), case.weighed(strange, every)
    nothing = Doubt.none(score.shape[1])
    rough = Chances(place, case.parts(every), case.outcomes.usual, *weighed, trust, nothing)
    said = [_judged(rough, case, held, (known, strange)) for held in (known, strange)]
    found = rough._replace(doubt=doubt(score, case.views.near, groups, *said))
    spread = [each._replace(p_sd=found.doubt.sd(each.p, each.unfamiliarity[:, None])) for each in said]
    return found, HeldOut(spread[0], spread[1], folds)


def _judged(whole: Chances, case: _Case, held: _Held, pair: tuple[_Held, _Held]) -> Chance:
    """Of rows that neither the parts nor their weights had seen."""
    parts: list[Floats] = []
    for number in np.unique(held.fold):
        out = held.fold == number
        rest = ~out if not out.all() else out
        weighed = [case.weighed(side, rest) for side in pair]
        said = whole._replace(familiar=weighed[0], strange=weighed[1]).mixed(held.seen.at(out))
        parts = parts or [np.zeros((len(out), *values.shape[1:])) for values in said]
        for all_rows, values in zip(parts, said, strict=True):
            all_rows[out] = values
    return Chance(*parts)


def _several(fold: Ints) -> Ints:
    """One fold alone is its own training part: there is nothing else to learn from."""
    return fold if len(np.unique(fold)) > 1 else np.arange(len(fold)) % max(min(len(fold), 2), 1)


def _case(seen: Views, score: Floats, labels: Ints, groups: Ints, same: Ints) -> tuple[_Case, Ints]:
    if len(np.unique(labels)) == 1:
        labels = clusters(seen.near, min(MOST_CLUSTERS, 1 + len(labels) // CLUSTER_SIZE))
    if len(np.unique(groups)) == 1:
        groups = clusters(seen.near, STRANGE_CLUSTERS)
    number, result = int(labels.max()) + 1, outcomes(score)
    responses = np.column_stack([result.common, result.apart])
    return _Case(seen, result, responses, labels, number, _temperature(seen.z, labels, number, same)), groups


def _temperature(z: Matrix, labels: Ints, number: int, same: Ints) -> float:
    fold = _several(random_folds(same, FOLDS))
    logits = np.zeros((len(z), number), np.float32)
    for at in np.unique(fold):
        out = fold == at
        rest = ~out if not out.all() else out
        logits[out] = soft_labels(z[rest], labels[rest], number).logits(z[out])
    return temperature(logits, labels)
