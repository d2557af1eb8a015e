"""Agents that spend too much: retries, delegation, growing contexts, caches, pictures, rate limits.

One test or more for each kind of incident; those of books that show too little are in test_unseen.py.
"""

import base64
import json
from contextlib import ExitStack
from decimal import Decimal
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any

import pytest

from router.testing.upstream import Page, Upstream
from tests.budget.redis_process import RedisProcess
from tests.gateway.running import Gateway, Reply, local, serving, target, until, usd
from tests.gateway.test_keys import bearer, create
from tests.money import books
from tests.money.books import CAP, COST, IN, NANO, OUT, PRICE, account, bookings, budgets, pot, row_of, rules, split
from tests.money.crowd import Wish, crowd
from tests.tables import each_row

WRITES = {"input": 10, "output": 20, "cache_read": 1, "cache_write": 12.5, "cache_write_1h": 20}
LONG = "word " * 4_000
SILENT = 6
TURNS = (300, 600, 1_200, 2_400, 4_800, 9_600, 19_200)
"""Tokens of the prompt, turn by turn of a conversation."""
GROWING = {"x-lowpass-session": "growing", "x-lowpass-tags": "talk"}
CACHES: dict[str, dict[str, Any]] = {
    "unmarked": {},
    "marked": {"cache_control": {"type": "ephemeral"}},
    "for-an-hour": {"cache_control": {"type": "ephemeral", "ttl": "1h"}},
}
SEES = ["chat", "vision", "audio"]
FALLEN = {"input": 7, "output": 11}


def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
    data = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices}
    return b"data: " + json.dumps(data).encode() + b"\n\n"


END = chunk({}, "stop") + b"data: [DONE]\n\n"
PLAIN = chunk({"role": "assistant", "content": "answer " * 10}) + END
WITHOUT_USAGE = {"thoughtful": chunk({"role": "assistant", "reasoning": "thought " * 100}) + PLAIN, "plain": PLAIN}
ROUTES = {"cuts": "breaks", "stormy": "limited", "fan-out": "plain", "pictures": "sees", "exact": "plain"}
ROUTES |= {"fails": "broken", "overloads": "overloaded", "falls-back": "broken other", "two": "plain"}
ROUTES |= {"retries": " ".join(f"silent-{number}" for number in range(SILENT)), "unpriced": "free-of-price"}
LIMITS = {"retries": 0.02, "cuts": 1, "stormy": 5, "fan-out": 0.2, "pictures": 0.05, "exact": 0.025, "fails": 0.12}
LIMITS |= {"overloads": 0.12, "unpriced": 0.25, "two": 0.000001}


def policy(url: str) -> dict[str, Any]:
    thinks = {"contract": "always_on", "levels": ["on"], "tokens": [300]}
    claude = {"provider": "anthropic", "base_url": url, "price": WRITES, "max_output": 100, "capabilities": ["chat"]}
    patient = {"timeouts": {"first_ms": 100}}
    targets = {
        "plain": target(url, "say-40", price=PRICE),
        "limited": target(url, "rate-limited@storm", price=PRICE, retries=1),
        "breaks": target(url, "cut@again", price=PRICE, retries=2, max_output=5_000),
        "caches": target(url, "cached", price=WRITES, max_output=100),
        "sees": target(url, "say-40-in-9000", price=PRICE, capabilities=SEES, max_output=100),
        "broken": target(url, "error-500@money", price=PRICE),
        "overloaded": target(url, "overloaded@money", price=PRICE),
        "other": target(url, "normal", price=FALLEN),
        "deepseek": target(url, "reasoning", provider="deepseek", flavour="deepseek", price=PRICE),
        "empty": target(url, "empty-length", price=PRICE, thinking=thinks),
        "free-of-price": target(url, "say-40", price=None),
        **{f"quiet-{name}": local(url, f"quiet-{name}", price=PRICE) for name in WITHOUT_USAGE},
        **{f"claude-{name}": target(url, f"cached@{name}", **claude) for name in CACHES},
        **{f"silent-{i}": target(url, f"hang@silent-{i}", price=PRICE, **patient) for i in range(SILENT)},
        **{f"turn-{n}": target(url, f"say-20-in-{n}", price=PRICE, max_output=50) for n in TURNS},
    }
    limits = [*budgets(LIMITS), {**budgets({"two": 5})[0], "id": "roomy"}]
    limits.append({"id": "conversation", "limit_usd": 0.04, "scope": "session", "tags": ["talk"]})
    return rules(targets, ROUTES, limits, unpriced={"input": 100, "output": 500}, budget_status=429)


