"""Pass rates and costs of new prompts from a table of outcomes, without a gateway.

The benchmarks fit on public tables with it (docs/routing-benchmark.md). What each part of it does: docs/estimates.md.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from router.classify import embedding
from router.classify.difficulty import GROUPS, alone, load, numbers, of_text
from router.classify.embedding import DIMENSIONS
from router.estimate.outcome_model import (
    EMBEDDED,
    FOLDS,
    LEAST,
    MARK,
    Expectation,
    Familiarity,
    Matrix,
    Model,
    Outcomes,
    group_folds,
    random_folds,
)
from router.estimate.outcome_table import Asked, Floats, Rules, Table, Trial, asked, observed
from router.estimate.posterior import Posterior, Prior, noise

LENGTH = 16.0
"""Of each embedding: about 1 per dimension."""
LEAST_SD = 0.02
CLIP = 4.0
PRIOR_VARIANCE = 0.15**2
"""Of a target's pass rate before later outcomes."""
ONLINE = 9
"""Features that later outcomes are learned by: 1, and main directions of the prompts' numbers."""
COST_NOISE = 0.5
"""Variance of the logarithm of one cost around its mean: thinking makes it a factor of two."""
MOST_RATIO = 50.0
"""Costs farther off than that teach no more than at that distance."""


class Prediction(NamedTuple):
    """Of n prompts (rows) and T targets (columns, as `targets`)."""

    p: Floats
    """[n, T]: chance of a correct answer."""
    p_sd: Floats
    """[n, T]: standard deviation of the pass rate of such prompts; the luck of a single answer is not in it."""
    cost_usd: Floats
    """[n, T]: expected cost of one answer, thinking included."""
    cost_p10: Floats
    cost_p90: Floats
    """[n, T]: four answers in five cost between these."""
    unfamiliarity: Floats
    """[n]: 0, like what was fitted on, to 1, like nothing of it."""
    targets: tuple[str, ...]
    rules: Rules

    def choose(self, failure_cost_usd: float) -> NDArray[np.str_]:
        """The name [n] of the target with the least cost_usd + failure_cost_usd · (1 − p), if leaving the best single
        target of the fit for it has paid on prompts held out; that best single one otherwise.

        Raises ValueError unless 0 ≤ `failure_cost_usd` < ∞.
        """
        if not 0 <= failure_cost_usd < np.inf:
            raise ValueError(
                f"failure_cost_usd is {failure_cost_usd}; give the price of a wrong answer in USD, 0 or more"
            )
        column = self.rules.choose(self.p, self.cost_usd, self.unfamiliarity, float(failure_cost_usd))
        return np.array(self.targets)[column]


def fit(prompts: Table, rows: Table, targets: Iterable[str] | None = None) -> "Estimator":
    """Pass rates and costs of each target, from what came of prompts.

    `prompts`: columns `prompt_id`, `prompt` and, if there are any, `functions` (tools in JSON), `benchmark` and
    `category`, which guide the fit but no prediction. `rows`: `prompt_id`, `model`, `score` (0 … 1, NaN: unknown) and,
    if known, `cost_usd`. Any of pandas, polars, pyarrow, a dict of columns, a list of dicts. `targets`: which models,
    in this order; else all with a score, by name.

    Counted in `Estimator.ignored`: rows without score, of prompts not given, of other targets, repeated (averaged);
    prompts repeated or without text. A target without any cost is compared at the dearest known cost; where no target
    has one, all compare as free. Raises ValueError, which names the column and what to do, for missing columns, values
    that can't be true, a target without scores, and where nothing is left to fit.
    """
    table = observed(prompts, rows, targets)
    raw = features(table.asked)
    scale = Scale.of(raw)
    data = Outcomes.of(scale.z(raw), table.score, table.cost, table.labels)
    same = np.unique(raw, axis=0, return_inverse=True)[1].reshape(-1)
    groups = table.groups if len(np.unique(table.groups)) > 1 else data.labels
    folds = random_folds(same, FOLDS), group_folds(groups, FOLDS)
    known, strange = (data.left_out(fold) for fold in folds)
    model = Model(
        learners=data.learners(np.arange(len(raw))),
        familiar=data.weights(known, folds[0], centred=False),
        strange=data.weights(strange, folds[1], centred=True),
        familiarity=Familiarity.of(known, strange),
        bands=np.stack([data.band(known.cost), data.band(strange.flat, int(folds[1].max()) + 1)]),
        sampling=0.25 / (data.seen.sum(0) + 2.0),
    )
    trials = []
    for outputs, fold in zip((known, strange), folds, strict=True):
        expected = model.weigh(outputs)
        trials.append(Trial(expected.p, expected.cost, expected.unfamiliarity, fold))
    rules = Rules(table.score, _comparable(table.cost), *trials)
    estimator = Estimator(table.targets, scale, model, rules, table.ignored)
    estimator.remember(table.asked.ids, online_features(known.near), trials[0].p, trials[0].cost)
    return estimator


