"""What goes to an OpenAI-compatible provider, what comes back, and what of it the client sees; not streamed."""

import json
from typing import Any

import msgspec
from msgspec import Raw

from adapters.openai_compatible import PATHS
from router.types.call import Reply
from router.types.failure import ErrorKind
from router.types.request import Endpoint
from router.types.target import Quirks
from router.types.usage import Source, Usage
from tests.adapters.calls import ADAPTER, USAGE, answer, answered, call, fails, sent
from tests.tables import each_row

E = Endpoint
NEW = Quirks(max_tokens_field="max_completion_tokens")
THOUGHT = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
HI = {"type": "text", "text": "Hi"}
ODD = b'{ "a" : [1.0, 1e2,  "\\u00e9\\/"] }'


def decode(body: bytes, **asked: Any) -> Reply:
    return ADAPTER.decode(call(**asked), body)


def test_unknown_fields_keep_their_very_bytes() -> None:
    asked = call()
    asked.body["x_own"] = Raw(ODD)
    assert ODD in ADAPTER.encode(asked).body


@each_row("endpoint", Endpoint)
def test_where_it_goes_and_with_which_headers(endpoint: Endpoint) -> None:
    asked = call(request_id="r-1", headers={"X-Team": "blue"}, endpoint=endpoint)
    request = ADAPTER.encode(asked)
    assert (request.method, request.path, request.request_id) == ("POST", PATHS[endpoint], "r-1")
    headers = {"content-type": "application/json", "authorization": "Bearer k", "x-team": "blue"}
    assert dict(request.headers) == headers
    local = msgspec.structs.replace(asked, target=msgspec.structs.replace(asked.target, api_key=None))
    assert "authorization" not in dict(ADAPTER.encode(local).headers)


def counted(**more: Any) -> dict[str, Any]:
    return {"stream": True, "stream_options": {"include_usage": True, **more}}


@each_row(
    "body, fields, expected",
    [
        ({}, {"max_output": 9}, {"max_tokens": 9}),
        ({"max_tokens": 50}, {"max_output": 9}, {"max_tokens": 9}),
        ({"max_completion_tokens": 50}, {}, {"max_tokens": 50}),
        ({"max_completion_tokens": 50}, {"quirks": NEW, "max_output": 9}, {"max_completion_tokens": 9}),
        ({"max_tokens": 50}, {"quirks": NEW}, {"max_completion_tokens": 50}),
        ({"max_completion_tokens": None, "max_tokens": 3}, {}, {"max_tokens": 3}),
        (
            {"max_output_tokens": 50},
            {"endpoint": E.RESPONSES, "max_output": 9},
            {"max_output_tokens": 9, "store": False},
        ),
        ({"store": True}, {"endpoint": E.RESPONSES}, {"store": False}),
        ({"store": True}, {}, {"store": True}),
        ({"max_tokens": 50}, {"endpoint": E.COMPLETIONS, "quirks": NEW}, {"max_tokens": 50}),
        ({"stream": True, "stream_options": {"include_usage": False, "x": 1}}, {"stream": True}, counted(x=1)),
        ({"stream": True, "stream_options": None}, {"stream": True}, counted()),
        ({"stream": True}, {"stream": True, "quirks": Quirks(stream_usage=False)}, {"stream": True}),
        ({"stream": True}, {"stream": True, "endpoint": E.RESPONSES}, {"stream": True, "store": False}),
        (counted(), {}, {}),
        (
            {"temperature": 1, "seed": 1, "metadata": {"session_id": "s"}},
            {"quirks": Quirks(refuses=("seed",))},
            {"temperature": 1, "metadata": {"session_id": "s"}},
        ),
        ({"input": "x", "dimensions": 8}, {"endpoint": E.EMBEDDINGS, "max_output": 9}, {"input": "x", "dimensions": 8}),
    ],
)
def test_what_changes_in_the_body(body: dict[str, Any], fields: dict[str, Any], expected: dict[str, Any]) -> None:
    assert sent(call(body, **fields)) == {"model": "served-1", **expected}


