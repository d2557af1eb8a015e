"""The cost of a request at a target, and how a request is made to fit a budget."""

from collections.abc import Iterable
from math import ceil, inf

from msgspec import Struct, structs

from router.estimate.caches import keeps
from router.estimate.learn import InputSize, TargetStats, Work
from router.estimate.lengths import CREDIBLE, THINKING, VISIBLE, LengthLaw
from router.estimate.posterior import prior_share, shrink_to_prior
from router.estimate.price import CallPrice, call_price
from router.estimate.tokens import LEAST_THOUGHT, NUMBERED, ThinkingLevel, card, lowest, thinking_levels
from router.types.account import ENDLESS, Amount
from router.types.decision import Candidate, Estimate, FittedRequest
from router.types.price import WORST_CASE, CallScope, Price, Writes
from router.types.request import Endpoint, Request
from router.types.target import Contract, Target, Wire

# What one request can cost at one target, for any length of its output.

MOST_PRICES = 4_096
_plain: dict[tuple[int, Wire, bool, bool, bool], tuple[Price, CallPrice]] = {}
"""id of a price and kind of call → the price, and its `CallPrice`; only prices without rules and units."""


def bill(target: Target, request: Request, input_tokens: int, at_ms: int) -> CallPrice:
    price, provider = target.served or target.model.price or WORST_CASE, target.provider
    wire, units = provider.wire, provider.quirks.units
    media = bool(request.images or request.audio_seconds) or "audio" in request.body
    key, known = (id(price), wire, request.caches, request.caches_long, media), None
    if plain := not (price.rules or units):
        known = _plain.get(key)
    if known is None:
        writes = Writes.ANY if request.caches_long else Writes.DEFAULT if keeps(wire, request.caches) else Writes.NONE
        tier, region = request.service_tier, target.region
        scope = CallScope(service_tier=tier, region=region, writes=writes, media=media, units=units)
        known = price, call_price(price, input_tokens, at_ms, scope)
        if plain:
            if len(_plain) >= MOST_PRICES:
                _plain.clear()
            _plain[key] = known
    return CallPrice(input_tokens, known[1].cases, request.choices)


# How many tokens a choice may have at a level of thinking, and what that costs at most.

MEAN_OF_P90 = 2
"""Ratio of the 90 % quantile of thinking to its mean: 1.6 to 2.3 for four of five models measured."""
LEAST_ANSWER = 256
"""Output tokens below which a cap leaves no room for an answer, unless the client asked for fewer."""
START = -0.25
"""The start of a metered stream pays for an answer this many standard deviations, of the logarithm of its tokens, from
the median: two in five are shorter."""
START_ANSWER = 1_024
"""Output tokens that a metered stream starts with, without thinking, before anything was learned."""
START_THOUGHT = 8
"""A metered stream starts with the card's thinking tokens divided by this, before anything was learned."""
LONG = 0.95
"""Share of answers for which there must be room, if they are known to be short."""
SAFE = 0.995
"""Share of the last answers that a cap must not cut, if nothing can be metered."""
ROOM_NEW, ROOM = 7, 3
"""Multiples of what is expected that a cap must not cut, before any answer was seen, and later."""
LEAST_CAP = 500
"""Output tokens besides usual thinking that a cap must not cut, however short other answers were."""


class Size(Struct, frozen=True):
    """Output tokens of one choice."""

    most: int
    """The client's cap, else the model's."""
    least: int
    """The usual thinking and a short answer."""
    tight: int
    """What the hold is for: the start of a metered stream, or the cap that is sent."""
    tight_thinking: int
    whole_thinking: int
    metered: bool
    """Whether a stream shows all of its tokens."""
    blind: bool
    """Whether no stream has shown yet that tokens come piece by piece: `tight` has to cover the cap that is sent."""
    holds: tuple[tuple[int, int], ...] = ()
    """Output and thinking tokens to hold for: the least that an answer takes, `tight`, and the worst case."""


