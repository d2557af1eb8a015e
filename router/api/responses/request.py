"""A Responses request becomes a chat request."""

from typing import NamedTuple

from msgspec import DecodeError, Raw, Struct
from msgspec.json import Decoder, Encoder

from router.api.responses.items import given, is_string, read, stated, to_messages
from router.errors import invalid

# Tools and tool choice → chat.
#
# Only functions exist everywhere. A custom tool with free text becomes a function with one string, `input`;
# `allowed_tools` becomes a shorter list of tools. Tools that the provider runs itself, and grammars, can't be had
# over chat: 400.

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
    listed = stated(body, "tools", _TOOLS) or ()
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
    listed = stated(body, "tools", _TOOLS) or ()
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
        raise invalid(f"{param}.type", f"{param}.type: {kind!r} needs a target with a Responses API of its own: "
                      "leave the tool out, or offer a function that does its work.")  # fmt: skip
    place = f"{param}.format"
    if kind == "custom" and (form := given(tool, "format")) is not None and read(form, _FORMAT, place).type != "text":
        raise invalid(place, f"{place}: grammars need a target with a Responses API of its own: use format 'text', "
                      "or a function with a JSON schema.")  # fmt: skip
    described = {name: raw for name in _DESCRIBED if (raw := given(tool, name)) is not None}
    if kind == "custom":
        described["parameters"] = _ONE_INPUT
    rest = {name: raw for name, raw in tool.items() if name not in (*_DESCRIBED, *_RUNTIME, "format")}
    return _Tool(_text(tool, "name", param), {"type": "function", "function": described, **rest})


def _text(tool: dict[str, Raw], name: str, param: str) -> str:
    raw, place = given(tool, name), f"{param}.{name}"
    if raw is None:
        raise invalid(place, f"{place} is missing: the Responses API takes it at the top level of the tool.")
    return read(raw, _TEXT, place)


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
        raise invalid(param, f"{param} must be one of {', '.join(_MODES)}, or an object that names a tool.")
    if mode == "required" and not names:
        raise invalid(param, f"{param}: 'required' needs at least one tool in tools.")
    return mode


def _named(choice: _Choice, names: set[str], param: str) -> str:
    if choice.type not in ("function", "custom"):
        raise invalid(f"{param}.type", f"{param}.type: {choice.type!r} can't be chosen here: name a function.")
    if choice.name not in names:
        raise invalid(f"{param}.name", f"{param}.name: no tool {choice.name!r} in tools: add it, or choose another.")
    return choice.name


# A Responses request → a Chat Completions request.

_encode = Encoder().encode
_BOOL, _NAMES = Decoder(bool), Decoder(list[str])
_FIELDS = Decoder(dict[str, Raw])

_WHOLE_INPUT = "no responses are stored here: send the whole conversation in input."
_REFUSED = {
    "previous_response_id": _WHOLE_INPUT,
    "conversation": _WHOLE_INPUT,
    "prompt": "no prompt templates are stored here: send the text in instructions and input.",
    "context_management": "the context is never compacted here: leave it out, and shorten input yourself.",
    "messages": "in the Responses API this is input.",
    "response_format": "in the Responses API this is text.format.",
    "verbosity": "in the Responses API this is text.verbosity.",
    "reasoning_effort": "in the Responses API this is reasoning.effort.",
    "max_tokens": "in the Responses API this is max_output_tokens.",
    "max_completion_tokens": "in the Responses API this is max_output_tokens.",
    "logprobs": 'in the Responses API this is include: ["message.output_text.logprobs"].',
    "functions": "in the Responses API this is tools.",
    "function_call": "in the Responses API this is tool_choice.",
    "n": "the Responses API gives one answer: send the request several times.",
}
_TRANSLATED = {
    *("input", "instructions", "tools", "tool_choice", "parallel_tool_calls", "text", "reasoning"),
    *("max_output_tokens", "include", "top_logprobs", "background"),
}
_WITHOUT_MEANING = {"store", "truncation", "max_tool_calls", "stream_options"}
"""Storing, trimming, running tools and padding the stream are never done here, and the response says so."""
SUMMARY = ("summary", "generate_summary")
LOGPROBS = "message.output_text.logprobs"


