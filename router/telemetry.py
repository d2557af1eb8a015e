"""Every metric name, in one place. Counters are plain integers; Prometheus reads them when it asks."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping

from msgspec import Struct
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from router.budget.loops.loops import Kind
from router.classify.deep.second import Verdict
from router.types.attempt import Attempt
from router.types.money import NANO_PER_USD

Values = Mapping[str, Mapping[tuple[str, ...], float]]
"""Metric → values of its labels → number; from one process, or from all together."""


class _Shape(Struct, frozen=True):
    """`together` makes the number of all processes from theirs."""

    help_text: str
    labels: tuple[str, ...] = ()
    family: type[CounterMetricFamily | GaugeMetricFamily] = CounterMetricFamily
    together: Callable[[Iterable[float]], float] = sum


_SHAPES = {
    "lowpass_requests": _Shape("Requests answered.", ("route", "status")),
    "lowpass_attempts": _Shape("Calls of a target.", ("target", "outcome")),
    "lowpass_tokens": _Shape("Tokens; output includes reasoning.", ("target", "direction")),
    "lowpass_cost_usd": _Shape("Charged, in USD.", ("target",)),
    "lowpass_own_cost_usd": _Shape(
        "What our own prices make of it: differs where a provider states its charge.", ("target",)
    ),
    "lowpass_overruns": _Shape("Requests that were charged more than was held for them."),
    "lowpass_attempt_seconds": _Shape("Time spent waiting for a target.", ("target",)),
    "lowpass_in_flight": _Shape("Requests being answered.", family=GaugeMetricFamily),
    # Processes notice the same outage and the same edit, each for itself.
    "lowpass_open_circuits": _Shape(
        "Targets that are not asked after failures.", family=GaugeMetricFamily, together=max
    ),
    "lowpass_loops_tripped": _Shape("Trips of the loop breaker.", ("kind",)),
    "lowpass_second_opinions": _Shape("What a local model said of what was only possible.", ("answer",)),
    "lowpass_verdicts": _Shape("What verifiers said of answers, or why they said nothing.", ("verifier", "result")),
    "lowpass_feedback": _Shape("Answers that clients judged.", ("result",)),
    "lowpass_outcomes_contradictory": _Shape("Answers that clients judged otherwise than another source."),
    # Every process reads the same log.
    "lowpass_outcomes": _Shape("Rows of the log of outcomes, by what was learned of them.", ("result",), together=max),
    "lowpass_drift_alarms": _Shape("Targets that are not what they were.", ("target",), together=max),
    "lowpass_judgements": _Shape("Pairs of questions to judges.", ("judge", "result")),
    "lowpass_judge_consistency": _Shape(
        "Share of the latest pairs in which a judge agreed with itself.", ("judge",), GaugeMetricFamily, max
    ),
    "lowpass_judge_agreement": _Shape(
        "Share of its latest verdicts in which a judge agreed with clients and verifiers.",
        ("judge",),
        GaugeMetricFamily,
        max,
    ),
    "lowpass_policy_errors": _Shape("Edits of the policy that were refused.", together=max),
}


class Telemetry:
    """Cardinality is bounded by the policy: labels are routes, targets and closed sets, never text of a request."""

    def __init__(self) -> None:
        self.requests: defaultdict[tuple[str, int], int] = defaultdict(int)
        self.attempts: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.cost: defaultdict[str, int] = defaultdict(int)
        self.own_cost: defaultdict[str, int] = defaultdict(int)
        self.overruns = 0
        self.tokens: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.milliseconds: defaultdict[str, int] = defaultdict(int)
        self.in_flight = 0
        self.health: Mapping[str, str] = {}
        self.policy_errors = 0
        self.loops: Mapping[str, int] = dict.fromkeys(Kind, 0)
        self.opinions: dict[Verdict, int] = dict.fromkeys(Verdict, 0)
        self.verdicts: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.judged: dict[str, int] = {"passed": 0, "failed": 0}
        self.contradictory = 0
        self.outcomes: dict[str, int] = {"learned": 0, "not_learned": 0}
        self.drift: defaultdict[str, int] = defaultdict(int)
        self.judgements: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.consistency: Mapping[str, float] = {}
        self.agreement: Mapping[str, float] = {}

    def opinion(self, verdict: Verdict) -> None:
        self.opinions[verdict] += 1

    def verdict(self, verifier: str, became: str) -> None:
        self.verdicts[verifier, became] += 1

    def feedback(self, passed: bool, contrary: int) -> None:
        """`contrary`: how many other sources say otherwise of the same answer."""
        self.judged["passed" if passed else "failed"] += 1
        self.contradictory += contrary > 0

    def judgement(self, judge: str, became: str) -> None:
        self.judgements[judge, became] += 1

    def settled(self, route: str, status: int, attempts: list[Attempt]) -> None:
        self.requests[route, status] += 1
        for attempt in attempts:
            name = attempt.target.id
            self.attempts[name, attempt.outcome] += 1
            self.cost[name] += attempt.cost.nano
            self.own_cost[name] += attempt.cost.nano if attempt.cost.own is None else attempt.cost.own
            self.milliseconds[name] += attempt.total_ms
            if attempt.usage is not None:
                self.tokens[name, "input"] += attempt.usage.input_total
                self.tokens[name, "output"] += attempt.usage.output_total
                if attempt.usage.output_reasoning is not None:
                    self.tokens[name, "reasoning"] += attempt.usage.output_reasoning

    def values(self) -> Values:
        """In the event loop: it is one moment's."""
        unhealthy = sum(state in ("open", "half-open", "region mismatch") for state in self.health.values())
        return {
            "lowpass_requests": {(route, str(status)): count for (route, status), count in self.requests.items()},
            "lowpass_attempts": {(target, str(outcome)): count for (target, outcome), count in self.attempts.items()},
            "lowpass_tokens": {(target, way): count for (target, way), count in self.tokens.items()},
            "lowpass_cost_usd": {(target,): nano / NANO_PER_USD for target, nano in self.cost.items()},
            "lowpass_own_cost_usd": {(target,): nano / NANO_PER_USD for target, nano in self.own_cost.items()},
            "lowpass_overruns": {(): self.overruns},
            "lowpass_attempt_seconds": {(target,): ms / 1000 for target, ms in self.milliseconds.items()},
            "lowpass_in_flight": {(): self.in_flight},
            "lowpass_open_circuits": {(): unhealthy},
            "lowpass_loops_tripped": {(str(kind),): count for kind, count in self.loops.items()},
            "lowpass_second_opinions": {(str(verdict),): count for verdict, count in self.opinions.items()},
            "lowpass_verdicts": {pair: count for pair, count in self.verdicts.items()},
            "lowpass_feedback": {(result,): count for result, count in self.judged.items()},
            "lowpass_outcomes_contradictory": {(): self.contradictory},
            "lowpass_outcomes": {(result,): count for result, count in self.outcomes.items()},
            "lowpass_drift_alarms": {(target,): count for target, count in self.drift.items()},
            "lowpass_judgements": {pair: count for pair, count in self.judgements.items()},
            "lowpass_judge_consistency": {(judge,): share for judge, share in self.consistency.items()},
            "lowpass_judge_agreement": {(judge,): share for judge, share in self.agreement.items()},
            "lowpass_policy_errors": {(): self.policy_errors},
        }


def together(parts: Iterable[Values]) -> Values:
    """What several processes have counted, as one."""
    found: defaultdict[str, defaultdict[tuple[str, ...], list[float]]] = defaultdict(lambda: defaultdict(list))
    for values in parts:
        for name, numbers in values.items():
            for labels, number in numbers.items():
                found[name][labels].append(number)
    return {
        name: {labels: _SHAPES[name].together(several) for labels, several in numbers.items()}
        for name, numbers in found.items()
    }


def counters(values: Values) -> Values:
    """What stays of a process that is gone."""
    return {name: numbers for name, numbers in values.items() if _SHAPES[name].family is CounterMetricFamily}


def page(values: Values) -> bytes:
    """In Prometheus' text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(values))
    return generate_latest(registry)


class _Families(Collector):
    def __init__(self, values: Values) -> None:
        self._values = values

    def collect(self) -> Iterator[Metric]:
        for name, shape in _SHAPES.items():
            family = shape.family(name, shape.help_text, labels=shape.labels)
            for labels, number in self._values.get(name, {}).items():
                family.add_metric(labels, number)
            yield family
