"""Prompt caches: the share of a prompt that a target has cached."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple

import re2
from msgspec import Struct

from router.estimate.posterior import QuantileWindow, Recent
from router.estimate.price import rate_of
from router.types.attempt import Usage
from router.types.decision import CachePrefix
from router.types.price import TokenPrices
from router.types.request import application_of
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
LONGEST, REMEMBERED = 256, 64
"""Turns that are told apart, and conversations that count for how long those of a template get."""
LIKELY = 0.65
"""Of the requests that are expected to follow: what they will save is less sure than what it costs now."""
SAME = 1.3
"""A prompt may have so many times the tokens of its rough count."""


class CachedPrompt(NamedTuple):
    """Of one prompt: what targets have of it, and how many requests are likely to begin with it after this one."""

    reads: Mapping[str, float] = {}
    """Tokens that each target is expected to read from its cache; others read none."""
    shared: float = 0.0
    """Share of the prompt that all requests of its template begin with."""
    later: tuple[float, float] = (0.0, 0.0)
    """Turns of its conversation, and requests of its template."""


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
        self._lengths = Recent[str, list[float]](MOST, list)
        """By template and application: how many of its conversations had a first turn, a second … What the n-th pays to
        have its prompt kept is for as many as follow (Lindy's law: n, until some of its application got as far)."""

    def expected(self, prefix: CachePrefix, rough: float, at_ms: int) -> CachedPrompt:
        """Of a prompt of about so many tokens."""
        alive, reads = self._alive(prefix, at_ms), dict[str, float]()
        for target, tokens in _kept(rough, *alive).items():
            hits = self._hits[target]
            reads[target] = tokens * max((hits.sum + WEIGHT * HIT_MILLE) / (hits.count + WEIGHT) / 1_000, 1e-3)
        turns, requests = [max((sent.times for sent in rows.values()), default=0) for rows in alive]
        later = float(turns)
        for name in (application_of(prefix.template), prefix.template):
            reached = self._lengths.get(name, [])[turns:]
            later = (sum(reached[1:]) + WEIGHT * later) / (sum(reached[:1]) + WEIGHT)
        return CachedPrompt(reads, prefix.shared, (LIKELY * later, LIKELY * requests))

    def _alive(self, prefix: CachePrefix, at_ms: int) -> list[dict[str, _SentPrefix]]:
        """What targets were sent of the conversation, and of the template, and should have still."""
        since_ms = at_ms - (LONG_LIFETIME_MS if prefix.long else LIFETIME_MS)
        sent = [self._sent.get(key, {}) for key in (prefix.conversation, prefix.template)]
        return [{name: row for name, row in rows.items() if row.at_ms >= since_ms} for rows in sent]

    def note(self, prefix: CachePrefix, answers: Sequence[tuple[str, Usage]], at_ms: int) -> None:
        """The answers of targets to one request have ended."""
        alive = self._alive(prefix, at_ms)
        turns, requests = [max((sent.times for sent in rows.values()), default=0) for rows in alive]
        for name in {prefix.template, application_of(prefix.template)} if answers and turns < LONGEST else ():
            reached = self._lengths.used(name)
            reached += [0.0] * (turns + 1 - len(reached))
            reached[turns] += 1
            if reached[0] > REMEMBERED:
                reached[:] = [count / 2 for count in reached]
        for target, usage in answers:
            read, sent = usage.cache_read + usage.cache_read_explicit, usage.totals.input
            if cached := min(_kept(sent, *alive).get(target, 0), sent):
                self._hits[target].add(min(int(1_000 * read / cached), 1_000))
            shared = int(sent * prefix.shared)
            self._sent.used(prefix.conversation)[target] = _SentPrefix(sent, at_ms, turns + 1)
            self._sent.used(prefix.template)[target] = _SentPrefix(shared, at_ms, requests + 1)


def _kept(rough: float, turns: Mapping[str, _SentPrefix], requests: Mapping[str, _SentPrefix]) -> Mapping[str, int]:
    """Tokens that each target should have still. A conversation that is shorter now than before was written anew: only
    its instructions are the same."""
    every = {target: sent.tokens for target, sent in requests.items() if sent.tokens >= LEAST}
    for target, sent in turns.items():
        if LEAST <= sent.tokens <= rough * SAME:
            every[target] = max(every.get(target, 0), sent.tokens)
    return every
