"""How well everyday requests are told apart, and what that does to choices: `python -m bench.routing.everyday`.

On the anchors that only test (tools/anchors/test), from the shipped priors alone: tiers, tasks, lengths, thinking; and
which of four targets (tiny, small, mid, frontier) each request goes to at twelve prices of a failure.
"""

import argparse
import tempfile
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from bench.routing.by_difficulty import TargetShares, by_difficulty, draw_by_difficulty
from router.classify import difficulty
from router.classify.asked import read_features
from router.config.load import load_policy
from router.decide.strategies import CostOfPass
from router.decide.weigh import DecisionInput, excluded, expected_loss
from router.estimate.forecast import Forecaster, ForecastInput
from router.estimate.learn import TargetStats
from router.estimate.pass_rate import PassRateModel
from router.types.decision import Forecast, Objective
from router.types.price import NANO_PER_USD
from router.types.request import TASKS, Classification, Reading, Request
from router.types.target import Target
from tools.anchors.anchors import Anchor, load
from tools.priors.reader import kendall, metrics, ordered

PRICES = (0.0003, 0.001, 0.003, 0.01, 0.03, 0.05, 0.1, 0.3, 0.5, 1.0, 2.0, 5.0)
"""USD, of a wrong answer."""
CAUTION: float = CostOfPass.model_fields["caution"].default
NEAR = 0.3
"""Two requests cost about the same: at no target do the logarithms of their expected costs differ by more."""
HARDER = 0.3
"""Logits of difficulty from which on one request reads as harder than another."""
_THINKING = {"contract": "level", "levels": ["low", "medium", "high"], "tokens": [1_500, 6_000, 18_000]}
MODELS: dict[str, dict[str, Any]] = {
    "tiny": {"price": {"input": 0.02, "output": 0.04}, "parameters_b": 1.7, "active_b": 1.7},
    "small": {"price": {"input": 0.06, "output": 0.15}, "parameters_b": 8, "active_b": 8},
    "mid": {"price": {"input": 0.35, "output": 0.8}, "parameters_b": 72, "active_b": 72},
    "frontier": {"price": {"input": 1.75, "output": 14.0}, "thinking": _THINKING},
}
Choices = NDArray[np.intp]


class Report(msgspec.Struct, frozen=True):
    """`choices` [prices][targets]: how many requests go where. `dependent`: share of requests that do not go where most
    do. `inverted`: share of pairs of one task and cost of which the easier one goes to a dearer target;
    `inverted_at_any_cost`, of all pairs of one task: what is harder is longer, which costs most where it is dear."""

    requests: int
    reading: dict[str, float]
    agents: dict[str, float]
    """Of those with tools, results of tools or a system prompt."""
    shapes: dict[str, tuple[int, float]]
    """By the shape of a request: how many, and the share whose task is right."""
    taken: dict[str, dict[str, int]]
    """[task][task]: how many of the first are taken for the second."""
    targets: tuple[str, ...]
    prices: tuple[float, ...]
    choices: tuple[tuple[int, ...], ...]
    by_difficulty: tuple[TargetShares, ...]
    dependent: float
    inverted: float
    inverted_at_any_cost: float
    gains: tuple[tuple[float, float], ...]
    """[prices]: what is saved against the best single target, of what is expected to be paid, failures included; and
    what would be saved if no easier request of a task ever went to a dearer target than a harder one."""


