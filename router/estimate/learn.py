"""What attempts taught of targets: quantiles of tokens, lengths against what was read, margins, paces, times."""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial
from math import ceil, exp
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
from msgspec import Struct

from router.estimate.caches import Caches, QuantileWindow
from router.estimate.latency import KEEP, Z90, Measured, Pace
from router.estimate.posterior import MOST_TEMPLATES, Fading, Pooled, Recent
from router.types.decision import Candidate, Vector
from router.types.request import USUAL_OUTPUT, USUAL_THINKING, application_of, instructed, tenant_of
from router.types.target import Target, Task

# What targets did so far: quantiles of their tokens by kind of work, which forget, and margins after an overrun.

EXTEND = 0.15
"""A stream that has used up its hold has it raised to so much more than what it has used."""
PRIOR_WEIGHT = 2
"""A prior counts like so many observations, and so does the whole target within one kind of work."""
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
FADES = 0.8
"""What a prior weighs after each observation of its own kind."""
MILLE = 1_000
"""Ratios are kept in thousandths."""
HALF = 0.5
"""Of an answer: a target whose typical stream has a larger piece does not stream."""
SAME = 0.99
"""Share of streams that have no fewer bytes in a token than they are metered by."""
MOST_RATIO = 16
"""Times what is expected: less than that part of what was read is expected of no answer."""
CREDIBLE = 3.0
"""Times what was read, and `smallest`: an answer of a template counts as no longer for others, nor as shorter than that
part."""
MOST_TAUGHT = 4.0
"""Answers that those of one tenant, or where no keys are of one template, count for at most in what is expected of all
others', at their mean; and those of one template for its application."""
LENGTHS_HALF_LIFE_MS = 3 * 86_400_000
"""Of lengths against what was read: a target that changes is followed within days. Holds forget within 128 answers."""
NOISE = 0.87**2
"""Variance of an answer's tokens, in squares of (what was read + the smallest of its kind): public outcomes differ by a
factor of 1.8 at the median from what their text foretells."""
LONG_CUT = 2
"""An answer that was cut says how long answers are if it had so many times what was read: nine in ten have less."""
MOST_ASKED = 64
"""Targets × efforts remembered of a template."""
NEWS, EACH = 32, 8
"""Each of the first so many observations of a target, and of a template, is news, then one in eight: what follows from
them is worked out again."""
STALE = 64
"""Observations of all targets after which all of it is: what one does in a template says something of the others."""
MOST_RECALLED = 1_024
"""Remembered conclusions of a target: they hang on the client's words and templates too."""
MEAN_OUTPUT_BYTES = 3.5
"""Of a token, before any was counted: of English it is 4.2, and what is estimated by it should not be too little."""
MOST_OUTPUT_BYTES = 5.0
"""Of a token of a whole answer, at most, before any was counted: long words, and letters that JSON escapes …"""
DENSER = 1.25
"""… and how much denser than 99 % of those seen an answer may be."""
BYTES_PER_OUTPUT_TOKEN = 2.0
"""Of a streamed answer, before any was counted."""
LEAST_STREAMED = 32
"""Tokens of the shortest answer that shows whether a target streams: fewer may well come at once …"""
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
    read_output: float = USUAL_OUTPUT
    """`Estimate.read_output`; 0: not known any more, so that it teaches lengths only …"""
    read_thinking: float = USUAL_THINKING
    """… and `Estimate.read_thinking`."""
    output: int | None = None
    thinking: int | None = None
    input: int | None = None
    expected_input: int = 0
    """`Estimate.input_rough`."""
    output_bytes: int = 0
    """Of the stream, thoughts included, where all of it was seen; per choice."""
    largest: int = 0
    """Tokens of the largest piece of the stream."""
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
_ROWS: Mapping[str, int] = {ALL: 0, UNREAD: 1, **{task: at for at, task in enumerate(Task, 2)}}
"""Of sums of lengths: all that were read, all that were not, and those of each task. Answers; of their visible tokens,
and of their thinking tokens where these are known, the sums of a line (`_line`)."""
_COLUMNS = 11
_sums = partial(Fading, (len(_ROWS), _COLUMNS), LENGTHS_HALF_LIFE_MS)
Asked = tuple[str, str]
"""A target and the effort that was asked for."""


