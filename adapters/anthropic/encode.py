"""A chat request becomes a Messages request."""

from collections.abc import Iterable
from typing import Any

import msgspec

from adapters.chat import Chat, Json, Message, ToolChoice, arguments, data_url, extras, filled, native, parse, without
from adapters.thinking import Applied, applied
from router.types.attempt import Call, UpstreamRequest
from router.types.target import Contract

# JSON schemas as Anthropic's structured output takes them.
#
# Objects must be closed, and the keywords below are refused; they move into the description, where the model still
# reads them (the anthropic SDK 2.11.0 does the same to the schemas that it sends).

REFUSED = frozenset(
    [
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength"),
        *("pattern", "maxItems", "uniqueItems", "contains", "minContains", "maxContains", "prefixItems"),
        *("minProperties", "maxProperties", "patternProperties", "propertyNames", "dependentRequired", "not"),
        *("if", "then", "else"),
    ]
)
FORMATS = frozenset(["date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"])
_NESTED = ("anyOf", "allOf")
_NAMED = ("properties", "$defs", "definitions")


def closed(schema: Any) -> Any:
    """The schema with every object closed, `oneOf` as `anyOf`, and refused keywords as words."""
    if not isinstance(schema, dict):
        return schema
    words = {
        key: value
        for key, value in schema.items()
        if key in REFUSED or (key == "format" and value not in FORMATS) or (key == "minItems" and value not in (0, 1))
    }
    kept = {key: _translated(key, value) for key, value in schema.items() if key not in words and key != "oneOf"}
    if "oneOf" in schema:
        kept["anyOf"] = _translated("anyOf", schema["oneOf"])
    if schema.get("type") == "object" or "properties" in schema:
        kept["additionalProperties"] = False
    rules = ", ".join(f"{key}: {value}" for key, value in words.items())
    return {**kept, "description": f"{schema.get('description', '')} ({rules})".lstrip()} if words else kept


def _translated(key: str, value: Any) -> Any:
    if key in _NESTED and isinstance(value, list):
        return [closed(part) for part in value]
    if key in _NAMED and isinstance(value, dict):
        return {name: closed(part) for name, part in value.items()}
    return closed(value) if key == "items" else value


# OpenAI messages → Anthropic's `system` and `messages`.
#
# System messages move to the top, turns of one role are merged, tool results travel in the user turn that follows
# them.


def turns(messages: Iterable[Message]) -> list[Json]:
    merged: list[Json] = []
    for message in messages:
        if message.role in ("system", "developer"):
            continue
        role, blocks = "user", _blocks(message)
        if message.role == "assistant":
            role, blocks = "assistant", _assistant(message)
        elif message.role == "tool":
            blocks = [{"type": "tool_result", "tool_use_id": message.tool_call_id, "content": blocks}]
        if merged and merged[-1]["role"] == role:
            merged[-1]["content"] += blocks
        elif blocks:
            merged.append({"role": role, "content": blocks})
    return merged


def _assistant(message: Message) -> list[Json]:
    """Signed thinking comes first: Anthropic refuses a tool turn whose thinking is missing or moved."""
    thinking = [without(block, "index") for block in message.thinking_blocks or ()]
    calls = [
        {"type": "tool_use", "id": call.id, "name": call.function.name, "input": arguments(call.function.arguments)}
        for call in message.tool_calls or ()
    ]
    return thinking + _blocks(message) + calls


def _blocks(message: Message) -> list[Json]:
    return [block for part in message.parts if (block := _block(part))]


