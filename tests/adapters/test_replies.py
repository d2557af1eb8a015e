"""What a client gets for Anthropic's and Gemini's answers, whole and streamed alike: rows of replies.yaml."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from router.types.attempt import UNREADABLE_USAGE, CountSource, ErrorKind, Usage
from router.types.target import Wire
from tests.adapters.calls import ADAPTERS, LEVELS, answered, call, claude, events, fails, fed, message, sent
from tests.tables import data, each_row

A, G, K = Wire.ANTHROPIC, Wire.GEMINI, ErrorKind
ASKED = {wire: call(wire=wire) for wire in (A, G)}
ID = {A: "msg_1", G: "resp1"}
REPORT: dict[Wire, dict[str, Any]] = {
    A: {"input_tokens": 10, "output_tokens": 20},
    G: {"promptTokenCount": 10, "candidatesTokenCount": 20, "totalTokenCount": 30},
}
BUCKETS = {
    A: Usage(input_uncached=10, output_visible=20),
    G: Usage(input_uncached=10, output_visible=20, output_reasoning=0, reasoning_source=CountSource.DERIVED),
}
ANTHROPIC = {"id": "msg_1", "type": "message", "role": "assistant", "model": "served-1-001"}


def anthropic(row: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The whole answer, and the events of its stream."""
    usage, stop = row.get("usage", REPORT[A]), row.get("stop", {"stop_reason": "end_turn", "stop_sequence": None})
    begun = {**ANTHROPIC, "content": [], "usage": row.get("start", {"input_tokens": 10, "output_tokens": 1})}
    content: list[dict[str, Any]] = []
    stream: list[dict[str, Any]] = [{"type": "message_start", "message": begun}, {"type": "ping"}]
    for index, (empty, full, deltas) in enumerate(map(block, row["blocks"])):
        content.append(full)
        stream.append({"type": "content_block_start", "index": index, "content_block": empty})
        stream += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        stream.append({"type": "content_block_stop", "index": index})
    stream.append({"type": "message_delta", "delta": stop, "usage": row.get("end", usage)})
    return {**ANTHROPIC, "content": content, **stop, "usage": usage}, [*stream, {"type": "message_stop"}]


def block(given: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]]]:
    """A block as a stream begins it, the whole block, and its deltas."""
    if "type" in given:
        return given, given, []
    ((kind, pieces),) = given.items()
    if kind == "tool":
        name, pieces = {"type": "tool_use", "id": pieces[0], "name": pieces[1]}, pieces[2:]
        arguments = msgspec.json.decode("".join(pieces) or "{}")
        deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
        return {**name, "input": {}}, {**name, "input": arguments}, deltas
    deltas = [{"type": f"{kind}_delta", kind: piece} for piece in pieces]
    if kind == "text":
        return {"type": kind, kind: ""}, {"type": kind, kind: "".join(pieces)}, deltas
    signed = {"type": kind, kind: "".join(pieces), "signature": "EqQB=="}
    return {**signed, kind: "", "signature": ""}, signed, [*deltas, {"type": "signature_delta", "signature": "EqQB=="}]


