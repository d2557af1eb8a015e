"""Chat with the official Python client: whatever it can send arrives, whatever it can read it gets."""

import asyncio
from typing import Any

import msgspec
import openai
import pytest
from msgspec import Raw
from pydantic import BaseModel

from tests.gateway.running import MESSAGES, Gateway, until, usd
from tests.upstream import EMBEDDING, REFUSAL, TEXT, Upstream
from tests.upstream.openai_text import VECTOR

HELLO = "".join(TEXT)
NORMAL_NANO = 20 * 1_000 + 10 * 2_000
PIXEL = "data:image/png;base64,iVBORw0KGgo/+A=="
IMAGES: list[Any] = [
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "Was ist das? 🖼"},
            {"type": "image_url", "image_url": {"url": PIXEL, "detail": "low"}},
            {"type": "image_url", "image_url": {"url": "https://example.org/ä.png"}},
        ],
    }
]


class Weather(BaseModel):
    """Tells the weather."""

    city: str
    days: int


class Climate(BaseModel):
    """Tells the climate."""

    city: str


def sent(data: bytes) -> dict[str, bytes]:
    """The fields of a body, as bytes."""
    return {name: bytes(raw) for name, raw in msgspec.json.decode(data, type=dict[str, Raw]).items()}


def test_raw_responses_show_the_headers(client: openai.OpenAI, gateway: Gateway) -> None:
    raw = client.chat.completions.with_raw_response.create(model="auto", messages=MESSAGES)
    answer, headers = raw.parse(), raw.headers
    assert answer.choices[0].message.content == HELLO
    row = gateway.row(headers["x-request-id"])
    assert raw.request_id == answer._request_id == headers["x-lowpass-decision"] == row["id"]
    shown = {name: value for name, value in headers.items() if name.startswith("x-lowpass-")}
    assert shown == {
        "x-lowpass-decision": row["id"],
        "x-lowpass-model": "chat/normal",
        "x-lowpass-class": row["data_class"],
        "x-lowpass-difficulty": f"{row['difficulty']:.3f}",
        "x-lowpass-thinking": "none",
        "x-lowpass-cost-usd": "0.00004",
    }
    assert headers["content-type"] == "application/json"
    with client.chat.completions.with_streaming_response.create(model="auto", messages=MESSAGES, stream=True) as stream:
        streamed = {name for name in stream.headers if name.startswith("x-lowpass-")}
        assert stream.headers["content-type"].startswith("text/event-stream")
        assert "".join(chunk.choices[0].delta.content or "" for chunk in stream.parse()) == HELLO
    assert streamed == shown.keys() - {"x-lowpass-cost-usd"}


def test_many_at_once(run: Any, gateway: Gateway) -> None:
    async def ask(client: openai.AsyncOpenAI, stream: bool) -> str:
        if not stream:
            answer = await client.chat.completions.create(model="chat/normal", messages=MESSAGES)
            return answer.choices[0].message.content or ""
        chunks = await client.chat.completions.create(model="chat/normal", messages=MESSAGES, stream=True)
        return "".join([chunk.choices[0].delta.content or "" async for chunk in chunks])

    async def work(client: openai.AsyncOpenAI) -> list[str]:
        return await asyncio.gather(*(ask(client, bool(number % 2)) for number in range(32)))

    assert run(work) == [HELLO] * 32


def test_the_streaming_helper(client: openai.OpenAI) -> None:
    options: Any = {"stream_options": {"include_usage": True}}
    with client.chat.completions.stream(model="chat/normal", messages=MESSAGES, **options) as stream:
        deltas = [event.delta for event in stream if event.type == "content.delta"]
        final = stream.get_final_completion()
    assert "".join(deltas) == final.choices[0].message.content == HELLO
    assert final.usage is not None
    assert final.usage.to_dict()["cost"] == usd(NORMAL_NANO)
    assert (final.model, final.choices[0].finish_reason) == ("chat/normal", "stop")


