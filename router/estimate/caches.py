"""Prompt caches: how much of a prompt each target has cached."""

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

# How much of a prompt targets have cached, judging by what this process sent them a short while ago.
#
# A provider that caches prompts has the beginning of a conversation's next turn, and the instructions of a template's
# other requests. How much of that is really read from the cache is learned from the usage of answers.

LEAST = 1_024
"""Minimum length in tokens of a prompt that most providers cache; some cache only longer ones."""
_MINIMUMS = [(re2.compile(name), tokens) for name, tokens in table("estimate/cache_minimums.yaml").items()]
LIFETIME_MS = 300_000
"""Time in ms for which a prompt is cached after its last use, by default."""
LONG_LIFETIME_MS = 3_600_000
"""Time in ms for which a prompt is cached after its last use, if the request asks for long caching."""
MOST = 16_384
"""Maximum number of conversations and templates remembered; the one without an answer for longest is forgotten."""
HIT_MILLE, WEIGHT = 980, 2
"""Share of cached tokens, in thousandths, expected to be read before any answer shows it; its weight in answers."""
LONGEST, REMEMBERED = 256, 64
"""Maximum number of turns that are told apart; number of a template's conversations above which older ones fade."""
LIKELY = 0.65
"""Share of the expected later requests that counts, as their savings are less certain than the cost now."""
SAME = 1.3
"""Maximum ratio of a prompt's tokens to their rough count."""


class CachedPrompt(NamedTuple):
    """What targets have cached of a prompt, and how many later requests are likely to begin with it."""

    reads: Mapping[str, float] = {}
    """Target → number of tokens that it is expected to read from its cache; a missing target reads none."""
    shared: float = 0.0
    """Share of the prompt that all requests of its template begin with."""
    later: tuple[float, float] = (0.0, 0.0)
    """Expected number of later turns of its conversation, and of later requests of its template."""


COLD = CachedPrompt()
"""Nothing of a prompt is in any cache."""


class _SentPrefix(Struct, frozen=True):
    tokens: int
    at_ms: int
    times: int
    """Number of consecutive requests, at any target, that began like this."""


@cache
def least(model: str) -> int:
    """Returns the minimum length in tokens of a prompt that is cached for a model of this name."""
    return next((tokens for name, tokens in _MINIMUMS if name.search(model)), LEAST)


def keeps(wire: Wire, asked: bool) -> bool:
    """Returns whether a provider caches prompts: Anthropic does only if the request asks for it."""
    return asked or wire is not Wire.ANTHROPIC


def cache_rates(rates: TokenPrices, wire: Wire, asks: int) -> tuple[int, int]:
    """Returns the rates of input that is read from a cache, and of other input; both are the plain rate if nothing is
    cached. `asks`: 1 for caching, 2 for long caching."""
    if not keeps(wire, bool(asks)):
        return rates.input, rates.input
    return rate_of(rates, "cache_read"), rate_of(rates, "cache_write_1h" if asks > 1 else "cache_write")


class Caches:
    """What targets are expected to have cached. In memory of one process; a restart forgets it."""

    def __init__(self) -> None:
        self._sent = Recent[int | str, dict[str, _SentPrefix]](MOST, dict)
        self._hits = defaultdict[str, QuantileWindow](QuantileWindow)
        self._lengths = Recent[str, list[float]](MOST, list)
        """Template or application → number of its conversations that reached the first turn, the second, and so on. At
        the n-th turn n more are expected (Lindy's law), until some conversation of the application got as far."""

    def expected(self, prefix: CachePrefix, rough: float, at_ms: int) -> CachedPrompt:
        """Returns what is cached of a prompt of about `rough` tokens."""
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
        """Returns by target what it was sent of the conversation, and of the template, and should still have."""
        since_ms = at_ms - (LONG_LIFETIME_MS if prefix.long else LIFETIME_MS)
        sent = [self._sent.get(key, {}) for key in (prefix.conversation, prefix.template)]
        return [{name: row for name, row in rows.items() if row.at_ms >= since_ms} for rows in sent]

    def note(self, prefix: CachePrefix, answers: Sequence[tuple[str, Usage]], at_ms: int) -> None:
        """Records the answers to one request, once they have ended."""
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
    """Returns by target the number of tokens that it should still have. A conversation that is shorter than before was
    rewritten: only its instructions are the same."""
    every = {target: sent.tokens for target, sent in requests.items() if sent.tokens >= LEAST}
    for target, sent in turns.items():
        if LEAST <= sent.tokens <= rough * SAME:
            every[target] = max(every.get(target, 0), sent.tokens)
    return every
