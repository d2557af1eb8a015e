"""Fits a table of outcomes without a gateway: the gateway's own pass rates, learned from the table's scores.

Requests are read, and scores learned from, as in a gateway that serves these targets and gets this feedback, so that
benchmarks measure what is in use (docs/routing-benchmark.md). Only costs differ: a gateway knows tokens and prices, a
table what was paid.
"""

import math
import warnings
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from router.classify.difficulty import load, text_features
from router.estimate.pass_rate import LEARNED, PassRateModel
from router.types.attempt import Outcome
from router.types.request import SHARE, TASKS, TRAITS, UNFAMILIARITY, Reading
from router.types.target import Model, Provider, Target, Wire

Floats = NDArray[np.float64]
Table = Any
"""Columns by name (pandas, polars, pyarrow, a dict of lists) or a list of dicts, one for each row."""
PRIOR_ROWS = 4.0
"""Number of answers at a target's mean cost that are added to its mean in each task."""
ROUNDS = 4
"""Number of rounds in which the costs of targets and the factors of tasks are computed, each by the other."""
PENALTY = 30.0
"""Penalty of the ridge regression of a prompt's relative cost on its traits."""
MOST_FACTOR = 1.5
"""Maximum of the logarithm of the factor that its traits put on a prompt's cost, up or down."""
WIDE, WIDE_ROWS = 1.0, 5.0
"""Prior half-width of the interval of costs, in logarithms, and its weight in rows."""
LEAST_GAIN = 0.2
"""Minimum saving for leaving the best single target, as a share of its expected loss: less did not pay on kinds of
prompts that were held out."""
FEW = 8
"""Number of scored rows of a target from which they show what it can do (docs/estimates.md)."""
_PROVIDER = Provider(id="table", wire=Wire.OPENAI_COMPATIBLE, base_url="http://127.0.0.1/v1")


class Prediction(NamedTuple):
    """Predictions for n prompts (rows) and T targets (columns, as `targets`)."""

    p: Floats
    p_sd: Floats
    """[n, T]: standard deviation of the pass rate of such prompts, without the luck of a single answer."""
    cost_usd: Floats
    """[n, T]: expected cost of one answer, thinking included."""
    cost_p10: Floats
    cost_p90: Floats
    """[n, T]: four answers in five cost between these."""
    unfamiliarity: Floats
    """[n]: from 0, like what the reader was fitted on, to 1, unlike all of it."""
    targets: tuple[str, ...]
    usual: tuple[Floats, Floats]
    """[T] each: pass rates and costs, means over the prompts of the fit."""

    def choose(self, failure_cost_usd: float) -> NDArray[np.str_]:
        """Returns the name [n] of the target with the least cost_usd + failure_cost_usd · (1 − p), if that saves
        `LEAST_GAIN` of what the best single target is expected to lose; else of that one.

        Raises ValueError unless 0 ≤ `failure_cost_usd` < ∞.
        """
        if not 0 <= failure_cost_usd < np.inf:
            raise ValueError(
                f"failure_cost_usd is {failure_cost_usd}; give the price of a wrong answer in USD, 0 or more"
            )
        p, cost = self.usual
        single = int((cost + failure_cost_usd * (1 - p)).argmin())
        loss = self.cost_usd + failure_cost_usd * (1 - self.p)
        leave = loss.min(1) < (1 - LEAST_GAIN) * loss[:, single]
        return np.array(self.targets)[np.where(leave, loss.argmin(1), single)]