class UsualOutput(Struct, frozen=True):
    """What is known of an answer, without caps and the target's margin: output tokens of one choice."""

    visible: LengthLaw
    thought: LengthLaw
    """Thinking tokens, by the need to think."""
    most_thought: float
    """Maximum thinking tokens, at the level that is asked for."""
    room: float
    """Number of tokens that a cap allows per expected token."""
    safe: float
    """Minimum number of tokens that a cap allows."""
    number: float
    """Maximum thinking tokens that are asked for."""
    start: tuple[float, float]
    """Tokens with which a metered stream starts, per expected token: visible and thinking."""
    begin: float
    """Tokens with which every metered stream starts."""
    ahead: int | None
    """See `TargetStats.ahead`; None also if thoughts are not shown as they come, or a stream is billed to its end."""
    long: int
    """Number of tokens that hardly any answer exceeds."""
    lowest: int
    """Thinking tokens that leave room to think at all, and that the target can be limited to."""
    bounded: bool
    """Whether the target keeps to `lowest`, whatever the cap on its output."""
    worst: int
    """Tokens of its longest answer past a cap: see `TargetStats.worst`."""


SizeAsk = tuple[Target, ThinkingLevel, UsualOutput, float, int | None, tuple[float, float]]
"""A target, its level, what is known of its answers, its margin, a cap in place of the client's, and the visible and
thinking tokens expected of each choice."""


def sizes(request: Request, asks: Iterable[SizeAsk]) -> list[Size]:
    rows, embeds, limit = [], request.endpoint is Endpoint.EMBEDDINGS, request.max_output
    for target, rung, known, margin, cap, (words, thoughts) in asks:
        own, contract, thinks = target.model.max_output, target.model.thinking, rung.p90 > 0
        most = 0 if embeds else min((limit if cap is None else cap) or own, own)
        # Only an exact contract keeps thinking below the cap on all output.
        exact = contract.contract is Contract.EXACT and rung.number is not None
        whole_thinking = 0 if not thinks else min(most, rung.number or most) if exact else most
        short = min(most, known.long)
        least, answer = min(short, rung.p90 + LEAST_ANSWER), min(short, known.lowest + LEAST_ANSWER)
        uncut = max(words * known.room + min(thoughts * known.room, known.number), known.safe, LEAST_CAP + rung.p90)
        # A cap is the tighter bound if more than it may be in flight at once, as with an answer that comes whole.
        blind = known.ahead is None or known.ahead >= uncut
        start = known.begin + thoughts * known.start[1] + (known.ahead or 0)
        held = uncut if blind else min(uncut, start + words * known.start[0])
        tight = min(most, max(int(held * margin), least if blind else LEAST_ANSWER))
        tight_thinking = min(tight if blind else int(start * margin), whole_thinking)
        worst, shown = known.worst, (contract.streamed or not thinks) and not embeds
        first = max(answer, worst), min(known.lowest, answer) if known.bounded else answer
        holds = first, (max(tight, worst), tight_thinking), (max(most, worst), whole_thinking)
        rows.append(Size(most, least, tight, tight_thinking, whole_thinking, shown, blind, holds))
    return rows


def sized(
    request: Request, target: Target, rung: ThinkingLevel, known: UsualOutput, margin: float, step: Estimate
) -> Size:
    """Returns the size at the cap and for the reading of an estimate, by what was learned since."""
    words = VISIBLE.tokens(known.visible, step.read.visible)
    thoughts = min(THINKING.tokens(known.thought, step.read.thinking), known.most_thought)
    return sizes(request, [(target, rung, known, margin, step.cap, (words, thoughts))])[0]


def usual(target: Target, rung: ThinkingLevel, learned: TargetStats, work: Work) -> UsualOutput:
    key = rung.effort, rung.number, rung.thinks, work
    return learned.recall(target, key, _usual, target, rung, learned, work)


