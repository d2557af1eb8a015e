"""The official Python client: what it can send arrives, it gets what it can read, and its exceptions are right."""

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec
import openai
import pytest
from msgspec import Raw
from pydantic import BaseModel

from router.testing.upstream import EMBEDDING, REFUSAL, RETRY_AFTER_S, VECTOR, Upstream
from tests.clients.conftest import HELLO, KINDS, NORMAL_NANO, Weather
from tests.gateway.running import MESSAGES, Gateway, until, usd
from tests.tables import each_row

PIXEL = "data:image/png;base64,iVBORw0KGgo/+A=="
PICTURES = [{"url": PIXEL, "detail": "low"}, {"url": "https://example.org/ä.png"}]
PARTS = [{"type": "text", "text": "Was ist das? 🖼"}, *({"type": "image_url", "image_url": each} for each in PICTURES)]
IMAGES: list[Any] = [{"role": "user", "content": PARTS}]


class Climate(BaseModel):
    city: str


def sent(data: bytes) -> dict[str, bytes]:
    return {name: bytes(raw) for name, raw in msgspec.json.decode(data, type=dict[str, Raw]).items()}


def test_raw_responses_show_the_headers(client: openai.OpenAI, gateway: Gateway) -> None:
    raw = client.chat.completions.with_raw_response.create(model="auto", messages=MESSAGES)
    answer, shown = raw.parse(), ours(raw.headers)
    assert answer.choices[0].message.content == HELLO
    row = gateway.row(raw.headers["x-request-id"])
    assert raw.request_id == answer._request_id == shown["decision"] == row["id"]
    known = {"decision": row["id"], "model": "chat/normal", "class": row["data_class"], "thinking": "none"}
    assert shown == known | {"cost-usd": "0.00004"}
    assert raw.headers["content-type"] == "application/json"
    with client.chat.completions.with_streaming_response.create(model="auto", messages=MESSAGES, stream=True) as stream:
        assert ours(stream.headers).keys() == shown.keys() - {"cost-usd"}
        assert stream.headers["content-type"].startswith("text/event-stream")
        assert "".join(chunk.choices[0].delta.content or "" for chunk in stream.parse()) == HELLO


def ours(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.removeprefix("x-lowpass-"): value for name, value in headers.items() if name.startswith("x-lowpass-")}


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


def test_a_pydantic_model_comes_back(client: openai.OpenAI, upstream: Upstream) -> None:
    """In the stream's helper as well; a refusal is none."""
    wanted = Weather(city="Köln", days=7)
    parsed = client.chat.completions.parse(model="chat/schema", messages=MESSAGES, response_format=Weather)
    assert parsed.choices[0].message.parsed == wanted
    assert upstream.last.json["response_format"]["json_schema"]["strict"] is True
    with client.chat.completions.stream(model="chat/schema", messages=MESSAGES, response_format=Weather) as stream:
        assert stream.get_final_completion().choices[0].message.parsed == wanted
    refused = client.chat.completions.parse(model="chat/refusal", messages=MESSAGES, response_format=Weather)
    message = refused.choices[0].message
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
    options |= {"metadata": {"session_id": "s1"}, "extra_headers": {"x-lowpass-tags": "blue"}, "extra_body": vendor}
    raw = client.chat.completions.with_raw_response.create(model="chat/normal", messages=IMAGES, **options)
    mine, theirs = sent(raw.http_request.content), sent(upstream.last.body)
    assert theirs.pop("model") == b'"normal"'
    assert mine.pop("model") == b'"chat/normal"'
    assert theirs == mine
    assert upstream.last.headers["authorization"] == "Bearer sk-upstream"
    assert not [name for name in upstream.last.headers if name.startswith("x-lowpass-")]


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


def test_models_are_listed_and_found(client: openai.OpenAI) -> None:
    listed = [model.id for model in client.models.list()]
    assert listed[0] == "auto"
    assert {"chat/normal", "native/normal", "text-only"} <= set(listed)
    assert client.models.retrieve("chat/normal").owned_by == "deepseek"
    with pytest.raises(openai.NotFoundError) as caught:
        client.models.retrieve("nobody")
    assert caught.value.code == "model_not_found"


Raised = tuple[type[openai.APIStatusError], int, str]
FAILED: Raised = (openai.InternalServerError, 502, "upstream_error")
# What goes wrong → the exception, its status and its code.
RAISES: dict[str, Raised] = {
    "chat/context-length": (openai.BadRequestError, 400, "context_length_exceeded"),
    "chat/content-filter": (openai.BadRequestError, 400, "content_filter"),
    "text-only": (openai.PermissionDeniedError, 403, "no_eligible_target"),
    "nobody": (openai.NotFoundError, 404, "model_not_found"),
    "chat/overloaded": (openai.InternalServerError, 503, "upstream_error"),
    "chat/rate-limited": (openai.RateLimitError, 429, "rate_limit_exceeded"),
    **dict.fromkeys(("chat/error-500", "chat/bad-json", "chat/cut"), FAILED),
    # The operator's key or account failed, not the client's: it must not ask its user for another key.
    **dict.fromkeys(("chat/auth", "chat/quota"), FAILED),
}
TOOL: Any = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
FUNCTION: Any = {"type": "function", "name": "f", "parameters": {"type": "object"}}
CALLS: dict[str, Any] = {
    "chat": lambda client, model: client.chat.completions.create(model=model, messages=MESSAGES, tools=[TOOL]),
    "responses": lambda client, model: client.responses.create(model=model, input="Hi", tools=[FUNCTION]),
}


