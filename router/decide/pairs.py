"""Two targets one after the other, against the best single one: the pair wins only if it pays."""

import numpy as np
from msgspec import Struct

from router.decide.situation import Ranked, Situation
from router.decide.weigh import QUEUED, UNKNOWN, Worth, by_value, excluded, price, reasons, weighed, worth
from router.types.forecast import Vector
from router.types.plan import Tactic


class Pairs(Struct, frozen=True, eq=False):
    """[T, T] each: first and second target. Costs in nano-USD; `low_`: where pass rates are worse than expected."""

    cost: Vector
    p: Vector
    low_cost: Vector
    low_p: Vector
    most: Vector
    """Expected cost where all of it is asked …"""
    slow_ms: Vector
    """… and a time that hardly any such answer takes."""


class Alone(Struct, frozen=True, eq=False):
    """The best single target, `low`: its value where its pass rate is worse than expected."""

    worth: Worth
    low: float


def singles(situation: Situation, caution: float) -> Alone:
    forecast = situation.forecast
    found = worth(situation, excluded(situation, caution), caution)
    return Alone(found, float(price(forecast.cost, lower(situation, caution), situation.stakes)[found.best]))


def lower(situation: Situation, caution: float) -> Vector:
    """Pass rates that are worse than expected."""
    forecast = situation.forecast
    return np.minimum(np.maximum(forecast.p - caution * forecast.p_sd, 0.0), 1.0)


def values(situation: Situation, alone: Alone, pairs: Pairs) -> Vector:
    """nano-USD; infinite for pairs that break floor, cap or deadline, also if all of it comes to be asked."""
    stakes = situation.stakes
    value = price(pairs.cost, pairs.p, stakes)
    fine = np.isfinite(value)
    if stakes.min_pass_rate is not None:
        fine &= pairs.low_p >= stakes.min_pass_rate
    if stakes.max_nano is not None:
        fine &= pairs.most <= stakes.max_nano
    if stakes.deadline_ms is not None:
        fine &= pairs.slow_ms <= stakes.deadline_ms
    known = (alone.worth.out != UNKNOWN) & (alone.worth.out != QUEUED)
    return np.where(fine & known[:, None] & known[None, :], value, np.inf)


def ranked(situation: Situation, alone: Alone, pair: tuple[int, int] | None, tactic: Tactic | None = None) -> Ranked:
    """The pair's two first and how they are asked, or the single targets by their value."""
    found = alone.worth
    order = by_value(found, found.best)
    if pair is None:
        return Ranked(order, weighed(situation, found, reasons(found, found.best)))
    first, second = pair
    why = reasons(found, first, "first")
    why[second] = "second"
    return Ranked([first, second, *(at for at in order if at not in pair)], weighed(situation, found, why), tactic)


def winner(situation: Situation, alone: Alone, pairs: Pairs) -> tuple[int, int] | None:
    """Better than the best single target, as expected and where pass rates are worse; or the only one within limits."""
    value, found = values(situation, alone, pairs), alone.worth
    first, second = divmod(int(value.argmin()), len(value))
    if value[first, second] == np.inf:
        return None
    if found.out[found.best]:
        return first, second
    low = price(pairs.low_cost[first, second], pairs.low_p[first, second], situation.stakes)
    return (first, second) if value[first, second] < found.value[found.best] and low < alone.low else None
