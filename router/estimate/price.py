"""Prices: which rules apply to an attempt, and its charge in nano-USD."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import product
from operator import attrgetter
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from msgspec import Struct, structs

from router.types.account import Amount
from router.types.attempt import CountSource, Usage
from router.types.price import (
    DEAREST_UNIT,
    UNITS_PER_RATE,
    WORST_CASE,
    CallScope,
    Cost,
    CostSource,
    Price,
    PriceHours,
    Rule,
    TokenPrices,
    Writes,
)
from router.types.tables import table

KIN: Mapping[str, Sequence[str]] = table("estimate/rates.yaml")
"""Rate → rates to charge if it is not stated, of which the first stated one counts. Never free, never a discount."""

# Which rules of a price apply: to a size, a service tier, a region, a moment.

_DAY_MS = 86_400_000


class CallTerms(NamedTuple):
    """What one call pays: token rates, prices of units, and `over` ÷ `under`, the factor of the token rates."""

    rates: TokenPrices
    each: Mapping[str, int]
    over: int = 1
    under: int = 1


def terms(price: Price, size: int, tier: str, region: str, at_ms: int) -> CallTerms:
    """Returns the terms of a call at `at_ms` (Unix). `size`: number of input tokens of every kind together."""
    matching = [rule for rule in price.rules if _matches(rule, size, tier, region, at_ms)]
    if not matching:
        return CallTerms(price, price.each)
    changed: dict[str, Any] = {}
    each, over, under = dict(price.each), 1, 1
    for rule in matching:
        changed |= _replaced(price, changed, rule.rates)
        each |= rule.each
        over, under = over * rule.times[0], under * rule.times[1]
    return CallTerms(structs.replace(price, **changed), each, over, under)


def cases(price: Price, size: int, scope: CallScope, at_ms: int) -> Iterator[CallTerms]:
    """Yields the terms of all possible calls of at most this size: in other size tiers, served as standard, or later.

    Terms change only at the sizes and moments that are examined, so nothing in between is missed.
    """
    tiers, regions = {"", scope.service_tier}, {"", scope.region}
    possible = [
        rule
        for rule in price.rules
        if rule.service_tier in tiers and (not rule.above or rule.above < size) and rule.covers(scope.region)
    ]
    if not possible:
        yield CallTerms(price, price.each)
        return
    sizes = {size, *(rule.above for rule in possible)}
    for case in product(sizes, tiers, regions, _moments(possible, at_ms, at_ms + scope.within_ms)):
        yield terms(price, *case)


def _matches(rule: Rule, size: int, tier: str, region: str, at_ms: int) -> bool:
    return (
        (not rule.service_tier or rule.service_tier == tier)
        and (not rule.above or size > rule.above)
        and rule.covers(region)
        and (rule.since_ms is None or at_ms >= rule.since_ms)
        and (rule.until_ms is None or at_ms < rule.until_ms)
        and (not rule.windows or any(_open(window, at_ms) for window in rule.windows))
    )


def timed(price: Price) -> bool:
    """Returns whether a price depends on when a call is made."""
    return any(rule.windows or rule.since_ms is not None or rule.until_ms is not None for rule in price.rules)


def _replaced(price: TokenPrices, changed: Mapping[str, int], rates: Mapping[str, int]) -> dict[str, int]:
    """Returns the rule's rates. One that it does not state becomes at least its stated `input` or `output` rate."""
    replaced = dict(rates)
    for name, kin in KIN.items():
        lead = rates.get(kin[-1])
        before: int | None = changed.get(name, getattr(price, name))
        if lead is not None and before is not None and name not in rates:
            replaced[name] = max(before, lead)
    return replaced


