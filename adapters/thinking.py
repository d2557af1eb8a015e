"""The thinking control of a call, and how it is written in the request fields of OpenAI-compatible providers.

The control follows from the target's contract, the call's effort, else the policy's, and the token budget, which limits
both. A control that can't be met exactly is lowered, never dropped; `ThinkingControl.text` states the result.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec
from msgspec import Raw

from adapters.failure import UNREADABLE
from router.types.attempt import Call
from router.types.request import Endpoint
from router.types.target import EFFORTS, Contract, Thinking, ThinkingField

SCALE = Thinking(contract=Contract.LEVEL, levels=("low", "medium", "high"), tokens=(1_024, 8_192, 24_576))
"""Scale for models that declare no levels: Google's own translation of effort to tokens for Gemini 2.5."""


@dataclass(frozen=True, slots=True)
class ThinkingControl:
    """The control to send: an effort, a token budget, or thinking on or off. If all are None, nothing is sent."""

    text: str = "none"
    """Value of `UpstreamRequest.thinking`: "effort=low", "budget=1024", "on", "off", "always_on" or "none"."""
    effort: str | None = None
    budget: int | None = None
    on: bool | None = None


NOTHING = ThinkingControl()
OFF = ThinkingControl("off", effort="none", on=False)
ALWAYS_ON = ThinkingControl("always_on")


def applied(call: Call) -> ThinkingControl:
    """Returns the thinking control of a call, according to its target's contract."""
    thinking, budget = call.target.model.thinking, call.thinking_budget
    effort = call.effort or call.target.effort
    controlled = effort is not None or budget is not None or thinking.contract is Contract.ALWAYS_ON
    return _CONTRACTS[thinking.contract](thinking, effort, budget) if controlled else NOTHING


def _number(thinking: Thinking, effort: str | None, budget: int | None) -> ThinkingControl:
    """Returns a token budget, for contracts EXACT and TARGET. Less than the provider's minimum turns thinking off."""
    if effort == "none":
        return OFF
    scale = thinking if thinking.levels and thinking.tokens else SCALE
    wish = scale.tokens[min(_index(scale, effort), len(scale.tokens) - 1)] if effort else None
    tokens = min(size for size in (wish, budget) if size is not None)
    if budget is None:
        tokens = max(tokens, thinking.minimum)
    if tokens <= 0 or tokens < thinking.minimum:
        return OFF
    return ThinkingControl(f"budget={tokens}", budget=tokens, on=True)


def _level(thinking: Thinking, effort: str | None, budget: int | None) -> ThinkingControl:
    """Returns the highest level of the model that exceeds neither effort nor budget, else its lowest level."""
    scale = thinking if thinking.levels else SCALE
    levels = scale.levels[: _index(scale, effort) + 1] if effort else scale.levels
    if budget is not None:
        sizes = dict(zip(scale.levels, scale.tokens, strict=False)) | {"none": 0}
        levels = tuple(level for level in levels if level in sizes and sizes[level] <= budget)
    word = levels[-1] if levels else scale.levels[0]
    return OFF if word == "none" else ThinkingControl(f"effort={word}", effort=word, on=True)


def _switch(thinking: Thinking, effort: str | None, budget: int | None) -> ThinkingControl:
    """Turns thinking on only if its typical tokens fit the budget; if these are unknown, no budget fits."""
    fits = budget is None or (bool(thinking.tokens) and thinking.tokens[-1] <= budget)
    return ThinkingControl("on", on=True) if effort != "none" and fits else OFF


def _index(scale: Thinking, effort: str) -> int:
    """Returns the index of the highest level at or below an effort; 0 if there is none, or if the effort is unknown."""
    if effort in scale.levels:
        return scale.levels.index(effort)
    rank = _rank(effort)
    return max((at for at, level in enumerate(scale.levels) if _rank(level) <= rank), default=0)


def _rank(word: str) -> int:
    return EFFORTS.index(word) if word in EFFORTS else 0


_CONTRACTS: dict[Contract, Callable[[Thinking, str | None, int | None], ThinkingControl]] = {
    Contract.EXACT: _number,
    Contract.TARGET: _number,
    Contract.LEVEL: _level,
    Contract.SWITCH: _switch,
    Contract.ALWAYS_ON: lambda *_: ALWAYS_ON,
    Contract.NONE: lambda *_: NOTHING,
}


