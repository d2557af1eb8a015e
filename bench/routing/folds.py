"""Which prompts are learned from, and which are predicted."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bench.routing.data import Data
from bench.routing.metrics import Ints
from bench.routing.tables import wrong

FOLDS = 5


class Fold(NamedTuple):
    """Indices of prompts."""

    name: str
    train: Ints
    test: Ints


def kfold(data: Data, seed: int, labels: int | None = None) -> list[Fold]:
    """Five folds, random by prompt; with `labels`, one split: so many prompts to learn from, the rest to predict."""
    n = len(data.prompts)
    order = np.random.default_rng(seed).permutation(n)
    if labels is not None:
        if labels >= n:
            wrong("--labels", f"{labels} leaves nothing to predict", f"{data.name} has {n} prompts: give fewer")
        return [Fold(f"{labels} labels", np.sort(order[:labels]), np.sort(order[labels:]))]
    if n < FOLDS:
        wrong(data.name, f"has {n} prompts, fewer than the {FOLDS} folds", "give more")
    parts = np.array_split(order, FOLDS)
    return [Fold(f"fold {k + 1}", np.setdiff1d(order, part), np.sort(part)) for k, part in enumerate(parts)]


def held_out(data: Data, seed: int, labels: int | None = None) -> list[Fold]:
    """A fold a benchmark; where there is one, a category, or of two models a fifth of the categories, since a share of
    calls means little within one. `labels` bounds what is learned from."""
    groups = data.benchmarks if distinct(data.benchmarks) > 1 else data.categories
    if distinct(groups) < 2:
        wrong(data.name, "has one benchmark and no categories, so none can be left out", "use --protocol kfold")
    rng, every = np.random.default_rng(seed), np.arange(len(groups))
    names, folds = sorted(set(groups)), []
    parts = np.array_split(rng.permutation(names), FOLDS) if _many(data) else [[name] for name in names]
    for part in parts:
        out = np.isin(groups.astype(str), [str(name) for name in part])
        train = every[~out]
        if labels is not None and labels < len(train):
            train = np.sort(rng.choice(train, labels, replace=False))
        folds.append(Fold(", ".join(map(str, part)) or "without a label", train, every[out]))
    return folds


def grouping(data: Data) -> str:
    """What `held_out` leaves out."""
    if distinct(data.benchmarks) > 1:
        return "one benchmark"
    return "a fifth of the categories" if _many(data) else "one category"


def _many(data: Data) -> bool:
    """Two models, and enough categories of one benchmark."""
    return len(data.targets) == 2 and distinct(data.benchmarks) == 1 and distinct(data.categories) >= 2 * FOLDS


def distinct(labels: NDArray[np.object_]) -> int:
    return len(set(labels))
