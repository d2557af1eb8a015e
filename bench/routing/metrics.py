"""How good a router is, as pure functions of arrays.

Letters in shapes: n prompts, T targets, R resamples. What really happened is a `Truth`; NaN in it is "not observed",
and such a cell is never chosen. `weights` [R, n] says how often each resample drew each prompt (`bootstrap.draw`);
without them every prompt counts once and R is 1. Money is in USD. So with `swept = sweep(p, cost, truth)`,
`interval(lambda w: aiq_norm(swept, truth, w), n)` is a value with its 95 % interval, and two routers compared under the
same weights are compared in pairs.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

POINTS = 512
"""Of a swept curve: switches are grouped to at most so many, which moves AIQ_norm by less than 0.001."""
NO_ROOM = 1e-12
"""Less head-room of the oracle over random mixing is none."""
DIGITS = 12
"""Of the largest cost: sums in another order differ beyond."""
CHUNK = 16
"""Resamples at a time, for the sake of memory."""


class Truth(NamedTuple):
    """Scores (1 correct, 0 wrong, fractions where graded) and costs, both [n, T]. NaN: not observed."""

    score: Floats
    cost: Floats

    @property
    def observed(self) -> NDArray[np.bool_]:
        return np.isfinite(self.score) & np.isfinite(self.cost)


class Points(NamedTuple):
    """Mean cost and accuracy, both [R, points]."""

    cost: Floats
    accuracy: Floats


class Sweep(NamedTuple):
    """argmax(p − λ·cost) for every λ from infinity to 0: what each prompt starts with [n], then every switch in order
    of falling λ: of which prompt [switches], and what that adds to its true cost and score. NaN in `cost`: nothing was
    observed of that prompt."""

    cost: Floats
    score: Floats
    rate: Floats
    """λ of the switches, 1/USD."""
    prompt: Ints
    more_cost: Floats
    more_score: Floats


def sweep(p: Floats, cost: Floats, truth: Truth) -> Sweep:
    """`p` and `cost` [n, T] are what the router believes. Exact: every λ at which a choice changes."""
    allowed = truth.observed & np.isfinite(p) & np.isfinite(cost)
    price, every = np.where(allowed, cost, np.inf), np.arange(len(p))
    now = _cheapest(p, price)
    first, steps = now.copy(), []
    while True:
        rate = _rates(p, price, now)
        then = rate.argmax(1)
        moving = np.flatnonzero(rate[every, then] > 0)
        if not len(moving):
            break
        steps.append((rate[moving, then[moving]], moving, now[moving], then[moving]))
        now[moving] = then[moving]
    switches = [np.concatenate(parts) for parts in zip(*steps, strict=True)] if steps else [np.zeros(0, int)] * 4
    rates, prompt, left, right = (column[np.argsort(-switches[0], kind="stable")] for column in switches)
    start = np.where(allowed.any(1), truth.cost[every, first], np.nan)
    more = [values[prompt, right] - values[prompt, left] for values in (truth.cost, truth.score)]
    return Sweep(start, truth.score[every, first], rates.astype(float), prompt.astype(np.intp), *more)


def _cheapest(p: Floats, price: Floats) -> Ints:
    """λ at infinity: least cost; of equals the better one."""
    least = price == price.min(1, keepdims=True)
    best: Ints = np.where(least, p, -np.inf).argmax(1)
    return best


def _rates(p: Floats, price: Floats, now: Ints) -> Floats:
    """The λ [n, T] below which each target beats the present one; 0 where it never does."""
    dearer = price - np.take_along_axis(price, now[:, None], 1)
    better = p - np.take_along_axis(p, now[:, None], 1)
    able = np.isfinite(dearer) & (dearer > 0) & (better > 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(able, better / dearer, 0.0)


def points(swept: Sweep, weights: Floats | None = None) -> Points:
    """The curve, from the cheapest choice of all to the one that ignores cost; switches grouped to at most POINTS."""
    seen = np.isfinite(swept.cost)
    given = np.where(seen, once(len(seen)) if weights is None else weights, 0.0)
    edges = np.unique(np.linspace(0, len(swept.prompt), min(POINTS, len(swept.prompt)) + 1).astype(int))[:-1]
    chunks = [_curve(swept, given[at : at + CHUNK], edges) for at in range(0, len(given), CHUNK)]
    return Points(*(np.concatenate(part) for part in zip(*chunks, strict=True)))


def _curve(swept: Sweep, weights: Floats, edges: Ints) -> tuple[Floats, Floats]:
    drawn, total = weights[:, swept.prompt], weights.sum(1, keepdims=True)

    def along(start: Floats, more: Floats) -> Floats:
        sums = [weights @ np.nan_to_num(start)]
        if len(edges):
            steps = np.add.reduceat(drawn * more, edges, axis=1)
            sums += list(np.cumsum(np.column_stack([sums[0], steps]), axis=1).T[1:])
        found: Floats = np.column_stack(sums) / total
        return found

    return along(swept.cost, swept.more_cost), along(swept.score, swept.more_score)


def singles(truth: Truth, weights: Floats | None = None) -> Points:
    """Every single model, [R, T], over the prompts on which it was observed; NaN where there are none."""
    seen = truth.observed
    given = once(len(seen)) if weights is None else weights
    with np.errstate(invalid="ignore"):
        count = given @ seen
        return Points(*(given @ np.where(seen, values, 0.0) / count for values in (truth.cost, truth.score)))


def hull(cost: Sequence[float] | Floats, accuracy: Sequence[float] | Floats) -> tuple[Floats, Floats]:
    """Upper, non-decreasing convex hull: its corners by rising cost. Points with NaN are left out; costs that differ by
    rounding only are the same."""
    both = np.array([cost, accuracy], float)
    both = both[:, np.isfinite(both).all(0)]
    step = 2.0 ** np.ceil(np.log2(np.abs(both[0]).max(initial=np.finfo(float).tiny)))
    both[0] = np.round(both[0] / step, DIGITS) * step
    chain: list[tuple[float, float]] = []
    for x, y in both[:, np.lexsort((-both[1], both[0]))].T.tolist():
        if chain and y <= chain[-1][1]:
            continue
        while len(chain) > 1 and _below(chain[-2], chain[-1], (x, y)):
            chain.pop()
        chain.append((x, y))
    corners = np.array(chain, float).reshape(-1, 2)
    return corners[:, 0], corners[:, 1]


def _below(left: tuple[float, float], middle: tuple[float, float], right: tuple[float, float]) -> bool:
    """Whether the middle one is on or under the line of the other two."""
    return (middle[1] - left[1]) * (right[0] - middle[0]) <= (right[1] - middle[1]) * (middle[0] - left[0])


def height(corners: tuple[Floats, Floats], low: float, high: float) -> float:
    """Mean height of a hull between two costs; flat to the right of its last corner, and left of its first."""
    x, y = corners
    if high - low <= 10.0**-DIGITS * abs(high):
        return float(np.interp(high, x, y))
    knots = np.unique(np.clip([low, *x, high], low, high))
    return float(np.trapezoid(np.interp(knots, x, y), knots) / (high - low))


def _heights(curve: Points, single: Points) -> Floats:
    """AIQ [R]: between the cheapest and the dearest single model. Always asking the cheapest one is open to every
    router, so its point joins the curve: nothing is claimed at costs below what a router really reaches."""
    found = []
    for x, y, costs, accuracies in zip(*curve, *single, strict=True):
        low, high = float(np.nanmin(costs)), float(np.nanmax(costs))
        cheapest = costs <= low + abs(low) * 10.0**-DIGITS
        found.append(height(hull([*x, *costs[cheapest]], [*y, *accuracies[cheapest]]), low, high))
    return np.array(found)


def aiq(swept: Sweep, truth: Truth, weights: Floats | None = None) -> Floats:
    """Mean height of the router's hull between the cheapest and the dearest single model [R]."""
    return _heights(points(swept, weights), singles(truth, weights))


