"""A chat's answer as a `response` object, whole and as events, each checked against the official client's types."""

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.json import encode
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from router.api.responses.reply import ResponsesEncoder
from router.api.responses.request import to_chat
from router.errors import UpstreamFailure
from router.types.attempt import ErrorKind
from tests.api.bodies import decoded, raws
from tests.tables import each_row

RESPONSE: TypeAdapter[Any] = TypeAdapter(Response)
EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
USAGE: dict[str, Any] = {"input_tokens": 9, "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 0}}
USAGE |= {"output_tokens": 7, "output_tokens_details": {"reasoning_tokens": 5}, "total_tokens": 16, "cost": 0.000042}
HEAD = {"id": "c", "created": 1_700_000_000, "model": "m"}
CALL = {"id": "call_a", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Rome"}'}}
BLOCKS = [{"type": "thinking", "thinking": "hm", "signature": "sig"}, {"type": "redacted_thinking", "data": "xx"}]
DETAILS: list[dict[str, Any]] = [{"type": "reasoning.text", "text": "hm", "index": 0}]
DETAILS += [{"type": "reasoning.encrypted", "data": "x", "index": 1}]
SHELL = [{"type": "custom", "name": "shell"}]


def reply(message: dict[str, Any], finish: str = "stop", choice: dict[str, Any] | None = None, **request: Any) -> Any:
    """The response that a chat message becomes; a stream of the message ends in the same one."""
    message, choice = {"role": "assistant", **message}, choice or {}
    choices = [{"index": 0, "message": message, "finish_reason": finish, **choice}]
    body = raws({"model": "auto", "input": "hi", **request})
    to_chat(body, encode(body))
    chat = raws({**HEAD, "object": "chat.completion", "choices": choices})
    response = decoded(ResponsesEncoder(body, "resp_01").whole(chat, json.dumps(USAGE).encode()))
    RESPONSE.validate_python(response)
    assert stream(chunk(message, **choice), chunk({}, finish), **request)[-1]["response"] == response
    return response


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **choice: Any) -> bytes:
    choices = [{"index": 0, "delta": delta, "finish_reason": finish, **choice}]
    return b"data: %b\n\n" % json.dumps({**HEAD, "object": "chat.completion.chunk", "choices": choices}).encode()


def words(text: str) -> bytes:
    return chunk({"content": text})


def call(index: int | None, arguments: str | None = None, **head: Any) -> bytes:
    name = {"name": head.pop("name")} if "name" in head else {}
    where = {} if index is None else {"index": index}
    return chunk({"tool_calls": [{**where, **head, "function": {**name, "arguments": arguments}}]})


def opened(**request: Any) -> ResponsesEncoder:
    return ResponsesEncoder(raws({"model": "auto", "input": "hi", **request}), "resp_01")


def stream(*chunks: bytes, **request: Any) -> list[dict[str, Any]]:
    decoder = opened(**request)
    return events(b"".join(map(decoder.feed, chunks)) + decoder.final(json.dumps(USAGE).encode()))


def events(sse: bytes) -> list[dict[str, Any]]:
    """Parses the stream; the client's types must take every event, and the numbers must have no gap."""
    frames = [frame.split(b"\n") for frame in sse.split(b"\n\n") if frame]
    read = [json.loads(data.removeprefix(b"data: ")) for _, data in frames]
    assert [name.removeprefix(b"event: ").decode() for name, _ in frames] == [event["type"] for event in read]
    assert [event["sequence_number"] for event in read] == list(range(len(read)))
    for event in read:
        EVENT.validate_python(event)
    return read


def types(written: list[dict[str, Any]]) -> list[str]:
    return [event["type"].removeprefix("response.") for event in written]


def output(written: list[dict[str, Any]]) -> Any:
    return written[-1]["response"]["output"]


STOP = chunk({}, "stop")
MESSAGE = ["output_item.added", "content_part.added"]
END = ["output_text.done", "content_part.done", "output_item.done"]
EMPTY = "error incomplete_details instructions max_output_tokens max_tool_calls previous_response_id prompt_cache_key"
EMPTY += " safety_identifier service_tier temperature top_p user"


def test_a_text_answer_is_a_whole_response_object() -> None:
    message = {"id": "msg_01_0", "type": "message", "role": "assistant", "status": "completed"}
    part = {"type": "output_text", "text": "Hello.", "annotations": [], "logprobs": []}
    assert reply({"content": "Hello."}) == {
        **dict.fromkeys(EMPTY.split()),
        **{"id": "resp_01", "object": "response", "created_at": 1_700_000_000, "status": "completed", "model": "auto"},
        **{"background": False, "store": False, "metadata": {}, "truncation": "disabled", "usage": USAGE},
        **{"tools": [], "tool_choice": "auto", "parallel_tool_calls": True, "top_logprobs": 0},
        **{"reasoning": {"effort": None, "summary": None}, "text": {"format": {"type": "text"}}},
        "output": [{**message, "content": [part]}],
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


CUT = {"length": "max_output_tokens", "content_filter": "content_filter"}


@each_row("finish", ["stop", "tool_calls", *CUT])
def test_the_finish_reason_decides_the_status(finish: str) -> None:
    response, status = reply({"content": "x"}, finish), "incomplete" if finish in CUT else "completed"
    details = {"reason": CUT[finish]} if finish in CUT else None
    assert (response["status"], response["incomplete_details"], response["usage"]) == (status, details, USAGE)
    assert response["output"][-1]["status"] == status
    assert types(stream(words("x"), chunk({}, finish)))[-1] == status


def test_a_cut_answer_was_cut_in_its_last_item() -> None:
    half = {"id": "b", "type": "function", "function": {"name": "weather", "arguments": ""}}
    items = reply({"content": "x", "tool_calls": [CALL, half]}, "length")["output"]
    assert [item["status"] for item in items] == ["completed", "completed", "incomplete"]
    assert items[2]["arguments"] == ""


HM: dict[str, Any] = {"reasoning_content": "hm"}
TRACES = {"reasoning_details": DETAILS}


@each_row("message", [HM, {"reasoning": "hm"}, {"thinking_blocks": BLOCKS}, {"reasoning_details": DETAILS}])
def test_thinking_is_found_in_every_dialect(message: dict[str, Any]) -> None:
    first, second = reply({"content": "x", **message})["output"]
    assert (first["id"], first["summary"], second["id"]) == ("rs_01_0", [], "msg_01_1")
    assert first["content"] == [{"type": "reasoning_text", "text": "hm"}]


DONE = {"status": "completed", "call_id": "call_a"}
SIGNED = {"extra_content": {"google": {"thought_signature": "s"}}}
THOUGHT = {"id": "rs_01_0", "type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}
FUNCTION: dict[str, Any] = {"id": "fc_01_0", "type": "function_call", **DONE, "name": "weather", **SIGNED}
CUSTOM = {"id": "ctc_01_0", "type": "custom_tool_call", **DONE, "name": "shell"}
TEXTS_OF = {'{"input":"ls"}': "ls", "ls": "ls", '{"input":3}': '{"input":3}', "": ""}


def shell(arguments: str) -> dict[str, Any]:
    return {"tool_calls": [{**CALL, "function": {"name": "shell", "arguments": arguments}}]}


@each_row(
    "message, request_fields, item",
    [
        ({"content": "x", "reasoning": "hm"}, {"reasoning": {"summary": "auto"}}, THOUGHT),
        ({"content": None, "tool_calls": [CALL | SIGNED]}, {}, FUNCTION | {"arguments": '{"city":"Rome"}'}),
        *((shell(given), {"tools": SHELL}, CUSTOM | {"input": text}) for given, text in TEXTS_OF.items()),
    ],
)
def test_the_first_item(message: dict[str, Any], request_fields: dict[str, Any], item: dict[str, Any]) -> None:
    """Thinking is a summary where one was asked for; a custom tool gets its free text."""
    assert reply(message, **request_fields)["output"][0] == item


def test_a_call_without_id_and_arguments_gets_them() -> None:
    bare = {"index": 1, "type": "function", "function": {"name": "now", "arguments": None}}
    _, second = reply({"content": None, "tool_calls": [CALL, bare]}, "tool_calls")["output"]
    assert (second["name"], second["arguments"], second["call_id"]) == ("now", "{}", "call_fc_01_1")


def test_a_refusal_is_a_part_of_the_message() -> None:
    (message,) = reply({"content": None, "refusal": "No."})["output"]
    assert message["content"] == [{"type": "refusal", "refusal": "No."}]
    written = stream(words("Well"), chunk({"refusal": "N"}), chunk({"refusal": "o."}), STOP)
    after = ["content_part.added", "refusal.delta", "refusal.delta", "refusal.done", "content_part.done"]
    assert types(written)[5:-1] == ["output_text.done", "content_part.done", *after, "output_item.done"]
    assert output(written)[0]["content"][1] == message["content"][0]


def test_log_probabilities_always_have_bytes_and_come_with_their_text() -> None:
    tokens: list[Any] = [{"token": text, "logprob": -0.5, "bytes": None} for text in "ab"]
    tokens = [token | {"top_logprobs": [{"token": "H", "logprob": -0.5, "bytes": [72]}]} for token in tokens]
    shown = [{**token, "bytes": []} for token in tokens]
    (message,) = reply({"content": "ab"}, choice={"logprobs": {"content": tokens, "refusal": None}})["output"]
    assert message["content"][0]["logprobs"] == shown
    written = stream(*(chunk({"content": token["token"]}, logprobs={"content": [token]}) for token in tokens), STOP)
    assert [event["logprobs"] for event in written if "delta" in event] == [[token] for token in shown]
    assert output(written)[0]["content"][0]["logprobs"] == shown


def test_an_empty_answer_is_a_response_without_items() -> None:
    assert reply({"content": ""})["output"] == []
    assert types(stream()) == ["created", "in_progress", "completed"]


@each_row("choices", [b"null", b"3", b'[{"message":{"content":3}}]', b'[{"message":{"content":"\xff"}}]'])
def test_what_is_no_chat_completion_is_the_upstreams_failure(choices: bytes) -> None:
    with pytest.raises(UpstreamFailure) as caught:
        ResponsesEncoder(raws({"input": "hi"}), "resp_01").whole({"choices": Raw(choices)}, b"{}")
    assert caught.value.failure.kind is ErrorKind.BAD_RESPONSE


@each_row("data", [b"data: {\n\n", b"data: 3\n\n", b'data: {"choices":[{"delta":{"content":3}}]}\n\n'])
def test_what_is_no_chat_chunk_is_the_upstreams_failure(data: bytes) -> None:
    with pytest.raises(UpstreamFailure):
        opened().feed(data)


@each_row(
    "message, request_fields, returned",
    [
        (HM, {}, HM),
        ({"reasoning": "hm"}, {"include": ["reasoning.encrypted_content"]}, HM),
        ({"thinking_blocks": BLOCKS}, {}, {**HM, "thinking_blocks": BLOCKS}),
        ({"thinking_blocks": BLOCKS[1:]}, {}, {"thinking_blocks": BLOCKS[1:]}),
        (HM | TRACES, {"reasoning": {"summary": "auto"}}, HM | TRACES),
        ({"reasoning": "hm", "reasoning_details": DETAILS[1:]}, {}, {**HM, "reasoning_details": DETAILS[1:]}),
    ],
)
@each_row("text_kept", [True, False])
def test_thinking_sent_back_reaches_the_provider_as_it_came(
    message: dict[str, Any], request_fields: dict[str, Any], returned: dict[str, Any], text_kept: bool
) -> None:
    """Some clients keep only `encrypted_content`."""
    items = reply({"content": "x", **message}, **request_fields)["output"]
    if not text_kept and "encrypted_content" in items[0]:
        items[0] |= {"summary": [], "content": []}
    asked = raws({"input": [*items, {"role": "user", "content": "and?"}]})
    sent = decoded(to_chat(asked, encode(asked)))
    assert sent["messages"][0] == {"role": "assistant", "content": "x", **returned}


def test_the_events_of_a_text() -> None:
    decoder = opened()
    assert types(events(decoder.feed(chunk({"role": "assistant"})))) == ["created", "in_progress"], "at once"
    written = stream(chunk({"role": "assistant", "content": ""}), words("Hel"), words("lo"), STOP)
    assert types(written) == ["created", "in_progress", *MESSAGE, *["output_text.delta"] * 2, *END, "completed"]
    assert [event["delta"] for event in written if "delta" in event] == ["Hel", "lo"]
    begun = written[0]["response"]
    assert (begun["status"], begun["created_at"]) == ("in_progress", 1_700_000_000)
    assert output(written) == [written[-2]["item"]]


SUMMARY = [f"reasoning_summary_{name}" for name in ("part.added", "text.delta", "text.done", "part.done")]
TRACE = ["content_part.added", "reasoning_text.delta", "reasoning_text.done", "content_part.done"]


@each_row("summary, names, field", [(None, TRACE, "content"), ("auto", SUMMARY, "summary")])
def test_thinking_ends_where_the_answer_begins(summary: str | None, names: list[str], field: str) -> None:
    written = stream(chunk(HM), words("yes"), STOP, reasoning={"summary": summary})
    thought = ["output_item.added", *names, "output_item.done"]
    assert types(written)[2:-1] == [*thought, *MESSAGE, "output_text.delta", *END]
    first, second = output(written)
    assert (first["type"], first[field][0]["text"], second["type"]) == ("reasoning", "hm", "message")


def unsealed(item: dict[str, Any]) -> Any:
    return json.loads(base64.urlsafe_b64decode(item["encrypted_content"].removeprefix("lowpass1.")))


def blocks(*pieces: dict[str, Any]) -> list[bytes]:
    return [chunk({"thinking_blocks": [{"type": "thinking", **piece}]}) for piece in pieces]


@each_row(
    "chunks, text, signed",
    [
        # after their text, which is not repeated
        ([*map(chunk, [{"reasoning_content": letter} for letter in "hm"]), *blocks(BLOCKS[0])], "hm", {"hm": "sig"}),
        # in pieces, which are joined up to their signature
        (
            blocks({"thinking": "h"}, {"thinking": "m"}, {"signature": "1"}, {"thinking": "so"}, {"signature": "2"}),
            "hmso",
            {"hm": "1", "so": "2"},
        ),
    ],
)
def test_signed_blocks_are_sealed(chunks: list[bytes], text: str, signed: dict[str, str]) -> None:
    item = output(stream(*chunks, STOP))[0]
    assert [part["text"] for part in item["content"]] == [text]
    sealed = [{"type": "thinking", "thinking": thought, "signature": by} for thought, by in signed.items()]
    assert unsealed(item) == {"thinking_blocks": sealed}


def test_late_traces_do_not_interrupt_the_message() -> None:
    late = {"content": "", "reasoning_details": DETAILS[1:]}
    message, thought = output(stream(words("ye"), chunk(late), words("s"), STOP))
    assert message["content"][0]["text"] == "yes"
    assert unsealed(thought) == {"reasoning_details": DETAILS[1:]}


def test_a_call_ends_the_message_and_text_after_it_is_another_message() -> None:
    written = stream(words("a"), call(0, "{}", id="a", name="f"), words("b"), STOP)
    assert types(written)[2:8] == [*MESSAGE, "output_text.delta", *END]
    assert [item["type"] for item in output(written)] == ["message", "function_call", "message"]


def made(written: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    calls = [item for item in output(written) if item["type"] == "function_call"]
    return [(item["call_id"], item["name"], item["arguments"]) for item in calls]


def test_interleaved_parallel_calls() -> None:
    heads = call(0, "", id="a", name="get_"), call(0, "", name="time"), call(0, '{"x"')
    rest = call(1, '{"y"', id="b", name="weather"), call(0, ":1}"), call(1, ":2}"), call(2, "", id="c", name="now")
    written = stream(words("Looking."), *heads, *rest, chunk({}, "tool_calls"))
    assert made(written) == [("a", "get_time", '{"x":1}'), ("b", "weather", '{"y":2}'), ("c", "now", "{}")]
    deltas: dict[str, str] = {}
    for event in written:
        if event["type"] == "response.function_call_arguments.delta":
            deltas[event["item_id"]] = deltas.get(event["item_id"], "") + event["delta"]
    assert deltas == {item["id"]: item["arguments"] for item in output(written)[1:]}


@each_row("index", [0, None])
def test_calls_that_share_an_index_are_told_apart_by_their_ids(index: int | None) -> None:
    written = stream(call(index, '{"x":1}', id="a", name="f"), call(index, "{}", id="b", name="g"), STOP)
    assert made(written) == [("a", "f", '{"x":1}'), ("b", "g", "{}")]


def test_a_custom_tool_gets_its_free_text() -> None:
    written = stream(call(0, '{"inp', id="a", name="shell"), call(0, 'ut":"ls"}'), STOP, tools=SHELL)
    ends = ["custom_tool_call_input.delta", "custom_tool_call_input.done", "output_item.done"]
    assert types(written)[2:-1] == ["output_item.added", *ends]
    assert (output(written)[0]["type"], output(written)[0]["input"]) == ("custom_tool_call", "ls")


@each_row("fed", [[], [words("Hel")]])
def test_a_failure_is_an_error_and_a_failed_response_with_what_there_was(fed: list[bytes]) -> None:
    decoder = opened()
    written = events(b"".join(map(decoder.feed, fed)) + decoder.error_event("It broke.", "upstream_error"))
    error, failed = written[-2:]
    assert (error["type"], error["code"], error["message"]) == ("error", "upstream_error", "It broke.")
    assert (failed["type"], failed["response"]["status"]) == ("response.failed", "failed")
    assert failed["response"]["error"] == {"code": "server_error", "message": "It broke."}
    assert len(failed["response"]["output"]) == len(fed)


def test_empty_choices_comments_and_several_events_at_once() -> None:
    usage = b'data: {"choices":[],"usage":null}\n\n'
    first = usage + b": ping\n\n" + words("a") + chunk(None) + chunk({"content": "b"}, "length")
    written = stream(first, chunk({}), usage)
    assert output(written)[0]["content"][0]["text"] == "ab"
    assert written[-1]["type"] == "response.incomplete"


TEXTS = st.text(max_size=8)
ARGUMENTS = st.lists(st.text(min_size=1, max_size=8), max_size=3)


@given(TEXTS, TEXTS, ARGUMENTS, st.sets(st.integers(0, 60)), st.data())
def test_the_final_response_does_not_depend_on_where_the_deltas_are_split(
    thought: str, text: str, arguments: list[str], cuts: set[int], data: st.DataObject
) -> None:
    """Thinking, text and the arguments of calls, whose letters come interleaved."""
    calls = [(f"{at}", letter) for at, value in enumerate(arguments) for letter in value]
    letters = [("reasoning_content", letter) for letter in thought] + [("content", letter) for letter in text]
    letters += data.draw(st.permutations(calls))
    assert output(stream(*deltas(letters, cuts))) == output(stream(*deltas(letters, set())))


def deltas(letters: list[tuple[str, str]], cuts: set[int]) -> list[bytes]:
    """Neighbours of one kind (a field, or a call by its index) share a chunk unless it is cut there."""
    runs: list[list[str]] = []
    for number, (kind, letter) in enumerate(letters):
        if not runs or runs[-1][0] != kind or number - 1 in cuts:
            runs.append([kind, ""])
        runs[-1][1] += letter
    chunks: list[bytes] = []
    begun: set[str] = set()
    for kind, run in runs:
        head = {} if kind in begun else {"id": f"call_{kind}", "name": "f"}
        chunks.append(call(int(kind), run, **head) if kind.isdigit() else chunk({kind: run}))
        begun.add(kind)
    return [*chunks, STOP]
