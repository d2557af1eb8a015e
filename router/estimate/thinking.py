"""What a target can be held to in thinking: the levels of its contract, from the one asked for down to none."""

from collections.abc import Iterator
from functools import lru_cache

from msgspec import Struct

from router.estimate.learn import Learned
from router.types.target import EFFORTS, Contract, Target, Thinking
from router.types.task import Task

P90 = 0.9
WORDS = ("low", "medium", "high")
"""Levels of a model whose card names none."""
SCALE = {"none": 0, "minimal": 512, "low": 1_024, "medium": 8_192, "high": 24_576}
"""Tokens for words that a card gives no figure for: Google's own translation for Gemini 2.5."""
MOST = 32_768
"""For words beyond."""
LEAST_THOUGHT = 256
"""To fit a budget, no smaller number is asked for; unless the client did."""
USUAL = "medium"
"""Where a model's own default stands among its levels, as far as anyone knows."""
NUMBERED = (Contract.EXACT, Contract.TARGET)


class Rung(Struct, frozen=True):
    """One thing to ask for. `effort` is empty for the model's own default; `p90` and `number` are tokens per choice."""

    effort: str
    p90: int
    number: int | None = None
    """The budget to send, where the contract takes one."""

    @property
    def thinks(self) -> bool:
        return self.p90 > 0


OFF = Rung("none", 0)


def rungs(target: Target, asked: str, cap: int | None, learned: Learned, task: Task) -> Iterator[Rung]:
    """What may be asked for instead of `asked`, from there down; all of it within `cap` thinking tokens per choice.

    Under a cap the model's own default is no answer: something has to be said, so the highest that fits is.
    """
    thinking = target.model.thinking
    word = level(thinking, asked)
    if not word and cap is not None and thinking.contract is not Contract.ALWAYS_ON:
        word = level(thinking, EFFORTS[-1])
    if thinking.contract is Contract.NONE or word == "none":
        yield Rung(word, 0)
        return
    numbered = thinking.contract in NUMBERED
    for rung in _number(target, word, cap, learned, task) if numbered else _words(target, word, learned, task):
        if cap is None or rung.p90 <= cap:
            yield rung
    if thinking.can_stop:
        yield OFF


def lowest(target: Target, learned: Learned, task: Task | None = None) -> int:
    """The least thinking, in tokens per choice, that the target can be held to: 0 where it can be switched off."""
    thinking = target.model.thinking
    if thinking.can_stop:
        return 0
    if thinking.contract in NUMBERED:
        return thinking.minimum
    return p90(target, level(thinking, "minimal"), learned, task)


def fits_thinking(target: Target, tokens: int, learned: Learned) -> bool:
    """The target can be held to `tokens` of thinking per choice."""
    return lowest(target, learned) <= tokens


def p90(target: Target, effort: str, learned: Learned, task: Task | None) -> int:
    if target.model.thinking.contract is Contract.NONE or effort == "none":
        return 0
    prior = card(target.model.thinking, effort)
    return learned.recall(
        target.id, (effort, task, prior), lambda: learned.kind(target.id, effort, task).thinking(P90, prior)
    )


@lru_cache
def level(thinking: Thinking, asked: str) -> str:
    """The model's own word for what is asked for; empty where nothing is, or nothing can be."""
    if not asked or thinking.contract in (Contract.NONE, Contract.ALWAYS_ON):
        return ""
    if asked == "none" and thinking.can_stop:
        return "none"
    if thinking.contract is Contract.SWITCH:
        return default(thinking)
    levels = thinking.levels or WORDS
    at = position(levels, asked)
    return levels[at] if levels[at] != "none" else levels[min(at + 1, len(levels) - 1)]


@lru_cache
def card(thinking: Thinking, effort: str) -> int:
    """The catalog's p90 for a level, else the scale's."""
    word = effort or default(thinking)
    known = dict(zip(thinking.levels, thinking.tokens, strict=False))
    return known[word] if word in known else SCALE.get(word, MOST)


def default(thinking: Thinking) -> str:
    """The level that stands for the model's own default: that it thinks."""
    if thinking.contract in (Contract.SWITCH, Contract.ALWAYS_ON):
        return thinking.levels[-1] if thinking.levels else WORDS[-1]
    levels = tuple(level for level in thinking.levels or WORDS if level != "none")
    return levels[position(levels, USUAL)] if levels else "none"


def position(levels: tuple[str, ...], word: str) -> int:
    """Of the highest level at or below the word; 0 if there is none, or if the word is unknown."""
    if word in levels:
        return levels.index(word)
    rank = _rank(word)
    return max((at for at, level in enumerate(levels) if _rank(level) <= rank), default=0)


def _rank(word: str) -> int:
    return EFFORTS.index(word) if word in EFFORTS else 0


def _words(target: Target, asked: str, learned: Learned, task: Task) -> Iterator[Rung]:
    """Less effort never counts as more thought, even where it has not been seen yet."""
    thinking = target.model.thinking
    most = p90(target, asked, learned, task)
    yield Rung(asked, most)
    if thinking.contract is Contract.LEVEL:
        levels = thinking.levels or WORDS
        above = position(levels, asked) if asked else position(levels, USUAL) + 1
        for word in reversed(levels[:above]):
            if word != "none":
                most = min(most, p90(target, word, learned, task))
                yield Rung(word, most)


def _number(target: Target, asked: str, cap: int | None, learned: Learned, task: Task) -> Iterator[Rung]:
    """As many tokens as the word stands for, or the cap; less than the provider's minimum can't be said."""
    thinking = target.model.thinking
    usual = p90(target, asked, learned, task)
    if not asked:
        yield Rung(asked, usual)
        return
    wish = max(card(thinking, asked), thinking.minimum)
    number = wish if cap is None else min(wish, cap)
    if number >= max(thinking.minimum, 1):
        yield Rung(asked, min(usual, number), number)
