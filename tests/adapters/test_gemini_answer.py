"""What a client gets for Gemini's answers, whole and streamed; every case is told in both ways."""

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.gemini import GeminiAdapter
from router.errors import UpstreamFailure
from router.types.failure import ErrorKind
from router.types.target import Wire
from router.types.usage import Source, Usage
from tests.adapters.translated import LEVELS, answered, call, events, fed, message, sent

ADAPTER = GeminiAdapter()
ASKED = call(Wire.GEMINI)
PROMPT = {"promptTokenCount": 10, "totalTokenCount": 10}


@dataclass(frozen=True)
class Told:
    """One answer: the parts in the pieces in which they are streamed, and the report of usage."""

    pieces: tuple[list[dict[str, Any]], ...]
    usage: dict[str, Any]
    choice: dict[str, Any]
    buckets: Usage
    reason: str = "STOP"
    has_answer: bool = True
    finish_message: str | None = None

    def whole(self) -> bytes:
        """Gemini writes whole answers with line breaks; neighbouring texts stand in one part."""
        parts = [part for piece in self.pieces for part in piece]
        return msgspec.json.format(msgspec.json.encode(self._response(parts, self.reason, self.usage)), indent=2)

    def stream(self) -> bytes:
        """`usageMetadata` is on every chunk and grows; the finish reason is on the last."""
        *first, last = self.pieces
        chunks = [self._response(piece, "", PROMPT) for piece in first]
        return b"".join(_frame(chunk) for chunk in [*chunks, self._response(last, self.reason, self.usage)])

    def _response(self, parts: list[dict[str, Any]], reason: str, usage: dict[str, Any]) -> dict[str, Any]:
        ending = {"finishReason": reason} if reason else {}
        if reason and self.finish_message:
            ending["finishMessage"] = self.finish_message
        content = {"content": {"role": "model", "parts": parts}} if parts else {"content": {"role": "model"}}
        return {
            "candidates": [{**content, **ending, "index": 0}],
            "usageMetadata": usage,
            "modelVersion": "gemini-x-001",
            "responseId": "resp1",
        }


def _frame(payload: dict[str, Any]) -> bytes:
    return b"data: %b\r\n\r\n" % msgspec.json.encode(payload)


def text(said: str) -> dict[str, Any]:
    return {"text": said}


PLAIN = {"promptTokenCount": 10, "candidatesTokenCount": 20, "totalTokenCount": 30}
PLAIN_BUCKETS = Usage(input_uncached=10, output_visible=20, output_reasoning=0, reasoning_source=Source.DERIVED)
OK = {"content": "ok", "finish_reason": "stop"}

