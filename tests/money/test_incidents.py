"""Agents that spend too much: retries, delegation, growing contexts, caches, pictures, rate limits.

One test or more for each kind of incident; those of books that show too little are in test_incidents_unseen.py.
"""

import base64
from itertools import pairwise, takewhile
from typing import Any

from router.testing.upstream import Upstream
from tests.gateway.running import Gateway, Reply, target, usd
from tests.money.books import IN, NANO, OUT, PRICE, account, bookings, budgets, pot, row_of, rules, split
from tests.money.crowd import Wish, crowd

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


def policy(url: str) -> dict[str, Any]:
    claude = {"provider": "anthropic", "base_url": url, "price": WRITES, "max_output": 100, "capabilities": ["chat"]}
    patient = {"timeouts": {"first_ms": 100}}
    targets = {
        "plain": target(url, "say-40", price=PRICE),
        "limited": target(url, "rate-limited@storm", price=PRICE, retries=1),
        "breaks": target(url, "cut@again", price=PRICE, retries=2, max_output=5_000),
        "caches": target(url, "cached", price=WRITES, max_output=100),
        "sees": target(url, "say-40-in-9000", price=PRICE, capabilities=SEES, max_output=100),
        **{f"claude-{name}": target(url, f"cached@{name}", **claude) for name in CACHES},
        **{f"silent-{i}": target(url, f"hang@silent-{i}", price=PRICE, **patient) for i in range(SILENT)},
        **{f"turn-{n}": target(url, f"say-20-in-{n}", price=PRICE, max_output=50) for n in TURNS},
    }
    routes = {"retries": " ".join(f"silent-{i}" for i in range(SILENT)), "cuts": "breaks", "stormy": "limited"}
    limits = budgets({"retries": 0.02, "cuts": 1, "stormy": 5, "fan-out": 0.2, "pictures": 0.05})
    limits.append({"id": "conversation", "limit_usd": 0.04, "scope": "session", "tags": ["talk"]})
    return rules(targets, {**routes, "fan-out": "plain", "pictures": "sees"}, limits)


def test_retry_loop_fallbacks_share_one_hold(gateway: Gateway, upstream: Upstream) -> None:
    """Six targets that read a long prompt and fall silent, each charged for it: the budget ends the search."""
    reply = gateway.chat("retries", LONG, max_completion_tokens=1)
    assert (reply.status, reply.error["code"]) == (402, "budget_exceeded")
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
    assert {reply.status for reply in replies} == {503}
    assert all(int(reply.headers["retry-after"]) >= 1 for reply in replies if "retry-after" in reply.headers)
    assert len(upstream.requests) <= 2 * len(replies)
    assert {row_of(gateway, reply)["cost"] for reply in replies} == {0}
    assert account(gateway, "stormy") == (0, 0)


def test_delegation_fan_out(gateway: Gateway) -> None:
    """Three agents with two helpers each, all at once, with more work than the parent can pay for."""
    children = [split(gateway, "fan-out", 0.06) for _ in range(3)]
    assert gateway.post("/v1/budgets/fan-out/split", {"limit_usd": 0.03}).status == 402
    grandchildren = [split(gateway, child, 0.025) for child in children for _ in range(2)]
    workers = [*children, *grandchildren]
    headers = [{"x-lowpass-budget": worker, "x-lowpass-deadline-ms": "1500"} for worker in workers * 12]
    replies = crowd(gateway, [Wish("fan-out", {"max_tokens": 60}, named) for named in headers])
    assert {reply.status for reply in replies} == {200, 402}
    for worker, reply in zip(workers * 12, replies, strict=True):
        assert reply.status == 200 or reply.error["budget"]["id"] == worker
    used = [pot(gateway, worker) for worker in workers]
    assert all(0 < budget["spent"] <= budget["limit"] for budget in used)
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
    assert replies[len(rows)].status == 402
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
    statuses = [seen(gateway, "pictures", *[picture(100)] * count).status for count in (1, 4)]
    assert statuses == [200, 402]
    assert len(upstream.requests) == 1
    assert account(gateway, "pictures")[0] == 9_000 * IN + 40 * OUT
