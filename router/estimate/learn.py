"""What attempts taught of targets: quantiles of tokens, lengths against what was read, margins, paces, times."""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial
from math import ceil, exp, log, pow
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
from msgspec import Struct

from router.estimate.caches import (
    FADES,
    MEAN_OUTPUT_BYTES,
    METERED,
    MILLE,
    PRIOR_WEIGHT,
    SAME_SHARE,
    Caches,
    QuantileWindow,
    TokenSizes,
    shrink_to_prior,
)
from router.estimate.latency import KEEP, Measured, Pace
from router.estimate.posterior import MOST_TEMPLATES, Fading, Pooled, Recent
from router.types.attempt import TextBytes
from router.types.decision import Vector
from router.types.request import USUAL_OUTPUT, USUAL_THINKING, TokensRead, application_of, instructed, tenant_of
from router.types.target import Task

# What targets did so far: quantiles of their tokens by kind of work, which forget, and margins after an overrun.

EXTEND = 0.15
"""A stream that has used up its hold has it raised to so much more than what it has used."""
MOST_CELLS = 2_048
"""Kinds of work remembered, over all targets (2 to 6 KiB each); the one without news for longest is forgotten."""
OVERRUN = 1.5
"""What an overrun does to its target's margin …"""
MOST_MARGIN = 4.0
"""… at most, and …"""
CALM = 0.97
"""… what is left of the excess after each attempt that kept within its hold: half in 23."""
LONG = 0.9
"""An answer longer than so many others is long, also if it was cut."""
OTHER_TASKS, OTHER_TEMPLATES = 2, 8
"""Observations that those of other tasks, and of other templates of a task, count for at most in a quantile: long
answers are not cut where short ones came."""
HALF = 0.5
"""Of an answer: a target whose typical stream has a larger piece does not stream."""
MOST_RATIO = 16
"""Times what is expected: less than that part of what was read is expected of no answer."""
CREDIBLE, CREDIBLE_LEAST = 3.0, 50
"""Times what was read, and so many tokens: an answer of a template counts as no longer for others, nor as shorter than
that part."""
MOST_TAUGHT = 6.0
"""Answers that those of one tenant, or where no keys are of one template, count for at most in what is expected of all
others', at their mean; and those of one template for its application."""
LENGTHS_HALF_LIFE_MS = 3 * 86_400_000
"""Of lengths against what was read: a target that changes is followed within days. Holds forget within 128 answers."""
VARIANCE = 0.87**2
"""Of the logarithm of an answer's tokens, for what was read: public outcomes differ by a factor of 1.8 at the median
from what their text foretells. The logarithm of the mean is higher by half of it, before any answer was seen …"""
EXCESS_WEIGHT = 3.0
"""… which counts like so many."""
LONG_CUT = 2
"""An answer that was cut says how long answers are if it had so many times what was read: nine in ten have less. It
counts as so many times as long in the next cap."""
LEAST_COUNT, LEAST_PRIOR = 0.01, 1.0
"""Answers: less are none. Thinking tokens of a hard problem at a target that is not expected to think."""
MOST_ASKED = 64
"""Targets × efforts remembered of a template."""
NEWS, EACH = 32, 8
"""Each of the first so many observations of a target, and of a template, is news, then one in eight: what follows from
them is worked out again. The others wait until then, since several are learned from at the price of one."""
STALE = 64
"""Observations of all targets after which all of it is: what one does in a template says something of the others."""
MOST_RECALLED = 1_024
"""Remembered conclusions of a target: they hang on the client's words and templates too."""
MOST_OUTPUT_BYTES = 5.0
"""Of a token of a whole answer, at most, before any was counted: long words, and letters that JSON escapes …"""
DENSER = 1.25
"""… and how much denser than 99 % of those seen an answer may be."""
LEAST_STREAMED = 32
"""Tokens of the shortest answer that shows whether a target streams: fewer, or what takes no longer than the time of
flight, may well come at once …"""
PIECES = 4
"""… but for those that came in so many pieces."""
IN_FLIGHT_MS = 100
"""What a target writes in that time may be on its way: to the provider and back, and through a busy event loop."""

