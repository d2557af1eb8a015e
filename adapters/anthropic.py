"""Anthropic's Messages API, version 2023-06-01. Field names as in the anthropic SDK 2.11.0."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct, structs

from adapters.chat import (
    WIRES,
    ChatMessage,
    ChatRequest,
    Json,
    TranslatingAdapter,
    arguments,
    compact,
    data_url,
    filled,
    native,
    schemas_of,
    tool_call,
    without,
)
from adapters.failure import UNREADABLE, malformed, streamed
from adapters.stream import Delta, TranslatedStream, chat_reply
from adapters.thinking import OFF, ThinkingControl, applied
from adapters.usage import Count, counters, larger, later, tier
from router.errors import UpstreamFailure
from router.types.attempt import THOUGHT_BESIDE, UNREADABLE_USAGE, Call, CountSource, StreamDecoder, TargetReply, Usage
from router.types.target import Contract

_WIRE: Json = WIRES["anthropic"]
_SCHEMA: dict[str, list[str]] = _WIRE["schema"]
_FINISH: dict[str, str] = _WIRE["finish"]
_NULL = Raw(b"null")
_VERIFY = "usage.inference_geo"
_MINIMUM_BUDGET = 1_024
"""Minimum `budget_tokens` that the API accepts (anthropic 2.11.0, ThinkingConfigEnabledParam)."""
_JSON_ONLY = "Answer with one JSON object and nothing else."
"""System message in place of OpenAI's `json_object`, for which the API has no field."""


class AnthropicAdapter(TranslatingAdapter):
    """Adapter for the Messages API. The base URL ends before `/v1`."""

    unsupported = frozenset(_WIRE["unsaid"])
    headers: Mapping[str, str] = {"anthropic-version": "2023-06-01"}
    """The API version; later ones refuse sampling parameters even for models that support them."""
    key_header = "x-api-key"

    def _translate(self, call: Call, chat: ChatRequest, own: Json) -> tuple[str, Json, str]:
        if call.target.region:
            own.pop("inference_geo", None)  # the policy decides where requests are processed
        max_tokens = call.max_output or chat.max_output or call.target.model.max_output
        control = _fitted(applied(call), max_tokens, forced=chat.forced)
        thinking = _thinking(control) or native(own, "thinking")
        config: Json = native(own, "output_config") or {}
        if chat.schema is not None:
            config = {**config, "format": {"type": "json_schema", "schema": _closed(chat.schema)}}
        if control.on and control.effort:
            config = {**config, "effort": control.effort}
        # The only metadata that Anthropic accepts.
        user = (chat.metadata or {}).get("user_id") or chat.safety_identifier or chat.user
        # The client's own `system` field, the system messages, and the instruction that replaces `json_object`.
        given = native(own, "system", str | list[Json]) or []
        system = [{"type": "text", "text": given}] if isinstance(given, str) else [*given]
        system += [block for message in chat.messages if message.is_rule for block in _blocks(message)]
        system += [{"type": "text", "text": _JSON_ONLY}] if chat.wants_object else []
        fields = {
            "system": system or None,
            "stop_sequences": chat.stops,
            "metadata": {"user_id": user} if user else None,
            "service_tier": _WIRE["tiers"].get(chat.service_tier, chat.service_tier) if chat.service_tier else None,
            "thinking": thinking,
            "output_config": config or None,
            "stream": call.stream or None,
            **_sampling(chat, call.target.model.thinking.contract, thinking),
            **_tools(chat),
        }
        if call.target.region and call.target.terms.verify == _VERIFY:
            # The region is requested ("us" or "global", as of 2026) only where the answer is expected to confirm it.
            fields["inference_geo"] = call.target.region.lower()
        head = {"model": call.target.model.name, "max_tokens": max_tokens, "messages": _turns(chat.messages)}
        return "/v1/messages", {**own, **head, **filled(fields)}, _stated(control, thinking)

    def decode(self, call: Call, body: bytes) -> TargetReply:
        """Decodes a message. Raises `UpstreamFailure` (bad response) for any other body."""
        try:
            message = _MESSAGE.decode(body)
        except UNREADABLE:
            raise UpstreamFailure(malformed("The provider's answer is not a message.")) from None
        fields, counts = _message_fields(message), counters(TOKENS, message.usage)
        used = usage(counts) if counts else None
        choice = Delta(0, fields, _FINISH.get(message.stop_reason or "", "stop"), stop_sequence=message.stop_sequence)
        reply = chat_reply(call, message.id, [choice], used, message.model, _AnthropicStream.answer_kinds)
        return structs.replace(reply, region_served=used.region_served if used else "")

    def stream(self, call: Call) -> StreamDecoder:
        return _AnthropicStream(call)