def _block(part: Json) -> Json | None:
    """One content block; Anthropic refuses blank text, and a part of an unknown type may be one of its own."""
    match part:
        case {"type": "text", "text": str(text)}:
            return part if text.strip() else None
        case {"type": "refusal", "refusal": str(text)}:
            return {"type": "text", "text": text}
        case {"type": "image_url", "image_url": {"url": str(url)}}:
            return {"type": "image", "source": _source(url), **without(part, "type", "image_url")}
        case {"type": "file", "file": {"file_data": str(url), **named}}:
            title = {"title": named["filename"]} if "filename" in named else {}
            return {"type": "document", "source": _source(url), **title, **without(part, "type", "file")}
        case {"type": "file", "file": {"file_id": str(identifier)}}:
            source = {"type": "file", "file_id": identifier}
            return {"type": "document", "source": source, **without(part, "type", "file")}
    return part


def _source(url: str) -> Json:
    if inline := data_url(url):
        return {"type": "base64", "media_type": inline[0], "data": inline[1]}
    return {"type": "url", "url": url}


# An OpenAI chat request → `POST /v1/messages`.

_UNSAID = frozenset({"seed", "logit_bias", "presence_penalty", "frequency_penalty", "prediction", "logprobs"})
"""Fields of OpenAI's that this wire has no words for, and that are left out."""
VERIFY = "usage.inference_geo"
VERSION = "2023-06-01"
"""Later versions refuse sampling parameters even from models that know them."""

MINIMUM_BUDGET = 1_024
"""Least `budget_tokens` that the API accepts (anthropic 2.11.0, ThinkingConfigEnabledParam)."""

JSON_ONLY = "Answer with one JSON object and nothing else."
"""Stands in for OpenAI's `json_object`, for which the API has no field."""

_TIERS = {"default": "standard_only", "flex": "standard_only", "priority": "auto"}


def encode(call: Call) -> UpstreamRequest:
    """Raises `ClientError` for a body that is no chat request."""
    refuses = call.target.provider.quirks.refuses
    chat = parse(call.body, refuses)
    own = extras(call.body, refuses)
    if call.target.region:
        own.pop("inference_geo", None)  # where it is processed is the policy's to say
    max_tokens = call.max_output or chat.max_output or call.target.model.max_output
    control = _fitted(applied(call), max_tokens, forced=chat.choice is not None and chat.choice.mode == "required")
    thinking = _thinking(control) or native(own, "thinking")
    # The region is asked for where the answer then states it: "us" or "global", in 2026.
    stated = call.target.region and call.target.terms.verify == VERIFY
    # The only metadata that Anthropic knows.
    user = (chat.metadata or {}).get("user_id") or chat.safety_identifier or chat.user
    body = {
        **own,
        "model": call.target.model.name,
        "max_tokens": max_tokens,
        "messages": turns(chat.messages),
        **filled(
            {
                "system": _system(chat, own) or None,
                "stop_sequences": chat.stops,
                "metadata": {"user_id": user} if user else None,
                "service_tier": _TIERS.get(chat.service_tier, chat.service_tier) if chat.service_tier else None,
                "thinking": thinking,
                "output_config": _output_config(chat, control, own) or None,
                "stream": call.stream or None,
            }
        ),
        **_sampling(chat, call.target.model.thinking.contract, thinking),
        **_tools(chat),
        **({"inference_geo": call.target.region.lower()} if stated else {}),
    }
    text, dropped = _stated(control, thinking), tuple(call.body.keys() & (refuses | _UNSAID))
    key = {"x-api-key": call.target.api_key.reveal()} if call.target.api_key else {}
    headers = {"content-type": "application/json", "anthropic-version": VERSION, **key, **call.target.headers}
    sent = msgspec.json.encode(body)
    return UpstreamRequest("POST", "/v1/messages", tuple(headers.items()), sent, text, dropped=dropped)


def _system(chat: Chat, own: Json) -> list[Json]:
    """The client's own `system` field, system messages, and the wish for a JSON object."""
    given = native(own, "system", str | list[Json]) or []
    first = [{"type": "text", "text": given}] if isinstance(given, str) else given
    rules = [message for message in chat.messages if message.role in ("system", "developer")]
    last = [{"type": "text", "text": JSON_ONLY}] if chat.wants_object else []
    return [*first, *(block for message in rules for block in _blocks(message)), *last]


