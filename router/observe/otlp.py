"""Spans and metrics for an OpenTelemetry collector: OTLP over HTTP, as the standard variables say."""

import logging
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricExportResult, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult

from router.observe.measures import Measures
from router.observe.observed import Observed
from router.observe.spans import Spans

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

    def tell(self, batch: Sequence[Observed]) -> None:
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