@each_row(
    "message, finish, has_answer",
    [
        ({"content": "Hi"}, "stop", True),
        ({"content": None, "reasoning": "hm"}, "length", False),
        ({"content": " \n", "reasoning_content": "hm"}, "length", False),
        ({"content": None, "refusal": "No."}, "stop", True),
        ({"content": None, "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f"}}]}, "x", True),
        ({"content": "", "tool_calls": []}, "stop", False),
        ({"content": [{"type": "reference"}, {"type": "text", "text": "Hi"}]}, "stop", True),
    ],
)
def test_an_answer_is_more_than_thoughts(message: dict[str, Any], finish: str, has_answer: bool) -> None:
    reply = decode(answer(message, finish, usage=USAGE, timings={"x": 1.5}))
    assert (reply.has_answer, reply.finish_reason, reply.model_served) == (has_answer, finish, "served-1")
    assert reply.usage == Usage(input_uncached=10, output_visible=4)
    body = answered(reply.body)
    assert (body["model"], body["id"], body["timings"], "usage" in body) == ("auto", "c-1", {"x": 1.5}, False)
    assert body["choices"][0]["message"] == {"role": "assistant", **message}


@each_row(
    "parts, message, has_answer",
    [
        ([THOUGHT, {"type": "text", "text": "H"}, HI], {"content": "HHi", "reasoning_content": "hm"}, True),
        ([THOUGHT, THOUGHT], {"content": None, "reasoning_content": "hmhm"}, False),
        ([{"type": "thinking"}, HI], {"content": "Hi"}, True),
        ([{"type": "thinking", "thinking": [{"text": 1}, 2]}, {"type": "text"}], {"content": None}, False),
    ],
)
def test_content_parts_become_text_and_thoughts(parts: list[Any], message: dict[str, Any], has_answer: bool) -> None:
    reply = decode(answer({"content": parts}))
    assert answered(reply.body)["choices"][0]["message"] == {"role": "assistant", **message}
    assert reply.has_answer is has_answer
    decoder = ADAPTER.stream(call({}, stream=True))
    chunk = {"choices": [{"index": 0, "delta": {"content": parts}, "message": None, "finish_reason": None}]}
    event = msgspec.json.decode(decoder.feed(b"data: " + msgspec.json.encode(chunk) + b"\n\n").removeprefix(b"data: "))
    assert event["choices"][0]["delta"] == message
    assert decoder.output_chars == len(message["content"] or "") + len(message.get("reasoning_content", ""))


def test_thoughts_that_a_provider_does_not_take_back_stay_here() -> None:
    before = {"role": "assistant", "content": "Hi", "reasoning_content": "hm"}
    asked = {"role": "user", "content": 'No "reasoning_content"?'}
    refuses = Quirks(refuses=("messages.reasoning_content",))
    assert sent(call({"messages": [asked, before]}))["messages"] == [asked, before]
    left = sent(call({"messages": [asked, before]}, quirks=refuses))["messages"]
    assert left == [asked, {"role": "assistant", "content": "Hi"}]


def test_what_the_provider_left_out_is_filled_in() -> None:
    body = answered(decode(b'{"id":null,"choices":[{"message":{"content":"Hi"}}]}').body)
    assert body["id"].startswith("chatcmpl-")
    assert body["created"] > 1_700_000_000
    assert (body["object"], body["model"]) == ("chat.completion", "auto")


def test_completions_and_embeddings() -> None:
    reply = decode(b'{"choices":[{"text":"x","finish_reason":"stop"}]}', endpoint=E.COMPLETIONS)
    assert (reply.has_answer, answered(reply.body)["object"]) == (True, "text_completion")
    vectors = b'{"data":[{"index":0,"embedding":[0.10, 1e-3]}],"usage":{"prompt_tokens":6,"total_tokens":6}}'
    reply = decode(vectors, endpoint=E.EMBEDDINGS)
    assert bytes(reply.body["data"]) == b'[{"index":0,"embedding":[0.10, 1e-3]}]'
    assert (reply.usage, reply.has_answer) == (Usage(input_uncached=6), True)
    assert set(reply.body) == {"data", "model", "object"}


def test_usage_of_one_choice_stands_for_all() -> None:
    reply = decode(answer({"content": "Hi"}, usage=USAGE), quirks=Quirks(usage_counts_one_choice=True), n=3)
    assert reply.usage == Usage(input_uncached=10, output_visible=12, source=Source.ESTIMATED)


def test_missing_usage_is_unknown() -> None:
    assert decode(answer({"content": "Hi"})).usage is None
    assert decode(answer({"content": "Hi"}, usage=None)).usage is None


