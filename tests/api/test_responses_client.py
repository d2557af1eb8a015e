"""The official client over a real socket: it takes every answer and rebuilds the final response."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec
import openai
import pytest
from msgspec import Raw
from pydantic import BaseModel

from router.api.responses import ResponsesStream, from_chat, to_chat
from router.errors import ClientError

USAGE = (
    b'{"input_tokens":9,"input_tokens_details":{"cached_tokens":4,"cache_write_tokens":0},"output_tokens":7,'
    b'"output_tokens_details":{"reasoning_tokens":5},"total_tokens":16,"cost":0.000042}'
)
BLOCK = {"type": "thinking", "thinking": "Rome it is.", "signature": "sig"}
CALL = {"index": 0, "id": "call_a", "type": "function", "function": {"name": "Weather", "arguments": '{"city":"Rome"}'}}


class City(BaseModel):
    name: str


class Weather(BaseModel):
    """Tells the weather."""

    city: str


class Gateway(ThreadingHTTPServer):
    """Answers `/v1/responses` from a scripted chat message, in one piece or in small chunks."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.message: dict[str, Any] = {"role": "assistant", "content": "Hello."}
        self.finish = "stop"
        self.breaks = False
        self.asked: list[dict[str, Any]] = []


class _Handler(BaseHTTPRequestHandler):
    server: Gateway

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers["content-length"]))
        body = msgspec.json.decode(data, type=dict[str, Raw])
        try:
            chat = to_chat(body)
        except ClientError as error:
            return self._send(error.status, "application/json", msgspec.json.encode(error.envelope()))
        asked = {name: json.loads(bytes(raw)) for name, raw in chat.items()}
        self.server.asked.append(asked)
        if asked.get("stream"):
            return self._send(200, "text/event-stream", b"".join(self._events(body)))
        choices = [{"index": 0, "message": self.server.message, "finish_reason": self.server.finish}]
        reply = {"created": Raw(b"1700000000"), "model": Raw(b'"m"'), "choices": Raw(json.dumps(choices).encode())}
        response = from_chat(reply, body, "resp_01", Raw(USAGE))
        return self._send(200, "application/json", msgspec.json.encode(response))

    def _events(self, body: dict[str, Raw]) -> Iterator[bytes]:
        stream = ResponsesStream(body, "resp_01")
        for delta in _pieces(self.server.message):
            yield stream.feed(_chunk(delta, None))
        if self.server.breaks:
            yield stream.error_event("The provider hung up.", "upstream_error")
        else:
            yield stream.feed(_chunk({}, self.server.finish))
            yield stream.final(USAGE)

    def _send(self, status: int, kind: str, data: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Silent."""


def _chunk(delta: dict[str, Any], finish: str | None) -> bytes:
    choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
    return b"data: %b\n\n" % json.dumps({"created": 1_700_000_000, "model": "m", "choices": choices}).encode()


def _pieces(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """As providers stream it: text by letters, traces whole, a call's head before its arguments."""
    for field in ("reasoning_content", "thinking_blocks", "content", "refusal"):
        value = message.get(field) or ""
        yield from ({field: piece} for piece in (value if isinstance(value, str) else [value]))
    for call in message.get("tool_calls") or ():
        function = call["function"]
        yield {"tool_calls": [{**call, "function": {**function, "arguments": ""}}]}
        for letter in function["arguments"]:
            yield {"tool_calls": [{"index": call["index"], "function": {"arguments": letter}}]}


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    with Gateway() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def client(gateway: Gateway) -> Iterator[openai.OpenAI]:
    url = f"http://127.0.0.1:{gateway.server_address[1]}/v1"
    with openai.OpenAI(base_url=url, api_key="lp-test", max_retries=0) as client:
        yield client


def test_create(client: openai.OpenAI) -> None:
    response = client.responses.create(model="auto", input="hi", instructions="Be brief.")
    assert (response.id, response.status, response.output_text) == ("resp_01", "completed", "Hello.")
    assert response.usage is not None
    assert response.usage.output_tokens_details.reasoning_tokens == 5
    assert response.instructions == "Be brief."


def test_create_streamed_yields_the_text_and_ends_with_the_response(client: openai.OpenAI) -> None:
    events = list(client.responses.create(model="auto", input="hi", stream=True))
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == "Hello."
    last = events[-1]
    assert last.type == "response.completed"
    assert last.response.output_text == "Hello."
    assert last.response.usage is not None
    assert last.response.usage.total_tokens == 16


def test_a_stream_ends_in_what_the_plain_call_returns(gateway: Gateway, client: openai.OpenAI) -> None:
    gateway.message |= {"reasoning_content": "hm", "refusal": "No more.", "tool_calls": [CALL]}
    events = list(client.responses.create(model="auto", input="hi", stream=True))
    last = events[-1]
    assert last.type == "response.completed"
    assert last.response.to_dict() == client.responses.create(model="auto", input="hi").to_dict()


def test_the_stream_helper_keeps_the_text_so_far(gateway: Gateway, client: openai.OpenAI) -> None:
    gateway.message |= {"reasoning_content": "hm", "tool_calls": [CALL]}
    with client.responses.stream(model="auto", input="hi") as stream:
        events = list(stream)
        final = stream.get_final_response()
    texts = [event.snapshot for event in events if event.type == "response.output_text.delta"]
    arguments = [event.snapshot for event in events if event.type == "response.function_call_arguments.delta"]
    assert (texts[-1], arguments[-1]) == ("Hello.", '{"city":"Rome"}')
    assert [item.type for item in final.output] == ["reasoning", "message", "function_call"]


@pytest.mark.parametrize("streamed", [True, False])
def test_parse(gateway: Gateway, client: openai.OpenAI, streamed: bool) -> None:
    gateway.message["content"] = '{"name":"Rome"}'
    if streamed:
        with client.responses.stream(model="auto", input="hi", text_format=City) as stream:
            parsed = stream.get_final_response()
    else:
        parsed = client.responses.parse(model="auto", input="hi", text_format=City)
    assert parsed.output_parsed == City(name="Rome")
    sent = gateway.asked[0]["response_format"]
    assert (sent["type"], sent["json_schema"]["name"], sent["json_schema"]["strict"]) == ("json_schema", "City", True)
    assert sent["json_schema"]["schema"]["required"] == ["name"]


@pytest.mark.parametrize("streamed", [True, False])
def test_a_tool_turn_there_and_back(gateway: Gateway, client: openai.OpenAI, streamed: bool) -> None:
    gateway.message = {
        "content": None,
        "reasoning_content": "Rome it is.",
        "thinking_blocks": [BLOCK],
        "tool_calls": [CALL],
    }
    gateway.finish = "tool_calls"
    tools: Any = [openai.pydantic_function_tool(Weather)]
    history: list[Any] = [{"role": "user", "content": "Weather in Rome?"}]
    if streamed:
        with client.responses.stream(model="auto", input=history, tools=tools) as stream:
            first = stream.get_final_response()
    else:
        first = client.responses.parse(model="auto", input=history, tools=tools)
    call = first.output[-1]
    assert call.type == "function_call"
    assert call.parsed_arguments == Weather(city="Rome")

    history += [*first.output, {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}]
    gateway.message, gateway.finish = {"content": "Sunny."}, "stop"
    second = client.responses.create(model="auto", input=history)
    assert second.output_text == "Sunny."
    function = {"name": "Weather", "arguments": '{"city":"Rome"}'}
    assert gateway.asked[1]["messages"] == [
        {"role": "user", "content": "Weather in Rome?"},
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "Rome it is.",
            "thinking_blocks": [BLOCK],
            "tool_calls": [{"id": "call_a", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "call_a", "content": "sunny"},
    ]


def test_an_incomplete_answer(gateway: Gateway, client: openai.OpenAI) -> None:
    gateway.finish = "length"
    events = list(client.responses.create(model="auto", input="hi", stream=True))
    last = events[-1]
    assert last.type == "response.incomplete"
    assert last.response.incomplete_details is not None
    assert last.response.incomplete_details.reason == "max_output_tokens"


def test_a_failure_in_mid_stream_raises(gateway: Gateway, client: openai.OpenAI) -> None:
    gateway.breaks = True
    texts: list[str] = []
    with pytest.raises(openai.APIError, match="The provider hung up") as caught:  # noqa: PT012
        for event in client.responses.create(model="auto", input="hi", stream=True):
            texts += [event.delta] if event.type == "response.output_text.delta" else []
    assert "".join(texts) == "Hello."
    assert caught.value.code == "upstream_error"


def test_what_needs_a_store_is_refused_with_the_remedy(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="send the whole conversation in input") as caught:
        client.responses.create(model="auto", input="hi", previous_response_id="resp_0")
    assert (caught.value.param, caught.value.code) == ("previous_response_id", "invalid_request_error")