def measure() -> Report:
    anchors, targets = load("test"), four_targets()
    forecaster = Forecaster(targets, TargetStats(), PassRateModel(targets))
    values, read, forecasts = [], [], []
    reader = difficulty.load()
    for anchor in anchors:
        request = anchor.request()
        values.append(reader.outputs(*reader.places(read_features(request)))[0])
        read.append(classified(request))
        if (reading := read[-1].reading) is not None:
            values[-1][difficulty.OUTPUT_OUT] = np.log(reading.output)
        forecasts.append(forecaster.forecast(targets, ForecastInput(request, read[-1])))
    chosen = np.array([choices(targets, read, forecasts, price) for price in PRICES])
    counts = np.array([np.bincount(row, minlength=len(targets)) for row in chosen])
    tier = np.array([anchor.tier for anchor in anchors])
    agents = np.array([_like_an_agent(anchor) for anchor in anchors])
    hard = np.array(values)[:, difficulty.TIER_OUT]
    of_task = [TASKS[int(row[difficulty.TASK_OUT :].argmax())] for row in values]
    shapes, taken = defaultdict[str, list[bool]](list), defaultdict[str, Counter[str]](Counter)
    for anchor, task in zip(anchors, of_task, strict=True):
        shapes[anchor.shape].append(anchor.task == task)
        taken[anchor.task][task] += 1
    return Report(
        requests=len(anchors),
        reading=metrics(np.array(values), anchors),
        agents={"tau": kendall(hard[agents], tier[agents]), "two_tiers_apart": ordered(hard[agents], tier[agents])},
        shapes={shape: (len(right), sum(right) / len(right)) for shape, right in shapes.items()},
        taken={task: dict(counts) for task, counts in taken.items()},
        targets=tuple(target.id for target in targets),
        prices=PRICES,
        choices=tuple(tuple(map(int, row)) for row in counts),
        by_difficulty=by_difficulty(
            hard.astype(float), dict(zip(PRICES, chosen, strict=True)), [target.id for target in targets]
        ),
        dependent=float(np.mean(1 - counts.max(axis=1) / len(anchors))),
        inverted=_inverted(chosen, read, forecasts, NEAR),
        inverted_at_any_cost=_inverted(chosen, read, forecasts, np.inf),
        gains=tuple(_gains(read, forecasts, price, row) for price, row in zip(PRICES, chosen, strict=True)),
    )


def classified(request: Request) -> Classification:
    read = difficulty.read_difficulty(request)
    return Classification(data_class="", difficulty=read.difficulty, task=read.task, reading=read.reading)


def choices(
    targets: tuple[Target, ...], read: Sequence[Classification], forecasts: Sequence[Forecast], price: float
) -> Choices:
    """[n]: the target of each request, as the strategy `cost_of_pass` chooses it."""
    stakes = Objective(failure_nano=round(price * NANO_PER_USD))
    chosen = []
    for classification, forecast in zip(read, forecasts, strict=True):
        situation = DecisionInput(
            targets=targets, forecast=forecast, classification=classification, stakes=stakes, draw=0.5
        )
        chosen.append(expected_loss(situation, excluded(situation, CAUTION), CAUTION).best)
    return np.array(chosen)


def _inverted(chosen: Choices, read: Sequence[Classification], forecasts: Sequence[Forecast], near: float) -> float:
    readings = [classification.reading for classification in read]
    hard = np.array([reading.difficulty for reading in readings if isinstance(reading, Reading)])
    task = np.array([classification.task for classification in read])
    cost = np.log([forecast.cost for forecast in forecasts])
    first, second = np.triu_indices(len(hard), 1)
    pairs = (task[first] == task[second]) & (np.abs(cost[first] - cost[second]).max(axis=1) < near)
    pairs &= np.abs(hard[first] - hard[second]) > HARDER
    first, second = first[pairs], second[pairs]
    easier, harder = np.where(hard[first] < hard[second], (first, second), (second, first))
    return float((chosen[:, easier] > chosen[:, harder]).mean())


def _gains(
    read: Sequence[Classification], forecasts: Sequence[Forecast], price: float, chosen: NDArray[np.intp]
) -> tuple[float, float]:
    paid = np.array([forecast.cost / NANO_PER_USD + price * (1 - forecast.p) for forecast in forecasts])
    best_single, ordered_paid = paid.sum(axis=0).min(), 0.0
    hard = np.array([reading.difficulty if (reading := each.reading) else 0.0 for each in read])
    task = np.array([each.task for each in read])
    for name in set(task):
        least = np.zeros(paid.shape[1])  # by the dearest target so far, over the task's requests from the easiest on
        for row in sorted(np.flatnonzero(task == name), key=lambda at: hard[at]):
            least = np.minimum.accumulate(least) + paid[row]
        ordered_paid += least.min()
    now = paid[np.arange(len(paid)), chosen].sum()
    return float(1 - now / best_single), float(1 - ordered_paid / best_single)


