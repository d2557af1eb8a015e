"""The posterior of pass rates: evidence that fades, and the regression over it."""

import math
from array import array
from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Callable, Container, Hashable, Sequence
from typing import NamedTuple, TypeVar

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from router.types.decision import Vector
from router.types.request import Latest, oldest

# What was observed, as sums: evidence of several workers adds up, and fades as time passes.

VERSION = 3
"""Of the bytes; evidence of another version is not understood."""


class _State(Struct, frozen=True, array_like=True):
    """Of the n targets of which something was observed; the sums as little-endian doubles, in full."""

    version: int
    basis: str
    at_ms: int
    features: int
    targets: tuple[str, ...]
    count: bytes
    precision: bytes
    pull: bytes


_state_decoder = msgspec.msgpack.Decoder(_State)


# What is left to learn on top of any prior mean: a Bayesian linear model of residuals, with a part that targets
# share.
#
# residual(target, phi) = phi · (common + own[target]) + noise, common ~ N(0, diag), own[target] ~ N(0, diag). Exact:
# the own parts are integrated out, so a query costs O(T K²) and an observation O(K²), solved when next asked.

HALF_LIFE_MS = 30 * 86_400_000
STEPS = 256
"""Evidence fades in steps of the half-life over this: 2.8 hours of 30 days, 0.3 % each."""
LEAST_VARIANCE = 1e-8
"""In the place of a smaller variance of the prior, so that its precision stays finite."""
MOST = 1e6
"""A feature, a residual, a variance of noise and one over it are at most so much: beyond it is a mistake."""
MOST_LISTS = 32
"""Lists of targets remembered with what is known of them, 40 kB each of 20 targets: those of a policy's routes."""
CARRIED = 0.5
"""Of what others' outcomes move a pass rate by: the standard deviation of how far they carry over."""
ALIKE = 0.35
"""Correlation of several targets' scores of one request, against what was expected: 0.26 to 0.47 in public sets."""
NOISE_FLOOR = 0.03
"""Added to p(1 − p): so that one surprise can't overturn what is known of a target."""


def noise(p: float) -> float:
    """Variance of one score where `p` (0 … 1) is expected."""
    return p * (1 - p) + NOISE_FLOOR


