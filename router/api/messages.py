"""Anthropic's Messages API: requests become chat requests; chat answers and streams become Anthropic's.

Field names and values: anthropic-version 2023-06-01, anthropic 2.11.0.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec
from msgspec import DecodeError, Raw, Struct
from msgspec.json import Decoder, encode

from router.api.chat import (
    ChatReader,
    Chunk,
    ReplyChoice,
    ReplyMessage,
    ReplyToolCall,
    StreamedCall,
    completion,
    simple,
    text_part,
)
from router.errors import ClientError, invalid, wrong
from router.types.request import NO_LIMITS, Limits, Request
from router.types.tables import table

Json = dict[str, object]

# The request as Anthropic documents it. Unknown fields are passed on, since an Anthropic target may know them.


class MediaSource(Struct, frozen=True):
    """Source of an image or document. `content` is a document's text, as a string or as blocks."""

    type: str
    media_type: str = ""
    data: str = ""
    url: str = ""
    content: "str | list[ContentBlock]" = ""


class ContentBlock(Struct, frozen=True):
    """A content block of any type; fields of the other types keep their defaults."""

    type: str
    text: str = ""
    source: MediaSource | str | None = None
    title: str | None = None
    id: str = ""
    name: str = ""
    input: Raw = Raw(b"{}")
    tool_use_id: str = ""
    content: "str | list[ContentBlock] | None" = None
    is_error: bool | None = None
    thinking: str = ""
    signature: str = ""
    data: str = ""
    cache_control: Json | None = None


class MessagesTurn(Struct, frozen=True):
    role: Literal["user", "assistant", "system"]
    content: str | list[ContentBlock]


class OfferedTool(Struct, frozen=True):
    name: str
    type: str | None = None
    description: str | None = None
    input_schema: Raw = Raw(b'{"type":"object","properties":{}}')
    strict: bool | None = None
    cache_control: Json | None = None


class ChosenTool(Struct, frozen=True):
    type: Literal["auto", "any", "tool", "none"]
    name: str = ""
    disable_parallel_tool_use: bool | None = None


class ThinkingWish(Struct, frozen=True):
    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: int | None = None


class OutputFormat(Struct, frozen=True):
    type: Literal["json_schema"]
    schema: Raw


class OutputConfig(Struct, frozen=True):
    effort: str | None = None
    format: OutputFormat | None = None


class UserMetadata(Struct, frozen=True):
    user_id: str | None = None


class MessagesBody(Struct, frozen=True):
    messages: list[MessagesTurn]
    system: str | list[ContentBlock] | None = None
    max_tokens: int | None = None
    stop_sequences: list[str] | None = None
    tools: list[OfferedTool] | None = None
    tool_choice: ChosenTool | None = None
    thinking: ThinkingWish | None = None
    output_config: OutputConfig | None = None
    service_tier: str | None = None
    metadata: UserMetadata | None = None


_BODY = Decoder(MessagesBody)
_SESSION = re.compile(r'_session_([\w-]+)$|"session_id"\s*:\s*"([\w-]+)"')
"""Pattern of a session id: Claude Code sends `user_…_account_…_session_ID`, or JSON with `session_id`."""
_LONGEST_SESSION = 256
_DEFAULT_EFFORT = "high"
"""Effort of adaptive thinking if a request names none."""
_FAILED = "Error: "
"""Prefix of the result of a tool that failed, since chat has no field for it."""
_HOSTED = ("mcp_servers", "container")
_KNOWN = {
    *(*MessagesBody.__struct_fields__, *_HOSTED, "output_format"),
    # Options of how Anthropic serves a request, without an equivalent elsewhere; they don't change the answer.
    *("context_management", "cache_control", "betas"),
}
_TIERS = {"standard_only": "default"}


