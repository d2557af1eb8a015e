"""Tokens of prompts, counted: what `count_tokens` says, and whether a prompt fits where a bound does not tell."""

from typing import Any

import msgspec

from router.estimate.tokens import count_text
from router.testing.upstream import Behaviour, Page, Upstream
from router.testing.upstream.server import Recorded
from tests.gateway.conftest import gateway, postgres, served
from tests.gateway.running import Gateway, local, ordered, target, user

__all__ = ["gateway", "postgres", "served"]
TEXT = "Grüße, 世界! Numbers 12,345.67 and 👩‍👩‍👧‍👦; f(x) = {'a': [1, 2]}\n\tനമസ്കാരം. "
COUNTED = 777
WORD = "hello "
CONTEXT = 2_000


class Engines(Upstream):
    """Also vLLM's own count, but not at the target `silent`."""

    def page(self, request: Recorded) -> Page | None:
        if not request.path.endswith("tokenize"):
            return None
        known = request.path == "/vllm/tokenize" and request.json["model"] == "gpt-4o"
        return Page((msgspec.json.encode({"count": COUNTED, "max_model_len": 9, "tokens": []}),), 200 if known else 503)


def server() -> Engines:
    engines = Engines()
    engines.behaviours |= dict.fromkeys(("gpt-4o", "gpt-4", "gpt-99"), Behaviour())
    return engines


def policy(url: str) -> dict[str, Any]:
    targets = {name: target(url, name) for name in ("gpt-4o", "gpt-4", "gpt-99")}
    targets["small"] = target(url, "gpt-4o", context=CONTEXT, max_output=100)
    targets |= {"engine": local(url, "gpt-4o"), "silent": local(url, "gpt-4")}
    budget = {"id": "pot", "limit_usd": 0.0016, "window": "lifetime", "routes": ["poor"]}
    routes = {"auto": ordered("small", "gpt-99"), "poor": ordered("small")}
    return {"version": 1, "targets": targets, "routes": routes, "budgets": [budget]}


def counted(gateway: Gateway, model: str, content: object = TEXT, **more: Any) -> int:
    body = {"model": model, "messages": user(content), "max_tokens": 9, **more}
    return int(gateway.post("/v1/messages/count_tokens", body).json["input_tokens"])


def test_the_count_is_the_encoding_s_own_and_three_for_each_message_and_for_the_reply(gateway: Gateway) -> None:
    for model, encoding in (("gpt-4o", "o200k_base"), ("gpt-4", "cl100k_base")):
        message = 3 + 1 + count_text(encoding, TEXT)
        assert counted(gateway, model) == message + 3
        assert counted(gateway, model, [{"type": "text", "text": TEXT}], system=TEXT) == 2 * message + 3
        schema = {"type": "object", "properties": {"city": {"type": "string"}}}
        tool = {"name": "weather", "description": TEXT, "input_schema": schema}
        assert counted(gateway, model, tools=[tool]) > message + count_text(encoding, TEXT)
    # What no encoding is known of is estimated, and learns nothing of this.
    assert counted(gateway, "gpt-99") not in (counted(gateway, "gpt-4o"), counted(gateway, "gpt-4"))


def test_a_local_engine_counts_by_itself_and_where_it_does_not_answer_the_estimate_stands(
    gateway: Gateway, upstream: Upstream
) -> None:
    assert counted(gateway, "engine") == COUNTED
    (asked,) = upstream.requests
    assert asked.path == "/vllm/tokenize"
    assert asked.json.keys() == {"model", "messages"}
    assert counted(gateway, "silent") == counted(gateway, "gpt-99")


def test_a_prompt_near_the_context_is_counted_before_it_is_sent_or_refused(
    gateway: Gateway, upstream: Upstream
) -> None:
    fits, long = WORD * (CONTEXT - 9), WORD * (CONTEXT - 6)
    for text, status in ((fits, 200), (" " * 60_000, 200), (long, 400), (WORD * 20_000, 400)):
        upstream.clear()
        reply = gateway.chat("small", text)
        assert (reply.status, len(upstream.requests)) == (status, int(status == 200))
        if status == 400:
            assert reply.error["code"] == "context_length_exceeded"
    replies = [gateway.chat("auto", text) for text in (fits, long)]
    assert [reply.headers["x-lowpass-model"] for reply in replies] == ["small", "gpt-99"]


def test_no_more_is_held_for_a_prompt_than_it_costs_where_a_bound_does_not_fit_a_budget(gateway: Gateway) -> None:
    reply = gateway.chat("poor", "x" * 8_000, max_tokens=100)
    assert count_text("o200k_base", "x" * 8_000) == 1_000
    assert reply.status == 200
    assert gateway.settled(reply.id)["held"] < 1_000 * 1_000 + 100 * 1_000 + 100 * 2_000
