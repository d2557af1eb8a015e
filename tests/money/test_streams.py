"""A stream holds little, holds more while it runs, and ends cleanly where its budget does, also in mid-thought."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest

from tests.gateway.running import MESSAGES, Gateway, Reply, local, ordered, target
from tests.upstream import Upstream
from tests.upstream.spoken import WORD

NANO = 1_000_000_000
PRICE = {"input": 1, "output": 100}
"""USD per million tokens: an output token is 100,000 nano-USD."""
TOKEN = 100_000
THINKS = {"contract": "always_on", "levels": ["high"], "tokens": [400], "streamed": True}

EXACT = {"contract": "exact", "levels": ["none", "high"], "tokens": [0, 3000], "minimum": 1, "streamed": True}


def policy(url: str) -> dict[str, Any]:
    wide = {"price": PRICE, "max_output": 20_000}
    targets = {
        "long": target(url, "say-1500-ms-1", **wide),
        "talker": target(url, "say-600-ms-1", **wide),
        "warmed": target(url, "say-3000", **wide),
        "thinker": local(url, "say-20-think-3000-ms-1", thinking=THINKS, **wide),
        "exact": local(url, "say-20-think-3000-ms-1", thinking=EXACT, **wide),
        "brief": target(url, "say-40", **wide),
    }
    budgets = [
        {"id": "rich", "limit_usd": 100, "window": "day", "routes": ["rich", "short"]},
        {"id": "poor", "limit_usd": 0.12, "window": "lifetime", "routes": ["poor"]},
        {"id": "shared", "limit_usd": 0.5, "window": "lifetime", "routes": ["shared"]},
        {"id": "whole", "limit_usd": 0.12, "window": "lifetime", "routes": ["whole"]},
        {"id": "thought", "limit_usd": 0.15, "window": "lifetime", "routes": ["thought"]},
        {"id": "exactly", "limit_thinking_tokens": 1_500, "window": "lifetime", "routes": ["exactly"]},
        {"id": "mind", "limit_thinking_tokens": 1_500, "window": "lifetime", "routes": ["mind"]},
    ]
    routes = {
        "rich": ordered("warmed"),
        "poor": ordered("talker"),
        "shared": ordered("long"),
        "whole": ordered("talker"),
        "thought": ordered("thinker"),
        "mind": ordered("thinker"),
        "exactly": ordered("exact"),
        "short": ordered("brief"),
    }
    return {"version": 1, "targets": targets, "routes": routes, "budgets": budgets}


def streamed(gateway: Gateway, model: str, **fields: Any) -> list[Any]:
    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="x", max_retries=0) as client:
        return list(client.chat.completions.create(model=model, messages=MESSAGES, stream=True, **fields))


def spent(gateway: Gateway, budget: str) -> int:
    rows = gateway.rows("SELECT spent, held FROM budget_windows WHERE budget = ?", budget)
    assert [row["held"] for row in rows] == [0]
    return int(rows[0]["spent"])


def test_a_long_answer_has_more_held_for_it_while_it_comes(gateway: Gateway) -> None:
    chunks = streamed(gateway, "rich", stream_options={"include_usage": True})
    assert sum(len(chunk.choices[0].delta.content or "") for chunk in chunks if chunk.choices) == 3_000 * len(WORD)
    row = gateway.only("rich")
    assert row["cost"] == 3_000 * TOKEN + 20 * 1_000
    assert (row["overrun"], row["error"]) == (0, None)
    assert row["cost"] <= row["held"] <= 3 * row["cost"], "two bytes a token are assumed at first, and it has five"


def test_a_stream_ends_where_its_budget_does(gateway: Gateway, upstream: Upstream) -> None:
    """0.12 USD pay for 1,200 tokens: two answers of 600 don't fit, their prompts included."""
    first, second = streamed(gateway, "poor"), streamed(gateway, "poor")
    assert first[-1].choices[0].finish_reason == "stop"
    assert second[-1].choices[0].finish_reason == "length"
    assert sum(len(chunk.choices[0].delta.content or "") for chunk in second) < 600 * len(WORD)
    assert spent(gateway, "poor") <= 0.12 * NANO
    rows = gateway.rows("SELECT * FROM requests WHERE route = 'poor' ORDER BY id")
    assert [row["status"] for row in rows] == [200, 200]
    assert [row["overrun"] for row in rows] == [0, 0]
    refused = gateway.chat("poor", stream=True)
    assert (refused.status, refused.error["code"]) == (402, "budget_exceeded")


