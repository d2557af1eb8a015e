"""A measured price is what forecasts, holds and charges go by: neither the list nor the throughput of one's own."""

import numpy as np
import pytest
from msgspec import structs

from router.estimate.estimate import estimate
from router.estimate.forecast import Forecaster, Index
from router.estimate.learn import Learned, Seen
from router.estimate.price import charge
from router.types.classification import Classification
from router.types.engine import Served
from router.types.forecast import Vector
from router.types.money import NANO_PER_USD
from router.types.price import Price
from router.types.target import Target
from router.types.task import Task
from router.types.usage import Usage
from tests.decide.values import request, target

MEASURED = Price(
    input=4 * NANO_PER_USD, cache_read=NANO_PER_USD, output=40 * NANO_PER_USD, version="measured e 2026-11-02T00:00:00Z"
)
ENGINE = Served(name="e", urls=("http://127.0.0.1:9/v1",), hourly=2 * NANO_PER_USD)
SEEN = Classification(data_class="internal", difficulty=0.5, task=Task.CHAT)


class _Even:
    def expect(self, seen: Classification, at: Index) -> tuple[Vector, Vector]:
        return np.full(len(at), 0.5), np.zeros(len(at))

    def usual(self, at: Index) -> Vector:
        return np.full(len(at), 0.5)


def on_engine(hourly: int | None = 2 * NANO_PER_USD) -> Target:
    return structs.replace(target("gpu", max_output=64_000), engine=ENGINE, hourly=hourly)


def worked() -> Learned:
    """Fifty tokens a second, as far as this process has seen: others have their part of the engine."""
    learned = Learned()
    for number in range(200):
        learned.observe(
            Seen(target="gpu", output=50, total_ms=1_000, ended_ms=number * 1_000, input=10, expected_input=10)
        )
    return learned


def test_forecast_hold_and_charge_are_at_the_measured_price() -> None:
    learned, listed = worked(), (on_engine(),)
    learned.measured.publish({"e": MEASURED})
    (priced,) = learned.measured.priced(listed)
    asked = request(max_output=20)
    found = Forecaster(listed, learned, _Even()).forecast((priced,), asked, SEEN, 0)
    held = estimate(priced, asked, learned, Task.CHAT)
    assert found.cost[0] == pytest.approx(held.input_tokens * 4_000 + 20 * 40_000, rel=0.2)
    assert held.hold >= 20 * 40_000
    cost = charge(priced.model.price, Usage(input_uncached=100, cache_read=50, output_visible=20))
    assert (cost.nano, cost.price_version) == (100 * 4_000 + 50 * 1_000 + 20 * 40_000, MEASURED.version)


@pytest.mark.parametrize("hourly", [None, 0])
def test_without_a_price_of_the_hour_nothing_changes(hourly: int | None) -> None:
    learned, listed = worked(), (on_engine(hourly),)
    learned.measured.publish({"e": MEASURED})
    assert learned.measured.priced(listed) == listed


def test_until_it_is_measured_the_throughput_of_its_own_requests_tells() -> None:
    learned, listed = worked(), (on_engine(),)
    found = Forecaster(listed, learned, _Even()).forecast(listed, request(max_output=20), SEEN, 0)
    assert found.cost[0] == pytest.approx(20 * 2 * NANO_PER_USD / 3_600 / 50, rel=0.01)
