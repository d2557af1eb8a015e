"""What is left to learn of templates, on top of what is expected of their requests one by one.

A template is what an application sends again and again (`router.types.request.template`). Its requests are harder or
easier than they look, for all targets alike, and some target is better at them than elsewhere: both are normally
distributed, the first in units of the uncertainty of a request's difficulty. Outcomes are stored as sums, so that their
order does not matter. Outcomes of an application's other templates count like a few: a template may be new, or differ
by a name only.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from router.estimate.posterior import CARRIED, MOST_TEMPLATES, NOISE_FLOOR, Fading, Recent, State, noise, pack, unpack
from router.types.decision import NODE_WEIGHTS, Vector
from router.types.request import APPLICATION_DIGITS, application_of

SHARED = 0.3
"""Part of the variance of a request's difficulty that is the same in all requests of its template."""
MOST_OF_TEMPLATE, MOST_OF_APPLICATION = 40.0, 60.0
"""Maximum of 1 ÷ variance of what one template teaches its application about a target, and of what the others of its
application teach a template: like four and six outcomes of a usual variance of 0.1."""
EXPECTED = 13.0
"""Weight in outcomes of the expectation for a target in a template: constant, so that rates rise and fall alike."""
LOOKS, MOST_APART = 1.0, 2.0
"""Weight of the prior belief that requests which look harder are harder, as a sum of squares of expected pass rates ÷
variance of an outcome; maximum factor by which they are harder."""
MISREAD = 2.0**2
"""Square of the logits between what is expected and observed of a template at which half a logit of difference in how
its requests look is ignored; far beyond, a logit is."""
LEAST_OTHERS = 0.01
"""Minimum 1 ÷ variance: less is only what rounding and fading leave of the template's own outcomes."""
LEAST = 0.001
LEAST_DOUBT = 0.03
"""Minimum of `uncertainty`: what is uncertain of a pass rate near 0 or 1, where abilities make hardly a difference."""
ODD, CLEAR = 6.0, 0.5
"""Number of unexpected outcomes that are believed where nearly all pass or fail: one may be a mistake of its judge, and
hardly counts. With an `uncertainty` of `CLEAR`, any is believed."""


def clipped(p: Vector) -> Vector:
    """Returns pass rates within the range that they may have."""
    return np.asarray(np.minimum(np.maximum(p, LEAST), 1 - LEAST))


def uncertainty(p: Vector, least: float = LEAST_DOUBT) -> Vector:
    """Returns how uncertain a pass rate is, or how far it moves, relative to one of a half."""
    return np.asarray(np.maximum(4 * p * (1 - p), least))


SURPRISE = 0.25
"""Maximum by which a tenant's mean may differ from the expectation for others, and a template's for its application, at
a rate of a half; less where nearly all pass or fail, as what fails only there says nothing of others. A template's may
differ by its standard deviation more, so that a single outcome counts in full."""
LEAST_SLOPE = 0.2
"""Minimum of how much a pass rate moves if a target is better than expected, relative to a half: where nearly all pass
or fail, outcomes tell little of the target."""


def credible(sums: Vector, chance: Vector | float = 0.0) -> Vector:
    """Returns sums [..., 1, above, expected …] of a group, with their mean limited to `SURPRISE` plus `chance`."""
    weight, above, usual = sums[..., 0], sums[..., 1], sums[..., 2] / np.where(sums[..., 0], sums[..., 0], 1.0)
    most = np.abs(weight) * (SURPRISE * uncertainty(usual, LEAST_SLOPE) + chance)
    bounded = sums.copy()
    bounded[..., 1] = np.clip(above, -most, most)
    return bounded


def _for_others(sums: Vector) -> Vector:
    """Returns what the sums [T, 5 + K] of a template count for in its application's other templates."""
    weight = np.maximum(sums[:, 0], LEAST_OTHERS)
    return credible(sums, weight**-0.5) * (MOST_OF_TEMPLATE / (MOST_OF_TEMPLATE + weight))[:, None]


def believed(above: Vector, count: Vector, p: Vector) -> Vector:
    """Returns the credible part of `above`, the mean of `count` outcomes less `p`: small if few contradict `p`."""
    odd = ODD * np.maximum(1 - 4 * p * (1 - p) / CLEAR, 1e-9)
    high, unlike = p > 0.5, np.abs(p + above - (p > 0.5))
    return np.asarray(above * np.where((above > 0) == high, 1.0, np.minimum(count * unlike / odd, 1.0) ** 2))


