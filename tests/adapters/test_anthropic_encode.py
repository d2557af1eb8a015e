"""What the Messages API gets for an OpenAI request."""

from typing import Any

import pytest

from adapters.anthropic import AnthropicAdapter
from adapters.anthropic.encode import JSON_ONLY
from router.errors import ClientError
from router.types.target import Contract, Thinking, Wire
from tests.adapters.translated import BUDGETS, LEVELS, USER, call, sent

ADAPTER = AnthropicAdapter()
SAYS_HI = [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]
PIXEL = "data:image/png;base64,iVBORw0KGgo="
WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Now",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
WEATHER_TOOL: dict[str, Any] = {
    "name": "weather",
    "description": "Now",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
}
PING: dict[str, Any] = {"type": "function", "function": {"name": "ping"}}
PING_TOOL: dict[str, Any] = {"name": "ping", "input_schema": {"type": "object", "properties": {}}}


def anthropic(body: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    return sent(ADAPTER, call(Wire.ANTHROPIC, body, **fields))


def test_request_line_and_headers() -> None:
    request = ADAPTER.encode(call(Wire.ANTHROPIC, headers={"anthropic-beta": "context-1m"}))
    assert (request.method, request.path) == ("POST", "/v1/messages")
    assert dict(request.headers) == {
        "content-type": "application/json",
        "anthropic-version": "2023-06-01",
        "x-api-key": "k-1",
        "anthropic-beta": "context-1m",
    }


def test_smallest_request() -> None:
    assert anthropic() == {"model": "the-model", "max_tokens": 8_000, "messages": SAYS_HI}


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        pytest.param({"stop": "END"}, {"stop_sequences": ["END"]}, id="stop string"),
        pytest.param({"stop": ["a", "b"]}, {"stop_sequences": ["a", "b"]}, id="stop list"),
        pytest.param({"max_tokens": 50}, {"max_tokens": 50}, id="max_tokens"),
        pytest.param({"max_completion_tokens": 60, "max_tokens": 50}, {"max_tokens": 60}, id="max_completion_tokens"),
        pytest.param({"temperature": 0.2, "top_k": 4}, {"temperature": 0.2, "top_k": 4}, id="sampling"),
        pytest.param({"temperature": 1.7}, {"temperature": 1.0}, id="temperature ends at 1"),
        pytest.param({"temperature": 0.2, "top_p": 0.5}, {"temperature": 0.2}, id="never both"),
        pytest.param({"top_p": 0.5}, {"top_p": 0.5}, id="top_p"),
        pytest.param({"user": "u"}, {"metadata": {"user_id": "u"}}, id="user"),
        pytest.param(
            {"user": "u", "metadata": {"user_id": "m", "tags": "x"}}, {"metadata": {"user_id": "m"}}, id="metadata"
        ),
        pytest.param({"service_tier": "auto"}, {"service_tier": "auto"}, id="tier auto"),
        pytest.param({"service_tier": "default"}, {"service_tier": "standard_only"}, id="tier default"),
        pytest.param(
            {"seed": 1, "n": 1, "stream_options": {"include_usage": True}, "logit_bias": {"1": 2}, "store": False},
            {},
            id="fields without a counterpart",
        ),
        pytest.param(
            {"speed": "fast", "container": {"id": "c"}}, {"speed": "fast", "container": {"id": "c"}}, id="own"
        ),
        pytest.param({"thinking": {"type": "adaptive"}}, {"thinking": {"type": "adaptive"}}, id="own thinking"),
        pytest.param({"web_search_options": {}}, {"web_search_options": {}}, id="left to the provider to refuse"),
        pytest.param(
            {"response_format": {"type": "json_object"}},
            {"system": [{"type": "text", "text": JSON_ONLY}]},
            id="json_object",
        ),
        pytest.param(
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {
                        "name": "a",
                        "strict": True,
                        "schema": {
                            "type": "object",
                            "properties": {"n": {"type": "integer", "minimum": 1, "description": "Count"}},
                            "required": ["n"],
                        },
                    },
                }
            },
            {
                "output_config": {
                    "format": {
                        "type": "json_schema",
                        "schema": {
                            "type": "object",
                            "properties": {"n": {"type": "integer", "description": "Count (minimum: 1)"}},
                            "required": ["n"],
                            "additionalProperties": False,
                        },
                    }
                }
            },
            id="json_schema",
        ),
    ],
)
def test_fields(given: dict[str, Any], wanted: dict[str, Any]) -> None:
    plain = {"model": "the-model", "max_tokens": 8_000, "messages": SAYS_HI}
    assert anthropic(given) == {**plain, **wanted}


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        pytest.param({"tools": [WEATHER]}, {"tools": [WEATHER_TOOL]}, id="function"),
        pytest.param({"tools": [PING]}, {"tools": [PING_TOOL]}, id="no parameters"),
        pytest.param(
            {"tools": [{**PING, "cache_control": {"type": "ephemeral"}}]},
            {"tools": [{**PING_TOOL, "cache_control": {"type": "ephemeral"}}]},
            id="cache_control on a tool",
        ),
        pytest.param(
            {"tools": [{"type": "web_search_20250305", "name": "web_search"}]},
            {"tools": [{"type": "web_search_20250305", "name": "web_search"}]},
            id="a tool of Anthropic's own",
        ),
        pytest.param(
            {"tools": [{"type": "function", "function": {**PING["function"], "strict": True}}]},
            {
                "tools": [
                    {
                        **PING_TOOL,
                        "strict": True,
                        "input_schema": {**PING_TOOL["input_schema"], "additionalProperties": False},
                    }
                ]
            },
            id="strict",
        ),
        pytest.param(
            {"tools": [PING], "tool_choice": "auto"},
            {"tools": [PING_TOOL], "tool_choice": {"type": "auto"}},
            id="auto",
        ),
        pytest.param(
            {"tools": [PING], "tool_choice": "none", "parallel_tool_calls": False},
            {"tools": [PING_TOOL], "tool_choice": {"type": "none"}},
            id="none",
        ),
        pytest.param(
            {"tools": [PING], "tool_choice": "required", "parallel_tool_calls": False},
            {"tools": [PING_TOOL], "tool_choice": {"type": "any", "disable_parallel_tool_use": True}},
            id="required, one at a time",
        ),
        pytest.param(
            {"tools": [PING], "parallel_tool_calls": False},
            {"tools": [PING_TOOL], "tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
            id="one at a time",
        ),
        pytest.param(
            {"tools": [PING, WEATHER], "tool_choice": {"type": "function", "function": {"name": "ping"}}},
            {"tools": [PING_TOOL, WEATHER_TOOL], "tool_choice": {"type": "tool", "name": "ping"}},
            id="named",
        ),
        pytest.param(
            {
                "tools": [PING, WEATHER],
                "tool_choice": {
                    "type": "allowed_tools",
                    "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "ping"}}]},
                },
            },
            {"tools": [PING_TOOL], "tool_choice": {"type": "auto"}},
            id="allowed",
        ),
        pytest.param({"tool_choice": "auto", "parallel_tool_calls": True}, {}, id="no tools"),
    ],
)
def test_tools(given: dict[str, Any], wanted: dict[str, Any]) -> None:
    body = anthropic(given)
    assert {name: body[name] for name in ("tools", "tool_choice") if name in body} == wanted


