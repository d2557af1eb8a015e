"""Chat with the official Python client: whatever it can send arrives, whatever it can read it gets."""

import asyncio
from typing import Any

import msgspec
import openai
import pytest
from msgspec import Raw
from pydantic import BaseModel

from router.testing.upstream import EMBEDDING, REFUSAL, VECTOR, Upstream
from tests.clients.conftest import HELLO, KINDS, NORMAL_NANO, Weather
from tests.gateway.running import MESSAGES, Gateway, usd
from tests.tables import each_row

PIXEL = "data:image/png;base64,iVBORw0KGgo/+A=="
PICTURES = [{"url": PIXEL, "detail": "low"}, {"url": "https://example.org/ä.png"}]
PARTS = [{"type": "text", "text": "Was ist das? 🖼"}, *({"type": "image_url", "image_url": each} for each in PICTURES)]
IMAGES: list[Any] = [{"role": "user", "content": PARTS}]


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
    shown = {name.removeprefix("x-lowpass-"): value for name, value in headers.items() if name.startswith("x-lowpass-")}
    difficulty = f"{row['difficulty']:.3f}"
    assert shown == {"decision": row["id"], "model": "chat/normal", "class": row["data_class"]} | {
        "difficulty": difficulty, "thinking": "none", "cost-usd": "0.00004"
    }  # fmt: skip
    assert headers["content-type"] == "application/json"
    with client.chat.completions.with_streaming_response.create(model="auto", messages=MESSAGES, stream=True) as stream:
        streamed = {name.removeprefix("x-lowpass-") for name in stream.headers if name.startswith("x-lowpass-")}
        assert stream.headers["content-type"].startswith("text/event-stream")
        assert "".join(chunk.choices[0].delta.content or "" for chunk in stream.parse()) == HELLO
    assert streamed == shown.keys() - {"cost-usd"}


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
    weather, climate = Weather(city="Köln", days=7), Climate(city="Köln")
    for choice in (answer.choices[0], streamed.choices[0]):
        calls = choice.message.tool_calls or []
        assert [call.function.parsed_arguments for call in calls] == [weather, climate]
        assert [call.id for call in calls] == ["call_0", "call_1"]
        assert choice.finish_reason == "tool_calls"
    results = [{"role": "tool", "tool_call_id": f"call_{at}", "content": "{}"} for at in range(2)]
    turns: Any = [*MESSAGES, answer.choices[0].message.to_dict(), *results]
    raw = client.chat.completions.with_raw_response.create(model="chat/normal", messages=turns, tools=tools)
    mine, theirs = sent(raw.http_request.content), sent(upstream.last.body)
    assert (theirs["messages"], theirs["tools"]) == (mine["messages"], mine["tools"])


def test_what_the_client_sends_arrives_byte_by_byte(client: openai.OpenAI, upstream: Upstream) -> None:
    vendor = {"vendor_option": {"deep": [1, 2.50, None]}, "top_k": 40, "guided": "é\u2028"}
    options: Any = {"stop": ["\n\n", "ENDE"], "seed": 2**40, "temperature": 0.1, "top_p": 0.95, "user": "u-1"}
    options |= {"logit_bias": {"50256": -100}, "prediction": {"type": "content", "content": "x"}}
    options |= {"metadata": {"session_id": "s1"}, "extra_headers": {"x-lowpass-tags": "blue,green"}}
    raw = client.chat.completions.with_raw_response.create(
        model="chat/normal", messages=IMAGES, extra_body=vendor, **options
    )
    mine, theirs = sent(raw.http_request.content), sent(upstream.last.body)
    assert theirs.pop("model") == b'"normal"'
    assert mine.pop("model") == b'"chat/normal"'
    assert theirs == mine
    assert upstream.last.headers["authorization"] == "Bearer sk-upstream"
    assert not [name for name in upstream.last.headers if name.startswith("x-lowpass-")]


def test_headers_and_metadata_reach_the_row(client: openai.OpenAI, gateway: Gateway) -> None:
    raw = client.chat.completions.with_raw_response.create(
        model="auto", messages=MESSAGES, metadata={"session_id": "s1"}, extra_headers={"x-lowpass-tags": "blue,green"}
    )
    row = gateway.row(raw.headers["x-request-id"])
    assert (row["session"], row["tags"], row["requested"], row["route"]) == ("s1", "blue,green", "auto", "auto")


@each_row("kind", KINDS)
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
        packed = asked == {"encoding_format": "base64"}
        assert vectors == ["AACAPgAAAL8AAAA+AACAPw==" if packed else list(VECTOR)] * 2
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