def _look_factor(rows: Vector) -> float:
    """Returns the factor, up to `MOST_APART`, on how hard a request looks compared with others of its template: how
    much worse those that looked harder did, by the template's sums."""
    weight = np.maximum(rows[:, 0], 0.0)
    above, foretold, squares, both = rows.T[1:5] / np.where(weight > 0, weight, 1.0)
    spread = weight.dot(np.maximum(squares - foretold * foretold, 0.0)) + LOOKS
    return min(max(1.0 + float(weight.dot(both - above * foretold) / spread), 0.0), MOST_APART)


CHANGE_SLACK, UNSURE, CHANGED = 0.5, 1.5, 16.0
"""Standard deviations of a score by which a template may move; the same for one outcome before, less for more; and the
sum beyond these which is a change. Simulated: no false alarm in 200,000 outcomes, one in 10,000 where looks mislead;
a fall from 90 to 0 % and a rise back are found after 7 outcomes, 90 to 40 % after 16, 30 to 90 % after 25."""
SETTLED, MOST_SURPRISE, LEFT = 32, 3.0, 5.0
"""Number of outcomes before any change; maximum surprise in standard deviations; 1 ÷ variance kept of older ones."""


def _observed(rows: Vector, learned: Vector, p: Vector) -> tuple[Vector, Vector, Vector, Vector]:
    """For sums [2, n, 5 + K], of other templates and the own, returns: numbers of outcomes [2, n]; how far their mean
    is credibly above the expected one [2, n]; and for requests like those, the own if there are any, what is expected
    [n], and by traits alone [n]. `learned` [n, K]: weights of traits; `p` [n]: expected without outcomes."""
    weight = np.maximum(rows[..., 0], 0.0)
    means = rows / np.where(weight > 0, weight, 1.0)[..., None]
    foretold = means[..., 2]
    there = np.where(weight > 0, clipped(foretold + np.einsum("snk,nk->sn", means[..., 5:], learned)), p)
    # Each outcome weighs 1 ÷ the noise that was expected of it, of which this is the mean.
    count = weight * np.maximum(foretold - means[..., 3] + NOISE_FLOOR, NOISE_FLOOR)
    above = np.where(weight > 0, believed(means[..., 1] + foretold - there, count, there), 0.0)
    first = (weight[1] > 0).astype(np.intp), np.arange(len(p))
    # Where nearly all pass or fail, others' outcomes move a rate by less.
    above[0] *= np.minimum(uncertainty(there[first]) / uncertainty(there[0]), 1.0)
    return count, above, there[first], foretold[first]


def _transferred(rates: Vector, observed: Vector, look_factor: float) -> tuple[Vector, Vector]:
    """Carries rates over from the requests observed to this one: by as much as the odds moved, and by how it looks
    compared with them. Returns its mean [n], and [3, n] if it is easier than it looks, as it looks, or harder.

    `rates` [8, n]: observed and expected of those; by traits alone, of this one and those; expected of this one, and at
    its nodes. `observed` [n]: whether there are any; `look_factor`: see `_look_factor`."""
    (reached, there), rates = rates[:2], clipped(rates)
    as_reached, as_there, as_prior, as_foretold, *as_looks = np.log(rates / (1 - rates))
    odds = as_reached - as_there
    unsure = np.where(observed, min(look_factor, 1.0), 1.0) * (np.array(as_looks) - as_looks[0])
    # What is left of how it looks by traits alone, once what was learned of all requests is taken into account.
    by_looks, left = as_prior - as_foretold, as_looks[0] - as_there
    by_looks = np.where(observed & (by_looks * left > 0), np.clip(left, -abs(by_looks), abs(by_looks)), 0.0)
    as_looks = as_looks[0] + (look_factor - 1) * by_looks + unsure
    looks = 1 / (1 + np.exp(-as_looks))
    # Where requests are far from what they look like, one that looks a little easier is not easier.
    unclear = odds * odds / (odds * odds + MISREAD)
    odds -= np.where(observed, np.clip(as_looks[0] - as_there, -unclear, unclear), 0.0)
    # A rate near 0 or 1, which a few odd answers move by logits, says less of requests that are harder.
    most = np.where(observed, np.abs(reached - there), 1.0)
    mean, *moved = clipped(looks + np.clip(1 / (1 + np.exp(-as_looks - odds)) - looks, -most, most))
    return mean, np.array(moved)