def test_a_pydantic_model_comes_back(client: openai.OpenAI, upstream: Upstream, run: Any) -> None:
    wanted = Weather(city="Köln", days=7)
    parsed = client.chat.completions.parse(model="chat/schema", messages=MESSAGES, response_format=Weather)
    assert parsed.choices[0].message.parsed == wanted
    assert upstream.last.json["response_format"]["json_schema"]["strict"] is True
    with client.chat.completions.stream(model="chat/schema", messages=MESSAGES, response_format=Weather) as stream:
        assert stream.get_final_completion().choices[0].message.parsed == wanted

    async def work(client: openai.AsyncOpenAI) -> Weather | None:
        answer = await client.chat.completions.parse(model="chat/schema", messages=MESSAGES, response_format=Weather)
        return answer.choices[0].message.parsed

    assert run(work) == wanted


def test_a_refusal_is_no_answer(client: openai.OpenAI) -> None:
    answer = client.chat.completions.parse(model="chat/refusal", messages=MESSAGES, response_format=Weather)
    message = answer.choices[0].message
    assert (message.parsed, message.content, message.refusal) == (None, None, "".join(REFUSAL))


def test_tools_are_called_in_parallel_and_their_results_sent_back(client: openai.OpenAI, upstream: Upstream) -> None:
    tools = [openai.pydantic_function_tool(Weather), openai.pydantic_function_tool(Climate)]
    asked: dict[str, Any] = {"model": "chat/parallel-tools", "messages": MESSAGES, "tools": tools}
    answer = client.chat.completions.parse(**asked, parallel_tool_calls=True)
    with client.chat.completions.stream(**asked) as stream:
        streamed = stream.get_final_completion()
    for one in (answer, streamed):
        calls = one.choices[0].message.tool_calls or []
        assert [call.function.parsed_arguments for call in calls] == [
            Weather(city="Köln", days=7),
            Climate(city="Köln"),
        ]
        assert [call.id for call in calls] == ["call_0", "call_1"]
        assert one.choices[0].finish_reason == "tool_calls"
    results = [{"role": "tool", "tool_call_id": f"call_{at}", "content": "{}"} for at in range(2)]
    turns: Any = [*MESSAGES, answer.choices[0].message.to_dict(), *results]
    raw = client.chat.completions.with_raw_response.create(model="chat/normal", messages=turns, tools=tools)
    mine, theirs = sent(raw.http_request.content), sent(upstream.last.body)
    assert (theirs["messages"], theirs["tools"]) == (mine["messages"], mine["tools"])


def test_what_the_client_sends_arrives_byte_by_byte(client: openai.OpenAI, upstream: Upstream) -> None:
    raw = client.chat.completions.with_raw_response.create(
        model="native/normal",
        messages=IMAGES,
        stop=["\n\n", "ENDE"],
        seed=2**40,
        temperature=0.1,
        top_p=0.95,
        logit_bias={"50256": -100},
        metadata={"session_id": "s1"},
        user="u-1",
        prediction={"type": "content", "content": "x"},
        extra_body={"vendor_option": {"deep": [1, 2.50, None]}, "top_k": 40, "guided": "é\u2028"},
        extra_headers={"x-lowpass-tags": "blue,green"},
    )
    mine, theirs = sent(raw.http_request.content), sent(upstream.last.body)
    assert theirs.pop("model") == b'"normal"'
    assert mine.pop("model") == b'"native/normal"'
    assert theirs == mine
    assert upstream.last.headers["authorization"] == "Bearer sk-upstream"
    assert not [name for name in upstream.last.headers if name.startswith("x-lowpass-")]


def test_headers_and_metadata_reach_the_row(client: openai.OpenAI, gateway: Gateway) -> None:
    raw = client.chat.completions.with_raw_response.create(
        model="auto", messages=MESSAGES, metadata={"session_id": "s1"}, extra_headers={"x-lowpass-tags": "blue,green"}
    )
    row = gateway.row(raw.headers["x-request-id"])
    assert (row["session"], row["tags"], row["requested"], row["route"]) == ("s1", "blue,green", "auto", "auto")


def test_several_choices_with_their_probabilities(client: openai.OpenAI, gateway: Gateway, upstream: Upstream) -> None:
    raw = client.chat.completions.with_raw_response.create(model="chat/many", messages=MESSAGES, n=3)
    answer = raw.parse()
    assert [choice.message.content for choice in answer.choices] == [f"{HELLO} #{index}" for index in range(3)]
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (20, 30)
    assert gateway.row(raw.headers["x-request-id"])["cost"] == 20 * 1_000 + 30 * 2_000
    likely = client.chat.completions.create(model="chat/logprobs", messages=MESSAGES, logprobs=True, top_logprobs=2)
    assert likely.choices[0].logprobs is not None
    assert [token.token for token in likely.choices[0].logprobs.content or ()] == list(TEXT)
    assert upstream.last.json["top_logprobs"] == 2


