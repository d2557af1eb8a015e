"""Anchors and public questions → the arrays of `router.classify.difficulty.DifficultyReader`."""

from collections.abc import Iterable, Sequence
from random import Random
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from router.classify import embedding
from router.classify.asked import AROUND, COUNTS, FLAGS, NUMBERS, SYSTEM, AskFeatures, cues, read_features
from router.classify.difficulty import (
    BUCKETS,
    GROUPS,
    NO_THINKING,
    OUTPUT_OUT,
    OUTPUTS,
    TASK_OUT,
    THINKING_FACTORS,
    TIER_OUT,
    TIERS,
    DifficultyReader,
    ReaderPart,
    ask_part,
    in_single,
    part_lengths,
    text_features,
    text_part,
)
from router.classify.embedding import DIMENSIONS, Single
from router.estimate.pass_rate import USUAL_DIFFICULTIES
from router.types.request import TASKS
from router.types.target import Task
from tools.anchors.anchors import Anchor
from tools.priors.outcomes import Label, Vector
from tools.priors.phrases import phrases

TIER_DIFFICULTY = tuple(USUAL_DIFFICULTIES.tolist())
"""Logits, on the scale of abilities: a model of a billion parameters (−1.7) passes 99, 92, 57, 25, 8 and 2 % of the
tiers, one of eight (−0.65) 99, 97, 79, 49, 21 and 6 %, a frontier model that thinks (1.9) 92, 77, 43 % of the last."""
BLOCKS = (9.3, 30.5, 34.1, 373.0, *(6.7, 16.5, 1_200) * 2, *(5.2, 21.4, 1_200), *(3.0, 21.4, 1_200) * 2)
"""Ridge of what is asked: its embedding, cues, numbers, groups; and of embeddings, cues and lengths of the texts around
it: by held-out anchors."""
USUAL_COUNTS = (7, 12, 12, 4, 4, 9, 5, 10, 10, 3, 8, 9, 10, 3, 4, 2, 2, 8, 3)
"""Of each of `COUNTS`, the logarithm that stands for 1."""
DIRECTIONS = 192
NEAR_DIRECTIONS = 64
"""Of them, the first: nearness to a point is measured in so many."""
POINTS = 1_200
WIDTH = 1.0
"""Of the kernel: one over it is the share of the median squared distance to the mean."""
RIDGES = (0.5, 0.5, 1.5)
"""Of the kernel: of tiers, of output and thinking, of tasks; by held-out anchors, as are …"""
LINEAR, GRAMS = 2.0, 4.0
"""… the ridge of a direction, times the kernel's, and that of hashed pieces."""
ROUNDS = 25
"""Steps of conjugate gradients, after which held-out anchors gain nothing more."""
SPREAD_WIDTH = 0.4
"""Tiers."""
PER_LABEL = 40
"""Public questions of a kind that are fitted on, each by `PUBLIC_WEIGHT` of an anchor."""
PUBLIC_WEIGHT = 0.1
UNREAD = "mmlu/"
"""Kinds of which no question is fitted on: docs/routing-benchmark.md says what is told of them when they are new."""
PHRASE_WEIGHT = 0.1
SURROUNDED, SURROUNDED_WEIGHT = 0.3, 0.1
"""Share of anchors that are fitted once more with instructions before them; and what each such copy counts for …"""
AGENTS, AGENTS_WEIGHT = 0.5, 0.15
"""… of plain ones that are fitted once more as the next message to an agent, and what such a copy counts for …"""
FRAMED_WEIGHT, INSTRUCTED_WEIGHT, TRANSLATED_WEIGHT, CONTRAST_WEIGHT = 0.1, 0.15, 0.25, 0.3
"""… each copy as programs send it, or with its task in a system prompt, each translation, and each contrast."""
FOLDS = 4
SEED = 0
_FIRST = embedding.FIRST_PIECE + 1


class Rows(NamedTuple):
    """n requests, F numbers."""

    numbers: Vector
    """[n, F]."""
    parts: NDArray[Any]
    """[n], each the list of its parts, which have its hashed pieces."""
    wanted: Vector
    """[n, OUTPUTS], NaN where not known."""
    weight: Vector
    """[n]."""
    source: NDArray[np.intp]
    """[n]: which anchor a row is of; −1 for public questions and contrasts."""