def to_chat(body: dict[str, Raw], data: bytes) -> tuple[dict[str, Raw], Limits]:
    """Returns the body for `/v1/chat/completions`, and the thinking budget and session that the request states. `body`
    holds the fields of `data`.

    Raises `ClientError` 400 for what no target can answer, `msgspec.ValidationError` for a wrong type."""
    for name in _HOSTED:
        if bytes(body.get(name, b"null")) not in (b"null", b"[]"):
            raise wrong(name, "lowpass runs no tools of the provider: offer functions in tools.")
    fields = _BODY.decode(data)
    if fields.max_tokens is not None and fields.max_tokens < 1:
        raise invalid("max_tokens", "max_tokens must be at least 1.")
    thinking, config = fields.thinking, fields.output_config or OutputConfig()
    effort, form, user = config.effort, config.format, fields.metadata and fields.metadata.user_id
    if thinking is not None:
        effort = "none" if thinking.type == "disabled" else effort
        effort = effort or (_DEFAULT_EFFORT if thinking.type == "adaptive" else None)
    translated: Json = {
        "messages": [
            *([{"role": "system", "content": _content(fields.system, "system")}] if fields.system else []),
            *_turns(fields.messages),
        ],
        "max_completion_tokens": fields.max_tokens,
        "stop": fields.stop_sequences or None,
        "reasoning_effort": effort,
        "response_format": form and {"type": "json_schema", "json_schema": {"name": "answer", "schema": form.schema}},
        "service_tier": _TIERS.get(fields.service_tier or ""),
        "metadata": {"user_id": user} if user else None,
        **(_tools(fields.tools, fields.tool_choice) if fields.tools else {}),
    }
    chat = {name: raw for name, raw in body.items() if name not in _KNOWN}
    chat |= {name: Raw(encode(value)) for name, value in _stated(translated).items()}
    budget = thinking.budget_tokens if thinking is not None and thinking.type == "enabled" else None
    # Anthropic's agents send `metadata.user_id`: the session id in it is used, or all of it if it has none.
    match = _SESSION.search(user or "")
    session = (match[1] or match[2]) if match else user or ""
    if not session.isprintable() or len(session) > _LONGEST_SESSION:
        session = ""
    return chat, Limits(thinking_budget=budget, session=session) if budget is not None or session else NO_LIMITS


def _stated(fields: Json) -> Json:
    return {name: value for name, value in fields.items() if value is not None}


# Turns. The tool results of a user's turn become messages of their own, ahead of the rest of the turn.


def _turns(turns: Iterable[MessagesTurn]) -> Iterator[Json]:
    for index, turn in enumerate(turns):
        place = f"messages[{index}].content"
        if isinstance(turn.content, str) or turn.role == "system":
            yield {"role": turn.role, "content": _content(turn.content, place)}
        elif turn.role == "assistant":
            yield _assistant(turn.content, place)
        else:
            yield from _user(turn.content, place)


def _user(blocks: list[ContentBlock], place: str) -> Iterator[Json]:
    user_parts: list[Json] = []
    for index, block in enumerate(blocks):
        if block.type != "tool_result":
            user_parts += _parts(block, f"{place}[{index}]")
            continue
        texts, media = _result(block, f"{place}[{index}].content")
        yield {"role": "tool", "tool_call_id": block.tool_use_id, "content": simple(texts)}
        user_parts += media
    if user_parts:
        yield {"role": "user", "content": simple(user_parts)}


def _result(block: ContentBlock, place: str) -> tuple[list[Json], list[Json]]:
    """Returns a tool result as (texts, other parts, which chat allows only in a user's message)."""
    content = block.content
    parts = [text_part(content)] if isinstance(content, str) else list(_each(content or [], place))
    texts, media = ([part for part in parts if (part["type"] == "text") is wanted] for wanted in (True, False))
    if block.is_error:
        texts = [text_part(_FAILED), *texts]
    if block.cache_control is not None and texts:
        texts[-1] = {**texts[-1], "cache_control": block.cache_control}
    return texts, media


