"""Every metric name, in one place. Counters are plain integers; Prometheus reads them when it asks."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import TypeVar

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from router.budget.loops import Kind
from router.types.attempt import Attempt
from router.types.money import NANO_PER_USD

Labels = TypeVar("Labels", bound=tuple[str, ...])


class Telemetry(Collector):
    """Cardinality is bounded by the policy: labels are routes, targets and closed sets, never text of a request."""

    def __init__(self) -> None:
        self.requests: defaultdict[tuple[str, int], int] = defaultdict(int)
        self.attempts: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.cost: defaultdict[str, int] = defaultdict(int)
        self.tokens: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.milliseconds: defaultdict[str, int] = defaultdict(int)
        self.in_flight = 0
        self.health: Mapping[str, str] = {}
        self.policy_errors = 0
        self.loops: Mapping[str, int] = dict.fromkeys(Kind, 0)
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def settled(self, route: str, status: int, attempts: list[Attempt]) -> None:
        self.requests[route, status] += 1
        for attempt in attempts:
            name = attempt.target.id
            self.attempts[name, attempt.outcome] += 1
            self.cost[name] += attempt.cost.nano
            self.milliseconds[name] += attempt.total_ms
            if attempt.usage is not None:
                self.tokens[name, "input"] += attempt.usage.input_total
                self.tokens[name, "output"] += attempt.usage.output_total
                if attempt.usage.output_reasoning is not None:
                    self.tokens[name, "reasoning"] += attempt.usage.output_reasoning

    def page(self) -> bytes:
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        answered = {(route, str(status)): count for (route, status), count in self.requests.items()}
        yield _counter("lowpass_requests", "Requests answered.", ("route", "status"), answered)
        yield _counter("lowpass_attempts", "Calls of a target.", ("target", "outcome"), self.attempts)
        yield _counter("lowpass_tokens", "Tokens; output includes reasoning.", ("target", "direction"), self.tokens)
        dollars = {(target,): nano / NANO_PER_USD for target, nano in self.cost.items()}
        yield _counter("lowpass_cost_usd", "Charged, in USD.", ("target",), dollars)
        seconds = {(target,): ms / 1000 for target, ms in self.milliseconds.items()}
        yield _counter("lowpass_attempt_seconds", "Time spent waiting for a target.", ("target",), seconds)
        yield _gauge("lowpass_in_flight", "Requests being answered.", self.in_flight)
        unhealthy = sum(state in ("open", "half-open") for state in self.health.values())
        yield _gauge("lowpass_open_circuits", "Targets that are not asked after failures.", unhealthy)
        tripped = {(str(kind),): count for kind, count in self.loops.items()}
        yield _counter("lowpass_loops_tripped", "Trips of the loop breaker.", ("kind",), tripped)
        yield _counter("lowpass_policy_errors", "Edits of the policy that were refused.", (), {(): self.policy_errors})


def _counter(name: str, help_text: str, labels: tuple[str, ...], values: Mapping[Labels, float]) -> CounterMetricFamily:
    family = CounterMetricFamily(name, help_text, labels=labels)
    for key, value in values.items():
        family.add_metric(key, value)
    return family


def _gauge(name: str, help_text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, help_text, value=value)
