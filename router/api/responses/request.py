"""Translates requests of the Responses API into chat requests."""

from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, DecodeError, Raw, Struct, UnsetType, field
from msgspec.json import Decoder, encode

from router.api.chat import Block, Traces, simple, text_part
from router.errors import invalid, misplaced, wrong
from router.redact.redact import PREFIX, opened
from router.types.tables import table

# Parts of a request body. Mistakes become a 400 that names the parameter and the remedy.

T = TypeVar("T")
Fields = dict[str, Raw]
_DECODERS: dict[Any, Decoder[Any]] = {}
"""Decoder for each type, made when it is first needed."""
_QUOTE = ord('"')
_NULL = Raw(b"null")


def read(raw: Raw | bytes, kind: type[T], param: str) -> T:
    """Decodes one value; raises `ClientError` 400 whose `param` is the full path of the mistake."""
    try:
        decoder: Decoder[T] = _DECODERS.get(kind) or _DECODERS.setdefault(kind, Decoder(kind))
        return decoder.decode(raw)
    except RecursionError:
        raise invalid(param, f"{param} is nested too deeply: flatten it.") from None
    except (DecodeError, UnicodeDecodeError) as error:
        problem, place = misplaced(error, param)
        raise wrong(place, f"{problem}. Send the value in the form that the Responses API documents.") from None


def given(body: Fields, name: str) -> Raw | None:
    """Returns the field's bytes; None if it is absent or null, which mean the same in the Responses API."""
    return None if (raw := body.get(name, _NULL)) == _NULL else raw


def stated(body: Fields, name: str, kind: type[T], place: str = "") -> T | None:
    """Decodes a field of the object at `place`; None if it is absent or null. Raises as `read` does."""
    raw = body.get(name, _NULL)
    return None if raw == _NULL else read(raw, kind, f"{place}.{name}" if place else name)


def _is_string(raw: Raw) -> bool:
    return memoryview(raw)[0] == _QUOTE


# Content of an input item (a string or a list of parts) → content of a chat message.

_TEXTS = ("input_text", "output_text")
_USED = {
    **dict.fromkeys(_TEXTS, ("type", "text", "annotations", "logprobs", "parsed")),
    "input_image": ("type", "image_url", "detail", "file_id"),
    "input_file": ("type", "file_data", "filename", "file_id", "file_url"),
    "input_audio": (),
}
"""Types of parts, with the fields that are translated or have no meaning in a prompt; all others are passed on."""


def _content(raw: Raw, param: str) -> object:
    if _is_string(raw):
        return read(raw, str, param)
    return simple([_part(part, f"{param}[{index}]") for index, part in enumerate(read(raw, list[Fields], param))])


def _part(part: Fields, place: str) -> dict[str, object]:
    kind = _string(part, "type", place)
    if kind not in _USED:
        raise wrong(f"{place}.type", f"{kind!r} is not known here: use one of {', '.join(_USED)}.")
    rest: dict[str, object] = {name: raw for name, raw in part.items() if name not in _USED[kind]}
    if kind in _TEXTS:
        return text_part(_string(part, "text", place)) | rest
    if kind == "input_audio":
        return rest
    if given(part, "file_id") is not None:
        instead = "file_data" if kind == "input_file" else "image_url with a URL or a data: URL"
        raise wrong(f"{place}.file_id", f"no files are stored here: send {instead}.")
    if kind == "input_image":
        detail = given(part, "detail")
        url = {"url": _string(part, "image_url", place), **({} if detail is None else {"detail": detail})}
        return {"type": "image_url", "image_url": url, **rest}
    if given(part, "file_url") is not None:
        raise wrong(f"{place}.file_url", "it is not fetched here: send the content as file_data.")
    name = given(part, "filename")
    file = {"file_data": _string(part, "file_data", place), **({} if name is None else {"filename": name})}
    return {"type": "file", "file": file, **rest}


def _string(part: Fields, name: str, place: str, wrong: str = "must be a string.") -> str:
    raw = given(part, name)
    if raw is None or not _is_string(raw):
        raise invalid(f"{place}.{name}", f"{place}.{name} {wrong}")
    return read(raw, str, f"{place}.{name}")


