"""Budgets, usage, headers, explanations: what a caller is promised with every answer."""

import json
from datetime import datetime
from decimal import Decimal
from typing import Any

import msgspec
import openai
import pytest

from tests.gateway.running import MESSAGES, Gateway, Reply, local, ordered, target, usd
from tests.upstream import Upstream

NORMAL_NANO = 20 * 1_000 + 10 * 2_000
ALWAYS_ON = {"contract": "always_on", "levels": ["on"], "tokens": [500]}
LEVELS = {"contract": "level", "levels": ["none", "low", "high"], "tokens": [0, 300, 3_000]}


def policy(url: str) -> dict[str, Any]:
    targets = {
        "plain": target(url, "normal"),
        "dear": target(url, "normal", price={"input": 100, "output": 1_000}),
        "free": local(url, "normal", price={"input": 0, "output": 0}),
        "always": target(url, "reasoning", thinking=ALWAYS_ON),
        "levels": target(url, "reasoning", thinking=LEVELS, effort="high"),
        "cached": target(url, "cached", price={"input": 10, "output": 20, "cache_read": 1}),
        "missing": target(url, "missing-usage"),
        "thinks": local(url, "reasoning", price={"input": 1, "output": 2, "reasoning": 3}),
        "small": target(url, "normal", capabilities=["chat"]),
    }
    routes = {
        "auto": ordered("plain"),
        "tight": ordered("plain"),
        "spent": ordered("plain"),
        "costly-first": ordered("dear", "plain"),
        "cheapest": {"strategy": {"kind": "cheapest", "targets": ["dear", "plain", "free"]}},
        "always-first": ordered("always", "plain"),
        "small-first": ordered("small", "plain"),
        "tagged": ordered("plain"),
        "placed": ordered("plain"),
    }
    budgets = [
        {"id": "tight", "limit_usd": 0.001, "window": "day", "routes": ["tight"]},
        {"id": "spent", "limit_usd": 0.00015, "window": "hour", "routes": ["spent"]},
        {"id": "place", "limit_usd": 0.0000001, "scope": "target", "window": "lifetime", "routes": ["placed"]},
        {"id": "named", "limit_usd": 0.0000001, "window": "lifetime", "routes": ["tagged"], "tags": ["capped"]},
    ]
    return {"version": 1, "targets": targets, "routes": routes, "budgets": budgets}


def events(reply: Reply) -> list[dict[str, Any]]:
    lines = [line.removeprefix(b"data: ") for line in reply.body.split(b"\n\n") if line]
    assert lines[-1] == b"[DONE]"
    return [msgspec.json.decode(line, type=dict[str, Any]) for line in lines[:-1]]


def test_a_budget_that_is_too_small_refuses_and_says_which(gateway: Gateway, upstream: Upstream) -> None:
    reply = gateway.chat("tagged", headers={"x-lowpass-tags": "a,capped"})
    assert reply.status == 402
    assert (reply.error["code"], reply.error["type"]) == ("budget_exceeded", "budget_exceeded")
    assert reply.headers["x-should-retry"] == "false"
    budget = reply.error["budget"]
    needed = budget.pop("needed")
    assert needed > budget["limit"]
    assert budget == {
        "id": "named",
        "scope": "all",
        "value": None,
        "unit": "usd",
        "limit": 1e-7,
        "spent": 0,
        "held": 0,
        "resets_at": None,
    }
    assert "max_completion_tokens" in reply.error["message"]
    assert upstream.requests == []
    row = gateway.row(reply.headers["x-request-id"])
    assert (row["state"], row["status"], row["error"], row["cost"]) == ("released", 402, "budget_exceeded", 0)
    assert gateway.chat("tagged").status == 200


def test_a_budget_of_the_only_target_says_so_too(gateway: Gateway, upstream: Upstream) -> None:
    reply = gateway.chat("placed")
    budget = reply.error["budget"]
    assert (reply.status, reply.error["code"], reply.error["kind"]) == (402, "budget_exceeded", "budget")
    assert (budget["id"], budget["scope"], budget["value"], budget["spent"]) == ("place", "target", "plain", 0)
    assert budget["needed"] > budget["limit"]
    assert upstream.requests == []


