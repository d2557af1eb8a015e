"""The whole fit: sets → arrays of the artefact, and how well each part does on what it did not see."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from router.features.embedding import DIMENSIONS
from router.features.features import NAMES
from router.priors.ability import ABILITIES, BENCHMARKS, FACTS
from router.priors.fitting import cards, difficulty, directions, facts, labelled, sets, strangeness, tasks, variances
from router.priors.marks import SIZE
from router.priors.phrases import phrases
from router.priors.priors import (
    DIFFICULTY,
    INTERACTION,
    INTERACTIONS,
    KNOWN,
    LOGIT,
    SHARE,
    SHARES,
    TASKS,
    TRAITS,
    Vector,
)

SEED = 0
RIDGES = (1_000.0, 3_000.0, 10_000.0, 30_000.0)
"""Of difficulty, in prompts' worth of evidence: that which does best on a set that is left out."""
_LEAST_SPREAD = 0.02
"""Numbers of a look that hardly vary in the sets are not blown up by more than one over this."""
_NOT_SAID = ("turns", "max_output", "position")
"""What the sets say nothing of, and what is no reason to call a request strange."""
_UNSEEN = 2_000
"""Prompts of each set that are looked at to tell known from unknown kinds."""
Arrays = dict[str, NDArray[Any]]
Metrics = dict[str, Any]


class Fitted(Struct, frozen=True, eq=False):
    """What all parts share. `scaled`: standardised looks [n, L] of all sets."""

    outcomes: sets.Outcomes
    centre: Vector
    scale: Vector
    scaled: Vector
    published: list[difficulty.Published]
    known: Mapping[str, facts.Known]


def fit(folder: Path) -> tuple[Arrays, Metrics, Metrics]:
    """Arrays, metrics, and counts of what went in."""
    known = facts.read()
    read = [sets.read(folder, name, part, facts.aliases(known)) for part, name in enumerate(sets.SHIPPABLE)]
    together = _shared(sets.join(read), known)
    arrays: Arrays = {"centre": together.centre, "scale": together.scale}
    metrics: Metrics = {}
    ridge = _ridge(together, metrics)
    found = difficulty.fit(together.scaled, together.outcomes, ridge, len(sets.SHIPPABLE))
    found = difficulty.equated(together.scaled, together.outcomes, found, together.published)
    level = _level(together, found)
    space = strangeness.space(together.scaled, _even(together.outcomes.part), np.random.default_rng(SEED))
    strange = _strange(together, folder, metrics)
    between = difficulty.between(together.scaled, together.outcomes, found, ridge)
    familiar = 1 - difficulty.sigmoid(strange[0] + strange[1] * strangeness.log_distance(together.scaled, space))
    hard = together.scaled @ found.weights + difficulty.middle(found) - level
    hard += familiar * (together.scaled @ between)
    expected = difficulty.expect(together.scaled, together.outcomes, found)
    columns = [found.weights[:, None], between[:, None], directions.work(together.scaled, together.outcomes)[:, None]]
    columns.append(directions.interactions(together.scaled, together.outcomes, expected, hard))
    task_weights, task_offset, metrics["tasks"] = labelled.fit(
        together.scaled, together.outcomes, lambda seen: (seen - together.centre) * together.scale, SEED
    )
    arrays["projection"] = np.hstack([*columns, task_weights[:-SIZE], space.axes])
    arrays["marks"] = task_weights[-SIZE:]
    offset = np.zeros(arrays["projection"].shape[1])
    offset[0] = difficulty.middle(found) - level
    offset[3 + INTERACTIONS :][: len(TASKS)] = task_offset
    arrays |= {
        "offset": offset,
        "centroids": space.centroids,
        "sizes": (space.centroids**2).sum(axis=1),
        "strange": strange,
    }
    arrays["card_mean"], arrays["card_covariance"] = _cards(together, found, level, metrics)
    arrays["variances"] = _variances(together, found, hard, columns[3], task_weights, task_offset, ridge)
    metrics["variances"] = {"common": _rounded(arrays["variances"][0]), "own": _rounded(arrays["variances"][1])}
    return _packed(arrays), metrics, _counts(read)


