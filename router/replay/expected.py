"""What a choice is expected to cost, target by target, and how likely it ends in a right answer."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from router.decide.strategies import Cascade, Strategy
from router.estimate.estimate import per_choice
from router.estimate.forecast import Forecaster
from router.replay.stored import Choice, Stored
from router.types.classification import Classification
from router.types.forecast import Vector
from router.types.plan import Hedge, Vote, Weighed
from router.types.target import Target
from router.worth import PERFECT, RHO, Check, Value, cascade_value, sample_value

_FREE = np.array([1.0, 0.0])


class Expected(NamedTuple):
    """Expected nano-USD of the first target and of the second, and the pass rate of what is given in the end."""

    first: float
    second: float
    p: float


class Asked(NamedTuple):
    """A request, and what is known of the targets it may go to. `cap`: thinking tokens over all choices; `weighed`:
    what the decision has worked out already."""

    one: Stored
    seen: Classification
    forecaster: Forecaster
    cap: int | None
    weighed: Sequence[Weighed] = ()


def alone(asked: Asked, target: Target) -> Expected:
    """Expected nano-USD and pass rate of a target that is asked alone."""
    for each in asked.weighed:
        if each.target == target.id:
            return Expected(each.cost_nano, 0.0, each.p)
    one = asked.one
    cap = per_choice(one.request, asked.cap)
    forecast = asked.forecaster.forecast((target,), one.request, asked.seen, one.at_ms, cap)
    return Expected(float(forecast.cost[0]), 0.0, float(forecast.p[0]))


def expected(asked: Asked, choice: Choice, strategy: Strategy, first: Target, second: Target | None) -> Expected:
    """As the strategy itself values it: a pair by the chance that its second is asked. A hedge's second is taken to be
    asked by nobody, as it mostly is."""
    if second is None or isinstance(choice.tactic, Hedge):
        return alone(asked, first)
    each = (alone(asked, first), alone(asked, second))
    cost, p = np.array([one.first for one in each]), np.array([one.p for one in each])
    both, without = (_pair(choice, strategy, some, p) for some in (cost, cost * _FREE))
    return Expected(*map(float, (without.cost[0, 1], both.cost[0, 1] - without.cost[0, 1], both.p[0, 1])))


def _pair(choice: Choice, strategy: Strategy, cost: Vector, p: Vector) -> Value:
    if isinstance(choice.tactic, Vote):
        return sample_value(cost, p, 0.0, choice.tactic.samples)
    check = Check(strategy.accepts_right, strategy.accepts_wrong) if isinstance(strategy, Cascade) else PERFECT
    return cascade_value(cost, p, 0.0, check, RHO)
