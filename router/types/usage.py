"""The canonical usage record: disjoint token buckets of one attempt, and where each count comes from."""

from collections.abc import Mapping
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
    cache_read_explicit: int = 0
    """From a cache that the request asked for, where the provider tells it apart."""
    cache_read_audio: int = 0
    cache_write: int = 0
    """Kept for the provider's default time."""
    cache_write_1h: int = 0
    cache_write_12h: int = 0
    input_audio: int = 0
    input_image: int = 0
    input_video: int = 0
    output_visible: int = 0
    output_reasoning: int | None = None
    output_audio: int = 0
    output_image: int = 0
    output_video: int = 0
    units: Mapping[str, int] = {}
    """What is not counted in tokens, e.g. {"web_search": 2}: calls of the provider's tools, images, seconds."""
    source: Source = Source.REPORTED
    reasoning_source: Source = Source.UNKNOWN
    provider_cost: int | None = None
    """nano-USD, when the provider states what it charges (OpenRouter, xAI)."""
    service_tier: str = ""
    """As served, where the provider says so; empty is standard or unknown."""
    region_served: str = ""
    violations: tuple[str, ...] = ()
    """Invariants that the provider's report broke; the buckets then hold the larger reading."""

    @property
    def cached(self) -> int:
        """Input tokens read from a cache."""
        return self.cache_read + self.cache_read_explicit + self.cache_read_audio

    @property
    def written(self) -> int:
        """Input tokens written to a cache."""
        return self.cache_write + self.cache_write_1h + self.cache_write_12h

    @property
    def input_total(self) -> int:
        read = self.cache_read + self.cache_read_explicit + self.cache_read_audio
        written = self.cache_write + self.cache_write_1h + self.cache_write_12h
        return self.input_uncached + read + written + self.input_audio + self.input_image + self.input_video

    @property
    def output_total(self) -> int:
        shown = self.output_audio + self.output_image + self.output_video
        return self.output_visible + (self.output_reasoning or 0) + shown
