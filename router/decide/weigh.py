"""Forecasts → what each target is worth, which are out of the question, and why a target was not chosen."""

from math import isfinite

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from router.decide.situation import Situation
from router.decide.spill import queued, timely, waits_ms
from router.types.forecast import Forecast, Vector
from router.types.plan import Weighed, Why
from router.types.stakes import Stakes

Flags = NDArray[np.bool_]

IN, QUEUED, BELOW_FLOOR, OVER_COST, TOO_SLOW, UNKNOWN = range(6)
REASONS: tuple[Why | None, ...] = (None, "queued", "below_floor", "over_cost", "too_slow", "unknown")
"""Why a target is out, in the order of how bad that is."""
_LEAST_P = 1e-3
"""A pass rate below it says no more than that nobody knows."""


class Worth(Struct, frozen=True, eq=False):
    """`value`: nano-USD for a right answer, the less the better. `out`: index into the reasons; 0 is in."""

    value: Vector
    out: NDArray[np.intp]
    margin: Vector
    """nano-USD by which it is better than the baseline, beyond what is not known: above 0 there is evidence."""
    baseline: int
    best: int


def worth(situation: Situation, out: NDArray[np.intp], caution: float) -> Worth:
    """The baseline is always in the running, and leaving it needs evidence."""
    forecast, stakes = situation.forecast, situation.stakes
    p = forecast.p * timely(situation) if situation.queues else forecast.p
    value, among = price(forecast.cost, p, stakes), _among(situation, out)
    usual = np.where(among, price(forecast.usual_cost, forecast.usual_p, stakes), np.inf)
    baseline = int(usual.argmin())
    margin = value[baseline] - value - caution * _unknown(forecast, stakes, baseline)
    better = among & (margin > 0)
    best = int(np.where(better, value, np.inf).argmin()) if better.any() else baseline
    return Worth(value, out, margin, baseline, best)


def price(cost: Vector, p: Vector, stakes: Stakes) -> Vector:
    """nano-USD: what an answer costs and what its being wrong does; without a price of that, what a right one costs."""
    if stakes.failure_nano is not None:
        return cost + stakes.failure_nano * (1 - p)
    return cost / np.maximum(p, _LEAST_P)


def excluded(situation: Situation, caution: float) -> NDArray[np.intp]:
    """Who breaks floor, cap or deadline, or has too long a queue. The worst reason counts; what is not a number breaks
    them all."""
    forecast, stakes = situation.forecast, situation.stakes
    out = np.zeros(len(forecast.p), dtype=np.intp)
    if situation.queues:
        out[queued(situation)] = QUEUED
    if stakes.min_pass_rate is not None:
        out[~(forecast.p - caution * forecast.p_sd >= stakes.min_pass_rate)] = BELOW_FLOOR
    if stakes.max_nano is not None:
        out[~(forecast.cost <= stakes.max_nano)] = OVER_COST
    if stakes.deadline_ms is not None:
        out[~(forecast.total_p90_ms <= stakes.deadline_ms)] = TOO_SLOW
    if not isfinite(forecast.p @ forecast.cost + forecast.usual_p @ forecast.usual_cost):
        known = np.isfinite((forecast.p, forecast.cost, forecast.usual_p, forecast.usual_cost)).all(axis=0)
        out[~known] = UNKNOWN
    return out


def weighed(situation: Situation, found: Worth, why: list[Why]) -> tuple[Weighed, ...]:
    """What is kept of all this, in the order of the targets."""
    forecast = situation.forecast
    rates = (forecast.p, forecast.p_sd)
    whole = (forecast.cost, forecast.cost_p10, forecast.cost_p90, forecast.first_ms, forecast.total_ms, found.value)
    columns = (*_numbers(rates).round(4).tolist(), *_numbers(whole).astype(np.int64).tolist())
    return tuple(map(Weighed, [target.id for target in situation.targets], *columns, why))


def reasons(found: Worth, chosen: int, word: Why = "chosen") -> list[Why]:
    """Why each target is or is not the one that is asked; `word` for the one that is."""
    least = float(found.value[found.best])
    why: list[Why] = [
        REASONS[out] or ("not_evident" if value < least and not margin > 0 else "dearer")
        for out, value, margin in zip(found.out.tolist(), found.value.tolist(), found.margin.tolist(), strict=True)
    ]
    if not found.out[found.baseline]:
        why[found.baseline] = "baseline"
    why[chosen] = word
    return why


def by_value(found: Worth, first: int) -> list[int]:
    """Indexes of targets: `first`, then by value; what is out last of all, for when nobody else answers."""
    order: list[int] = np.lexsort((found.value, found.out, np.arange(len(found.value)) != first)).tolist()
    return order


def _among(situation: Situation, out: NDArray[np.intp]) -> Flags:
    """Whoever is in; where nobody is, whoever is nearest to the least bad of the limits."""
    forecast, least = situation.forecast, int(out.min())
    among = np.equal(out, least)
    if least in (IN, UNKNOWN):
        return among
    dear, slow = forecast.cost, forecast.total_p90_ms
    far = {QUEUED: waits_ms(situation), BELOW_FLOOR: -forecast.p, OVER_COST: dear, TOO_SLOW: slow}[least]
    nearest: Flags = np.arange(len(out)) == np.where(among, far, np.inf).argmin()
    return nearest


def _unknown(forecast: Forecast, stakes: Stakes, baseline: int) -> Vector:
    """Standard deviation of the difference to the baseline, in the unit of `price`."""
    if stakes.failure_nano is not None:
        own = stakes.failure_nano * forecast.p_sd
    else:
        own = forecast.cost / np.maximum(forecast.p, _LEAST_P) ** 2 * forecast.p_sd
    unknown: Vector = np.hypot(own, own[baseline])
    unknown[baseline] = 0.0
    return unknown


def _numbers(rows: tuple[Vector, ...]) -> Vector:
    """What is none, or has no end, can't be kept."""
    numbers = np.array(rows)
    return numbers if isfinite(numbers.sum()) else np.nan_to_num(numbers, posinf=0.0, neginf=0.0)
