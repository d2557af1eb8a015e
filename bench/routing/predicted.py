"""Folds carried out: what the estimator, and a table of means by label, say of prompts that they did not learn from."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from bench.routing.data import Data
from bench.routing.folds import Fold
from bench.routing.metrics import Floats, Ints, Truth, best_single, choose
from bench.routing.tables import BadData

PRICES = (0.05, 0.25, 1.0, 4.0)
"""Of a failure, USD."""


class Prediction(Protocol):
    """Arrays [n, T]."""

    p: Any
    cost_usd: Any
    cost_p10: Any
    cost_p90: Any

    def choose(self, failure_cost_usd: float) -> Any: ...


class Estimator(Protocol):
    @property
    def targets(self) -> Sequence[str]: ...
    def predict(self, prompts: Any) -> Prediction: ...


Fit = Callable[..., Estimator]
"""(prompts, rows, targets=…), as `router.estimate.fit`."""


class Said(NamedTuple):
    """What was believed of the tested prompts [m]: chances and costs [m, T], and the column chosen at each price."""

    p: Floats
    cost: Floats
    choices: dict[float, Ints]


class Tested(NamedTuple):
    """All folds together; m prompts that were predicted and can be scored."""

    prompts: Ints
    fold: Ints
    truth: Truth
    router: Said
    cost_p10: Floats
    cost_p90: Floats
    lookup: Said
    picks: dict[float, Ints]
    """The single model that each fold's training part would have picked."""


def carry_out(data: Data, folds: Sequence[Fold], fit: Fit, advance: Callable[[], None] = lambda: None) -> Tested:
    """Raises BadData where the estimator's answer can't be used, or nothing can be scored."""
    parts = []
    for number, fold in enumerate(folds):
        test = fold.test[data.scored[fold.test]]
        if len(test):
            parts.append(_tested(data, fold.train, test, number, fit))
        advance()
    if not parts:
        raise BadData(f"{data.name}: no prompt was answered by all compared targets; name fewer with --targets")
    return Tested(*(_joined(column) for column in zip(*parts, strict=True)))


def _joined(parts: Sequence[Any]) -> Any:
    if isinstance(parts[0], dict):
        return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
    if isinstance(parts[0], tuple):
        return type(parts[0])(*map(_joined, zip(*parts, strict=True)))
    return np.concatenate(parts)


def _tested(data: Data, train: Ints, test: Ints, number: int, fit: Fit) -> Tested:
    try:
        estimator = fit(data.prompts.take(train), data.rows_of(train), targets=list(data.targets))
    except ValueError as error:
        raise BadData(f"{data.name}, {len(train)} prompts to learn from: {error}") from error
    said = estimator.predict(data.seen(test))
    column = _columns(data, estimator.targets)
    p, cost, low, high = (
        _checked(np.asarray(getattr(said, name), float)[:, column], name, data.priced)
        for name in ("p", "cost_usd", "cost_p10", "cost_p90")
    )
    truth, learned = (Truth(data.truth.score[part], data.truth.cost[part]) for part in (test, train))
    return Tested(
        prompts=test,
        fold=np.full(len(test), number),
        truth=truth,
        router=Said(p, cost, _choices(data, said, p, truth)),
        cost_p10=low,
        cost_p90=high,
        lookup=looked_up(data, train, test),
        picks={price: np.full(len(test), _pick(learned, price)) for price in PRICES},
    )


def _pick(learned: Truth, price: float) -> int:
    if not learned.observed.any():
        raise BadData("the training part of a fold has no score of any compared target; give more prompts")
    return best_single(learned, price)


def _columns(data: Data, targets: Sequence[str]) -> Ints:
    if missing := [target for target in data.targets if target not in targets]:
        raise BadData(f"router.estimate.fit: gives no estimate of {', '.join(missing)}; its targets must hold them")
    return np.array([list(targets).index(target) for target in data.targets])


def _checked(values: Floats, name: str, priced: bool) -> Floats:
    if not priced and name != "p":
        return np.zeros_like(values)
    if not np.isfinite(values).all():
        raise BadData(f"Estimator.predict: {name} is not finite in {(~np.isfinite(values)).mean():.1%} of its cells")
    return values


def _choices(data: Data, said: Prediction, p: Floats, truth: Truth) -> dict[float, Ints]:
    """By `Prediction.choose`; without costs, whatever is most likely right. Never a target that was not observed."""
    if not data.priced or not truth.observed.all():
        cost = np.zeros_like(p) if not data.priced else np.asarray(said.cost_usd, float)
        return {price: choose(p, cost, price, truth) for price in PRICES}
    return {price: _indices(data.targets, said.choose(price)) for price in PRICES}


def _indices(targets: Sequence[str], names: Iterable[str]) -> Ints:
    place = {target: column for column, target in enumerate(targets)}
    try:
        return np.array([place[str(name)] for name in names], np.intp)
    except KeyError as error:
        raise BadData(f"Prediction.choose: names {error}, which is no target; it must be one of its targets") from None


def looked_up(data: Data, train: Ints, test: Ints) -> Said:
    """Means per (true label, target) of the training part; of the target alone where the label is new to it."""
    p, cost = (_means(values, data.labels, train, test) for values in data.truth)
    truth = Truth(data.truth.score[test], data.truth.cost[test])
    return Said(p, cost, {price: choose(p, cost, price, truth) for price in PRICES})


def _means(values: Floats, labels: NDArray[np.object_], train: Ints, test: Ints) -> Floats:
    learned = values[train]
    found = np.tile(_column_means(learned, np.zeros(values.shape[1])), (len(test), 1))
    overall = found[0].copy()
    for label in set(labels[test]):
        found[labels[test] == label] = _column_means(learned[labels[train] == label], overall)
    return found


def _column_means(values: Floats, otherwise: Floats) -> Floats:
    seen = np.isfinite(values)
    with np.errstate(invalid="ignore"):
        means: Floats = np.where(seen, values, 0.0).sum(0) / seen.sum(0)
    return np.where(np.isfinite(means), means, otherwise)