# Conversion of a chat request to a Messages request.


def _closed(schema: Any) -> Any:
    """Adapts a JSON schema to structured output: objects are closed, `oneOf` becomes `anyOf`; refused keywords move to
    the description, where the model still reads them (as in the anthropic SDK)."""
    if not isinstance(schema, dict):
        return schema
    refused, formats = _SCHEMA["refused"], _SCHEMA["formats"]
    words = {
        key: value
        for key, value in schema.items()
        if key in refused or (key == "format" and value not in formats) or (key == "minItems" and value not in (0, 1))
    }
    closed = {key: value for key, value in schema.items() if key not in words and key != "oneOf"}
    if "oneOf" in schema:
        closed["anyOf"] = schema["oneOf"]
    closed = {key: schemas_of(_SCHEMA, key, value, _closed) for key, value in closed.items()}
    if schema.get("type") == "object" or "properties" in schema:
        closed["additionalProperties"] = False
    rules = ", ".join(f"{key}: {value}" for key, value in words.items())
    return {**closed, "description": f"{schema.get('description', '')} ({rules})".lstrip()} if words else closed


def _turns(messages: Iterable[ChatMessage]) -> list[Json]:
    """Converts messages to turns: system messages are left out, turns of one role merged, and tool results put into the
    user turn that follows them."""
    merged: list[Json] = []
    for message in messages:
        if message.is_rule:
            continue
        role, blocks = "user", _blocks(message)
        if message.role == "assistant":
            # Signed thinking comes first: Anthropic refuses a tool turn whose thinking is missing or moved.
            role, thinking = "assistant", [without(block, "index") for block in message.thinking_blocks or ()]
            blocks = thinking + blocks
            for call in message.tool_calls or ():
                function = {"name": call.function.name, "input": arguments(call.function.arguments)}
                blocks.append({"type": "tool_use", "id": call.id, **function})
        elif message.role == "tool":
            blocks = [{"type": "tool_result", "tool_use_id": message.tool_call_id, "content": blocks}]
        if merged and merged[-1]["role"] == role:
            merged[-1]["content"] += blocks
        elif blocks:
            merged.append({"role": role, "content": blocks})
    return merged


def _blocks(message: ChatMessage) -> list[Json]:
    return [block for part in message.parts if (block := _block(part))]


def _block(part: Json) -> Json | None:
    """Converts a part to a content block; None for blank text, which Anthropic refuses. Unknown parts are kept."""
    match part:
        case {"type": "text", "text": str(text)}:
            return part if text.strip() else None
        case {"type": "refusal", "refusal": str(text)}:
            return {"type": "text", "text": text}
        case {"type": "image_url", "image_url": {"url": str(url)}}:
            return {"type": "image", "source": _source(url), **without(part, "type", "image_url")}
        case {"type": "file", "file": {"file_data": str(url), **named}}:
            title = {"title": named["filename"]} if "filename" in named else {}
            return {"type": "document", "source": _source(url), **title, **without(part, "type", "file")}
        case {"type": "file", "file": {"file_id": str(identifier)}}:
            source = {"type": "file", "file_id": identifier}
            return {"type": "document", "source": source, **without(part, "type", "file")}
    return part


def _source(url: str) -> Json:
    if inline := data_url(url):
        return {"type": "base64", "media_type": inline[0], "data": inline[1]}
    return {"type": "url", "url": url}


def _fitted(control: ThinkingControl, max_tokens: int, *, forced: bool) -> ThinkingControl:
    """Lowers a budget to leave room for the answer, or turns thinking off; a forced tool call excludes a budget."""
    if control.budget is None or (control.budget < max_tokens and not forced):
        return control
    budget = 0 if forced else max_tokens // 2
    return OFF if budget < _MINIMUM_BUDGET else ThinkingControl(f"budget={budget}", budget=budget, on=True)


def _thinking(control: ThinkingControl) -> Json | None:
    if control.budget is not None:
        return {"type": "enabled", "budget_tokens": control.budget}
    if control.on is None:
        return None
    return {"type": "adaptive"} if control.on else {"type": "disabled"}


def _stated(control: ThinkingControl, thinking: Json | None) -> str:
    """Returns the control that the body states, which may be the client's own `thinking` field."""
    match thinking if control.on is None else None:
        case {"type": "enabled", "budget_tokens": budget}:
            return f"budget={budget}"
        case {"type": "disabled"}:
            return "off"
        case {"type": str()}:
            return "on"
    return control.text


