"""A data set as it is compared: which prompts, which targets, what really happened."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bench.routing.metrics import Floats, Ints, Truth
from bench.routing.tables import files, read_prompts, read_rows, wrong

COVERAGE = 0.9
"""A target is compared if it was observed on this share of the prompts; else the means of two targets would be of
different prompts."""
SPARSE = "each chooses among its own, single models are means of different prompts, and no goal is judged"
READ = ("prompt_id", "prompt", "functions")
"""All that a prediction may see."""


class Data(NamedTuple):
    """n prompts, T targets. In a set without costs, `priced` is false and every cost is 0."""

    name: str
    prompts: pa.Table
    rows: pa.Table
    row_prompt: Ints
    """Index of the prompt of each row."""
    targets: tuple[str, ...]
    truth: Truth
    scored: NDArray[np.bool_]
    """[n]: all targets were observed, or in a sparse set two."""
    labels: NDArray[np.object_]
    """[n]: category where there is one, else benchmark."""
    benchmarks: NDArray[np.object_]
    categories: NDArray[np.object_]
    priced: bool
    sparse: bool
    """Each prompt has its own targets, so that means of two of them are of different prompts."""
    measured: bool
    """Tokens were counted, not guessed from characters: thinking tokens or latencies were kept."""
    notes: tuple[str, ...]

    def rows_of(self, prompts: Ints) -> pa.Table:
        return self.rows.filter(pa.array(np.isin(self.row_prompt, prompts)))

    def seen(self, prompts: Ints) -> pa.Table:
        """Only what a prediction may read."""
        return self.prompts.select([name for name in READ if name in self.prompts.column_names]).take(prompts)


def load(rows: Sequence[Path], prompts: Sequence[Path], name: str = "", targets: Sequence[str] = ()) -> Data:
    """Raises BadData."""
    row_paths, prompt_paths = files(rows, prompts, name)
    asked, seen = read_prompts(prompt_paths), read_rows(row_paths)
    kept = seen.filter(pc.is_in(seen["prompt_id"], asked["prompt_id"].combine_chunks()))
    if not len(kept):
        wrong(row_paths[0], f"shares no prompt_id with {prompt_paths[0]}", "give the two files of one set")
    known = asked.filter(pc.is_in(asked["prompt_id"], kept["prompt_id"].combine_chunks()))
    notes = [
        f"{count:,} {what}"
        for count, what in (
            (len(seen) - len(kept), "rows without their prompt are left out"),
            (len(asked) - len(known), "prompts without rows are left out"),
        )
        if count
    ]
    where = row_paths[0]
    return _compared(name or where.name.split(".")[0], known, kept, tuple(targets), notes, where)


def _compared(
    name: str, prompts: pa.Table, rows: pa.Table, asked: tuple[str, ...], notes: list[str], place: Path
) -> Data:
    models = tuple(sorted(pc.unique(rows["model"]).to_pylist()))
    if unknown := [target for target in asked if target not in models]:
        wrong("--targets", f"{', '.join(unknown)} is not in {place}", f"choose of {', '.join(models)}")
    row_prompt = _positions(prompts["prompt_id"], rows["prompt_id"])
    whole = _truth(len(prompts), models, rows, row_prompt, notes)
    columns = np.array([models.index(target) for target in asked or models])
    truth = Truth(whole.score[:, columns], whole.cost[:, columns])
    priced = int((truth.observed.any(0)).sum()) > 1
    if not priced:
        truth = Truth(truth.score, np.where(np.isfinite(truth.score), 0.0, np.nan))
        notes.append("fewer than two targets have costs: only accuracy is compared")
    kept, scored = _comparable(truth, [models[column] for column in columns], notes)
    if len(kept) < 2:
        wrong(place, "has fewer than two models with scores", "a choice needs two")
    benchmarks, categories = (_labels(prompts, column) for column in ("benchmark", "category"))
    return Data(
        name=name,
        prompts=prompts,
        rows=rows,
        row_prompt=row_prompt,
        targets=tuple(models[column] for column in columns[kept]),
        truth=Truth(truth.score[:, kept], truth.cost[:, kept]),
        scored=scored,
        labels=np.where(categories == "", benchmarks, categories),
        benchmarks=benchmarks,
        categories=categories,
        priced=priced,
        sparse=bool((truth.observed.mean(0) < COVERAGE).all()),
        measured=any(_known(rows[column]) for column in ("reasoning_tokens", "latency_s")),
        notes=tuple(notes),
    )


def _truth(n: int, models: Sequence[str], rows: pa.Table, row_prompt: Ints, notes: list[str]) -> Truth:
    """Repeated (prompt, model) are averaged."""
    cell = row_prompt * len(models) + _positions(pa.array(models), rows["model"])
    if repeated := len(cell) - len(np.unique(cell)):
        notes.append(f"{repeated:,} repeated rows of the same prompt and model are averaged")
    return Truth(*(_averages(n, len(models), cell, _floats(rows[column])) for column in ("score", "cost_usd")))


def _averages(n: int, targets: int, cell: Ints, values: Floats) -> Floats:
    seen = np.isfinite(values)
    total, count = (np.bincount(cell[seen], each[seen], minlength=n * targets) for each in (values, seen.astype(float)))
    with np.errstate(invalid="ignore"):
        found: Floats = (total / count).reshape(n, targets)
    return found


def _comparable(truth: Truth, targets: Sequence[str], notes: list[str]) -> tuple[Ints, NDArray[np.bool_]]:
    """Columns that are compared, and the prompts on which all of them were observed. Where hardly any target was seen
    on most prompts, all are kept, and each prompt chooses among its own."""
    covered = truth.observed.mean(0)
    kept, some = np.flatnonzero(covered >= COVERAGE), np.flatnonzero(covered > 0)
    sparse = len(kept) < 2
    if sparse:
        notes.append(f"no two targets were observed on {COVERAGE:.0%} of the prompts: {SPARSE}")
        return some, truth.observed.sum(1) > 1
    if len(kept) < len(targets):
        gone = [target for column, target in enumerate(targets) if column not in kept]
        notes.append(f"not compared, without cost or on under {COVERAGE:.0%} of the prompts: {', '.join(gone)}")
    scored = np.asarray(truth.observed[:, kept].all(1), bool)
    if not scored.all():
        notes.append(f"{int((~scored).sum()):,} prompts that some target was not observed on are not scored")
    return kept, scored


def _positions(known: Any, wanted: Any) -> Ints:
    found: Ints = pc.index_in(
        wanted, value_set=known.combine_chunks() if hasattr(known, "chunks") else known
    ).to_numpy()
    return found.astype(np.intp)


def _floats(column: pa.ChunkedArray) -> Floats:
    found: Floats = column.to_numpy()
    return found


def _labels(prompts: pa.Table, column: str) -> NDArray[np.object_]:
    """Empty where there is none."""
    if column not in prompts.column_names:
        return np.full(len(prompts), "", object)
    found: NDArray[np.object_] = pc.fill_null(prompts[column].cast(pa.string()), "").to_numpy()
    return found


def _known(column: pa.ChunkedArray) -> bool:
    return bool(np.isfinite(_floats(column)).any())
