"""Tables of outcomes for the offline estimator, and the choice of a target by them."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

# The two tables of a fit, in any usual form, as one set of arrays; what could not be used is counted.
#
# Tables are pandas, polars, pyarrow, a dict of columns or a list of dicts; none of these packages is imported.

Ints = NDArray[np.intp]
Floats = NDArray[np.float64]


class Frame(Protocol):
    """pandas.DataFrame, polars.DataFrame and pyarrow.Table, as far as they are read here."""

    def __getitem__(self, name: Any, /) -> Any: ...


Table: TypeAlias = Mapping[str, Iterable[Any]] | Sequence[Mapping[str, Any]] | Frame


class Columns:
    """A table by its columns; `what` is its name in errors. Only columns that are asked for are read."""

    def __init__(self, table: Table, what: str) -> None:
        self._what = what
        self._rows: Any = _by_column(table, what)
        self._names = _names(self._rows, what)
        self._height: int | None = None

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def need(self, name: str) -> list[Any]:
        """ValueError where it is missing, or as long as no other."""
        if name not in self._names:
            has = ", ".join(sorted(self._names)) or "none"
            raise ValueError(f"{self._what}: column {name!r} is missing (there: {has}); rename or add it")
        values = _plain(self._rows[name])
        if self._height not in (None, len(values)):
            raise ValueError(f"{self._what}: column {name!r} has {len(values)} rows, others {self._height}")
        self._height = len(values)
        return values

    def numbers(self, name: str) -> NDArray[np.float64]:
        """As floats: NaN for what is absent. ValueError for text, and for infinite values."""
        try:
            values = np.array([np.nan if value is None else value for value in self.need(name)], dtype=np.float64)
        except (TypeError, ValueError):
            raise ValueError(f"{self._what}: column {name!r} holds something that is no number") from None
        if np.isinf(values).any():
            raise ValueError(f"{self._what}: column {name!r} holds infinite values; write NaN for what is unknown")
        return values

    def texts(self, name: str) -> list[str | None]:
        """None for what is absent. ValueError for anything but text."""
        return [self._text(value, name) for value in self.need(name)]

    def _text(self, value: Any, name: str) -> str | None:
        if isinstance(value, str):
            return value
        if absent(value):
            return None
        raise ValueError(f"{self._what}: column {name!r} holds a {type(value).__name__}; text is needed")

    def names(self, name: str) -> list[str]:
        """Ids and names. ValueError where one is absent."""
        values = self.need(name)
        if any(absent(value) for value in values):
            raise ValueError(f"{self._what}: column {name!r} has gaps; every row needs one")
        return [value if isinstance(value, str) else str(value) for value in values]


def absent(value: Any) -> bool:
    """None, NaN, and what pandas writes for them."""
    return (
        value is None or type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float) and value != value)
    )


def _by_column(table: Any, what: str) -> Any:
    if not isinstance(table, Sequence):
        return table
    if isinstance(table, str | bytes) or not all(isinstance(row, Mapping) for row in table):
        raise ValueError(f"{what}: a list must hold one dict for each row")
    names = dict.fromkeys(name for row in table for name in row)
    return {name: [row.get(name) for row in table] for name in names}


def _names(table: Any, what: str) -> list[str]:
    if isinstance(table, Mapping):
        return list(table)
    names = getattr(table, "column_names", None) or getattr(table, "columns", None)
    if names is None or not hasattr(table, "__getitem__"):
        raise ValueError(f"{what}: a {type(table).__name__} is no table; give a data frame, columns or rows")
    return list(names)


def _plain(values: Any) -> list[Any]:
    for method in ("to_pylist", "tolist", "to_list"):
        if hasattr(values, method):
            return list(getattr(values, method)())
    return list(values)


class Asked(NamedTuple):
    """Prompts as predictions read them."""

    ids: list[str]
    texts: list[str]
    functions: list[str]
    without_text: NDArray[np.bool_]


class Observed(NamedTuple):
    """n prompts, T targets. NaN: not observed."""

    asked: Asked
    targets: tuple[str, ...]
    score: Floats
    cost: Floats
    labels: Ints
    """[n] benchmark × category, numbered; all 0 where there are none."""
    groups: Ints
    """[n] benchmark if there are several, else category; all 0 where there are none."""
    ignored: Mapping[str, int]


def asked(prompts: Table, what: str = "prompts") -> Asked:
    """Without `prompt_id`, rows are known by their number. ValueError names the column that is missing or wrong."""
    table = Columns(prompts, what)
    texts = table.texts("prompt")
    functions = table.texts("functions") if "functions" in table else [None] * len(texts)
    ids = table.names("prompt_id") if "prompt_id" in table else [str(place) for place in range(len(texts))]
    empty = np.array([not (text or "").strip() for text in texts], bool)
    return Asked(ids, [text or "" for text in texts], [text or "" for text in functions], empty)


def observed(prompts: Table, rows: Table, targets: Iterable[str] | None = None) -> Observed:
    """ValueError where nothing can be fitted, or where a value can only be a mistake."""
    table = Columns(prompts, "prompts")
    table.need("prompt_id")
    every = asked(prompts)
    kept, repeated = _first(every)
    prompts_asked = _at(every, kept)
    ignored = Counter({"prompts_repeated": repeated, "prompts_without_text": int(prompts_asked.without_text.sum())})
    names, score, cost = _cells(Columns(rows, "rows"), prompts_asked.ids, targets, ignored)
    labels, groups = _labels(table, kept)
    counted = {name: count for name, count in ignored.items() if count}
    return Observed(prompts_asked, names, score, cost, labels, groups, counted)


def _first(table: Asked) -> tuple[Ints, int]:
    """Places of the first of each id. ValueError if one id has two texts."""
    place: dict[str, int] = {}
    for at, name in enumerate(table.ids):
        if table.texts[place.setdefault(name, at)] != table.texts[at]:
            raise ValueError("prompts: column 'prompt_id' gives one id to two different prompts; make ids unique")
    return np.array(list(place.values()), np.intp), len(table.ids) - len(place)


def _at(table: Asked, places: Ints) -> Asked:
    ids, texts, functions = ([column[at] for at in places] for column in table[:3])
    return Asked(ids, texts, functions, table.without_text[places])


def _cells(
    rows: Columns, ids: Sequence[str], targets: Iterable[str] | None, ignored: Counter[str]
) -> tuple[tuple[str, ...], Floats, Floats]:
    place = {name: at for at, name in enumerate(ids)}
    models = rows.names("model")
    prompt = np.array([place.get(name, -1) for name in rows.names("prompt_id")], np.intp)
    score, cost = _values(rows)
    scored = (prompt >= 0) & np.isfinite(score)
    ignored["rows_of_unknown_prompts"] = int((prompt < 0).sum())
    ignored["rows_without_score"] = int((prompt >= 0).sum() - scored.sum())
    names = _targets(targets, models, scored, ignored)
    column = {name: at for at, name in enumerate(names)}
    target = np.array([column.get(name, -1) for name in models], np.intp)
    ignored["rows_of_other_targets"] = int(((prompt >= 0) & (target < 0)).sum())
    usable = (prompt >= 0) & (target >= 0)
    cell = prompt[usable] * len(names) + target[usable]
    ignored["rows_averaged"] = len(cell) - len(np.unique(cell))
    shape = (len(ids), len(names))
    return names, _means(score[usable], cell, shape), _means(cost[usable], cell, shape)


def _values(rows: Columns) -> tuple[Floats, Floats]:
    score = rows.numbers("score")
    if ((score < 0) | (score > 1)).any():
        raise ValueError("rows: column 'score' leaves 0 … 1; divide it by its maximum")
    cost = rows.numbers("cost_usd") if "cost_usd" in rows else np.full(len(score), np.nan)
    if (cost < 0).any():
        raise ValueError("rows: column 'cost_usd' is negative somewhere; write NaN for what is unknown")
    return score, cost


def _targets(
    given: Iterable[str] | None, models: Sequence[str], scored: NDArray[np.bool_], ignored: Counter[str]
) -> tuple[str, ...]:
    known = {model for model, good in zip(models, scored, strict=True) if good}
    if given is None:
        ignored["targets_without_scores"] = len(set(models) - known)
        names = tuple(sorted(known))
    else:
        names = tuple(dict.fromkeys(given))
    if missing := [name for name in names if name not in known]:
        raise ValueError(f"targets: {missing[0]!r} has no scored row in rows, column 'model'; add some or leave it out")
    if not names:
        raise ValueError("rows: column 'score' holds no score of any prompt in prompts; nothing can be fitted")
    return names


def _means(values: Floats, cell: Ints, shape: tuple[int, int]) -> Floats:
    """The mean of what is known in each cell; NaN for none."""
    known = np.isfinite(values)
    size = shape[0] * shape[1]
    count = np.bincount(cell[known], minlength=size)
    sums = np.bincount(cell[known], values[known], minlength=size)
    means: Floats = np.where(count > 0, sums / np.maximum(count, 1), np.nan).reshape(shape)
    return means


def _labels(table: Columns, kept: Ints) -> tuple[Ints, Ints]:
    parts = [
        np.unique([text or "" for text in table.texts(name)], return_inverse=True)[1][kept]
        for name in ("benchmark", "category")
        if name in table
    ]
    if not parts:
        return np.zeros(len(kept), np.intp), np.zeros(len(kept), np.intp)
    labels = np.unique(np.column_stack(parts), axis=0, return_inverse=True)[1].reshape(-1).astype(np.intp)
    groups = next((part for part in parts if len(np.unique(part)) > 1), parts[0])
    return labels, groups.astype(np.intp)


# Which target to take at a price of failure: the best single one, left only where that paid on prompts held out.

BARELY = 0.25
"""Of a standard error: by so little no single target is better than another, and the cheaper one is taken."""
CAUTION = 2.0
"""Standard errors by which gains are lowered before they are compared, and must be above none: the best of many offers
is mostly a lucky one."""
HARM = 0.003
"""Share of the baseline's loss that leaving it may have cost on groups held out whole."""
OTHERS = (1, 2, 4, 1000)
"""Targets for which the baseline may be left: few are judged more surely than many."""
GAINS = (0.0, 0.1, 0.2, 0.3)
"""Of the baseline's expected loss, what leaving must promise."""
SHARES = (1.0, 0.75, 0.5, 0.25)
"""Of the known prompts, the most familiar ones: of these, leaving may be judged apart."""


