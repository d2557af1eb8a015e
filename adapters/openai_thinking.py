"""The thinking control in the fields of OpenAI's relatives: one writer a `ThinkingField`.

Names and values: vLLM 0.32, DashScope 2.0.2, DeepSeek, Moonshot, OpenRouter 1.3.84, Gemini's compatible endpoint.
"""

from collections.abc import Callable, Mapping

import msgspec
from msgspec import Raw

from adapters.failure import UNREADABLE
from adapters.thinking import Applied
from router.types.call import Call
from router.types.request import Endpoint
from router.types.target import EFFORTS, Contract, ThinkingField

Fields = dict[str, object]
_OBJECT = msgspec.json.Decoder(dict[str, Raw])


def write(call: Call, control: Applied, body: Mapping[str, Raw]) -> Fields:
    """The fields to set in `body` so that the provider obeys; empty if its wire has no words for this control."""
    field = call.target.provider.quirks.thinking_field
    if field is ThinkingField.TOKEN_BUDGET:
        return _unasked(call, body) if control.on is None else _token_budget(call, control, body)
    if call.endpoint is Endpoint.RESPONSES and field is ThinkingField.REASONING_EFFORT:
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


def _token_budget(call: Call, control: Applied, body: Mapping[str, Raw]) -> Fields:
    """Top level: inside `chat_template_kwargs` vLLM ignores the budget (vllm-project/vllm#50166)."""
    template: Fields = {**members(body.get(_TEMPLATE)), "enable_thinking": control.on}
    budget: Fields = {} if control.budget is None else {"thinking_token_budget": _counted(call, control.budget)}
    word = {name: _MOST if word == EFFORTS[-1] else word for name, word in _word(control).items()}
    return {_TEMPLATE: template, **budget, **word}


_TEMPLATE = "chat_template_kwargs"
_MOST = "max"
"""vLLM knows no effort beyond."""


def _counted(call: Call, budget: int) -> int:
    """vLLM counts what the template wrote after the opening mark, but not what it adds when it cuts a thought off."""
    engine = call.target.engine
    return budget if engine is None else max(budget + engine.thinking_written - engine.thinking_forced, 0)


def _unasked(call: Call, body: Mapping[str, Raw]) -> Fields:
    """Parsers go by what the request says, not by what the template did: unsaid, all of an answer may be a thought."""
    engine, thinks = call.target.engine, call.target.model.thinking.contract is not Contract.NONE
    parsed = engine is not None and engine.thinking_exact
    if call.endpoint is not Endpoint.CHAT or not (thinks or parsed):
        return {}
    stated: Fields = {**members(body.get(_TEMPLATE))}
    return {_TEMPLATE: {"enable_thinking": True, **stated} if thinks else {**stated, "enable_thinking": False}}


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
    ThinkingField.ENABLE_THINKING: _enable_thinking,
    ThinkingField.THINKING_TYPE: _thinking_type,
    ThinkingField.REASONING: _reasoning,
    ThinkingField.THINKING_CONFIG: _thinking_config,
    ThinkingField.NONE: lambda *_: {},
}
