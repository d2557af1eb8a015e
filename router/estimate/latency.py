"""Latency and load of targets as fading means, and prices that were measured or corrected."""

from collections.abc import Mapping
from fractions import Fraction
from math import exp, log, sqrt

from msgspec import Struct, field, structs

from router.types.price import MEASURED, Price, Rule
from router.types.target import Target

# How long targets take, and how busy they are: fading means over the attempts that ended.

PRIOR_FIRST_MS = 800.0
PRIOR_MS_PER_TOKEN = 16.0
"""Priors of the time to the first byte, and of the time per token: 60 tokens a second, a usual remote model."""
PRIOR_SD = 0.7
"""Prior standard deviation of the logarithm of the time per token: a factor of two either way."""
PRIOR_WEIGHT = 3.0
KEEP = 0.97
"""Factor on older observations at each new one: a change of pace is seen within some dozen requests."""
_LEAST_MS = 1.0
_MOST_STRETCHES = 32
"""Maximum number of stretches of work without a pause that are remembered, for requests that overlap them."""


class Pace(Struct):
    """Pace of a target: fading sums of logarithms for means and variances; the prior counts as observations."""

    first: float = PRIOR_WEIGHT * log(PRIOR_FIRST_MS)
    first_weight: float = PRIOR_WEIGHT
    prior: float = PRIOR_WEIGHT
    """Weight that is left of the prior."""
    each: float = 0.0
    squares: float = 0.0
    weight: float = 0.0
    """Weight of all observations; 0 if there are none."""
    busy_ms: float = 0.0
    tokens: float = 0.0
    stretches: list[tuple[float, float]] = field(default_factory=list)

    def observe(self, *, first_ms: int | None, total_ms: int, output: int, ended_ms: int) -> None:
        """Adds an attempt. `first_ms` is known only of a stream: None otherwise."""
        if output <= 0 or total_ms <= 0:
            return
        if first_ms is not None:
            self.first = self.first * KEEP + log(max(first_ms, _LEAST_MS))
            self.first_weight = self.first_weight * KEEP + 1
        # If the first byte was not seen, it was as late as usual, but no later than half-way.
        begun = min(self.first_ms, total_ms / 2) if first_ms is None else first_ms
        each = log(max(total_ms - begun, _LEAST_MS) / output)
        self.each = self.each * KEEP + each
        self.squares = self.squares * KEEP + each * each
        self.weight = self.weight * KEEP + 1
        self.prior *= KEEP
        self.busy_ms = self.busy_ms * KEEP + self._new(ended_ms - total_ms, ended_ms)
        self.tokens = self.tokens * KEEP + output

    def _new(self, began: float, ended: float) -> float:
        """Returns how much of this time no other known request ran: time counts once, however many share it."""
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
        """Expected time in ms per token after the first byte."""
        return self.median_ms(PRIOR_MS_PER_TOKEN) * exp(self.sd**2 / 2)

    def median_ms(self, prior_ms: float) -> float:
        """Returns the median time in ms per token, with `prior_ms` as the prior."""
        return exp((self.each + self.prior * log(prior_ms)) / (self.weight + self.prior))

    @property
    def sd(self) -> float:
        """Standard deviation of the logarithm of the time per token."""
        mean = self.each / self.weight if self.weight else 0.0
        scatter = max(0.0, self.squares - self.weight * mean * mean)
        return sqrt((scatter + self.prior * PRIOR_SD**2) / (self.weight + self.prior))

    @property
    def throughput(self) -> float:
        """Output tokens per second while it works, over all of its concurrent requests; 0 if unknown."""
        return self.tokens * 1000 / self.busy_ms if self.busy_ms > 0 else 0.0


# What a token of a local engine costs by measurement, in place of its list price.

SERVED = 32
"""Number of answers of a target's own model, after one of a dearer model, until it is held at its own price again."""
MOST_KNOWN = 4_096
"""Maximum number of lists of targets remembered: a policy has one for each of its routes and targets."""


class Measured:
    """Prices in force instead of list prices: measured ones of engines, corrections of models' prices by statements,
    and prices of dearer models that answered in a target's place. They apply to requests decided later.

    The same targets are the same objects until another price is published for them.
    """

    def __init__(self) -> None:
        self._prices: Mapping[str, Price] = {}
        self._factors: Mapping[str, float] = {}
        self._served: dict[str, tuple[Price, int]] = {}
        """Target → price of the model that answered, and the number of answers for which it stays in force."""
        self._lists: dict[int, tuple[tuple[Target, ...], tuple[Target, ...]]] = {}
        """Identity of a list of targets → that list, which is kept alive here, and the priced one."""
        self._targets: dict[int, tuple[Target, Target]] = {}

    def publish(self, prices: Mapping[str, Price]) -> None:
        """Replaces the measured prices, by name of the engine."""
        self._prices, self._lists = dict(prices), {}

    def correct(self, factors: Mapping[str, float]) -> None:
        """Replaces the corrections, by id of the model: what its provider bills ÷ its price."""
        self._factors, self._lists, self._targets = factors, {}, {}

    def served(self, target: Target, price: Price | None) -> None:
        """Records that an answer of the target was charged at `price`: its own, or that of another model."""
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
        """Returns the targets with the prices in force."""
        if not self._prices and not self._factors and not self._served:
            return targets
        known = self._lists.get(id(targets))
        if known is None:
            if len(self._lists) >= MOST_KNOWN:
                self._lists, self._targets = {}, {}
            known = self._lists[id(targets)] = targets, tuple(map(self._one, targets))
        return known[1]

    def _one(self, target: Target) -> Target:
        """Returns a target with its price in force. Without a stated hourly cost its engine's is not measured."""
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
    """Returns a price whose token rates are multiplied by what statements taught."""
    ratio = Fraction(factor).limit_denominator(10_000)
    rule = Rule(times=(ratio.numerator, ratio.denominator))
    return structs.replace(price, rules=(*price.rules, rule), version=f"{price.version}, billed {factor:.4f} times")


def is_measured(price: Price | None) -> bool:
    return price is not None and price.version.startswith(MEASURED)