def _shared(outcomes: sets.Outcomes, known: Mapping[str, facts.Known]) -> Fitted:
    weight = _even(outcomes.part)
    centre = weight @ outcomes.looks / weight.sum()
    spread = np.sqrt(weight @ (outcomes.looks - centre) ** 2 / weight.sum())
    scale = 1 / np.maximum(spread, _LEAST_SPREAD)
    scale[[DIMENSIONS + NAMES.index(name) for name in _NOT_SAID]] = 0
    scores = {model: row.scores for model, row in known.items()}
    published = difficulty.published(scores, outcomes, {name: part for part, name in enumerate(sets.SHIPPABLE)})
    return Fitted(outcomes, centre, scale, (outcomes.looks - centre) * scale, published, known)


def _even(part: NDArray[np.intp]) -> Vector:
    """Weights under which each set counts by the square root of its size."""
    return np.asarray(1 / np.sqrt(np.bincount(part)[part]))


def _ridge(together: Fitted, metrics: Metrics) -> float:
    """Chosen by leaving each set out, with one constant for each model of the set that was left out."""
    losses = {}
    for ridge in RIDGES:
        each = {name: _left_out(together, part, ridge) for part, name in enumerate(sets.SHIPPABLE)}
        losses[ridge] = (float(np.mean([loss for loss, _ in each.values()])), each)
    best = min(losses, key=lambda ridge: losses[ridge][0])
    metrics["difficulty"] = {
        "ridge": best,
        "ece_set_left_out": {name: round(error, 4) for name, (_, error) in losses[best][1].items()},
        "log_loss_set_left_out": round(losses[best][0], 4),
    }
    return best


def _left_out(together: Fitted, part: int, ridge: float) -> tuple[float, float]:
    """Log loss and calibration error on one set, of a fit to the others."""
    rest, own = together.outcomes.part != part, together.outcomes.part == part
    outcomes = sets.take(together.outcomes, rest)
    found = difficulty.fit(together.scaled[rest], outcomes, ridge, len(sets.SHIPPABLE))
    score = together.outcomes.score[own]
    score = score[:, ~np.isnan(score).all(axis=0)]
    hard = together.scaled[own] @ found.weights
    expected = difficulty.sigmoid(difficulty.constants(hard, score) - hard[:, None])
    return difficulty.log_loss(expected, score), difficulty.calibration_error(expected, score)


def _level(together: Fitted, found: difficulty.Fit) -> float:
    """The usual target: the mean ability of all models that a gateway could call, over the tasks they were asked."""
    callable_ = [at for at, model in enumerate(together.outcomes.models) if not _base(together.known, model)]
    asked = np.where(difficulty.measured(together.outcomes), found.ability, np.nan)
    return float(np.nanmean(np.nanmean(asked[callable_], axis=1)))


def _base(known: Mapping[str, facts.Known], model: str) -> bool:
    return model not in known or known[model].base


def _strange(together: Fitted, folder: Path, metrics: Metrics) -> Vector:
    """Held-out prompts of each set tell what distances of known kinds are; sets that are left out, whether it shows."""
    random, near, far = np.random.default_rng(SEED), [], []
    part = together.outcomes.part
    fifth = np.arange(len(part)) % 5 == 0
    found = strangeness.space(together.scaled[~fifth], _even(part[~fifth]), random)
    for at in range(len(sets.SHIPPABLE)):
        near.append(strangeness.log_distance(together.scaled[fifth & (part == at)][:_UNSEEN], found))
        rest = part != at
        others = strangeness.space(together.scaled[rest], _even(part[rest]), random)
        far.append(strangeness.log_distance(together.scaled[part == at][:_UNSEEN], others))
    offset, slope = strangeness.calibrate(near)
    told = {f"{name}_known": each for name, each in zip(sets.SHIPPABLE, near, strict=True)}
    told |= {f"{name}_left_out": each for name, each in zip(sets.SHIPPABLE, far, strict=True)}
    told |= {
        name: strangeness.log_distance((sets.seen(folder, name) - together.centre) * together.scale, found)
        for name in sets.CHECKS
        if (folder / f"{name}.prompts.parquet").exists()
    }
    means = {name: float(difficulty.sigmoid(offset + slope * each).mean()) for name, each in told.items()}
    metrics["unfamiliarity"] = {name: round(mean, 3) for name, mean in means.items()}
    return np.array([offset, slope, 1 / together.scaled.shape[1]])


