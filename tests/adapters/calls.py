"""Calls for every adapter, answers as providers write them, and streams put together as a client would."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from msgspec.structs import replace

from adapters.anthropic import AnthropicAdapter
from adapters.gemini import GeminiAdapter
from adapters.openai import OpenAICompatible
from router.errors import UpstreamFailure
from router.types.attempt import Adapter, Call, ErrorKind, StreamDecoder
from router.types.request import Endpoint
from router.types.target import Contract, Model, Provider, Quirks, Secret, Target, Terms, Thinking, Wire

ADAPTER = OpenAICompatible()
ADAPTERS: dict[Wire, Adapter] = {
    Wire.ANTHROPIC: AnthropicAdapter(),
    Wire.GEMINI: GeminiAdapter(),
    Wire.OPENAI_COMPATIBLE: ADAPTER,
}
HI = {"messages": [{"role": "user", "content": "Hi"}]}
USAGE = {"prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 14}
LEVELS = Thinking(contract=Contract.LEVEL, levels=("low", "medium", "high"), tokens=(1_024, 8_192, 24_576))


def call(
    body: dict[str, Any] | None = None,
    *,
    wire: Wire = Wire.OPENAI_COMPATIBLE,
    quirks: Quirks | None = None,
    thinking: Thinking | None = None,
    effort: str | None = None,
    headers: dict[str, str] | None = None,
    endpoint: Endpoint = Endpoint.CHAT,
    request_id: str = "r1",
    **fields: Any,
) -> Call:
    """`effort` is the policy's; the client's goes into `fields` as `asked_effort`."""
    thinks = thinking or Thinking()
    model = Model(id="m", name="served-1", context=200_000, max_output=8_000, capabilities=frozenset(), thinking=thinks)
    provider = Provider(id="p", wire=wire, base_url="http://up/v1", quirks=quirks or Quirks())
    where: dict[str, Any] = {"id": "p/m", "model": model, "provider": provider, "base_url": "http://up/v1"}
    target = Target(**where, api_key=Secret("k"), effort=effort, headers=headers or {})
    raw = {
        name: Raw(msgspec.json.encode(value))
        for name, value in {"model": "auto", **(HI if body is None else body)}.items()
    }
    asked = {"request_id": request_id, "effort": fields.pop("asked_effort", None), **fields}
    return Call(target=target, endpoint=endpoint, body=raw, model="auto", **asked)


def claude(region: str, body: dict[str, Any] | None = None, terms: Terms | None = None) -> Call:
    """A target in a region, whose answers state it unless the terms say nothing of that."""
    asked = call(body, wire=Wire.ANTHROPIC)
    verified = Terms(verify="usage.inference_geo") if terms is None else terms
    return replace(asked, target=replace(asked.target, region=region, terms=verified))


@contextmanager
def fails(kind: ErrorKind, message: str = "") -> Iterator[None]:
    """What is done inside ends in a failure of this kind (with these words)."""
    with pytest.raises(UpstreamFailure) as caught:
        yield
    assert caught.value.failure.kind is kind
    assert message in caught.value.failure.message


def sent(made: Call) -> dict[str, Any]:
    """The body that goes to the provider."""
    body: dict[str, Any] = msgspec.json.decode(ADAPTERS[made.target.provider.wire].encode(made).body)
    return body


def answered(reply_body: dict[str, Raw]) -> dict[str, Any]:
    body: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(reply_body))
    return body


def answer(message: dict[str, Any], finish: str = "stop", **fields: Any) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    head = {"id": "c-1", "object": "chat.completion", "created": 7, "model": "served-1"}
    return msgspec.json.encode({**head, "choices": [choice], **fields})


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **fields: Any) -> dict[str, Any]:
    """A chunk; without a delta it has no choices."""
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    head = {"id": "c-1", "object": "chat.completion.chunk", "created": 7, "model": "served-1"}
    return {**head, "choices": choices, **fields}


def sse(*events: dict[str, Any] | str, space: bool = False) -> bytes:
    """Events as a stream; strings stand for themselves. `space` writes JSON as Python's json does."""
    return b"".join(b"data: %b\n\n" % _written(event, space) for event in events)


def _written(event: dict[str, Any] | str, space: bool) -> bytes:
    if isinstance(event, str):
        return event.encode()
    compact = msgspec.json.encode(event)
    return msgspec.json.format(compact, indent=0).replace(b"\n", b"") if space else compact


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """The data in pieces that end at these places."""
    return [data[start:end] for start, end in pairwise([0, *sorted(min(place, len(data)) for place in places), None])]


def fed(decoder: StreamDecoder, data: bytes, places: list[int] | None = None) -> list[Any]:
    """What the client gets when the upstream's bytes arrive cut at these places; without the closing events."""
    return events(b"".join(map(decoder.feed, cut(data, places or []))))


def events(written: bytes) -> list[Any]:
    """Every event as JSON, `[DONE]` as text."""
    frames = [frame for frame in written.split(b"\n\n") if frame]
    assert all(frame.startswith(b"data: ") and b"\n" not in frame for frame in frames)
    return ["[DONE]" if frame == b"data: [DONE]" else msgspec.json.decode(frame[6:]) for frame in frames]


def message(chunks: list[Any], index: int = 0) -> dict[str, Any]:
    """The message of one choice that a client puts together from the deltas."""
    whole: dict[str, Any] = {}
    for piece in chunks:
        for choice in piece["choices"]:
            if choice["index"] == index:
                _add(whole, choice["delta"])
    return whole


def _add(whole: dict[str, Any], delta: dict[str, Any]) -> None:
    for name, value in delta.items():
        if isinstance(value, str) and name not in ("id", "type", "role"):
            whole[name] = whole.get(name, "") + value
        elif isinstance(value, dict):
            _add(whole.setdefault(name, {}), value)
        elif isinstance(value, list):
            for entry in value:
                items = whole.setdefault(name, [])
                items.extend({} for _ in range(entry["index"] + 1 - len(items)))
                _add(items[entry["index"]], entry)
        elif value is not None:
            whole[name] = value
