"""Calls for the adapters that translate, and their streams put together again as a client would."""

from itertools import pairwise
from typing import Any

import msgspec
from msgspec import Raw

from router.types.call import Adapter, Call, StreamDecoder
from router.types.request import Endpoint
from router.types.secret import Secret
from router.types.target import Contract, Model, Provider, Quirks, Target, Thinking, Wire

USER = [{"role": "user", "content": "Hi"}]
NO_THINKING = Thinking()
BUDGETS = Thinking(contract=Contract.TARGET, minimum=1_024)
LEVELS = Thinking(contract=Contract.LEVEL, levels=("low", "medium", "high"), tokens=(1_024, 8_192, 24_576))


def call(
    wire: Wire,
    body: dict[str, Any] | None = None,
    *,
    thinking: Thinking = NO_THINKING,
    refuses: tuple[str, ...] = (),
    headers: dict[str, str] | None = None,
    **fields: Any,
) -> Call:
    model = Model(
        id="m", name="the-model", context=200_000, max_output=8_000, capabilities=frozenset(), thinking=thinking
    )
    provider = Provider(id="p", wire=wire, base_url="https://upstream", quirks=Quirks(refuses=refuses))
    target = Target(
        id="p/m",
        model=model,
        provider=provider,
        base_url="https://upstream",
        api_key=Secret("k-1"),
        headers=headers or {},
    )
    whole = {"model": "auto", "messages": USER, **(body or {})}
    raw = {name: Raw(msgspec.json.encode(value)) for name, value in whole.items()}
    return Call(target=target, endpoint=Endpoint.CHAT, body=raw, model="auto", request_id="r1", **fields)


def sent(adapter: Adapter, asked: Call) -> dict[str, Any]:
    """The body that goes to the provider."""
    body: dict[str, Any] = msgspec.json.decode(adapter.encode(asked).body)
    return body


def answered(reply_body: dict[str, Raw]) -> dict[str, Any]:
    body: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(reply_body))
    return body


def events(written: bytes) -> list[Any]:
    """Every event as JSON, `[DONE]` as text."""
    frames = [frame for frame in written.split(b"\n\n") if frame]
    assert all(frame.startswith(b"data: ") and b"\n" not in frame for frame in frames)
    return ["[DONE]" if frame == b"data: [DONE]" else msgspec.json.decode(frame[6:]) for frame in frames]


def fed(decoder: StreamDecoder, data: bytes, cuts: list[int] | None = None) -> list[Any]:
    """What the client gets when the upstream's bytes arrive cut at these places; without the closing events."""
    places = [0, *sorted(cuts or []), len(data)]
    pieces = [data[start:end] for start, end in pairwise(places)]
    return events(b"".join(decoder.feed(piece) for piece in pieces))


def message(chunks: list[Any], index: int = 0) -> dict[str, Any]:
    """The message of one choice that a client puts together from the deltas."""
    whole: dict[str, Any] = {}
    for chunk in chunks:
        for choice in chunk["choices"]:
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
        else:
            whole[name] = value
