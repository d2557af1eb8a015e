"""What one request can cost at one target, for any length of its output."""

from msgspec import Struct

from router.estimate.price import ceiling, output_left
from router.estimate.size import scope
from router.types.account import Amount
from router.types.price import Price, Scope
from router.types.request import Request
from router.types.target import Target


class Bill(Struct, frozen=True):
    price: Price | None
    input_tokens: int
    choices: int
    at_ms: int
    scope: Scope

    def usd(self, output: int) -> int:
        """nano-USD at most, for so many output tokens over all choices."""
        return ceiling(self.price, self.input_tokens, output, at_ms=self.at_ms, scope=self.scope)

    def amount(self, output: int, thinking: int) -> Amount:
        """For so much in each choice."""
        return Amount(self.usd(output * self.choices), thinking * self.choices)

    def output(self, nano: int) -> int:
        """Tokens over all choices that `nano` pays for beside the input."""
        return output_left(self.price, nano, self.input_tokens, at_ms=self.at_ms, scope=self.scope)


def bill(target: Target, request: Request, input_tokens: int, at_ms: int) -> Bill:
    return Bill(target.model.price, input_tokens, request.choices, at_ms, scope(target, request))
