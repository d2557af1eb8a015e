"""Numbers as Prometheus reads them."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from router.report.standing import Standing
from router.telemetry.shapes import SHAPES, SUM, Shape, Values, edge_names
from router.types.account import Unit
from router.types.engine import EngineState, Status
from router.types.money import NANO_PER_USD


def of_budgets(standings: Iterable[Standing]) -> Values:
    """As metrics, all pots of a budget together. What was split off is left out: clients name it."""
    found: defaultdict[str, defaultdict[tuple[str, ...], float]] = defaultdict(lambda: defaultdict(float))
    for one in standings:
        budget, account, balance = one.pot.budget, one.pot.account, one.balance
        if budget is None:
            continue
        unit, scale = ("usd", NANO_PER_USD) if account.unit is Unit.USD else ("tokens", 1)
        amounts = {"limit": account.limit, "spent": balance.spent, "held": balance.held}
        for name, amount in amounts.items():
            found[f"lowpass_budget_{name}_{unit}"][budget.id,] += amount / scale
        shares = found["lowpass_budget_used_share"]
        used = (balance.spent + balance.held) / account.limit if account.limit else 1.0
        shares[budget.id,] = max(shares[budget.id,], used)
    return found


def of_engines(states: Iterable[EngineState]) -> Values:
    """As metrics; what a replica does not say is left out."""
    found: defaultdict[str, defaultdict[tuple[str, ...], float]] = defaultdict(lambda: defaultdict(float))
    for state in states:
        whose = state.name, str(state.replica)
        numbers: dict[str, float] = {"ready": state.status is Status.READY, "restarts": state.restarts}
        if (load := state.load) is not None:
            counts = {"running": load.running, "waiting": load.waiting}
            numbers |= counts | {"rejected": load.rejected, "preempted": load.preempted}
            numbers |= {} if load.kv_cache is None else {"kv_cache_share": load.kv_cache}
        for name, number in numbers.items():
            found[f"lowpass_engine_{name}"][whose] = number
    return found


def page(values: Values) -> bytes:
    """In Prometheus' text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(values))
    return generate_latest(registry)


class _Families(Collector):
    def __init__(self, values: Values) -> None:
        self._values = values

    def collect(self) -> Iterator[Metric]:
        for name, shape in SHAPES.items():
            numbers = self._values.get(name, {})
            if shape.family is HistogramMetricFamily:
                yield _histogram(name, shape, numbers)
                continue
            family: Any = shape.family(name, shape.help_text, labels=shape.labels)
            for labels, number in numbers.items():
                family.add_metric(labels, number)
            yield family


def _histogram(name: str, shape: Shape, numbers: Mapping[tuple[str, ...], float]) -> HistogramMetricFamily:
    """Each bucket has all values up to its edge."""
    family = HistogramMetricFamily(name, shape.help_text, labels=shape.labels)
    edges = edge_names(shape.edges)
    for labels in dict.fromkeys(known[:-1] for known in numbers):
        upto = accumulate(numbers[*labels, edge] for edge in edges)
        family.add_metric(labels, list(zip(edges, upto, strict=True)), numbers[*labels, SUM])
    return family