class Posterior:
    """Of T targets by name, in K features; `basis` says what the features mean (a version, a digest). One thread."""

    def __init__(
        self, targets: Sequence[str], common: Vector, own: Vector, basis: str = "", half_life_ms: float = HALF_LIFE_MS
    ) -> None:
        """Variances before anything was observed: `common` [K] of what all targets share, which is how wrong a
        difficulty can be; `own` [T, K] of each target's part, larger where nothing is known of it."""
        self.targets, self.basis, self.at_ms = tuple(targets), basis, 0
        self._index = {name: index for index, name in enumerate(self.targets)}
        self._half_life = half_life_ms
        self.asked = 1.0
        """Targets that answered each request: how hard it is was observed once, not so many times."""
        self._common = 1 / np.maximum(common, LEAST_VARIANCE)
        self._own = 1 / np.maximum(own, LEAST_VARIANCE)
        self._clear()

    def _clear(self) -> None:
        targets, features = self._own.shape
        self.count: Vector = np.zeros(targets)
        self._precision: Vector = np.zeros((targets, features, features))
        self._pull: Vector = np.zeros((targets, features))
        """Sums over observations: their number; of phi phi' ÷ noise; of phi residual ÷ noise."""
        self._variance = np.zeros((targets, features, features))
        self._solution, self._shared = np.zeros((targets, features)), np.zeros((targets, features, features))
        self._stale = set(range(targets))

    def update(
        self,
        target: int,
        phi: Vector,
        residual: float,
        noise: float = 0.25,
        at_ms: int | None = None,
        count: float | None = None,
    ) -> None:
        """One outcome, or what counts as `count` of them: `residual` = observed − prior mean, of variance `noise`.
        `at_ms`: Unix, None for no time passed.

        Negative noise takes the same outcome back. What is older than the last one counts as much less as it has faded.
        ValueError: a number that is not finite, noise of 0, or taken back what never was. Duplicates are the caller's.
        """
        if np.shape(phi) != self._common.shape or not 0 <= target < len(self.targets):
            raise ValueError(f"target {target}, features {np.shape(phi)}: known are {self._own.shape}")
        if not (1 / MOST <= abs(noise) <= MOST and abs(residual) <= MOST and np.abs(phi).max() <= MOST):
            raise ValueError("an outcome is not finite, or its noise is 0")
        self.advance(at_ms)
        share = 0.5 ** ((self.at_ms - at_ms) / self._half_life) if at_ms else 1.0
        if noise < 0 and not self._sound([target], -np.outer(phi, phi)[None] * (share / -noise)):
            raise ValueError("an outcome is taken back that never was finite evidence here")
        self.count[target] += share * (math.copysign(1, noise) if count is None else count)
        self._precision[target] += np.outer(phi * (share / noise), phi)
        self._pull[target] += phi * (residual * share / noise)
        self._stale.add(target)

    def _sound(self, at: Sequence[int], more: Vector) -> bool:
        """With `more` precision [len(at), K, K] nothing about these targets is known less than not at all."""
        known = self._precision[at] + self._own[at][:, :, None] * np.eye(len(self._common)) + more
        return bool((np.linalg.eigvalsh(known)[:, 0] > 0).all())

    def advance(self, at_ms: int | None) -> None:
        """Time passes: evidence fades by half in each half-life, and the prior comes back. None, the past: nothing."""
        if not at_ms:
            return
        passed = (at_ms - self.at_ms) / self._half_life
        if self.at_ms and passed * STEPS < 1:
            return
        if self.at_ms:
            self._scale(0.5**passed, range(len(self.targets)))
        self.at_ms = at_ms

    def widen(self, target: int, factor: float) -> None:
        """`target` is not what it was: what was observed of it counts 1/`factor` (≥ 1) from now on."""
        self._scale(1 / factor, [target])

    def _scale(self, share: float, targets: Sequence[int]) -> None:
        """Only `share` of what was observed of them counts from now on."""
        for sums in (self.count, self._precision, self._pull):
            sums[targets] *= share
        self._stale.update(targets)

    @property
    def weights(self) -> Vector:
        """[T, K]: of each target's expected residuals."""
        if self._stale:
            self._solve()
        return self._weights

    def about(self, phi: Vector, at: NDArray[np.intp] | None = None) -> tuple[Vector, Vector, Vector]:
        """Three times [n], of `phi` [K] at targets `at`, else at all: expected residuals; sd of each target's own part,
        without what is unknown of all; and that of how far what was learned of other targets only carries over."""
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
        """With P a target's prior precision, A its evidence and M = (A + P)⁻¹: what it says of the common part has the
        precision P − P M P and the pull P M b; its weights given the common part are M (b + P common)."""
        stale = sorted(self._stale)
        own, precision = self._own[stale], self._precision[stale]
        precision[:, range(own.shape[1]), range(own.shape[1])] += own
        variance = np.linalg.inv(precision)
        variance = (variance + variance.swapaxes(1, 2)) / 2
        shared = -own[:, :, None] * variance * own[:, None, :]
        shared[:, range(own.shape[1]), range(own.shape[1])] += own
        self._variance[stale], self._shared[stale] = variance, shared
        self._solution[stale] = (variance @ self._pull[stale][:, :, None])[:, :, 0]
        self._stale.clear()
        once = 1 / (1 + ALIKE * (self.asked - 1))
        shared, pulls = once * self._shared, once * self._own * self._solution
        common, pull = np.diag(self._common) + shared.sum(axis=0), pulls.sum(axis=0)
        # Of all, and of all others but each.
        every = np.concatenate([common[None], common - shared]), np.concatenate([pull[None], pull - pulls])
        means = np.linalg.solve(every[0], every[1][:, :, None])[:, :, 0]
        by_all, self._carried = (
            (self._variance @ (self._own * mean)[:, :, None])[:, :, 0] for mean in (means[:1], means[1:])
        )
        self._weights, self._rows = self._solution + by_all, Latest[bytes, Vector](MOST_LISTS)

    def state(self) -> bytes:
        """Everything observed, for `restore`: `8 (1 + K + K²)` bytes for each target that was seen, and its name."""
        seen = np.flatnonzero(self._precision.any(axis=(1, 2)) | self._pull.any(axis=1))
        sums = [part[seen].astype("<f8").tobytes() for part in (self.count, self._precision, self._pull)]
        names, features = tuple(self.targets[at] for at in seen), len(self._common)
        return msgspec.msgpack.encode(_State(VERSION, self.basis, self.at_ms, features, names, *sums))

    def restore(self, data: bytes) -> bool:
        """In the place of what was observed here. False, and back to the prior: not understood, or of other features.

        Targets go by name: what was observed of one that is unknown here is dropped.
        """
        self._clear()
        self.at_ms = 0
        features = len(self._common)
        try:
            state = _state_decoder.decode(data)
            names, shapes = state.targets, ((-1,), (-1, features, features), (-1, features))
            parts = (state.count, state.precision, state.pull)
            sums = [np.frombuffer(part, "<f8").reshape(shape) for part, shape in zip(parts, shapes, strict=True)]
        except (msgspec.DecodeError, ValueError):
            return False
        whole = all(len(part) == len(set(names)) == len(names) and np.isfinite(part).all() for part in sums)
        if (state.version, state.basis, state.features) != (VERSION, self.basis, features) or not whole:
            return False
        known = [row for row, name in enumerate(names) if name in self._index]
        at, (count, precision, pull) = [self._index[names[row]] for row in known], [part[known] for part in sums]
        if not self._sound(at, precision):
            return False
        self.count[at], self._precision[at], self._pull[at] = count, precision, pull
        self.at_ms = state.at_ms
        return True