@pytest.fixture(autouse=True, scope="module")
def quiet(upstream_server: Upstream) -> None:
    for name, body in WITHOUT_USAGE.items():
        books.saying(upstream_server, f"quiet-{name}", Page((body,), headers={"content-type": "text/event-stream"}))


def test_retry_loop_fallbacks_share_one_hold(gateway: Gateway, upstream: Upstream) -> None:
    """Six targets that read a long prompt and fall silent, each charged for it: the budget ends the search."""
    reply = gateway.chat("retries", LONG, max_completion_tokens=1)
    assert (reply.status, reply.error["code"]) == (429, "budget_exceeded")
    row = row_of(gateway, reply)
    paid = [attempt["cost"] for attempt in row["attempts"]]
    assert 1 < len(paid) < SILENT
    assert all(cost >= 3_000 * IN for cost in paid)
    assert len(upstream.requests) == len(paid)
    assert bookings(gateway, row) == [("retries", row["held"], sum(paid))]
    assert sum(paid) <= row["held"] <= 0.02 * NANO
    assert row["overrun"] == 0


def test_retry_loop_of_broken_answers_is_paid_out_of_one_hold(gateway: Gateway) -> None:
    """What a provider said before it broke off is charged, each time."""
    row = row_of(gateway, gateway.chat("cuts"))
    assert [attempt["outcome"] for attempt in row["attempts"]] == ["cut"] * 3
    assert all(attempt["output_visible"] > 0 and attempt["cost"] >= OUT for attempt in row["attempts"])
    assert bookings(gateway, row) == [("cuts", row["held"], row["cost"])]
    assert (row["cost"] <= row["held"] <= 1 * NANO, row["overrun"]) == (True, 0)


def test_rate_limit_amplification(gateway: Gateway, upstream: Upstream) -> None:
    """A crowd that is turned away is not sent there many times over, costs nothing, and leaves nothing held."""
    replies = crowd(gateway, [Wish("stormy")] * 40)
    assert {reply.status for reply in replies} == {429}
    assert all(int(reply.headers["retry-after"]) >= 1 for reply in replies if "retry-after" in reply.headers)
    assert len(upstream.requests) <= 2 * len(replies)
    assert {row_of(gateway, reply)["cost"] for reply in replies} == {0}
    assert account(gateway, "stormy") == (0, 0)


def test_delegation_fan_out(gateway: Gateway) -> None:
    """Three agents with two helpers each, all at once, with more work than the parent can pay for."""
    children = [split(gateway, "fan-out", 0.06) for _ in range(3)]
    assert gateway.post("/v1/budgets/fan-out/split", {"limit_usd": 0.03}).status == 429
    grandchildren = [split(gateway, child, 0.025) for child in children for _ in range(2)]
    workers = [*children, *grandchildren]
    headers = [{"x-lowpass-budget": worker, "x-lowpass-deadline-ms": "1500"} for worker in workers * 12]
    replies = crowd(gateway, [Wish("fan-out", {"max_tokens": 60}, named) for named in headers])
    assert {reply.status for reply in replies} == {200, 429}
    for worker, reply in zip(workers * 12, replies, strict=True):
        assert reply.status == 200 or reply.error["budget"]["id"] == worker
    assert all(0 < budget["spent"] <= budget["limit"] for budget in [pot(gateway, worker) for worker in workers])
    for child in reversed(workers):
        assert gateway.request("DELETE", f"/v1/budgets/{child}").status == 200
    answered = sum(row_of(gateway, reply)["cost"] for reply in replies if reply.status == 200)
    assert account(gateway, "fan-out") == (answered, 0)
    assert answered <= 0.2 * NANO


def test_context_amplification(gateway: Gateway) -> None:
    """Each turn sends all that was said before: the hold follows the prompt, and the session's budget ends it."""
    replies = [gateway.chat(f"turn-{tokens}", "word " * tokens, headers=GROWING) for tokens in TURNS]
    rows = [row_of(gateway, reply) for reply in takewhile(lambda reply: reply.status == 200, replies)]
    held, cost = [row["held"] for row in rows], [row["cost"] for row in rows]
    assert replies[len(rows)].status == 429
    assert len(rows) >= 4
    assert all(kept >= paid for kept, paid in zip(held, cost, strict=True))
    assert all(later > earlier for earlier, later in pairwise(held))
    conversation = gateway.get("/v1/budgets/conversation", **GROWING).json
    assert conversation["spent"] == usd(sum(cost))
    assert conversation["spent"] <= conversation["limit"]


