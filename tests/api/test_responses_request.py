"""What the translation sends to a chat provider, and what it refuses to send."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.json import encode

from router.api.responses.request import to_chat
from router.errors import ClientError
from tests.api.bodies import decoded, raws
from tests.tables import data, each_row

FUNCTION = {"type": "function", "name": "weather", "parameters": {"type": "object"}, "strict": True}
CALL = {"type": "function_call", "call_id": "a", "name": "weather", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "a", "output": "sunny"}
HI = {"role": "user", "content": "hi"}


def chat(**body: Any) -> dict[str, Any]:
    asked = raws({"model": "auto", "input": "hi", **body})
    return decoded(to_chat(asked, encode(asked)))


@each_row("row", data(__file__, "responses_requests.yaml"), ids=lambda row: row["name"])
def test_requests_are_translated(row: dict[str, Any]) -> None:
    assert chat(**row["body"]) == {"model": "auto", "messages": [HI], **row["chat"]}


def test_what_both_apis_share_and_what_neither_knows_passes_byte_for_byte() -> None:
    shared = {"temperature": b"0.70", "top_p": b"1.0", "user": b'"u\\u00e9"', "metadata": b'{ "tags": "a" }'}
    shared |= {"seed": b"7", "stop": b'["x"]', "service_tier": b'"flex"', "prompt_cache_key": b'"k"'}
    shared |= {"thinking_token_budget": b"512", "unheard_of": b'{"a" : [1,  2]}'}
    body = {"input": Raw(b'"hi"'), **{name: Raw(value) for name, value in shared.items()}}
    sent = to_chat(body, encode(body))
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


@each_row("fields, param, words", data(__file__, "responses_refused.yaml"))
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
        to_chat({"input": deep}, encode({"input": deep}))


def test_bytes_that_are_not_utf8_are_a_400() -> None:
    body = {"input": Raw(b'[{"role":"assistant","content":"\xff"}]')}
    with pytest.raises(ClientError) as caught:
        to_chat(body, encode(body))
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
        made = json.loads(bytes(to_chat(raws(body), encode(body))["messages"]))
    except ClientError as error:
        made = error.status == 400 and error.param
    assert made
