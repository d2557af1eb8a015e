"""What the translation sends to a chat provider, and what it refuses to send."""

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from router.api.responses import to_chat
from router.errors import ClientError

FUNCTION = {"type": "function", "name": "weather", "parameters": {"type": "object"}, "strict": True}
CUSTOM = {"type": "custom", "name": "shell", "description": "Runs it."}


def raws(body: dict[str, Any]) -> dict[str, Raw]:
    return {name: Raw(json.dumps(value).encode()) for name, value in body.items()}


def chat(**body: Any) -> dict[str, Any]:
    sent = to_chat(raws({"model": "auto", "input": "hi", **body}))
    return {name: json.loads(bytes(raw)) for name, raw in sent.items()}


def messages(*items: Any, **body: Any) -> Any:
    return chat(input=list(items), **body)["messages"]


def user(*parts: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(parts)}


def call(name: str = "a", **more: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": name, "name": "weather", "arguments": "{}", **more}


def output(name: str = "a", value: Any = "sunny") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": name, "output": value}


def chat_call(name: str = "a", **more: Any) -> dict[str, Any]:
    return {"id": name, "type": "function", "function": {"name": "weather", "arguments": "{}"}, **more}


def tool(name: str = "a", content: Any = "sunny") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": name, "content": content}


HI = {"role": "user", "content": "hi"}
FIELDS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"instructions": "Be brief."}, {"messages": [{"role": "system", "content": "Be brief."}, HI]}),
    ({"max_output_tokens": 90}, {"max_completion_tokens": 90}),
    ({"max_output_tokens": None}, {}),
    ({"reasoning": {"effort": "low", "summary": "auto"}}, {"reasoning_effort": "low"}),
    ({"reasoning": {"effort": None}}, {}),
    ({"reasoning": {"mode": "standard", "context": "auto"}}, {}),
    ({"reasoning": {"max_tokens": 512, "exclude": True}}, {"reasoning": {"max_tokens": 512, "exclude": True}}),
    ({"text": {"format": {"type": "text"}, "verbosity": "low"}}, {"verbosity": "low"}),
    ({"text": {"format": {"type": "json_object"}}}, {"response_format": {"type": "json_object"}}),
    (
        {"text": {"format": {"type": "json_schema", "name": "p", "strict": True, "schema": {"type": "object"}}}},
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "p", "strict": True, "schema": {"type": "object"}},
            }
        },
    ),
    ({"include": ["message.output_text.logprobs"], "top_logprobs": 3}, {"logprobs": True, "top_logprobs": 3}),
    ({"include": ["message.output_text.logprobs"]}, {"logprobs": True}),
    ({"include": ["reasoning.encrypted_content"], "top_logprobs": 0}, {}),
    ({"stream": True, "stream_options": {"include_obfuscation": False}}, {"stream": True}),
    ({"store": True, "truncation": "auto", "background": False, "max_tool_calls": 3}, {}),
    ({"previous_response_id": None, "conversation": None, "prompt": None}, {}),
    (
        {"tools": [FUNCTION], "parallel_tool_calls": False, "tool_choice": {"type": "function", "name": "weather"}},
        {
            "tools": [
                {
                    "type": "function",
                    "function": {"name": "weather", "parameters": {"type": "object"}, "strict": True},
                }
            ],
            "parallel_tool_calls": False,
            "tool_choice": {"type": "function", "function": {"name": "weather"}},
        },
    ),
    ({"tools": [], "tool_choice": "auto", "parallel_tool_calls": True}, {}),
    (
        {"tools": [{**FUNCTION, "strict": None, "async": True, "cache_control": {"type": "ephemeral"}}]},
        {
            "tools": [
                {
                    "type": "function",
                    "function": {"name": "weather", "parameters": {"type": "object"}},
                    "cache_control": {"type": "ephemeral"},
                }
            ]
        },
    ),
    (
        {
            "tools": [FUNCTION, {"type": "function", "name": "time"}],
            "tool_choice": {
                "type": "allowed_tools",
                "mode": "required",
                "tools": [{"type": "function", "name": "time"}],
            },
        },
        {"tools": [{"type": "function", "function": {"name": "time"}}], "tool_choice": "required"},
    ),
    (
        {"tools": [CUSTOM], "tool_choice": {"type": "custom", "name": "shell"}},
        {
            "tools": [
                {
                    "type": "function",
                    "function": {
                        "name": "shell",
                        "description": "Runs it.",
                        "parameters": {
                            "type": "object",
                            "properties": {"input": {"type": "string"}},
                            "required": ["input"],
                            "additionalProperties": False,
                        },
                    },
                }
            ],
            "tool_choice": {"type": "function", "function": {"name": "shell"}},
        },
    ),
]


