"""Answers that nobody waits for any more are billed all the same: what the books say of them."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from typing import Any

import pytest
import yaml
from msgspec import structs

from router.testing.upstream import WORD, Answer, Behaviour, Break, Tokens, Upstream
from router.types.account import LEASE_MS
from tests.docs import blocks, page
from tests.gateway.running import CHAT, MESSAGES, Gateway, serving, target, until
from tests.money.books import IN, OUT, PRICE, account, budgets, change, row_of, rules
from tests.tables import each_row

HIDDEN = {"contract": "always_on", "levels": ["on"], "tokens": [400]}
GONE = Event()  # the client has: `soon` answers
ANSWER = 20 * IN + 1_520 * OUT
ROUTES = {name: f"at-{name}" for name in ("read-on", "whole", "cancel", "late", "slow", "rich", "begun", "steady")}
ROUTES |= {"falls": "at-slow at-rich", "claude": "at-claude"}


def policy(url: str) -> dict[str, Any]:
    wide = {"price": PRICE, "max_output": 2_000}
    targets = {
        "at-read-on": target(url, "soon", thinking=HIDDEN, abandoned="read_on", **wide),
        "at-whole": target(url, "soon", thinking=HIDDEN, **wide),
        "at-cancel": target(url, "never", thinking=HIDDEN, abandoned="cancel", **wide),
        "at-slow": target(url, "soon", abandoned="read_on", timeouts={"first_ms": 600}, retries=0, **wide),
        "at-rich": target(url, "soon", timeouts={"first_ms": 600}, retries=0, **wide),
        "at-begun": target(url, "begun", abandoned="read_on", timeouts={"between_ms": 200}, **wide),
        "at-steady": target(url, "steady", abandoned="read_on", timeouts={"first_ms": 400, "between_ms": 300}, **wide),
        "at-claude": {**target(url, "claude", provider="anthropic", thinking=HIDDEN, **wide), "base_url": url},
        "at-late": target(url, "silence", thinking=HIDDEN, timeouts={"first_ms": 100}, **wide),
    }
    return rules(targets, ROUTES, budgets(dict.fromkeys(ROUTES, 2) | {"rich": 2_000, "falls": 0.18}))


@pytest.fixture(autouse=True)
def behaviours(upstream: Upstream) -> None:
    answer = Answer(text=(WORD,) * 20, reasoning=(WORD,) * 1_500)
    tokens = Tokens(uncached=20, visible=20, reasoning=1_500)

    def late(*_: object) -> Answer:
        GONE.wait(60)
        return answer

    upstream.behaviours["soon"] = Behaviour(answer=late, tokens=tokens)
    upstream.behaviours["never"] = Behaviour(answer=late, tokens=tokens, delay_s=1_000)
    upstream.behaviours["begun"] = Behaviour(answer=lambda *_: answer, tokens=tokens, gate=GONE)
    upstream.behaviours["silence"] = Behaviour(breaks=Break.SILENCE)


@contextmanager
def left(gateway: Gateway, upstream: Upstream, route: str, stream: bool = True) -> Iterator[str]:
    """The id of a request that has reached the upstream; then its client hangs up."""
    before = len(upstream.requests)
    GONE.clear()
    with gateway.raw() as connection:
        body = json.dumps({"model": route, "messages": MESSAGES, "stream": stream})
        connection.sendall(
            f"POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode()
        )
        until(lambda: len(upstream.requests) > before)
        (row,) = gateway.rows("SELECT id FROM requests WHERE route = ? ORDER BY id DESC LIMIT 1", route)
        yield row["id"]
    until(lambda: all(active.gone for active in list(gateway.app._active_requests)))
    GONE.set()
    until(lambda: gateway.row(row["id"])["status"] == 499)


@each_row("route, stream", [("read-on", True), ("read-on", False), ("whole", False)])
def test_an_answer_that_is_billed_all_the_same_is_read_to_its_end(
    gateway: Gateway, upstream: Upstream, route: str, stream: bool
) -> None:
    before, _ = account(gateway, route)
    with left(gateway, upstream, route, stream) as request_id:
        pass
    row = gateway.row(request_id)
    (attempt,) = row["attempts"]
    assert (row["status"], row["error"], row["cost"]) == (499, "client_gone", ANSWER)
    assert (attempt["usage_source"], attempt["output_reasoning"]) == ("reported", 1_500)
    assert not upstream.last.wait().client_gone
    assert account(gateway, route) == (before + ANSWER, 0)


@each_row("stream", [True, False])
def test_an_answer_that_is_cancelled_is_charged_what_may_have_been_written(
    gateway: Gateway, upstream: Upstream, stream: bool
) -> None:
    before, _ = account(gateway, "cancel")
    with left(gateway, upstream, "cancel", stream) as request_id:
        pass
    row = gateway.row(request_id)
    (attempt,) = row["attempts"]
    assert (row["status"], row["error"], attempt["usage_source"]) == (499, "client_gone", "estimated")
    assert upstream.last.wait().client_gone
    assert attempt["total_ms"] * OUT // 2 <= row["cost"] <= row["held"], "about a token a millisecond"
    assert account(gateway, "cancel") == (before + row["cost"], 0)


@each_row("route, reported", [("cancel", False), ("read-on", True)])
def test_a_paused_process_books_no_less_than_others_charged_for_it_unless_it_is_told(
    gateway: Gateway, upstream: Upstream, route: str, reported: bool
) -> None:
    """Its lease runs out while it stands still, another process charges what it holds, and it comes back."""
    before, _ = account(gateway, route)
    with left(gateway, upstream, route) as request_id:
        change(gateway, "UPDATE bookings SET charged = held, state = 'recovered' WHERE request_id = ?", request_id)
        crashed = "UPDATE live_requests SET state = 'recovered', cost = held, error = 'crashed' WHERE id = ?"
        change(gateway, crashed, request_id)
        gateway.let_pass(LEASE_MS / 1000 + 1)
    row = gateway.row(request_id)
    assert row["cost"] == ANSWER if reported else row["cost"] >= row["held"] > ANSWER
    assert account(gateway, route) == (before + row["cost"], 0)


def test_a_timeout_while_thoughts_are_hidden_is_charged_for_them(gateway: Gateway) -> None:
    row = row_of(gateway, gateway.chat("late", stream=True))
    assert row["status"] == 504
    assert OUT < 0.9 * OUT * row["attempts"][0]["total_ms"] < row["cost"] <= row["held"], "a token a millisecond"


@each_row("breaks", [None, Break.CUT])
def test_hidden_thoughts_are_charged_where_only_a_stream_s_start_was_counted(
    gateway: Gateway, upstream: Upstream, breaks: Break | None
) -> None:
    """Anthropic's first event has the input, and a placeholder for the output."""
    tokens = Tokens(uncached=20, visible=10, reasoning=1_500)
    upstream.behaviours["claude"] = Behaviour(tokens=tokens, reports="at_start", breaks=breaks, delay_s=0.5)
    row = row_of(gateway, gateway.chat("claude", stream=True))
    assert (row["input_tokens"], row["attempts"][0]["usage_source"]) == (20, "estimated")
    assert row["held"] >= row["cost"] >= 1_500 * OUT


