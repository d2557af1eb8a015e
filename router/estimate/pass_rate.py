"""Pass rates: the prior of a model card, the posterior over it, and alarms when a target drifts."""

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
    credible,
    cusum,
    doubt,
    kept,
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

# Card → ability: what a target that was never seen can do, from the facts that are known of it.

KNOWN = (Task.MATHS, Task.CODE, Task.FACTUAL, Task.REASONING)
"""Tasks of which there are public outcomes: abilities are known for each of them."""
BENCHMARKS = tuple(Benchmark)
FACTS = (*BENCHMARKS, "active", "total", "price", "context")
ABILITIES = len(KNOWN)
FOLDER = Path(__file__).parent / "data"
ARRAYS, MANIFEST = "cards.npz", "cards.json"
FORMAT = 1
_LEAST_SCORE = 0.02


class CardAbility(NamedTuple):
    """[4] and [4, 4], by `KNOWN`, in logits against the usual target, which has 0: what is expected, and how surely."""

    mean: Vector
    covariance: Vector


class Cards(NamedTuple):
    """A joint normal distribution of abilities and facts [4 + F], over models that don't think."""

    mean: Vector
    covariance: Vector
    helped: Vector
    """[4 + F + 1]: logits that each step of `depth` adds to abilities, scores, and in all other tasks."""
    version: str = ""


class Card(NamedTuple):
    """None: not known."""

    scores: Mapping[Benchmark, float]
    active_b: float | None = None
    parameters_b: float | None = None
    rate: int | None = None
    """List price of a million output tokens, in nano-USD."""
    context: int | None = None
    scored: float = 0.0
    """`depth` of thinking that its scores are with: what can do without has those without."""


def card(target: Target) -> Card:
    model, price = target.model, target.model.price
    rate = price.output if price is not None and price != WORST_CASE and not target.provider.local else None
    scored = 0.0 if (known := model.scored or model.thinking).can_stop else depth(known.typical())
    return Card(model.scores, model.active_b, model.parameters_b, rate, model.context, scored)


def depth(tokens: int) -> float:
    """Of so much thinking: what it adds to logits is about proportional to that."""
    return log2(1 + tokens / 1_000)


def deeper(target: Target, effort: str) -> float:
    """By how much more than by itself a target thinks at this effort, in steps of `depth`."""
    if not effort or target.pass_rate is not None:
        return 0.0
    more, own = map(target.model.thinking.typical, (effort, target.effort or ""))
    return depth(more) - depth(own)


def facts(card: Card, helped: Vector) -> Vector:
    """[F], NaN where nothing is known; scores are those without thinking."""
    row = [logit(card.scores.get(name)) for name in BENCHMARKS]
    price, active = card.rate and card.rate / NANO_PER_USD, card.active_b or card.parameters_b
    row += [log(size) if size else np.nan for size in (active, card.parameters_b, price, card.context)]
    return np.array(row, dtype=np.float64) - card.scored * helped[ABILITIES:-1]


def condition(mean: Vector, covariance: Vector, known: Vector) -> CardAbility:
    """The first `ABILITIES` of a joint Gaussian, given those of the others that are not NaN."""
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
    """What is expected of a model with such a card, without thinking."""
    return condition(cards.mean, cards.covariance, facts(known, cards.helped))


@cache
def load() -> Cards:
    """What ships with lowpass. Raises `DataError`."""
    path = FOLDER / ARRAYS
    try:
        data = path.read_bytes()
        with np.load(BytesIO(data), allow_pickle=False) as arrays:
            return Cards(arrays["mean"], arrays["covariance"], arrays["helped"], sha256(data).hexdigest()[:16])
    except (OSError, ValueError, KeyError, EOFError, BadZipFile, zlib.error) as problem:
        raise DataError(f"{path} can't be read ({type(problem).__name__}): install lowpass again") from problem


# How likely each target is right: a prior by request and card, and on top of it what own outcomes say.

