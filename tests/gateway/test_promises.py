"""Budgets, usage, headers, explanations: what a caller is promised with every answer."""

from datetime import datetime
from decimal import Decimal
from typing import Any

import msgspec
import openai
import pytest

from router.testing.upstream import Upstream
from tests.gateway.running import CHAT, MESSAGES, Gateway, Reply, local, ordered, target, usd
from tests.tables import each_row

NORMAL_NANO = 20 * 1_000 + 10 * 2_000
TOOLS = [{"type": "function", "function": {"name": "f"}}]


def policy(url: str) -> dict[str, Any]:
    always_on = {"contract": "always_on", "levels": ["on"], "tokens": [500]}
    levels = {"contract": "level", "levels": ["none", "low", "high"], "tokens": [0, 300, 3_000]}
    targets = {
        "plain": target(url, "normal"),
        "dear": target(url, "normal", price={"input": 100, "output": 1_000}),
        "free": local(url, "normal", price={"input": 0, "output": 0}),
        "always": target(url, "reasoning", thinking=always_on),
        "levels": target(url, "reasoning", thinking=levels, effort="high"),
        "cached": target(url, "cached", price={"input": 10, "output": 20, "cache_read": 1}),
        "thinks": local(url, "reasoning", price={"input": 1, "output": 2, "reasoning": 3}),
        "small": target(url, "normal", capabilities=["chat"]),
    }
    routes = {
        **{name: ordered("plain") for name in ("auto", "tight", "spent", "tagged", "placed")},
        "costly-first": ordered("dear", "plain"),
        "cheapest": {"strategy": {"kind": "cheapest", "targets": ["dear", "plain", "free"]}},
        "always-first": ordered("always", "plain"),
        "small-first": ordered("small", "plain"),
    }
    tiny = {"limit_usd": 0.0000001, "window": "lifetime"}
    budgets = [
        {"id": "tight", "limit_usd": 0.001, "window": "day", "routes": ["tight"]},
        {"id": "spent", "limit_usd": 0.00015, "window": "hour", "routes": ["spent"]},
        {"id": "place", "scope": "target", "routes": ["placed"], **tiny},
        {"id": "named", "routes": ["tagged"], "tags": ["capped"], **tiny},
    ]
    return {"version": 1, "targets": targets, "routes": routes, "budgets": budgets}


def serves(gateway: Gateway, model: str, headers: dict[str, str] | None = None, **body: Any) -> str:
    """The target that answers."""
    return gateway.chat(model, headers=headers, **body).headers["x-lowpass-model"]


def attempt(gateway: Gateway, reply: Reply) -> dict[str, Any]:
    """The only one."""
    row = gateway.settled(reply.id)
    (attempt,) = row["attempts"]
    assert attempt["cost"] == row["cost"]
    return dict(attempt)


def events(reply: Reply) -> list[dict[str, Any]]:
    lines = [line.removeprefix(b"data: ") for line in reply.body.split(b"\n\n") if line]
    assert lines[-1] == b"[DONE]"
    return [msgspec.json.decode(line, type=dict[str, Any]) for line in lines[:-1]]


def test_a_budget_that_is_too_small_refuses_and_says_which(gateway: Gateway, upstream: Upstream) -> None:
    reply = gateway.chat("tagged", headers={"x-lowpass-tags": "a,capped"})
    assert (reply.status, reply.error["code"], reply.error["type"]) == (402, "budget_exceeded", "budget_exceeded")
    assert reply.headers["x-should-retry"] == "false"
    budget = reply.error["budget"]
    assert budget.pop("needed") > budget["limit"]
    assert budget.pop("limit") == 1e-7
    expected = {"id": "named", "scope": "all", "value": None, "unit": "usd", "spent": 0, "held": 0, "resets_at": None}
    assert budget == expected
    assert "max_completion_tokens" in reply.error["message"]
    assert upstream.requests == []
    row = gateway.settled(reply.id)
    assert (row["state"], row["status"], row["error"], row["cost"]) == ("released", 402, "budget_exceeded", 0)
    assert gateway.chat("tagged").status == 200


def test_a_budget_of_the_only_target_says_so_too(gateway: Gateway, upstream: Upstream) -> None:
    reply = gateway.chat("placed")
    assert (reply.status, reply.error["code"], reply.error["kind"]) == (402, "budget_exceeded", "budget")
    budget = reply.error["budget"]
    assert [budget[name] for name in ("id", "scope", "value", "spent")] == ["place", "target", "plain", 0]
    assert budget["needed"] > budget["limit"]
    assert upstream.requests == []


