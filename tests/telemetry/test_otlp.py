"""Spans and metrics as a collector receives them from a real gateway."""

import gzip
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from router.testing.upstream import Page, Recorded, Upstream
from tests.gateway.running import CHAT, Gateway, ordered, processing, serving, target, until
from tests.tables import each_row

CANARIES = ("CANARY-prompt-5521", "CANARY-session-5521", "CANARY-tag-5521", "sk-CANARYupstream5521", "CANARY-budget")
PROMPT, SESSION, TAG, KEY, _ = CANARIES
QUICK = {"OTEL_BSP_SCHEDULE_DELAY": "50", "OTEL_METRIC_EXPORT_INTERVAL": "100"}
TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"


class Collector(Upstream):
    """Takes OTLP over HTTP and decodes it, as the official protobuf says."""

    def page(self, request: Recorded) -> Page:
        return Page((b"",), 200 if request.path in ("/v1/traces", "/v1/metrics") else 404)

    def bodies(self, path: str) -> list[bytes]:
        sent = [request for request in self.requests if request.path.startswith(path)]
        packed = [(request.body, request.headers.get("content-encoding") == "gzip") for request in sent]
        return [gzip.decompress(body) if zipped else body for body, zipped in packed]

    @property
    def resources(self) -> list[Any]:
        exports = map(ExportTraceServiceRequest.FromString, self.bodies("/v1/traces"))
        return [resource for export in exports for resource in export.resource_spans]

    def of_request(self, identifier: str) -> list[Any]:
        """All spans of the trace of one request, once its own is among them."""
        spans = [span for resource in self.resources for scope in resource.scope_spans for span in scope.spans]
        roots = [span for span in spans if attributes(span.attributes).get("lowpass.request.id") == identifier]
        return [span for span in spans if span.trace_id == roots[0].trace_id] if roots else []

    def points(self, name: str) -> list[Any]:
        """The latest data points of a metric."""
        latest: list[Any] = []
        for export in map(ExportMetricsServiceRequest.FromString, self.bodies("/v1/metrics")):
            for metric in export.resource_metrics[0].scope_metrics[0].metrics:
                if metric.name == name:
                    latest = list(getattr(metric, metric.WhichOneof("data")).data_points)
        return latest


def attributes(pairs: Iterable[KeyValue]) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    return list(map(_value, value.array_value.values)) if kind == "array_value" else getattr(value, str(kind))


def policy(url: str) -> dict[str, Any]:
    row: dict[str, Any] = {"api_key": KEY}
    targets = {name: target(url, name, **row) for name in ("normal", "reasoning", "error-500")}
    return {"version": 1, "targets": targets, "routes": {"auto": ordered("error-500", "normal")}}


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with Collector() as collector:
        yield collector


@pytest.fixture(scope="module")
def gateway(
    collector: Collector, upstream_server: Upstream, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gateway]:
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_SERVICE_NAME": "our-gateway"}
    environ |= {"OTEL_EXPORTER_OTLP_HEADERS": "x-tenant=acme", **QUICK}
    with serving(tmp_path_factory.mktemp("otlp"), policy(upstream_server.url), environ) as served:
        yield served


def ask(gateway: Gateway, model: str, headers: dict[str, str] | None = None, **body: Any) -> str:
    """The id of the request, whatever became of it."""
    named = {"x-lowpass-session": SESSION, "x-lowpass-tags": TAG, **(headers or {})}
    return gateway.chat(model, PROMPT, named, **body).id


def spans_of(collector: Collector, identifier: str) -> list[Any]:
    return until(lambda: collector.of_request(identifier))


def test_a_span_a_step_and_an_attempt(gateway: Gateway, collector: Collector) -> None:
    identifier = ask(gateway, "auto")
    spans = spans_of(collector, identifier)
    by_name = {span.name: span for span in spans}
    root = by_name["POST /v1/chat/completions"]
    steps = ["parse", "classify", "decide", "reserve", "dispatch", "settle"]
    assert set(by_name) == {root.name, *steps, "chat error-500", "chat normal"}
    assert {by_name[name].parent_span_id for name in steps} == {root.span_id}
    assert by_name["chat normal"].parent_span_id == by_name["dispatch"].span_id
    begins = [by_name[name].start_time_unix_nano for name in steps]
    assert begins == sorted(begins)
    assert by_name["settle"].end_time_unix_nano == root.end_time_unix_nano
    assert (root.kind, by_name["chat normal"].kind) == (2, 3)
    assert [by_name[name].status.code for name in ("chat error-500", "chat normal")] == [2, 0]


def test_attributes_are_the_conventions(gateway: Gateway, collector: Collector) -> None:
    identifier = ask(gateway, "reasoning")
    row = gateway.settled(identifier)
    found = {span.name: attributes(span.attributes) for span in spans_of(collector, identifier)}
    called, root = found["chat reasoning"], found["POST /v1/chat/completions"]
    (only,) = row["attempts"]
    assert called["gen_ai.operation.name"] == "chat"
    assert called["gen_ai.provider.name"] == "openai"
    assert called["gen_ai.request.model"] == "reasoning"
    assert called["gen_ai.response.finish_reasons"] == [only["finish_reason"]]
    assert called["gen_ai.usage.input_tokens"] == row["input_tokens"]
    assert called["gen_ai.usage.output_tokens"] == row["output_tokens"]
    assert called["gen_ai.usage.reasoning.output_tokens"] == row["reasoning_tokens"]
    assert called["lowpass.cost_nano_usd"] == root["lowpass.cost_nano_usd"] == row["cost"]
    assert called["server.address"] == "127.0.0.1"
    assert (root["lowpass.route"], root["lowpass.class"]) == (row["route"], row["data_class"])
    assert root["http.response.status_code"] == 200
    assert attributes(collector.resources[0].resource.attributes)["service.name"] == "our-gateway"
    assert {request.headers["x-tenant"] for request in collector.requests} == {"acme"}


