"""What others may watch of a gateway, lines, spans and metrics: the ledger's numbers, and no word of a client."""

import gzip
import json
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from router.observe.metrics import Telemetry, counters, page, together
from router.settings import SettingError, read
from router.testing.upstream import Page, Recorded, Upstream
from router.types.attempt import Attempt
from router.types.price import Cost, CostSource
from tests import docs
from tests.gateway.running import CHAT, Gateway, Process, ordered, processing, serving, target, until, usd
from tests.report.filled import target as house
from tests.tables import each_row

CANARIES = ("CANARY-prompt-5521", "CANARY-session-5521", "CANARY-tag-5521", "sk-CANARYupstream5521")
PROMPT, SESSION, TAG, KEY = CANARIES
BEHAVIOURS = ("normal", "reasoning", "error-500", "bad-json", "cut")
QUICK = {"OTEL_BSP_SCHEDULE_DELAY": "50", "OTEL_METRIC_EXPORT_INTERVAL": "100"}
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
REASONING = {"target": "reasoning"}


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

    def spans(self, identifier: str) -> list[Any]:
        return until(lambda: self.of_request(identifier))

    def root(self, identifier: str) -> Any:
        (root,) = [span for span in self.spans(identifier) if span.kind == 2]
        return root

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
    key: dict[str, Any] = {"api_key": f"${{UPSTREAM_KEY:-{KEY}}}"}
    routes = {"auto": ("error-500", "normal"), "again": ("bad-json", "normal"), "deep": ("reasoning",)}
    scoped = (("each", {"scope": "target"}), ("endless", {"scope": "session"}))
    return {
        "version": 1,
        "targets": {name: target(url, name, **key) for name in BEHAVIOURS},
        "routes": {name: ordered(*targets) for name, targets in routes.items()},
        "budgets": [
            {"id": "day", "limit_usd": 2, "window": "day"},
            {"id": "thoughts", "limit_thinking_tokens": 1_000_000, "window": "day"},
            {"id": "tiny", "limit_usd": 0.0000001, "window": "day", "tags": ["capped"]},
            *({"id": name, "limit_usd": 0.5, "window": "day", **scope} for name, scope in scoped),
        ],
    }


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with Collector() as collector:
        yield collector


@pytest.fixture(scope="module")
def gateway(
    collector: Collector, upstream_server: Upstream, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gateway]:
    """After requests of every kind, each with a session, a tag and a model name of its own."""
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_SERVICE_NAME": "our-gateway"}
    environ |= {"OTEL_EXPORTER_OTLP_HEADERS": "x-tenant=acme", **QUICK}
    with serving(tmp_path_factory.mktemp("telemetry"), policy(upstream_server.url), environ) as served:
        for number in range(30):
            own = {"x-lowpass-session": f"session-{number}", "x-lowpass-tags": f"tag-{number}"}
            served.chat(("auto", "deep", "normal", f"model-{number}")[number % 4], headers=own, user=f"user-{number}")
        yield served


