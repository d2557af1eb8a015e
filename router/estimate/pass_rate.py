"""Pass rates: the prior from a model card, the posterior over it, and alarms when a target drifts."""

import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from hashlib import sha256
from io import BytesIO
from math import inf, log, log2
from pathlib import Path
from typing import NamedTuple
from zipfile import BadZipFile

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from router.errors import DataError
from router.estimate.posterior import (
    LEAST_WEIGHT,
    MOST_TEMPLATES,
    Pooled,
    Posterior,
    Recent,
    State,
    noise,
    pack,
    unpack,
)
from router.estimate.templates import (
    LEAST_DOUBT,
    LEAST_SLOPE,
    MOST_SURPRISE,
    Templates,
    Watched,
    believed,
    clipped,
    credible,
    cusum,
    uncertainty,
)
from router.types.attempt import CLIENT, Alarm, Outcome
from router.types.decision import NODE_WEIGHTS, NODES, Vector
from router.types.price import NANO_PER_USD, WORST_CASE
from router.types.request import (
    DIFFICULTY,
    DIFFICULTY_SD,
    SCALES,
    SHARE,
    STEPS,
    TASKS,
    TRAITS,
    UNFAMILIARITY,
    Classification,
    instructed,
    tenant_of,
)
from router.types.target import Benchmark, Target, Task

# Card → ability: what a target without any outcome can do, from the facts that are known of it.

KNOWN = (Task.MATHS, Task.CODE, Task.FACTUAL, Task.REASONING)
"""Tasks with public outcomes, for each of which abilities are known."""
BENCHMARKS = tuple(Benchmark)
FACTS = (*BENCHMARKS, "active", "total", "price", "context")
ABILITIES = len(KNOWN)
FOLDER = Path(__file__).parent / "data"
ARRAYS, MANIFEST = "cards.npz", "cards.json"
FORMAT = 1
_LEAST_SCORE = 0.02


class CardAbility(NamedTuple):
    """Expected ability [4] and its covariance [4, 4], by `KNOWN`, in logits relative to the usual target."""

    mean: Vector
    covariance: Vector


class Cards(NamedTuple):
    """A joint normal distribution of abilities and facts [4 + F], over models that don't think."""

    mean: Vector
    covariance: Vector
    helped: Vector
    """[4 + F + 1]: logits that each step of `depth` adds to abilities, to scores, and in all other tasks."""
    version: str = ""


class Card(NamedTuple):
    """Facts about a model; None if unknown."""

    scores: Mapping[Benchmark, float]
    active_b: float | None = None
    parameters_b: float | None = None
    rate: int | None = None
    """List price of a million output tokens, in nano-USD."""
    context: int | None = None
    scored: float = 0.0
    """`depth` of thinking with which its scores were measured; 0 if thinking can be switched off."""


def card(target: Target) -> Card:
    model, price = target.model, target.model.price
    rate = price.output if price is not None and price != WORST_CASE and not target.provider.local else None
    scored = 0.0 if (known := model.scored or model.thinking).can_stop else depth(known.typical())
    return Card(model.scores, model.active_b, model.parameters_b, rate, model.context, scored)


def depth(tokens: int) -> float:
    """Returns the depth of `tokens` of thinking; the logits that thinking adds are about proportional to it."""
    return log2(1 + tokens / 1_000)


def deeper(target: Target, effort: str) -> float:
    """Returns how much deeper a target thinks at this effort than by itself, in steps of `depth`."""
    if not effort or target.pass_rate is not None:
        return 0.0
    more, own = map(target.model.thinking.typical, (effort, target.effort or ""))
    return depth(more) - depth(own)


def facts(card: Card, helped: Vector) -> Vector:
    """Returns the facts [F], NaN if unknown; scores are corrected to those without thinking."""
    row = [logit(card.scores.get(name)) for name in BENCHMARKS]
    price, active = card.rate and card.rate / NANO_PER_USD, card.active_b or card.parameters_b
    row += [log(size) if size else np.nan for size in (active, card.parameters_b, price, card.context)]
    return np.array(row, dtype=np.float64) - card.scored * helped[ABILITIES:-1]


