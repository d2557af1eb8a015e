"""Forecasts → what each target is worth, which are out of the question, and why a target was not chosen."""

from math import isfinite, pi, sqrt

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from router.decide.situation import Situation
from router.decide.spill import queued, timely, waits_ms
from router.types.forecast import NODE_WEIGHTS, Forecast, Vector
from router.types.plan import Weighed, Why
from router.types.stakes import Stakes

Flags = NDArray[np.bool_]

IN, QUEUED, BELOW_FLOOR, OVER_COST, TOO_SLOW, UNKNOWN = range(6)
REASONS: tuple[Why | None, ...] = (None, "queued", "below_floor", "over_cost", "too_slow", "unknown")
"""Why a target is out, in the order of how bad that is."""
_TINY = 1e-9
_MOST = 1e30
"""In the place of what has no end."""
_MOST_Z = 30.0
_ROOT_2_PI = sqrt(2 * pi)
_LEAST_P = 1e-3
"""A pass rate below it says no more than that nobody knows."""


class Worth(Struct, frozen=True, eq=False):
    """`value`: nano-USD for a right answer, the less the better. `out`: index into the reasons; 0 is in."""

    value: Vector
    out: NDArray[np.intp]
    margin: Vector
    """nano-USD: what leaving the baseline for it gains on average, less `caution` times the expected regret."""
    baseline: int
    best: int


def worth(situation: Situation, out: NDArray[np.intp], caution: float) -> Worth:
    """The baseline is always in the running; leaving it takes evidence, or a target that is cheaper and better:
    so raising the price of a failure never leads to one that is dearer and worse."""
    forecast, stakes = situation.forecast, situation.stakes
    late = timely(situation) if situation.queues else 1.0
    p, cost = forecast.p * late, forecast.cost
    value, among = price(cost, p, stakes), _among(situation, out)
    usual = np.where(among, price(forecast.usual_cost, forecast.usual_p, stakes), np.inf)
    baseline = int(usual.argmin())
    margin = value[baseline] - value - caution * _regret(forecast, stakes, baseline, late)
    better = among & (margin > 0)
    best = int(np.where(better, value, np.inf).argmin()) if better.any() else baseline
    dominating = among & (cost < cost[best]) & (p > p[best])
    best = int(np.where(dominating, value, np.inf).argmin()) if dominating.any() else best
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


def _regret(forecast: Forecast, stakes: Stakes, baseline: int, late: Vector | float) -> Vector:
    """Expected loss, in the unit of `price`, where leaving the baseline for a target turns out to be wrong.

    How hard the request is counts once for all targets (`p_nodes`); what is not known of each alone is normal.
    """
    gain, spread = _gains(forecast, stakes, baseline, late)
    z = np.clip(gain / spread, -_MOST_Z, _MOST_Z)
    # E[max(0, −x)] of a normal x.
    loss = np.maximum(spread * np.exp(-0.5 * z * z) / _ROOT_2_PI - gain * _below(z), 0.0)
    regret: Vector = NODE_WEIGHTS @ loss
    regret[baseline] = 0.0
    return regret


def chance_of_better(situation: Situation, choice: int) -> Vector:
    """[T]: how likely each target's value is better than that of `choice`."""
    gain, spread = _gains(situation.forecast, situation.stakes, choice, 1.0)
    chance: Vector = 1 - NODE_WEIGHTS @ _below(np.clip(gain / spread, -_MOST_Z, _MOST_Z))
    return chance


def _gains(forecast: Forecast, stakes: Stakes, choice: int, late: Vector | float) -> tuple[Vector, Vector]:
    """[3, T]: what each target's value is better than that of `choice` at each node; [T]: its standard deviation."""
    values = price(forecast.cost, forecast.p_nodes * late, stakes)
    gain = np.nan_to_num(values[:, [choice]] - values, posinf=_MOST, neginf=-_MOST)
    if stakes.failure_nano is not None:
        own = stakes.failure_nano * forecast.p_own_sd
    else:
        own = forecast.cost / np.maximum(forecast.p, _LEAST_P) ** 2 * forecast.p_own_sd
    return gain, np.clip(np.hypot(own, own[choice]), _TINY, _MOST)


def _below(z: Vector) -> Vector:
    """P(x < 0) of a normal x whose mean is z standard deviations: the logistic approximation."""
    share: Vector = 1 / (1 + np.exp(1.702 * z))
    return share


def _numbers(rows: tuple[Vector, ...]) -> Vector:
    """What is none, or has no end, can't be kept."""
    numbers = np.array(rows)
    return numbers if isfinite(numbers.sum()) else np.nan_to_num(numbers, posinf=0.0, neginf=0.0)
