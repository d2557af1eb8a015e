"""The one price function: disjoint buckets × rates, rounded half up once per attempt."""

from router.types.money import UNITS_PER_RATE
from router.types.price import Cost, CostSource, Price
from router.types.usage import Source, Usage


def charge(price: Price | None, usage: Usage) -> Cost:
    """What an attempt with this usage costs; the provider's own figure wins where it states one."""
    version = price.version if price else ""
    if usage.provider_cost is not None:
        return Cost(usage.provider_cost, CostSource.PROVIDER, version)
    if price is None:
        return Cost(0, CostSource.UNPRICED, "")
    source = CostSource.PRICED if usage.source is Source.REPORTED else CostSource.ESTIMATED
    return Cost((_rated(price, usage) + UNITS_PER_RATE // 2) // UNITS_PER_RATE, source, version)


def _rated(price: Price, usage: Usage) -> int:
    """Tokens × rates, in nano-USD per million. A rate that the list leaves out is never cheaper than its kin."""
    plain = usage.input_uncached * price.input + usage.output_visible * price.output
    if usage.cache_read:
        plain += usage.cache_read * _or(price.cache_read, price.input)
    if usage.cache_write:
        plain += usage.cache_write * _or(price.cache_write, price.input)
    if usage.cache_write_1h:
        plain += usage.cache_write_1h * _or(price.cache_write_1h, _or(price.cache_write, price.input))
    if usage.output_reasoning:
        plain += usage.output_reasoning * _or(price.reasoning, price.output)
    if usage.input_audio:
        plain += usage.input_audio * _or(price.input_audio, price.input)
    if usage.output_audio:
        plain += usage.output_audio * _or(price.output_audio, price.output)
    return plain


def _or(rate: int | None, kin: int) -> int:
    return kin if rate is None else rate
