"""A request that is over → OpenTelemetry's metrics of it, in the buckets that its conventions advise."""

from collections.abc import Sequence

from opentelemetry.metrics import Histogram, Meter

from router.observe.observed import Observed
from router.observe.semantics import OPERATIONS, Attribute, common
from router.types.attempt import Attempt

TOKENS = tuple(4**power for power in range(14))
SECONDS = tuple(round(0.01 * 2**power, 2) for power in range(14))
FIRST_TOKEN = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
_NS_PER_S = 1e9


class Measures:
    """Labels are bounded by the policy. `client` metrics are of attempts, `server` metrics of requests."""

    def __init__(self, meter: Meter) -> None:
        def histogram(name: str, unit: str, about: str, buckets: Sequence[float]) -> Histogram:
            return meter.create_histogram(name, unit, about, explicit_bucket_boundaries_advisory=buckets)

        self._tokens = histogram("gen_ai.client.token.usage", "{token}", "Tokens of a call.", TOKENS)
        self._calls = histogram("gen_ai.client.operation.duration", "s", "Time of a call.", SECONDS)
        self._requests = histogram("gen_ai.server.request.duration", "s", "Time of a request.", SECONDS)
        self._first = histogram("gen_ai.server.time_to_first_token", "s", "Until a stream began.", FIRST_TOKEN)
        self._cost = meter.create_counter("lowpass.cost", "{USD}", "Charged.")
        self._thinking = meter.create_counter("lowpass.thinking.tokens", "{token}", "Reasoning tokens.")

    def tell(self, observed: Observed) -> None:
        for one in observed.attempts:
            self._attempt(common(observed, one), one)
        about: dict[str, Attribute] = {"gen_ai.operation.name": OPERATIONS[observed.endpoint]}
        if observed.decision is not None:
            about["lowpass.route"] = observed.decision.plan.route
        first = _first_s(observed)
        if first is not None:
            self._first.record(first, about)
        if observed.error is not None:
            about["error.type"] = str(observed.error)
        self._requests.record((observed.ended_ns - observed.began_ns) / _NS_PER_S, about)

    def _attempt(self, about: dict[str, Attribute], one: Attempt) -> None:
        self._calls.record(one.total_ms / 1000, about)
        self._cost.add(one.cost.nano / _NS_PER_S, about)
        if one.usage is not None:
            self._tokens.record(one.usage.input_total, {**about, "gen_ai.token.type": "input"})
            self._tokens.record(one.usage.output_total, {**about, "gen_ai.token.type": "output"})
            self._thinking.add(one.usage.output_reasoning or 0, about)


def _first_s(observed: Observed) -> float | None:
    """From the client's first byte to the first that a target streamed of the answer."""
    served = observed.served
    if not observed.stream or served is None or served.first_ms is None:
        return None
    return max(0.0, (served.started_ms + served.first_ms) / 1000 - observed.began_ns / _NS_PER_S)
