"""The scripted upstream speaks what it claims: the official client believes it, and raw sockets see the framing."""

import base64
import json
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from router.testing.upstream import (
    BEHAVIOURS,
    EMBEDDING,
    HUGE,
    REFUSAL,
    RETRY_AFTER_S,
    TEXT,
    Tokens,
    Upstream,
    reported,
)
from tests.tables import each_row
from tests.upstream.probe import CHAT, MESSAGES, post

openai = pytest.importorskip("openai", minversion="3", reason="the other environment's client is another generation")

WEATHER = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": WEATHER}} for name in ("weather", "climate")]
APART = {"huge", "empty-length", "close-under-next"}
ANSWERS = sorted(name for name, row in BEHAVIOURS.items() if not (row.fault or row.breaks or name in APART))
FAULTS = {"rate-limited": 429, "error-500": 500, "overloaded": 503, "auth": 401, "quota": 429, "context-length": 400}


@pytest.fixture
def client(upstream: Upstream) -> Iterator[Any]:
    with openai.OpenAI(base_url=f"{upstream.url}/v1", api_key="sk-test", max_retries=0, timeout=60) as client:
        yield client


def openai_counts(usage: Any) -> Tokens | None:
    if usage is None:
        return None
    cached, written = usage.prompt_tokens_details.cached_tokens, usage.prompt_tokens_details.cache_write_tokens
    thought = usage.completion_tokens_details.reasoning_tokens
    plain, visible = usage.prompt_tokens - cached - written, usage.completion_tokens - thought
    return Tokens(uncached=plain, cache_read=cached, cache_write=written, visible=visible, reasoning=thought)


def calls(message: Any) -> list[tuple[str, str, str]]:
    return [(call.id, call.function.name, call.function.arguments) for call in message.tool_calls or []]


@each_row("model", ANSWERS)
def test_whole_and_streamed_chat_say_the_same(client: Any, model: str) -> None:
    client = client.with_options(max_retries=1)  # a kept connection may be closed just as it is used again
    whole = client.chat.completions.create(model=model, messages=MESSAGES, tools=TOOLS)
    with client.chat.completions.stream(
        model=model, messages=MESSAGES, tools=TOOLS, stream_options={"include_usage": True}
    ) as stream:
        streamed = stream.get_final_completion()
    first, second = whole.choices[0], streamed.choices[0]
    assert (first.message.content or "") == (second.message.content or "")
    assert (first.message.refusal, first.finish_reason) == (second.message.refusal, second.finish_reason)
    assert calls(first.message) == calls(second.message)
    assert openai_counts(whole.usage) == openai_counts(streamed.usage) == reported("openai", model)


def test_the_answers_are_what_their_names_say(client: Any) -> None:
    def say(model: str, **more: Any) -> Any:
        return client.chat.completions.create(model=model, messages=MESSAGES, **more).choices

    assert say("normal")[0].message.content == "".join(TEXT)
    assert say("reasoning-only")[0].message.content is None
    assert say("refusal")[0].message.refusal == "".join(REFUSAL)
    assert (say("empty-length")[0].finish_reason, say("empty-length")[0].message.content) == ("length", None)
    assert [choice.message.content[-2:] for choice in say("many", n=3)] == ["#0", "#1", "#2"]
    assert [token.token for token in say("logprobs")[0].logprobs.content] == list(TEXT)
    called = calls(say("parallel-tools", tools=TOOLS)[0].message)
    assert [name for _, name, _ in called] == ["weather", "climate"]
    assert json.loads(called[0][2]) == {"city": "Köln", "days": 7}
    assert say("huge")[0].message.content == "".join(HUGE)


def test_schema_answers_fit_what_was_asked(client: Any) -> None:
    properties = {"day": {"$ref": "#/$defs/day"}, "n": {"anyOf": [{"type": "number"}]}}
    schema = {"$defs": {"day": {"enum": ["Mo", "Tu"]}}, "properties": properties}
    asked = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    reply = client.chat.completions.create(model="schema", messages=MESSAGES, response_format=asked)
    assert json.loads(reply.choices[0].message.content) == {"day": "Mo", "n": 1.5}


