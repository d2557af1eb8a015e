"""The posterior of pass rates: evidence that fades, and the regression over it."""

import math
from array import array
from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from router.types.decision import Vector
from router.types.request import Latest, oldest

# Observations as sums: evidence of several workers adds up, and fades as time passes.

HALF_LIFE_MS = 30 * 86_400_000


class Fading:
    """Sums that lose half of their weight in each half-life, so that the order of observations does not matter."""

    __slots__ = ("_half_life_ms", "_step", "at_ms", "sums")

    def __init__(self, shape: int | tuple[int, ...], half_life_ms: float = HALF_LIFE_MS, step: float = 0.0) -> None:
        """`step`: share of the half-life after which the sums fade again; outcomes in between weigh more instead."""
        self.sums, self.at_ms, self._half_life_ms, self._step = np.zeros(shape), 0, half_life_ms, step

    def fade(self, at_ms: int | None) -> tuple[float, float]:
        """Fades the sums (at 0 no time passes). Returns the factor on older ones, and the weight of an outcome at
        `at_ms`."""
        if not at_ms:
            return 1.0, 1.0
        passed = (at_ms - self.at_ms) / self._half_life_ms if self.at_ms else math.inf
        if passed < self._step:
            return 1.0, float(0.5**-passed)
        left = 0.5**passed if self.at_ms else 1.0
        if left < 1:
            self.sums *= left
        self.at_ms = at_ms
        return left, 1.0

    def left(self, at_ms: int) -> Vector:
        """Returns what is left of the sums at a later time."""
        passed = (at_ms - self.at_ms) / self._half_life_ms if self.at_ms else 0.0
        return np.asarray(self.sums * 0.5 ** max(passed, 0.0))


State = tuple[str, int, tuple[str, ...], bytes]
"""A packed group of outcomes: its name, the time of its sums, and names and rows of the targets that have any."""


def pack(group: str, known: Fading, names: Sequence[str], form: str = "<f8") -> State:
    """Returns the sums of targets by name, for `unpack`; in full, or as small floats (`<f4`)."""
    rows = known.sums.reshape(len(names), known.sums.shape[-1])
    at = np.flatnonzero(rows.any(axis=1))
    return group, known.at_ms, tuple(names[row] for row in at.tolist()), rows[at].astype(form).tobytes()


def unpack(state: State, known: Fading, names: Sequence[str], form: str = "<f8") -> None:
    """Replaces the sums in `known`. Targets that have no name here are dropped. Raises ValueError for data of other
    features, and for numbers that are not finite."""
    _, known.at_ms, stated, data = state
    rows = known.sums.reshape(len(names), known.sums.shape[-1])
    sums = np.frombuffer(data, form).reshape(len(stated), rows.shape[1])
    if not np.isfinite(sums).all():
        raise ValueError("what was observed is not finite")
    for name, row in zip(stated, sums, strict=True):
        if name in names:
            rows[names.index(name)] = row


# What is left to learn on top of any prior mean: a Bayesian linear model of residuals, with a part that targets share.
#
# residual(target, phi) = phi · (common + own[target]) + noise, common ~ N(0, diag), own[target] ~ N(0, diag). Exact:
# the own parts are integrated out, so a query costs O(T K²) and an observation O(K²), solved at the next query.

STEP = 1 / 256
"""Evidence fades in steps of this share of the half-life: 2.8 hours of 30 days, 0.3 % each."""
LEAST_VARIANCE = 1e-8
"""Minimum prior variance, so that its precision stays finite."""
MOST = 1e6
"""Maximum of a feature, a residual, a variance of noise and its inverse: beyond it is a mistake."""
MOST_LISTS = 32
"""Maximum number of lists of targets cached, 40 kB each with 20 targets: those of a policy's routes."""
CARRIED = 0.5
"""Standard deviation of how far other targets' outcomes carry over, as a share of what they move a pass rate by."""
ALIKE = 0.35
"""Correlation of several targets' scores of one request, against what was expected: 0.26 to 0.47 in public sets."""
NOISE_FLOOR = 0.03
"""Added to p(1 − p), so that one surprise can't overturn what is known of a target."""


def noise(p: float) -> float:
    """Returns the variance of one score whose expected value is `p` (0 to 1)."""
    return p * (1 - p) + NOISE_FLOOR


