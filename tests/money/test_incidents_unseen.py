"""Costs that nobody sees: usage missing, wrong, zero or late; requests without a cap or a price; options dropped."""

import json
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.canned import Canned, canned
from tests.gateway.running import Gateway, local, ordered, serving, target, until, usd
from tests.money.books import IN, NANO, OUT, PRICE, bookings, pot, row_of
from tests.money.crowd import Wish, crowd
from tests.upstream import Upstream

EXACT = {"contract": "exact", "levels": ["none", "high"], "tokens": [0, 2_000], "streamed": True}
ALWAYS = {"contract": "always_on", "levels": ["on"], "tokens": [5_000]}


def said(**usage: Any) -> tuple[int, bytes]:
    choice = {"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}
    return 200, json.dumps({"id": "c", "object": "chat.completion", "choices": [choice], "usage": usage}).encode()


WRONG = {
    "negative": (said(prompt_tokens=20, completion_tokens=-500, total_tokens=-480), 20 * IN),
    "total-too-small": (said(prompt_tokens=20, completion_tokens=10, total_tokens=3), 20 * IN + 10 * OUT),
    "total-too-large": (said(prompt_tokens=20, completion_tokens=10, total_tokens=100), 20 * IN + 80 * OUT),
    "more-thought-than-said": (
        said(
            prompt_tokens=20,
            completion_tokens=10,
            total_tokens=30,
            completion_tokens_details={"reasoning_tokens": 70},
        ),
        20 * IN + 80 * OUT,
    ),
    "absurd": (said(prompt_tokens=20, completion_tokens=10**9, total_tokens=10**9 + 20), 20 * IN + 10**9 * OUT),
}
"""What a provider reports, and what of it is charged: the larger reading."""


SAYS = {
    "silent": "missing-usage",
    "zero": "zero-usage",
    "late": "say-400-ms-5",
    "slow": "say-300-ms-10",
    "deaf": "say-300-deaf",
    "no-cap": "say-40",
}
"""Routes, each with a budget of its own name, and what their only target does."""


def policy(url: str, wrong: str) -> dict[str, Any]:
    targets = {
        "exact": local(url, "say-20-think-3000", thinking=EXACT, price=PRICE, max_output=10_000),
        "always": target(url, "reasoning", thinking=ALWAYS),
        "unpriced": target(url, "normal", price=None),
        **{f"at-{name}": target(url, behaviour, price=PRICE) for name, behaviour in SAYS.items()},
        **{f"at-{name}": target(wrong, "m", flavour=name, price=PRICE) for name in WRONG},
    }
    names = (*SAYS, *WRONG)
    limits = dict.fromkeys(names, 5) | {"no-cap": 0.1, "deaf": 0.05}
    return {
        "version": 1,
        "targets": targets,
        "routes": {name: ordered(f"at-{name}") for name in names},
        "budgets": [{"id": n, "limit_usd": limits[n], "window": "lifetime", "routes": [n]} for n in names],
        "unpriced": {"input": 50, "output": 300},
    }


@pytest.fixture(scope="module")
def wrong() -> Iterator[Canned]:
    with canned({name: answer for name, (answer, _) in WRONG.items()}) as server:
        yield server


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, upstream_server: Upstream, wrong: Canned) -> Iterator[Gateway]:
    home = tmp_path_factory.mktemp("unseen")
    with serving(home, policy(upstream_server.url, wrong.url)) as gateway:
        yield gateway


@pytest.mark.parametrize("stream", [False, True])
def test_cost_observability_usage_that_is_missing(gateway: Gateway, stream: bool) -> None:
    """It is estimated, marked, and charged to the budget: never nothing."""
    before = pot(gateway, "silent")["spent"]
    row = row_of(gateway, gateway.chat("silent", stream=stream))
    (attempt,) = row["attempts"]
    assert (attempt["usage_source"], attempt["cost_source"]) == ("estimated", "estimated")
    assert attempt["output_visible"] > 0
    assert row["cost"] > 0
    assert pot(gateway, "silent")["spent"] == pytest.approx(before + usd(row["cost"]))


@pytest.mark.parametrize("stream", [False, True])
def test_cost_observability_usage_of_zero_is_a_fact(gateway: Gateway, stream: bool) -> None:
    row = row_of(gateway, gateway.chat("zero", stream=stream))
    (attempt,) = row["attempts"]
    assert (attempt["usage_source"], attempt["output_visible"], row["cost"]) == ("reported", 0, 0)
    zero = pot(gateway, "zero")
    assert (zero["spent"], zero["held"]) == (0, 0)


@pytest.mark.parametrize("name", WRONG)
def test_cost_observability_usage_that_is_wrong(gateway: Gateway, wrong: Canned, name: str) -> None:
    """The larger reading is charged, in full; what no answer can have cost is marked for whoever reads the books."""
    reply = gateway.chat(name, max_completion_tokens=50)
    row, cost = row_of(gateway, reply), WRONG[name][1]
    (attempt,) = row["attempts"]
    assert row["cost"] == cost == round(reply.json["usage"]["cost"] * NANO)
    assert bool(row["overrun"]) == (cost > row["held"])
    assert attempt["flagged"] or row["overrun"]
    budget = pot(gateway, name)
    assert (budget["spent"], budget["held"]) == (usd(cost), 0)
    again = gateway.chat(name, max_completion_tokens=50)
    assert again.status == (402 if cost > 5 * NANO else 200)