T = TypeVar("T")
ALL = ""
"""Stands for all tasks, efforts or targets."""
UNREAD: Literal["unread"] = "unread"
"""Stands for the task of requests whose text was not read: what they are on the whole."""
Work = Task | Literal["unread"]


class AttemptSample(Struct, frozen=True, kw_only=True):
    """One finished attempt. Tokens per choice; `None` is "not told apart" or "not known"."""

    target: str
    effort: str = ""
    """The level that was asked for: `Fit.effort`, else `Estimate.effort`."""
    task: Task | None = Task.CHAT
    """None: its text was not read, so that it teaches nothing of how answers follow from that."""
    template: str = ""
    """`Estimate.template`."""
    script: str = ""
    """`Estimate.script`."""
    read: TokensRead = TokensRead()
    """0: not known any more, so that it teaches quantiles only."""
    output: int | None = None
    thinking: int | None = None
    input: int | None = None
    expected_input: int = 0
    """`Estimate.input_rough`."""
    text: TextBytes = TextBytes()
    """Of the stream, thoughts included, where all of it was seen; per choice."""
    largest: float = 0
    """Bytes of the largest piece of the stream; per choice."""
    past_cap: int = 0
    """Tokens of an answer that ran on past the cap that was sent."""
    first_ms: int | None = None
    """Of a stream."""
    total_ms: int = 0
    ended_ms: int = 0
    """When (Unix)."""
    cut: bool = False
    """By a cap, the budget, a fault or the client: the answer would have been at least so long."""


_Windows = tuple[QuantileWindow, QuantileWindow]
"""Output tokens and thinking tokens of one kind of work."""
STATED = "stated"
_ROWS: Mapping[str, int] = {ALL: 0, STATED: 1, UNREAD: 2, **{task: at for at, task in enumerate(Task, 3)}}
"""Of sums of lengths: all that were read, those whose requests say how long they are to be, of which no other says
anything, all that were not read, and those of each task. Answers in all rows; of their visible tokens, and of their
thinking tokens where these are known, `_Lengths.sums`."""
_APART = (_ROWS[STATED], _ROWS[UNREAD])
_COLUMNS = 13
_sums = partial(Fading, (len(_ROWS), _COLUMNS), LENGTHS_HALF_LIFE_MS)
Asked = tuple[str, str]
"""A target and the effort that was asked for."""


class Line(NamedTuple):
    """Tokens of a prompt: for each of the rough count, and those that a provider adds to every prompt."""

    each: float = 1.0
    base: float = 0.0

    def tokens(self, rough: float) -> float:
        return max(self.each * rough + self.base, 0.0)


class InputSize(NamedTuple):
    """Of prompts, against their rough count: what is expected; an upper quantile of the ratio, in thousandths, and the
    share that it has in the bound, beside what is known before."""

    line: Line = Line()
    upper: int = 0
    share: float = 0.0


INPUT_SD, INPUT_NOISE, INPUT_SMALLEST = (0.15, 20.0), 0.11, 20.0
"""How far a line may be from the rough count; standard deviation of a prompt's tokens from it, for each of the rough
count and those beside."""


class PowerLaw(NamedTuple):
    """Tokens + smallest = times × (what was read + least) ^ power."""

    times: float = 1.0
    power: float = 1.0

    def visible(self, read: float) -> float:
        return max(self.times * pow(read + SMALLEST, self.power) - SMALLEST, read / MOST_RATIO, 1.0)

    def thinking(self, need: float) -> float:
        return max(self.times * pow(need + LEAST_NEED, self.power) - SMALLEST_THOUGHT, 0.0)


class _Residual(NamedTuple):
    """How the logarithm of tokens differs from that of what was read: at usual lengths, of their mean; its change with
    the logarithm of what was read; and by how much the logarithm of the mean is above the mean of the logarithms."""

    level: float = 0.0
    slope: float = 0.0
    excess: float = VARIANCE / 2