@pytest.fixture(scope="module")
def logger(upstream_server: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    environ = {"LOWPASS_LOG": "json", "LOWPASS_WORKERS": "2", "LOWPASS_UNHEARD": "1"}
    with processing(tmp_path_factory.mktemp("lines"), policy(upstream_server.url), environ) as gateway:
        yield gateway


@pytest.fixture
def metrics(gateway: Gateway) -> dict[str, Metric]:
    """As Prometheus' own parser reads them, once all requests are over."""
    until(lambda: not gateway.rows("SELECT id FROM requests WHERE state = 'held'"))
    return families(gateway.get("/metrics").body)


def families(page: bytes) -> dict[str, Metric]:
    return {family.name: family for family in text_string_to_metric_families(page.decode())}


def value(read: dict[str, Metric], name: str, **labels: str) -> float:
    samples = [sample for family in read.values() for sample in family.samples if sample.name == name]
    (only,) = [sample.value for sample in samples if sample.labels == labels]
    return only


def lines(gateway: Process, event: str = "request") -> dict[str, dict[str, Any]]:
    """By id. All that is on standard error is JSON; what is not is the greeting."""
    whole = gateway.log.read_text().rpartition("\n")[0].splitlines()
    read = [json.loads(line) for line in whole if line.startswith("{")]
    return {line.get("id", str(number)): line for number, line in enumerate(read) if line["event"] == event}


def ask(gateway: Gateway, model: str, headers: dict[str, str] | None = None, **body: Any) -> str:
    """The id of the request, whatever became of it."""
    named = {"x-lowpass-session": SESSION, "x-lowpass-tags": TAG, **(headers or {})}
    return gateway.chat(model, PROMPT, named, **body).id


# Lines: LOWPASS_LOG=json


def test_every_request_has_one_line_that_the_ledger_confirms(logger: Process) -> None:
    sent = [
        logger.chat(model, PROMPT, {"x-lowpass-session": SESSION, "x-lowpass-tags": tags}, stream=stream)
        for model in ("auto", *BEHAVIOURS, "nobody")
        for stream in (False, True)
        for tags in (TAG, "capped")
    ]
    sent += [logger.post(CHAT, PROMPT.encode()), logger.post(CHAT, {"model": "auto", "messages": PROMPT})]
    written = written_of(logger, {reply.id for reply in sent})
    for reply in sent:
        assert reply.status in (written[reply.id]["status"], 200)
    for row in logger.rows("SELECT * FROM requests"):
        line = written[row["id"]]
        assert (line["status"], line.get("error")) == (row["status"], row["error"])
        assert line["cost_usd"] == usd(row["cost"])
        assert (line["decision"]["route"], line["decision"]["class"]) == (row["route"], row["data_class"])
        assert line["attempts"] == len(logger.row(row["id"])["attempts"])
    log = logger.log.read_text()
    assert not [canary for canary in CANARIES if canary in log]


def written_of(gateway: Process, identifiers: set[str]) -> dict[str, dict[str, Any]]:
    """All lines, once those of these requests are there."""
    written = until(lambda: whole if identifiers <= (whole := lines(gateway)).keys() else None)
    assert gateway.log.read_text().count('"event":"request"') == len(written)
    return written


def test_an_answer_s_line_says_who_and_how_much(logger: Process) -> None:
    identifier = logger.chat("reasoning").id
    line, row = written_of(logger, {identifier})[identifier], logger.settled(identifier)
    (attempt,) = row["attempts"]
    names = {"target": "reasoning", "model": row["model"], "outcome": "ok", "first_ms": 0}
    names |= {"finish": attempt["finish_reason"], "effort": attempt["thinking"]}
    assert line["answer"] | {"first_ms": 0} == names
    counts = {"input": "input_tokens", "output": "output_tokens", "thinking": "reasoning_tokens"}
    assert line["tokens"] == {name: row[column] for name, column in counts.items()}
    assert line["ms"] >= row["total_ms"]


def test_two_hundred_lines_at_once_from_several_processes_stay_whole(logger: Process) -> None:
    with ThreadPoolExecutor(40) as pool:
        sent = list(pool.map(lambda _: logger.chat("normal", PROMPT), range(200)))
    written_of(logger, {reply.id for reply in sent})
    # Everything else is JSON too, except for the greeting.
    (warning,) = [line for line in lines(logger, "log").values() if "LOWPASS_UNHEARD" in line["message"]]
    assert (warning["level"], warning["name"]) == ("warning", "lowpass")
    text = [line for line in logger.log.read_text().splitlines() if line and not line.startswith("{")]
    assert text[0].startswith("lowpass answers at")


def test_an_unknown_form_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="LOWPASS_LOG=yaml is no form of logs: say text or json"):
        read({"LOWPASS_HOME": str(tmp_path), "LOWPASS_LOG": "yaml"})


