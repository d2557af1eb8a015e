"""A stream holds little, holds more while it runs, and ends cleanly where its budget does, also in mid-thought."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from router.testing.upstream import WORD, Upstream
from tests.gateway.running import MESSAGES, Gateway, local, target
from tests.money.books import IN, NANO, OUT, PRICE, budgets, row_of, rules, thoughts
from tests.tables import each_row

THINKS = {"contract": "always_on", "levels": ["high"], "tokens": [400], "streamed": True}
EXACT = {"contract": "exact", "levels": ["none", "high"], "tokens": [0, 3000], "minimum": 1, "streamed": True}
ROUTES = {"rich": "warmed", "poor": "talker", "shared": "long", "whole": "talker", "thought": "thinker"}
ROUTES |= {"mind": "thinker", "exactly": "exact", "short": "brief", "calm": "calm-thinker"}


def policy(url: str) -> dict[str, Any]:
    wide = {"price": PRICE, "max_output": 20_000}
    spoken = {"long": "say-1500-ms-1", "talker": "say-600-ms-1", "warmed": "say-3000", "brief": "say-40-ms-1"}
    thinkers = {"thinker": THINKS, "exact": EXACT}
    targets = {name: target(url, model, **wide) for name, model in spoken.items()}
    targets |= {name: local(url, "say-20-think-3000-ms-1", thinking=how, **wide) for name, how in thinkers.items()}
    targets["calm-thinker"] = local(url, "say-1500-think-100-ms-1", thinking=THINKS, **wide)
    limits = budgets({"poor": 0.12, "shared": 0.5, "whole": 0.12, "thought": 0.15})
    rich = {"id": "rich", "limit_usd": 100, "window": "day", "routes": ["rich", "short"]}
    return rules(targets, ROUTES, [rich, *limits, *thoughts({"exactly": 1_500, "mind": 1_500, "calm": 1_200})])


def streamed(gateway: Gateway, model: str, **fields: Any) -> list[Any]:
    with gateway.client() as client:
        return list(client.chat.completions.create(model=model, messages=MESSAGES, stream=True, **fields))


def length(chunks: list[Any]) -> int:
    return sum(len(chunk.choices[0].delta.content or "") for chunk in chunks if chunk.choices)


def spent(gateway: Gateway, budget: str) -> int:
    (row,) = gateway.rows("SELECT spent, held FROM budget_windows WHERE budget = ?", budget)
    assert row["held"] == 0
    return int(row["spent"])


def test_a_long_answer_has_more_held_for_it_while_it_comes(gateway: Gateway) -> None:
    chunks = streamed(gateway, "rich", stream_options={"include_usage": True})
    assert length(chunks) == 3_000 * len(WORD)
    row = gateway.only("rich")
    assert (row["cost"], row["overrun"], row["error"]) == (3_000 * OUT + 20 * IN, 0, None)
    assert row["cost"] <= row["held"] <= 3 * row["cost"], "two bytes a token are assumed at first, and it has five"


def test_a_stream_ends_where_its_budget_does(gateway: Gateway) -> None:
    """0.12 USD pay for 1,200 tokens: two answers of 600 don't fit, their prompts included."""
    first, second = streamed(gateway, "poor"), streamed(gateway, "poor")
    assert [chunks[-1].choices[0].finish_reason for chunks in (first, second)] == ["stop", "length"]
    assert length(second) < 600 * len(WORD)
    assert spent(gateway, "poor") <= 0.12 * NANO
    rows = gateway.rows("SELECT status, overrun FROM requests WHERE route = 'poor'")
    assert rows == [{"status": 200, "overrun": 0}] * 2
    refused = gateway.chat("poor", stream=True)
    assert (refused.status, refused.error["code"]) == (402, "budget_exceeded")


def test_streams_that_share_a_budget_never_overspend_it(gateway: Gateway) -> None:
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
        row = gateway.row(reply.id)
        assert (row["status"], row["error"], row["overrun"]) == (200, "budget_exceeded", 0)
        assert row["attempts"][0]["usage_source"] == "estimated"


def test_an_answer_that_is_not_streamed_is_metered_all_the_same(gateway: Gateway) -> None:
    replies = [gateway.chat("whole") for _ in range(3)]
    assert [reply.status for reply in replies] == [200, 200, 402]
    whole, cut = (reply.json["choices"][0] for reply in replies[:2])
    assert (whole["message"]["content"], whole["finish_reason"], cut["finish_reason"]) == (WORD * 600, "stop", "length")
    assert spent(gateway, "whole") <= 0.12 * NANO


@each_row("route, limit", [("thought", 0.15 * NANO), ("mind", 1_500)])
def test_a_stream_ends_in_mid_thought(gateway: Gateway, route: str, limit: float) -> None:
    """3,000 tokens of thought cost 0.30 USD; there is less, in money or in thinking tokens."""
    chunks = streamed(gateway, route)
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "length"
    row = gateway.only(route)
    (attempt,) = row["attempts"]
    assert (row["status"], row["state"], attempt["answered"], attempt["finish_reason"]) == (200, "settled", 0, "length")
    assert 0 < spent(gateway, route) <= limit


def test_a_long_answer_is_no_thought(gateway: Gateway) -> None:
    """1,500 tokens are said under a budget of 1,200 thoughts, of which 100 are used each time."""
    assert gateway.chat("calm-thinker", stream=True).status == 200, "it has shown that its tokens come piece by piece"
    for used in (100, 200):
        chunks = streamed(gateway, "calm")
        assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
        assert spent(gateway, "calm") == used


def test_a_model_that_keeps_to_a_number_is_sent_it_and_answers(gateway: Gateway, upstream: Upstream) -> None:
    """No thought is cut: it ends by itself where the thinking budget does, and the answer follows."""
    chunks = streamed(gateway, "exactly", reasoning_effort="high")
    assert chunks[-1].choices[0].finish_reason == "stop"
    sent = int(str(upstream.last.json["thinking_token_budget"]))
    assert 500 < sent <= 1_500
    row = gateway.only("exactly")
    (attempt,) = row["attempts"]
    assert (row["thinking"], attempt["answered"], row["overrun"], attempt["thinking"]) == (sent, 1, 0, f"budget={sent}")


def test_what_is_learned_makes_the_next_holds_tight(gateway: Gateway) -> None:
    rows = [row_of(gateway, gateway.chat("short", stream=True)) for _ in range(40)]
    ratios = [row["held"] / row["cost"] for row in rows]
    assert ratios[-1] < 1.6 < ratios[0]
    assert all(ratio >= 1 for ratio in ratios)