def _spoken(raw: Raw, param: str) -> tuple[str | None, str | None]:
    """Returns the content of an assistant message as (text, refusal)."""
    if _is_string(raw):
        return read(raw, str, param), None
    texts: list[str] = []
    refusals: list[str] = []
    for index, part in enumerate(read(raw, list[Fields], param)):
        place = f"{param}[{index}]"
        kind = _string(part, "type", place)
        if kind == "refusal":
            refusals.append(_string(part, "refusal", place))
        elif kind in _TEXTS:
            texts.append(_string(part, "text", place))
        else:
            raise wrong(f"{place}.type", f"{kind!r} is not known here: use one of output_text, refusal.")
    return "".join(texts) if texts or not refusals else None, "".join(refusals) or None


# Traces of thinking in `encrypted_content`, the only field that a Responses client keeps: JSON in base64 after a
# version prefix. It is not secret and a client may forge it: unsealing it fills only the fields of `Traces` in an
# assistant message, which the client could have sent anyway.


def unseal(value: str | None, param: str) -> Traces:
    """Returns the traces of thinking; empty for a value of another provider, which only that provider can read."""
    if not value or not value.startswith(PREFIX):
        return Traces()
    try:
        return msgspec.json.decode(opened(value) or "", type=Traces)
    except (DecodeError, ValueError, RecursionError):
        raise invalid(param, f"{param} is damaged: send it back unchanged, or leave the reasoning item out.") from None


# Input items of the Responses API → chat messages.
#
# The items of one assistant turn (reasoning, message, calls) become one assistant message. `developer` becomes
# `system`, which every provider knows, and system messages at the very beginning are joined: many chat templates take
# only one.

_ROLES = {"user": "user", "assistant": "assistant", "system": "system", "developer": "system"}


class _Head(Struct):
    type: str | None = None
    role: str | None = None


class _InputText(Struct):
    text: str


class _Reasoning(Struct):
    summary: list[_InputText] = []
    content: list[_InputText] | None = None
    encrypted_content: str | None = None


class _InputCall(Struct):
    call_id: str
    name: str


class _InputFunctionCall(_InputCall):
    arguments: str
    extra_content: dict[str, object] | None = None


class _CustomCall(_InputCall):
    input: str


class _Output(Struct):
    call_id: str
    output: Raw


class _InputContent(Struct):
    content: Raw


class _InputMessage(Struct):
    """A message of a user, the system or a tool."""

    role: str
    content: object
    tool_call_id: str | UnsetType = UNSET


class _AssistantTurn(Struct, tag_field="role", tag="assistant", omit_defaults=True):
    """An assistant message; each field that a provider sent keeps its name."""

    content: str | None
    refusal: str | None = None
    reasoning_content: str | None = None
    thinking_blocks: list[Block] = field(default_factory=list)
    reasoning_details: list[Block] = field(default_factory=list)
    tool_calls: list[dict[str, object]] = field(default_factory=list)

    @property
    def spoken(self) -> bool:
        return self.content is not None or self.refusal is not None

    def think(self, text: str | None, blocks: list[Block], details: list[Block]) -> None:
        self.reasoning_content = _lines(self.reasoning_content, text, "\n\n")
        self.thinking_blocks += blocks
        self.reasoning_details += details


def _lines(first: str | None, second: str | None, between: str) -> str | None:
    return between.join((first, second)) if first and second else first or second


