"""OpenAI's Responses wire, passed through: stamped with the client's model, its usage taken out and put back."""

from collections import Counter

import msgspec
from msgspec import Raw, Struct, structs

from adapters.chat import WIRES
from adapters.failure import NO_JSON, UNREADABLE, is_text, streamed
from adapters.openai_stream import NULL, ContentPart
from adapters.stream import EventStream, frame
from adapters.usage import canonical, read
from router.errors import UpstreamFailure
from router.types.attempt import Call, TargetReply, Usage


class _Item(Struct):
    type: str = ""
    content: list[ContentPart] | str | None = None
    arguments: object = None
    input: object = None

    @property
    def answers(self) -> bool:
        """Any item but a thought; a message only if it says something."""
        if self.type == "message":
            parts = self.content if isinstance(self.content, list) else ()
            return any(part.type == "refusal" or (isinstance(part.text, str) and part.text.strip()) for part in parts)
        return self.type not in ("", "reasoning")


class _Incomplete(Struct):
    reason: str | None = None


_LAST = ("response.completed", "response.incomplete")
_ENDED = (None, "completed", "incomplete")
_UNITS: dict[str, str] = WIRES["responses"]["units"]


class _ResponsesBody(Struct):
    status: str | None = None
    model: str | None = None
    service_tier: str | None = None
    output: list[_Item] | None = None
    incomplete_details: _Incomplete | None = None

    @property
    def finish_reason(self) -> str:
        """In chat's words."""
        reason = self.incomplete_details.reason if self.incomplete_details else None
        if self.status == "incomplete":
            return "length" if reason == "max_output_tokens" else reason or "length"
        calls = any(item.type.endswith("_call") for item in self.output or ())
        return "tool_calls" if calls else "stop"

    @property
    def answers(self) -> bool:
        return any(item.answers for item in self.output or ())

    @property
    def written(self) -> str:
        texts = [text for item in self.output or () for text in (item.content, item.arguments, item.input)]
        parts = [part.text for item in self.output or () if isinstance(item.content, list) for part in item.content]
        return "".join(text for text in (*texts, *parts) if isinstance(text, str))

    @property
    def tool_calls(self) -> dict[str, int]:
        """How often each of OpenAI's own tools was called."""
        return dict(Counter(_UNITS[item.type] for item in self.output or () if item.type in _UNITS))


class _ResponsesEvent(Struct):
    type: str = ""
    delta: object = None
    text: object = None
    """All that its deltas hold."""
    response: Raw = NULL


_FIELDS = msgspec.json.Decoder(dict[str, Raw])
_RESPONSE = msgspec.json.Decoder(_ResponsesBody)
_EVENT = msgspec.json.Decoder(_ResponsesEvent)


def respond(call: Call, body: bytes) -> TargetReply:
    """A whole response; one that neither is complete nor reached a limit raises `UpstreamFailure`."""
    fields, response = _parse(body)
    if response.status not in _ENDED or (response.status is None and "error" in fields):
        raise UpstreamFailure(streamed(body))
    if response.output is None:
        raise UpstreamFailure(NO_JSON)
    usage = _usage(fields, response)
    return TargetReply(
        body=fields | {"model": Raw(msgspec.json.encode(call.model))},
        usage=usage,
        finish_reason=response.finish_reason,
        has_answer=response.answers,
        model_served=response.model or "",
    )


def _parse(raw: Raw | bytes) -> tuple[dict[str, Raw], _ResponsesBody]:
    try:
        parsed = _FIELDS.decode(raw), _RESPONSE.decode(raw)
    except UNREADABLE:
        raise UpstreamFailure(NO_JSON) from None
    if not is_text(bytes(raw)):
        raise UpstreamFailure(NO_JSON)
    return parsed


def _usage(fields: dict[str, Raw], response: _ResponsesBody) -> Usage | None:
    """Takes the usage object out."""
    report = read(fields.pop("usage", NULL), response.service_tier)
    if report is None:
        return None
    usage, calls = canonical(report), response.tool_calls
    return structs.replace(usage, units=calls) if calls else usage


class ResponsesDecoder(EventStream):
    """Events pass as they are, but for the model's name; the last one waits in `final` for its usage."""

    def __init__(self, call: Call) -> None:
        super().__init__(call)
        self._model = Raw(msgspec.json.encode(call.model))
        self._whole = 0
        """Characters of texts that came whole."""
        self._last: tuple[bytes, dict[str, Raw], dict[str, Raw]] | None = None

    def final(self, usage: bytes) -> bytes:
        if self._last is None:
            return b""
        name, fields, response = self._last
        response["usage"] = Raw(usage)
        fields["response"] = Raw(msgspec.json.encode(response))
        return frame(msgspec.json.encode(fields), name)

    def _event(self, name: bytes, payload: bytes) -> bytes:
        if payload.strip() == b"[DONE]":
            self.complete = True
            return b""
        try:
            event = _EVENT.decode(payload)
        except UNREADABLE:
            raise UpstreamFailure(NO_JSON) from None
        if not (is_text(payload) and is_text(name)):
            raise UpstreamFailure(NO_JSON)
        kind = event.type or name.decode("ascii", "replace")
        if kind in ("error", "response.failed"):
            raise UpstreamFailure(streamed(event.response if kind == "response.failed" else payload))
        if isinstance(event.delta, str):
            self._wrote(event.delta)
            self.has_answer = self.has_answer or ("reasoning" not in kind and not event.delta.isspace())
        if isinstance(event.text, str):
            self._whole += len(event.text)
            self._wrote(event.text[len(event.text) - max(self._whole - self.output_chars, 0) :])
        if event.response is NULL:
            if kind in _LAST:
                raise UpstreamFailure(NO_JSON)
            return frame(payload, name)
        return self._about_response(kind, name, payload, event.response)

    def _about_response(self, kind: str, name: bytes, payload: bytes, raw: Raw) -> bytes:
        """An event that holds the whole response: created, in progress, completed or incomplete."""
        fields = _FIELDS.decode(payload)
        members, response = _parse(raw)
        members["model"] = self._model
        self.model_served = self.model_served or response.model or ""
        self.usage = _usage(members, response) or self.usage
        if kind in _LAST:
            if response.status not in _ENDED:
                raise UpstreamFailure(streamed(raw))
            self.finished = self.complete = True
            self.finish_reason = response.finish_reason
            self._wrote(response.written[self.output_chars :])
            self.has_answer = self.has_answer or response.answers
            self._last = (name, fields, members)
            return b""
        fields["response"] = Raw(msgspec.json.encode(members))
        return frame(msgspec.json.encode(fields), name)