def test_storage_amplification(gateway: Gateway) -> None:
    """Every token of the prompt may be written to a cache at a premium: the hold has it, and so has the charge."""
    row = row_of(gateway, gateway.chat("caches", "word " * 200))
    assert row["cost"] == 12 * 10_000 + 40 * 1_000 + 32 * 12_500 + 10 * 20_000
    assert row["held"] >= 200 * 12_500 + 100 * 20_000


def test_storage_amplification_where_the_client_asks_for_it(gateway: Gateway) -> None:
    """Anthropic writes only what is marked, for an hour at twice the price of input."""
    rows = {}
    for name, mark in CACHES.items():
        part = {"type": "text", "text": "word " * 1_000, **mark}
        rows[name] = row_of(gateway, gateway.chat(f"claude-{name}", messages=[{"role": "user", "content": [part]}]))
    held = {name: row["held"] for name, row in rows.items()}
    assert held["unmarked"] < held["marked"] < held["for-an-hour"]
    assert held["for-an-hour"] >= 1_000 * 20_000
    assert rows["for-an-hour"]["cost"] == 12 * 10_000 + 40 * 1_000 + 24 * 12_500 + 8 * 20_000 + 10 * 20_000


def seen(gateway: Gateway, model: str, *parts: dict[str, Any]) -> Reply:
    text = {"type": "text", "text": "What is this?"}
    return gateway.chat(model, messages=[{"role": "user", "content": [text, *parts]}])


def picture(size: int) -> dict[str, Any]:
    data = base64.b64encode(b"\x89PNG" + b"x" * size).decode()
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}


def test_multimodal_cost_is_that_of_pictures_not_of_their_bytes(gateway: Gateway) -> None:
    """A megabyte of base64 is no quarter of a million tokens; the picture itself is in the hold, and so is the next."""
    one = row_of(gateway, seen(gateway, "sees", picture(10_000)))
    large = row_of(gateway, seen(gateway, "sees", picture(1_000_000)))
    two = row_of(gateway, seen(gateway, "sees", picture(10_000), picture(10_000)))
    assert one["cost"] == 9_000 * IN + 40 * OUT
    assert one["cost"] <= one["held"] == large["held"] < 20_000 * IN + 100 * OUT
    assert two["held"] - one["held"] >= 9_000 * IN


def test_multimodal_cost_of_sound_follows_its_length(gateway: Gateway) -> None:
    def heard(seconds: int) -> int:
        data = base64.b64encode(b"x" * 16_000 * seconds).decode()
        part = {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}
        return int(row_of(gateway, seen(gateway, "sees", part))["held"])

    assert heard(60) - heard(10) >= 50 * 32 * IN


def test_multimodal_cost_is_refused_before_it_is_spent(gateway: Gateway, upstream: Upstream) -> None:
    assert [seen(gateway, "pictures", *[picture(100)] * count).status for count in (1, 4)] == [200, 429]
    assert len(upstream.requests) == 1
    assert account(gateway, "pictures")[0] == 9_000 * IN + 40 * OUT


# What users of other gateways complained of; numbers are threads of BerriAI/litellm unless named.


def test_the_first_calls_of_a_new_key_meet_its_budget(tmp_path: Path, upstream: Upstream) -> None:
    """#40095: the first concurrent requests of someone new bypassed the default budget."""
    each = [{"id": "each", "scope": "key", "limit_usd": 0.0125}, {"id": "s", "scope": "session", "limit_usd": 0.009}]
    policy = rules({"plain": target(upstream.url, "say-40", price=PRICE)}, {"chat": "plain"}, each)
    key = create(Gateway(tmp_path, policy), "newcomer")
    with serving(tmp_path, policy) as gateway:
        sessions = [{"x-lowpass-session": f"session {number}"} for number in range(5)]
        replies = crowd(gateway, [Wish("chat", CAP, bearer(key) | session) for session in sessions * 12])
        gateway.check_books()
        assert sum(reply.status == 200 for reply in replies) == 3
        windows = {row["budget"]: (row["spent"], row["held"]) for row in gateway.rows("SELECT * FROM budget_windows")}
        assert windows.pop("each|newcomer") == (3 * COST, 0) == tuple(map(sum, zip(*windows.values(), strict=True)))
        assert max(windows.values()) <= (2 * COST, 0)


