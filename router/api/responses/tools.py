"""Tools and tool choice → chat.

Only functions exist everywhere. A custom tool with free text becomes a function with one string, `input`;
`allowed_tools` becomes a shorter list of tools. Tools that the provider runs itself, and grammars, can't be had over
chat: 400.
"""

from typing import NamedTuple

from msgspec import DecodeError, Raw, Struct
from msgspec.json import Decoder

from router.api.responses.body import given, is_string, read, refused

_TEXT = Decoder(str)
_TOOLS = Decoder(list[dict[str, Raw]])
_DESCRIBED = ("name", "description", "parameters", "strict")
_RUNTIME = ("type", "async", "allowed_callers", "defer_loading", "output_schema")
"""Instructions for OpenAI's own runtime: over chat, the client runs every call."""
_ONE_INPUT = Raw(
    b'{"type":"object","properties":{"input":{"type":"string"}},"required":["input"],"additionalProperties":false}'
)
_MODES = ("none", "auto", "required")


class _Format(Struct):
    type: str


class _Choice(Struct):
    type: str
    name: str = ""
    mode: str = ""
    tools: list["_Choice"] = []


class _Input(Struct):
    input: str


class _Tool(NamedTuple):
    name: str
    chat: dict[str, object]


_FORMAT, _CHOICE, _INPUT = Decoder(_Format), Decoder(_Choice), Decoder(_Input)


def to_tools(body: dict[str, Raw]) -> dict[str, object]:
    """The chat fields `tools`, `tool_choice` and `parallel_tool_calls`: none without a tool: chat refuses them."""
    raw = given(body, "tools")
    listed = [] if raw is None else read(raw, _TOOLS, "tools")
    tools = [_tool(tool, f"tools[{index}]") for index, tool in enumerate(listed)]
    choice, allowed = _choice(given(body, "tool_choice"), {tool.name for tool in tools})
    fields = {
        "tools": [tool.chat for tool in tools if tool.name in allowed],
        "tool_choice": choice,
        "parallel_tool_calls": given(body, "parallel_tool_calls"),
    }
    return {name: value for name, value in fields.items() if value is not None} if fields["tools"] else {}


def custom_names(body: dict[str, Raw]) -> frozenset[str]:
    """Names of the custom tools in a request that `to_tools` accepted."""
    raw = given(body, "tools")
    listed = [] if raw is None else _TOOLS.decode(raw)
    return frozenset(_TEXT.decode(tool["name"]) for tool in listed if _TEXT.decode(tool["type"]) == "custom")


def custom_input(arguments: str) -> str:
    """What a custom tool gets, out of the arguments of the function that stands for it; damaged ones as they are."""
    try:
        return _INPUT.decode(arguments).input
    except DecodeError:
        return arguments


def _tool(tool: dict[str, Raw], param: str) -> _Tool:
    kind = _text(tool, "type", param)
    if kind not in ("function", "custom"):
        raise refused(f"{param}.type", f"{param}.type: {kind!r} needs a target with a Responses API of its own: "
                      "leave the tool out, or offer a function that does its work.")  # fmt: skip
    if kind == "custom":
        _refuse_grammar(tool, param)
    described = {name: raw for name in _DESCRIBED if (raw := given(tool, name)) is not None}
    if kind == "custom":
        described["parameters"] = _ONE_INPUT
    rest = {name: raw for name, raw in tool.items() if name not in (*_DESCRIBED, *_RUNTIME, "format")}
    return _Tool(_text(tool, "name", param), {"type": "function", "function": described, **rest})


def _text(tool: dict[str, Raw], name: str, param: str) -> str:
    raw, place = given(tool, name), f"{param}.{name}"
    if raw is None:
        raise refused(place, f"{place} is missing: the Responses API takes it at the top level of the tool.")
    return read(raw, _TEXT, place)


def _refuse_grammar(tool: dict[str, Raw], param: str) -> None:
    raw, place = given(tool, "format"), f"{param}.format"
    if raw is not None and read(raw, _FORMAT, place).type != "text":
        raise refused(place, f"{place}: grammars need a target with a Responses API of its own: use format 'text', "
                      "or a function with a JSON schema.")  # fmt: skip


def _choice(raw: Raw | None, names: set[str]) -> tuple[object, set[str]]:
    """(chat's `tool_choice`, names of the tools to offer)"""
    if raw is None:
        return None, names
    if is_string(raw):
        return _mode(read(raw, _TEXT, "tool_choice"), names, "tool_choice"), names
    choice = read(raw, _CHOICE, "tool_choice")
    if choice.type == "allowed_tools":
        allowed = {_named(tool, names, f"tool_choice.tools[{index}]") for index, tool in enumerate(choice.tools)}
        return _mode(choice.mode, allowed, "tool_choice.mode"), allowed
    name = _named(choice, names, "tool_choice")
    return {"type": "function", "function": {"name": name}}, names


def _mode(mode: str, names: set[str], param: str) -> str:
    if mode not in _MODES:
        raise refused(param, f"{param} must be one of {', '.join(_MODES)}, or an object that names a tool.")
    if mode == "required" and not names:
        raise refused(param, f"{param}: 'required' needs at least one tool in tools.")
    return mode


def _named(choice: _Choice, names: set[str], param: str) -> str:
    if choice.type not in ("function", "custom"):
        raise refused(f"{param}.type", f"{param}.type: {choice.type!r} can't be chosen here: name a function.")
    if choice.name not in names:
        raise refused(f"{param}.name", f"{param}.name: no tool {choice.name!r} in tools: add it, or choose another.")
    return choice.name