class Estimator:
    """A fitted estimator, as `fit` returns it. For use by one thread."""

    def __init__(self, targets: tuple[str, ...], ignored: Counter[str]) -> None:
        self.targets = targets
        facts: dict[str, Any] = {"context": 0, "max_output": 0, "capabilities": frozenset(), "price": None}
        models = [Model(id=name, name=name, **facts) for name in targets]
        places = [Target(id=model.id, model=model, provider=_PROVIDER, base_url=_PROVIDER.base_url) for model in models]
        self.rates = PassRateModel(places)
        self._costs = _Costs(len(targets))
        self._prompts: dict[str, Reading] = {}
        self._learned: set[tuple[str, str]] = set()
        self._scored = Counter[str]()
        self._ignored = ignored
        self._usual = np.zeros(len(targets)), np.zeros(len(targets))

    @property
    def ignored(self) -> dict[str, int]:
        """Number of rows, prompts and updates that could not be used, by reason."""
        return {reason: count for reason, count in self._ignored.items() if count}

    def predict(self, prompts: Table) -> Prediction:
        """Predicts for a table with the column `prompt`, and optionally `functions` and `prompt_id`.

        A target without any known cost counts as the dearest; all cost 0 if none is known. Raises ValueError, which
        names the column, for a table that can't be read.
        """
        traits = np.array([reading.traits for reading in self._read(prompts).values()]).reshape(-1, TRAITS)
        p, p_sd = self.rates.expect_each(traits)
        return Prediction(p, p_sd, *self._costs.expected(traits), traits[:, UNFAMILIARITY], self.targets, self._usual)

    def update(
        self,
        prompts: str | Iterable[str] | Table,
        target: str,
        score: float | Iterable[float],
        cost_usd: float | Iterable[float] = float("nan"),
    ) -> None:
        """Learns from outcomes of `target`: one for each of a prompt id, several ids, or a table of prompts.

        Ids are those of prompts in the fit or in a prediction. NaN: unknown. Counted in `ignored`: unknown ids, second
        outcomes of the same id and target, and those without a score, of which only a cost is learned. Raises
        ValueError for unknown targets, scores outside 0 … 1, negative or infinite costs, and numbers that don't match.
        """
        if target not in self.targets:
            raise ValueError(f"target {target!r} is not in this estimator; fit it with rows of that target")
        named = [prompts] if isinstance(prompts, str) else prompts
        by_id = isinstance(named, list | tuple | set) and all(isinstance(name, str) for name in named)
        ids = list(named if by_id else self._read(named))
        scores, costs = _each(score, len(ids), "score"), _each(cost_usd, len(ids), "cost_usd")
        for name, right, cost in zip(ids, scores, costs, strict=True):
            if name not in self._prompts:
                self._ignored["updates_of_unknown_prompts"] += 1
            elif (name, target) in self._learned:
                self._ignored["updates_repeated"] += 1
            elif math.isnan(right) and math.isnan(cost):
                self._ignored["updates_without_outcome"] += 1
            else:
                self._ignored["updates_without_score"] += math.isnan(right)
                self._learned.add((name, target))
                self._learn(name, self.targets.index(target), right, cost)
        self._settle()

    def _read(self, prompts: Table) -> dict[str, Reading]:
        """Returns the readings by id, and remembers them. Rows without `prompt_id` have their number as id."""
        table = _columns(prompts, "prompts")
        texts = _texts(table, "prompt", "prompts")
        functions = _texts(table, "functions", "prompts") if "functions" in table else [""] * len(texts)
        ids = _names(table, "prompt_id", "prompts") if "prompt_id" in table else list(map(str, range(len(texts))))
        readings = {name: read(*row) for name, *row in zip(ids, texts, functions, strict=True)}
        self._prompts |= readings | self._prompts
        return readings

    def learn(self, prompts: Table, answers: "Mapping[tuple[str, str], _Answers]") -> None:
        """Learns the mean of the answers of each prompt and model; models that are not targets are counted."""
        self._read(prompts)
        for (prompt, model), values in answers.items():
            if model in self.targets:
                score, cost = (sum(known) / len(known) if known else math.nan for known in values)
                self._learn(prompt, self.targets.index(model), score, cost)
            else:
                self._ignored["rows_of_other_targets"] += max(1, *map(len, values))
        self._settle()

    def _learn(self, prompt: str, at: int, score: float, cost: float) -> None:
        reading = self._prompts[prompt]
        if not math.isnan(score):
            self._scored[prompt] += 1
            self.rates.observe(outcome(self.targets[at], reading, score))
        if not math.isnan(cost):
            self._costs.add(reading.traits.astype(np.float64), at, cost)

    def _settle(self) -> None:
        """Computes, after outcomes, what is expected of the fit's prompts on average."""
        traits = np.array([reading.traits for reading in self._prompts.values()])
        self._costs.settle()
        self.rates.posterior.asked = self._scored.total() / max(len(self._scored), 1)
        self._usual = self.rates.expect_each(traits)[0].mean(0), self._costs.expected(traits)[0].mean(0)


