"""The posterior of pass rates: evidence that fades, the regression over it, and what templates add."""

import math
from collections import OrderedDict
from collections.abc import Callable, Container, Hashable, Sequence
from typing import NamedTuple, TypeVar

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from router.types.decision import NODE_WEIGHTS, Vector
from router.types.request import Latest, application_of, oldest

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
        shared, pulls = self._shared, self._own * self._solution
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


# What is left to learn of templates, on top of what is expected of their requests one by one. What an application
# sends in other templates counts there too, like a few outcomes: a template may be new, or differ by a name only.
#
# A template is what an application sends again and again (`router.classify.template`). Its requests are harder or
# easier than they look, for all targets alike, and some target is better at them than elsewhere: both are normal, the
# first in units of how uncertain the difficulty of a request is. What is remembered are sums of outcomes, so that
# their order does not matter.

MOST_TEMPLATES = 4_096
"""Remembered; of a newer one, the one without an outcome for longest is forgotten."""
SHARED = 0.3
"""Part of the variance of a request's difficulty that is the same in all requests of its template."""
MOST_OF_TEMPLATE, MOST_OF_APPLICATION = 40.0, 80.0
"""1 ÷ variance of what one template says of a target for its application, and of what all others of its application
say for a template, at most: like four and like eight outcomes of a usual variance of 0.1."""
OWN = 0.1**2
"""Variance of what a target's pass rate in a template is above what it is expected to be …"""
FEW = 8.0
"""… and at most that of the mean of so many outcomes: what is expected counts like so many where nearly all pass."""


LOOKS, MOST_APART = 1.0, 2.0
"""Sum of squares of what requests of a template were expected to pass, ÷ variance of an outcome, as much as which is
believed beforehand: that those which look harder are; and by how many times as much they may be."""
MISREAD = 2.0**2
"""Square of logits between what is expected and what is observed of a template, from which on differences of half a
logit in how its requests look say nothing; far beyond, a logit."""
LEAST_OTHERS = 0.01
"""1 ÷ variance: less is none, but what rounding and fading leave of the template's own outcomes."""
CARRIED = 0.5
"""Of what others' outcomes move a pass rate by: the standard deviation of how far they carry over."""
LEAST = 0.001
LEAST_DOUBT = 0.03
"""What is uncertain of a pass rate near 0 or 1, where abilities make hardly a difference, against one of a half."""


ODD, CLEAR = 6.0, 0.5
"""Outcomes against what was expected that are believed, where nearly all pass or fail: one may be a mistake of who
judged it, and counts for next to nothing. Where `doubt` is so large, any is."""


def kept(p: Vector) -> Vector:
    """Within what a pass rate may be."""
    return np.asarray(np.minimum(np.maximum(p, LEAST), 1 - LEAST))


def doubt(p: Vector, least: float = LEAST_DOUBT) -> Vector:
    """How uncertain a pass rate is, or how far it moves, against one of a half."""
    return np.asarray(np.maximum(4 * p * (1 - p), least))


SURPRISE = 0.25
"""A tenant's mean counts for others at most so far beyond what was expected, where that is a half, and less where
nearly all pass or fail: what fails there alone is its own. A template's for its application twice as far."""
LEAST_SLOPE = 0.2
"""Of how much a pass rate moves where a target is better than expected: where nearly all pass, or fail, little can be
known of it by that."""


def credible(sums: Vector, surprise: float) -> Vector:
    """Sums [..., 1, above, expected …] of a group, with no more of a surprise in their mean than counts for others."""
    weight, above, usual = sums[..., 0], sums[..., 1], sums[..., 2] / np.where(sums[..., 0], sums[..., 0], 1.0)
    most = np.abs(weight) * surprise * doubt(usual, LEAST_SLOPE)
    bounded = sums.copy()
    bounded[..., 1] = np.clip(above, -most, most)
    return bounded


def believed(above: Vector, count: Vector, p: Vector) -> Vector:
    """What `count` outcomes are above `p`, on average, as far as it is believed."""
    odd = ODD * np.maximum(1 - 4 * p * (1 - p) / CLEAR, 1e-9)
    return np.asarray(above * np.minimum(count * np.abs(above) / odd, 1.0) ** 2)


def _apart(rows: Vector) -> float:
    """For how much, up to `MOST_APART`, it counts how hard a request looks against the others of its template, by the
    template's sums: for as much as those that looked harder did worse."""
    weight = np.maximum(rows[:, 0], 0.0)
    above, foretold, squares, both = rows.T[1:5] / np.where(weight > 0, weight, 1.0)
    spread = weight.dot(np.maximum(squares - foretold * foretold, 0.0)) + LOOKS
    return min(max(1.0 + float(weight.dot(both - above * foretold) / spread), 0.0), MOST_APART)