class _Transcript:
    """Builds the chat messages: those so far, and the assistant's turn that still grows."""

    def __init__(self) -> None:
        self._messages: list[_InputMessage | _AssistantTurn] = []
        self._turn = _AssistantTurn(None)
        self._unanswered: dict[str, str] = {}

    def item(self, raw: Raw, param: str) -> None:
        head = read(raw, _Head, param)
        kind = head.type or ("message" if head.role else "item_reference")
        match kind:
            case "message":
                self._message(raw, head.role, param)
            case "reasoning":
                self._reasoning(read(raw, _Reasoning, param), param)
            case "function_call":
                call = read(raw, _InputFunctionCall, param)
                extra: dict[str, object] = {"extra_content": call.extra_content} if call.extra_content else {}
                self._call(call, call.arguments, param, extra)
            case "custom_tool_call":
                custom = read(raw, _CustomCall, param)
                self._call(custom, encode({"input": custom.input}).decode(), param, {})
            case "function_call_output" | "custom_tool_call_output":
                self._output(read(raw, _Output, param), param)
            case "item_reference":
                raise invalid(param, f"{param} refers to a stored item, and nothing is stored: send the whole item.")
            case _:
                remedy = "leave the item out."
                raise wrong(f"{param}.type", f"{kind!r} needs a target with a Responses API of its own: {remedy}")

    def message(self, role: str, content: object) -> None:
        """Adds a message. System messages at the start are merged: texts by a blank line, parts into one list."""
        self._end_turn()
        first = self._messages[0] if len(self._messages) == 1 else None
        if role != "system" or not isinstance(first, _InputMessage) or first.role != "system":
            self._messages.append(_InputMessage(role, content))
        elif isinstance(first.content, str) and isinstance(content, str):
            first.content = f"{first.content}\n\n{content}"
        else:
            both = [part if isinstance(part, list) else [text_part(part)] for part in (first.content, content)]
            first.content = both[0] + both[1]

    def finished(self) -> list[_InputMessage | _AssistantTurn]:
        self._end_turn()
        if self._unanswered:
            call_id, param = next(iter(self._unanswered.items()))
            raise wrong(param, f"call {call_id!r} has no output: add its output item after the call.")
        if not self._messages:
            raise invalid("input", "input is empty: send a text or at least one item.")
        return self._messages

    def _message(self, raw: Raw, role: str | None, param: str) -> None:
        if role not in _ROLES:
            raise invalid(f"{param}.role", f"{param}.role must be one of {', '.join(_ROLES)}.")
        content = read(raw, _InputContent, param).content
        if role == "assistant":
            text, refusal = _spoken(content, f"{param}.content")
            self._next_turn()
            self._turn.content = _lines(self._turn.content, text, "\n")
            self._turn.refusal = _lines(self._turn.refusal, refusal, "\n")
        else:
            self.message(_ROLES[role], _content(content, f"{param}.content"))

    def _reasoning(self, item: _Reasoning, param: str) -> None:
        """Adds reasoning, which begins the next assistant message; between parallel calls it joins theirs."""
        traces = unseal(item.encrypted_content, f"{param}.encrypted_content")
        text = "\n\n".join(part.text for part in item.content or item.summary) or traces.text
        self._next_turn()
        self._turn.think(text or None, traces.thinking_blocks, traces.reasoning_details)

    def _call(self, item: _InputCall, arguments: str, param: str, extra: dict[str, object]) -> None:
        self._unanswered[item.call_id] = param
        function = {"name": item.name, "arguments": arguments}
        self._turn.tool_calls.append({"id": item.call_id, "type": "function", "function": function, **extra})

    def _output(self, item: _Output, param: str) -> None:
        if self._unanswered.pop(item.call_id, None) is None:
            remedy = "send the call's item as well, because nothing is stored here."
            raise wrong(f"{param}.call_id", f"no call {item.call_id!r} stands before it: {remedy}")
        self._end_turn()
        self._messages.append(_InputMessage("tool", _content(item.output, f"{param}.output"), item.call_id))

    def _next_turn(self) -> None:
        """Ends the turn before a second message, unless calls before that still wait for their outputs."""
        if self._turn.spoken and not self._turn.tool_calls:
            self._end_turn()

    def _end_turn(self) -> None:
        """Adds the turn. Reasoning alone joins the last assistant message; without one it is dropped."""
        turn, self._turn = self._turn, _AssistantTurn(None)
        last = self._messages[-1] if self._messages else None
        if turn.spoken or turn.tool_calls:
            self._messages.append(turn)
        elif isinstance(last, _AssistantTurn):
            last.think(turn.reasoning_content, turn.thinking_blocks, turn.reasoning_details)


# Tools and tool choice → chat.
#
# Only functions exist in every chat API. A custom tool with free text becomes a function with one string, `input`;
# `allowed_tools` becomes a shorter list of tools. Tools that the provider runs itself, and grammars, are refused with
# 400.

_DESCRIBED = ("name", "description", "parameters", "strict")
_RUNTIME = ("type", "async", "allowed_callers", "defer_loading", "output_schema")
"""Fields for OpenAI's own runtime, which are dropped: over chat, the client runs every call."""
_ONE_INPUT = Raw(
    b'{"type":"object","properties":{"input":{"type":"string"}},"required":["input"],"additionalProperties":false}'
)
_MODES = ("none", "auto", "required")
_ABOVE = "is missing, or no string: the Responses API takes it at the top level of the tool."


