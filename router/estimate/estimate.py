"""Target × request → Estimate."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, structs

from router.estimate.bill import Bill, bill
from router.estimate.caches import COLD, LEAST, keeps
from router.estimate.learn import Learned
from router.estimate.price import charge
from router.estimate.size import LEAST_ANSWER, Size, Usual, size, usual
from router.estimate.thinking import LEAST_THOUGHT, NUMBERED, Rung, lowest, rungs
from router.estimate.tokens import prompt
from router.types.account import Amount
from router.types.classification import Reading, tokens_read
from router.types.plan import Candidate, Estimate
from router.types.request import Request
from router.types.target import Contract, Target
from router.types.task import Task
from router.types.usage import Usage


def estimate(
    target: Target,
    request: Request,
    learned: Learned,
    task: Task = Task.CHAT,
    reading: Reading | None = None,
    thinking_cap: int | None = None,
    at_ms: int = 0,
    holds: bool = True,
    template: str = "",
    cached: Mapping[str, float] = COLD,
) -> Estimate:
    """Pure. `thinking_cap`: over all choices, of class and budgets; the header's holds anyway. `at_ms`: Unix.

    Without `holds` what it may cost at most is left out, which is most of the work.
    """
    outlook = _outlook(target, request, learned, task, template, per_choice(request, thinking_cap))
    read = tokens_read(reading)
    figures = size(target, request, outlook.rung, outlook.usual, learned.margin(target.id), read)
    choices = request.choices
    sent = prompt(target, request, learned)
    output, thinking = figures.output * choices, figures.thinking * choices
    least, tight, whole = _holds(bill(target, request, sent.bound, at_ms), figures, outlook) if holds else _NO_HOLDS
    return Estimate(
        input_tokens=sent.tokens,
        input_bound=sent.bound,
        input_rough=sent.rough,
        output_tokens=output,
        thinking_tokens=thinking,
        max_output=figures.most,
        cost=_cost(target, request, sent.tokens, cached.get(target.id, 0.0), output, thinking, at_ms),
        hold=whole.usd,
        least=least,
        tight=tight,
        whole=whole,
        effort=outlook.rung.effort,
        task=task,
        template=template,
        read_output=read[0],
        read_thinking=read[1],
        metered=figures.metered,
        blind=figures.blind,
        at_ms=at_ms,
        script=sent.script,
    )


def held_anew(step: Candidate, request: Request, learned: Learned, thinking_cap: int | None) -> Candidate:
    """With the holds that follow from what was learned since it was estimated."""
    known, target = step.estimate, step.target
    outlook = _outlook(target, request, learned, known.task, known.template, per_choice(request, thinking_cap))
    figures = size(target, request, outlook.rung, outlook.usual, learned.margin(target.id), known.read)
    least, tight, whole = _holds(bill_of(step, request), figures, outlook)
    fresh = structs.replace(known, least=least, tight=tight, whole=whole, hold=whole.usd, blind=figures.blind)
    return structs.replace(step, estimate=fresh)


class _Outlook(Struct, frozen=True):
    """What a target does with a kind of request."""

    rung: Rung
    """What would be asked for where money is no object; its lowest where nothing keeps within the cap."""
    usual: Usual
    lowest: int
    """Thinking tokens per choice that leave room to think at all, and that the target can be held to."""
    bounded: bool
    """It keeps to them, whatever the cap on its output."""


_NO_HOLDS = (Amount(), Amount(), Amount())


def _holds(worst: Bill, figures: Size, outlook: _Outlook) -> tuple[Amount, Amount, Amount]:
    """The least that an answer takes, what is held for it, and its worst case."""
    answer = min(figures.most, outlook.lowest + LEAST_ANSWER, outlook.lowest + outlook.usual.long)
    return (
        worst.amount(answer, min(outlook.lowest, answer) if outlook.bounded else answer),
        worst.amount(figures.tight, figures.tight_thinking),
        worst.amount(figures.most, figures.whole_thinking),
    )


def _outlook(
    target: Target, request: Request, learned: Learned, task: Task, template: str, cap: int | None
) -> _Outlook:
    asked, thinking = target.effort or request.effort or "", target.model.thinking

    def conclude() -> _Outlook:
        least = lowest(target, learned, task)
        rung = next(rungs(target, asked, cap, learned, task), None) or Rung(asked, least)
        if not thinking.can_stop and thinking.contract in NUMBERED:
            least = max(least, LEAST_THOUGHT)
        known = usual(target, rung, learned, task, template)
        bounded = least == 0 or thinking.contract is Contract.EXACT or not known.blind
        return _Outlook(rung, known, least, bounded)

    return learned.recall(target.id, (thinking, asked, cap, task, template), conclude)


def per_choice(request: Request, thinking_cap: int | None) -> int | None:
    asked = request.limits.thinking_budget
    if asked is None:
        return thinking_cap if thinking_cap is None else thinking_cap // request.choices
    return (asked if thinking_cap is None else min(asked, thinking_cap)) // request.choices


def affordable_output(step: Candidate, request: Request, nano: int) -> int:
    """How many output tokens a choice may have so that the request's worst case costs at most `nano`."""
    return min(step.estimate.max_output, bill_of(step, request).output(nano) // request.choices)


def worst_cost(step: Candidate, request: Request, tokens: int) -> int:
    """nano-USD for the whole prompt and so much output, over all choices."""
    return bill_of(step, request).usd(tokens)


def bill_of(step: Candidate, request: Request) -> Bill:
    """What a step can cost that was estimated before."""
    return bill(step.target, request, step.estimate.input_bound, step.estimate.at_ms)


def _cost(
    target: Target, request: Request, tokens_in: int, cached: float, tokens_out: int, thinking: int, at_ms: int
) -> int:
    counts: dict[str, Any] = {"output_visible": tokens_out - thinking, "output_reasoning": thinking}
    if tokens_in < LEAST or not keeps(target.provider.wire, request.caches):
        counts["input_uncached"] = tokens_in
    else:
        counts["cache_read"] = min(int(cached), tokens_in)
        counts["cache_write_1h" if request.caches_long else "cache_write"] = tokens_in - counts["cache_read"]
    usage = Usage(service_tier=request.service_tier, **counts)
    return charge(target.model.price, usage, at_ms=at_ms, region=target.region).nano