class Estimator:
    """What `fit` gives. One thread."""

    def __init__(
        self, targets: tuple[str, ...], scale: "Scale", model: "Model", rules: Rules, ignored: Mapping[str, int]
    ) -> None:
        self.targets = targets
        self._scale, self._model, self._rules = scale, model, rules
        shape = (len(targets), ONLINE)
        common, own = np.full(ONLINE, 0.02**2), np.full(shape, 0.04**2)
        own[:, 0] = PRIOR_VARIANCE
        self._variance = common + own
        self._rates = Posterior(targets, Prior(common, own))
        self._costs = Posterior(targets, Prior(np.full(ONLINE, 0.1), np.full(shape, 0.1)))
        self._expected: dict[str, tuple[Floats, Floats, Floats]] = {}
        self._learned: set[tuple[str, str]] = set()
        self._ignored = Counter(ignored)

    @property
    def ignored(self) -> dict[str, int]:
        """What could not be used, by reason: rows and prompts of the fit, and updates since."""
        return dict(self._ignored)

    def predict(self, prompts: Table) -> Prediction:
        """Reads the columns `prompt`, `functions` and `prompt_id`, the latter two if they are there.

        Costs of a target for which the fit knew none are the dearest known ones; 0 where it knew none at all. An empty
        prompt is wholly unfamiliar. Raises ValueError, which names the column, for a table that can't be read.
        """
        phi, expected = self._expect(asked(prompts))
        belief, factor = self._rates.belief(phi), np.exp(self._costs.mean(phi))
        narrower = np.minimum(belief.sd / np.sqrt(phi**2 @ self._variance.T), 1.0)
        return Prediction(
            np.clip(expected.p + belief.mean, LEAST, 1 - LEAST),
            expected.p_sd * narrower,
            expected.cost * factor,
            expected.low * factor,
            expected.high * factor,
            expected.unfamiliarity,
            self.targets,
            self._rules,
        )

    def _expect(self, table: Asked) -> tuple[Floats, Expectation]:
        """Features [n, ONLINE] of prompts, and what the fit makes of them, which is remembered."""
        outputs = self._model.learners.outputs(self._scale.z(features(table)))
        expected, phi = self._model.weigh(outputs, table.without_text), online_features(outputs.near)
        self.remember(table.ids, phi, expected.p, expected.cost)
        return phi, expected

    def update(
        self,
        prompts: str | Iterable[str] | Table,
        target: str,
        score: float | Iterable[float],
        cost_usd: float | Iterable[float] = float("nan"),
    ) -> None:
        """Learn from outcomes of `target`: one each for a prompt id, several ids, or a table of prompts.

        Ids are those of prompts in the fit or in a prediction. NaN: unknown. Counted in `ignored` and not learnt from:
        unknown ids, a second outcome of the same id and target, outcomes without score and cost. Raises ValueError for
        an unknown target, scores outside 0 … 1, costs that are negative or infinite, and numbers that don't match.
        """
        if target not in self.targets:
            raise ValueError(f"target {target!r} is not in this estimator; fit it with rows of that target")
        ids = self._ids(prompts)
        outcomes = np.column_stack([_each(score, len(ids), "score"), _each(cost_usd, len(ids), "cost_usd")])
        if ((outcomes[:, 0] < 0) | (outcomes[:, 0] > 1)).any():
            raise ValueError("score leaves 0 … 1; divide it by its maximum")
        if (outcomes[:, 1] < 0).any():
            raise ValueError("cost_usd is negative; give NaN for what is unknown")
        for name, (right, cost) in zip(ids, outcomes, strict=True):
            reason = self._unusable(name, target, right, cost)
            if reason:
                self._ignored[reason] += 1
            else:
                self._learn(name, target, float(right), float(cost))

    def remember(self, ids: Iterable[str], phi: Floats, p: Floats, cost: Floats) -> None:
        """What is expected of prompts, so that outcomes of them can be learnt from by id."""
        for name, *expected in zip(ids, phi, p, cost, strict=True):
            self._expected.setdefault(name, (expected[0], expected[1], expected[2]))

    def _ids(self, prompts: str | Iterable[str] | Table) -> list[str]:
        if isinstance(prompts, str):
            return [prompts]
        if isinstance(prompts, list | tuple | set) and all(isinstance(name, str) for name in prompts):
            return list(prompts)
        table = asked(prompts)  # type: ignore[arg-type]
        self._expect(table)
        return table.ids

    def _unusable(self, name: str, target: str, score: float, cost: float) -> str | None:
        if name not in self._expected:
            return "updates_of_unknown_prompts"
        if (name, target) in self._learned:
            return "updates_repeated"
        return "updates_without_outcome" if np.isnan(score) and np.isnan(cost) else None

    def _learn(self, name: str, target: str, score: float, cost: float) -> None:
        self._learned.add((name, target))
        at, (phi, p, usual) = self.targets.index(target), self._expected[name]
        if np.isfinite(score):
            self._rates.update(at, phi, score - float(p[at]), noise(float(p[at])))
        if np.isfinite(cost) and usual[at] > 0:
            ratio = np.clip(cost / usual[at], 1 / MOST_RATIO, MOST_RATIO)
            self._costs.update(at, phi, float(np.log(ratio)), COST_NOISE)


