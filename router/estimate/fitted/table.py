"""The two tables of a fit as one set of arrays, with all that could not be used counted."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from router.estimate.fitted.columns import Columns, Table
from router.estimate.fitted.folds import Floats, Ints


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
    tokens: Floats | None
    """Output tokens; None where the rows have none."""
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
    kept, repeated = _first(asked(prompts))
    prompts_asked = _at(asked(prompts), kept)
    ignored = Counter({"prompts_repeated": repeated, "prompts_without_text": int(prompts_asked.without_text.sum())})
    names, score, cost, tokens = _cells(Columns(rows, "rows"), prompts_asked.ids, targets, ignored)
    labels, groups = _labels(table, kept)
    counted = {name: count for name, count in ignored.items() if count}
    return Observed(prompts_asked, names, score, cost, tokens, labels, groups, counted)


def _first(found: Asked) -> tuple[Ints, int]:
    """Places of the first of each id. ValueError if one id has two texts."""
    place: dict[str, int] = {}
    for at, name in enumerate(found.ids):
        if found.texts[place.setdefault(name, at)] != found.texts[at]:
            raise ValueError("prompts: column 'prompt_id' gives one id to two different prompts; make ids unique")
    return np.array(list(place.values()), np.intp), len(found.ids) - len(place)


def _at(found: Asked, places: Ints) -> Asked:
    ids, texts, functions = ([column[at] for at in places] for column in found[:3])
    return Asked(ids, texts, functions, found.without_text[places])


def _cells(
    rows: Columns, ids: Sequence[str], targets: Iterable[str] | None, ignored: Counter[str]
) -> tuple[tuple[str, ...], Floats, Floats, Floats | None]:
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
    tokens = rows.numbers("output_tokens") if "output_tokens" in rows else None
    by_cell = None if tokens is None else _means(tokens[usable], cell, shape)
    return names, _means(score[usable], cell, shape), _means(cost[usable], cell, shape), by_cell


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
