"""Which target to take at a price of failure: the best single one, left only where that paid on prompts held out."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from router.estimate.outcome_table import Floats, Ints

BARELY = 0.25
"""Of a standard error: by so little no single target is better than another, and the cheaper one is taken."""
CAUTION = 2.0
"""Standard errors by which gains are lowered before they are compared, and must be above none: the best of many offers
is mostly a lucky one."""
HARM = 0.003
"""Share of the baseline's loss that leaving it may have cost on groups held out whole."""
OTHERS = (1, 2, 4, 1000)
"""Targets for which the baseline may be left: few are judged more surely than many."""
GAINS = (0.0, 0.1, 0.2, 0.3)
"""Of the baseline's expected loss, what leaving must promise."""
SHARES = (1.0, 0.75, 0.5, 0.25)
"""Of the known prompts, the most familiar ones: of these, leaving may be judged apart."""


class Trial(NamedTuple):
    """What was predicted of prompts without their `fold` [n]: `p`, `cost` [n, T], `unfamiliarity` [n]."""

    p: Floats
    cost: Floats
    unfamiliarity: Floats
    fold: Ints


class _Terms(NamedTuple):
    """Leave the baseline for targets of `others` [T] and a gain above `gain`, up to this `unfamiliarity`."""

    others: NDArray[np.bool_]
    gain: float
    unfamiliarity: float


class _Tried(NamedTuple):
    """Of each prompt held out: what each target was expected to lose and lost [n, T], the baseline that the other folds
    had [n], unfamiliarity [n]."""

    expected: Floats
    real: Floats
    base: Ints
    unfamiliarity: Floats

    def came(self, terms: _Terms) -> Floats:
        """What each prompt gained on these terms [n]; 0 where it stayed, or nothing is known."""
        rows = np.arange(len(self.base))
        choice = _choice(self.expected, self.base, self.unfamiliarity, terms)
        gained = self.real[rows, self.base] - self.real[rows, choice]
        return np.where(np.isfinite(gained), gained, 0.0)

    def promising(self, base: int) -> Ints:
        """All targets but `base`, by what they promised to win as the best ones."""
        rows = np.arange(len(self.base))
        best = self.expected.argmin(1)
        gain = self.expected[rows, self.base] - self.expected[rows, best]
        order = np.bincount(best, gain, minlength=self.expected.shape[1]).argsort(kind="stable")[::-1]
        return np.asarray(order[order != base], np.intp)


class Rules(NamedTuple):
    """All that a choice goes by; arrays [n, T] of the prompts of the fit, NaN where nothing was observed."""

    score: Floats
    cost: Floats
    known: Trial
    strange: Trial

    def baseline(self, price: float) -> int:
        """The single target with the least mean of cost + price · (1 − score), or one that barely differs for less."""
        return _baseline(self.score, self.cost, price)

    def choose(self, p: Floats, cost: Floats, unfamiliarity: Floats, price: float) -> Ints:
        """The column [n] for prompts with predicted `p` and `cost` [n, T]."""
        base = np.full(len(p), self.baseline(price))
        terms = self._terms(int(base[0]), price) if len(base) else None
        return _choice(cost + price * (1 - p), base, unfamiliarity, terms) if terms else base

    def _terms(self, base: int, price: float) -> _Terms | None:
        """On which leaving paid most on known prompts, surely and without harm to strangers; None: on none."""
        known, strange = (self._tried(trial, price) for trial in (self.known, self.strange))
        allowed = -HARM * float(np.nansum(known.real[:, base]))
        best, most = None, 0.0
        for terms in _offers(known, base):
            came = known.came(terms)
            surely = float(came.sum() - CAUTION * np.sqrt(len(came)) * came.std())
            if surely > most and self._harmless(strange.came(terms), allowed):
                best, most = terms, surely
        return best

    def _harmless(self, gains: Floats, allowed: float) -> bool:
        """Groups held out gained, less one standard error over them, at least `allowed`."""
        by_group = np.bincount(self.strange.fold, gains)
        error = np.sqrt(len(by_group) * by_group.var(ddof=1)) if len(by_group) > 1 else 0.0
        return bool(by_group.sum() - error >= allowed)

    def _tried(self, trial: Trial, price: float) -> _Tried:
        base = np.zeros(len(trial.fold), np.intp)
        for number in np.unique(trial.fold):
            rest = trial.fold != number
            base[~rest] = _baseline(self.score[rest], self.cost[rest], price)
        real = self.cost + price * (1 - self.score)
        return _Tried(trial.cost + price * (1 - trial.p), real, base, trial.unfamiliarity)


def _baseline(score: Floats, cost: Floats, price: float) -> int:
    loss = cost + price * (1 - score)
    means = _means(loss)
    best = int(means.argmin())
    if np.isinf(means[best]):
        return best
    apart = loss - loss[:, [best]]
    error = np.sqrt(_means(apart**2) / np.maximum(np.isfinite(apart).sum(0), 1))
    near = np.flatnonzero(np.isfinite(error) & (means <= means[best] + BARELY * error))
    return int(near[_means(cost)[near].argmin()])


def _means(values: Floats) -> Floats:
    """[T] of [n, T] with gaps; infinite where there are only gaps."""
    seen = np.isfinite(values)
    count = seen.sum(0)
    means: Floats = np.where(count > 0, np.where(seen, values, 0.0).sum(0) / np.maximum(count, 1), np.inf)
    return means


def _offers(known: _Tried, base: int) -> Iterator[_Terms]:
    order, targets = known.promising(base), known.expected.shape[1]
    ranges = [np.inf if share == 1 else float(np.quantile(known.unfamiliarity, share)) for share in SHARES]
    for number in sorted({min(number, targets - 1) for number in OTHERS}):
        others = np.isin(np.arange(targets), order[:number])
        yield from (_Terms(others, gain, most) for most in ranges for gain in GAINS)


def _choice(expected: Floats, base: Ints, unfamiliarity: Floats, terms: _Terms) -> Ints:
    """The column [n], from what each target is expected to lose [n, T]."""
    rows = np.arange(len(base))
    stay = expected[rows, base]
    best = np.where(terms.others, expected, np.inf).argmin(1)
    leave = (stay - expected[rows, best] > terms.gain * stay) & (unfamiliarity <= terms.unfamiliarity)
    choice: Ints = np.where(leave, best, base)
    return choice
