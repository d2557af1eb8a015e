"""The public sets as arrays: looks, tasks by their labels, and who answered what right."""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from router.features.look import looks
from router.priors.marks import marks
from router.priors.priors import KNOWN, Single, Vector
from router.types.task import Task

SHIPPABLE = ("frontier_2026a_dev", "routellm_dev", "zeroeval_dev", "mmlupro")
"""Their licences let a fit ship: MIT and Apache-2.0."""
CHECKS = ("bfcl_dev", "routerbench_part", "routerdc7")
"""Only looked at to see what is unfamiliar; nothing of them is in the artefact."""
BENCHMARKS = {"simpleqa": Task.FACTUAL, "crux": Task.CODE, "math-l5": Task.MATHS}
_MATHS = ("math", "abstract_algebra", "econometrics", "statistics")
_REASONING = ("physics", "chemistry", "engineering", "economics", "business", "computer", "machine_learning", "logic")
_REASONING_TOO = ("logical_fallacies", "astronomy")


class Outcomes(Struct, frozen=True, eq=False):
    """Of one set, or of several in one: n prompts, T models."""

    looks: Single
    """[n, L]."""
    marks: Single
    """[n, M]."""
    task: NDArray[np.intp]
    """[n]. Index in `KNOWN`, by the set's own labels."""
    score: Vector
    """[n, T], NaN where not asked."""
    output: Vector
    """[n, T]. Tokens, NaN where not known."""
    models: tuple[str, ...]
    part: NDArray[np.intp]
    """[n]. Which set."""

    @property
    def asked(self) -> NDArray[np.bool_]:
        return ~np.isnan(self.score)


def read(folder: Path, name: str, part: int, aliases: Mapping[str, str]) -> Outcomes:
    """`aliases`: names of models in the sets → one name each."""
    prompts, rows = _table(folder / f"{name}.prompts.parquet"), _table(folder / f"{name}.rows.parquet")
    names = [aliases.get(model, model) for model in rows["model"]]
    models, column = np.unique(np.array(names), return_inverse=True)
    index = {prompt: at for at, prompt in enumerate(prompts["prompt_id"])}
    row = np.array([index[prompt] for prompt in rows["prompt_id"]])
    shape = (len(index), len(models))
    return Outcomes(
        looks=seen(folder, name),
        marks=np.stack([marks(text) for text in prompts["prompt"]]),
        task=_tasks(prompts),
        score=_matrix(shape, row, column, rows["score"]),
        output=_matrix(shape, row, column, rows["output_tokens"]),
        models=tuple(models.tolist()),
        part=np.full(len(index), part),
    )


def seen(folder: Path, name: str) -> Single:
    """[n, L]: looks at a set's prompts."""
    prompts = _table(folder / f"{name}.prompts.parquet")
    functions = [each or "" for each in prompts["functions"]] if "functions" in prompts else None
    return looks(prompts["prompt"], functions)


def join(sets: Sequence[Outcomes]) -> Outcomes:
    models = tuple(sorted({model for each in sets for model in each.models}))
    at = {model: index for index, model in enumerate(models)}
    return Outcomes(
        looks=np.concatenate([each.looks for each in sets]),
        marks=np.concatenate([each.marks for each in sets]),
        task=np.concatenate([each.task for each in sets]),
        score=np.concatenate([_spread(each.score, [at[model] for model in each.models], len(at)) for each in sets]),
        output=np.concatenate([_spread(each.output, [at[model] for model in each.models], len(at)) for each in sets]),
        models=models,
        part=np.concatenate([each.part for each in sets]),
    )


def take(outcomes: Outcomes, kept: NDArray[np.bool_]) -> Outcomes:
    """Some of the prompts, all of the models."""
    return Outcomes(
        looks=outcomes.looks[kept],
        marks=outcomes.marks[kept],
        task=outcomes.task[kept],
        score=outcomes.score[kept],
        output=outcomes.output[kept],
        models=outcomes.models,
        part=outcomes.part[kept],
    )


def digests(folder: Path, names: Sequence[str]) -> dict[str, str]:
    files = (folder / f"{name}.{part}.parquet" for name in names for part in ("prompts", "rows"))
    return {file.name: sha256(file.read_bytes()).hexdigest() for file in files}


def _spread(matrix: Vector, columns: Sequence[int], width: int) -> Vector:
    wide = np.full((len(matrix), width), np.nan)
    wide[:, columns] = matrix
    return wide


def _matrix(shape: tuple[int, int], row: NDArray[np.intp], column: NDArray[np.intp], values: list[Any]) -> Vector:
    matrix = np.full(shape, np.nan)
    matrix[row, column] = np.array(values, dtype=np.float64)
    return matrix


def _tasks(prompts: Mapping[str, list[Any]]) -> NDArray[np.intp]:
    labels = zip(prompts["benchmark"], prompts.get("category", prompts["benchmark"]), strict=True)
    return np.array([KNOWN.index(_task(benchmark, category)) for benchmark, category in labels])


def _task(benchmark: str, category: str) -> Task:
    if benchmark in BENCHMARKS:
        return BENCHMARKS[benchmark]
    if any(word in category for word in _MATHS):
        return Task.MATHS
    reasoning = any(word in category for word in _REASONING) or category in _REASONING_TOO
    return Task.REASONING if reasoning else Task.FACTUAL


def _table(path: Path) -> dict[str, list[Any]]:
    from pyarrow.parquet import read_table

    table: dict[str, list[Any]] = read_table(path).to_pydict()
    return table
