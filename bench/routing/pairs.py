"""Two models, a weak and a strong one: what a share of strong calls buys (RouteLLM, arXiv 2406.18665)."""

from typing import NamedTuple

import numpy as np

from bench.routing.metrics import Floats, Ints, once


class Gain(NamedTuple):
    """Along the share of strong calls, which the prompts with the highest merit get first. Equals share their calls, so
    the curve is straight there. Both [R, corners], from 0 to 1; `recovered` is (router − weak) / (strong − weak)."""

    share: Floats
    recovered: Floats


def gain(merit: Floats, weak: Floats, strong: Floats, weights: Floats | None = None) -> Gain:
    """`merit` [n]: how much the router thinks the strong one adds; `weak`, `strong` [n]: true scores. Prompts where a
    score is NaN are left out."""
    scored = np.isfinite(weak) & np.isfinite(strong)
    given = (once(len(merit)) if weights is None else weights)[:, scored]
    order = np.argsort(-merit[scored], kind="stable")
    ranked, added = merit[scored][order], (strong - weak)[scored][order]
    last = np.flatnonzero(np.append(np.diff(ranked) != 0, True))
    drawn = given[:, order]
    with np.errstate(invalid="ignore", divide="ignore"):
        return Gain(*(_share(drawn * each)[:, [0, *(last + 1)]] for each in (np.ones(len(order)), added)))


def within(merit: Floats, fold: Ints) -> Floats:
    """Merit as its rank among the prompts of its own fold, 0 to 1: each fold gets the same share of strong calls.
    A fold that was left out as a whole was predicted by a fit that lacked just its prompts, so levels of folds don't
    compare: the more the strong one adds there, the less the others say it does."""
    rank = np.empty(len(merit))
    for number in set(fold.tolist()):
        own = merit[fold == number]
        ordered = np.sort(own)
        below, upto = np.searchsorted(ordered, own, "left"), np.searchsorted(ordered, own, "right")
        rank[fold == number] = (below + upto) / (2 * len(own))
    return rank


def _share(parts: Floats) -> Floats:
    sums = np.column_stack([np.zeros(len(parts)), np.cumsum(parts, axis=1)])
    return sums / sums[:, -1:]


def apgr(curve: Gain) -> Floats:
    """Mean of what is recovered over the share of strong calls [R]; 0.5 is a random router."""
    widths, heights = np.diff(curve.share, axis=1), curve.recovered
    area: Floats = (widths * (heights[:, 1:] + heights[:, :-1]) / 2).sum(1)
    return area


def cpt(curve: Gain, part: float) -> Floats:
    """Least share of strong calls that recovers this part of the gap [R]: 0.5 for CPT50."""
    return np.array([_first(*each, part) for each in zip(*curve, strict=True)])


def _first(share: Floats, recovered: Floats, part: float) -> float:
    reached = np.flatnonzero(recovered >= part)
    if not len(reached):
        return float("nan")
    right = int(reached[0])
    if right == 0:
        return 0.0
    rise = recovered[right] - recovered[right - 1]
    return float(share[right - 1] + (share[right] - share[right - 1]) * (part - recovered[right - 1]) / rise)
