"""From lines to changes: calibrated, corrected where chance asked the new choice before, with intervals.

What a new choice costs is not observed, so it is the model's expectation, times what answers of that target cost
compared with what was expected of them (the direct method). Experiments of the past that asked whom the new policy
would choose say how far that is off: their residuals, each weighted with one over its propensity, are added (the
doubly robust estimator of Dudík, Langford and Li, ICML 2011; its weights normalised by their sum). What was done is
observed.
"""

from typing import NamedTuple

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from router.replay.part import REFUSED, Lines, Part, Seen
from router.replay.read import BUCKETS
from router.replay.replayed import Change, Effect
from router.types.forecast import Vector

RESAMPLES = 500
LEAST_SEEN = 30
"""Answers of a target without which its expected cost is taken as it is."""
LEAST_SAMPLE = 30.0
"""Effective size of the experiments, (Σw)² / Σw² (Kish 1965), below which nothing is corrected by them."""
BETWEEN = (2.5, 97.5)
"""Percentiles of the resamples."""
ALL = ""


class Differences(Struct, frozen=True, eq=False):
    """[rows] each; what is not known of a change is no change here, and told apart."""

    cost: Vector
    passes: Vector
    refusals: Vector
    paid: Vector
    """Under the new policy, nano-USD."""
    no_cost: NDArray[np.bool_]
    no_passes: NDArray[np.bool_]


class _Sums(NamedTuple):
    """[buckets] each: of the rows and experiments of one route."""

    cost: Vector
    passes: Vector
    refusals: Vector
    supported: Vector
    weight: Vector
    residual: Vector
    weight_scored: Vector
    residual_scored: Vector


def factor(seen: Seen) -> float:
    """Observed ÷ expected, where there is enough of both."""
    return seen.observed / seen.expected if seen.answers >= LEAST_SEEN and seen.expected > 0 else 1.0


def differences(part: Part) -> Differences:
    """Of the decisions that change: before any budget stops somebody."""
    rows, changed = part.rows, part.changed
    times = factors(part)
    new = changed["first"] * times[changed["to"]] + changed["second"] * times[changed["then"]]
    at, size = changed["row"], len(rows)
    paid = rows["spent"].astype(np.float64)
    cost, passes = np.zeros(size), np.zeros(size)
    cost[at], passes[at] = new - paid[at], changed["p"] - changed["p_before"]
    paid[at] = np.where(np.isnan(new), paid[at], new)
    refusals = (rows["after"] == REFUSED).astype(np.float64) - (rows["before"] == REFUSED)
    return Differences(np.nan_to_num(cost), np.nan_to_num(passes), refusals, paid, np.isnan(cost), np.isnan(passes))


def factors(part: Part) -> Vector:
    """By the numbers of targets; the last stands for none."""
    return np.array([*(factor(part.seen.get(name, Seen())) for name in part.targets), 1.0])


def effects(part: Part, found: Differences) -> tuple[list[Effect], Effect]:
    """One a route, and of all together."""
    weights = _resampled(part.rows["bucket"])
    drawn = [_effect(part, found, weights, route) for route in range(len(part.routes))]
    routes = [effect for effect, _ in drawn]
    cost, passes, refusals = np.sum([draws for _, draws in drawn], axis=0) if drawn else np.zeros((3, RESAMPLES))
    total = Effect(
        route=ALL,
        requests=len(part.rows),
        changed=len(part.changed),
        spent=int(part.rows["spent"].sum()),
        cost=_change(sum(each.cost.value for each in routes), cost),
        passes=_change(sum(each.passes.value for each in routes), passes),
        refused=int((part.rows["before"] == REFUSED).sum()),
        refusals=_change(sum(each.refusals.value for each in routes), refusals),
        corrected=any(each.corrected for each in routes),
        sample=sum(each.sample for each in routes),
        passes_corrected=any(each.passes_corrected for each in routes),
    )
    return routes, total


def sample(weight: Vector) -> float:
    """Effective size."""
    return float(weight.sum() ** 2 / (weight**2).sum()) if len(weight) else 0.0