class _Lengths(NamedTuple):
    """How a power law is fitted to a kind of tokens."""

    columns: slice
    least: float
    smallest: float
    usual: float
    """Read, where the level is that of."""
    plain_sd: tuple[float, float]
    """How far the level and the slope of a target for all templates may be from the prior …"""
    template_sd: tuple[float, float]
    """… and of a template, from those."""
    steepest: float
    """The slope, at most."""

    def sums(self, read: float, tokens: float) -> Vector:
        """Of one answer."""
        more, ratio = log((read + self.least) / self.usual), (tokens + self.smallest) / (read + self.least)
        return np.array((1.0, more, more * more, log(ratio), log(ratio) * more, ratio))

    def law(self, residual: _Residual) -> PowerLaw:
        power = max(1.0 + residual.slope, 0.0)
        return PowerLaw(exp(residual.level) * pow(self.usual, 1.0 - power), power)

    def fitted(self, sums: Vector, prior: _Residual, sds: tuple[float, float]) -> _Residual:
        """Bayesian linear regression, whose noise leaves the mean of what was seen as it is."""
        count, more, squares, differs, both, ratios = sums.tolist()
        if count < LEAST_COUNT:
            return prior
        level, slope, excess = prior
        for _ in range(2):
            of_level, of_slope = count + 2 * excess / sds[0] ** 2, squares + 2 * excess / sds[1] ** 2
            up = differs + (excess - prior.level) * count - prior.slope * more
            slanted = both + (excess - prior.level) * more - prior.slope * squares
            steeper = (of_level * slanted - more * up) / (of_level * of_slope - more * more)
            slope = min(prior.slope + steeper, self.steepest)
            level = prior.level + (up - more * (slope - prior.slope)) / of_level
            # The logarithm of the mean ratio, less the mean logarithm and what the slope makes of different lengths.
            spread = log(ratios / count) - differs / count - slope * slope * (squares - more * more / count) / count / 2
            excess = prior.excess + (max(spread, 0.0) - prior.excess) * count / (count + EXCESS_WEIGHT)
        return _Residual(level, slope, excess)


SMALLEST, SMALLEST_THOUGHT, LEAST_NEED = 10.0, 1.0, 0.001
"""Tokens, and need to think, that count beside those that were read: "hi" and "hello there" differ by little."""
VISIBLE = _Lengths(slice(1, 7), SMALLEST, SMALLEST, USUAL_OUTPUT + SMALLEST, (0.6, 0.3), (0.6, 0.2), 1.0)
THINKING = _Lengths(
    slice(7, 13), LEAST_NEED, SMALLEST_THOUGHT, USUAL_THINKING + LEAST_NEED, (0.75, 0.3), (0.75, 0.3), 0.0
)
"""Against the need to think, a share of all of the usual thinking."""


class _Template:
    """How long answers to the requests of a template are."""

    def __init__(self) -> None:
        self.sums = Recent[Asked, Fading](MOST_ASKED, _sums)
        self.at_ms = self.count = 0