Index = NDArray[np.intp]
WIDER = 4.0
"""A target that drifts has what was observed of it count a quarter."""
USUAL_DIFFICULTIES = np.array([-8.0, -5.0, -2.0, -0.6, 0.7, 2.2])
"""Of everyday traffic, equally often: the tiers of the anchors that difficulty was fitted on (tools/anchors)."""
LEARNED = np.array([0, DIFFICULTY, UNFAMILIARITY, *range(SHARE, TRAITS)])
"""Traits that residuals are learned by."""
_COMMON_VARIANCES = np.array([0.0049, 0.0225, 0.0225, *[0.0225] * len(TASKS)])
_OWN_VARIANCES = np.array([0.0001, 0.0016, 0.0225, *[0.0004] * len(TASKS)])
"""Of what own outcomes will have to correct, in all targets and in each: by the likelihood of public sets left out."""
_MEAN = np.full(ABILITIES, 1 / ABILITIES)
_SHARES = SHARE + np.array([TASKS.index(task) for task in KNOWN])
MOST_SAID = 4.0
"""Outcomes: more of one tenant's would let it alone turn everybody's choices."""


class ExpectedRates(NamedTuple):
    """Pass rates of n targets for one request."""

    p: Vector
    """[n]: mean."""
    nodes: Vector
    """[3, n]: mean, were the request easier than it looks, as it looks, or harder: weights are `NODE_WEIGHTS`."""
    own_sd: Vector
    """[n]: standard deviation of what is not common to all targets."""
    outcomes: float
    """So many of all of them were learned from; what is older counts less."""
    alike: Mapping[str, float]
    """By target: outcomes of the request's template, else of its task, that were learned from."""
    sd: Callable[[], Vector]
    """[n]: standard deviation, worked out for whoever asks."""

    def times(self, whole: Vector) -> "ExpectedRates":
        """Of answers that may not be whole, with these chances [n] that they are."""
        p, nodes, own_sd = whole * self.p, whole * self.nodes, whole * self.own_sd
        return self._replace(p=p, nodes=nodes, own_sd=own_sd, sd=lambda: whole * self.sd())


def _deviation(p: Vector, nodes: Vector, own_sd: Vector) -> Vector:
    spread = np.maximum(NODE_WEIGHTS.dot(nodes * nodes) - p * p, 0.0)
    return np.asarray(np.sqrt(np.minimum(own_sd * own_sd + spread, p - p * p)))


VERSION = 4
"""Of the bytes; evidence of another version is not understood."""


class _State(Struct, frozen=True, array_like=True):
    """What was observed; `basis`: of the cards that it corrects; `said`: of each group, and target, of `by_tenant`."""

    version: int
    basis: str
    of_all: State
    templates: list[tuple[State, Watched]]
    said: list[State]
    alike: dict[str, dict[str, float]]


_state_decoder = msgspec.msgpack.Decoder(_State)


