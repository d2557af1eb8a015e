"""`/v1/responses` with the official Python client, which must not notice whether its provider has that endpoint."""

from typing import Any

import openai
import pytest
from openai.types.responses.response import IncompleteDetails

from router.testing.upstream import REASONING, REFUSAL, Upstream
from tests.clients.conftest import HELLO, KINDS, NORMAL_NANO, Weather
from tests.gateway.running import Gateway, usd
from tests.tables import each_row

PATHS = {"chat": "/deepseek/v1/chat/completions", "native": "/openai/v1/responses"}
PROPERTIES = {"city": {"type": "string"}, "days": {"type": "integer"}}
PARAMETERS = {"type": "object", "properties": PROPERTIES, "required": ["city", "days"], "additionalProperties": False}
FUNCTION = {"type": "function", "parameters": PARAMETERS, "strict": True}
TOOLS: Any = [{**FUNCTION, "name": name} for name in ("weather", "climate")]
ARGUMENTS = '{"city":"Köln","days":7}'


def grown(client: openai.OpenAI, model: str, **asked: Any) -> tuple[list[Any], Any]:
    """The events of a stream and its final response."""
    with client.responses.stream(model=model, input="Hi", **asked) as stream:
        return list(stream), stream.get_final_response()


def check_usage(usage: Any, cost: int) -> None:
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (20, 10, 30)
    assert usage.to_dict()["cost"] == usd(cost)


@each_row("kind", KINDS)
def test_a_response_and_its_row(client: openai.OpenAI, gateway: Gateway, upstream: Upstream, kind: str) -> None:
    raw = client.responses.with_raw_response.create(
        model=f"{kind}/normal", input="Sag Hallo", instructions="Kurz.", store=True, extra_body={"vendor": {"a": [1]}}
    )
    response, row = raw.parse(), gateway.row(raw.headers["x-request-id"])
    assert (response.output_text, response.status, response.model) == (HELLO, "completed", f"{kind}/normal")
    assert response.id.startswith("resp_")
    assert (response.object, response.to_dict()["store"], response.error) == ("response", False, None)
    check_usage(response.usage, NORMAL_NANO)
    assert (row["endpoint"], row["target"], row["cost"]) == ("responses", f"{kind}/normal", NORMAL_NANO)
    assert raw.headers["x-lowpass-model"] == f"{kind}/normal"
    body = upstream.last.json
    assert upstream.last.path == PATHS[kind]
    assert body["vendor"] == {"a": [1]}
    assert body.get("store") in ((False,) if kind == "native" else (None, False))


@each_row("kind", KINDS)
def test_a_stream_of_events(client: openai.OpenAI, upstream: Upstream, kind: str) -> None:
    events, final = grown(client, f"{kind}/normal")
    types = [event.type for event in events]
    assert types[:2] == ["response.created", "response.in_progress"]
    assert types[-1] == "response.completed"
    assert types.count("response.completed") == 1
    numbers = [event.sequence_number for event in events]
    assert numbers == sorted(set(numbers))
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == HELLO
    assert {event.response.model for event in events if hasattr(event, "response")} == {f"{kind}/normal"}
    assert (final.output_text, final.status) == (HELLO, "completed")
    check_usage(final.usage, NORMAL_NANO)
    sent = ("store", False) if kind == "native" else ("stream_options", {"include_usage": True})
    assert sent in upstream.last.json.items()


@each_row("kind", KINDS)
def test_a_pydantic_model_comes_back(client: openai.OpenAI, kind: str) -> None:
    parsed = client.responses.parse(model=f"{kind}/schema", input="Hi", text_format=Weather)
    assert parsed.output_parsed == Weather(city="Köln", days=7)
    _, final = grown(client, f"{kind}/schema", text_format=Weather)
    assert final.output_parsed == parsed.output_parsed


