"""What a prompt would cost with each target: the mean, and an interval that holds four times in five.

log cost = the target's level + what the prompt costs more with any target + what it costs more with this one. Two sets
of heads are fitted: one for prompts like the known ones, judged on rows left out at random, and one for others, judged
on groups left out whole, which therefore trusts the text less and ends nearer to the levels. Unfamiliarity is the
chance that a prompt is of the second kind, and mixes them.

The mean is the mean: summed over many prompts it is the bill. Where a few runaway answers make up most of a target's
bill, that is several times what a typical prompt costs, so no one number can be right in total and near for most
prompts: `median` is the second.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from router.estimate.fitted.cost_levels import Levels, levels
from router.estimate.fitted.folds import Floats, Ints, clusters, group_folds, random_folds
from router.estimate.fitted.heads import Heads, heads, splits
from router.estimate.fitted.quantiles import PRIOR_ROWS, WIDEST, Band, band, weighted_quantile, widening
from router.features.embedding import DIMENSIONS
from router.features.features import NAMES

Matrix = NDArray[np.float32]

FOLDS = 5
HELD_OUT = 8
"""Folds of whole groups, at most."""
CLUSTERS = 8
"""Groups made from the looks where only one is named."""
TEXT = 16.0
"""Length of the embedding's part: about 1 per dimension."""
MARK = 6.0
"""Weight of a cheap feature, in dimensions of the embedding: costs follow length and form more than topic."""
CLIP = 4 * MARK
LEAST_SD = 0.02
"""A feature that hardly varies in the data says nothing, however far a new prompt is off."""
FEWEST = 30
"""Prompts with costs below which nothing is read from a text."""
SIZES = [DIMENSIONS + NAMES.index(name) for name in ("log_characters", "log_words", "log_lines", "function_characters")]
"""All that is read from a stranger: longer requests cost more anywhere, and what else makes one dear stays behind."""
MEAN_ROWS = 5.0
"""What the ratio of mean to median of all targets weighs, in rows, against a target's own."""
LEAST_SPREAD = 0.05
ROUNDS = 8
OUTER = (0.005, 0.995)
"""No prompt is taken to be farther from usual than these quantiles of the known ones."""


class CostPrediction(NamedTuple):
    """Each float64 [n, T], USD; NaN for targets of which no cost is known."""

    mean: Floats
    p10: Floats
    p90: Floats
    median: Floats


class Costs(NamedTuple):
    """Arrays only. Heads: T targets, the work, the spread; for familiar prompts and then for others."""

    centre: Matrix
    gain: Matrix
    weights: Matrix
    """[K, 2 (T + 2)]"""
    level: Floats
    """[T], mean log cost."""
    reach: Floats
    """[2, 2]: least and most of what a target's head, and of what the spread's, may say."""
    to_mean: Floats
    """[2, T]: log of mean cost ÷ exp(predicted log cost), familiar and not."""
    middle: Floats
    below: Floats
    above: Floats
    wider: Floats
    """[2]: log of how much wider the interval is, familiar and not."""
    usual_work: Floats
    """[1]: log of the mean work."""

    @classmethod
    def fit(
        cls,
        looks: Matrix,
        labels: Ints,
        costs_usd: Floats,
        groups: Ints,
        output_tokens: Floats | None = None,
        unfamiliarity: tuple[Floats, Floats] | None = None,
    ) -> "Costs":
        """From `looks` [n, K], `costs_usd` and `output_tokens` [n, T] (NaN where unknown), `groups` and `labels` [n].

        `groups`: what is held out whole to see how far the text can be trusted elsewhere; where there is but one,
        `labels` or else clusters of the looks stand in. `unfamiliarity` [n] and [n]: of each row with a random part of
        the rows left out, and with its whole group left out, so that intervals hold at both; without it, 0 and 1.
        """
        shares = unfamiliarity or (np.zeros(len(looks)), np.ones(len(looks)))
        return _fit(looks, labels, costs_usd, groups, output_tokens, shares)

    def predict(self, looks: Matrix, unfamiliarity: Floats) -> CostPrediction:
        """Of prompts [n, K], each with its `unfamiliarity` [n] from 0 to 1."""
        share, said = self._said(looks, unfamiliarity)
        log = self.level + np.clip(said[:, : len(self.level)], *self.reach[0])
        width = np.exp(np.clip(said[:, -1:], *self.reach[1]) + _mix(self.wider[:1], self.wider[1:], share))
        middle = log + self.middle
        return CostPrediction(
            np.exp(log + _mix(self.to_mean[0], self.to_mean[1], share)),
            np.exp(middle - np.minimum(self.below * width, WIDEST)),
            np.exp(middle + np.minimum(self.above * width, WIDEST)),
            np.exp(middle),
        )

    def work(self, looks: Matrix, unfamiliarity: Floats) -> Floats:
        """How much more output than usual prompts need with any target [n]; 1 on average over the known ones."""
        _, said = self._said(looks, unfamiliarity)
        found: Floats = np.exp(np.clip(said[:, -2], *self.reach[0]) - self.usual_work)
        return found

    def _said(self, looks: Matrix, unfamiliarity: Floats) -> tuple[Floats, Floats]:
        share = unfamiliarity[:, None]
        both = _rows(looks, self.centre, self.gain) @ self.weights
        half = both.shape[1] // 2
        return share, _mix(both[:, :half], both[:, half:], share)