class _Costs:
    """Mean costs in USD by task and target, times a factor of the prompt's traits that keeps their mean."""

    def __init__(self, targets: int) -> None:
        self._rows: list[tuple[Floats, int, float]] = []
        self._means = np.zeros((len(TASKS), targets))
        self._factor, self._scale = np.zeros(len(LEARNED)), 1.0
        self._bands = np.tile([[-WIDE], [WIDE]], targets)

    def add(self, traits: Floats, at: int, cost: float) -> None:
        self._rows.append((traits, at, cost))

    def settle(self) -> None:
        """Computes the means from sums over all known costs, so that their order does not matter."""
        if not self._rows:
            return
        traits, at, cost = (np.array(column) for column in zip(*self._rows, strict=True))
        shares, sums, counts = _shares(traits), np.zeros(self._means.shape), np.zeros(self._means.shape)
        np.add.at(sums.T, at, shares * cost[:, None])
        np.add.at(counts.T, at, shares)
        # A target without rows of some tasks costs there what all targets' costs make of its other tasks.
        usual, of_task = np.zeros(len(sums.T)), np.ones((len(TASKS), 1))
        for _ in range(ROUNDS):
            usual = sums.sum(0) / np.maximum((counts * of_task).sum(0), 1e-9)
            more = PRIOR_ROWS * usual.mean()
            of_task[:, 0] = (sums.sum(1) + more) / np.maximum((counts * usual).sum(1) + more, 1e-30)
        means = (sums + PRIOR_ROWS * of_task * usual) / (counts + PRIOR_ROWS)
        self._means = np.where(counts.any(0), means, means.sum(0).max(initial=0.0) / len(TASKS))
        expected = (shares * self._means.T[at]).sum(1)
        phi, paid = traits[:, LEARNED], (cost > 0) & (expected > 0)
        ratio = np.log(np.where(paid, cost / np.where(paid, expected, 1.0), 1.0))
        apart = np.where(paid, ratio - (ratio.sum() / max(paid.sum(), 1)), 0.0)
        gram = (phi * paid[:, None]).T @ phi + PENALTY * np.eye(len(LEARNED))
        self._factor = np.linalg.solve(gram, phi.T @ apart)
        grown = np.exp(np.clip(phi @ self._factor, -MOST_FACTOR, MOST_FACTOR))
        self._scale = float(expected.sum() / max((expected * grown).sum(), 1e-30))
        off = np.log(np.where(paid, cost / np.maximum(expected * grown * self._scale, 1e-30), 1.0))
        pooled = _band(off[paid], np.array([-WIDE, WIDE]))
        self._bands = np.array([_band(off[paid & (at == column)], pooled) for column in range(len(usual))]).T

    def expected(self, traits: Floats) -> tuple[Floats, Floats, Floats]:
        """Returns [n, T] each: the mean, and the limits between which four costs in five lie."""
        factor = np.exp(np.clip(traits[:, LEARNED] @ self._factor, -MOST_FACTOR, MOST_FACTOR)) * self._scale
        mean = (_shares(traits) @ self._means) * factor[:, None]
        low, high = np.exp(self._bands)
        return mean, mean * np.minimum(low, 1.0), mean * np.maximum(high, 1.0)


def _shares(traits: Floats) -> Floats:
    """Returns [n, tasks]: probability of each task, 1 in all."""
    shares = np.maximum(traits[:, SHARE:], 0.0) + 1e-9
    return np.asarray(shares / shares.sum(1, keepdims=True))


