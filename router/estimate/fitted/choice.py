"""Which target to take at a price of failure: the best single one, left only where that paid on prompts held out."""

from typing import NamedTuple

import numpy as np

from router.estimate.fitted.folds import Floats, Ints

CAUTION = 1.0
"""Standard errors that a gain must have over none."""
STRANGER = 0.5
"""Unfamiliarity from which on leaving must also have paid on groups held out whole."""


class Trial(NamedTuple):
    """What was predicted of prompts held out: `p`, `cost` [n, T]."""

    p: Floats
    cost: Floats


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
        best, gain = _best(Trial(p, cost), base, price)
        least = self._least_gain(self.known, base, price)
        farther = np.maximum(least, self._least_gain(self.strange, base, price))
        leave = gain > np.where(unfamiliarity < STRANGER, least, farther)
        choice: Ints = np.where(leave, best, base)
        return choice

    def _least_gain(self, trial: Trial, base: int, price: float) -> float:
        """The predicted gain from which on leaving the baseline paid most, by what really came of it, or infinity."""
        best, gain = _best(trial, base, price)
        loss = self.cost + price * (1 - self.score)
        real = loss[:, base] - loss[np.arange(len(loss)), best]
        real, gain = (values[np.isfinite(real) & (gain > 0)] for values in (real, gain))
        order = np.argsort(-gain, kind="stable")
        gain, real = gain[order], real[order]
        sums = np.cumsum(real)
        sure = sums - CAUTION * np.sqrt(np.cumsum(real * real))
        if not len(sure) or sure.max() <= 0:
            return np.inf
        last = int(sure.argmax())
        return float(gain[last] + (gain[last + 1] if last + 1 < len(gain) else 0.0)) / 2


def _best(trial: Trial, base: int, price: float) -> tuple[Ints, Floats]:
    expected = trial.cost + price * (1 - trial.p)
    best = expected.argmin(1)
    return best, expected[:, base] - expected[np.arange(len(expected)), best]