def _mix(familiar: Floats | Matrix, other: Floats | Matrix, share: Floats) -> Floats:
    mixed: Floats = familiar + share * (other - familiar)
    return mixed


def _rows(looks: Matrix, centre: Matrix, gain: Matrix) -> Matrix:
    rows: Matrix = np.minimum(np.maximum((looks - centre) * gain, -CLIP), CLIP)
    return rows


class _Read(NamedTuple):
    """What is read from the text: first of familiar prompts, then of others."""

    costs: tuple[Heads, Heads]
    work: tuple[Heads, Heads]
    spread: tuple[Heads, Heads]
    folds: tuple[Ints, Ints]
    doubt: float
    """Of groups held out, in folds."""


def _fit(
    looks: Matrix, labels: Ints, costs_usd: Floats, groups: Ints, tokens: Floats | None, shares: tuple[Floats, Floats]
) -> Costs:
    costs_usd = np.where(np.isfinite(costs_usd) & (costs_usd >= 0), costs_usd, np.nan)
    some = np.isfinite(costs_usd).any(1)
    centre, gain = _scales(looks[some])
    z = _rows(looks[some], centre, gain).astype(float)
    costs = levels(costs_usd[some])
    work = costs.shared if tokens is None else levels(tokens[some]).shared
    read = _read(z, costs, work, labels[some], groups[some])
    return _whole(centre, gain, costs_usd[some], costs, read, [share[some][:, None] for share in shares])


def _scales(looks: Matrix) -> tuple[Matrix, Matrix]:
    gain = np.full(looks.shape[1], TEXT, np.float32)
    if not len(looks):
        return np.zeros(looks.shape[1], np.float32), gain
    gain[DIMENSIONS:] = MARK / np.maximum(looks[:, DIMENSIONS:].std(0), LEAST_SD)
    return looks.mean(0), gain


def _read(z: Floats, costs: Levels, work: Floats, labels: Ints, groups: Ints) -> _Read:
    outputs = costs.filled()
    if len(z) < FEWEST:
        nothing, same = (_silent(z, 1),) * 2, np.zeros(len(z), np.intp)
        return _Read((_silent(z, outputs.shape[1]),) * 2, nothing, nothing, (same, same), 1.0)
    folds, kinds = _folds(z, labels, groups)
    pair = splits(z, folds[0]), splits(z, folds[1])
    sizes = splits(z[:, SIZES], folds[0]), splits(z[:, SIZES], folds[1])
    trust = 1 - 1 / kinds

    def both(values: Floats, seen: NDArray[np.bool_]) -> tuple[Heads, Heads]:
        return heads(pair, values, seen, 0, 1.0), _placed(heads(sizes, values, seen, 1, trust), z.shape[1])

    every = np.ones((len(z), 1), bool)
    found = both(outputs, np.isfinite(costs.away))
    spread = heads(pair, _spread(costs.away - found[0].said[0]), every, 0, 1.0)
    doubt = (int(folds[1].max()) + 1) / kinds
    return _Read(found, both(work[:, None], every), (spread, _silent(z, 1)), folds, doubt)