def condition(mean: Vector, covariance: Vector, known: Vector) -> CardAbility:
    """Returns the first `ABILITIES` of a joint Gaussian, given those of the others that are not NaN."""
    at = ABILITIES + np.flatnonzero(~np.isnan(known))
    gain = np.linalg.solve(covariance[np.ix_(at, at)], covariance[at, :ABILITIES]).T
    expected = mean[:ABILITIES] + gain @ (known[at - ABILITIES] - mean[at])
    return CardAbility(expected, covariance[:ABILITIES, :ABILITIES] - gain @ covariance[at, :ABILITIES])


def logit(score: float | None) -> float:
    if score is None:
        return np.nan
    clipped = min(max(score, _LEAST_SCORE), 1 - _LEAST_SCORE)
    return log(clipped / (1 - clipped))


def ability(cards: Cards, known: Card) -> CardAbility:
    """Returns the expected ability, without thinking, of a model with this card."""
    return condition(cards.mean, cards.covariance, facts(known, cards.helped))


@cache
def load() -> Cards:
    """Reads the cards that ship with lowpass. Raises `DataError`."""
    path = FOLDER / ARRAYS
    try:
        data = path.read_bytes()
        with np.load(BytesIO(data), allow_pickle=False) as arrays:
            return Cards(arrays["mean"], arrays["covariance"], arrays["helped"], sha256(data).hexdigest()[:16])
    except (OSError, ValueError, KeyError, EOFError, BadZipFile, zlib.error) as problem:
        raise DataError(f"{path} can't be read ({type(problem).__name__}): install lowpass again") from problem


# How likely each target is right: a prior by request and card, corrected by outcomes.

Index = NDArray[np.intp]
WIDER = 4.0
"""Factor by which the weight of what was observed of a target is divided once it drifts."""
USUAL_DIFFICULTIES = np.array([-8.0, -5.0, -2.0, -0.6, 0.7, 2.2])
"""Difficulties of everyday traffic, equally frequent: the tiers of the anchors (tools/anchors)."""
LEARNED = np.array([0, DIFFICULTY, UNFAMILIARITY, *range(SHARE, TRAITS)])
"""Indexes of the traits by which residuals are learned."""
_COMMON_VARIANCES = np.array([0.0049, 0.0225, 0.0225, *[0.0225] * len(TASKS)])
_OWN_VARIANCES = np.array([0.0001, 0.0016, 0.0225, *[0.0004] * len(TASKS)])
"""Prior variances of corrections by outcomes, common and own: by the likelihood of held-out public sets."""
_MEAN = np.full(ABILITIES, 1 / ABILITIES)
_SHARES = SHARE + np.array([TASKS.index(task) for task in KNOWN])
MOST_SAID = 4.0
"""Maximum number of outcomes that one tenant's count as: more would let it alone change all others' choices."""


class ExpectedRates(NamedTuple):
    """Pass rates of n targets for one request."""

    p: Vector
    nodes: Vector
    """[3, n]: mean if the request is easier than it looks, as it looks, or harder; weighted by `NODE_WEIGHTS`."""
    own_sd: Vector
    """[n]: standard deviation of what is not common to all targets."""
    outcomes: float
    """Number of outcomes of all of them that were learned from; older ones count less."""
    alike: Mapping[str, float]
    """Target → number of outcomes of the request's template, else of its task, that were learned from."""
    sd: Callable[[], Vector]
    """Returns [n]: standard deviation; computed on demand."""

    def times(self, whole: Vector) -> "ExpectedRates":
        """Returns the rates of answers that may be incomplete. `whole` [n]: chances that they are complete."""
        p, nodes, own_sd = whole * self.p, whole * self.nodes, whole * self.own_sd
        return self._replace(p=p, nodes=nodes, own_sd=own_sd, sd=lambda: whole * self.sd())


def _deviation(p: Vector, nodes: Vector, own_sd: Vector) -> Vector:
    spread = np.maximum(NODE_WEIGHTS.dot(nodes * nodes) - p * p, 0.0)
    return np.asarray(np.sqrt(np.minimum(own_sd * own_sd + spread, p - p * p)))


VERSION = 5
"""Version of the packed evidence; other versions can't be restored."""


