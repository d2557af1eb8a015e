"""Lengths of answers relative to what was read of their requests: laws learned of targets and templates."""

from collections.abc import Mapping, Sequence
from functools import partial
from math import exp, inf, log
from typing import Literal, NamedTuple

import numpy as np

from router.estimate.posterior import MOST_TEMPLATES, Fading, Pooled, Recent, counted
from router.types.attempt import AttemptSample
from router.types.decision import Vector
from router.types.request import USUAL_OUTPUT, USUAL_THINKING, application_of, instructed, tenant_of
from router.types.target import Task

TaskKind = Task | Literal["", "unread"]
ALL: TaskKind = ""
UNREAD: TaskKind = "unread"
STATED = "stated"
"""Keys for all tasks, for requests that were not read, and for those that state a length."""
MOST_CELLS = 2_048
"""Maximum number of targets × efforts remembered; the one unused for longest is forgotten."""
MOST_ASKED = 64
"""Maximum number of targets × efforts remembered of a template."""
CREDIBLE, CREDIBLE_LEAST = 3.0, 50
"""For other templates an answer counts as no longer than `CREDIBLE` times the tokens read plus `CREDIBLE_LEAST`, and as
no shorter than about a `CREDIBLE`-th of these."""
ODD = 3
"""Number of answers beyond these limits from which they count in full for their own template."""
MOST_TAUGHT = 6.0
"""Maximum number of answers that those of one tenant (without keys, of one template) count as in what is expected of
all others, at their mean; and those of one template for its application."""
LENGTHS_HALF_LIFE_MS = 3 * 86_400_000
"""Half-life of lengths in ms: a target that changes is followed within days. Caps forget within 128 answers."""
VARIANCE = 0.87**2
"""Variance of the logarithm of an answer's tokens, given what was read: a factor of 1.8 at the median in public
outcomes. The logarithm of the mean is higher by half of it, before any answer was seen."""
EXCESS_WEIGHT, MOST_EXCESS = 3.0, 1.0
"""Weight of that prior in answers; maximum by which the logarithm of the mean is higher: longer answers did not end."""
LEAST_COUNT, LEAST_PRIOR = 0.01, 1.0
"""Minimum number of answers: less are none. Thinking tokens of a hard problem at a target not expected to think."""
WITHIN, LEAST_VARIANCE = 1.2, 1e-3
"""Factor by which `_reach` widens its range; variance below which the range is a point."""
STEEPEST_FADE = 0.61
"""e^(−½): the steepest slope of a bell curve with a standard deviation of 1."""
SMALLEST, SMALLEST_THOUGHT, LEAST_NEED = 10.0, 1.0, 0.001
"""Tokens, thinking tokens and need that are added before logarithms: "hi" and "hello there" differ by little."""
LITTLE_NEED = 0.1
"""Need to think at which an answer counts half for thinking; with less, one without any thinking does not count."""
ROWS: Mapping[str, int] = {ALL: 0, STATED: 1, UNREAD: 2, **{task: at for at, task in enumerate(Task, 3)}}
"""Rows of sums: all answers whose requests were read; those whose requests state a length, counted in no other row;
those of unread requests; and those of each task. Columns: number of answers; visible tokens, and thinking tokens if
known (`Lengths.sums`); by how much visible tokens exceed `CREDIBLE`."""
_APART = (ROWS[STATED], ROWS[UNREAD])
_COLUMNS, _BEYOND = 19, slice(15, 19)
_BOUNDED = slice(4, 7)
"""The columns of `Lengths.sums` that are bounded; of `_BEYOND` all but the first, which counts answers."""
_sums = partial(Fading, (len(ROWS), _COLUMNS), LENGTHS_HALF_LIFE_MS)
Asked = tuple[str, str]
"""A target and the effort that was asked for."""


class LawPart(NamedTuple):
    """How the logarithm of tokens differs from that of what was read: `level` at usual lengths, and `slope` per unit of
    x, the logarithm of what was read (0: usual). From `low` to `high`; beyond, it fades."""

    level: float = 0.0
    slope: float = 0.0
    low: float = 0.0
    high: float = 0.0


NOTHING = LawPart()


class LengthLaw(NamedTuple):
    """How many tokens are expected for what was read: as many, times e to the power of `base` and two parts."""

    base: float = 0.0
    of_target: LawPart = NOTHING
    of_template: LawPart = NOTHING
    excess: float = VARIANCE / 2
    """By how much the logarithm of the mean is above the mean of the logarithms: half of their variance."""

    def quantile(self, deviations: float) -> float:
        """Returns a quantile ÷ the mean of lognormal tokens, `deviations` standard deviations of the logarithm away."""
        return exp(deviations * (2 * self.excess) ** 0.5 - self.excess)


