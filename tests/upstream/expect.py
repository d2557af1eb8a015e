"""What a test may expect: the counts that a wire really tells of a behaviour."""

import msgspec

from tests.upstream.behaviours import BEHAVIOURS, Reports, Tokens
from tests.upstream.flavours import FLAVOURS


def reported(wire: str, behaviour: str, n: int = 1) -> Tokens | None:
    """Disjoint buckets as the provider reports them, or None where it reports nothing.

    `wire` is a flavour of `FLAVOURS`, "anthropic" or "gemini".
    """
    row = BEHAVIOURS[behaviour]
    if row.reports is Reports.MISSING:
        return None
    if wire == "anthropic":
        return row.tokens
    if wire == "gemini":
        return _gemini(row.tokens.choices(n))
    flavour = FLAVOURS[wire]
    return flavour.reported(row.tokens.choices(1 if flavour.one_choice else n))


def _gemini(tokens: Tokens) -> Tokens:
    """Writes to the cache are plain input here; thoughts of nothing are not mentioned."""
    written = tokens.cache_write + tokens.cache_write_1h
    plain = msgspec.structs.replace(tokens, uncached=tokens.uncached + written, cache_write=0, cache_write_1h=0)
    return plain if tokens.reasoning else msgspec.structs.replace(plain, reasoning=None)
