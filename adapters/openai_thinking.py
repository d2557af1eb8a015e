"""The thinking control in the fields of OpenAI's relatives: one writer a `ThinkingField`.

Names and values: vLLM 0.32, DashScope 2.0.2, DeepSeek, Moonshot, OpenRouter 1.3.84, Gemini's compatible endpoint.
"""

from collections.abc import Callable, Mapping

import msgspec
from msgspec import Raw

from adapters.failure import UNREADABLE
from adapters.thinking import Applied
from router.types.request import Endpoint
from router.types.target import ThinkingField

Fields = dict[str, object]
_OBJECT = msgspec.json.Decoder(dict[str, Raw])


def write(field: ThinkingField, control: Applied, endpoint: Endpoint, body: Mapping[str, Raw]) -> Fields:
    """The fields to set in `body` so that the provider obeys; empty if its wire has no words for this control."""
    if endpoint is Endpoint.RESPONSES and field is ThinkingField.REASONING_EFFORT:
        field = ThinkingField.REASONING
    return _WRITERS[field](control, body)


def members(raw: Raw | None) -> dict[str, Raw]:
    """The members of a JSON object; {} for anything else."""
    try:
        return _OBJECT.decode(raw) if raw is not None else {}
    except UNREADABLE:
        return {}


def _effort(control: Applied, body: Mapping[str, Raw]) -> Fields:
    return {"reasoning_effort": control.effort} if control.effort else {}


def _word(control: Applied) -> Fields:
    """Where a switch turns thinking on, a word beside it says how much."""
    return {"reasoning_effort": control.effort} if control.on and control.effort else {}


def _token_budget(control: Applied, body: Mapping[str, Raw]) -> Fields:
    """Top level: inside `chat_template_kwargs` vLLM ignores the budget (vllm-project/vllm#50166)."""
    if control.on is None:
        return {}
    template: Fields = {**members(body.get("chat_template_kwargs")), "enable_thinking": control.on}
    budget: Fields = {} if control.budget is None else {"thinking_token_budget": control.budget}
    return {"chat_template_kwargs": template, **budget, **_word(control)}


def _enable_thinking(control: Applied, body: Mapping[str, Raw]) -> Fields:
    if control.on is None:
        return {}
    budget: Fields = {} if control.budget is None else {"thinking_budget": control.budget}
    return {"enable_thinking": control.on, **budget, **_word(control)}


def _thinking_type(control: Applied, body: Mapping[str, Raw]) -> Fields:
    if control.on is None:
        return {}
    thinking: Fields = {"type": "enabled" if control.on else "disabled"}
    if control.budget is not None:
        thinking["budget_tokens"] = control.budget
    return {"thinking": thinking, **_word(control)}


def _reasoning(control: Applied, body: Mapping[str, Raw]) -> Fields:
    """`effort`, `max_tokens` and `enabled` exclude each other; what else the client put there (`summary`) stays."""
    if control.on is None:
        return {}
    size: Fields = {"effort": control.effort} if control.effort else {"enabled": True}
    if control.budget is not None:
        size = {"max_tokens": control.budget}
    kept: Fields = {name: raw for name, raw in members(body.get("reasoning")).items() if name not in _SIZES}
    return {"reasoning": {**kept, **size}}


_SIZES = ("effort", "max_tokens", "enabled")


def _thinking_config(control: Applied, body: Mapping[str, Raw]) -> Fields:
    """Google's `extra_body`: a budget or a level, never both; a budget of 0 turns thinking off."""
    if control.on is None:
        return {}
    extra = members(body.get("extra_body"))
    google = members(extra.get("google"))
    config = members(google.get("thinking_config"))
    size: Fields = {"thinking_budget": control.budget or (-1 if control.on else 0)}
    if control.on and control.effort:
        size = {"thinking_level": control.effort}
    kept: Fields = {name: raw for name, raw in config.items() if name not in ("thinking_level", "thinking_budget")}
    inner: Fields = {**google, "thinking_config": {**kept, **size}}
    outer: Fields = {**extra, "google": inner}
    return {"extra_body": outer}


_WRITERS: dict[ThinkingField, Callable[[Applied, Mapping[str, Raw]], Fields]] = {
    ThinkingField.REASONING_EFFORT: _effort,
    ThinkingField.TOKEN_BUDGET: _token_budget,
    ThinkingField.ENABLE_THINKING: _enable_thinking,
    ThinkingField.THINKING_TYPE: _thinking_type,
    ThinkingField.REASONING: _reasoning,
    ThinkingField.THINKING_CONFIG: _thinking_config,
    ThinkingField.NONE: lambda *_: {},
}
