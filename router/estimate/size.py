"""How many tokens a choice may have on one rung of thinking, and what that costs at most."""

from collections.abc import Callable
from math import inf

from msgspec import Struct

from router.estimate.learn import Kind, Learned
from router.estimate.thinking import Rung, card
from router.types.price import Scope, Writes
from router.types.request import Endpoint, Request
from router.types.target import Contract, Target, Wire
from router.types.task import Task

MEAN_OF_P90 = 2
"""The 90 % quantile of thinking is so many times its mean: 1.6 to 2.3 for four of five models measured."""
LEAST_ANSWER = 256
"""Output tokens below which a cap leaves no room for an answer; unless the client asked for fewer."""
START = 0.4
"""Share of answers that the start hold of a metered stream pays for to the end."""
LONG = 0.95
"""Share of answers for which there must be room, where they are known to be short."""
SAFE = 0.995
"""Share of answers that a cap must not cut, where nothing can be metered …"""
SAFE_MARGIN = 1.25
"""… and what it has beyond that: a share so high is hardly learned from so few."""
START_ANSWER = 1_024
"""Output tokens that a metered stream starts with, thinking apart, before anything was learned …"""
START_THOUGHT = 8
"""… and the part of the card's thinking: it can be extended."""
SAFE_ANSWER = 4_096
SAFE_THOUGHT = 2
"""Likewise for a cap, which can't: so many times the card's thinking."""


Read = tuple[float, float]
"""`Estimate.read_output` and `Estimate.read_thinking`."""


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
    output: int
    """Expected, thinking included."""
    thinking: int
    """The expected part of it."""


class Usual(Struct, frozen=True):
    """What is known of an answer, whatever its caps and its target's margin: output tokens of one choice."""

    wordiness: float
    """Visible tokens ÷ those that are read from a request's text."""
    thought: float
    """Thinking tokens of a request that needs all of the usual thinking …"""
    most_thought: float
    """… and at most, by what is asked for."""
    tight: int
    """What is held at first."""
    tight_thinking: int
    blind: bool
    """See `Size`."""
    long: int
    """What hardly any answer exceeds."""


def expected(known: Usual, read_output: float, read_thinking: float) -> tuple[float, float]:
    """Visible tokens of a choice, and those of thinking, of a request that reads so (see `Estimate`)."""
    return known.wordiness * read_output, min(known.thought * read_thinking, known.most_thought)


def size(target: Target, request: Request, rung: Rung, known: Usual, margin: float, read: Read) -> Size:
    most = output_bound(target, request)
    whole_thinking = _worst_thinking(target, rung, most)
    metered = target.model.thinking.streamed or not rung.thinks
    least, tight = min(most, rung.p90 + min(LEAST_ANSWER, known.long)), min(most, int(known.tight * margin))
    tight = max(least, tight) if known.blind else tight
    start = tight if known.blind else int(known.tight_thinking * margin)
    visible, thoughts = expected(known, *read)
    output, thinking = min(most, int(visible + thoughts)), int(min(most, thoughts))
    start = min(start, whole_thinking)
    return Size(most, least, tight, start, whole_thinking, metered, known.blind, output, thinking)


def usual(target: Target, rung: Rung, learned: Learned, task: Task, template: str) -> Usual:
    template = learned.known(template)
    key = (target.model.thinking, rung.effort, rung.number, rung.thinks, task, template)
    return learned.recall(
        target.id,
        key,
        lambda: _usual(target, rung, learned.kind(target.id, rung.effort, task, template), learned.ahead(target.id)),
    )


def _usual(target: Target, rung: Rung, kind: Kind, ahead: int | None) -> Usual:
    """`ahead`: see `Learned.ahead`."""
    thought = card(target.model.thinking, rung.effort) if rung.thinks else 0
    long = kind.output(LONG, START_ANSWER + thought)
    words, safe = kind.wordiness(), _safe(kind, rung, thought)
    mean = kind.thought(thought / MEAN_OF_P90) if rung.thinks else 0.0
    most = 0.0 if not rung.thinks else inf if rung.number is None else float(rung.number)
    start = 0 if ahead is None else _start(kind.output, rung, thought) + ahead
    if ahead is None or start >= safe or (rung.thinks and not target.model.thinking.streamed):
        return Usual(words, mean, most, safe, safe if rung.thinks else 0, True, long)
    thoughts = _start(kind.thinking, rung, thought) + ahead if rung.thinks else 0
    return Usual(words, mean, most, start, thoughts, False, long)


def output_bound(target: Target, request: Request) -> int:
    """The most that one choice can produce: the client's limit, else the model's."""
    if request.endpoint is Endpoint.EMBEDDINGS:
        return 0
    return min(request.max_output or target.model.max_output, target.model.max_output)


def scope(target: Target, request: Request) -> Scope:
    """What decides over the rates that a call may turn out to have. Anthropic's caches are written only on request."""
    asked = request.caches or target.provider.wire is not Wire.ANTHROPIC
    writes = Writes.ANY if request.caches_long else Writes.DEFAULT if asked else Writes.NONE
    media = bool(request.images or request.audio_seconds) or "audio" in request.body
    return Scope(service_tier=request.service_tier, region=target.region, writes=writes, media=media)


def _start(quantile: Callable[[float, int], int], rung: Rung, thought: int) -> int:
    """Of a metered stream."""
    found = quantile(START, START_ANSWER + thought // START_THOUGHT)
    return found if rung.number is None else min(found, rung.number + START_ANSWER)


def _safe(kind: Kind, rung: Rung, thought: int) -> int:
    """A cap that hardly any answer reaches."""
    found = int(kind.output(SAFE, SAFE_ANSWER + SAFE_THOUGHT * thought) * SAFE_MARGIN)
    return found if rung.number is None else min(found, rung.number + SAFE_ANSWER)


def _worst_thinking(target: Target, rung: Rung, most: int) -> int:
    """Only an exact contract keeps thinking below the cap on all output."""
    if not rung.thinks:
        return 0
    exact = target.model.thinking.contract is Contract.EXACT and rung.number is not None
    return min(most, rung.number or most) if exact else most