def test_a_client_s_own_trace_goes_on_here_and_no_further(
    gateway: Gateway, collector: Collector, upstream: Upstream
) -> None:
    identifier = ask(gateway, "normal", {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "a=b"})
    root = next(span for span in spans_of(collector, identifier) if span.kind == 2)
    assert (root.trace_id.hex(), root.parent_span_id.hex()) == (TRACE, PARENT)
    assert upstream.requests
    assert not [request for request in upstream.requests if "traceparent" in str(request.headers).lower()]


def test_what_the_client_s_trace_does_not_sample_is_not_sent(gateway: Gateway, collector: Collector) -> None:
    unsampled = ask(gateway, "normal", {"traceparent": f"00-{TRACE[::-1]}-{PARENT}-00"})
    later = ask(gateway, "normal")
    assert spans_of(collector, later)
    assert not collector.of_request(unsampled)


@each_row("parent", ["", "00-nonsense", "ff-" + "x" * 5000, "00-" + "0" * 32 + "-" + "0" * 16 + "-01"])
def test_a_parent_that_is_none_begins_a_trace(gateway: Gateway, collector: Collector, parent: str) -> None:
    identifier = ask(gateway, "normal", {"traceparent": parent})
    root = next(span for span in spans_of(collector, identifier) if span.kind == 2)
    assert root.parent_span_id == b""


def test_streams_and_refusals_have_their_spans_too(gateway: Gateway, collector: Collector) -> None:
    streamed = ask(gateway, "normal", stream=True)
    found = {span.name: attributes(span.attributes) for span in spans_of(collector, streamed)}
    assert found["chat normal"]["gen_ai.request.stream"] is True
    assert found["chat normal"]["gen_ai.response.time_to_first_chunk"] >= 0
    refused = ask(gateway, "nobody")
    (root,) = [span for span in spans_of(collector, refused) if span.kind == 2]
    assert attributes(root.attributes)["http.response.status_code"] == 404
    assert attributes(root.attributes)["error.type"] == "model_not_found"


def test_metrics_count_what_the_ledger_counts(gateway: Gateway, collector: Collector) -> None:
    identifier = ask(gateway, "reasoning", stream=True)
    spans_of(collector, identifier)

    def totals() -> dict[str, int] | None:
        points = [(attributes(point.attributes), point) for point in collector.points("gen_ai.client.token.usage")]
        found = {at["gen_ai.token.type"]: int(point.sum) for at, point in points if at["lowpass.target"] == "reasoning"}
        return found if found == expected else None

    columns = ("input_tokens", "output_tokens")
    rows = gateway.rows("SELECT * FROM requests WHERE target = 'reasoning'")
    expected = {name[: -len("_tokens")]: sum(row[name] for row in rows) for name in columns}
    assert until(totals)
    durations = collector.points("gen_ai.server.request.duration")
    assert list(durations[0].explicit_bounds)[:3] == [0.01, 0.02, 0.04]
    assert collector.points("gen_ai.server.time_to_first_token")
    assert collector.points("gen_ai.client.operation.duration")


def test_no_canary_is_in_anything_that_was_sent(gateway: Gateway, collector: Collector) -> None:
    gateway.post(CHAT, {"model": PROMPT, "messages": PROMPT}, x_lowpass_session=SESSION)
    ask(gateway, "auto", {"tracestate": f"x={TAG}"})
    spans_of(collector, ask(gateway, "normal"))
    everything = b"".join(collector.bodies("/v1/"))
    assert b"lowpass.request.id" in everything
    assert not [canary for canary in CANARIES if canary.encode() in everything]


def test_a_collector_that_is_gone_costs_one_line_and_no_request(upstream_server: Upstream, tmp_path: Path) -> None:
    with Collector() as gone:
        url = gone.url
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_EXPORTER_OTLP_TIMEOUT": "1", **QUICK}
    with serving(tmp_path, policy(upstream_server.url), environ) as served:
        assert served.chat("normal").status == 200
        until(lambda: b"collector does not answer" in served.log.read_bytes())
        assert [served.chat("normal").status for _ in range(20)] == [200] * 20
        served.stop()
        told = served.log.read_text()
    assert told.count("collector does not answer") == 1
    assert "Traceback" not in told


def test_nothing_is_imported_where_no_endpoint_is_named(upstream_server: Upstream, tmp_path: Path) -> None:
    """Nor where it is switched off."""
    for environ in ({}, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_SDK_DISABLED": "true"}):
        with processing(tmp_path, policy(upstream_server.url), environ) as served:
            assert served.chat("normal").status == 200
            mapped = Path(f"/proc/{served.process.pid}/maps").read_text()
        assert "google/_upb" not in mapped
