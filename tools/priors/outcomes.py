"""The public sets: questions with their labels, who answered them right, and what is known of the models."""

from collections.abc import Mapping
from decimal import Decimal
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import yaml
from msgspec import Struct
from numpy.typing import NDArray

from adapters.catalog import shipped
from router.estimate.pass_rate import ABILITIES, BENCHMARKS, KNOWN, Card, card, depth, facts
from router.types.price import nano_from_usd
from router.types.target import Benchmark, Provider, Target, Task, Wire

Vector = NDArray[np.float64]
SOURCES = {
    "frontier_2026a_dev": {"of": "pricing-reversal data: short factual questions", "licence": "MIT"},
    "routellm_dev": {"of": "RouteLLM: MMLU, a strong and a weak model", "licence": "Apache-2.0"},
    "zeroeval_dev": {"of": "ZeroEval: CRUX and MATH level 5", "licence": "Apache-2.0"},
    "mmlupro": {"of": "MMLU-Pro: results of the leaderboard's models", "licence": "Apache-2.0"},
    "exam_small_dev": {"of": "LLMRouter's example data: exam-like questions of 13 kinds", "licence": "MIT"},
}
"""Their licences let a fit ship."""
_BENCHMARK_OF = {"mmlu-pro": Benchmark.MMLU_PRO, "mmlu": Benchmark.MMLU, "simpleqa": Benchmark.SIMPLEQA}
_BENCHMARK_OF |= {"crux": Benchmark.CRUX, "math-l5": Benchmark.MATH_L5}
_SCORES = {"mmlupro": Benchmark.MMLU_PRO, "routellm_dev": Benchmark.MMLU, "frontier_2026a_dev": Benchmark.SIMPLEQA}
"""What the mean scores in `models.yaml` are of."""
_TASKS = {
    Task.MATHS: ("math", "gsm", "mgsm", "abstract_algebra", "econometrics", "statistics", "accounting"),
    Task.CODE: ("crux", "mbpp", "human_eval"),
    Task.REASONING: (
        *("physics", "chemistry", "engineering", "economics", "business", "computer", "logic", "astronomy"),
        *("commonsense", "logicgrid", "moral_scenarios", "arc_challenge"),
    ),
}
LEAST = 30
"""Answers from which on a model's ability in a task is known."""


class Label(NamedTuple):
    """A kind of question: a benchmark's category."""

    name: str
    task: Task
    questions: tuple[str, ...]
    right: Vector
    """[models]: mean score …"""
    asked: Vector
    """[models]: … of so many questions."""


class Sets(NamedTuple):
    labels: tuple[Label, ...]
    models: tuple[str, ...]
    scores: Vector
    """[models, BENCHMARKS]: mean scores, NaN where not asked."""


class Known(Struct, frozen=True, forbid_unknown_fields=True):
    """Facts of a model. Sizes in billions of parameters, price in USD per million output tokens, thinking in tokens."""

    names: tuple[str, ...]
    active: float | None = None
    total: float | None = None
    price: Decimal | None = None
    context: int | None = None
    thinking: int = 0
    base: bool = False
    scores: dict[str, float] = {}


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    sources: dict[str, str]
    models: dict[str, Known]


def known_models() -> Mapping[str, Known]:
    text = (Path(__file__).parent / "models.yaml").read_text("utf-8")
    return msgspec.convert(yaml.safe_load(text), _File).models


def card_of(known: Known, measured: Mapping[Benchmark, float]) -> Card:
    """What a target's card would say of the model."""
    scores = {_SCORES[name]: score for name, score in known.scores.items()} | dict(measured)
    rate = None if known.price is None else nano_from_usd(known.price)
    return Card(scores, known.active, known.total, rate, known.context, depth(known.thinking or 0))


