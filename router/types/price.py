"""List prices of a model and the charge of an attempt."""

from enum import StrEnum

from msgspec import Struct


class Price(Struct, frozen=True, kw_only=True):
    """Rates in nano-USD per million tokens. A rate of None is charged as its nearest dearer kin, never as free."""

    input: int
    output: int
    cache_read: int | None = None
    cache_write: int | None = None
    cache_write_1h: int | None = None
    reasoning: int | None = None
    input_audio: int | None = None
    output_audio: int | None = None
    version: str
    """Source and date of the rates, e.g. "openai.com 2026-10-01"; kept in every ledger row."""


class CostSource(StrEnum):
    PRICED = "priced"
    """Our price × reported usage."""
    PROVIDER = "provider"
    """The amount that the provider stated."""
    ESTIMATED = "estimated"
    """Our price × usage that we had to estimate."""
    UNPRICED = "unpriced"
    """The policy admits this target without a price; booked as 0 and marked."""


class Cost(Struct, frozen=True):
    """What one attempt cost: nano-USD, how it was found, under which prices."""

    nano: int
    source: CostSource
    price_version: str
