"""What is left to learn of templates, on top of what is expected of their requests one by one.

A template is what an application sends again and again (`router.types.request.template`). Its requests are harder or
easier than they look, for all targets alike, and some target is better at them than elsewhere: both are normal, the
first in units of how uncertain the difficulty of a request is. What is remembered are sums of outcomes, so that
their order does not matter. What an application sends in other templates counts there too, like a few outcomes: a
template may be new, or differ by a name only.
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
"""1 ÷ variance of what one template says of a target for its application, and of what all others of its application
say for a template, at most: like four and like six outcomes of a usual variance of 0.1."""
EXPECTED = 13.0
"""What is expected of a target in a template counts like so many outcomes, whatever it is: both rise and fall alike."""
LOOKS, MOST_APART = 1.0, 2.0
"""Sum of squares of what requests of a template were expected to pass, ÷ variance of an outcome, as much as which is
believed beforehand: that those which look harder are; and by how many times as much they may be."""
MISREAD = 2.0**2
"""Square of logits between what is expected and what is observed of a template, from which on differences of half a
logit in how its requests look say nothing; far beyond, a logit."""
LEAST_OTHERS = 0.01
"""1 ÷ variance: less is none, but what rounding and fading leave of the template's own outcomes."""
LEAST = 0.001
LEAST_DOUBT = 0.03
"""What is uncertain of a pass rate near 0 or 1, where abilities make hardly a difference, against one of a half."""
ODD, CLEAR = 6.0, 0.5
"""Outcomes against what was expected that are believed, where nearly all pass or fail: one may be a mistake of who
judged it, and counts for next to nothing. Where `doubt` is so large, any is."""


def kept(p: Vector) -> Vector:
    """Within what a pass rate may be."""
    return np.asarray(np.minimum(np.maximum(p, LEAST), 1 - LEAST))


def doubt(p: Vector, least: float = LEAST_DOUBT) -> Vector:
    """How uncertain a pass rate is, or how far it moves, against one of a half."""
    return np.asarray(np.maximum(4 * p * (1 - p), least))


SURPRISE = 0.25
"""A tenant's mean counts for others, and a template's for its application, at most so far beyond what was expected,
where that is a half, and less where nearly all pass or fail: what fails there alone is its own. A template's may be
further by its standard deviation: of one outcome nothing is left out."""
LEAST_SLOPE = 0.2
"""Of how much a pass rate moves where a target is better than expected: where nearly all pass, or fail, little can be
known of it by that."""


def credible(sums: Vector, chance: Vector | float = 0.0) -> Vector:
    """Sums [..., 1, above, expected …] of a group, their mean no more of a surprise, and `chance`, than counts."""
    weight, above, usual = sums[..., 0], sums[..., 1], sums[..., 2] / np.where(sums[..., 0], sums[..., 0], 1.0)
    most = np.abs(weight) * (SURPRISE * doubt(usual, LEAST_SLOPE) + chance)
    bounded = sums.copy()
    bounded[..., 1] = np.clip(above, -most, most)
    return bounded


def _for_others(sums: Vector) -> Vector:
    """What a template's [T, 5 + K] say for its application's others."""
    weight = np.maximum(sums[:, 0], LEAST_OTHERS)
    return credible(sums, weight**-0.5) * (MOST_OF_TEMPLATE / (MOST_OF_TEMPLATE + weight))[:, None]


def believed(above: Vector, count: Vector, p: Vector) -> Vector:
    """What `count` outcomes are above `p`, on average, as far as it is believed: by how many were unlike nearly all."""
    odd = ODD * np.maximum(1 - 4 * p * (1 - p) / CLEAR, 1e-9)
    high, unlike = p > 0.5, np.abs(p + above - (p > 0.5))
    return np.asarray(above * np.where((above > 0) == high, 1.0, np.minimum(count * unlike / odd, 1.0) ** 2))


def _apart(rows: Vector) -> float:
    """For how much, up to `MOST_APART`, it counts how hard a request looks against the others of its template, by the
    template's sums: for as much as those that looked harder did worse."""
    weight = np.maximum(rows[:, 0], 0.0)
    above, foretold, squares, both = rows.T[1:5] / np.where(weight > 0, weight, 1.0)
    spread = weight.dot(np.maximum(squares - foretold * foretold, 0.0)) + LOOKS
    return min(max(1.0 + float(weight.dot(both - above * foretold) / spread), 0.0), MOST_APART)


CHANGE_SLACK, CHANGED = 0.5, 16.0
"""Standard deviations of a score by which a template may move, and the sum beyond that which is a change. Simulated: at
most one false alarm in 1,000 outcomes, where looks mislead, else none in 10,000; a fall from 90 to 0 % is found after
10, a rise from 0 to 90 % after 8."""
SETTLED, MOST_SURPRISE, LEFT = 32, 3.0, 5.0
"""Outcomes before any change is one; standard deviations that a score counts at most; 1 ÷ variance kept of older."""