def word_groups() -> NDArray[np.uint8]:
    """[32,000]: k-means of the directions of the vocabulary's vectors."""
    vectors = embedding.load().vectors.astype(np.float32)
    directions = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-6)
    chance = np.random.default_rng(SEED)
    centres = directions[chance.choice(np.arange(_FIRST, len(vectors)), GROUPS, replace=False)].copy()
    for _ in range(12):
        group = _nearest(directions, centres)
        for at in range(GROUPS):
            inside = directions[_FIRST:][group[_FIRST:] == at]
            if len(inside):
                centres[at] = inside.sum(axis=0) / max(float(np.linalg.norm(inside.sum(axis=0))), 1e-6)
    return _nearest(directions, centres).astype(np.uint8)


def _nearest(points: Any, centres: Any) -> NDArray[np.intp]:
    parts = [(points[start : start + 4_000] @ centres.T).argmax(axis=1) for start in range(0, len(points), 4_000)]
    return np.concatenate(parts)


def numbers(asks: AskFeatures, groups: NDArray[np.uint8]) -> list[ReaderPart]:
    """`groups` [32,000]: the group of each piece of the vocabulary."""
    return [ask_part(asks, groups), *(text_part(kind, text) for kind, text in enumerate(asks.around) if text)]


def anchor_rows(anchors: Sequence[Anchor], groups: NDArray[np.uint8]) -> Rows:
    read = [numbers(read_features(anchor.request()), groups) for anchor in anchors]
    wanted = np.array([_wanted(anchor) for anchor in anchors])
    return Rows(*_columns(read), wanted, np.ones(len(read)), np.arange(len(read)))


def copied_rows(copies: Iterable[tuple[int, Anchor]], weight: float, groups: NDArray[np.uint8]) -> Rows:
    """Each is held out with the anchor that it is a copy of."""
    sources, anchors = zip(*copies, strict=True)
    rows = anchor_rows(anchors, groups)
    return rows._replace(weight=np.full(len(anchors), weight), source=np.array(sources))


def contrast_rows(anchors: Sequence[Anchor], groups: NDArray[np.uint8]) -> Rows:
    """Each is fitted on with less weight and never held out."""
    rows, count = anchor_rows(anchors, groups), len(anchors)
    return rows._replace(weight=np.full(count, CONTRAST_WEIGHT), source=np.full(count, -1))


def _columns(read: Sequence[list[ReaderPart]]) -> tuple[Vector, NDArray[Any]]:
    rows, columns = np.zeros((len(read), sum(part_lengths()))), np.empty(len(read), object)
    for at, parts in enumerate(read):
        columns[at] = parts
        for part in parts:
            rows[at, part.start : part.start + len(part.row)] = part.row
    return rows, columns


def _wanted(anchor: Anchor) -> Vector:
    row = np.zeros(OUTPUTS)
    row[TIER_OUT] = anchor.tier
    row[OUTPUT_OUT] = (np.log(anchor.low) + np.log(anchor.high)) / 2
    row[NO_THINKING + anchor.thinking] = 1
    row[TASK_OUT + TASKS.index(Task(anchor.task))] = 1
    return row


def label_rows(labels: Iterable[Label], difficulty: Vector, groups: NDArray[np.uint8]) -> Rows:
    """Some questions of each label, as hard as the label is."""
    chance = Random(SEED)
    rows, wanted = [], []
    for label, hard in zip(labels, difficulty, strict=True):
        if label.name.startswith(UNREAD):
            continue
        row = np.full(OUTPUTS, np.nan)
        row[TIER_OUT] = np.interp(hard, TIER_DIFFICULTY, range(len(TIER_DIFFICULTY)))
        row[TASK_OUT:] = [float(task is label.task) for task in TASKS]
        for text in chance.sample(label.questions, min(PER_LABEL, len(label.questions))):
            rows.append(numbers(text_features(text), groups))
            wanted.append(row)
    count = len(rows)
    return Rows(*_columns(rows), np.array(wanted), np.full(count, PUBLIC_WEIGHT), np.full(count, -1))