def cusum(sides: tuple[float, float], surprise: float, slack: float) -> tuple[float, float]:
    """Returns how far surprises went below 0 lately, and above, beyond the slack of each (CUSUM, Page 1954)."""
    return max(sides[0] - surprise - slack, 0.0), max(sides[1] + surprise - slack, 0.0)


Watched = tuple[float, float, float, dict[str, list[float]]]
"""What is `watched` of a template, with the names of its targets."""


class _TemplateSums(Fading):
    """Sums of a template. `watched`: number of outcomes since its last change; how far its answers have lately been
    worse than before, and better, in standard deviations of a score; and the sums of these answers by target."""

    watched: tuple[float, float, float, dict[int, Vector]] = 0.0, 0.0, 0.0, {}

    def watch(self, target: int, sums: Vector, weight: float, left: float) -> None:
        """Looks for a change before an outcome is added: the template may have changed under its name, in code or in
        what it sends. If so, older outcomes of all targets there hardly count any more. `left`: their share left."""
        count, worse, better, lately = self.watched
        lately = {at: row * left for at, row in lately.items()}
        recent = lately.get(target, np.zeros_like(sums))
        row = self.sums[target] - recent
        if row[0] > LEAST_OTHERS:
            usual, foretold, score = sum(row[1:3]) / row[0], row[2] / row[0], sum(sums[1:3]) / sums[0]
            # Weighted like the mean, so that the sum of surprises stays near 0 whatever requests look like.
            surprise = float((score - usual) * sums[0] / weight * noise(foretold) / math.sqrt(noise(usual)))
            surprise = min(max(surprise, -MOST_SURPRISE), MOST_SURPRISE)
            slack = CHANGE_SLACK + UNSURE / math.sqrt(max(float(row[0] * noise(foretold)), LEAST))
            worse, better = cusum((worse, better), weight * surprise, weight * slack)
            if max(worse, better) > CHANGED and count >= SETTLED:
                self.sums *= np.minimum(LEFT / np.maximum(self.sums[:, :1], 1e-9), 1.0)
                count = worse = better = 0.0
            lately = {**lately, target: recent + sums} if worse + better else {}
        self.watched = count + weight, worse, better, lately