def _band(off: Floats, prior: Floats) -> Floats:
    """Returns [2]: the 10 % and the 90 % quantile, shrunk to `prior`."""
    own = np.quantile(off, (0.1, 0.9)) if len(off) else prior
    return np.asarray((len(off) * own + WIDE_ROWS * prior) / (len(off) + WIDE_ROWS))


def fit(prompts: Table, rows: Table, targets: Iterable[str] | None = None) -> Estimator:
    """Fits pass rates and costs of each target to outcomes of prompts.

    `prompts`: columns `prompt_id`, `prompt` and, if there are any, `functions` (tools in JSON). `rows`: `prompt_id`,
    `model`, `score` (0 … 1, NaN: unknown) and, if known, `cost_usd`. `targets`: which models, in this order; else all
    with a score, by name.

    Counted in `Estimator.ignored`: rows without score, of prompts not given, of other targets, repeated (averaged);
    prompts repeated or without text. A target without any cost has the dearest known cost; if none has one, all are
    free. Warns of targets with fewer than `FEW` scored rows. Raises ValueError, which names the column and the remedy,
    for missing columns, values that can't be true, a target without scores, and nothing to fit.
    """
    table = _columns(prompts, "prompts")
    ids, texts = _names(table, "prompt_id", "prompts"), _texts(table, "prompt", "prompts")
    text_of: dict[str, str] = {}
    for name, text in zip(ids, texts, strict=True):
        if text_of.setdefault(name, text) != text:
            raise ValueError("prompts: column 'prompt_id' gives one id to two different prompts; make ids unique")
    without_text = sum(not text.strip() for text in text_of.values())
    ignored = Counter(prompts_repeated=len(ids) - len(text_of), prompts_without_text=without_text)
    answers = _answers(_columns(rows, "rows"), text_of, ignored)
    scored = Counter(model for (_, model), (scores, _) in answers.items() for _ in scores)
    ignored["targets_without_scores"] = len({model for _, model in answers} - scored.keys()) if targets is None else 0
    names = tuple(sorted(scored) if targets is None else dict.fromkeys(targets))
    if missing := [name for name in names if name not in scored]:
        raise ValueError(f"targets: {missing[0]!r} has no scored row in rows, column 'model'; add some or leave it out")
    if not names:
        raise ValueError("rows: column 'score' holds no score of any prompt in prompts; nothing can be fitted")
    if few := ", ".join(f"{name!r} has {scored[name]}" for name in names if scored[name] < FEW):
        warnings.warn(f"fewer than {FEW} scored rows, so that what is usual of models decides: {few}", stacklevel=2)
    priced = {model for (_, model), (_, costs) in answers.items() if costs}
    if priced and (free := ", ".join(repr(name) for name in names if name not in priced)):
        warnings.warn(f"no known cost, so that the dearest target's counts: {free}", stacklevel=2)
    estimator = Estimator(names, ignored)
    estimator.learn(table, answers)
    return estimator


_Answers = tuple[list[float], list[float]]
"""Known scores and known costs of one model's answers to one prompt."""


def _answers(
    rows: Mapping[str, list[Any]], known: Container[str], ignored: Counter[str]
) -> dict[tuple[str, str], _Answers]:
    """Returns the answers by prompt id and model. Raises ValueError for values that can only be mistakes."""
    prompts, models = _names(rows, "prompt_id", "rows"), _names(rows, "model", "rows")
    scores = _numbers(rows, "score")
    costs = _numbers(rows, "cost_usd") if "cost_usd" in rows else [math.nan] * len(scores)
    answers: dict[tuple[str, str], _Answers] = {}
    for prompt, model, score, cost in zip(prompts, models, scores, costs, strict=True):
        if prompt not in known:
            ignored["rows_of_unknown_prompts"] += 1
            continue
        ignored["rows_without_score"] += math.isnan(score)
        ignored["rows_averaged"] += (prompt, model) in answers
        for values, value in zip(answers.setdefault((prompt, model), ([], [])), (score, cost), strict=True):
            if not math.isnan(value):
                values.append(value)
    return answers


