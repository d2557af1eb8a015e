"""Anthropic's own client over every wire: its answers, streams, errors and the row that each request leaves."""

from collections.abc import Iterator
from typing import Any

import anthropic
import pytest

from router.testing.upstream import REASONING, REFUSAL, Answer, Behaviour, Upstream
from tests.clients.conftest import HELLO, NORMAL_NANO
from tests.gateway.running import Gateway, ordered, target, usd, user

WIRES = {"chat": "deepseek", "strict": "openai", "claude": "anthropic", "gemini": "gemini"}
CAN = ["chat", "tools", "json_schema", "vision"]
BUDGETED = {"contract": "exact", "minimum": 1_024, "levels": ["high"], "tokens": [2_000]}
MARK = {"cache_control": {"type": "ephemeral"}}
CITY = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOLS: list[Any] = [{"name": "weather", "input_schema": CITY, **MARK}, {"name": "climate", "input_schema": CITY}]
LIMIT = {"max_tokens": 4_000}
PNG = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
PDF = {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0xLjQK"}


def policy(url: str) -> dict[str, Any]:
    targets = {}
    for wire, provider in WIRES.items():
        for name in ("normal", "reasoning", "parallel-tools", "refusal", "schema", "stopped", "rate-limited", "cut"):
            thinking = BUDGETED if wire == "claude" else None
            kept = {"capabilities": CAN, "max_output": 8_000, "thinking": thinking}
            row = target(url, name, provider=provider, flavour=provider, **kept)
            targets[f"{wire}/{name}"] = row | ({"base_url": url} if wire in ("claude", "gemini") else {})
    aliases = {"claude-*-haiku*": "claude/normal", "claude-*": "auto"}
    return {"version": 1, "targets": targets, "routes": {"auto": ordered("chat/normal")}, "aliases": aliases}


@pytest.fixture
def client(gateway: Gateway) -> Iterator[Any]:
    """Its overloads say nothing of keywords that are put together."""
    with anthropic.Anthropic(base_url=gateway.url, api_key="k", max_retries=0) as client:
        yield client


def content(message: Any) -> list[dict[str, Any]]:
    return [block.to_dict() for block in message.content]


def test_every_wire_answers_whole_and_streamed_alike(client: Any, gateway: Gateway) -> None:
    thinking: Any = {"type": "enabled", "budget_tokens": 1_500}
    said = {"type": "text", "text": HELLO}
    call = {"type": "tool_use", "input": {"city": "Köln"}, "name": "weather"}
    for wire in WIRES:
        rows: list[tuple[str, dict[str, Any], str, list[dict[str, Any]]]] = [
            ("normal", {}, "end_turn", [said]),
            ("reasoning", {"thinking": thinking}, "end_turn", [{"thinking": "".join(REASONING)}, said]),
            ("parallel-tools", {"tools": TOOLS}, "tool_use", [call, call | {"name": "climate"}]),
            ("refusal", {}, "refusal" if wire == "claude" else "end_turn", [{"text": "".join(REFUSAL)}]),
        ]
        for name, asked, ending, expected in rows:
            wanted: dict[str, Any] = {"model": f"{wire}/{name}", "messages": user("Hi"), **LIMIT, **asked}
            raw = client.messages.with_raw_response.create(**wanted)
            whole = raw.parse()
            with client.messages.stream(**wanted) as stream:
                events = [event.type for event in stream]
                streamed = stream.get_final_message()
            if (wire, name) == ("strict", "reasoning"):
                expected = [said]  # OpenAI shows no thoughts
            if (wire, name) == ("gemini", "refusal"):
                continue  # it has no refusal of its own
            place = f"{wire}/{name}"
            assert len(whole.content) == len(expected), place
            for block, least in zip(content(whole), expected, strict=True):
                assert block.items() >= least.items(), place
            assert (whole.stop_reason, streamed.stop_reason, content(streamed)) == (ending, ending, content(whole)), (
                place
            )
            assert (whole.model, whole.role, whole.type) == (place, "assistant", "message")
            assert (events[0], events[-1]) == ("message_start", "message_stop"), place
            row = gateway.row(raw.headers["request-id"])
            assert (row["endpoint"], row["target"], row["state"]) == ("messages", place, "settled")
            usage = whole.usage.to_dict()
            assert usage["cost"] == usd(row["cost"])
            assert (usage["input_tokens"], usage["output_tokens"]) == (row["input_tokens"], row["output_tokens"])
            assert (streamed.usage.input_tokens, streamed.usage.output_tokens) == (20, usage["output_tokens"]), place
            if name == "normal":
                assert row["cost"] == NORMAL_NANO


def test_what_arrives_is_what_the_wire_knows(client: Any, upstream: Upstream) -> None:
    """Turns, tools, pictures and marks of the cache; thinking that a provider signed goes back to it, no other."""
    signed = {"type": "thinking", "thinking": "Hm.", "signature": "EqQB"}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "broken"},
              {"type": "image", "source": PNG}], "is_error": True}  # fmt: skip
    turns: list[Any] = [
        {"role": "user", "content": [{"type": "text", "text": "Look.", **MARK}, {"type": "document", "source": PDF}]},
        {"role": "assistant", "content": [signed, {"type": "text", "text": "I ask."},
         {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Köln"}}]},
        {"role": "user", "content": [result, {"type": "text", "text": "Go on."}]},
    ]  # fmt: skip
    for wire in WIRES:
        client.messages.create(
            model=f"{wire}/normal",
            messages=turns,
            system=[{"type": "text", "text": "Be brief.", **MARK}],
            tools=TOOLS,
            tool_choice={"type": "any", "disable_parallel_tool_use": True},
            stop_sequences=["END"],
            **LIMIT,
        )
        body, text = upstream.last.json, upstream.last.body.decode()
        assert ("cache_control" in text, "EqQB" in text) == {"strict": (False, False), "claude": (True, True),
                "chat": (True, True), "gemini": (False, False)}[wire], wire  # fmt: skip
        for word in ("Look.", "JVBERi0xLjQK", "I ask.", "broken", "Error: ", "iVBORw0KGgo=", "Go on.", "Be brief."):
            assert word in text, (wire, word)
        if wire == "strict":
            assert [message["role"] for message in body["messages"]] == ["system", "user", "assistant", "tool", "user"]
            assert body["messages"][3] == {"role": "tool", "tool_call_id": "t1", "content": [
                {"type": "text", "text": "Error: "}, {"type": "text", "text": "broken"}]}  # fmt: skip
            assert (body["tool_choice"], body["parallel_tool_calls"], body["stop"]) == ("required", False, ["END"])
            assert body["max_completion_tokens"] == 4_000
        if wire == "claude":
            assert (body["system"], body["stop_sequences"]) == (
                [{"type": "text", "text": "Be brief.", **MARK}],
                ["END"],
            )
            assert body["tool_choice"] == {"type": "any", "disable_parallel_tool_use": True}
            assert [turn["role"] for turn in body["messages"]] == ["user", "assistant", "user"]
            assert body["messages"][1]["content"][0] == signed
            assert body["tools"] == TOOLS


def test_names_thinking_schemas_and_sessions(client: Any, gateway: Gateway, upstream: Upstream) -> None:
    """Model names of Anthropic's clients are the policy's aliases; the first pattern that fits counts."""
    named: Any = {"user_id": "user_1f_account_2e_session_9a-b"}
    for model, expected in (("claude-opus-9", "chat/normal"), ("claude-9-haiku-20260101", "claude/normal")):
        raw = client.messages.with_raw_response.create(model=model, messages=user("Hi"), metadata=named, **LIMIT)
        row = gateway.row(raw.headers["request-id"])
        assert (row["requested"], row["target"], row["session"]) == (model, expected, "9a-b")
    assert upstream.last.json["metadata"] == named
    budget: Any = {"type": "enabled", "budget_tokens": 1_200}
    client.messages.create(model="claude/reasoning", messages=user("Hi"), thinking=budget, **LIMIT)
    assert upstream.last.json["thinking"] == budget
    silent = client.messages.create(model="chat/reasoning", messages=user("Hi"), **LIMIT)
    assert [block.type for block in silent.content] == ["text"], "thinking that was not asked for is not shown"
    form: Any = {"format": {"type": "json_schema", "schema": CITY}}
    for wire in ("strict", "claude"):
        answer = client.messages.create(model=f"{wire}/schema", messages=user("Hi"), output_config=form, **LIMIT)
        assert "city" in content(answer)[0]["text"], wire


def test_a_stop_sequence_is_named(client: Any, upstream: Upstream) -> None:
    """By the providers that say which one it was: Anthropic, vLLM."""
    upstream.behaviours["stopped"] = Behaviour(answer=lambda ask, index: Answer(text=("One", " two"), stopped="END"))
    for wire, named in (("claude", "END"), ("strict", None)):
        asked: dict[str, Any] = {"model": f"{wire}/stopped", "messages": user("Hi"), "stop_sequences": ["END"], **LIMIT}
        whole = client.messages.create(**asked)
        with client.messages.stream(**asked) as stream:
            streamed = stream.get_final_message()
        for message in (whole, streamed):
            ending = "stop_sequence" if named else "end_turn"
            assert (message.stop_reason, message.stop_sequence, content(message)[0]["text"]) == (
                ending,
                named,
                "One two",
            )


def test_errors_are_anthropic_s(client: Any, gateway: Gateway) -> None:
    hosted = [{"type": "web_search_20250305", "name": "web_search"}]
    rows: list[tuple[dict[str, Any], type[Any], str, str]] = [
        ({"model": "nothing"}, anthropic.NotFoundError, "not_found_error", "Known: auto"),
        ({"tools": hosted}, anthropic.BadRequestError, "invalid_request_error", "tools[0].type: 'web_search_20250305'"),
        ({"messages": []}, anthropic.BadRequestError, "invalid_request_error", "at least one message"),
        ({"messages": user(5)}, anthropic.BadRequestError, "invalid_request_error", "in messages[0].content"),
        ({"messages": user([{"type": "fax"}])}, anthropic.BadRequestError, "invalid_request_error", "content[0].type"),
        ({"max_tokens": 0}, anthropic.BadRequestError, "invalid_request_error", "max_tokens must be"),
        ({"model": "chat/cut"}, anthropic.InternalServerError, "api_error", "No target answered"),
        ({"model": "chat/rate-limited"}, anthropic.RateLimitError, "rate_limit_error", "No target answered"),
    ]  # fmt: skip
    for change, expected, kind, words in rows:
        with pytest.raises(expected) as raised:
            client.messages.create(**({"model": "auto", "messages": user("Hi"), **LIMIT} | change))
        error = raised.value
        assert (error.body["error"]["type"], error.body["type"]) == (kind, "error"), change
        assert words in error.body["error"]["message"], change
        assert error.request_id == error.body["request_id"], change
    wanted: dict[str, Any] = {"model": "chat/cut", "messages": user("Hi"), **LIMIT}
    with pytest.raises(anthropic.APIStatusError, match="api_error"), client.messages.stream(**wanted) as stream:
        stream.get_final_message()
    assert {row["state"] for row in gateway.rows("SELECT state FROM requests")} <= {"settled", "released"}


def test_tokens_are_counted_and_nothing_is_recorded(client: Any, gateway: Gateway, upstream: Upstream) -> None:
    before = gateway.rows("SELECT count(*) AS n FROM requests")
    short = client.messages.count_tokens(model="auto", messages=user("Hi"))
    long = client.messages.count_tokens(model="auto", messages=user("A long story. " * 1_000), tools=TOOLS)
    assert 0 < short.input_tokens < 100 < 2_000 < long.input_tokens < 10_000
    assert (gateway.rows("SELECT count(*) AS n FROM requests"), upstream.requests) == (before, [])