def _sampling(chat: ChatRequest, contract: Contract, thinking: Json | None) -> Json:
    """Returns the sampling fields that the model accepts.

    Thinking excludes them, and models that think by level (Claude 4.7 and later) refuse them on every request. Else
    `temperature` is at most 1 and excludes `top_p`.
    """
    thinks = thinking is not None and thinking.get("type") != "disabled"
    if thinks or contract in (Contract.LEVEL, Contract.ALWAYS_ON):
        return {}
    if chat.temperature is not None:
        return {"temperature": min(chat.temperature, 1.0), "top_k": chat.top_k}
    return {"top_p": chat.top_p, "top_k": chat.top_k}


def _tools(chat: ChatRequest) -> Json:
    """Returns `tools` and `tool_choice`. A choice of "none" has no place for `disable_parallel_tool_use`."""
    if not chat.tools:
        return {}
    choice, tools = chat.choice, [_tool(tool) for tool in chat.tools]
    serial = {"disable_parallel_tool_use": True} if chat.parallel_tool_calls is False else {}
    chosen: Json | None = {"type": "auto", **serial} if serial else None
    if choice is not None and choice.mode == "required" and len(choice.names) == 1:
        chosen = {"type": "tool", "name": choice.names[0], **serial}
    elif choice is not None:
        chosen = {"type": "any" if choice.mode == "required" else "auto", **serial}
        chosen = {"type": "none"} if choice.mode == "none" else chosen
        tools = [tool for tool in tools if not choice.names or tool.get("name") in choice.names]
    return {"tools": tools, "tool_choice": chosen}


def _tool(tool: Json) -> Json:
    """Converts a function to a custom tool; other tools are kept, since they may be Anthropic's own."""
    match tool:
        case {"type": "function", "function": {"name": str(name), **function}}:
            schema = function.get("parameters") or {"type": "object", "properties": {}}
            fields = {"name": name, "description": function.get("description"), "input_schema": schema}
            if function.get("strict"):
                fields |= {"strict": True, "input_schema": _closed(schema)}
            return {**filled(fields), **without(tool, "type", "function")}
    return tool


# Types of the API's answers, as far as they are read; unknown fields, block types and events are ignored.


class _ContentBlock(Struct, frozen=True):
    """A content block of any type; fields of other types have their defaults."""

    type: str
    text: str = ""
    thinking: str = ""
    signature: str = ""
    data: str = ""
    id: str = ""
    name: str = ""
    input: Raw = Raw(b"{}")

    @property
    def thought(self) -> Json | None:
        """The thinking block in the form that the client gets and sends back; None for other types."""
        if self.type == "thinking":
            return {"type": "thinking", "thinking": self.thinking, "signature": self.signature}
        return {"type": "redacted_thinking", "data": self.data} if self.type == "redacted_thinking" else None


class _StopDetails(Struct, frozen=True):
    explanation: str | None = None


class _Stop(Struct, frozen=True):
    """Why a message ended."""

    stop_reason: str | None = None
    stop_sequence: str | None = None
    stop_details: _StopDetails | None = None

    @property
    def refusal(self) -> Json:
        details = self.stop_details if self.stop_reason == "refusal" else None
        return {"refusal": details.explanation} if details and details.explanation else {}


class _BlockDelta(_Stop, frozen=True):
    """A delta of a content block or of the message."""

    type: str = ""
    text: str = ""
    thinking: str = ""
    signature: str = ""
    partial_json: str = ""


class _StartedMessage(_Stop, frozen=True, kw_only=True):
    content: list[_ContentBlock]
    id: str = ""
    model: str = ""
    usage: Raw = _NULL


class _MessageEvent(Struct, frozen=True):
    type: str
    index: int = 0
    message: _StartedMessage | None = None
    content_block: _ContentBlock | None = None
    delta: _BlockDelta = _BlockDelta()
    usage: Raw = _NULL


_MESSAGE, _EVENT = msgspec.json.Decoder(_StartedMessage), msgspec.json.Decoder(_MessageEvent)


def _message_fields(message: _StartedMessage) -> Json:
    """Returns the contents of a message in OpenAI's format."""
    calls = [
        tool_call(block.id, block.name, compact(block.input)) for block in message.content if block.type == "tool_use"
    ]
    fields: Json = {
        "content": "".join(block.text for block in message.content if block.type == "text"),
        "reasoning_content": "".join(block.thinking for block in message.content),
        "thinking_blocks": [thought for block in message.content if (thought := block.thought)],
        "tool_calls": calls,
    }
    return {name: value for name, value in fields.items() if value} | message.refusal


