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
    """Converts USD to nano-USD, rounding half up."""
    return int((amount * NANO_PER_USD).to_integral_value(ROUND_HALF_UP))


def usd_from_nano(nano: int) -> Decimal:
    """Converts nano-USD to USD, exactly."""
    return Decimal(nano).scaleb(-9)


@lru_cache(1_024)
def usd_json(nano: int) -> bytes:
    """Returns an exact JSON number in USD without an exponent: 1 → b"0.000000001"."""
    digits = b"%d.%09d" % divmod(abs(nano), NANO_PER_USD)
    return (b"-" if nano < 0 else b"") + digits.rstrip(b"0").rstrip(b".")


def usd_text(nano: int) -> str:
    """Returns an amount in USD for display, such as 0.0042."""
    return usd_json(nano).decode()


def usd_about(nano: int, digits: int = 3) -> str:
    """Returns an amount in USD for display, rounded to `digits` significant digits."""
    unit: int = 10 ** max(0, len(str(abs(nano))) - digits)
    return usd_text(round(nano / unit) * unit)


def shared(total: int, weights: Sequence[int]) -> Iterator[int]:
    """Yields whole parts of `total` in proportion to the weights, or equal parts if all are 0. They add up to
    `total`."""
    weights = weights if any(weights) else [1] * len(weights)
    whole, weighed, given = sum(weights), 0, 0
    for weight in weights:
        weighed += weight
        upto = (2 * total * weighed + whole) // (2 * whole)
        yield upto - given
        given = upto


# List prices of a model as rates and rules, and the charge of an attempt.

Amount = TypeVar("Amount")


class RatesOf(Struct, Generic[Amount], frozen=True, kw_only=True):
    """A value for each bucket of tokens. A missing rate is replaced by a related one (`router.estimate.price.KIN`)."""

    input: Amount | None = None
    output: Amount | None = None
    cache_read: Amount | None = None
    cache_read_explicit: Amount | None = None
    """Read from a cache that the request asked for, if that has a price of its own (Qwen)."""
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
    """Rates in nano-USD per million tokens."""

    input: int
    output: int


class PriceHours(Struct, frozen=True, kw_only=True):
    """Hours of the day in minutes after midnight: `start` inclusive, `end` exclusive; equal for the whole day. Hours
    over midnight belong to the day on which they begin. `days` are ISO weekdays (1 is Monday); empty means all."""

    start: int
    end: int
    days: frozenset[int] = frozenset()
    zone: str = "UTC"


class Rule(Struct, frozen=True, kw_only=True):
    """If all selectors match, the rule's rates replace earlier ones, and `times` multiplies every token rate. If a rule
    states `input` or `output` but not a related rate, that becomes the higher of its old value and the stated one."""

    above: int = 0
    """Minimum number of input tokens of all kinds, exclusive. The rule then applies to the whole request."""
    service_tier: str = ""
    region: str = ""
    """Region that served the call, as the provider or the target names it; "us" also matches "us-east1"."""
    since_ms: int | None = None
    until_ms: int | None = None
    """Exclusive end of validity in Unix ms; None if there is none."""
    windows: tuple[PriceHours, ...] = ()
    rates: Mapping[str, int] = {}
    each: Mapping[str, int] = {}
    times: tuple[int, int] = (1, 1)
    """Multiplier as an exact fraction, e.g. 11/10 for a surcharge of 10 %."""

    def covers(self, region: str) -> bool:
        """Whether the rule's region, if it has one, matches `region`; case is ignored."""
        return not self.region or f"{region}-".casefold().startswith(f"{self.region}-".casefold())


class Price(TokenPrices, frozen=True, kw_only=True):
    """Rates, and the rules that change them, applied in order."""

    each: Mapping[str, int] = {}
    """Prices of units other than tokens (web searches, images, seconds), in nano-USD per million units."""
    rules: tuple[Rule, ...] = ()
    version: str
    """Source and date of the rates, e.g. `openai.com 2026-10-01`; stored in every ledger row."""
    assumed: bool = False
    """Whether this is the policy's worst case for models without a price."""

    def equals(self, other: "Price | None") -> bool:
        """Whether both prices charge the same; their versions may differ."""
        return other is not None and structs.replace(self, version=other.version) == other