class Trial(NamedTuple):
    """What was predicted of prompts without their `fold` [n]: `p`, `cost` [n, T], `unfamiliarity` [n]."""

    p: Floats
    cost: Floats
    unfamiliarity: Floats
    fold: Ints


class _Terms(NamedTuple):
    """Leave the baseline for targets of `others` [T] and a gain above `gain`, up to this `unfamiliarity`."""

    others: NDArray[np.bool_]
    gain: float
    unfamiliarity: float


class _Tried(NamedTuple):
    """Of each prompt held out: what each target was expected to lose and lost [n, T], the baseline that the other folds
    had [n], unfamiliarity [n]."""

    expected: Floats
    real: Floats
    base: Ints
    unfamiliarity: Floats

    def came(self, terms: _Terms) -> Floats:
        """What each prompt gained on these terms [n]; 0 where it stayed, or nothing is known."""
        rows = np.arange(len(self.base))
        choice = _choice(self.expected, self.base, self.unfamiliarity, terms)
        gained = self.real[rows, self.base] - self.real[rows, choice]
        return np.where(np.isfinite(gained), gained, 0.0)

    def promising(self, base: int) -> Ints:
        """All targets but `base`, by what they promised to win as the best ones."""
        rows = np.arange(len(self.base))
        best = self.expected.argmin(1)
        gain = self.expected[rows, self.base] - self.expected[rows, best]
        order = np.bincount(best, gain, minlength=self.expected.shape[1]).argsort(kind="stable")[::-1]
        return np.asarray(order[order != base], np.intp)