@pytest.mark.parametrize(("fields", "expected"), FIELDS)
def test_fields_are_translated(fields: dict[str, Any], expected: dict[str, Any]) -> None:
    plain = {"model": "auto", "messages": [HI]}
    assert chat(**fields) == {**plain, **expected}


def test_what_both_apis_share_and_what_neither_knows_passes_byte_for_byte() -> None:
    shared = {
        "temperature": b"0.70",
        "top_p": b"1.0",
        "user": b'"u\\u00e9"',
        "metadata": b'{ "tags": "a" }',
        "seed": b"7",
        "stop": b'["x"]',
        "service_tier": b'"flex"',
        "prompt_cache_key": b'"k"',
        "thinking_token_budget": b"512",
        "unheard_of": b'{"a" : [1,  2]}',
    }
    sent = to_chat({"input": Raw(b'"hi"'), **{name: Raw(value) for name, value in shared.items()}})
    assert {name: bytes(sent[name]) for name in shared} == shared


PARTS: list[tuple[Any, Any]] = [
    ("hi", "hi"),
    ([{"type": "input_text", "text": "hi"}], "hi"),
    (
        [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b", "cache_control": {"type": "x"}}],
        [{"type": "text", "text": "a"}, {"type": "text", "text": "b", "cache_control": {"type": "x"}}],
    ),
    (
        [{"type": "input_image", "image_url": "data:image/png;base64,AA", "detail": "low", "file_id": None}],
        [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA", "detail": "low"}}],
    ),
    (
        [{"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,AA"}],
        [{"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AA"}}],
    ),
    (
        [{"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}}],
        [{"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}}],
    ),
    ([], ""),
]


@pytest.mark.parametrize(("content", "expected"), PARTS)
def test_content_parts(content: Any, expected: Any) -> None:
    assert messages({"role": "user", "content": content}) == [{"role": "user", "content": expected}]
    assert messages(call(), output(value=content))[1] == tool(content=expected)


def thought(text: str = "hm", **more: Any) -> dict[str, Any]:
    return {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": text}],
        **more,
    }


def said(text: str = "yes") -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]}


ASKED = {"role": "user", "content": "go"}
CONVERSATIONS: list[tuple[list[Any], list[Any]]] = [
    ([{"role": "developer", "content": "d"}, ASKED], [{"role": "system", "content": "d"}, ASKED]),
    (
        [{"role": "system", "content": "s"}, {"role": "developer", "content": "d"}, ASKED],
        [{"role": "system", "content": "s\n\nd"}, ASKED],
    ),
    (
        [ASKED, thought(), said(), ASKED],
        [ASKED, {"role": "assistant", "content": "yes", "reasoning_content": "hm"}, ASKED],
    ),
    (
        [ASKED, {"type": "reasoning", "summary": [{"text": "a"}, {"text": "b"}], "encrypted_content": "gAAA"}, said()],
        [ASKED, {"role": "assistant", "content": "yes", "reasoning_content": "a\n\nb"}],
    ),
    (
        [ASKED, thought(), said(), call(), call("b"), output("b"), output()],
        [
            ASKED,
            {
                "role": "assistant",
                "content": "yes",
                "reasoning_content": "hm",
                "tool_calls": [chat_call(), chat_call("b")],
            },
            tool("b"),
            tool(),
        ],
    ),
    (
        [call(), thought(), call("b"), output(), output("b")],
        [
            {
                "role": "assistant",
                "content": None,
                "reasoning_content": "hm",
                "tool_calls": [chat_call(), chat_call("b")],
            },
            tool(),
            tool("b"),
        ],
    ),
    (
        [call(), output(), thought("then"), call("b"), output("b")],
        [
            {"role": "assistant", "content": None, "tool_calls": [chat_call()]},
            tool(),
            {"role": "assistant", "content": None, "reasoning_content": "then", "tool_calls": [chat_call("b")]},
            tool("b"),
        ],
    ),
    (
        [{"role": "assistant", "content": "one"}, said("two"), ASKED],
        [{"role": "assistant", "content": "one"}, {"role": "assistant", "content": "two"}, ASKED],
    ),
    (
        [{"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}, ASKED],
        [{"role": "assistant", "content": None, "refusal": "no"}, ASKED],
    ),
    (
        [said("one"), thought(), said("two")],
        [
            {"role": "assistant", "content": "one"},
            {"role": "assistant", "content": "two", "reasoning_content": "hm"},
        ],
    ),
    ([ASKED, thought(), ASKED], [ASKED, ASKED]),
    (
        [said(), thought("late"), ASKED],
        [{"role": "assistant", "content": "yes", "reasoning_content": "late"}, ASKED],
    ),
    (
        [call(extra_content={"google": {"thought_signature": "s"}}, status="completed", id="fc_1"), output()],
        [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [chat_call(extra_content={"google": {"thought_signature": "s"}})],
            },
            tool(),
        ],
    ),
    (
        [
            {"type": "custom_tool_call", "call_id": "a", "name": "shell", "input": 'ls "x"'},
            {"type": "custom_tool_call_output", "call_id": "a", "output": "y"},
        ],
        [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "id": "a",
                        "type": "function",
                        "function": {"name": "shell", "arguments": '{"input":"ls \\"x\\""}'},
                    }
                ],
            },
            tool(content="y"),
        ],
    ),
]


@pytest.mark.parametrize(("items", "expected"), CONVERSATIONS)
def test_items_become_messages(items: list[Any], expected: list[Any]) -> None:
    assert messages(*items) == expected


def test_instructions_join_a_leading_system_item_of_parts() -> None:
    part = {"type": "input_text", "text": "b", "cache_control": {"type": "ephemeral"}}
    first = messages({"role": "system", "content": [part]}, ASKED, instructions="a")[0]
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b", "cache_control": {"type": "ephemeral"}}]
    assert first == {"role": "system", "content": parts}


def sealed(payload: bytes) -> str:
    return "lowpass1." + base64.urlsafe_b64encode(payload).decode()


PNG = "https://example.com/a.png"
BAD: list[tuple[dict[str, Any], str, str]] = [
    ({"input": None}, "input", "missing"),
    ({"input": []}, "input", "empty"),
    ({"input": 3}, "input", "array"),
    ({"input": ["x"]}, "input[0]", "object"),
    ({"input": [{"role": "wizard", "content": "x"}]}, "input[0].role", "user"),
    ({"input": [{"role": "user"}]}, "input[0].content", "content"),
    ({"input": [{"role": "user", "content": 3}]}, "input[0].content", "array"),
    ({"input": [user({"type": "text", "text": "x"})]}, "input[0].content[0].type", "input_text"),
    ({"input": [user({"text": "x"})]}, "input[0].content[0].type", "string"),
    ({"input": [user({"type": "input_text"})]}, "input[0].content[0].text", "string"),
    ({"input": [user({"type": "input_image", "file_id": "f"})]}, "input[0].content[0].file_id", "data: URL"),
    ({"input": [user({"type": "input_image"})]}, "input[0].content[0].image_url", "string"),
    ({"input": [user({"type": "input_file", "file_id": "f"})]}, "input[0].content[0].file_id", "file_data"),
    ({"input": [user({"type": "input_file", "file_url": PNG})]}, "input[0].content[0].file_url", "file_data"),
    (
        {"input": [{"role": "assistant", "content": [{"type": "input_image", "image_url": PNG}]}]},
        "input[0].content[0].type",
        "output_text",
    ),
    ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input[0]", "whole item"),
    ({"input": [{"id": "msg_1"}]}, "input[0]", "whole item"),
    ({"input": [{"type": "web_search_call", "id": "ws_1"}]}, "input[0].type", "web_search_call"),
    ({"input": [output()]}, "input[0].call_id", "nothing is stored"),
    ({"input": [call()]}, "input[0]", "output"),
    ({"input": [{"type": "function_call", "call_id": "a", "name": "f"}]}, "input[0].arguments", "arguments"),
    ({"input": [call(arguments={"a": 1})]}, "input[0].arguments", "str"),
    ({"input": [{"type": "function_call_output", "output": "x"}]}, "input[0].call_id", "call_id"),
    ({"input": [{"type": "reasoning", "summary": "x"}]}, "input[0].summary", "array"),
    ({"input": [thought(encrypted_content=sealed(b"{"))]}, "input[0].encrypted_content", "unchanged"),
    ({"input": [thought(encrypted_content=sealed(b'{"thinking_blocks":3}'))]}, "input[0].encrypted_content", "damaged"),
    ({"input": [thought(encrypted_content="lowpass1.é")]}, "input[0].encrypted_content", "damaged"),
    ({"instructions": ["x"]}, "instructions", "str"),
    ({"previous_response_id": "resp_1"}, "previous_response_id", "whole conversation"),
    ({"conversation": "conv_1"}, "conversation", "whole conversation"),
    ({"prompt": {"id": "pmpt_1"}}, "prompt", "instructions"),
    ({"context_management": [{"type": "compaction"}]}, "context_management", "leave it out"),
    ({"background": True}, "background", "stream"),
    ({"background": "yes"}, "background", "bool"),
    ({"messages": []}, "messages", "input"),
    ({"response_format": {"type": "json_object"}}, "response_format", "text.format"),
    ({"max_tokens": 3}, "max_tokens", "max_output_tokens"),
    ({"reasoning_effort": "low"}, "reasoning_effort", "reasoning.effort"),
    ({"n": 2}, "n", "several times"),
    ({"max_output_tokens": 0}, "max_output_tokens", "at least 1"),
    ({"max_output_tokens": "9"}, "max_output_tokens", "int"),
    ({"top_logprobs": 21}, "top_logprobs", "20"),
    ({"include": "x"}, "include", "array"),
    ({"reasoning": "low"}, "reasoning", "object"),
    ({"reasoning": {"effort": 3}}, "reasoning.effort", "str"),
    ({"reasoning": {"mode": "pro"}}, "reasoning.mode", "standard"),
    ({"text": {"format": {"type": "grammar"}}}, "text.format.type", "json_schema"),
    ({"text": {"format": {"type": "json_schema", "schema": {}}}}, "text.format.name", "name"),
    ({"tools": {}}, "tools", "array"),
    ({"tools": [{"name": "f"}]}, "tools[0].type", "missing"),
    ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools[0].name", "top level"),
    ({"tools": [FUNCTION, {"type": "web_search"}]}, "tools[1].type", "web_search"),
    ({"tools": [{"type": "mcp", "server_label": "x"}]}, "tools[0].type", "mcp"),
    (
        {"tools": [{**CUSTOM, "format": {"type": "grammar", "syntax": "lark", "definition": "x"}}]},
        "tools[0].format",
        "grammar",
    ),
    ({"tools": [FUNCTION], "tool_choice": "maybe"}, "tool_choice", "required"),
    ({"tools": [], "tool_choice": "required"}, "tool_choice", "at least one"),
    ({"tools": [FUNCTION], "tool_choice": {"type": "function", "name": "time"}}, "tool_choice.name", "time"),
    ({"tools": [FUNCTION], "tool_choice": {"type": "web_search"}}, "tool_choice.type", "web_search"),
    (
        {
            "tools": [FUNCTION],
            "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "mcp", "server_label": "x"}]},
        },
        "tool_choice.tools[0].type",
        "mcp",
    ),
]


@pytest.mark.parametrize(("fields", "param", "words"), BAD)
def test_bad_input_is_a_400_that_names_the_parameter_and_the_remedy(
    fields: dict[str, Any], param: str, words: str
) -> None:
    with pytest.raises(ClientError) as caught:
        chat(**fields)
    error = caught.value
    assert (error.status, error.code, error.param) == (400, "invalid_request_error", param)
    assert words in error.message


def test_nesting_without_end_is_a_400() -> None:
    deep = Raw(b'[{"role":"user","content":' + b"[" * 100_000 + b"]" * 100_000 + b"}]")
    with pytest.raises(ClientError, match="flatten"):
        to_chat({"input": deep})


def test_bytes_that_are_not_utf8_are_a_400() -> None:
    with pytest.raises(ClientError) as caught:
        to_chat({"input": Raw(b'[{"role":"assistant","content":"\xff"}]')})
    assert caught.value.param == "input[0].content"


KEYS = ("type", "role", "content", "text", "call_id", "output", "summary", "name", "input", "tools", "format", "mode")
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(("input", "tools", "tool_choice", "text", "reasoning", "include")), json_values))
def test_any_json_is_translated_or_refused_with_a_400(body: dict[str, Any]) -> None:
    try:
        made = json.loads(bytes(to_chat(raws(body))["messages"]))
    except ClientError as error:
        made = error.status == 400 and error.param
    assert made
