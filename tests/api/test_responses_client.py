"""The official client, with the translation as its transport, takes every answer and rebuilds the final response."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import msgspec
import openai
import pytest
from msgspec import Raw
from pydantic import BaseModel

from router.api.responses import ResponsesStream, from_chat, to_chat
from router.errors import ClientError
from tests.api.bodies import USAGE, decoded, raws
from tests.tables import each_row

BLOCK = {"type": "thinking", "thinking": "Rome it is.", "signature": "sig"}
FUNCTION = {"name": "Weather", "arguments": '{"city":"Rome"}'}
CALL = {"index": 0, "id": "call_a", "type": "function", "function": FUNCTION}


class City(BaseModel):
    name: str


class Weather(BaseModel):
    """Tells the weather."""

    city: str


class Chat:
    """Answers `/v1/responses` from a scripted chat message, in one piece or in small chunks."""

    def __init__(self, finish: str = "stop", **message: Any) -> None:
        self.message, self.finish = {"role": "assistant", "content": "Hello.", **message}, finish
        self.breaks = False
        self.asked: dict[str, Any] = {}
        transport = httpx2.MockTransport(self._answer)
        self.client = openai.OpenAI(
            base_url="http://gateway/v1", api_key="lp", max_retries=0, http_client=httpx2.Client(transport=transport)
        )
        self.create = self.client.responses.create

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        body = msgspec.json.decode(request.content, type=dict[str, Raw])
        try:
            self.asked = decoded(to_chat(body))
        except ClientError as error:
            return httpx2.Response(error.status, json=error.envelope())
        if self.asked.get("stream"):
            events = b"".join(self._events(body))
            return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=events)
        choices = [{"index": 0, "message": self.message, "finish_reason": self.finish}]
        chat = raws({"created": 1_700_000_000, "model": "m", "choices": choices})
        return httpx2.Response(200, json=decoded(from_chat(chat, body, "resp_01", Raw(json.dumps(USAGE).encode()))))

    def _events(self, body: dict[str, Raw]) -> Iterator[bytes]:
        stream = ResponsesStream(body, "resp_01")
        for delta in _pieces(self.message):
            yield stream.feed(_chunk(delta, None))
        if self.breaks:
            yield stream.error_event("The provider hung up.", "upstream_error")
        else:
            yield stream.feed(_chunk({}, self.finish))
            yield stream.final(json.dumps(USAGE).encode())


def _chunk(delta: dict[str, Any], finish: str | None) -> bytes:
    choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
    return b"data: %b\n\n" % json.dumps({"created": 1_700_000_000, "model": "m", "choices": choices}).encode()


def _pieces(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """As providers stream it: text by letters, traces whole, a call's head before its arguments."""
    for field in ("reasoning_content", "thinking_blocks", "content", "refusal"):
        value = message.get(field) or ""
        yield from ({field: piece} for piece in (value if isinstance(value, str) else [value]))
    for call in message.get("tool_calls") or ():
        yield {"tool_calls": [{**call, "function": {**call["function"], "arguments": ""}}]}
        for letter in call["function"]["arguments"]:
            yield {"tool_calls": [{"index": call["index"], "function": {"arguments": letter}}]}


def whole(chat: Chat, **asked: Any) -> Any:
    return chat.client.responses.parse(model="auto", **asked)


def streamed(chat: Chat, **asked: Any) -> Any:
    with chat.client.responses.stream(model="auto", **asked) as stream:
        return stream.get_final_response()


both_ways = each_row("ask", [whole, streamed])


def test_a_stream_ends_in_what_the_plain_call_returns() -> None:
    chat = Chat(reasoning_content="hm", refusal="No more.", tool_calls=[CALL])
    *_, last = chat.create(model="auto", input="hi", stream=True)
    assert last.type == "response.completed"
    plain = chat.create(model="auto", input="hi")
    assert last.response.to_dict() == plain.to_dict()
    assert (plain.id, plain.status, plain.output_text) == ("resp_01", "completed", "Hello.")
    assert plain.usage is not None
    assert plain.usage.output_tokens_details.reasoning_tokens == 5


def test_the_stream_helper_keeps_the_text_so_far() -> None:
    chat = Chat(reasoning_content="hm", tool_calls=[CALL])
    with chat.client.responses.stream(model="auto", input="hi") as stream:
        events = list(stream)
    texts = [event.snapshot for event in events if event.type == "response.output_text.delta"]
    arguments = [event.snapshot for event in events if event.type == "response.function_call_arguments.delta"]
    assert (texts[-1], arguments[-1]) == ("Hello.", '{"city":"Rome"}')


@both_ways
def test_parse(ask: Callable[..., Any]) -> None:
    chat = Chat(content='{"name":"Rome"}')
    assert ask(chat, input="hi", text_format=City).output_parsed == City(name="Rome")
    sent = chat.asked["response_format"]
    assert (sent["type"], sent["json_schema"]["name"], sent["json_schema"]["strict"]) == ("json_schema", "City", True)
    assert sent["json_schema"]["schema"]["required"] == ["name"]


@both_ways
def test_a_tool_turn_there_and_back(ask: Callable[..., Any]) -> None:
    thoughts = {"reasoning_content": "Rome it is.", "thinking_blocks": [BLOCK]}
    chat = Chat("tool_calls", content=None, **thoughts, tool_calls=[CALL])
    history: list[Any] = [{"role": "user", "content": "Weather in Rome?"}]
    output = ask(chat, input=history, tools=[openai.pydantic_function_tool(Weather)]).output
    assert output[-1].parsed_arguments == Weather(city="Rome")

    history += [*output, {"type": "function_call_output", "call_id": output[-1].call_id, "output": "sunny"}]
    chat.create(model="auto", input=history)
    made = {"id": "call_a", "type": "function", "function": FUNCTION}
    assert chat.asked["messages"] == [
        {"role": "user", "content": "Weather in Rome?"},
        {"role": "assistant", "content": None, **thoughts, "tool_calls": [made]},
        {"role": "tool", "tool_call_id": "call_a", "content": "sunny"},
    ]


def test_a_failure_in_mid_stream_raises() -> None:
    chat = Chat()
    chat.breaks = True
    texts: list[str] = []
    stream = chat.create(model="auto", input="hi", stream=True)
    with pytest.raises(openai.APIError, match="The provider hung up") as caught:
        texts.extend(event.delta for event in stream if event.type == "response.output_text.delta")
    assert "".join(texts) == "Hello."
    assert caught.value.code == "upstream_error"


def test_what_needs_a_store_is_refused_with_the_remedy() -> None:
    with pytest.raises(openai.BadRequestError, match="send the whole conversation in input") as caught:
        Chat().create(model="auto", input="hi", previous_response_id="resp_0")
    assert (caught.value.param, caught.value.code) == ("previous_response_id", "invalid_request_error")