# Sums that fade, and how much of a group's they count for all others: of pass rates and of lengths alike.

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
MOST_TEMPLATES = 4_096
"""Templates remembered; of a newer one, the one without an outcome for longest is forgotten."""
MOST_GROUPS = 8_192
"""Groups × targets remembered; the one without an outcome for longest is forgotten."""
LEAST_WEIGHT = 1e-4
"""Of an outcome: less changes nothing."""


class Recent(OrderedDict[K, V]):
    """What is missing is made, and of a full memory the oldest forgotten (`router.types.request.oldest`): what was
    moved to the end least recently."""

    def __init__(self, most: int, make: Callable[[], V], template: Callable[[K], str] = lambda _: "") -> None:
        """`template`: which one a key is of, where a tenant may forget its own only."""
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


class Fading:
    """Sums that count half as much after each half-life, so that the order in which they come does not matter."""

    __slots__ = ("_half_life_ms", "at_ms", "sums")

    def __init__(self, shape: int | tuple[int, ...], half_life_ms: float = HALF_LIFE_MS) -> None:
        self.sums, self.at_ms, self._half_life_ms = np.zeros(shape), 0, half_life_ms

    def fade(self, at_ms: int | None) -> tuple[float, float]:
        """What is left of older sums, and the share that an outcome of `at_ms` counts. 0: no time has passed."""
        if not at_ms:
            return 1.0, 1.0
        passed = (at_ms - self.at_ms) / self._half_life_ms if self.at_ms else 0.0
        if passed < 0:
            return 1.0, float(0.5**-passed)
        left = 0.5**passed
        if passed:
            self.sums *= left
        self.at_ms = at_ms
        return left, 1.0

    def left(self, at_ms: int) -> Vector:
        """What is left of the sums at a later time."""
        passed = (at_ms - self.at_ms) / self._half_life_ms if self.at_ms else 0.0
        return np.asarray(self.sums * 0.5 ** max(passed, 0.0))


class Turn(NamedTuple):
    """What the outcomes of a group counted for before one more of them, and what they count for with it, both as of
    `at_ms`: the one is to be taken back and the other learned."""

    before: Vector
    after: Vector
    at_ms: int


