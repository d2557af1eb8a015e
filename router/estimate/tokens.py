"""Tokens of a prompt, of an answer and of thinking."""

from collections.abc import Callable, Iterable, Iterator
from functools import cache, lru_cache
from math import inf
from typing import NamedTuple

import re2
from msgspec import Struct

from router.estimate.caches import MILLE
from router.estimate.learn import InputSize, KnownTemplate, TargetStats, Work
from router.estimate.lengths import CREDIBLE, NO_THOUGHT, THINKING, VISIBLE, LengthLaw
from router.types.decision import UNCOUNTED, Counts
from router.types.request import MEDIA, TYPICAL, USUAL_OUTPUT, USUAL_THINKING, Endpoint, Request, TokensRead
from router.types.tables import table
from router.types.target import EFFORTS, Contract, Target, Thinking

# What a target can be held to in thinking: the levels of its contract, from the one asked for down to none.

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


class ThinkingLevel(Struct, frozen=True):
    """One thing to ask for. `effort` is empty for the model's own default; `p90` and `number` are tokens per choice."""

    effort: str
    p90: int
    number: int | None = None
    """The budget to send, where the contract takes one."""

    @property
    def thinks(self) -> bool:
        return self.p90 > 0


OFF = ThinkingLevel("none", 0)


def thinking_levels(
    target: Target, asked: str, cap: int | None, learned: TargetStats, task: Work
) -> Iterator[ThinkingLevel]:
    """What may be asked for instead of `asked`, from there down; all of it within `cap` thinking tokens per choice.

    Under a cap the model's own default is no answer: something has to be said, so the highest that fits is.
    """
    thinking = target.model.thinking
    word = level(thinking, asked)
    if not word and cap is not None and thinking.contract is not Contract.ALWAYS_ON:
        word = level(thinking, EFFORTS[-1])
    if thinking.contract is Contract.NONE or word == "none":
        yield ThinkingLevel(word, 0)
        return
    numbered = thinking.contract in NUMBERED
    for rung in _number(target, word, cap, learned, task) if numbered else _words(target, word, learned, task):
        if cap is None or rung.p90 <= cap:
            yield rung
    if thinking.can_stop:
        yield OFF


def lowest(target: Target, learned: TargetStats, task: Work | None = None) -> int:
    """The least thinking, in tokens per choice, that the target can be held to: 0 where it can be switched off."""
    thinking = target.model.thinking
    if thinking.can_stop:
        return 0
    if thinking.contract in NUMBERED:
        return thinking.minimum
    return p90(target, level(thinking, "minimal"), learned, task)


def fits_thinking(target: Target, tokens: int, learned: TargetStats) -> bool:
    """The target can be held to `tokens` of thinking per choice."""
    return lowest(target, learned) <= tokens