def _observed(rows: Vector, learned: Vector, p: Vector) -> tuple[Vector, Vector, Vector, Vector]:
    """Of sums [2, n, 5 + K], of others and of its own: outcomes [2, n]; what their mean is above what was expected of
    them [2, n], as far as that is believed; and of requests like those, of its own if there are, what is expected [n],
    and by traits alone [n]. `learned` [n, K]: weights of traits; `p` [n]: of this request, where there is none."""
    weight = np.maximum(rows[..., 0], 0.0)
    means = rows / np.where(weight > 0, weight, 1.0)[..., None]
    foretold = means[..., 2]
    there = np.where(weight > 0, kept(foretold + np.einsum("snk,nk->sn", means[..., 5:], learned)), p)
    # Each weighs 1 ÷ the noise that was expected of it, of which this is the mean.
    count = weight * np.maximum(foretold - means[..., 3] + NOISE_FLOOR, NOISE_FLOOR)
    above = np.where(weight > 0, believed(means[..., 1] + foretold - there, count, there), 0.0)
    first = (weight[1] > 0).astype(np.intp), np.arange(len(p))
    # Where nearly all pass, or fail, others' outcomes move a rate by less.
    above[0] *= np.minimum(doubt(there[first]) / doubt(there[0]), 1.0)
    return count, above, there[first], foretold[first]


def _carried(rates: Vector, observed: Vector, apart: float) -> tuple[Vector, Vector]:
    """From what requests like those observed pass to this one: its mean [n], and [3, n] were it easier or harder than
    it looks. By as much as the odds moved, and by how it looks against the others.

    `rates` [8, n]: what they pass, and what was expected of them; this one and they by traits alone; this one, as
    expected, and by its nodes. `observed` [n]: whether there are any; `apart`: see `_apart`."""
    (reached, there), rates = rates[:2], kept(rates)
    as_reached, as_there, as_prior, as_foretold, *as_looks = np.log(rates / (1 - rates))
    odds = as_reached - as_there
    unsure = np.where(observed, min(apart, 1.0), 1.0) * (np.array(as_looks) - as_looks[0])
    # What is left of how it looked by itself, once what was learned of all requests is taken into account.
    by_looks, left = as_prior - as_foretold, as_looks[0] - as_there
    by_looks = np.where(observed & (by_looks * left > 0), np.clip(left, -abs(by_looks), abs(by_looks)), 0.0)
    as_looks = as_looks[0] + (apart - 1) * by_looks + unsure
    looks = 1 / (1 + np.exp(-as_looks))
    # Where requests are far from what they look like, one that looks a little easier is no easier.
    unclear = odds * odds / (odds * odds + MISREAD)
    odds -= np.where(observed, np.clip(as_looks[0] - as_there, -unclear, unclear), 0.0)
    # Nor does a rate near 0 or 1, which a few odd answers move by logits, say as much of requests that are harder.
    most = np.where(observed, np.abs(reached - there), 1.0)
    mean, *moved = kept(looks + np.clip(1 / (1 + np.exp(-as_looks - odds)) - looks, -most, most))
    return mean, np.array(moved)


def cusum(sides: tuple[float, float], surprise: float, slack: float) -> tuple[float, float]:
    """By how much surprises went below 0 of late, and above, beyond the slack of each (Page 1954)."""
    return max(sides[0] - surprise - slack, 0.0), max(sides[1] + surprise - slack, 0.0)


Watched = tuple[float, float, float]


class _TemplateSums(Fading):
    """`watched`: outcomes since the template was last found to be another, and how far its answers have been worse of
    late than before, and better, in standard deviations of a score."""

    watched: Watched = 0.0, 0.0, 0.0

    def watch(self, target: int, sums: Vector, weight: float) -> None:
        """Before an outcome is added: where the template is another under its name, in code or in what it is sent,
        what was observed of all targets there hardly counts any more."""
        row, (count, worse, better) = self.sums[target], self.watched
        if count >= SETTLED and row[0] > 0:
            usual, foretold, score = sum(row[1:3]) / row[0], row[2] / row[0], sum(sums[1:3]) / sums[0]
            # Weighted as the mean is, so that the sum of surprises stays near 0 whatever requests look like.
            surprise = float((score - usual) * sums[0] / weight * noise(foretold) / math.sqrt(noise(usual)))
            surprise = min(max(surprise, -MOST_SURPRISE), MOST_SURPRISE)
            worse, better = cusum((worse, better), weight * surprise, weight * CHANGE_SLACK)
            if max(worse, better) > CHANGED:
                self.sums *= np.minimum(LEFT / np.maximum(self.sums[:, :1], 1e-9), 1.0)
                count = worse = better = 0.0
        self.watched = count + weight, worse, better