WORST_CASE = Price(input=150_000_000_000, output=600_000_000_000, version="worst case", assumed=True)
"""Price of a model without any price: OpenAI's highest (o1-pro, 150 and 600 USD per million tokens)."""
MEASURED = "measured "
"""Prefix of the versions of prices that were measured at local engines."""
DEAREST_UNIT = 50_000_000 * 1_000_000
"""Price in nano-USD per million of a unit without a price: 0.05 USD each, above any listed query (0.035)."""


Prices = Mapping[str, Mapping[str, Price]]
"""All prices that each model has had, by model and version. Measured prices are under `ANY_MODEL`."""
ANY_MODEL = ""
SERVED = "served by "
"""Prefix of the price version if another model answered than was asked; that model's id follows."""


def price_then(prices: Prices, model: str, version: str) -> Price | None:
    """Returns the price that a charge names, or None if it is unknown."""
    if version.startswith(SERVED):
        model, _, version = version.removeprefix(SERVED).partition(", ")
    return prices.get(ANY_MODEL if version.startswith(MEASURED) else model, {}).get(version)


class Writes(StrEnum):
    """Which prompt caches a call may write."""

    NONE = "none"
    DEFAULT = "default"
    ANY = "any"


class CallScope(Struct, frozen=True, kw_only=True):
    """What a call may do, as known before it is made; by default everything. Any call may be served as standard."""

    within_ms: int = 3_600_000
    """Time in ms from the decision until the call is over, including timeouts, retries and waiting."""
    service_tier: str = ""
    region: str = ""
    writes: Writes = Writes.ANY
    media: bool = True
    """Whether audio, images or video may go in or out."""
    units: Mapping[str, int] = {}
    """Maximum quantities of billed units other than tokens."""


class CostSource(StrEnum):
    PRICED = "priced"
    """Our price × reported usage."""
    PROVIDER = "provider"
    """The amount that the provider stated."""
    ESTIMATED = "estimated"
    """Our price × usage that was estimated."""
    UNPRICED = "unpriced"
    """The policy's worst case × usage, as the model has no price."""
    ADJUSTED = "adjusted"


class Cost(Struct, frozen=True):
    """Cost of one attempt in nano-USD, how it was found, and under which price."""

    nano: int
    source: CostSource
    price_version: str
    own: int | None = None
    """Cost by our price in nano-USD; differs from `nano` if the provider states another amount."""
    flagged: bool = False
    """Whether the report contradicts itself or has items without a price. It is settled at the larger reading."""
    thinking: int | None = None
    """Part of `nano` that reasoning cost; None if unknown or not reported separately."""
    saved: int | None = None
    """Nano-USD that caching saved: savings of reads less the extra cost of writes, so negative if a cache was written
    and hardly read; None if unknown. If the provider states the cost, `thinking` and `saved` are scaled to it."""


# Prices as written in catalog and policy (USD per million tokens, dates, hours, factors) → `Price`.

RATES = TokenPrices.__struct_fields__
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
HOURS = r"^([01][0-9]|2[0-3]):[0-5][0-9]-([01][0-9]|2[0-3]):[0-5][0-9]$"


def priced(row: Mapping[str, Any], version: str, *, assumed: bool = False) -> Price:
    """Returns the price for a checked row: rates by name, `each`, and `rules` with selectors, rates, `each`,
    `times`."""
    return Price(
        **_rates_of(row),
        each=_unit_prices(row),
        rules=tuple(_rule_of(rule) for rule in row.get("rules") or ()),
        version=version,
        assumed=assumed,
    )


