"""What one process has counted. Counters are plain integers; Prometheus reads them when it asks."""

from collections import defaultdict
from collections.abc import Mapping

from router.budget.loops.loops import Kind
from router.classify.deep.second import Verdict
from router.telemetry.histogram import Histogram
from router.telemetry.shapes import Numbers, Values
from router.types.attempt import Attempt
from router.types.money import NANO_PER_USD


class Telemetry:
    """Cardinality is bounded by the policy: labels are routes, targets and closed sets, never text of a request."""

    def __init__(self) -> None:
        self.requests: defaultdict[tuple[str, int], int] = defaultdict(int)
        self.attempts: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.cost: defaultdict[str, int] = defaultdict(int)
        self.own_cost: defaultdict[str, int] = defaultdict(int)
        self.overruns = 0
        self.tokens: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.thinking_cost: defaultdict[str, int] = defaultdict(int)
        self.saved: defaultdict[str, int] = defaultdict(int)
        self.extra: defaultdict[str, int] = defaultdict(int)
        self.held = self.held_used = 0
        self.calls, self.first_bytes = Histogram("lowpass_attempt_seconds"), Histogram("lowpass_first_byte_seconds")
        self.overhead = Histogram("lowpass_overhead_seconds")
        self.ledger = True
        self.in_flight = 0
        self.health: Mapping[str, str] = {}
        self.policy_errors = 0
        self.policies: frozenset[str] = frozenset()
        """Hashes of those of all gateways that share the budgets."""
        self.spilled: defaultdict[str, int] = defaultdict(int)
        self.loops: Mapping[str, int] = dict.fromkeys(Kind, 0)
        self.opinions: dict[Verdict, int] = dict.fromkeys(Verdict, 0)
        self.verdicts: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.judged: dict[str, int] = {"passed": 0, "failed": 0}
        self.contradictory = 0
        self.outcomes: dict[str, int] = {"learned": 0, "not_learned": 0}
        self.passes: defaultdict[tuple[str, str], int] = defaultdict(int)
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

    def settled(self, route: str, status: int, attempts: list[Attempt], overhead_us: int, held: int | None) -> None:
        """`held`: nano-USD that were held for it; None where no budget in USD binds it."""
        self.requests[route, status] += 1
        self.overhead.add((), overhead_us / 1_000_000)
        if held is not None:
            self.held += held
            self.held_used += sum(attempt.cost.nano for attempt in attempts)
        for attempt in attempts:
            self._attempt(attempt.target.id, attempt)

    def _attempt(self, name: str, attempt: Attempt) -> None:
        cost, usage = attempt.cost, attempt.usage
        self.attempts[name, attempt.outcome] += 1
        self.cost[name] += cost.nano
        self.own_cost[name] += cost.nano if cost.own is None else cost.own
        self.thinking_cost[name] += cost.thinking or 0
        if cost.saved:
            (self.saved if cost.saved > 0 else self.extra)[name] += abs(cost.saved)
        self.calls.add((name,), attempt.total_ms / 1000)
        if attempt.first_ms is not None:
            self.first_bytes.add((name,), attempt.first_ms / 1000)
        if usage is not None:
            self.tokens[name, "input"] += usage.input_total
            self.tokens[name, "output"] += usage.output_total
            if usage.output_reasoning is not None:
                self.tokens[name, "reasoning"] += usage.output_reasoning
            if usage.cached or usage.written:
                self.tokens[name, "cache_read"] += usage.cached
                self.tokens[name, "cache_write"] += usage.written

    def values(self) -> Values:
        """In the event loop: it is one moment's."""
        unhealthy = sum(state in ("open", "half-open", "region mismatch") for state in self.health.values())
        return {
            "lowpass_requests": {(route, str(status)): count for (route, status), count in self.requests.items()},
            "lowpass_attempts": {(target, str(outcome)): count for (target, outcome), count in self.attempts.items()},
            "lowpass_tokens": {(target, way): count for (target, way), count in self.tokens.items()},
            "lowpass_cost_usd": _usd(self.cost),
            "lowpass_own_cost_usd": _usd(self.own_cost),
            "lowpass_thinking_cost_usd": _usd(self.thinking_cost),
            "lowpass_cache_saved_usd": _usd(self.saved),
            "lowpass_cache_extra_usd": _usd(self.extra),
            "lowpass_overruns": {(): self.overruns},
            "lowpass_held_usd": {(): self.held / NANO_PER_USD},
            "lowpass_held_used_usd": {(): self.held_used / NANO_PER_USD},
            "lowpass_attempt_seconds": self.calls.values,
            "lowpass_first_byte_seconds": self.first_bytes.values,
            "lowpass_overhead_seconds": self.overhead.values,
            "lowpass_ledger_available": {(): float(self.ledger)},
            "lowpass_in_flight": {(): self.in_flight},
            "lowpass_open_circuits": {(): unhealthy},
            "lowpass_loops_tripped": {(str(kind),): count for kind, count in self.loops.items()},
            "lowpass_second_opinions": {(str(verdict),): count for verdict, count in self.opinions.items()},
            "lowpass_verdicts": {pair: count for pair, count in self.verdicts.items()},
            "lowpass_feedback": {(result,): count for result, count in self.judged.items()},
            "lowpass_outcomes_contradictory": {(): self.contradictory},
            "lowpass_outcomes": {(result,): count for result, count in self.outcomes.items()},
            "lowpass_passes": {pair: count for pair, count in self.passes.items()},
            "lowpass_drift_alarms": {(target,): count for target, count in self.drift.items()},
            "lowpass_judgements": {pair: count for pair, count in self.judgements.items()},
            "lowpass_judge_consistency": {(judge,): share for judge, share in self.consistency.items()},
            "lowpass_judge_agreement": {(judge,): share for judge, share in self.agreement.items()},
            "lowpass_spilled": {(target,): count for target, count in self.spilled.items()},
            "lowpass_policy_errors": {(): self.policy_errors},
            "lowpass_policies": {(): len(self.policies)},
        }


def _usd(by_target: Mapping[str, int]) -> Numbers:
    return {(target,): nano / NANO_PER_USD for target, nano in by_target.items()}