def test_the_official_client_does_not_try_a_spent_budget_again(gateway: Gateway, upstream: Upstream) -> None:
    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="x", max_retries=3) as client:
        headers = {"x-lowpass-tags": "capped"}
        with pytest.raises(openai.APIStatusError) as refused:
            client.chat.completions.create(model="tagged", messages=MESSAGES, extra_headers=headers)
    assert refused.value.status_code == 402
    assert len(gateway.rows("SELECT id FROM requests WHERE tags = 'capped' AND status = 402")) >= 1
    assert upstream.requests == []


def test_a_hold_that_does_not_fit_lowers_the_cap_before_it_refuses(gateway: Gateway, upstream: Upstream) -> None:
    """0.1 cent pays for the prompt and about 490 of the model's 1,000 tokens of output."""
    reply = gateway.chat("tight")
    assert reply.status == 200
    sent = int(str(upstream.last.json["max_completion_tokens"]))
    row = gateway.row(reply.headers["x-request-id"])
    assert 256 <= sent < 1_000
    assert row["held"] <= 1_000_000
    assert row["cost"] == NORMAL_NANO
    (window,) = gateway.rows("SELECT * FROM budget_windows WHERE budget = 'tight'")
    assert window["held"] == 0
    assert window["spent"] % NORMAL_NANO == 0


def test_a_spent_budget_shows_what_was_spent_and_when_it_resets(gateway: Gateway) -> None:
    """A tenth of a cent each way: the client's cap keeps the request small until nothing is left."""
    replies = [gateway.chat("spent", max_completion_tokens=10) for _ in range(5)]
    refused = [reply for reply in replies if reply.status == 402]
    assert len(refused) >= 3
    assert len(replies) - len(refused) == len(gateway.rows("SELECT 1 FROM requests WHERE route = 'spent' AND cost > 0"))
    (window,) = gateway.rows("SELECT * FROM budget_windows WHERE budget = 'spent'")
    budget = refused[-1].error["budget"]
    assert (budget["spent"], budget["held"], budget["scope"]) == (usd(window["spent"]), 0, "all")
    resets = window["window_start_ms"] + 3_600_000
    assert datetime.fromisoformat(budget["resets_at"]).timestamp() * 1000 == resets


def test_the_caller_s_own_limit_for_one_request(gateway: Gateway, upstream: Upstream) -> None:
    reply = gateway.chat("auto", headers={"x-lowpass-budget-usd": "0.0000001"})
    assert (reply.status, reply.error["budget"]["scope"]) == (402, "request")
    assert upstream.requests == []
    reply = gateway.chat("auto", headers={"x-lowpass-budget-usd": "0.0007"})
    assert reply.status == 200
    assert int(str(upstream.last.json["max_completion_tokens"])) < 400
    assert gateway.row(reply.headers["x-request-id"])["held"] == 700_000


def test_what_one_target_is_too_dear_for_another_serves(gateway: Gateway) -> None:
    reply = gateway.chat("costly-first", headers={"x-lowpass-budget-usd": "0.001"})
    assert reply.headers["x-lowpass-model"] == "plain"
    assert gateway.chat("costly-first").headers["x-lowpass-model"] == "dear"


def test_the_cheapest_serves(gateway: Gateway) -> None:
    assert gateway.chat("cheapest").headers["x-lowpass-model"] == "free"
    tools = [{"type": "function", "function": {"name": "f"}}]
    assert gateway.chat("cheapest", tools=tools).headers["x-lowpass-model"] == "free"


