"""A made-up set: easy prompts that both models solve, hard ones that only the dear one does; and estimators for it."""

from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from bench.routing.metrics import Floats

MODELS = {"cheap": 0.001, "dear": 0.02, "worst": 0.002}


def columns(
    n: int = 240, seed: int = 0, labels: Sequence[str] = ("sums", "tales")
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Labels say nothing of how hard a prompt is; its text does."""
    rng = np.random.default_rng(seed)
    hard = rng.random(n) < 0.5
    ids = [f"p{i}" for i in range(n)]
    prompts: dict[str, Any] = {
        "prompt_id": ids,
        "benchmark": [labels[i % len(labels)] for i in range(n)],
        "prompt": [f"{'hard' if one else 'easy'} question {i}" for i, one in enumerate(hard)],
    }
    solved = {"cheap": np.where(hard, 0.1, 0.98), "dear": np.full(n, 0.85), "worst": np.full(n, 0.1)}
    rows: dict[str, Any] = {"prompt_id": [], "model": [], "score": [], "cost_usd": []}
    for i, model in product(range(n), MODELS):
        cells = (ids[i], model, float(rng.random() < solved[model][i]), MODELS[model] * rng.lognormal(0, 0.2))
        for column, cell in zip(rows.values(), cells, strict=True):
            column.append(cell)
    return prompts, rows


def written(folder: Path, prompts: dict[str, Any], rows: dict[str, Any], name: str = "made") -> Path:
    for part, table in (("prompts", prompts), ("rows", rows)):
        pa.parquet.write_table(pa.table(table), folder / f"{name}.{part}.parquet")
    return folder


class Said:
    """A prediction of what it is given."""

    def __init__(self, p: Floats, cost: Floats, targets: Sequence[str]) -> None:
        self.p, self.cost_usd, self._targets = p, cost, targets
        self.cost_p10, self.cost_p90 = cost * 0.77, cost * 1.29
        self.unfamiliarity = np.zeros(len(p))

    def choose(self, failure_cost_usd: float) -> list[str]:
        best = (self.cost_usd + failure_cost_usd * (1 - self.p)).argmin(1)
        return [self._targets[column] for column in best]


class ByWord:
    """Means of the training part by the first word of the prompt: what a good reader of texts finds."""

    read: frozenset[str] = frozenset()

    def __init__(self, prompts: pa.Table, rows: pa.Table, targets: Sequence[str]) -> None:
        self.targets, self.learned = targets, set(prompts["prompt_id"].to_pylist())
        assert set(rows["prompt_id"].to_pylist()) <= self.learned
        text = dict(zip(prompts["prompt_id"].to_pylist(), prompts["prompt"].to_pylist(), strict=True))
        self._tables: dict[tuple[str, str], list[tuple[float, float]]] = {}
        for row in rows.to_pylist():
            found = (self.word(text[row["prompt_id"]]), row["model"])
            if row["score"] == row["score"]:
                self._tables.setdefault(found, []).append((row["score"], row["cost_usd"]))

    def word(self, text: str) -> str:
        return text.split()[0] if text else ""

    def predict(self, prompts: pa.Table) -> Said:
        self.read |= set(prompts.column_names)
        assert not self.learned & set(prompts["prompt_id"].to_pylist())
        cells = [[self._mean(text, target) for target in self.targets] for text in prompts["prompt"].to_pylist()]
        p, cost = np.array(cells).transpose(2, 0, 1)
        return Said(p, cost, self.targets)

    def _mean(self, text: str, target: str) -> tuple[float, float]:
        p, cost = np.mean(self._tables.get((self.word(text), target), [(0.5, 0.01)]), axis=0)
        return float(p), float(cost)


class Blind(ByWord):
    def word(self, text: str) -> str:
        return ""


class Fits:
    """Remembers what it was asked to learn from."""

    def __init__(self, kind: type[ByWord] = ByWord) -> None:
        self._kind, self.made = kind, list[ByWord]()

    def __call__(self, prompts: pa.Table, rows: pa.Table, targets: Sequence[str]) -> ByWord:
        self.made.append(self._kind(prompts, rows, targets))
        return self.made[-1]

    def sizes(self) -> Iterator[int]:
        return (len(one.learned) for one in self.made)