def _each(values: float | Iterable[float], number: int, name: str) -> Floats:
    """[number]: one value for all, or one for each."""
    given = np.asarray(values if isinstance(values, float | int) else list(values), float)
    if given.ndim and len(given) != number:
        raise ValueError(f"{name} has {len(given)} values for {number} prompts; give one, or one for each")
    if np.isinf(given).any():
        raise ValueError(f"{name} is infinite; give NaN for what is unknown")
    return np.broadcast_to(given, (number,)).astype(float)


def _comparable(cost: Floats) -> Floats:
    """[n, T] with targets that have no cost at all at the mean of the dearest one; gaps of the others stay."""
    known = np.isfinite(cost)
    means = np.where(known, cost, 0.0).sum(0) / np.maximum(known.sum(0), 1)
    filled: Floats = np.where(known.any(0), cost, means.max(initial=0.0))
    return filled


# What is read of a prompt


def features(prompts: Asked) -> Matrix:
    """[n, D]: the numbers that a gateway reads, in the place of its context's embedding that of the whole text and the
    functions that it offers, and what the instruction has to do with those functions."""
    reader, model = load(), embedding.load()
    rows = []
    for text, functions in zip(prompts.texts, prompts.functions, strict=True):
        offered = _functions(functions)
        row = numbers(of_text(text, len(offered)), reader.groups).row[: alone() - GROUPS]
        row[DIMENSIONS:EMBEDDED] = model.embed(f"{text} {functions}")[0]
        rows.append(np.append(row, _relevance(row[:DIMENSIONS], offered)))
    return np.array(rows, np.float32)


def _functions(functions: str) -> list[dict[str, object]]:
    """As they are offered: bare or in an API's envelope, one or several. What can't be read is none."""
    try:
        value = msgspec.json.decode(functions) if functions else []
    except (ValueError, RecursionError):
        return []
    offered = value if isinstance(value, list) else [value]
    inner = [row.get("function", row) for row in offered[:16] if isinstance(row, dict)]
    return [row for row in inner if isinstance(row, dict)]


def _relevance(instruction: Matrix, offered: Sequence[Mapping[str, object]]) -> tuple[float, ...]:
    """How near the functions are to it, how far the nearest is ahead, and how many parameters that one has."""
    if not offered:
        return (0.0,) * 6
    model = embedding.load()
    near = [float(model.embed(f"{row.get('name')} {row.get('description')}")[0] @ instruction) for row in offered]
    ranked, best = sorted(near), offered[int(np.argmax(near))]
    schema = best.get("parameters")
    parameters = schema if isinstance(schema, dict) else {}
    parts = parameters.get("required"), parameters.get("properties")
    sizes = [len(part) if isinstance(part, list | dict) else 0 for part in parts]
    ahead = ranked[-1] - ranked[-2] if len(ranked) > 1 else 0.0
    return (ranked[-1], sum(near) / len(near), ahead, np.log1p(len(near)), *np.log1p(sizes))


class Scale(NamedTuple):
    """Makes numbers of prompts comparable, by those that were fitted."""

    centre: Matrix
    sd: Matrix
    """Of all but the embeddings."""

    @classmethod
    def of(cls, raw: Matrix) -> "Scale":
        return cls(raw.mean(0), np.maximum(raw[:, EMBEDDED:].std(0), LEAST_SD))

    def z(self, raw: Matrix) -> Matrix:
        """[n, D]"""
        rows = raw - self.centre
        texts = [rows[:, :DIMENSIONS], rows[:, DIMENSIONS:EMBEDDED]]
        even = [text * (LENGTH / np.maximum(np.linalg.norm(text, axis=1, keepdims=True), 1e-6)) for text in texts]
        marks = np.clip(rows[:, EMBEDDED:] / self.sd, -CLIP, CLIP) * np.float32(MARK)
        return np.hstack([*even, marks]).astype(np.float32)


def online_features(near: Matrix) -> Floats:
    """[n, ONLINE] from unit vectors [n, DIRECTIONS]: 1, and the main directions, about 1 in size."""
    padded = np.zeros((len(near), ONLINE - 1))
    padded[:, : near.shape[1]] = near[:, : ONLINE - 1] * 4.0
    return np.column_stack([np.ones(len(near)), padded])