class _State(Struct, frozen=True, array_like=True):
    """Packed evidence. `basis`: version of the cards; `said`: sums of groups and targets in `by_tenant`."""

    version: int
    basis: str
    of_all: State
    templates: list[tuple[State, Watched]]
    said: list[State]
    alike: dict[str, dict[str, float]]


_state_decoder = msgspec.msgpack.Decoder(_State)


class PassRateModel:
    """Pass rates of the targets of the policy in force, in their order. One per process.

    logit p = ability of the target in the request's tasks − difficulty; both are normal, and p is the mean over them.
    """

    posterior: Posterior
    templates: Templates
    by_tenant: Pooled
    _alike: Recent[str, dict[str, float]]
    """Template or task → target → number of outcomes that were learned from."""

    def __init__(self, targets: Sequence[Target] = ()) -> None:
        self._build(targets)

    def adopt(self, targets: Sequence[Target]) -> None:
        """Puts another policy in force: evidence is kept by the targets' names."""
        state, self._targets = self.state(), targets
        self.restore(state)

    def state(self) -> bytes:
        groups = [pack(group, known, (str(target),)) for (group, target), known in self.by_tenant.groups.items()]
        of_all, templates = pack("", self.posterior.seen, self.posterior.targets), self.templates.state()
        return msgspec.msgpack.encode(_State(VERSION, load().version, of_all, templates, groups, self._alike))

    def restore(self, state: bytes) -> bool:
        """Replaces the evidence. False, with no evidence left, if it is of another version or damaged."""
        self._build(self._targets)
        try:
            known = _state_decoder.decode(state)
            if (known.version, known.basis) != (VERSION, load().version):
                return False
            self.posterior.restore(known.of_all)
            self.templates.restore(known.templates)
            for row in known.said:
                for name in set(row[2]) & self._at.keys():  # none if all outcomes were taken back
                    unpack(row, self.by_tenant.groups[row[0], name], row[2])
        except (msgspec.DecodeError, ValueError):
            self._build(self._targets)
            return False
        self._alike.update(known.alike)
        return True

    def _build(self, targets: Sequence[Target]) -> None:
        self._targets, self._at = targets, {target.id: at for at, target in enumerate(targets)}
        self._alike = Recent[str, dict[str, float]](MOST_TEMPLATES, dict)
        cards = load()
        known = [ability(cards, card(target)) for target in targets]
        means = np.array([each.mean for each in known]).reshape(-1, ABILITIES)
        covariances = np.array([each.covariance for each in known]).reshape(-1, ABILITIES, ABILITIES)
        stated = [at for at, target in enumerate(targets) if target.pass_rate is not None]
        covariances[stated] = 0.0
        depths = np.array([depth(target.model.thinking.typical(target.effort or "")) for target in targets])
        tasks, others = cards.helped[:ABILITIES], cards.helped[-1]
        overall, variance = means @ _MEAN + depths * others, covariances @ _MEAN @ _MEAN
        apart = means + np.multiply.outer(depths, tasks) - overall[:, None]
        if stated:  # the ability that passes this share of everyday requests
            abilities = np.linspace(-15.0, 15.0, 3_001)
            shares = (1 / (1 + np.exp(USUAL_DIFFICULTIES - abilities[:, None]))).mean(1)
            overall[stated] = np.interp([targets[at].pass_rate or 0.5 for at in stated], shares, abilities)
            apart[stated] = 0.0
        self._deeper = np.zeros(TRAITS)  # what each step of depth adds, by trait
        self._deeper[0], self._deeper[_SHARES] = others, tasks - others
        # The mean of a logistic over a normal ability is about a logistic with a flatter slope.
        flatter = 1 / np.sqrt(1 + np.pi / 8 * variance)
        self._usual = (1 / (1 + np.exp((USUAL_DIFFICULTIES[:, None] - overall) * flatter))).mean(axis=0)
        # [3, T, TRAITS], in logits: how much each trait of a request makes failing likelier than passing, if the
        # request is easier than it looks, as it looks, or harder.
        self._flatter, self._failing = flatter, np.zeros((len(NODES), len(targets), TRAITS))
        self._failing[:, :, 0], self._failing[:, :, _SHARES] = -overall, -apart
        self._failing[:, :, DIFFICULTY] = SCALES[DIFFICULTY]
        self._failing[:, :, DIFFICULTY_SD] = NODES[:, None] * SCALES[DIFFICULTY_SD]
        self._failing *= flatter[:, None]
        # Weights are changes of pass rates near 1/2, where a logit is 1/4: variances in logits are divided by 16.
        own = np.tile(_OWN_VARIANCES, (len(targets), 1))
        own[:, 0] += variance / 16
        at_tasks = 3 + _SHARES - SHARE
        centring = np.eye(ABILITIES) - _MEAN  # subtracts the mean of the abilities
        own[:, at_tasks] += np.einsum("ij,tjk,ik->ti", centring, covariances, centring) / 16
        self.posterior = Posterior(tuple(self._at), _COMMON_VARIANCES, own)
        self.templates = Templates(tuple(self._at), len(LEARNED))
        self.by_tenant = Pooled(MOST_SAID, 4 + len(LEARNED))
        self._usual_now = np.zeros(0), np.zeros(0)

    def failing(self, at: Index, deeper: Vector | float = 0.0) -> Vector:
        """Returns [3 n, TRAITS] of the targets with indexes `at` [n], each thinking `deeper` than by itself."""
        failing = self._failing[:, at]
        failing -= np.multiply.outer(deeper * self._flatter[at], self._deeper)
        return failing.reshape(-1, TRAITS)

    def expect(self, seen: Classification, at: Index, failing: Vector | None = None) -> ExpectedRates:
        """Returns the rates of the targets with indexes `at` [n]. `failing`: of these targets, if it is known."""
        known = sum(self.posterior.count[at].tolist()), self.alike(seen)
        if seen.reading is None:
            p, sd = self.usual(at), np.full(len(at), 0.3)
            return ExpectedRates(p, np.tile(p, (3, 1)), sd, *known, lambda: sd)
        traits = seen.reading.traits.astype(np.float64)
        rates = self._corrected(self.failing(at) if failing is None else failing, traits, at)
        nodes, own_sd = self.templates.apply(seen.template, *rates, self.posterior.weights, at)
        p = NODE_WEIGHTS.dot(nodes)
        return ExpectedRates(p, nodes, own_sd, *known, partial(_deviation, p, nodes, own_sd))

    def expect_each(self, traits: Vector) -> Vector:
        """Returns [2, n, T]: means and standard deviations, as `expect` has them, of requests [n, TRAITS]."""
        every = np.arange(len(self._at))
        failing = self.failing(every)
        known = [self._corrected(failing, row, every) for row in traits]
        rows = [(p := NODE_WEIGHTS.dot(nodes), _deviation(p, nodes, own_sd)) for _, nodes, own_sd in known]
        return np.array(rows).reshape(-1, 2, len(every)).swapaxes(0, 1)

    def _corrected(self, failing: Vector, traits: Vector, at: Index) -> tuple[Vector, Vector, Vector]:
        """Returns pass rates [n] by traits alone; [3, n] with what was learned of all requests; and standard deviations
        [n] of each target's own part, and of how far what was learned of other targets carries over."""
        prior = _prior(failing, traits)
        usual = NODE_WEIGHTS.dot(prior)
        spread = 4.0 * (usual - usual * usual)
        floor, slope = np.maximum(spread, LEAST_DOUBT), np.maximum(spread, LEAST_SLOPE)
        mean, own_sd, carried_sd = self.posterior.about(traits.take(LEARNED), at)
        rate = usual + slope * mean
        prior = rate + (prior - usual) * np.minimum(np.maximum(4.0 * (rate - rate * rate) / floor, 0.0), 1.0)
        return usual, clipped(prior), np.hypot(own_sd * floor, slope * carried_sd)

    def usual(self, at: Index) -> Vector:
        """Returns the mean pass rates [n] over all requests."""
        weights = self.posterior.weights
        if weights is not self._usual_now[0]:
            self._usual_now = weights, clipped(self._usual + uncertainty(self._usual, LEAST_SLOPE) * weights[:, 0])
        return self._usual_now[1][at]

    def observe(self, outcome: Outcome) -> bool:
        """Learns from one score. False if its target or its version of traits is unknown, or its weight is 0."""
        at = self._at.get(outcome.target)
        traits = np.frombuffer(outcome.traits, np.int8) / STEPS
        if at is None or len(traits) != TRAITS or not 0 <= outcome.score <= 1 or not outcome.weight:
            return False
        expected = float(NODE_WEIGHTS.dot(_prior(self._failing[:, at], traits))[0])
        spread, residual = noise(expected), outcome.score - expected
        phi = traits[LEARNED] * max(4 * expected * (1 - expected), LEAST_SLOPE)
        template, target, at_ms = outcome.template, outcome.target, outcome.given_ms
        row = np.array([1.0, residual, expected, *phi])
        of_one = tenant_of(template) or instructed(template) if outcome.source.startswith(CLIENT) else ""
        most = MOST_SAID if of_one else inf
        self._count(outcome, most)
        # Where nearly all pass or fail, a few unexpected outcomes say little.
        easy = 4 * expected * (1 - expected) < LEAST_SLOPE
        said_by = of_one or f"{outcome.task} {template}" * easy
        turn = self.by_tenant.turn(said_by, target, outcome.weight * np.append(row, spread), at_ms, most)
        count = outcome.weight
        for sign, sums in ((-1.0, turn.before), (1.0, turn.after)):
            if abs(sums[0]) >= LEAST_WEIGHT:
                within = credible(sums) if of_one else sums
                above, usual, *means, spread_of_all = (within[1:] / sums[0]).tolist()
                above = float(believed(above, abs(sums[0]), usual)) if said_by and not of_one else above
                noise_of_all = sign * spread_of_all / sums[0]
                self.posterior.update(at, np.array(means), above, noise_of_all, turn.at_ms, count)
                count = 0.0
        if template:
            precise = np.insert(row, 3, (expected * expected, expected * residual)) * (outcome.weight / spread)
            self.templates.observe(template, at, precise, at_ms, outcome.weight)
        return True

    def _count(self, outcome: Outcome, most: float) -> None:
        """Counts an outcome for its template, and for its task at most `most` of a template. Negative if taken back."""
        target, own, task = outcome.target, self._alike.used(outcome.template), self._alike.used(outcome.task)
        before = own.get(target, 0.0)
        own[target] = before + outcome.weight
        task[target] = task.get(target, 0.0) + min(own[target], most) - min(before, most)

    def alike(self, seen: Classification) -> Mapping[str, float]:
        """Returns target → number of outcomes of the request's template, else of its task, that were learned from."""
        own = self._alike.get(seen.template, {}) if seen.template else {}
        return own if round(sum(own.values())) else self._alike.get(seen.task, {})

    def widen(self, target: str) -> None:
        """Reduces the weight of what was observed of a target, as it has changed."""
        if (at := self._at.get(target)) is not None:
            self.by_tenant.forget(target)
            self.posterior.widen(at, WIDER)
            self.templates.widen(at, WIDER)