NO_THOUGHT = LengthLaw(-inf)


def law_table(laws: Sequence[LengthLaw]) -> Vector:
    """Returns [9, T], or [1, T] if nothing was learned, for `Lengths.each`. The first row: factors on what was read."""
    table = np.array([(exp(law.base), *law.of_target, *law.of_template) for law in laws]).T
    return table if table[1:].any() else table[:1]


class Lengths(NamedTuple):
    """How laws are fitted to one kind of tokens."""

    columns: slice
    least: float
    smallest: float
    usual: float
    """What was read, where x is 0."""
    plain_sd: tuple[float, float]
    """Prior standard deviations of the level and the slope of a target, for all templates."""
    template_sd: tuple[float, float]
    """Prior standard deviations of the level and the slope of a template, against the target's."""
    steepest: float
    far: tuple[float, float]
    """Distance in x, beyond all answers seen, at which 60 % of a difference is still expected: of a target, which is
    wordy whatever it is asked; and of a template."""
    least_share: float = 0.0
    """Minimum number of tokens expected of an answer, for each that was read."""
    fewest: float = 0.0
    """Minimum number of tokens expected of an answer."""

    def sums(self, read: float, tokens: float) -> Vector:
        """Returns the sums [7] of one answer."""
        x, ratio = log((read + self.least) / self.usual), (tokens + self.smallest) / (read + self.least)
        return np.array((1.0, x, x * x, x**3, log(ratio), log(ratio) * x, ratio))

    def tokens(self, law: LengthLaw, read: float) -> float:
        """Returns the number of tokens expected of a request."""
        return float(self.each(law_table([law]), read)[0])

    def each(self, table: Vector, read: float) -> Vector:
        """Returns [T]: `tokens` for each target of a `law_table`."""
        whole = read + self.least
        x, times = log(whole / self.usual), table[0]
        if len(table) > 1:
            level, slope, low, high = table[1:].reshape(2, 4, -1).swapaxes(0, 1)
            near = np.minimum(np.maximum(x, low), high)
            there = level + slope * near
            much = np.abs(there).sum(axis=0) * STEEPEST_FADE
            # A large difference is more likely specific to these requests. It fades no faster than what was read grows,
            # so that no fewer tokens are expected of a longer request.
            width = np.maximum(np.array(self.far)[:, None] - much, much)
            times = times * np.exp((there * np.exp(((x - near) / width) ** 2 / -2)).sum(axis=0))
        least = max(read * self.least_share, self.fewest)
        return np.asarray(np.maximum(whole * times - self.smallest, least))

    def around(self, part: LawPart, x: float) -> tuple[float, float]:
        """Returns the level and slope of a target's part for answers around x; fading beyond its range as in `each`."""
        near = min(max(x, part.low), part.high)
        if near == x:
            return part.level, part.slope
        there = part.level + part.slope * near
        width = max(self.far[0] - abs(there) * STEEPEST_FADE, abs(there) * STEEPEST_FADE)
        return there * exp(((x - near) / width) ** 2 / -2), 0.0

    def fitted(self, sums: Vector, prior: LengthLaw, *, of_template: bool = False) -> LengthLaw:
        """Returns the law by Bayesian linear regression, whose noise leaves the mean of what was seen as it is."""
        count, of_x, squares, cubes, differs, both, ratios = sums.tolist()
        if count < LEAST_COUNT or ratios <= 0:  # rounding errors of subtracted sums
            return prior
        sds = self.template_sd if of_template else self.plain_sd
        of_target = prior.of_target[:2] if not of_template else self.around(prior.of_target, of_x / count)
        prior_level = prior.base + of_target[0] + prior.of_template.level
        prior_slope = of_target[1] + prior.of_template.slope
        level, slope, excess = prior_level, prior_slope, prior.excess
        for _ in range(2):
            of_level, of_slope = count + 2 * excess / sds[0] ** 2, squares + 2 * excess / sds[1] ** 2
            up = differs + (excess - prior_level) * count - prior_slope * of_x
            slanted = both + (excess - prior_level) * of_x - prior_slope * squares
            steeper = (of_level * slanted - of_x * up) / (of_level * of_slope - of_x * of_x)
            slope = min(max(prior_slope + steeper, -1.0), self.steepest)
            level = prior_level + (up - of_x * (slope - prior_slope)) / of_level
            # The logarithm of the mean ratio, less the mean logarithm and the effect of the slope on different lengths.
            spread = log(ratios / count) - differs / count - slope * slope * (squares - of_x * of_x / count) / count / 2
            excess = prior.excess + (min(max(spread, 0.0), MOST_EXCESS) - prior.excess) * count / (
                count + EXCESS_WEIGHT
            )
        known = prior.of_template if of_template else prior.of_target
        low, high = _reach(of_x / count, squares / count, cubes / count)
        if known != NOTHING:
            low, high = min(low, known.low), max(high, known.high)
        part = LawPart(known.level + level - prior_level, known.slope + slope - prior_slope, low, high)
        if of_template:
            return prior._replace(of_template=part, excess=excess)
        return prior._replace(of_target=part, excess=excess)