class _OpenBlock:
    """A content block of a stream between its start and its stop."""

    def __init__(self, begun: _ContentBlock, call: int) -> None:
        self.begun, self.call, self.arguments = begun, call, 0
        self.thinking, self.signature = [begun.thinking], begun.signature


class _AnthropicStream(TranslatedStream):
    """Decodes a stream. Until the final count arrives, `usage` holds the reported input and has an unknown source."""

    answer_kinds = ("content", "tool_calls", "refusal")

    def __init__(self, call: Call) -> None:
        super().__init__(call)
        self._tokens = AnthropicTokens()
        self._blocks: dict[int, _OpenBlock] = {}
        self._calls = self._thoughts = 0

    def _deltas(self, name: bytes, payload: bytes) -> Iterator[Delta]:
        try:
            event = _EVENT.decode(payload)
        except UNREADABLE:
            raise UpstreamFailure(malformed("The provider's stream holds an event that is not JSON.")) from None
        match event.type:
            case "error":
                raise UpstreamFailure(streamed(payload))
            case "message_start":
                self._start(event.message)
                yield Delta(0, {})
            case "content_block_start" if event.content_block is not None:
                yield from self._open(event.index, event.content_block)
            case "content_block_delta":
                yield from self._grow(event.index, event.delta)
            case "content_block_stop" if block := self._blocks.pop(event.index, None):
                yield from self._close(block)
            case "message_delta":
                yield from self._end(event)
            case "message_stop":
                self.finished, self.complete = bool(self.finish_reason), True

    def _start(self, message: _StartedMessage | None) -> None:
        """Reads the start of a message: from here on the input is known, but the output is a placeholder."""
        if message is None:
            return
        self._name(message.id or self._id)
        self.model_served = message.model
        if counts := counters(TOKENS, message.usage):
            self._count(structs.replace(counts, output_tokens_details=None), final=False)

    def _open(self, index: int, block: _ContentBlock) -> Iterator[Delta]:
        self._blocks[index] = _OpenBlock(block, self._calls)
        if block.type == "tool_use":
            yield Delta(0, {"tool_calls": [{"index": self._calls, **tool_call(block.id, block.name, "")}]})
            self._calls += 1
        else:
            yield _spoken(block.text if block.type == "text" else "", block.thinking)

    def _grow(self, index: int, delta: _BlockDelta) -> Iterator[Delta]:
        block = self._blocks.get(index)
        if block is None:
            raise UpstreamFailure(malformed("The provider's stream continues a block that it never began."))
        if delta.type == "input_json_delta":
            yield from self._argue(block, delta.partial_json)
        else:
            block.thinking.append(delta.thinking)
            block.signature += delta.signature
            yield _spoken(delta.text, delta.thinking)

    def _argue(self, block: _OpenBlock, text: str) -> Iterator[Delta]:
        block.arguments += len(text)
        if block.begun.type != "tool_use":
            self._wrote(text)  # arguments of one of the provider's own tools
        elif text:
            yield Delta(0, {"tool_calls": [{"index": block.call, "function": {"arguments": text}}]})

    def _close(self, block: _OpenBlock) -> Iterator[Delta]:
        """Ends a block: yields the arguments of a tool call without deltas, or a thinking block with its signature."""
        if block.begun.type == "tool_use" and not block.arguments:
            yield from self._argue(block, compact(block.begun.input))
        whole = structs.replace(block.begun, thinking="".join(block.thinking), signature=block.signature)
        if thought := whole.thought:
            yield Delta(0, {"thinking_blocks": [{"index": self._thoughts, **thought}]})
            self._thoughts += 1

    def _end(self, event: _MessageEvent) -> Iterator[Delta]:
        if counts := counters(TOKENS, event.usage):
            self._count(counts, final=counts.output_tokens is not None)
        if (reason := event.delta.stop_reason) is not None:
            self.finish_reason = _FINISH.get(reason, "stop")
            yield Delta(0, event.delta.refusal, self.finish_reason, stop_sequence=event.delta.stop_sequence)

    def _count(self, counts: "AnthropicTokens", *, final: bool) -> None:
        """Merges new counts into the earlier ones; the last region reported is kept. Until a `final` count the output
        is a placeholder, which stands for no tokens."""
        self._tokens = latest(self._tokens, counts)
        self.usage = usage(self._tokens)
        self.region_served = self.usage.region_served or self.region_served
        if not final:
            self.usage = structs.replace(self.usage, source=CountSource.UNKNOWN)


