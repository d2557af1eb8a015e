"""Every metric name, in one place, and how the numbers of several processes become one."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

Numbers = Mapping[tuple[str, ...], float]
"""Values of a metric's labels → number."""
Values = Mapping[str, Numbers]
"""Metric → values of its labels → number; from one process, or from all together."""


class Shape(Struct, frozen=True):
    """`together` makes the number of all processes from theirs."""

    help_text: str
    labels: tuple[str, ...] = ()
    family: type[CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily] = CounterMetricFamily
    together: Callable[[Iterable[float]], float] = sum
    edges: Sequence[float] = ()
    """Of a histogram: upper edges of its buckets, all but the last, which has none."""


_CALLS_S = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 60, 120, 300)
_OURS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 10)
SUM = "sum"
"""In place of an edge: what all values of a histogram add up to."""
ENGINE = ("engine", "replica")


SHAPES = {
    "lowpass_requests": Shape("Requests answered.", ("route", "status")),
    "lowpass_attempts": Shape("Calls of a target.", ("target", "outcome")),
    "lowpass_tokens": Shape("Tokens; input includes cached ones, output reasoning.", ("target", "direction")),
    "lowpass_cost_usd": Shape("Charged, in USD.", ("target",)),
    "lowpass_own_cost_usd": Shape(
        "What our own prices make of it: differs where a provider states its charge.", ("target",)
    ),
    "lowpass_thinking_cost_usd": Shape("The part of the cost that was reasoning.", ("target",)),
    "lowpass_cache_saved_usd": Shape("What cached input saved.", ("target",)),
    "lowpass_cache_extra_usd": Shape("What writing caches cost beyond what they saved.", ("target",)),
    "lowpass_overruns": Shape("Requests that were charged more than was held for them."),
    "lowpass_held_usd": Shape("Held for requests, by the time they were settled."),
    "lowpass_held_used_usd": Shape("What of that they were charged."),
    "lowpass_attempt_seconds": Shape(
        "Time spent waiting for a target.", ("target",), HistogramMetricFamily, edges=_CALLS_S
    ),
    "lowpass_first_byte_seconds": Shape(
        "Until the first byte of a target's answer.", ("target",), HistogramMetricFamily, edges=_CALLS_S
    ),
    "lowpass_overhead_seconds": Shape(
        "Time of a request in which no target was waited for.", family=HistogramMetricFamily, edges=_OURS_S
    ),
    "lowpass_ledger_available": Shape("1 while the ledger takes rows.", family=GaugeMetricFamily, together=min),
    "lowpass_in_flight": Shape("Requests being answered.", family=GaugeMetricFamily),
    # Processes notice the same outage and the same edit, each for itself.
    "lowpass_open_circuits": Shape(
        "Targets that are not asked after failures.", family=GaugeMetricFamily, together=max
    ),
    "lowpass_loops_tripped": Shape("Trips of the loop breaker.", ("kind",)),
    "lowpass_second_opinions": Shape("What a local model said of what was only possible.", ("answer",)),
    "lowpass_verdicts": Shape("What verifiers said of answers, or why they said nothing.", ("verifier", "result")),
    "lowpass_feedback": Shape("Answers that clients judged.", ("result",)),
    "lowpass_outcomes_contradictory": Shape("Answers that clients judged otherwise than another source."),
    # Every process reads the same log.
    "lowpass_outcomes": Shape("Rows of the log of outcomes, by what was learned of them.", ("result",), together=max),
    "lowpass_passes": Shape("Answers that the log says were right, or wrong.", ("target", "result"), together=max),
    "lowpass_drift_alarms": Shape("Targets that are not what they were.", ("target",), together=max),
    "lowpass_judgements": Shape("Pairs of questions to judges.", ("judge", "result")),
    "lowpass_judge_consistency": Shape(
        "Share of the latest pairs in which a judge agreed with itself.", ("judge",), GaugeMetricFamily, max
    ),
    "lowpass_judge_agreement": Shape(
        "Share of its latest verdicts in which a judge agreed with clients and verifiers.",
        ("judge",),
        GaugeMetricFamily,
        max,
    ),
    "lowpass_spilled": Shape(
        "Requests for which others were asked before a target, because of its queue.", ("target",)
    ),
    "lowpass_policy_errors": Shape("Edits of the policy that were refused.", together=max),
    "lowpass_policies": Shape(
        "Different policies of the gateways that share these budgets: 1 where they agree.",
        family=GaugeMetricFamily,
        together=max,
    ),
    # Read from the store that all share, by who answers.
    "lowpass_budget_limit_usd": Shape("Limits of a budget's pots.", ("budget",), GaugeMetricFamily),
    "lowpass_budget_spent_usd": Shape("Spent of them.", ("budget",), GaugeMetricFamily),
    "lowpass_budget_held_usd": Shape("Held of them.", ("budget",), GaugeMetricFamily),
    "lowpass_budget_limit_tokens": Shape("Limits of a thinking budget's pots.", ("budget",), GaugeMetricFamily),
    "lowpass_budget_spent_tokens": Shape("Spent of them.", ("budget",), GaugeMetricFamily),
    "lowpass_budget_held_tokens": Shape("Held of them.", ("budget",), GaugeMetricFamily),
    "lowpass_budget_used_share": Shape("Spent and held of its fullest pot, 1 is all.", ("budget",), GaugeMetricFamily),
    # As the engines say it, by who answers.
    "lowpass_engine_ready": Shape("1 while a replica serves.", ENGINE, GaugeMetricFamily),
    "lowpass_engine_restarts": Shape("Times that it was started again.", ENGINE),
    "lowpass_engine_running": Shape("Requests that it works on.", ENGINE, GaugeMetricFamily),
    "lowpass_engine_waiting": Shape("Requests in its queue.", ENGINE, GaugeMetricFamily),
    "lowpass_engine_kv_cache_share": Shape("KV cache in use, 1 is all.", ENGINE, GaugeMetricFamily),
    "lowpass_engine_rejected": Shape("Requests that it turned away.", ENGINE),
    "lowpass_engine_preempted": Shape("Requests that it set aside for lack of memory.", ENGINE),
}


def edge_names(edges: Iterable[float]) -> tuple[str, ...]:
    """As Prometheus writes them; the last bucket has no edge."""
    return (*(str(float(edge)) for edge in edges), "+Inf")


def together(parts: Iterable[Values]) -> Values:
    """What several processes have counted, as one."""
    found: defaultdict[str, defaultdict[tuple[str, ...], list[float]]] = defaultdict(lambda: defaultdict(list))
    for values in parts:
        for name, numbers in values.items():
            for labels, number in numbers.items():
                found[name][labels].append(number)
    return {
        name: {labels: SHAPES[name].together(several) for labels, several in numbers.items()}
        for name, numbers in found.items()
    }


def counters(values: Values) -> Values:
    """What stays of a process that is gone."""
    return {name: numbers for name, numbers in values.items() if SHAPES[name].family is not GaugeMetricFamily}