class Line(NamedTuple):
    """Tokens for each that was read from a request, and those whatever was read."""

    each: float = 1.0
    base: float = 0.0

    def visible(self, read: float) -> float:
        return max(self.each * read + self.base, read / MOST_RATIO, 1.0)

    def tokens(self, read: float) -> float:
        return max(self.each * read + self.base, 0.0)


class InputSize(NamedTuple):
    """Of prompts, against their rough count: what is expected; an upper quantile of the ratio, in thousandths, and the
    share that it has in the bound, beside what is known before."""

    line: Line = Line()
    upper: int = 0
    share: float = 0.0


class _Lengths(NamedTuple):
    """How a line is fitted to a kind of tokens. Its prior has a scale: tokens for each that is read."""

    columns: slice
    smallest: float
    """Read beside which the noise of an answer stays the same: that of a greeting is no twentieth of a poem's."""
    plain_sd: tuple[float, float]
    """What own answers may have to correct, in units of the scale: of tokens for each that is read, and of tokens
    whatever is read. Of a target for all templates (the prior then counts like four usual answers) …"""
    template_sd: tuple[float, float]
    """… and of a template (like two)."""
    least_scale: float


INPUT_SD, INPUT_NOISE, INPUT_SMALLEST = (0.15, 20.0), 0.11**2, 20.0
"""Likewise of a prompt, for each token of the rough count: what a provider adds to every prompt is no part of it."""
VISIBLE = _Lengths(slice(1, 6), 100.0, (0.6, 50.0), (0.7, 80.0), 1.0)
THINKING = _Lengths(slice(6, 11), 0.02, (0.75, 0.004), (0.75, 0.006), 500.0)
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

    def add(self, seen: AttemptSample) -> None:
        """An answer that was cut says how long answers are only if it is long even so."""
        output, read, thinking = seen.output, seen.read_output, seen.thinking
        if output is None or not read or (seen.cut and output < LONG_CUT * read):
            return
        template, at_ms, asked = seen.template, seen.ended_ms, (seen.target, seen.effort)
        rows = [_ROWS[UNREAD]] if seen.task is None else [_ROWS[ALL], _ROWS[seen.task]]
        sums, visible = np.zeros((len(_ROWS), _COLUMNS)), max(output - (thinking or 0), 0)
        read = max(read, 1.0)
        sums[rows, 0], sums[rows, VISIBLE.columns] = 1.0, _line(read, visible, VISIBLE.smallest)
        if thinking is not None:
            sums[rows, THINKING.columns] = _line(seen.read_thinking, thinking, THINKING.smallest)
        bounded, usual = sums, read + VISIBLE.smallest
        credible = min(max(visible, usual / CREDIBLE - VISIBLE.smallest), usual * CREDIBLE)
        if template and credible != visible:
            bounded = sums.copy()
            bounded[rows, 4:6] = bounded[rows, 1:3] * credible  # tokens, and both: all else of the line is the same
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
            known.at_ms, known.count = max(known.at_ms, when_ms), known.count + 1

    def line(self, kind: _Lengths, asked: Asked, row: int, template: str, prior: float) -> Line:
        """Of a target's answers to requests of a template, which lean on what the template makes of all targets'
        answers: else the one that was asked would alone seem dearer, or cheaper, by it. `prior`: tokens for each that
        is read."""
        beside, known = Line(), self.templates.get(template)
        for level in (self.templates.get(application_of(template)), known):
            if level is not None:
                beside = _fitted(self._beside(kind, level, row), beside, kind.template_sd)
        plain, scale = self._plainly(kind, asked, row, prior), max(prior, kind.least_scale)
        line = Line(beside.each * plain.each, beside.each * plain.base + beside.base)
        own = known.sums.get(asked) if known is not None else None
        of_all = row if row == _ROWS[UNREAD] else _ROWS[ALL]
        return line if own is None else _fitted(own.sums[of_all, kind.columns], line, kind.template_sd, scale)

    def _beside(self, kind: _Lengths, known: _Template, row: int) -> Vector:
        """[5]: sums of a template's answers, against what was to be expected of their targets for as much."""
        total = np.zeros(5)
        for asked, sums in known.sums.items():
            rows, unread = sums.left(known.at_ms)[:, kind.columns], _ROWS[UNREAD]
            # An answer counts once, in the row of its task.
            of_tasks = np.flatnonzero(rows[unread + 1 :, 0]) + unread + 1
            for at in [unread] if row == unread else of_tasks.tolist():
                prior = 1.0 if kind is VISIBLE else self._usual(asked)
                each, base = self._plainly(kind, asked, at, prior)
                scale = max(prior, kind.least_scale)
                weight, read, squares, tokens, both = (rows[at] / scale**2).tolist()
                expected = each * read + base * weight
                squared = each * each * squares + 2 * each * base * read + base * base * weight
                total += (weight, expected, squared, tokens, each * both + base * tokens)
        return total

    def _usual(self, asked: Asked) -> float:
        """Thinking tokens ÷ the need to think, of a target's answers on the whole: priors of others are not at hand."""
        _, read, _, tokens, _ = self._plain[asked].sums[:2, THINKING.columns].sum(axis=0).tolist()
        return tokens / read if read else 0.0

    def _plainly(self, kind: _Lengths, asked: Asked, row: int, prior: float) -> Line:
        """Whatever the template: answers of a task lean on those of all others."""
        line, known, scale = Line(prior), self._plain.get(asked), max(prior, kind.least_scale)
        if known is not None:
            own, of_all = known.sums[row, kind.columns], known.sums[_ROWS[ALL], kind.columns]
            for sums in (of_all - own if row > _ROWS[UNREAD] else of_all, own) if row else (of_all,):
                line = _fitted(sums, line, kind.plain_sd, scale)
        return line


