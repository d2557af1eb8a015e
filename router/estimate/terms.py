"""Which rules of a price apply: to a size, a service tier, a region, a moment."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from itertools import product
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from msgspec import structs

from router.types.price import KIN, Price, Rates, Rule, Scope, Window

_DAY_MIN, _DAY_MS = 1_440, 86_400_000
_EPOCH_WEEKDAY = 3
"""1970-01-01 was a Thursday: three days after a Monday."""


class Terms(NamedTuple):
    """What one call pays: rates, prices of units, and the fraction by which token rates are multiplied."""

    rates: Rates
    each: Mapping[str, int]
    over: int = 1
    under: int = 1


def terms(price: Price, size: int, tier: str, region: str, at_ms: int) -> Terms:
    """`size`: input tokens of every kind together."""
    if not price.rules:
        return Terms(price, price.each)
    matching = [rule for rule in price.rules if _matches(rule, size, tier, region, at_ms)]
    if not matching:
        return Terms(price, price.each)
    changed: dict[str, Any] = {}
    each, over, under = dict(price.each), 1, 1
    for rule in matching:
        changed |= _replaced(price, changed, rule.rates)
        each |= rule.each
        over, under = over * rule.times[0], under * rule.times[1]
    return Terms(structs.replace(price, **changed), each, over, under)


def cases(price: Price, size: int, scope: Scope, at_ms: int) -> Iterator[Terms]:
    """The terms of every call of at most this size that may turn out: in another size tier, served as standard, later.

    Terms change only at the sizes and moments that are looked at, so nothing in between is missed.
    """
    if not price.rules:
        yield Terms(price, price.each)
        return
    tiers, regions = {"", scope.service_tier}, {"", scope.region}
    possible = [
        rule
        for rule in price.rules
        if rule.service_tier in tiers and (not rule.above or rule.above < size) and rule.covers(scope.region)
    ]
    if not possible:
        yield Terms(price, price.each)
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
    """It depends on when a call is made."""
    return any(rule.windows or rule.since_ms is not None or rule.until_ms is not None for rule in price.rules)


def _replaced(price: Rates, changed: Mapping[str, int], rates: Mapping[str, int]) -> dict[str, int]:
    """The rule's own rates, and those of their kin that it does not state."""
    replaced = dict(rates)
    for name, kin in KIN.items():
        lead = rates.get(kin[-1])
        before: int | None = changed.get(name, getattr(price, name))
        if lead is not None and before is not None and name not in rates:
            replaced[name] = max(before, lead)
    return replaced


def _open(window: Window, at_ms: int) -> bool:
    minute, day = _clock(window.zone, at_ms)
    if window.start < window.end:
        return window.start <= minute < window.end and _on(window, day)
    if minute >= window.start:
        return _on(window, day)
    return minute < window.end and _on(window, (day - 2) % 7 + 1)


def _on(window: Window, day: int) -> bool:
    return not window.days or day in window.days


def _clock(zone: str, at_ms: int) -> tuple[int, int]:
    """(minute of the day, ISO weekday)."""
    if zone == "UTC":
        return at_ms // 60_000 % _DAY_MIN, (at_ms // _DAY_MS + _EPOCH_WEEKDAY) % 7 + 1
    local = datetime.fromtimestamp(at_ms // 1000, ZoneInfo(zone))
    return local.hour * 60 + local.minute, local.isoweekday()


def _moments(rules: Iterable[Rule], at_ms: int, until_ms: int) -> set[int]:
    """`at_ms`, and each moment up to `until_ms` at which some rule begins or ends."""
    found = {at_ms}
    for rule in rules:
        found |= {at for at in (rule.since_ms, rule.until_ms) if at is not None and at_ms < at <= until_ms}
        for window in rule.windows:
            found |= {at for at in _edges(window, at_ms, until_ms) if at_ms < at <= until_ms}
    return found


def _edges(window: Window, at_ms: int, until_ms: int) -> Iterator[int]:
    """Every moment after `at_ms` at which the clock of the window shows its begin, its end or midnight."""
    for minute in {0, window.start, window.end}:
        if window.zone == "UTC":
            yield from range(at_ms + (minute * 60_000 - at_ms) % _DAY_MS, until_ms + 1, _DAY_MS)
        else:
            yield from _local_edges(ZoneInfo(window.zone), minute, at_ms, until_ms)


def _local_edges(zone: ZoneInfo, minute: int, at_ms: int, until_ms: int) -> Iterator[int]:
    """Both of them where the clock is set back over that minute."""
    midnight = datetime.fromtimestamp(at_ms // 1000, zone).replace(hour=0, minute=0, second=0, microsecond=0)
    for days, fold in product(range((until_ms - at_ms) // _DAY_MS + 3), (0, 1)):
        at = (midnight + timedelta(days=days, minutes=minute)).replace(fold=fold)
        yield int(at.timestamp()) * 1000