def _usual(target: Target, rung: ThinkingLevel, learned: TargetStats, work: Work) -> UsualOutput:
    control, asked, thinking = target.model.thinking, (target.id, rung.effort), rung.thinks
    thought, least = card(control, rung.effort) if thinking else 0, lowest(target, learned)
    if not control.can_stop and control.contract in NUMBERED:
        least = max(least, LEAST_THOUGHT)
    # Thinking that was not asked for is not expected of a model that has to be asked.
    prior = 0.0 if not rung.effort and control.unasked == "none" else thought / MEAN_OF_P90
    visible, thoughts = learned.laws(asked, work, prior if thinking else None)
    outputs, thinkings = learned.latest(asked)
    number, new = inf if rung.number is None else rung.number, prior_share(outputs.count)
    # Answers to easy requests say little of harder ones: of those a few times the maximum is expected at most.
    most = min(max(thought, CREDIBLE * thinkings.upper(LONG)) if thought else inf, number)
    ahead = None if (thinking and not control.streamed) or target.reads_on[True] else learned.ahead(target.id)
    return UsualOutput(
        visible=visible,
        thought=thoughts,
        most_thought=most if thinking else 0.0,
        room=ROOM + (ROOM_NEW - ROOM) * new,
        safe=ceil((1 - new) * outputs.tail(SAFE)) if outputs.count else 0.0,
        number=number,
        start=((1 - new) * visible.quantile(START), (1 - new) * thoughts.quantile(START)),
        begin=new * (START_ANSWER + thought // START_THOUGHT),
        ahead=ahead,
        long=max(shrink_to_prior(outputs.upper(LONG), outputs.count, START_ANSWER + thought), rung.p90),
        lowest=least,
        bounded=least == 0 or control.contract is Contract.EXACT or ahead is not None,
        worst=learned.worst[target.id],
    )


# Estimates repeated by what was learned since.


def held_anew(step: Candidate, request: Request, learned: TargetStats, thinking_cap: int | None) -> Candidate:
    """Returns the step with the holds that follow from what was learned since it was estimated."""
    known, target, cap = step.estimate, step.target, _thinking_cap(step, request, thinking_cap)
    effort = known.effort or target.effort or request.effort or ""
    work = learned.work(known.task, known.template, known.read.stated)
    rung, expected, _ = outlook(target, learned, effort, work, cap, known.script)
    figures = sized(request, target, rung, expected, learned.margin(target.id), known)
    least, tight, whole = bill_of(step, request).amounts(*figures.holds)
    fresh = structs.replace(known, least=least, tight=tight, whole=whole, hold=whole.usd, blind=figures.blind)
    return structs.replace(step, estimate=fresh)


def outlook(
    target: Target, learned: TargetStats, asked: str, work: Work, cap: int | None, script: str
) -> tuple[ThinkingLevel, UsualOutput, InputSize]:
    """Returns what a target does with a kind of request: the level that it would be asked for without regard to money,
    or its lowest if none keeps within the cap; its answers; its prompts. `asked`: the effort."""
    rung = next(thinking_levels(target, asked, cap, learned), None) or ThinkingLevel(asked, lowest(target, learned))
    return rung, usual(target, rung, learned, work), learned.input(target, script)


def per_choice(request: Request, thinking_cap: int | None) -> int | None:
    caps = [tokens for tokens in (request.limits.thinking_budget, thinking_cap) if tokens is not None]
    return min(caps) // request.choices if caps else None


def _thinking_cap(step: Candidate, request: Request, thinking_cap: int | None) -> int | None:
    """Returns the thinking cap per choice; at most what was decided."""
    caps = per_choice(request, thinking_cap), step.estimate.thinking_budget
    return min([tokens for tokens in caps if tokens is not None], default=None)


def affordable_output(step: Candidate, request: Request, nano: int) -> int:
    """Returns how many output tokens a choice may have so that the request's worst case costs at most `nano`."""
    return min(step.estimate.max_output, bill_of(step, request).output(nano) // request.choices)


def worst_cost(step: Candidate, request: Request, tokens: int) -> int:
    """Returns the cost in nano-USD of the whole prompt and `tokens` of output, over all choices."""
    return structs.replace(bill_of(step, request), choices=1).amounts((tokens, 0))[0].usd


def bill_of(step: Candidate, request: Request) -> CallPrice:
    """Returns what a step that was estimated before can cost."""
    return bill(step.target, request, step.estimate.input_bound, step.estimate.at_ms)


# Makes a request fit what is granted: a shorter answer, less thinking, or both; never without room to answer.
#
# An answer is capped before the effort is lowered, as long as the usual thinking (p90) and a short answer fit: a cap
# that hardly any answer reaches costs nothing, less thinking costs quality.


def within_reach(step: Candidate, request: Request, made: FittedRequest, most: Amount) -> FittedRequest:
    """Returns `made`, limited to what `most` pays for: a metered stream is never asked for more."""
    output = affordable_output(step, request, most.usd)
    if made.thinks and most.thinking < ENDLESS:
        thoughts = most.thinking // request.n
        if step.target.model.thinking.contract is Contract.EXACT:
            made = structs.replace(made, thinking_budget=min(made.thinking_budget or thoughts, thoughts))
        elif step.estimate.blind:
            # Thinking that takes no number and is not seen is limited only by the cap on all output.
            output = min(output, thoughts)
    return made if output >= (made.max_output or step.estimate.max_output) else structs.replace(made, max_output=output)


def fit(
    step: Candidate, request: Request, granted: Amount, learned: TargetStats, thinking_cap: int | None = None
) -> FittedRequest | None:
    """Returns how to ask so that `granted` pays; None if impossible. `thinking_cap`: tokens over all choices."""
    if request.endpoint is Endpoint.EMBEDDINGS:
        return FittedRequest() if step.estimate.tight.usd <= granted.usd else None
    target, known, most = step.target, step.estimate, step.estimate.cap
    work = learned.work(known.task, known.template, known.read.stated)
    cap = _thinking_cap(step, request, thinking_cap)
    levels = list(thinking_levels(target, target.effort or request.effort or "", cap, learned))
    if cap is None and not known.effort and target.model.thinking.unasked == "none":
        # Any level that makes it think costs more than saying none.
        levels = [rung for rung in levels if not (rung.effort and rung.thinks)]
    decided = next((at for at, rung in enumerate(levels) if rung.effort == known.effort), 0)
    exact, thinking = target.model.thinking.contract is Contract.EXACT, granted.thinking // request.choices
    most_output = bill_of(step, request).output(granted.usd) // request.choices
    for rung in levels[decided:]:
        expected, margin = usual(target, rung, learned, work), learned.margin(target.id)
        figures = sized(request, target, rung, expected, margin, known)
        output = min(most_output, thinking) if rung.thinks and figures.blind and not exact else most_output
        fitted = _fitted(step, request, granted, rung, figures, min(output, figures.most), thinking)
        if fitted is not None:
            lowered = fitted.lowered if rung.effort == known.effort else ("effort", *fitted.lowered)
            return structs.replace(fitted, lowered=lowered, max_output=fitted.max_output or most)
    return None


def _fitted(
    step: Candidate, request: Request, granted: Amount, rung: ThinkingLevel, figures: Size, output: int, thinking: int
) -> FittedRequest | None:
    """Returns how to ask at one level of thinking, by the tokens of a choice that are granted. Nothing is lowered if no
    cap is needed, or it only makes the hold true; else the answer is capped; else the thinking is lowered to leave room
    for an answer, if the contract takes a number. That room is half of what the client allows, if that is less."""
    control, most = step.target.model.thinking, figures.most
    sizes = (most, figures.whole_thinking), (figures.tight, figures.tight_thinking)
    whole, tight = bill_of(step, request).amounts(*sizes)
    covered, uncut = whole.beyond(granted) == Amount(), tight.beyond(granted) == Amount()
    uncapped = FittedRequest(effort=rung.effort or None, thinking_budget=rung.number, thinks=rung.thinks)
    if uncut and (covered or not figures.blind):
        return uncapped if covered else structs.replace(uncapped, metered=True)
    cap, number = output if output < most else None, min(rung.number or most, thinking)
    lowered: tuple[str, ...] = () if uncut or cap is None else ("output",)
    if not uncut:
        number = min(number, output - min(LEAST_ANSWER, most // 2))
    if not uncut and (output < figures.least or rung.p90 > thinking):
        least = max(control.minimum, min(LEAST_THOUGHT, rung.number or LEAST_THOUGHT, most // 2), 1)
        answers = output >= min(most, min(rung.p90, number) + LEAST_ANSWER)
        if not rung.thinks or control.contract not in NUMBERED or number < least or not answers:
            return None
        lowered = ("effort", *lowered)
    elif not (control.contract is Contract.EXACT and rung.thinks and figures.blind):
        return structs.replace(uncapped, max_output=cap, lowered=lowered, metered=figures.metered)
    return structs.replace(uncapped, max_output=cap, thinking_budget=number, lowered=lowered, metered=figures.metered)