class _LengthPool:
    """How long answers are against what was read of their requests: of each target for all templates, and of each
    template for all targets. Sums, so that all who read the same answers come to the same in whatever order."""

    def __init__(self) -> None:
        pooled = partial(Pooled, MOST_TAUGHT, (len(_ROWS), _COLUMNS), LENGTHS_HALF_LIFE_MS)
        self._plain, self._groups, self._applications = Recent[Asked, Fading](MOST_CELLS, _sums), pooled(), pooled()
        self.templates = Recent[str, _Template](MOST_TEMPLATES, _Template, str)

    def add(self, asked: Asked, template: str, answers: Sequence[AttemptSample]) -> None:
        """Of one target, effort and template, oldest first."""
        at_ms = max(seen.ended_ms for seen in answers)
        sums, beyond = np.zeros((2, len(_ROWS), _COLUMNS))
        for seen in answers:
            output, (read, need, stated), thinking = seen.output or 0, seen.read, seen.thinking
            share = 0.5 ** ((at_ms - seen.ended_ms) / LENGTHS_HALF_LIFE_MS) if seen.ended_ms else 1.0
            rows = [_ROWS[UNREAD]] if seen.task is None else [_ROWS[ALL], _ROWS[seen.task]]
            visible, usual, of_visible = max(output - (thinking or 0), 0), read + CREDIBLE_LEAST, rows
            if stated:
                of_visible = [_ROWS[STATED]]
            lengths = VISIBLE.sums(read, visible)
            sums[:, 0] += share  # the weight, for all rows alike, so that they go on to add up
            sums[of_visible, VISIBLE.columns] += share * lengths
            if thinking is not None:
                sums[rows, THINKING.columns] += share * THINKING.sums(need, thinking)
            credible = min(max(visible, usual / CREDIBLE - CREDIBLE_LEAST), usual * CREDIBLE)
            if template and credible != visible:
                beyond[of_visible, VISIBLE.columns] += share * (lengths - VISIBLE.sums(read, credible))
        bounded = sums - beyond
        turn = self._groups.turn(tenant_of(template) or instructed(template), asked, bounded, at_ms)
        plain = self._plain[asked]
        self._plain.move_to_end(asked)
        plain.sums += (turn.after - turn.before) * plain.fade(turn.at_ms)[1]
        more = [(template, sums, at_ms)] if template else []
        if application := application_of(template):
            turn = self._applications.turn(template, asked, bounded, at_ms)
            more.append((application, turn.after - turn.before, turn.at_ms))
        for name, new, when_ms in more:
            known = self.templates[name]
            self.templates.move_to_end(name)
            of_target = known.sums[asked]
            of_target.sums += new * of_target.fade(when_ms)[1]
            known.at_ms, known.count = max(known.at_ms, when_ms), known.count + len(answers)

    def law(self, kind: _Lengths, asked: Asked, row: int, template: str, prior: float) -> PowerLaw:
        """Of a target's answers to requests of a template, which lean on what the template makes of all targets'
        answers: else the one that was asked would alone seem dearer, or cheaper, by it. `prior`: tokens for each that
        is read."""
        plain, known = self._plainly(kind, asked, row, prior), self.templates.get(template)
        beside = _Residual(excess=plain.excess)
        for level in (self.templates.get(application_of(template)), known):
            if level is not None:
                beside = kind.fitted(self._beside(kind, level, row), beside, kind.template_sd)
        own = known.sums.get(asked) if known is not None else None
        whole = _Residual(plain.level + beside.level, plain.slope + beside.slope, beside.excess)
        if own is not None:
            whole = kind.fitted(own.sums[row if row in _APART else _ROWS[ALL], kind.columns], whole, kind.template_sd)
        return kind.law(whole)

    def _beside(self, kind: _Lengths, known: _Template, row: int) -> Vector:
        """[6]: sums of a template's answers, against what was to be expected of their targets for as much."""
        total = np.zeros(6)
        for asked, sums in known.sums.items():
            rows, unread = sums.left(known.at_ms)[:, kind.columns], _ROWS[UNREAD]
            # An answer counts once, in the row of its task.
            of_tasks = np.flatnonzero(rows[unread + 1 :, 0]) + unread + 1
            for at in [row] if row in _APART else of_tasks.tolist():
                prior = 1.0 if kind is VISIBLE else self._usual(asked)
                count, more, squares, differs, both, ratios = rows[at].tolist()
                level, slope, _ = self._plainly(kind, asked, at, prior)
                up, slanted = differs - level * count - slope * more, both - level * more - slope * squares
                if count:
                    total += (count, more, squares, up, slanted, ratios * exp(-level - slope * more / count))
        return total

    def _usual(self, asked: Asked) -> float:
        """Thinking tokens ÷ the need to think, of a target's answers on the whole: priors of others are not at hand."""
        count, _, _, _, _, ratios = self._plain[asked].sums[: _ROWS[UNREAD] + 1, THINKING.columns].sum(axis=0).tolist()
        return ratios / count if count else 1.0

    def _plainly(self, kind: _Lengths, asked: Asked, row: int, prior: float) -> _Residual:
        """Whatever the template: answers of a task lean on those of all others."""
        residual, known = _Residual(log(max(prior, LEAST_PRIOR))), self._plain.get(asked)
        if known is not None:
            own, of_all = known.sums[row, kind.columns], known.sums[_ROWS[ALL], kind.columns]
            wider = of_all - own if row > _ROWS[UNREAD] else of_all
            for sums in (wider, own) if row > _ROWS[STATED] else (own,):
                residual = kind.fitted(sums, residual, kind.plain_sd)
        return residual


class KnownTemplate(NamedTuple):
    """What quantiles and lengths of a request are looked up by, beside its target and task."""

    name: str = ""
    """The template, if something was seen of it; else its application; else none."""
    news: int = 0
    """How often there was news of it."""
    stated: bool = False
    """See `TokensRead`."""