def _rule_of(row: Mapping[str, Any]) -> Rule:
    """Returns the rule for a row. `days` without `hours` are whole days."""
    hours, days = row.get("hours") or (), row.get("days") or ()
    on, zone = frozenset(DAYS.index(day) + 1 for day in days), row.get("zone") or "UTC"
    spans = [span.split("-") for span in hours] or ([("00:00", "00:00")] if days else [])
    return Rule(
        above=row.get("above") or 0,
        service_tier=row.get("service_tier") or "",
        region=row.get("region") or "",
        since_ms=_midnight_ms(row.get("since")),
        until_ms=_midnight_ms(row.get("until")),
        windows=tuple(PriceHours(start=_minute(start), end=_minute(end), days=on, zone=zone) for start, end in spans),
        rates=_rates_of(row),
        each=_unit_prices(row),
        times=Decimal(row.get("times") or 1).as_integer_ratio(),
    )


def _rates_of(row: Mapping[str, Any]) -> dict[str, int]:
    return {name: nano_from_usd(Decimal(row[name])) for name in RATES if row.get(name) is not None}


def _unit_prices(row: Mapping[str, Any]) -> dict[str, int]:
    """Converts USD per unit to nano-USD per million units."""
    return {unit: nano_from_usd(Decimal(usd) * UNITS_PER_RATE) for unit, usd in (row.get("each") or {}).items()}


def _minute(text: str) -> int:
    hour, minute = text.split(":")
    return int(hour) * 60 + int(minute)


def _midnight_ms(day: object) -> int | None:
    """Returns the start of a date in UTC as Unix ms."""
    return int(datetime.fromisoformat(str(day)).replace(tzinfo=UTC).timestamp()) * 1000 if day else None


# What local engines did, and what their tokens cost accordingly: rows of the ledger.


class EngineHour(Struct, frozen=True, kw_only=True):
    """Work of all replicas of an engine in one clock hour or a part of it, as seen by one gateway. Rows can be added.

    Times in ms. `cost` is the cost of `wall_ms` in nano-USD.
    """

    engine: str
    hour: int
    gateway: str
    """Machine that the gateway runs on."""
    external: int = 0
    """1 if the engine is run by others, so that each gateway that watches it sees all of its work; else 0."""
    wall_ms: int = 0
    """Time in ms that the engine was up."""
    busy_ms: int = 0
    """Time in ms with at least one request running."""
    request_ms: int = 0
    """Running time in ms, summed over requests."""
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
    """Energy in millijoules that the site used for the engine, by its GPUs' meters; None without meters."""
    declared_mj: int | None = None
    """Energy in millijoules by the watts that its spec declares; None if it declares none."""


class EnginePrice(Struct, frozen=True, kw_only=True):
    """A measured price, in force from `since_ms`. Rates in nano-USD per million tokens; `hourly` in nano-USD."""

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
    """Time in ms that the engine was up, as remembered; older time counts less. `busy_ms` is the part with work."""
    busy_ms: int
    uncached_tokens: int
    """Uncached input tokens in the last minutes of work. The other token counts cover the same time."""
    cached_tokens: int
    output_tokens: int

    @property
    def price(self) -> Price:
        return Price(input=self.input, cache_read=self.cached, output=self.output, version=self.version)


def version_of(engine: str, since_ms: int) -> str:
    """Returns the version that charges at this price bear, e.g. `measured smollm2 2026-11-21T20:31:07Z`."""
    return f"{MEASURED}{engine} {datetime.fromtimestamp(since_ms // 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"


def added(one: EngineHour, other: EngineHour) -> EngineHour:
    """Returns the sum of two rows of an engine. Engine, hour, gateway and `external` are those of `one`."""
    known = {name: [hour for row in (one, other) if (hour := getattr(row, name)) is not None] for name in ADDITIVE}
    return structs.replace(one, **{name: sum(hours) if hours else None for name, hours in known.items()})


ADDITIVE = tuple(name for name in EngineHour.__struct_fields__ if name not in ("engine", "hour", "gateway", "external"))
