"""The canonical usage record: disjoint token buckets of one attempt, and where each count comes from."""

from enum import StrEnum

from msgspec import Struct


class Source(StrEnum):
    """Where a count comes from; `unknown` counts are None, never 0."""

    REPORTED = "reported"
    DERIVED = "derived"
    ESTIMATED = "estimated"
    UNKNOWN = "unknown"


class Usage(Struct, frozen=True, kw_only=True):
    """Tokens of one attempt in disjoint buckets; their sum is what the provider bills.

    `output_reasoning` is None when the provider does not split its output: then all output is in `output_visible`.
    """

    input_uncached: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cache_write_1h: int = 0
    input_audio: int = 0
    output_visible: int = 0
    output_reasoning: int | None = None
    output_audio: int = 0
    source: Source = Source.REPORTED
    reasoning_source: Source = Source.UNKNOWN
    provider_cost: int | None = None
    """nano-USD, when the provider states what it charges (OpenRouter, xAI)."""
    violations: tuple[str, ...] = ()
    """Invariants that the provider's report broke; the buckets then hold the larger reading."""

    @property
    def input_total(self) -> int:
        return self.input_uncached + self.cache_read + self.cache_write + self.cache_write_1h + self.input_audio

    @property
    def output_total(self) -> int:
        return self.output_visible + (self.output_reasoning or 0) + self.output_audio
