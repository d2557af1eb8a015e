"""List prices of a model, as rates and rules, and the charge of an attempt."""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from msgspec import Struct


class Rates(Struct, frozen=True, kw_only=True):
    """nano-USD per million tokens of each bucket. One that is not stated is charged as its nearest kin in `KIN`."""

    input: int
    output: int
    cache_read: int | None = None
    cache_read_explicit: int | None = None
    """From a cache that the request asked for, where that has a price of its own (Qwen)."""
    cache_read_audio: int | None = None
    cache_write: int | None = None
    """Kept for the provider's default time: 5 minutes at Anthropic, 30 at OpenAI."""
    cache_write_1h: int | None = None
    cache_write_12h: int | None = None
    reasoning: int | None = None
    input_audio: int | None = None
    input_image: int | None = None
    input_video: int | None = None
    output_audio: int | None = None
    output_image: int | None = None
    output_video: int | None = None


KIN: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "cache_read": ("input",),
        "cache_read_explicit": ("cache_read", "input"),
        "cache_read_audio": ("input_audio", "cache_read", "input"),
        "cache_write": ("input",),
        "cache_write_1h": ("cache_write", "input"),
        "cache_write_12h": ("cache_write_1h", "cache_write", "input"),
        "reasoning": ("output",),
        "input_audio": ("input",),
        "input_image": ("input",),
        "input_video": ("input",),
        "output_audio": ("output",),
        "output_image": ("output",),
        "output_video": ("output",),
    }
)
"""What a rate that is not stated is charged as: the first of these that is. Never free, never a discount."""


class Window(Struct, frozen=True, kw_only=True):
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
    windows: tuple[Window, ...] = ()
    rates: Mapping[str, int] = {}
    each: Mapping[str, int] = {}
    times: tuple[int, int] = (1, 1)
    """A multiplier as an exact fraction: 11/10 for a surcharge of 10 %."""

    def covers(self, region: str) -> bool:
        """As far as the region goes."""
        return not self.region or self.region == region or region.startswith(self.region + "-")


class Price(Rates, frozen=True, kw_only=True):
    """Rates, and the rules that change them, applied in their order."""

    each: Mapping[str, int] = {}
    """What is not counted in tokens (web searches, images, seconds): nano-USD per million of the unit."""
    rules: tuple[Rule, ...] = ()
    version: str
    """Source and date of the rates, e.g. "openai.com 2026-10-01"; kept in every ledger row."""
    assumed: bool = False
    """The policy's worst case for models without a price."""


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


class Scope(Struct, frozen=True, kw_only=True):
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
