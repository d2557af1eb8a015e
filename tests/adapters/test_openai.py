"""Answers of OpenAI-compatible providers, whole and streamed: what the client reads, and what is learned."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.stream import EventStream
from router.errors import UpstreamFailure
from router.types.attempt import ErrorKind, StreamDecoder, TargetReply, Usage
from router.types.request import Endpoint
from tests.adapters.calls import ADAPTER, USAGE, answer, answered, call, chunk, cut, events, fails, message, sse
from tests.tables import data, each_row

E, K = Endpoint, ErrorKind
COUNTED = Usage(input_uncached=10, output_visible=4)


def decode(body: bytes, **asked: Any) -> TargetReply:
    return ADAPTER.decode(call(**asked), body)


@each_row("message, finish, has_answer", data(__file__, "openai_answers.yaml"))
def test_an_answer_is_more_than_thoughts(message: dict[str, Any], finish: str, has_answer: bool) -> None:
    reply = decode(answer(message, finish, usage=USAGE, timings={"x": 1.5}))
    assert (reply.has_answer, reply.finish_reason, reply.model_served) == (has_answer, finish, "served-1")
    assert reply.usage == COUNTED
    body = answered(reply.body)
    assert (body["model"], body["id"], body["timings"], "usage" in body) == ("auto", "c-1", {"x": 1.5}, False)
    assert body["choices"][0]["message"] == {"role": "assistant", **message}


TEXT = {"type": "text", "text": "Hi"}
THOUGHT = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}


@each_row(
    "parts, message, has_answer",
    [
        ([THOUGHT, {"type": "text", "text": "H"}, TEXT], {"content": "HHi", "reasoning_content": "hm"}, True),
        ([THOUGHT, THOUGHT], {"content": None, "reasoning_content": "hmhm"}, False),
        ([{"type": "thinking"}, TEXT], {"content": "Hi"}, True),
        ([{"type": "thinking", "thinking": [{"text": 1}, 2]}, {"type": "text"}], {"content": None}, False),
    ],
)
def test_content_parts_become_text_and_thoughts(parts: list[Any], message: dict[str, Any], has_answer: bool) -> None:
    reply = decode(answer({"content": parts}))
    assert answered(reply.body)["choices"][0]["message"] == {"role": "assistant", **message}
    assert reply.has_answer is has_answer
    decoder = ADAPTER.stream(call({}, stream=True))
    choice = {"index": 0, "delta": {"content": parts}, "message": None, "finish_reason": None}
    (event,) = events(decoder.feed(sse({"choices": [choice]})))
    assert event["choices"][0]["delta"] == message
    assert decoder.output_chars == len(message["content"] or "") + len(message.get("reasoning_content", ""))


def test_what_the_provider_left_out_is_filled_in_and_stays_the_same() -> None:
    body = answered(decode(b'{"id":null,"choices":[{"message":{"content":"Hi"}}]}').body)
    assert body["id"].startswith("chatcmpl-")
    assert body["created"] > 1_700_000_000
    assert (body["object"], body["model"]) == ("chat.completion", "auto")
    _, got = run(sse(*[{"choices": [{"delta": {"content": word}}]} for word in "abc"], "[DONE]"), stream_usage=True)
    ((*_, kind, model),) = {(event["id"], event["created"], event["object"], event["model"]) for event in got[:-1]}
    assert (kind, model) == ("chat.completion.chunk", "auto")


def test_embeddings_pass_byte_for_byte() -> None:
    vectors = b'{"data":[{"index":0,"embedding":[0.10, 1e-3]}],"usage":{"prompt_tokens":6,"total_tokens":6}}'
    reply = decode(vectors, endpoint=E.EMBEDDINGS)
    assert (bytes(reply.body["data"]), {*reply.body}) == (vectors[8:46], {"data", "model", "object"})
    assert (reply.usage, reply.has_answer) == (Usage(input_uncached=6), True)
    for odd in (b"[]", b'"zzz"', b'[{"index":0}]', b'[{"embedding":[1]},{"embedding":[1]}]'):
        with pytest.raises(UpstreamFailure, match="bad_response"):
            decode(b'{"data":%b}' % odd, endpoint=E.EMBEDDINGS)


@each_row("logprobs", [{"content": [{"token": "Hi"}]}, {"content": [{"token": "Hi", "logprob": None}]}, {}, None])
def test_log_probabilities_pass(logprobs: Any) -> None:
    choice = {"index": 0, "message": {"content": "Hi"}, "logprobs": logprobs, "finish_reason": "stop"}
    reply = decode(msgspec.json.encode({"choices": [choice]}))
    assert answered(reply.body)["choices"][0]["logprobs"] == logprobs


def test_completions_and_their_log_probabilities_pass() -> None:
    given = {"tokens": ["x"], "token_logprobs": [-0.5], "top_logprobs": [{"x": -0.5}], "text_offset": [0]}
    written = {"choices": [{"index": 0, "text": "x", "logprobs": given, "finish_reason": "stop"}]}
    reply = decode(msgspec.json.encode(written), endpoint=E.COMPLETIONS)
    decoder, (event, _) = run(sse(written, "[DONE]"), endpoint=E.COMPLETIONS)
    assert reply.has_answer
    assert decoder.has_answer
    for body in (answered(reply.body), event):
        assert (body["object"], body["model"], body["choices"][0]["text"]) == ("text_completion", "auto", "x")
        assert body["choices"][0]["logprobs"] == given


@each_row("endpoint", Endpoint)
@each_row("body", [b"", b"<html>", b"[]", b'{"choices":7,"output":7}', b'{"a":"\xff"}', b'{"a":' + b"[" * 99_999])
def test_a_body_that_breaks_the_promise(endpoint: Endpoint, body: bytes) -> None:
    with fails(K.BAD_RESPONSE):
        decode(body, endpoint=endpoint)


CALLED = {"function": {"name": "f", "arguments": "{}"}}
ODD_CALLS: list[dict[str, Any]] = [{"id": True}, {"index": "0"}, {"extra_content": []}]
UNTRANSLATABLE: list[dict[str, Any]] = [{"tool_calls": [CALLED | odd]} for odd in ODD_CALLS]
UNTRANSLATABLE += [{"thinking_blocks": ["odd"]}, {"thinking_blocks": {}}, {"reasoning_details": [[]]}]
FAILED = {"code": "rate_limit_exceeded", "message": "slow down"}


@each_row(
    "body, endpoint, kind",
    [
        *((answer({"content": "Hi", **message}), E.CHAT, K.BAD_RESPONSE) for message in UNTRANSLATABLE),
        (b'{"choices":[]}', E.CHAT, K.BAD_RESPONSE),
        (b'{"choices":[{}]}', E.COMPLETIONS, K.BAD_RESPONSE),
        # with status 200
        (b'{"error":{"message":"slow down","code":429}}', E.CHAT, K.RATE_LIMITED),
        (msgspec.json.encode({"status": "failed", "error": FAILED, "output": []}), E.RESPONSES, K.RATE_LIMITED),
    ],
)
def test_what_can_not_be_translated_and_what_failed_are_failures(
    body: bytes, endpoint: Endpoint, kind: ErrorKind
) -> None:
    with fails(kind, "slow down" if kind is K.RATE_LIMITED else ""):
        decode(body, endpoint=endpoint)


# Streams, however the bytes are cut


ROLE = chunk({"role": "assistant", "content": ""})
HI = chunk({"content": "Hi"})
STOP = chunk({}, "stop")
LAST = chunk(usage=USAGE, timings={"prompt_n": 1})
ANSWERED = {"has_answer": True, "finish_reason": "length"}
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
    assert sum(decoder.text.sizes()) == len("".join(words).encode())


@each_row("arguments", [["{", '"city"', ":", '"Paris"', "}"], ['{"a":', "1", "}"], ["x", "\\", "n", '\\"', "\\\\"]])
def test_tool_arguments_arrive_piece_by_piece(arguments: list[str]) -> None:
    first = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "f", "arguments": ""}}
    pieces = [chunk({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}) for piece in ["p", *arguments]]
    decoder, got = run(sse(ROLE, chunk({"tool_calls": [first]}), *pieces, chunk({}, "tool_calls"), "[DONE]"))
    assert message(got[:-1])["tool_calls"][0]["function"] == {"name": "f", "arguments": "p" + "".join(arguments)}
    assert (decoder.has_answer, decoder.finish_reason) == (True, "tool_calls")


HM = {"reasoning": "hm"}
MOONSHOT = chunk(choices=[{"index": 0, "delta": {}, "finish_reason": "stop", "usage": USAGE}])


def thoughts(*deltas: dict[str, Any]) -> list[Any]:
    return [*map(chunk, deltas), chunk({}, "length"), "[DONE]"]


@each_row(
    "pieces, n, learned",
    [
        # usage is found wherever it is, and taken out
        ([HI, STOP, LAST, "[DONE]"], 1, {"usage": COUNTED, "finished": True}),
        ([HI, chunk({}, "stop", usage=USAGE)], 1, {"usage": COUNTED}),
        ([HI, MOONSHOT], 1, {"usage": COUNTED}),
        ([HI, chunk({}, "stop", x_groq={"id": "req", "usage": USAGE})], 1, {"usage": COUNTED}),
        ([HI, chunk({}, "stop", usage=None)], 1, {"usage": None}),
        ([HI, chunk({}, "stop", usage={"prompt_tokens": 0, "completion_tokens": 0})], 1, {"usage": Usage()}),
        # cumulative, and never the other way
        ([chunk({"content": "Hi"}, usage=FEWER), STOP, LAST], 1, {"usage": COUNTED}),
        ([HI, STOP, LAST, chunk(usage=FEWER)], 1, {"usage": COUNTED}),
        # an end is told from a cut, and an absent error is none
        ([HI, STOP], 1, {"finished": True, "usage": None}),
        ([HI, "[DONE]"], 1, {"finished": False}),
        ([HI], 1, {"finished": False}),
        ([HI, STOP], 2, {"finished": False}),
        ([HI, STOP, "[DONE]"], 2, {"finished": True}),
        ([HI, chunk({"content": "!"}, error=None), chunk({}, "stop", error={}), "[DONE]"], 1, {"finished": True}),
        # the answer is noticed after thoughts and blanks
        (thoughts({"content": " "}, {"content": "\n"}, {"content": "Hi"}), 1, ANSWERED),
        (thoughts(HM, HM, {"reasoning": "c", "content": "Hi"}), 1, ANSWERED),
        (thoughts(HM, {"reasoning": "b", "content": None}, {"reasoning": None, "content": "Hi"}), 1, ANSWERED),
        (thoughts(HM, HM, {"content": "", "refusal": "No."}), 1, ANSWERED),
        (thoughts({"content": None, "reasoning": "hm"}, {"content": " \n"}), 1, {**ANSWERED, "has_answer": False}),
    ],
)
def test_what_is_learned_from_a_stream_that_passes(pieces: list[Any], n: int, learned: dict[str, Any]) -> None:
    decoder, got = run(sse(*pieces), n=n)
    assert {name: getattr(decoder, name) for name in learned} == learned
    assert b"usage" not in msgspec.json.encode(got)
    assert deltas(got) == deltas(pieces)


def deltas(happenings: list[Any]) -> list[Any]:
    return [choice["delta"] for event in happenings if event != "[DONE]" for choice in event["choices"]]


def test_the_usage_chunk_keeps_what_else_stood_in_it() -> None:
    _, got = run(sse(HI, STOP, LAST, "[DONE]"), stream_usage=True)
    assert got[-2:] == [LAST | {"model": "auto", "usage": {"total_tokens": 14, "cost": 0.5}}, "[DONE]"]


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
        (sse(chunk({"content": "a"}), {"choices": [{"index": 7, "delta": {}}]}), K.BAD_RESPONSE),
        (b"data: " + b'{"a":' * 50_000 + b"\n\n", K.BAD_RESPONSE),
    ],
)
def test_a_broken_stream_is_a_failure(before: bytes, data: bytes, kind: ErrorKind) -> None:
    decoder = ADAPTER.stream(call(stream=True))
    decoder.feed(before)
    with fails(kind):
        decoder.feed(data)


def test_logprobs_and_second_choices_are_not_taken_for_plain_text() -> None:
    rich = [
        {"index": at % 2, "delta": {"content": word}, "logprobs": {"content": [{"token": word, "logprob": -0.5}]}}
        for at, word in enumerate("abcdef")
    ]
    _, got = run(sse(*[chunk(choices=[choice]) for choice in rich], "[DONE]"), n=2)
    assert [event["choices"] for event in got[:-1]] == [[choice] for choice in rich]


def test_what_came_before_an_event_that_cannot_be_read_is_kept() -> None:
    """In one segment, or each in its own: the client gets the same."""
    for beginning in (b"", sse(ROLE, HI)):
        decoder = ADAPTER.stream(call(stream=True))
        decoder.feed(beginning)
        with pytest.raises(UpstreamFailure) as caught:
            decoder.feed(sse(HI, HI) + b"data: {odd\n\n" + sse(HI))
        assert caught.value.before.count(b'"content":"Hi"') == 2


EXPECTED = b"(one)named(two\nlines)()([DONE])"
STREAM = b": hello\n\ndata: one\nid: 4\n\nevent: named\ndata:two\ndata: lines\n\nretry: 5\n\ndata\n\ndata: [DONE]\n\n"


class Echo(EventStream):
    """Says name and data of each event."""

    def final(self, usage: bytes) -> bytes:
        return usage

    def _event(self, name: bytes, payload: bytes) -> bytes:
        return b"%b(%b)" % (name, payload)


@each_row("ending", [b"\n", b"\r\n", b"\r"])
@given(places=st.lists(st.integers(0, len(STREAM)), max_size=8))
def test_server_sent_events_cut_anywhere_are_the_same(ending: bytes, places: list[int]) -> None:
    data = STREAM.replace(b"\n", ending) + (b": end\r" if ending == b"\r" else b"")
    stream = Echo(call(stream=True))
    assert b"".join(map(stream.feed, cut(data, places))) == EXPECTED
    with pytest.raises(UpstreamFailure, match="bad_response"):
        stream.feed(b"data: " + b"x" * call().target.max_event_bytes)


# Responses


REASONED = {"type": "reasoning", "id": "rs_1", "summary": []}
SAID = {"type": "message", "content": [{"type": "output_text", "text": "Hi", "annotations": []}]}
CUT = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
FILTERED = {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}
USED = {"input_tokens": 10, "output_tokens": 4, "total_tokens": 14}
CREATED = {
    "type": "response.created",
    "sequence_number": 0,
    "response": {"id": "r", "model": "served-1", "usage": None},
}
DELTA = {"type": "response.output_text.delta", "sequence_number": 1, "delta": "Hi"}
SUMMARY = {"type": "response.reasoning_summary_text.delta", "sequence_number": 1, "delta": "hm"}


def named(*happenings: dict[str, Any]) -> bytes:
    written = [(event["type"].encode(), msgspec.json.encode(event)) for event in happenings]
    return b"".join(b"event: %b\ndata: %b\n\n" % event for event in written)


@each_row(
    "change, delta, has_answer, finish",
    [
        ({}, DELTA, True, "stop"),
        ({"output": [REASONED]}, SUMMARY, False, "stop"),
        ({"output": [{"type": "function_call", "name": "f", "arguments": "{}"}]}, DELTA, True, "tool_calls"),
        ({"output": [], **CUT}, SUMMARY, False, "length"),
        (FILTERED, DELTA, True, "content_filter"),
    ],
)
def test_a_response_passes_whole_and_streamed(
    change: dict[str, Any], delta: dict[str, Any], has_answer: bool, finish: str
) -> None:
    """The last event of a stream waits for the usage."""
    head = {"id": "r", "object": "response", "status": "completed", "error": None, "output": [REASONED, SAID]}
    made = {**head, "model": "served-1", **change}
    reply = decode(msgspec.json.encode({**made, "usage": USED}), endpoint=E.RESPONSES)
    assert answered(reply.body) == {**made, "model": "auto"}
    done = {"type": f"response.{made['status']}", "sequence_number": 2}
    decoder = ADAPTER.stream(call(stream=True, endpoint=E.RESPONSES))
    assert decoder.feed(named(CREATED)) == named(CREATED | {"response": {"id": "r", "model": "auto"}})
    assert (decoder.feed(named(delta)), decoder.finished) == (named(delta), False)
    assert decoder.feed(named({**done, "response": {**made, "usage": USED}})) == b""
    assert (decoder.finished, decoder.output_chars) == (True, 2)
    for learned in (reply, decoder):
        assert (learned.usage, learned.has_answer, learned.finish_reason) == (COUNTED, has_answer, finish)
        assert learned.model_served == "served-1"
    final = {**made, "model": "auto", "usage": {"cost": 1}}
    assert decoder.final(b'{"cost":1}') == named({**done, "response": final})


@each_row(
    "event, kind",
    [
        (named({"type": "response.failed", "response": {"error": FAILED}}), K.RATE_LIMITED),
        (named({"type": "error", **FAILED}), K.RATE_LIMITED),
        (named({"type": "response.completed", "response": {"status": "cancelled"}}), K.SERVER_ERROR),
        (b'event: x\ndata: {"delta":"\xff"}\n\n', K.BAD_RESPONSE),
        (b'event: \xff\ndata: {"delta":"Hi"}\n\n', K.BAD_RESPONSE),
    ],
)
def test_a_responses_stream_that_fails_or_is_no_text_is_a_failure(event: bytes, kind: ErrorKind) -> None:
    decoder = ADAPTER.stream(call(stream=True, endpoint=E.RESPONSES))
    decoder.feed(named(CREATED))
    with fails(kind):
        decoder.feed(event)
