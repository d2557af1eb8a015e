"""A Messages request becomes a chat request. Field names and values: anthropic-version 2023-06-01, anthropic 2.11.0."""

import re
from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec
from msgspec import Raw, Struct

from router.errors import ClientError, invalid

Json = dict[str, object]

# The request as Anthropic documents it. A field that is not here travels on: an Anthropic target may know it.


class MediaSource(Struct, frozen=True):
    """Where an image or a document is. `content` is a document's text, in one piece or in blocks."""

    type: str
    media_type: str = ""
    data: str = ""
    url: str = ""
    content: "str | list[ContentBlock]" = ""


class ContentBlock(Struct, frozen=True):
    """A content block of any type; the fields of the other types are empty."""

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


class Translated(Struct, frozen=True):
    """`chat` is the same request for `/v1/chat/completions`."""

    chat: dict[str, Raw]
    thinking_budget: int | None
    """Tokens that the answer may think."""
    session: str
    """What Anthropic's agents name in `metadata.user_id`: the session where it states one, else all of it."""


_BODY = msgspec.json.Decoder(MessagesBody)
_SESSION = re.compile(r'_session_([\w-]+)$|"session_id"\s*:\s*"([\w-]+)"')
"""Claude Code writes `user_…_account_…_session_ID`, or a JSON object with `session_id`."""
_LONGEST_SESSION = 256
_DEFAULT_EFFORT = "high"
"""Of adaptive thinking, where a request names none."""
_FAILED = "Error: "
"""Marks the result of a tool that failed: chat has no field for it."""
_HOSTED = ("mcp_servers", "container")
_UNSAID = ("context_management", "cache_control", "betas")
"""They tune how Anthropic serves a request and change no answer's meaning: nothing else has a word for them."""
_TIERS = {"standard_only": "default"}


def to_chat(body: dict[str, Raw]) -> Translated:
    """Raises `ClientError` 400 for what no target could answer, `msgspec.ValidationError` for a wrong type."""
    for name in _HOSTED:
        if bytes(body.get(name, b"null")) not in (b"null", b"[]"):
            raise invalid(name, f"{name}: lowpass runs no tools of the provider: offer functions in tools.")
    fields = _BODY.decode(msgspec.json.encode(body))
    if fields.max_tokens is not None and fields.max_tokens < 1:
        raise invalid("max_tokens", "max_tokens must be at least 1.")
    known = {*MessagesBody.__struct_fields__, *_HOSTED, *_UNSAID, "output_format"}
    thinking, config = fields.thinking, fields.output_config or OutputConfig()
    effort, form = config.effort, config.format
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
        "metadata": {"user_id": fields.metadata.user_id} if fields.metadata and fields.metadata.user_id else None,
        **(_tools(fields.tools, fields.tool_choice) if fields.tools else {}),
    }
    chat = {name: raw for name, raw in body.items() if name not in known}
    chat |= {name: Raw(msgspec.json.encode(value)) for name, value in translated.items() if value is not None}
    budget = thinking.budget_tokens if thinking is not None and thinking.type == "enabled" else None
    return Translated(chat, budget, _session(fields.metadata))


def _session(metadata: UserMetadata | None) -> str:
    user = (metadata and metadata.user_id) or ""
    match = _SESSION.search(user)
    name = (match[1] or match[2]) if match else user
    return name if name.isprintable() and len(name) <= _LONGEST_SESSION else ""


# Turns. Results of tools come first in a user's turn, as the messages that chat has for them.


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
    beside: list[Json] = []
    for index, block in enumerate(blocks):
        if block.type != "tool_result":
            beside += _parts(block, f"{place}[{index}]")
            continue
        texts, media = _result(block, f"{place}[{index}].content")
        yield {"role": "tool", "tool_call_id": block.tool_use_id, "content": _simple(texts)}
        beside += media
    if beside:
        yield {"role": "user", "content": _simple(beside)}


