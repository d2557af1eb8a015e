"""What users of other gateways complained of, as situations. Numbers are threads of BerriAI/litellm unless named."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from router.testing.upstream import Page, Upstream
from tests.gateway.running import Gateway, Reply, local, serving, target, until
from tests.gateway.test_keys import create
from tests.money import books
from tests.money.books import CAP, COST, IN, NANO, OUT, PRICE, account, bookings, budgets, pot, row_of, rules
from tests.money.crowd import Wish, crowd
from tests.tables import each_row

FALLEN = {"input": 7, "output": 11}


def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
    data = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices}
    return b"data: " + json.dumps(data).encode() + b"\n\n"


END = chunk({}, "stop") + b"data: [DONE]\n\n"
PLAIN = chunk({"role": "assistant", "content": "answer " * 10}) + END
WITHOUT_USAGE = {"thoughtful": chunk({"role": "assistant", "reasoning": "thought " * 100}) + PLAIN, "plain": PLAIN}
ROUTES = {"chat": "plain", "no-cap": "huge", "little-credit": "huge", "exact": "plain", "fails": "broken"}
ROUTES |= {"overloads": "overloaded", "falls-back": "broken other", "unpriced": "free-of-price"}
ROUTES |= {"two": "plain", "loaded": "plain"}
LIMITS = {"no-cap": 2, "little-credit": 0.05, "exact": 0.025, "fails": 0.12, "overloads": 0.12}
LIMITS |= {"unpriced": 0.25, "two": 0.000001, "loaded": 0.9}


def policy(url: str) -> dict[str, Any]:
    thinks = {"contract": "always_on", "levels": ["on"], "tokens": [300]}
    targets = {
        "plain": target(url, "say-40", price=PRICE),
        "huge": target(url, "say-40@huge", price=PRICE, max_output=64_000),
        "broken": target(url, "error-500@money", price=PRICE),
        "overloaded": target(url, "overloaded@money", price=PRICE),
        "other": target(url, "normal", price=FALLEN),
        "deepseek": target(url, "reasoning", provider="deepseek", flavour="deepseek", price=PRICE),
        "empty": target(url, "empty-length", price=PRICE, thinking=thinks),
        "free-of-price": target(url, "say-40", price=None),
        **{f"quiet-{name}": local(url, f"quiet-{name}", price=PRICE) for name in WITHOUT_USAGE},
    }
    limits = [*budgets(LIMITS), {**budgets({"two": 5})[0], "id": "roomy"}]
    limits.append({"id": "per-task", "limit_usd": 0.0125, "scope": "session", "tags": ["task"]})
    return rules(targets, ROUTES, limits, unpriced={"input": 100, "output": 500}, budget_status=429)


@pytest.fixture(autouse=True, scope="module")
def quiet(upstream_server: Upstream) -> None:
    for name, body in WITHOUT_USAGE.items():
        books.saying(upstream_server, f"quiet-{name}", Page((body,), headers={"content-type": "text/event-stream"}))


def test_concurrent_calls_of_a_session_keep_to_its_budget(gateway: Gateway) -> None:
    """#34732: concurrent calls bypassed the budget of a session."""
    task = {"x-lowpass-session": "one task", "x-lowpass-tags": "task"}
    replies = crowd(gateway, [Wish("chat", CAP, task)] * 40)
    assert sorted({reply.status for reply in replies}) == [200, 429]
    budget = gateway.get("/v1/budgets/per-task", **task).json
    assert round(budget["spent"] * NANO) == 3 * COST == sum(row_of(gateway, reply)["cost"] for reply in replies)


def test_the_first_calls_of_a_new_key_meet_its_budget(tmp_path: Path, upstream: Upstream) -> None:
    """#40095: the first concurrent requests of someone new bypassed the default budget."""
    each = [{"id": "each", "scope": "key", "limit_usd": 0.0125}]
    policy = rules({"plain": target(upstream.url, "say-40", price=PRICE)}, {"chat": "plain"}, each)
    key = create(Gateway(tmp_path, policy), "newcomer")
    with serving(tmp_path, policy) as gateway:
        replies = crowd(gateway, [Wish("chat", CAP, {"authorization": f"Bearer {key}"})] * 60)
        gateway.check_books()
        assert sum(reply.status == 200 for reply in replies) == 3
        (window,) = gateway.rows("SELECT * FROM budget_windows")
        assert (window["budget"], window["spent"], window["held"]) == ("each|newcomer", 3 * COST, 0)


