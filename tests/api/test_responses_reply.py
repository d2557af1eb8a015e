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

USAGE: dict[str, Any] = {
    "input_tokens": 9,
    "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 0},
    "output_tokens": 7,
    "output_tokens_details": {"reasoning_tokens": 5},
    "total_tokens": 16,
    "cost": 0.000042,
}
CALL = {"id": "call_a", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Rome"}'}}
BLOCKS = [{"type": "thinking", "thinking": "hm", "signature": "sig"}, {"type": "redacted_thinking", "data": "xx"}]
DETAILS = [
    {"type": "reasoning.text", "text": "hm", "index": 0},
    {"type": "reasoning.encrypted", "data": "x", "index": 1},
]


def raws(body: dict[str, Any]) -> dict[str, Raw]:
    return {name: Raw(json.dumps(value).encode()) for name, value in body.items()}


def reply(message: dict[str, Any], finish: str = "stop", choice: dict[str, Any] | None = None, **request: Any) -> Any:
    choices = [{"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish, **(choice or {})}]
    chat = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1_700_000_000, "model": "m", "choices": choices}
    body = {"model": "auto", "input": "hi", **request}
    to_chat(raws(body))
    response = from_chat(raws(chat), raws(body), "resp_01", Raw(json.dumps(USAGE).encode()))
    found = {name: json.loads(bytes(raw)) for name, raw in response.items()}
    TypeAdapter(Response).validate_python(found)
    return found


def test_a_text_answer_is_a_whole_response_object() -> None:
    assert reply({"content": "Hello."}) == {
        "id": "resp_01",
        "object": "response",
        "created_at": 1_700_000_000,
        "status": "completed",
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "max_output_tokens": None,
        "max_tool_calls": None,
        "metadata": {},
        "model": "auto",
        "output": [
            {
                "id": "msg_01_0",
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": "Hello.", "annotations": [], "logprobs": []}],
            }
        ],
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "prompt_cache_key": None,
        "reasoning": {"effort": None, "summary": None},
        "safety_identifier": None,
        "service_tier": None,
        "store": False,
        "temperature": None,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_logprobs": 0,
        "top_p": None,
        "truncation": "disabled",
        "usage": USAGE,
        "user": None,
    }


def test_what_the_client_sent_comes_back() -> None:
    sent: dict[str, Any] = {
        "instructions": "Be brief.",
        "temperature": 0.2,
        "top_p": 0.9,
        "user": "u",
        "metadata": {"a": "b"},
        "max_output_tokens": 50,
        "parallel_tool_calls": False,
        "tools": [{"type": "function", "name": "weather", "parameters": {}, "strict": None}],
        "tool_choice": {"type": "function", "name": "weather"},
        "text": {"format": {"type": "json_object"}, "verbosity": "low"},
        "reasoning": {"effort": "low"},
    }
    found = reply({"content": "x"}, **sent)
    assert {name: found[name] for name in sent} == sent


@pytest.mark.parametrize(
    ("finish", "status", "details"),
    [
        ("stop", "completed", None),
        ("tool_calls", "completed", None),
        ("length", "incomplete", {"reason": "max_output_tokens"}),
        ("content_filter", "incomplete", {"reason": "content_filter"}),
    ],
)
def test_the_finish_reason_decides_the_status(finish: str, status: str, details: Any) -> None:
    found = reply({"content": "x"}, finish)
    assert (found["status"], found["incomplete_details"], found["output"][-1]["status"]) == (status, details, status)


def test_a_cut_answer_was_cut_in_its_last_item() -> None:
    half = {"id": "b", "type": "function", "function": {"name": "weather", "arguments": ""}}
    found = reply({"content": "x", "tool_calls": [CALL, half]}, "length")["output"]
    assert [item["status"] for item in found] == ["completed", "completed", "incomplete"]
    assert found[2]["arguments"] == ""


def reasoning(text: str) -> list[dict[str, str]]:
    return [{"type": "reasoning_text", "text": text}]


@pytest.mark.parametrize(
    "message",
    [{"reasoning_content": "hm"}, {"reasoning": "hm"}, {"thinking_blocks": BLOCKS}, {"reasoning_details": DETAILS}],
)
def test_thinking_is_found_in_every_dialect(message: dict[str, Any]) -> None:
    first, second = reply({"content": "x", **message})["output"]
    assert (first["id"], first["summary"], first["content"]) == ("rs_01_0", [], reasoning("hm"))
    assert second["id"] == "msg_01_1"


def test_thinking_is_a_summary_where_one_was_asked_for() -> None:
    item = reply({"content": "x", "reasoning": "hm"}, reasoning={"summary": "auto"})["output"][0]
    assert item == {"id": "rs_01_0", "type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}


def test_calls_keep_their_ids_and_get_arguments() -> None:
    bare = {"type": "function", "function": {"name": "now", "arguments": None}}
    signed = {**CALL, "extra_content": {"google": {"thought_signature": "s"}}}
    first, second = reply({"content": None, "tool_calls": [signed, bare]}, "tool_calls")["output"]
    assert first == {
        "id": "fc_01_0",
        "type": "function_call",
        "status": "completed",
        "call_id": "call_a",
        "name": "weather",
        "arguments": '{"city":"Rome"}',
        "extra_content": {"google": {"thought_signature": "s"}},
    }
    assert (second["name"], second["arguments"], second["call_id"]) == ("now", "{}", "call_fc_01_1")


@pytest.mark.parametrize(
    ("arguments", "given"), [('{"input":"ls"}', "ls"), ("ls", "ls"), ('{"input":3}', '{"input":3}')]
)
def test_a_custom_tool_gets_its_free_text(arguments: str, given: str) -> None:
    call = {"id": "call_a", "type": "function", "function": {"name": "shell", "arguments": arguments}}
    item = reply({"tool_calls": [call]}, tools=[{"type": "custom", "name": "shell"}])["output"][0]
    assert item == {
        "id": "ctc_01_0",
        "type": "custom_tool_call",
        "status": "completed",
        "call_id": "call_a",
        "name": "shell",
        "input": given,
    }


def test_a_refusal_is_a_part_of_the_message() -> None:
    found = reply({"content": None, "refusal": "No."})["output"][0]["content"]
    assert found == [{"type": "refusal", "refusal": "No."}]


def test_log_probabilities_always_have_bytes() -> None:
    token = {
        "token": "H",
        "logprob": -0.5,
        "bytes": None,
        "top_logprobs": [{"token": "H", "logprob": -0.5, "bytes": [72]}],
    }
    found = reply({"content": "H"}, choice={"logprobs": {"content": [token], "refusal": None}})
    assert found["output"][0]["content"][0]["logprobs"] == [{**token, "bytes": []}]


def test_an_empty_answer_is_a_response_without_items() -> None:
    assert reply({"content": ""})["output"] == []


@pytest.mark.parametrize(
    "choices", [b"null", b"3", b'[{"message":{"content":3}}]', b'[{"message":{"content":"\xff"}}]']
)
def test_what_is_no_chat_completion_is_the_upstreams_failure(choices: bytes) -> None:
    with pytest.raises(UpstreamFailure) as caught:
        from_chat({"choices": Raw(choices)}, raws({"input": "hi"}), "resp_01", Raw(b"{}"))
    assert caught.value.failure.kind is ErrorKind.BAD_RESPONSE


@pytest.mark.parametrize(
    ("message", "request_fields", "returned"),
    [
        ({"reasoning_content": "hm"}, {}, {"reasoning_content": "hm"}),
        ({"reasoning": "hm"}, {"include": ["reasoning.encrypted_content"]}, {"reasoning_content": "hm"}),
        ({"thinking_blocks": BLOCKS}, {}, {"reasoning_content": "hm", "thinking_blocks": BLOCKS}),
        ({"thinking_blocks": BLOCKS[1:]}, {}, {"thinking_blocks": BLOCKS[1:]}),
        (
            {"reasoning": "hm", "reasoning_details": DETAILS},
            {"reasoning": {"summary": "auto"}},
            {"reasoning_content": "hm", "reasoning_details": DETAILS},
        ),
        (
            {"reasoning": "hm", "reasoning_details": DETAILS[1:]},
            {},
            {"reasoning_content": "hm", "reasoning_details": DETAILS[1:]},
        ),
    ],
)
@pytest.mark.parametrize("text_kept", [True, False])
def test_thinking_sent_back_reaches_the_provider_as_it_came(
    message: dict[str, Any], request_fields: dict[str, Any], returned: dict[str, Any], text_kept: bool
) -> None:
    """Some clients keep only `encrypted_content`."""
    output = reply({"content": "x", **message}, **request_fields)["output"]
    if not text_kept and "encrypted_content" in output[0]:
        output[0] |= {"summary": [], "content": []}
    sent = to_chat(raws({"input": [*output, {"role": "user", "content": "and?"}]}))
    first = json.loads(bytes(sent["messages"]))[0]
    assert first == {"role": "assistant", "content": "x", **returned}