@pytest.mark.parametrize("redis", [False, True])
def test_a_budget_with_another_window_has_spent_what_was_spent_in_it(
    tmp_path: Path, upstream: Upstream, redis: bool
) -> None:
    """The policy is edited while the gateway runs, and while it does not."""

    def windowed(window: str) -> dict[str, Any]:
        budgets = [{"id": "it", "limit_usd": 1, "window": window}]
        return rules({"plain": target(upstream.url, "say-40", price=PRICE)}, {"chat": "plain"}, budgets)

    with ExitStack() as stack:
        environ = {"LOWPASS_REDIS_URL": stack.enter_context(RedisProcess()).url.reveal()} if redis else {}
        with serving(tmp_path, windowed("day"), environ) as gateway:
            cost = sum(row_of(gateway, gateway.chat("chat"))["cost"] for _ in range(2))
            gateway.policy.write_text(json.dumps(windowed("month")))
            until(lambda: gateway.get("/v1/budgets/it").json["window"] == "month")
            assert account(gateway, "it") == (cost, 0)
            cost += row_of(gateway, gateway.chat("chat"))["cost"]
        for window in ("year", "month", "year"):
            with serving(tmp_path, windowed(window), environ) as gateway:
                assert account(gateway, "it") == (cost, 0), window
                cost += row_of(gateway, gateway.chat("chat"))["cost"]
                assert gateway.lowpass("ledger", "verify")[0] == 0


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


BESIDE = ["/openai/v1/batches", "/anthropic/v1/messages/batches", "/v1/messages/batches", "/v1/images/generations"]
BESIDE += ["/v1/audio/speech", "/v1beta/models/normal:generateContent", "/v1/chat/completions/../models"]


@each_row("path", BESIDE)
def test_there_is_no_way_past_the_books(gateway: Gateway, upstream: Upstream, path: str) -> None:
    """#36592, #38111, maximhq/bifrost#2873: what passed through escaped the budget, or leaked its reservation."""
    before = gateway.rows("SELECT count(*) AS n FROM requests")
    assert gateway.post(path, {"model": "plain", "messages": [{"role": "user", "content": "Hi"}]}).status in (404, 405)
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


def test_a_refusal_names_its_budget_and_what_the_rule_saw_under_one_status(gateway: Gateway) -> None:
    """#14144, maximhq/bifrost#5770: which budget was not said, 400 and 429 were mixed, the numbers were others."""
    for stream in (False, True):
        reply = gateway.chat("two", stream=stream)
        assert (reply.status, reply.error["code"], reply.error["type"]) == (429, "budget_exceeded", "budget_exceeded")
        refused, shown = reply.error["budget"], pot(gateway, "two")
        assert (refused["id"], reply.headers["x-should-retry"]) == ("two", "false")
        assert {name: refused[name] for name in ("limit", "spent", "held")}.items() <= shown.items()
        assert {"scope", "unit", "resets_at"} <= set(refused)
        assert refused["needed"] > refused["limit"] - refused["spent"] - refused["held"]
        assert "'two'" in reply.error["message"]


def test_an_estimate_has_the_thoughts_in_it(gateway: Gateway) -> None:
    """U6, PR #38676, U21: a stream without usage was charged nothing, or its answer without the thoughts."""
    thoughtful, plain = (row_of(gateway, gateway.chat(f"quiet-{name}", stream=True)) for name in WITHOUT_USAGE)
    assert {row["attempts"][0]["usage_source"] for row in (thoughtful, plain)} == {"estimated"}
    assert thoughtful["cost"] - plain["cost"] >= 100 * OUT


def test_the_bridge_to_chat_keeps_its_row(gateway: Gateway) -> None:
    """U9, #36426, U20: a request to /v1/responses that was served by chat left no row, or showed $0."""
    for stream in (False, True):
        row = row_of(gateway, gateway.post("/v1/responses", {"model": "deepseek", "input": "Hi", "stream": stream}))
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
    row = row_of(gateway, next(reply for reply in replies if reply.status == 200))
    assert (row["attempts"][0]["cost_source"], row["held"] >= row["cost"]) == ("unpriced", True)