def test_who_sets_no_cap_is_not_held_to_the_whole_budget(gateway: Gateway) -> None:
    """PR #27509, #27539: without max_tokens the whole headroom was held, and others were blocked with little spent.

    Twenty at once, of which one alone could cost three times the budget.
    """
    replies = crowd(gateway, [Wish("no-cap", {"stream": number % 2 == 0}) for number in range(20)])
    assert {reply.status for reply in replies} == {200}
    assert account(gateway, "no-cap")[0] == 20 * COST
    assert max(row_of(gateway, reply)["held"] for reply in replies) <= 0.6 * NANO


def test_a_small_credit_still_buys_an_answer(gateway: Gateway, upstream: Upstream) -> None:
    """gptme/gptme#1828, can1357/oh-my-pi#9569 and others: 64k tokens were reserved, and 402 with money left."""
    reply = gateway.chat("little-credit")
    assert (reply.status, reply.json["choices"][0]["finish_reason"]) == (200, "stop")
    assert int(str(upstream.last.json["max_completion_tokens"])) < 500
    assert row_of(gateway, reply)["held"] <= 0.05 * NANO


def exactly(reply: Reply) -> Any:
    return json.loads(reply.body, parse_float=Decimal, parse_int=Decimal)


def test_amounts_are_exact_and_held_is_apart_from_spent(gateway: Gateway) -> None:
    """PR #38647: "25.000000000000004 of 25" with nothing spent, since what was held could not be told apart."""
    replies = [gateway.chat("exact", **CAP) for _ in range(8)]
    served = [reply for reply in replies if reply.status == 200]
    refused = exactly(replies[-1])["error"]
    assert refused["budget"]["spent"] == len(served) * Decimal(COST) / NANO
    assert (refused["budget"]["limit"], refused["budget"]["held"]) == (Decimal("0.025"), 0)
    left = Decimal("0.025") - refused["budget"]["spent"]
    assert f"${left.normalize():f} left of $0.025" in refused["message"]
    shown = exactly(gateway.get("/v1/budgets/exact"))
    assert (shown["spent"], shown["remaining"]) == (refused["budget"]["spent"], left)


def test_counters_need_no_time_to_heal_after_a_load(gateway: Gateway) -> None:
    """#36926: false refusals under load, until a counter had healed two minutes later."""
    bodies = [{**CAP, "stream": number % 3 == 0} for number in range(200)]
    wishes = [Wish("loaded", body, {}, [None, 400][number % 5 == 0]) for number, body in enumerate(bodies)]
    assert {reply.status for reply in crowd(gateway, wishes)} <= {0, 200}
    assert gateway.chat("loaded", **CAP).status == 200
    until(lambda: gateway.rows("SELECT 1 FROM requests WHERE route = 'loaded' AND state = 'held'") == [])
    costs = gateway.rows("SELECT sum(cost) AS cost FROM requests WHERE route = 'loaded'")
    assert account(gateway, "loaded") == (costs[0]["cost"], 0)


BESIDE = ["/openai/v1/chat/completions", "/anthropic/v1/messages", "/v1/messages", "/v1/images/generations"]
BESIDE += ["/v1/audio/speech", "/v1beta/models/normal:generateContent", "/v1/chat/completions/../models"]


@each_row("path", BESIDE)
def test_there_is_no_way_past_the_books(gateway: Gateway, upstream: Upstream, path: str) -> None:
    """#36592, #38111, maximhq/bifrost#2873: what passed through escaped the budget, or leaked its reservation."""
    before = gateway.rows("SELECT count(*) AS n FROM requests")
    reply = gateway.post(path, {"model": "plain", "messages": [{"role": "user", "content": "Hi"}]})
    assert reply.status in (404, 405)
    assert upstream.requests == []
    assert gateway.rows("SELECT count(*) AS n FROM requests") == before


@each_row("route, status", [("fails", 502), ("overloads", 503)])
def test_a_provider_s_error_before_the_first_chunk_gives_the_hold_back(
    gateway: Gateway, route: str, status: int
) -> None:
    """mozilla-ai/otari#128: each such error leaked a hold, until nothing was left for anyone."""
    for number in range(12):
        reply = gateway.chat(route, stream=number % 2 == 0)
        assert reply.status in (status, 503)
        row = row_of(gateway, reply)
        assert (row["cost"], bookings(gateway, row)) in [(0, [(route, row["held"], 0)]), (0, [])]
    budget = pot(gateway, route)
    assert (budget["spent"], budget["held"], budget["remaining"]) == (0, 0, budget["limit"])


