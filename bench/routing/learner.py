"""The gateway's own policy on recorded outcomes: what it believes and chooses, and learns from what it chose."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from bench.routing.metrics import Floats
from router.decide.strategies import CostOfPass
from router.decide.weigh import DecisionInput, expected_loss
from router.estimate import estimator
from router.estimate.pass_rate import LEARNED, PassRateModel
from router.estimate.posterior import Posterior, noise
from router.types.attempt import Outcome
from router.types.decision import Forecast, ForecastRanges, Objective
from router.types.price import NANO_PER_USD, Price
from router.types.request import SHARE, TASKS, UNFAMILIARITY, Classification
from router.types.target import Model, Provider, Target, Wire
from tools.priors.outcomes import Known

EAGER, SETTLED = 3_000.0, 300.0
"""Requests within which a trial must pay for itself: of the first `FIRST`, and of those after them."""
FIRST = 300
CAUTION: float = CostOfPass.model_fields["caution"].default
COST_NOISE = 0.3
"""Variance of the logarithm of one cost, given its text and target."""
COST_SD = (1.0, 0.06, 1.3, 0.04)
"""Of the logarithm of cost in public sets: level and slopes that targets share, level and slopes of each."""
USUAL_USD = 0.001
USUAL_OUTPUT = 500
"""Tokens: what a list price is multiplied by."""
NOTHING = 1e-7
"""USD. Added to costs before their logarithm: some are 0."""
TRIALS = (1, 4, 16, 64)
"""Numbers of trials that `worth_trying` weighs."""
MEMORY = 300
"""Outcomes over which it is seen how much dearer requests are than the median says."""
Flags = NDArray[np.bool_]
_PLACE = Provider(id="recorded", wire=Wire.OPENAI_COMPATIBLE, base_url="http://127.0.0.1/v1")


def read(prompts: Sequence[str], functions: Sequence[str] | None = None) -> list[Classification]:
    """Each prompt as the gateway classifies it."""
    offered = functions if functions is not None else [""] * len(prompts)
    return [_read(text, tools) for text, tools in zip(prompts, offered, strict=True)]


def _read(text: str, tools: str) -> Classification:
    reading = estimator.read(text, tools)
    return Classification(
        data_class="",
        difficulty=1 / (1 + math.exp(-reading.difficulty)),
        unfamiliarity=float(reading.traits[UNFAMILIARITY]),
        task=TASKS[int(reading.traits[SHARE:].argmax())],
        reading=reading,
    )


def target(name: str, card: Known | None) -> Target:
    """`card`: what is known of a model of that name; None: nothing."""
    known = card or Known(())
    price = None if known.price is None else Price(input=0, output=round(known.price * NANO_PER_USD), version="list")
    model = Model(
        id=name,
        name=name,
        context=known.context or 0,
        max_output=0,
        capabilities=frozenset(),
        price=price,
        parameters_b=known.total,
        active_b=known.active,
    )
    return Target(id=name, model=model, provider=_PLACE, base_url=_PLACE.base_url)


class Learner:
    """T targets at one price of a failure."""

    def __init__(self, targets: Sequence[str], failure_usd: float, cards: Mapping[str, Known] | None = None) -> None:
        known = cards or {}
        self.targets = tuple(target(name, known.get(name)) for name in targets)
        self.rates = PassRateModel(self.targets)
        self.stakes = Objective(failure_nano=round(failure_usd * NANO_PER_USD))
        self.failure_usd = failure_usd
        self._every = np.arange(len(targets))
        level, slope, own_level, own_slope = (sd**2 for sd in COST_SD)
        common, own = np.full(len(LEARNED), slope), np.full((len(targets), len(LEARNED)), own_slope)
        common[0], own[:, 0] = level, own_level
        self._costs = Posterior(targets, common, own)
        self._log_cost = np.array([math.log(_list_cost(each)) for each in self.targets])
        self._real = self._expected = NOTHING
        self._traits, self._seen = np.zeros(len(LEARNED)), 0

    def forecast(self, seen: Classification) -> Forecast:
        """Only what the policy reads is in it. Costs in nano-USD."""
        expected = self.rates.expect(seen, self._every)
        cost, none = self._cost(phi_of(seen)) * NANO_PER_USD, np.zeros(len(self.targets))
        usual = self._traits / max(1, self._seen)
        return Forecast(
            p=expected.p,
            p_nodes=expected.nodes,
            p_own_sd=expected.own_sd,
            outcomes=expected.outcomes,
            cost=cost,
            weighed_cost=cost,
            foretold=(cost, none, none, none, none),
            cached=none,
            usual_p=self.rates.usual(self._every),
            usual_cost=self._cost(usual) * NANO_PER_USD,
            ranges=lambda: ForecastRanges(expected.sd(), cost, cost, none, none, none),
        )

    def choose(self, seen: Classification, observed: Flags) -> int:
        """As `cost_of_pass` does, among what was `observed` [T]; learns nothing and tries nothing."""
        return self._best(self.forecast(seen), seen, observed)

    def _best(self, forecast: Forecast, seen: Classification, observed: Flags) -> int:
        situation = DecisionInput(
            targets=self.targets, forecast=forecast, classification=seen, stakes=self.stakes, draw=0.0
        )
        return expected_loss(situation, np.where(observed, 0, 1), CAUTION).best

    def play(self, seen: Classification, observed: Flags) -> int:
        """What is asked while learning: the best, or what is worth trying."""
        forecast = self.meet(seen)
        value = np.where(observed, forecast.cost / NANO_PER_USD + self.failure_usd * (1 - forecast.p), np.inf)
        own = forecast.p_own_sd * self.failure_usd
        sd = np.hypot(own, own[int(value.argmin())])
        horizon = EAGER if self._seen <= FIRST else SETTLED
        gain = worth_trying(value, sd, self.failure_usd / 2, horizon)
        return int(gain.argmax()) if gain.max() > 0 else self._best(forecast, seen, observed)

    def meet(self, seen: Classification) -> Forecast:
        """The forecast; the request counts as traffic."""
        self._traits += phi_of(seen)
        self._seen += 1
        return self.forecast(seen)

    def learn(self, at: int, seen: Classification, score: float, cost: float) -> None:
        self.rates.observe(outcome(self.targets[at].id, seen, score))
        self.learn_cost(at, seen, cost)

    def learn_after(self, at: int, seen: Classification, score: float, cost: float, likely: float) -> None:
        """The target was asked because another had failed, where it is right with a chance of `likely` only."""
        phi = phi_of(seen)
        posterior = self.rates.posterior
        posterior.update(at, phi, score - likely + float(posterior.about(phi)[0][at]), noise(likely))
        self.learn_cost(at, seen, cost)

    def learn_cost(self, at: int, seen: Classification, cost: float) -> None:
        phi = phi_of(seen)
        expected = math.exp(self._log_cost[at] + float(self._costs.about(phi)[0][at]))
        keep = 1 - 1 / MEMORY
        self._real, self._expected = self._real * keep + cost, self._expected * keep + expected
        self._costs.update(at, phi, math.log(cost + NOTHING) - self._log_cost[at], COST_NOISE)

    def _cost(self, phi: Floats) -> Floats:
        dearer = min(max(self._real / self._expected, 0.5), 5.0)
        found: Floats = np.exp(np.clip(self._log_cost + self._costs.about(phi)[0], -16.0, 3.0)) * dearer
        return found


def phi_of(seen: Classification) -> Floats:
    assert seen.reading is not None
    phi: Floats = seen.reading.traits[LEARNED].astype(np.float64)
    return phi


def _list_cost(target: Target) -> float:
    price = target.model.price
    return USUAL_USD if price is None else max(NOTHING, price.output / NANO_PER_USD * USUAL_OUTPUT / 1e6)


def outcome(name: str, seen: Classification, score: float) -> Outcome:
    assert seen.reading is not None
    return estimator.outcome(name, seen.reading, score)


def worth_trying(value: Floats, sd: Floats, noise_sd: float, horizon: float) -> Floats:
    """What asking each target [T] once more is expected to save within `horizon` requests, less what it costs now.

    `value` and its `sd` in one unit, lower is better; `noise_sd`: of one outcome, in that unit. 0 for the best one: try
    the target with the highest number above 0. Knowledge gradient (Frazier et al. 2008) of the best number of trials,
    for one trial of a pass or failure hardly ever changes a choice by itself.
    """
    best = int(value.argmin())
    gap, gain = value - value[best], np.full(len(value), -np.inf)
    for trials in TRIALS:
        moved = np.maximum(sd**2 / np.sqrt(sd**2 + noise_sd**2 / trials), np.finfo(float).tiny)
        gain = np.maximum(gain, horizon * moved * _expected_excess(gap / moved) / trials - gap)
    gain[best] = 0.0
    return gain


def _expected_excess(gap: Floats) -> Floats:
    """Mean of max(0, z − gap) of a standard normal z, gap ≥ 0: within 7 % up to 2.5, too high by a fifth at 5."""
    kept = np.minimum(gap, 38.0)
    return np.asarray(np.exp(-0.5 * kept**2) / np.sqrt(2 * np.pi) / (1 + np.sqrt(np.pi / 2) * kept + 0.65 * kept**2))