@each_row("breaks, status", [(Break.SILENCE, 504), (Break.HANG, 200)])
def test_an_answer_that_never_comes_costs(gateway: Gateway, upstream: Upstream, breaks: Break, status: int) -> None:
    """What was expected of it, where it is billed to its end."""
    steady = Behaviour(answer=lambda *_: Answer(text=(WORD,) * 300), tokens=Tokens(uncached=20, visible=300))
    upstream.behaviours["steady"] = steady
    assert {gateway.chat("steady", stream=True).status for _ in range(5)} == {200}
    upstream.behaviours["steady"] = structs.replace(steady, breaks=breaks)
    row = row_of(gateway, gateway.chat("steady", stream=True))
    assert (row["status"], row["attempts"][0]["usage_source"]) == (status, "estimated")
    assert row["held"] >= row["cost"] > 150 * OUT


@each_row("route, status", [("slow", 504), ("falls", 402), ("rich", 504), ("begun", 200)])
def test_a_late_answer_is_held_for_until_it_is_known_what_it_cost(gateway: Gateway, route: str, status: int) -> None:
    """Its client has had a timeout: the provider writes on, and bills it; a fallback can't have that money."""
    GONE.clear()
    reply = gateway.chat(route, stream=status == 200)
    assert (reply.status, gateway.row(reply.id)["state"], account(gateway, route)[1] > 0) == (status, "held", True)
    GONE.set()
    (attempt,) = (row := row_of(gateway, reply))["attempts"]
    assert (row["status"], attempt["outcome"], attempt["usage_source"]) == (status, "timeout", "reported")
    assert account(gateway, route) == (row["cost"], 0) == (ANSWER, 0)


@each_row(
    "model, said, thought",
    [("openai/gpt-4.1-mini", 300, 0), ("openai/gpt-5-mini", 300, 1_200), ("deepseek/deepseek-v4-flash", 30, 1_500)],
)
def test_the_budgets_of_the_page_cut_no_answer_while_there_is_money(
    tmp_path_factory: pytest.TempPathFactory, upstream: Upstream, model: str, said: int, thought: int
) -> None:
    """All five at once: money and thoughts are metered each by its own tokens."""
    documented = next(yaml.safe_load(block) for block in blocks(page("docs/budgets.md"), "yaml") if "per-task" in block)
    provider, _, name = model.partition("/")
    answer = Answer(text=(WORD,) * said, reasoning=(WORD,) * thought)
    tokens = Tokens(uncached=20, visible=said, reasoning=thought)
    upstream.behaviours[name] = Behaviour(answer=lambda ask, index: answer, tokens=tokens, pause_s=0.001)
    place = {"model": model, "base_url": upstream.base_url(provider), "api_key": "sk-upstream"}
    documented["targets"] = {"mini": place, "local": place}
    for budget in documented["budgets"]:
        budget.pop("webhook", None)
    with serving(tmp_path_factory.mktemp("page"), documented) as gateway:
        for number in range(4):
            reply = gateway.chat("auto", stream=number % 2 == 0, headers={"x-lowpass-session": "task"})
            (attempt,) = row_of(gateway, reply)["attempts"]
            assert (reply.status, attempt["finish_reason"]) == (200, "stop")
            assert (attempt["output_reasoning"] or 0) == thought
        (row,) = gateway.rows("SELECT sum(spent) AS spent FROM budget_windows WHERE budget LIKE 'thoughts%'")
        assert (row["spent"] or 0) == 4 * thought
        gateway.check_books()