def read(folder: Path, known: Mapping[str, Known], names: tuple[str, ...] = tuple(SOURCES)) -> Sets:
    """The sets of these names; models have one name in all of them."""
    one_name = {name: model for model, row in known.items() for name in row.names}
    labels: dict[str, tuple[Task, dict[str, None], dict[str, list[float]]]] = {}
    for name in names:
        prompts, rows = _table(folder / f"{name}.prompts.parquet"), _table(folder / f"{name}.rows.parquet")
        kinds = {}
        columns = (prompts["prompt_id"], prompts["benchmark"], prompts.get("category", prompts["benchmark"]))
        for key, benchmark, category, text in zip(*columns, prompts["prompt"], strict=True):
            label = labels.setdefault(f"{benchmark}/{category}", (_task(str(benchmark), str(category)), {}, {}))
            kinds[key] = label
            label[1][str(text)] = None
        for key, model, score in zip(rows["prompt_id"], rows["model"], rows["score"], strict=True):
            if score == score:
                kinds[key][2].setdefault(one_name.get(str(model), str(model)), []).append(float(score))  # type: ignore[arg-type]
    models = tuple(sorted({model for _, _, scores in labels.values() for model in scores}))
    measured = tuple(
        Label(
            *(name, task, tuple(texts)),
            np.array([np.mean(scores[model]) if model in scores else 0.0 for model in models]),
            np.array([float(len(scores.get(model, ()))) for model in models]),
        )
        for name, (task, texts, scores) in labels.items()
    )
    return Sets(measured, models, _scores(measured, len(models)))


def _scores(labels: tuple[Label, ...], models: int) -> Vector:
    table = np.full((models, len(BENCHMARKS)), np.nan)
    for column, benchmark in enumerate(BENCHMARKS):
        parts = [label for label in labels if _BENCHMARK_OF.get(label.name.split("/")[0]) is benchmark]
        count = sum((part.asked for part in parts), np.zeros(models))
        right = sum((part.asked * part.right for part in parts), np.zeros(models))
        table[count >= 100, column] = (right / np.maximum(count, 1))[count >= 100]
    return table


def cards(sets: Sets, known: Mapping[str, Known], ability: Vector, helped: Vector) -> Vector:
    """[n, 4 + facts]: abilities [models, 4] and cards of the models that a gateway could call; without thinking."""
    rows = []
    for at, model in enumerate(sets.models):
        if model in known and not known[model].base:
            scores = sets.scores[at]
            measured = {name: float(score) for name, score in zip(BENCHMARKS, scores, strict=True) if score == score}
            made = card_of(known[model], measured)
            plain = ability[at] - made.scored * helped[:ABILITIES]
            rows.append(np.concatenate([plain, facts(made, helped)]))
    return np.array(rows)


def published() -> list[Card]:
    """Cards of the catalog's models with scores, each set of scores once."""
    place = Provider(id="any", wire=Wire.OPENAI_COMPATIBLE, base_url="")
    targets = (
        Target(id=name, model=model, provider=place, base_url="") for name, (model, _) in shipped().models.items()
    )
    return list({tuple(target.model.scores.items()): card(target) for target in targets}.values())


def digests(folder: Path) -> dict[str, str]:
    files = (folder / f"{name}.{part}.parquet" for name in SOURCES for part in ("prompts", "rows"))
    return {file.name: sha256(file.read_bytes()).hexdigest() for file in files}


def _task(benchmark: str, category: str) -> Task:
    for task, words in _TASKS.items():
        if any(word in benchmark or word in category for word in words):
            return task
    return Task.FACTUAL


def _table(path: Path) -> dict[str, list[object]]:
    from pyarrow.parquet import read_table

    table: dict[str, list[object]] = read_table(path).to_pydict()
    return table


def tasks_known(labels: tuple[Label, ...], models: int) -> NDArray[np.bool_]:
    """[models, 4]: whether a model was asked enough of a task for its ability there to be known."""
    counts = np.zeros((models, len(KNOWN)))
    for label in labels:
        counts[:, KNOWN.index(label.task)] += label.asked
    return counts >= LEAST
