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
from opentelemetry.sdk.metrics.export import MetricExportResult, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from router.ledger.write import plain
from router.observe.observer import ObservedRequest
from router.types.attempt import Attempt
from router.types.price import NANO_PER_USD
from router.types.request import Endpoint

# OpenTelemetry's names for what a gateway knows: GenAI semantic conventions, as of 1.42 (status: development).
#
# https://github.com/open-telemetry/semantic-conventions-genai

Attribute = str | bool | int | float | list[str]
OPERATIONS = {
    Endpoint.CHAT: "chat",
    Endpoint.RESPONSES: "chat",
    Endpoint.MESSAGES: "chat",
    Endpoint.COMPLETIONS: "text_completion",
    Endpoint.EMBEDDINGS: "embeddings",
}
PATHS = {
    Endpoint.CHAT: "/v1/chat/completions",
    Endpoint.RESPONSES: "/v1/responses",
    Endpoint.MESSAGES: "/v1/messages",
    Endpoint.COMPLETIONS: "/v1/completions",
    Endpoint.EMBEDDINGS: "/v1/embeddings",
}
_PROVIDERS = {
    "azure": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "gemini": "gcp.gemini",
    "mistral": "mistral_ai",
    "moonshot": "moonshot_ai",
    "vertex": "gcp.vertex_ai",
    "xai": "x_ai",
}
"""Our ids of providers that have another well-known name there."""
BENIGN = ("ok", "client_gone", "outrun")
"""Outcomes that are no error of the target."""


def common_attributes(observed: ObservedRequest, attempt: Attempt) -> dict[str, Attribute]:
    """What metrics tell apart: names of the policy and of the catalog."""
    provider = attempt.target.provider.id
    attributes: dict[str, Attribute] = {
        "gen_ai.operation.name": OPERATIONS[observed.endpoint],
        "gen_ai.provider.name": _PROVIDERS.get(provider, provider),
        "gen_ai.request.model": attempt.target.model.name,
        "lowpass.target": attempt.target.id,
    }
    if attempt.outcome not in BENIGN:
        attributes["error.type"] = str(attempt.outcome)
    return attributes


def attempt_attributes(observed: ObservedRequest, attempt: Attempt) -> dict[str, Attribute]:
    """Of a call of a target."""
    first_s = attempt.first_ms / 1000 if observed.stream and attempt.first_ms is not None else None
    address = urlsplit(attempt.target.base_url)  # without path, user or password
    optional: Mapping[str, Attribute | None] = {
        "gen_ai.response.model": plain(attempt.model_served) or None,
        "gen_ai.response.finish_reasons": [plain(attempt.finish_reason)] if attempt.finish_reason else None,
        "gen_ai.response.time_to_first_chunk": first_s,
        "http.response.status_code": attempt.status,
        "lowpass.attempt.role": attempt.role or None,
        "lowpass.region": attempt.region or None,
        "lowpass.thinking_cost_nano_usd": attempt.cost.thinking,
        "server.address": address.hostname,
        "server.port": address.port or (443 if address.scheme == "https" else 80),
        **_usage(attempt),
    }
    return {
        **common_attributes(observed, attempt),
        "gen_ai.request.stream": observed.stream,
        "lowpass.outcome": str(attempt.outcome),
        "lowpass.effort": attempt.thinking,
        "lowpass.redacted": attempt.redacted,
        "lowpass.cost_usd": attempt.cost.nano / NANO_PER_USD,
        "lowpass.cost_nano_usd": attempt.cost.nano,
        **{name: value for name, value in optional.items() if value is not None},
    }


