"""Retries and fallbacks as an OpenAI client sees them, and the row that each leaves."""

import json
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.gateway.canned import PAUSE, canned
from tests.gateway.running import MESSAGES, Gateway, ordered, serving, target, usd
from tests.upstream import RETRY_AFTER_S, TEXT, Upstream

NORMAL_NANO = 20 * 1_000 + 10 * 2_000
"""20 tokens in, 10 out, at 1 and 2 USD per million."""
# The first target of a route → how its attempt ended.
FALLS_BACK = {
    "error-500": "server_error",
    "overloaded": "overloaded",
    "rate-limited": "rate_limited",
    "hang": "timeout",
    "cut": "cut",
    "bad-json": "bad_response",
    "auth": "auth",
    "quota": "quota",
    "no-such-model": "model_missing",
    "context-length": "context_length",
    "content-filter": "content_filter",
    "refused-connection": "connect",
}
STREAM_FALLS_BACK = {**FALLS_BACK, "bad-json": "bad_response"}
del STREAM_FALLS_BACK["cut"]
RETRIED = ("flaky", "rate-limited-once")


def policy(url: str) -> dict[str, Any]:
    impatient = {"timeouts": {"first_ms": 300, "between_ms": 300, "total_ms": 2_000}}
    targets = {"spare": target(url, "normal")}
    routes: dict[str, Any] = {}
    for kind in ("plain", "stream"):
        for name in FALLS_BACK:
            targets[f"{kind}-{name}"] = target(url, f"{name}@{kind}", **impatient)
            routes[f"{kind}/{name}"] = ordered(f"{kind}-{name}", "spare")
        for name in RETRIED:
            targets[f"{kind}-{name}"] = target(url, f"{name}@{kind}", retries=2)
        for name in ("cut-after-first", "hang-after-first"):
            targets[f"{kind}-{name}"] = target(url, f"{name}@{kind}", **impatient)
            routes[f"{kind}/{name}"] = ordered(f"{kind}-{name}", "spare")
        targets[f"{kind}-refused-connection"]["base_url"] = "http://127.0.0.1:9/v1"
    targets["first-bad"] = target(url, "error-500@all", price={"input": 3, "output": 5})
    targets["second-bad"] = target(url, "overloaded@all")
    routes["all-fail"] = ordered("first-bad", "second-bad")
    targets["limited"] = target(url, "rate-limited@honoured", retries=1)
    routes["limited-first"] = ordered("limited", "spare")
    targets["slow"] = target(url, "hang@deadline", retries=3)
    targets["never"] = target(url, "normal@deadline")
    routes["too-late"] = ordered("slow", "never")
    return {"version": 1, "targets": targets, "routes": routes}


def ask(gateway: Gateway, model: str, **body: Any) -> tuple[Any, str]:
    """A whole answer by the official client, and the id of its request."""
    with gateway.client() as client:
        raw = client.chat.completions.with_raw_response.create(model=model, messages=MESSAGES, **body)
    return raw.parse(), raw.headers["x-lowpass-decision"]


def ask_stream(gateway: Gateway, model: str) -> tuple[str, Any, dict[str, str]]:
    """The text, the usage and the headers of a streamed answer."""
    with gateway.client() as client:
        options: Any = {"stream": True, "stream_options": {"include_usage": True}}
        raw = client.chat.completions.with_raw_response.create(model=model, messages=MESSAGES, **options)
        chunks = list(raw.parse())
    text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    return text, chunks[-1].usage, dict(raw.headers)


def outcomes(row: dict[str, Any]) -> list[tuple[str, str]]:
    return [(attempt["target"], attempt["outcome"]) for attempt in row["attempts"]]


def charged_for_failing(row: dict[str, Any]) -> int:
    """A provider that fell silent has read the prompt and charges for that; others charge nothing for a failure."""
    first = row["attempts"][0]
    silent = first["outcome"] == "timeout"
    assert (first["cost"] > 0) == silent
    assert first["cost_source"] == ("estimated" if silent else "priced")
    return int(first["cost"])


@pytest.mark.parametrize("name", FALLS_BACK)
def test_a_failing_target_is_replaced_by_the_next(gateway: Gateway, name: str) -> None:
    answer, request_id = ask(gateway, f"plain/{name}")
    assert answer.choices[0].message.content == "".join(TEXT)
    assert answer.model == f"plain/{name}"
    row = gateway.row(request_id)
    assert outcomes(row) == [(f"plain-{name}", FALLS_BACK[name]), ("spare", "ok")]
    assert (row["state"], row["target"], row["status"], row["error"]) == ("settled", "spare", 200, None)
    assert row["cost"] == NORMAL_NANO + charged_for_failing(row)
    assert answer.usage.cost == usd(row["cost"])