NO_TEMPLATE = KnownTemplate()


class WorkStats:
    """What is known of one kind of work: few observations of it lean on all work of the target, and few of those on
    the prior. Tokens per choice; `share` of an upper quantile.

    `cells`: from the widest to the narrowest.
    """

    __slots__ = ("_asked", "_outputs", "_pool", "_row", "_template", "_thoughts")

    def __init__(
        self, cells: Iterable[_Windows | None], pool: _LengthPool, asked: Asked, row: int, template: KnownTemplate
    ) -> None:
        known = [windows for windows in cells if windows is not None]
        self._pool, self._asked, self._row, self._template = pool, asked, row, template
        self._outputs = [output for output, _ in known if output.count]
        self._thoughts = [thinking for _, thinking in known if thinking.count]

    def output(self, share: float, prior: int) -> int:
        """Thinking included."""
        return _leaning(self._outputs, lambda window: window.upper(share), prior)

    def mean(self, prior: int) -> int:
        """Likewise, of all."""
        return _leaning(self._outputs, lambda window: window.sum // window.count, prior)

    def thinking(self, share: float, prior: int) -> int:
        """At most the output, where the provider does not tell them apart."""
        if self._outputs and not self._thoughts:
            return min(prior, self.output(share, prior))
        return _leaning(self._thoughts, lambda window: window.upper(share), prior)

    def visible(self) -> PowerLaw:
        row = _ROWS[STATED] if self._template.stated else self._row
        return self._pool.law(VISIBLE, self._asked, row, self._template.name, 1.0)

    def thought(self, prior: float) -> PowerLaw:
        """Of the need to think; `prior`: tokens where that is all of the usual. None where answers never tell thinking
        apart from visible tokens, as all count as visible then."""
        if self._outputs and not self._thoughts:
            return PowerLaw(0.0)
        return self._pool.law(THINKING, self._asked, self._row, self._template.name, prior)


class TargetStats:
    """In memory; `observe` every settled attempt, and at the start the last ones of the ledger, oldest first."""

    def __init__(self) -> None:
        self._cells = Recent[tuple[str, str, str, str], _Windows](
            MOST_CELLS, lambda: (QuantileWindow(), QuantileWindow()), lambda key: key[3]
        )
        self._pool = _LengthPool()
        self._inputs = defaultdict[tuple[str, str], tuple[QuantileWindow, Vector]](
            lambda: (QuantileWindow(), np.zeros(5))
        )
        self._bytes = defaultdict[str, QuantileWindow](QuantileWindow)
        self._texts = defaultdict[str, TokenSizes](TokenSizes)
        self._pieces = defaultdict[str, QuantileWindow](QuantileWindow)
        self._shares = defaultdict[str, QuantileWindow](QuantileWindow)
        self._rates = defaultdict[str, QuantileWindow](QuantileWindow)
        self.rates: dict[str, float] = {}
        """Tokens of a choice that a quick stream of a target has in a ms, once it has begun; as `ahead` knew them."""
        self._worst = Counter[str]()
        self._paces: dict[str, Pace] = {}
        self._margins: dict[str, float] = {}
        self.billed: Mapping[str, float] = {}
        """By target: what its provider billed ÷ what was estimated where usage never came, as statements taught."""
        self._waiting: list[tuple[AttemptSample, int]] = []
        """What is to be learned from, and the widest kind of work that it is new for."""
        self._recalled: dict[str, dict[Hashable, Any]] = {}
        self._count = Counter[str]()
        self.caches = Caches()
        self.measured = Measured()
        """What local engines cost."""

    def observe(self, seen: AttemptSample) -> None:
        """It is learned from before anything is concluded from what is known."""
        target = seen.target
        if (margin := self._margins.get(target)) is not None:
            self._margins[target] = 1 + (margin - 1) * CALM
        self._waiting.append((seen, 0))
        self._count[target] += 1
        news = seen.past_cap > self._worst[target] or (seen.cut and (seen.output or 0) >= LONG_CUT * seen.read.visible)
        if news or (count := self._count[target]) <= NEWS or count % EACH == 0:
            self._recalled.pop(target, None)
        if self._count.total() % STALE == 0:
            self._recalled.clear()
            self.learn()
        self._worst[target] = max(self._worst[target], seen.past_cap)

    def reread(self, seen: AttemptSample) -> None:
        """What an attempt teaches that was observed unread, once its text is read: how its answer follows from that."""
        if not seen.cut and seen.task is not None:
            self._waiting.append((seen, 1))
            self._recalled.pop(seen.target, None)

    def learn(self) -> None:
        """From what was observed since the last time."""
        waiting, self._waiting = self._waiting, []
        lengths = defaultdict[tuple[Asked, str], list[AttemptSample]](list)
        for seen, widest in waiting:
            self._measure(seen, widest)
            if not widest:
                self._watch(seen)
            if seen.output is not None and seen.read[0] and not (seen.cut and seen.output < LONG_CUT * seen.read[0]):
                lengths[(seen.target, seen.effort), seen.template].append(seen)
        for (asked, template), answers in lengths.items():
            self._pool.add(asked, template, answers)

    def _measure(self, seen: AttemptSample, widest: int) -> None:
        """Of work, from the widest kind to the narrowest; what is read and what is not are kinds of their own. Of an
        answer that was cut only a length that is long even so says something."""
        template, output, thinking = seen.template, seen.output, seen.thinking
        task = UNREAD if seen.task is None else seen.task
        for kind in ((ALL, ""), (task, ""), (task, template))[widest : 3 if template else 2]:
            windows = self._cells[cell := (seen.target, seen.effort, *kind)]
            self._cells.move_to_end(cell)
            for window, tokens in zip(windows, (output, thinking), strict=True):
                if tokens is not None and not (seen.cut and window.count and tokens < window.upper(LONG)):
                    window.add(tokens * LONG_CUT if seen.cut else tokens)

    def _watch(self, seen: AttemptSample) -> None:
        """Its prompt, its pieces and its pace."""
        target, output = seen.target, seen.output
        if seen.input is not None and seen.expected_input > 0:
            window, sums = self._inputs[target, seen.script]
            window.add(seen.input * MILLE // seen.expected_input)
            sums *= KEEP
            rough, weight = seen.expected_input, (seen.expected_input + INPUT_SMALLEST) ** -2
            sums += np.array((1, rough, rough * rough, seen.input, rough * seen.input)) * weight
        if seen.largest:
            largest = ceil(seen.largest / self.mean_output_bytes(target))
            self._pieces[target].add(largest)
            if output and output >= min(LEAST_STREAMED, PIECES * largest) and seen.total_ms > IN_FLIGHT_MS:
                self._shares[target].add(largest * MILLE // output)
        if output and (size := sum(seen.text)):
            self._bytes[target].add(size * MILLE // output)
            self._texts[target].add(seen.text, output)
        if seen.first_ms is not None and (tokens := output or sum(seen.text) / self.mean_output_bytes(target)):
            # What came within the time of flight came at once.
            rates = self._rates[target]
            rates.add(int(tokens * MILLE / max(IN_FLIGHT_MS, seen.total_ms - seen.first_ms)))
            self.rates[target] = rates.upper(SAME_SHARE) / MILLE
        if output:
            pace = self._paces.setdefault(target, Pace())
            pace.observe(first_ms=seen.first_ms, total_ms=seen.total_ms, output=output, ended_ms=seen.ended_ms)

    def overrun(self, target: str) -> None:
        """An attempt cost more than was held: its target's bounds are widened for a while."""
        self._margins[target] = min(MOST_MARGIN, self.margin(target) * OVERRUN)

    def pace(self, target: str) -> Pace:
        """How quick the target was; as a usual one before anything was seen."""
        self.learn()
        return self._paces.get(target) or Pace()

    def margin(self, target: str) -> float:
        """Factor on every bound of the target."""
        return max(self._margins.get(target, 1.0), min(MOST_MARGIN, self.billed.get(target, 1.0)))

    def kind(self, target: str, effort: str, task: Work | None, template: KnownTemplate = NO_TEMPLATE) -> WorkStats:
        """Work of a template leans on all work of its task, and that on all of the target."""
        self.learn()
        kinds = dict.fromkeys(((ALL, ""), (task or ALL, ""), (task or ALL, template.name)))
        cells = [self._cells.get((target, effort, *kind)) for kind in kinds]
        return WorkStats(cells, self._pool, (target, effort), _ROWS[task or ALL], template)

    def known(self, template: str, stated: bool) -> KnownTemplate:
        known = self._pool.templates.get(template)
        if self._waiting and (known is None or known.count < NEWS or len(self._waiting) >= EACH):
            self.learn()
            known = self._pool.templates.get(template)
        if known is None:
            template = application_of(template)
            known = self._pool.templates.get(template)
        if known is None:
            return KnownTemplate(stated=stated) if stated else NO_TEMPLATE
        return KnownTemplate(template, min(known.count, NEWS) + known.count // EACH, stated)

    def recall(self, target: str, key: Hashable, conclude: Callable[[], T]) -> T:
        """What `conclude` makes of all that is known of the target, until enough is new to conclude it again."""
        known = self._recalled.setdefault(target, {})
        found: T | None = known.get(key)
        if found is None:
            if len(known) >= MOST_RECALLED:
                known.clear()
            found = known[key] = conclude()
        return found

    def input(self, target: str, script: str, share: float) -> InputSize:
        """Of the prompts of that script."""
        return self.recall(target, (script, share), lambda: self._input((target, script), share))

    def most_tokens(self, target: str, text: TextBytes, cold: tuple[int, int] = METERED) -> float:
        """That a text may have. `cold`: see `TokenSizes.tokens`."""
        self.learn()
        return self._texts[target].tokens(text, cold)

    def mean_output_bytes(self, target: str) -> float:
        """How many bytes of a stream are one token of it, all in all."""
        return self._token_bytes(target, lambda window: window.sum // window.count, MEAN_OUTPUT_BYTES)

    def most_output_bytes(self, target: str) -> float:
        """How many bytes of a stream may be one token of it: what has more, for its tokens, has more tokens."""
        return self._token_bytes(target, lambda window: int(window.upper(SAME_SHARE) * DENSER), MOST_OUTPUT_BYTES)

    def _token_bytes(self, target: str, value: Callable[[QuantileWindow], int], prior: float) -> float:
        self.learn()
        window = self._bytes.get(target)
        return prior if window is None else shrink_to_prior(value(window), window.count, int(prior * MILLE)) / MILLE

    def ahead(self, target: str) -> int | None:
        """Tokens of a choice that may come, or be on their way, before the next look at a stream.

        None: nothing is known of that yet, or answers come in one piece, so that there is nothing to look at; or they
        run on past their caps, so that each has to be looked at.
        """
        self.learn()
        pieces, shares = self._pieces.get(target), self._shares.get(target)
        if pieces is None or self._worst[target] or (shares is not None and shares.upper(HALF) > HALF * MILLE):
            return None
        return max(pieces.upper(SAME_SHARE), ceil(IN_FLIGHT_MS * self.rates.get(target, 0.0)))

    def worst(self, target: str) -> int:
        """Tokens of its longest answer past a cap, which each is held for: none is trusted. 0: all kept to theirs."""
        return self._worst[target]

    def _input(self, key: tuple[str, str], share: float) -> InputSize:
        self.learn()
        if (known := self._inputs.get(key)) is None:
            return InputSize()
        window, sums = known
        # Bayesian linear regression, of weighted sums.
        weight, rough, squares, tokens, both = (sums / INPUT_NOISE**2).tolist()
        sure_each, sure_base = INPUT_SD[0] ** -2, INPUT_SD[1] ** -2
        of_each, of_base, slanted = squares + sure_each, weight + sure_base, both + sure_each
        each = max((of_base * slanted - rough * tokens) / (of_each * of_base - rough * rough), 0.0)
        line = Line(each, (tokens - rough * each) / of_base)
        own = window.count / (window.count + PRIOR_WEIGHT * FADES**window.count)
        return InputSize(line, window.upper(share), own)


def _leaning(windows: Sequence[QuantileWindow], value: Callable[[QuantileWindow], int], prior: int) -> int:
    """Of the narrowest, which leans on the others: what was observed counts once."""
    for at, window in enumerate(windows):
        count = window.count
        if at + 1 < len(windows):
            count = min(max(count - windows[at + 1].count, 0), OTHER_TEMPLATES if at else OTHER_TASKS)
        prior = shrink_to_prior(value(window), count, prior)
    return prior
