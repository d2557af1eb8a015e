"""Money in integer nano-USD, and prices of models and engines."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import ROUND_HALF_UP, Decimal
from enum import StrEnum
from functools import lru_cache
from typing import Any, Generic, TypeVar

from msgspec import Struct, structs

# Exact money: integer nano-USD, rates in nano-USD per million units, `Decimal` at the edges, never float.

NANO_PER_USD = 1_000_000_000
UNITS_PER_RATE = 1_000_000


def nano_from_usd(amount: Decimal) -> int:
    """USD → nano-USD, half up."""
    return int((amount * NANO_PER_USD).to_integral_value(ROUND_HALF_UP))


def usd_from_nano(nano: int) -> Decimal:
    """nano-USD → USD, exact."""
    return Decimal(nano).scaleb(-9)


@lru_cache(1_024)
def usd_json(nano: int) -> bytes:
    """A JSON number in USD, exact, without an exponent: 1 → b"0.000000001"."""
    digits = b"%d.%09d" % divmod(abs(nano), NANO_PER_USD)
    return (b"-" if nano < 0 else b"") + digits.rstrip(b"0").rstrip(b".")


def usd_text(nano: int) -> str:
    """For people: "0.0042"."""
    return usd_json(nano).decode()


def usd_about(nano: int, digits: int = 3) -> str:
    """For people, to so many digits that count."""
    unit: int = 10 ** max(0, len(str(abs(nano))) - digits)
    return usd_text(round(nano / unit) * unit)


def shared(total: int, weights: Sequence[int]) -> Iterator[int]:
    """Whole parts in proportion to the weights, together exactly the total; equal ones where none weighs."""
    weights = weights if any(weights) else [1] * len(weights)
    whole, weighed, given = sum(weights), 0, 0
    for weight in weights:
        weighed += weight
        upto = (2 * total * weighed + whole) // (2 * whole)
        yield upto - given
        given = upto


# List prices of a model, as rates and rules, and the charge of an attempt.

Amount = TypeVar("Amount")


class RatesOf(Struct, Generic[Amount], frozen=True, kw_only=True):
    """Of each bucket of tokens. One that is not stated is charged as its nearest kin in `KIN`."""

    input: Amount | None = None
    output: Amount | None = None
    cache_read: Amount | None = None
    cache_read_explicit: Amount | None = None
    """From a cache that the request asked for, where that has a price of its own (Qwen)."""
    cache_read_audio: Amount | None = None
    cache_write: Amount | None = None
    """Kept for the provider's default time: 5 minutes at Anthropic, 30 at OpenAI."""
    cache_write_1h: Amount | None = None
    cache_write_12h: Amount | None = None
    reasoning: Amount | None = None
    input_audio: Amount | None = None
    input_image: Amount | None = None
    input_video: Amount | None = None
    output_audio: Amount | None = None
    output_image: Amount | None = None
    output_video: Amount | None = None


class TokenPrices(RatesOf[int], frozen=True, kw_only=True):
    """nano-USD per million tokens."""

    input: int
    output: int


class PriceHours(Struct, frozen=True, kw_only=True):
    """Hours of the day, in minutes after midnight: `start` inclusive, `end` exclusive, equal for the whole day.

    One that passes midnight belongs to the day on which it begins. `days` are ISO weekdays (1: Monday); none: all.
    """

    start: int
    end: int
    days: frozenset[int] = frozenset()
    zone: str = "UTC"


class Rule(Struct, frozen=True, kw_only=True):
    """Where all of its selectors match, the rule's rates replace those before, and `times` scales every token rate.

    A rate that the rule leaves out although it states its kin `input` or `output` becomes the dearer of the two.
    """

    above: int = 0
    """More input tokens than this, of every kind together; reprices the whole request."""
    service_tier: str = ""
    region: str = ""
    """Where it was served, in the words of the provider or of the target; "us" matches "us-east1" too."""
    since_ms: int | None = None
    until_ms: int | None = None
    """Exclusive."""
    windows: tuple[PriceHours, ...] = ()
    rates: Mapping[str, int] = {}
    each: Mapping[str, int] = {}
    times: tuple[int, int] = (1, 1)
    """A multiplier as an exact fraction: 11/10 for a surcharge of 10 %."""

    def covers(self, region: str) -> bool:
        """As far as the region goes; capitals tell no regions apart."""
        return not self.region or f"{region}-".casefold().startswith(f"{self.region}-".casefold())


