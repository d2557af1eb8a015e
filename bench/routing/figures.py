"""One number of a run, how sure it is, and what was wanted."""

from msgspec import Struct

from bench.routing.bootstrap import bounds
from bench.routing.metrics import Floats


class Goal(Struct, frozen=True):
    """A value between `low` and `high`; where `leniently`, an interval that reaches it is enough."""

    low: float | None = None
    high: float | None = None
    leniently: bool = False

    def holds(self, low: float, high: float) -> bool:
        """Of a value both are the value."""
        return (self.low is None or high >= self.low) and (self.high is None or low <= self.high)


class Figure(Struct, frozen=True, kw_only=True):
    """`at`: the price of a failure in USD, where it depends on one. `value` is None where it could not be computed;
    `low` to `high` is its 95 % interval over prompts. `passed` is None where nothing was promised."""

    name: str
    of: str = "router"
    at: float | None = None
    value: float | None
    low: float | None = None
    high: float | None = None
    goal: Goal | None = None
    passed: bool | None = None


GOALS: dict[str, dict[tuple[str, str], Goal]] = {
    "kfold": {
        ("aiq_norm", "router − lookup"): Goal(low=0.03, leniently=True),
        ("harm", "router"): Goal(high=0.01),
        ("mean_harm", "router"): Goal(high=-0.03),
        ("apgr", "router"): Goal(low=0.65),
        ("ece", "router"): Goal(high=0.02),
        ("cost_coverage", "router"): Goal(low=0.76, high=0.84),
        ("cost_bias", "router"): Goal(low=-0.05, high=0.05),
        ("cost_ratio", "router"): Goal(high=1.8),
    },
    "leave-one-benchmark-out": {
        ("aiq_norm", "router"): Goal(low=0.0),
        ("harm_to_pick", "router"): Goal(high=0.01),
        ("apgr", "router"): Goal(low=0.625),
        ("ece", "router"): Goal(high=0.07),
    },
    "online": {("harm_after_300", "router"): Goal(high=0.02), ("harm_after_1500", "router"): Goal(high=-0.05)},
}
"""What routing promises, by protocol."""


def figure(
    goals: dict[tuple[str, str], Goal], name: str, values: Floats, of: str = "router", at: float | None = None
) -> Figure:
    """`values`: the value itself, then that of each resample."""
    found, goal = bounds(float(values[0]), values[1:]), goals.get((name, of))
    value, low, high = found.value, found.low, found.high
    return Figure(
        name=name, of=of, at=at, value=value, low=low, high=high, goal=goal, passed=_passed(goal, value, low, high)
    )


def measured(goals: dict[tuple[str, str], Goal], name: str, at: float, found: tuple[float, float, float]) -> Figure:
    """`found`: a value with its interval."""
    value, low, high = found
    goal = goals.get((name, "router"))
    passed = _passed(goal, value, low, high)
    return Figure(name=name, at=at, value=value, low=low, high=high, goal=goal, passed=passed)


def _passed(goal: Goal | None, value: float | None, low: float | None, high: float | None) -> bool | None:
    if goal is None or value is None:
        return None
    if goal.leniently and low is not None and high is not None:
        return goal.holds(low, high)
    return goal.holds(value, value)