@pytest.mark.parametrize(
    ("messages", "system", "turns"),
    [
        pytest.param(
            [{"role": "system", "content": "A"}, *USER, {"role": "developer", "content": "B"}],
            [{"type": "text", "text": "A"}, {"type": "text", "text": "B"}],
            SAYS_HI,
            id="system and developer",
        ),
        pytest.param(
            [{"role": "user", "content": "a"}, {"role": "user", "content": [{"type": "text", "text": "b"}]}],
            None,
            [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}],
            id="turns of one role merge",
        ),
        pytest.param(
            [
                {
                    "role": "user",
                    "content": [
                        {"type": "image_url", "image_url": {"url": PIXEL, "detail": "low"}},
                        {"type": "image_url", "image_url": {"url": "https://x/y.png"}},
                        {"type": "text", "text": "?", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
                        {"type": "text", "text": "  "},
                    ],
                }
            ],
            None,
            [
                {
                    "role": "user",
                    "content": [
                        {
                            "type": "image",
                            "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="},
                        },
                        {"type": "image", "source": {"type": "url", "url": "https://x/y.png"}},
                        {"type": "text", "text": "?", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
                    ],
                }
            ],
            id="images, cache_control, blank text",
        ),
        pytest.param(
            [
                {
                    "role": "user",
                    "content": [
                        {
                            "type": "file",
                            "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBE"},
                        },
                        {"type": "search_result", "source": "s", "title": "t", "content": []},
                    ],
                }
            ],
            None,
            [
                {
                    "role": "user",
                    "content": [
                        {
                            "type": "document",
                            "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBE"},
                            "title": "a.pdf",
                        },
                        {"type": "search_result", "source": "s", "title": "t", "content": []},
                    ],
                }
            ],
            id="file, a part of Anthropic's own",
        ),
        pytest.param(
            [
                *USER,
                {
                    "role": "assistant",
                    "content": "",
                    "reasoning_content": "Both.",
                    "thinking_blocks": [
                        {"index": 0, "type": "thinking", "thinking": "Both.", "signature": "sig"},
                        {"index": 1, "type": "redacted_thinking", "data": "xyz"},
                    ],
                    "tool_calls": [
                        {"id": "t1", "type": "function", "function": {"name": "a", "arguments": '{"x": 1}'}},
                        {"id": "t2", "type": "function", "function": {"name": "b", "arguments": ""}},
                        {"id": "t3", "type": "function", "function": {"name": "c", "arguments": '{"x": '}},
                    ],
                },
                {"role": "tool", "tool_call_id": "t1", "content": "one"},
                {"role": "tool", "tool_call_id": "t2", "content": [{"type": "text", "text": "two"}]},
                {"role": "tool", "tool_call_id": "t3", "content": ""},
                {"role": "user", "content": "Go on"},
            ],
            None,
            [
                *SAYS_HI,
                {
                    "role": "assistant",
                    "content": [
                        {"type": "thinking", "thinking": "Both.", "signature": "sig"},
                        {"type": "redacted_thinking", "data": "xyz"},
                        {"type": "tool_use", "id": "t1", "name": "a", "input": {"x": 1}},
                        {"type": "tool_use", "id": "t2", "name": "b", "input": {}},
                        {"type": "tool_use", "id": "t3", "name": "c", "input": {"arguments": '{"x": '}},
                    ],
                },
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "one"}]},
                        {"type": "tool_result", "tool_use_id": "t2", "content": [{"type": "text", "text": "two"}]},
                        {"type": "tool_result", "tool_use_id": "t3", "content": []},
                        {"type": "text", "text": "Go on"},
                    ],
                },
            ],
            id="tool round with signed thinking",
        ),
    ],
)
def test_messages(messages: list[Any], system: list[Any] | None, turns: list[Any]) -> None:
    body = anthropic({"messages": messages})
    assert body.get("system") == system
    assert body["messages"] == turns