def _spoken(text: str, thinking: str) -> Delta:
    return Delta(0, {name: value for name, value in {"content": text, "reasoning_content": thinking}.items() if value})


# Conversion of Anthropic's counts: its input counters are disjoint; thinking is part of `output_tokens`.


class _CacheCreation(Struct, frozen=True):
    ephemeral_5m_input_tokens: Count = 0
    ephemeral_1h_input_tokens: Count = 0


class _OutputDetails(Struct, frozen=True):
    thinking_tokens: Count | None = None


class _ServerTools(Struct, frozen=True):
    web_search_requests: Count | None = None


class AnthropicTokens(Struct, frozen=True):
    """`usage` of a message, of a message_delta event or of one of the `iterations`; all cumulative."""

    input_tokens: Count | None = None
    cache_read_input_tokens: Count | None = None
    cache_creation_input_tokens: Count | None = None
    output_tokens: Count | None = None
    cache_creation: _CacheCreation | None = None
    output_tokens_details: _OutputDetails | None = None
    iterations: list["AnthropicTokens"] | None = None
    server_tool_use: _ServerTools | None = None
    service_tier: str | None = None
    speed: str | None = None
    inference_geo: str | None = None
    unreadable: bool = False

    @property
    def thinking(self) -> int | None:
        return self.output_tokens_details.thinking_tokens if self.output_tokens_details else None


TOKENS = msgspec.json.Decoder(AnthropicTokens)
_SUMMED = AnthropicTokens.__struct_fields__[:4]


def latest(before: AnthropicTokens, after: AnthropicTokens) -> AnthropicTokens:
    """Merges counts by the larger value of each: right for cumulative reports and `message_start`'s placeholders."""
    details = _OutputDetails(larger(before.thinking, after.thinking))
    return structs.replace(later(before, after), output_tokens_details=details)


def usage(tokens: AnthropicTokens) -> Usage:
    """Converts counts to disjoint buckets; with `iterations` (fallback, compaction) the larger of sum and top level."""
    violations = [UNREADABLE_USAGE] if tokens.unreadable else []
    if tokens.iterations:
        tokens = _summed(tokens, tokens.iterations, violations)
    creation = tokens.cache_creation or _CacheCreation()
    write_1h = creation.ephemeral_1h_input_tokens
    write_total = tokens.cache_creation_input_tokens or 0
    split = write_1h + creation.ephemeral_5m_input_tokens
    if tokens.cache_creation_input_tokens is not None and split > write_total:
        violations.append("cache_creation exceeds cache_creation_input_tokens")
    thinking, output = tokens.thinking, tokens.output_tokens or 0
    if thinking is not None and thinking > output:
        violations.append(THOUGHT_BESIDE)
    searches = tokens.server_tool_use.web_search_requests if tokens.server_tool_use else 0  # page fetches are free
    return Usage(
        input_uncached=tokens.input_tokens or 0,
        cache_read=tokens.cache_read_input_tokens or 0,
        cache_write=max(write_total, split) - write_1h,
        cache_write_1h=write_1h,
        output_visible=max(output - (thinking or 0), 0),
        output_reasoning=thinking,
        units={"web_search": searches} if searches else {},
        reasoning_source=CountSource.UNKNOWN if thinking is None else CountSource.REPORTED,
        service_tier=tier(tokens.speed) or tier(tokens.service_tier),
        region_served="" if tokens.inference_geo in (None, "not_available") else tokens.inference_geo,
        violations=tuple(violations),
    )


def _summed(top: AnthropicTokens, iterations: list[AnthropicTokens], violations: list[str]) -> AnthropicTokens:
    """Sums the iterations, with the top level's thinking count. A sum below the top level's count is a violation."""
    counts = {name: sum(getattr(iteration, name) or 0 for iteration in iterations) for name in _SUMMED}
    creations = [iteration.cache_creation for iteration in iterations if iteration.cache_creation]
    ages = {name: sum(getattr(row, name) for row in creations) for name in _CacheCreation.__struct_fields__}
    total = structs.replace(AnthropicTokens(), **counts, cache_creation=_CacheCreation(**ages) if creations else None)
    short = (name for name in _SUMMED if getattr(total, name) < (getattr(top, name) or 0))
    violations += [f"iterations sum to less than {name}" for name in short]
    return latest(top, total)
