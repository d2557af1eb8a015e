"""Whether the tools that an answer calls are there, and their arguments what they take."""

from collections.abc import Iterator
from typing import Any, Literal

import msgspec
from pydantic import Field

from router.outcomes.part import Part
from router.outcomes.reading import field
from router.outcomes.schema import Claim, holds
from router.types.outcome import Answer, ToolCall
from router.types.request import Request

_AN_OBJECT: dict[str, Any] = {"type": "object"}
_Tools = dict[str, Any]
"""Name → schema of its arguments; None: it takes any text."""


class ToolCallValid(Part):
    """An answer without a call is judged only where the request demands one."""

    kind: Literal["tool_call"]
    decides: bool = Field(False, description="Its yes means that the answer is right, not only well-formed.")

    def claims(self, request: Request, answer: Answer) -> tuple[Claim, ...] | float | None:
        demanded = _demanded(request)
        if not answer.tool_calls:
            return None if demanded is None else 0.0
        tools, found = _tools(request), []
        for call in answer.tool_calls:
            if call.name not in tools or (demanded and call.name != demanded):
                return 0.0
            if tools[call.name] is not None:
                claim = _claim(call, tools[call.name])
                if claim is None:
                    return 0.0
                found.append(claim)
        return tuple(found)

    def check(self, request: Request, answer: Answer) -> float | None:
        """Only in a process that may hang: the schemas are the client's."""
        found = self.claims(request, answer)
        return float(holds(found)) if isinstance(found, tuple) else found


def _demanded(request: Request) -> str | None:
    """The tool that must be called; empty: any. None: none need be."""
    choice = field(request, "tool_choice")
    if choice == "required":
        return ""
    named = choice.get("function") if isinstance(choice, dict) else None
    name = named.get("name") if isinstance(named, dict) else None
    return name if isinstance(name, str) else None


def _tools(request: Request) -> _Tools:
    return dict(_declared(field(request, "tools"))) | dict(_functions(field(request, "functions")))


def _declared(tools: Any) -> Iterator[tuple[str, Any]]:
    for tool in tools if isinstance(tools, list) else ():
        if isinstance(tool, dict):
            kind, inner = tool.get("type", "function"), tool.get("function") or tool.get("custom")
            # The Responses API has all of it in one object.
            named: dict[str, Any] = inner if isinstance(inner, dict) else tool
            if isinstance(named.get("name"), str):
                yield named["name"], None if kind == "custom" else _parameters(named)


def _functions(functions: Any) -> Iterator[tuple[str, Any]]:
    """As they were said before there were tools."""
    for function in functions if isinstance(functions, list) else ():
        if isinstance(function, dict) and isinstance(function.get("name"), str):
            yield function["name"], _parameters(function)


def _parameters(named: dict[str, Any]) -> Any:
    found = named.get("parameters")
    return _AN_OBJECT if found is None else found


def _claim(call: ToolCall, schema: Any) -> Claim | None:
    """None: the arguments are no JSON object. None at all are an empty one."""
    arguments = call.arguments.strip() or "{}"
    try:
        if not isinstance(msgspec.json.decode(arguments), dict):
            return None
    except msgspec.DecodeError:
        return None
    return Claim(msgspec.json.encode(schema).decode(), arguments)
