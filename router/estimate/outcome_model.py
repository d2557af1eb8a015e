"""What came of known prompts, as a model of new ones: pass rates and costs of each target.

A prompt's kind (soft labels) says most of both; its other numbers add to that as far as rows that were left out prove
it. All is learned twice: for prompts like the known ones, judged on rows left out at random, and for unfamiliar ones,
judged on groups left out whole, which end nearer to each target's plain means. How unfamiliar a prompt is mixes the
two. Letters in shapes: n prompts, T targets, L labels, D numbers of a prompt.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from router.classify.embedding import DIMENSIONS
from router.estimate.outcome_table import Floats, Ints

Matrix = NDArray[np.float32]

EMBEDDED = 2 * DIMENSIONS
"""The first numbers of a prompt: two embeddings."""
MARK = 3.0
"""What every other number weighs in linear functions, where one of an embedding weighs about 1."""
FOLDS = 5
LEAST = 0.001
"""Of a pass rate."""
COVARIANCE_RIDGE = 0.2
MEAN_WEIGHT = 2.0
"""Prompts' worth of the overall mean in each label's."""
TEMPERATURES = (0.03, 0.05, 0.07, 0.1, 0.14, 0.2, 0.28, 0.4, 0.56, 0.8, 1.0, 1.4)
PENALTIES = (1e3, 1e4)
"""Of the ridge regressions on a prompt's numbers."""
COST_ROWS = 4.0
"""Rows of a target's mean cost in its mean for each label."""
COST_PENALTY = 3e3
MOST_FACTOR = 1.5
"""Logarithm of what a text makes a prompt dearer or cheaper than others of its label, at most."""
WIDE, WIDE_ROWS = 1.0, 5.0
"""Half an interval of costs, in logarithms, before anything is known, and its weight in rows."""
DIRECTIONS = 64
REFERENCES, NEAREST = 4_096, 5
CLUSTER_SIZE, MOST_CLUSTERS = 100, 16
"""Prompts of a label, about, and labels, where none are given."""
UNFAMILIAR = 0.2
"""Share of unfamiliar prompts before anything is known of one."""
FAR, NEAR = 0.05, 0.1
"""Shares of known prompts: less similar to others than these, a prompt is unfamiliar, or not surely familiar."""
LEAST_VARIANCE, STRANGE_VARIANCE = 0.02**2, 0.15**2
"""Of a pass rate: of any, and of one that nothing was observed of."""


class Outputs(NamedTuple):
    """What `Learners` make of n prompts."""

    guess: Floats
    """[n, parts, 1 + T]: how easy, in common to all targets and of each apart; 0 on average."""
    probability: Matrix
    """[n, L]: of each label."""
    similar: Matrix
    """[n, NEAREST]: to the nearest of the prompts fitted on, falling."""
    near: Matrix
    """[n, DIRECTIONS]"""
    cost: Floats
    """[n, T], USD: of its labels, and its text; NaN where none is known."""
    flat: Floats
    """[n, T], USD: each target's mean."""
    label_variance: Floats
    """[n, T]: of the pass rate, between the labels that it may have."""


class Learners(NamedTuple):
    """Fitted to some rows: L labels, T targets."""

    usual: Floats
    """[T]"""
    label_weights: Matrix
    """[D, L], a linear discriminant …"""
    label_offsets: Matrix
    """… [L], cooled by …"""
    temperature: float
    by_label: Floats
    """[L, 1 + T]: shrunken means of responses."""
    ridges: tuple[Matrix, ...]
    """[D, 1 + T] each."""
    directions: Matrix
    """[D, DIRECTIONS]"""
    references: Matrix
    """[m, DIRECTIONS]: places of prompts."""
    label_cost: Floats
    """[L, T], USD."""
    mean_cost: Floats
    """[T], USD; NaN where none is known."""
    factor: Matrix
    """[D]: logarithm of what a text makes a prompt dearer …"""
    factor_scale: float
    """… in which costs keep their mean."""

    def outputs(self, z: Matrix) -> Outputs:
        probability = softmax(z @ self.label_weights + self.label_offsets, self.temperature)
        near = _unit(z @ self.directions)
        guesses = [probability @ self.by_label, *(z @ weights for weights in self.ridges)]
        rate = self.usual + self.by_label[:, :1] + self.by_label[:, 1:]
        mean = probability @ rate
        factor = np.exp(np.clip(z @ self.factor, -MOST_FACTOR, MOST_FACTOR)) * self.factor_scale
        return Outputs(
            np.stack(guesses, 1).astype(float),
            probability,
            _nearest(near @ self.references.T),
            near,
            (probability @ self.label_cost) * factor[:, None],
            np.tile(self.mean_cost, (len(z), 1)),
            np.maximum(probability @ rate**2 - mean**2, 0.0),
        )