def _fitted(control: Applied, max_tokens: int, *, forced: bool) -> Applied:
    """A budget leaves room for the answer, else thinking is off; a forced tool excludes a thinking budget."""
    if control.budget is None or (control.budget < max_tokens and not forced):
        return control
    budget = 0 if forced else max_tokens // 2
    if budget < MINIMUM_BUDGET:
        return Applied("off", effort="none", on=False)
    return Applied(f"budget={budget}", budget=budget, on=True)


def _thinking(control: Applied) -> Json | None:
    if control.budget is not None:
        return {"type": "enabled", "budget_tokens": control.budget}
    if control.on is None:
        return None
    return {"type": "adaptive"} if control.on else {"type": "disabled"}


def _stated(control: Applied, thinking: Json | None) -> str:
    """Our control, or that of a client that used Anthropic's own field."""
    match thinking if control.on is None else None:
        case {"type": "enabled", "budget_tokens": budget}:
            return f"budget={budget}"
        case {"type": "disabled"}:
            return "off"
        case {"type": str()}:
            return "on"
    return control.text


def _output_config(chat: Chat, control: Applied, own: Json) -> Json:
    config: Json = native(own, "output_config") or {}
    if chat.schema is not None:
        config = {**config, "format": {"type": "json_schema", "schema": closed(chat.schema)}}
    return {**config, "effort": control.effort} if control.on and control.effort else config


def _sampling(chat: Chat, contract: Contract, thinking: Json | None) -> Json:
    """Sampling fields, where the model takes them.

    Thinking excludes them, and so do all models that think by level (Claude 4.7 on refuses them on every request).
    Elsewhere `temperature` ends at 1 and excludes `top_p`.
    """
    thinks = thinking is not None and thinking.get("type") != "disabled"
    if thinks or contract in (Contract.LEVEL, Contract.ALWAYS_ON):
        return {}
    if chat.temperature is not None:
        return filled({"temperature": min(chat.temperature, 1.0), "top_k": chat.top_k})
    return filled({"top_p": chat.top_p, "top_k": chat.top_k})


def _tools(chat: Chat) -> Json:
    if not chat.tools:
        return {}
    choice = chat.choice
    one_of = choice.names if choice and not _named(choice) else ()
    tools = [_tool(tool) for tool in chat.tools if not one_of or _name(tool) in one_of]
    chosen = _tool_choice(chat, choice)
    return {"tools": tools, "tool_choice": chosen} if chosen else {"tools": tools}


def _tool(tool: Json) -> Json:
    """A function as a custom tool; any other tool may be one of Anthropic's own."""
    match tool:
        case {"type": "function", "function": {"name": str(name), **function}}:
            fields = {
                "name": name,
                "description": function.get("description"),
                "input_schema": function.get("parameters") or {"type": "object", "properties": {}},
            }
            if function.get("strict"):
                fields |= {"strict": True, "input_schema": closed(fields["input_schema"])}
            return {**filled(fields), **without(tool, "type", "function")}
    return tool


def _tool_choice(chat: Chat, choice: ToolChoice | None) -> Json | None:
    """`disable_parallel_tool_use` lives inside the choice; "none" has no room for it."""
    serial = {"disable_parallel_tool_use": True} if chat.parallel_tool_calls is False else {}
    if choice is None:
        return {"type": "auto", **serial} if serial else None
    if choice.mode == "none":
        return {"type": "none"}
    if _named(choice):
        return {"type": "tool", "name": choice.names[0], **serial}
    return {"type": "any" if choice.mode == "required" else "auto", **serial}


def _named(choice: ToolChoice) -> bool:
    return choice.mode == "required" and len(choice.names) == 1


def _name(tool: Json) -> Any:
    function = tool.get("function")
    return function.get("name") if isinstance(function, dict) else tool.get("name")