def test_cost_observability_usage_that_comes_after_the_client_has_gone(gateway: Gateway) -> None:
    """What was produced until then is charged, and marked as estimated."""
    crowd(gateway, [Wish("late", {"stream": True}, leaves_after=2_000)])
    (found,) = until(lambda: gateway.rows("SELECT id FROM requests WHERE route = 'late' AND status = 499"))
    row = gateway.row(found["id"])
    (attempt,) = row["attempts"]
    assert (row["error"], attempt["usage_source"]) == ("client_gone", "estimated")
    assert 0 < attempt["output_visible"] < 400
    assert bookings(gateway, row) == [("late", row["held"], row["cost"])]
    assert row["cost"] <= row["held"]


def test_cost_observability_usage_that_comes_after_its_lease_was_recovered(gateway: Gateway, tmp_path: Path) -> None:
    """Another gateway took this one for dead and charged the hold: what the answer cost takes its place, once."""
    with ThreadPoolExecutor(1) as client:
        answer = client.submit(gateway.chat, "slow", stream=True)
        (born,) = until(lambda: gateway.rows("SELECT id FROM requests WHERE route = 'slow' AND state = 'held'"))
        ledger = sqlite3.connect(gateway.ledger, timeout=10)
        with ledger:
            ledger.execute("UPDATE requests SET lease_until_ms = 1, owner = 'a dead one' WHERE id = ?", (born["id"],))
        ledger.close()
        with serving(tmp_path, json.loads(gateway.policy.read_text()), {"LOWPASS_HOME": str(gateway.home)}):
            recovered = until(lambda: row if (row := gateway.row(born["id"]))["state"] == "recovered" else None)
        assert pot(gateway, "slow")["spent"] == usd(recovered["held"])
        assert answer.result().body.endswith(b"data: [DONE]\n\n")
    row = until(lambda: row if (row := gateway.row(born["id"]))["state"] == "settled" else None)
    assert row["cost"] == 20 * IN + 300 * OUT
    slow = pot(gateway, "slow")
    assert (slow["spent"], slow["held"]) == (usd(row["cost"]), 0)


def test_primitive_missing_a_request_without_a_cap(gateway: Gateway, upstream: Upstream) -> None:
    """Nobody said max_tokens: what is sent bounds it, or the stream is metered; nothing is spent beyond the budget."""
    replies = crowd(gateway, [Wish("no-cap", {"stream": number % 2 == 0}) for number in range(60)])
    assert {reply.status for reply in replies} == {200, 402}
    budget = pot(gateway, "no-cap")
    assert 0.5 * budget["limit"] < budget["spent"] <= budget["limit"]
    assert {row_of(gateway, reply)["overrun"] for reply in replies} == {0}


def test_primitive_missing_a_provider_that_hears_no_cap(gateway: Gateway) -> None:
    """An answer longer than it may be is charged in full, marked, and makes the next hold for that model larger."""
    first = row_of(gateway, gateway.chat("deaf", max_completion_tokens=100))
    assert first["cost"] == 20 * IN + 300 * OUT
    assert (first["overrun"], first["held"] < first["cost"]) == (1, True)
    assert pot(gateway, "deaf")["spent"] == usd(first["cost"])
    assert gateway.chat("deaf", max_completion_tokens=300).status == 402


def test_primitive_missing_a_model_without_a_price(gateway: Gateway) -> None:
    row = row_of(gateway, gateway.chat("unpriced"))
    assert row["attempts"][0]["cost_source"] == "unpriced"
    assert row["cost"] == 20 * 50_000 + 10 * 300_000
    assert row["held"] >= row["cost"]


def test_primitive_missing_a_policy_that_refuses_models_without_a_price(tmp_path: Path) -> None:
    rules = {
        "version": 1,
        "targets": {"m": target("http://127.0.0.1:9", "m", price=None)},
        "routes": {"r": ordered("m")},
    }
    status, output = Gateway(tmp_path, rules).lowpass("check", "--policy", str(tmp_path / "policy.yaml"))
    assert status != 0
    assert "no price" in output


def test_option_silently_dropped_a_thinking_budget_is_honoured(gateway: Gateway, upstream: Upstream) -> None:
    reply = gateway.chat("exact", headers={"x-lowpass-thinking-budget": "700"})
    assert upstream.last.json["thinking_token_budget"] == 700
    assert reply.headers["x-lowpass-thinking"] == "budget=700"
    assert 0 < row_of(gateway, reply)["reasoning_tokens"] <= 700


def test_option_silently_dropped_a_thinking_budget_is_honoured_or_refused(gateway: Gateway, upstream: Upstream) -> None:
    reply = gateway.chat("always", headers={"x-lowpass-thinking-budget": "700"})
    assert (reply.status, reply.error["code"]) == (403, "no_eligible_target")
    assert [one["reason"] for one in reply.error["targets"]] == ["thinking"]
    assert upstream.requests == []


@pytest.mark.parametrize("header", ["x-lowpass-thinking-budgets", "x-lowpass-max-budget", "x-lowpass-budget_usd"])
def test_option_silently_dropped_a_misspelt_header_is_refused(
    gateway: Gateway, upstream: Upstream, header: str
) -> None:
    reply = gateway.chat("no-cap", headers={header: "1"})
    assert (reply.status, reply.error["param"]) == (400, header)
    assert "x-lowpass-budget-usd" in reply.error["message"]
    assert upstream.requests == []


@pytest.mark.parametrize("key", ["budget", "limit_dollars", "max_budget"])
def test_option_silently_dropped_a_misspelt_key_of_a_budget_is_refused(tmp_path: Path, key: str) -> None:
    rules = policy("http://127.0.0.1:9", "http://127.0.0.1:9")
    rules["budgets"][0][key] = 5
    status, output = Gateway(tmp_path, rules).lowpass("check", "--policy", str(tmp_path / "policy.yaml"))
    assert status != 0
    assert key in output
