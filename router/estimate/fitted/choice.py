"""Which target to take at a price of failure: the best single one, left only where that paid on prompts held out."""

from typing import NamedTuple

import numpy as np

from router.estimate.fitted.folds import Floats, Ints

CAUTION = 3.0
"""Standard errors that a gain must have over none: the best of about a hundred offers has two by luck alone."""
HARM = 0.003
"""Share of the baseline's loss that leaving it may have cost on groups held out whole."""
SHARES = (1.0, 0.9, 0.75, 0.5, 0.25)
"""Of the known prompts, the most familiar ones: of these, leaving may be judged apart."""
STEPS = 24


class Trial(NamedTuple):
    """What was predicted of prompts: `p`, `cost` [n, T], `unfamiliarity` [n]."""

    p: Floats
    cost: Floats
    unfamiliarity: Floats


class _Terms(NamedTuple):
    """Leave the baseline for a gain above `gain`, up to this `unfamiliarity`."""

    gain: float
    unfamiliarity: float


_NEVER = _Terms(np.inf, 0.0)


class _Tried(NamedTuple):
    """Of each prompt held out [n]: gain that was predicted, gain that came, unfamiliarity."""

    gain: Floats
    real: Floats
    unfamiliarity: Floats

    def came(self, terms: _Terms) -> Floats:
        """What each prompt on these terms gained."""
        return self.real[(self.gain > terms.gain) & (self.unfamiliarity <= terms.unfamiliarity)]


class Rules(NamedTuple):
    """All that a choice goes by; arrays [n, T] of the prompts of the fit, NaN where nothing was observed."""

    score: Floats
    cost: Floats
    known: Trial
    strange: Trial

    def baseline(self, price: float) -> int:
        """The single target with the least mean of cost + price · (1 − score)."""
        loss = self.cost + price * (1 - self.score)
        seen = np.isfinite(loss)
        count = seen.sum(0)
        means = np.where(seen, loss, 0.0).sum(0) / np.maximum(count, 1)
        return int(np.where(count > 0, means, np.inf).argmin())

    def choose(self, p: Floats, cost: Floats, unfamiliarity: Floats, price: float) -> Ints:
        """The column [n] for prompts with predicted `p` and `cost` [n, T]."""
        base = self.baseline(price)
        best, gain = _best(Trial(p, cost, unfamiliarity), base, price)
        terms = self._terms(base, price)
        leave = (gain > terms.gain) & (unfamiliarity <= terms.unfamiliarity)
        choice: Ints = np.where(leave, best, base)
        return choice

    def _terms(self, base: int, price: float) -> _Terms:
        """On which leaving paid most on known prompts, surely and without harm to strangers; never, if on none."""
        known, strange = (self._tried(trial, base, price) for trial in (self.known, self.strange))
        loss = (self.cost + price * (1 - self.score))[:, base]
        allowed = -HARM * np.nansum(loss)
        if not (known.gain > 0).any():
            return _NEVER
        steps = np.quantile(known.gain[known.gain > 0], np.linspace(0, 0.99, STEPS))
        ranges = np.quantile(known.unfamiliarity, SHARES)
        offers = [_Terms(float(gain) * 0.999, float(most)) for most in ranges for gain in steps]
        paid = {terms: _surely(known.came(terms)) for terms in offers if strange.came(terms).sum() >= allowed}
        best = max(paid, key=lambda terms: paid[terms], default=None)
        return best if best and paid[best] > 0 else _NEVER

    def _tried(self, trial: Trial, base: int, price: float) -> _Tried:
        best, gain = _best(trial, base, price)
        loss = self.cost + price * (1 - self.score)
        real = loss[:, base] - loss[np.arange(len(loss)), best]
        seen = np.isfinite(real)
        return _Tried(gain[seen], real[seen], trial.unfamiliarity[seen])


def _surely(gains: Floats) -> float:
    return float(gains.sum() - CAUTION * np.sqrt((gains**2).sum()))


def _best(trial: Trial, base: int, price: float) -> tuple[Ints, Floats]:
    expected = trial.cost + price * (1 - trial.p)
    best = expected.argmin(1)
    return best, expected[:, base] - expected[np.arange(len(expected)), best]
