"""The counters of a process, and the page `/metrics`."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, Literal

import msgspec
from msgspec import Struct
from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from router.budget.loops import LoopKind
from router.classify.second_opinion import Opinion
from router.types.attempt import Attempt
from router.types.price import NANO_PER_USD
from router.types.tables import table
from router.types.target import EngineState, Status

# All metrics, as declared in `metrics.yaml`.

Numbers = Mapping[tuple[str, ...], float]
"""Values of a metric's labels → number."""
Values = Mapping[str, Numbers]
"""Metric → values of its labels → number, of one process or of all together."""


class MetricRow(Struct, frozen=True):
    """One row of `metrics.yaml`. `together` says how the numbers of several processes are combined."""

    help: str
    labels: tuple[str, ...] = ()
    kind: Literal["counter", "gauge", "histogram"] = "counter"
    together: Literal["sum", "min", "max"] = "sum"
    edges: tuple[float, ...] = ()


METRICS = msgspec.convert(table("observe/metrics.yaml"), dict[str, MetricRow])
SUM = "sum"
"""Stands in place of an edge for the sum of all values of a histogram."""
_TOGETHER: dict[str, Callable[[Iterable[float]], float]] = {"sum": sum, "min": min, "max": max}


def edge_names(edges: Iterable[float]) -> tuple[str, ...]:
    """Returns the edges as Prometheus writes them. The last bucket is unbounded."""
    return (*(str(float(edge)) for edge in edges), "+Inf")


def together(parts: Iterable[Values]) -> Values:
    """Combines the counters of several processes."""
    samples: defaultdict[str, defaultdict[tuple[str, ...], list[float]]] = defaultdict(lambda: defaultdict(list))
    for values in parts:
        for name, numbers in values.items():
            for labels, number in numbers.items():
                samples[name][labels].append(number)
    return {
        name: {labels: _TOGETHER[METRICS[name].together](several) for labels, several in numbers.items()}
        for name, numbers in samples.items()
    }


def counters(values: Values) -> Values:
    """Returns what is kept of an exited process: all but its gauges."""
    return {name: numbers for name, numbers in values.items() if METRICS[name].kind != "gauge"}


# Histograms.


class Histogram:
    """Number of values per bucket, and their sum, for each combination of labels."""

    __slots__ = ("_counts", "_edges", "_sums")

    def __init__(self, name: str) -> None:
        self._edges = METRICS[name].edges
        self._counts: defaultdict[tuple[str, ...], list[int]] = defaultdict(lambda: [0] * (len(self._edges) + 1))
        self._sums: defaultdict[tuple[str, ...], float] = defaultdict(float)

    def add(self, labels: tuple[str, ...], value: float) -> None:
        self._counts[labels][bisect_left(self._edges, value)] += 1
        self._sums[labels] += value

    @property
    def values(self) -> Mapping[tuple[str, ...], float]:
        """Counts by labels and upper edge of the bucket, and sums by labels and `SUM`."""
        names = edge_names(self._edges)
        counts = {
            (*labels, edge): count
            for labels, row in self._counts.items()
            for edge, count in zip(names, row, strict=True)
        }
        return counts | {(*labels, SUM): total for labels, total in self._sums.items()}


# Numbers in the form that Prometheus reads.


def of_engines(states: Iterable[EngineState]) -> Values:
    """Returns the metrics of engines. What a replica does not report is left out."""
    samples: defaultdict[str, defaultdict[tuple[str, ...], float]] = defaultdict(lambda: defaultdict(float))
    for state in states:
        labels = state.name, str(state.replica)
        numbers: dict[str, float] = {"ready": state.status is Status.READY, "restarts": state.restarts}
        if (load := state.load) is not None:
            counts = {"running": load.running, "waiting": load.waiting}
            numbers |= counts | {"rejected": load.rejected, "preempted": load.preempted}
            numbers |= {} if load.kv_cache is None else {"kv_cache_share": load.kv_cache}
        for name, number in numbers.items():
            samples[f"lowpass_engine_{name}"][labels] = number
    return samples


def page(values: Values) -> bytes:
    """Returns the metrics in Prometheus' text format."""
    return generate_latest(_Families(values))


class _Families(Collector):
    def __init__(self, values: Values) -> None:
        self._values = values

    def collect(self) -> Iterator[Metric]:
        for name, row in METRICS.items():
            numbers = self._values.get(name, {})
            if row.kind == "histogram":
                buckets, edges = HistogramMetricFamily(name, row.help, labels=row.labels), edge_names(row.edges)
                for labels in dict.fromkeys(known[:-1] for known in numbers):
                    # In Prometheus, a bucket counts all values up to its edge.
                    cumulative = accumulate(numbers[*labels, edge] for edge in edges)
                    buckets.add_metric(labels, list(zip(edges, cumulative, strict=True)), numbers[*labels, SUM])
                yield buckets
                continue
            kind = GaugeMetricFamily if row.kind == "gauge" else CounterMetricFamily
            family: Any = kind(name, row.help, labels=row.labels)
            for labels, number in numbers.items():
                family.add_metric(labels, number)
            yield family