def _reach(mean: float, squares: float, cubes: float) -> tuple[float, float]:
    """Returns the range of x, by the means of x, x² and x³: between two points with these means, a fifth wider."""
    variance = squares - mean * mean
    if variance < LEAST_VARIANCE:
        return mean, mean
    skew = (cubes - 3 * mean * squares + 2 * mean**3) / variance**1.5 / 2
    wide = (1 + skew * skew) ** 0.5
    sd = WITHIN * variance**0.5
    return mean - sd * (wide - skew), mean + sd * (wide + skew)


VISIBLE = Lengths(
    slice(1, 8), SMALLEST, SMALLEST, USUAL_OUTPUT + SMALLEST, (0.6, 0.3), (0.6, 0.2), 1.0, (3.25, 1.5), 1 / 16, 1.0
)
THINKING = Lengths(
    slice(8, 15), LEAST_NEED, SMALLEST_THOUGHT, USUAL_THINKING + LEAST_NEED, (0.75, 0.3), (0.75, 0.3), 0.0, (8.0, 4.0)
)
"""For thinking tokens, by the need to think, which is a share of the usual thinking."""


class _Template:
    """Lengths of answers to the requests of a template."""

    def __init__(self) -> None:
        self.sums = Recent[Asked, Fading](MOST_ASKED, _sums)
        self.at_ms = self.count = 0


def _bounded(sums: Vector, share: float = 1.0) -> Vector:
    """Returns sums [n, _COLUMNS] without a `share` of the lengths beyond the credible limits."""
    bounded = sums.copy()
    bounded[:, VISIBLE.columns][:, _BOUNDED] -= sums[:, _BEYOND][:, 1:] * share
    bounded[:, _BEYOND] = 0
    return bounded


def _credible(kind: Lengths, known: _Template, asked: Asked) -> Vector:
    """Returns sums [n, 7] of a target in a template, bounded while few answers there exceed the credible limits."""
    rows = known.sums[asked].left(known.at_ms)
    if kind is not VISIBLE:
        return rows[:, kind.columns]
    odd = sum(float(each.sums[: ROWS[UNREAD] + 1, _BEYOND.start].sum()) for each in known.sums.values())
    return _bounded(rows, 1 - min(max(odd - 1, 0.0) / (ODD - 1), 1.0))[:, kind.columns]


