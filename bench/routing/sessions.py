"""What caches are worth in sessions of ten turns: `python -m bench.routing.sessions [SESSIONS]`.

The first target of a session has its prompt of 20,000 tokens in the cache. Each turn asks something else (the anchors
that only test), and is charged as the providers would: what a target was sent within five minutes is read from its
cache, all else is written. Compared are choices that know of the caches, choices that do not, and always staying; once
all of a fleet's sessions are of one template, so that it is learned how long they get, and once each has its own. The
ceiling is the cheapest way through all ten turns, were they known beforehand.
"""

import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from msgspec import structs

from bench.routing.everyday import CAUTION, classified, four_targets
from router.config.load import load_policy
from router.decide.weigh import DecisionInput, excluded, expected_loss, for_later
from router.estimate.caches import COLD, LIFETIME_MS, CachedPrompt, Caches
from router.estimate.forecast import Forecaster, ForecastInput
from router.estimate.learn import TargetStats
from router.estimate.pass_rate import PassRateModel
from router.types.attempt import Usage
from router.types.decision import CachePrefix, Forecast, Objective
from router.types.price import NANO_PER_USD, Price
from router.types.request import Classification, Request
from router.types.target import Target
from tools.anchors.anchors import load

SESSIONS, TURNS = 24, 10
"""Sessions of a first target at a price."""
CACHED, GROWTH = 20_000, 600
"""Tokens of the first prompt, and by how many each turn is longer."""
PAUSE_MS = (5_000, 90_000)
PRICES = (0.01, 0.05, 0.25, 1.0)
"""USD, of a wrong answer."""
CACHE_READ, CACHE_WRITE = 0.1, 1.25
"""Of the price of other input."""
FLEETS = {
    "far": ("openai/gpt-5-nano", "openai/gpt-5.4-mini", "anthropic/claude-sonnet-4-6", "openai/gpt-5.4"),
    "near": (
        *("openai/gpt-5-mini", "anthropic/claude-haiku-4-5"),
        *("gemini/gemini-2.5-flash", "anthropic/claude-sonnet-4-5"),
    ),
    "wide": ("openai/gpt-5.4-nano", "anthropic/claude-haiku-4-5", "anthropic/claude-opus-4-6", "openai/gpt-5.2"),
}
"""Of the catalog: some far from each other, some nearly as good, and some of very different prices."""
POLICIES = ("stays", "without caches", "each its own template", "one template")
CEILING = "all turns foreseen"
WAYS = 100
"""Through a session that are followed from turn to turn, the cheapest so far."""


class Turn(NamedTuple):
    request: Request
    seen: Classification
    tokens: int
    at_ms: int


def fleets() -> Iterator[tuple[str, tuple[Target, ...]]]:
    yield "made up", made_up()
    for name, models in FLEETS.items():
        targets = {model.partition("/")[2]: {"model": model, "api_key": "none"} for model in models}
        routes = {"auto": {"strategy": {"kind": "cost_of_pass", "targets": list(targets)}, "failure_cost_usd": 1}}
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write(json.dumps({"version": 1, "targets": targets, "routes": routes}))
            file.flush()
            yield name, tuple(load_policy(Path(file.name)).targets.values())


def made_up() -> tuple[Target, ...]:
    """Four, with prices of caches."""
    priced = []
    for target in four_targets():
        price = target.model.price or Price(input=0, output=0, version="")
        read, write = round(price.input * CACHE_READ), round(price.input * CACHE_WRITE)
        model = structs.replace(target.model, price=structs.replace(price, cache_read=read, cache_write=write))
        priced.append(structs.replace(target, model=model))
    return tuple(priced)


@cache
def asked() -> list[tuple[Request, Classification]]:
    requests = [anchor.request() for anchor in load("test")]
    return [(request, classified(request)) for request in requests]


def turns(rng: np.random.Generator) -> list[Turn]:
    session, at_ms = [], 1_000_000
    for number in range(TURNS):
        request, seen = asked()[rng.integers(len(asked()))]
        tokens = CACHED + GROWTH * (number + 1)
        request = structs.replace(request, prompt_bytes=tokens * 4, dense_bytes=0, caches=True)
        session.append(Turn(request, seen, tokens, at_ms))
        at_ms += int(rng.integers(*PAUSE_MS))
    return session


