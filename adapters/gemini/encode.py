"""An OpenAI chat request → `models/{name}:generateContent` or `:streamGenerateContent`."""

from typing import Any
from urllib.parse import quote

import msgspec

from adapters.chat import Chat, Json, ToolChoice, extras, filled, native, parse
from adapters.gemini.contents import contents, system
from adapters.gemini.schema import cleaned
from adapters.thinking import Applied, applied
from router.types.call import Call, UpstreamRequest
from router.types.target import Contract, Thinking

_TIERS = {"auto": None, "default": "standard"}
_MODES = {"auto": "AUTO", "none": "NONE", "required": "ANY"}


def encode(call: Call) -> UpstreamRequest:
    """Raises `ClientError` for a body that is no chat request."""
    refuses = call.target.provider.quirks.refuses
    chat = parse(call.body, refuses)
    own = extras(call.body, refuses)
    control = _possible(applied(call), call.target.model.thinking)
    config = _generation(call, chat, control, own)
    sign = call.target.model.thinking.contract is Contract.LEVEL
    body = {
        **own,
        "contents": contents(chat.messages, sign=sign),
        **filled(
            {
                "systemInstruction": _system(chat),
                "tools": _tools(chat),
                "toolConfig": _tool_config(chat, own),
                "generationConfig": config or None,
                "serviceTier": _TIERS.get(chat.service_tier, chat.service_tier) if chat.service_tier else None,
            }
        ),
    }
    text = _stated(control, config.get("thinkingConfig"))
    return UpstreamRequest("POST", _path(call), _headers(call), msgspec.json.encode(body), text)


def _path(call: Call) -> str:
    verb = "streamGenerateContent?alt=sse" if call.stream else "generateContent"
    return f"/v1beta/models/{quote(call.target.model.name)}:{verb}"


def _headers(call: Call) -> tuple[tuple[str, str], ...]:
    key = {"x-goog-api-key": call.target.api_key.reveal()} if call.target.api_key else {}
    return tuple({"content-type": "application/json", **key, **call.target.headers}.items())


def _system(chat: Chat) -> Json | None:
    parts = system(chat.messages)
    return {"parts": parts} if parts else None


def _generation(call: Call, chat: Chat, control: Applied, own: Json) -> Json:
    """The client's own `generationConfig` stands wherever OpenAI's fields say nothing."""
    given = native(own, "generationConfig") or {}
    wanted = {
        "temperature": chat.temperature,
        "topP": chat.top_p,
        "topK": chat.top_k,
        "seed": chat.seed,
        "presencePenalty": chat.presence_penalty,
        "frequencyPenalty": chat.frequency_penalty,
        "stopSequences": chat.stops,
        "maxOutputTokens": call.max_output or chat.max_output,
        "candidateCount": call.n if call.n > 1 else None,
        "responseLogprobs": chat.logprobs,
        "logprobs": chat.top_logprobs if chat.logprobs else None,
        "thinkingConfig": _thinking(control),
        **_format(chat),
    }
    return {**given, **filled(wanted)}


def _format(chat: Chat) -> Json:
    if chat.schema is not None:
        return {"responseMimeType": "application/json", "responseJsonSchema": cleaned(chat.schema)}
    return {"responseMimeType": "application/json"} if chat.wants_object else {}


def _possible(control: Applied, thinking: Thinking) -> Applied:
    """A model that can't stop thinking (2.5 Pro) gets its least budget, and the reply says so."""
    if control.on is not False or not thinking.levels or "none" in thinking.levels:
        return control
    return Applied(f"budget={thinking.minimum}", budget=thinking.minimum, on=True)


def _thinking(control: Applied) -> Json | None:
    """A level or a budget, never both: together they are an error."""
    if control.on is False:
        return {"thinkingBudget": 0}
    if control.budget is not None:
        return {"thinkingBudget": control.budget, "includeThoughts": True}
    if control.effort is not None:
        return {"thinkingLevel": control.effort.upper(), "includeThoughts": True}
    return {"includeThoughts": True} if control.on else None


def _stated(control: Applied, config: Json | None) -> str:
    """Our control, or that of a client that used Gemini's own field."""
    match config if control.on is None else None:
        case {"thinkingBudget": budget}:
            return f"budget={budget}"
        case {"thinkingLevel": str(level)}:
            return f"effort={level.lower()}"
    return control.text


def _tools(chat: Chat) -> list[Json] | None:
    """All functions in one tool; a tool of another shape may be one of Gemini's own."""
    tools = chat.tools or []
    functions = [_declaration(tool["function"]) for tool in tools if _is_function(tool)]
    others = [tool for tool in tools if not _is_function(tool)]
    return [*([{"functionDeclarations": functions}] if functions else []), *others] or None


def _is_function(tool: Json) -> bool:
    return tool.get("type") == "function" and isinstance(tool.get("function"), dict)


def _declaration(function: Json) -> Json:
    parameters: Any = function.get("parameters")
    return filled(
        {
            "name": function.get("name"),
            "description": function.get("description"),
            "parametersJsonSchema": cleaned(parameters) if parameters else None,
        }
    )


def _tool_config(chat: Chat, own: Json) -> Json | None:
    if not chat.tools or (choice := chat.choice) is None:
        return None
    given = native(own, "toolConfig") or {}
    return {**given, "functionCallingConfig": _calling(choice)}


def _calling(choice: ToolChoice) -> Json:
    """VALIDATED is "auto" within some functions; AUTO takes no names."""
    if not choice.names:
        return {"mode": _MODES.get(choice.mode, "AUTO")}
    mode = "ANY" if choice.mode == "required" else "VALIDATED"
    return {"mode": mode, "allowedFunctionNames": list(choice.names)}