class PassRateModel:
    """Of the policy in force: its targets, in their order. One for a process.

    logit p = ability of the target in the request's tasks − difficulty; both are normal, and p is the mean over them.
    """

    posterior: Posterior
    templates: Templates
    by_tenant: Pooled
    _alike: Recent[str, dict[str, float]]
    """By template or task, and target: outcomes that were learned from."""

    def __init__(self, targets: Sequence[Target] = ()) -> None:
        self._build(targets)

    def adopt(self, targets: Sequence[Target]) -> None:
        """Another policy is in force: what was observed goes on with the targets' names."""
        state, self._targets = self.state(), targets
        self.restore(state)

    def state(self) -> bytes:
        groups = [pack(group, known, (str(target),)) for (group, target), known in self.by_tenant.groups.items()]
        of_all, templates = pack("", self.posterior.seen, self.posterior.targets), self.templates.state()
        return msgspec.msgpack.encode(_State(VERSION, load().version, of_all, templates, groups, self._alike))

    def restore(self, state: bytes) -> bool:
        """In the place of what was observed. False, and nothing is known: it is of another version, or damaged."""
        self._build(self._targets)
        try:
            known = _state_decoder.decode(state)
            if (known.version, known.basis) != (VERSION, load().version):
                return False
            self.posterior.restore(known.of_all)
            self.templates.restore(known.templates)
            for row in known.said:
                for name in set(row[2]) & self._at.keys():  # none where all was taken back
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
        # The mean of a logistic over a normal ability is about one of a flatter slope.
        flatter = 1 / np.sqrt(1 + np.pi / 8 * variance)
        self._usual = (1 / (1 + np.exp((USUAL_DIFFICULTIES[:, None] - overall) * flatter))).mean(axis=0)
        # [3, T, TRAITS]: how much likelier failing is than passing, for each trait of a request that is easier than it
        # looks, as it looks, or harder; in logits.
        self._flatter, self._failing = flatter, np.zeros((len(NODES), len(targets), TRAITS))
        self._failing[:, :, 0], self._failing[:, :, _SHARES] = -overall, -apart
        self._failing[:, :, DIFFICULTY] = SCALES[DIFFICULTY]
        self._failing[:, :, DIFFICULTY_SD] = NODES[:, None] * SCALES[DIFFICULTY_SD]
        self._failing *= flatter[:, None]
        # Weights are pass rates where half pass: a quarter of a logit each.
        own = np.tile(_OWN_VARIANCES, (len(targets), 1))
        own[:, 0] += variance / 16
        at_tasks = 3 + _SHARES - SHARE
        centring = np.eye(ABILITIES) - _MEAN  # of what each ability is above their mean
        own[:, at_tasks] += np.einsum("ij,tjk,ik->ti", centring, covariances, centring) / 16
        self.posterior = Posterior(tuple(self._at), _COMMON_VARIANCES, own)
        self.templates = Templates(tuple(self._at), len(LEARNED))
        self.by_tenant = Pooled(MOST_SAID, 4 + len(LEARNED))
        self._usual_now = np.zeros(0), np.zeros(0)

    def failing(self, at: Index, deeper: Vector | float = 0.0) -> Vector:
        """[3 n, TRAITS] of the targets with these indexes [n], each thinking by so much `deeper` than by itself."""
        failing = self._failing[:, at]
        failing -= np.multiply.outer(deeper * self._flatter[at], self._deeper)
        return failing.reshape(-1, TRAITS)

    def expect(self, seen: Classification, at: Index, failing: Vector | None = None) -> ExpectedRates:
        """Of the targets with these indexes [n]; `failing`: of them, where it is known."""
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
        """[2, n, T]: means and standard deviations, as `expect`, of many requests [n, TRAITS] for all T targets."""
        every = np.arange(len(self._at))
        failing = self.failing(every)
        known = [self._corrected(failing, row, every) for row in traits]
        rows = [(p := NODE_WEIGHTS.dot(nodes), _deviation(p, nodes, own_sd)) for _, nodes, own_sd in known]
        return np.array(rows).reshape(-1, 2, len(every)).swapaxes(0, 1)

    def _corrected(self, failing: Vector, traits: Vector, at: Index) -> tuple[Vector, Vector, Vector]:
        """Pass rates [n] by traits alone; [3, n] by what was learned of all requests; and the deviation [n] of each
        target's own part, and of how far what was learned of other targets carries over."""
        prior = _prior(failing, traits)
        usual = NODE_WEIGHTS.dot(prior)
        spread = 4.0 * (usual - usual * usual)
        floor, slope = np.maximum(spread, LEAST_DOUBT), np.maximum(spread, LEAST_SLOPE)
        mean, own_sd, carried_sd = self.posterior.about(traits.take(LEARNED), at)
        rate = usual + slope * mean
        prior = rate + (prior - usual) * np.minimum(np.maximum(4.0 * (rate - rate * rate) / floor, 0.0), 1.0)
        return usual, kept(prior), np.hypot(own_sd * floor, slope * carried_sd)

    def usual(self, at: Index) -> Vector:
        """Mean over all requests."""
        weights = self.posterior.weights
        if weights is not self._usual_now[0]:
            self._usual_now = weights, kept(self._usual + doubt(self._usual, LEAST_SLOPE) * weights[:, 0])
        return self._usual_now[1][at]

    def observe(self, outcome: Outcome) -> bool:
        """Learn from one score. False: it is of no target here, of traits that are not ours, or counts for nothing."""
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
        # Of those that nearly all pass, or fail, a few odd ones are no news.
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
        """Of its template, and `most` of these of its task. What is taken back weighs less than 0."""
        target, own, task = outcome.target, self._alike.used(outcome.template), self._alike.used(outcome.task)
        before = own.get(target, 0.0)
        own[target] = before + outcome.weight
        task[target] = task.get(target, 0.0) + min(own[target], most) - min(before, most)

    def alike(self, seen: Classification) -> Mapping[str, float]:
        """By target: outcomes that were learned from of the request's template, else of its task."""
        own = self._alike.get(seen.template, {}) if seen.template else {}
        return own if round(sum(own.values())) else self._alike.get(seen.task, {})

    def widen(self, target: str) -> None:
        """It is not what it was: what was observed of it counts less."""
        if (at := self._at.get(target)) is not None:
            self.by_tenant.forget(target)
            self.posterior.widen(at, WIDER)
            self.templates.widen(at, WIDER)