def aiq_zero(truth: Truth, weights: Floats | None = None) -> Floats:
    """Of random mixing: the hull of the single models [R]."""
    single = singles(truth, weights)
    return _heights(single, single)


def aiq_oracle(truth: Truth, weights: Floats | None = None) -> Floats:
    """Of a sweep that knows every score and cost [R]."""
    return aiq(sweep(*truth, truth), truth, weights)


def aiq_norm(swept: Sweep, truth: Truth, weights: Floats | None = None) -> Floats:
    """0 is random mixing, 1 the oracle [R]. NaN where the oracle is no better than mixing."""
    zero = aiq_zero(truth, weights)
    room = aiq_oracle(truth, weights) - zero
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(room > NO_ROOM, (aiq(swept, truth, weights) - zero) / room, np.nan)


def choose(p: Floats, cost: Floats, price: float, truth: Truth | None = None) -> Ints:
    """argmin(cost + price·(1 − p)) per prompt [n]; with `truth`, among what was observed."""
    expected = cost + price * (1 - p)
    least: Ints = np.where(True if truth is None else truth.observed, expected, np.inf).argmin(1)
    return least


def at(values: Floats, choice: Ints) -> Floats:
    """What the chosen targets give [n]."""
    return values[np.arange(len(choice)), choice]


def mean(values: Floats, weights: Floats | None = None) -> Floats:
    """Over prompts [R]; NaN is left out."""
    seen = np.isfinite(values)
    given = once(len(values)) if weights is None else weights
    with np.errstate(invalid="ignore"):
        averages: Floats = given @ np.where(seen, values, 0.0) / (given @ seen)
    return averages


def failure_priced(truth: Truth, choice: Ints, price: float, weights: Floats | None = None) -> Floats:
    """mean(cost + price·(1 − score)) of the chosen targets [R]. `price`: of a failure, USD."""
    return mean(at(truth.cost + price * (1 - truth.score), choice), weights)


def failure_priced_singles(truth: Truth, price: float, weights: Floats | None = None) -> Floats:
    """The same of every single model [R, T]."""
    single = singles(truth, weights)
    return single.cost + price * (1 - single.accuracy)


def best_single(truth: Truth, price: float) -> int:
    """The column with the least failure-priced cost, in hindsight or of a training part. ValueError: none observed."""
    return int(np.nanargmin(failure_priced_singles(truth, price)[0]))


def harm(truth: Truth, choice: Ints, price: float, weights: Floats | None = None) -> Floats:
    """Failure-priced cost over that of the best single model in hindsight, − 1 [R]; each resample has its own one."""
    least = np.nanmin(failure_priced_singles(truth, price, weights), axis=1)
    above: Floats = failure_priced(truth, choice, price, weights) / least - 1
    return above


def cost_of_pass(truth: Truth, choice: Ints, weights: Floats | None = None) -> Floats:
    """Total cost / number correct [R]; infinite when nothing is."""
    with np.errstate(divide="ignore"):
        return mean(at(truth.cost, choice), weights) / mean(at(truth.score, choice), weights)


def once(n: int) -> Floats:
    """Weights of one resample in which every prompt stands once."""
    return np.ones((1, n))