def gemini(row: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The usage is on every chunk and grows; the finish reason is on the last."""
    ending = {"finishReason": row.get("reason", "STOP")}
    if "finish_message" in row:
        ending["finishMessage"] = row["finish_message"]
    usage, (*first, last) = row.get("usage", REPORT[G]), row["chunks"]
    stream = [response(parts, {"promptTokenCount": 10, "totalTokenCount": 10}) for parts in first]
    whole = response([part for parts in row["chunks"] for part in parts], usage, **ending)
    return whole, [*stream, response(last, usage, **ending)]


def response(parts: list[Any], usage: dict[str, Any], **candidate: Any) -> dict[str, Any]:
    content = {"role": "model", **({"parts": parts} if parts else {})}
    head = {"modelVersion": "served-1-001", "responseId": "resp1"}
    return {"candidates": [{"content": content, "index": 0, **candidate}], "usageMetadata": usage, **head}


def written(row: dict[str, Any]) -> tuple[bytes, bytes]:
    """The answer as the provider writes it, whole and streamed."""
    whole, stream = (anthropic if row["wire"] == A else gemini)(row)
    return msgspec.json.format(msgspec.json.encode(whole), indent=2), framed(*stream)


def framed(*stream: dict[str, Any]) -> bytes:
    return b"".join(
        b"event: %b\ndata: %b\n\n" % (event["type"].encode(), msgspec.json.encode(event))
        if "type" in event
        else b"data: %b\r\n\r\n" % msgspec.json.encode(event)
        for event in stream
    )


ROWS = data(__file__, "replies.yaml")
TEXT = {Wire(row["wire"]): row for row in ROWS if row["name"] == "text"}
every_reply = each_row("row", ROWS, ids=lambda row: f"{row['wire']}: {row['name']}")
both_wires = each_row("wire", (A, G))


def buckets(row: dict[str, Any]) -> Usage:
    return msgspec.convert(row["buckets"], Usage) if "buckets" in row else BUCKETS[row["wire"]]


@every_reply
def test_whole_answer(row: dict[str, Any]) -> None:
    wire, client = row["wire"], row["client"]
    reply = ADAPTERS[wire].decode(ASKED[wire], written(row)[0])
    body = answered(reply.body)
    choice = body["choices"][0]
    wanted = {"role": "assistant", "content": None, "refusal": None, **client}
    assert {"finish_reason": choice["finish_reason"], **choice["message"]} == wanted
    assert (body["id"], body["object"], body["model"]) == (ID[wire], "chat.completion", "auto")
    assert "usage" not in body
    assert (reply.usage, reply.finish_reason) == (buckets(row), client["finish_reason"])
    assert (reply.has_answer, reply.model_served) == (row.get("has_answer", True), "served-1-001")


@every_reply
def test_stream_says_the_same_also_byte_by_byte(row: dict[str, Any]) -> None:
    assert check_stream(row, list(range(1, len(written(row)[1])))) == check_stream(row, [])


@given(row=st.sampled_from(ROWS), data=st.data())
def test_bytes_may_arrive_cut_anywhere(row: dict[str, Any], data: st.DataObject) -> None:
    places = data.draw(st.lists(st.integers(0, len(written(row)[1])), max_size=12))
    assert check_stream(row, places) == check_stream(row, [])


def check_stream(row: dict[str, Any], places: list[int]) -> int:
    """Its bytes arrive cut at these places; returns the characters that were counted."""
    wire, client = row["wire"], row["client"]
    decoder = ADAPTERS[wire].stream(call(wire=wire, stream_usage=bool(places)))
    chunks = fed(decoder, written(row)[1], places)
    assert (decoder.finished, decoder.usage) == (True, buckets(row))
    *ends, done = events(decoder.final(b'{"prompt_tokens":10}'))
    chunks += ends
    assert done == "[DONE]"
    counted = [(chunk["id"], chunk.pop("usage")) for chunk in chunks if not chunk["choices"]]
    assert counted == [(ID[wire], {"prompt_tokens": 10})] * bool(places), "where it was asked for"
    assert not any("usage" in chunk for chunk in chunks)
    reasons = [choice["finish_reason"] for chunk in chunks for choice in chunk["choices"]]
    whole = message(chunks)
    for name in ("tool_calls", "thinking_blocks"):
        assert [item.pop("index") for item in whole.get(name, [])] == list(range(len(whole.get(name, []))))
    assert {**whole, "finish_reason": reasons.pop()} == {"role": "assistant", "content": "", **client}
    assert not any(reasons)
    heads = {(chunk["id"], chunk["object"], chunk["model"]) for chunk in chunks}
    assert heads == {(ID[wire], "chat.completion.chunk", "auto")}
    assert (decoder.has_answer, decoder.model_served) == (row.get("has_answer", True), "served-1-001")
    assert decoder.finish_reason == client["finish_reason"]
    return decoder.output_chars


USED = {"type": "tool_use", "id": "t1", "name": "weather", "input": {}}
SIGNED = {"type": "thinking", "thinking": "Look it up.", "signature": "EqQB=="}
CALLED = {"name": "weather", "args": {"city": "Bern"}}
FIRST, AGAIN = (
    {"functionCall": each, "thoughtSignature": "c2ln"} for each in (CALLED, {"id": "call_resp1_0_0", **CALLED})
)


@each_row(
    "wire, reply, asked, turn",
    [
        (A, {"blocks": [{"thinking": ["Look it up."]}, {"tool": ["t1", "weather", "{}"]}]}, "messages", [SIGNED, USED]),
        (G, {"chunks": [[FIRST]]}, "contents", [AGAIN]),
    ],
)
def test_thinking_survives_a_round_of_tools(wire: Wire, reply: dict[str, Any], asked: str, turn: list[Any]) -> None:
    """What the client got is what the provider gets back, signature and all."""
    whole, stream = written({"wire": wire, **reply})
    first = answered(ADAPTERS[wire].decode(ASKED[wire], whole).body)["choices"][0]["message"]
    for spoken in (first, message(fed(ADAPTERS[wire].stream(ASKED[wire]), stream))):
        result = {"role": "tool", "tool_call_id": spoken["tool_calls"][0]["id"], "content": "sunny"}
        history = [{"role": "user", "content": "?"}, spoken, result]
        turns = sent(call({"messages": history}, wire=wire, thinking=LEVELS if wire is G else None))[asked]
        assert turns[1]["parts" if wire is G else "content"] == turn
        assert wire is A or turns[2]["parts"][0]["functionResponse"]["name"] == "weather"


HALVES = ("a", r"b \ud83d", r"\ude00 c", r"\ud83d", r"\ude00", r"d \\ud83d", "e")
EVENT = {
    Wire.OPENAI_COMPATIBLE: '{"choices":[{"index":0,"delta":{"content":"%s"}}]}',
    A: '{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"%s"}}',
    G: '{"candidates":[{"content":{"parts":[{"text":"%s"}]}}]}',
}


@each_row("wire", EVENT)
def test_an_emoji_of_which_two_events_have_half_each(wire: Wire) -> None:
    decoder = ADAPTERS[wire].stream(call(wire=wire))
    if wire is A:
        fed(decoder, framed({"type": "content_block_start", "index": 0, "content_block": {"type": "text"}}))
    chunks = [chunk for half in HALVES for chunk in fed(decoder, b"data: %b\n\n" % (EVENT[wire] % half).encode())]
    assert message(chunks)["content"] == r"ab 😀 c😀d \ud83de"


def test_a_cut_stream_of_anthropic_s_has_no_output_count() -> None:
    """The output count of `message_start` is a placeholder."""
    row = next(row for row in ROWS if row["name"] == "cache reads and writes by age")
    stream = written(row)[1]
    decoder = ADAPTERS[A].stream(ASKED[A])
    end, stop = stream.index(b"event: message_delta"), stream.index(b"event: message_stop")
    fed(decoder, stream[:end])
    assert not decoder.finished
    assert decoder.usage == msgspec.structs.replace(buckets(row), output_visible=1, source=CountSource.UNKNOWN)
    fed(decoder, stream[end:stop])
    assert not decoder.finished, "only message_stop is the end"


def test_several_candidates() -> None:
    """Each has its own text, calls and end; the stream ends when all have."""
    first = {"content": {"parts": [{"text": "a"}]}, "finishReason": "STOP", "index": 0}
    second = {"content": {"parts": [{"functionCall": {"name": "f"}}]}, "index": 1}
    decoder = ADAPTERS[G].stream(call(wire=G, n=2))
    chunks = fed(decoder, framed({"candidates": [first, second], "usageMetadata": REPORT[G]}))
    assert not decoder.finished
    chunks += fed(decoder, framed({"candidates": [{"index": 1, "finishReason": "STOP"}], "usageMetadata": REPORT[G]}))
    assert (decoder.finished, decoder.feed(b"data: [DONE]\n\n"), decoder.complete) == (True, b"", True)
    ends = [choice for end in events(decoder.final(b"{}"))[:-1] for choice in end["choices"]]
    assert [(end["index"], end["finish_reason"]) for end in ends] == [(0, "stop"), (1, "tool_calls")]
    assert message(chunks, 0) == {"role": "assistant", "content": "a"}
    whole = answered(ADAPTERS[G].decode(ASKED[G], msgspec.json.encode({"candidates": [first, second]})).body)
    assert [choice["index"] for choice in whole["choices"]] == [0, 1]
    assert whole["choices"][1]["message"]["tool_calls"][0]["id"] == message(chunks, 1)["tool_calls"][0]["id"]


def test_text_after_a_finish_reason_still_counts() -> None:
    """Some models repeat their finish reason on every chunk."""
    decoder = ADAPTERS[G].stream(ASKED[G])
    chunks = fed(decoder, framed(*(response([{"text": text}], REPORT[G], finishReason="STOP") for text in "ab")))
    assert message(chunks)["content"] == "ab"
    assert len(events(decoder.final(b"{}"))) == 2


def test_logprobs() -> None:
    chosen, other = {"token": "é", "logprob": -0.5, "bytes": [195, 169]}, {"token": "e", "logprob": 0.0, "bytes": [101]}
    result = {
        "chosenCandidates": [{"token": "é", "tokenId": 7, "logProbability": -0.5}],
        "topCandidates": [{"candidates": [{"token": "é", "logProbability": -0.5}, {"token": "e"}]}],
    }
    body = response([{"text": "é"}], REPORT[G], finishReason="STOP", logprobsResult=result)
    whole = answered(ADAPTERS[G].decode(ASKED[G], msgspec.json.encode(body)).body)["choices"]
    for choice in (*whole, *fed(ADAPTERS[G].stream(ASKED[G]), framed(body))[0]["choices"]):
        assert choice["logprobs"] == {"content": [{**chosen, "top_logprobs": [chosen, other]}], "refusal": None}


TYPES = {"overloaded_error": K.OVERLOADED, "rate_limit_error": K.RATE_LIMITED, "api_error": K.SERVER_ERROR}
TYPES |= {"authentication_error": K.AUTH, "invalid_request_error": K.BAD_REQUEST, "new_error": K.SERVER_ERROR}
CODES = [(503, "UNAVAILABLE", K.OVERLOADED), (429, "RESOURCE_EXHAUSTED", K.RATE_LIMITED)]
CODES += [(500, "INTERNAL", K.SERVER_ERROR), (400, "INVALID_ARGUMENT", K.BAD_REQUEST)]


@each_row(
    "wire, error, kind",
    [
        *((A, {"type": name}, kind) for name, kind in TYPES.items()),
        *((G, {"code": code, "status": status}, kind) for code, status, kind in CODES),
    ],
)
def test_error_in_a_stream(wire: Wire, error: dict[str, Any], kind: ErrorKind) -> None:
    _, begun = anthropic(TEXT[A]) if wire is A else gemini(TEXT[G])
    decoder = ADAPTERS[wire].stream(ASKED[wire])
    decoder.feed(framed(*begun[:5]) if wire is A else framed(begun[0]))
    event = {"error": {**error, "message": "Sorry"}} | ({"type": "error", "request_id": "req_1"} if wire is A else {})
    with fails(kind, "Sorry"):
        decoder.feed(framed(event))
    assert not decoder.finished
    assert decoder.usage is not None


LOST = b'{"type":"content_block_delta","index":7,"delta":{"type":"text_delta"}}'
EVENTS = {A: [b"{", b"[]", b'{"type":1}', b"\xff", LOST], G: [b"{", b"[]", b'{"candidates":1}', b"\xff"]}
ANSWERS = {
    A: [b"", b"<html>", b"[]", b'{"type":"message"}', b'{"content":[{"type":"text","text":1}]}'],
    G: [b"{", b"[]", b'{"candidates":1}', b"\xff", b'{"usageMetadata":{}}', b'{"candidates":[{}]}'],
}


@both_wires
def test_broken_events_and_answers_are_bad_responses(wire: Wire) -> None:
    for event in EVENTS[wire]:
        with fails(K.BAD_RESPONSE):
            ADAPTERS[wire].stream(ASKED[wire]).feed(b"data: %b\n\n" % event)
    for body in ANSWERS[wire]:
        with fails(K.BAD_RESPONSE):
            ADAPTERS[wire].decode(ASKED[wire], body)


def test_an_error_of_gemini_s_and_a_prompt_that_it_blocks() -> None:
    with fails(K.SERVER_ERROR):
        ADAPTERS[G].decode(ASKED[G], b'{"candidates":[{"finishReason":"STOP"}],"error":{"message":"dead"}}')
    body = msgspec.json.encode({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": REPORT[G]})
    with fails(K.CONTENT_FILTER, "PROHIBITED_CONTENT"):
        ADAPTERS[G].decode(ASKED[G], body)
    with fails(K.CONTENT_FILTER, "PROHIBITED_CONTENT"):
        ADAPTERS[G].stream(ASKED[G]).feed(b"data: %b\n\n" % body)


@both_wires
@each_row("usage", [b'{"%b":"many"}', b'{"%b":1e400}', b"[]", b"null", b"{}"])
def test_unreadable_usage_is_unknown_and_marked(wire: Wire, usage: bytes) -> None:
    whole, _ = written({**TEXT[wire], "usage": "USAGE"})
    counter = b"output_tokens" if wire is A else b"promptTokenCount"
    body = whole.replace(b'"USAGE"', usage % counter if b"%b" in usage else usage)
    decoded = ADAPTERS[wire].decode(ASKED[wire], body).usage
    assert (decoded and decoded.violations) == (None if usage in (b"null", b"{}") else (UNREADABLE_USAGE,))


def last(usage: dict[str, Any]) -> bytes:
    return framed({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage})


@each_row("stated, region", [("us", "us"), ("global", "global"), ("not_available", ""), (None, "")])
def test_claude_s_word_on_the_region_is_read(stated: str | None, region: str) -> None:
    usage = {"input_tokens": 3, "output_tokens": 2} | ({} if stated is None else {"inference_geo": stated})
    whole = {"id": "m", "model": "c", "stop_reason": "end_turn", "content": [], "usage": usage}
    assert ADAPTERS[A].decode(claude("us"), msgspec.json.encode(whole)).region_served == region
    decoder = ADAPTERS[A].stream(claude("us"))
    for event in (framed({"type": "message_start", "message": whole}), last({"output_tokens": 5})):
        decoder.feed(event)
        assert decoder.region_served == region
    decoder.feed(last({"output_tokens": 5, "inference_geo": "eu"}))
    assert decoder.region_served == "eu", "the last word counts"
