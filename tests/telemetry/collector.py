"""An OpenTelemetry collector: takes OTLP over HTTP and keeps it decoded, as the official protobuf says."""

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue


class Collector(ThreadingHTTPServer):
    """`raw` has every byte that came, decompressed."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.raw, self.headers = list[bytes](), list[dict[str, str]]()
        self.traces, self.metrics = list[ExportTraceServiceRequest](), list[ExportMetricsServiceRequest]()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def resource(self) -> dict[str, Any]:
        return attributes(self.traces[0].resource_spans[0].resource.attributes)

    @property
    def spans(self) -> list[Any]:
        return [
            span
            for export in list(self.traces)
            for resource in export.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def of_request(self, identifier: str) -> list[Any]:
        """All spans of the trace of one request, once its own is among them."""
        roots = [span for span in self.spans if attributes(span.attributes).get("lowpass.request.id") == identifier]
        return [span for span in self.spans if span.trace_id == roots[0].trace_id] if roots else []

    def points(self, name: str) -> list[Any]:
        """The latest data points of a metric."""
        found: list[Any] = []
        for export in list(self.metrics):
            for metric in export.resource_metrics[0].scope_metrics[0].metrics:
                if metric.name == name:
                    found = list(getattr(metric, metric.WhichOneof("data")).data_points)
        return found


def attributes(found: Any) -> dict[str, Any]:
    return {one.key: _value(one.value) for one in found if isinstance(one, KeyValue)}


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(one) for one in value.array_value.values]
    return getattr(value, str(kind))


class _Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        self.server.raw.append(body)
        self.server.headers.append({name.lower(): value for name, value in self.headers.items()})
        if self.path == "/v1/traces":
            self.server.traces.append(ExportTraceServiceRequest.FromString(body))
        elif self.path == "/v1/metrics":
            self.server.metrics.append(ExportMetricsServiceRequest.FromString(body))
        self.send_response(200 if self.path in ("/v1/traces", "/v1/metrics") else 404)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@contextmanager
def collecting() -> Iterator[Collector]:
    collector = Collector()
    thread = Thread(target=collector.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield collector
    finally:
        collector.shutdown()
        collector.server_close()
        thread.join(10)