def test_the_official_client_does_not_try_a_spent_budget_again(gateway: Gateway, upstream: Upstream) -> None:
    def refusals() -> int:
        return len(gateway.rows("SELECT id FROM requests WHERE tags = 'capped' AND status = 402"))

    before = refusals()
    client, headers = gateway.client().with_options(max_retries=3), {"x-lowpass-tags": "capped"}
    with pytest.raises(openai.APIStatusError) as refused:
        client.chat.completions.create(model="tagged", messages=MESSAGES, extra_headers=headers)
    assert (refused.value.status_code, refusals(), upstream.requests) == (402, before + 1, [])


def test_a_hold_that_does_not_fit_lowers_the_cap_before_it_refuses(gateway: Gateway, upstream: Upstream) -> None:
    """0.1 cent pays for the prompt and about 490 of the model's 1,000 tokens of output."""
    reply = gateway.chat("tight")
    assert reply.status == 200
    assert 10 <= int(str(upstream.last.json["max_completion_tokens"])) < 1_000, "no less than its answers need"
    row = gateway.settled(reply.id)
    assert (row["held"] <= 1_000_000, row["cost"]) == (True, NORMAL_NANO)
    (window,) = gateway.rows("SELECT * FROM budget_windows WHERE budget = 'tight'")
    assert (window["held"], window["spent"] % NORMAL_NANO) == (0, 0)


def test_a_spent_budget_shows_what_was_spent_and_when_it_resets(gateway: Gateway) -> None:
    """A tenth of a cent each way: the client's cap keeps the request small until nothing is left."""
    replies = [gateway.chat("spent", max_completion_tokens=10) for _ in range(5)]
    refused = [reply for reply in replies if reply.status == 402]
    assert len(refused) >= 3
    assert len(replies) - len(refused) == len(gateway.rows("SELECT 1 FROM requests WHERE route = 'spent' AND cost > 0"))
    window = gateway.rows("SELECT * FROM budget_windows WHERE budget = 'spent' ORDER BY window_start_ms")[-1]
    budget = refused[-1].error["budget"]
    assert (budget["spent"], budget["held"], budget["scope"]) == (usd(window["spent"]), 0, "all")
    resets = window["window_start_ms"] + 3_600_000
    assert datetime.fromisoformat(budget["resets_at"]).timestamp() * 1000 == resets


def test_the_caller_s_own_limit_for_one_request(gateway: Gateway, upstream: Upstream) -> None:
    reply = gateway.chat("auto", headers={"x-lowpass-budget-usd": "0.0000001"})
    assert (reply.status, reply.error["budget"]["scope"], upstream.requests) == (402, "request", [])
    reply = gateway.chat("auto", headers={"x-lowpass-budget-usd": "0.0007"})
    assert reply.status == 200
    assert int(str(upstream.last.json["max_completion_tokens"])) < 400
    assert gateway.settled(reply.id)["held"] == 700_000


SERVES: dict[str, tuple[str, dict[str, str], dict[str, Any], str]] = {
    "too dear": ("costly-first", {"x-lowpass-budget-usd": "0.001"}, {}, "plain"),
    "not too dear": ("costly-first", {}, {}, "dear"),
    "the cheapest": ("cheapest", {}, {}, "free"),
    "the cheapest with tools": ("cheapest", {}, {"tools": TOOLS}, "free"),
    "can not keep its thinking short": ("always-first", {"x-lowpass-thinking-budget": "100"}, {}, "plain"),
    "may think as long": ("always-first", {"x-lowpass-thinking-budget": "500"}, {}, "always"),
}


@each_row("case", SERVES)
def test_which_target_serves(gateway: Gateway, case: str) -> None:
    route, headers, body, expected = SERVES[case]
    assert serves(gateway, route, headers, **body) == expected


def test_a_thinking_budget_that_no_target_can_keep_is_refused(gateway: Gateway) -> None:
    reply = gateway.chat("always", headers={"x-lowpass-thinking-budget": "100"})
    assert (reply.status, reply.error["targets"][0]["reason"]) == (403, "thinking")


def test_the_thinking_that_was_really_asked_for_is_shown(gateway: Gateway, upstream: Upstream) -> None:
    for headers, level in (({}, "high"), ({"x-lowpass-thinking-budget": "300"}, "low")):
        assert level in gateway.chat("levels", headers=headers).headers["x-lowpass-thinking"]
        assert upstream.last.json["reasoning_effort"] == level
    assert gateway.chat("plain").headers["x-lowpass-thinking"] == "none"


