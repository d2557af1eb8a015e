"""Streams of chat, completions and responses as decoders give them, and what a client makes of them."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from router.dispatch.fold import Fold
from router.types.request import Endpoint

HEAD = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "auto"}


def frame(event: object, name: str = "") -> bytes:
    return (f"event: {name}\n" if name else "").encode() + b"data: " + json.dumps(event).encode() + b"\n\n"


def chunk(index: int = 0, finish: str | None = None, **delta: Any) -> bytes:
    """Of chat; `text=` makes it one of completions."""
    place = delta if "text" in delta else {"delta": delta}
    return frame({**HEAD, "choices": [{"index": index, **place, "logprobs": None, "finish_reason": finish}]})


def calls(index: int, number: int, arguments: str) -> bytes:
    return chunk(index, tool_calls=[{"index": number, "function": {"arguments": arguments}}])


def datas(events: bytes) -> list[dict[str, Any]]:
    found = [line[6:] for line in events.split(b"\n") if line.startswith(b"data: {")]
    return [json.loads(data) for data in found]


def folded(events: bytes, endpoint: Endpoint = Endpoint.CHAT) -> dict[str, Any]:
    """As one answer."""
    fold = Fold(endpoint)
    fold.feed(events)
    return {name: json.loads(bytes(raw)) for name, raw in fold.body().items()}


def texts(events: bytes, *path: str) -> list[str]:
    """Of each event that has it, the text at a path into its first choice's delta."""
    found = []
    for event in datas(events):
        value: Any = event["choices"][0]["delta"] if event["choices"] else {}
        for part in path:
            value = value.get(part) if isinstance(value, dict) else None
        if value is not None:
            found.append(value)
    return found


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