@pytest.mark.parametrize("kind", ["chat", "native"])
def test_completions(client: openai.OpenAI, upstream: Upstream, kind: str) -> None:
    model = f"{kind}/normal"
    raw = client.completions.with_raw_response.create(model=model, prompt="Sag Hallo", max_tokens=9, echo=False)
    whole = raw.parse()
    assert (whole.choices[0].text, whole.model, whole.object) == (HELLO, model, "text_completion")
    assert whole.usage is not None
    assert whole.usage.to_dict()["cost"] == usd(NORMAL_NANO)
    mine, theirs = sent(raw.http_request.content), sent(upstream.last.body)
    assert {**theirs, "model": b""} == {**mine, "model": b""}
    pieces = list(client.completions.create(model=model, prompt=[1, 2, 3], stream=True))
    assert "".join(piece.choices[0].text for piece in pieces) == HELLO
    assert {piece.model for piece in pieces} == {model}
    assert not any(piece.usage for piece in pieces)
    *_, last = client.completions.create(model=model, prompt="Hi", stream=True, stream_options={"include_usage": True})
    assert last.usage is not None
    assert (last.choices, last.usage.completion_tokens) == ([], 10)


def test_embeddings_in_both_encodings(client: openai.OpenAI, gateway: Gateway, upstream: Upstream) -> None:
    for asked in ({}, {"encoding_format": "float"}, {"encoding_format": "base64"}):
        options: Any = asked
        raw = client.embeddings.with_raw_response.create(model="chat/normal", input=["a", "ä"], **options)
        found = raw.parse()
        vectors: list[Any] = [row.embedding for row in found.data]
        if asked == {"encoding_format": "base64"}:
            assert vectors == ["AACAPgAAAL8AAAA+AACAPw=="] * 2
        else:
            assert vectors == [list(VECTOR)] * 2
        assert upstream.last.json["encoding_format"] == asked.get("encoding_format", "base64")
        assert found.model == "chat/normal"
        assert (found.usage.prompt_tokens, found.usage.total_tokens) == (2 * EMBEDDING.input, 2 * EMBEDDING.input)
        row = gateway.row(raw.headers["x-request-id"])
        assert (row["endpoint"], row["cost"]) == ("embeddings", 2 * EMBEDDING.input * 1_000)
        assert found.usage.to_dict()["cost"] == usd(row["cost"])


def test_models_are_listed_and_found(client: openai.OpenAI, run: Any) -> None:
    listed = [model.id for model in client.models.list()]
    assert listed[0] == "auto"
    assert {"chat/normal", "native/normal", "text-only"} <= set(listed)
    assert client.models.retrieve("chat/normal").owned_by == "deepseek"
    with pytest.raises(openai.NotFoundError) as caught:
        client.models.retrieve("nobody")
    assert caught.value.code == "model_not_found"

    async def work(client: openai.AsyncOpenAI) -> list[str]:
        return [model.id async for model in client.models.list()]

    assert run(work) == listed


def test_what_no_target_can_read_goes_nowhere(client: openai.OpenAI, upstream: Upstream) -> None:
    with pytest.raises(openai.PermissionDeniedError) as caught:
        client.chat.completions.create(model="text-only", messages=IMAGES)
    assert caught.value.code == "no_eligible_target"
    assert upstream.requests == []


def test_a_read_once_stream_can_be_left(client: openai.OpenAI, gateway: Gateway, upstream: Upstream) -> None:
    with client.chat.completions.create(model="chat/hang-after-first", messages=MESSAGES, stream=True) as stream:
        request_id = stream.response.headers["x-request-id"]
        texts = (chunk.choices[0].delta.content for chunk in stream)
        assert next(text for text in texts if text) == TEXT[0]
    until(lambda: upstream.last.ended.is_set())
    assert upstream.last.client_gone
    row = gateway.settled(request_id)
    assert (row["status"], row["error"], row["attempts"][0]["outcome"]) == (499, "client_gone", "client_gone")
    assert row["cost"] > 0
