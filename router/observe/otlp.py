"""OpenTelemetry: names, spans and metrics of requests, and their export."""

import logging
import uuid
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any
from urllib.parse import urlsplit

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.metrics import Histogram, Meter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, Status, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from router.ledger.write import plain
from router.observe.observer import ObservedRequest
from router.types.attempt import Attempt
from router.types.price import NANO_PER_USD
from router.types.tables import table

# A finished request in OpenTelemetry's names.

Attribute = str | bool | int | float | list[str]
_NAMES: Mapping[str, Any] = table("observe/otel.yaml")
OPERATIONS, PATHS, BENIGN = _NAMES["operations"], _NAMES["paths"], _NAMES["benign"]


def common_attributes(observed: ObservedRequest, attempt: Attempt) -> dict[str, Attribute]:
    """Returns the attributes that metrics distinguish: names from the policy and the catalog."""
    provider = attempt.target.provider.id
    attributes: dict[str, Attribute] = {
        "gen_ai.operation.name": OPERATIONS[observed.endpoint],
        "gen_ai.provider.name": _NAMES["providers"].get(provider, provider),
        "gen_ai.request.model": attempt.target.model.name,
        "lowpass.target": attempt.target.id,
    }
    return attributes if attempt.outcome in BENIGN else attributes | {"error.type": str(attempt.outcome)}


def attempt_attributes(observed: ObservedRequest, attempt: Attempt) -> dict[str, Attribute]:
    """Returns the attributes of a call of a target."""
    first_s = attempt.first_ms / 1000 if observed.stream and attempt.first_ms is not None else None
    address = urlsplit(attempt.target.base_url)  # without path, user or password
    attributes: dict[str, Attribute | None] = {
        **common_attributes(observed, attempt),
        "gen_ai.request.stream": observed.stream,
        "gen_ai.response.model": plain(attempt.model_served) or None,
        "gen_ai.response.finish_reasons": [plain(attempt.finish_reason)] if attempt.finish_reason else None,
        "gen_ai.response.time_to_first_chunk": first_s,
        "http.response.status_code": attempt.status,
        "lowpass.attempt.role": attempt.role or None,
        "lowpass.outcome": str(attempt.outcome),
        "lowpass.effort": attempt.thinking,
        "lowpass.redacted": attempt.redacted,
        "lowpass.region": attempt.region or None,
        "lowpass.cost_usd": attempt.cost.nano / NANO_PER_USD,
        "lowpass.cost_nano_usd": attempt.cost.nano,
        "lowpass.thinking_cost_nano_usd": attempt.cost.thinking,
        "server.address": address.hostname,
        "server.port": address.port or (443 if address.scheme == "https" else 80),
    }
    if (usage := attempt.usage) is not None:
        attributes |= {
            "gen_ai.usage.input_tokens": usage.totals.input,
            "gen_ai.usage.output_tokens": usage.totals.output,
            "gen_ai.usage.reasoning.output_tokens": usage.output_reasoning,
            "gen_ai.usage.cache_read.input_tokens": usage.totals.cached or None,
            "gen_ai.usage.cache_creation.input_tokens": usage.totals.written or None,
        }
    return {name: value for name, value in attributes.items() if value is not None}


def request_attributes(observed: ObservedRequest) -> dict[str, Attribute]:
    """Returns the attributes of a client's whole request."""
    attributes: dict[str, Attribute] = {
        "http.request.method": "POST",
        "http.route": PATHS[observed.endpoint],
        "http.response.status_code": observed.status,
        "gen_ai.operation.name": OPERATIONS[observed.endpoint],
        "lowpass.request.id": observed.id,
        "lowpass.attempts": len(observed.attempts),
        "lowpass.cost_usd": observed.cost / NANO_PER_USD,
        "lowpass.cost_nano_usd": observed.cost,
        **{f"lowpass.{name}": value for name, value in observed.decided.items() if name != "explored"},
    }
    if observed.error is not None:
        attributes["error.type"] = str(observed.error)
    if observed.decision is not None and observed.served is not None:
        attributes["lowpass.target"] = observed.served.target.id
    return attributes


# A finished request → OpenTelemetry's metrics of it.

_NS_PER_MS, _NS_PER_S = 1_000_000, 1e9


class Measures:
    """Metrics. The policy bounds the labels. `client` metrics are about attempts, `server` metrics about requests."""

    def __init__(self, meter: Meter) -> None:
        def histogram(name: str, unit: str, about: str, buckets: str) -> Histogram:
            edges = _NAMES["buckets"][buckets]
            return meter.create_histogram(f"gen_ai.{name}", unit, about, explicit_bucket_boundaries_advisory=edges)

        self._tokens = histogram("client.token.usage", "{token}", "Tokens of a call.", "tokens")
        self._calls = histogram("client.operation.duration", "s", "Time of a call.", "seconds")
        self._requests = histogram("server.request.duration", "s", "Time of a request.", "seconds")
        self._first = histogram("server.time_to_first_token", "s", "Until a stream began.", "first")
        self._cost = meter.create_counter("lowpass.cost", "{USD}", "Charged.")
        self._thinking = meter.create_counter("lowpass.thinking.tokens", "{token}", "Reasoning tokens.")

    def tell(self, observed: ObservedRequest) -> None:
        for attempt in observed.attempts:
            about = common_attributes(observed, attempt)
            self._calls.record(attempt.total_ms / 1000, about)
            self._cost.add(attempt.cost.nano / NANO_PER_USD, about)
            if (usage := attempt.usage) is not None:
                self._tokens.record(usage.totals.input, {**about, "gen_ai.token.type": "input"})
                self._tokens.record(usage.totals.output, {**about, "gen_ai.token.type": "output"})
                self._thinking.add(usage.output_reasoning or 0, about)
        about = {"gen_ai.operation.name": OPERATIONS[observed.endpoint]}
        if observed.decision is not None:
            about["lowpass.route"] = observed.decision.plan.route
        served = observed.served
        if observed.stream and served is not None and served.first_ms is not None:
            # From the first byte of the client's request to the first byte of the target's stream.
            first_s = (served.started_ms + served.first_ms) / 1000 - observed.began_ns / _NS_PER_S
            self._first.record(max(0.0, first_s), about)
        if observed.error is not None:
            about["error.type"] = str(observed.error)
        self._requests.record((observed.ended_ns - observed.began_ns) / _NS_PER_S, about)