class Posterior:
    """The regression for T targets by name, in K features. For use by one thread."""

    def __init__(self, targets: Sequence[str], common: Vector, own: Vector, half_life_ms: float = HALF_LIFE_MS) -> None:
        """Sets the prior variances: `common` [K] of the part that all targets share, which is how wrong a difficulty
        can be; `own` [T, K] of each target's part, larger if nothing is known of it."""
        self.targets, (count, features) = tuple(targets), own.shape
        self.seen = Fading((count, 1 + features + features * features), half_life_ms, STEP)
        """Sums over observations: their number; phi residual ÷ noise; phi phi' ÷ noise."""
        self.asked = 1.0
        """Mean number of targets per request: the difficulty of a request counts once, not for each of them."""
        self._common = 1 / np.maximum(common, LEAST_VARIANCE)
        self._own = 1 / np.maximum(own, LEAST_VARIANCE)
        self._variance, self._shared = np.zeros((2, count, features, features))
        self._solution = np.zeros((count, features))
        self._stale = set(range(count))

    @property
    def count(self) -> Vector:
        """[T]: number of outcomes."""
        return self.seen.sums[:, 0]

    def update(
        self,
        target: int,
        phi: Vector,
        residual: float,
        noise: float = 0.25,
        at_ms: int | None = None,
        count: float | None = None,
    ) -> None:
        """Adds one outcome, or what counts as `count` of them: `residual` = observed − prior mean, of variance `noise`.
        `at_ms`: Unix; None if no time has passed.

        Negative noise takes the same outcome back. An outcome older than the last one counts less, as if it had faded.
        Raises ValueError for numbers that are not finite, noise of 0, and taking back what never was. Allows
        duplicates.
        """
        if np.shape(phi) != self._common.shape or not 0 <= target < len(self.targets):
            raise ValueError(f"target {target}, features {np.shape(phi)}: known are {self._own.shape}")
        if not (1 / MOST <= abs(noise) <= MOST and abs(residual) <= MOST and np.abs(phi).max() <= MOST):
            raise ValueError("an outcome is not finite, or its noise is 0")
        left, share = self.seen.fade(at_ms)
        if left < 1:
            self._stale.update(range(len(self.targets)))
        known, number = self.seen.sums[target], math.copysign(1, noise) if count is None else count
        sums = known + share * np.array((number, *phi * (residual / noise), *np.outer(phi / noise, phi).ravel()))
        if noise < 0 and not self._sound(sums[None], self._own[[target]]):
            raise ValueError("an outcome is taken back that never was finite evidence here")
        known[:] = sums
        self._stale.add(target)

    def _sound(self, sums: Vector, own: Vector) -> bool:
        """Returns whether sums [n, …] of targets with prior precisions [n, K] have only positive precisions."""
        known = self._parts(sums)[1] + own[:, :, None] * np.eye(own.shape[1])
        return bool((np.linalg.eigvalsh(known)[:, 0] > 0).all())

    def _parts(self, sums: Vector) -> tuple[Vector, Vector]:
        """Returns pulls [n, K] and precisions [n, K, K]."""
        features = len(self._common)
        return sums[:, 1 : 1 + features], sums[:, 1 + features :].reshape(-1, features, features)

    def widen(self, target: int, factor: float) -> None:
        """Divides the weight of what was observed of `target` by `factor` (≥ 1), as it has changed."""
        self.seen.sums[target] /= factor
        self._stale.add(target)

    @property
    def weights(self) -> Vector:
        """[T, K]: weights of the features in each target's expected residuals."""
        if self._stale:
            self._solve()
        return self._weights

    def about(self, phi: Vector, at: NDArray[np.intp] | None = None) -> tuple[Vector, Vector, Vector]:
        """Returns three times [n], for `phi` [K] at targets `at`, else at all: expected residuals; sd of each target's
        part, without what is unknown of all; and that of how far what was learned of other targets carries over."""
        if self._stale:
            self._solve()
        features, key = len(phi), b"" if at is None else at.tobytes()
        if (rows := self._rows.get(key)) is None:
            every = self._weights, CARRIED * self._carried, self._variance
            parts = [part[slice(None) if at is None else at].reshape(-1, features) for part in every]
            rows = self._rows.put(key, np.concatenate(parts))
        sums, count = rows.dot(phi), len(rows) // (features + 2)
        variance = sums[2 * count :].reshape(count, features).dot(phi)
        return sums[:count], np.sqrt(np.maximum(variance, 0.0)), sums[count : 2 * count]

    def _solve(self) -> None:
        """Computes the weights. With a target's prior precision P, its evidence A and b, and M = (A + P)⁻¹, its
        evidence on the common part has precision P − P M P and pull P M b; its weights given that are M (b + P
        common)."""
        stale = sorted(self._stale)
        own, (pull, precision) = self._own[stale], self._parts(self.seen.sums[stale])
        precision[:, range(own.shape[1]), range(own.shape[1])] += own
        variance = np.linalg.inv(precision)
        variance = (variance + variance.swapaxes(1, 2)) / 2
        shared = -own[:, :, None] * variance * own[:, None, :]
        shared[:, range(own.shape[1]), range(own.shape[1])] += own
        self._variance[stale], self._shared[stale] = variance, shared
        self._solution[stale] = (variance @ pull[:, :, None])[:, :, 0]
        self._stale.clear()
        once = 1 / (1 + ALIKE * (self.asked - 1))
        shared, pulls = once * self._shared, once * self._own * self._solution
        common, pull = np.diag(self._common) + shared.sum(axis=0), pulls.sum(axis=0)
        # By all targets, and by all others but each.
        every = np.concatenate([common[None], common - shared]), np.concatenate([pull[None], pull - pulls])
        means = np.linalg.solve(every[0], every[1][:, :, None])[:, :, 0]
        by_all, self._carried = (
            (self._variance @ (self._own * mean)[:, :, None])[:, :, 0] for mean in (means[:1], means[1:])
        )
        self._weights, self._rows = self._solution + by_all, Latest[bytes, Vector](MOST_LISTS)

    def restore(self, state: State) -> None:
        """Replaces what was observed: see `unpack`. Raises ValueError also for sums that no outcomes can have."""
        unpack(state, self.seen, self.targets)
        self._stale.update(range(len(self.targets)))
        if not self._sound(self.seen.sums, self._own):
            raise ValueError("less is known than nothing")


