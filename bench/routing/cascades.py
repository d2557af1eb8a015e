"""Cheap first, checked by a verifier that is always right, then another: what that saves against the best single model.

Of each prompt the cheapest of all single targets and ordered pairs is chosen by what is believed of them, so a pair is
asked only where it is expected to pay. Failures go together as `router.decide.worth` says.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from msgspec import Struct

from bench.routing.bootstrap import Interval, bounds, draw
from bench.routing.data import Data
from bench.routing.learner import Learner, read
from bench.routing.metrics import Floats, Ints, Truth, best_single
from bench.routing.online import ORDERS, Estimated, estimated
from router.decide.worth import RHO, both_pass, cascade_value
from router.types.attempt import PASSED
from router.types.price import NANO_PER_USD
from router.types.request import Classification
from tools.priors.outcomes import Known

ALONE = -1
"""In the place of a second target."""
LEAST_RIGHT, MOST_RIGHT = 0.01, 0.99
HOPE = 0.5
"""Of what is not known of a second target so much counts in its favour while learning: its failure is seen too late."""


class Pairs(Struct, frozen=True, eq=False):
    """[n] each: first and second target; `ALONE` where no second one is to be asked."""

    first: Ints
    second: Ints


class Cascaded(Struct, frozen=True):
    """Failure-priced cost over the best single model's, less 1."""

    failure_usd: float
    best: str
    router: Interval
    """Chosen by prompt."""
    fixed: float
    """The best pair in hindsight, the same for all prompts."""
    paired: float
    """Share of prompts that had a pair."""
    right: float
    """Accuracy; of the best single model `right_single`."""
    right_single: float


class LearnedPairs(Struct, frozen=True):
    """Online: `paid` by number of requests, in the window that ends there, over the best single model's, less 1."""

    failure_usd: float
    best: str
    paid: dict[int, Estimated]
    orders: int


def choose(p: Floats, cost: Floats, price: float, rho: float = RHO) -> Pairs:
    """By what is believed [n, T]; a pair only where it is cheaper than every single target."""
    first, second = np.empty(len(p), np.intp), np.empty(len(p), np.intp)
    for row, (chance, usd) in enumerate(zip(np.clip(p, LEAST_RIGHT, MOST_RIGHT), cost, strict=True)):
        first[row], second[row] = _choose(chance, chance, usd, price, rho)
    return Pairs(first, second)


def _choose(p: Floats, hoped: Floats, cost: Floats, price: float, rho: float) -> tuple[int, int]:
    """`hoped`: chances that count for a first target, whose failure is seen and costs no more than its price."""
    alone = cost + price * (1 - p)
    pairs = _pairs(p, hoped, cost, price, rho)
    flat = pairs.reshape(*pairs.shape[:-2], -1).argmin(axis=-1)
    row, column = np.unravel_index(flat, pairs.shape[-2:])
    single = int(alone.argmin())
    return (int(row), int(column)) if pairs[row, column] < alone[single] else (single, ALONE)


def _pairs(p: Floats, hoped: Floats, cost: Floats, price: float, rho: float) -> Floats:
    if hoped is p:
        value = cascade_value(cost, p, rho=rho)
        return value.cost + price * (1 - value.p)
    rescued = p[None, :] - both_pass(hoped[:, None], p[None, :], rho)
    right, wrong = hoped[:, None] + rescued, 1 - hoped[:, None]
    found: Floats = cost[:, None] + wrong * cost[None, :] + price * (1 - right)
    return np.where(np.eye(len(p), dtype=bool), np.inf, found)


def paid(truth: Truth, pairs: Pairs, price: float) -> tuple[Floats, Floats]:
    """Failure-priced cost and score [n] of what was chosen."""
    rows = np.arange(len(pairs.first))
    cost, score = truth.cost[rows, pairs.first], truth.score[rows, pairs.first]
    asked = (pairs.second != ALONE) & (score < PASSED)
    cost = cost + np.where(asked, truth.cost[rows, pairs.second], 0.0)
    score = np.where(asked, truth.score[rows, pairs.second], score)
    return cost + price * (1 - score), score


