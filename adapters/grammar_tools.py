"""Tools for engines that ignore them, asked for through a JSON schema (`grammar_turns` reads the answer).

The engine is bound to reply with `{"name", "arguments"}`, with `{"calls": [...]}` if the client allows parallel calls,
or, unless a call is required, with `{"answer"}`. One system message says so; earlier calls and results become turns of
plain text.
"""

from typing import Any

import msgspec
from msgspec import Raw

from adapters.chat import Chat, Json, arguments, parse
from router.errors import ClientError
from router.types.call import Call
from router.types.request import Endpoint

MOST_CALLS = 4
"""In one turn; without a bound a small model repeats itself until its context is full."""

_REPLACED = ("tools", "tool_choice", "parallel_tool_calls", "response_format", "messages")


def applies(call: Call) -> bool:
    """The answer to this call will be a grammar's."""
    if not call.target.provider.quirks.grammar_tools or call.endpoint is not Endpoint.CHAT:
        return False
    return "tools" in call.body and bool(_offered(parse(call.body)))


def with_grammar(body: dict[str, Raw]) -> dict[str, Raw]:
    """The chat request without tools; `ClientError` 400 if its tools can't be read."""
    if "tools" not in body and b'"tool' not in bytes(body.get("messages", b"")):
        return body
    chat = parse(body)
    functions = _offered(chat)
    messages = _plain(msgspec.json.decode(body["messages"]))
    made: dict[str, Any] = {"messages": messages}
    if "response_format" in body:
        made["response_format"] = body["response_format"]
    if functions:
        made["messages"] = _with_system(messages, _instructions(functions, chat))
        form = {"name": "reply", "strict": True, "schema": _schema(functions, chat)}
        made["response_format"] = {"type": "json_schema", "json_schema": form}
    kept = {name: raw for name, raw in body.items() if name not in _REPLACED}
    return kept | {name: Raw(msgspec.json.encode(value)) for name, value in made.items()}


def _offered(chat: Chat) -> list[Json]:
    """The functions that may be called now."""
    choice = chat.choice
    if choice is not None and choice.mode == "none":
        return []
    functions = [_function(tool) for tool in chat.tools or ()]
    if choice is None or not choice.names:
        return functions
    named = [function for function in functions if function["name"] in choice.names]
    if not named:
        raise ClientError(
            400, "invalid_request_error", "tool_choice names no tool of this request.", param="tool_choice"
        )
    return named


def _function(tool: Json) -> Json:
    match tool:
        case {"type": "function", "function": {"name": str(name)} as function}:
            return {**function, "name": name}
    raise ClientError(400, "invalid_request_error", "This model can call tools of type function only.", param="tools")


def _schema(functions: list[Json], chat: Chat) -> Json:
    """Parameters stand in `$defs`, their own references turned to their new place."""
    places = [f"#/$defs/tool_{at}" for at in range(len(functions))]
    calls = [
        _object(name={"const": function["name"]}, arguments={"$ref": place})
        for function, place in zip(functions, places, strict=True)
    ]
    if chat.parallel_tool_calls:
        calls = [_object(calls={"type": "array", "items": {"anyOf": calls}, "minItems": 1, "maxItems": MOST_CALLS})]
    replies = calls if _required(chat) else [*calls, _object(answer=_answer(chat))]
    defined = {
        place.rpartition("/")[2]: _moved(function.get("parameters") or _object(), place)
        for function, place in zip(functions, places, strict=True)
    }
    return {"anyOf": replies, "$defs": defined}


def _object(**properties: Json) -> Json:
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


def _moved(schema: Any, place: str) -> Any:
    match schema:
        case dict():
            return {
                name: place + value[1:] if name == "$ref" and str(value).startswith("#") else _moved(value, place)
                for name, value in schema.items()
            }
        case list():
            return [_moved(item, place) for item in schema]
    return schema


def _required(chat: Chat) -> bool:
    return chat.choice is not None and chat.choice.mode == "required"


def _answer(chat: Chat) -> Json:
    """What the client wants an answer without calls to be."""
    return {"type": "object"} if chat.wants_object else chat.schema or {"type": "string"}


def _instructions(functions: list[Json], chat: Chat) -> str:
    lines = [
        f"- {function['name']}: {function.get('description', '')} Arguments: {_parameters(function)}"
        for function in functions
    ]
    form = '{"name": "...", "arguments": {...}}'
    form = f'{{"calls": [{form}, ...]}}' if chat.parallel_tool_calls else form
    end = "" if _required(chat) else ' If no function is needed, reply with {"answer": "..."}.'
    return "\n".join(["You can call these functions:", *lines, f"To call, reply with {form}.{end}"])


def _parameters(function: Json) -> str:
    return msgspec.json.encode(function.get("parameters") or {}).decode()


def _with_system(messages: list[Json], text: str) -> list[Json]:
    """In the first system message if there is one: many templates allow no second."""
    match messages:
        case [{"role": "system" | "developer", "content": str(content)} as first, *rest]:
            return [first | {"content": f"{content}\n\n{text}"}, *rest]
        case [{"role": "system" | "developer", "content": list(parts)} as first, *rest]:
            return [first | {"content": [*parts, {"type": "text", "text": text}]}, *rest]
    return [{"role": "system", "content": text}, *messages]


def _plain(messages: list[Json]) -> list[Json]:
    """Calls as the JSON that the model would write, results as turns of the user; neighbouring results are one turn."""
    names: dict[str, str] = {}
    plain: list[Json] = []
    after_result = False
    for message in messages:
        if calls := message.get("tool_calls"):
            names |= {call.get("id", ""): call["function"]["name"] for call in calls}
            message = {"role": "assistant", "content": _spoken(message.get("content"), calls)}
        is_result = message.get("role") == "tool"
        if is_result:
            result = (
                f"Result of {names.get(message.get('tool_call_id', ''), 'the call')}: {text_of(message.get('content'))}"
            )
            message = {"role": "user", "content": result}
        if is_result and after_result:
            plain[-1]["content"] += "\n" + message["content"]
        else:
            plain.append(message)
        after_result = is_result
    return plain


def _spoken(content: Any, calls: list[Json]) -> str:
    made = [
        {"name": call["function"]["name"], "arguments": arguments(call["function"].get("arguments", ""))}
        for call in calls
    ]
    spoken = msgspec.json.encode(made[0] if len(made) == 1 else {"calls": made}).decode()
    return "\n".join(filter(None, (text_of(content), spoken)))


def text_of(content: Any) -> str:
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content if isinstance(part, dict))
    return content or ""
