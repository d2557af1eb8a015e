"""What a model's thinking contract becomes at an engine that lowpass launches or watches."""

from msgspec import structs

from router.estimate.thinking import SCALE
from router.types.engine import Served
from router.types.target import Contract, Thinking

_COUNTLESS = (Contract.SWITCH, Contract.ALWAYS_ON)
_WORDS = ("none", "low", "medium", "high")


def as_served(thinking: Thinking, engine: Served) -> Thinking:
    """A reasoning parser counts thoughts and keeps to a budget; without one there is only the template's switch."""
    if thinking.contract in (Contract.NONE, Contract.LEVEL):
        return thinking
    if engine.thinking_exact:
        numbered = _with_words(thinking) if thinking.contract in _COUNTLESS else thinking
        least = max(thinking.minimum, engine.thinking_forced + 1)
        return structs.replace(numbered, contract=Contract.EXACT, minimum=least, streamed=True)
    switch = Contract.SWITCH if thinking.can_stop else Contract.ALWAYS_ON
    return structs.replace(thinking, contract=switch, minimum=0, streamed=False)


def _with_words(thinking: Thinking) -> Thinking:
    """What could only be switched can now be asked for less: the usual words below its own."""
    word, most = (thinking.levels or _WORDS)[-1], (thinking.tokens or (SCALE["high"],))[-1]
    words = _WORDS if thinking.can_stop else _WORDS[1:]
    below = {level: SCALE[level] for level in words if SCALE[level] < most and level != word}
    return structs.replace(thinking, levels=(*below, word), tokens=(*below.values(), most))
