"""Applications: each category of a public set is one, with a template of its own, in mixed traffic.

`python -m bench.routing.applications FOLDER SET … [--seeds 5]`: forecasts, choice and exploration are the gateway's
own, from the shipped priors and what is known of each model; one answer in ten is labelled, of the target that was
asked only. Failure-priced costs are shares above the best single target in hindsight: what was paid for the first 300
requests, and what prompts held out would cost after 500 and 2,000. Beside them a table of means by true label: of all
outcomes of the same prompts, and, as the most that so few labels could teach, of the labelled prompts alone, with the
outcomes of all targets instead of the one that was asked. `--fleet 4`: of so many targets in each run, one of each
share of the price list, as a policy has them; else of all. `--ceiling`: beside it what the best single target by the
priors alone would have cost, and what the same gateway would, had the same labelled answers taught it the scores and
costs of all targets: no learner that is told of the asked target only can expect as much.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from bench.routing.data import Data, load
from bench.routing.learner import outcome, read, target
from bench.routing.metrics import Floats, Ints, Truth, best_single
from bench.routing.online import Estimated, estimated
from bench.routing.predicted import PRICES
from router.api.parse import parse
from router.decide.strategies import CostOfPass
from router.decide.weigh import DecisionInput, Exploration, explore
from router.estimate.forecast import Forecaster, ForecastInput
from router.estimate.learn import TargetStats
from router.estimate.pass_rate import PassRateModel
from router.types.attempt import AttemptSample
from router.types.decision import Forecast, Objective
from router.types.price import NANO_PER_USD, Price
from router.types.request import USUAL_READ, Classification, Endpoint, Request
from router.types.target import Contract, Target, Thinking
from tools.priors.outcomes import Known, known_models

LABELLED = 0.1
PAID, MARKS = 300, (500, 2_000)
HELD_OUT = 1_000
USUAL_TOKENS = 500
"""Of an answer, where no price of a model is known: its median cost is that of so many."""
LEAN = 4.0
"""Prompts' worth of each target's mean in a row of the table."""


class Traffic(NamedTuple):
    data: Data
    targets: tuple[Target, ...]
    requests: list[Request]
    seen: list[Classification]
    """With the category as template."""


def traffic(data: Data) -> Traffic:
    texts, names = data.prompts["prompt"].to_pylist(), data.prompts.column_names
    tools = data.prompts["functions"].to_pylist() if "functions" in names else None
    every = read(texts, tools and [each or "" for each in tools])
    labels = [f"{benchmark}/{category}" for benchmark, category in zip(data.benchmarks, data.categories, strict=True)]
    seen = [structs.replace(each, template=label) for each, label in zip(every, labels, strict=True)]
    known = {name: card for card in known_models().values() for name in card.names}
    targets = tuple(_target(data, at, known.get(name)) for at, name in enumerate(data.targets))
    return Traffic(data, targets, [_request(text) for text in texts], seen)


def _target(data: Data, at: int, card: Known | None) -> Target:
    plain = target(data.targets[at], card)
    price = plain.model.price
    if price is None:
        median = float(np.nanmedian(data.truth.cost[:, at])) / USUAL_TOKENS
        price = Price(input=0, output=max(1, round(median * 1e6 * NANO_PER_USD)), version="list")
    thought = card.thinking if card else 0
    thinking = Thinking(contract=Contract.ALWAYS_ON, levels=("high",), tokens=(thought,)) if thought else Thinking()
    model = structs.replace(plain.model, price=price, thinking=thinking, max_output=64_000, context=1_000_000)
    return structs.replace(plain, model=model)


def _request(text: str) -> Request:
    body = {"model": "auto", "messages": [{"role": "user", "content": text}]}
    return parse(Endpoint.CHAT, "r", msgspec.json.encode(body), ())


class Gateway:
    """What one knows and decides, of one traffic at one price of a failure."""

    def __init__(self, of: Traffic, price: float) -> None:
        self.of, self.stakes = of, Objective(failure_nano=round(price * NANO_PER_USD))
        self.rates, self.learned = PassRateModel(of.targets), TargetStats()
        self.forecaster = Forecaster(of.targets, self.learned, self.rates, fresh_ms=1)
        self.strategy = CostOfPass(kind="cost_of_pass", targets=of.data.targets)
        self.served = 0

    def forecast(self, prompt: int) -> tuple[Ints, Forecast]:
        """Of the targets that were observed."""
        observed = np.flatnonzero(self.of.data.truth.observed[prompt])
        targets, request = tuple(self.of.targets[at] for at in observed), self.of.requests[prompt]
        return observed, self.forecaster.forecast(targets, ForecastInput(request, self.of.seen[prompt], self.served))

    def choose(self, prompt: int, draw: float | None = None) -> int:
        """The target that is asked; `draw`: chance may try another."""
        observed, forecast = self.forecast(prompt)
        situation = DecisionInput(
            targets=tuple(self.of.targets[at] for at in observed),
            forecast=forecast,
            classification=self.of.seen[prompt],
            stakes=self.stakes,
            draw=draw or 0.0,
        )
        ranked = self.strategy.rank(situation)
        if draw is not None:
            ranked = explore(ranked, situation, Exploration().share, draw)[0]
        return int(observed[ranked.order[0]])

    def answered(self, prompt: int, at: int, score: float | None) -> None:
        """What its answer cost is known of each request, a `score` of some."""
        place, seen, cost = self.of.targets[at], self.of.seen[prompt], self.of.data.truth.cost[prompt, at]
        price = (place.model.price or Price(input=0, output=1, version="")).output
        read = USUAL_READ if seen.reading is None else seen.reading.tokens
        output = int(cost * NANO_PER_USD * 1e6 / price)
        thinks = place.model.thinking.contract is not Contract.NONE
        self.learned.observe(
            AttemptSample(
                target=place.id,
                task=seen.task,
                template=seen.template,
                read=read,
                output=output,
                thinking=max(output - int(read.visible), 0) if thinks else 0,
            )
        )
        if score is not None:
            self.rates.observe(structs.replace(outcome(place.id, seen, score), template=seen.template))


class Run(NamedTuple):
    """One order of the traffic: prompts that are `served`, which of them are `labelled`, and those `held` out."""

    of: Traffic
    price: float
    served: Ints
    held: Ints
    draws: Floats
    """[served]: uniform, by which others are tried."""
    labelled: NDArray[np.bool_]
    priced: Floats
    """[prompts, T]: USD, with what failures cost."""
    best: int
    """The single target that is best in hindsight."""

    def above(self, prompts: Ints, chosen: Sequence[int] | Ints) -> float:
        """What these choices cost more than the best single target, as a share."""
        costs = np.array([self.priced[prompts, chosen], self.priced[prompts, self.best]])
        paid, least = costs[:, np.isfinite(costs).all(axis=0)].sum(axis=1)
        return float(paid / least - 1)

    def live(self, *, scores_of_all: bool) -> dict[str, float]:
        """What a gateway costs that learns from the scores of the asked target, or of all."""
        gateway, asked, figures = Gateway(self.of, self.price), list[int](), dict[str, float]()
        for number, (prompt, draw, judged) in enumerate(zip(self.served, self.draws, self.labelled, strict=True), 1):
            asked.append(gateway.choose(prompt, draw))
            observed = np.flatnonzero(self.of.data.truth.observed[prompt]).tolist()
            for at in observed if judged and scores_of_all else asked[-1:]:
                gateway.answered(prompt, at, float(self.of.data.truth.score[prompt, at]) if judged else None)
            gateway.served = number
            if number == PAID:
                figures["paid, first 300"] = self.above(self.served[:PAID], asked)
            if number in MARKS or number == len(self.served):
                mark = min(mark for mark in (*MARKS, number) if mark >= number)
                figures[f"after {mark}"] = self.above(self.held, [gateway.choose(row) for row in self.held])
        return figures

    def by_priors(self) -> int:
        """The single target that the priors alone think best for what is served first."""
        gateway, sums = Gateway(self.of, self.price), np.zeros(len(self.of.targets))
        for prompt in self.served[:PAID]:
            observed, forecast = gateway.forecast(prompt)
            sums[observed] += forecast.cost / NANO_PER_USD + self.price * (1 - forecast.p)
        return int(sums.argmin())

    def table(self, number: int, *, labelled: bool) -> float:
        """Of a table of means from the first prompts, or those of them that are labelled."""
        learned = self.served[:number]
        learned = learned[self.labelled[:number]] if labelled else learned
        return self.above(self.held, lookup(self.of, learned, self.held, self.priced))


def stream(of: Traffic, price: float, seed: int, *, ceiling: bool) -> dict[str, float]:
    rng, truth = np.random.default_rng(seed), of.data.truth
    order = rng.permutation(np.flatnonzero(of.data.scored))
    held = order[: min(len(order) // 4, HELD_OUT)]
    served = order[len(held) :][: max(MARKS)]
    draws, labels = rng.random((len(served), 2)).T
    priced = truth.cost + price * (1 - truth.score)
    run = Run(of, price, served, held, draws, labels < LABELLED, priced, best_single(truth, price))
    figures = run.live(scores_of_all=False)
    figures["all told, after 300"] = run.table(PAID, labelled=True)
    figures["all told, at the end"] = run.table(len(served), labelled=True)
    figures["table"] = run.table(len(served), labelled=False)
    if ceiling:
        pick = run.by_priors()
        figures["priors alone, first 300"] = run.above(served[:PAID], [pick] * PAID)
        figures |= {f"scores of all: {name}": value for name, value in run.live(scores_of_all=True).items()}
    return figures


def lookup(of: Traffic, served: Ints, held: Ints, priced: Floats) -> Ints:
    """[held]: the target with the least mean of the label, which leans on each target's mean over all."""
    usual, label = np.nanmean(priced[served], 0), np.array([each.template for each in of.seen])
    chosen = {}
    for name in np.unique(label[held]):
        rows = priced[served[label[served] == name]]
        chosen[name] = int(((np.nansum(rows, 0) + LEAN * usual) / (np.isfinite(rows).sum(0) + LEAN)).argmin())
    return np.array([chosen[name] for name in label[held]])


