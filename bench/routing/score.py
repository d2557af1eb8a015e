"""Figures of what was tested: quality of the choice, price of failures, calibration."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from bench.routing import calibration, metrics, pairs
from bench.routing.bootstrap import draw
from bench.routing.data import Data
from bench.routing.figures import Figure, Goal, figure, measured
from bench.routing.metrics import Floats, Ints, Truth
from bench.routing.predicted import PRICES, Said, Tested

if TYPE_CHECKING:
    from bench.routing.online import Learned

Goals = dict[tuple[str, str], Goal]
ROOM = 0.3
"""Share of its cost that an oracle must save before gains of learning are promised."""


class Score:
    """All figures of one run, under the same resamples, so that differences are paired."""

    def __init__(self, tested: Tested, goals: Goals, data: Data, apart: bool, resamples: int, seed: int) -> None:
        """`apart`: folds are of different kinds, not drawn at random."""
        n = len(tested.prompts)
        self._weights = np.concatenate([metrics.once(n), draw(n, resamples, seed)])
        self._tested, self._priced, self._apart = tested, data.priced, apart
        self._goals = goals if data.measured else {key: goal for key, goal in goals.items() if key[0] != "cost_ratio"}

    def figures(self) -> Iterator[Figure]:
        yield from self._quality() if self._priced else self._accuracy()
        if self._priced:
            yield from self._prices()
        if len(self._tested.truth.score[0]) == 2:
            yield from self._pairs()
        yield from self._calibration()

    def _figure(self, name: str, values: Floats, of: str = "router", at: float | None = None) -> Figure:
        return figure(self._goals, name, values, of, at)

    def _quality(self) -> Iterator[Figure]:
        truth, weights = self._tested.truth, self._weights
        zero, oracle = metrics.aiq_zero(truth, weights), metrics.aiq_oracle(truth, weights)
        router, lookup = (self._aiq(said) for said in (self._tested.router, self._tested.lookup))
        with np.errstate(invalid="ignore", divide="ignore"):
            room = np.where(oracle - zero > metrics.NO_ROOM, oracle - zero, np.nan)
        names = ("router", "label lookup", "random mixing", "oracle")
        for of, values in zip(names, (router, lookup, zero, oracle), strict=True):
            yield self._figure("aiq", values, of)
        yield self._figure("aiq_norm", (router - zero) / room)
        yield self._figure("aiq_norm", (lookup - zero) / room, "label lookup")
        yield self._figure("aiq_norm", (router - lookup) / room, "router − lookup")

    def _aiq(self, said: Said) -> Floats:
        truth = self._tested.truth
        return metrics.aiq(metrics.sweep(said.p, said.cost, truth), truth, self._weights)

    def _accuracy(self) -> Iterator[Figure]:
        """Where nothing costs anything."""
        tested, price = self._tested, PRICES[0]
        truth, weights = tested.truth, self._weights
        best = metrics.singles(truth, weights).accuracy.max(1)
        yield self._figure("accuracy", best, "best single")
        for of, choice in self._choices(price):
            accuracy = metrics.mean(metrics.at(truth.score, choice), weights)
            yield self._figure("accuracy", accuracy, of)
            yield self._figure("accuracy_gain", accuracy - best, of)

    def _choices(self, price: float) -> list[tuple[str, Ints]]:
        tested = self._tested
        oracle = metrics.choose(tested.truth.score, tested.truth.cost, price, tested.truth)
        return [
            ("router", tested.router.choices[price]),
            ("label lookup", tested.lookup.choices[price]),
            ("training pick", tested.picks[price]),
            ("oracle", oracle),
        ]

    def _prices(self) -> Iterator[Figure]:
        harms: dict[str, list[Floats]] = {}
        for price in PRICES:
            best = metrics.failure_priced_singles(self._tested.truth, price, self._weights).min(1)
            yield self._figure("failure_priced_cost", best, "best single", price)
            for of, choice in self._choices(price):
                paid = metrics.failure_priced(self._tested.truth, choice, price, self._weights)
                harms.setdefault(of, []).append(paid / best - 1)
                yield self._figure("failure_priced_cost", paid, of, price)
                yield self._figure("harm", harms[of][-1], of, price)
            yield from self._at(price)
        for of, found in harms.items():
            yield self._figure("mean_harm", np.mean(found, axis=0), of)

    def _at(self, price: float) -> Iterator[Figure]:
        """What the router reaches at one price of a failure."""
        tested, choice = self._tested, self._tested.router.choices[price]
        truth, weights = tested.truth, self._weights
        paid, pick = (metrics.failure_priced(truth, each, price, weights) for each in (choice, tested.picks[price]))
        yield self._figure("harm_to_pick", paid / pick - 1, "router", price)
        yield self._figure("accuracy", metrics.mean(metrics.at(truth.score, choice), weights), "router", price)
        yield self._figure("cost_usd", metrics.mean(metrics.at(truth.cost, choice), weights), "router", price)
        yield self._figure("cost_of_pass", metrics.cost_of_pass(truth, choice, weights), "router", price)

    def _pairs(self) -> Iterator[Figure]:
        score = self._tested.truth.score
        weak, strong = np.argsort(np.nanmean(score, axis=0))
        for of, said in (("router", self._tested.router), ("label lookup", self._tested.lookup)):
            merit = said.p[:, strong] - said.p[:, weak]
            merit = pairs.within(merit, self._tested.fold) if self._apart else merit
            curve = pairs.gain(merit, score[:, weak], score[:, strong], self._weights)
            yield self._figure("apgr", pairs.apgr(curve), of)
            yield self._figure("cpt50", pairs.cpt(curve, 0.5), of)
            yield self._figure("cpt80", pairs.cpt(curve, 0.8), of)

    def _calibration(self) -> Iterator[Figure]:
        tested, weights = self._tested, self._weights
        score, cost = tested.truth
        for of, said in (("router", tested.router), ("label lookup", tested.lookup)):
            yield self._figure("ece", calibration.ece(said.p, score, weights), of)
            yield self._figure("ece_equal_mass", calibration.ece_equal_mass(said.p, score, weights), of)
            yield self._figure("brier", calibration.brier(said.p, score, weights), of)
            if self._priced:
                yield self._figure("cost_bias", calibration.total_bias(said.cost, cost, weights), of)
                yield self._figure("cost_ratio", calibration.median_ratio(said.cost, cost, weights), of)
        if self._priced:
            inside = calibration.coverage(tested.cost_p10, tested.cost_p90, cost, weights)
            yield self._figure("cost_coverage", inside)


def with_verifier(tested: Tested, targets: Sequence[str], seed: int) -> Figure:
    """Cheap first, and another target where a verifier that is always right says no; at a failure of 1 USD."""
    from bench.routing.cascades import cascaded

    price, said = 1.0, tested.router
    found = cascaded(tested.truth, said.p, said.cost, targets, price=price, seed=seed).router
    return Figure(name="cascade_harm", at=price, value=found.value, low=found.low, high=found.high)


def learned(found: "Learned", goals: Goals) -> Iterator[Figure]:
    """Of the online protocol. Much can't be promised where an oracle would save little."""
    if found.room <= ROOM:
        goals = {key: goal for key, goal in goals.items() if goal.high is None or goal.high > 0}
    at = found.failure_usd
    yield Figure(name="headroom", of="oracle", at=at, value=found.room)
    for name, by_mark in (("harm_after", found.frozen), ("paid_by", found.paid), ("regret_by", found.regret_usd)):
        for mark, one in by_mark.items():
            yield measured(goals, f"{name}_{mark}", at, (one.value, one.low, one.high))


def of_fold(tested: Tested, number: int, priced: bool, resamples: int, seed: int) -> tuple[int, list[Figure]]:
    """Prompts of one fold, and how the router does there: against what its training part would have picked, and against
    the best single model in hindsight."""
    rows = np.flatnonzero(tested.fold == number)
    if not len(rows):
        return 0, []
    truth = Truth(tested.truth.score[rows], tested.truth.cost[rows])
    weights = np.concatenate([metrics.once(len(rows)), draw(len(rows), resamples, seed)])
    found = [figure({}, "ece", calibration.ece(tested.router.p[rows], truth.score, weights))]
    for price in PRICES if priced else ():
        paid, pick = (
            metrics.failure_priced(truth, choice[price][rows], price, weights)
            for choice in (tested.router.choices, tested.picks)
        )
        with np.errstate(invalid="ignore", divide="ignore"):
            found.append(figure({}, "harm_to_pick", paid / pick - 1, at=price))
            best = metrics.failure_priced_singles(truth, price, weights).min(1)
            found.append(figure({}, "harm", paid / best - 1, at=price))
    return len(rows), found