def _cards(together: Fitted, found: difficulty.Fit, level: float, metrics: Metrics) -> tuple[Vector, Vector]:
    outcomes, task = together.outcomes, together.outcomes.task
    zeroeval = outcomes.part == sets.SHIPPABLE.index("zeroeval_dev")
    masks = {
        "mmlu_pro": outcomes.part == sets.SHIPPABLE.index("mmlupro"),
        "mmlu": outcomes.part == sets.SHIPPABLE.index("routellm_dev"),
        "simpleqa": outcomes.part == sets.SHIPPABLE.index("frontier_2026a_dev"),
        "crux": zeroeval & (task == 1),
        "math_l5": zeroeval & (task == 0),
    }
    scores = facts.scores(outcomes, {name: mask.astype(np.float64) for name, mask in masks.items()})
    ability = np.where(difficulty.measured(outcomes), found.ability - level, np.nan)
    rows = facts.rows(together.known, ability, outcomes.models, scores)
    blind = rows.copy()
    blind[:, ABILITIES : ABILITIES + len(BENCHMARKS)] = np.nan
    spread = np.nanstd(rows[:, :ABILITIES], axis=0)
    metrics["abilities"] = {
        "models": len(rows),
        "tasks": [task.value for task in KNOWN],
        "facts": list(FACTS),
        "spread_logits": _rounded(spread),
        "rmse_model_left_out_with_scores": _rounded(_rmse(cards.leave_one_out(rows))),
        "rmse_model_left_out_without_scores": _rounded(_rmse(cards.leave_one_out(blind))),
    }
    return cards.fit(rows)


def _rmse(errors: Vector) -> Vector:
    return np.asarray(np.sqrt(np.nanmean(errors**2, axis=0)))


def _variances(
    together: Fitted,
    found: difficulty.Fit,
    hard: Vector,
    interactions: Vector,
    task_weights: Vector,
    task_offset: Vector,
    ridge: float,
) -> Vector:
    """[2, TRAITS]. Own: what is left of each model's scores. Common: of all models' on a set that was left out."""
    outcomes, traits = together.outcomes, np.zeros((len(hard), TRAITS))
    traits[:, 0], traits[:, DIFFICULTY] = 1, np.clip(hard, -LOGIT, LOGIT) / LOGIT
    design = np.hstack([together.scaled, together.outcomes.marks])
    likely = tasks.softmax(design @ task_weights + task_offset)
    traits[:, SHARE:INTERACTION] = likely[:, [TASKS.index(task) for task in SHARES]]
    traits[:, INTERACTION:] = np.clip(together.scaled @ interactions, -1, 1)
    left = outcomes.score - difficulty.expect(together.scaled, outcomes, found)
    own_traits, own_left, common_left, common_traits = [], [], [], []
    for part in range(len(sets.SHIPPABLE)):
        rows = outcomes.part == part
        for model in np.flatnonzero(outcomes.asked[rows].sum(axis=0) >= 400):
            asked = rows & outcomes.asked[:, model]
            own_traits.append(traits[asked])
            own_left.append(left[asked, model])
        rest = ~rows
        others = sets.take(outcomes, rest)
        other = difficulty.fit(together.scaled[rest], others, ridge, len(sets.SHIPPABLE))
        score = outcomes.score[rows]
        away = together.scaled[rows] @ other.weights
        expected = difficulty.sigmoid(difficulty.constants(away, score) - away[:, None])
        common_left.append(np.nanmean(score - expected, axis=1))
        common_traits.append(traits[rows])
    return np.stack([variances.likeliest(common_traits, common_left), variances.likeliest(own_traits, own_left)])


def _packed(arrays: Arrays) -> Arrays:
    """Half precision where nothing is lost by it, double where matrices are inverted."""
    half = {"projection"}
    double = {"strange", "card_mean", "card_covariance", "variances"}
    return {
        name: array.astype(np.float16 if name in half else np.float64 if name in double else np.float32)
        for name, array in arrays.items()
    }


def _counts(read: list[sets.Outcomes]) -> Metrics:
    return {
        name: {"prompts": len(each.score), "models": len(each.models), "outcomes": int(each.asked.sum())}
        for name, each in zip(sets.SHIPPABLE, read, strict=True)
    } | {"phrases": len(phrases(SEED))}


def _rounded(values: Vector) -> list[float]:
    return [round(float(value), 5) for value in values]