# Groups of outcomes, and how much a group's count for all others: of pass rates and of lengths alike.

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
MOST_TEMPLATES = 4_096
"""Maximum number of templates remembered; the one without an outcome for longest is forgotten."""
MOST_GROUPS = 8_192
"""Maximum number of groups × targets remembered; the one without an outcome for longest is forgotten."""
LEAST_WEIGHT = 1e-4
"""Minimum weight of an outcome: less changes nothing."""


class Recent(OrderedDict[K, V]):
    """A dict that makes missing values, and when full forgets the least recently used (see
    `router.types.request.oldest`)."""

    def __init__(self, most: int, make: Callable[[], V], template: Callable[[K], str] = lambda _: "") -> None:
        """`template`: gives the template of a key, if a tenant may make only its own keys be forgotten."""
        super().__init__()
        self._most, self._make, self._template = most, make, template

    def __missing__(self, key: K) -> V:
        value = self[key] = self._make()
        if len(self) > self._most:
            del self[oldest(self, key, self._template)]
        return value

    def used(self, key: K) -> V:
        value = self[key]
        self.move_to_end(key)
        return value


def counted(sums: Vector, most: float) -> Vector:
    """Returns sums, the first of which in each row is the weight, scaled so that the weight stays below `most`."""
    return np.asarray(sums / (sums[..., :1] / most + 1))


class Turn(NamedTuple):
    """What the outcomes of a group counted for before one more of them, and what they count for with it, both as of
    `at_ms`: the one is to be taken back and the other learned."""

    before: Vector
    after: Vector
    at_ms: int