def test_streams_that_share_a_budget_never_overspend_it(gateway: Gateway, upstream: Upstream) -> None:
    """Four answers of 0.15 USD: each alone could have it all when it begins, the last to grow finds nothing left."""
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: gateway.chat("shared", stream=True), range(4)))
    assert spent(gateway, "shared") <= 0.5 * NANO
    cut = [reply for reply in answers if b'"lowpass":{"stopped":"budget_exceeded"' in reply.body]
    assert cut
    for reply in cut:
        events = [json.loads(line[6:]) for line in reply.body.split(b"\n\n") if line.startswith(b"data: {")]
        assert events[-2]["choices"][0]["finish_reason"] == "length"
        assert events[-1]["usage"]["completion_tokens"] > 0
        assert reply.body.endswith(b"data: [DONE]\n\n")
        row = gateway.row(reply.headers["x-request-id"])
        assert (row["status"], row["error"], row["overrun"]) == (200, "budget_exceeded", 0)
        assert row["attempts"][0]["usage_source"] == "estimated"


def test_an_answer_that_is_not_streamed_is_metered_all_the_same(gateway: Gateway, upstream: Upstream) -> None:
    replies = [gateway.chat("whole") for _ in range(3)]
    assert [reply.status for reply in replies[:2]] == [200, 200]
    assert replies[0].json["choices"][0]["message"]["content"] == WORD * 600
    assert replies[0].json["choices"][0]["finish_reason"] == "stop"
    assert replies[1].json["choices"][0]["finish_reason"] == "length"
    assert replies[2].status == 402
    assert spent(gateway, "whole") <= 0.12 * NANO


@pytest.mark.parametrize("route", ["thought", "mind"])
def test_a_stream_ends_in_mid_thought(gateway: Gateway, upstream: Upstream, route: str) -> None:
    """3,000 tokens of thought cost 0.30 USD; there is less, in money or in thinking tokens."""
    chunks = streamed(gateway, route)
    assert chunks[-1].choices[0].finish_reason == "length"
    row = gateway.only(route)
    assert (row["status"], row["state"]) == (200, "settled")
    (attempt,) = row["attempts"]
    assert (attempt["answered"], attempt["finish_reason"]) == (0, "length")
    limit = 0.15 * NANO if route == "thought" else 1_500
    assert 0 < spent(gateway, route) <= limit


def test_a_model_that_keeps_to_a_number_is_told_it_and_answers(gateway: Gateway, upstream: Upstream) -> None:
    """No thought is cut: it ends by itself where the thinking budget does, and the answer follows."""
    chunks = streamed(gateway, "exactly", reasoning_effort="high")
    assert chunks[-1].choices[0].finish_reason == "stop"
    sent = int(str(upstream.last.json["thinking_token_budget"]))
    assert 500 < sent <= 1_500
    row = gateway.only("exactly")
    assert (row["thinking"], row["attempts"][0]["answered"], row["overrun"]) == (sent, 1, 0)
    assert row["attempts"][0]["thinking"] == f"budget={sent}"


def test_the_reason_is_told_and_the_upstream_is_let_go(gateway: Gateway, upstream: Upstream) -> None:
    reply = gateway.chat("talker", stream=True, headers={"x-lowpass-budget-usd": "0.05"})
    assert reply.status == 200
    asked = upstream.last.json
    assert int(str(asked["max_completion_tokens"])) <= 500


def test_what_is_learned_makes_the_next_holds_tight(gateway: Gateway) -> None:
    def held() -> tuple[int, int]:
        reply: Reply = gateway.chat("short", stream=True)
        row = gateway.settled(reply.headers["x-request-id"])
        return row["held"], row["cost"]

    ratios = [held_ / cost for held_, cost in (held() for _ in range(40))]
    assert ratios[-1] < 1.6 < ratios[0]
    assert all(ratio >= 1 for ratio in ratios)
