"""A first, monotone measure of how hard a request is: 0 (a greeting) … 1 (long, with tools and a schema)."""

from math import log2

from router.types.request import Request
from router.types.target import Capability

_HARDEST_BITS = 20
"""A prompt of 2**20 bytes counts as hardest by length alone."""
_DEMANDING = frozenset({Capability.TOOLS, Capability.JSON_SCHEMA, Capability.VISION})


def difficulty(request: Request) -> float:
    hard = log2(1 + request.prompt_bytes) / _HARDEST_BITS
    if len(request.needs) > 1:
        hard += 0.1 * len(request.needs & _DEMANDING)
    return hard if hard < 1.0 else 1.0