class _Format(Struct):
    type: str


class _ToolChoice(Struct):
    type: str
    name: str = ""
    mode: str = ""
    tools: list["_ToolChoice"] = []


class _Input(Struct):
    input: str


def _tools(listed: list[Fields] | None, choice: Raw, parallel: object) -> dict[str, object]:
    """Returns the chat fields `tools`, `tool_choice`, `parallel_tool_calls`; none without tools, as chat requires."""
    tools = [_tool(tool, f"tools[{index}]") for index, tool in enumerate(listed or ())]
    chosen, allowed = _choice(choice, {name for name, _ in tools})
    offered = [tool for name, tool in tools if name in allowed]
    return {"tools": offered, "tool_choice": chosen, "parallel_tool_calls": parallel} if offered else {}


def custom_names(body: Fields) -> frozenset[str]:
    """Returns the names of the custom tools in a request that `to_chat` accepted."""
    listed = stated(body, "tools", list[Fields]) or ()
    return frozenset(_string(tool, "name", "") for tool in listed if _string(tool, "type", "") == "custom")


def custom_input(arguments: str) -> str:
    """Returns a custom tool's input from the arguments of the function that replaces it; invalid ones unchanged."""
    try:
        return msgspec.json.decode(arguments, type=_Input).input
    except DecodeError:
        return arguments


def _tool(tool: Fields, param: str) -> tuple[str, dict[str, object]]:
    """Returns (name, chat function) of a tool."""
    kind = _string(tool, "type", param, _ABOVE)
    if kind not in ("function", "custom"):
        remedy = "leave the tool out, or offer a function that does its work."
        raise wrong(f"{param}.type", f"{kind!r} needs a target with a Responses API of its own: {remedy}")
    form = stated(tool, "format", _Format, param) if kind == "custom" else None
    if form is not None and form.type != "text":
        remedy = "use format 'text', or a function with a JSON schema."
        raise wrong(f"{param}.format", f"grammars need a target with a Responses API of its own: {remedy}")
    described = {name: raw for name in _DESCRIBED if (raw := given(tool, name)) is not None}
    if kind == "custom":
        described["parameters"] = _ONE_INPUT
    rest = {name: raw for name, raw in tool.items() if name not in (*_DESCRIBED, *_RUNTIME, "format")}
    return _string(tool, "name", param, _ABOVE), {"type": "function", "function": described, **rest}


def _choice(raw: Raw, names: set[str]) -> tuple[object, set[str]]:
    """Returns (chat's `tool_choice`, names of the tools to offer)."""
    if raw == _NULL:
        return None, names
    if _is_string(raw):
        return _mode(read(raw, str, "tool_choice"), names, "tool_choice"), names
    choice = read(raw, _ToolChoice, "tool_choice")
    if choice.type == "allowed_tools":
        allowed = {_named(tool, names, f"tool_choice.tools[{index}]") for index, tool in enumerate(choice.tools)}
        return _mode(choice.mode, allowed, "tool_choice.mode"), allowed
    return {"type": "function", "function": {"name": _named(choice, names, "tool_choice")}}, names


def _mode(mode: str, names: set[str], param: str) -> str:
    if mode not in _MODES:
        raise invalid(param, f"{param} must be one of {', '.join(_MODES)}, or an object that names a tool.")
    if mode == "required" and not names:
        raise wrong(param, "'required' needs at least one tool in tools.")
    return mode


def _named(choice: _ToolChoice, names: set[str], param: str) -> str:
    if choice.type not in ("function", "custom"):
        raise wrong(f"{param}.type", f"{choice.type!r} can't be chosen here: name a function.")
    if choice.name not in names:
        raise wrong(f"{param}.name", f"no tool {choice.name!r} in tools: add it, or choose another.")
    return choice.name


# A Responses request → a Chat Completions request.

_REFUSED: dict[str, str] = table("api/data/responses.yaml")["refused"]
_HANDLED = {
    *_REFUSED,
    *("input", "instructions", "tools", "tool_choice", "parallel_tool_calls", "text", "reasoning"),
    *("max_output_tokens", "include", "top_logprobs", "background"),
    # Storage, truncation, running tools and stream padding are never done here, as the response states.
    *("store", "truncation", "max_tool_calls", "stream_options"),
}
"""Fields that are refused, translated or without effect; all others are passed on."""
SUMMARY = ("summary", "generate_summary")
LOGPROBS = "message.output_text.logprobs"


