"""How much a target is told to think: (its contract, policy's effort, client's effort, token budget) → one control.

The call's own effort is what the request was made to fit with; the policy's stands where it has none. The budget caps
both, and `Applied.text` states what came of it: a control that can't be met exactly is lowered, never silently dropped.
"""

from collections.abc import Callable
from dataclasses import dataclass

from router.types.attempt import Call
from router.types.target import EFFORTS, Contract, Thinking

WORDS = EFFORTS

SCALE = Thinking(contract=Contract.LEVEL, levels=("low", "medium", "high"), tokens=(1_024, 8_192, 24_576))
"""For models that declare no levels: Google's own translation of effort into tokens for Gemini 2.5."""


@dataclass(frozen=True, slots=True)
class Applied:
    """The control to send: an effort word, or a budget in tokens, or thinking on or off; all None: send nothing."""

    text: str = "none"
    """For `UpstreamRequest.thinking`: "effort=low", "budget=1024", "on", "off", "always_on" or "none"."""
    effort: str | None = None
    budget: int | None = None
    on: bool | None = None


NOTHING = Applied()
OFF = Applied("off", effort="none", on=False)
ON = Applied("on", on=True)
ALWAYS_ON = Applied("always_on")


def applied(call: Call) -> Applied:
    """The thinking control for this attempt, by the target's contract."""
    thinking, budget = call.target.model.thinking, call.thinking_budget
    effort = call.effort or call.target.effort
    asked = effort is not None or budget is not None or thinking.contract is Contract.ALWAYS_ON
    return _CONTRACTS[thinking.contract](thinking, effort, budget) if asked else NOTHING


def _number(thinking: Thinking, effort: str | None, budget: int | None) -> Applied:
    """Exact and target: a number of tokens; less than the provider's minimum can only be met by not thinking."""
    if effort == "none":
        return OFF
    wish = _size(thinking, effort) if effort else None
    tokens = min(size for size in (wish, budget) if size is not None)
    if budget is None:
        tokens = max(tokens, thinking.minimum)
    if tokens <= 0 or tokens < thinking.minimum:
        return OFF
    return Applied(f"budget={tokens}", budget=tokens, on=True)


def _level(thinking: Thinking, effort: str | None, budget: int | None) -> Applied:
    """A word: the nearest one that the model has at or below the wish and within the budget, else its lowest."""
    scale = thinking if thinking.levels else SCALE
    levels = scale.levels[: _index(scale, effort) + 1] if effort else scale.levels
    if budget is not None:
        sizes = dict(zip(scale.levels, scale.tokens, strict=False)) | {"none": 0}
        levels = tuple(level for level in levels if level in sizes and sizes[level] <= budget)
    word = levels[-1] if levels else scale.levels[0]
    return OFF if word == "none" else Applied(f"effort={word}", effort=word, on=True)


def _switch(thinking: Thinking, effort: str | None, budget: int | None) -> Applied:
    """On only if its typical tokens fit; an unknown size fits no budget."""
    fits = budget is None or (bool(thinking.tokens) and thinking.tokens[-1] <= budget)
    return ON if effort != "none" and fits else OFF


def _size(thinking: Thinking, effort: str) -> int:
    scale = thinking if thinking.levels and thinking.tokens else SCALE
    return scale.tokens[min(_index(scale, effort), len(scale.tokens) - 1)]


def _index(scale: Thinking, effort: str) -> int:
    """Position of the highest level at or below the word; 0 if there is none, or if the word is unknown."""
    if effort in scale.levels:
        return scale.levels.index(effort)
    rank = _rank(effort)
    return max((at for at, level in enumerate(scale.levels) if _rank(level) <= rank), default=0)


def _rank(word: str) -> int:
    return WORDS.index(word) if word in WORDS else 0


_CONTRACTS: dict[Contract, Callable[[Thinking, str | None, int | None], Applied]] = {
    Contract.EXACT: _number,
    Contract.TARGET: _number,
    Contract.LEVEL: _level,
    Contract.SWITCH: _switch,
    Contract.ALWAYS_ON: lambda *_: ALWAYS_ON,
    Contract.NONE: lambda *_: NOTHING,
}
