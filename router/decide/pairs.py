"""Two targets one after the other, against the best single one: the pair wins only if it pays."""

import numpy as np
from msgspec import Struct, structs

from router.decide.situation import Ranked, Situation
from router.decide.weigh import Worth, excluded, price, weighed, worth
from router.types.forecast import Vector
from router.types.plan import Tactic


class Pairs(Struct, frozen=True, eq=False):
    """[T, T] each: first and second target. Costs in nano-USD; `low_`: where pass rates are worse than expected."""

    cost: Vector
    p: Vector
    low_cost: Vector
    low_p: Vector
    slow_ms: Vector
    """A time that hardly any such answer takes."""

    def value(self, situation: Situation) -> Vector:
        """nano-USD; infinite for pairs that break floor, cap or deadline."""
        stakes = situation.stakes
        value = price(self.cost, self.p, stakes)
        if stakes.min_pass_rate is not None:
            value = np.where(self.low_p < stakes.min_pass_rate, np.inf, value)
        if stakes.max_nano is not None:
            value = np.where(self.cost > stakes.max_nano, np.inf, value)
        if stakes.deadline_ms is not None:
            value = np.where(self.slow_ms > stakes.deadline_ms, np.inf, value)
        return value

    def best(self, situation: Situation) -> float:
        return float(self.value(situation).min())


class Alone(Struct, frozen=True, eq=False):
    """The best single target, `low`: its value where its pass rate is worse than expected."""

    worth: Worth
    low: float


def singles(situation: Situation, caution: float) -> Alone:
    forecast = situation.forecast
    found = worth(situation, excluded(situation, caution), caution)
    low = np.clip(forecast.p - caution * forecast.p_sd, 0.0, 1.0)
    return Alone(found, float(price(forecast.cost, low, situation.stakes)[found.best]))


def ranked(situation: Situation, alone: Alone, pairs: Pairs | None, tactic: Tactic | None = None) -> Ranked:
    """The pair's two first and how they are asked, or the single targets by their value."""
    found = alone.worth
    order = np.lexsort((found.value, found.out, np.arange(len(found.value)) != found.best)).tolist()
    rows = weighed(situation, found, found.best)
    pair = None if pairs is None else _winner(situation, alone, pairs)
    if pair is None:
        return Ranked(order, rows)
    why = dict(zip(pair, ("first", "second"), strict=True))
    told = tuple(structs.replace(row, why=why[at]) if at in why else row for at, row in enumerate(rows))
    return Ranked([*pair, *(at for at in order if at not in pair)], told, tactic)


def _winner(situation: Situation, alone: Alone, pairs: Pairs) -> tuple[int, int] | None:
    """Better than the best single target, as expected and where pass rates are worse."""
    value, found = pairs.value(situation), alone.worth
    first, second = divmod(int(value.argmin()), len(value))
    single = found.value[found.best] if not found.out[found.best] else np.inf
    if not value[first, second] < single:
        return None
    low = price(pairs.low_cost, pairs.low_p, situation.stakes)[first, second]
    return (first, second) if low < alone.low or single == np.inf else None