class Templates:
    """Of T targets by name, in K traits. One thread. By template, sums [T, 5 + K] of its outcomes: 1 ÷ variance of an
    outcome; times what it is above what traits foretell; times what they foretell; times the square of that, and both
    together; times its traits."""

    def __init__(self, targets: Sequence[str], traits: int) -> None:
        self._targets, self._shape = tuple(targets), (len(targets), 5 + traits)
        self._known = Recent[str, _TemplateSums](MOST_TEMPLATES, lambda: _TemplateSums(self._shape), str)

    def observe(self, template: str, target: int, sums: Vector, at_ms: int, weight: float) -> None:
        """Those of an outcome [5 + K]: its score less what its traits foretold, before anything was learned. Negative
        ones take the same outcome back. `weight`: of an outcome."""
        known = self._known.used(template)
        before = _for_others(known.sums)
        left, share = known.fade(at_ms)
        if weight > 0:
            known.watch(target, sums, weight)
        known.sums[target] += sums * share
        self._tell_others(template, known, before * left)

    def _tell_others(self, template: str, known: _TemplateSums, before: Vector) -> None:
        """What it says for its application is no more what it said before."""
        if application := application_of(template):
            of_all = self._known.used(application)
            of_all.sums += (_for_others(known.sums) - before) * of_all.fade(known.at_ms)[1]

    def apply(
        self, template: str, prior: Vector, nodes: Vector, own_sd: Vector, learned: Vector, at: NDArray[np.intp]
    ) -> tuple[Vector, Vector]:
        """Pass rates [3, n] and own deviations [n] of the targets `at` [n], corrected by outcomes of the template, if
        any is remembered of it or of its application: by as much as the odds of the requests that were observed, which
        may be easier or harder than this one.

        `prior` [n]: foretold by traits alone; `learned` [T, K]: weights of traits that are already in `nodes`."""
        rows = self._rows(template, at)
        if rows is None:
            return nodes, own_sd
        # Templates of an application differ in more than in how hard they look: what fails in one says nothing of that.
        p, apart = NODE_WEIGHTS @ nodes, _apart(rows[1]) if rows[1].any() else 1.0
        outcomes, above, there, foretold = _observed(rows, learned[at], p)
        count = outcomes.sum(0)
        variance, observed = there * (1 - there) + NOISE_FLOOR, count > 0
        doubt_p, doubt_there, doubt_prior = doubt(np.array((p, there, prior)))
        # Of requests like those observed: what all targets share, and what is each one's own.
        steep = np.sqrt(NODE_WEIGHTS @ (nodes - p) ** 2) * there * (1 - there) / (p * (1 - p))
        own = (own_sd * doubt_there / doubt_prior) ** 2 + variance / EXPECTED
        # What others say changes what is expected, with which its own outcomes are compared.
        of_others, of_its_own, of_all = 1 - variance / (own * np.vstack((outcomes, count)) + variance)
        moved = of_others * above[0]
        moved += of_its_own * (above[1] - moved)
        precision = 1 / SHARED + (steep**2 * of_all / own).sum()
        shared = steep * float((steep * moved / own).sum() / precision)
        reached = kept(there + (1 - of_all) * shared + moved)
        mean, by_node = _carried(np.vstack((reached, there, prior, foretold, p, nodes)), observed, apart)
        # As sure as own outcomes make it, at the rate that they show.
        doubt_reached, doubt_mean = doubt(np.array((reached, mean)))
        of_own = np.sqrt(of_all * (reached * (1 - reached) + NOISE_FLOOR) / np.where(observed, count, 1.0))
        surer = np.minimum(own_sd * doubt_reached / doubt_p, of_own) * doubt_mean / doubt_reached
        own_sd = np.where(observed, surer, np.hypot(own_sd * doubt_mean / doubt_p, CARRIED * (mean - p)))
        spread = (by_node - NODE_WEIGHTS @ by_node) * np.sqrt(1 - SHARED + 1 / precision)
        # No further than to what a rate may be, so that the mean stays what it is.
        room = np.minimum((1 - LEAST - mean) / (spread.max(0) + 1e-9), (mean - LEAST) / (1e-9 - spread.min(0)))
        return mean + spread * np.minimum(room, 1.0), own_sd

    def _rows(self, template: str, at: NDArray[np.intp]) -> Vector | None:
        """Sums [2, n, 5 + K] of its application's others, like a few outcomes, and of a template; None: of neither."""
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
        """What was observed of this target counts 1/`factor`."""
        for template, known in list(self._known.items()):
            before = _for_others(known.sums)
            if len(template) != APPLICATION_DIGITS:
                known.sums[target] /= factor
            self._tell_others(template, known, before)

    def state(self) -> list[tuple[State, Watched]]:
        """Everything observed, for `restore`; of each template also what was `watched`."""
        return [(pack(template, known, self._targets, "<f4"), known.watched) for template, known in self._known.items()]

    def restore(self, states: Sequence[tuple[State, Watched]]) -> None:
        """In a new one: see `unpack`."""
        for state, watched in states[-MOST_TEMPLATES:]:
            known = self._known[state[0]]
            unpack(state, known, self._targets, "<f4")
            known.watched = watched
