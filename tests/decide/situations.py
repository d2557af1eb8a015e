"""Situations with a few targets, of which only what a test is about has to be said."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from router.decide.weigh import DecisionInput, Ranking
from router.types.decision import Forecast, ForecastRanges, Objective, Vector
from router.types.price import NANO_PER_USD
from router.types.request import Classification
from router.types.target import Task
from tests.decide.values import target

NAMES = "abcdefghijklmnopqrstuvwxyz"


def usd(amount: float) -> int:
    return round(amount * NANO_PER_USD)


def stakes(failure: float | None = None, most: float | None = None, **more: Any) -> Objective:
    """Amounts in USD."""
    return Objective(
        failure_nano=None if failure is None else usd(failure), max_nano=None if most is None else usd(most), **more
    )


def situation(
    p: Sequence[float], cost: Sequence[float], sd: Sequence[float] | float = 0.0, task: Task = Task.MATHS, **more: Any
) -> DecisionInput:
    """Targets a, b, c …; costs in USD. Also `usual_p`, `usual_cost`, `first_ms`, `total_ms`, `p90_ms`."""
    count = len(p)
    nano, total = _of(cost, count) * NANO_PER_USD, _of(more.pop("total_ms", 1_000.0), count)
    times = _of(more.pop("first_ms", 300.0), count), total, _of(more.pop("p90_ms", total * 2), count)
    ranges = ForecastRanges(_of(sd, count), nano / 2, nano * more.pop("cost_spread", 2.0), *times)
    forecast = Forecast(
        p=_of(p, count),
        p_nodes=np.tile(_of(p, count), (3, 1)),
        p_own_sd=_of(sd, count),
        outcomes=float(np.sum(_of(more.pop("outcomes", 100.0), count))),
        cost=nano,
        foretold=(nano, *(_of(100.0, count), _of(0.0, count)) * 2),
        cached=_of(0.0, count),
        weighed_cost=nano,
        usual_p=_of(more.pop("usual_p", p), count),
        usual_cost=_of(more.pop("usual_cost", cost), count) * NANO_PER_USD,
        ranges=lambda: ranges,
    )
    plain = Classification(data_class="internal", difficulty=0.5, task=task)
    known: dict[str, Any] = {"stakes": stakes(1.0), "draw": 0.5, "classification": plain}
    return DecisionInput(targets=tuple(map(target, NAMES[:count])), forecast=forecast, **(known | more))


def names(ranked: Ranking) -> str:
    return "".join(NAMES[at] for at in ranked.order)


def why(ranked: Ranking) -> dict[str, str]:
    return {row.target: row.why for row in ranked.weigh()}


def _of(value: Any, count: int) -> Vector:
    return np.full(count, value, dtype=np.float64) if np.ndim(value) == 0 else np.array(value, dtype=np.float64)
