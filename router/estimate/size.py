"""How many tokens a choice may have on one rung of thinking, and what that costs at most."""

from msgspec import Struct

from router.estimate.learn import Learned
from router.estimate.thinking import Rung, card
from router.types.classification import Task
from router.types.price import Scope, Writes
from router.types.request import Endpoint, Request
from router.types.target import Contract, Target, Wire

LEAST_ANSWER = 256
"""Output tokens below which a cap leaves no room for an answer; unless the client asked for fewer."""
START = 0.4
"""Share of answers that the start hold of a metered stream pays for to the end."""
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
    """As a stream it shows all of its tokens, so `tight` need not cover the answer."""


def size(target: Target, request: Request, rung: Rung, learned: Learned, task: Task) -> Size:
    most = output_bound(target, request)
    metered = target.model.thinking.streamed or not rung.thinks
    least = min(most, rung.p90 + LEAST_ANSWER)
    tight = max(least if not metered else 0, min(most, _tight(target, rung, learned, task, metered)))
    whole_thinking = _worst_thinking(target, rung, most)
    thought = _start_thought(target, rung, learned, task) if metered else whole_thinking
    if not metered and whole_thinking > tight:
        thought = tight
    return Size(most, least, tight, min(thought, whole_thinking), whole_thinking, metered)


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


def _tight(target: Target, rung: Rung, learned: Learned, task: Task, metered: bool) -> int:
    cell, thought = (target.id, rung.effort, task), _card(target, rung)
    if metered:
        found = learned.output(cell, START, START_ANSWER + thought // START_THOUGHT)
    else:
        prior = SAFE_ANSWER + SAFE_THOUGHT * thought
        found = int(learned.output(cell, SAFE, prior) * SAFE_MARGIN)
    if rung.number is not None:
        found = min(found, rung.number + SAFE_ANSWER)
    return int(found * learned.margin(target.id))


def _start_thought(target: Target, rung: Rung, learned: Learned, task: Task) -> int:
    if not rung.thinks:
        return 0
    prior = START_ANSWER + _card(target, rung) // START_THOUGHT
    found = learned.thinking((target.id, rung.effort, task), START, prior)
    return int(found * learned.margin(target.id))


def _worst_thinking(target: Target, rung: Rung, most: int) -> int:
    """Only an exact contract keeps thinking below the cap on all output."""
    if not rung.thinks:
        return 0
    exact = target.model.thinking.contract is Contract.EXACT and rung.number is not None
    return min(most, rung.number or most) if exact else most


def _card(target: Target, rung: Rung) -> int:
    return card(target.model.thinking, rung.effort) if rung.thinks else 0