def _folds(z: Floats, labels: Ints, groups: Ints) -> tuple[tuple[Ints, Ints], int]:
    """At random, and by groups; and how many groups, really different ones, these folds hold out."""
    _, same = np.unique(z, axis=0, return_inverse=True)
    named = groups if len(np.unique(groups)) > 1 else labels
    single = len(np.unique(named)) == 1
    apart = group_folds(clusters(z.astype(np.float32), CLUSTERS) if single else named, HELD_OUT)
    return (random_folds(same, FOLDS), apart), 1 if single else int(apart.max()) + 1


def _placed(head: Heads, columns: int) -> Heads:
    """With weights of sizes where a whole row has them."""
    weights = np.zeros((columns, head.weights.shape[1]))
    weights[SIZES] = head.weights
    return head._replace(weights=weights)


def _silent(z: Floats, outputs: int) -> Heads:
    nothing = np.zeros((len(z), outputs))
    return Heads(np.zeros((z.shape[1], outputs)), (nothing, nothing))


def _spread(residuals: Floats) -> Floats:
    """[n, 1]: log of how far off a prompt's costs are, against what is usual for each target; 0 on average."""
    known = np.isfinite(residuals)
    square = np.where(known, residuals, 0.0) ** 2
    square /= np.maximum(square.sum(0) / np.maximum(known.sum(0), 1), 1e-9)
    log = np.log(np.sqrt(square.sum(1, keepdims=True) / known.sum(1, keepdims=True)) + LEAST_SPREAD)
    centred: Floats = log - log.mean()
    return centred


def _whole(centre: Matrix, gain: Matrix, costs_usd: Floats, costs: Levels, read: _Read, shares: list[Floats]) -> Costs:
    """The scales of means and intervals come from what the mixed heads said of rows left out."""
    reach = np.array([_reach(heads[0].said[0]) for heads in (read.costs, read.spread)])
    said = [np.clip(_left_out(read.costs, side, share), *reach[0]) for side, share in enumerate(shares)]
    width = [np.exp(np.clip(_left_out(read.spread, side, share), *reach[1])) for side, share in enumerate(shares)]
    off = [costs.away - values for values in said]
    found = band(off[0] / width[0])
    wider = _wider(off, width, shares, found, read)
    to_mean = np.array([_to_mean(costs_usd, costs.level + values) for values in said])
    work = np.exp(np.clip(read.work[0].said[0], *reach[0])).mean() if len(costs_usd) else 1.0
    parts = (read.costs, read.work, read.spread)
    weights = np.column_stack([part[side].weights for side in range(2) for part in parts]).astype(np.float32)
    return Costs(centre, gain, weights, costs.level, reach, to_mean, *found, wider, np.array([np.log(work)]))


def _wider(off: list[Floats], width: list[Floats], shares: list[Floats], found: Band, read: _Read) -> Floats:
    """[2], so that with `shares` of both, intervals hold for rows left out at random and for groups left out."""
    doubts = PRIOR_ROWS * len(np.unique(read.folds[0])) / max(len(off[0]), 1), read.doubt
    wider = np.zeros(2)
    for _ in range(ROUNDS):
        for side, (residuals, size, share, doubt) in enumerate(zip(off, width, shares, doubts, strict=True)):
            grown = np.exp(_mix(wider[:1], wider[1:], share))
            wider[side] += np.log(widening(residuals, found, size, grown, read.folds[side], doubt))
        wider[1] = max(wider)
    return wider


def _left_out(pair: tuple[Heads, Heads], side: int, share: Floats) -> Floats:
    return _mix(pair[0].said[side], pair[1].said[side], share)


def _reach(said: Floats) -> Floats:
    if not said.size:
        return np.zeros(2)
    found: Floats = np.quantile(said, OUTER)
    return found


def _to_mean(costs_usd: Floats, log: Floats) -> Floats:
    """[T]: log of real cost ÷ exp(log cost) in total (Duan's smearing factor, so that the bill comes out)."""
    known = np.isfinite(costs_usd) & np.isfinite(log)
    typical = np.exp(np.where(known, log, -np.inf))
    scale = typical.sum(0) / np.maximum(known.sum(0), 1)
    real = np.where(known, costs_usd, 0.0).sum(0) / np.maximum(scale, 1e-300)
    rows = known.sum(0)
    paid = real > 0
    pooled = weighted_quantile(real[paid] / rows[paid], rows[paid], 0.5) if paid.any() else 1.0
    found: Floats = np.log((real + MEAN_ROWS * pooled) / (rows + MEAN_ROWS))
    return found