TOLD = {
    "text": Told(
        ([text("Hel")], [text("lo ✓")]), PLAIN, {"content": "Hello ✓", "finish_reason": "stop"}, PLAIN_BUCKETS
    ),
    "U3: cached input is inside the prompt": Told(
        ([text("ok")],),
        {
            "promptTokenCount": 5_000,
            "cachedContentTokenCount": 4_800,
            "candidatesTokenCount": 20,
            "totalTokenCount": 5_020,
        },
        OK,
        Usage(
            input_uncached=200,
            cache_read=4_800,
            output_visible=20,
            output_reasoning=0,
            reasoning_source=Source.DERIVED,
        ),
    ),
    "U12: thoughts are outside the candidates": Told(
        ([{"text": "Let me ", "thought": True}], [{"text": "see.", "thought": True}, text("4")], [text("2")]),
        {"promptTokenCount": 10, "candidatesTokenCount": 20, "thoughtsTokenCount": 900, "totalTokenCount": 930},
        {"content": "42", "reasoning_content": "Let me see.", "finish_reason": "stop"},
        Usage(input_uncached=10, output_visible=20, output_reasoning=900, reasoning_source=Source.REPORTED),
    ),
    "thoughts that only the total shows": Told(
        ([text("ok")],),
        {"promptTokenCount": 10, "candidatesTokenCount": 20, "totalTokenCount": 130},
        OK,
        Usage(input_uncached=10, output_visible=20, output_reasoning=100, reasoning_source=Source.DERIVED),
    ),
    "no total, no thoughts: unknown": Told(
        ([text("ok")],),
        {"promptTokenCount": 10, "candidatesTokenCount": 20},
        OK,
        Usage(input_uncached=10, output_visible=20),
    ),
    "tool use is input": Told(
        ([text("ok")],),
        {
            "promptTokenCount": 10,
            "toolUsePromptTokenCount": 70,
            "candidatesTokenCount": 20,
            "thoughtsTokenCount": 5,
            "totalTokenCount": 105,
        },
        OK,
        Usage(input_uncached=80, output_visible=20, output_reasoning=5, reasoning_source=Source.REPORTED),
    ),
    "audio": Told(
        ([text("ok")],),
        {
            "promptTokenCount": 100,
            "cachedContentTokenCount": 30,
            "candidatesTokenCount": 20,
            "totalTokenCount": 120,
            "promptTokensDetails": [
                {"modality": "TEXT", "tokenCount": 40},
                {"modality": "AUDIO", "tokenCount": 60},
            ],
            "cacheTokensDetails": [{"modality": "AUDIO", "tokenCount": 30}],
            "candidatesTokensDetails": [{"modality": "AUDIO", "tokenCount": 5}],
        },
        OK,
        Usage(
            input_uncached=40,
            cache_read_audio=30,
            input_audio=30,
            output_visible=15,
            output_audio=5,
            output_reasoning=0,
            reasoning_source=Source.DERIVED,
        ),
    ),
    "the total is larger than its parts": Told(
        ([text("ok")],),
        {"promptTokenCount": 10, "candidatesTokenCount": 20, "thoughtsTokenCount": 5, "totalTokenCount": 50},
        OK,
        Usage(
            input_uncached=10,
            output_visible=35,
            output_reasoning=5,
            reasoning_source=Source.REPORTED,
            violations=("totalTokenCount is not the sum of its parts",),
        ),
    ),
    "the total leaves the thoughts out": Told(
        ([text("ok")],),
        {"promptTokenCount": 10, "candidatesTokenCount": 20, "thoughtsTokenCount": 5, "totalTokenCount": 30},
        OK,
        Usage(
            input_uncached=10,
            output_visible=20,
            output_reasoning=5,
            reasoning_source=Source.REPORTED,
            violations=("totalTokenCount is not the sum of its parts",),
        ),
    ),
    "more cached than prompted": Told(
        ([text("ok")],),
        {"promptTokenCount": 10, "cachedContentTokenCount": 15, "candidatesTokenCount": 20, "totalTokenCount": 30},
        OK,
        Usage(
            cache_read=15,
            output_visible=20,
            output_reasoning=0,
            reasoning_source=Source.DERIVED,
            violations=("cachedContentTokenCount exceeds promptTokenCount",),
        ),
    ),
    "parallel calls": Told(
        (
            [
                text("Sure."),
                {"functionCall": {"name": "weather", "args": {"city": "Bern"}}, "thoughtSignature": "c2ln"},
            ],
            [{"functionCall": {"id": "fc-2", "name": "now", "args": {}}}, {"functionCall": {"name": "ping"}}],
        ),
        PLAIN,
        {
            "content": "Sure.",
            "tool_calls": [
                {
                    "id": "call_resp1_0_0",
                    "type": "function",
                    "function": {"name": "weather", "arguments": '{"city":"Bern"}'},
                    "extra_content": {"google": {"thought_signature": "c2ln"}},
                },
                {"id": "fc-2", "type": "function", "function": {"name": "now", "arguments": "{}"}},
                {"id": "call_resp1_0_2", "type": "function", "function": {"name": "ping", "arguments": "{}"}},
            ],
            "finish_reason": "tool_calls",
        },
        PLAIN_BUCKETS,
    ),
    "U14: all thought, no answer": Told(
        ([],),
        {"promptTokenCount": 10, "thoughtsTokenCount": 199, "totalTokenCount": 209},
        {"finish_reason": "length"},
        Usage(input_uncached=10, output_reasoning=199, reasoning_source=Source.REPORTED),
        reason="MAX_TOKENS",
        has_answer=False,
    ),
    "stopped by a filter": Told(
        ([text("So")], []),
        PLAIN,
        {"content": "So", "refusal": "Recited.", "finish_reason": "content_filter"},
        PLAIN_BUCKETS,
        reason="RECITATION",
        finish_message="Recited.",
    ),
    "malformed call": Told(
        ([],),
        {"promptTokenCount": 10, "totalTokenCount": 10},
        {"refusal": "Malformed function call: x(", "finish_reason": "stop"},
        Usage(input_uncached=10, output_reasoning=0, reasoning_source=Source.DERIVED),
        reason="MALFORMED_FUNCTION_CALL",
        has_answer=False,
        finish_message="Malformed function call: x(",
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
    assert (body["id"], body["object"], body["model"]) == ("resp1", "chat.completion", "auto")
    assert "usage" not in body
    assert (reply.usage, reply.has_answer, reply.model_served) == (told.buckets, told.has_answer, "gemini-x-001")
    assert reply.finish_reason == told.choice["finish_reason"]


@CASES
def test_stream_says_the_same(told: Told) -> None:
    decoder = ADAPTER.stream(ASKED)
    chunks = fed(decoder, told.stream())
    assert decoder.finished
    assert (decoder.usage, decoder.has_answer, decoder.model_served) == (told.buckets, told.has_answer, "gemini-x-001")
    assert not any("usage" in chunk for chunk in chunks)
    *ends, done = events(decoder.final(b"{}"))
    reasons = [choice["finish_reason"] for chunk in chunks + ends for choice in chunk["choices"]]
    whole = message(chunks + ends)
    calls = whole.get("tool_calls", [])
    assert [item.pop("index") for item in calls] == list(range(len(calls)))
    assert {**whole, "finish_reason": reasons.pop()} == {"role": "assistant", "content": "", **told.choice}
    assert not any(reasons)
    assert done == "[DONE]"
    assert {(chunk["id"], chunk["object"], chunk["model"]) for chunk in chunks + ends} == {
        ("resp1", "chat.completion.chunk", "auto")
    }
    assert decoder.finish_reason == told.choice["finish_reason"]


@given(told=st.sampled_from(list(TOLD.values())), data=st.data())
def test_bytes_may_arrive_cut_anywhere(told: Told, data: st.DataObject) -> None:
    stream = told.stream()
    _same_as_whole(stream, data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))


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


def test_closing_with_usage() -> None:
    decoder = ADAPTER.stream(call(Wire.GEMINI, stream_usage=True))
    fed(decoder, TOLD["text"].stream())
    finish, usage, done = events(decoder.final(b'{"prompt_tokens":10}'))
    assert finish["choices"][0]["finish_reason"] == "stop"
    assert (usage["choices"], usage["usage"], done) == ([], {"prompt_tokens": 10}, "[DONE]")


def test_several_candidates() -> None:
    """Each has its own text, calls and end; the stream ends when all have."""
    first = {"content": {"parts": [text("a")]}, "finishReason": "STOP", "index": 0}
    second = {"content": {"parts": [{"functionCall": {"name": "f"}}]}, "index": 1}
    chunks = [
        {"candidates": [first, second], "usageMetadata": PLAIN},
        {"candidates": [{"index": 1, "finishReason": "STOP"}], "usageMetadata": PLAIN},
    ]
    decoder = ADAPTER.stream(call(Wire.GEMINI, n=2))
    seen = fed(decoder, _frame(chunks[0]))
    assert not decoder.finished
    seen += fed(decoder, _frame(chunks[1]))
    assert decoder.finished
    *ends, _ = events(decoder.final(b"{}"))
    assert [(end["choices"][0]["index"], end["choices"][0]["finish_reason"]) for end in ends] == [
        (0, "stop"),
        (1, "tool_calls"),
    ]
    assert message(seen, 0) == {"role": "assistant", "content": "a"}
    whole = answered(ADAPTER.decode(ASKED, msgspec.json.encode({"candidates": [first, second]})).body)
    assert [choice["index"] for choice in whole["choices"]] == [0, 1]
    assert whole["choices"][1]["message"]["tool_calls"][0]["id"] == message(seen, 1)["tool_calls"][0]["id"]


def test_text_after_a_finish_reason_still_counts() -> None:
    """Some models repeat their finish reason on every chunk."""
    stream = b"".join(
        _frame({"candidates": [{"content": {"parts": [text(said)]}, "finishReason": "STOP"}], "usageMetadata": PLAIN})
        for said in ("a", "b")
    )
    decoder = ADAPTER.stream(ASKED)
    chunks = fed(decoder, stream)
    assert message(chunks)["content"] == "ab"
    assert len(events(decoder.final(b"{}"))) == 2


def test_logprobs() -> None:
    result = {
        "chosenCandidates": [{"token": "é", "tokenId": 7, "logProbability": -0.5}],
        "topCandidates": [{"candidates": [{"token": "é", "logProbability": -0.5}, {"token": "e"}]}],
    }
    wanted = {
        "content": [
            {
                "token": "é",
                "logprob": -0.5,
                "bytes": [195, 169],
                "top_logprobs": [
                    {"token": "é", "logprob": -0.5, "bytes": [195, 169]},
                    {"token": "e", "logprob": 0.0, "bytes": [101]},
                ],
            }
        ],
        "refusal": None,
    }
    body = {
        "candidates": [{"content": {"parts": [text("é")]}, "finishReason": "STOP", "logprobsResult": result}],
        "usageMetadata": PLAIN,
    }
    whole = answered(ADAPTER.decode(ASKED, msgspec.json.encode(body)).body)
    assert whole["choices"][0]["logprobs"] == wanted
    assert fed(ADAPTER.stream(ASKED), _frame(body))[0]["choices"][0]["logprobs"] == wanted


def test_signature_survives_a_tool_round() -> None:
    """What the client got is what Gemini gets back."""
    told = Told(
        ([{"functionCall": {"name": "weather", "args": {"city": "Bern"}}, "thoughtSignature": "c2ln"}],),
        PLAIN,
        {},
        Usage(),
    )
    whole = answered(ADAPTER.decode(ASKED, told.whole()).body)["choices"][0]["message"]
    for answer in (whole, message(fed(ADAPTER.stream(ASKED), told.stream()))):
        result = {"role": "tool", "tool_call_id": answer["tool_calls"][0]["id"], "content": "sunny"}
        messages = [{"role": "user", "content": "?"}, answer, result]
        body = sent(ADAPTER, call(Wire.GEMINI, {"messages": messages}, thinking=LEVELS))
        function = {"id": "call_resp1_0_0", "name": "weather", "args": {"city": "Bern"}}
        assert body["contents"][1]["parts"] == [{"functionCall": function, "thoughtSignature": "c2ln"}]
        assert body["contents"][2]["parts"][0]["functionResponse"]["name"] == "weather"


def test_cut_stream_keeps_the_last_count() -> None:
    first = {"candidates": [{"content": {"parts": [text("Once")]}}], "usageMetadata": PLAIN}
    decoder = ADAPTER.stream(ASKED)
    fed(decoder, _frame(first))
    assert not decoder.finished
    assert decoder.usage == PLAIN_BUCKETS
    assert decoder.output_chars == 4


@pytest.mark.parametrize(
    ("code", "status", "wanted"),
    [
        (503, "UNAVAILABLE", ErrorKind.OVERLOADED),
        (429, "RESOURCE_EXHAUSTED", ErrorKind.RATE_LIMITED),
        (500, "INTERNAL", ErrorKind.SERVER_ERROR),
        (400, "INVALID_ARGUMENT", ErrorKind.BAD_REQUEST),
    ],
)
def test_error_in_a_stream(code: int, status: str, wanted: ErrorKind) -> None:
    decoder = ADAPTER.stream(ASKED)
    decoder.feed(_frame({"candidates": [{"content": {"parts": [text("a")]}}]}))
    with pytest.raises(UpstreamFailure) as raised:
        decoder.feed(_frame({"error": {"code": code, "message": "Sorry", "status": status}}))
    assert (raised.value.failure.kind, raised.value.failure.message) == (wanted, "Sorry")
    assert not decoder.finished


def test_blocked_prompt_is_filtered_content() -> None:
    body = msgspec.json.encode({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": PROMPT})
    with pytest.raises(UpstreamFailure) as whole:
        ADAPTER.decode(ASKED, body)
    with pytest.raises(UpstreamFailure) as streamed:
        ADAPTER.stream(ASKED).feed(b"data: %b\n\n" % body)
    assert whole.value.failure == streamed.value.failure
    assert whole.value.failure.kind is ErrorKind.CONTENT_FILTER
    assert "PROHIBITED_CONTENT" in whole.value.failure.message


@pytest.mark.parametrize("payload", [b"{", b"[]", b'{"candidates":1}', b"\xff"])
def test_broken_payload(payload: bytes) -> None:
    with pytest.raises(UpstreamFailure) as whole:
        ADAPTER.decode(ASKED, payload)
    with pytest.raises(UpstreamFailure) as streamed:
        ADAPTER.stream(ASKED).feed(b"data: %b\n\n" % payload)
    assert whole.value.failure.kind is streamed.value.failure.kind is ErrorKind.BAD_RESPONSE


def test_answer_without_candidates() -> None:
    with pytest.raises(UpstreamFailure) as raised:
        ADAPTER.decode(ASKED, b'{"usageMetadata":{}}')
    assert raised.value.failure.kind is ErrorKind.BAD_RESPONSE


@pytest.mark.parametrize(
    "usage", [b'{"promptTokenCount":"many"}', b'{"promptTokenCount":1e400}', b"[]", b"null", b"{}"]
)
def test_unreadable_usage_is_unknown(usage: bytes) -> None:
    body = b'{"candidates":[{"content":{"parts":[{"text":"Hi"}]},"finishReason":"STOP"}],"usageMetadata":%b}' % usage
    assert ADAPTER.decode(ASKED, body).usage is None


def test_failure_is_read_from_the_envelope() -> None:
    info = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "7s"}
    error = {"code": 429, "message": "Quota", "status": "RESOURCE_EXHAUSTED", "details": [info]}
    failure = ADAPTER.failure(429, {}, msgspec.json.encode({"error": error}))
    assert (failure.kind, failure.message, failure.retry_after_s) == (ErrorKind.RATE_LIMITED, "Quota", 7.0)
