"""What caches are worth in sessions of ten turns: `python -m bench.routing.sessions`.

The first target of a session has its prompt of 20,000 tokens in the cache. Each turn asks something else (the anchors
that only test), and is charged as the providers would: what a target was sent within five minutes is read from its
cache, all else is written. Compared are choices that know of the caches, choices that do not, and always staying.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from msgspec import structs

from bench.routing.everyday import CAUTION, classified, four_targets
from router.decide.weigh import DecisionInput, excluded, expected_loss
from router.estimate.caches import COLD, LIFETIME_MS, CachedPrompt, Caches
from router.estimate.forecast import Forecaster
from router.estimate.learn import TargetStats
from router.estimate.pass_rate import PassRateModel
from router.types.attempt import Usage
from router.types.decision import CachePrefix, Forecast, Objective
from router.types.price import NANO_PER_USD, Price
from router.types.request import Classification, Request
from router.types.target import Target
from tools.anchors.anchors import load

SESSIONS, TURNS = 200, 10
CACHED, GROWTH = 20_000, 600
"""Tokens of the first prompt, and by how many each turn is longer."""
PAUSE_MS = (5_000, 90_000)
PRICES = (0.01, 0.05, 0.25, 1.0)
"""USD, of a wrong answer."""
CACHE_READ, CACHE_WRITE = 0.1, 1.25
"""Of the price of other input."""
Warm = dict[str, tuple[int, int]]
"""Target → tokens that it was sent, and when (ms)."""


class Turn(NamedTuple):
    request: Request
    seen: Classification
    tokens: int
    at_ms: int


class Policy(NamedTuple):
    """`knows`: what is expected to be in caches; `stays`: nothing is decided."""

    knows: Callable[[Caches, Turn], CachedPrompt]
    stays: bool = False


PREFIX = CachePrefix(1, "", 0.0)
POLICIES = {
    "stays": Policy(lambda caches, turn: COLD, stays=True),
    "without caches": Policy(lambda caches, turn: COLD),
    "with caches": Policy(lambda caches, turn: caches.expected(PREFIX, turn.tokens, turn.at_ms)),
}


def targets() -> tuple[Target, ...]:
    """Four, with prices of caches."""
    priced = []
    for target in four_targets():
        price = target.model.price or Price(input=0, output=0, version="")
        read, write = round(price.input * CACHE_READ), round(price.input * CACHE_WRITE)
        model = structs.replace(target.model, price=structs.replace(price, cache_read=read, cache_write=write))
        priced.append(structs.replace(target, model=model))
    return tuple(priced)


def turns(rng: np.random.Generator) -> list[Turn]:
    anchors, found, at_ms = load("test"), [], 1_000_000
    for number in range(TURNS):
        request = anchors[rng.integers(len(anchors))].request()
        seen, tokens = classified(request), CACHED + GROWTH * (number + 1)
        found.append(Turn(structs.replace(request, prompt_bytes=tokens * 4, dense_bytes=0), seen, tokens, at_ms))
        at_ms += int(rng.integers(*PAUSE_MS))
    return found


def run(policy: Policy, places: Sequence[Target], session: Sequence[Turn], first: int, price: float) -> float:
    """USD that a session costs, wrong answers included."""
    caches, warm = Caches(), dict[str, tuple[int, int]]()
    forecaster = Forecaster(places, TargetStats(), PassRateModel(places))
    _sent(caches, warm, places[first], CACHED, session[0].at_ms - 1_000, 0)
    total, stakes = 0.0, Objective(failure_nano=round(price * NANO_PER_USD))
    for turn in session:
        believed = forecaster.forecast(places, turn.request, turn.seen, turn.at_ms, None, policy.knows(caches, turn))
        situation = DecisionInput(
            targets=tuple(places), forecast=believed, classification=turn.seen, stakes=stakes, draw=0
        )
        at = first if policy.stays else expected_loss(situation, excluded(situation, CAUTION), CAUTION).best
        real = _really(warm, turn)
        forecast = forecaster.forecast(places, turn.request, turn.seen, turn.at_ms, None, real)
        total += _usd(forecast, at) + price * (1 - float(forecast.p[at]))
        _sent(caches, warm, places[at], turn.tokens, turn.at_ms, int(real.reads.get(places[at].id, 0.0)))
    return total


def _usd(forecast: Forecast, at: int) -> float:
    return float(forecast.cost[at]) / NANO_PER_USD


def _really(warm: Warm, turn: Turn) -> CachedPrompt:
    there = [
        (name, float(min(tokens, turn.tokens))) for name, (tokens, at) in warm.items() if turn.at_ms - at <= LIFETIME_MS
    ]
    return CachedPrompt(dict(there))


def _sent(caches: Caches, warm: Warm, target: Target, tokens: int, at_ms: int, read: int) -> None:
    warm[target.id] = tokens, at_ms
    caches.note(PREFIX, target.id, Usage(cache_read=read, cache_write=tokens - read), at_ms)


def main() -> None:
    places = targets()
    print(f"| price of a failure | first target | {' | '.join(POLICIES)} |\n|---|---|{'--:|' * len(POLICIES)}")
    for price in PRICES:
        for first, place in enumerate(places):
            rng = np.random.default_rng(first)
            sessions = [turns(rng) for _ in range(SESSIONS // len(places))]
            means = [
                np.mean([run(policy, places, each, first, price) for each in sessions]) for policy in POLICIES.values()
            ]
            print(f"| ${price:g} | {place.id} | {' | '.join(f'${mean:.4f}' for mean in means)} |", flush=True)


if __name__ == "__main__":
    main()