def drawn(of: Traffic, size: int, seed: int) -> Traffic:
    """With so many of its targets: one of each share of them by mean cost."""
    by_cost, rng = np.nanmean(of.data.truth.cost, 0).argsort(), np.random.default_rng(seed)
    columns = np.sort([rng.choice(share) for share in np.array_split(by_cost, size)])
    truth = Truth(of.data.truth.score[:, columns], of.data.truth.cost[:, columns])
    names, targets = (tuple(every[at] for at in columns) for every in (of.data.targets, of.targets))
    return of._replace(data=of.data._replace(targets=names, truth=truth), targets=targets)


def measure(of: Traffic, seeds: int, fleet: int, *, ceiling: bool) -> dict[float, dict[str, Estimated]]:
    """By price of a failure."""
    figures, fleets = {}, [drawn(of, fleet or len(of.targets), seed) for seed in range(seeds)]
    for price in PRICES:
        runs = [stream(fleet_of, price, seed, ceiling=ceiling) for seed, fleet_of in enumerate(fleets)]
        figures[price] = {name: estimated([run[name] for run in runs]) for name in runs[0]}
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.routing.applications", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("sets", nargs="+")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--fleet", type=int, default=0, metavar="TARGETS")
    parser.add_argument("--ceiling", action="store_true", help="also what is lost before anything can be learned")
    options = parser.parse_args()
    for name in options.sets:
        data = load([options.folder / f"{name}.rows.parquet"], [options.folder / f"{name}.prompts.parquet"], name, ())
        for price, figures in measure(traffic(data), options.seeds, options.fleet, ceiling=options.ceiling).items():
            shown = [
                f"{label} {each.value:+.1%} ({each.low:+.1%} … {each.high:+.1%})" for label, each in figures.items()
            ]
            print(f"{name} at ${price:g}: {'; '.join(shown)}", flush=True)


if __name__ == "__main__":
    main()
