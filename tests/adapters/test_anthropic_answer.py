"""What a client gets for the Messages API's answers, whole and streamed; every case is told in both ways."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.anthropic import AnthropicAdapter
from router.errors import UpstreamFailure
from router.types.failure import ErrorKind
from router.types.target import Wire
from router.types.usage import Source, Usage
from tests.adapters.translated import answered, call, events, fed, message, sent

ADAPTER = AnthropicAdapter()
ASKED = call(Wire.ANTHROPIC)


@dataclass(frozen=True)
class Told:
    """One answer: its blocks with the pieces in which they are streamed, and both reports of usage."""

    blocks: tuple[tuple[dict[str, Any], tuple[dict[str, Any], ...]], ...]
    stop: dict[str, Any]
    start_usage: dict[str, Any]
    usage: dict[str, Any]
    choice: dict[str, Any]
    buckets: Usage
    has_answer: bool = True
    delta_usage: dict[str, Any] = field(default_factory=dict)
    """What the last report of a stream says; by default the same as `usage`."""

    def whole(self) -> bytes:
        content = [_filled(block, pieces) for block, pieces in self.blocks]
        fields = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-x-1", "content": content}
        return msgspec.json.format(msgspec.json.encode({**fields, **self.stop, "usage": self.usage}), indent=2)

    def stream(self) -> bytes:
        return b"".join(_frame(event) for event in self._events())

    def _events(self) -> Iterator[dict[str, Any]]:
        begun = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-x-1", "content": []}
        unstopped = {"stop_reason": None, "stop_sequence": None}
        yield {"type": "message_start", "message": {**begun, **unstopped, "usage": self.start_usage}}
        yield {"type": "ping"}
        for index, (block, pieces) in enumerate(self.blocks):
            yield {"type": "content_block_start", "index": index, "content_block": block}
            for piece in pieces:
                yield {"type": "content_block_delta", "index": index, "delta": piece}
            yield {"type": "content_block_stop", "index": index}
        yield {"type": "message_delta", "delta": self.stop, "usage": self.delta_usage or self.usage}
        yield {"type": "message_stop"}


def _frame(event: dict[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (event["type"].encode(), msgspec.json.encode(event))


def _filled(block: dict[str, Any], pieces: tuple[dict[str, Any], ...]) -> dict[str, Any]:
    """The block as it stands in a whole answer."""
    whole = dict(block)
    for piece in pieces:
        for name, value in piece.items():
            if name == "partial_json":
                whole["json"] = whole.get("json", "") + value
            elif name != "type":
                whole[name] = whole.get(name, "") + value
    if text := whole.pop("json", ""):
        whole["input"] = msgspec.json.decode(text)
    return whole


def text(*pieces: str) -> tuple[dict[str, Any], tuple[dict[str, Any], ...]]:
    return {"type": "text", "text": ""}, tuple({"type": "text_delta", "text": piece} for piece in pieces)


def thought(*pieces: str) -> tuple[dict[str, Any], tuple[dict[str, Any], ...]]:
    deltas = tuple({"type": "thinking_delta", "thinking": piece} for piece in pieces)
    return {"type": "thinking", "thinking": "", "signature": ""}, (
        *deltas,
        {"type": "signature_delta", "signature": "EqQB=="},
    )


def tool(identifier: str, name: str, *pieces: str) -> tuple[dict[str, Any], tuple[dict[str, Any], ...]]:
    block = {"type": "tool_use", "id": identifier, "name": name, "input": {}}
    return block, tuple({"type": "input_json_delta", "partial_json": piece} for piece in pieces)


PLAIN = {"input_tokens": 10, "output_tokens": 20}
START = {"input_tokens": 10, "output_tokens": 1}
END = {"stop_reason": "end_turn", "stop_sequence": None}
PLAIN_BUCKETS = Usage(input_uncached=10, output_visible=20)

TOLD = {
    "text": Told(
        (text("Hel", "lo ✓"),),
        END,
        START,
        PLAIN,
        {"content": "Hello ✓", "finish_reason": "stop"},
        PLAIN_BUCKETS,
    ),
    "U2: cache reads and writes by age": Told(
        (text("ok"),),
        {"stop_reason": "max_tokens", "stop_sequence": None},
        {
            "input_tokens": 4,
            "cache_creation_input_tokens": 300,
            "cache_read_input_tokens": 5_000,
            "cache_creation": {"ephemeral_5m_input_tokens": 100, "ephemeral_1h_input_tokens": 200},
            "output_tokens": 1,
        },
        {
            "input_tokens": 4,
            "cache_creation_input_tokens": 300,
            "cache_read_input_tokens": 5_000,
            "cache_creation": {"ephemeral_5m_input_tokens": 100, "ephemeral_1h_input_tokens": 200},
            "output_tokens": 7,
        },
        {"content": "ok", "finish_reason": "length"},
        Usage(input_uncached=4, cache_read=5_000, cache_write=100, cache_write_1h=200, output_visible=7),
        delta_usage={"output_tokens": 7},
    ),
    "U18: summarised thinking, counted in full": Told(
        (thought("Let me ", "see."), text("42")),
        END,
        START,
        {"input_tokens": 10, "output_tokens": 900, "output_tokens_details": {"thinking_tokens": 880}},
        {
            "content": "42",
            "reasoning_content": "Let me see.",
            "thinking_blocks": [{"type": "thinking", "thinking": "Let me see.", "signature": "EqQB=="}],
            "finish_reason": "stop",
        },
        Usage(input_uncached=10, output_visible=20, output_reasoning=880, reasoning_source=Source.REPORTED),
    ),
    "U18: redacted thinking, not counted": Told(
        (({"type": "redacted_thinking", "data": "Zm9v"}, ()), text("42")),
        END,
        START,
        PLAIN,
        {
            "content": "42",
            "thinking_blocks": [{"type": "redacted_thinking", "data": "Zm9v"}],
            "finish_reason": "stop",
        },
        PLAIN_BUCKETS,
    ),
    "an explicit zero is a fact": Told(
        (text("42"),),
        END,
        START,
        {**PLAIN, "output_tokens_details": {"thinking_tokens": 0}},
        {"content": "42", "finish_reason": "stop"},
        Usage(input_uncached=10, output_visible=20, output_reasoning=0, reasoning_source=Source.REPORTED),
    ),
    "parallel tools": Told(
        (text("Sure."), tool("t1", "weather", '{"city":', '"Bern"}'), tool("t2", "now", ""), tool("t3", "ping")),
        {"stop_reason": "tool_use", "stop_sequence": None},
        START,
        PLAIN,
        {
            "content": "Sure.",
            "tool_calls": [
                {"id": "t1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Bern"}'}},
                {"id": "t2", "type": "function", "function": {"name": "now", "arguments": "{}"}},
                {"id": "t3", "type": "function", "function": {"name": "ping", "arguments": "{}"}},
            ],
            "finish_reason": "tool_calls",
        },
        PLAIN_BUCKETS,
    ),
    "server tools pass unnoticed": Told(
        (
            ({"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "x"}}, ()),
            ({"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}, ()),
            text("Found."),
        ),
        {"stop_reason": "pause_turn", "stop_sequence": None},
        START,
        PLAIN,
        {"content": "Found.", "finish_reason": "stop"},
        PLAIN_BUCKETS,
    ),
    "refusal": Told(
        (),
        {
            "stop_reason": "refusal",
            "stop_sequence": None,
            "stop_details": {"type": "refusal", "category": "cyber", "explanation": "Not this."},
        },
        START,
        {"input_tokens": 10, "output_tokens": 2},
        {"refusal": "Not this.", "finish_reason": "content_filter"},
        Usage(input_uncached=10, output_visible=2),
    ),
    "U14: all thought, no answer": Told(
        (thought("Hm"),),
        {"stop_reason": "max_tokens", "stop_sequence": None},
        START,
        {"input_tokens": 10, "output_tokens": 200, "output_tokens_details": {"thinking_tokens": 199}},
        {
            "reasoning_content": "Hm",
            "thinking_blocks": [{"type": "thinking", "thinking": "Hm", "signature": "EqQB=="}],
            "finish_reason": "length",
        },
        Usage(input_uncached=10, output_visible=1, output_reasoning=199, reasoning_source=Source.REPORTED),
        has_answer=False,
    ),
    "iterations are summed": Told(
        (text("ok"),),
        END,
        START,
        {
            "input_tokens": 10,
            "output_tokens": 20,
            "iterations": [
                {"type": "compaction", "input_tokens": 700, "output_tokens": 50, "cache_read_input_tokens": 3},
                {"type": "message", "input_tokens": 10, "output_tokens": 20, "cache_creation_input_tokens": 5},
            ],
        },
        {"content": "ok", "finish_reason": "stop"},
        Usage(input_uncached=710, cache_read=3, cache_write=5, output_visible=70),
    ),
    "an iteration is missing": Told(
        (text("ok"),),
        END,
        START,
        {"input_tokens": 10, "output_tokens": 20, "iterations": [{"input_tokens": 10, "output_tokens": 5}]},
        {"content": "ok", "finish_reason": "stop"},
        Usage(input_uncached=10, output_visible=20, violations=("iterations sum to less than output_tokens",)),
    ),
    "more thinking than output": Told(
        (text("ok"),),
        END,
        START,
        {"input_tokens": 10, "output_tokens": 20, "output_tokens_details": {"thinking_tokens": 30}},
        {"content": "ok", "finish_reason": "stop"},
        Usage(
            input_uncached=10,
            output_visible=0,
            output_reasoning=30,
            reasoning_source=Source.REPORTED,
            violations=("thinking_tokens exceed output_tokens",),
        ),
    ),
    "more written to the cache by age than in all": Told(
        (text("ok"),),
        END,
        {**START, "cache_creation": {"ephemeral_5m_input_tokens": 5, "ephemeral_1h_input_tokens": 6}},
        {
            **PLAIN,
            "cache_creation_input_tokens": 8,
            "cache_creation": {"ephemeral_5m_input_tokens": 5, "ephemeral_1h_input_tokens": 6},
        },
        {"content": "ok", "finish_reason": "stop"},
        Usage(
            input_uncached=10,
            cache_write=5,
            cache_write_1h=6,
            output_visible=20,
            violations=("cache_creation exceeds cache_creation_input_tokens",),
        ),
    ),
}
CASES = pytest.mark.parametrize("told", TOLD.values(), ids=TOLD.keys())


@CASES
def test_whole_answer(told: Told) -> None:
    reply = ADAPTER.decode(ASKED, told.whole())
    body = answered(reply.body)
    choice = body["choices"][0]
    wanted = {"role": "assistant", "content": None, "refusal": None, **told.choice}
    assert {"finish_reason": choice["finish_reason"], **choice["message"]} == wanted
    assert (body["id"], body["object"], body["model"]) == ("msg_1", "chat.completion", "auto")
    assert "usage" not in body
    assert (reply.usage, reply.has_answer, reply.model_served) == (told.buckets, told.has_answer, "claude-x-1")
    assert reply.finish_reason == told.choice["finish_reason"]


@CASES
def test_stream_says_the_same(told: Told) -> None:
    decoder = ADAPTER.stream(ASKED)
    chunks = fed(decoder, told.stream())
    reasons = [choice["finish_reason"] for chunk in chunks for choice in chunk["choices"] if choice["finish_reason"]]
    whole = message(chunks)
    for name in ("tool_calls", "thinking_blocks"):
        assert [item.pop("index") for item in whole.get(name, [])] == list(range(len(whole.get(name, []))))
    wanted = {"role": "assistant", "content": "", **told.choice}
    assert {**whole, "finish_reason": reasons[0]} == wanted
    assert reasons == [told.choice["finish_reason"]]
    assert {(chunk["id"], chunk["object"], chunk["model"]) for chunk in chunks} == {
        ("msg_1", "chat.completion.chunk", "auto")
    }
    assert not any("usage" in chunk for chunk in chunks)
    assert decoder.finished
    assert (decoder.usage, decoder.has_answer, decoder.model_served) == (told.buckets, told.has_answer, "claude-x-1")
    assert decoder.finish_reason == reasons[0]


@given(told=st.sampled_from(list(TOLD.values())), data=st.data())
def test_bytes_may_arrive_cut_anywhere(told: Told, data: st.DataObject) -> None:
    stream = told.stream()
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=12))
    _same_as_whole(stream, cuts)


@CASES
def test_bytes_may_arrive_one_by_one(told: Told) -> None:
    stream = told.stream()
    _same_as_whole(stream, list(range(1, len(stream))))


def _same_as_whole(stream: bytes, cuts: list[int]) -> None:
    whole, pieces = ADAPTER.stream(ASKED), ADAPTER.stream(ASKED)
    assert _untimed(fed(pieces, stream, cuts)) == _untimed(fed(whole, stream))
    assert (pieces.usage, pieces.output_chars, pieces.finished) == (whole.usage, whole.output_chars, True)


def _untimed(chunks: list[Any]) -> list[Any]:
    return [{**chunk, "created": 0} for chunk in chunks]


@pytest.mark.parametrize("wanted", [True, False])
def test_closing(wanted: bool) -> None:
    decoder = ADAPTER.stream(call(Wire.ANTHROPIC, stream_usage=wanted))
    fed(decoder, TOLD["text"].stream())
    *chunks, done = events(decoder.final(b'{"prompt_tokens":10}'))
    assert done == "[DONE]"
    assert [(chunk["id"], chunk["choices"], chunk["usage"]) for chunk in chunks] == (
        [("msg_1", [], {"prompt_tokens": 10})] if wanted else []
    )


def test_thinking_survives_a_tool_round() -> None:
    """What the client got is what Anthropic gets back, signature and all."""
    told = Told(
        (thought("Look it up."), tool("t1", "weather", "{}")), {"stop_reason": "tool_use"}, START, PLAIN, {}, Usage()
    )
    whole = answered(ADAPTER.decode(ASKED, told.whole()).body)["choices"][0]["message"]
    for answer in (whole, message(fed(ADAPTER.stream(ASKED), told.stream()))):
        results = {"role": "tool", "tool_call_id": "t1", "content": "sunny"}
        body = sent(ADAPTER, call(Wire.ANTHROPIC, {"messages": [{"role": "user", "content": "?"}, answer, results]}))
        assert body["messages"][1]["content"] == [
            {"type": "thinking", "thinking": "Look it up.", "signature": "EqQB=="},
            {"type": "tool_use", "id": "t1", "name": "weather", "input": {}},
        ]


def test_cut_stream_bills_what_was_seen() -> None:
    """The output count of `message_start` is a placeholder: the text seen says more."""
    stream = TOLD["U2: cache reads and writes by age"].stream().replace(b'"ok"', b'"%b"' % (b"word " * 100))
    decoder = ADAPTER.stream(ASKED)
    fed(decoder, stream[: stream.index(b"event: message_delta")])
    assert not decoder.finished
    assert decoder.usage == Usage(
        input_uncached=4,
        cache_read=5_000,
        cache_write=100,
        cache_write_1h=200,
        output_visible=125,
        source=Source.ESTIMATED,
    )


def test_end_without_message_stop_is_no_end() -> None:
    stream = TOLD["text"].stream()
    decoder = ADAPTER.stream(ASKED)
    fed(decoder, stream[: stream.index(b"event: message_stop")])
    assert not decoder.finished


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        ("overloaded_error", ErrorKind.OVERLOADED),
        ("rate_limit_error", ErrorKind.RATE_LIMITED),
        ("api_error", ErrorKind.SERVER_ERROR),
        ("authentication_error", ErrorKind.AUTH),
        ("invalid_request_error", ErrorKind.BAD_REQUEST),
        ("new_error", ErrorKind.SERVER_ERROR),
    ],
)
def test_error_in_a_stream(kind: str, wanted: ErrorKind) -> None:
    stream = TOLD["text"].stream()
    error = _frame({"type": "error", "error": {"type": kind, "message": "Sorry"}, "request_id": "req_1"})
    decoder = ADAPTER.stream(ASKED)
    decoder.feed(stream[: stream.index(b"event: content_block_stop")])
    with pytest.raises(UpstreamFailure) as raised:
        decoder.feed(error)
    assert (raised.value.failure.kind, raised.value.failure.message) == (wanted, "Sorry")
    assert not decoder.finished
    assert decoder.usage is not None


@pytest.mark.parametrize(
    "payload",
    [b"{", b"[]", b'{"type":1}', b"\xff", b'{"type":"content_block_delta","index":7,"delta":{"type":"text_delta"}}'],
)
def test_broken_event(payload: bytes) -> None:
    with pytest.raises(UpstreamFailure) as raised:
        ADAPTER.stream(ASKED).feed(b"data: %b\n\n" % payload)
    assert raised.value.failure.kind is ErrorKind.BAD_RESPONSE


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[]", b'{"type":"message"}', b'{"content":[{"type":"text","text":1}]}']
)
def test_broken_answer(body: bytes) -> None:
    with pytest.raises(UpstreamFailure) as raised:
        ADAPTER.decode(ASKED, body)
    assert raised.value.failure.kind is ErrorKind.BAD_RESPONSE


@pytest.mark.parametrize("usage", [b'{"input_tokens":"many"}', b'{"output_tokens":1e400}', b"[]", b"null", b"{}"])
def test_unreadable_usage_is_unknown(usage: bytes) -> None:
    body = b'{"content":[{"type":"text","text":"Hi"}],"stop_reason":"end_turn","usage":%b}' % usage
    assert ADAPTER.decode(ASKED, body).usage is None


def test_failure_is_read_from_the_envelope() -> None:
    body = b'{"type":"error","error":{"type":"rate_limit_error","message":"Slow down"},"request_id":"r"}'
    failure = ADAPTER.failure(429, {"retry-after": "7"}, body)
    assert (failure.kind, failure.message, failure.retry_after_s) == (ErrorKind.RATE_LIMITED, "Slow down", 7.0)
