"""The cost of a request at a target, and how the request is made to fit into a budget."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import structs

from router.estimate.caches import COLD, keeps, least
from router.estimate.learn import InputSize, KnownTemplate, TargetStats, Work
from router.estimate.lengths import UNREAD
from router.estimate.price import CallPrice, call_price, own_cost
from router.estimate.tokens import (
    INPUT_SHARE,
    LEAST_ANSWER,
    LEAST_THOUGHT,
    NUMBERED,
    Size,
    ThinkingLevel,
    UsualOutput,
    lowest,
    prompts,
    sizes,
    thinking_levels,
    usual,
)
from router.types.account import ENDLESS, Amount
from router.types.attempt import Usage
from router.types.decision import AS_ASKED, UNCOUNTED, Candidate, Counts, Estimate, FittedRequest, Foretold
from router.types.price import WORST_CASE, CallScope, Price, Writes
from router.types.request import USUAL_READ, Endpoint, Reading, Request
from router.types.target import Contract, Target, Task, Wire

# What one request can cost at one target, for any length of its output.

MOST_PRICES = 4_096
_plain: dict[tuple[int, Wire, bool, bool, bool], tuple[Price, CallPrice]] = {}
"""Of prices without rules, by identity: most have none, and are asked often."""


def bill(target: Target, request: Request, input_tokens: int, at_ms: int) -> CallPrice:
    price, provider = target.served or target.model.price or WORST_CASE, target.provider
    wire, units = provider.wire, provider.quirks.units
    key, known = (id(price), wire, request.caches, request.caches_long, request.media), None
    if plain := not (price.rules or units):
        known = _plain.get(key)
    if known is None:
        writes = Writes.ANY if request.caches_long else Writes.DEFAULT if keeps(wire, request.caches) else Writes.NONE
        tier, region = request.service_tier, target.region
        scope = CallScope(service_tier=tier, region=region, writes=writes, media=request.media, units=units)
        known = price, call_price(price, input_tokens, at_ms, scope)
        if plain:
            if len(_plain) >= MOST_PRICES:
                _plain.clear()
            _plain[key] = known
    return CallPrice(input_tokens, known[1].cases, request.choices)


# Targets × request → Estimates.


def estimates(
    targets: Sequence[Target],
    request: Request,
    learned: TargetStats,
    task: Task | None = Task.CHAT,
    reading: Reading | None = None,
    at_ms: int = 0,
    holds: bool = True,
    template: str = "",
    cached: Mapping[str, float] = COLD,
    counts: Counts = UNCOUNTED,
    forecast: Sequence[Foretold | None] = (),
    fits: Sequence[FittedRequest | None] = (),
) -> list[Estimate]:
    """Pure. `at_ms`: Unix. `forecast`: what the targets were chosen by, in place of what would be expected here;
    `fits`: how each of them would be asked (see `afforded`). Without `holds` what it may cost at most is left out,
    which is most of the work."""
    cap, read = per_choice(request, None), USUAL_READ if reading is None else reading.tokens
    work, widened = learned.known(template, read.stated), bool(learned.margins or learned.billed)
    made = [fitted or AS_ASKED for fitted in fits] if fits else [AS_ASKED] * len(targets)
    asks, inputs, kind, script = [], [], task or UNREAD, request.script
    for target, fitted in zip(targets, made, strict=True):
        key = fitted.effort or target.effort or request.effort or "", kind, work, fitted.thinking_budget or cap, script
        rung, expected, size = learned.recall(target.id, (target.model.thinking, *key), _outlook, target, learned, *key)
        margin = learned.margin(target.id) if widened else 1.0
        asks.append((target, rung, expected, margin, fitted.max_output))
        inputs.append((target, size, margin))
    figures_of = sizes(request, asks, read, foretold=bool(forecast) and None not in forecast)
    sent_of, estimated = prompts(request, inputs, counts), []
    rows = zip(asks, made, figures_of, sent_of, forecast or [None] * len(targets), strict=True)
    for (target, rung, *_), fitted, figures, (rough, tokens_in, bound), known in rows:
        known = known or _expected(target, request, tokens_in, cached.get(target.id, 0.0), figures, at_ms)
        least, tight, whole = bill(target, request, bound, at_ms).amounts(*figures.holds) if holds else _NO_HOLDS
        estimated.append(
            Estimate(
                input_tokens=tokens_in,
                input_bound=bound,
                input_rough=rough,
                output_tokens=known[1],
                thinking_tokens=known[2],
                max_output=figures.most,
                cost=known[0],
                hold=whole.usd,
                least=least,
                tight=tight,
                whole=whole,
                effort=rung.effort,
                thinking_budget=fitted.thinking_budget,
                cap=fitted.max_output,
                lowered=fitted.lowered,
                metered=figures.metered,
                blind=figures.blind,
                at_ms=at_ms,
                task=task,
                template=template,
                read=read,
                script=script,
            )
        )
    return estimated


def held_anew(step: Candidate, request: Request, learned: TargetStats, thinking_cap: int | None) -> Candidate:
    """With the holds that follow from what was learned since it was estimated."""
    known, target, cap = step.estimate, step.target, _thinking_cap(step, request, thinking_cap)
    asked = known.effort or target.effort or request.effort or ""
    work = learned.known(known.template, known.read.stated)
    rung, expected, _ = _outlook(target, learned, asked, known.task or UNREAD, work, cap, known.script)
    (figures,) = sizes(request, ((target, rung, expected, learned.margin(target.id), known.cap),), known.read)
    least, tight, whole = bill_of(step, request).amounts(*figures.holds)
    fresh = structs.replace(known, least=least, tight=tight, whole=whole, hold=whole.usd, blind=figures.blind)
    return structs.replace(step, estimate=fresh)


_NO_HOLDS = (Amount(), Amount(), Amount())


def _outlook(
    target: Target, learned: TargetStats, asked: str, task: Work, work: KnownTemplate, cap: int | None, kind: str
) -> tuple[ThinkingLevel, UsualOutput, InputSize]:
    """What a target does with a kind of request: what it would be asked for where money is no object, its lowest where
    nothing keeps within the cap; its answers; its prompts. `asked`: the effort; `work`: see `TargetStats.known`."""
    levels = thinking_levels(target, asked, cap, learned, task)
    rung = next(levels, None) or ThinkingLevel(asked, lowest(target, learned, task))
    return rung, usual(target, rung, learned, task, work), learned.input(target.id, kind, INPUT_SHARE)


def per_choice(request: Request, thinking_cap: int | None) -> int | None:
    asked = request.limits.thinking_budget
    if asked is None:
        return thinking_cap if thinking_cap is None else thinking_cap // request.choices
    return (asked if thinking_cap is None else min(asked, thinking_cap)) // request.choices


def _thinking_cap(step: Candidate, request: Request, thinking_cap: int | None) -> int | None:
    """Per choice; at most what was decided."""
    caps = per_choice(request, thinking_cap), step.estimate.thinking_budget
    return min([tokens for tokens in caps if tokens is not None], default=None)


def affordable_output(step: Candidate, request: Request, nano: int) -> int:
    """How many output tokens a choice may have so that the request's worst case costs at most `nano`."""
    return min(step.estimate.max_output, bill_of(step, request).output(nano) // request.choices)


def worst_cost(step: Candidate, request: Request, tokens: int) -> int:
    """nano-USD for the whole prompt and so much output, over all choices."""
    return structs.replace(bill_of(step, request), choices=1).amounts((tokens, 0))[0].usd


def bill_of(step: Candidate, request: Request) -> CallPrice:
    """What a step can cost that was estimated before."""
    return bill(step.target, request, step.estimate.input_bound, step.estimate.at_ms)


def _expected(target: Target, request: Request, tokens_in: int, cached: float, figures: Size, at_ms: int) -> Foretold:
    output, thinking = figures.output * request.choices, figures.thinking * request.choices
    counts: dict[str, Any] = {"output_visible": output - thinking, "output_reasoning": thinking}
    if tokens_in < least(target.model.name) or not keeps(target.provider.wire, request.caches):
        counts["input_uncached"] = tokens_in
    else:
        counts["cache_read"] = min(int(cached), tokens_in)
        counts["cache_write_1h" if request.caches_long else "cache_write"] = tokens_in - counts["cache_read"]
    usage = Usage(service_tier=request.service_tier, units=target.provider.quirks.units, **counts)
    cost = own_cost(target.served or target.model.price or WORST_CASE, usage, at_ms, target.region)[1]
    return cost, output, thinking


# Makes a request fit what is granted: a shorter answer, less thinking, or both; never one without room to answer.
#
# An answer is capped before the effort is lowered, as long as the usual thinking (p90) and a short answer fit: a cap
# that hardly any answer reaches costs nothing, less thinking costs quality.


def afforded(
    targets: Sequence[Target],
    request: Request,
    learned: TargetStats,
    limit: Amount,
    thinking_cap: int | None,
    estimate: Callable[[Sequence[Target]], Sequence[Estimate]],
) -> list[FittedRequest | None]:
    """How each target would be asked so that `limit` pays for it; None: see `fit`. `estimate`: as it is asked."""
    fits: list[FittedRequest | None] = []
    for step in map(Candidate, targets, estimate(targets)):
        if thinking_cap is None and step.estimate.whole.beyond(limit) == Amount():
            fits.append(AS_ASKED)
        else:
            made = fit(step, request, limit, learned, thinking_cap)
            fits.append(None if made is None else within_reach(step, request, made, limit))
    return fits


def within_reach(step: Candidate, request: Request, made: FittedRequest, most: Amount) -> FittedRequest:
    """A metered stream is never asked for more than `most` pays for."""
    output = affordable_output(step, request, most.usd)
    if made.thinks and most.thinking < ENDLESS:
        thoughts = most.thinking // request.n
        if step.target.model.thinking.contract is Contract.EXACT:
            made = structs.replace(made, thinking_budget=min(made.thinking_budget or thoughts, thoughts))
        elif step.estimate.blind:
            # Only the cap on all output keeps within bounds a thought that is not told its length, and not seen.
            output = min(output, thoughts)
    enough = output >= (made.max_output or step.estimate.max_output)
    return made if enough else structs.replace(made, max_output=output)


def fit(
    step: Candidate, request: Request, granted: Amount, learned: TargetStats, thinking_cap: int | None = None
) -> FittedRequest | None:
    """None: not even a short answer fits, or the thinking can't be kept within the cap (tokens over all choices)."""
    if request.endpoint is Endpoint.EMBEDDINGS:
        return FittedRequest() if step.estimate.tight.usd <= granted.usd else None
    target, known, most = step.target, step.estimate, step.estimate.cap
    task, work = known.task or UNREAD, learned.known(known.template, known.read.stated)
    cap = _thinking_cap(step, request, thinking_cap)
    levels = list(thinking_levels(target, target.effort or request.effort or "", cap, learned, task))
    if cap is None and not known.effort and target.model.thinking.unasked == "none":
        # Any word that makes it think costs more than to say none.
        levels = [rung for rung in levels if not (rung.effort and rung.thinks)]
    decided = next((at for at, rung in enumerate(levels) if rung.effort == known.effort), 0)
    exact, thinking = target.model.thinking.contract is Contract.EXACT, granted.thinking // request.choices
    most_output = bill_of(step, request).output(granted.usd) // request.choices
    for rung in levels[decided:]:
        expected, margin = usual(target, rung, learned, task, work), learned.margin(target.id)
        (figures,) = sizes(request, ((target, rung, expected, margin, most),), known.read)
        output = min(most_output, thinking) if rung.thinks and figures.blind and not exact else most_output
        limits = _TokenLimits(min(output, figures.most), thinking, exact)
        fitted = _uncut(step, request, granted, rung, figures, limits) or _cut(step, rung, figures, limits)
        if fitted is not None:
            lowered = fitted.lowered if rung.effort == known.effort else ("effort", *fitted.lowered)
            return structs.replace(fitted, lowered=lowered, max_output=fitted.max_output or most)
    return None


class _TokenLimits(NamedTuple):
    """What is granted, in tokens of one choice."""

    output: int
    thinking: int
    exact: bool
    """The number that is sent keeps the thinking within its limit, whatever the cap on all output."""


def _uncut(
    step: Candidate, request: Request, granted: Amount, rung: ThinkingLevel, figures: Size, limits: _TokenLimits
) -> FittedRequest | None:
    """Nothing is lowered. A cap goes out where the hold has to be made true by it."""
    sizes = (figures.most, figures.whole_thinking), (figures.tight, figures.tight_thinking)
    whole, tight = bill_of(step, request).amounts(*sizes)
    if tight.beyond(granted) != Amount():
        return None
    covered = whole.beyond(granted) == Amount()
    if covered or not figures.blind:
        asked = FittedRequest(effort=rung.effort or None, thinking_budget=rung.number, thinks=rung.thinks)
        return asked if covered else structs.replace(asked, metered=True)
    if limits.exact and rung.thinks:
        rung = structs.replace(rung, number=min(rung.number or figures.most, limits.thinking))
    return structs.replace(_fit(rung, figures, limits), lowered=())


def _cut(step: Candidate, rung: ThinkingLevel, figures: Size, limits: _TokenLimits) -> FittedRequest | None:
    """A shorter answer to the same thinking; or to as much of it as leaves room for an answer, where the contract takes
    a number. The room is half of what the client allows where that is less."""
    room = min(LEAST_ANSWER, figures.most // 2)
    number = min(rung.number or figures.most, limits.thinking, limits.output - room)
    if limits.output >= figures.least and rung.p90 <= limits.thinking:
        if limits.exact and rung.thinks and figures.blind:
            rung = structs.replace(rung, number=number)
        return _fit(rung, figures, limits)
    thinking = step.target.model.thinking
    if not rung.thinks or thinking.contract not in NUMBERED:
        return None
    least = max(thinking.minimum, min(LEAST_THOUGHT, rung.number or LEAST_THOUGHT, figures.most // 2), 1)
    smaller = ThinkingLevel(rung.effort, min(rung.p90, number), number)
    answers = limits.output >= min(figures.most, smaller.p90 + LEAST_ANSWER)
    return _fit(smaller, figures, limits, ("effort",)) if number >= least and answers else None


def _fit(rung: ThinkingLevel, figures: Size, limits: _TokenLimits, lowered: tuple[str, ...] = ()) -> FittedRequest:
    cap = limits.output if limits.output < figures.most else None
    return FittedRequest(
        max_output=cap,
        effort=rung.effort or None,
        thinking_budget=rung.number,
        lowered=lowered if cap is None else (*lowered, "output"),
        thinks=rung.thinks,
        metered=figures.metered,
    )
