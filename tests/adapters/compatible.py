"""Calls of the OpenAI-compatible adapter, and chunks as providers write them."""

from typing import Any

import msgspec
from msgspec import Raw

from adapters.openai_compatible import OpenAICompatible
from router.types.call import Call
from router.types.request import Endpoint
from router.types.secret import Secret
from router.types.target import Model, Provider, Quirks, Target, Thinking, Wire
from tests.adapters.translated import message

ADAPTER = OpenAICompatible()
HI = {"messages": [{"role": "user", "content": "Hi"}]}
USAGE = {"prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 14}


def call(
    body: dict[str, Any] | None = None,
    *,
    quirks: Quirks | None = None,
    thinking: Thinking | None = None,
    effort: str | None = None,
    endpoint: Endpoint = Endpoint.CHAT,
    **fields: Any,
) -> Call:
    """`effort` is the policy's; the client's goes into `fields` as `asked_effort`."""
    model = Model(
        id="m", name="served-1", context=1, max_output=1, capabilities=frozenset(), thinking=thinking or Thinking()
    )
    provider = Provider(id="p", wire=Wire.OPENAI_COMPATIBLE, base_url="http://up/v1", quirks=quirks or Quirks())
    target = Target(
        id="p/m", model=model, provider=provider, base_url="http://up/v1", api_key=Secret("k"), effort=effort
    )
    raw = {
        name: Raw(msgspec.json.encode(value))
        for name, value in {"model": "auto", **(HI if body is None else body)}.items()
    }
    asked = fields.pop("asked_effort", None)
    return Call(target=target, endpoint=endpoint, body=raw, model="auto", effort=asked, **fields)


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **fields: Any) -> dict[str, Any]:
    """A chunk; without a delta it has no choices."""
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    head = {"id": "c-1", "object": "chat.completion.chunk", "created": 7, "model": "served-1"}
    return {**head, "choices": choices, **fields}


def text(content: str) -> dict[str, Any]:
    return chunk({"content": content})


def sse(*events: dict[str, Any] | str, space: bool = False) -> bytes:
    """Chunks as a stream; strings stand for themselves. `space` writes JSON as Python's json does."""
    return b"".join(b"data: %b\n\n" % _written(event, space) for event in events)


def _written(event: dict[str, Any] | str, space: bool) -> bytes:
    if isinstance(event, str):
        return event.encode()
    compact = msgspec.json.encode(event)
    return msgspec.json.format(compact, indent=0).replace(b"\n", b"") if space else compact


def answer(message: dict[str, Any], finish: str = "stop", **fields: Any) -> bytes:
    """A whole chat completion."""
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    head = {"id": "c-1", "object": "chat.completion", "created": 7, "model": "served-1"}
    return msgspec.json.encode({**head, "choices": [choice], **fields})


def said(chunks: list[Any], index: int = 0) -> dict[str, Any]:
    """What a client puts together of one choice; `"content": null` says nothing."""
    return message([{"choices": [_spoken(choice) for choice in each["choices"]]} for each in chunks], index)


def _spoken(choice: dict[str, Any]) -> dict[str, Any]:
    return {**choice, "delta": {name: value for name, value in choice["delta"].items() if value is not None}}