class LengthPool:
    """Lengths of answers relative to what was read: of each target for all templates, and of each template for all
    targets. Kept as sums, so that all processes that read the same answers agree, in whatever order."""

    def __init__(self) -> None:
        self._groups = Pooled(MOST_TAUGHT, (len(ROWS), _COLUMNS), LENGTHS_HALF_LIFE_MS)
        self._plain = Recent[Asked, Fading](MOST_CELLS, _sums)
        self.templates, self._totals = Recent[str, _Template](MOST_TEMPLATES, _Template, str), dict[object, Vector]()

    def add(self, asked: Asked, template: str, answers: Sequence[AttemptSample]) -> None:
        """Adds answers of one target, effort and template, oldest first."""
        self._totals.clear()
        at_ms = max(sample.ended_ms for sample in answers)
        sums = np.zeros((len(ROWS), _COLUMNS))
        for sample in answers:
            output, (read, need, stated), thinking = sample.output or 0, sample.read, sample.thinking
            share = 0.5 ** ((at_ms - sample.ended_ms) / LENGTHS_HALF_LIFE_MS) if sample.ended_ms else 1.0
            rows = [ROWS[UNREAD]] if sample.task is None else [ROWS[ALL], ROWS[sample.task]]
            visible, usual = max(output - (thinking or 0), 0), read + CREDIBLE_LEAST
            of_visible = [ROWS[STATED]] if stated else rows
            lengths = VISIBLE.sums(read, visible)
            sums[:, 0] += share  # the weight, equal in all rows, so that they still add up
            sums[of_visible, VISIBLE.columns] += share * lengths
            if thinking is not None and (thinking or need >= LITTLE_NEED):
                sums[rows, THINKING.columns] += share * need / (need + LITTLE_NEED) * THINKING.sums(need, thinking)
            credible = min(max(visible, usual / CREDIBLE - CREDIBLE_LEAST), usual * CREDIBLE)
            if template and credible != visible:
                beyond = lengths - VISIBLE.sums(read, credible)
                sums[of_visible, _BEYOND] += share * np.array((1.0, *beyond[_BOUNDED]))
        bounded = _bounded(sums)
        turn = self._groups.turn(tenant_of(template) or instructed(template), asked, bounded, at_ms)
        plain = self._plain.used(asked)
        plain.sums += (turn.after - turn.before) * plain.fade(turn.at_ms)[1]
        if not template:
            return
        of_template = self.templates.used(template)
        known = of_template.sums[asked]
        before = _bounded(known.sums)
        left, share = known.fade(at_ms)
        known.sums += sums * share
        of_template.at_ms, of_template.count = max(of_template.at_ms, at_ms), of_template.count + len(answers)
        if application := application_of(template):  # replaces what the template counted for in it
            others = self.templates.used(application)
            after, of_all = before * left + bounded * share, others.sums[asked]
            news = counted(after, MOST_TAUGHT) - counted(before, MOST_TAUGHT) * left
            of_all.sums += news * of_all.fade(known.at_ms)[1]
            others.at_ms, others.count = max(others.at_ms, known.at_ms), others.count + len(answers)

    def law(self, kind: Lengths, asked: Asked, row: int, template: str, prior: float) -> LengthLaw:
        """Returns the law of a target's answers to a template's requests. It includes the template's effect on all
        targets, or else the only one asked would seem dearer, or cheaper. `prior`: tokens for each token read."""
        law, known = self._target_law(kind, asked, row, prior, template), self.templates.get(template)
        effect = law._replace(base=0.0, of_target=NOTHING)
        for name in (application_of(template), template):
            if name in self.templates:
                key = kind.columns.start, name, row  # the same for all targets, until more answers come
                total = self._totals[key] = self._totals[key] if key in self._totals else self._effect(kind, name, row)
                effect = kind.fitted(total, effect, of_template=True)
        law = effect._replace(base=law.base, of_target=law.of_target)
        if known is not None and asked in known.sums:
            law = kind.fitted(_credible(kind, known, asked)[row if row in _APART else ROWS[ALL]], law, of_template=True)
        return law

    def _contribution(self, template: str, asked: Asked) -> Vector | float:
        """Returns what a template's answers contribute to a target's sums, to be subtracted from them."""
        known = self.templates.get(template)
        if known is None or asked not in known.sums:
            return 0.0
        sums = _bounded(known.sums[asked].left(self._plain[asked].at_ms))
        return sums * self._groups.share(tenant_of(template) or instructed(template), asked)

    def _effect(self, kind: Lengths, template: str, row: int) -> Vector:
        """Returns the sums [7] of a template's answers, relative to what was expected of their targets."""
        total, known = np.zeros(7), self.templates[template]
        for asked in known.sums:
            rows, unread = _credible(kind, known, asked), ROWS[UNREAD]
            # An answer counts once, in the row of its task.
            of_tasks = np.flatnonzero(rows[unread + 1 :, 0]) + unread + 1
            for at in [row] if row in _APART else of_tasks.tolist():
                prior = 1.0
                if kind is THINKING:  # tokens ÷ need over all its answers: others' priors are not known
                    whole = self._plain[asked].sums[: ROWS[UNREAD] + 1, THINKING.columns].sum(axis=0)
                    prior = float(whole[-1] / whole[0]) if whole[0] else 1.0
                count, of_x, squares, cubes, differs, both, ratios = rows[at].tolist()
                law = self._target_law(kind, asked, at, prior, template)
                level, slope = kind.around(law.of_target, of_x / count if count else 0.0)
                level += law.base
                up, slanted = differs - level * count - slope * of_x, both - level * of_x - slope * squares
                if count:
                    total += (count, of_x, squares, cubes, up, slanted, ratios * exp(-level - slope * of_x / count))
        return total

    def _target_law(self, kind: Lengths, asked: Asked, row: int, prior: float, template: str) -> LengthLaw:
        """Returns the law by all answers but the template's. The prior of a task is the law of all other tasks."""
        law, known = LengthLaw(log(max(prior, LEAST_PRIOR))), self._plain.get(asked)
        if known is not None:
            others = known.sums - self._contribution(template, asked)
            own, of_all = others[row, kind.columns], others[ROWS[ALL], kind.columns]
            wider = of_all - own if row > ROWS[UNREAD] else of_all
            for sums in (wider, own) if row > ROWS[STATED] else (own,):
                law = kind.fitted(sums, law)
        return law