# The counters of one process. They are plain integers, which are converted when Prometheus asks.


class Telemetry:
    """Counters of a process. Labels are routes, targets and closed sets, never text: the policy bounds their number."""

    def __init__(self) -> None:
        self._counts: defaultdict[str, defaultdict[Any, int]] = defaultdict(lambda: defaultdict(int))
        """By metric (without `lowpass_`) and labels; in nano-USD if the metric is in USD."""
        for name in ("overruns", "held_usd", "held_used_usd", "outcomes_contradictory"):
            self._counts[name][()] = 0
        self._counts["second_opinions"].update({(opinion.value,): 0 for opinion in Opinion})
        self._counts["feedback"].update({("passed",): 0, ("failed",): 0})
        self.calls, self.first_bytes = Histogram("lowpass_attempt_seconds"), Histogram("lowpass_first_byte_seconds")
        self.overhead = Histogram("lowpass_overhead_seconds")
        self.settled: list[tuple[str, int, Sequence[Attempt], int, int | None]] = []
        """Requests not counted yet: route, status, attempts, overhead in µs, and nano-USD that were held (None if no
        budget in USD applies)."""
        self.spilled, self.passes = self._counts["spilled"], self._counts["passes"]
        self.outcomes = {"learned": 0, "not_learned": 0}
        self.ledger, self.in_flight, self.policy_errors = True, 0, 0
        self.health: Mapping[str, str] = {}
        self.policies: frozenset[str] = frozenset()
        """Hashes of the policies of all gateways that share the budgets."""
        self.loops: Mapping[str, int] = dict.fromkeys(LoopKind, 0)
        self.consistency: Mapping[str, float] = {}
        self.agreement: Mapping[str, float] = {}

    def count(self, metric: str, *labels: str) -> None:
        self._counts[metric][labels] += 1

    def feedback(self, passed: bool, contrary: int) -> None:
        """Counts feedback. `contrary` is the number of other sources that contradict it for the same answer."""
        self._counts["feedback"]["passed" if passed else "failed",] += 1
        self._counts["outcomes_contradictory"][()] += contrary > 0

    def tally(self) -> None:
        """Counts what was settled since the last call. Runs once a second, beside the requests."""
        counts, settled, self.settled = self._counts, self.settled, []
        for route, status, attempts, overhead_us, held in settled:
            counts["requests"][route, str(status)] += 1
            self.overhead.add((), overhead_us / 1_000_000)
            counts["held_usd"][()] += held or 0
            for attempt in attempts:
                name, cost, usage = attempt.target.id, attempt.cost, attempt.usage
                counts["attempts"][name, str(attempt.outcome)] += 1
                counts["cost_usd"][name,] += cost.nano
                counts["held_used_usd"][()] += 0 if held is None else cost.nano
                counts["own_cost_usd"][name,] += cost.nano if cost.own is None else cost.own
                counts["thinking_cost_usd"][name,] += cost.thinking or 0
                if cost.saved:
                    counts["cache_saved_usd" if cost.saved > 0 else "cache_extra_usd"][name,] += abs(cost.saved)
                self.calls.add((name,), attempt.total_ms / 1000)
                if attempt.first_ms is not None:
                    self.first_bytes.add((name,), attempt.first_ms / 1000)
                if usage is not None:
                    tokens = counts["tokens"]
                    tokens[name, "input"] += usage.totals.input
                    tokens[name, "output"] += usage.totals.output
                    if usage.output_reasoning is not None:
                        tokens[name, "reasoning"] += usage.output_reasoning
                    cached, written = usage.totals[2:]
                    if cached or written:
                        tokens[name, "cache_read"] += cached
                        tokens[name, "cache_write"] += written

    def values(self) -> Values:
        """Returns all numbers at one moment. Call it in the event loop."""
        self.tally()
        unhealthy = sum(state in ("open", "half-open", "region mismatch") for state in self.health.values())
        numbers: dict[str, Numbers] = {
            **{
                name: {labels: n / NANO_PER_USD if name.endswith("_usd") else n for labels, n in counts.items()}
                for name, counts in self._counts.items()
            },
            "attempt_seconds": self.calls.values,
            "first_byte_seconds": self.first_bytes.values,
            "overhead_seconds": self.overhead.values,
            "ledger_available": {(): float(self.ledger)},
            "in_flight": {(): self.in_flight},
            "open_circuits": {(): unhealthy},
            "loops_tripped": _by_label(self.loops),
            "outcomes": _by_label(self.outcomes),
            "judge_consistency": _by_label(self.consistency),
            "judge_agreement": _by_label(self.agreement),
            "policy_errors": {(): self.policy_errors},
            "policies": {(): len(self.policies)},
        }
        return {f"lowpass_{name}": by_labels for name, by_labels in numbers.items()}


def _by_label(numbers: Mapping[str, float]) -> Numbers:
    return {(str(label),): number for label, number in numbers.items()}