def _effect(part: Part, found: Differences, weights: Vector, route: int) -> tuple[Effect, Vector]:
    """And the resamples [3, resamples] of its changes: cost, passes, refusals."""
    mine = part.rows["route"] == route
    trials = part.trials[part.trials["route"] == route]
    scored = trials[np.isfinite(trials["score"])]
    size, size_scored = sample(trials["weight"]), sample(scored["weight"])
    sums = _sums(part, found, mine, trials, scored)
    corrected, passes_corrected = size >= LEAST_SAMPLE, size_scored >= LEAST_SAMPLE
    every = np.ones((1, weights.shape[1]))
    values, draws = (_estimates(each, sums, corrected, passes_corrected) for each in (every, weights))
    rows = part.rows[mine]
    effect = Effect(
        route=part.routes[route],
        requests=len(rows),
        changed=int(mine[part.changed["row"]].sum()),
        spent=int(rows["spent"].sum()),
        cost=_change(values[0][0], draws[0]),
        passes=_change(values[1][0], draws[1]),
        refused=int((rows["before"] == REFUSED).sum()),
        refusals=_change(values[2][0], draws[2]),
        corrected=bool(corrected and sums.supported.any()),
        sample=size,
        passes_corrected=bool(passes_corrected and sums.supported.any()),
    )
    return effect, draws


def _estimates(weights: Vector, sums: _Sums, corrected: bool, passes_corrected: bool) -> Vector:
    """[3, resamples]: changes of cost, passes and refusals."""
    supported = weights @ sums.supported
    cost, passes = weights @ sums.cost, weights @ sums.passes
    if corrected:
        cost = cost + supported * _mean(weights, sums.residual, sums.weight)
    if passes_corrected:
        passes = passes + supported * _mean(weights, sums.residual_scored, sums.weight_scored)
    return np.array([cost, passes, weights @ sums.refusals])


def _mean(weights: Vector, residual: Vector, weight: Vector) -> Vector:
    """Weighted; 0 where a resample has nothing to go by."""
    whole = weights @ weight
    return np.divide(weights @ residual, whole, out=np.zeros(len(weights)), where=whole > 0)


def _sums(part: Part, found: Differences, mine: NDArray[np.bool_], trials: Lines, scored: Lines) -> _Sums:
    rows, times, used = part.rows, factors(part), _used(part)
    moved = part.changed[mine[part.changed["row"]] & part.changed["supported"]]
    supported = np.zeros(len(rows))
    supported[moved["row"]] = ~found.no_cost[moved["row"]] & (found.paid[moved["row"]] > 0)
    off = trials["weight"] * (trials["paid"] - trials["expected"] * times[trials["to"]])
    missed = scored["weight"] * (scored["score"] - scored["p"])

    def by_bucket(lines: Lines, values: Vector) -> Vector:
        return np.asarray(np.bincount(lines["bucket"], values, BUCKETS)[used], dtype=np.float64)

    cost, passes, refusals, supports = (
        by_bucket(rows[mine], values[mine]) for values in (found.cost, found.passes, found.refusals, supported)
    )
    return _Sums(
        cost=cost,
        passes=passes,
        refusals=refusals,
        supported=supports,
        weight=by_bucket(trials, trials["weight"]),
        residual=by_bucket(trials, off),
        weight_scored=by_bucket(scored, scored["weight"]),
        residual_scored=by_bucket(scored, missed),
    )


def _used(part: Part) -> NDArray[np.intp]:
    """Buckets that somebody is in."""
    return np.flatnonzero(np.bincount(part.rows["bucket"], minlength=BUCKETS))


def _resampled(buckets: NDArray[np.int32]) -> Vector:
    """[resamples, buckets that somebody is in]: how often each is drawn. The same each time."""
    count = len(np.unique(buckets))
    if not count:
        return np.zeros((RESAMPLES, 0))
    chance = np.random.default_rng(0)
    return chance.multinomial(count, np.full(count, 1 / count), RESAMPLES).astype(np.float64)


def _change(value: float, draws: Vector) -> Change:
    low, high = np.percentile(draws, BETWEEN)
    return Change(float(value), float(low), float(high))