def request_attributes(observed: ObservedRequest) -> dict[str, Attribute]:
    """Of all that a client asked for."""
    attributes: dict[str, Attribute] = {
        "http.request.method": "POST",
        "http.route": PATHS[observed.endpoint],
        "http.response.status_code": observed.status,
        "gen_ai.operation.name": OPERATIONS[observed.endpoint],
        "lowpass.request.id": observed.id,
        "lowpass.attempts": len(observed.attempts),
        "lowpass.cost_usd": observed.cost / NANO_PER_USD,
        "lowpass.cost_nano_usd": observed.cost,
    }
    if observed.error is not None:
        attributes["error.type"] = str(observed.error)
    return attributes | _decided(observed)


def _decided(observed: ObservedRequest) -> dict[str, Attribute]:
    decision, served = observed.decision, observed.served
    if decision is None:
        return {}
    attributes: dict[str, Attribute] = {
        "lowpass.route": decision.plan.route,
        "lowpass.strategy": decision.plan.strategy,
        "lowpass.class": decision.classification.data_class,
        "lowpass.task": "unread" if decision.classification.unread else decision.classification.task.value,
        "lowpass.policy": decision.policy,
    }
    return attributes if served is None else attributes | {"lowpass.target": served.target.id}


def _usage(attempt: Attempt) -> dict[str, int | None]:
    usage = attempt.usage
    if usage is None:
        return {}
    return {
        "gen_ai.usage.input_tokens": usage.input_total,
        "gen_ai.usage.output_tokens": usage.output_total,
        "gen_ai.usage.reasoning.output_tokens": usage.output_reasoning,
        "gen_ai.usage.cache_read.input_tokens": usage.cached or None,
        "gen_ai.usage.cache_creation.input_tokens": usage.written or None,
    }


# A request that is over → OpenTelemetry's metrics of it, in the buckets that its conventions advise.

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

    def tell(self, observed: ObservedRequest) -> None:
        for attempt in observed.attempts:
            self._attempt(common_attributes(observed, attempt), attempt)
        about: dict[str, Attribute] = {"gen_ai.operation.name": OPERATIONS[observed.endpoint]}
        if observed.decision is not None:
            about["lowpass.route"] = observed.decision.plan.route
        first = _first_s(observed)
        if first is not None:
            self._first.record(first, about)
        if observed.error is not None:
            about["error.type"] = str(observed.error)
        self._requests.record((observed.ended_ns - observed.began_ns) / _NS_PER_S, about)

    def _attempt(self, about: dict[str, Attribute], attempt: Attempt) -> None:
        self._calls.record(attempt.total_ms / 1000, about)
        self._cost.add(attempt.cost.nano / NANO_PER_USD, about)
        if attempt.usage is not None:
            self._tokens.record(attempt.usage.input_total, {**about, "gen_ai.token.type": "input"})
            self._tokens.record(attempt.usage.output_total, {**about, "gen_ai.token.type": "output"})
            self._thinking.add(attempt.usage.output_reasoning or 0, about)


def _first_s(observed: ObservedRequest) -> float | None:
    """From the client's first byte to the first that a target streamed of the answer."""
    served = observed.served
    if not observed.stream or served is None or served.first_ms is None:
        return None
    return max(0.0, (served.started_ms + served.first_ms) / 1000 - observed.began_ns / _NS_PER_S)


# A request that is over → its spans: one for all of it, one a step, one an attempt.

_NS_PER_MS = 1_000_000
_propagator = TraceContextTextMapPropagator()


