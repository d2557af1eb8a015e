"""Abilities of models and difficulties of kinds of questions, what a model's card tells of its abilities, and thinking.

logit P(model is right) = ability[model, task] − difficulty[label]; models that were asked several sets tie them.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from router.estimate.pass_rate import ABILITIES, BENCHMARKS, FACTS, KNOWN, Card, condition, depth, facts, logit
from router.types.target import Benchmark, Task
from tools.priors.outcomes import Known, Sets, Vector, tasks_known

STEPS = 60
OVERALL_WEIGHT, TASK_WEIGHT, LABEL_WEIGHT = 0.5, 2.0, 0.2
"""Precision of a model's ability, of each task's against it, and of a label's difficulty around the mean."""
MOST_QUESTIONS = 100
"""A label's questions count as at most so many: beyond it is the same again."""
CARD_STEPS = 200
CARD_PRIOR = 4.0
"""Models' worth of belief that facts of a card have nothing to do with each other."""
_LEAST = 1e-3
WRITING = (Benchmark.SWE_BENCH_VERIFIED, Benchmark.AIDER_POLYGLOT)
MEASURES = dict.fromkeys((*WRITING, Benchmark.CRUX), Task.CODE)
MEASURES |= {Benchmark.MATH_L5: Task.MATHS, Benchmark.SIMPLEQA: Task.FACTUAL}
"""What scores are of; the others' are of reasoning."""
PARTICULAR = 0.07
"""Variance of an ability to write code that is a benchmark's own: by what two of them don't agree on."""


def fit(sets: Sets, known: dict[str, Known]) -> tuple[Vector, Vector]:
    """Abilities [models, 4] and difficulties [labels], in logits; the mean model that can be called has ability 0."""
    right = np.stack([label.right for label in sets.labels])
    weight = np.stack([np.minimum(label.asked, MOST_QUESTIONS) for label in sets.labels])
    task = np.array([KNOWN.index(label.task) for label in sets.labels])
    models = len(sets.models)
    overall, own, hard = np.zeros(models), np.zeros((models, len(KNOWN))), np.zeros(len(sets.labels))
    for _ in range(STEPS):
        pull, precision = _step(right, weight, (overall[:, None] + own)[:, task].T, hard)
        overall += (pull.sum(axis=0) - OVERALL_WEIGHT * overall) / (precision.sum(axis=0) + OVERALL_WEIGHT)
        for index in range(len(KNOWN)):
            of_task = task == index
            pull, precision = _step(right, weight, (overall[:, None] + own)[:, task].T, hard)
            own[:, index] += (pull[of_task].sum(axis=0) - TASK_WEIGHT * own[:, index]) / (
                precision[of_task].sum(axis=0) + TASK_WEIGHT
            )
        pull, precision = _step(right, weight, (overall[:, None] + own)[:, task].T, hard)
        hard -= (pull.sum(axis=1) + LABEL_WEIGHT * hard) / (precision.sum(axis=1) + LABEL_WEIGHT)
    ability = overall[:, None] + own
    _equate(sets, known, ability, hard)
    called = [at for at, model in enumerate(sets.models) if model in known and not known[model].base]
    middle = float(ability[called].mean())
    return ability - middle, hard - middle


def _step(right: Vector, weight: Vector, ability: Vector, hard: Vector) -> tuple[Vector, Vector]:
    expected = 1 / (1 + np.exp(hard[:, None] - ability))
    return weight * (right - expected), weight * np.maximum(expected * (1 - expected), _LEAST)


def _equate(sets: Sets, known: dict[str, Known], ability: Vector, hard: Vector) -> None:
    """A set whose models are in no other gets the difficulty at which published scores of others' models fit."""
    asked = np.stack([label.asked > 0 for label in sets.labels])
    for prefix, name in (("simpleqa/", "frontier_2026a_dev"), ("mmlu/", "routellm_dev")):
        own = np.array([label.name.startswith(prefix) for label in sets.labels])
        models = asked[own].any(axis=0)
        if not own.any() or (models & asked[~own].any(axis=0)).any():
            continue
        gaps = []
        for at, model in enumerate(sets.models):
            score = known[model].scores.get(name) if model in known else None
            if score is not None and not models[at]:
                gaps.append(float(ability[at].mean()) - (np.log(score / (1 - score)) + float(hard[own].mean())))
        if gaps:
            hard[own] += np.median(gaps)
            ability[models] += np.median(gaps)