class Rules(NamedTuple):
    """All that a choice goes by; arrays [n, T] of the prompts of the fit, NaN where nothing was observed."""

    score: Floats
    cost: Floats
    known: Trial
    strange: Trial

    def baseline(self, price: float) -> int:
        """The single target with the least mean of cost + price · (1 − score), or one that barely differs for less."""
        return _baseline(self.score, self.cost, price)

    def choose(self, p: Floats, cost: Floats, unfamiliarity: Floats, price: float) -> Ints:
        """The column [n] for prompts with predicted `p` and `cost` [n, T]."""
        base = np.full(len(p), self.baseline(price))
        terms = self._terms(int(base[0]), price) if len(base) else None
        return _choice(cost + price * (1 - p), base, unfamiliarity, terms) if terms else base

    def _terms(self, base: int, price: float) -> _Terms | None:
        """On which leaving paid most on known prompts, surely and without harm to strangers; None: on none."""
        known, strange = (self._tried(trial, price) for trial in (self.known, self.strange))
        allowed = -HARM * float(np.nansum(known.real[:, base]))
        best, most = None, 0.0
        for terms in _offers(known, base):
            came = known.came(terms)
            surely = float(came.sum() - CAUTION * np.sqrt(len(came)) * came.std())
            if surely > most and self._harmless(strange.came(terms), allowed):
                best, most = terms, surely
        return best

    def _harmless(self, gains: Floats, allowed: float) -> bool:
        """Groups held out gained, less one standard error over them, at least `allowed`."""
        by_group = np.bincount(self.strange.fold, gains)
        error = np.sqrt(len(by_group) * by_group.var(ddof=1)) if len(by_group) > 1 else 0.0
        return bool(by_group.sum() - error >= allowed)

    def _tried(self, trial: Trial, price: float) -> _Tried:
        base = np.zeros(len(trial.fold), np.intp)
        for number in np.unique(trial.fold):
            rest = trial.fold != number
            base[~rest] = _baseline(self.score[rest], self.cost[rest], price)
        real = self.cost + price * (1 - self.score)
        return _Tried(trial.cost + price * (1 - trial.p), real, base, trial.unfamiliarity)