class Price(TokenPrices, frozen=True, kw_only=True):
    """Rates, and the rules that change them, applied in their order."""

    each: Mapping[str, int] = {}
    """What is not counted in tokens (web searches, images, seconds): nano-USD per million of the unit."""
    rules: tuple[Rule, ...] = ()
    version: str
    """Source and date of the rates, e.g. "openai.com 2026-10-01"; kept in every ledger row."""
    assumed: bool = False
    """The policy's worst case for models without a price."""

    def equals(self, other: "Price | None") -> bool:
        """Whichever source has which of them."""
        return other is not None and structs.replace(self, version=other.version) == other


WORST_CASE = Price(input=150_000_000_000, output=600_000_000_000, version="worst case", assumed=True)
"""For a model without any price: OpenAI's dearest (o1-pro: 150 and 600 USD per million tokens)."""
MEASURED = "measured "
"""So begin the versions of prices that local engines were measured to have."""
DEAREST_UNIT = 50_000_000 * 1_000_000
"""nano-USD per million of a unit that the price doesn't name: 0.05 USD each, above any query in that map (0.035)."""


Prices = Mapping[str, Mapping[str, Price]]
"""Every table that each model has had, by its version; under `ANY_MODEL` those that are measured."""
ANY_MODEL = ""
SERVED = "served by "
"""So begin the versions of prices of models that answered in place of those that were asked; the model's id follows."""


def price_then(prices: Prices, model: str, version: str) -> Price | None:
    """The one that a charge names; None: it is not known any more, or was never known here."""
    if version.startswith(SERVED):
        model, _, version = version.removeprefix(SERVED).partition(", ")
    return prices.get(ANY_MODEL if version.startswith(MEASURED) else model, {}).get(version)


class Writes(StrEnum):
    """Which caches a call may write."""

    NONE = "none"
    DEFAULT = "default"
    ANY = "any"


class CallScope(Struct, frozen=True, kw_only=True):
    """What a call may do, known before it is made; the defaults are the widest. It may always be served as standard."""

    within_ms: int = 3_600_000
    """From the decision until it is over: timeouts, retries and waiting included."""
    service_tier: str = ""
    region: str = ""
    writes: Writes = Writes.ANY
    media: bool = True
    """Audio, images or video go in or out."""
    units: Mapping[str, int] = {}
    """The most of what is not counted in tokens."""


class CostSource(StrEnum):
    PRICED = "priced"
    """Our price × reported usage."""
    PROVIDER = "provider"
    """The amount that the provider stated."""
    ESTIMATED = "estimated"
    """Our price × usage that we had to estimate."""
    UNPRICED = "unpriced"
    """The policy's worst case × usage: the model has no price."""
    ADJUSTED = "adjusted"
    """A correction of another charge."""


class Cost(Struct, frozen=True):
    """What one attempt cost: nano-USD, how it was found, under which prices."""

    nano: int
    source: CostSource
    price_version: str
    own: int | None = None
    """What our price makes of the usage; differs from `nano` where the provider states another amount."""
    flagged: bool = False
    """The report contradicts itself, or has something that the price doesn't name: settled at the larger reading."""
    thinking: int | None = None
    """The part of `nano` that reasoning cost; None: not told apart from other output, or not known."""
    saved: int | None = None
    """How many nano-USD more it would have cost with all cached input as plain input: what reads saved, less what
    writes cost extra, so below 0 where a cache was written and hardly read. None: not known.

    Where the provider states the amount, both have the share in it that they have in our own."""


# A price as people write it, in catalog and policy → `Price`: USD per million tokens, dates, hours, factors.

RATES = TokenPrices.__struct_fields__
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
HOURS = r"^([01][0-9]|2[0-3]):[0-5][0-9]-([01][0-9]|2[0-3]):[0-5][0-9]$"


def priced(row: Mapping[str, Any], version: str, *, assumed: bool = False) -> Price:
    """`row` has been checked: rates by name, `each`, and `rules` with selectors, rates, `each` and `times`."""
    return Price(
        **_rates(row),
        each=_each(row),
        rules=tuple(_rule(rule) for rule in row.get("rules") or ()),
        version=version,
        assumed=assumed,
    )


