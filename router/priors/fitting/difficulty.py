"""Who passes what: abilities of models for each task, and the difficulty of requests as far as their look shows it.

logit P(model passes prompt) = ability[model, task] - level[set] - difficulty(look), fitted to all sets at once; models
that are in several sets tie them together. Marginal over what a look does not show.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from router.priors.fitting.directions import ridge as regress
from router.priors.fitting.sets import Outcomes
from router.priors.priors import KNOWN, Vector

STEPS = 12
_ABILITY, _TASK, _LEVEL = 0.5, 2.0, 1.0
"""Precision of a model's ability, of each task's against it, and of a set's level, in prompts' worth of evidence."""
_LEAST = 1e-3


class Fit(Struct, frozen=True, eq=False):
    ability: Vector
    """[T, 4], in logits."""
    weights: Vector
    """[L], of standardised looks: what makes prompts of one set harder than others of it."""
    level: Vector
    """[P]: how much harder a set is than its looks within sets tell."""


class Published(Struct, frozen=True):
    """Mean score that a model reached on a set without being in it."""

    part: int
    model: int
    score: float


def fit(scaled: Vector, outcomes: Outcomes, ridge: float, parts: int) -> Fit:
    """`scaled`: standardised looks [n, L]. `ridge`: how firmly weights are held at 0, in prompts' worth of evidence."""
    models, looks = len(outcomes.models), scaled.shape[1]
    weight = 1 / np.sqrt(np.maximum(outcomes.asked.sum(axis=1), 1))
    design = np.hstack([scaled, np.eye(parts)[outcomes.part]])
    held = np.concatenate([np.full(looks, ridge), np.full(parts, _LEVEL)])
    overall, own, weights = np.zeros(models), np.zeros((models, len(KNOWN))), np.zeros(looks + parts)
    for _ in range(STEPS):
        for task in range(len(KNOWN)):
            kept = outcomes.task == task
            pull, precision = _step(outcomes, weight, overall[:, None] + own, design @ weights)
            own[:, task] += (pull[kept].sum(axis=0) - _TASK * own[:, task]) / (precision[kept].sum(axis=0) + _TASK)
        pull, precision = _step(outcomes, weight, overall[:, None] + own, design @ weights)
        overall += (pull.sum(axis=0) - _ABILITY * overall) / (precision.sum(axis=0) + _ABILITY)
        pull, precision = _step(outcomes, weight, overall[:, None] + own, design @ weights)
        hessian = (design * precision.sum(axis=1)[:, None]).T @ design + np.diag(held)
        weights -= np.linalg.solve(hessian, design.T @ pull.sum(axis=1) + held * weights)
    return Fit(overall[:, None] + own, weights[:looks], weights[looks:])


def _step(outcomes: Outcomes, weight: Vector, ability: Vector, hard: Vector) -> tuple[Vector, Vector]:
    """[n, T] each: how far the scores are above what is expected, and how much each says."""
    expected = sigmoid(ability[:, outcomes.task].T - hard[:, None])
    pull = np.where(outcomes.asked, outcomes.score - expected, 0.0)
    precision = np.where(outcomes.asked, np.maximum(expected * (1 - expected), _LEAST), 0.0)
    return pull * weight[:, None], precision * weight[:, None]


def expect(scaled: Vector, outcomes: Outcomes, fitted: Fit) -> Vector:
    """[n, T]: chance that each model passes each prompt of these sets."""
    hard = scaled @ fitted.weights + fitted.level[outcomes.part]
    return sigmoid(fitted.ability[:, outcomes.task].T - hard[:, None])


def equated(scaled: Vector, outcomes: Outcomes, fitted: Fit, published: Sequence[Published]) -> Fit:
    """Sets that have no model in common with others get the level at which published scores of others' models fit.

    Median over these models, each taken at its mean ability over the tasks that it was asked elsewhere.
    """
    ability, level = fitted.ability.copy(), fitted.level.copy()
    elsewhere = np.nanmean(np.where(measured(outcomes), ability, np.nan), axis=1)
    for part in {each.part for each in published}:
        own = outcomes.asked[outcomes.part == part].any(axis=0)
        if (own & outcomes.asked[outcomes.part != part].any(axis=0)).any():
            continue
        hard = (scaled @ fitted.weights + fitted.level[part])[outcomes.part == part]
        gaps = [elsewhere[each.model] - _ability_for(each.score, hard) for each in published if each.part == part]
        ability[own] += np.median(gaps)
        level[part] += np.median(gaps)
    return Fit(ability, fitted.weights, level)


def _ability_for(score: float, hard: Vector) -> float:
    """The ability that passes this share of prompts."""
    return float(constants(hard, np.full((len(hard), 1), score))[0])


def middle(fitted: Fit) -> float:
    """The level of a request that is of no set."""
    return float(np.median(fitted.level))


def between(scaled: Vector, outcomes: Outcomes, fitted: Fit, ridge: float) -> Vector:
    """[L]: weights of the sets' levels against the middle, as far as looks tell sets of different levels apart."""
    weight = 1 / np.bincount(outcomes.part)[outcomes.part]
    root = np.sqrt(weight / weight.mean())
    return regress(scaled * root[:, None], (fitted.level[outcomes.part] - middle(fitted)) * root, ridge)


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