def _baseline(score: Floats, cost: Floats, price: float) -> int:
    loss = cost + price * (1 - score)
    means = _outcome_choice_means(loss)
    best = int(means.argmin())
    if np.isinf(means[best]):
        return best
    apart = loss - loss[:, [best]]
    error = np.sqrt(_outcome_choice_means(apart**2) / np.maximum(np.isfinite(apart).sum(0), 1))
    near = np.flatnonzero(np.isfinite(error) & (means <= means[best] + BARELY * error))
    return int(near[_outcome_choice_means(cost)[near].argmin()])


def _outcome_choice_means(values: Floats) -> Floats:
    """[T] of [n, T] with gaps; infinite where there are only gaps."""
    seen = np.isfinite(values)
    count = seen.sum(0)
    means: Floats = np.where(count > 0, np.where(seen, values, 0.0).sum(0) / np.maximum(count, 1), np.inf)
    return means


def _offers(known: _Tried, base: int) -> Iterator[_Terms]:
    order, targets = known.promising(base), known.expected.shape[1]
    ranges = [np.inf if share == 1 else float(np.quantile(known.unfamiliarity, share)) for share in SHARES]
    for number in sorted({min(number, targets - 1) for number in OTHERS}):
        others = np.isin(np.arange(targets), order[:number])
        yield from (_Terms(others, gain, most) for most in ranges for gain in GAINS)


def _choice(expected: Floats, base: Ints, unfamiliarity: Floats, terms: _Terms) -> Ints:
    """The column [n], from what each target is expected to lose [n, T]."""
    rows = np.arange(len(base))
    stay = expected[rows, base]
    best = np.where(terms.others, expected, np.inf).argmin(1)
    leave = (stay - expected[rows, best] > terms.gain * stay) & (unfamiliarity <= terms.unfamiliarity)
    choice: Ints = np.where(leave, best, base)
    return choice