def test_every_answer_carries_its_usage_and_cost(gateway: Gateway) -> None:
    reply = gateway.chat("plain")
    usage = reply.json["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (20, 10, 30)
    assert usage["completion_tokens_details"]["reasoning_tokens"] == 0
    assert Decimal(str(usage["cost"])) == Decimal(NORMAL_NANO) / 10**9
    assert reply.headers["x-lowpass-cost-usd"] == "0.00004"


def test_every_stream_carries_its_usage_and_cost_when_asked(gateway: Gateway) -> None:
    *_, last = events(gateway.chat("plain", stream=True, stream_options={"include_usage": True}))
    assert last["choices"] == []
    assert (last["usage"]["total_tokens"], last["usage"]["cost"]) == (30, usd(NORMAL_NANO))


def test_a_stream_whose_usage_nobody_asked_for_shows_no_extra_chunk(gateway: Gateway) -> None:
    reply = gateway.chat("plain", stream=True)
    assert all(event["choices"] for event in events(reply))
    assert gateway.row(reply.headers["x-request-id"])["cost"] == NORMAL_NANO


@pytest.mark.parametrize("stream", [False, True])
def test_cached_tokens_are_told_apart_and_charged_at_their_rate(gateway: Gateway, stream: bool) -> None:
    reply = gateway.chat("cached", stream=stream)
    row = gateway.row(reply.headers["x-request-id"])
    (attempt,) = row["attempts"]
    assert (attempt["cache_read"], attempt["usage_source"]) == (40, "reported")
    expected = attempt["input_uncached"] * 10_000 + 40 * 1_000 + attempt["cache_write"] * 10_000 + 10 * 20_000
    assert row["cost"] == attempt["cost"] == expected


@pytest.mark.parametrize("stream", [False, True])
def test_missing_usage_is_estimated_and_says_so(gateway: Gateway, stream: bool) -> None:
    row = gateway.row(gateway.chat("missing", stream=stream).headers["x-request-id"])
    (attempt,) = row["attempts"]
    assert (attempt["usage_source"], attempt["cost_source"]) == ("estimated", "estimated")
    assert attempt["input_uncached"] > 0
    assert attempt["output_visible"] > 0
    assert attempt["output_reasoning"] is None


def test_reasoning_is_counted_and_charged_once(gateway: Gateway) -> None:
    reply = gateway.chat("thinks")
    assert reply.json["usage"]["completion_tokens_details"]["reasoning_tokens"] == 30
    assert gateway.row(reply.headers["x-request-id"])["cost"] == 20 * 1_000 + 10 * 2_000 + 30 * 3_000


def test_a_thinking_budget_drops_what_can_not_keep_it(gateway: Gateway) -> None:
    headers = {"x-lowpass-thinking-budget": "100"}
    assert gateway.chat("always-first", headers=headers).headers["x-lowpass-model"] == "plain"
    assert (
        gateway.chat("always-first", headers={"x-lowpass-thinking-budget": "500"}).headers["x-lowpass-model"]
        == "always"
    )
    reply = gateway.chat("always", headers=headers)
    assert (reply.status, reply.error["targets"][0]["reason"]) == (403, "thinking")


def test_the_thinking_that_was_really_asked_for_is_told(gateway: Gateway, upstream: Upstream) -> None:
    assert "high" in gateway.chat("levels").headers["x-lowpass-thinking"]
    assert upstream.last.json["reasoning_effort"] == "high"
    reply = gateway.chat("levels", headers={"x-lowpass-thinking-budget": "300"})
    assert "low" in reply.headers["x-lowpass-thinking"]
    assert upstream.last.json["reasoning_effort"] == "low"
    assert gateway.chat("plain").headers["x-lowpass-thinking"] == "none"


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/route"])
def test_an_unknown_model_is_named_with_those_that_are_known(gateway: Gateway, path: str) -> None:
    reply = gateway.post(path, {"model": "gpt-unknown", "messages": MESSAGES})
    assert (reply.status, reply.error["code"], reply.error["param"]) == (404, "model_not_found", "model")
    assert "auto" in reply.error["message"]


def test_a_route_can_be_asked_for_without_calling_anyone(gateway: Gateway, upstream: Upstream) -> None:
    body = {"model": "small-first", "messages": MESSAGES, "tools": [{"type": "function", "function": {"name": "f"}}]}
    decided = gateway.post("/v1/route", body).json
    assert upstream.requests == []
    assert decided["chosen"] == "plain"
    assert [dropped["reason"] for dropped in decided["dropped"]] == ["capability"]
    assert gateway.get(f"/v1/decisions/{decided['id']}").json == decided
    answer = gateway.post("/v1/chat/completions", body)
    assert answer.headers["x-lowpass-model"] == decided["chosen"]
    served = gateway.get(f"/v1/decisions/{answer.headers['x-lowpass-decision']}").json
    assert {**served, "id": ""} == {**decided, "id": ""}


def test_an_answer_explains_itself_when_asked(gateway: Gateway) -> None:
    reply = gateway.chat("plain", headers={"x-lowpass-explain": "1"})
    assert reply.json["lowpass"]["chosen"] == "plain"
    assert "lowpass" not in gateway.chat("plain").json
    assert gateway.get("/v1/decisions/nobody").status == 404


def test_feedback_finds_its_request(gateway: Gateway) -> None:
    request_id = gateway.chat("plain").headers["x-lowpass-decision"]
    assert gateway.post("/v1/feedback", {"id": request_id, "score": 0.5}).status == 200
    assert [row["score"] for row in gateway.rows("SELECT * FROM outcomes WHERE request_id = ?", request_id)] == [0.5]
    assert gateway.post("/v1/feedback", {"id": "nobody", "score": 1}).status == 404
    for score in (-0.1, 1.1, "NaN", None, [1]):
        reply = gateway.post("/v1/feedback", {"id": request_id, "score": score})
        assert (reply.status, reply.error["param"]) == (400, "score")


def test_headers_and_their_twins_reach_the_row(gateway: Gateway) -> None:
    reply = gateway.chat("plain", headers={"x-lowpass-session": "s1", "x-lowpass-tags": "a, b"})
    row = gateway.row(reply.headers["x-request-id"])
    assert (row["session"], row["tags"]) == ("s1", "a,b")
    reply = gateway.chat("plain", metadata={"session_id": "s2", "tags": "c"})
    row = gateway.row(reply.headers["x-request-id"])
    assert (row["session"], row["tags"]) == ("s2", "c")


def test_the_answer_s_headers(gateway: Gateway) -> None:
    for stream in (False, True):
        headers = gateway.chat("auto", stream=stream).headers
        assert headers["x-request-id"] == headers["x-lowpass-decision"]
        assert headers["x-lowpass-model"] == "plain"
        assert headers["x-lowpass-class"] == "internal"
        assert 0 <= float(headers["x-lowpass-difficulty"]) <= 1
        assert ("x-lowpass-cost-usd" in headers) == (not stream)


def test_unknown_fields_pass_and_several_choices_are_counted(gateway: Gateway, upstream: Upstream) -> None:
    reply = gateway.chat("plain", n=3, frobnicate={"a": [1, None]}, temperature=0.25)
    assert len(reply.json["choices"]) == 3
    assert upstream.last.json["frobnicate"] == {"a": [1, None]}
    assert upstream.last.json["temperature"] == 0.25
    assert upstream.last.json["model"] == "normal"
    assert reply.json["usage"]["completion_tokens"] == 30


def test_the_models_that_exist_are_listed(gateway: Gateway) -> None:
    listed = [card["id"] for card in gateway.get("/v1/models").json["data"]]
    assert {"auto", "plain"} <= set(listed)
    assert gateway.get("/v1/models/auto").json["id"] == "auto"
    assert gateway.get("/v1/models/nobody").error["code"] == "model_not_found"


def test_embeddings_and_completions_are_priced_too(gateway: Gateway) -> None:
    with gateway.client() as client:
        embedding = client.embeddings.create(model="plain", input=["a", "b"])
        completion = client.completions.create(model="plain", prompt="a")
    assert len(embedding.data) == 2
    assert embedding.usage.cost == usd(8 * 1_000)  # type: ignore[attr-defined]
    assert completion.usage is not None
    assert completion.usage.cost == usd(NORMAL_NANO)  # type: ignore[attr-defined]


def test_the_metrics_count_what_was_served(gateway: Gateway) -> None:
    gateway.chat("plain")
    page = gateway.get("/metrics").body.decode()
    assert 'lowpass_requests_total{route="plain",status="200"}' in page
    assert json.loads(gateway.get("/health/ready").body)["ready"] is True