def _prior(failing: Vector, traits: Vector) -> Vector:
    """Returns pass rates [3, n] by traits alone, as before any outcome, so that outcomes can be added later."""
    return np.asarray(1 / (np.exp(failing.dot(traits)) + 1.0)).reshape(len(NODES), -1)


# Whether a target has changed: how often it passes, or the name of what answers.
#
# Residuals are compared with their own running mean and deviation, so that neither a wrong estimate nor one that learns
# slowly raises an alarm. Small changes (under `SLACK`) are left to the posterior.

SLACK = 0.25
"""Standard deviations of one score by which a target may move; a change of twice that is found fastest."""
THRESHOLD = 20.0
"""Sum of what exceeds the slack, in standard deviations, that is an alarm. Simulated with constant pass rates of 2 to
98 %: at most 0.5 false alarms in 10,000 observations of a target; a fall from 90 to 60 % is found after 24."""
MEMORY = 400
"""Number of observations over which the running mean and variance are taken."""
LEAST_VARIANCE = 0.25
"""Minimum variance of residuals, in units of a score's noise: else rare first failures would raise an alarm."""
LEAST_CHANGE = 0.1
"""Minimum change of the share of right answers, before and since, that is an alarm."""
SETTLED = 100
"""Number of observations of a target before any alarm about its pass rate."""
FIRST = 32
"""Number of observations of a target in a template that are ignored, as what is expected there still follows them."""
SAME_NAME = 50
"""Number of answers without a new name after which a new one is an alarm: a target may have several machines."""
MOST_NAMES = 64
"""Maximum number of names remembered of each target; the one unseen for longest is forgotten."""