def _result(block: ContentBlock, place: str) -> tuple[list[Json], list[Json]]:
    """What a tool gave: (texts, everything else, which chat takes in a user's message only)."""
    content = block.content
    parts = [_text(content)] if isinstance(content, str) else list(_each(content or [], place))
    texts, media = ([part for part in parts if (part["type"] == "text") is wanted] for wanted in (True, False))
    if block.is_error:
        texts = [_text(_FAILED), *texts]
    if block.cache_control is not None and texts:
        texts[-1] = {**texts[-1], "cache_control": block.cache_control}
    return texts, media


def _assistant(blocks: list[ContentBlock], place: str) -> Json:
    """Signed thinking is kept as it is, for the provider that signed it; other thinking has no place in a prompt."""
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
    message: Json = {"role": "assistant", "content": _simple(texts) if texts else None}
    return message | ({"tool_calls": calls} if calls else {}) | ({"thinking_blocks": thoughts} if thoughts else {})


def _unknown(kind: str, place: str, known: str) -> ClientError:
    return invalid(f"{place}.type", f"{place}.type: {kind!r} can't be answered here: use one of {known}.")


# Content blocks as parts of a chat message.


def _content(content: str | list[ContentBlock], place: str) -> object:
    return content if isinstance(content, str) else _simple(list(_each(content, place)))


def _each(blocks: Iterable[ContentBlock], place: str) -> Iterator[Json]:
    for index, block in enumerate(blocks):
        yield from _parts(block, f"{place}[{index}]")


def _simple(parts: list[Json]) -> object:
    """A single plain text as a string, since some providers take nothing else."""
    if not parts:
        return ""
    return parts[0]["text"] if len(parts) == 1 and parts[0].keys() == {"type", "text"} else parts


def _text(text: str) -> Json:
    return {"type": "text", "text": text}


def _parts(block: ContentBlock, place: str) -> list[Json]:
    match block.type:
        case "text":
            parts = [_text(block.text)]
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
            return [_text(text)]
        case MediaSource(type="content", content=str(text)):
            return [_text(text)]
        case MediaSource(type="content", content=list(blocks)):
            return list(_each(blocks, f"{place}.source.content"))
        case MediaSource(type="base64"):
            named = {} if block.title is None else {"filename": block.title}
            return [{"type": "file", "file": {"file_data": _url(block.source, place), **named}}]
    raise invalid(f"{place}.source", f"{place}.source: documents aren't fetched or stored here: send type base64, "
                   "text or content.")  # fmt: skip


def _url(source: MediaSource | str | None, place: str) -> str:
    match source:
        case MediaSource(type="base64", media_type=media_type, data=data):
            return f"data:{media_type};base64,{data}"
        case MediaSource(type="url", url=url):
            return url
    raise invalid(f"{place}.source", f"{place}.source: no files are stored here: send type base64 or url.")


# Tools


def _tools(tools: list[OfferedTool], choice: ChosenTool | None) -> Json:
    return {
        "tools": [_tool(tool, f"tools[{index}]") for index, tool in enumerate(tools)],
        "tool_choice": None if choice is None else _choice(choice),
        "parallel_tool_calls": False if choice is not None and choice.disable_parallel_tool_use else None,
    }


def _tool(tool: OfferedTool, place: str) -> Json:
    if tool.type not in (None, "custom"):
        message = f"{place}.type: {tool.type!r} is run by Anthropic, not by lowpass: leave it out, or offer a function."
        raise invalid(f"{place}.type", message)
    function: Json = {"name": tool.name, "parameters": tool.input_schema}
    function |= {} if tool.description is None else {"description": tool.description}
    function |= {} if tool.strict is None else {"strict": tool.strict}
    marked = {} if tool.cache_control is None else {"cache_control": tool.cache_control}
    return {"type": "function", "function": function, **marked}


def _choice(choice: ChosenTool) -> object:
    if choice.type == "tool":
        return {"type": "function", "function": {"name": choice.name}}
    return "required" if choice.type == "any" else choice.type
