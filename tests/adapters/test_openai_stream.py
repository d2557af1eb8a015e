"""Streams of OpenAI-compatible providers: what the client reads, and what is learned, however the bytes are cut."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.sse import Events, frame
from router.errors import UpstreamFailure
from router.types.call import StreamDecoder
from router.types.failure import ErrorKind
from router.types.request import Endpoint
from router.types.target import Quirks
from router.types.usage import Source, Usage
from tests.adapters.calls import ADAPTER, USAGE, call, chunk, cut, events, fails, message, sse
from tests.tables import each_row

K = ErrorKind
ROLE = chunk({"role": "assistant", "content": ""})
HI = chunk({"content": "Hi"})
STOP = chunk({}, "stop")
LAST = chunk(usage=USAGE, timings={"prompt_n": 1})
COUNTED = Usage(input_uncached=10, output_visible=4)
FEWER = USAGE | {"completion_tokens": 1, "total_tokens": 11}


def run(data: bytes, places: list[int] | None = None, **asked: Any) -> tuple[StreamDecoder, list[Any]]:
    """The decoder after these bytes, and the events that it gave, closing ones included."""
    decoder = ADAPTER.stream(call(stream=True, **asked))
    written = b"".join(map(decoder.feed, cut(data, places or [])))
    return decoder, events(written + decoder.final(b'{"total_tokens":14,"cost":0.5}'))


TRICKY = ['"', '\\"', "\\", '"},"finish_reason":"stop"}]}', "data: {", '"usage":{}', "served-1", '"model":"served-1"']
WORDS = st.text(max_size=6) | st.sampled_from([*TRICKY, "\n\n", "é👋"])


@given(
    words=st.lists(WORDS, max_size=12),
    places=st.lists(st.integers(0, 4_000), max_size=6),
    forms=st.fixed_dictionaries({name: st.booleans() for name in ("space", "crlf", "nulls", "wanted", "model_last")}),
    padding=st.sampled_from(["", "obfuscation", "p"]),
    key=st.sampled_from(["content", "reasoning_content", "reasoning"]),
)
def test_any_text_cut_anywhere_arrives_whole(
    words: list[str], places: list[int], forms: dict[str, bool], padding: str, key: str
) -> None:
    wanted, words = forms["wanted"], ["a", "b", *words]
    extra: dict[str, Any] = {"usage": None} if forms["nulls"] else {}
    chunks = [chunk({key: word}, **extra, **({padding: "x" * (9 - len(word))} if padding else {})) for word in words]
    if forms["model_last"]:
        chunks = [{name: each[name] for name in sorted(each, key="model".__eq__)} for each in chunks]
    data = sse(ROLE, *chunks, STOP, LAST, "[DONE]", space=forms["space"])
    data = data.replace(b"\n", b"\r\n") if forms["crlf"] else data
    decoder, got = run(data, places, stream_usage=wanted)
    assert message(got[:-2] if wanted else got[:-1]).get(key) == "".join(words)
    assert all(event["model"] == "auto" for event in got[:-1])
    usage = [{"total_tokens": 14, "cost": 0.5}] if wanted else []
    assert [event.get("usage", "none") for event in got[:-1] if not event["choices"]] == usage
    assert wanted or not any("usage" in event for event in got[:-1])
    assert len(got) == len(words) + (4 if wanted else 3)
    assert (decoder.usage, decoder.finish_reason, decoder.finished) == (COUNTED, "stop", True)
    assert (decoder.has_answer, decoder.model_served) == (key == "content", "served-1")
    assert decoder.output_chars >= len("".join(words))


@each_row("arguments", [["{", '"city"', ":", '"Paris"', "}"], ['{"a":', "1", "}"], ["x", "\\", "n", '\\"', "\\\\"]])
def test_tool_arguments_arrive_piece_by_piece(arguments: list[str]) -> None:
    first = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "f", "arguments": ""}}
    pieces = [chunk({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}) for piece in ["p", *arguments]]
    decoder, got = run(sse(ROLE, chunk({"tool_calls": [first]}), *pieces, chunk({}, "tool_calls"), "[DONE]"))
    call_made = message(got[:-1])["tool_calls"][0]
    assert call_made["function"] == {"name": "f", "arguments": "p" + "".join(arguments)}
    assert (decoder.has_answer, decoder.finish_reason) == (True, "tool_calls")


@each_row(
    "chunks, usage",
    [
        ([HI, STOP, LAST], COUNTED),
        # usage together with choices
        ([HI, chunk({}, "stop", usage=USAGE)], COUNTED),
        # cumulative, and never the other way
        ([chunk({"content": "Hi"}, usage=FEWER), STOP, LAST], COUNTED),
        ([HI, STOP, LAST, chunk(usage=FEWER)], COUNTED),
        # Moonshot, Groq
        ([HI, chunk(choices=[{"index": 0, "delta": {}, "finish_reason": "stop", "usage": USAGE}])], COUNTED),
        ([HI, chunk({}, "stop", x_groq={"id": "req", "usage": USAGE})], COUNTED),
        ([HI, chunk({}, "stop", usage=None)], None),
        ([HI, STOP], None),
        ([HI, chunk({}, "stop", usage={"prompt_tokens": 0, "completion_tokens": 0})], Usage()),
    ],
)
def test_usage_is_found_wherever_it_is_and_taken_out(chunks: list[dict[str, Any]], usage: Usage | None) -> None:
    decoder, got = run(sse(*chunks, "[DONE]"))
    assert decoder.usage == usage
    assert b"usage" not in msgspec.json.encode(got)
    assert message(got[:-1])["content"] == "Hi"


def test_one_choice_counted_stands_for_all() -> None:
    decoder, _ = run(sse(HI, STOP, LAST), n=2, quirks=Quirks(usage_counts_one_choice=True))
    assert decoder.usage == Usage(input_uncached=10, output_visible=8, source=Source.ESTIMATED)


def test_the_usage_chunk_keeps_what_else_stood_in_it() -> None:
    _, got = run(sse(HI, STOP, LAST, "[DONE]"), stream_usage=True)
    assert got[-2:] == [LAST | {"model": "auto", "usage": {"total_tokens": 14, "cost": 0.5}}, "[DONE]"]


@each_row(
    "ends, n, finished",
    [
        ([STOP, "[DONE]"], 1, True),
        ([STOP], 1, True),
        (["[DONE]"], 1, True),
        ([], 1, False),
        ([STOP], 2, False),
        ([STOP, "[DONE]"], 2, True),
        ([chunk({"content": "!"}, error=None), chunk({}, "stop", error={}), "[DONE]"], 1, True),
    ],
)
def test_an_end_is_told_from_a_cut(ends: list[dict[str, Any] | str], n: int, finished: bool) -> None:
    """An absent error is none."""
    assert run(sse(HI, *ends), n=n)[0].finished is finished


@each_row(
    "deltas, has_answer",
    [
        ([{"content": " "}, {"content": "\n"}, {"content": "Hi"}], True),
        ([{"reasoning": "a"}, {"reasoning": "b"}, {"reasoning": "c", "content": "Hi"}], True),
        ([{"reasoning": "a"}, {"reasoning": "b", "content": None}, {"reasoning": None, "content": "Hi"}], True),
        ([{"reasoning": "a"}, {"reasoning": "b"}, {"content": "", "refusal": "No."}], True),
        ([{"content": None, "reasoning": "hm"}, {"content": " \n"}], False),
    ],
)
def test_the_answer_is_noticed_after_thoughts_and_blanks(deltas: list[dict[str, Any]], has_answer: bool) -> None:
    decoder, got = run(sse(*map(chunk, deltas), chunk({}, "length"), "[DONE]"))
    assert (decoder.has_answer, decoder.finish_reason) == (has_answer, "length")
    assert [event["choices"][0]["delta"] for event in got[:-2]] == deltas


@each_row("before", [b"", sse(HI, chunk({"content": " you"}))])
@each_row(
    "data, kind",
    [
        (b'data: {"error": {"message": "dead", "code": 500}}\n\ndata: [DONE]\n\n', K.SERVER_ERROR),
        (b'event: error\ndata: {"message":"slow down","code":"rate_limit_exceeded"}\n\n', K.RATE_LIMITED),
        (b'data: {"object":"error","message":"x","type":"rate_limit_error","code":"1300"}\n\n', K.RATE_LIMITED),
        (sse(chunk({"content": ""}, "error", error={"code": 429, "message": "x"})), K.RATE_LIMITED),
        (b'data: {"choices":[{"delta":{"content":"Hi\n\n', K.BAD_RESPONSE),
        (b"data: <html>\n\n", K.BAD_RESPONSE),
        (b'data: {"choices":{}}\n\n', K.BAD_RESPONSE),
        (b"data: " + b'{"a":' * 50_000 + b"\n\n", K.BAD_RESPONSE),
    ],
)
def test_a_broken_stream_is_a_failure(before: bytes, data: bytes, kind: ErrorKind) -> None:
    decoder = ADAPTER.stream(call(stream=True))
    decoder.feed(before)
    with fails(kind):
        decoder.feed(data)


def test_what_the_provider_left_out_is_filled_in_and_stays_the_same() -> None:
    bare = [{"choices": [{"delta": {"content": word}}]} for word in "abc"]
    _, got = run(sse(*bare, "[DONE]"), stream_usage=True)
    ((*_, kind, model),) = {(event["id"], event["created"], event["object"], event["model"]) for event in got[:-1]}
    assert (kind, model) == ("chat.completion.chunk", "auto")


def test_completions_stream_text() -> None:
    pieces = [{"id": "x", "choices": [{"index": 0, "text": word, "finish_reason": None}]} for word in "abc"]
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


MADE = {"id": "r", "model": "served-1"}
CREATED = {"type": "response.created", "sequence_number": 0, "response": {**MADE, "usage": None}}
DELTA = {"type": "response.output_text.delta", "sequence_number": 1, "delta": "Hi"}
THOUGHT = {"type": "response.reasoning_summary_text.delta", "sequence_number": 1, "delta": "hm"}
USED = {"input_tokens": 10, "output_tokens": 4, "total_tokens": 14}


def named(*happenings: dict[str, Any]) -> bytes:
    written = [(event["type"].encode(), msgspec.json.encode(event)) for event in happenings]
    return b"".join(b"event: %b\ndata: %b\n\n" % event for event in written)


def responses(*happenings: dict[str, Any]) -> tuple[StreamDecoder, bytes]:
    decoder = ADAPTER.stream(call(stream=True, endpoint=Endpoint.RESPONSES))
    return decoder, decoder.feed(named(*happenings))


@each_row("delta, has_answer", [(DELTA, True), (THOUGHT, False)])
def test_a_responses_stream_passes_and_its_last_event_waits(delta: dict[str, Any], has_answer: bool) -> None:
    whole = {**MADE, "status": "completed", "output": []}
    done = {"type": "response.completed", "sequence_number": 2}
    decoder, written = responses(CREATED, delta, {**done, "response": {**whole, "usage": USED}})
    assert written == named(CREATED | {"response": {"id": "r", "model": "auto"}}, delta)
    assert (decoder.usage, decoder.finished, decoder.has_answer) == (COUNTED, True, has_answer)
    assert (decoder.finish_reason, decoder.model_served, decoder.output_chars) == ("stop", "served-1", 2)
    final = {**whole, "model": "auto", "usage": {"cost": 1}}
    assert decoder.final(b'{"cost":1}') == named({**done, "response": final})


@each_row(
    "failed",
    [
        {"type": "response.failed", "response": {"error": {"code": "rate_limit_exceeded", "message": "x"}}},
        {"type": "error", "code": "rate_limit_exceeded", "message": "x"},
    ],
)
def test_a_failed_responses_stream_is_a_failure(failed: dict[str, Any]) -> None:
    with fails(K.RATE_LIMITED):
        responses(CREATED, failed)


@each_row("event", [b'event: x\ndata: {"delta":"\xff"}\n\n', b'event: \xff\ndata: {"delta":"Hi"}\n\n'])
def test_a_responses_stream_is_text(event: bytes) -> None:
    decoder, _ = responses(CREATED)
    with fails(K.BAD_RESPONSE):
        decoder.feed(event)


def test_a_cut_responses_stream_is_not_finished() -> None:
    assert not responses(CREATED, DELTA)[0].finished


EXPECTED = [(b"", b"one"), (b"named", b"two\nlines"), (b"", b""), (b"", b"[DONE]")]
STREAM = b": hello\n\ndata: one\nid: 4\n\nevent: named\ndata:two\ndata: lines\n\nretry: 5\n\ndata\n\ndata: [DONE]\n\n"


@each_row("ending", [b"\n", b"\r\n", b"\r"])
@given(places=st.lists(st.integers(0, len(STREAM)), max_size=8))
def test_server_sent_events_cut_anywhere_are_the_same(ending: bytes, places: list[int]) -> None:
    data = STREAM.replace(b"\n", ending) + (b": end\r" if ending == b"\r" else b"")
    reader = Events(65_536)
    assert [event for piece in cut(data, places) for event in reader.feed(piece)] == EXPECTED


def test_an_unfinished_event_is_bounded() -> None:
    with pytest.raises(UpstreamFailure, match="bad_response"):
        Events(4_096).feed(b"data: " + b"x" * 4_096)


def test_what_came_before_an_event_that_cannot_be_read_is_kept() -> None:
    """In one segment, or each in its own: the client gets the same."""
    for beginning in (b"", sse(ROLE, HI)):
        decoder = ADAPTER.stream(call(stream=True))
        decoder.feed(beginning)
        with pytest.raises(UpstreamFailure) as caught:
            decoder.feed(sse(HI, HI) + b"data: {odd\n\n" + sse(HI))
        assert caught.value.before.count(b'"content":"Hi"') == 2


def test_an_unfinished_event_waits() -> None:
    reader = Events(65_536)
    assert (reader.feed(b"data: one\n"), bool(reader.pending)) == ([], True)
    assert (reader.feed(b"\n"), bool(reader.pending)) == ([(b"", b"one")], False)


@given(
    payload=st.text(st.characters(codec="utf-8", exclude_characters="\r")),
    name=st.sampled_from([b"", b"response.created"]),
)
def test_what_is_framed_is_read_back(payload: str, name: bytes) -> None:
    assert Events(65_536).feed(frame(payload.encode(), name)) == [(name, payload.encode())]