def cascaded(
    truth: Truth,
    p: Floats,
    cost: Floats,
    targets: Sequence[str],
    *,
    price: float = 1.0,
    rho: float = RHO,
    seed: int = 0,
) -> Cascaded:
    """Of predictions made without these prompts. NaN outcomes: drop those prompts before."""
    pairs = choose(p, cost, price, rho)
    router, right = paid(truth, pairs, price)
    best = best_single(truth, price)
    single = truth.cost[:, best] + price * (1 - truth.score[:, best])
    weights = draw(len(single), seed=seed)
    return Cascaded(
        failure_usd=price,
        best=targets[best],
        router=bounds(float(router.mean() / single.mean() - 1), weights @ router / (weights @ single) - 1),
        fixed=_fixed(truth, price) / float(single.mean()) - 1,
        paired=float((pairs.second != ALONE).mean()),
        right=float(right.mean()),
        right_single=float(truth.score[:, best].mean()),
    )


def _fixed(truth: Truth, price: float) -> float:
    wrong = (truth.score < PASSED).astype(float)
    last = truth.cost + price * (1 - truth.score)
    first = truth.cost + np.where(wrong > 0, 0.0, price * (1 - truth.score))
    pairs = first.mean(axis=0)[:, None] + wrong.T @ last / len(wrong)
    np.fill_diagonal(pairs, np.inf)
    return float(min(pairs.min(), last.mean(axis=0).min()))


def run(
    data: Data,
    *,
    price: float = 1.0,
    seed: int = 0,
    orders: int = ORDERS,
    checkpoints: Sequence[int] = (300, 1_500),
    cards: Mapping[str, Known] | None = None,
    advance: Callable[[], None] = lambda: None,
) -> LearnedPairs:
    """Online, from the shipped priors: what a chosen target did is seen of it alone, of a pair of whoever was asked."""
    tools = data.prompts["functions"].to_pylist() if "functions" in data.prompts.column_names else None
    seen = read(data.prompts["prompt"].to_pylist(), tools and [each or "" for each in tools])
    best = best_single(data.truth, price)
    usual = float(np.nanmean(data.truth.cost[:, best] + price * (1 - data.truth.score[:, best])))
    found = []
    for order in range(orders):
        learner = Learner(data.targets, price, cards)
        served = np.random.default_rng([seed, order]).permutation(np.flatnonzero(data.scored))[: max(checkpoints)]
        spent = np.array([_serve(data.truth, int(prompt), seen[prompt], learner) for prompt in served])
        ends = sorted({min(mark, len(spent)) for mark in checkpoints})
        found.append(
            {end: float(spent[start:end].mean()) / usual - 1 for start, end in zip([0, *ends], ends, strict=False)}
        )
        advance()
    return LearnedPairs(
        price, data.targets[best], {end: estimated([one[end] for one in found]) for end in found[0]}, orders
    )


def _serve(truth: Truth, prompt: int, seen: Classification, learner: Learner) -> float:
    """What was paid. A first target is chosen with hope: that it failed is seen, and then another is asked."""
    forecast, price = learner.meet(seen), learner.failure_usd
    p, cost = np.clip(forecast.p, LEAST_RIGHT, MOST_RIGHT), forecast.cost / NANO_PER_USD
    known = truth.observed[prompt]
    cost = np.where(known, cost, np.inf)
    own = forecast.p_own_sd
    apart = np.hypot(own, own[int(p.argmax())])
    hoped, second_hoped = (np.clip(p + share * apart, LEAST_RIGHT, MOST_RIGHT) for share in (1.0, HOPE))
    first, second = _choose(second_hoped, hoped, cost, price, RHO)
    score, usd = truth.score[prompt], truth.cost[prompt]
    learner.learn(first, seen, score[first], usd[first])
    if second == ALONE or score[first] >= PASSED:
        return float(usd[first] + price * (1 - score[first]))
    likely = (p[second] - float(both_pass(p[first], p[second]))) / (1 - p[first])
    learner.learn_after(second, seen, score[second], usd[second], likely)
    return float(usd[first] + usd[second] + price * (1 - score[second]))