def p90(target: Target, effort: str, learned: TargetStats, task: Work | None) -> int:
    if target.model.thinking.contract is Contract.NONE or effort == "none":
        return 0
    prior = card(target.model.thinking, effort)  # of such a target no easy request says that it never thinks
    kind = learned.kind
    return learned.recall(
        target.id, (effort, task, prior), lambda: max(kind(target.id, effort, task).thinking(P90, prior), min(prior, 1))
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
    ranks = {effort: rank for rank, effort in enumerate(EFFORTS)}
    return max((at for at, level in enumerate(levels) if ranks.get(level, 0) <= ranks.get(word, 0)), default=0)


def _words(target: Target, asked: str, learned: TargetStats, task: Work) -> Iterator[ThinkingLevel]:
    """Less effort never counts as more thought, even where it has not been seen yet."""
    thinking = target.model.thinking
    most = p90(target, asked, learned, task)
    yield ThinkingLevel(asked, most)
    if thinking.contract is Contract.LEVEL:
        levels = thinking.levels or WORDS
        above = position(levels, asked) if asked else position(levels, USUAL) + 1
        for word in reversed(levels[:above]):
            if word != "none":
                most = min(most, p90(target, word, learned, task))
                yield ThinkingLevel(word, most)


def _number(target: Target, asked: str, cap: int | None, learned: TargetStats, task: Work) -> Iterator[ThinkingLevel]:
    """As many tokens as the word stands for, or the cap; less than the provider's minimum can't be said."""
    thinking = target.model.thinking
    usual = p90(target, asked, learned, task)
    if not asked:
        yield ThinkingLevel(asked, usual)
        return
    wish = max(card(thinking, asked), thinking.minimum)
    number = wish if cap is None else min(wish, cap)
    if number >= max(thinking.minimum, 1):
        yield ThinkingLevel(asked, min(usual, number), number)


# How many tokens a choice may have on one rung of thinking, and what that costs at most.

MEAN_OF_P90 = 2
"""The 90 % quantile of thinking is so many times its mean: 1.6 to 2.3 for four of five models measured."""
LEAST_ANSWER = 256
"""Output tokens below which a cap leaves no room for an answer; unless the client asked for fewer."""
START = 0.4
"""Share of answers that the start hold of a metered stream pays for to the end."""
LONG = 0.95
"""Share of answers for which there must be room, where they are known to be short."""
SAFE = 0.995
"""Share of answers that a cap must not cut, where nothing can be metered."""
START_ANSWER = 1_024
"""Output tokens that a metered stream starts with, thinking apart, before anything was learned …"""
START_THOUGHT = 8
"""… and the part of the card's thinking: it can be extended."""
ROOM, USUAL_MORE = 3, 100
"""Times what is expected of a request beyond usual ones of its kind, but for so many tokens, that its cap has more."""
LEAST_CAP = 1_024
"""Tokens of an answer that a cap leaves room for, beside usual thinking, however short all others were: so few cost
little to hold."""
SAFE_ANSWER = 5_120
SAFE_THOUGHT = 2.5
"""Likewise for a cap, which can't: so many times the card's thinking."""


class Size(Struct, frozen=True):
    """Output tokens of one choice."""

    most: int
    """The client's cap, else the model's."""
    least: int
    """The usual thinking and a short answer."""
    tight: int
    """What the hold is made for: the start of a metered stream, or the cap that is sent."""
    tight_thinking: int
    whole_thinking: int
    metered: bool
    """As a stream it shows all of its tokens …"""
    blind: bool
    """… but not yet that they come piece by piece, or none of them: `tight` has to cover the cap that is sent."""
    output: int = 0
    """Expected, thinking included …"""
    thinking: int = 0
    """… and the part of it that is; 0 where a forecast says so, and the hold does not hang on it."""
    holds: tuple[tuple[int, int], ...] = ()
    """What is held for, all of it and thinking: the least that an answer takes, `tight`, and the worst case."""


class UsualOutput(Struct, frozen=True):
    """What is known of an answer, whatever its caps and its target's margin: output tokens of one choice."""

    visible: LengthLaw
    thought: LengthLaw
    """Thinking tokens, by the need to think …"""
    most_thought: float
    """… and at most, by what is asked for."""
    tight: int
    """What is held at first."""
    tight_thinking: int
    blind: bool
    """See `Size`."""
    mean: int
    """Output tokens of all such answers."""
    long: int
    """What hardly any answer exceeds."""
    unsure: int
    """The part of a cap that nothing seen says anything of: it is for usual requests, and smaller ones need less."""
    lowest: int
    """Thinking tokens that leave room to think at all, and that the target can be held to …"""
    bounded: bool
    """… and whether it keeps to them, whatever the cap on its output."""
    worst: int
    """Tokens of its longest answer past a cap: see `TargetStats.worst`."""


def sizes(
    request: Request,
    asks: Iterable[tuple[Target, ThinkingLevel, UsualOutput, float, int | None]],
    read: TokensRead,
    *,
    foretold: bool = False,
) -> list[Size]:
    """`asks`: each target, what is asked of it and known, its margin, and a cap in place of the client's."""
    rows, embeds, asked = [], request.endpoint is Endpoint.EMBEDDINGS, request.max_output
    for target, rung, known, margin, cap in asks:
        own, contract, thinks = target.model.max_output, target.model.thinking, rung.p90 > 0
        most = 0 if embeds else min((asked if cap is None else cap) or own, own)
        # Only an exact contract keeps thinking below the cap on all output.
        exact = contract.contract is Contract.EXACT and rung.number is not None
        whole_thinking = 0 if not thinks else min(most, rung.number or most) if exact else most
        output = thinking = 0
        least, tight = min(most, rung.p90 + LEAST_ANSWER, known.long), min(most, int(known.tight * margin))
        if known.blind:
            share = max(read.visible / USUAL_OUTPUT, read.thinking / USUAL_THINKING if thinks else 0.0)
            tight -= int(known.unsure * max(1 - share, 0.0))
        if not foretold or (known.blind and tight < most):
            thoughts = min(THINKING.tokens(known.thought, read.thinking), known.most_thought) if thinks else 0.0
            output, thinking = int(VISIBLE.tokens(known.visible, read.visible) + thoughts), int(min(most, thoughts))
            output = min(most, output)
        if known.blind:
            tight = max(least, min(most, tight + ROOM * max(output - known.mean - USUAL_MORE, 0)))
        start = min(tight if known.blind else int(known.tight_thinking * margin), whole_thinking)
        worst, answer = known.worst, min(most, known.lowest + LEAST_ANSWER, known.long)
        shown = contract.streamed or not thinks
        first = max(answer, worst), min(known.lowest, answer) if known.bounded else answer
        holds = first, (max(tight, worst), start), (max(most, worst), whole_thinking)
        rows.append(Size(most, least, tight, start, whole_thinking, shown, known.blind, output, thinking, holds))
    return rows


def usual(target: Target, rung: ThinkingLevel, learned: TargetStats, task: Work, known: KnownTemplate) -> UsualOutput:
    """`known`: see `TargetStats.known`."""
    key = (target.model.thinking, rung.effort, rung.number, rung.thinks, task, known)
    return learned.recall(target.id, key, _usual, target, rung, learned, task, known)


def _usual(
    target: Target, rung: ThinkingLevel, learned: TargetStats, task: Work, template: KnownTemplate
) -> UsualOutput:
    kind, ahead, thinking = learned.kind(target.id, rung.effort, task, template), learned.ahead(target.id), rung.thinks
    contract, thought = target.model.thinking, card(target.model.thinking, rung.effort) if thinking else 0
    words, prior, least = kind.visible(), SAFE_ANSWER + int(SAFE_THOUGHT * thought), lowest(target, learned, task)
    if not contract.can_stop and contract.contract in NUMBERED:
        least = max(least, LEAST_THOUGHT)
    safe, sure = (kind.output(SAFE, tokens, tail=True) for tokens in (prior, 0))
    safe = safe if rung.number is None else min(safe, rung.number + SAFE_ANSWER)
    # What is held covers thoughts that were not asked for; they are not expected of what has to be asked.
    unasked = not rung.effort and contract.unasked == "none"
    mean = kind.thought(0.0 if unasked else thought / MEAN_OF_P90) if thinking else NO_THOUGHT
    # What little was asked for says how much is thought there: of what needs more, no more than a few times the most.
    most = max(thought, CREDIBLE * kind.thinking(LONG, 0)) if thought else inf
    most = 0.0 if not thinking else min(most, inf if rung.number is None else rung.number)
    start = thoughts = capped = max(safe, LEAST_CAP + rung.p90)
    # Where more than a cap allows may be on its way at once, as of an answer that comes whole, a cap is tighter.
    blind = ahead is None or ahead >= capped or (thinking and not contract.streamed)
    if ahead is not None and not blind:
        start = min(_start(kind.output, rung, thought) + ahead, safe)
        thoughts = _start(kind.thinking, rung, thought) + ahead
    return UsualOutput(
        visible=words,
        thought=mean,
        most_thought=most,
        tight=start,
        tight_thinking=thoughts if thinking else 0,
        blind=blind,
        mean=kind.mean(int(USUAL_OUTPUT) + thought // MEAN_OF_P90),
        long=kind.output(LONG, START_ANSWER + thought),
        unsure=max(safe - max(sure, LEAST_CAP + rung.p90), 0) if blind else 0,
        lowest=least,
        bounded=least == 0 or contract.contract is Contract.EXACT or not blind,
        worst=learned.worst(target.id),
    )


def _start(quantile: Callable[[float, int], int], rung: ThinkingLevel, thought: int) -> int:
    """Of a metered stream."""
    tokens = quantile(START, START_ANSWER + thought // START_THOUGHT)
    return tokens if rung.number is None else min(tokens, rung.number + START_ANSWER)


# How many tokens a prompt may take, before anyone has counted them: first by rule, then by learned ratios.

TOKENS_MOST = (60, 100)
"""Likewise, at most: random letters make 0.54 tokens each, and no token is shorter than a byte."""
TEMPLATE_TOKENS = 64
"""In every bound: chat templates add role markers, and some a system prompt of their own (SmolLM2: 24 tokens)."""
INPUT_SHARE = 0.99
"""Share of requests whose input keeps within the learned ratio …"""
INPUT_MARGIN = 1.1
"""… which is widened by this factor, for a text unlike the last ones."""
_IMAGES = [(re2.compile(name), tokens) for name, tokens in table("estimate/image_tokens.yaml").items()]
AUDIO_TOKENS_PER_SECOND = 32
"""Gemini's rate, the highest that is published."""
FILE_BYTES_PER_TOKEN = 1
"""A document's text is compressed, and some providers add an image of each page."""


class PromptSize(NamedTuple):
    """Input tokens of a request at a target."""

    rough: int
    """A plain count: the scale that ratios are learned on."""
    tokens: int
    """Expected."""
    bound: int
    """At most. Never more than the context: a longer prompt is refused, not charged."""


def prompts(
    request: Request, targets: Iterable[tuple[Target, InputSize, float]], counts: Counts = UNCOUNTED
) -> list[PromptSize]:
    """At each target, by what was learned there of prompts of the request's script, and the target's margin. `counts`:
    what was counted, which goes before all that is estimated."""
    media, text_rough, rows = request.script.endswith(MEDIA), request.rough_tokens, []
    text_dense, text_words = request.dense_bytes, request.prompt_bytes - request.dense_bytes
    for target, ((each, base), upper, share), margin in targets:
        context, rough, words, dense, media_bound = target.model.context, text_rough, text_words, text_dense, 0
        if media and (media_bound := media_tokens(target, request)):
            rough += media_tokens(target, request, usual=True)
        if (own := target.prompt) is not None:
            # A template adds its own text, and may say the same twice.
            times = max(own.times, 1.0)
            words, dense = int(words * times) + own.bytes - own.dense, int(dense * times) + own.dense
            rough += template(target)
        bound = (words * TOKENS_MOST[0] + dense * TOKENS_MOST[1]) // 100 + TEMPLATE_TOKENS + media_bound
        if counts and (count := counts.get(target.id)) is not None:
            bound, tokens = count.most + TEMPLATE_TOKENS, count.tokens
        else:
            tokens = int(max(each * rough + base, 0.0))
            if not media_bound:  # small images say nothing of the next one
                learned = int(upper * rough * INPUT_MARGIN / MILLE * share + bound * (1 - share)) + TEMPLATE_TOKENS
                bound = min(learned, bound)
        most = max(context, TEMPLATE_TOKENS) * request.prompts
        rows.append(PromptSize(rough, min(tokens, context), min(int(bound * margin), most)))
    return rows


def template(target: Target) -> int:
    """Rough tokens of the text that its template adds."""
    own = target.prompt
    return 0 if own is None else ((own.bytes - own.dense) * TYPICAL[0] + own.dense * TYPICAL[1]) // 100


@cache
def image_tokens(target: str) -> dict[str, int]:
    """Of an image at most, of a usual one, and of one at low detail where it has fewer; `target`: wire and name of the
    model, with a blank between."""
    return next(tokens for name, tokens in _IMAGES if name.search(target))


def media_tokens(target: Target, request: Request, *, usual: bool = False) -> int:
    """Of images, recordings and documents, at most, or of `usual` images; a linked document may fill the context."""
    if request.file_bytes is None:
        return target.model.context
    tokens = image_tokens(f"{target.provider.wire} {target.model.name}")
    image = tokens["usual" if usual else "most"]
    images = request.images * image + request.low_images * (tokens.get("low", image) - image)
    return images + request.audio_seconds * AUDIO_TOKENS_PER_SECOND + request.file_bytes // FILE_BYTES_PER_TOKEN