class _Schema(Struct, omit_defaults=True):
    name: str
    schema: dict[str, Raw]
    strict: bool | None = None
    description: str | None = None


_SCHEMA, _COUNT = Decoder(_Schema), Decoder(int)


def to_chat(body: dict[str, Raw]) -> dict[str, Raw]:
    """The same request for `/v1/chat/completions`; a field that neither API knows passes untouched.

    Raises `ClientError` 400 for what is wrong, and for what needs a store or a tool that the provider runs.
    """
    for name, remedy in _REFUSED.items():
        if given(body, name) is not None:
            raise invalid(name, f"{name}: {remedy}")
    if stated(body, "background", _BOOL):
        raise invalid("background", "background: no responses are stored here: send false and use stream.")
    raw, limit = given(body, "input"), stated(body, "max_output_tokens", _COUNT)
    if raw is None:
        raise invalid("input", "input is missing: send a text or a list of items.")
    if limit is not None and limit < 1:
        raise invalid("max_output_tokens", "max_output_tokens must be at least 1.")
    passed = {name: raw for name, raw in body.items() if name not in _TRANSLATED | _WITHOUT_MEANING | _REFUSED.keys()}
    translated: dict[str, object] = {
        "messages": to_messages(raw, stated(body, "instructions", _TEXT)),
        **to_tools(body),
        **_request_text(stated(body, "text", _FIELDS) or {}),
        **_reasoning(stated(body, "reasoning", _FIELDS) or {}),
        **({} if limit is None else {"max_completion_tokens": limit}),
        **_logprobs(body),
    }
    return passed | {name: Raw(_encode(value)) for name, value in translated.items()}


def included(body: dict[str, Raw]) -> list[str]:
    """The values of `include`."""
    return stated(body, "include", _NAMES) or []


def _request_text(text: dict[str, Raw]) -> dict[str, object]:
    form, verbosity = given(text, "format"), given(text, "verbosity")
    found = {"response_format": form and _format(form), "verbosity": verbosity}
    return {name: value for name, value in found.items() if value is not None}


def _format(raw: Raw) -> object:
    """Plain text is what chat gives anyway."""
    kind = read(raw, _FORMAT, "text.format").type
    if kind == "json_schema":
        return {"type": kind, "json_schema": read(raw, _SCHEMA, "text.format")}
    if kind not in ("text", "json_object"):
        raise invalid("text.format.type", "text.format.type must be one of text, json_schema, json_object.")
    return {"type": kind} if kind == "json_object" else None


def _reasoning(fields: dict[str, Raw]) -> dict[str, object]:
    """`summary` says how the answer shows its thinking; fields of other providers (`max_tokens`) stay together."""
    effort, mode = given(fields, "effort"), given(fields, "mode")
    if mode is not None and read(mode, _TEXT, "reasoning.mode") != "standard":
        raise invalid("reasoning.mode", "reasoning.mode: only 'standard' exists over chat: leave it out.")
    rest = {name: value for name, value in fields.items() if name not in (*SUMMARY, "effort", "mode", "context")}
    word = {} if effort is None else {"reasoning_effort": read(effort, _TEXT, "reasoning.effort")}
    return {**word, **({"reasoning": rest} if rest else {})}


def _logprobs(body: dict[str, Raw]) -> dict[str, object]:
    """Chat refuses `top_logprobs` without `logprobs`; 0 is the default that a client may echo."""
    top = stated(body, "top_logprobs", _COUNT) or 0
    if not 0 <= top <= 20:
        raise invalid("top_logprobs", "top_logprobs must be between 0 and 20.")
    wanted = top > 0 or LOGPROBS in included(body)
    return {"logprobs": True, **({"top_logprobs": top} if top else {})} if wanted else {}