class _Schema(Struct, omit_defaults=True):
    name: str
    schema: dict[str, Raw]
    strict: bool | None = None
    description: str | None = None


class _Text(Struct):
    format: Raw = _NULL
    verbosity: object = None


class _Translated(Struct):
    """The fields of a request that chat expresses differently."""

    input: Raw = _NULL
    instructions: str | None = None
    tools: list[Fields] | None = None
    tool_choice: Raw = _NULL
    parallel_tool_calls: object = None
    text: _Text | None = None
    reasoning: Fields | None = None
    include: list[str] | None = None
    max_output_tokens: int | None = None
    top_logprobs: int | None = None
    background: bool | None = None


def to_chat(body: Fields, data: bytes) -> Fields:
    """Returns the same request for `/v1/chat/completions`; fields that neither API knows are passed on. `body` holds
    the fields of `data`.

    Raises `ClientError` 400 for mistakes, and for what needs stored state or a tool that the provider runs.
    """
    for name in body:
        if name in _REFUSED and given(body, name) is not None:
            raise wrong(name, _REFUSED[name])
    fields = read(data, _Translated, "")
    if fields.background:
        raise wrong("background", "no responses are stored here: send false and use stream.")
    limit, top, text = fields.max_output_tokens, fields.top_logprobs or 0, fields.text or _Text()
    if limit is not None and limit < 1:
        raise invalid("max_output_tokens", "max_output_tokens must be at least 1.")
    if not 0 <= top <= 20:
        raise invalid("top_logprobs", "top_logprobs must be between 0 and 20.")
    passed = {name: raw for name, raw in body.items() if name not in _HANDLED}
    translated: dict[str, object] = {
        "messages": _messages(fields.input, fields.instructions),
        **_tools(fields.tools, fields.tool_choice, fields.parallel_tool_calls),
        "response_format": None if text.format == _NULL else _format(text.format),
        "verbosity": text.verbosity,
        **(_reasoning(fields.reasoning) if fields.reasoning else {}),
        "max_completion_tokens": limit,
        # Chat refuses `top_logprobs` without `logprobs`; 0 is the default, which a client may send too.
        "logprobs": True if top or LOGPROBS in (fields.include or ()) else None,
        "top_logprobs": top or None,
    }
    return passed | {name: Raw(encode(value)) for name, value in translated.items() if value is not None}


def included(body: Fields) -> list[str]:
    """Returns the values of `include`."""
    return stated(body, "include", list[str]) or []


def _messages(raw: Raw, instructions: str | None) -> list[_InputMessage | _AssistantTurn]:
    """Returns `raw`, the `input` (a string or a list of items), as messages after `instructions`; raises a 400."""
    transcript = _Transcript()
    if raw == _NULL:
        raise invalid("input", "input is missing: send a text or a list of items.")
    if instructions is not None:
        transcript.message("system", instructions)
    if _is_string(raw):
        transcript.message("user", read(raw, str, "input"))
    else:
        for index, item in enumerate(read(raw, list[Raw], "input")):
            transcript.item(item, f"input[{index}]")
    return transcript.finished()


def _format(raw: Raw) -> object:
    """Returns chat's `response_format`; None for plain text, which is chat's default."""
    form = read(raw, _Format, "text.format")
    if form.type == "text":
        return None
    if form.type == "json_schema":
        return {"type": form.type, "json_schema": read(raw, _Schema, "text.format")}
    if form.type != "json_object":
        raise invalid("text.format.type", "text.format.type must be one of text, json_schema, json_object.")
    return {"type": form.type}


def _reasoning(fields: Fields) -> dict[str, object]:
    """Returns the chat fields of `reasoning`, with other providers' fields (`max_tokens`) together in `reasoning`."""
    if stated(fields, "mode", str, "reasoning") not in (None, "standard"):
        raise wrong("reasoning.mode", "only 'standard' exists over chat: leave it out.")
    rest = {name: value for name, value in fields.items() if name not in (*SUMMARY, "effort", "mode", "context")}
    return {"reasoning_effort": stated(fields, "effort", str, "reasoning"), "reasoning": rest or None}