class Gateway:
    """That chooses by one of the `POLICIES`."""

    def __init__(self, policy: str, places: tuple[Target, ...]) -> None:
        self.policy, self.places, self.caches, self.sessions = policy, places, Caches(), 0
        self.forecaster = Forecaster(places, TargetStats(), PassRateModel(places))

    def run(self, session: Sequence[Turn], first: int, price: float) -> float:
        """USD that a session costs, wrong answers included."""
        self.sessions += 1
        template = f"{1 if self.policy == POLICIES[3] else self.sessions:024x}"[::-1]  # begins with its application
        prefix, warm = CachePrefix(self.sessions, template, 0.0), dict[str, tuple[int, int]]()
        total, stakes = 0.0, Objective(failure_nano=round(price * NANO_PER_USD))
        self._sent(prefix, warm, first, CACHED, session[0].at_ms - 1_000)
        for turn in session:
            at = first if self.policy == POLICIES[0] else self._choose(prefix, turn, stakes)
            there = {name: float(tokens) for name, (tokens, at_ms) in warm.items() if turn.at_ms - at_ms <= LIFETIME_MS}
            forecast = self._forecast(turn, CachedPrompt(there))
            total += float(forecast.cost[at]) / NANO_PER_USD + price * (1 - float(forecast.p[at]))
            self._sent(prefix, warm, at, turn.tokens, turn.at_ms, int(there.get(self.places[at].id, 0.0)))
        return total

    def foreseen(self, session: Sequence[Turn], first: int, price: float) -> float:
        """USD of the cheapest way through a session."""
        ways = [(0.0, {first: (CACHED, session[0].at_ms - 1_000)})]
        for turn in session:
            cold, warm = (
                self._forecast(turn, CachedPrompt({place.id: tokens for place in self.places})).cost / NANO_PER_USD
                for tokens in (0.0, float(CACHED))
            )
            each = cold + price * (1 - self._forecast(turn, COLD).p)
            following = []
            for spent, sent in ways:
                for at, saved in enumerate((cold - warm) / CACHED):
                    tokens, at_ms = sent.get(at, (0, 0))
                    read = tokens if turn.at_ms - at_ms <= LIFETIME_MS else 0
                    way = sent | {at: (turn.tokens, turn.at_ms)}
                    following.append((spent + float(each[at] - saved * read), way))
            ways = sorted(following, key=lambda way: way[0])[:WAYS]
        return ways[0][0]

    def _choose(self, prefix: CachePrefix, turn: Turn, stakes: Objective) -> int:
        knows = self.policy != POLICIES[1]
        cached = self.caches.expected(prefix, turn.tokens, turn.at_ms) if knows else COLD
        forecast = for_later(self._forecast(turn, cached), stakes)
        given = DecisionInput(targets=self.places, forecast=forecast, classification=turn.seen, stakes=stakes, draw=0)
        return expected_loss(given, excluded(given, CAUTION), CAUTION).best

    def _forecast(self, turn: Turn, cached: CachedPrompt) -> Forecast:
        return self.forecaster.forecast(self.places, ForecastInput(turn.request, turn.seen, turn.at_ms, cached))

    def _sent(
        self, prefix: CachePrefix, warm: dict[str, tuple[int, int]], at: int, tokens: int, at_ms: int, read: int = 0
    ) -> None:
        name = self.places[at].id
        warm[name] = tokens, at_ms
        self.caches.note(prefix, [(name, Usage(cache_read=read, cache_write=tokens - read))], at_ms)


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else SESSIONS
    better = "against the better of the first two"
    print(f"| fleet | price of a failure | first target | {' | '.join((*POLICIES, CEILING))} | {better} |")
    print(f"|---|---|---|{'--:|' * (len(POLICIES) + 2)}")
    rows = []
    for fleet, places in fleets():
        for price in PRICES:
            for first, place in enumerate(places):
                rng = np.random.default_rng(first)
                sessions = [turns(rng) for _ in range(count)]
                gateways = [Gateway(policy, places) for policy in POLICIES]
                rows.append([np.mean([gateway.run(each, first, price) for each in sessions]) for gateway in gateways])
                rows[-1].append(np.mean([gateways[0].foreseen(each, first, price) for each in sessions]))
                stays, without, *ours = rows[-1]
                shares = ", ".join(f"{mean / min(stays, without) - 1:+.1%}" for mean in ours)
                means = " | ".join(f"${mean:.4f}" for mean in rows[-1])
                print(f"| {fleet} | ${price:g} | {place.id} | {means} | {shares} |", flush=True)
    stays, without, *ours = np.array(rows).T
    for name, own in zip((*POLICIES[2:], CEILING), ours, strict=True):
        worst = (own / np.minimum(stays, without)).max() - 1
        against = [f"{(own / others).mean() - 1:+.1%}" for others in (stays, without)]
        print(f"{name}: {against[0]} against staying, {against[1]} against choices without caches; worst {worst:+.1%}")


if __name__ == "__main__":
    main()
