"""Target × request → Estimate."""

from router.estimate.price import charge
from router.estimate.tokens import input_bound, input_tokens, output_bound, output_tokens
from router.types.plan import Estimate
from router.types.request import Request
from router.types.target import Target
from router.types.usage import Usage

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
    return min(output_bound(target, request), left * 1_000_000 // (dearest * request.n))


def _price(target: Target, tokens_in: int, tokens_out: int) -> int:
    price = target.model.price
    if price is None:
        return 0
    dearer_thought = price.reasoning is not None and price.reasoning > price.output
    visible, reasoning = (0, tokens_out) if dearer_thought else (tokens_out, None)
    usage = Usage(input_uncached=tokens_in, output_visible=visible, output_reasoning=reasoning)
    return charge(price, usage).nano
