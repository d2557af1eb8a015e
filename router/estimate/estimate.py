"""Target × request → Estimate."""

from router.estimate.tokens import input_bound, input_tokens, output_bound, output_tokens
from router.types.money import UNITS_PER_RATE
from router.types.plan import Estimate
from router.types.request import Request
from router.types.target import Target

LEAST_ANSWER = 256
"""Output tokens below which a cap leaves no room for an answer; unless the client asked for fewer."""


def estimate(target: Target, request: Request) -> Estimate:
    expected_input, expected_output = input_tokens(request), output_tokens(target, request)
    bound = output_bound(target, request)
    return Estimate(
        input_tokens=expected_input,
        output_tokens=expected_output,
        max_output=bound,
        cost=_price(target, expected_input, expected_output),
        hold=_price(target, input_bound(request), bound * request.n),
    )


def least_cost(target: Target, request: Request) -> int:
    """nano-USD for the whole prompt and the shortest answer worth having."""
    return _price(target, input_bound(request), min(LEAST_ANSWER, output_bound(target, request)) * request.n)


def affordable_output(target: Target, request: Request, nano: int) -> int:
    """How many output tokens a choice may have so that the request's worst case costs at most `nano`; may be ≤ 0."""
    price = target.model.price
    if price is None or price.output == 0:
        return output_bound(target, request)
    left = nano - _price(target, input_bound(request), 0)
    dearest = max(price.output, price.reasoning or 0)
    return min(output_bound(target, request), left * UNITS_PER_RATE // (dearest * request.n))


def _price(target: Target, tokens_in: int, tokens_out: int) -> int:
    """nano-USD, with all output at the dearer of the visible and the thinking rate."""
    price = target.model.price
    if price is None:
        return 0
    dearer = max(price.output, price.reasoning or 0)
    return (tokens_in * price.input + tokens_out * dearer + UNITS_PER_RATE // 2) // UNITS_PER_RATE
