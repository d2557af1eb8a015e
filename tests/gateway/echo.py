"""An upstream that repeats the placeholders that it was sent: in text, in arguments, in thoughts; letter by letter."""

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

PLACEHOLDER = re.compile(r"[<][A-Z_0-9]+_[A-Z2-7]{8,}[>]")
REGION = "x-served-from"
REPEATS = 100
"""How often a "long" answer says the same."""


class Echo(ThreadingHTTPServer):
    """The model's name says how it answers: "text", "call", "cut" (breaks off midway), "long" (slow, heeds its cap)."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.bodies: list[str] = []
        self.region = "us"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Echo

    def do_POST(self) -> None:
        text = self.rfile.read(int(self.headers["content-length"])).decode()
        self.server.bodies.append(text)
        asked = json.loads(text)
        said = f"To {' and '.join(PLACEHOLDER.findall(text))}, greetings." * (
            REPEATS if "long" in asked["model"] else 1
        )
        if self.path.endswith("/messages"):
            answer, events = _message(asked, said)
        elif self.path.endswith("/responses"):
            answer, events = _response(asked, said)
        else:
            answer, events = _chat(asked, said)
        self._send(asked, answer, events)

    def _send(self, asked: dict[str, Any], answer: dict[str, Any], events: list[bytes]) -> None:
        streamed = asked.get("stream") is True
        self.send_response(200)
        self.send_header(REGION, self.server.region)
        self.send_header("content-type", "text/event-stream" if streamed else "application/json")
        self.send_header("connection", "close")
        body = json.dumps(answer).encode()
        if not streamed:
            self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.close_connection = True
        if not streamed:
            self.wfile.write(body)
            return
        with suppress(ConnectionError):  # the gateway had enough
            self._stream(
                events[: len(events) // 2] if "cut" in asked["model"] else events, slow="long" in asked["model"]
            )

    def _stream(self, events: list[bytes], *, slow: bool) -> None:
        for event in events:
            self.wfile.write(event)
            if slow:
                time.sleep(0.0005)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


def _chat(asked: dict[str, Any], said: str) -> tuple[dict[str, Any], list[bytes]]:
    tokens = 10
    if "long" in asked["model"]:
        tokens = min(len(said) // 3, asked.get("max_completion_tokens") or asked.get("max_tokens") or 10**6)
        said = said[: tokens * 3]
    usage = {"prompt_tokens": 20, "completion_tokens": tokens, "total_tokens": 20 + tokens}
    head = {"id": "c", "created": 1, "model": asked["model"]}
    arguments = json.dumps({"to": said})
    call = {"id": "c1", "type": "function", "function": {"name": "send", "arguments": arguments}}
    message: dict[str, Any] = {"role": "assistant", "content": said, "reasoning_content": f"Hm, {said}"}
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"reasoning_content": letter} for letter in f"Hm, {said}"]
    deltas += [{"content": letter} for letter in said]
    if "long" in asked["model"]:
        deltas = [{"content": said[start : start + 3]} for start in range(0, len(said), 3)]
    if "call" in asked["model"]:
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        begun = {"index": 0, **call, "function": {"name": "send", "arguments": ""}}
        pieces = [{"index": 0, "function": {"arguments": letter}} for letter in arguments]
        deltas = [{"tool_calls": [piece]} for piece in (begun, *pieces)]
    finish = "tool_calls" if "call" in asked["model"] else "stop"
    whole = {**head, "object": "chat.completion", "choices": [_choice("message", message, finish)], "usage": usage}
    chunk = {**head, "object": "chat.completion.chunk"}
    events = [{**chunk, "choices": [_choice("delta", delta, None)]} for delta in deltas]
    events += [{**chunk, "choices": [_choice("delta", {}, finish)]}, {**chunk, "choices": [], "usage": usage}]
    return whole, [*map(_event, events), b"data: [DONE]\n\n"]


def _choice(name: str, said: dict[str, Any], finish: str | None) -> dict[str, Any]:
    return {"index": 0, name: said, "finish_reason": finish}


def _message(asked: dict[str, Any], said: str) -> tuple[dict[str, Any], list[bytes]]:
    usage = {"input_tokens": 20, "output_tokens": 10}
    head: dict[str, Any] = {"id": "m", "type": "message", "role": "assistant", "model": asked["model"]}
    whole = {**head, "content": [{"type": "text", "text": said}], "stop_reason": "end_turn", "usage": usage}
    deltas = [{"type": "text_delta", "text": letter} for letter in said]
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**head, "content": [], "stop_reason": None, "usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage},
        {"type": "message_stop"},
    ]
    return whole, [_event(event) for event in events]


def _response(asked: dict[str, Any], said: str) -> tuple[dict[str, Any], list[bytes]]:
    """A provider's own: it repeats its instructions."""
    usage = {"input_tokens": 20, "output_tokens": 10, "total_tokens": 30}
    part = {"type": "output_text", "text": said, "annotations": []}
    item = {"id": "i", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
    head = {"id": "r", "object": "response", "created_at": 1, "model": asked["model"]}
    head |= {"instructions": asked.get("instructions"), "tools": [], "parallel_tool_calls": True, "tool_choice": "auto"}
    whole = {**head, "status": "completed", "output": [item], "usage": usage}
    where = {"item_id": "i", "output_index": 0, "content_index": 0}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": {**head, "status": "in_progress", "output": []}},
        {"type": "response.output_item.added", "output_index": 0, "item": {**item, "content": []}},
        {"type": "response.content_part.added", **where, "part": {**part, "text": ""}},
        *({"type": "response.output_text.delta", **where, "delta": letter, "logprobs": []} for letter in said),
        {"type": "response.output_text.done", **where, "text": said, "logprobs": []},
        {"type": "response.content_part.done", **where, "part": part},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": whole},
    ]
    return whole, [_event({**event, "sequence_number": number}) for number, event in enumerate(events)]


def _event(value: dict[str, Any]) -> bytes:
    name = f"event: {value['type']}\n" if "type" in value else ""
    return f"{name}data: {json.dumps(value)}\n\n".encode()


@contextmanager
def echoing() -> Iterator[Echo]:
    server = Echo()
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
