"""What templates teach: outcomes of each (label, target) of a public set, learned with labels as templates or without.

`python -m bench.routing.templates FOLDER SET …` prints the mean square error of pass rates on prompts that were not
learned from, beside those of a table of means by label from the same outcomes.
"""

import sys
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np
from msgspec import structs

from bench.routing.data import Data, load
from bench.routing.learner import outcome, read, target
from bench.routing.metrics import Floats, Ints
from router.estimate.pass_rate import PassRateModel
from router.types.request import Classification
from tools.priors.outcomes import known_models

OUTCOMES = (0, 8, 50)
MOST_PROMPTS = 3_000
LEAN = 4.0
"""Prompts' worth of each target's mean in a row of the table."""


class Split(NamedTuple):
    """Prompts in random order: `known` are learned from, `held` predicted. `label` and `seen` of all."""

    known: Ints
    held: Ints
    label: Ints
    seen: dict[int, Classification]


def split(data: Data) -> Split:
    order = np.random.default_rng(0).permutation(np.flatnonzero(data.scored))[:MOST_PROMPTS]
    texts = data.prompts["prompt"].to_pylist()
    names = data.prompts.column_names
    tools = data.prompts["functions"].to_pylist() if "functions" in names else [""] * len(texts)
    seen = read([texts[at] for at in order], [tools[at] or "" for at in order])
    labels = [f"{benchmark}/{category}" for benchmark, category in zip(data.benchmarks, data.categories, strict=True)]
    label = np.unique(labels, return_inverse=True)[1]
    held = len(order) // 3
    return Split(order[held:], order[:held], label, dict(zip(order.tolist(), seen, strict=True)))


def error(data: Data, parts: Split, number: int, *, templates: bool) -> float:
    """With the first `number` prompts of each label learned from, at every target."""
    cards = known_models()
    model = PassRateModel([target(name, cards.get(name)) for name in data.targets])
    count: Counter[int] = Counter()
    answers = list[tuple[int, int]]()
    for prompt in parts.known.tolist():
        count[label := int(parts.label[prompt])] += 1
        answers += [(prompt, at) for at in range(len(data.targets)) if count[label] <= number]
    # As in traffic, where each request is another one: all targets' scores of a hard one in a row would be a change.
    for prompt, at in np.random.default_rng(1).permutation(np.array(answers).reshape(-1, 2)).tolist():
        told = outcome(data.targets[at], parts.seen[prompt], float(data.truth.score[prompt, at]))
        model.observe(structs.replace(told, template=str(parts.label[prompt]) if templates else ""))
    every = np.arange(len(data.targets))
    rows = [
        model.expect(structs.replace(parts.seen[prompt], template=str(parts.label[prompt])), every).p
        for prompt in parts.held.tolist()
    ]
    return _error(data, parts, np.array(rows))


def table(data: Data, parts: Split, number: int) -> float:
    """Of means by label, as `error`; they lean on each target's mean over all prompts that are known."""
    score = data.truth.score
    usual = np.nanmean(score[parts.known], 0)
    rows = []
    for prompt in parts.held.tolist():
        same = parts.known[parts.label[parts.known] == parts.label[prompt]][:number]
        rows.append((score[same].sum(0) + LEAN * usual) / (len(same) + LEAN))
    return _error(data, parts, np.array(rows))


def _error(data: Data, parts: Split, p: Floats) -> float:
    return float(((p - data.truth.score[parts.held]) ** 2).mean())


def main(folder: Path, names: list[str]) -> None:
    print("| set | outcomes of each | without templates | with | table |\n|---|--:|--:|--:|--:|")
    for name in names:
        data = load([folder / f"{name}.rows.parquet"], [folder / f"{name}.prompts.parquet"], name, ())
        parts = split(data)
        for number in OUTCOMES:
            without, with_them = (error(data, parts, number, templates=on) for on in (False, True))
            print(f"| {name} | {number} | {without:.3f} | {with_them:.3f} | {table(data, parts, number):.3f} |")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