def test_the_numbers_of_a_refusal_are_those_that_the_rule_saw(gateway: Gateway) -> None:
    """maximhq/bifrost#5770: "more than 99 % used" at $0.40 of $15."""
    reply = gateway.chat("two")
    refused, shown = reply.error["budget"], pot(gateway, "two")
    assert all(refused[name] == shown[name] for name in ("limit", "spent", "held"))
    assert refused["needed"] > refused["limit"] - refused["spent"] - refused["held"]


def test_a_refusal_names_its_budget_under_one_status(gateway: Gateway) -> None:
    """#14144: the error did not say which budget, and 400 and 429 were mixed."""
    for stream in (False, True):
        reply = gateway.chat("two", stream=stream)
        assert (reply.status, reply.error["code"], reply.error["type"]) == (429, "budget_exceeded", "budget_exceeded")
        assert {"id", "scope", "unit", "limit", "spent", "held", "resets_at"} <= set(reply.error["budget"])
        assert (reply.error["budget"]["id"], reply.headers["x-should-retry"]) == ("two", "false")
        assert "'two'" in reply.error["message"]


def test_an_estimate_has_the_thoughts_in_it(gateway: Gateway) -> None:
    """U6, PR #38676, U21: a stream without usage was charged nothing, or its answer without the thoughts."""
    thoughtful, plain = (row_of(gateway, gateway.chat(f"quiet-{name}", stream=True)) for name in WITHOUT_USAGE)
    assert {row["attempts"][0]["usage_source"] for row in (thoughtful, plain)} == {"estimated"}
    assert thoughtful["cost"] - plain["cost"] >= 100 * OUT


def test_the_bridge_to_chat_keeps_its_row(gateway: Gateway) -> None:
    """U9, #36426, U20: a request to /v1/responses that was served by chat left no row, or showed $0."""
    for stream in (False, True):
        reply = gateway.post("/v1/responses", {"model": "deepseek", "input": "Hi", "stream": stream})
        row = row_of(gateway, reply)
        assert (row["state"], row["endpoint"], row["cost"]) == ("settled", "responses", 20 * IN + 40 * OUT)
        assert row["reasoning_tokens"] == 30


@each_row("stream", [False, True])
def test_a_fallback_is_charged_at_the_price_of_who_served(gateway: Gateway, stream: bool) -> None:
    """U10, #8810, PR #39294: after a fallback the cost was null, or that of another model of the chain."""
    row = row_of(gateway, gateway.chat("falls-back", stream=stream))
    assert row["attempts"][-1]["target"] == "other"
    assert row["attempts"][-1]["cost"] == row["cost"] == 20 * 7_000 + 10 * 11_000


def test_reasoning_is_part_of_the_output_once(gateway: Gateway) -> None:
    """U11, #10567, agentgateway/agentgateway#3228: it was missing, in place of the output, or counted twice."""
    reply = gateway.chat("deepseek")
    usage, (attempt,) = reply.json["usage"], row_of(gateway, reply)["attempts"]
    assert attempt["output_visible"] + attempt["output_reasoning"] == usage["completion_tokens"] == 40
    assert usage["completion_tokens_details"]["reasoning_tokens"] == attempt["output_reasoning"] == 30
    assert usage["total_tokens"] == 60
    assert (attempt["cost"], attempt["thinking_cost"]) == (20 * IN + 40 * OUT, 30 * OUT)


def test_all_thought_and_no_answer_is_charged_and_no_success(gateway: Gateway) -> None:
    """U14, BerriAI/litellm-docs PR #559: a limit of 200, 199 tokens of reasoning, an empty text, billed."""
    row = row_of(gateway, gateway.chat("empty", max_completion_tokens=200))
    (attempt,) = row["attempts"]
    assert (attempt["answered"], attempt["finish_reason"]) == (0, "length")
    assert row["cost"] == 20 * IN + 200 * OUT


def test_a_model_without_a_price_is_held_like_any_other(gateway: Gateway) -> None:
    """U15, #35524: no price, no reservation, and the race was back."""
    each = 20 * 100_000 + 40 * 500_000
    replies = crowd(gateway, [Wish("unpriced", CAP)] * 60)
    assert sum(reply.status == 200 for reply in replies) == 0.25 * NANO // each
    assert account(gateway, "unpriced")[0] == int(0.25 * NANO // each) * each
