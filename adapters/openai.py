"""The wire of OpenAI and compatible providers. Bytes of requests and answers that need no change are passed on.

A provider's deviations from OpenAI are data (`Quirks`), never code.
"""

import time
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from functools import lru_cache

import msgspec
from msgspec import Raw, Struct, structs

from adapters import emulation
from adapters.chat import WIRES, left_out
from adapters.failure import NO_JSON, UNREADABLE, failure, malformed, streamed
from adapters.openai_stream import (
    BLANK,
    ID_PREFIXES,
    NO_CHOICES,
    NULL,
    ROWS,
    ChatDecoder,
    ContentPart,
    estimate_thoughts,
    parse,
    to_raw,
)
from adapters.stream import EventStream, frame
from adapters.thinking import ALWAYS_ON, NOTHING, applied, fields_of, members
from adapters.usage import canonical, every_choice, read
from router.errors import UpstreamFailure
from router.types.attempt import Call, StreamDecoder, TargetReply, UpstreamRequest, Usage
from router.types.clock import new_id
from router.types.request import Endpoint
from router.types.target import Contract, ThinkingField

PATHS = {
    Endpoint.CHAT: "/chat/completions",
    Endpoint.COMPLETIONS: "/completions",
    Endpoint.EMBEDDINGS: "/embeddings",
    Endpoint.RESPONSES: "/responses",
}
"""Path of each endpoint below a base URL that ends in the API's version, as with the official client."""

_OBJECTS = {Endpoint.CHAT: "chat.completion", Endpoint.COMPLETIONS: "text_completion", Endpoint.EMBEDDINGS: "list"}
_STREAMED = frozenset(("stream", "stream_options"))
_STORING = (Endpoint.CHAT, Endpoint.RESPONSES)
"""Endpoints that have the field `store`; others refuse it."""
_BEYOND = (b"(?=", b"(?!", b"(?<")
"""Lookaround patterns: no grammar can express them, so the engine would refuse a request that has them."""
_INSIDE = "messages."
_FALSE, _TRUE = Raw(b"false"), Raw(b"true")
_LIST = msgspec.json.Decoder(list[Raw])
_quoted = lru_cache(1_024)(to_raw)
"""Model names as JSON: those of targets and those that clients send."""


class OpenAICompatible:
    """Adapter for chat, completions, embeddings and, with `quirks.responses`, the Responses API."""

    failure = staticmethod(failure)

    def encode(self, call: Call) -> UpstreamRequest:
        """Builds the request. Raises `ClientError` 400 for tools that don't fit a grammar (`quirks.grammar_tools`)."""
        if call.target.prompt is not None:
            call = emulation.completion(call)
        endpoint, target, quirks = call.endpoint, call.target, call.target.provider.quirks
        body, refuses = dict(call.body), quirks.refuses
        dropped = () if refuses.isdisjoint(body) else left_out(call, refuses)
        for name in dropped:
            del body[name]
        if members_refused := _inside(refuses):
            body = _without_members(body, members_refused)
        body["model"] = _quoted(target.model.name)
        if quirks.grammar_tools and endpoint is Endpoint.CHAT:
            body = emulation.with_grammar(body)
        if quirks.strict_tools:
            body = _with_strict(body)
        if call.private:
            _keep_private(call, body)
        thinking = "none"
        if endpoint is not Endpoint.EMBEDDINGS:
            if call.stream or not _STREAMED.isdisjoint(body):
                _stream(call, body)
            _cap(call, body)
            thinking = _think(call, body)
        if endpoint is Endpoint.RESPONSES:
            body["store"] = _FALSE
        headers = {"content-type": "application/json"}
        if target.api_key is not None:
            headers["authorization"] = f"Bearer {target.api_key.reveal()}"
        for name, value in target.headers.items():
            headers[name.lower()] = value
        sent = msgspec.json.encode(body)
        return UpstreamRequest(
            "POST", PATHS[endpoint], tuple(headers.items()), sent, thinking, call.request_id, dropped, body
        )

    def decode(self, call: Call, body: bytes) -> TargetReply:
        if call.endpoint is Endpoint.RESPONSES:
            return respond(call, body)
        if call.target.prompt is not None and call.endpoint is Endpoint.CHAT:
            return emulation.as_chat(self.decode(emulation.as_completion(call), body))
        fields, answer = parse(body)
        _identify(call, fields)
        report = answer.report
        usage = None if report is None else canonical(report)
        if usage is not None and call.target.provider.quirks.usage_counts_one_choice:
            usage = every_choice(usage, call.n)
        if call.endpoint is Endpoint.EMBEDDINGS:
            _check_vectors(call, fields)
            return TargetReply(body=fields, usage=usage, model_served=answer.model or "")
        has_answer, texts, chat = False, list[str](), call.endpoint is Endpoint.CHAT
        for choice in answer.choices or ():
            part = choice.message if chat else choice
            if part is None or (not chat and choice.text is None):
                raise UpstreamFailure(malformed(NO_CHOICES))
            written, answers = part.output
            has_answer = has_answer or answers
            texts.append(written)
        if not answer.choices:
            raise UpstreamFailure(malformed(NO_CHOICES))
        first = answer.choices[0].message
        if usage is not None and call.target.provider.local:
            usage = estimate_thoughts(call, usage, answer.choices)
        reply = TargetReply(
            body=fields,
            usage=usage,
            finish_reason=answer.choices[0].finish_reason or "",
            has_answer=has_answer,
            text="".join(texts),
            content="" if first is None else first.content if isinstance(first.content, str) else first.text,
            model_served=answer.model or "",
        )
        grammar = call.target.provider.quirks.grammar_tools and emulation.uses_grammar(call)
        return emulation.as_turns(reply) if grammar else reply

    def stream(self, call: Call) -> StreamDecoder:
        if call.endpoint is Endpoint.RESPONSES:
            return ResponsesDecoder(call)
        if call.target.prompt is not None and call.endpoint is Endpoint.CHAT:
            return emulation.CompletingStream(call)
        grammar = call.target.provider.quirks.grammar_tools and emulation.uses_grammar(call)
        return emulation.GrammarStream(call) if grammar else ChatDecoder(call)