class Pooled:
    """Limits what the outcomes of a group teach all others: they count at their mean, with a weight below `most`. A
    group is a tenant, whose requests and standards are its own, and which may be wrong; without keys it is a template.
    The order of outcomes, and which were replaced, does not matter."""

    def __init__(self, most: float, shape: int | tuple[int, ...], half_life_ms: float = HALF_LIFE_MS) -> None:
        self._most = most
        self.groups = Recent[tuple[str, Hashable], Fading](
            MOST_GROUPS, lambda: Fading(shape, half_life_ms), lambda key: key[0]
        )

    def turn(self, group: str, key: Hashable, sums: Vector, at_ms: int, most: float = 0.0) -> Turn:
        """Adds the sums of one more outcome about `key`. Without a group they count as they are. `most`: for this
        group."""
        if not group:
            return Turn(np.zeros(sums.shape), sums, at_ms)
        known, most = self.groups[group, key], most or self._most
        self.groups.move_to_end((group, key))
        before = counted(known.sums, most)
        left, share = known.fade(at_ms)
        known.sums += sums * share
        if known.sums[..., 0].max() < LEAST_WEIGHT:
            del self.groups[group, key]
            known.sums[...] = 0.0
        return Turn(before * left, counted(known.sums, most), known.at_ms)

    def share(self, group: str, key: Hashable) -> float:
        """Returns the share that each outcome of a group about `key` counts."""
        known = self.groups.get((group, key))
        return float(not group) if known is None else 1.0 / float(known.sums[..., 0].max() / self._most + 1)

    def forget(self, key: Hashable) -> None:
        """Forgets what groups said about `key`, so that it is not taken back later."""
        for known in [known for known in self.groups if known[1] == key]:
            del self.groups[known]


# The last values of a count, kept sorted: quantiles that forget.

SIZE = 128
"""Number of values remembered: enough for a 99 % quantile, few enough to follow a change within some dozen requests."""
PRIOR_WEIGHT = 2
"""Number of observations that a prior counts as."""
FADES = 0.8
"""Factor on a prior's weight for each observation of its own kind."""


TAIL, TAIL_PRIOR, TAIL_WEIGHT = 0.2, 0.5, 4.0
"""Share of largest values that tell how steep a tail is (Hill's estimator); its prior, and the prior's weight."""
BEYOND, RECENT = 1.5, 32
"""Maximum reach of a tail, in multiples of the largest value; number of last values that it covers in any case."""


class QuantileWindow:
    """The last `SIZE` integers, 0 ≤ value < 2**63. Adding costs two moves of at most 1 KiB, a quantile one look-up."""

    __slots__ = ("_order", "_sorted", "count", "sum")

    def __init__(self) -> None:
        self._order, self._sorted = array("q"), array("q")
        self.count = self.sum = 0

    def add(self, value: int) -> None:
        if self.count < SIZE:
            self.count += 1
        else:
            oldest = self._order.pop(0)
            del self._sorted[bisect_left(self._sorted, oldest)]
            self.sum -= oldest
        self._order.append(value)
        insort(self._sorted, value)
        self.sum += value

    def upper(self, share: float) -> int:
        """Returns a bound that the next value keeps with probability `share`, if it is like these (split conformal).

        It is the ⌈share·(n + 1)⌉-th smallest, or the largest if there are too few for that share; 0 if there is none.
        """
        return self._sorted[min(int(share * (self.count + 1)), self.count - 1)] if self.count else 0

    def tail(self, share: float) -> int:
        """Returns `upper` for a share that so few values don't show: they are continued as a power law."""
        top = self._sorted[-max(int(TAIL * self.count), 1) :]
        threshold = self._sorted[max(self.count - len(top) - 1, 0)] + 1
        beyond = sum(math.log((value + 1) / threshold) for value in top)
        steepness = (beyond + TAIL_PRIOR * TAIL_WEIGHT) / (len(top) + TAIL_WEIGHT)
        reach = max(len(top) / self.count / (1 - share), 1.0) ** steepness
        return int(max(min(threshold * reach, top[-1] * BEYOND), *self._order[-RECENT:]))

    def lower(self, share: float) -> int:
        """Returns the mirror image of `upper`: a bound that the next value stays above with probability `share`."""
        return self._sorted[max(self.count - 1 - int(share * (self.count + 1)), 0)] if self.count else 0


def prior_share(count: int) -> float:
    """Returns the weight of a prior, 0 to 1, besides `count` observations of its own kind."""
    weight = PRIOR_WEIGHT * FADES**count
    return weight / (count + weight)


def shrink_to_prior(value: int, count: int, prior: int) -> int:
    """Returns what `count` observations say, shrunk to the prior."""
    share = prior_share(count)
    return int(value * (1 - share) + prior * share)