def _assistant(blocks: list[ContentBlock], place: str) -> Json:
    """Returns an assistant message. Keeps signed thinking for the provider that signed it; drops all other thinking."""
    texts, calls, thoughts = list[Json](), list[Json](), list[Json]()
    for index, block in enumerate(blocks):
        match block.type:
            case "thinking" if block.signature:
                thoughts.append({"type": "thinking", "thinking": block.thinking, "signature": block.signature})
            case "redacted_thinking":
                thoughts.append({"type": "redacted_thinking", "data": block.data})
            case "tool_use":
                function = {"name": block.name, "arguments": bytes(block.input).decode()}
                calls.append({"id": block.id, "type": "function", "function": function})
            case "text":
                texts += _parts(block, f"{place}[{index}]")
            case kind if kind != "thinking":
                raise _unknown(kind, f"{place}[{index}]", "text, thinking, redacted_thinking, tool_use")
    message: Json = {"role": "assistant", "content": simple(texts) if texts else None}
    return message | ({"tool_calls": calls} if calls else {}) | ({"thinking_blocks": thoughts} if thoughts else {})


def _unknown(kind: str, place: str, known: str) -> ClientError:
    return wrong(f"{place}.type", f"{kind!r} can't be answered here: use one of {known}.")


# Content blocks as parts of a chat message.


def _content(content: str | list[ContentBlock], place: str) -> object:
    return content if isinstance(content, str) else simple(list(_each(content, place)))


def _each(blocks: Iterable[ContentBlock], place: str) -> Iterator[Json]:
    for index, block in enumerate(blocks):
        yield from _parts(block, f"{place}[{index}]")


def _parts(block: ContentBlock, place: str) -> list[Json]:
    match block.type:
        case "text":
            parts = [text_part(block.text)]
        case "image":
            parts = [{"type": "image_url", "image_url": {"url": _url(block.source, place)}}]
        case "document":
            parts = _document(block, place)
        case "search_result" if isinstance(block.content, list):
            parts = list(_each(block.content, f"{place}.content"))
        case kind:
            raise _unknown(kind, place, "text, image, document, search_result, tool_result")
    if block.cache_control is not None and parts:
        parts[-1]["cache_control"] = block.cache_control
    return parts


def _document(block: ContentBlock, place: str) -> list[Json]:
    match block.source:
        case MediaSource(type="text", data=text):
            return [text_part(text)]
        case MediaSource(type="content", content=str(text)):
            return [text_part(text)]
        case MediaSource(type="content", content=list(blocks)):
            return list(_each(blocks, f"{place}.source.content"))
        case MediaSource(type="base64"):
            named = {} if block.title is None else {"filename": block.title}
            return [{"type": "file", "file": {"file_data": _url(block.source, place), **named}}]
    raise wrong(f"{place}.source", "documents aren't fetched or stored here: send type base64, text or content.")


def _url(source: MediaSource | str | None, place: str) -> str:
    match source:
        case MediaSource(type="base64", media_type=media_type, data=data):
            return f"data:{media_type};base64,{data}"
        case MediaSource(type="url", url=url):
            return url
    raise wrong(f"{place}.source", "no files are stored here: send type base64 or url.")


# Tools


def _tools(tools: list[OfferedTool], choice: ChosenTool | None) -> Json:
    fields: Json = {"tools": [_tool(tool, f"tools[{index}]") for index, tool in enumerate(tools)]}
    if choice is None:
        return fields
    named = {"type": "function", "function": {"name": choice.name}}
    fields["tool_choice"] = named if choice.type == "tool" else "required" if choice.type == "any" else choice.type
    return fields | ({"parallel_tool_calls": False} if choice.disable_parallel_tool_use else {})


def _tool(tool: OfferedTool, place: str) -> Json:
    if tool.type not in (None, "custom"):
        remedy = "is run by Anthropic, not by lowpass: leave it out, or offer a function."
        raise wrong(f"{place}.type", f"{tool.type!r} {remedy}")
    function: Json = {"name": tool.name, "parameters": tool.input_schema}
    function |= _stated({"description": tool.description, "strict": tool.strict})
    return {"type": "function", "function": function, **_stated({"cache_control": tool.cache_control})}


# Chat answers and streams become those of the Messages API; errors take its envelope.

