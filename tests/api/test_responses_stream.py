"""Chat chunks as Responses events, each checked against the official client's types."""

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

from router.api.responses import ResponsesStream, from_chat
from router.errors import UpstreamFailure
from tests.api.bodies import USAGE, decoded, raws
from tests.tables import each_row

EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **choice: Any) -> bytes:
    choices = [{"index": 0, "delta": delta, "finish_reason": finish, **choice}]
    data = {"id": "c", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": "m", "choices": choices}
    return b"data: %b\n\n" % json.dumps(data).encode()


def call(index: int | None, arguments: str | None = None, **head: Any) -> dict[str, Any]:
    name = {"name": head.pop("name")} if "name" in head else {}
    where = {} if index is None else {"index": index}
    return {"tool_calls": [{**where, **head, "function": {**name, "arguments": arguments}}]}


def events(sse: bytes) -> list[dict[str, Any]]:
    """Parses the stream; the client's types must take every event, and the numbers must have no gap."""
    frames = [frame.split(b"\n") for frame in sse.split(b"\n\n") if frame]
    read = [json.loads(data.removeprefix(b"data: ")) for _, data in frames]
    assert [name.removeprefix(b"event: ").decode() for name, _ in frames] == [event["type"] for event in read]
    assert [event["sequence_number"] for event in read] == list(range(len(read)))
    for event in read:
        EVENT.validate_python(event)
    return read


def stream(*chunks: bytes, **request: Any) -> list[dict[str, Any]]:
    decoder = ResponsesStream(raws({"model": "auto", "input": "hi", **request}), "resp_01")
    out = b"".join(decoder.feed(data) for data in chunks)
    return events(out + decoder.final(json.dumps(USAGE).encode()))


def types(written: list[dict[str, Any]]) -> list[str]:
    return [event["type"].removeprefix("response.") for event in written]


def output(written: list[dict[str, Any]]) -> Any:
    return written[-1]["response"]["output"]


STOP = chunk({}, "stop")
MESSAGE = ["output_item.added", "content_part.added"]
END = ["output_text.done", "content_part.done", "output_item.done"]


def words(text: str) -> bytes:
    return chunk({"content": text})


def test_text() -> None:
    written = stream(chunk({"role": "assistant", "content": ""}), words("Hel"), words("lo"), STOP)
    assert types(written) == ["created", "in_progress", *MESSAGE, *["output_text.delta"] * 2, *END, "completed"]
    assert [event["delta"] for event in written if "delta" in event] == ["Hel", "lo"]
    begun, ended = written[0]["response"], written[-1]["response"]
    assert (begun["status"], begun["created_at"], ended["usage"]) == ("in_progress", 1_700_000_000, USAGE)
    assert output(written) == [written[-2]["item"]]
    assert output(written)[0]["content"][0]["text"] == "Hello"


def test_the_first_events_go_out_with_the_first_chunk() -> None:
    decoder = ResponsesStream(raws({"model": "auto", "input": "hi"}), "resp_01")
    assert types(events(decoder.feed(chunk({"role": "assistant"})))) == ["created", "in_progress"]


SUMMARY = [f"reasoning_summary_{name}" for name in ("part.added", "text.delta", "text.done", "part.done")]
TRACE = ["content_part.added", "reasoning_text.delta", "reasoning_text.done", "content_part.done"]


@each_row("summary, names, field", [(None, TRACE, "content"), ("auto", SUMMARY, "summary")])
def test_thinking_ends_where_the_answer_begins(summary: str | None, names: list[str], field: str) -> None:
    written = stream(chunk({"reasoning_content": "hm"}), words("yes"), STOP, reasoning={"summary": summary})
    thought = ["output_item.added", *names, "output_item.done"]
    assert types(written)[2:-1] == [*thought, *MESSAGE, "output_text.delta", *END]
    first, second = output(written)
    assert (first["type"], first[field][0]["text"], second["type"]) == ("reasoning", "hm", "message")


def unsealed(item: dict[str, Any]) -> Any:
    return json.loads(base64.urlsafe_b64decode(item["encrypted_content"].removeprefix("lowpass1.")))


def test_signed_blocks_after_their_text_are_sealed_and_not_repeated() -> None:
    block = {"index": 0, "type": "thinking", "thinking": "hm", "signature": "sig"}
    pieces = [chunk({"reasoning_content": "h"}), chunk({"reasoning_content": "m"}), chunk({"thinking_blocks": [block]})]
    item = output(stream(*pieces, STOP))[0]
    assert [part["text"] for part in item["content"]] == ["hm"]
    assert unsealed(item) == {"thinking_blocks": [block]}


def test_blocks_in_pieces_are_joined_up_to_their_signature() -> None:
    pieces = [("thinking", "h"), ("thinking", "m"), ("signature", "s1"), ("thinking", "so"), ("signature", "s2")]
    chunks = [chunk({"thinking_blocks": [{"type": "thinking", key: value}]}) for key, value in pieces]
    item = output(stream(*chunks, STOP))[0]
    assert [part["text"] for part in item["content"]] == ["hmso"]
    blocks = [{"type": "thinking", "thinking": text, "signature": by} for text, by in (("hm", "s1"), ("so", "s2"))]
    assert unsealed(item) == {"thinking_blocks": blocks}


def test_late_traces_do_not_interrupt_the_message() -> None:
    late = {"content": "", "reasoning_details": [{"type": "reasoning.encrypted", "data": "x", "index": 0}]}
    message, thought = output(stream(words("ye"), chunk(late), words("s"), STOP))
    assert message["content"][0]["text"] == "yes"
    assert unsealed(thought) == {"reasoning_details": late["reasoning_details"]}


def test_a_call_ends_the_message_and_text_after_it_is_another_message() -> None:
    written = stream(words("a"), chunk(call(0, "{}", id="a", name="f")), words("b"), STOP)
    assert types(written)[2:8] == [*MESSAGE, "output_text.delta", *END]
    assert [item["type"] for item in output(written)] == ["message", "function_call", "message"]


def made(calls: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    return [(item["call_id"], item["name"], item["arguments"]) for item in calls]


def test_interleaved_parallel_calls() -> None:
    written = stream(
        words("Looking."),
        chunk(call(0, "", id="a", name="get_")),
        chunk(call(0, "", name="time")),
        chunk(call(0, '{"x"')),
        chunk(call(1, '{"y"', id="b", name="weather")),
        chunk(call(0, ":1}")),
        chunk(call(1, ":2}")),
        chunk(call(2, "", id="c", name="now")),
        chunk({}, "tool_calls"),
    )
    calls = made(output(written)[1:])
    assert calls == [("a", "get_time", '{"x":1}'), ("b", "weather", '{"y":2}'), ("c", "now", "{}")]
    deltas: dict[str, str] = {}
    for event in written:
        if event["type"] == "response.function_call_arguments.delta":
            deltas[event["item_id"]] = deltas.get(event["item_id"], "") + event["delta"]
    assert deltas == {item["id"]: item["arguments"] for item in output(written)[1:]}


@each_row("index", [0, None])
def test_calls_that_share_an_index_are_told_apart_by_their_ids(index: int | None) -> None:
    written = stream(chunk(call(index, '{"x":1}', id="a", name="f")), chunk(call(index, "{}", id="b", name="g")), STOP)
    assert made(output(written)) == [("a", "f", '{"x":1}'), ("b", "g", "{}")]


def test_a_custom_tool_gets_its_free_text() -> None:
    shell = [{"type": "custom", "name": "shell"}]
    pieces = chunk(call(0, '{"inp', id="a", name="shell")), chunk(call(0, 'ut":"ls"}'))
    written = stream(*pieces, STOP, tools=shell)
    ends = ["output_item.added", "custom_tool_call_input.delta", "custom_tool_call_input.done", "output_item.done"]
    assert types(written)[2:-1] == ends
    assert (output(written)[0]["type"], output(written)[0]["input"]) == ("custom_tool_call", "ls")
    assert output(stream(chunk(call(0, "", id="a", name="shell")), STOP, tools=shell))[0]["input"] == ""


def test_a_refusal_after_text_is_the_next_part_of_the_message() -> None:
    written = stream(words("Well"), chunk({"refusal": "N"}), chunk({"refusal": "o."}), STOP)
    assert types(written)[5:-1] == [
        *("output_text.done", "content_part.done", "content_part.added", "refusal.delta", "refusal.delta"),
        *("refusal.done", "content_part.done", "output_item.done"),
    ]
    assert output(written)[0]["content"][1] == {"type": "refusal", "refusal": "No."}


def test_log_probabilities_come_with_their_text_and_whole_at_the_end() -> None:
    tokens: list[dict[str, Any]] = [
        {"token": text, "logprob": -0.5, "bytes": None, "top_logprobs": []} for text in "ab"
    ]
    written = stream(*(chunk({"content": token["token"]}, logprobs={"content": [token]}) for token in tokens), STOP)
    shown = [{**token, "bytes": []} for token in tokens]
    assert [event["logprobs"] for event in written if "delta" in event] == [[token] for token in shown]
    assert output(written)[0]["content"][0]["logprobs"] == shown


@each_row("finish, reason", [("length", "max_output_tokens"), ("content_filter", "content_filter")])
def test_a_cut_answer_ends_as_incomplete(finish: str, reason: str) -> None:
    last = stream(words("Hel"), chunk({}, finish))[-1]
    assert last["type"] == "response.incomplete"
    assert last["response"]["incomplete_details"] == {"reason": reason}
    assert last["response"]["output"][0]["status"] == "incomplete"
    assert last["response"]["usage"] == USAGE


def test_an_answer_without_any_chunk_is_still_a_whole_stream() -> None:
    assert types(stream()) == ["created", "in_progress", "completed"]


@each_row("fed", [[], [words("Hel")]])
def test_a_failure_is_an_error_and_a_failed_response_with_what_there_was(fed: list[bytes]) -> None:
    decoder = ResponsesStream(raws({"model": "auto", "input": "hi"}), "resp_01")
    written = events(b"".join(map(decoder.feed, fed)) + decoder.error_event("It broke.", "upstream_error"))
    error, failed = written[-2:]
    assert (error["type"], error["code"], error["message"]) == ("error", "upstream_error", "It broke.")
    assert (failed["type"], failed["response"]["status"]) == ("response.failed", "failed")
    assert failed["response"]["error"] == {"code": "server_error", "message": "It broke."}
    assert len(failed["response"]["output"]) == len(fed)


@each_row("data", [b"data: {\n\n", b"data: 3\n\n", b'data: {"choices":[{"delta":{"content":3}}]}\n\n'])
def test_what_is_no_chat_chunk_is_the_upstreams_failure(data: bytes) -> None:
    with pytest.raises(UpstreamFailure):
        ResponsesStream(raws({"input": "hi"}), "resp_01").feed(data)


def test_empty_choices_comments_and_several_events_at_once() -> None:
    usage = b'data: {"choices":[],"usage":null}\n\n'
    first = usage + b": ping\n\n" + words("a") + chunk(None) + chunk({"content": "b"}, "length")
    written = stream(first, chunk({}), usage)
    assert output(written)[0]["content"][0]["text"] == "ab"
    assert written[-1]["type"] == "response.incomplete"


Atom = tuple[str, int, str]
TEXTS = st.text(min_size=1, max_size=8)


def segment(kind: str, *texts: str) -> list[Atom]:
    return [(kind, 0, letter) for text in texts for letter in text]


@st.composite
def answers(draw: st.DrawFn) -> list[Atom]:
    """An answer in its smallest pieces: thinking, text and the interleaved arguments of up to three calls."""
    atoms = segment("reasoning_content", draw(st.text(max_size=8))) + segment("content", draw(st.text(max_size=8)))
    letters = [(index, letter) for index in range(draw(st.integers(0, 3))) for letter in draw(TEXTS)]
    return atoms + [("call", index, letter) for index, letter in draw(st.permutations(letters))]


def deltas(atoms: list[Atom], cuts: set[int]) -> list[bytes]:
    """The same answer in larger chunks: neighbours that are alike share a chunk unless it is cut there."""
    chunks: list[bytes] = []
    begun: set[int] = set()
    run = ""
    for number, (kind, index, letter) in enumerate(atoms):
        run += letter
        following = atoms[number + 1][:2] if number + 1 < len(atoms) else None
        if following == (kind, index) and number not in cuts:
            continue
        if kind == "call":
            head = {} if index in begun else {"id": f"call_{index}", "name": "f"}
            chunks.append(chunk(call(index, run, **head)))
            begun.add(index)
        else:
            chunks.append(chunk({kind: run}))
        run = ""
    return [*chunks, STOP]


@given(answers(), st.sets(st.integers(0, 60)))
def test_the_final_response_does_not_depend_on_where_the_deltas_are_split(atoms: list[Atom], cuts: set[int]) -> None:
    assert output(stream(*deltas(atoms, cuts))) == output(stream(*deltas(atoms, set())))


@given(st.text(max_size=8), st.text(max_size=8), st.lists(TEXTS, max_size=3), st.sampled_from(["stop", "length"]))
def test_a_stream_ends_in_the_response_that_is_given_without_one(
    thought: str, text: str, arguments: list[str], finish: str
) -> None:
    calls = [
        {"index": index, "id": f"call_{index}", "type": "function", "function": {"name": "f", "arguments": value}}
        for index, value in enumerate(arguments)
    ]
    message = {"role": "assistant", "reasoning_content": thought, "content": text, "tool_calls": calls or None}
    chat = {"created": 1_700_000_000, "model": "m", "choices": [{"message": message, "finish_reason": finish}]}
    body = raws({"model": "auto", "input": "hi"})
    whole = from_chat(raws(chat), body, "resp_01", Raw(json.dumps(USAGE).encode()))
    assert stream(chunk(message), chunk({}, finish))[-1]["response"] == decoded(whole)
