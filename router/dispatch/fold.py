"""The events of a stream → the one answer that a client which did not ask for a stream gets."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct

from router.types.request import Endpoint

_DATA = b"data: "
_ONCE = frozenset({"id", "type", "role", "index"})
"""Members that are repeated, not continued."""


class Fold:
    """Feed it what a `StreamDecoder` returns: whole events of the call's endpoint."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._fields: dict[str, Raw] = {}
        self._choices: dict[int, dict[str, Any]] = {}
        self._response: dict[str, Raw] = {}

    def feed(self, events: bytes) -> None:
        for event in events.split(b"\n\n"):
            data = event[event.find(_DATA) + len(_DATA) :] if _DATA in event else b""
            if data.startswith(b"{"):
                self._take(msgspec.json.decode(data, type=dict[str, Raw]))

    def body(self) -> dict[str, Raw]:
        """The answer without its usage; {} when there was none."""
        if self._endpoint is Endpoint.RESPONSES or not self._fields:
            return self._response
        whole = "chat.completion" if self._endpoint is Endpoint.CHAT else "text_completion"
        choices = [_whole(self._choices[index]) for index in sorted(self._choices)]
        return {**self._fields, "object": _raw(whole), "choices": _raw(choices)}

    def _take(self, event: dict[str, Raw]) -> None:
        if self._endpoint is Endpoint.RESPONSES:
            # Every event that carries the response carries more of it than the one before.
            if "response" in event:
                self._response = msgspec.json.decode(event["response"], type=dict[str, Raw])
            return
        for choice in _ANY_CHOICES.decode(event.pop("choices", b"null")) or ():
            merge(self._choices.setdefault(choice.get("index") or 0, {}), choice)
        event.pop("usage", None)
        self._fields |= event


class _Message(Struct, frozen=True):
    content: Any = None


class _Choice(Struct, frozen=True):
    message: _Message | None = None


_CHOICES = msgspec.json.Decoder(list[_Choice])
_ANY_CHOICES = msgspec.json.Decoder(list[dict[str, Any]] | None)


def said(body: Mapping[str, Raw]) -> str | None:
    """The text of a whole chat answer; None where it has none."""
    try:
        choices = _CHOICES.decode(body["choices"]) if "choices" in body else []
    except msgspec.DecodeError:
        return None  # of another endpoint, which may have any member of that name
    content = choices[0].message.content if choices and choices[0].message else None
    return content if isinstance(content, str) else None


def merge(whole: dict[str, Any], part: dict[str, Any]) -> None:
    """Continues `whole`: texts and lists grow, the members of lists find each other by `index`."""
    for name, value in part.items():
        known = whole.get(name)
        if known is None or value is None or name in _ONCE:
            whole[name] = known if value is None else _started(value)
        elif isinstance(known, str) and isinstance(value, str):
            whole[name] = known + value
        elif isinstance(known, dict) and isinstance(value, dict):
            merge(known, value)
        elif isinstance(known, list) and isinstance(value, list):
            _extend(known, value)
        else:
            whole[name] = value


def _started(value: Any) -> Any:
    """A list whose members have an index may name one of them twice already."""
    if not isinstance(value, list):
        return value
    started: list[Any] = []
    _extend(started, value)
    return started


def _extend(whole: list[Any], part: list[Any]) -> None:
    for item in part:
        index = item.get("index") if isinstance(item, dict) else None
        same = next((one for one in whole if index is not None and one.get("index") == index), None)
        if same is None:
            whole.append(item)
        else:
            merge(same, item)


def _whole(choice: dict[str, Any]) -> dict[str, Any]:
    """A choice of a whole answer says `message` where a chunk says `delta`; its tool calls have no index."""
    if "delta" not in choice:
        return choice
    message = {"role": "assistant", "content": None, **choice.pop("delta")}
    for call in message.get("tool_calls") or ():
        call.pop("index", None)
    return {**choice, "message": message, "finish_reason": choice.get("finish_reason")}


def _raw(value: object) -> Raw:
    return Raw(msgspec.json.encode(value))