def _prior(failing: Vector, traits: Vector) -> Vector:
    """[3, n] before anything was observed, by traits alone, so that an outcome can be learned from later."""
    return np.asarray(1 / (np.exp(failing.dot(traits)) + 1.0)).reshape(len(NODES), -1)


# Whether a target is still what it was: a change in how often it passes, or in the name of what answers.
#
# By residuals in units of their own running mean and deviation, so that an estimate that is off is no alarm, nor is one
# that slowly learns. Small changes (under `SLACK`) are left to the posterior.

SLACK = 0.25
"""Standard deviations of one score by which a target may move; a change of twice that is found fastest."""
THRESHOLD = 20.0
"""Sum of what exceeds the slack, in standard deviations. Simulated with pass rates of 2 to 98 % that do not change: at
most 0.5 false alarms in 10,000 observations of a target; a fall from 90 to 60 % is found after 24."""
MEMORY = 400
"""Observations over which the running mean and variance are taken."""
LEAST_VARIANCE = 0.25
"""Of residuals over what a score's noise is: a target that never fails would raise an alarm at its first failures."""
LEAST_CHANGE = 0.1
"""Of the share of right answers, before and since, that is an alarm."""
SETTLED = 100
"""Observations of a target before any alarm about its pass rate."""
FIRST = 32
"""Observations of a target in a template that are no news of the target: what is expected there still follows them."""
SAME_NAME = 50
"""Answers without a new name before a new one means anything: a target may have several machines."""
MOST_NAMES = 64
"""Remembered of each target; the one unseen for longest is forgotten."""


class _Scores:
    """Of one target: mean and variance of surprises, how far they went of late, and what had been seen, and scored in
    all, when that last was 0."""

    __slots__ = ("mean", "seen", "sides", "since", "total", "variance")

    def __init__(self) -> None:
        self.seen, self.total, self.mean, self.variance = 0, 0.0, 0.0, 1.0
        self.sides, self.since = (0.0, 0.0), [(0, 0.0)] * 2

    def add(self, surprise: float, score: float) -> tuple[int, float] | None:
        """Since when a side has gone too far."""
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
    """Watches targets by name: those of the policy in force. One thread."""

    def __init__(self, targets: Iterable[str] = ()) -> None:
        self.targets = frozenset(targets)
        self._scores = defaultdict[str, _Scores](_Scores)
        self._templates = Recent[tuple[str, str], tuple[int, float]](MOST_TEMPLATES, lambda: (0, 0.0))
        """By target and template: observations, and their mean in standard deviations."""
        self._names = defaultdict[tuple[str, str], Recent[str, int]](lambda: Recent[str, int](MOST_NAMES, int))
        self._same = Counter[tuple[str, str]]()

    def scored(self, outcome: Outcome) -> Alarm | None:
        """By the pass rate that was expected before. ValueError: a number that is not within 0 … 1."""
        target, expected, score = outcome.target, outcome.expected, outcome.score
        if expected is None or target not in self.targets:
            return None
        if not (0 <= expected <= 1 and 0 <= score <= 1):
            raise ValueError("an expected or seen score is not within 0 to 1")
        surprise = (score - expected) / noise(expected) ** 0.5
        # Templates come and go: what one of them is off by is no change of the target.
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
        if abs(after - before) < LEAST_CHANGE:  # what was expected was off, not what it does
            return None
        for key in [key for key in self._templates if key[0] == target]:
            del self._templates[key]
        return Alarm(target, "pass_rate", before, after, outcome.given_ms)

    def served(self, target: str, kind: str, name: str, at_ms: int, answers: int = 1) -> Alarm | None:
        """`name` of what gave so many answers: its fingerprint, or the model that it says it is. Empty: it does not
        say."""
        if not name or target not in self.targets:
            return None
        key = target, kind
        known, same = self._names[key], self._same[key]
        last, new = next(reversed(known), ""), name not in known
        known.used(name)
        self._same[key] = answers - 1 if new else same + answers
        return Alarm(target, kind, last, name, at_ms) if new and same >= SAME_NAME else None