@pytest.mark.parametrize("name", STREAM_FALLS_BACK)
def test_a_target_that_fails_before_its_first_chunk_is_replaced_too(gateway: Gateway, name: str) -> None:
    text, usage, headers = ask_stream(gateway, f"stream/{name}")
    assert text == "".join(TEXT)
    assert headers["x-lowpass-model"] == "spare"
    row = gateway.row(headers["x-lowpass-decision"])
    assert outcomes(row) == [(f"stream-{name}", STREAM_FALLS_BACK[name]), ("spare", "ok")]
    assert (row["state"], row["status"], row["cost"]) == ("settled", 200, NORMAL_NANO + charged_for_failing(row))
    assert (usage.prompt_tokens, usage.completion_tokens, usage.cost) == (20, 10, usd(row["cost"]))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("cut", "cut"),
        ("cut-after-first", "cut"),
        ("hang-after-first", "timeout"),
    ],
)
def test_after_the_first_chunk_a_break_is_an_error_event(gateway: Gateway, name: str, kind: str) -> None:
    reply = gateway.chat(f"stream/{name}", stream=True)
    assert reply.status == 200
    assert b"[DONE]" not in reply.body
    events = [line for line in reply.body.split(b"\n\n") if line]
    assert b'"error"' in events[-1]
    assert kind.encode() in events[-1]
    assert all(b'"choices"' in event for event in events[:-1])
    row = gateway.row(reply.headers["x-lowpass-decision"])
    assert outcomes(row) == [(f"stream-{name}", kind)]
    assert (row["state"], row["status"], row["error"], row["target"]) == ("settled", 200, kind, None)
    (attempt,) = row["attempts"]
    assert attempt["usage_source"] == "estimated"
    assert attempt["cost_source"] == "estimated"
    assert attempt["output_visible"] >= 1
    assert row["cost"] > 0


PIECE = (
    b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m",'
    b'"choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":null}]}\n\n'
)
SPOILT = {
    "error": (
        b'data: {"error":{"message":"overloaded","type":"server_error","code":"overloaded"}}\n\ndata: [DONE]\n\n',
        "server_error",
    ),
    "not-json": (b'data: {"choices":[{"del\n\ndata: [DONE]\n\n', "bad_response"),
    "not-sse": (b"<html>", "cut"),
    "array": (b"data: [1]\n\n", "bad_response"),
}


def test_a_stream_that_goes_bad_ends_with_an_error_event(tmp_path: Path) -> None:
    with canned({name: (200, PIECE + PAUSE + data) for name, (data, _) in SPOILT.items()}) as server:
        targets = {name: target(server.url, "m", flavour=name) for name in SPOILT}
        with serving(tmp_path, {"version": 1, "targets": targets, "routes": {"auto": ordered(*SPOILT)}}) as own:
            for name, (_, kind) in SPOILT.items():
                reply = own.chat(name, stream=True)
                assert reply.status == 200
                assert b'"Hi"' in reply.body
                assert b"[DONE]" not in reply.body
                assert f'"kind":"{kind}"'.encode() in reply.body.split(b"\n\n")[-2], name
                row = own.row(reply.headers["x-lowpass-decision"])
                assert (outcomes(row), row["status"], row["error"]) == ([(name, kind)], 200, kind)
                with pytest.raises(openai.APIError), own.client() as client:
                    list(client.chat.completions.create(model=name, messages=MESSAGES, stream=True))
            own.check_books()


@pytest.mark.parametrize("kind", ["plain", "stream"])
@pytest.mark.parametrize(("name", "first"), [("flaky", "server_error"), ("rate-limited-once", "rate_limited")])
def test_the_same_target_is_asked_again(gateway: Gateway, upstream: Upstream, kind: str, name: str, first: str) -> None:
    if kind == "plain":
        _, request_id = ask(gateway, f"plain-{name}")
    else:
        request_id = ask_stream(gateway, f"stream-{name}")[2]["x-lowpass-decision"]
    row = gateway.row(request_id)
    assert outcomes(row) == [(f"{kind}-{name}", first), (f"{kind}-{name}", "ok")]
    assert row["cost"] == NORMAL_NANO
    if first == "rate_limited":
        sooner, later = upstream.requests
        assert later.received - sooner.received >= RETRY_AFTER_S