CHANGE_SLACK, CHANGED = 0.5, 16.0
"""Standard deviations of a score by which a template may move, and the sum beyond that which is a change. Simulated: at
most one false alarm in 1,000 outcomes, where looks mislead, else none in 10,000; a fall from 90 to 0 % is found after
10, a rise from 0 to 90 % after 8."""
SETTLED, MOST_SURPRISE, LEFT = 32, 3.0, 5.0
"""Outcomes of a template before any change is one; standard deviations that a score counts at most; and 1 ÷ variance
that is left of what was observed before a change: half an outcome to one."""


class _TemplateRows(Struct, frozen=True, array_like=True):
    """Of one template, the rows [n, 5 + K] of those targets that have outcomes."""

    template: str
    at_ms: int
    targets: tuple[str, ...]
    rows: bytes
    watched: tuple[float, float, float] = (0.0, 0.0, 0.0)


class _TemplateSums(Fading):
    """`watched`: outcomes since the template was last found to be another, and how far its answers have been worse of
    late than before, and better (CUSUM, Page 1954), in standard deviations of a score."""

    watched = 0.0, 0.0, 0.0

    def watch(self, target: int, sums: Vector, weight: float) -> None:
        """Before an outcome is added: where the template is another under its name, in code or in what it is sent,
        what was observed of all targets there hardly counts any more."""
        row, (count, worse, better) = self.sums[target], self.watched
        if count >= SETTLED and row[0] > 0:
            usual, foretold, score = sum(row[1:3]) / row[0], row[2] / row[0], sum(sums[1:3]) / sums[0]
            # Weighted as the mean is, so that the sum of surprises stays near 0 whatever requests look like.
            surprise = float((score - usual) * sums[0] / weight * noise(foretold) / math.sqrt(noise(usual)))
            surprise = min(max(surprise, -MOST_SURPRISE), MOST_SURPRISE)
            worse = max(worse - weight * (surprise + CHANGE_SLACK), 0.0)
            better = max(better + weight * (surprise - CHANGE_SLACK), 0.0)
            if max(worse, better) > CHANGED:
                self.sums *= np.minimum(LEFT / np.maximum(self.sums[:, :1], 1e-9), 1.0)
                count = worse = better = 0.0
        self.watched = count + weight, worse, better


_encoder = msgspec.msgpack.Encoder()
_templates_decoder = msgspec.msgpack.Decoder(tuple[_TemplateRows, ...])