def phrase_rows(groups: NDArray[np.uint8]) -> Rows:
    """Of which only the task is known."""
    rows, wanted = [], []
    for phrase in phrases(SEED):
        row = np.full(OUTPUTS, np.nan)
        row[TASK_OUT:] = [float(task is phrase.task) for task in TASKS]
        rows.append(numbers(text_features(phrase.text), groups))
        wanted.append(row)
    count = len(rows)
    return Rows(*_columns(rows), np.array(wanted), np.full(count, PHRASE_WEIGHT), np.full(count, -1))


def joined(*parts: Rows) -> Rows:
    return Rows(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def fit(rows: Rows, groups: NDArray[np.uint8]) -> dict[str, Any]:
    """Arrays of a reader, without what `calibrate` adds."""
    kinds = len(cues().names)
    blocks = (DIMENSIONS, kinds, 1 + len(NUMBERS), GROUPS, *(DIMENSIONS, kinds, 1) * AROUND)
    scale = 1 / np.sqrt(np.repeat(BLOCKS, blocks))
    counts = DIMENSIONS + kinds + 1 + len(FLAGS) + np.arange(len(COUNTS))
    scale[counts] /= USUAL_COUNTS
    weight = rows.weight / rows.weight.sum()
    centre = weight @ rows.numbers
    scaled = (rows.numbers - centre) * scale
    _, axes = np.linalg.eigh((scaled * weight[:, None]).T @ scaled)
    axes = axes[:, ::-1][:, :DIRECTIONS]
    width = np.sqrt(WIDTH / np.median((scaled**2).sum(axis=1)))
    projection = (scale[:, None] * axes) * width
    place = rows.numbers @ projection - centre @ projection
    chance = np.random.default_rng(SEED)
    anchors = np.flatnonzero((rows.source >= 0) & (rows.weight == 1))  # copies are near to them
    first = chance.choice(anchors, min(POINTS * 7 // 8, len(anchors)), replace=False)
    rest = np.flatnonzero(rows.source < 0)
    second = chance.choice(rest, min(POINTS - len(first), len(rest)), replace=False) if len(rest) else rest
    near = place[:, :NEAR_DIRECTIONS]
    points = _means(near, near[np.concatenate([first, second])], rows.weight)
    inner = np.exp(-_squares(points, points))
    design = _design(np.hstack([np.exp(-_squares(near, points)), place]), rows)
    held = np.diag(np.repeat([1e-6, LINEAR], [len(points), place.shape[1]]))
    held[: len(points), : len(points)] += inner
    parts, offset = [], np.zeros(OUTPUTS)
    outputs = (slice(0, 1), slice(1, TASK_OUT), slice(TASK_OUT, OUTPUTS))
    for ridge, columns in zip(RIDGES, outputs, strict=True):
        wanted = rows.wanted[:, columns]
        each = np.where(np.isnan(wanted[:, 0]), 0, rows.weight)
        wanted = np.nan_to_num(wanted)
        offset[columns] = each @ wanted / each.sum()
        parts.append(_ridge(design, ridge * held, each, wanted - offset[columns]))
    weights, linear, grams = np.split(np.hstack(parts), [len(points), len(held)])
    directions = np.hstack([projection[:, :NEAR_DIRECTIONS], projection @ linear]).astype(np.float16)
    points = points.astype(np.float16).astype(np.float64)
    arrays = {
        "projection": directions,
        "start": np.append(np.zeros(NEAR_DIRECTIONS), offset) - centre @ directions.astype(np.float64),
        "points": 2 * points,
        "sizes": (points**2).sum(axis=1),
        "weights": weights,
        "grams": grams,
        "levels": np.ones((4, len(TIERS))),
        "sharpness": 5.0,
        "near": 1.0,
    }
    halves = ("projection", "points", "grams")
    return {"groups": groups} | {
        name: np.asarray(array, np.float16 if name in halves else np.float32) for name, array in arrays.items()
    }


def _means(near: Vector, points: Vector, weight: Vector) -> Vector:
    """Some steps of k-means from these points: what is fitted depends less on which were drawn."""
    for _ in range(8):
        cuts = range(0, len(near), 2_000)
        group = np.concatenate([_squares(near[cut : cut + 2_000], points).argmin(axis=1) for cut in cuts])
        size = np.maximum(np.bincount(group, weight, len(points)), 1e-9)
        points = np.stack([np.bincount(group, weight * column, len(points)) / size for column in near.T], axis=1)
    return points


class _Design(NamedTuple):
    """n requests: q numbers of each, and its hashed pieces, of all requests one after another."""

    dense: Vector
    """[n, q]."""
    buckets: NDArray[np.intp]
    shares: Vector
    row: NDArray[np.intp]
    """Whose a piece is."""

    def times(self, weights: Vector) -> Vector:
        """[q + BUCKETS, outputs] → [n, outputs]."""
        dense, hashed = np.split(weights, [self.dense.shape[1]])
        return self.dense @ dense + _summed(self.row, self.shares, hashed, self.buckets, len(self.dense))

    def back(self, values: Vector) -> Vector:
        """[n, outputs] → [q + BUCKETS, outputs]."""
        hashed = _summed(self.buckets, self.shares, values, self.row, BUCKETS)
        return np.vstack([self.dense.T @ values, hashed])


def _summed(to: NDArray[np.intp], shares: Vector, values: Vector, source: NDArray[np.intp], length: int) -> Vector:
    return np.stack([np.bincount(to, shares * column[source], length) for column in values.T], axis=1)


def _design(dense: Vector, rows: Rows) -> _Design:
    row = np.repeat(np.arange(len(dense)), [sum(len(part.buckets) for part in parts) for parts in rows.parts])
    buckets, shares = zip(*((part.buckets, part.shares) for parts in rows.parts for part in parts), strict=True)
    return _Design(dense, np.concatenate(buckets), np.concatenate(shares).astype(np.float64), row)


def _ridge(design: _Design, held: Vector, each: Vector, wanted: Vector) -> Vector:
    """[q + BUCKETS, outputs], by conjugate gradients. `held`: the ridge of the dense numbers, whose system is solved
    exactly in each step; `each`: the weights of rows."""
    dense = len(held)
    inverse = np.linalg.inv((design.dense.T * each) @ design.dense + held)
    diagonal = np.bincount(design.buckets, design.shares**2 * each[design.row], BUCKETS)[:, None] + GRAMS
    solved = np.zeros((dense + BUCKETS, wanted.shape[1]))
    left = design.back(wanted * each[:, None])
    step, before = np.zeros_like(left), np.ones(wanted.shape[1])
    for _ in range(ROUNDS):
        scaled = np.vstack([inverse @ left[:dense], left[dense:] / diagonal])
        size = (left * scaled).sum(axis=0)
        step = scaled + size / before * step
        pulled = np.vstack([held @ step[:dense], GRAMS * step[dense:]])
        pulled += design.back(design.times(step) * each[:, None])
        length = size / np.maximum((step * pulled).sum(axis=0), 1e-12)
        solved += length * step
        left -= length * pulled
        before = np.maximum(size, 1e-12)
    return solved


def _squares(points: Vector, centres: Vector) -> Vector:
    own = (points**2).sum(axis=1)[:, None] + (centres**2).sum(axis=1)
    return np.asarray(np.maximum(own - 2 * points @ centres.T, 0))


def reader(arrays: dict[str, Any]) -> DifficultyReader:
    fields: dict[str, Any] = {name: in_single(array) for name, array in arrays.items()}
    return DifficultyReader(**fields)


class HeldOut(NamedTuple):
    """Of anchors as they are, each read by a fit without it: [n, OUTPUTS], and the kernel at the nearest point [n]."""

    values: Vector
    nearest: Vector
    wanted: Vector


def held_out(rows: Rows, groups: NDArray[np.uint8]) -> HeldOut:
    sources = rows.source.max() + 1
    fold = np.random.default_rng(SEED).permutation(sources) % FOLDS
    values, nearest = np.zeros((sources, OUTPUTS)), np.zeros(sources)
    place = np.flatnonzero(rows.source >= 0)[:sources]  # copies stand behind all anchors
    for number in range(FOLDS):
        left = fold == number
        others = (rows.source < 0) | ~left[np.maximum(rows.source, 0)]
        fitted = reader(fit(Rows(*(column[others] for column in rows)), groups))
        for source in np.flatnonzero(left):
            values[source], nearest[source] = outputs(fitted, rows, place[source])
    return HeldOut(values, nearest, rows.wanted[place])


def outputs(fitted: DifficultyReader, rows: Rows, at: int) -> tuple[Single, float]:
    """As `DifficultyReader.outputs` has them."""
    ask, *around = [fitted.place(part) for part in rows.parts[at]]
    system = around.pop() if rows.parts[at][-1].start == sum(part_lengths()[: SYSTEM + 1]) else None
    return fitted.outputs(sum(around, ask), system)


def calibrate(arrays: dict[str, Any], held: HeldOut) -> None:
    """What held-out anchors say of how sure a reading is."""
    near = float(np.median(held.nearest))
    apart = np.array(TIERS)[:, None] - held.values[:, TIER_OUT]
    weight = np.exp(-0.5 * (apart / SPREAD_WIDTH) ** 2)
    weight /= weight.sum(axis=1, keepdims=True)
    hard = np.array(TIER_DIFFICULTY)[held.wanted[:, TIER_OUT].astype(np.intp)]
    level = np.maximum.accumulate(weight @ hard)
    of_hard = np.sqrt(np.sum(weight * (hard - level[:, None]) ** 2, axis=1))
    thought = held.wanted[:, NO_THINKING:TASK_OUT] @ THINKING_FACTORS
    of_output = np.sqrt(weight @ (held.values[:, OUTPUT_OUT] - held.wanted[:, OUTPUT_OUT]) ** 2)
    losses = {sharp: _log_loss(held, sharp) for sharp in (2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)}
    levels = [level, of_hard, of_output, 2 * weight @ thought]
    arrays["near"], arrays["levels"] = np.float32(near), np.stack(levels).astype(np.float32)
    arrays["sharpness"] = np.float32(min(losses, key=losses.__getitem__))


def _log_loss(held: HeldOut, sharpness: float) -> float:
    raised = np.exp(sharpness * held.values[:, TASK_OUT:])
    shares = raised / raised.sum(axis=1, keepdims=True)
    return float(-np.log((shares * held.wanted[:, TASK_OUT:]).sum(axis=1) + 1e-9).mean())


def kendall(expected: NDArray[Any], tier: NDArray[Any]) -> float:
    """Kendall's τ-b."""
    one, other = np.triu_indices(len(tier), 1)
    first, second = np.sign(expected[one] - expected[other]), np.sign(tier[one] - tier[other])
    return float((first * second).sum() / np.sqrt((first != 0).sum() * (second != 0).sum()))


def ordered(expected: NDArray[Any], tier: NDArray[Any], least: int = 2) -> float:
    """Share of pairs at least so many tiers apart that are in order."""
    one, other = np.triu_indices(len(tier), 1)
    apart = tier[one] - tier[other]
    counted = np.abs(apart) >= least
    return float((np.sign(expected[one] - expected[other]) == np.sign(apart))[counted].mean())


def metrics(values: NDArray[Any], anchors: Sequence[Anchor]) -> dict[str, float]:
    """Of outputs [n, OUTPUTS]."""
    tier = np.array([float(anchor.tier) for anchor in anchors])
    wanted = np.stack([_wanted(anchor) for anchor in anchors])
    right = values[:, TASK_OUT:].argmax(axis=1) == wanted[:, TASK_OUT:].argmax(axis=1)
    apart = values[:, OUTPUT_OUT] - wanted[:, OUTPUT_OUT]
    thinking = values[:, NO_THINKING:TASK_OUT] @ np.arange(3)
    return {
        "tau": round(kendall(values[:, TIER_OUT], tier), 3),
        "two_tiers_apart": round(ordered(values[:, TIER_OUT], tier), 3),
        "task": round(float(right.mean()), 3),
        "output_log_rmse": round(float(np.sqrt((apart**2).mean())), 3),
        "thinking_tau": round(kendall(thinking, np.array([float(anchor.thinking) for anchor in anchors])), 3),
    }
