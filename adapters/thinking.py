"""How much a target is told to think: (its contract, policy's effort, client's effort, token budget) → one control, and
that control in the fields of OpenAI's relatives.

The call's own effort is what the request was made to fit with; the policy's stands where it has none. The budget caps
both; `ThinkingControl.text` states the result: a control that can't be met exactly is lowered, never dropped.
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
"""For models that declare no levels: Google's own translation of effort into tokens for Gemini 2.5."""


@dataclass(frozen=True, slots=True)
class ThinkingControl:
    """The control to send: an effort word, or a budget in tokens, or thinking on or off; all None: send nothing."""

    text: str = "none"
    """For `UpstreamRequest.thinking`: "effort=low", "budget=1024", "on", "off", "always_on" or "none"."""
    effort: str | None = None
    budget: int | None = None
    on: bool | None = None


NOTHING = ThinkingControl()
OFF = ThinkingControl("off", effort="none", on=False)
ALWAYS_ON = ThinkingControl("always_on")


def applied(call: Call) -> ThinkingControl:
    """The thinking control for this attempt, by the target's contract."""
    thinking, budget = call.target.model.thinking, call.thinking_budget
    effort = call.effort or call.target.effort
    controlled = effort is not None or budget is not None or thinking.contract is Contract.ALWAYS_ON
    return _CONTRACTS[thinking.contract](thinking, effort, budget) if controlled else NOTHING


def _number(thinking: Thinking, effort: str | None, budget: int | None) -> ThinkingControl:
    """Exact and target: a number of tokens; less than the provider's minimum can only be met by not thinking."""
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
    """A word: the nearest one that the model has at or below the wish and within the budget, else its lowest."""
    scale = thinking if thinking.levels else SCALE
    levels = scale.levels[: _index(scale, effort) + 1] if effort else scale.levels
    if budget is not None:
        sizes = dict(zip(scale.levels, scale.tokens, strict=False)) | {"none": 0}
        levels = tuple(level for level in levels if level in sizes and sizes[level] <= budget)
    word = levels[-1] if levels else scale.levels[0]
    return OFF if word == "none" else ThinkingControl(f"effort={word}", effort=word, on=True)


def _switch(thinking: Thinking, effort: str | None, budget: int | None) -> ThinkingControl:
    """On only if its typical tokens fit; an unknown size fits no budget."""
    fits = budget is None or (bool(thinking.tokens) and thinking.tokens[-1] <= budget)
    return ThinkingControl("on", on=True) if effort != "none" and fits else OFF


def _index(scale: Thinking, effort: str) -> int:
    """Position of the highest level at or below the word; 0 if there is none, or if the word is unknown."""
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


# The control in a request's fields, by `ThinkingField`.
#
# Names and values: vLLM 0.32, DashScope 2.0.2, DeepSeek, Moonshot, OpenRouter 1.3.84, Gemini's compatible endpoint.

Fields = dict[str, object]
_OBJECT = msgspec.json.Decoder(dict[str, Raw])
_TEMPLATE = "chat_template_kwargs"


def members(raw: Raw | None, but: tuple[str, ...] = ()) -> dict[str, Raw]:
    """The members of a JSON object without those of `but`; {} for anything else."""
    try:
        fields = _OBJECT.decode(raw) if raw is not None else {}
    except UNREADABLE:
        return {}
    return {name: value for name, value in fields.items() if name not in but} if but else fields


def fields_of(call: Call, control: ThinkingControl, body: Mapping[str, Raw]) -> Fields:
    """The fields to set in `body` so that the provider obeys; empty if its wire has no words for this control."""
    field, on = call.target.provider.quirks.thinking_field, control.on
    if field is ThinkingField.REASONING_EFFORT and call.endpoint is not Endpoint.RESPONSES:
        return {"reasoning_effort": control.effort} if control.effort else {}
    if field is ThinkingField.TOKEN_BUDGET:
        return _of_vllm(call, control, body)
    if field is ThinkingField.NONE or on is None:
        return {}
    # Where a switch turns thinking on, a word beside it says how much.
    word: Fields = {"reasoning_effort": control.effort} if on and control.effort else {}
    budget = control.budget
    if field is ThinkingField.ENABLE_THINKING:
        return {"enable_thinking": on, **({} if budget is None else {"thinking_budget": budget}), **word}
    if field is ThinkingField.THINKING_TYPE:
        size: Fields = {} if budget is None else {"budget_tokens": budget}
        return {"thinking": {"type": "enabled" if on else "disabled", **size}, **word}
    if field is ThinkingField.THINKING_CONFIG:
        # Google's `extra_body`: a budget or a level, never both; a budget of 0 turns thinking off.
        size = {"thinking_budget": budget or (-1 if on else 0)}
        size = {"thinking_level": control.effort} if on and control.effort else size
        extra = members(body.get("extra_body"))
        google = members(extra.get("google"))
        config = members(google.get("thinking_config"), ("thinking_level", "thinking_budget"))
        inner: Fields = {**google, "thinking_config": {**config, **size}}
        outer: Fields = {**extra, "google": inner}
        return {"extra_body": outer}
    # `effort`, `max_tokens` and `enabled` exclude each other; what else the client put there (`summary`) stays.
    size = {"effort": control.effort} if control.effort else {"enabled": True}
    size = size if budget is None else {"max_tokens": budget}
    return {"reasoning": {**members(body.get("reasoning"), ("effort", "max_tokens", "enabled")), **size}}


def _of_vllm(call: Call, control: ThinkingControl, body: Mapping[str, Raw]) -> Fields:
    """Top level: inside `chat_template_kwargs` vLLM ignores the budget (vllm-project/vllm#50166)."""
    engine, stated = call.target.engine, members(body.get(_TEMPLATE))
    if control.on is None:
        # Parsers go by what the request says, not by what the template did: unsaid, all of an answer may be a thought.
        thinks = call.target.model.thinking.contract is not Contract.NONE
        if call.endpoint is not Endpoint.CHAT or not (thinks or (engine is not None and engine.thinking_exact)):
            return {}
        return {_TEMPLATE: {"enable_thinking": True, **stated} if thinks else {**stated, "enable_thinking": False}}
    fields: Fields = {_TEMPLATE: {**stated, "enable_thinking": control.on}}
    if control.budget is not None:
        # vLLM counts what the template wrote after the opening mark, but not what it adds when it cuts a thought off.
        extra = 0 if engine is None else engine.thinking_written - engine.thinking_forced
        fields["thinking_token_budget"] = max(control.budget + extra, 0)
    if control.on and control.effort:
        fields["reasoning_effort"] = "max" if control.effort == EFFORTS[-1] else control.effort  # it knows none beyond
    return fields