@each_row("kind", KINDS)
def test_tools_and_the_turn_after_them(client: openai.OpenAI, upstream: Upstream, kind: str) -> None:
    whole = client.responses.create(model=f"{kind}/parallel-tools", input="Hi", tools=TOOLS)
    events, final = grown(client, f"{kind}/parallel-tools", tools=TOOLS)
    for response in (whole, final):
        calls: Any = [item for item in response.output if item.type == "function_call"]
        assert [(call.name, call.arguments) for call in calls] == [("weather", ARGUMENTS), ("climate", ARGUMENTS)]
        assert [call.call_id for call in calls] == ["call_0", "call_1"]
    deltas = [event.delta for event in events if event.type == "response.function_call_arguments.delta"]
    assert "".join(deltas) == ARGUMENTS * 2
    done: Any = [event for event in events if event.type == "response.function_call_arguments.done"]
    assert [event.arguments for event in done] == [ARGUMENTS, ARGUMENTS]
    results = [{"type": "function_call_output", "call_id": f"call_{at}", "output": f"{at}°"} for at in range(2)]
    turns: Any = [{"role": "user", "content": "Hi"}, *(item.to_dict() for item in whole.output), *results]
    assert client.responses.create(model=f"{kind}/normal", input=turns, tools=TOOLS).output_text == HELLO
    if kind == "chat":
        messages = upstream.last.json["messages"]
        assert [message["role"] for message in messages] == ["user", "assistant", "tool", "tool"]
        assert [call["function"]["arguments"] for call in messages[1]["tool_calls"]] == [ARGUMENTS, ARGUMENTS]
        assert [message["content"] for message in messages[2:]] == ["0°", "1°"]
    else:
        assert upstream.last.json["input"] == turns


@each_row("kind", KINDS)
def test_an_answer_that_was_cut_short_says_so(client: openai.OpenAI, kind: str) -> None:
    whole = client.responses.create(model=f"{kind}/empty-length", input="Hi")
    with client.responses.create(model=f"{kind}/empty-length", input="Hi", stream=True) as stream:
        *_, last = stream
    assert last.type == "response.incomplete"
    for response in (whole, last.response):
        assert (response.status, response.output_text) == ("incomplete", "")
        assert response.incomplete_details == IncompleteDetails(reason="max_output_tokens")


@each_row("kind", KINDS)
@each_row("behaviour", ["cut-after-first", "cut"])
def test_a_broken_stream_is_no_response(client: openai.OpenAI, gateway: Gateway, kind: str, behaviour: str) -> None:
    stream = client.responses.create(model=f"{kind}/{behaviour}", input="Hi", stream=True)
    with stream, pytest.raises(openai.APIError) as caught:
        assert not [event for event in stream if event.type == "response.completed"]
    assert caught.value.code == "upstream_error"
    row = gateway.row(stream.response.headers["x-request-id"])
    assert (row["status"], row["error"], row["attempts"][0]["usage_source"]) == (200, "cut", "estimated")


def test_what_chat_can_not_say_needs_the_endpoint(client: openai.OpenAI, upstream: Upstream) -> None:
    search: Any = [{"type": "web_search"}]
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(model="chat/normal", input="Hi", tools=search)
    assert (caught.value.param or "").startswith("tools")
    assert upstream.requests == []
    native: Any = {"model": "native/normal", "input": "Hi", "tools": search, "previous_response_id": "resp_1"}
    assert client.responses.create(**native).output_text == HELLO
    assert upstream.last.json["tools"] == search


ANSWER, REFUSED = ("message", HELLO), ("message", "".join(REFUSAL))
THOUGHT = ("reasoning", "".join(REASONING))
ITEMS = {
    f"{kind}/{name}": items
    for kind in KINDS
    for name, items in (("reasoning", [THOUGHT, ANSWER]), ("refusal", [REFUSED]))
}
ITEMS["parts"] = [THOUGHT, ANSWER]
"""Mistral's reasoning models answer with a list."""


@each_row("model, items", ITEMS.items())
def test_thoughts_and_refusals_have_their_places(
    client: openai.OpenAI, model: str, items: list[tuple[str, str]]
) -> None:
    asked: Any = {"reasoning": {"summary": "auto"}}
    events, final = grown(client, model, **asked)
    for response in (client.responses.create(model=model, input="Hi", **asked), final):
        output: Any = response.output
        parts = [(item.type, (item.content or item.summary)[0]) for item in output]
        assert [(kind, part.refusal if part.type == "refusal" else part.text) for kind, part in parts] == items
        assert (parts[-1][1].type == "refusal") == model.endswith("refusal")
        assert response.usage is not None
        counted = {"parts": None, "chat/reasoning": 30, "native/reasoning": 30}.get(model, 0)
        assert response.usage.output_tokens_details.reasoning_tokens == counted
    deltas = [event.delta for event in events if event.type == "response.reasoning_summary_text.delta"]
    assert deltas == list(REASONING if THOUGHT in items else ())
