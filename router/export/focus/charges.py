"""What a group of attempts was charged, a charge a kind of token. Nothing is lost: charges add up to what was paid."""

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from router.ledger.attempt_row import BUCKETS
from router.types.money import UNITS_PER_RATE
from router.types.price import KIN, CostSource, Price

ALL_TOKENS, UNITS, REQUESTS = "tokens", "units", "requests"
"""In place of a bucket: tokens whose prices are not known any more; what is not counted in tokens, such as web
searches; attempts whose usage is not known."""
REASONING = "output_reasoning"
METERS = {
    "input_uncached": "Input Tokens",
    "cache_read": "Cached Input Tokens",
    "cache_read_explicit": "Explicitly Cached Input Tokens",
    "cache_read_audio": "Cached Audio Input Tokens",
    "cache_write": "Cache Write Tokens",
    "cache_write_1h": "One Hour Cache Write Tokens",
    "cache_write_12h": "Twelve Hour Cache Write Tokens",
    "input_audio": "Audio Input Tokens",
    "input_image": "Image Input Tokens",
    "input_video": "Video Input Tokens",
    "output_visible": "Output Tokens",
    REASONING: "Reasoning Tokens",
    "output_audio": "Audio Output Tokens",
    "output_image": "Image Output Tokens",
    "output_video": "Video Output Tokens",
    ALL_TOKENS: "Tokens",
    UNITS: "Tools and Other Units",
    REQUESTS: "Requests",
}
_RATES = {"input_uncached": "input", "output_visible": "output", REASONING: "reasoning"}
"""Buckets whose rate has another name than they."""
_OURS = (CostSource.PRICED, CostSource.ESTIMATED)


class Charge(Struct, frozen=True):
    """`quantity`: tokens, or attempts where `bucket` is none of tokens; nano-USD: `cost` as paid, `listed` at list."""

    bucket: str
    quantity: int
    cost: int
    listed: int

    @property
    def counts_tokens(self) -> bool:
        return self.bucket not in (UNITS, REQUESTS)


def charges(sums: Mapping[str, int], price: Price | None, source: str) -> Iterator[Charge]:
    """Of measures by name. The price splits a charge among its tokens, in proportion where rules change its rates."""
    tokens = {bucket: sums[bucket] for bucket in BUCKETS if sums[bucket]}
    cost, listed, attempts = sums["cost"], sums["own_cost"], sums["attempts"]
    if not tokens:
        if cost or listed:
            yield Charge(REQUESTS, max(attempts, 1), cost, listed)
        return
    units = _beyond(tokens, price, listed, attempts) if source in _OURS else 0
    if units:
        yield Charge(UNITS, max(attempts, 1), units, units)
        cost, listed = cost - units, listed - units
    known = sums["thinking_cost"]
    if 0 < known <= cost and REASONING in tokens:
        at_list = known if cost == listed else known * listed // cost
        yield Charge(REASONING, tokens.pop(REASONING), known, at_list)
        cost, listed = cost - known, listed - at_list
    yield from _split(tokens, price, cost, listed)


def _split(tokens: Mapping[str, int], price: Price | None, cost: int, listed: int) -> Iterator[Charge]:
    if price is None and len(tokens) > 1:
        tokens = {ALL_TOKENS: sum(tokens.values())}
    if not tokens:
        if cost or listed:
            yield Charge(REQUESTS, 1, cost, listed)
        return
    weights = [count * (1 if price is None else _rate(price, bucket)) for bucket, count in tokens.items()]
    shares = zip(tokens.items(), shared(cost, weights), shared(listed, weights), strict=True)
    for (bucket, count), paid, at_list in shares:
        yield Charge(bucket, count, paid, at_list)


def shared(total: int, weights: Sequence[int]) -> Iterator[int]:
    """Whole parts in proportion to the weights, together exactly the total; all in the first where none weighs."""
    whole = sum(weights)
    seen = given = 0
    for number, weight in enumerate(weights):
        seen += weight
        upto = total if number == len(weights) - 1 or not whole else (2 * total * seen + whole) // (2 * whole)
        yield upto - given
        given = upto


def _beyond(tokens: Mapping[str, int], price: Price | None, listed: int, attempts: int) -> int:
    """What tokens at rates without rules don't explain: each attempt is rounded to a nano-dollar, no more."""
    if price is None or price.rules:
        return 0
    explained = sum(count * _rate(price, bucket) for bucket, count in tokens.items()) // UNITS_PER_RATE
    return listed - explained if listed - explained > attempts else 0


def _rate(price: Price, bucket: str) -> int:
    name = _RATES.get(bucket, bucket)
    rates = (getattr(price, one) for one in (name, *KIN.get(name, ())))
    found: int = next(rate for rate in rates if rate is not None)
    return found