class Templates:
    """Of T targets by name, in K traits. One thread. By template, sums [T, 5 + K] of its outcomes: 1 ÷ variance of an
    outcome; times what it is above what traits foretell; times what they foretell; times the square of that, and both
    together; times its traits."""

    def __init__(self, targets: Sequence[str], traits: int) -> None:
        self._targets, shape = tuple(targets), (len(targets), 5 + traits)
        self._known = Recent[str, _TemplateSums](MOST_TEMPLATES, lambda: _TemplateSums(shape), str)

    def observe(self, template: str, target: int, sums: Vector, at_ms: int, weight: float = 0.0) -> None:
        """Those of an outcome [5 + K]: its score less what its traits foretold, before anything was learned. Negative
        ones take the same outcome back. `weight`: of an outcome; 0 for what an application is told of its templates."""
        known = self._known.used(template)
        if weight > 0:
            known.watch(target, sums, weight)
        known.sums[target] += sums * known.fade(at_ms)[1]

    def apply(
        self, template: str, prior: Vector, nodes: Vector, own_sd: Vector, learned: Vector, at: NDArray[np.intp]
    ) -> tuple[Vector, Vector]:
        """Pass rates [3, n] and own deviations [n] of the targets `at` [n], corrected by outcomes of the template, if
        any is remembered of it or of its application: by as much as the odds of the requests that were observed, which
        may be easier or harder than this one.

        `prior` [n]: foretold by traits alone; `learned` [T, K]: weights of traits that are already in `nodes`."""
        known = [row for name in (template, application_of(template)) if (row := self._known.get(name))]
        if not known:
            return nodes, own_sd
        rows = known[0].sums[at]
        if template not in self._known:
            rows = rows * np.minimum(MOST_OF_APPLICATION / np.maximum(rows[:, :1], 1e-9), 1.0)
        elif len(known) > 1:
            own = rows * (MOST_OF_TEMPLATE / (MOST_OF_TEMPLATE + rows[:, :1]))
            others = known[1].sums[at] - credible(own, 2 * SURPRISE)
            share = np.minimum(MOST_OF_APPLICATION / np.maximum(others[:, :1], 1e-9), 1.0)
            rows = rows + np.where(others[:, :1] > LEAST_OTHERS, others * share, 0.0)
        observed = rows[:, 0] > 0
        weight = np.where(observed, rows[:, 0], 1.0)
        p = NODE_WEIGHTS @ nodes
        apart, (_, above, foretold, _, _, *traits) = _apart(rows), rows.T / weight
        of_traits = (np.array(traits).T * learned[at]).sum(1)
        there = np.where(observed, kept(foretold + of_traits), p)
        above = np.where(observed, above - of_traits, 0.0)
        slope = there * (1 - there)
        above = believed(above, weight * (slope + NOISE_FLOOR), there)
        steep = np.sqrt(NODE_WEIGHTS @ (nodes - p) ** 2) * slope / (p * (1 - p))
        doubt_p, doubt_there = doubt(np.array((p, there)))
        own_sd = own_sd * doubt_there / doubt_p
        own = own_sd**2 + np.minimum(OWN, (slope + NOISE_FLOOR) / FEW)
        variance = own + 1 / weight
        precision = 1 / SHARED + (observed * steep**2 / variance).sum()
        shift = steep * float((observed * steep * above / variance).sum() / precision)
        reached = kept(there + shift + np.where(observed, own / variance * (above - shift), 0.0))
        rates = np.vstack((reached, there, kept(prior), kept(foretold), p, nodes))
        as_reached, as_there, as_prior, as_foretold, *as_looks = np.log(rates / (1 - rates))
        odds = np.where(observed, as_reached - as_there, shift / slope)
        unsure = np.where(observed, min(apart, 1.0), 1.0) * (np.array(as_looks) - as_looks[0])
        # What is left of how it looked by itself, once what was learned of all requests is taken into account.
        by_looks, left = as_prior - as_foretold, as_looks[0] - as_there
        by_looks = np.where(observed & (by_looks * left > 0), np.clip(left, -abs(by_looks), abs(by_looks)), 0.0)
        as_looks = as_looks[0] + (apart - 1) * by_looks + unsure
        looks = 1 / (1 + np.exp(-as_looks))
        # Where requests are far from what they look like, one that looks a little easier is no easier.
        unclear = odds * odds / (odds * odds + MISREAD)
        odds -= np.where(observed, np.clip(as_looks[0] - as_there, -unclear, unclear), 0.0)
        # Nor does a rate near 0 or 1, which a few odd answers move by logits, say as much of requests that are harder.
        most = np.where(observed, np.abs(reached - there), 1.0)
        mean, *moved = kept(looks + np.clip(1 / (1 + np.exp(-as_looks - odds)) - looks, -most, most))
        doubt_reached, doubt_mean = doubt(np.array((reached, mean)))
        # As sure as own outcomes make it, at the rate that they show.
        known = np.sqrt(own / weight / variance * ((reached * (1 - reached) + NOISE_FLOOR) / (slope + NOISE_FLOOR)))
        surer = np.minimum(own_sd * doubt_reached / doubt_there, known) * doubt_mean / doubt_reached
        own_sd = np.where(observed, surer, np.hypot(own_sd * doubt_mean / doubt_p, CARRIED * (mean - p)))
        spread = (np.array(moved) - NODE_WEIGHTS @ np.array(moved)) * np.sqrt(1 - SHARED + 1 / precision)
        # No further than to what a rate may be, so that the mean stays what it is.
        room = np.minimum((1 - LEAST - mean) / (spread.max(0) + 1e-9), (mean - LEAST) / (1e-9 - spread.min(0)))
        return mean + spread * np.minimum(room, 1.0), own_sd

    def widen(self, target: int, factor: float) -> None:
        """What was observed of this target counts 1/`factor`."""
        for known in self._known.values():
            known.sums[target] /= factor

    def state(self) -> bytes:
        """Everything observed, for `restore`."""
        rows = []
        for template, known in self._known.items():
            at = np.flatnonzero(known.sums[:, 0])
            names = tuple(self._targets[row] for row in at)
            rows.append(
                _TemplateRows(template, known.at_ms, names, known.sums[at].astype("<f4").tobytes(), known.watched)
            )
        return _encoder.encode(rows)

    def restore(self, state: bytes) -> bool:
        """In the place of what was observed here; targets go by name. False, and nothing is known: not understood."""
        self._known.clear()
        try:
            for kept in _templates_decoder.decode(state)[-MOST_TEMPLATES:]:
                known = self._known[kept.template]
                known.at_ms, known.watched = kept.at_ms, kept.watched
                rows = np.frombuffer(kept.rows, "<f4").reshape(len(kept.targets), known.sums.shape[1])
                for name, row in zip(kept.targets, rows, strict=True):
                    if name in self._targets and np.isfinite(row).all():
                        known.sums[self._targets.index(name)] = row
        except (msgspec.DecodeError, ValueError):
            self._known.clear()
            return False
        return True
