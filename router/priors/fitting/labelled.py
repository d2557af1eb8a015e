"""Texts whose task is known: prompts of the public sets by their labels, and phrases of our own."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from router.features.look import looks
from router.priors.fitting import tasks
from router.priors.fitting.sets import Outcomes
from router.priors.marks import SIZE, marks
from router.priors.phrases import phrases
from router.priors.priors import KNOWN, SURE, TASKS, Single, Vector

_TASK_RIDGE = 100.0
_MARKED = 10.0
"""A mark counts as so many spreads of a number of a look: one word says more than any of them."""
_PHRASE_WEIGHT = 4.0
"""A phrase counts as so many public prompts of its task: they are few, and stand for all requests of their kind."""


def fit(
    scaled: Vector, outcomes: Outcomes, standardised: Callable[[Single], Vector], seed: int
) -> tuple[Vector, Vector, dict[str, Any]]:
    """Weights [L + M, 12] and offsets [12], for standardised looks and marks; and how often they are right.

    `scaled`: of the outcomes' own prompts; `standardised` does the same to any looks.
    """
    found = phrases(seed)
    own = Labelled(
        _design(standardised(looks([phrase.text for phrase in found])), [marks(phrase.text) for phrase in found]),
        np.array([TASKS.index(phrase.task) for phrase in found]),
        np.array([phrase.held_out for phrase in found]),
    )
    label = np.array([TASKS.index(task) for task in KNOWN])[outcomes.task]
    public = Labelled(_design(scaled, outcomes.marks), label, np.arange(len(label)) % 5 == 0)
    weights, offset = _fit(public.kept(), own.kept())
    told = {
        "held_out_asks_and_texts": _told(own, weights, offset),
        "held_out_public_prompts": _told(public, weights, offset),
    }
    weights, offset = _fit(public, own)
    weights[-SIZE:] *= _MARKED
    return weights, offset, told


def _design(scaled: Vector, marked: Single | list[Single]) -> Vector:
    return np.hstack([scaled, _MARKED * np.asarray(marked)])


class Labelled(NamedTuple):
    """Texts whose task is known: design [n, L + M], task [n] in the order of `TASKS`, which are held out [n]."""

    design: Vector
    task: tasks.Labels
    held_out: NDArray[np.bool_]

    def kept(self) -> "Labelled":
        kept = ~self.held_out
        return Labelled(self.design[kept], self.task[kept], self.held_out[kept])


def _fit(public: Labelled, own: Labelled) -> tuple[Vector, Vector]:
    weight = np.concatenate([tasks.balanced(public.task), _PHRASE_WEIGHT * tasks.balanced(own.task)])
    label = np.concatenate([public.task, own.task])
    return tasks.fit(np.concatenate([public.design, own.design]), label, weight, len(TASKS), _TASK_RIDGE)


def _told(rows: Labelled, weights: Vector, offset: Vector) -> dict[str, Any]:
    logits, truth = rows.design[rows.held_out] @ weights + offset, rows.task[rows.held_out]
    sure = tasks.softmax(logits).max(axis=1) >= SURE
    right = logits.argmax(axis=1) == truth
    each = {TASKS[at].value: round(share, 3) for at, share in tasks.accuracy(logits, truth).items()}
    told = {"all": right.mean(), "named": sure.mean(), "right_where_named": right[sure].mean()}
    return {name: round(float(share), 3) for name, share in told.items()} | each