@each_row("endpoint", CALLS)
@each_row("model", RAISES)
def test_the_right_exception(client: openai.OpenAI, gateway: Gateway, model: str, endpoint: str) -> None:
    kind, status, code = RAISES[model]
    with pytest.raises(kind) as caught:
        CALLS[endpoint](client, model)
    error = caught.value
    assert (error.status_code, error.code, error.request_id) == (status, code, error.response.headers["x-request-id"])
    if model != "nobody":
        row = gateway.row(error.request_id or "")
        assert (row["status"], row["cost"] > 0) == (status, model == "chat/cut")  # which its provider had written


@each_row("model, failed, wait_s", [("chat/flaky", 502, 0), ("chat/rate-limited-once", 429, RETRY_AFTER_S)])
def test_the_client_tries_again_when_told_to_and_as_late(
    client: openai.OpenAI, gateway: Gateway, upstream: Upstream, model: str, failed: int, wait_s: float
) -> None:
    answer = client.with_options(max_retries=2).chat.completions.create(model=model, messages=MESSAGES)
    assert answer.choices[0].message.content == HELLO
    first, second = upstream.requests
    assert second.received - first.received >= wait_s
    rows = gateway.rows("SELECT status FROM requests WHERE requested = ? AND tags = '' ORDER BY id", model)
    assert [row["status"] for row in rows] == [failed, 200]


@each_row("stream", [False, True])
@each_row("model, dropped", [("native/normal", "keep_alive, min_p"), ("chat/normal", None)])
def test_fields_of_other_servers_are_left_out_where_they_are_refused_and_named(
    client: openai.OpenAI, upstream: Upstream, model: str, dropped: str | None, stream: bool
) -> None:
    create = client.chat.completions.with_raw_response.create
    answer = create(model=model, messages=MESSAGES, stream=stream, extra_body={"min_p": 0.1, "keep_alive": "5m"})
    assert answer.headers.get("x-lowpass-dropped") == dropped
    assert (b"min_p" in upstream.requests[-1].body) == (dropped is None)


@each_row("missing, asked", [("tools", {"messages": MESSAGES, "tools": [TOOL]}), ("vision", {"messages": IMAGES})])
def test_a_target_that_can_not_is_named_with_what_it_lacks_and_not_tried_again_in_vain(
    client: openai.OpenAI, gateway: Gateway, upstream: Upstream, missing: str, asked: Any
) -> None:
    before = len(gateway.rows("SELECT id FROM requests WHERE requested = 'text-only'"))
    with pytest.raises(openai.PermissionDeniedError) as caught:
        client.with_options(max_retries=2).chat.completions.create(model="text-only", **asked)
    assert caught.value.response.headers["x-should-retry"] == "false"
    assert f"text-only: lacks {missing}" in caught.value.message
    row = gateway.row(caught.value.request_id or "")
    assert (row["status"], row["error"], row["cost"], row["attempts"]) == (403, "no_eligible_target", 0, [])
    assert len(gateway.rows("SELECT id FROM requests WHERE requested = 'text-only'")) == before + 1
    assert upstream.requests == []


@each_row("kind", KINDS)
@each_row("endpoint", CALLS)
def test_a_client_that_runs_out_of_time_stops_the_upstream(
    client: openai.OpenAI, gateway: Gateway, upstream: Upstream, endpoint: str, kind: str
) -> None:
    upstream.clear()
    for seconds in (0.3, 3, 30):
        known = ids(gateway)
        with pytest.raises(openai.APITimeoutError):
            CALLS[endpoint](client.with_options(timeout=seconds), f"{kind}/hang")
        if upstream.requests:
            break
    assert upstream.last.wait().client_gone
    check_abandoned(gateway, known)


@each_row("kind", KINDS)
@each_row("endpoint", CALLS)
def test_a_cancelled_task_stops_the_upstream(
    run: Any, gateway: Gateway, upstream: Upstream, endpoint: str, kind: str
) -> None:
    known, model = ids(gateway), f"{kind}/hang-after-first"

    async def listen(client: openai.AsyncOpenAI, begun: asyncio.Event) -> None:
        stream: Any = (
            await client.chat.completions.create(model=model, messages=MESSAGES, stream=True)
            if endpoint == "chat"
            else await client.responses.create(model=model, input="Hi", stream=True)
        )
        async for _ in stream:
            begun.set()

    async def work(client: openai.AsyncOpenAI) -> None:
        begun = asyncio.Event()
        task = asyncio.create_task(listen(client, begun))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(work)
    assert upstream.last.wait().client_gone
    check_abandoned(gateway, known)


def ids(gateway: Gateway) -> set[str]:
    return {row["id"] for row in gateway.rows("SELECT id FROM requests")}


def check_abandoned(gateway: Gateway, known: set[str]) -> None:
    """The only request that was not known before is settled as abandoned, and charged as estimated."""
    (new,) = until(lambda: ids(gateway) - known)
    row = gateway.settled(new)
    assert (row["state"], row["status"], row["error"]) == ("settled", 499, "client_gone")
    (attempt,) = row["attempts"]
    assert (attempt["outcome"], attempt["usage_source"]) == ("client_gone", "estimated")
    assert attempt["cost_source"] == "estimated"
    assert row["cost"] == attempt["cost"] > 0