@each_row("model, status", FAULTS.items())
def test_faults_reach_the_client_as_its_own_exceptions(client: Any, model: str, status: int) -> None:
    for stream in (False, True):
        with pytest.raises(openai.APIStatusError) as caught:
            client.chat.completions.create(model=model, messages=MESSAGES, stream=stream)
        assert caught.value.status_code == status
        later = caught.value.response.headers.get("retry-after")
        assert later == (str(RETRY_AFTER_S) if model == "rate-limited" else None)


def test_some_faults_come_once_for_each_model_name(client: Any, upstream: Upstream) -> None:
    for model in ("flaky@a", "flaky@b", "rate-limited-once"):
        with pytest.raises(openai.APIStatusError):
            client.chat.completions.create(model=model, messages=MESSAGES)
        assert client.chat.completions.create(model=model, messages=MESSAGES).choices
    upstream.clear()
    with pytest.raises(openai.InternalServerError):
        client.chat.completions.create(model="flaky@a", messages=MESSAGES)


def test_unknown_models_paths_and_bodies_are_refused(client: Any, upstream: Upstream) -> None:
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="nobody", messages=MESSAGES)
    assert post(upstream, "/v1/nothing", {})[0] == 404
    assert post(upstream, CHAT, [])[0] == 400
    assert post(upstream, "/deepseek/v1/responses", {"model": "normal", "input": "x"})[0] == 404


def test_the_other_openai_endpoints(client: Any) -> None:
    text = client.completions.create(model="normal", prompt="Hello")
    assert (text.choices[0].text, text.usage.total_tokens) == ("".join(TEXT), 30)
    pieces = client.completions.create(model="normal", prompt="Hello", stream=True)
    assert "".join(chunk.choices[0].text for chunk in pieces) == "".join(TEXT)
    vectors = client.embeddings.create(model="normal", input=["a", "b"])
    assert [row.embedding for row in vectors.data] == [[0.25, -0.5, 0.125, 1.0]] * 2
    assert vectors.usage.prompt_tokens == 2 * EMBEDDING.input
    assert {model.id for model in client.models.list()} == set(BEHAVIOURS)


@each_row("model", ["normal", "reasoning", "refusal", "parallel-tools", "empty-length", "split-frames"])
def test_responses_whole_and_streamed_say_the_same(client: Any, model: str) -> None:
    tools = [{"type": "function", "name": "weather", "parameters": WEATHER, "strict": False}]
    whole = client.responses.parse(model=model, input="Hello", tools=tools)
    with client.responses.stream(model=model, input="Hello", tools=tools) as stream:
        grown = list(stream)
    final = grown[-1].response
    assert [item.to_dict() for item in final.output] == [item.to_dict() for item in whole.output]
    assert (whole.status, whole.usage) == (final.status, final.usage)
    assert whole.usage.output_tokens == BEHAVIOURS[model].tokens.output
    assert [event.sequence_number for event in grown if hasattr(event, "sequence_number")]


def test_a_broken_stream_raises_in_the_client(client: Any) -> None:
    for model, error in (("error-in-stream", openai.APIError), ("cut", Exception), ("bad-sse-json", ValueError)):
        stream = client.chat.completions.create(model=model, messages=MESSAGES, stream=True)
        with pytest.raises(error):
            list(stream)


def test_base64_vectors_are_the_same_floats(upstream: Upstream) -> None:
    body = {"model": "normal", "input": [1, 2, 3], "encoding_format": "base64"}
    (row,) = json.loads(post(upstream, "/v1/embeddings", body)[2])["data"]
    assert struct.unpack("<4f", base64.b64decode(row["embedding"])) == (0.25, -0.5, 0.125, 1.0)
