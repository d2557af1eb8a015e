"""Tools for engines that bind a call's arguments to their schema only where the tool is `strict` (vLLM 0.32).

A call that the client forces is otherwise bound to be a call, with anything for arguments.
"""

import msgspec
from msgspec import Raw

from adapters.failure import UNREADABLE
from adapters.openai_thinking import members

_BEYOND = (b"(?=", b"(?!", b"(?<")
"""Patterns that look around: no grammar can say them, and the engine would refuse the request."""
_NOTHING = (b"{}", b"null")
_TOOLS = msgspec.json.Decoder(list[dict[str, Raw]])
_TRUE = Raw(b"true")


def with_strict(body: dict[str, Raw]) -> dict[str, Raw]:
    """Forced calls have their tools `strict`, unless the client said whether they are; what can't be read passes."""
    choice = bytes(body.get("tool_choice", b""))
    if "tools" not in body or not (choice == b'"required"' or choice.startswith(b"{")):
        return body
    try:
        tools = _TOOLS.decode(body["tools"])
    except UNREADABLE:
        return body
    return body | {"tools": Raw(msgspec.json.encode([_strict(tool) for tool in tools]))}


def _strict(tool: dict[str, Raw]) -> dict[str, Raw]:
    function = members(tool.get("function"))
    schema = bytes(function.get("parameters", b"null"))
    if "strict" in function or schema in _NOTHING or any(part in schema for part in _BEYOND):
        return tool
    return {**tool, "function": Raw(msgspec.json.encode({**function, "strict": _TRUE}))}
