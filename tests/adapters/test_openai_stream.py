"""Streams of OpenAI-compatible providers: what the client reads, and what is learned, however the bytes are cut."""

from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.errors import UpstreamFailure
from router.types.call import StreamDecoder
from router.types.failure import ErrorKind
from router.types.request import Endpoint
from router.types.target import Quirks
from router.types.usage import Source, Usage
from tests.adapters.compatible import ADAPTER, USAGE, call, chunk, sse, text
from tests.adapters.translated import events, message

ROLE = chunk({"role": "assistant", "content": ""})
STOP = chunk({}, "stop")
LAST = chunk(usage=USAGE, timings={"prompt_n": 1})
COUNTED = Usage(input_uncached=10, output_visible=4)


def run(data: bytes, cuts: tuple[int, ...] = (), **asked: Any) -> tuple[StreamDecoder, list[Any]]:
    """The decoder after these bytes, and the events that it gave, closing ones included."""
    decoder = ADAPTER.stream(call(stream=True, **asked))
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    written = b"".join(decoder.feed(data[a:b]) for a, b in pairwise(places))
    return decoder, events(written + decoder.final(b'{"total_tokens":14,"cost":0.5}'))


WORDS = st.text(max_size=6) | st.sampled_from(
    [
        '"',
        '\\"',
        "\\",
        '"},"finish_reason":"stop"}]}',
        "data: {",
        '"usage":{}',
        "served-1",
        '"model":"served-1"',
        "\n\n",
        "é👋",
    ]
)


@given(
    words=st.lists(WORDS, max_size=12),
    cuts=st.lists(st.integers(0, 4_000), max_size=6),
    space=st.booleans(),
    crlf=st.booleans(),
    nulls=st.booleans(),
    wanted=st.booleans(),
    padding=st.sampled_from(["", "obfuscation", "p"]),
    key=st.sampled_from(["content", "reasoning_content", "reasoning"]),
    model_last=st.booleans(),
)
def test_any_text_cut_anywhere_arrives_whole(
    words: list[str],
    cuts: list[int],
    space: bool,
    crlf: bool,
    nulls: bool,
    wanted: bool,
    padding: str,
    key: str,
    model_last: bool,
) -> None:
    extra: dict[str, Any] = {"usage": None} if nulls else {}
    chunks = [
        chunk({key: word}, **extra, **({padding: "x" * (9 - len(word))} if padding else {}))
        for word in ["a", "b", *words]
    ]
    if model_last:
        chunks = [{name: each[name] for name in sorted(each, key="model".__eq__)} for each in chunks]
    data = sse(ROLE, *chunks, STOP, LAST, "[DONE]", space=space)
    data = data.replace(b"\n", b"\r\n") if crlf else data
    decoder, got = run(data, tuple(cuts), stream_usage=wanted)
    assert message(got[:-2] if wanted else got[:-1]).get(key) == "ab" + "".join(words)
    assert all(event["model"] == "auto" for event in got[:-1])
    assert [event.get("usage", "none") for event in got[:-1] if not event["choices"]] == (
        [{"total_tokens": 14, "cost": 0.5}] if wanted else []
    )
    assert wanted or not any("usage" in event for event in got[:-1])
    assert len(got) == len(words) + 6 if wanted else len(words) + 5
    assert (decoder.usage, decoder.finish_reason, decoder.finished) == (COUNTED, "stop", True)
    assert (decoder.has_answer, decoder.model_served) == (key == "content", "served-1")
    assert decoder.output_chars >= len("ab" + "".join(words))


@pytest.mark.parametrize(
    "arguments", [["{", '"city"', ":", '"Paris"', "}"], ['{"a":', "1", "}"], ["x", "\\", "n", '\\"', "\\\\"]]
)
def test_tool_arguments_arrive_piece_by_piece(arguments: list[str]) -> None:
    first = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "f", "arguments": ""}}
    pieces = [chunk({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}) for piece in ["p", *arguments]]
    decoder, got = run(sse(ROLE, chunk({"tool_calls": [first]}), *pieces, chunk({}, "tool_calls"), "[DONE]"))
    call_made = message(got[:-1])["tool_calls"][0]
    assert call_made["function"] == {"name": "f", "arguments": "p" + "".join(arguments)}
    assert (decoder.has_answer, decoder.finish_reason) == (True, "tool_calls")


