"""Latency and load of targets, as means that forget."""

from collections.abc import Mapping
from fractions import Fraction
from math import exp, log, sqrt

from msgspec import Struct, field, structs

from router.types.price import MEASURED, Price, Rule
from router.types.target import Target

# How long targets take, and how much of them is used: means that forget, from the attempts that ended.

PRIOR_FIRST_MS = 800.0
PRIOR_MS_PER_TOKEN = 16.0
"""60 tokens a second: a usual remote model. Both before anything was seen."""
PRIOR_SD = 0.7
"""Of the logarithm: a factor of two either way."""
PRIOR_WEIGHT = 3.0
KEEP = 0.97
"""What an observation weighs after the next one: a change of pace is seen within some dozen requests."""
_LEAST_MS = 1.0
_MOST_STRETCHES = 32
"""Remembered times of work without a pause: requests that end later began before so many pauses at most."""


class Pace(Struct):
    """Of one target. Means and variances of logarithms, as sums that forget, the prior like any other observation."""

    first: float = PRIOR_WEIGHT * log(PRIOR_FIRST_MS)
    first_weight: float = PRIOR_WEIGHT
    prior: float = PRIOR_WEIGHT
    """What is left of its weight."""
    each: float = 0.0
    squares: float = 0.0
    weight: float = 0.0
    """0: nothing was seen."""
    busy_ms: float = 0.0
    tokens: float = 0.0
    stretches: list[tuple[float, float]] = field(default_factory=list)

    def observe(self, *, first_ms: int | None, total_ms: int, output: int, ended_ms: int) -> None:
        """`first_ms`: of a stream only, for otherwise it says nothing of its own."""
        if output <= 0 or total_ms <= 0:
            return
        if first_ms is not None:
            self.first = self.first * KEEP + log(max(first_ms, _LEAST_MS))
            self.first_weight = self.first_weight * KEEP + 1
        # Where the first byte was not seen it was as late as usual, but the answer took at least as long as it.
        begun = min(self.first_ms, total_ms / 2) if first_ms is None else first_ms
        each = log(max(total_ms - begun, _LEAST_MS) / output)
        self.each = self.each * KEEP + each
        self.squares = self.squares * KEEP + each * each
        self.weight = self.weight * KEEP + 1
        self.prior *= KEEP
        self.busy_ms = self.busy_ms * KEEP + self._new(ended_ms - total_ms, ended_ms)
        self.tokens = self.tokens * KEEP + output

    def _new(self, began: float, ended: float) -> float:
        """How much of this time nothing else was known to run in: time counts once, however many requests share it."""
        new, apart = ended - began, []
        for since, until in self.stretches:
            if until < began or ended < since:
                apart.append((since, until))
            else:
                new -= max(0.0, min(until, ended) - max(since, began))
                began, ended = min(since, began), max(until, ended)
        self.stretches = sorted([*apart, (began, ended)])[-_MOST_STRETCHES:]
        return new

    @property
    def first_ms(self) -> float:
        return exp(self.first / self.first_weight)

    @property
    def ms_per_token(self) -> float:
        """Expected, once the first is there."""
        return self.median_ms(PRIOR_MS_PER_TOKEN) * exp(self.sd**2 / 2)

    def median_ms(self, prior_ms: float) -> float:
        """Of a token, where one takes `prior_ms` before anything was seen."""
        return exp((self.each + self.prior * log(prior_ms)) / (self.weight + self.prior))

    @property
    def sd(self) -> float:
        """Of the logarithm of the time that a token takes."""
        mean = self.each / self.weight if self.weight else 0.0
        scatter = max(0.0, self.squares - self.weight * mean * mean)
        return sqrt((scatter + self.prior * PRIOR_SD**2) / (self.weight + self.prior))

    @property
    def throughput(self) -> float:
        """Output tokens per second while it works, over all of its requests at once; 0: not seen yet."""
        return self.tokens * 1000 / self.busy_ms if self.busy_ms > 0 else 0.0


# What a token of a local engine costs, by what was measured: in place of its list price.

SERVED = 32
"""Answers of a target's own model after one of a dearer model until the next are held at its own price again."""
MOST_KNOWN = 4_096
"""Lists of targets remembered: a policy has one for each of its routes and targets."""


class Measured:
    """Prices by engine's name, as last published; what statements taught of the prices of models; and those of dearer
    models that answered in a target's place. In force for requests that are decided from then on.

    The same targets are the same objects until another price is published for them.
    """

    def __init__(self) -> None:
        self._prices: Mapping[str, Price] = {}
        self._factors: Mapping[str, float] = {}
        self._served: dict[str, tuple[Price, int]] = {}
        """By target: the price of the model that answered, and for how many answers more it is held."""
        self._lists: dict[int, tuple[tuple[Target, ...], tuple[Target, ...]]] = {}
        """By identity: what was asked for, which stays alive here, and the answer."""
        self._targets: dict[int, tuple[Target, Target]] = {}

    def publish(self, prices: Mapping[str, Price]) -> None:
        """All that are known."""
        self._prices, self._lists = dict(prices), {}

    def correct(self, factors: Mapping[str, float]) -> None:
        """By id of a model: what its provider bills ÷ its price."""
        self._factors, self._lists, self._targets = factors, {}, {}

    def served(self, target: Target, price: Price | None) -> None:
        """An answer of the target was charged at `price`, its own or that of another model."""
        before, left = self._served.get(target.id, (None, 0))
        likely = structs.replace(target, served=before)
        if price is not None and (price is before or likely.at(price) is not likely):
            self._served[target.id] = price, SERVED
        elif before is not None and left > 1:
            self._served[target.id] = before, left - 1
        else:
            self._served.pop(target.id, None)
        if self._served.get(target.id, (None, 0))[0] is not before:
            self._lists = {}

    def priced(self, targets: tuple[Target, ...]) -> tuple[Target, ...]:
        """The targets, at what they were measured to cost."""
        if not self._prices and not self._factors and not self._served:
            return targets
        known = self._lists.get(id(targets))
        if known is None:
            if len(self._lists) >= MOST_KNOWN:
                self._lists, self._targets = {}, {}
            known = self._lists[id(targets)] = targets, tuple(map(self._one, targets))
        return known[1]

    def _one(self, target: Target) -> Target:
        """Where the policy does not say what an hour costs, nothing is measured."""
        price = self._prices.get(target.engine.name) if target.engine is not None and target.hourly else None
        if price is None and target.model.price is not None and target.model.id in self._factors:
            price = corrected(target.model.price, self._factors[target.model.id])
        served, _ = self._served.get(target.id, (None, 0))
        price = price or target.model.price
        if price is target.model.price and served is None:
            return target
        _, known = self._targets.get(id(target), (None, None))
        version = None if known is None or known.model.price is None else known.model.price.version
        if known is None or price is None or version != price.version or known.served is not served:
            known = structs.replace(target, model=structs.replace(target.model, price=price), served=served)
            self._targets[id(target)] = target, known
        return known


def corrected(price: Price, factor: float) -> Price:
    """Every token rate of a price times what statements taught."""
    ratio = Fraction(factor).limit_denominator(10_000)
    rule = Rule(times=(ratio.numerator, ratio.denominator))
    return structs.replace(price, rules=(*price.rules, rule), version=f"{price.version}, billed {factor:.4f} times")


def is_measured(price: Price | None) -> bool:
    return price is not None and price.version.startswith(MEASURED)