def _like_an_agent(anchor: Anchor) -> bool:
    messages = anchor.body["messages"]
    return "tools" in anchor.body or any(message["role"] in ("system", "tool") for message in messages)


def four_targets() -> tuple[Target, ...]:
    """A policy's targets; JSON is YAML."""
    model = {"provider": "vllm", "capabilities": ["chat", "tools", "json_schema"], "context": 400_000}
    targets = {
        name: {"base_url": "http://127.0.0.1:9/v1", "model": {"name": name, "max_output": 64_000} | model | facts}
        for name, facts in MODELS.items()
    }
    routes = {"auto": {"strategy": {"kind": "cost_of_pass", "targets": list(targets)}, "failure_cost_usd": 1}}
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(msgspec.json.encode({"version": 1, "targets": targets, "routes": routes}).decode())
        file.flush()
        path = Path(file.name)
        return tuple(load_policy(path).targets.values())


def draw(path: Path, report: Report) -> None:
    """A PNG: where the choice changes with difficulty, at each price of a failure."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(2, len(PRICES) // 2, figsize=(15, 6), layout="constrained")
    draw_by_difficulty(panels.flat, report.by_difficulty)
    figure.legend(loc="outside lower center", ncols=4, frameon=False)
    figure.suptitle("Which target an everyday request goes to, from priors alone")
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def render(report: Report) -> str:
    lines = [f"{report.requests} requests of everyday traffic that the fit has not seen, priors alone.", ""]
    lines += ["| what | all | with tools or a system prompt |", "|---|--:|--:|"]
    for name, value in report.reading.items():
        lines.append(
            f"| {name} | {value:.3f} | {format(report.agents[name], '.3f') if name in report.agents else ''} |"
        )
    lines += ["", "| shape | requests | task right |", "|---|--:|--:|"]
    lines += [f"| {shape} | {count} | {right:.3f} |" for shape, (count, right) in report.shapes.items()]
    lines += ["", f"| task, taken for … | {' | '.join(report.taken)} |", f"|---|{'--:|' * len(report.taken)}"]
    for task, counts in report.taken.items():
        lines.append(f"| {task} | {' | '.join(str(counts.get(other, 0)) for other in report.taken)} |")
    lines += ["", "Where requests go: how many, and the share of them from the easiest to the hardest.", ""]
    lines += [f"| price of a failure | {' | '.join(report.targets)} |", f"|---|{'--:|' * len(report.targets)}"]
    bars = {(row.at, row.target): row.bars for row in report.by_difficulty}
    for price, row in zip(report.prices, report.choices, strict=True):
        cells = [f"{count} {bars.get((price, name), '')}" for name, count in zip(report.targets, row, strict=True)]
        lines.append(f"| ${price:g} | {' | '.join(cells)} |")
    lines += ["", f"Choices that depend on the request: {report.dependent:.1%}."]
    lines.append(
        f"Pairs of one task whose easier request goes to a dearer target: {report.inverted:.1%} of those that cost "
        f"about the same, {report.inverted_at_any_cost:.1%} of all."
    )
    lines += ["", "| price of a failure | saved against the best single target | the same without such pairs |"]
    lines.append("|---|--:|--:|")
    for price, (now, ruled) in zip(report.prices, report.gains, strict=True):
        lines.append(f"| ${price:g} | {now:.2%} | {ruled:.2%} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.routing.everyday", description=__doc__)
    parser.add_argument("--json", action="store_true", help="machine-readable")
    parser.add_argument("--plot", type=Path, help="write a PNG of where choices change with difficulty")
    options = parser.parse_args()
    report = measure()
    if options.plot:
        draw(options.plot, report)
    print(msgspec.json.encode(report).decode() if options.json else render(report))


if __name__ == "__main__":
    main()
