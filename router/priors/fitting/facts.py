"""What is known of the models in the public sets, beside their outcomes."""

from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path

import msgspec
import numpy as np
import yaml
from msgspec import Struct

from router.priors.ability import BENCHMARKS, Card, facts
from router.priors.fitting.sets import Outcomes
from router.priors.priors import Vector
from router.types.money import nano_from_usd
from router.types.target import Benchmark

_FILE = Path(__file__).parents[1] / "models.yaml"
_SCORES = {
    "mmlupro": Benchmark.MMLU_PRO,
    "routellm_dev": Benchmark.MMLU,
    "frontier_2026a_dev": Benchmark.SIMPLEQA,
}
"""Sets whose mean score is a benchmark's."""


class Known(Struct, frozen=True, forbid_unknown_fields=True):
    """Sizes in billions of parameters, price in USD per million output tokens, thinking in tokens."""

    names: tuple[str, ...]
    active: float | None = None
    total: float | None = None
    price: Decimal | None = None
    context: int | None = None
    thinking: int = 0
    base: bool = False
    scores: dict[str, float] = {}


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    sources: dict[str, str]
    models: dict[str, Known]


def read() -> Mapping[str, Known]:
    return msgspec.convert(yaml.safe_load(_FILE.read_text("utf-8")), _File).models


def aliases(known: Mapping[str, Known]) -> dict[str, str]:
    """Name in a set → one name for each model."""
    return {name: model for model, row in known.items() for name in row.names}


def rows(known: Mapping[str, Known], ability: Vector, models: tuple[str, ...], scores: Vector) -> Vector:
    """[n, 4 + F]: what is known of models that a gateway could call. `ability` [T, 4], `scores` [T, B]."""
    found = [
        np.concatenate([ability[at], facts(_card(known[model], scores[at]))])
        for at, model in enumerate(models)
        if model in known and not known[model].base
    ]
    return np.array(found)


def _card(row: Known, scores: Vector) -> Card:
    measured = {name: float(score) for name, score in zip(BENCHMARKS, scores, strict=True) if not np.isnan(score)}
    told = {_SCORES[part]: score for part, score in row.scores.items()}
    rate = None if row.price is None else nano_from_usd(row.price)
    return Card(told | measured, row.active, row.total, rate, row.context, row.thinking)


def scores(outcomes: Outcomes, masks: Mapping[str, Vector], least: int = 100) -> Vector:
    """[T, B]: each model's mean score of each of `BENCHMARKS`. `masks`: benchmark → which prompts are its."""
    table = np.full((len(outcomes.models), len(BENCHMARKS)), np.nan)
    for column, name in enumerate(BENCHMARKS):
        inside = outcomes.score[masks[name].astype(bool)]
        enough = (~np.isnan(inside)).sum(axis=0) >= least
        table[enough, column] = np.nanmean(inside[:, enough], axis=0)
    return table