def test_every_answer_carries_its_usage_and_cost(gateway: Gateway) -> None:
    reply = gateway.chat("plain")
    usage = reply.json["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (20, 10, 30)
    assert usage["completion_tokens_details"]["reasoning_tokens"] == 0
    assert Decimal(str(usage["cost"])) == Decimal(NORMAL_NANO) / 10**9
    assert reply.headers["x-lowpass-cost-usd"] == "0.00004"


def test_a_stream_carries_its_usage_and_cost_when_asked_and_else_shows_no_extra_chunk(gateway: Gateway) -> None:
    *_, last = events(gateway.chat("plain", stream=True, stream_options={"include_usage": True}))
    assert (last["choices"], last["usage"]["total_tokens"], last["usage"]["cost"]) == ([], 30, usd(NORMAL_NANO))
    reply = gateway.chat("plain", stream=True)
    assert all(event["choices"] for event in events(reply))
    assert gateway.settled(reply.id)["cost"] == NORMAL_NANO


@each_row("stream", [False, True])
def test_cached_tokens_are_counted_apart_and_charged_at_their_rate(gateway: Gateway, stream: bool) -> None:
    row = attempt(gateway, gateway.chat("cached", stream=stream))
    assert (row["cache_read"], row["usage_source"]) == (40, "reported")
    assert row["cost"] == (row["input_uncached"] + row["cache_write"]) * 10_000 + 40 * 1_000 + 10 * 20_000


def test_reasoning_is_counted_and_charged_once(gateway: Gateway) -> None:
    reply = gateway.chat("thinks")
    assert reply.json["usage"]["completion_tokens_details"]["reasoning_tokens"] == 30
    assert gateway.settled(reply.id)["cost"] == 20 * 1_000 + 10 * 2_000 + 30 * 3_000


@each_row("path", [CHAT, "/v1/route"])
def test_an_unknown_model_is_named_with_those_that_are_known(gateway: Gateway, path: str) -> None:
    reply = gateway.post(path, {"model": "gpt-unknown", "messages": MESSAGES})
    assert (reply.status, reply.error["code"], reply.error["param"]) == (404, "model_not_found", "model")
    assert "auto" in reply.error["message"]


def test_a_route_can_be_asked_for_without_calling_a_target(gateway: Gateway, upstream: Upstream) -> None:
    body = {"model": "small-first", "messages": MESSAGES, "tools": TOOLS}
    decided = gateway.post("/v1/route", body).json
    assert (upstream.requests, decided["chosen"]) == ([], "plain")
    assert [dropped["reason"] for dropped in decided["dropped"]] == ["capability"]
    assert gateway.get(f"/v1/decisions/{decided['id']}").json == decided
    answer = gateway.post(CHAT, body)
    assert answer.headers["x-lowpass-model"] == decided["chosen"]
    served = gateway.get(f"/v1/decisions/{answer.headers['x-lowpass-decision']}").json
    assert {**served, "id": ""} == {**decided, "id": ""}


def test_an_answer_explains_itself_when_asked(gateway: Gateway) -> None:
    reply = gateway.chat("plain", headers={"x-lowpass-explain": "1"})
    assert reply.json["lowpass"]["chosen"] == "plain"
    assert "lowpass" not in gateway.chat("plain").json
    assert gateway.get("/v1/decisions/nobody").status == 404


def test_headers_and_their_twins_reach_the_row(gateway: Gateway) -> None:
    by_header = gateway.chat("plain", headers={"x-lowpass-session": "s1", "x-lowpass-tags": "a, b"})
    by_metadata = gateway.chat("plain", metadata={"session_id": "s2", "tags": "c"})
    for reply, expected in ((by_header, ("s1", "a,b")), (by_metadata, ("s2", "c"))):
        row = gateway.settled(reply.id)
        assert (row["session"], row["tags"]) == expected


@each_row("stream", [False, True])
def test_the_answer_s_headers(gateway: Gateway, stream: bool) -> None:
    headers = gateway.chat("auto", stream=stream).headers
    assert headers["x-request-id"] == headers["x-lowpass-decision"]
    assert (headers["x-lowpass-model"], headers["x-lowpass-class"]) == ("plain", "internal")
    assert 0 <= float(headers["x-lowpass-difficulty"]) <= 1
    assert ("x-lowpass-cost-usd" in headers) == (not stream)
