"""A chat request becomes a `generateContent` request."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import msgspec

from adapters.chat import (
    Chat,
    Json,
    Message,
    arguments,
    as_object,
    data_url,
    extras,
    filled,
    native,
    parse,
    without,
)
from adapters.thinking import Applied, applied
from router.types.attempt import Call, UpstreamRequest
from router.types.target import Contract, Thinking

# JSON schemas as Gemini takes them in `parametersJsonSchema` and `responseJsonSchema`.
#
# Google lists the keywords that it supports and refuses or ignores the rest. `const` becomes an `enum` of one,
# `exclusiveMinimum` and `exclusiveMaximum` of an integer the next whole bound, an `allOf` of one its only part. Left
# out: `$schema`, `pattern`, `default`, `examples`, `multipleOf`, `uniqueItems`, `minLength`, `maxLength`, `not`,
# `if`, longer `allOf`s and everything else that is not in `SUPPORTED`.

SUPPORTED = frozenset(
    [
        *("$id", "$defs", "$ref", "$anchor", "type", "format", "title", "description", "enum", "items"),
        *("prefixItems", "minItems", "maxItems", "minimum", "maximum", "anyOf", "oneOf", "properties"),
        *("additionalProperties", "required", "propertyOrdering"),
    ]
)
"""GenerationConfig.responseJsonSchema in Google's reference; beside a `$ref` only keywords that begin with "$"."""

_NAMED = ("properties", "$defs")
_LISTS = ("anyOf", "oneOf", "prefixItems")
_SINGLE = ("items", "additionalProperties")


def cleaned(schema: Any) -> Any:
    """The schema in Gemini's keywords; `definitions` become `$defs`."""
    if not isinstance(schema, dict):
        return schema
    plain = _plain(schema)
    kept = {key: _nested(key, value) for key, value in plain.items() if key in SUPPORTED}
    return {key: value for key, value in kept.items() if key.startswith("$")} if "$ref" in kept else kept


def _plain(schema: Json) -> Json:
    """The same rules in the supported words, where there are any."""
    plain = dict(schema)
    match plain.get("allOf"):
        case [dict(only)]:
            plain = {**only, **plain}
    if "const" in plain:
        plain["enum"] = [plain["const"]]
    if "definitions" in plain:
        plain["$defs"] = plain["definitions"]
    if isinstance(reference := plain.get("$ref"), str):
        plain["$ref"] = reference.replace("#/definitions/", "#/$defs/")
    steps = (("exclusiveMinimum", "minimum", 1), ("exclusiveMaximum", "maximum", -1))
    bounds = {to: plain[key] + step for key, to, step in steps if type(plain.get(key)) is int}
    return {**bounds, **plain} if plain.get("type") == "integer" else plain


def _nested(key: str, value: Any) -> Any:
    if key in _NAMED and isinstance(value, dict):
        return {name: cleaned(part) for name, part in value.items()}
    if key in _LISTS and isinstance(value, list):
        return [cleaned(part) for part in value]
    return cleaned(value) if key in _SINGLE else value


# OpenAI messages → Gemini's `systemInstruction` and `contents`.
#
# Turns of one role are merged; all results of one round of tool calls stand in a user turn of their own, as Gemini
# counts them against the calls before it.

UNSIGNED = "skip_thought_signature_validator"
"""Google's stand-in for a call that another model made: Gemini 3 refuses a tool turn without a signature."""

_TYPES = {
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "webp": "image/webp",
    "gif": "image/gif",
    "heic": "image/heic",
    "pdf": "application/pdf",
}


def contents(messages: list[Message], *, sign: bool) -> list[Json]:
    """`sign`: the model insists on signatures."""
    names = {call.id: call.function.name for message in messages for call in message.tool_calls or ()}
    merged: list[Json] = []
    previous = ""
    for message in messages:
        if message.role in ("system", "developer"):
            continue
        parts = [_result(message, names)] if message.role == "tool" else _parts(message)
        for number, call in enumerate(message.tool_calls or ()):
            # Only the first of parallel calls carries a signature.
            signature = call.signature or (UNSIGNED if sign and number == 0 else None)
            function = {"id": call.id, "name": call.function.name, "args": arguments(call.function.arguments)}
            parts.append({"functionCall": function, **filled({"thoughtSignature": signature})})
        if parts and message.role == previous:
            merged[-1]["parts"] += parts
        elif parts:
            merged.append({"role": "model" if message.role == "assistant" else "user", "parts": parts})
            previous = message.role
    return merged