class Spans:
    """Who sends a `traceparent` finds the request in their own trace; whether it is sampled is theirs to say."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def tell(self, observed: ObservedRequest) -> None:
        sent = {name.decode(): value.decode("latin-1") for name, value in observed.parent.items()}
        outer = _propagator.extract(sent, Context())
        name = f"POST {PATHS[observed.endpoint]}"
        root = self._tracer.start_span(
            name,
            outer,
            SpanKind.SERVER,
            request_attributes(observed),
            start_time=observed.began_ns,
            record_exception=False,
        )
        if root.is_recording():
            if observed.status >= 500:
                root.set_status(Status(StatusCode.ERROR))
            self._within(observed, set_span_in_context(root, Context()))
        root.end(observed.ended_ns)

    def _within(self, observed: ObservedRequest, inside: Context) -> None:
        """Attempts belong to the last step that asked targets."""
        calling = inside
        for (name, began), (_, ended) in pairwise((*observed.steps, ("", observed.ended_ns))):
            step = self._tracer.start_span(name, inside, start_time=began)
            if name == "dispatch":
                calling = set_span_in_context(step, Context())
            step.end(ended)
        for number, attempt in enumerate(observed.attempts, 1):
            self._attempt(observed, number, attempt, calling).end((attempt.started_ms + attempt.total_ms) * _NS_PER_MS)

    def _attempt(self, observed: ObservedRequest, number: int, attempt: Attempt, calling: Context) -> Span:
        span = self._tracer.start_span(
            f"{OPERATIONS[observed.endpoint]} {attempt.target.model.name}",
            calling,
            SpanKind.CLIENT,
            {**attempt_attributes(observed, attempt), "lowpass.attempt.number": number},
            start_time=attempt.started_ms * _NS_PER_MS,
        )
        if attempt.outcome not in BENIGN:
            span.set_status(Status(StatusCode.ERROR))
        return span


# Spans and metrics for an OpenTelemetry collector: OTLP over HTTP, as the standard variables say.

_SCOPE = "lowpass"
_log = logging.getLogger("lowpass")


class Otlp:
    """A sink. Queues are bounded by OTEL_BSP_MAX_QUEUE_SIZE; what a collector does not take is dropped."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        # The SDK has a line for every attempt that fails; ours has one for each outage.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        resource, telling = _resource(environ), _Telling()
        self._spans = self._measures = None
        if _exported(environ, "TRACES"):
            self._traces = TracerProvider(resource=resource, shutdown_on_exit=False)
            self._traces.add_span_processor(BatchSpanProcessor(_SpanExporter(telling)))
            self._spans = Spans(self._traces.get_tracer(_SCOPE))
        if _exported(environ, "METRICS"):
            reader = PeriodicExportingMetricReader(_MetricExporter(telling))
            self._metrics = MeterProvider([reader], resource, shutdown_on_exit=False)
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
    """Named for all signals or for this one, and not switched off."""
    named = environ.get("OTEL_EXPORTER_OTLP_ENDPOINT") or environ.get(f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT")
    return bool(named) and environ.get(f"OTEL_{signal}_EXPORTER", "otlp").strip().lower() != "none"


def _resource(environ: Mapping[str, str]) -> Resource:
    """A name that the operator gives wins. Every process counts for itself, so each is an instance."""
    own = {"service.instance.id": str(uuid.uuid4())}
    if not environ.get("OTEL_SERVICE_NAME") and "service.name=" not in environ.get("OTEL_RESOURCE_ATTRIBUTES", ""):
        own["service.name"] = _SCOPE
    return Resource.create(own)


class _Telling:
    """One line when a collector stops to answer, and one when it answers again."""

    def __init__(self) -> None:
        self._down = False

    def tell(self, failed: bool) -> None:
        if failed and not self._down:
            _log.warning("the OpenTelemetry collector does not answer: requests go on, spans and metrics are dropped")
        if self._down and not failed:
            _log.info("the OpenTelemetry collector answers again")
        self._down = failed


class _SpanExporter(OTLPSpanExporter):
    def __init__(self, telling: _Telling) -> None:
        super().__init__()
        self._telling = telling

    def export(self, spans: Any) -> SpanExportResult:
        result = super().export(spans)
        self._telling.tell(result is not SpanExportResult.SUCCESS)
        return result


class _MetricExporter(OTLPMetricExporter):
    def __init__(self, telling: _Telling) -> None:
        super().__init__()
        self._telling = telling

    def export(self, *arguments: Any, **named: Any) -> MetricExportResult:
        result = super().export(*arguments, **named)
        self._telling.tell(result is not MetricExportResult.SUCCESS)
        return result