@each_row("endpoint", Endpoint)
@each_row("body", [b"", b"<html>", b"[]", b'{"choices":7,"output":7}', b'{"a":"\xff"}', b'{"a":' + b"[" * 99_999])
def test_a_body_that_breaks_the_promise(endpoint: Endpoint, body: bytes) -> None:
    with fails(ErrorKind.BAD_RESPONSE):
        decode(body, endpoint=endpoint)


CALLED = {"function": {"name": "f", "arguments": "{}"}}
UNTRANSLATABLE: list[dict[str, Any]] = [
    {"tool_calls": [CALLED | {"id": True}]},
    {"tool_calls": [CALLED | {"index": "0"}]},
    {"tool_calls": [CALLED | {"extra_content": []}]},
    {"thinking_blocks": ["odd"]},
    {"thinking_blocks": {}},
    {"reasoning_details": [[]]},
]


@each_row("message", UNTRANSLATABLE)
def test_what_can_not_be_translated_breaks_the_promise(message: dict[str, Any]) -> None:
    with fails(ErrorKind.BAD_RESPONSE):
        decode(answer({"content": "Hi", **message}))


@each_row("logprobs", [{"content": [{"token": "Hi"}]}, {"content": [{"token": "Hi", "logprob": None}]}, {}, None])
def test_log_probabilities_pass(logprobs: Any) -> None:
    choice = {"index": 0, "message": {"content": "Hi"}, "logprobs": logprobs, "finish_reason": "stop"}
    reply = decode(json.dumps({"choices": [choice]}).encode())
    assert json.loads(bytes(reply.body["choices"]))[0]["logprobs"] == logprobs


def test_log_probabilities_of_completions_pass() -> None:
    """Of another shape than a chat's."""
    given = {"tokens": ["x"], "token_logprobs": [-0.5], "top_logprobs": [{"x": -0.5}], "text_offset": [0]}
    data = json.dumps({"choices": [{"index": 0, "text": "x", "logprobs": given, "finish_reason": "stop"}]}).encode()
    assert json.loads(bytes(decode(data, endpoint=E.COMPLETIONS).body["choices"]))[0]["logprobs"] == given
    streamed = ADAPTER.stream(call(endpoint=E.COMPLETIONS, stream=True)).feed(b"data: " + data + b"\n\n")
    assert json.loads(streamed[6:])["choices"][0]["logprobs"] == given


def test_no_choices_and_an_error_with_status_200_are_failures() -> None:
    with fails(ErrorKind.BAD_RESPONSE):
        decode(b'{"choices":[]}')
    with fails(ErrorKind.RATE_LIMITED):
        decode(b'{"error":{"message":"Rate limited","code":429}}')


THOUGHTS = {"type": "reasoning", "id": "rs_1", "summary": []}
TEXT = {"type": "message", "content": [{"type": "output_text", "text": "Hi", "annotations": []}]}
HEAD = {"id": "resp_1", "object": "response", "status": "completed", "error": None, "output": [THOUGHTS, TEXT]}
CUT = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
FILTERED = {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}


@each_row(
    "change, has_answer, finish",
    [
        ({}, True, "stop"),
        ({"output": [THOUGHTS]}, False, "stop"),
        ({"output": [{"type": "function_call", "name": "f", "arguments": "{}"}]}, True, "tool_calls"),
        ({"output": [], **CUT}, False, "length"),
        (FILTERED, True, "content_filter"),
    ],
)
def test_a_response_passes_through(change: dict[str, Any], has_answer: bool, finish: str) -> None:
    whole = {**HEAD, "model": "served-1", **change}
    usage = {"input_tokens": 10, "output_tokens": 4, "total_tokens": 14}
    reply = decode(msgspec.json.encode({**whole, "usage": usage}), endpoint=E.RESPONSES)
    assert (reply.has_answer, reply.finish_reason, reply.model_served) == (has_answer, finish, "served-1")
    assert reply.usage == Usage(input_uncached=10, output_visible=4)
    assert answered(reply.body) == {**whole, "model": "auto"}


def test_a_failed_response_is_a_failure() -> None:
    failed = {**HEAD, "status": "failed", "error": {"code": "rate_limit_exceeded", "message": "slow down"}}
    with fails(ErrorKind.RATE_LIMITED, "slow down"):
        decode(msgspec.json.encode(failed), endpoint=E.RESPONSES)