def _result(message: Message, names: Mapping[str, str]) -> Json:
    """A result that is a JSON object travels as it is; text under the key that Google names for it."""
    text = "".join(part["text"] for part in message.parts if isinstance(part.get("text"), str))
    media = [part for part in _parts(message) if "inlineData" in part or "fileData" in part]
    response = {
        "id": message.tool_call_id,
        "name": names.get(message.tool_call_id, message.tool_call_id),
        "response": as_object(text, "output"),
    }
    return {"functionResponse": {**response, "parts": media} if media else response}


def _parts(message: Message) -> list[Json]:
    return [converted for part in message.parts if (converted := _part(part))]


def _part(part: Json) -> Json | None:
    """One part; a part of an unknown shape may be one of Gemini's own."""
    match part:
        case {"type": "text", "text": str(text)}:
            return {"text": text, **without(part, "type", "text", "cache_control")} if text else None
        case {"type": "refusal", "refusal": str(text)}:
            return {"text": text}
        case {"type": "image_url", "image_url": {"url": str(url)}}:
            return {**_media(url), **without(part, "type", "image_url", "cache_control")}
        case {"type": "input_audio", "input_audio": {"data": str(data), "format": str(kind)}}:
            return {"inlineData": {"mimeType": f"audio/{kind}", "data": data}}
        case {"type": "file", "file": {"file_data": str(url)}}:
            return _media(url)
        case {"type": "file", "file": {"file_id": str(uri)}}:
            return _media(uri)
    return part


def _media(url: str) -> Json:
    if inline := data_url(url):
        return {"inlineData": {"mimeType": inline[0], "data": inline[1]}}
    kind = _TYPES.get(url.partition("?")[0].rpartition(".")[2].lower())
    return {"fileData": {"fileUri": url, **({"mimeType": kind} if kind else {})}}


# An OpenAI chat request → `models/{name}:generateContent` or `:streamGenerateContent`.

_TIERS = {"auto": None, "default": "standard"}
_MODES = {"auto": "AUTO", "none": "NONE", "required": "ANY"}


_UNSAID = frozenset({"logit_bias", "prediction", "verbosity"})
"""Fields of OpenAI's that this wire has no words for, and that are left out."""


def encode(call: Call) -> UpstreamRequest:
    """Raises `ClientError` for a body that is no chat request."""
    refuses = call.target.provider.quirks.refuses
    chat = parse(call.body, refuses)
    own = extras(call.body, refuses)
    control = _possible(applied(call), call.target.model.thinking)
    config = _generation(call, chat, control, own)
    sign = call.target.model.thinking.contract is Contract.LEVEL
    rules = (message for message in chat.messages if message.role in ("system", "developer"))
    system = [part for message in rules for part in _parts(message)]
    body = {
        **own,
        "contents": contents(chat.messages, sign=sign),
        **filled(
            {
                "systemInstruction": {"parts": system} if system else None,
                "tools": _tools(chat),
                "toolConfig": _tool_config(chat, own),
                "generationConfig": config or None,
                "serviceTier": _TIERS.get(chat.service_tier, chat.service_tier) if chat.service_tier else None,
            }
        ),
    }
    text = _stated(control, config.get("thinkingConfig"))
    dropped = tuple(call.body.keys() & (refuses | _UNSAID))
    verb = "streamGenerateContent?alt=sse" if call.stream else "generateContent"
    path = f"/v1beta/models/{quote(call.target.model.name)}:{verb}"
    key = {"x-goog-api-key": call.target.api_key.reveal()} if call.target.api_key else {}
    headers = tuple({"content-type": "application/json", **key, **call.target.headers}.items())
    return UpstreamRequest("POST", path, headers, msgspec.json.encode(body), text, dropped=dropped)


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
        "responseMimeType": "application/json" if chat.schema is not None or chat.wants_object else None,
        "responseJsonSchema": None if chat.schema is None else cleaned(chat.schema),
    }
    return {**given, **filled(wanted)}


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
    calling: Json = {"mode": _MODES.get(choice.mode, "AUTO")}
    if choice.names:
        # VALIDATED is "auto" within some functions; AUTO takes no names.
        mode = "ANY" if choice.mode == "required" else "VALIDATED"
        calling = {"mode": mode, "allowedFunctionNames": list(choice.names)}
    return {**(native(own, "toolConfig") or {}), "functionCallingConfig": calling}