class Pooled:
    """What is learned for all of what a group of outcomes says: it counts at most with a weight of `most`, at its mean.
    Of a tenant's outcomes for all tenants: its requests and its standards are its own, and it may be wrong; where no
    keys are, of a template's. Of a template's for its application. In which order they came, and what was replaced,
    does not matter.

    The first of the sums is the weight, in each row where there are several.
    """

    def __init__(self, most: float, shape: int | tuple[int, ...], half_life_ms: float = HALF_LIFE_MS) -> None:
        self._most = most
        self._groups = Recent[tuple[str, Hashable], Fading](
            MOST_GROUPS, lambda: Fading(shape, half_life_ms), lambda key: key[0]
        )

    def turn(self, group: str, key: Hashable, sums: Vector, at_ms: int, most: float = 0.0) -> Turn:
        """By the sums of one more outcome, about `key`. Without a group it is learned as it is. `most`: of this
        group."""
        if not group:
            return Turn(np.zeros(sums.shape), sums, at_ms)
        known, most = self._groups[group, key], most or self._most
        self._groups.move_to_end((group, key))
        before = known.sums / (known.sums[..., :1] / most + 1)
        left, share = known.fade(at_ms)
        known.sums += sums * share
        if known.sums[..., 0].max() < LEAST_WEIGHT:
            del self._groups[group, key]
            known.sums[...] = 0.0
        return Turn(before * left, known.sums / (known.sums[..., :1] / most + 1), known.at_ms)

    def share(self, group: str, key: Hashable) -> float:
        """Of each outcome of a group about `key`, what counts."""
        known = self._groups.get((group, key))
        return float(not group) if known is None else 1.0 / float(known.sums[..., 0].max() / self._most + 1)

    def state(self) -> bytes:
        return msgspec.msgpack.encode([(*key, known.at_ms, known.sums.tolist()) for key, known in self._groups.items()])

    def forget(self, key: Hashable) -> None:
        """What was said about it is no more what is to be taken back."""
        for known in [known for known in self._groups if known[1] == key]:
            del self._groups[known]

    def restore(self, state: bytes, keys: Container[str]) -> bool:
        """What was said about `keys`. False: not understood, and nothing is known."""
        self._groups.clear()
        try:
            rows = msgspec.msgpack.decode(state, type=list[tuple[str, str, int, list[float]]])
        except msgspec.DecodeError:
            return False
        for group, key, at_ms, sums in rows:
            if key in keys:
                known = self._groups[group, key]
                known.at_ms, known.sums = at_ms, np.array(sums)
        return True


# The last values of something that is counted, kept sorted: quantiles that forget.

SIZE = 128
"""Values remembered: enough for a 99 % quantile, few enough to follow a change within some dozen requests."""
PRIOR_WEIGHT = 2
"""A prior counts like so many observations, and so does the whole target within one kind of work."""
FADES = 0.8
"""What a prior weighs after each observation of its own kind."""


TAIL, TAIL_PRIOR, TAIL_WEIGHT = 0.2, 0.5, 4.0
"""Share of largest values that tell how steep a tail is (Hill's estimator); what that leans on, and its weight."""
BEYOND, RECENT = 1.5, 32
"""Times the largest value, at most, that a tail is thought to reach; of so many last values it covers the largest."""


class QuantileWindow:
    """Whole numbers, 0 ≤ value < 2**63. Adding costs a move of at most 1 KiB, a quantile one look-up."""

    __slots__ = ("_next", "_order", "_sorted", "count", "sum")

    def __init__(self) -> None:
        self._order, self._sorted = array("q"), array("q")
        self._next = self.count = self.sum = 0

    def add(self, value: int) -> None:
        if self.count < SIZE:
            self._order.append(value)
            self.count += 1
        else:
            oldest = self._order[self._next]
            del self._sorted[bisect_left(self._sorted, oldest)]
            self._order[self._next] = value
            self._next = (self._next + 1) % SIZE
            self.sum -= oldest
        insort(self._sorted, value)
        self.sum += value

    def upper(self, share: float) -> int:
        """A bound that the next value keeps with probability `share`, if it is like these (split conformal).

        The ⌈share·(n + 1)⌉-th smallest, or the largest where so few values say nothing about that share. 0 of none.
        """
        return self._sorted[min(int(share * (self.count + 1)), self.count - 1)] if self.count else 0

    def tail(self, share: float) -> int:
        """As `upper` of at least one value, for a share that so few don't show: they go on as a power law."""
        top = self._sorted[-max(int(TAIL * self.count), 1) :]
        threshold = self._sorted[max(self.count - len(top) - 1, 0)] + 1
        beyond = sum(math.log((value + 1) / threshold) for value in top)
        steepness = (beyond + TAIL_PRIOR * TAIL_WEIGHT) / (len(top) + TAIL_WEIGHT)
        reach = max(len(top) / self.count / (1 - share), 1.0) ** steepness
        latest = range(self._next - min(RECENT, self.count), self._next)
        return int(max(min(threshold * reach, top[-1] * BEYOND), *(self._order[at] for at in latest)))

    def lower(self, share: float) -> int:
        """The mirror image: a bound that the next value stays above with probability `share`."""
        return self._sorted[max(self.count - 1 - int(share * (self.count + 1)), 0)] if self.count else 0


def prior_share(count: int) -> float:
    """What a prior weighs beside so many observations of its own kind."""
    weight = PRIOR_WEIGHT * FADES**count
    return weight / (count + weight)


def shrink_to_prior(value: int, count: int, prior: int) -> int:
    """What `count` observations say, leaning on the prior."""
    share = prior_share(count)
    return int(value * (1 - share) + prior * share)