@lru_cache
def _inside(refuses: Set[str]) -> tuple[str, ...]:
    """Returns the members of messages and tools that a provider refuses: `messages.NAME` in `refuses`."""
    return tuple(name[len(_INSIDE) :] for name in refuses if name.startswith(_INSIDE))


def _without_members(body: dict[str, Raw], refused: Sequence[str]) -> dict[str, Raw]:
    changed: dict[str, Raw] = {}
    for member in refused:
        for field in ("messages", "tools"):
            raw = changed.get(field) or body.get(field, NULL)
            if member.encode() in bytes(raw):
                changed[field] = to_raw([_without(row, member) for row in ROWS.decode(raw)])
    return body | changed if changed else body


def _without(row: dict[str, Raw], member: str) -> dict[str, Raw]:
    """Returns a message or tool without a member; the member is also removed from a message's parts."""
    left = {name: raw for name, raw in row.items() if name != member}
    content = left.get("content", NULL)
    if bytes(content)[:1] == b"[":
        left["content"] = to_raw([_without(part, member) for part in ROWS.decode(content)])
    return left


def _with_strict(body: dict[str, Raw]) -> dict[str, Raw]:
    """Marks the tools of a forced call as `strict` where the client says nothing; unreadable tools stay unchanged.

    vLLM 0.32 holds a call's arguments to their schema only for strict tools; else a forced call may have any arguments.
    """
    choice = bytes(body.get("tool_choice", b""))
    if "tools" not in body or not (choice == b'"required"' or choice.startswith(b"{")):
        return body
    try:
        tools = ROWS.decode(body["tools"])
    except UNREADABLE:
        return body
    for tool in tools:
        function = members(tool.get("function"))
        schema = bytes(function.get("parameters", NULL))
        if "strict" not in function and schema not in BLANK and not any(part in schema for part in _BEYOND):
            tool["function"] = to_raw({**function, "strict": _TRUE})
    return body | {"tools": to_raw(tools)}


def _keep_private(call: Call, body: dict[str, Raw]) -> None:
    """Forbids storage of and training on the request, in the provider's own fields; overrides what the client sent."""
    body.pop("prompt_cache_retention", None)  # long retention stores the prompt for a day
    for name, value in call.target.provider.quirks.private.items():
        if name != "store" or call.endpoint in _STORING:
            body[name] = to_raw({**members(body.get(name)), **value} if isinstance(value, dict) else value)


def _stream(call: Call, body: dict[str, Raw]) -> None:
    """Sets `stream`, and asks for usage, without which the answer can't be charged."""
    body.pop("stream", None)
    options = body.pop("stream_options", None)
    if not call.stream:
        return
    body["stream"] = _TRUE
    if call.target.provider.quirks.stream_usage and call.endpoint is not Endpoint.RESPONSES:
        body["stream_options"] = to_raw({**members(options), "include_usage": True})
    elif options is not None:
        body["stream_options"] = options


def _cap(call: Call, body: dict[str, Raw]) -> None:
    """Sets the cap on output tokens under the provider's name for it: the call's cap, else the client's."""
    if call.endpoint is Endpoint.RESPONSES:
        stated, name = body.get("max_output_tokens"), "max_output_tokens"
    else:
        newer, older = body.pop("max_completion_tokens", None), body.pop("max_tokens", None)
        stated = older if newer is None or bytes(newer) == b"null" else newer
        if stated is not None and bytes(stated) == b"null":
            stated = None
        name = call.target.provider.quirks.max_tokens_field if call.endpoint is Endpoint.CHAT else "max_tokens"
    cap = stated if call.max_output is None else to_raw(call.max_output)
    if cap is not None:
        body[name] = cap


