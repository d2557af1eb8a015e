"""An OpenAI chat request → `POST /v1/messages`."""

from typing import Any

import msgspec

from adapters.anthropic.messages import system, turns
from adapters.anthropic.schema import closed
from adapters.chat import Chat, Json, ToolChoice, extras, filled, native, parse, without
from adapters.thinking import Applied, applied
from router.types.call import Call, UpstreamRequest
from router.types.target import Contract, Target

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
    body = {
        **own,
        "model": call.target.model.name,
        "max_tokens": max_tokens,
        "messages": turns(chat.messages),
        **filled(
            {
                "system": _system(chat, own) or None,
                "stop_sequences": chat.stops,
                "metadata": _metadata(chat),
                "service_tier": _TIERS.get(chat.service_tier, chat.service_tier) if chat.service_tier else None,
                "thinking": thinking,
                "output_config": _output_config(chat, control, own) or None,
                "stream": call.stream or None,
            }
        ),
        **_sampling(chat, call.target.model.thinking.contract, thinking),
        **_tools(chat),
        **_geo(call.target),
    }
    return UpstreamRequest(
        "POST", "/v1/messages", _headers(call), msgspec.json.encode(body), _stated(control, thinking)
    )


def _geo(target: Target) -> Json:
    """Asks for the region, where the answer then states it (`usage.inference_geo`): "us" or "global", in 2026."""
    asks = target.region and target.terms.verify == VERIFY
    return {"inference_geo": target.region.lower()} if asks else {}


def _headers(call: Call) -> tuple[tuple[str, str], ...]:
    key = {"x-api-key": call.target.api_key.reveal()} if call.target.api_key else {}
    headers = {"content-type": "application/json", "anthropic-version": VERSION, **key, **call.target.headers}
    return tuple(headers.items())


def _system(chat: Chat, own: Json) -> list[Json]:
    """The client's own `system` field, system messages, and the wish for a JSON object."""
    given = native(own, "system", str | list[Json]) or []
    first = [{"type": "text", "text": given}] if isinstance(given, str) else given
    last = [{"type": "text", "text": JSON_ONLY}] if chat.wants_object else []
    return [*first, *system(chat.messages), *last]


def _metadata(chat: Chat) -> Json | None:
    """The only field Anthropic knows here is `user_id`."""
    user = (chat.metadata or {}).get("user_id") or chat.safety_identifier or chat.user
    return {"user_id": user} if user else None


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