def _line(read: float, tokens: float, smallest: float) -> tuple[float, ...]:
    """Sums of one answer: its weight, times what was read, its square, the tokens, and both."""
    weight = 1 / (read + smallest) ** 2
    return weight, weight * read, weight * read * read, weight * tokens, weight * read * tokens


def _fitted(sums: Vector, prior: Line, sds: tuple[float, float], scale: float = 1.0, noise: float = NOISE) -> Line:
    """Bayesian linear regression of tokens on what was read, of weighted sums [5]; `sds`: how far the line may be from
    the prior, in units of the scale."""
    weight, read, squares, tokens, both = (sums / (noise * scale**2)).tolist()
    sure_each, sure_base = (sds[0] * scale) ** -2, (sds[1] * scale) ** -2
    of_each, of_base = squares + sure_each, weight + sure_base
    slanted, up = both + prior.each * sure_each, tokens + prior.base * sure_base
    each = max((of_base * slanted - read * up) / (of_each * of_base - read * read), 0.0)
    return Line(each, (up - read * each) / of_base)


class WorkStats:
    """What is known of one kind of work: few observations of it lean on all work of the target, and few of those on
    the prior. Tokens per choice; `share` of an upper quantile.

    `cells`: from the widest to the narrowest.
    """

    __slots__ = ("_asked", "_outputs", "_pool", "_row", "_template", "_thoughts")

    def __init__(
        self, cells: Iterable[_Windows | None], pool: _LengthPool, asked: Asked, row: int, template: str
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

    def visible(self) -> Line:
        return self._pool.line(VISIBLE, self._asked, self._row, self._template, 1.0)

    def thought(self, prior: float) -> Line:
        """Of the need to think; `prior`: tokens where that is all of the usual. None where answers never tell thinking
        apart from visible tokens, as all count as visible then."""
        if self._outputs and not self._thoughts:
            return Line(0.0)
        return self._pool.line(THINKING, self._asked, self._row, self._template, prior)


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
        self._pieces = defaultdict[str, QuantileWindow](QuantileWindow)
        self._shares = defaultdict[str, QuantileWindow](QuantileWindow)
        self._worst = Counter[str]()
        self._paces: dict[str, Pace] = {}
        self._margins: dict[str, float] = {}
        self.billed: Mapping[str, float] = {}
        """By target: what its provider billed ÷ what was estimated where usage never came, as statements taught."""
        self._recalled: dict[str, dict[Hashable, Any]] = {}
        self._count = Counter[str]()
        self.caches = Caches()
        self.measured = Measured()
        """What local engines cost."""

    def observe(self, seen: AttemptSample) -> None:
        target, output = seen.target, seen.output
        if (margin := self._margins.get(target)) is not None:
            self._margins[target] = 1 + (margin - 1) * CALM
        self._measure(seen)
        self._count[target] += 1
        if (count := self._count[target]) <= NEWS or count % EACH == 0:
            self._recalled.pop(target, None)
        if self._count.total() % STALE == 0:
            self._recalled.clear()
        if seen.input is not None and seen.expected_input > 0:
            window, sums = self._inputs[target, seen.script]
            window.add(seen.input * MILLE // seen.expected_input)
            sums *= KEEP
            sums += _line(seen.expected_input, seen.input, INPUT_SMALLEST)
        if seen.output_bytes and output:
            self._bytes[target].add(seen.output_bytes * MILLE // output)
        if seen.largest:
            self._pieces[target].add(seen.largest)
            if output and output >= min(LEAST_STREAMED, PIECES * seen.largest):
                self._shares[target].add(seen.largest * MILLE // output)
        if seen.past_cap > self._worst[target]:
            self._worst[target] = seen.past_cap
            self._recalled.pop(target, None)
        if output:
            pace = self._paces.setdefault(target, Pace())
            pace.observe(first_ms=seen.first_ms, total_ms=seen.total_ms, output=output, ended_ms=seen.ended_ms)

    def reread(self, seen: AttemptSample) -> None:
        """What an attempt teaches that was observed unread, once its text is read: how its answer follows from that."""
        if not seen.cut and seen.task is not None:
            self._measure(seen, widest=1)
            self._recalled.pop(seen.target, None)

    def _measure(self, seen: AttemptSample, widest: int = 0) -> None:
        """Of work, from the widest kind to the narrowest; what is read and what is not are kinds of their own. Of an
        answer that was cut only a length that is long even so says something."""
        template, output, thinking = seen.template, seen.output, seen.thinking
        task = UNREAD if seen.task is None else seen.task
        for kind in ((ALL, ""), (task, ""), (task, template))[widest : 3 if template else 2]:
            windows = self._cells[cell := (seen.target, seen.effort, *kind)]
            self._cells.move_to_end(cell)
            for window, tokens in zip(windows, (output, thinking), strict=True):
                if tokens is not None and not (seen.cut and window.count and tokens < window.upper(LONG)):
                    window.add(tokens)
        self._pool.add(seen)

    def overrun(self, target: str) -> None:
        """An attempt cost more than was held: its target's bounds are widened for a while."""
        self._margins[target] = min(MOST_MARGIN, self.margin(target) * OVERRUN)

    def pace(self, target: str) -> Pace:
        """How quick the target was; as a usual one before anything was seen."""
        return self._paces.get(target) or Pace()

    def margin(self, target: str) -> float:
        """Factor on every bound of the target."""
        return max(self._margins.get(target, 1.0), min(MOST_MARGIN, self.billed.get(target, 1.0)))

    def kind(self, target: str, effort: str, task: Work | None, template: str = "") -> WorkStats:
        """Work of a template leans on all work of its task, and that on all of the target."""
        kinds = dict.fromkeys(((ALL, ""), (task or ALL, ""), (task or ALL, template)))
        cells = [self._cells.get((target, effort, *kind)) for kind in kinds]
        return WorkStats(cells, self._pool, (target, effort), _ROWS[task or ALL], template)

    def known(self, template: str) -> tuple[str, int]:
        """The template, if something was seen of it; else its application; else none. And how often there was news."""
        known = self._pool.templates.get(template)
        if known is None:
            template = application_of(template)
            known = self._pool.templates.get(template)
        return ("", 0) if known is None else (template, min(known.count, NEWS) + known.count // EACH)

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

    def output_bytes(self, target: str) -> float:
        """How few bytes of a stream may be one token of it."""
        if (window := self._bytes.get(target)) is None:
            return BYTES_PER_OUTPUT_TOKEN
        return shrink_to_prior(window.lower(SAME), window.count, int(BYTES_PER_OUTPUT_TOKEN * MILLE)) / MILLE

    def mean_output_bytes(self, target: str) -> float:
        """How many bytes of a stream are one token of it, all in all."""
        if (window := self._bytes.get(target)) is None:
            return MEAN_OUTPUT_BYTES
        return shrink_to_prior(window.sum // window.count, window.count, int(MEAN_OUTPUT_BYTES * MILLE)) / MILLE

    def most_output_bytes(self, target: str) -> float:
        """How many bytes of a stream may be one token of it: what has more, for its tokens, has more tokens."""
        if (window := self._bytes.get(target)) is None:
            return MOST_OUTPUT_BYTES
        return shrink_to_prior(int(window.upper(SAME) * DENSER), window.count, int(MOST_OUTPUT_BYTES * MILLE)) / MILLE

    def ahead(self, target: str) -> int | None:
        """Tokens of a choice that may come, or be on their way, before the next look at a stream.

        None: nothing is known of that yet, or answers come in one piece, so that there is nothing to look at; or they
        run on past their caps, so that each has to be looked at.
        """
        pieces, shares = self._pieces.get(target), self._shares.get(target)
        if pieces is None or self._worst[target] or (shares is not None and shares.upper(HALF) > HALF * MILLE):
            return None
        return max(pieces.upper(SAME), ceil(IN_FLIGHT_MS / self.pace(target).ms_per_token))

    def worst(self, target: str) -> int:
        """Tokens of its longest answer past a cap, which each is held for: none is trusted. 0: all kept to theirs."""
        return self._worst[target]

    def _input(self, key: tuple[str, str], share: float) -> InputSize:
        if (known := self._inputs.get(key)) is None:
            return InputSize()
        window, sums = known
        line = _fitted(sums, Line(), INPUT_SD, noise=INPUT_NOISE)
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


def shrink_to_prior(value: int, count: int, prior: int) -> int:
    """What `count` observations say, leaning on the prior."""
    weight = PRIOR_WEIGHT * FADES**count
    return int((value * count + prior * weight) / (count + weight))


# For how long a target is busy with a request, once it has begun.


def usual_ms(target: Target, learned: TargetStats) -> float:
    """Over all that it is asked."""
    pace, kind = learned.pace(target.id), learned.kind(target.id, target.effort or "", None)
    tokens = kind.visible().visible(USUAL_OUTPUT) + kind.thought(0.0).tokens(USUAL_THINKING)
    return pace.first_ms + tokens * pace.ms_per_token


def takes_ms(step: Candidate, learned: TargetStats, choices: int) -> tuple[float, float]:
    """With this request, whose choices are written side by side: mean and 90 % quantile, for a length as expected."""
    pace = learned.pace(step.target.id)
    first_ms, written_ms, sd = pace.first_ms, step.estimate.output_tokens / choices * pace.ms_per_token, pace.sd
    return first_ms + written_ms, first_ms + written_ms * exp(Z90 * sd - sd * sd / 2)
