"""What one request can cost at one target, for any length of its output."""

from msgspec import Struct

from router.estimate.price import UNLIMITED, ceiling, output_left
from router.estimate.size import scope
from router.types.account import Amount
from router.types.money import UNITS_PER_RATE
from router.types.price import Price, Scope, Writes
from router.types.request import Request
from router.types.target import Target

MOST_PRICES = 4_096
_plain: dict[tuple[int, Writes, bool], tuple[Price, int, int]] = {}
"""The dearest rates of input and output of prices without rules, by identity: most have none, and are asked often."""


class Bill(Struct, frozen=True):
    """`rates` where they hold whatever comes: of input and output, in nano-USD per million tokens."""

    price: Price | None
    input_tokens: int
    choices: int
    at_ms: int
    scope: Scope
    rates: tuple[int, int] | None

    def usd(self, output: int) -> int:
        """nano-USD at most, for so many output tokens over all choices."""
        if self.rates is None:
            return ceiling(self.price, self.input_tokens, output, at_ms=self.at_ms, scope=self.scope)
        return -(-(self.input_tokens * self.rates[0] + output * self.rates[1]) // UNITS_PER_RATE)

    def amount(self, output: int, thinking: int) -> Amount:
        """For so much in each choice."""
        return Amount(self.usd(output * self.choices), thinking * self.choices)

    def output(self, nano: int) -> int:
        """Tokens over all choices that `nano` pays for beside the input; at least 0."""
        if self.rates is None:
            return output_left(self.price, nano, self.input_tokens, at_ms=self.at_ms, scope=self.scope)
        left = nano * UNITS_PER_RATE - self.input_tokens * self.rates[0]
        return max(0, left // self.rates[1]) if self.rates[1] else UNLIMITED if left >= 0 else 0


def bill(target: Target, request: Request, input_tokens: int, at_ms: int) -> Bill:
    price, asked = target.model.price, scope(target, request)
    rates = None if price is None or price.rules or asked.units else _rates(price, asked)
    return Bill(price, input_tokens, request.choices, at_ms, asked, rates)


def _rates(price: Price, asked: Scope) -> tuple[int, int]:
    key = (id(price), asked.writes, asked.media)
    known = _plain.get(key)
    if known is None:
        if len(_plain) >= MOST_PRICES:
            _plain.clear()
        into, out = (ceiling(price, *tokens, scope=asked) for tokens in ((UNITS_PER_RATE, 0), (0, UNITS_PER_RATE)))
        known = _plain[key] = (price, into, out)
    return known[1], known[2]
