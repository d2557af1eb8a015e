"""Prompt caches: the share of a prompt that a target has cached."""

from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

import re2
from msgspec import Struct

from router.estimate.posterior import QuantileWindow, Recent
from router.estimate.price import rate_of
from router.types.attempt import Usage
from router.types.decision import CachePrefix
from router.types.price import TokenPrices
from router.types.tables import table
from router.types.target import Wire

# How much of a prompt targets have in their caches: of what this process sent there a short while ago.
#
# A provider that keeps prompts has the beginning of a conversation's next turn, and the instructions of a template's
# other requests. How much of that is really read from its cache is learned from what answers tell.

LEAST = 1_024
"""Tokens of a prompt that the usual providers keep; others keep longer ones only."""
_MINIMUMS = [(re2.compile(name), tokens) for name, tokens in table("estimate/cache_minimums.yaml").items()]
LIFETIME_MS = 300_000
"""For how long a prompt is kept once it was used, by default …"""
LONG_LIFETIME_MS = 3_600_000
"""… and where the request asks for long."""
MOST = 16_384
"""Conversations and templates remembered; the one without an answer for longest is forgotten."""
HIT_MILLE, WEIGHT = 980, 2
"""Thousandths of what should be in a cache that are read from it, before any answer says so; its weight in answers."""


SAME = 1.3
"""A prompt may have so many times the tokens of its rough count."""


class CachedPrompt(NamedTuple):
    """Of one prompt: what targets have of it, and what is the use of sending it to one of them for later requests.

    As many requests are expected to follow as came before (Lindy's law): what the n-th one pays to have its prompt
    kept is for n of them. So a conversation leaves a target once that pays over all turns that are likely to follow."""

    reads: Mapping[str, float] = {}
    """Tokens that each target is expected to read from its cache; others read none."""
    for_later: float = 0.0
    """Share of what is not in a cache yet that later turns pay for …"""
    shared: float = 0.0
    """… the share of the prompt that all requests of its template begin with …"""
    shared_for_later: float = 0.0
    """… and the share of that which later requests of the template pay for."""


COLD = CachedPrompt()
"""Nothing of a prompt is in any cache."""


class _SentPrefix(Struct, frozen=True):
    tokens: int
    at_ms: int
    times: int
    """Requests in a row that began like this, at any target."""


@cache
def least(model: str) -> int:
    """Tokens of a prompt from which on the provider of a model of this name keeps it."""
    return next((tokens for name, tokens in _MINIMUMS if name.search(model)), LEAST)


def keeps(wire: Wire, asked: bool) -> bool:
    """Whether a provider keeps a prompt: Anthropic's only where the request asks for it."""
    return asked or wire is not Wire.ANTHROPIC


def cache_rates(rates: TokenPrices, wire: Wire, asks: int) -> tuple[int, int]:
    """Of input that is read from a cache, and of input that is not; both as all input where nothing is kept. `asks`:
    for caching 1, for long caching 2."""
    if not keeps(wire, bool(asks)):
        return rates.input, rates.input
    return rate_of(rates, "cache_read"), rate_of(rates, "cache_write_1h" if asks > 1 else "cache_write")


class Caches:
    """In memory of one process; a restart forgets them."""

    def __init__(self) -> None:
        self._sent = Recent[int | str, dict[str, _SentPrefix]](MOST, dict)
        self._hits = defaultdict[str, QuantileWindow](QuantileWindow)

    def expected(self, prefix: CachePrefix, rough: float, at_ms: int) -> CachedPrompt:
        """Of a prompt of about so many tokens."""
        reads = dict[str, float]()
        for target, kept in self._kept(prefix, rough, at_ms).items():
            hits = self._hits[target]
            reads[target] = kept * max((hits.sum + WEIGHT * HIT_MILLE) / (hits.count + WEIGHT) / 1_000, 1e-3)
        before, of_template = (self._times(key, prefix.long, at_ms) for key in (prefix.conversation, prefix.template))
        return CachedPrompt(reads, 1 - 1 / (1 + before), prefix.shared, 1 - 1 / (1 + of_template))

    def _alive(self, key: int | str, long: bool, at_ms: int) -> dict[str, _SentPrefix]:
        """What targets were sent that began like this, and should have still."""
        lifetime = LONG_LIFETIME_MS if long else LIFETIME_MS
        return {name: sent for name, sent in self._sent.get(key, {}).items() if at_ms - sent.at_ms <= lifetime}

    def _times(self, key: int | str, long: bool, at_ms: int) -> int:
        """Requests in a row that began like this."""
        return max((sent.times for sent in self._alive(key, long, at_ms).values()), default=0)

    def _kept(self, prefix: CachePrefix, rough: float, at_ms: int) -> Mapping[str, int]:
        """Tokens that each target was sent, and should have still. A conversation that is shorter now than before was
        written anew: only its instructions are the same."""
        every: dict[str, int] = {}
        for key in (prefix.template, prefix.conversation):
            for target, sent in self._alive(key, prefix.long, at_ms).items():
                same = key == prefix.template or sent.tokens <= rough * SAME
                if same and sent.tokens >= LEAST:
                    every[target] = max(every.get(target, 0), sent.tokens)
        return every

    def note(self, prefix: CachePrefix, target: str, usage: Usage, at_ms: int) -> None:
        """An answer of `target` has ended."""
        read, sent = usage.cache_read + usage.cache_read_explicit, usage.input_total
        kept = min(self._kept(prefix, sent, at_ms).get(target, 0), sent)
        if kept:
            self._hits[target].add(min(int(1_000 * read / kept), 1_000))
        for key, tokens in ((prefix.conversation, sent), (prefix.template, int(sent * prefix.shared))):
            self._sent[key][target] = _SentPrefix(tokens, at_ms, 1 + self._times(key, prefix.long, at_ms))
            self._sent.move_to_end(key)