@pytest.mark.parametrize(
    ("chunks", "usage"),
    [
        ([text("Hi"), STOP, LAST], COUNTED),
        # U1: usage together with choices
        ([text("Hi"), chunk({}, "stop", usage=USAGE)], COUNTED),
        # cumulative, and never the other way
        ([chunk({"content": "Hi"}, usage=USAGE | {"completion_tokens": 1, "total_tokens": 11}), STOP, LAST], COUNTED),
        ([text("Hi"), STOP, LAST, chunk(usage=USAGE | {"completion_tokens": 1, "total_tokens": 11})], COUNTED),
        # Moonshot, Groq
        ([text("Hi"), chunk(choices=[{"index": 0, "delta": {}, "finish_reason": "stop", "usage": USAGE}])], COUNTED),
        ([text("Hi"), chunk({}, "stop", x_groq={"id": "req", "usage": USAGE})], COUNTED),
        ([text("Hi"), chunk({}, "stop", usage=None)], None),
        ([text("Hi"), STOP], None),
        ([text("Hi"), chunk({}, "stop", usage={"prompt_tokens": 0, "completion_tokens": 0})], Usage()),
    ],
)
def test_usage_is_found_wherever_it_is_and_taken_out(chunks: list[dict[str, Any]], usage: Usage | None) -> None:
    decoder, got = run(sse(*chunks, "[DONE]"))
    assert decoder.usage == usage
    assert b"usage" not in msgspec.json.encode(got)
    assert message(got[:-1])["content"] == "Hi"


def test_one_choice_counted_stands_for_all() -> None:
    decoder, _ = run(sse(text("Hi"), STOP, LAST), n=2, quirks=Quirks(usage_counts_one_choice=True))
    assert decoder.usage == Usage(input_uncached=10, output_visible=8, source=Source.ESTIMATED)


def test_the_usage_chunk_keeps_what_else_stood_in_it() -> None:
    _, got = run(sse(text("Hi"), STOP, LAST, "[DONE]"), stream_usage=True)
    usage = {"total_tokens": 14, "cost": 0.5}
    assert got[-2:] == [LAST | {"model": "auto", "usage": usage}, "[DONE]"]


@pytest.mark.parametrize(
    ("ends", "n", "finished"),
    [
        ([STOP, "[DONE]"], 1, True),
        ([STOP], 1, True),
        (["[DONE]"], 1, True),
        ([], 1, False),
        ([STOP], 2, False),
        ([STOP, "[DONE]"], 2, True),
    ],
)
def test_an_end_is_told_from_a_cut(ends: list[dict[str, Any] | str], n: int, finished: bool) -> None:
    assert run(sse(text("Hi"), *ends), n=n)[0].finished is finished


@pytest.mark.parametrize(
    "deltas",
    [
        [{"content": " "}, {"content": "\n"}, {"content": "Hi"}],
        [{"reasoning": "a"}, {"reasoning": "b"}, {"reasoning": "c", "content": "Hi"}],
        [{"reasoning": "a"}, {"reasoning": "b", "content": None}, {"reasoning": None, "content": "Hi"}],
        [{"reasoning": "a"}, {"reasoning": "b"}, {"content": "", "refusal": "No."}],
    ],
)
def test_the_answer_is_noticed_after_thoughts_and_blanks(deltas: list[dict[str, Any]]) -> None:
    decoder = ADAPTER.stream(call(stream=True))
    got = events(b"".join(decoder.feed(sse(chunk(delta))) for delta in deltas))
    assert decoder.has_answer
    assert [event["choices"][0]["delta"] for event in got] == deltas


def test_only_thoughts_are_no_answer() -> None:
    decoder, _ = run(sse(chunk({"content": None, "reasoning": "hm"}), text(" \n"), chunk({}, "length"), "[DONE]"))
    assert (decoder.has_answer, decoder.finish_reason) == (False, "length")


@pytest.mark.parametrize("before", [b"", sse(text("Hi"), text(" you"))])
@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b'data: {"error": {"message": "dead", "code": 500}}\n\ndata: [DONE]\n\n', ErrorKind.SERVER_ERROR),
        (b'event: error\ndata: {"message":"slow down","code":"rate_limit_exceeded"}\n\n', ErrorKind.RATE_LIMITED),
        (b'data: {"object":"error","message":"x","type":"rate_limit_error","code":"1300"}\n\n', ErrorKind.RATE_LIMITED),
        (sse(chunk({"content": ""}, "error", error={"code": 429, "message": "x"})), ErrorKind.RATE_LIMITED),
        (b'data: {"choices":[{"delta":{"content":"Hi\n\n', ErrorKind.BAD_RESPONSE),
        (b"data: <html>\n\n", ErrorKind.BAD_RESPONSE),
        (b'data: {"choices":{}}\n\n', ErrorKind.BAD_RESPONSE),
        (b"data: " + b'{"a":' * 50_000 + b"\n\n", ErrorKind.BAD_RESPONSE),
    ],
)
def test_a_broken_stream_is_a_failure(before: bytes, data: bytes, kind: ErrorKind) -> None:
    decoder = ADAPTER.stream(call(stream=True))
    decoder.feed(before)
    with pytest.raises(UpstreamFailure) as caught:
        decoder.feed(data)
    assert caught.value.failure.kind is kind