_STOPS = Decoder(str | list[str] | None)
_NULL = Raw(b"null")
_REASONS = {"length": "max_tokens", "tool_calls": "tool_use", "function_call": "tool_use", "content_filter": "refusal"}
"""Chat finish reason → stop reason; any other becomes `tool_use` or `end_turn`."""
_TYPES: dict[int, str] = table("api/data/messages.yaml")["error_types"]


def envelope(error: ClientError, request_id: str) -> Json:
    """Returns the error body that Anthropic's clients parse, with `code`, `param` and lowpass' extra fields added."""
    kind = _TYPES.get(error.status, "invalid_request_error" if error.status < 500 else "api_error")
    fields: Json = {"type": kind, "message": error.message, "code": error.code, "param": error.param, **error.extra}
    return {"type": "error", "error": fields, "request_id": request_id}


def _blank(request: Request) -> Json:
    """Returns a message without content, as at the start of an answer."""
    return {
        "id": f"msg_{request.id}",
        "type": "message",
        "role": "assistant",
        "model": request.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
    }


def _ending(choice: ReplyChoice, request: Request, calls: bool) -> Json:
    """Returns the stop reason. vLLM and the Anthropic adapter put the stop sequence into `choice.stop_reason`."""
    stops = _STOPS.decode(request.body.get("stop", _NULL)) or []
    if choice.finish_reason == "stop" and isinstance(choice.stop_reason, str) and choice.stop_reason in stops:
        return {"stop_reason": "stop_sequence", "stop_sequence": choice.stop_reason}
    usual = "tool_use" if calls else "end_turn"
    return {"stop_reason": _REASONS.get(choice.finish_reason or "", usual), "stop_sequence": None}


def _blocks(message: ReplyMessage, shows_thinking: bool) -> Iterator[Json]:
    """Yields thinking, text and calls in this order: a chat answer does not state the original one."""
    if message.thinking_blocks:
        yield from message.thinking_blocks
    elif shows_thinking and message.thought:
        yield {"type": "thinking", "thinking": message.thought, "signature": ""}
    if text := (message.content or "") + (message.refusal or ""):
        yield {"type": "text", "text": text}
    for number, call in enumerate(message.tool_calls or ()):
        yield _tool_use(call, number) | {"input": _input(call.arguments)}


def _tool_use(call: ReplyToolCall | StreamedCall, number: int) -> Json:
    return {"type": "tool_use", "id": call.id or f"toolu_{number}", "name": call.name, "input": {}}


def _input(arguments: str) -> object:
    """Returns a call's arguments as an object; those that are not a JSON object are wrapped in one as text."""
    try:
        value = msgspec.json.decode(arguments or "{}")
    except DecodeError:
        value = None
    return value if isinstance(value, dict) else {"arguments": arguments}


class StreamedBlock:
    """Content block of a stream: its start event, and the deltas that wait until the blocks before it are complete."""

    def __init__(self, kind: str, start: Json) -> None:
        self.kind, self.start = kind, start
        self.waiting: list[Json] = []
        self.begun = self.over = False
        self.texts = 0
        """Characters of text or thinking so far."""

    @property
    def ready(self) -> bool:
        """Whether its start can be sent: a tool's name may come in pieces, and is complete once arguments begin."""
        return self.over or self.kind != "tool_use" or bool(self.waiting)


