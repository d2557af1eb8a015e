"""Learning while serving: prompts in random order, and only what the chosen target did is seen.

Of each price of a failure and each order: (a) the policy as it is after so many requests, on prompts held out; (b) what
was really paid, in windows; (c) the sum of what was paid above the best single model in hindsight. (a) and (b) are
shares above that model (0: as good, below 0: better), so exploration is in (b) and (c) but not in (a).
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import numpy as np
from msgspec import Struct

from bench.routing.data import Data
from bench.routing.learner import Learner, read
from bench.routing.metrics import Floats, Ints, best_single
from bench.routing.predicted import PRICES
from router.types.request import Classification
from tools.priors.outcomes import Known

CHECKPOINTS = (300, 1_500)
ORDERS = 5
HELD_OUT = 0.25
MOST_HELD_OUT = 1_000
T95 = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 7: 2.45, 8: 2.36, 9: 2.31, 10: 2.26}
"""Student's t, two-sided 95 %, by number of orders; 2.2 beyond."""


class Estimated(Struct, frozen=True):
    """Mean over orders with its 95 % interval."""

    value: float
    low: float
    high: float


class Learned(Struct, frozen=True):
    """At one price of a failure, by number of requests; the last one is the stream's end if that comes before 1,500."""

    failure_usd: float
    best: str
    """The best single model in hindsight."""
    room: float
    """What an oracle would save of its failure-priced cost."""
    frozen: dict[int, Estimated]
    paid: dict[int, Estimated]
    """In the window that ends there: since the number before."""
    regret_usd: dict[int, Estimated]
    orders: int


def run(
    data: Data,
    *,
    seed: int = 0,
    values: Sequence[float] = PRICES,
    orders: int = ORDERS,
    checkpoints: Sequence[int] = CHECKPOINTS,
    cards: Mapping[str, Known] | None = None,
    advance: Callable[[], None] = lambda: None,
) -> list[Learned]:
    """From the shipped priors. `cards`: what is known of models by their names; None: names say nothing."""
    prompts = data.prompts["prompt"].to_pylist()
    tools = data.prompts["functions"].to_pylist() if "functions" in data.prompts.column_names else None
    seen = read(prompts, tools and [each or "" for each in tools])
    found = []
    for price in values:
        streams = []
        for order in range(orders):
            learner = Learner(data.targets, price, cards)
            streams.append(_stream(data, seen, learner, price, np.random.default_rng([seed, order]), checkpoints))
            advance()
        found.append(_summed(data, price, streams))
    return found


class _Stream(Struct, frozen=True):
    """By checkpoint."""

    frozen: dict[int, float]
    paid: dict[int, float]
    regret: dict[int, float]


def _stream(
    data: Data,
    seen: Sequence[Classification],
    learner: Learner,
    price: float,
    rng: np.random.Generator,
    checkpoints: Sequence[int],
) -> _Stream:
    order = rng.permutation(np.flatnonzero(data.scored))
    held = order[: min(int(len(order) * HELD_OUT), MOST_HELD_OUT)]
    served = order[len(held) :][: max(checkpoints)]
    priced = data.truth.cost + price * (1 - data.truth.score)
    best = best_single(data.truth, price)
    marks = sorted({min(mark, len(served)) for mark in checkpoints})
    paid, frozen = np.zeros(len(served)), {}
    for at, prompt in enumerate(served):
        chosen = learner.play(seen[prompt], data.truth.observed[prompt])
        paid[at] = priced[prompt, chosen]
        learner.learn(chosen, seen[prompt], data.truth.score[prompt, chosen], data.truth.cost[prompt, chosen])
        if at + 1 in marks:
            frozen[at + 1] = _above(_frozen(data, learner, seen, held, priced), priced[held, best])
    usual, starts = float(np.nanmean(priced[:, best])), [0, *marks]
    windows = {end: float(paid[start:end].mean()) / usual - 1 for start, end in pairwise(starts)}
    more = np.cumsum(paid - np.nan_to_num(priced[served, best], nan=usual))
    return _Stream(frozen, windows, {mark: float(more[mark - 1]) for mark in marks})


def _frozen(data: Data, learner: Learner, seen: Sequence[Classification], held: Ints, priced: Floats) -> Floats:
    chosen = [learner.choose(seen[prompt], data.truth.observed[prompt]) for prompt in held]
    found: Floats = priced[held, chosen]
    return found


def _above(paid: Floats, best: Floats) -> float:
    return float(np.nanmean(paid) / np.nanmean(best) - 1)


def _summed(data: Data, price: float, streams: Sequence[_Stream]) -> Learned:
    priced = data.truth.cost[data.scored] + price * (1 - data.truth.score[data.scored])
    best = best_single(data.truth, price)
    return Learned(
        failure_usd=price,
        best=data.targets[best],
        room=float(1 - np.nanmin(priced, axis=1).mean() / np.nanmean(priced[:, best])),
        frozen=_over([stream.frozen for stream in streams]),
        paid=_over([stream.paid for stream in streams]),
        regret_usd=_over([stream.regret for stream in streams]),
        orders=len(streams),
    )


def _over(found: Sequence[Mapping[int, float]]) -> dict[int, Estimated]:
    return {mark: estimated([one[mark] for one in found]) for mark in found[0]}


def estimated(values: Sequence[float]) -> Estimated:
    mean, n = float(np.mean(values)), len(values)
    wide = T95.get(n, 2.2) * float(np.std(values, ddof=1)) / n**0.5 if n > 1 else float("inf")
    return Estimated(mean, mean - wide, mean + wide)