ENABLED = {"type": "enabled", "budget_tokens": 2_000}


@pytest.mark.parametrize(
    ("thinking", "fields", "body", "wanted", "stated"),
    [
        pytest.param(BUDGETS, {"thinking_budget": 2_000}, {}, {"thinking": ENABLED}, "budget=2000", id="budget"),
        pytest.param(
            BUDGETS,
            {"thinking_budget": 2_000},
            {"temperature": 0.1, "top_p": 0.2, "top_k": 3, "thinking": {"type": "disabled"}},
            {"thinking": ENABLED},
            "budget=2000",
            id="no sampling beside thinking; the gateway's limit wins",
        ),
        pytest.param(
            BUDGETS, {"thinking_budget": 500}, {}, {"thinking": {"type": "disabled"}}, "off", id="below the minimum"
        ),
        pytest.param(
            BUDGETS,
            {"thinking_budget": 6_000, "max_output": 5_000},
            {},
            {"thinking": {"type": "enabled", "budget_tokens": 2_500}, "max_tokens": 5_000},
            "budget=2500",
            id="room for the answer",
        ),
        pytest.param(
            BUDGETS,
            {"thinking_budget": 6_000, "max_output": 1_500},
            {"temperature": 0.1},
            {"thinking": {"type": "disabled"}, "max_tokens": 1_500, "temperature": 0.1},
            "off",
            id="no room to think",
        ),
        pytest.param(
            BUDGETS,
            {"thinking_budget": 2_000},
            {"tools": [PING], "tool_choice": "required"},
            {"thinking": {"type": "disabled"}, "tools": [PING_TOOL], "tool_choice": {"type": "any"}},
            "off",
            id="a forced tool excludes a budget",
        ),
        pytest.param(
            LEVELS,
            {"effort": "medium"},
            {"temperature": 0.1},
            {"thinking": {"type": "adaptive"}, "output_config": {"effort": "medium"}},
            "effort=medium",
            id="level",
        ),
        pytest.param(
            LEVELS,
            {"thinking_budget": 9_000},
            {"output_config": {"task_budget": {"type": "tokens", "total": 1}}},
            {
                "thinking": {"type": "adaptive"},
                "output_config": {"effort": "medium", "task_budget": {"type": "tokens", "total": 1}},
            },
            "effort=medium",
            id="budget as a level",
        ),
        pytest.param(LEVELS, {}, {"temperature": 0.1}, {}, "none", id="such models refuse sampling"),
        pytest.param(
            Thinking(contract=Contract.TARGET),
            {"effort": "none"},
            {},
            {"thinking": {"type": "disabled"}},
            "off",
            id="off",
        ),
        pytest.param(BUDGETS, {}, {"thinking": ENABLED}, {"thinking": ENABLED}, "budget=2000", id="client's own"),
    ],
)
def test_thinking(
    thinking: Thinking, fields: dict[str, Any], body: dict[str, Any], wanted: dict[str, Any], stated: str
) -> None:
    asked = call(Wire.ANTHROPIC, body, thinking=thinking, **fields)
    plain = {"model": "the-model", "max_tokens": 8_000, "messages": SAYS_HI}
    assert sent(ADAPTER, asked) == {**plain, **wanted}
    assert ADAPTER.encode(asked).thinking == stated


def test_bound_of_the_gateway_wins() -> None:
    assert anthropic({"max_tokens": 900}, max_output=100)["max_tokens"] == 100


def test_stream_is_asked_for() -> None:
    assert anthropic({"stream": True}, stream=True)["stream"] is True
    assert "stream" not in anthropic({"stream": True})


def test_refused_fields_are_left_out() -> None:
    body = anthropic({"temperature": 0.5, "speed": "fast"}, refuses=("temperature", "speed"))
    assert "temperature" not in body
    assert "speed" not in body


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content"),
        ({"messages": None}, "messages"),
        ({"tools": "ping"}, "tools"),
        ({"thinking": "much"}, "thinking"),
    ],
)
def test_wrong_type_names_its_place(body: dict[str, Any], place: str) -> None:
    with pytest.raises(ClientError) as raised:
        anthropic(body)
    assert (raised.value.status, raised.value.param) == (400, place)


def test_nesting_has_an_end() -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(400):
        schema = {"type": "object", "properties": {"a": schema}}
    tool = {"type": "function", "function": {"name": "f", "strict": True, "parameters": schema}}
    with pytest.raises(ClientError, match="nested too deeply"):
        anthropic({"tools": [tool]})