def softmax(logits: Matrix, temperature: float) -> Matrix:
    """[n, L] of logits × temperature."""
    scaled = logits * np.float32(temperature)
    raised = np.exp(scaled - scaled.max(1, keepdims=True))
    shares: Matrix = raised / raised.sum(1, keepdims=True)
    return shares


def _unit(rows: Matrix) -> Matrix:
    unit: Matrix = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-6)
    return unit


def _nearest(similarity: Matrix) -> Matrix:
    """[n, NEAREST], falling; where fewer are known, the last one again."""
    number = min(NEAREST, similarity.shape[1])
    top = np.sort(np.partition(similarity, -number, axis=1)[:, -number:], axis=1)
    return top[:, np.maximum(number - 1 - np.arange(NEAREST), 0)]


class Outcomes(NamedTuple):
    """All rows of a fit: n prompts, T targets."""

    z: Matrix
    labels: Ints
    number: int
    """Of labels."""
    seen: NDArray[np.bool_]
    """[n, T]: where a score is known."""
    usual: Floats
    """[T]: score = usual + common + apart, by two-way means with gaps."""
    responses: Floats
    """[n, 1 + T]: common, apart."""
    weight: Floats
    """[n]: how much is known of each prompt's common part, to 1."""
    cost: Floats
    temperature: float

    @classmethod
    def of(cls, z: Matrix, score: Floats, cost: Floats, labels: Ints) -> "Outcomes":
        if len(np.unique(labels)) == 1:
            labels = clusters(z @ _main(z), min(MOST_CLUSTERS, 1 + len(labels) // CLUSTER_SIZE))
        usual, common, apart = two_way_means(score)
        seen, number = np.isfinite(score), int(labels.max()) + 1
        fold = random_folds(np.arange(len(z)), FOLDS)
        logits = np.zeros((len(z), number), np.float32)
        for out, rest in _splits(fold):
            weights, offsets = _discriminant(z[rest], labels[rest], number)
            logits[out] = z[out] @ weights + offsets
        asked_of = seen.sum(1)
        responses = np.column_stack([common, apart])
        return cls(
            z, labels, number, seen, usual, responses, asked_of / (asked_of + 1.0), cost, _temperature(logits, labels)
        )

    def learners(self, rows: Ints) -> Learners:
        z, labels, values = self.z[rows], self.labels[rows], self.responses[rows]
        share = np.column_stack([self.weight[rows], self.seen[rows].astype(float)])
        weights, offsets = _discriminant(z, labels, self.number)
        product = z.T @ (self.weight[rows][:, None] * values).astype(np.float32)
        gram = (z.T @ (z * self.weight[rows][:, None].astype(np.float32))).astype(float)
        eye = np.eye(len(gram))
        directions = _main(z)
        label_cost, mean_cost = self._costs(rows)
        factor, scale = self._factor(rows, label_cost, gram)
        chosen = np.random.default_rng(0).permutation(len(z))[:REFERENCES]
        return Learners(
            self.usual,
            weights,
            offsets,
            self.temperature,
            _shrunken_means(values, share, labels, self.number),
            tuple(np.linalg.solve(gram + penalty * eye, product).astype(np.float32) for penalty in PENALTIES),
            directions,
            _unit(z[chosen] @ directions),
            label_cost,
            mean_cost,
            factor,
            scale,
        )

    def _costs(self, rows: Ints) -> tuple[Floats, Floats]:
        """Means in USD [L, T], shrunken to a target's mean times what a label costs all targets, and [T]."""
        cost, labels = self.cost[rows], self.labels[rows]
        known = np.isfinite(cost)
        filled = np.where(known, cost, 0.0)
        with np.errstate(invalid="ignore"):
            mean = filled.sum(0) / known.sum(0)
        usual = np.nan_to_num(mean)
        sums, counts = sums_by(filled, labels, self.number), sums_by(known, labels, self.number)
        expected = (counts * usual).sum(1)
        overall = max(float(usual.mean()), 1e-30)
        ratio = (sums.sum(1) + COST_ROWS * overall) / (expected + COST_ROWS * overall)
        means = (sums + COST_ROWS * usual * ratio[:, None]) / (counts + COST_ROWS)
        return np.where(known.any(0), means, np.nan), mean

    def _factor(self, rows: Ints, label_cost: Floats, gram: Floats) -> tuple[Matrix, float]:
        """Ridge regression of the logarithm of a prompt's cost over that of its label, over all targets."""
        cost, expected = self.cost[rows], label_cost[self.labels[rows]]
        known = np.isfinite(cost) & np.isfinite(expected)
        real, usual = np.where(known, cost, 0.0).sum(1), np.where(known, expected, 0.0).sum(1)
        some = (real > 0) & (usual > 0)
        if some.sum() < 2 * FOLDS:
            return np.zeros(self.z.shape[1], np.float32), 1.0
        log = np.zeros(len(rows))
        log[some] = np.log(real[some] / usual[some])
        log[some] -= log[some].mean()
        z = self.z[rows]
        factor = np.linalg.solve(gram + COST_PENALTY * np.eye(len(gram)), z.T @ log).astype(np.float32)
        grown = np.exp(np.clip(z @ factor, -MOST_FACTOR, MOST_FACTOR))
        return factor, float(usual.sum() / (usual * grown).sum())

    def left_out(self, fold: Ints) -> Outputs:
        """The outputs for each row of learners that were fitted without its fold."""
        splits = list(_splits(fold))
        order = np.concatenate([out for out, _ in splits]).argsort()
        parts = [self.learners(rest).outputs(self.z[out]) for out, rest in splits]
        return Outputs(*(np.concatenate(column)[order] for column in zip(*parts, strict=True)))

    def weights(self, outputs: Outputs, fold: Ints, *, centred: bool) -> Floats:
        """Non-negative [parts, 2]: what each part counts for what targets have in common, and for what they have apart.

        Each is trusted less by its standard error over folds: the best of many guesses is mostly a lucky one.
        `centred`: by differences within each fold only; how far off whole groups are is chance, as they are few.
        """
        truth, seen = self.responses, self.seen
        common = _stacked(outputs.guess[:, :, :1], truth[:, :1], self.weight[:, None], fold)
        guess, own = outputs.guess[:, :, 1:], truth[:, 1:]
        if centred:
            guess, own = _within(guess, fold), _within(own, fold)
        return np.column_stack([common, _stacked(guess, own, seen.astype(float), fold)])

    def band(self, cost: Floats, groups: int | None = None) -> Floats:
        """[2, T]: logarithms of what four costs in five lie between, as a share of `cost` [n, T]. Where these are of
        whole `groups` left out, so many say as much as so many rows: prompts of a group are off together."""
        known = np.isfinite(self.cost) & np.isfinite(cost) & (self.cost > 0) & (cost > 0)
        off = [np.log(self.cost[rows, at] / cost[rows, at]) for at, rows in enumerate(known.T)]
        prior, every = np.array([-WIDE, WIDE]), np.concatenate(off)
        pooled = _quantiles(every, prior, WIDE_ROWS, groups)
        return np.array([_quantiles(values, pooled, 4 * WIDE_ROWS, groups) for values in off]).T


def two_way_means(score: Floats) -> tuple[Floats, Floats, Floats]:
    """usual [T], common [n], apart [n, T] of scores with gaps: a target that was only asked easy prompts is not taken
    for a good one."""
    seen = np.isfinite(score)
    count, filled, asked_of = seen.sum(0), np.where(seen, score, 0.0), seen.sum(1)
    overall = (filled.sum() + MEAN_WEIGHT * 0.5) / (count.sum() + MEAN_WEIGHT)
    common, usual = np.zeros(len(score)), np.full(score.shape[1], overall)
    for _ in range(6):
        usual = ((filled - seen * common[:, None]).sum(0) + MEAN_WEIGHT * overall) / (count + MEAN_WEIGHT)
        common = (filled - seen * usual).sum(1) / np.maximum(asked_of, 1)
        common -= common.mean()
    return usual, common, np.where(seen, score - usual - common[:, None], 0.0)


def _discriminant(z: Matrix, labels: Ints, number: int) -> tuple[Matrix, Matrix]:
    """Weights [D, L] and offsets [L]: linear discriminant analysis; a label that does not occur is never likely."""
    count = np.bincount(labels, minlength=number)
    means = (sums_by(z, labels, number) + MEAN_WEIGHT * z.mean(0)) / (count + MEAN_WEIGHT)[:, None]
    within = z - means[labels].astype(np.float32)
    covariance = (within.T @ within / len(z)).astype(float)
    trace = max(np.trace(covariance) / len(covariance), 1e-6)
    covariance = (1 - COVARIANCE_RIDGE) * covariance + COVARIANCE_RIDGE * trace * np.eye(len(covariance))
    weights = np.linalg.solve(covariance, means.T)
    prior = np.log((count + 0.01) / (count + 0.01).sum())
    return weights.astype(np.float32), (prior - 0.5 * (means.T * weights).sum(0)).astype(np.float32)


def _temperature(logits: Matrix, labels: Ints) -> float:
    """What makes logits of rows left out most likely (Guo et al. 2017)."""

    def loss(value: float) -> float:
        return float(-np.log(softmax(logits, value)[np.arange(len(labels)), labels] + 1e-9).mean())

    return min(TEMPERATURES, key=loss)


def _shrunken_means(values: Floats, share: Floats, labels: Ints, number: int) -> Floats:
    """Means [L, K] by label, each shrunken to 0 as far as chance explains it (empirical Bayes)."""
    sums, count = sums_by(values * share, labels, number), sums_by(share, labels, number)
    means = sums / np.maximum(count, 1e-6)
    total = np.maximum(share.sum(0), 1e-6)
    within = ((values - means[labels]) ** 2 * share).sum(0) / total
    excess = (count * means**2).sum(0) - (count > 0).sum(0) * within
    between = np.maximum(excess / total, 1e-4 * within + 1e-12)
    shrunken: Floats = count / np.maximum(count + within / between, 1e-6) * means
    return shrunken


def sums_by(values: NDArray[np.generic], labels: Ints, number: int) -> Floats:
    """Sums of rows [n, K] by label [number, K]."""
    member = labels == np.arange(number)[:, None]
    sums: Floats = member.astype(float) @ values.astype(float)
    return sums


def _main(z: Matrix) -> Matrix:
    """[D, DIRECTIONS]: the main directions, of embeddings foremost: they say what a prompt is like."""
    even = np.ones(z.shape[1], np.float32)
    even[EMBEDDED:] /= MARK
    plain = z * even
    _, directions = np.linalg.eigh((plain.T @ plain / len(z)).astype(float))
    return np.ascontiguousarray(even[:, None] * directions[:, ::-1][:, :DIRECTIONS]).astype(np.float32)


def _stacked(guess: Floats, truth: Floats, share: Floats, fold: Ints) -> Floats:
    """[parts] ≥ 0: least squares of `truth` [n, K] on `guess` [n, parts, K], times the slope that is left once its
    standard error over folds (jackknife) is taken off; 0 … 1."""
    weighed = guess * share[:, None, :]
    gram = np.einsum("npk,nqk->pq", weighed, guess, optimize=True)
    slope = np.einsum("npk,nk->p", weighed, truth, optimize=True)
    weights = np.zeros(len(slope))
    for _ in range(100):
        for at in range(len(weights)):
            rest = slope[at] - gram[at] @ weights + gram[at, at] * weights[at]
            weights[at] = max(rest / (gram[at, at] + 1e-9), 0.0)
    mixed = np.einsum("npk,p->nk", guess, weights, optimize=True)
    number = int(fold.max()) + 1
    over = np.bincount(fold, (mixed * truth * share).sum(1), number)
    under = np.bincount(fold, (mixed * mixed * share).sum(1), number)
    if number < 2 or under.sum() <= 0:
        return np.zeros(len(slope))
    without = (over.sum() - over) / np.maximum(under.sum() - under, 1e-12)
    error = np.sqrt((number - 1) / number * ((without - without.mean()) ** 2).sum())
    return np.asarray(weights * np.clip(over.sum() / under.sum() - error, 0.0, 1.0), float)


def _within(values: Floats, fold: Ints) -> Floats:
    """Values [n, …] less the mean of their fold."""
    rows = values.reshape(len(values), -1)
    number = int(fold.max()) + 1
    means = sums_by(rows, fold, number) / np.maximum(np.bincount(fold, minlength=number), 1)[:, None]
    centred: Floats = (rows - means[fold]).reshape(values.shape)
    return centred


def _quantiles(values: Floats, prior: Floats, weight: float, groups: int | None) -> Floats:
    """[2]: the 10 % and the 90 % one, leaning on `prior`; of few groups never inside what was seen."""
    own = np.quantile(values, (0.1, 0.9)) if len(values) else prior
    evidence = len(values) if groups is None else groups
    leaning: Floats = (evidence * own + weight * prior) / (evidence + weight)
    return leaning if groups is None else np.array([min(own[0], leaning[0]), max(own[1], leaning[1])])


class Expectation(NamedTuple):
    """[n, T] each, and [n]: costs in USD, with what four in five lie between."""

    p: Floats
    p_sd: Floats
    cost: Floats
    low: Floats
    high: Floats
    unfamiliarity: Floats


class Model(NamedTuple):
    learners: Learners
    familiar: Floats
    """[parts, 2]: `Outcomes.weights` for prompts like the known ones …"""
    strange: Floats
    """… and for others."""
    familiarity: "Familiarity"
    bands: Floats
    """[2, 2, T]: `Outcomes.band`, likewise."""
    sampling: Floats
    """[T]: variance of each target's mean."""

    def weigh(self, outputs: Outputs, without_text: NDArray[np.bool_] | None = None) -> Expectation:
        share = self.familiarity.unfamiliarity(outputs)
        if without_text is not None:
            share = np.where(without_text, 1.0, share)
        strange = share[:, None]
        usual = self.learners.usual
        p = usual + (1 - strange) * _summed(outputs, self.familiar) + strange * _summed(outputs, self.strange)
        p = np.clip(p, LEAST, 1 - LEAST)
        room = np.maximum(4 * p * (1 - p), 0.1)
        variance = outputs.label_variance + room * (self.sampling + strange * STRANGE_VARIANCE) + LEAST_VARIANCE
        cost = (1 - strange) * outputs.cost + strange * outputs.flat
        low, high = (np.exp((1 - strange) * near + strange * far) for near, far in zip(*self.bands, strict=True))
        costs = (cost, cost * np.minimum(low, 1.0), cost * np.maximum(high, 1.0))
        dearest = np.where(np.isfinite(cost), cost, 0.0).max(1, keepdims=True)
        mean, least, most = (np.where(np.isfinite(row), row, dearest) for row in costs)
        return Expectation(p, np.sqrt(variance), mean, least, most, share)


def _summed(outputs: Outputs, weights: Floats) -> Floats:
    """[n, T]: what parts say, common and apart."""
    common = outputs.guess[:, :, 0] @ weights[:, 0]
    apart: Floats = np.einsum("npt,p->nt", outputs.guess[:, :, 1:], weights[:, 1])
    return common[:, None] + apart


class Familiarity(NamedTuple):
    """Logistic regression of rows whose whole group was left out against rows left out at random, on similarity to the
    nearest prompts and on how undecided the labels are; what is less similar than known prompts are is outside."""

    mean: Floats
    scale: Floats
    weights: Floats
    """The last one is the offset."""
    far: float
    near: float

    @classmethod
    def of(cls, known: Outputs, strange: Outputs) -> "Familiarity":
        usual = _signs(known)
        both = np.vstack([usual, _signs(strange)])
        mean, scale = both.mean(0), np.maximum(both.std(0), 1e-6)
        rows = np.column_stack([(both - mean) / scale, np.ones(len(both))])
        size = len(known.near)
        truth, share = np.repeat([0.0, 1.0], size), np.repeat([2 - 2 * UNFAMILIAR, 2 * UNFAMILIAR], size)
        weights, ridge = np.zeros(rows.shape[1]), np.eye(rows.shape[1])
        for _ in range(12):  # Newton's method
            p = _logistic(rows @ weights)
            curve = (rows * (share * p * (1 - p))[:, None]).T @ rows + ridge
            weights = weights + np.linalg.solve(curve, rows.T @ (share * (truth - p)) - ridge @ weights)
        far, near = np.quantile(usual[:, 1], [FAR, NEAR])
        return cls(mean, scale, weights, float(far), float(near))

    def unfamiliarity(self, outputs: Outputs) -> Floats:
        """[n], 0 … 1."""
        signs = _signs(outputs)
        alike = _logistic((signs - self.mean) / self.scale @ self.weights[:-1] + self.weights[-1])
        outside = (self.near - signs[:, 1]) / max(self.near - self.far, 1e-6)
        share: Floats = np.maximum(alike, np.clip(outside, 0, 1))
        return share


def _signs(outputs: Outputs) -> Floats:
    """[n, 3]: similarity to the nearest prompt and to the nearest few, entropy of the labels."""
    probability = outputs.probability.astype(float)
    entropy = -(probability * np.log(probability + 1e-9)).sum(1) / np.log(max(probability.shape[1], 2))
    return np.column_stack([outputs.similar[:, 0], outputs.similar.mean(1), entropy])


def _logistic(value: Floats) -> Floats:
    share: Floats = 1 / (1 + np.exp(-np.clip(value, -30, 30)))
    return share


def random_folds(same: Ints, number: int) -> Ints:
    """The fold [n] of each row. Rows with equal `same` (one prompt under several ids) are never parted."""
    _, place = np.unique(same, return_inverse=True)
    fold = np.random.default_rng(0).permutation(np.arange(place.max(initial=-1) + 1) % number)
    return fold[place].astype(np.intp)


def group_folds(groups: Ints, number: int) -> Ints:
    """Likewise, but whole groups; at most `number` folds of about equal size, the largest group first."""
    _, place, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    load_of = np.zeros(min(number, len(sizes)))
    fold = np.zeros(len(sizes), np.intp)
    for group in np.argsort(-sizes, kind="stable"):
        fold[group] = load_of.argmin()
        load_of[fold[group]] += sizes[group]
    return fold[place]


def _splits(fold: Ints) -> Iterable[tuple[Ints, Ints]]:
    """Rows of each fold, and all others; one fold alone is its own training part, as there is nothing else."""
    for number in np.unique(fold):
        out, rest = np.flatnonzero(fold == number), np.flatnonzero(fold != number)
        yield out, rest if len(rest) else out


def clusters(rows: Matrix, number: int) -> Ints:
    """k-means [n], from centres far apart (k-means++); at most as many clusters as there are different rows."""
    chance = np.random.default_rng(0)
    centres = rows[[chance.integers(len(rows))]]
    far = _squares(rows, centres)[:, 0]
    while len(centres) < number and far.max() > 1e-6:
        centres = np.vstack([centres, rows[chance.choice(len(rows), p=far / far.sum())]])
        far = np.minimum(far, _squares(rows, centres[-1:])[:, 0])
    for _ in range(12):
        nearest = _squares(rows, centres).argmin(1)
        count = np.bincount(nearest, minlength=len(centres))[:, None]
        sums = sums_by(rows, nearest, len(centres))
        centres = np.where(count > 0, sums / np.maximum(count, 1), centres).astype(np.float32)
    return np.unique(_squares(rows, centres).argmin(1), return_inverse=True)[1].reshape(-1).astype(np.intp)


def _squares(rows: Matrix, centres: Matrix) -> Floats:
    """Squared distances [n, centres]."""
    squares = (rows * rows).sum(1)[:, None] - 2 * rows @ centres.T + (centres * centres).sum(1)
    distances: Floats = np.maximum(squares, 0.0).astype(float)
    return distances