class Templates:
    """Outcomes by template, of T targets by name, in K traits. For use by one thread. For each template sums [T, 5 + K]
    over outcomes of 1 ÷ variance, times: 1; how far the score is above what traits foretell; what they foretell; its
    square; the product of these two; the traits."""

    def __init__(self, targets: Sequence[str], traits: int) -> None:
        self._targets, self._shape = tuple(targets), (len(targets), 5 + traits)
        self._known = Recent[str, _TemplateSums](MOST_TEMPLATES, lambda: _TemplateSums(self._shape), str)

    def observe(self, template: str, target: int, sums: Vector, at_ms: int, weight: float) -> None:
        """Adds the sums [5 + K] of an outcome: its score less what its traits foretold, before anything was learned.
        Negative ones take the same outcome back. `weight`: of the outcome."""
        known = self._known.used(template)
        before = _for_others(known.sums)
        left, share = known.fade(at_ms)
        if weight > 0:
            known.watch(target, sums, weight, left)
        known.sums[target] += sums * share
        self._tell_others(template, known, before * left)

    def _tell_others(self, template: str, known: _TemplateSums, before: Vector) -> None:
        """Replaces what the template counted for in its application."""
        if application := application_of(template):
            of_all = self._known.used(application)
            of_all.sums += (_for_others(known.sums) - before) * of_all.fade(known.at_ms)[1]

    def apply(
        self, template: str, prior: Vector, nodes: Vector, own_sd: Vector, learned: Vector, at: NDArray[np.intp]
    ) -> tuple[Vector, Vector]:
        """Returns pass rates [3, n] and own standard deviations [n] of the targets `at` [n], corrected by outcomes of
        the template, if it or its application is remembered: by as much as the odds of the observed requests moved,
        which may be easier or harder than this one.

        `prior` [n]: by traits alone; `learned` [T, K]: weights of traits, which are already in `nodes`."""
        rows = self._rows(template, at)
        if rows is None:
            return nodes, own_sd
        # An application's templates differ in more than how hard they look: only own outcomes tell `look_factor`.
        p, look_factor = NODE_WEIGHTS @ nodes, _look_factor(rows[1]) if rows[1].any() else 1.0
        outcomes, above, there, foretold = _observed(rows, learned[at], p)
        count = outcomes.sum(0)
        variance, observed = there * (1 - there) + NOISE_FLOOR, count > 0
        doubt_p, doubt_there, doubt_prior = uncertainty(np.array((p, there, prior)))
        # For requests like those observed: what all targets share, and what is each one's own.
        steep = np.sqrt(NODE_WEIGHTS @ (nodes - p) ** 2) * there * (1 - there) / (p * (1 - p))
        own = (own_sd * doubt_there / doubt_prior) ** 2 + variance / EXPECTED
        # Outcomes of others change the expectation with which the template's own are compared.
        of_others, of_its_own, of_all = 1 - variance / (own * np.vstack((outcomes, count)) + variance)
        moved = of_others * above[0]
        moved += of_its_own * (above[1] - moved)
        precision = 1 / SHARED + (steep**2 * of_all / own).sum()
        shared = steep * float((steep * moved / own).sum() / precision)
        reached = clipped(there + (1 - of_all) * shared + moved)
        mean, by_node = _transferred(np.vstack((reached, there, prior, foretold, p, nodes)), observed, look_factor)
        # As sure as own outcomes make it, at the rate that they show.
        doubt_reached, doubt_mean = uncertainty(np.array((reached, mean)))
        of_own = np.sqrt(of_all * (reached * (1 - reached) + NOISE_FLOOR) / np.where(observed, count, 1.0))
        surer = np.minimum(own_sd * doubt_reached / doubt_p, of_own) * doubt_mean / doubt_reached
        own_sd = np.where(observed, surer, np.hypot(own_sd * doubt_mean / doubt_p, CARRIED * (mean - p)))
        spread = (by_node - NODE_WEIGHTS @ by_node) * np.sqrt(1 - SHARED + 1 / precision)
        # No further than to the limits of a rate, so that the mean stays what it is.
        room = np.minimum((1 - LEAST - mean) / (spread.max(0) + 1e-9), (mean - LEAST) / (1e-9 - spread.min(0)))
        return mean + spread * np.minimum(room, 1.0), own_sd

    def _rows(self, template: str, at: NDArray[np.intp]) -> Vector | None:
        """Returns sums [2, n, 5 + K], of its application's others and of the template; None if neither has any."""
        own, of_all = self._known.get(template), self._known.get(application_of(template))
        if own is None and of_all is None:
            return None
        rows = np.zeros((2, len(at), self._shape[1]))
        rows[1] = 0.0 if own is None else own.sums[at]
        if of_all is not None:
            others = of_all.sums[at] - _for_others(rows[1])
            share = np.minimum(MOST_OF_APPLICATION / np.maximum(others[:, :1], 1e-9), 1.0)
            rows[0] = np.where(others[:, :1] > LEAST_OTHERS, others * share, 0.0)
        return rows

    def widen(self, target: int, factor: float) -> None:
        """Divides the weight of what was observed of this target by `factor`."""
        for template, known in list(self._known.items()):
            before = _for_others(known.sums)
            if len(template) != APPLICATION_DIGITS:
                known.sums[target] /= factor
                known.watched = known.watched[0], 0.0, 0.0, {}
            self._tell_others(template, known, before)

    def state(self) -> list[tuple[State, Watched]]:
        """Returns everything observed, and what was `watched` of each template, for `restore`."""
        states = []
        for template, known in self._known.items():
            count, worse, better, lately = known.watched
            named = {self._targets[at]: row.tolist() for at, row in lately.items()}
            states.append((pack(template, known, self._targets, "<f4"), (count, worse, better, named)))
        return states

    def restore(self, states: Sequence[tuple[State, Watched]]) -> None:
        """Restores the states into a new object: see `unpack`."""
        for state, (count, worse, better, named) in states[-MOST_TEMPLATES:]:
            known = self._known[state[0]]
            unpack(state, known, self._targets, "<f4")
            lately = {at: np.array(named[name]) for at, name in enumerate(self._targets) if name in named}
            known.watched = count, worse, better, lately
