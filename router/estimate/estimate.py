"""Target × request → Estimate."""

from router.estimate.bill import Bill, bill
from router.estimate.learn import Learned
from router.estimate.price import charge
from router.estimate.size import LEAST_ANSWER, output_bound, size
from router.estimate.thinking import LEAST_THOUGHT, NUMBERED, Rung, card, lowest, rungs
from router.estimate.tokens import input_bound, input_rough, input_tokens, script
from router.types.account import Amount
from router.types.classification import Task
from router.types.plan import Candidate, Estimate
from router.types.request import Request
from router.types.target import Contract, Target
from router.types.usage import Usage

TYPICAL_ANSWER = 400
"""Visible output tokens expected of an answer whose length nobody limited."""
MEAN_OF_P90 = 2
"""The 90 % quantile of thinking is so many times its mean: 1.6 to 2.3 for four of five models measured."""


def estimate(
    target: Target,
    request: Request,
    learned: Learned,
    task: Task = Task.CHAT,
    thinking_cap: int | None = None,
    at_ms: int = 0,
) -> Estimate:
    """Pure. `thinking_cap`: over all choices, of class and budgets; the header's holds anyway. `at_ms`: Unix."""
    rung = best_rung(target, request, learned, task, thinking_cap)
    figures = size(target, request, rung, learned, task)
    bound = input_bound(target, request, learned)
    expected_input = input_tokens(target, request, learned)
    output, thinking = _expected(target, request, rung, learned, task)
    worst = bill(target, request, bound, at_ms)
    whole = worst.amount(figures.most, figures.whole_thinking)
    tight = worst.amount(figures.tight, figures.tight_thinking)
    return Estimate(
        input_tokens=expected_input,
        input_bound=bound,
        input_rough=input_rough(target, request),
        output_tokens=output * request.choices,
        thinking_tokens=thinking * request.choices,
        max_output=figures.most,
        cost=_cost(target, expected_input, output * request.choices, thinking * request.choices),
        hold=whole.usd,
        least=_least(target, request, learned, task, worst, tight),
        tight=tight,
        whole=whole,
        effort=rung.effort,
        task=task,
        metered=figures.metered,
        at_ms=at_ms,
        script=script(request),
    )


def best_rung(target: Target, request: Request, learned: Learned, task: Task, thinking_cap: int | None) -> Rung:
    """What would be asked for where money is no object; its lowest where nothing keeps within the cap."""
    asked = target.effort or request.effort or ""
    cap = per_choice(request, thinking_cap)
    found = next(rungs(target, asked, cap, learned, task), None)
    return found or Rung(asked, lowest(target, learned, task))


def per_choice(request: Request, thinking_cap: int | None) -> int | None:
    caps = [cap for cap in (thinking_cap, request.limits.thinking_budget) if cap is not None]
    return min(caps) // request.choices if caps else None


def affordable_output(step: Candidate, request: Request, nano: int) -> int:
    """How many output tokens a choice may have so that the request's worst case costs at most `nano`."""
    return min(step.estimate.max_output, bill_of(step, request).output(nano) // request.choices)


def worst_cost(step: Candidate, request: Request, tokens: int) -> int:
    """nano-USD for the whole prompt and so much output, over all choices."""
    return bill_of(step, request).usd(tokens)


def bill_of(step: Candidate, request: Request) -> Bill:
    """What a step can cost that was estimated before."""
    return bill(step.target, request, step.estimate.input_bound, step.estimate.at_ms)


def _cost(target: Target, tokens_in: int, tokens_out: int, thinking: int) -> int:
    usage = Usage(input_uncached=tokens_in, output_visible=tokens_out - thinking, output_reasoning=thinking)
    return charge(target.model.price, usage).nano


def _least(target: Target, request: Request, learned: Learned, task: Task, worst: Bill, tight: Amount) -> Amount:
    thought, thinking = lowest(target, learned, task), target.model.thinking
    if not thinking.can_stop and thinking.contract in NUMBERED:
        thought = max(thought, LEAST_THOUGHT)
    output = min(output_bound(target, request), thought + LEAST_ANSWER)
    bounded = thought == 0 or thinking.contract is Contract.EXACT or thinking.streamed
    least = worst.amount(output, thought if bounded else output)
    # The usual start of a metered stream may be less than what another level, or a capped answer, would need.
    return least if least.usd <= tight.usd and least.thinking <= tight.thinking else tight


def _expected(target: Target, request: Request, rung: Rung, learned: Learned, task: Task) -> tuple[int, int]:
    """(output, the thinking in it) of a choice."""
    most = output_bound(target, request)
    kind = learned.kind(target.id, rung.effort, task)
    thought = 0
    if rung.thinks:
        thought = kind.mean_thinking(card(target.model.thinking, rung.effort) // MEAN_OF_P90)
        thought = thought if rung.number is None else min(thought, rung.number)
    output = min(most, max(thought, kind.mean_output(TYPICAL_ANSWER + thought)))
    return output, min(thought, output)
