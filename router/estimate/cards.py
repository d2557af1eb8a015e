"""Card → ability: what a target that was never seen can do, from the facts that are known of it."""

from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from io import BytesIO
from math import log, log2
from pathlib import Path
from typing import NamedTuple
from zipfile import BadZipFile

import numpy as np

from router.errors import LowpassError
from router.types.forecast import Vector
from router.types.money import NANO_PER_USD
from router.types.price import WORST_CASE
from router.types.target import Benchmark, Contract, Target
from router.types.task import Task

KNOWN = (Task.MATHS, Task.CODE, Task.FACTUAL, Task.REASONING)
"""Tasks of which there are public outcomes: abilities are known for each of them."""
BENCHMARKS = tuple(Benchmark)
FACTS = (*BENCHMARKS, "active", "total", "price", "context", "thinking")
ABILITIES = len(KNOWN)
FOLDER = Path(__file__).parent / "data"
ARRAYS, MANIFEST = "cards.npz", "cards.json"
FORMAT = 1
_LEAST_SCORE = 0.02
_USUAL_EFFORT = "medium"
"""What a model that thinks does where nobody says how much."""


class CardsError(LowpassError):
    """The data that tells abilities from cards is missing or damaged."""


class Ability(NamedTuple):
    """In each of `KNOWN`, in logits against the usual target, which has 0: what is expected, and how sure that is."""

    mean: Vector
    """[4]."""
    covariance: Vector
    """[4, 4]."""


class Cards(NamedTuple):
    """A joint normal distribution of abilities and facts [4 + F], over models."""

    mean: Vector
    covariance: Vector
    version: str = ""


class Card(NamedTuple):
    """None: not known."""

    scores: Mapping[Benchmark, float]
    active_b: float | None = None
    parameters_b: float | None = None
    rate: int | None = None
    """List price of a million output tokens, in nano-USD."""
    context: int | None = None
    thinking: int | None = None
    """Typical tokens of thinking at its effort."""


def card(target: Target) -> Card:
    model, price = target.model, target.model.price
    rate = price.output if price is not None and price != WORST_CASE and not target.local else None
    return Card(
        scores=model.scores,
        active_b=model.active_b,
        parameters_b=model.parameters_b,
        rate=rate,
        context=model.context,
        thinking=thinking(target),
    )


def thinking(target: Target) -> int:
    """Tokens that the card has for the target's effort; 0 for what does not think."""
    known = target.model.thinking
    if known.contract is Contract.NONE or not known.levels:
        return 0
    level = target.effort or (_USUAL_EFFORT if _USUAL_EFFORT in known.levels else known.levels[-1])
    return dict(zip(known.levels, known.tokens, strict=False)).get(level, 0)


def facts(card: Card) -> Vector:
    """[F], NaN where nothing is known."""
    row = [_logit(card.scores.get(name)) for name in BENCHMARKS]
    row += [
        _log(card.active_b or card.parameters_b),
        _log(card.parameters_b),
        _log(card.rate and card.rate / NANO_PER_USD),
    ]
    row += [_log(card.context), np.nan if card.thinking is None else log2(1 + card.thinking / 1_000)]
    return np.array(row, dtype=np.float64)


def condition(mean: Vector, covariance: Vector, known: Vector) -> Ability:
    """The first `ABILITIES` of a joint Gaussian, given those of the others that are not NaN."""
    at = ABILITIES + np.flatnonzero(~np.isnan(known))
    gain = np.linalg.solve(covariance[np.ix_(at, at)], covariance[at, :ABILITIES]).T
    expected = mean[:ABILITIES] + gain @ (known[at - ABILITIES] - mean[at])
    return Ability(expected, covariance[:ABILITIES, :ABILITIES] - gain @ covariance[at, :ABILITIES])


def _log(value: float | None) -> float:
    return log(value) if value else np.nan


def _logit(score: float | None) -> float:
    if score is None:
        return np.nan
    kept = min(max(score, _LEAST_SCORE), 1 - _LEAST_SCORE)
    return log(kept / (1 - kept))


def ability(cards: Cards, known: Card) -> Ability:
    """What is expected of a model with such a card."""
    return condition(cards.mean, cards.covariance, facts(known))


@cache
def load() -> Cards:
    """What ships with lowpass. Raises `CardsError`."""
    path = FOLDER / ARRAYS
    try:
        data = path.read_bytes()
        with np.load(BytesIO(data), allow_pickle=False) as arrays:
            return Cards(arrays["mean"], arrays["covariance"], sha256(data).hexdigest()[:16])
    except (OSError, ValueError, KeyError, EOFError, BadZipFile) as problem:
        raise CardsError(f"{path} can't be read ({type(problem).__name__}): install lowpass again") from problem