def test_the_page_has_all_fields_of_a_line(logger: Process) -> None:
    """docs/observability.md against what is written."""
    values = {row["field"]: row["value"] for row in docs.rows(docs.page("docs/observability.md"), "field", "value")}
    written = written_of(logger, {logger.chat(model).id for model in ("normal", "nobody")}).values()
    assert {name.strip() for names in values for name in names.split(",")} | {"event"} == set().union(*written)
    for name in ("decision", "answer", "tokens"):
        (fields,) = {tuple(line[name]) for line in written if name in line}
        assert not [field for field in fields if field not in values[name]]


# Spans


def test_a_span_a_step_and_an_attempt(gateway: Gateway, collector: Collector) -> None:
    by_name = {span.name: span for span in collector.spans(ask(gateway, "again"))}
    root = by_name["POST /v1/chat/completions"]
    steps = ["parse", "classify", "decide", "reserve", "dispatch", "settle"]
    assert set(by_name) == {root.name, *steps, "chat bad-json", "chat normal"}
    assert {by_name[name].parent_span_id for name in steps} == {root.span_id}
    assert by_name["chat normal"].parent_span_id == by_name["dispatch"].span_id
    begins = [by_name[name].start_time_unix_nano for name in steps]
    assert begins == sorted(begins)
    assert by_name["settle"].end_time_unix_nano == root.end_time_unix_nano
    assert (root.kind, by_name["chat normal"].kind) == (2, 3)
    assert [by_name[name].status.code for name in ("chat bad-json", "chat normal")] == [2, 0]


def test_attributes_are_the_conventions(gateway: Gateway, collector: Collector) -> None:
    identifier = ask(gateway, "reasoning")
    row = gateway.settled(identifier)
    named = {span.name: attributes(span.attributes) for span in collector.spans(identifier)}
    (attempt,) = row["attempts"]
    expected = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "reasoning",
        "gen_ai.response.finish_reasons": [attempt["finish_reason"]],
        "gen_ai.usage.input_tokens": row["input_tokens"],
        "gen_ai.usage.output_tokens": row["output_tokens"],
        "gen_ai.usage.reasoning.output_tokens": row["reasoning_tokens"],
        "lowpass.cost_nano_usd": row["cost"],
        "server.address": "127.0.0.1",
    }
    assert named["chat reasoning"].items() >= expected.items()
    expected = {"lowpass.cost_nano_usd": row["cost"], "lowpass.route": row["route"], "lowpass.class": row["data_class"]}
    assert named["POST /v1/chat/completions"].items() >= (expected | {"http.response.status_code": 200}).items()
    assert attributes(collector.resources[0].resource.attributes)["service.name"] == "our-gateway"
    assert {request.headers["x-tenant"] for request in collector.requests} == {"acme"}


def test_a_client_s_own_trace_goes_on_here_and_no_further(
    gateway: Gateway, collector: Collector, upstream: Upstream
) -> None:
    root = collector.root(ask(gateway, "normal", {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "a=b"}))
    assert (root.trace_id.hex(), root.parent_span_id.hex()) == (TRACE, PARENT)
    assert upstream.requests
    assert not [request for request in upstream.requests if "traceparent" in str(request.headers).lower()]


def test_what_the_client_s_trace_does_not_sample_is_not_sent(gateway: Gateway, collector: Collector) -> None:
    unsampled = ask(gateway, "normal", {"traceparent": f"00-{TRACE[::-1]}-{PARENT}-00"})
    assert collector.spans(ask(gateway, "normal")), "a later one"
    assert not collector.of_request(unsampled)


@each_row("parent", ["", "00-nonsense", "ff-" + "x" * 5000, "00-" + "0" * 32 + "-" + "0" * 16 + "-01"])
def test_a_parent_that_is_none_begins_a_trace(gateway: Gateway, collector: Collector, parent: str) -> None:
    assert collector.root(ask(gateway, "normal", {"traceparent": parent})).parent_span_id == b""