def known_only(sets: Sets, ability: Vector) -> Vector:
    """NaN where a model was not asked enough of a task."""
    return np.where(tasks_known(sets.labels, len(sets.models)), ability, np.nan)


def fit_cards(rows: Vector, steps: int = CARD_STEPS) -> tuple[Vector, Vector]:
    """Mean [V] and covariance [V, V] of a joint Gaussian of `rows` [n, V], NaN where not known, by expectation
    maximisation."""
    told: NDArray[np.bool_] = ~np.isnan(rows)
    count = np.maximum(told.sum(axis=0), 1)
    mean = np.where(told, rows, 0).sum(axis=0) / count
    variance = np.maximum((np.where(told, rows - mean, 0) ** 2).sum(axis=0) / count, 0.05)
    covariance = np.diag(variance)
    for _ in range(steps):
        filled, spread = zip(*(_fill(mean, covariance, row) for row in rows), strict=True)
        complete = np.array(filled)
        mean = complete.mean(axis=0)
        apart = complete - mean
        covariance = apart.T @ apart + np.sum(spread, axis=0) + CARD_PRIOR * np.diag(variance)
        covariance /= len(rows) + CARD_PRIOR
    return mean, covariance


def add_writing(mean: Vector, covariance: Vector, published: Sequence[Card], helped: Vector) -> None:
    """In place: scores of written code become a line of the ability in code, with noise, by what the rest of the same
    cards says of that ability. What is expected by cards without such scores stays as it was."""
    code, rows = KNOWN.index(Task.CODE), np.array([facts(card, helped) for card in published])
    columns = [BENCHMARKS.index(name) for name in WRITING]
    scores = rows[:, columns].T
    rows[:, columns] = np.nan
    expected = np.array([condition(mean, covariance, row).mean[code] for row in rows])
    for at, score in zip(ABILITIES + np.array(columns), scores, strict=True):
        told = ~np.isnan(score)
        slope, level = np.polyfit(expected[told], score[told], 1)
        mean[at], covariance[at] = level + slope * mean[code], slope * covariance[code]
        covariance[:, at] = covariance[at]
        covariance[at, at] = slope**2 * (covariance[code, code] + PARTICULAR)


def fit_thinking(pairs: Mapping[str, Sequence[tuple[float, int, float, int]]]) -> Vector:
    """[4 + F + 1] logits a step of depth, by scores of one model with less and with more tokens of thinking."""
    helped = {}
    for kind, rows in pairs.items():
        gains = [(logit(more) - logit(less), depth(long) - depth(short)) for less, short, more, long in rows]
        gain, steps = np.array(gains).T
        helped[kind] = gain @ steps / (steps @ steps)
    kinds = (*KNOWN, *(MEASURES.get(name, Task.REASONING) for name in BENCHMARKS), *FACTS[len(BENCHMARKS) :], "other")
    return np.array([helped.get(kind, 0.0) for kind in kinds])


def _fill(mean: Vector, covariance: Vector, row: Vector) -> tuple[Vector, Vector]:
    """What is expected of all variables given those that are known, and its covariance."""
    at = np.flatnonzero(~np.isnan(row))
    gain = np.linalg.solve(covariance[np.ix_(at, at)], covariance[at]).T
    return mean + gain @ (row[at] - mean[at]), covariance - gain @ covariance[at]


def leave_one_out(rows: Vector) -> Vector:
    """[n, ABILITIES]: how far each model's abilities are from what its card alone would say; NaN where not known."""
    errors = np.full((len(rows), ABILITIES), np.nan)
    for left in range(len(rows)):
        mean, covariance = fit_cards(np.delete(rows, left, axis=0), CARD_STEPS // 10)
        errors[left] = rows[left, :ABILITIES] - condition(mean, covariance, rows[left, ABILITIES:]).mean
    return errors