# The control as fields of a request, by `ThinkingField`.
#
# Names and values are those of vLLM 0.32, DashScope 2.0.2, DeepSeek, Moonshot, OpenRouter 1.3.84 and Gemini's
# compatible endpoint.

Fields = dict[str, object]
_OBJECT = msgspec.json.Decoder(dict[str, Raw])
_TEMPLATE = "chat_template_kwargs"


def members(raw: Raw | None, but: tuple[str, ...] = ()) -> dict[str, Raw]:
    """Returns the members of a JSON object except those in `but`; {} for anything else."""
    try:
        fields = _OBJECT.decode(raw) if raw is not None else {}
    except UNREADABLE:
        return {}
    return {name: value for name, value in fields.items() if name not in but} if but else fields


def fields_of(call: Call, control: ThinkingControl, body: Mapping[str, Raw]) -> Fields:
    """Returns the fields to set in `body` for this control; empty if the provider has no field for it."""
    field, on = call.target.provider.quirks.thinking_field, control.on
    if field is ThinkingField.REASONING_EFFORT and call.endpoint is not Endpoint.RESPONSES:
        return {"reasoning_effort": control.effort} if control.effort else {}
    if field is ThinkingField.TOKEN_BUDGET:
        return _of_vllm(call, control, body)
    if field is ThinkingField.NONE or on is None:
        return {}
    # Where thinking is switched on, an effort beside the switch says how much.
    word: Fields = {"reasoning_effort": control.effort} if on and control.effort else {}
    budget = control.budget
    if field is ThinkingField.ENABLE_THINKING:
        return {"enable_thinking": on, **({} if budget is None else {"thinking_budget": budget}), **word}
    if field is ThinkingField.THINKING_TYPE:
        size: Fields = {} if budget is None else {"budget_tokens": budget}
        return {"thinking": {"type": "enabled" if on else "disabled", **size}, **word}
    if field is ThinkingField.THINKING_CONFIG:
        # Google's `extra_body` takes a budget or a level, never both; a budget of 0 turns thinking off.
        size = {"thinking_budget": budget or (-1 if on else 0)}
        size = {"thinking_level": control.effort} if on and control.effort else size
        extra = members(body.get("extra_body"))
        google = members(extra.get("google"))
        config = members(google.get("thinking_config"), ("thinking_level", "thinking_budget"))
        inner: Fields = {**google, "thinking_config": {**config, **size}}
        outer: Fields = {**extra, "google": inner}
        return {"extra_body": outer}
    # `effort`, `max_tokens` and `enabled` exclude each other; the client's other members (`summary`) are kept.
    size = {"effort": control.effort} if control.effort else {"enabled": True}
    size = size if budget is None else {"max_tokens": budget}
    return {"reasoning": {**members(body.get("reasoning"), ("effort", "max_tokens", "enabled")), **size}}


def _of_vllm(call: Call, control: ThinkingControl, body: Mapping[str, Raw]) -> Fields:
    """Returns vLLM's fields. It ignores a budget inside `chat_template_kwargs` (vllm-project/vllm#50166)."""
    engine, stated = call.target.engine, members(body.get(_TEMPLATE))
    if control.on is None:
        # vLLM's parsers follow the request, not the template: without a value a whole answer may count as thoughts.
        thinks = call.target.model.thinking.contract is not Contract.NONE
        if call.endpoint is not Endpoint.CHAT or not (thinks or (engine is not None and engine.thinking_exact)):
            return {}
        return {_TEMPLATE: {"enable_thinking": True, **stated} if thinks else {**stated, "enable_thinking": False}}
    fields: Fields = {_TEMPLATE: {**stated, "enable_thinking": control.on}}
    if control.budget is not None:
        # vLLM counts the template's tokens after the opening mark, but not those that it adds to cut a thought off.
        extra = 0 if engine is None else engine.thinking_written - engine.thinking_forced
        fields["thinking_token_budget"] = max(control.budget + extra, 0)
    if control.on and control.effort:
        fields["reasoning_effort"] = "max" if control.effort == EFFORTS[-1] else control.effort  # vLLM's highest effort
    return fields
