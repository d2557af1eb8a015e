"""Requests as clients send them with findings of values known to be in them, and streams as decoders give them."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from router.api.parse import parse
from router.dispatch.meter import AnswerCollector
from router.redact.redact import redact
from router.types.request import Endpoint, Finding, Request

KEY = b"one session's key"
HEAD = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "auto"}


def asked(endpoint: Endpoint, **body: Any) -> Request:
    return parse(endpoint, "request", json.dumps({"model": "auto", **body}).encode(), [])


def chat(*messages: dict[str, Any], **body: Any) -> Request:
    return asked(Endpoint.CHAT, messages=list(messages), **body)


def user(content: object) -> dict[str, Any]:
    return {"role": "user", "content": content}


def calling(arguments: str) -> dict[str, Any]:
    """A message of the assistant that calls a function."""
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def found(request: Request, kinds: Mapping[str, str]) -> list[Finding]:
    """Every place where a passage has one of the values, given with their detectors."""
    return [
        Finding(detector, "pii", passage.path, start, start + len(value))
        for passage in request.passages
        for value, detector in kinds.items()
        for start in range(len(passage.text))
        if passage.text.startswith(value, start)
    ]


def without(request: Request, kinds: Mapping[str, str], key: bytes = KEY) -> tuple[Request, Mapping[str, str]]:
    return redact(request, found(request, kinds), key)


def sent(request: Request) -> bytes:
    """All bytes of it that may leave."""
    forms = (request.body, request.chat or {})
    return b"\n".join([request.raw, *(bytes(raw) for form in forms for raw in form.values())])


def frame(event: object, name: str = "") -> bytes:
    return (f"event: {name}\n" if name else "").encode() + b"data: " + json.dumps(event).encode() + b"\n\n"


def chunk(index: int = 0, finish: str | None = None, **delta: Any) -> bytes:
    """Of chat; `text=` makes it one of completions."""
    place = delta if "text" in delta else {"delta": delta}
    return frame({**HEAD, "choices": [{"index": index, **place, "logprobs": None, "finish_reason": finish}]})


def calls(index: int, number: int, arguments: str) -> bytes:
    return chunk(index, tool_calls=[{"index": number, "function": {"arguments": arguments}}])


def datas(events: bytes) -> list[dict[str, Any]]:
    return [json.loads(line[6:]) for line in events.split(b"\n") if line.startswith(b"data: {")]


def folded(events: bytes, endpoint: Endpoint = Endpoint.CHAT) -> dict[str, Any]:
    fold = AnswerCollector(endpoint)
    fold.feed(events)
    return {name: json.loads(bytes(raw)) for name, raw in fold.body().items()}


def deltas(events: bytes) -> list[dict[str, Any]]:
    """Of the first choice of each event."""
    return [event["choices"][0]["delta"] for event in datas(events) if event["choices"]]


def contents(events: bytes) -> list[str]:
    return [delta["content"] for delta in deltas(events) if delta.get("content") is not None]


def cut(text: str, places: Iterable[int]) -> list[str]:
    """The text in pieces, cut at these places."""
    ends = sorted({place % (len(text) + 1) for place in places} | {len(text)})
    return [text[start:end] for start, end in zip([0, *ends], ends, strict=False) if start < end]


def responses(kind: str, pieces: Sequence[str], first: int = 0) -> bytes:
    """The deltas of one item, its end, and the end of the response."""
    place = {"item_id": "item_1", "output_index": 0}
    done = {"output_text": "text", "function_call_arguments": "arguments", "custom_tool_call_input": "input"}
    field, whole = done.get(kind, "text"), "".join(pieces)
    events: list[dict[str, Any]] = [{"type": f"response.{kind}.delta", **place, "delta": piece} for piece in pieces]
    events.append({"type": f"response.{kind}.done", **place, field: whole})
    response = {"id": "resp_1", "status": "completed", "output": [{"type": kind, field: whole}]}
    events.append({"type": "response.completed", "response": response})
    return b"".join(
        frame({**event, "sequence_number": first + number}, event["type"]) for number, event in enumerate(events)
    )