# Prompts as a gateway reads them, targets of which only the name is known, outcomes as feedback.


def read(text: str, functions: str = "") -> Reading:
    """Returns the reading of a prompt, as in the gateway. `functions`: the tools offered, in JSON."""
    return load().reading(text_features(text, functions), None)


def outcome(target: str, reading: Reading, score: float) -> Outcome:
    """Returns the score of an answer as feedback."""
    task, traits = TASKS[int(reading.traits[SHARE:].argmax())], reading.packed()
    return Outcome(
        request_id="", target=target, source="", score=score, task=task, traits=traits, expected=0.0, given_ms=0
    )


# Tables of several kinds.


def _columns(table: Table, name: str) -> dict[str, list[Any]]:
    """Returns every column as a list. Raises ValueError if it is no table, or columns differ in length."""
    if isinstance(table, Sequence):
        if isinstance(table, str | bytes) or not all(isinstance(row, Mapping) for row in table):
            raise ValueError(f"{name}: a list must hold one dict for each row")
        table = {key: [row.get(key) for row in table] for key in dict.fromkeys(key for row in table for key in row)}
    keys: Any = table if isinstance(table, Mapping) else getattr(table, "column_names", getattr(table, "columns", None))
    if keys is None or not hasattr(table, "__getitem__"):
        raise ValueError(f"{name}: a {type(table).__name__} is no table; give a data frame, columns or rows")
    columns = {str(key): list(getattr(table[key], "to_pylist", table[key].__iter__)()) for key in keys}
    if len({len(values) for values in columns.values()}) > 1:
        raise ValueError(f"{name}: columns have different numbers of rows")
    return columns


def _column(table: Mapping[str, list[Any]], key: str, name: str) -> list[Any]:
    if key not in table:
        raise ValueError(f"{name}: column {key!r} is missing; there are {', '.join(table) or 'none'}")
    return table[key]


def _absent(value: Any) -> bool:
    """Returns whether a value is None, NaN, or what pandas writes for them."""
    return value is None or type(value).__name__ in ("NAType", "NaTType") or value != value


def _texts(table: Mapping[str, list[Any]], key: str, name: str) -> list[str]:
    """Returns the texts of a column; empty for absent ones."""
    texts = ["" if _absent(value) else value for value in _column(table, key, name)]
    if wrong := next((value for value in texts if not isinstance(value, str)), None):
        raise ValueError(f"{name}: column {key!r} holds a {type(wrong).__name__}; text is needed")
    return texts


def _names(table: Mapping[str, list[Any]], key: str, name: str) -> list[str]:
    values = _column(table, key, name)
    if any(map(_absent, values)):
        raise ValueError(f"{name}: column {key!r} has gaps; every row needs one")
    return list(map(str, values))


def _numbers(table: Mapping[str, list[Any]], key: str) -> list[float]:
    """Returns the numbers of a column; NaN for absent ones."""
    try:
        values = [math.nan if _absent(value) else float(value) for value in _column(table, key, "rows")]
    except (TypeError, ValueError):
        raise ValueError(f"rows: column {key!r} holds something that is no number") from None
    _check(key, values)
    return values


def _each(values: float | Iterable[float], number: int, key: str) -> list[float]:
    """Returns a value for each: one for all is repeated."""
    each = [float(values)] * number if isinstance(values, float | int) else list(values)
    if len(each) != number:
        raise ValueError(f"{key} has {len(each)} values for {number} prompts; give one, or one for each")
    _check(key, each)
    return each


def _check(key: str, values: Iterable[float]) -> None:
    """Raises ValueError for scores or costs that can only be mistakes."""
    known = [value for value in values if not math.isnan(value)]
    if key == "score" and not all(0 <= value <= 1 for value in known):
        raise ValueError("column 'score' leaves 0 … 1; divide it by its maximum")
    if not all(0 <= value < math.inf for value in known):
        raise ValueError(f"column {key!r} is negative or infinite somewhere; write NaN for what is unknown")