# A finished request → its spans: one for the whole, one per step, one per attempt.

_propagator = TraceContextTextMapPropagator()


class Spans:
    """Spans of requests. A client's `traceparent` makes them part of its trace and decides on sampling."""

    def __init__(self, tracer: Tracer) -> None:
        self._start = tracer.start_span

    def tell(self, observed: ObservedRequest) -> None:
        sent = {name.decode(): value.decode("latin-1") for name, value in observed.parent.items()}
        outer, about = _propagator.extract(sent, Context()), request_attributes(observed)
        name, began = f"POST {PATHS[observed.endpoint]}", observed.began_ns
        root = self._start(name, outer, SpanKind.SERVER, about, start_time=began, record_exception=False)
        if root.is_recording():
            if observed.status >= 500:
                root.set_status(Status(StatusCode.ERROR))
            self._add_children(observed, set_span_in_context(root, Context()))
        root.end(observed.ended_ns)

    def _add_children(self, observed: ObservedRequest, inside: Context) -> None:
        """Adds the spans of steps and attempts. Attempts belong to the last `dispatch` step."""
        calling, operation = inside, OPERATIONS[observed.endpoint]
        for (name, began), (_, ended) in pairwise((*observed.steps, ("", observed.ended_ns))):
            step = self._start(name, inside, start_time=began)
            if name == "dispatch":
                calling = set_span_in_context(step, Context())
            step.end(ended)
        for number, attempt in enumerate(observed.attempts, 1):
            name, began = f"{operation} {attempt.target.model.name}", attempt.started_ms * _NS_PER_MS
            about = {**attempt_attributes(observed, attempt), "lowpass.attempt.number": number}
            span = self._start(name, calling, SpanKind.CLIENT, about, start_time=began)
            if attempt.outcome not in BENIGN:
                span.set_status(Status(StatusCode.ERROR))
            span.end(began + attempt.total_ms * _NS_PER_MS)


# Spans and metrics for an OpenTelemetry collector: OTLP over HTTP, configured by the standard variables.

_SCOPE = "lowpass"
_log = logging.getLogger("lowpass")


class Otlp:
    """A sink. OTEL_BSP_MAX_QUEUE_SIZE bounds the queue; what the collector does not accept is dropped."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        # The SDK logs every failed attempt. This module logs each outage once.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        # An operator's service name wins. Every process counts for itself, so each is an instance.
        own, down = {"service.instance.id": str(uuid.uuid4())}, set[str]()
        if not environ.get("OTEL_SERVICE_NAME") and "service.name=" not in environ.get("OTEL_RESOURCE_ATTRIBUTES", ""):
            own["service.name"] = _SCOPE
        resource = Resource.create(own)
        self._spans = self._measures = None
        if _exported(environ, "TRACES"):
            self._traces = TracerProvider(resource=resource, shutdown_on_exit=False)
            spans: Any = _Exporter(OTLPSpanExporter(), down)
            self._traces.add_span_processor(BatchSpanProcessor(spans))
            self._spans = Spans(self._traces.get_tracer(_SCOPE))
        if _exported(environ, "METRICS"):
            measures: Any = _Exporter(OTLPMetricExporter(), down)
            self._metrics = MeterProvider([PeriodicExportingMetricReader(measures)], resource, shutdown_on_exit=False)
            self._measures = Measures(self._metrics.get_meter(_SCOPE))

    def tell(self, batch: Sequence[ObservedRequest]) -> None:
        for observed in batch:
            if self._measures is not None:
                self._measures.tell(observed)
            if self._spans is not None:
                self._spans.tell(observed)

    def close(self) -> None:
        if self._spans is not None:
            self._traces.shutdown()
        if self._measures is not None:
            self._metrics.shutdown()


def _exported(environ: Mapping[str, str], signal: str) -> bool:
    """Whether an endpoint is set, for all signals or this one, and the signal's export is not off."""
    named = environ.get("OTEL_EXPORTER_OTLP_ENDPOINT") or environ.get(f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT")
    return bool(named) and environ.get(f"OTEL_{signal}_EXPORTER", "otlp").strip().lower() != "none"


class _Exporter:
    """Wraps the SDK's exporter. Logs when the collector stops answering and when it answers again; `down` is shared."""

    def __init__(self, exporter: Any, down: set[str]) -> None:
        self._exporter, self._down = exporter, down

    def __getattr__(self, name: str) -> Any:
        return getattr(self._exporter, name)

    def export(self, *arguments: Any, **named: Any) -> Any:
        result = self._exporter.export(*arguments, **named)
        if result.name != "SUCCESS" and not self._down:
            self._down.add(_SCOPE)
            _log.warning("the OpenTelemetry collector does not answer: requests go on, spans and metrics are dropped")
        elif result.name == "SUCCESS" and self._down:
            self._down.clear()
            _log.info("the OpenTelemetry collector answers again")
        return result