def test_an_absent_error_is_none() -> None:
    decoder, _ = run(sse(chunk({"content": "Hi"}, error=None), chunk({}, "stop", error={}), "[DONE]"))
    assert decoder.finished


def test_what_the_provider_left_out_is_filled_in_and_stays_the_same() -> None:
    bare = [{"choices": [{"delta": {"content": word}}]} for word in "abc"]
    _, got = run(sse(*bare, "[DONE]"), stream_usage=True)
    heads = {(event["id"], event["created"], event["object"], event["model"]) for event in got[:-1]}
    assert len(heads) == 1
    assert heads.pop()[2:] == ("chat.completion.chunk", "auto")


def test_completions_stream_text() -> None:
    pieces = [{"id": "x", "choices": [{"index": 0, "text": word, "finish_reason": None}]} for word in ("a", "b", "c")]
    decoder, got = run(sse(*pieces, "[DONE]"), endpoint=Endpoint.COMPLETIONS)
    assert "".join(event["choices"][0]["text"] for event in got[:-1]) == "abc"
    assert (decoder.has_answer, got[0]["object"], got[0]["model"]) == (True, "text_completion", "auto")


def test_logprobs_and_second_choices_are_not_taken_for_plain_text() -> None:
    rich = [
        {"index": at % 2, "delta": {"content": word}, "logprobs": {"content": [{"token": word, "logprob": -0.5}]}}
        for at, word in enumerate("abcdef")
    ]
    _, got = run(sse(*[chunk(choices=[choice]) for choice in rich], "[DONE]"), n=2)
    assert [event["choices"] for event in got[:-1]] == [[choice] for choice in rich]


CREATED = {
    "type": "response.created",
    "sequence_number": 0,
    "response": {"id": "r", "model": "served-1", "usage": None},
}
DELTA = {"type": "response.output_text.delta", "sequence_number": 1, "delta": "Hi"}
THOUGHT = {"type": "response.reasoning_summary_text.delta", "sequence_number": 1, "delta": "hm"}
DONE = {
    "type": "response.completed",
    "sequence_number": 2,
    "response": {
        "id": "r",
        "model": "served-1",
        "status": "completed",
        "output": [],
        "usage": {"input_tokens": 10, "output_tokens": 4, "total_tokens": 14},
    },
}


def named(*happenings: dict[str, Any]) -> bytes:
    return b"".join(
        b"event: %b\ndata: %b\n\n" % (each["type"].encode(), msgspec.json.encode(each)) for each in happenings
    )


@pytest.mark.parametrize(("delta", "has_answer"), [(DELTA, True), (THOUGHT, False)])
def test_a_responses_stream_passes_and_its_last_event_waits(delta: dict[str, Any], has_answer: bool) -> None:
    decoder = ADAPTER.stream(call(stream=True, endpoint=Endpoint.RESPONSES))
    assert decoder.feed(named(CREATED, delta, DONE)) == named(
        CREATED | {"response": {"id": "r", "model": "auto"}}, delta
    )
    assert (decoder.usage, decoder.finished, decoder.has_answer) == (COUNTED, True, has_answer)
    assert (decoder.finish_reason, decoder.model_served, decoder.output_chars) == ("stop", "served-1", 2)
    final = DONE["response"] | {"model": "auto", "usage": {"cost": 1}}  # type: ignore[operator]
    assert decoder.final(b'{"cost":1}') == named(DONE | {"response": final})


@pytest.mark.parametrize(
    "failed",
    [
        {"type": "response.failed", "response": {"error": {"code": "rate_limit_exceeded", "message": "x"}}},
        {"type": "error", "code": "rate_limit_exceeded", "message": "x"},
    ],
)
def test_a_failed_responses_stream_is_a_failure(failed: dict[str, Any]) -> None:
    decoder = ADAPTER.stream(call(stream=True, endpoint=Endpoint.RESPONSES))
    with pytest.raises(UpstreamFailure) as caught:
        decoder.feed(named(CREATED, failed))
    assert caught.value.failure.kind is ErrorKind.RATE_LIMITED


def test_a_cut_responses_stream_is_not_finished() -> None:
    decoder = ADAPTER.stream(call(stream=True, endpoint=Endpoint.RESPONSES))
    decoder.feed(named(CREATED, DELTA))
    assert not decoder.finished
