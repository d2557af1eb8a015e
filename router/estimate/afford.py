"""Makes a request fit what is granted: a shorter answer, less thinking, or both; never one without room to answer.

An answer is capped before the effort is lowered, as long as the usual thinking (p90) and a short answer fit: a cap that
hardly any answer reaches costs nothing, less thinking costs quality.
"""

from typing import NamedTuple

from msgspec import Struct, structs

from router.estimate.estimate import bill_of, per_choice
from router.estimate.learn import Learned
from router.estimate.size import LEAST_ANSWER, Size, size, usual
from router.estimate.thinking import LEAST_THOUGHT, NUMBERED, Rung, rungs
from router.types.account import Amount
from router.types.plan import Candidate
from router.types.request import Endpoint, Request
from router.types.target import Contract


class Fit(Struct, frozen=True, kw_only=True):
    """How a target is asked so that what is granted pays for it."""

    max_output: int | None = None
    """The cap per choice to send; None: leave the client's own."""
    effort: str | None = None
    """The effort to ask for, in the place of the policy's and the client's; None: leave the model's own default."""
    thinking_budget: int | None = None
    """Thinking tokens per choice to send, where the contract takes a number."""
    lowered: tuple[str, ...] = ()
    """What was changed to fit: "effort", "output"."""
    thinks: bool = False
    metered: bool = False
    """What is sent may cost more than is granted: the stream must be metered against that and extended."""


def fit(
    step: Candidate, request: Request, granted: Amount, learned: Learned, thinking_cap: int | None = None
) -> Fit | None:
    """None: not even a short answer fits, or the thinking can't be kept within the cap (tokens over all choices)."""
    if request.endpoint is Endpoint.EMBEDDINGS:
        return Fit() if step.estimate.tight.usd <= granted.usd else None
    target, task, template = step.target, step.estimate.task, step.estimate.template
    effort = step.estimate.effort
    cap = per_choice(request, thinking_cap)
    for rung in rungs(target, target.effort or request.effort or "", cap, learned, task):
        known, margin = usual(target, rung, learned, task, template), learned.margin(target.id)
        figures = size(target, request, rung, known, margin, step.estimate.read)
        limits = _limits(step, request, granted, rung, figures)
        found = _uncut(step, request, granted, rung, figures, limits) or _cut(step, rung, figures, limits)
        if found is not None:
            return found if rung.effort == effort else structs.replace(found, lowered=("effort", *found.lowered))
    return None


class _Limits(NamedTuple):
    """What is granted, in tokens of one choice."""

    output: int
    thinking: int
    exact: bool
    """The number that is sent keeps the thinking within its limit, whatever the cap on all output."""


def _limits(step: Candidate, request: Request, granted: Amount, rung: Rung, figures: Size) -> _Limits:
    output, thinking = (
        bill_of(step, request).output(granted.usd) // request.choices,
        granted.thinking // request.choices,
    )
    exact = step.target.model.thinking.contract is Contract.EXACT
    if rung.thinks and figures.blind and not exact:
        output = min(output, thinking)
    return _Limits(min(output, figures.most), thinking, exact)


def _uncut(
    step: Candidate, request: Request, granted: Amount, rung: Rung, figures: Size, limits: _Limits
) -> Fit | None:
    """Nothing is lowered. A cap goes out where the hold has to be made true by it."""
    worst = bill_of(step, request)
    if _covers(granted, worst.amount(figures.most, figures.whole_thinking)):
        return _as_asked(rung)
    if not _covers(granted, worst.amount(figures.tight, figures.tight_thinking)):
        return None
    if not figures.blind:
        return _as_asked(rung, metered=True)
    if limits.exact and rung.thinks:
        rung = structs.replace(rung, number=min(rung.number or figures.most, limits.thinking))
    # A stream that may show its tokens is looked at even so: the next holds go by how they came.
    return structs.replace(_fit(rung, figures, limits), lowered=(), metered=figures.metered)


def _as_asked(rung: Rung, metered: bool = False) -> Fit:
    return Fit(effort=rung.effort or None, thinking_budget=rung.number, thinks=rung.thinks, metered=metered)


def _cut(step: Candidate, rung: Rung, figures: Size, limits: _Limits) -> Fit | None:
    """A shorter answer to the same thinking; or to less of it, where the contract takes a number."""
    if limits.output >= figures.least and rung.p90 <= limits.thinking:
        number = rung.number
        if limits.exact and rung.thinks and figures.blind:
            number = min(number or figures.most, limits.thinking, limits.output - _room(figures))
        return _fit(structs.replace(rung, number=number), figures, limits)
    smaller = _shrunk(step, rung, figures, limits)
    return None if smaller is None else _fit(smaller, figures, limits, ("effort",))


def _shrunk(step: Candidate, rung: Rung, figures: Size, limits: _Limits) -> Rung | None:
    """As much thinking as leaves room for an answer."""
    thinking = step.target.model.thinking
    if not rung.thinks or thinking.contract not in NUMBERED:
        return None
    number = min(rung.number or figures.most, limits.thinking, limits.output - _room(figures))
    least = max(thinking.minimum, min(LEAST_THOUGHT, rung.number or LEAST_THOUGHT, figures.most // 2), 1)
    smaller = Rung(rung.effort, min(rung.p90, number), number)
    answers = limits.output >= min(figures.most, smaller.p90 + LEAST_ANSWER)
    return smaller if number >= least and answers else None


def _fit(rung: Rung, figures: Size, limits: _Limits, lowered: tuple[str, ...] = ()) -> Fit:
    cap = limits.output if limits.output < figures.most else None
    bounded = not rung.thinks or (limits.exact and rung.number is not None and rung.number <= limits.thinking)
    return Fit(
        max_output=cap,
        effort=rung.effort or None,
        thinking_budget=rung.number,
        lowered=lowered if cap is None else (*lowered, "output"),
        thinks=rung.thinks,
        metered=figures.metered and (figures.blind or (not bounded and limits.output > limits.thinking)),
    )


def _room(figures: Size) -> int:
    """For an answer; half of what the client allows where that is less."""
    return min(LEAST_ANSWER, figures.most // 2)


def _covers(granted: Amount, wanted: Amount) -> bool:
    return granted.usd >= wanted.usd and granted.thinking >= wanted.thinking