class MessagesStream(ChatReader):
    """Encoder of a chat stream as Anthropic events. Anthropic's blocks come one after another while chat's parallel
    calls may interleave, so the deltas of a block wait until the block before it is complete."""

    def __init__(self, request: Request) -> None:
        super().__init__()
        self._request = request
        self._shows = request.effort not in (None, "none") or bool(request.limits.thinking_budget)
        """Whether the client asked for thinking. Signed thinking is always sent, since the next turn needs it."""
        self._blocks: list[StreamedBlock] = []
        self._called: dict[StreamedCall, StreamedBlock] = {}
        self._current = 0
        """Index of the block that is being sent."""
        self._started = False

    def whole(self, body: dict[str, Raw], usage: bytes) -> dict[str, Raw]:
        choice = (completion(body).choices or [ReplyChoice()])[0]
        message = choice.message or ReplyMessage()
        blank = _blank(self._request) | _ending(choice, self._request, bool(message.tool_calls))
        whole = blank | {"content": list(_blocks(message, self._shows)), "usage": Raw(usage)}
        return {name: Raw(encode(value)) for name, value in whole.items()}

    def final(self, usage: bytes) -> bytes:
        """Returns the closing events; `message_delta` carries the JSON object `usage`."""
        self.begin(Chunk())
        for block in self._blocks:
            block.over = True
        self._write()
        self.emit("message_delta", delta=_ending(self.last, self._request, bool(self.calls)), usage=Raw(usage))
        self.emit("message_stop")
        return self.taken()

    def error_event(self, message: str, code: str) -> bytes:
        self.begin(Chunk())
        self.emit("error", error={"type": "api_error", "message": message, "code": code})
        return self.taken()

    def begin(self, chunk: Chunk) -> None:
        if not self._started:
            self._started = True
            usage = {"input_tokens": 0, "output_tokens": 0}
            self.emit("message_start", message=_blank(self._request) | {"usage": usage})

    def delta(self, choice: ReplyChoice) -> None:
        delta = choice.delta or ReplyMessage()
        if delta.worded and self._shows:
            self._say("thinking", delta.worded)
        for block in delta.thinking_blocks or ():
            self._sign(block, worded=bool(delta.worded))
        if text := (delta.content or "") + (delta.refusal or ""):
            self._say("text", text)
        for call in delta.tool_calls or ():
            self._call(call)
        self._write()

    def _say(self, kind: str, text: str) -> None:
        """Adds a piece of text or thinking."""
        block = self._blocks[-1] if self._blocks else None
        if block is None or block.kind != kind or block.over:
            start: Json = {"type": "text", "text": ""}
            block = self._open(kind, start if kind == "text" else {"type": kind, "thinking": "", "signature": ""})
        block.texts += len(text)
        block.waiting.append({"type": f"{kind}_delta", kind: text})

    def _sign(self, thought: Json, worded: bool) -> None:
        """Adds a provider's thinking block: in pieces, or whole and signed after its text."""
        if thought.get("type") == "redacted_thinking":
            self._open("redacted_thinking", thought).over = True
            return
        signature, text = str(thought.get("signature") or ""), str(thought.get("thinking") or "")
        block = self._blocks[-1] if self._blocks else None
        texts = block.texts if block is not None and block.kind == "thinking" and not block.over else 0
        if text and not worded and ((signature and not texts) or (not signature and self._shows)):
            self._say("thinking", text)
        if signature:
            if not text and not texts:
                self._say("thinking", "")
            self._blocks[-1].waiting.append({"type": "signature_delta", "signature": signature})
            self._blocks[-1].over = True

    def _call(self, delta: ReplyToolCall) -> None:
        call = self.call_of(delta)
        block = self._called.get(call)
        if block is None:
            block = self._called[call] = self._open("tool_use", {})
        if not block.begun:
            block.start = _tool_use(call, call.number)
        if delta.arguments:
            block.waiting.append({"type": "input_json_delta", "partial_json": delta.arguments})

    def _open(self, kind: str, start: Json) -> StreamedBlock:
        """Opens a block; one of text or thinking ends with that, while calls stay open until the end."""
        if self._blocks and self._blocks[-1].kind != "tool_use":
            self._blocks[-1].over = True
        self._blocks.append(StreamedBlock(kind, start))
        return self._blocks[-1]

    def _write(self) -> None:
        while self._current < len(self._blocks) and (block := self._blocks[self._current]).ready:
            if not block.begun:
                block.begun = True
                self.emit("content_block_start", index=self._current, content_block=block.start)
            for piece in block.waiting:
                self.emit("content_block_delta", index=self._current, delta=piece)
            block.waiting.clear()
            if not block.over:
                return
            self.emit("content_block_stop", index=self._current)
            self._current += 1