def test_a_long_retry_after_sends_the_request_to_the_next_target_at_once(gateway: Gateway, upstream: Upstream) -> None:
    _, request_id = ask(gateway, "limited-first")
    assert outcomes(gateway.row(request_id)) == [("limited", "rate_limited"), ("spare", "ok")]
    assert len(upstream.requests) == 2
    _, request_id = ask(gateway, "limited-first")
    assert outcomes(gateway.row(request_id)) == [("spare", "ok")]
    assert len(upstream.requests) == 3, "a target that asked for a pause was asked again"


def test_a_bad_request_is_nobody_else_s_problem(tmp_path: Path, upstream: Upstream) -> None:
    """What one target calls a mistake of the client's is not tried on the next."""
    said = {"error": {"message": "No such role.", "type": "invalid_request_error", "param": "messages[0].role"}}
    with canned({"picky": (400, json.dumps(said).encode())}) as picky:
        targets = {"first": target(picky.url, "m", flavour="picky"), "spare": target(upstream.url, "normal")}
        with serving(
            tmp_path, {"version": 1, "targets": targets, "routes": {"auto": ordered("first", "spare")}}
        ) as own:
            for stream in (False, True):
                reply = own.chat("auto", stream=stream)
                assert reply.status == 400
                assert (reply.error["message"], reply.error["param"]) == ("No such role.", "messages[0].role")
                assert outcomes(own.row(reply.headers["x-request-id"])) == [("first", "bad_request")]
    assert upstream.requests == []


def test_when_all_targets_fail_the_client_learns_what_was_tried(gateway: Gateway) -> None:
    reply = gateway.chat("all-fail")
    assert reply.status == 503
    assert (reply.error["code"], reply.error["type"], reply.error["kind"]) == (
        "upstream_error",
        "api_error",
        "overloaded",
    )
    assert [(one["target"], one["outcome"], one["status"]) for one in reply.error["attempts"]] == [
        ("first-bad", "server_error", 500),
        ("second-bad", "overloaded", 503),
    ]
    row = gateway.row(reply.headers["x-request-id"])
    assert (row["state"], row["status"], row["error"], row["cost"]) == ("settled", 503, "overloaded", 0)


def test_a_deadline_ends_the_search(gateway: Gateway, upstream: Upstream) -> None:
    """Once the time is up nobody else is asked: the answer could not be used, but it would be charged."""
    reply = gateway.chat("too-late", headers={"x-lowpass-deadline-ms": "250"})
    assert reply.status == 504
    row = gateway.row(reply.headers["x-request-id"])
    assert outcomes(row) == [("slow", "timeout")]
    assert row["total_ms"] < 2_000
    assert len(upstream.requests) == 1


def test_while_all_that_may_serve_it_rest_the_client_is_told_when_to_come_back(
    tmp_path: Path, upstream: Upstream
) -> None:
    """Another target of the route that could never serve it does not turn that into a refusal for good."""
    targets = {
        "rests": target(upstream.url, "rate-limited@rests"),
        "cannot": target(upstream.url, "normal", capabilities=["embeddings"]),
    }
    rules = {"version": 1, "targets": targets, "routes": {"auto": ordered("rests", "cannot")}}
    with serving(tmp_path, rules) as gateway:
        assert gateway.chat("auto").status == 503
        asked = len(upstream.requests)
        reply = gateway.chat("auto")
        assert (reply.status, reply.error["code"]) == (503, "upstream_error")
        assert 1 <= int(reply.headers["retry-after"]) <= RETRY_AFTER_S
        assert len(upstream.requests) == asked
        row = gateway.row(reply.headers["x-request-id"])
        assert (row["state"], row["status"], row["cost"], row["attempts"]) == ("released", 503, 0, [])


def test_time_in_which_a_target_was_waited_for_is_not_ours(gateway: Gateway) -> None:
    """300 ms pass before the first target is given up."""
    row = gateway.row(ask(gateway, "plain/hang")[1])
    assert 0 < row["overhead_us"] <= (row["total_ms"] + 1 - 300) * 1_000


def test_a_pause_before_a_target_is_asked_again_is_ours(gateway: Gateway) -> None:
    row = gateway.row(ask(gateway, "plain-flaky")[1])
    pause_ms = row["attempts"][1]["started_ms"] - row["attempts"][0]["started_ms"] - row["attempts"][0]["total_ms"]
    assert row["overhead_us"] >= (pause_ms - 3) * 1_000 > 50_000