def _rule(row: Mapping[str, Any]) -> Rule:
    """`days` without `hours` are whole days."""
    hours, days = row.get("hours") or (), row.get("days") or ()
    on, zone = frozenset(DAYS.index(day) + 1 for day in days), row.get("zone") or "UTC"
    spans = [span.split("-") for span in hours] or ([("00:00", "00:00")] if days else [])
    return Rule(
        above=row.get("above") or 0,
        service_tier=row.get("service_tier") or "",
        region=row.get("region") or "",
        since_ms=_midnight(row.get("since")),
        until_ms=_midnight(row.get("until")),
        windows=tuple(PriceHours(start=_minute(start), end=_minute(end), days=on, zone=zone) for start, end in spans),
        rates=_rates(row),
        each=_each(row),
        times=Decimal(row.get("times") or 1).as_integer_ratio(),
    )


def _rates(row: Mapping[str, Any]) -> dict[str, int]:
    return {name: nano_from_usd(Decimal(row[name])) for name in RATES if row.get(name) is not None}


def _each(row: Mapping[str, Any]) -> dict[str, int]:
    """USD for one of the unit → nano-USD per million of them."""
    return {unit: nano_from_usd(Decimal(usd) * UNITS_PER_RATE) for unit, usd in (row.get("each") or {}).items()}


def _minute(text: str) -> int:
    hour, minute = text.split(":")
    return int(hour) * 60 + int(minute)


def _midnight(day: object) -> int | None:
    """A date → Unix ms of its begin in UTC."""
    return int(datetime.fromisoformat(str(day)).replace(tzinfo=UTC).timestamp()) * 1000 if day else None


# What local engines were seen to do, and what a token of them costs by that: rows of the ledger.


class EngineHour(Struct, frozen=True, kw_only=True):
    """Of all replicas of an engine, as one gateway saw them in one clock hour, or in a part of it; these add up.

    Times in ms, `cost` in nano-USD for `wall_ms`.
    """

    engine: str
    hour: int
    gateway: str
    """The machine that the gateway is on."""
    external: int = 0
    """1: somebody else runs it, so that every gateway that watches it sees all of it."""
    wall_ms: int = 0
    """It was up; …"""
    busy_ms: int = 0
    """… at least one request was running; …"""
    request_ms: int = 0
    """… requests running, each by itself."""
    uncached_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    prefill_ms: int = 0
    decode_ms: int = 0
    finished: int = 0
    rejected: int = 0
    preempted: int = 0
    restarts: int = 0
    cost: int = 0
    energy_mj: int | None = None
    """Millijoule that the site drew for it, by the meters of its GPUs; None: they have none."""
    declared_mj: int | None = None
    """By the watts that its spec declares."""


class EnginePrice(Struct, frozen=True, kw_only=True):
    """In force from `since_ms` on. Rates in nano-USD per million tokens; `hourly` in nano-USD."""

    version: str
    engine: str
    gateway: str
    since_ms: int
    input: int
    cached: int
    output: int
    counted: str
    hourly: int
    wall_ms: int
    """All hours that are remembered, and those in which it worked: what is older counts for less."""
    busy_ms: int
    uncached_tokens: int
    """The tokens of the last minutes of work."""
    cached_tokens: int
    output_tokens: int

    @property
    def price(self) -> Price:
        return Price(input=self.input, cache_read=self.cached, output=self.output, version=self.version)


def version_of(engine: str, since_ms: int) -> str:
    """What charges at this price say: "measured smollm2 2026-11-21T20:31:07Z"."""
    return f"{MEASURED}{engine} {datetime.fromtimestamp(since_ms // 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"


def added(one: EngineHour, other: EngineHour) -> EngineHour:
    """Of the same engine; who, when and where are the first's."""
    known = {name: [hour for row in (one, other) if (hour := getattr(row, name)) is not None] for name in ADDITIVE}
    return structs.replace(one, **{name: sum(hours) if hours else None for name, hours in known.items()})


ADDITIVE = tuple(name for name in EngineHour.__struct_fields__ if name not in ("engine", "hour", "gateway", "external"))
"""Fields that are sums."""
