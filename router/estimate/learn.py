"""What was learned from attempts: quantiles of tokens, lengths relative to what was read, margins, paces, times."""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping
from math import ceil
from typing import Any, NamedTuple, TypeVar

import numpy as np

from router.estimate.caches import Caches
from router.estimate.latency import Measured, Pace
from router.estimate.lengths import (
    ALL,
    LENGTHS_HALF_LIFE_MS,
    MOST_CELLS,
    NO_THOUGHT,
    ROWS,
    STATED,
    THINKING,
    UNREAD,
    VISIBLE,
    Asked,
    LengthLaw,
    LengthPool,
    TaskKind,
)
from router.estimate.posterior import Fading, QuantileWindow, Recent, prior_share, shrink_to_prior
from router.types.attempt import AttemptSample, TextBytes
from router.types.request import application_of
from router.types.target import Target, Task

# How many bytes the tokens of streams have.

MILLE = 1_000
"""Ratios are stored in thousandths."""
SAME_SHARE = 0.99
"""Share of the streams of a kind that have no fewer bytes per token, and no more of other kinds, than is learned."""
BYTES_PER_OUTPUT_TOKEN = 2.0
"""Bytes per token of the words of a stream, before any was counted; of all other text one."""
BESIDE = 500
"""Bytes of other kinds per thousand of the main kind, before any was counted; each further byte is a token."""
MEAN_OUTPUT_BYTES = 3.5
"""Mean bytes per token, before any was counted: below the 4.2 of English, so that estimates are not too low."""
METERED, BOOKED = (int(BYTES_PER_OUTPUT_TOKEN * MILLE), BESIDE), (int(MEAN_OUTPUT_BYTES * MILLE), 0)
"""Priors for `TokenSizes.tokens`: while a stream is metered, and when its text is booked without a count."""