def _think(call: Call, body: dict[str, Raw]) -> str:
    """Replaces the client's effort with the call's thinking control; returns the control that the body then states."""
    target, control = call.target, applied(call)
    body.pop("reasoning_effort", None)
    if target.engine is not None and not target.engine.thinking_exact:
        body.pop("thinking_token_budget", None)  # from the client: an engine that can't keep to it refuses the request
    if target.model.thinking.contract is Contract.NONE and call.endpoint is Endpoint.RESPONSES:
        body.pop("reasoning", None)
    controlled = control is not NOTHING or target.provider.quirks.thinking_field is ThinkingField.TOKEN_BUDGET
    fields = fields_of(call, control, body) if controlled else {}
    for name, value in fields.items():
        body[name] = to_raw(value)
    return control.text if fields or control is ALWAYS_ON else "none"


def _identify(call: Call, fields: dict[str, Raw]) -> None:
    """Sets the model to the client's name for it, and adds the required fields that the provider left out."""
    fields["model"] = _quoted(call.model)
    if bytes(fields.get("object", NULL)) in BLANK:
        fields["object"] = to_raw(_OBJECTS[call.endpoint])
    if call.endpoint is not Endpoint.EMBEDDINGS:
        if bytes(fields.get("id", NULL)) in BLANK:
            fields["id"] = to_raw(ID_PREFIXES[call.endpoint] + new_id())
        if bytes(fields.get("created", NULL)) in BLANK:
            fields["created"] = to_raw(int(time.time()))


def _check_vectors(call: Call, fields: Mapping[str, Raw]) -> None:
    """Raises `UpstreamFailure` unless there is one vector for each text; a list of numbers is one text, as tokens."""
    try:
        vectors = ROWS.decode(fields.get("data", NULL))
    except UNREADABLE:
        vectors = []
    texts = _LIST.decode(call.body["input"]) if bytes(call.body.get("input", NULL))[:1] == b"[" else []
    several = bool(texts) and bytes(texts[0])[:1] in (b'"', b"[")
    sound = all(bytes(vector.get("embedding", NULL))[:1] in (b'"', b"[") for vector in vectors)
    if not sound or len(vectors) != (len(texts) if several else 1):
        raise UpstreamFailure(malformed("The provider's answer holds no embedding for each text."))


# OpenAI's Responses API, passed through with the client's model name and the usage replaced.


class _Item(Struct):
    type: str = ""
    content: list[ContentPart] | str | None = None
    arguments: object = None
    input: object = None

    @property
    def answers(self) -> bool:
        """Whether the item counts as an answer: all but reasoning do, messages only with text or a refusal."""
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
        """Finish reason in the words of the chat API."""
        reason = self.incomplete_details.reason if self.incomplete_details else None
        if self.status == "incomplete":
            return "length" if reason == "max_output_tokens" else reason or "length"
        return "tool_calls" if any(item.type.endswith("_call") for item in self.output or ()) else "stop"

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
        """Number of calls of each of OpenAI's built-in tools."""
        return dict(Counter(_UNITS[item.type] for item in self.output or () if item.type in _UNITS))


class _ResponsesEvent(Struct):
    type: str = ""
    delta: object = None
    text: object = None
    """Complete text of an item, whose parts came in deltas before."""
    response: Raw = NULL


_FIELDS = msgspec.json.Decoder(dict[str, Raw])
_RESPONSE = msgspec.json.Decoder(_ResponsesBody)
_EVENT = msgspec.json.Decoder(_ResponsesEvent)


def respond(call: Call, body: bytes) -> TargetReply:
    """Decodes a whole response. Raises `UpstreamFailure` unless it is complete or has reached a limit."""
    fields, response = _parse_response(body)
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


def _parse_response(raw: Raw | bytes) -> tuple[dict[str, Raw], _ResponsesBody]:
    try:
        bytes(raw).decode()
        return _FIELDS.decode(raw), _RESPONSE.decode(raw)
    except UNREADABLE:
        raise UpstreamFailure(NO_JSON) from None


def _usage(fields: dict[str, Raw], response: _ResponsesBody) -> Usage | None:
    """Removes the usage object from the fields and returns it as `Usage`."""
    report = read(fields.pop("usage", NULL), response.service_tier)
    if report is None:
        return None
    usage, calls = canonical(report), response.tool_calls
    return structs.replace(usage, units=calls) if calls else usage


class ResponsesDecoder(EventStream):
    """Passes events on with the client's model name; the last event is held back for `final`, which adds its usage."""

    def __init__(self, call: Call) -> None:
        super().__init__(call)
        self._model = Raw(msgspec.json.encode(call.model))
        self._whole = 0
        """Characters of the texts that came complete, in `text` events."""
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
            event, named = _EVENT.decode(payload), name.decode()
            payload.decode()
        except UNREADABLE:
            raise UpstreamFailure(NO_JSON) from None
        kind = event.type or named
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
        """Decodes an event that holds the whole response: created, in progress, completed or incomplete."""
        fields = _FIELDS.decode(payload)
        members, response = _parse_response(raw)
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