def test_streams_and_refusals_have_their_spans_too(gateway: Gateway, collector: Collector) -> None:
    streamed = ask(gateway, "normal", stream=True)
    named = {span.name: attributes(span.attributes) for span in collector.spans(streamed)}
    assert named["chat normal"]["gen_ai.request.stream"] is True
    assert named["chat normal"]["gen_ai.response.time_to_first_chunk"] >= 0
    refused = attributes(collector.root(ask(gateway, "nobody")).attributes)
    assert (refused["http.response.status_code"], refused["error.type"]) == (404, "model_not_found")


def test_a_collector_that_is_gone_costs_one_line_and_no_request(upstream_server: Upstream, tmp_path: Path) -> None:
    with Collector() as gone:
        environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": gone.url, "OTEL_EXPORTER_OTLP_TIMEOUT": "1", **QUICK}
    with serving(tmp_path, policy(upstream_server.url), environ) as served:
        assert served.chat("normal").status == 200
        until(lambda: b"collector does not answer" in served.log.read_bytes())
        assert [served.chat("normal").status for _ in range(20)] == [200] * 20
        served.stop()
        log = served.log.read_text()
    assert log.count("collector does not answer") == 1
    assert "Traceback" not in log


def test_by_default_no_request_is_logged_and_no_exporter_imported(upstream_server: Upstream, tmp_path: Path) -> None:
    for environ in ({}, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_SDK_DISABLED": "true"}):
        with processing(tmp_path, policy(upstream_server.url), environ) as served:
            reply = served.chat("normal")
            mapped = Path(f"/proc/{served.process.pid}/maps").read_text()
        assert reply.status == 200
        assert "google/_upb" not in mapped
        assert reply.id not in served.log.read_text()


# Metrics


def test_money_tokens_and_times_are_the_ledger_s(gateway: Gateway, metrics: dict[str, Metric]) -> None:
    attempts = gateway.rows("SELECT * FROM attempts WHERE target = 'reasoning'")
    columns = ("cost", "thinking_cost", "total_ms", "output_reasoning")
    cost, thinking_cost, total_ms, reasoning = (sum(row[name] for row in attempts) for name in columns)
    assert thinking_cost > 0
    assert value(metrics, "lowpass_cost_usd_total", **REASONING) == pytest.approx(usd(cost))
    assert value(metrics, "lowpass_thinking_cost_usd_total", **REASONING) == pytest.approx(usd(thinking_cost))
    assert value(metrics, "lowpass_tokens_total", direction="reasoning", **REASONING) == reasoning
    assert value(metrics, "lowpass_attempt_seconds_count", **REASONING) == len(attempts)
    assert value(metrics, "lowpass_attempt_seconds_bucket", le="+Inf", **REASONING) == len(attempts)
    assert value(metrics, "lowpass_attempt_seconds_sum", **REASONING) == pytest.approx(total_ms / 1000)
    (requests,) = gateway.rows("SELECT COUNT(*) AS n, SUM(cost) AS cost, SUM(overhead_us) AS us FROM requests")
    assert value(metrics, "lowpass_overhead_seconds_count") == requests["n"]
    assert value(metrics, "lowpass_overhead_seconds_sum") == pytest.approx(requests["us"] / 1e6)
    held, used = value(metrics, "lowpass_held_usd_total"), value(metrics, "lowpass_held_used_usd_total")
    assert 0 < used <= held
    assert used == pytest.approx(usd(requests["cost"]))


def test_buckets_are_cumulative(metrics: dict[str, Metric]) -> None:
    for family in metrics.values():
        if family.type == "histogram":
            rows: dict[str, list[float]] = {}
            for sample in family.samples:
                if sample.name.endswith("_bucket"):
                    rows.setdefault(sample.labels.get("target", ""), []).append(sample.value)
            assert rows, family.name
            assert all(row == sorted(row) for row in rows.values())


def test_budgets_stand_as_they_do_elsewhere(gateway: Gateway, metrics: dict[str, Metric]) -> None:
    budgets = gateway.get("/v1/budgets").json["data"]
    spent = sum(row["spent"] for row in budgets if row["id"] == "day")
    pots = [row["limit"] for row in budgets if row["id"].startswith("each|")]
    assert len(pots) > 1
    for name, amount in (("spent_usd", spent), ("limit_usd", 2), ("used_share", spent / 2)):
        assert value(metrics, f"lowpass_budget_{name}", budget="day") == pytest.approx(amount)
    thoughts = gateway.rows("SELECT SUM(thinking) AS n FROM requests")[0]["n"]
    assert value(metrics, "lowpass_budget_spent_tokens", budget="thoughts") == thoughts
    assert value(metrics, "lowpass_budget_limit_usd", budget="each") == pytest.approx(sum(pots))


def test_no_label_is_of_a_client_s_making(gateway: Gateway, metrics: dict[str, Metric]) -> None:
    """Thirty sessions, tags, users and model names later there are as many series as the policy has names for."""
    known = {*BEHAVIOURS, "auto", "again", "deep", "day", "thoughts", "each", "tiny"}
    for family in metrics.values():
        for sample in family.samples:
            named = {sample.labels[name] for name in ("target", "route", "budget") if name in sample.labels}
            assert named <= known, sample
    served = gateway.get("/metrics").body.decode()
    assert not [word for word in ("tag-", "session-", "model-", "user-") if word in served]


def test_processes_are_added_up_and_what_a_dead_one_counted_stays() -> None:
    cost = Cost(1_000, CostSource.PRICED, "v", thinking=400, saved=-30)
    attempt = Attempt(target=house("local"), outcome="ok", started_ms=0, total_ms=400, first_ms=40, cost=cost)
    first, second = Telemetry(), Telemetry()
    for process in (first, first, second, second, second):
        process.settled.append(("auto", 200, [attempt], 700, 5_000))
    second.ledger = False
    both = families(page(together([first.values(), counters(second.values())])))
    assert value(both, "lowpass_attempt_seconds_bucket", target="local", le="0.25") == 0
    assert value(both, "lowpass_attempt_seconds_bucket", target="local", le="0.5") == 5
    assert value(both, "lowpass_attempt_seconds_sum", target="local") == pytest.approx(2.0)
    assert value(both, "lowpass_cache_extra_usd_total", target="local") == pytest.approx(usd(150))
    assert value(both, "lowpass_ledger_available") == 1
    assert value(families(page(together([first.values(), second.values()]))), "lowpass_ledger_available") == 0


def test_exported_metrics_count_what_the_ledger_counts(gateway: Gateway, collector: Collector) -> None:
    gateway.settled(ask(gateway, "reasoning", stream=True))
    rows = gateway.rows("SELECT * FROM requests WHERE target = 'reasoning'")
    expected = {name: sum(row[f"{name}_tokens"] for row in rows) for name in ("input", "output")}

    def totals() -> dict[str, int]:
        points = [(attributes(point.attributes), point) for point in collector.points("gen_ai.client.token.usage")]
        return {at["gen_ai.token.type"]: int(point.sum) for at, point in points if at["lowpass.target"] == "reasoning"}

    until(lambda: totals() == expected)
    assert list(collector.points("gen_ai.server.request.duration")[0].explicit_bounds)[:3] == [0.01, 0.02, 0.04]
    assert collector.points("gen_ai.server.time_to_first_token")
    assert collector.points("gen_ai.client.operation.duration")


def test_no_canary_is_in_anything_that_was_sent(gateway: Gateway, collector: Collector) -> None:
    gateway.post(CHAT, {"model": PROMPT, "messages": PROMPT}, x_lowpass_session=SESSION)
    ask(gateway, "auto", {"tracestate": f"x={TAG}"})
    collector.spans(ask(gateway, "normal"))
    everything = b"".join((*collector.bodies("/v1/"), gateway.get("/metrics").body))
    assert b"lowpass.request.id" in everything
    assert not [canary for canary in CANARIES if canary.encode() in everything]