class TokenSizes:
    """Bytes per token of a target's streams, by the kind of text that most of each was."""

    def __init__(self) -> None:
        self._kinds = [(QuantileWindow(), QuantileWindow()) for _ in TextBytes._fields]

    def add(self, text: TextBytes, tokens: int) -> None:
        """Adds a whole stream."""
        own = max(text)
        sizes, beside = self._kinds[text.index(own)]
        sizes.add(sum(text) * MILLE // tokens)
        beside.add((sum(text) - own) * MILLE // own)

    def tokens(self, text: TextBytes, cold: tuple[int, int]) -> float:
        """Returns the maximum tokens of a text: the fewest that it has as a text of any kind. `cold`: thousandths of
        bytes per token of words, and of bytes of other kinds, before any was counted."""
        size, saved, prior = sum(text), 0.0, cold[0]
        for own, (sizes, beside) in zip(text, self._kinds, strict=True):
            if own and (sizes.count or prior > MILLE):
                bytes_each = max(MILLE, shrink_to_prior(sizes.lower(SAME_SHARE), sizes.count, prior))
                others = shrink_to_prior(beside.upper(SAME_SHARE), beside.count, cold[1])
                saved = max(saved, min(size, own + own * others / MILLE) * (1 - MILLE / bytes_each))
            prior = MILLE
        return size - saved


# What targets did so far: quantiles of their latest tokens by effort, and margins after an overrun.

EXTEND = 0.15
"""Share of a stream's use by which its hold is raised above that use, once the hold is used up."""
OVERRUN = 1.5
"""Factor on a target's margin at an overrun."""
MOST_MARGIN = 4.0
CALM = 0.97
"""Share of a margin's excess that is left after each attempt that kept within its hold: half after 23."""
LONG = 0.9
"""An answer longer than this share of others counts as long, even if it was cut."""
HALF = 0.5
"""Share of an answer: a target whose largest piece is typically larger does not stream."""
LONG_CUT = 2
"""Multiple of what was read that a cut answer must have to tell how long answers are, as nine in ten have less. In the
next cap it counts as this many times as long."""
NEWS, EACH = 32, 8
"""Number of first observations of a target, or of a template, after each of which conclusions are recomputed; after
that, every how many. Several observations cost as much to learn from as one."""
STALE = 64
"""Number of observations of all targets after which every conclusion is recomputed: targets share templates."""
MOST_RECALLED = 1_024
"""Maximum number of conclusions cached for a target, which depend on clients' words and templates too."""
MOST_OUTPUT_BYTES = 5.0
"""Maximum bytes per token of a whole answer, before any was counted: long words, and letters that JSON escapes."""
DENSER = 1.25
"""Factor by which an answer may be denser than 99 % of those seen."""
LEAST_STREAMED = 32
"""Minimum tokens of an answer that shows whether a target streams: shorter or quicker ones may come at once."""
PIECES = 4
"""Number of pieces from which a shorter answer shows it too."""
IN_FLIGHT_MS = 100
"""Time in ms for which output may be in flight: to the provider and back, and through a busy event loop."""

T = TypeVar("T")


Windows = tuple[QuantileWindow, QuantileWindow]
"""The latest output tokens and thinking tokens of a target at an effort."""
_UNSEEN = QuantileWindow(), QuantileWindow()


class Line(NamedTuple):
    """Tokens of a prompt: for each of the rough count, and those that a provider adds to every prompt."""

    each: float = 1.0
    base: float = 0.0

    def tokens(self, rough: float) -> float:
        return max(self.each * rough + self.base, 0.0)


class InputSize(NamedTuple):
    """Size of prompts relative to their rough count: the expected line; an upper quantile of the ratio, in thousandths;
    and its share in the bound, besides what is known before."""

    line: Line = Line()
    upper: int = 0
    share: float = 0.0


INPUT_SHARE = 0.99
"""Share of requests whose input keeps within the learned ratio."""
INPUT_SD, INPUT_NOISE, INPUT_SMALLEST = (0.15, 20.0), 0.11, 20.0
"""Prior standard deviations of a line's slope and base; that of a prompt's tokens, relative to the rough count plus
`INPUT_SMALLEST`."""


class Work(NamedTuple):
    """What quantiles and lengths of a request are looked up by, besides its target and effort."""

    task: TaskKind = ALL
    template: str = ""
    """The template, if anything was seen of it; else its application; else empty."""
    news: int = 0
    """Counter that changes whenever conclusions about the template are to be drawn anew."""
    stated: bool = False
    """Whether the request states the answer's length: see `TokensRead`."""


ALL_WORK = Work()


class TargetStats:
    """What is known of targets, in memory. `observe` takes all settled attempts; first the ledger's latest ones."""

    def __init__(self) -> None:
        self._latest = Recent[Asked, Windows](MOST_CELLS, lambda: (QuantileWindow(), QuantileWindow()))
        self._pool = LengthPool()
        self._inputs = defaultdict[tuple[str, str], tuple[QuantileWindow, Fading]](
            lambda: (QuantileWindow(), Fading(5, LENGTHS_HALF_LIFE_MS))
        )
        self._bytes = defaultdict[str, QuantileWindow](QuantileWindow)
        self._texts = defaultdict[str, TokenSizes](TokenSizes)
        self._pieces = defaultdict[str, QuantileWindow](QuantileWindow)
        self._shares = defaultdict[str, QuantileWindow](QuantileWindow)
        self._rates = defaultdict[str, QuantileWindow](QuantileWindow)
        self.rates: dict[str, float] = {}
        """Target → tokens per ms of a choice in a quick stream, once it has begun; kept up to date by `ahead`."""
        self.worst = Counter[str]()
        """Target → tokens of its longest answer past a cap, for which every answer is held; 0 if caps were kept."""
        self.kept_caps = set[str]()
        """Targets with an answer that ended at its cap."""
        self._paces: dict[str, Pace] = {}
        self.margins: dict[str, float] = {}
        """Target that overran its hold → its margin: see `margin`."""
        self.billed: Mapping[str, float] = {}
        """Target → what its provider billed ÷ what was estimated where usage never came, as statements taught."""
        self._waiting: list[tuple[AttemptSample, bool]] = []
        """Attempts to learn from, and whether each was learned from before, unread."""
        self._recalled: dict[str, dict[Hashable, Any]] = {}
        self._count, self._changed = Counter[str](), False
        self.caches = Caches()
        self.measured = Measured()
        """Prices of targets that were measured or corrected."""

    def observe(self, seen: AttemptSample) -> None:
        """Takes an attempt, which is learned from before anything is concluded from what is known."""
        target = seen.target
        if (margin := self.margins.get(target)) is not None:
            self.margins[target] = 1 + (margin - 1) * CALM
        self._waiting.append((seen, False))
        self._count[target] += 1
        self._changed = True
        news = seen.past_cap > self.worst[target] or (seen.cut and (seen.output or 0) >= LONG_CUT * seen.read.visible)
        if news or (count := self._count[target]) <= NEWS or count % EACH == 0:
            self._recalled.pop(target, None)
        if self._count.total() % STALE == 0:
            self._recalled.clear()
            self.learn()
        self.worst[target] = max(self.worst[target], seen.past_cap)
        if seen.kept_cap:
            self.kept_caps.add(target)

    def reread(self, seen: AttemptSample) -> None:
        """Takes an attempt again that was observed unread, once its text is read: how its answer follows from that."""
        if not seen.cut and seen.task is not None:
            self._waiting.append((seen, True))
            self._recalled.pop(seen.target, None)

    def rest(self) -> None:
        """Called from time to time: once answers stop, all conclusions are drawn anew, so that all processes agree."""
        self.learn()
        if not self._changed:
            self._recalled.clear()
        self._changed = False

    def learn(self) -> None:
        """Learns from what was observed since the last call."""
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        lengths = defaultdict[tuple[Asked, str], list[AttemptSample]](list)
        for sample, again in waiting:
            output, read = sample.output, sample.read.visible
            if not again:
                self._watch(sample)
            if output is not None and read and not (sample.cut and output < LONG_CUT * read):
                lengths[(sample.target, sample.effort), sample.template].append(sample)
        for (asked, template), answers in lengths.items():
            self._pool.add(asked, template, answers)

    def _watch(self, seen: AttemptSample) -> None:
        """Learns an attempt's length, prompt, pieces and pace. A cut answer's length counts only if it is long even
        so."""
        target, output = seen.target, seen.output
        for window, size in zip(self._latest.used((target, seen.effort)), (output, seen.thinking), strict=True):
            if size is not None and not (seen.cut and window.count and size < window.upper(LONG)):
                window.add(size * LONG_CUT if seen.cut else size)
        if seen.input is not None and seen.expected_input > 0:
            window, line = self._inputs[target, seen.script]
            window.add(seen.input * MILLE // seen.expected_input)
            rough, share = seen.expected_input, line.fade(seen.ended_ms)[1]
            weight = share * (rough + INPUT_SMALLEST) ** -2
            line.sums += np.array((1, rough, rough * rough, seen.input, rough * seen.input)) * weight
        if seen.largest:
            largest = ceil(seen.largest / self.mean_output_bytes(target))
            self._pieces[target].add(largest)
            if output and output >= min(LEAST_STREAMED, PIECES * largest) and seen.total_ms > IN_FLIGHT_MS:
                self._shares[target].add(largest * MILLE // output)
        if output and (size := sum(seen.text)):
            self._bytes[target].add(size * MILLE // output)
            self._texts[target].add(seen.text, output)
        if seen.first_ms is not None and (tokens := output or sum(seen.text) / self.mean_output_bytes(target)):
            rates = self._rates[target]
            rates.add(int(tokens * MILLE / max(IN_FLIGHT_MS, seen.total_ms - seen.first_ms)))
            self.rates[target] = rates.upper(SAME_SHARE) / MILLE
        if output:
            pace = self._paces.setdefault(target, Pace())
            pace.observe(first_ms=seen.first_ms, total_ms=seen.total_ms, output=output, ended_ms=seen.ended_ms)

    def overrun(self, target: str) -> None:
        """Widens a target's bounds for a while, as an attempt cost more than was held."""
        self.margins[target] = min(MOST_MARGIN, self.margin(target) * OVERRUN)

    def pace(self, target: str) -> Pace:
        """Returns the pace of the target; that of a usual one before anything was seen."""
        self.learn()
        return self._paces.get(target) or Pace()

    def margin(self, target: str) -> float:
        """Returns the factor on every bound of the target."""
        return max(self.margins.get(target, 1.0), min(MOST_MARGIN, self.billed.get(target, 1.0)))

    def laws(self, asked: Asked, work: Work, prior: float | None) -> tuple[LengthLaw, LengthLaw]:
        """Returns the laws of visible tokens, and of thinking tokens by the need to think. `prior`: thinking tokens for
        full need; None if the target does not think. If thinking is never told apart, all tokens count as visible."""
        self.learn()
        row = ROWS[STATED if work.stated else work.task]
        visible, (output, thinking) = self._pool.law(VISIBLE, asked, row, work.template, 1.0), self.latest(asked)
        if prior is None or output.count > thinking.count == 0:
            return visible, NO_THOUGHT
        return visible, self._pool.law(THINKING, asked, ROWS[work.task], work.template, prior)

    def latest(self, asked: Asked) -> Windows:
        """Returns the tokens of the last answers."""
        self.learn()
        return self._latest.get(asked) or _UNSEEN

    def work(self, task: Task | None, template: str, stated: bool) -> Work:
        """Returns the kind of work that a request is. `task`: None if it was not read; `stated`: see `TokensRead`."""
        known = self._pool.templates.get(template)
        if self._waiting and (known is None or known.count < NEWS or len(self._waiting) >= EACH):
            self.learn()
            known = self._pool.templates.get(template)
        if known is None:
            template = application_of(template)
            known = self._pool.templates.get(template)
        if known is None:
            return Work(task or UNREAD, stated=stated)
        return Work(task or UNREAD, template, min(known.count, NEWS) + known.count // EACH, stated)

    def recall(self, target: Target, key: Hashable, conclude: Callable[..., T], *about: Any) -> T:
        """Returns what `conclude` makes of what is known of the target; cached until enough is new."""
        known = self._recalled.get(target.id)
        if known is None or len(known) > MOST_RECALLED:
            known = self._recalled[target.id] = {}
        own = target.model.thinking, target.abandoned, target.provider.id, key
        conclusion: T | None = known.get(own)
        if conclusion is None:
            conclusion = known[own] = conclude(*about)
        return conclusion

    def input(self, target: Target, script: str) -> InputSize:
        """Returns the size of the target's prompts of that script."""
        return self.recall(target, script, self._input, (target.id, script))

    def most_tokens(self, target: str, text: TextBytes, cold: tuple[int, int] = METERED) -> float:
        """Returns the maximum number of tokens of a text. `cold`: see `TokenSizes.tokens`."""
        self.learn()
        return self._texts[target].tokens(text, cold)

    def mean_output_bytes(self, target: str) -> float:
        """Returns the mean bytes per token of the target's streams."""
        return self._token_bytes(target, lambda window: window.sum // window.count, MEAN_OUTPUT_BYTES)

    def most_output_bytes(self, target: str) -> float:
        """Returns the maximum bytes per token of the target's streams: a token count that gives more is too low."""
        return self._token_bytes(target, lambda window: int(window.upper(SAME_SHARE) * DENSER), MOST_OUTPUT_BYTES)

    def _token_bytes(self, target: str, value: Callable[[QuantileWindow], int], prior: float) -> float:
        self.learn()
        window = self._bytes.get(target)
        return prior if window is None else shrink_to_prior(value(window), window.count, int(prior * MILLE)) / MILLE

    def ahead(self, target: str) -> int | None:
        """Returns how many tokens of a choice may come, or be in flight, before a stream is looked at again.

        None if that is not known yet; if answers come in one piece, so that there is nothing to look at; or if they run
        on past their caps, so that each has to be looked at.
        """
        self.learn()
        pieces, shares = self._pieces.get(target), self._shares.get(target)
        if pieces is None or self.worst[target] or (shares is not None and shares.upper(HALF) > HALF * MILLE):
            return None
        return max(pieces.upper(SAME_SHARE), ceil(IN_FLIGHT_MS * self.rates.get(target, 0.0)))

    def _input(self, key: tuple[str, str]) -> InputSize:
        self.learn()
        if (known := self._inputs.get(key)) is None:
            return InputSize()
        window, fading = known
        # Bayesian linear regression with weighted sums.
        weight, rough, squares, tokens, both = (fading.sums / INPUT_NOISE**2).tolist()
        sure_each, sure_base = INPUT_SD[0] ** -2, INPUT_SD[1] ** -2
        of_each, of_base, slanted = squares + sure_each, weight + sure_base, both + sure_each
        each = max((of_base * slanted - rough * tokens) / (of_each * of_base - rough * rough), 0.0)
        line = Line(each, (tokens - rough * each) / of_base)
        return InputSize(line, window.upper(INPUT_SHARE), 1 - prior_share(window.count))