def _open(window: PriceHours, at_ms: int) -> bool:
    local = datetime.fromtimestamp(at_ms // 1000, ZoneInfo(window.zone))
    minute, day = local.hour * 60 + local.minute, local.isoweekday()
    if window.start < window.end:
        within = window.start <= minute < window.end
    else:  # a window over midnight belongs to the day on which it begins
        within = minute >= window.start or minute < window.end
        day = day if minute >= window.start else (day - 2) % 7 + 1
    return within and (not window.days or day in window.days)


def _moments(rules: Iterable[Rule], at_ms: int, until_ms: int) -> set[int]:
    """Returns `at_ms`, and each moment up to `until_ms` at which a rule begins or ends."""
    moments = {at_ms}
    for rule in rules:
        moments |= {at for at in (rule.since_ms, rule.until_ms) if at is not None and at_ms < at <= until_ms}
        for window in rule.windows:
            moments |= {at for at in _edges(window, at_ms, until_ms) if at_ms < at <= until_ms}
    return moments


def _edges(window: PriceHours, at_ms: int, until_ms: int) -> Iterator[int]:
    """Yields moments, from before `at_ms` to after `until_ms`, at which the window's clock shows its start, its end or
    midnight; both moments if the clock is set back over that minute."""
    now = datetime.fromtimestamp(at_ms // 1000, ZoneInfo(window.zone))
    midnight, days_on = now.replace(hour=0, minute=0, second=0, microsecond=0), (until_ms - at_ms) // _DAY_MS + 3
    for minute, days, fold in product({0, window.start, window.end}, range(days_on), (0, 1)):
        at = (midnight + timedelta(days=days, minutes=minute)).replace(fold=fold)
        yield int(at.timestamp()) * 1000


# The price function: disjoint buckets × rates, rounded half up once per attempt; and its upper bound.

UNLIMITED = 2**53
"""Number of output tokens that any amount pays for if output is free."""

_CHARGED = {"output_reasoning": "reasoning"} | {name: name for name in KIN if name != "reasoning"}
"""Bucket that not every call has → its rate."""
_counts = attrgetter(*_CHARGED)
_CACHED = {name: "input_audio" if name == "cache_read_audio" else "input" for name in _CHARGED if name[:6] == "cache_"}
"""Bucket of cached input → the bucket that it would be without a cache."""
_cached_counts = attrgetter(*_CACHED)
_READS = ("input", "cache_read", "cache_read_explicit")
_WRITES = {
    Writes.NONE: (),
    Writes.DEFAULT: ("cache_write",),
    Writes.ANY: ("cache_write", "cache_write_1h", "cache_write_12h"),
}
_MEDIA_IN = ("input_audio", "input_image", "input_video", "cache_read_audio")
_OUT, _MEDIA_OUT = ("output", "reasoning"), ("output_audio", "output_image", "output_video")
_WIDEST = CallScope()


def charge(price: Price | None, usage: Usage, *, at_ms: int = 0, took_ms: int = 0, region: str = "") -> Cost:
    """Returns what an attempt with this usage costs. A cost that the provider states takes precedence.

    `at_ms` (Unix) is when the attempt began. No provider says which moment of a call decides its price, so the dearer
    of its start and its end does. `region` is the target's, for providers that don't report where they served.
    """
    price = price or WORST_CASE
    some, own = own_cost(price, usage, at_ms, region)
    if took_ms and price.rules and timed(price):
        later, dearer = own_cost(price, usage, at_ms + took_ms, region)
        if dearer > own:
            some, own = later, dearer
    if usage.provider_cost is not None:
        nano, source = usage.provider_cost, CostSource.PROVIDER
    elif price.assumed:
        nano, source = own, CostSource.UNPRICED
    else:
        nano, source = own, CostSource.PRICED if usage.source is CountSource.REPORTED else CostSource.ESTIMATED
    flagged = bool(usage.violations or (usage.units and not usage.units.keys() <= price.each.keys()))
    return Cost(nano, source, price.version, own, flagged, *_parts(price, some, usage))


MOST_UNITS = 100
"""Maximum number of searches, pages and the like that one answer may report: the longest research makes dozens."""
DEARER = CHEAPER = 100
"""A stated cost is believed from 1/`CHEAPER` of the computed one to `DEARER` times it plus `BELIEVED_NANO`."""
BELIEVED_NANO = 10**9
"""Amount in nano-USD that a stated cost may have for what tokens don't show."""


def believed(price: Price | None, usage: Usage, *, at_ms: int, took_ms: int, region: str) -> Usage:
    """Replaces implausible units and stated costs, each of which becomes a violation. Arguments as for `charge`."""
    violations, units = list(usage.violations), dict(usage.units)
    for name, number in usage.units.items():
        if number > MOST_UNITS:
            violations.append(f"{number} {name} reported")
            units[name] = MOST_UNITS
    stated = usage.provider_cost
    if stated is not None:
        counted = structs.replace(usage, units=units, provider_cost=None)
        own = charge(price, counted, at_ms=at_ms, took_ms=took_ms, region=region)
        # A call without a known price may cost next to nothing, but not nothing.
        least = min(own.nano, 1) if own.source is CostSource.UNPRICED else own.nano / CHEAPER
        if not least <= stated <= DEARER * own.nano + BELIEVED_NANO:
            violations.append(f"a cost of {stated} nano-USD reported")
            stated = None
    if len(violations) == len(usage.violations):
        return usage
    return structs.replace(usage, violations=tuple(violations), units=units, provider_cost=stated)


def own_cost(price: Price, usage: Usage, at_ms: int, region: str) -> tuple[CallTerms, int]:
    """Returns the terms of a call, and its cost in nano-USD by the price alone, whatever the provider states."""
    some = CallTerms(price, price.each)
    if price.rules:
        some = terms(price, usage.totals.input, usage.service_tier, usage.region_served or region, at_ms)
    return some, _rounded(_paid(some, usage), some.under * UNITS_PER_RATE)


def _paid(some: CallTerms, usage: Usage) -> int:
    """Returns the cost of tokens and units, in nano-USD × `under` × `UNITS_PER_RATE`."""
    rates = some.rates
    paid = usage.input_uncached * rates.input + usage.output_visible * rates.output
    if any(counts := _counts(usage)):
        named = zip(_CHARGED.values(), counts, strict=True)
        paid += sum(tokens * rate_of(rates, name) for name, tokens in named if tokens)
    paid *= some.over
    return paid + units_cost(some, usage.units) * some.under if usage.units else paid


def _rounded(amount: int, scale: int) -> int:
    """Divides and rounds half up."""
    return (2 * amount + scale) // (2 * scale)


def _parts(price: Price, some: CallTerms, usage: Usage) -> tuple[int | None, int | None]:
    """Returns the part of the charge for reasoning, and what caches saved, each rounded once; None if unknown."""
    thoughts, saved, rates = usage.output_reasoning, 0, some.rates
    if any(counts := _cached_counts(usage)):  # cached tokens × how much cheaper each was than plain input
        named = zip(_CACHED.items(), counts, strict=True)
        saved = sum(
            tokens * (rate_of(rates, plain) - rate_of(rates, name)) for (name, plain), tokens in named if tokens
        )
    if not thoughts and not saved:
        return thoughts, 0
    top, bottom = 1, some.under * UNITS_PER_RATE
    if usage.provider_cost is not None:
        # For a model without a price the worst case is assumed, so that the shares are unknown.
        top, bottom = usage.provider_cost, 0 if price.assumed else _paid(some, usage)
    thinking = _part(thoughts * rate_of(rates, "reasoning") * some.over, top, bottom) if thoughts else thoughts
    return thinking, _part(saved * some.over, top, bottom) if saved else 0


def _part(amount: int, top: int, bottom: int) -> int | None:
    if not top:
        return 0
    return _rounded(amount * top, bottom) if bottom else None


def rate_of(rates: TokenPrices, name: str) -> int:
    """Returns the rate of a bucket; if it is not stated, that of its nearest kin (`KIN`)."""
    rate: int | None = getattr(rates, name)
    if rate is not None:
        return rate
    kin = iter(KIN[name])
    while rate is None:
        rate = getattr(rates, next(kin))
    return rate


def units_cost(some: CallTerms, units: Mapping[str, int]) -> int:
    """Returns the cost of units, in nano-USD × `UNITS_PER_RATE`."""
    return sum(count * some.each.get(name, DEAREST_UNIT) for name, count in units.items())


class CallPrice(Struct, frozen=True):
    """The maximum cost of a call, for any length of its output."""

    input_tokens: int
    cases: Sequence[tuple[int, int, int, int]]
    """For each way in which the call may turn out: the cost of an input token, of an output token, and of all that is
    not counted in tokens; and the divisor that turns these amounts into nano-USD."""
    choices: int = 1

    def amounts(self, *tokens: tuple[int, int]) -> list[Amount]:
        """Returns the maximum amount for each pair of output and thinking tokens per choice."""
        amounts = []
        for output, thinking in tokens:
            most = 0
            for into, out, fixed, scale in self.cases:
                most = max(most, -(-(self.input_tokens * into + output * self.choices * out + fixed) // scale))
            amounts.append(Amount(most, thinking * self.choices))
        return amounts

    def output(self, nano: int) -> int:
        """Returns the number of output tokens over all choices that `nano` pays for besides the input; at least 0."""
        least = UNLIMITED
        for into, out, fixed, scale in self.cases:
            left = nano * scale - fixed - self.input_tokens * into
            least = min(least, left // out if out else least if left >= 0 else 0)
        return max(0, least)


def call_price(price: Price | None, input_tokens: int, at_ms: int = 0, scope: CallScope = _WIDEST) -> CallPrice:
    """Returns the maximum cost of a call that begins at `at_ms`, by the dearest rates that its tokens can have. A rate
    that is not stated is that of a kin, and so not dearer."""
    into = (*_READS, *_WRITES[scope.writes], *(_MEDIA_IN if scope.media else ()))
    out = (*_OUT, *(_MEDIA_OUT if scope.media else ()))
    rows = []
    for some in cases(price or WORST_CASE, input_tokens, scope, at_ms):
        each_in, each_out = (max([getattr(some.rates, name) or 0 for name in names]) for names in (into, out))
        fixed, scale = units_cost(some, scope.units) * some.under, some.under * UNITS_PER_RATE
        rows.append((each_in * some.over, each_out * some.over, fixed, scale))
    return CallPrice(input_tokens, rows)