class _Scores:
    """Surprises of one target: mean and variance, how far they lately went below and above, and the number and sum of
    scores when each of these was last 0."""

    __slots__ = ("mean", "seen", "sides", "since", "total", "variance")

    def __init__(self) -> None:
        self.seen, self.total, self.mean, self.variance = 0, 0.0, 0.0, 1.0
        self.sides, self.since = (0.0, 0.0), [(0, 0.0)] * 2

    def add(self, surprise: float, score: float) -> tuple[int, float] | None:
        """Returns the number and sum of scores before a change, if one side has gone too far."""
        away, settled = surprise - self.mean, self.seen >= SETTLED
        self.sides = cusum(self.sides, away / self.variance**0.5, SLACK) if settled else (0.0, 0.0)
        pairs = list(zip(self.sides, self.since, strict=True))
        self.since = [since if side else (self.seen, self.total) for side, since in pairs]
        self.seen += 1
        self.total += score
        self.mean += away / min(self.seen, MEMORY)
        self.variance = max(
            LEAST_VARIANCE, self.variance + (away**2 - self.variance) / min(self.seen + SETTLED, MEMORY)
        )
        return next((since for side, since in pairs if side > THRESHOLD), None)


class Drift:
    """Watches the targets of the policy in force, by name. For use by one thread."""

    def __init__(self, targets: Iterable[str] = ()) -> None:
        self.targets = frozenset(targets)
        self._scores = defaultdict[str, _Scores](_Scores)
        self._templates = Recent[tuple[str, str], tuple[int, float]](MOST_TEMPLATES, lambda: (0, 0.0))
        """(target, template) → number of observations, and mean surprise in standard deviations."""
        self._names = defaultdict[tuple[str, str], Recent[str, int]](lambda: Recent[str, int](MOST_NAMES, int))
        self._same = Counter[tuple[str, str]]()

    def scored(self, outcome: Outcome) -> Alarm | None:
        """Returns an alarm by the pass rate that was expected before. Raises ValueError for numbers outside 0 to 1."""
        target, expected, score = outcome.target, outcome.expected, outcome.score
        if expected is None or target not in self.targets:
            return None
        if not (0 <= expected <= 1 and 0 <= score <= 1):
            raise ValueError("an expected or seen score is not within 0 to 1")
        surprise = (score - expected) / noise(expected) ** 0.5
        # Templates come and go: what one of them deviates by is not a change of the target.
        count, mean = self._templates.used((target, outcome.template))
        self._templates[target, outcome.template] = count + 1, mean + (surprise - mean) / min(count + 1, MEMORY)
        if count < FIRST:
            return None
        surprise -= mean
        scores = self._scores[target]
        since = scores.add(max(-MOST_SURPRISE, min(MOST_SURPRISE, surprise)), score)
        if since is None:
            return None
        del self._scores[target]
        count, total = since
        before, after = total / max(1, count), (scores.total - total) / (scores.seen - count)
        if abs(after - before) < LEAST_CHANGE:  # the expectation was wrong: the target has not changed
            return None
        for key in [key for key in self._templates if key[0] == target]:
            del self._templates[key]
        return Alarm(target, "pass_rate", before, after, outcome.given_ms)

    def served(self, target: str, kind: str, name: str, at_ms: int, answers: int = 1) -> Alarm | None:
        """Returns an alarm if `name` is new: the fingerprint, or the model as stated, of what gave `answers` answers.
        Empty: unknown."""
        if not name or target not in self.targets:
            return None
        key = target, kind
        known, same = self._names[key], self._same[key]
        last, new = next(reversed(known), ""), name not in known
        known.used(name)
        self._same[key] = answers - 1 if new else same + answers
        return Alarm(target, kind, last, name, at_ms) if new and same >= SAME_NAME else None
