"""A chat completion as a `response` object, checked against the official client's types."""

import json
from typing import Any

import pytest
from msgspec import Raw
from openai.types.responses import Response
from pydantic import TypeAdapter

from router.api.responses import from_chat, to_chat
from router.errors import UpstreamFailure
from router.types.failure import ErrorKind
from tests.api.bodies import USAGE, decoded, raws
from tests.tables import each_row

CALL = {"id": "call_a", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Rome"}'}}
BLOCKS = [{"type": "thinking", "thinking": "hm", "signature": "sig"}, {"type": "redacted_thinking", "data": "xx"}]
DETAILS = [
    {"type": "reasoning.text", "text": "hm", "index": 0},
    {"type": "reasoning.encrypted", "data": "x", "index": 1},
]


def reply(message: dict[str, Any], finish: str = "stop", choice: dict[str, Any] | None = None, **request: Any) -> Any:
    choices = [{"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish, **(choice or {})}]
    chat = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1_700_000_000, "model": "m", "choices": choices}
    body = raws({"model": "auto", "input": "hi", **request})
    to_chat(body)
    response = decoded(from_chat(raws(chat), body, "resp_01", Raw(json.dumps(USAGE).encode())))
    TypeAdapter(Response).validate_python(response)
    return response


def items(message: dict[str, Any], finish: str = "stop", **request: Any) -> Any:
    return reply(message, finish, **request)["output"]


def part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


EMPTY = "error incomplete_details instructions max_output_tokens max_tool_calls previous_response_id prompt_cache_key"
EMPTY += " safety_identifier service_tier temperature top_p user"


def test_a_text_answer_is_a_whole_response_object() -> None:
    message = {"id": "msg_01_0", "type": "message", "role": "assistant", "status": "completed"}
    assert reply({"content": "Hello."}) == {
        **dict.fromkeys(EMPTY.split()),
        **{"id": "resp_01", "object": "response", "created_at": 1_700_000_000, "status": "completed", "model": "auto"},
        **{"background": False, "store": False, "metadata": {}, "truncation": "disabled", "usage": USAGE},
        **{"tools": [], "tool_choice": "auto", "parallel_tool_calls": True, "top_logprobs": 0},
        **{"reasoning": {"effort": None, "summary": None}, "text": {"format": {"type": "text"}}},
        "output": [{**message, "content": [part("Hello.")]}],
    }


def test_what_the_client_sent_comes_back() -> None:
    sent: dict[str, Any] = {
        **{"instructions": "Be brief.", "temperature": 0.2, "top_p": 0.9, "user": "u", "metadata": {"a": "b"}},
        **{"max_output_tokens": 50, "parallel_tool_calls": False, "reasoning": {"effort": "low"}},
        "tools": [{"type": "function", "name": "weather", "parameters": {}, "strict": None}],
        "tool_choice": {"type": "function", "name": "weather"},
        "text": {"format": {"type": "json_object"}, "verbosity": "low"},
    }
    response = reply({"content": "x"}, **sent)
    assert {name: response[name] for name in sent} == sent


@each_row(
    "finish, status, details",
    [
        ("stop", "completed", None),
        ("tool_calls", "completed", None),
        ("length", "incomplete", {"reason": "max_output_tokens"}),
        ("content_filter", "incomplete", {"reason": "content_filter"}),
    ],
)
def test_the_finish_reason_decides_the_status(finish: str, status: str, details: Any) -> None:
    response = reply({"content": "x"}, finish)
    assert (response["status"], response["incomplete_details"]) == (status, details)
    assert response["output"][-1]["status"] == status


def test_a_cut_answer_was_cut_in_its_last_item() -> None:
    half = {"id": "b", "type": "function", "function": {"name": "weather", "arguments": ""}}
    output = items({"content": "x", "tool_calls": [CALL, half]}, "length")
    assert [item["status"] for item in output] == ["completed", "completed", "incomplete"]
    assert output[2]["arguments"] == ""


@each_row(
    "message",
    [{"reasoning_content": "hm"}, {"reasoning": "hm"}, {"thinking_blocks": BLOCKS}, {"reasoning_details": DETAILS}],
)
def test_thinking_is_found_in_every_dialect(message: dict[str, Any]) -> None:
    first, second = items({"content": "x", **message})
    assert (first["id"], first["summary"], second["id"]) == ("rs_01_0", [], "msg_01_1")
    assert first["content"] == [{"type": "reasoning_text", "text": "hm"}]


SHELL = {"id": "call_a", "type": "function", "function": {"name": "shell"}}
DONE = {"status": "completed", "call_id": "call_a"}
SIGNED = {"extra_content": {"google": {"thought_signature": "s"}}}


@each_row(
    "message, request_fields, item",
    [
        (
            {"content": "x", "reasoning": "hm"},
            {"reasoning": {"summary": "auto"}},
            {"id": "rs_01_0", "type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
        ),
        (
            {"content": None, "tool_calls": [{**CALL, **SIGNED}]},
            {},
            {"id": "fc_01_0", "type": "function_call", **DONE, **CALL["function"], **SIGNED},  # type: ignore[dict-item]
        ),
        *(
            (
                {"tool_calls": [{**CALL, "function": {"name": "shell", "arguments": arguments}}]},
                {"tools": [{"type": "custom", "name": "shell"}]},
                {"id": "ctc_01_0", "type": "custom_tool_call", **DONE, "name": "shell", "input": text},
            )
            for arguments, text in (('{"input":"ls"}', "ls"), ("ls", "ls"), ('{"input":3}', '{"input":3}'))
        ),
    ],
)
def test_the_first_item(message: dict[str, Any], request_fields: dict[str, Any], item: dict[str, Any]) -> None:
    """Thinking is a summary where one was asked for; a custom tool gets its free text."""
    assert items(message, **request_fields)[0] == item


def test_a_call_without_id_and_arguments_gets_them() -> None:
    bare = {"type": "function", "function": {"name": "now", "arguments": None}}
    _, second = items({"content": None, "tool_calls": [CALL, bare]}, "tool_calls")
    assert (second["name"], second["arguments"], second["call_id"]) == ("now", "{}", "call_fc_01_1")


def test_a_refusal_is_a_part_of_the_message() -> None:
    (message,) = items({"content": None, "refusal": "No."})
    assert message["content"] == [{"type": "refusal", "refusal": "No."}]


def test_log_probabilities_always_have_bytes() -> None:
    token = {"token": "H", "logprob": -0.5, "bytes": None}
    token["top_logprobs"] = [{"token": "H", "logprob": -0.5, "bytes": [72]}]
    (message,) = items({"content": "H"}, choice={"logprobs": {"content": [token], "refusal": None}})
    assert message["content"][0]["logprobs"] == [{**token, "bytes": []}]


def test_an_empty_answer_is_a_response_without_items() -> None:
    assert items({"content": ""}) == []


@each_row("choices", [b"null", b"3", b'[{"message":{"content":3}}]', b'[{"message":{"content":"\xff"}}]'])
def test_what_is_no_chat_completion_is_the_upstreams_failure(choices: bytes) -> None:
    with pytest.raises(UpstreamFailure) as caught:
        from_chat({"choices": Raw(choices)}, raws({"input": "hi"}), "resp_01", Raw(b"{}"))
    assert caught.value.failure.kind is ErrorKind.BAD_RESPONSE


HM = {"reasoning_content": "hm"}


@each_row(
    "message, request_fields, returned",
    [
        (HM, {}, HM),
        ({"reasoning": "hm"}, {"include": ["reasoning.encrypted_content"]}, HM),
        ({"thinking_blocks": BLOCKS}, {}, {**HM, "thinking_blocks": BLOCKS}),
        ({"thinking_blocks": BLOCKS[1:]}, {}, {"thinking_blocks": BLOCKS[1:]}),
        (
            {"reasoning": "hm", "reasoning_details": DETAILS},
            {"reasoning": {"summary": "auto"}},
            {**HM, "reasoning_details": DETAILS},
        ),
        ({"reasoning": "hm", "reasoning_details": DETAILS[1:]}, {}, {**HM, "reasoning_details": DETAILS[1:]}),
    ],
)
@each_row("text_kept", [True, False])
def test_thinking_sent_back_reaches_the_provider_as_it_came(
    message: dict[str, Any], request_fields: dict[str, Any], returned: dict[str, Any], text_kept: bool
) -> None:
    """Some clients keep only `encrypted_content`."""
    output = items({"content": "x", **message}, **request_fields)
    if not text_kept and "encrypted_content" in output[0]:
        output[0] |= {"summary": [], "content": []}
    sent = decoded(to_chat(raws({"input": [*output, {"role": "user", "content": "and?"}]})))
    assert sent["messages"][0] == {"role": "assistant", "content": "x", **returned}
