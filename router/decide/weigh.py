"""Forecasts → what each target is worth, which are out of the question, and why a target was not chosen."""

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from router.decide.situation import Situation
from router.types.forecast import Forecast, Vector
from router.types.plan import Weighed
from router.types.stakes import Stakes

Flags = NDArray[np.bool_]

_REASONS = ("", "below_floor", "over_cost", "too_slow")
"""Why a target is out, in the order of how bad that is."""
_LEAST_P = 1e-3
"""A pass rate below it says no more than that nobody knows."""


class Worth(Struct, frozen=True, eq=False):
    """`value`: nano-USD for a right answer, the less the better. `out`: index into the reasons; 0 is in."""

    value: Vector
    out: NDArray[np.intp]
    evident: Flags
    """It is better than the baseline beyond what is not known."""
    baseline: int
    best: int


def worth(situation: Situation, out: NDArray[np.intp], caution: float) -> Worth:
    """The baseline is always in the running, and leaving it needs evidence."""
    forecast, stakes = situation.forecast, situation.stakes
    value = price(forecast.cost, forecast.p, stakes)
    among = out == out.min()
    usual = np.where(among, price(forecast.usual_cost, forecast.usual_p, stakes), np.inf)
    baseline = int(usual.argmin())
    gain = value[baseline] - value
    evident = gain > caution * _unknown(forecast, stakes, baseline)
    best = int(np.where(among & evident, value, np.inf).argmin()) if (among & evident).any() else baseline
    return Worth(value, out, evident, baseline, best)


def price(cost: Vector, p: Vector, stakes: Stakes) -> Vector:
    """nano-USD: what an answer costs and what its being wrong does; without a price of that, what a right one costs."""
    if stakes.failure_nano is not None:
        return cost + stakes.failure_nano * (1 - p)
    return cost / np.maximum(p, _LEAST_P)


def excluded(situation: Situation, caution: float) -> NDArray[np.intp]:
    """Who breaks floor, cap or deadline. The worst reason counts."""
    forecast, stakes = situation.forecast, situation.stakes
    out = np.zeros(len(forecast.p), dtype=np.intp)
    if stakes.min_pass_rate is not None:
        out[forecast.p - caution * forecast.p_sd < stakes.min_pass_rate] = 1
        if out.all():  # nobody is good enough for sure: then the likeliest is
            out[int(forecast.p.argmax())] = 0
    if stakes.max_nano is not None:
        out[forecast.cost > stakes.max_nano] = 2
    if stakes.deadline_ms is not None:
        out[forecast.total_p90_ms > stakes.deadline_ms] = 3
    return out


def weighed(situation: Situation, found: Worth, chosen: int) -> tuple[Weighed, ...]:
    """What is kept of all this, in the order of the targets."""
    forecast = situation.forecast
    rates = (forecast.p, forecast.p_sd)
    whole = (forecast.cost, forecast.cost_p10, forecast.cost_p90, forecast.first_ms, forecast.total_ms, found.value)
    columns = (*np.round(rates, 4).tolist(), *np.asarray(whole).astype(np.int64).tolist())
    return tuple(map(Weighed, [target.id for target in situation.targets], *columns, _why(found, chosen)))


def _unknown(forecast: Forecast, stakes: Stakes, baseline: int) -> Vector:
    """Standard deviation of the difference to the baseline, in the unit of `price`."""
    sd = np.hypot(forecast.p_sd, forecast.p_sd[baseline])
    if stakes.failure_nano is not None:
        scale: Vector = np.full(len(sd), stakes.failure_nano)
    else:
        scale = forecast.cost / np.maximum(forecast.p, _LEAST_P) ** 2
    unknown: Vector = scale * sd
    unknown[baseline] = 0.0
    return unknown


def _why(found: Worth, chosen: int) -> list[str]:
    least = found.value[chosen]
    why = [
        _REASONS[out] or ("not_evident" if value < least and not evident else "dearer")
        for out, value, evident in zip(found.out.tolist(), found.value.tolist(), found.evident.tolist(), strict=True)
    ]
    why[found.baseline] = why[found.baseline] if found.out[found.baseline] else "baseline"
    why[chosen] = "chosen" if chosen == found.best else "kept"
    return why
