"""A request that is over → its spans: one for all of it, one a step, one an attempt."""

from itertools import pairwise

from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from router.observe.observed import Observed
from router.observe.semantics import BENIGN, OPERATIONS, PATHS, attempt, request

_NS_PER_MS = 1_000_000
_propagator = TraceContextTextMapPropagator()


class Spans:
    """Who sends a `traceparent` finds the request in their own trace; whether it is sampled is theirs to say."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def tell(self, observed: Observed) -> None:
        sent = {name.decode(): value.decode("latin-1") for name, value in observed.parent.items()}
        outer = _propagator.extract(sent, Context())
        name = f"POST {PATHS[observed.endpoint]}"
        root = self._tracer.start_span(
            name, outer, SpanKind.SERVER, request(observed), start_time=observed.began_ns, record_exception=False
        )
        if root.is_recording():
            if observed.status >= 500:
                root.set_status(Status(StatusCode.ERROR))
            self._within(observed, set_span_in_context(root, Context()))
        root.end(observed.ended_ns)

    def _within(self, observed: Observed, inside: Context) -> None:
        """Attempts belong to the last step that asked targets."""
        calling = inside
        for (name, began), (_, ended) in pairwise((*observed.steps, ("", observed.ended_ns))):
            step = self._tracer.start_span(name, inside, start_time=began)
            if name == "dispatch":
                calling = set_span_in_context(step, Context())
            step.end(ended)
        for number in range(len(observed.attempts)):
            self._attempt(observed, number, calling).end(self._end(observed, number))

    def _attempt(self, observed: Observed, number: int, calling: Context) -> Span:
        one = observed.attempts[number]
        span = self._tracer.start_span(
            f"{OPERATIONS[observed.endpoint]} {one.target.model.name}",
            calling,
            SpanKind.CLIENT,
            {**attempt(observed, one), "lowpass.attempt.number": number + 1},
            start_time=one.started_ms * _NS_PER_MS,
        )
        if one.outcome not in BENIGN:
            span.set_status(Status(StatusCode.ERROR))
        return span

    def _end(self, observed: Observed, number: int) -> int:
        one = observed.attempts[number]
        return (one.started_ms + one.total_ms) * _NS_PER_MS
