"""Who passes what: abilities of models for each task, and the difficulty of requests as far as their look shows it.

logit P(model passes prompt) = ability[model, task] - difficulty(look), fitted to the outcomes of all sets at once, so
that models that are in several sets tie them together. Marginal over what a look does not show.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from router.priors.fitting.sets import Outcomes
from router.priors.priors import KNOWN, Vector

STEPS = 12
_ABILITY, _TASK = 0.5, 2.0
"""Precision of a model's ability, and of each task's against it, in prompts' worth of evidence."""
_LEAST = 1e-3


class Fit(Struct, frozen=True, eq=False):
    ability: Vector
    """[T, 4], in logits."""
    weights: Vector
    """[L], of standardised looks."""


class Published(Struct, frozen=True):
    """Mean scores that models reached on a set without being in it: they tie its level to the others'."""

    part: int
    model: int
    score: float


def fit(scaled: Vector, outcomes: Outcomes, ridge: float, published: Sequence[Published] = ()) -> Fit:
    """`scaled`: standardised looks [n, L]. `ridge`: how firmly weights are held at 0, in prompts' worth of evidence."""
    models = len(outcomes.models)
    weight = 1 / np.sqrt(np.maximum(outcomes.asked.sum(axis=1), 1))
    overall, own, weights = np.zeros(models), np.zeros((models, len(KNOWN))), np.zeros(scaled.shape[1])
    for _ in range(STEPS):
        for task in range(len(KNOWN)):
            kept = outcomes.task == task
            pull, precision = _step(scaled, outcomes, weight, overall[:, None] + own, weights, published)
            own[:, task] += (pull[kept].sum(axis=0) - _TASK * own[:, task]) / (precision[kept].sum(axis=0) + _TASK)
        pull, precision = _step(scaled, outcomes, weight, overall[:, None] + own, weights, published)
        overall += (pull.sum(axis=0) - _ABILITY * overall) / (precision.sum(axis=0) + _ABILITY)
        pull, precision = _step(scaled, outcomes, weight, overall[:, None] + own, weights, published)
        hessian = (scaled * precision.sum(axis=1)[:, None]).T @ scaled + ridge * np.eye(len(weights))
        weights -= np.linalg.solve(hessian, scaled.T @ pull.sum(axis=1) + ridge * weights)
    return Fit(overall[:, None] + own, weights)


def _step(
    scaled: Vector, outcomes: Outcomes, weight: Vector, ability: Vector, weights: Vector, published: Sequence[Published]
) -> tuple[Vector, Vector]:
    """[n, T] each: how far the scores are above what is expected, and how much each says."""
    expected = expect(scaled, outcomes, Fit(ability, weights))
    pull = np.where(outcomes.asked, outcomes.score - expected, 0.0)
    precision = np.where(outcomes.asked, np.maximum(expected * (1 - expected), _LEAST), 0.0)
    for each in published:
        rows = outcomes.part == each.part
        if rows.any():
            column = expected[rows, each.model]
            pull[rows, each.model] = each.score - column.mean()
            precision[rows, each.model] = np.maximum(column * (1 - column), _LEAST)
    return pull * weight[:, None], precision * weight[:, None]


def expect(scaled: Vector, outcomes: Outcomes, fitted: Fit) -> Vector:
    """[n, T]: chance that each model passes each prompt."""
    return sigmoid(fitted.ability[:, outcomes.task].T - (scaled @ fitted.weights)[:, None])


def constants(difficulty: Vector, score: Vector) -> Vector:
    """[T]: the ability of each model, where only the difficulty [n] of prompts is known."""
    asked = ~np.isnan(score)
    ability = np.zeros(score.shape[1])
    for _ in range(20):
        expected = sigmoid(ability - difficulty[:, None])
        pull = np.where(asked, score - expected, 0).sum(axis=0)
        ability += pull / (np.where(asked, expected * (1 - expected), 0).sum(axis=0) + 0.5)
    return ability


def calibration_error(expected: Vector, score: Vector, bins: int = 15) -> float:
    """Expected calibration error over bins of equal size; NaN scores don't count."""
    kept = ~np.isnan(score)
    order = np.argsort(expected[kept])
    parts = np.array_split(order, bins)
    gaps = (abs(float((expected[kept][part] - score[kept][part]).mean())) * len(part) for part in parts if len(part))
    return sum(gaps) / max(len(order), 1)


def log_loss(expected: Vector, score: Vector) -> float:
    kept = ~np.isnan(score)
    likely, right = np.clip(expected[kept], 1e-6, 1 - 1e-6), score[kept]
    return float(-(right * np.log(likely) + (1 - right) * np.log(1 - likely)).mean())


def sigmoid(logit: Vector) -> Vector:
    return np.asarray(1 / (1 + np.exp(-logit)))


def measured(outcomes: Outcomes, least: int = 30) -> NDArray[np.bool_]:
    """[T, 4]: whether a model was asked enough of a task for its ability there to be known."""
    asked = outcomes.asked
    counts = [asked[outcomes.task == task].sum(axis=0) for task in range(len(KNOWN))]
    return np.stack(counts, axis=1) >= least


def published(rows: Mapping[str, Mapping[str, float]], outcomes: Outcomes, parts: Mapping[str, int]) -> list[Published]:
    """`rows`: model → set → mean score. Models and sets that are not here are left out."""
    at = {model: index for index, model in enumerate(outcomes.models)}
    return [
        Published(parts[part], at[model], score)
        for model, scores in rows.items()
        for part, score in scores.items()
        if model in at and part in parts
    ]
