"""What the translation sends to a chat provider, and what it refuses to send."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from router.api.responses.request import to_chat
from router.errors import ClientError
from tests.api.bodies import decoded, raws
from tests.tables import each_row

FUNCTION = {"type": "function", "name": "weather", "parameters": {"type": "object"}, "strict": True}
CALL = {"type": "function_call", "call_id": "a", "name": "weather", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "a", "output": "sunny"}
HI = {"role": "user", "content": "hi"}


def chat(**body: Any) -> dict[str, Any]:
    return decoded(to_chat(raws({"model": "auto", "input": "hi", **body})))


ROWS = yaml.safe_load(Path(__file__).with_name("responses_requests.yaml").read_text(encoding="utf-8"))


@each_row("row", ROWS, ids=lambda row: row["name"])
def test_requests_are_translated(row: dict[str, Any]) -> None:
    assert chat(**row["body"]) == {"model": "auto", "messages": [HI], **row["chat"]}


def test_what_both_apis_share_and_what_neither_knows_passes_byte_for_byte() -> None:
    shared = {"temperature": b"0.70", "top_p": b"1.0", "user": b'"u\\u00e9"', "metadata": b'{ "tags": "a" }'}
    shared |= {"seed": b"7", "stop": b'["x"]', "service_tier": b'"flex"', "prompt_cache_key": b'"k"'}
    shared |= {"thinking_token_budget": b"512", "unheard_of": b'{"a" : [1,  2]}'}
    sent = to_chat({"input": Raw(b'"hi"'), **{name: Raw(value) for name, value in shared.items()}})
    assert {name: bytes(sent[name]) for name in shared} == shared


PDF = {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AA"}
SOUND = {"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}}
CACHED = {"text": "b", "cache_control": {"type": "x"}}
PIXEL = "data:image/png;base64,AA"
SAID, SHOWN = {"type": "input_text", "text": "hi"}, {"type": "input_image", "image_url": PIXEL, "detail": "low"}


@each_row(
    "content, expected",
    [
        ("hi", "hi"),
        ([], ""),
        ([SAID], "hi"),
        ([SAID, {"type": "input_text", **CACHED}], [{"type": "text", "text": "hi"}, {"type": "text", **CACHED}]),
        ([SHOWN | {"file_id": None}], [{"type": "image_url", "image_url": {"url": PIXEL, "detail": "low"}}]),
        ([{"type": "input_file", **PDF}], [{"type": "file", "file": PDF}]),
        ([SOUND], [SOUND]),
    ],
)
def test_content_parts(content: Any, expected: Any) -> None:
    assert chat(input=[{"role": "user", "content": content}])["messages"] == [{"role": "user", "content": expected}]
    result = chat(input=[CALL, {**OUTPUT, "output": content}])["messages"][1]
    assert result == {"role": "tool", "tool_call_id": "a", "content": expected}


def item(**fields: Any) -> dict[str, Any]:
    return {"input": [fields]}


def part(**fields: Any) -> dict[str, Any]:
    return item(role="user", content=[fields])


def sealed(payload: bytes) -> dict[str, Any]:
    content = "lowpass1." + base64.urlsafe_b64encode(payload).decode()
    return item(type="reasoning", summary=[], encrypted_content=content)


def chosen(choice: object, *tools: object) -> dict[str, Any]:
    return {"tools": [*tools], "tool_choice": choice}


PNG = "https://example.com/a.png"
MCP = {"type": "mcp", "server_label": "x"}
GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": "x"}
BAD: list[tuple[dict[str, Any], str, str]] = [
    ({"input": None}, "input", "missing"),
    ({"input": []}, "input", "empty"),
    ({"input": 3}, "input", "array"),
    ({"input": ["x"]}, "input[0]", "object"),
    (item(role="wizard", content="x"), "input[0].role", "user"),
    (item(role="user"), "input[0].content", "content"),
    (item(role="user", content=3), "input[0].content", "array"),
    (part(type="text", text="x"), "input[0].content[0].type", "input_text"),
    (part(text="x"), "input[0].content[0].type", "string"),
    (part(type="input_text"), "input[0].content[0].text", "string"),
    (part(type="input_image", file_id="f"), "input[0].content[0].file_id", "data: URL"),
    (part(type="input_image"), "input[0].content[0].image_url", "string"),
    (part(type="input_file", file_id="f"), "input[0].content[0].file_id", "file_data"),
    (part(type="input_file", file_url=PNG), "input[0].content[0].file_url", "file_data"),
    (item(role="assistant", content=[{"type": "input_image"}]), "input[0].content[0].type", "output_text"),
    (item(type="item_reference", id="msg_1"), "input[0]", "whole item"),
    (item(id="msg_1"), "input[0]", "whole item"),
    (item(type="web_search_call", id="ws_1"), "input[0].type", "web_search_call"),
    ({"input": [OUTPUT]}, "input[0].call_id", "nothing is stored"),
    ({"input": [CALL]}, "input[0]", "output"),
    (item(type="function_call", call_id="a", name="f"), "input[0].arguments", "arguments"),
    ({"input": [{**CALL, "arguments": {"a": 1}}]}, "input[0].arguments", "str"),
    (item(type="function_call_output", output="x"), "input[0].call_id", "call_id"),
    (item(type="reasoning", summary="x"), "input[0].summary", "array"),
    (sealed(b"{"), "input[0].encrypted_content", "unchanged"),
    (sealed(b'{"thinking_blocks":3}'), "input[0].encrypted_content", "damaged"),
    (item(type="reasoning", summary=[], encrypted_content="lowpass1.é"), "input[0].encrypted_content", "damaged"),
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
    ({"tools": [MCP]}, "tools[0].type", "mcp"),
    ({"tools": [{"type": "custom", "name": "shell", "format": GRAMMAR}]}, "tools[0].format", "grammar"),
    (chosen("maybe", FUNCTION), "tool_choice", "required"),
    (chosen("required"), "tool_choice", "at least one"),
    (chosen({"type": "function", "name": "time"}, FUNCTION), "tool_choice.name", "time"),
    (chosen({"type": "web_search"}, FUNCTION), "tool_choice.type", "web_search"),
    (chosen({"type": "allowed_tools", "mode": "auto", "tools": [MCP]}, FUNCTION), "tool_choice.tools[0].type", "mcp"),
]


@each_row("fields, param, words", BAD)
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
