"""What attempts taught of targets: quantiles of tokens, margins, paces, service times."""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping
from math import ceil, exp
from typing import Any, Literal, NamedTuple, TypeVar

from msgspec import Struct

from router.estimate.caches import Caches, RunningRatio, Window
from router.estimate.latency import Z90, Measured, Pace
from router.types.decision import Candidate
from router.types.request import USUAL_OUTPUT, USUAL_THINKING, application_of, instructed, oldest, tenant_of
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
MILLE = 1_000
"""Ratios are kept in thousandths."""
HALF = 0.5
"""Of an answer: a target whose typical stream has a larger piece does not stream."""
SAME = 0.99
"""Share of streams that have no fewer bytes in a token than they are metered by."""
PLAIN_WEIGHT = 4
"""Likewise of what is learned for all templates, where an answer counts as at most …"""
MOST_RATIO = 16
"""… so many times what was read, and at least as that part of it."""
MOST_TAUGHT = 4
"""So many more answers of one tenant, or where no keys are of one template, than of all others teach what is expected
of others' answers."""
NEWS = 32
"""What follows from the observations is worked out again once one in so many of them is new."""
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
"""Tokens of the shortest answer that shows whether a target streams: fewer may well come at once."""
IN_FLIGHT_MS = 100
"""What a target writes in that time may be on its way: to the provider and back, and through a busy event loop."""

T = TypeVar("T")
ALL = ""
"""Stands for all tasks, efforts or targets."""
UNREAD: Literal["unread"] = "unread"
"""Stands for the task of requests whose text was not read: what they are on the whole."""
Work = Task | Literal["unread"]


class Seen(Struct, frozen=True, kw_only=True):
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
    past_cap: bool = False
    """It ran on past the cap that was sent."""
    first_ms: int | None = None
    """Of a stream."""
    total_ms: int = 0
    ended_ms: int = 0
    """When (Unix)."""
    cut: bool = False
    """By a cap, the budget, a fault or the client: the answer would have been at least so long."""


class Ratio(NamedTuple):
    """Actual ÷ rough input tokens, in thousandths, of so many requests: an upper quantile, and the mean."""

    upper: int = 0
    mean: int = 0
    seen: int = 0


_UNSEEN = Ratio()


class _Cell:
    """What was seen of one kind of work. `written`: visible tokens ÷ those that had been read from the text; `thought`:
    thinking tokens ÷ the need to think that had been read, in mille."""

    __slots__ = ("output", "thinking", "thought", "written")

    def __init__(self) -> None:
        self.output, self.thinking = Window(), Window()
        self.written, self.thought = RunningRatio(), RunningRatio()

    def add(self, seen: Seen, *, lengths: bool, ratios: bool, plain: bool = False) -> None:
        """Of an answer that was cut only a length that is long even so says something. `plain`: of all templates."""
        output, thinking, cut = seen.output, seen.thinking, seen.cut
        if output is not None and not (cut and self.output.count and output < self.output.upper(LONG)):
            if lengths:
                self.output.add(output)
            if ratios:
                read, visible = max(int(seen.read_output), 1), max(output - (thinking or 0), 0)
                bounded = min(max(visible, read // MOST_RATIO), read * MOST_RATIO) if plain else visible
                self.written.add(bounded, read)
        if thinking is not None and not (cut and self.thinking.count and thinking < self.thinking.upper(LONG)):
            if lengths:
                self.thinking.add(thinking)
            if ratios:
                self.thought.add(thinking, max(int(seen.read_thinking * MILLE), 1))


class Kind:
    """What is known of one kind of work: few observations of it lean on all work of the target, and few of those on
    the prior. Tokens per choice; `share` of an upper quantile.

    `cells`: from the widest to the narrowest. `own` is the target's in a template, which leans on what the template
    makes of all targets' answers (`shared`): else the one that was asked would alone seem dearer, or cheaper, by it.
    `instructed`: the template has instructions or tools, so that its answers are alike; else short ones say nothing of
    long ones.
    """

    __slots__ = ("_cells", "_outputs", "_own", "_shared", "_thoughts", "_usual")

    def __init__(
        self,
        cells: Iterable[_Cell | None],
        shared: _Cell | None = None,
        own: _Cell | None = None,
        *,
        instructed: bool = True,
    ) -> None:
        self._cells, self._shared, self._own = [cell for cell in cells if cell is not None], shared, own
        self._usual = (0.0, 0.0) if instructed else (USUAL_OUTPUT, MILLE * USUAL_THINKING)
        known = self._cells + ([] if own is None else [own])
        self._outputs = [cell.output for cell in known if cell.output.count]
        self._thoughts = [cell.thinking for cell in known if cell.thinking.count]

    def output(self, share: float, prior: int) -> int:
        """Thinking included."""
        for window in self._outputs:
            prior = leaning(window.upper(share), window.count, prior)
        return prior

    def thinking(self, share: float, prior: int) -> int:
        """At most the output, where the provider does not tell them apart."""
        if self._outputs and not self._thoughts:
            return min(prior, self.output(share, prior))
        for window in self._thoughts:
            prior = leaning(window.upper(share), window.count, prior)
        return prior

    def wordiness(self) -> float:
        """Visible tokens ÷ those that are read from requests' texts."""
        ratio, least = 1.0, self._usual[0]
        for cell in self._cells:
            ratio = cell.written.leaning(ratio, PLAIN_WEIGHT, USUAL_OUTPUT)
        if self._shared is not None:
            ratio *= self._shared.written.leaning(1.0, PRIOR_WEIGHT, least)
        return ratio if self._own is None else self._own.written.leaning(ratio, PRIOR_WEIGHT, least)

    def thought(self, prior: float) -> float:
        """Thinking tokens of a request that needs all of the usual thinking; 0 where answers never tell them apart from
        visible ones, as all tokens count as visible then."""
        if self._outputs and not self._thoughts:
            return 0.0
        ratio, least = prior / MILLE, self._usual[1]
        for cell in self._cells:
            ratio = cell.thought.leaning(ratio, PRIOR_WEIGHT, MILLE * USUAL_THINKING)
        if self._shared is not None:
            ratio *= self._shared.thought.leaning(1.0, PRIOR_WEIGHT, least)
        return MILLE * (ratio if self._own is None else self._own.thought.leaning(ratio, PRIOR_WEIGHT, least))


class Learned:
    """In memory; `observe` every settled attempt, and at the start the last ones of the ledger, oldest first."""

    def __init__(self) -> None:
        self._cells: dict[tuple[str, str, str], _Cell] = {}
        self._inputs = defaultdict[tuple[str, str], Window](Window)
        self._bytes = defaultdict[str, Window](Window)
        self._pieces = defaultdict[str, Window](Window)
        self._shares = defaultdict[str, Window](Window)
        self._deaf: set[str] = set()
        self._paces: dict[str, Pace] = {}
        self._margins: dict[str, float] = {}
        self.billed: Mapping[str, float] = {}
        """By target: what its provider billed ÷ what was estimated where usage never came, as statements taught."""
        self._recalled: dict[str, dict[Hashable, Any]] = {}
        self._taught = Counter[tuple[str, str]]()
        """By (target, tenant): answers that taught what is expected of others', of all tenants by `ALL`."""
        self._news: dict[str, int] = {}
        self.caches = Caches()
        self.measured = Measured()
        """What local engines cost."""

    def observe(self, seen: Seen) -> None:
        target, output, template = seen.target, seen.output, seen.template
        if self._margins:
            self._calm(target)
        if template and not seen.cut and seen.task is not None and seen.read_output:
            self._share(seen)
        teaches = self._teaches(seen)
        for kind in self._kinds(seen):
            cell, plain = self._cell((target, seen.effort, kind)), kind in (ALL, seen.task)
            known = seen.read_output > 0 and (seen.task is not None or kind is not ALL)
            cell.add(seen, lengths=True, ratios=known and (teaches or not plain), plain=plain)
        news = self._news.get(target, 0) + 1
        if news * NEWS >= cell.output.count:
            self._recalled.pop(target, None)
            news = 0
        self._news[target] = news
        if seen.input is not None and seen.expected_input > 0:
            self._inputs[target, seen.script].add(seen.input * MILLE // seen.expected_input)
        if seen.output_bytes and output:
            self._bytes[target].add(seen.output_bytes * MILLE // output)
        if seen.largest:
            self._pieces[target].add(seen.largest)
            if output and output >= LEAST_STREAMED:
                self._shares[target].add(seen.largest * MILLE // output)
        if seen.past_cap:
            self._deaf.add(target)
        if output:
            pace = self._paces.setdefault(target, Pace())
            pace.observe(first_ms=seen.first_ms, total_ms=seen.total_ms, output=output, ended_ms=seen.ended_ms)

    def reread(self, seen: Seen) -> None:
        """What an attempt teaches that was observed unread, once its text is read: how its answer follows from that."""
        if seen.cut or seen.task is None:
            return
        if seen.template:
            self._share(seen)
        teaches = self._teaches(seen)
        for kind in self._kinds(seen):
            plain = kind in (ALL, seen.task)
            cell = self._cell((seen.target, seen.effort, kind))
            cell.add(seen, lengths=kind is not ALL, ratios=teaches or not plain, plain=plain)
        self._recalled.pop(seen.target, None)

    def _kinds(self, seen: Seen) -> tuple[str, ...]:
        """Of work, from the widest to the narrowest; what is read and what is not are kinds of their own."""
        task, template = seen.task or UNREAD, seen.template
        if not template:
            return ALL, task
        return ALL, task, template if seen.task is not None else UNREAD + template

    def _teaches(self, seen: Seen) -> bool:
        """It counts for what is expected of others' answers: no tenant alone decides that."""
        tenant = tenant_of(seen.template) or instructed(seen.template)
        if not tenant:
            return True
        mine, every = self._taught[seen.target, tenant], self._taught[seen.target, ALL]
        if 2 * mine > every + MOST_TAUGHT:
            return False
        self._taught[seen.target, tenant] += 1
        self._taught[seen.target, ALL] += 1
        return True

    def _share(self, seen: Seen) -> None:
        """What its template and its application make of an answer, beside what was to be expected of the target."""
        application = application_of(seen.template)
        for name in (seen.template, application) if application else (seen.template,):
            cell = self._cell((ALL, ALL, name))
            if (cell.written.count + 1).bit_count() == 1:  # at first each answer tells much of all targets
                self._recalled.clear()
            wordiness, thought = self.recall(seen.target, (seen.effort, seen.task), lambda: self._plainly(seen))
            if seen.output is not None:
                cell.written.add(max(seen.output - (seen.thinking or 0), 0), max(int(wordiness * seen.read_output), 1))
            expected = int(thought * seen.read_thinking)
            if seen.thinking is not None and expected:
                cell.thought.add(seen.thinking, expected)

    def _plainly(self, seen: Seen) -> tuple[float, float]:
        """`Kind.wordiness` and `Kind.thought` of such work, whatever its template."""
        kind = self.kind(seen.target, seen.effort, seen.task)
        return kind.wordiness(), kind.thought(0.0)

    def overrun(self, target: str) -> None:
        """An attempt cost more than was held: its target's bounds are widened for a while."""
        self._margins[target] = min(MOST_MARGIN, self.margin(target) * OVERRUN)

    def pace(self, target: str) -> Pace:
        """How quick the target was; as a usual one before anything was seen."""
        return self._paces.get(target) or Pace()

    def margin(self, target: str) -> float:
        """Factor on every bound of the target."""
        return max(self._margins.get(target, 1.0), min(MOST_MARGIN, self.billed.get(target, 1.0)))

    def kind(self, target: str, effort: str, task: Work | None, template: str = "") -> Kind:
        """Work of a template leans on all work of its task, and that on all of the target."""
        cells = self._cells
        widest = cells.get((target, effort, ALL))
        known = (widest,) if task is None else (widest, cells.get((target, effort, task)))
        if not template:
            return Kind(known)
        if task == UNREAD:
            return Kind(known, None, cells.get((target, effort, UNREAD + template)))
        shared, own = cells.get((ALL, ALL, template)), cells.get((target, effort, template))
        return Kind(known, shared, own, instructed=bool(instructed(template)))

    def known(self, template: str) -> str:
        """The template, if something was seen of it; else its application; else none."""
        if not template or (ALL, ALL, template) in self._cells:
            return template
        application = application_of(template)
        return application if (ALL, ALL, application) in self._cells else ""

    def recall(self, target: str, key: Hashable, conclude: Callable[[], T]) -> T:
        """What `conclude` makes of all that is known of the target, until enough is new to conclude it again."""
        known = self._recalled.setdefault(target, {})
        found: T | None = known.get(key)
        if found is None:
            if len(known) >= MOST_RECALLED:
                known.clear()
            found = known[key] = conclude()
        return found

    def input(self, target: str, script: str, share: float) -> Ratio:
        """Of the prompts of that script."""
        return self.recall(target, (script, share), lambda: self._ratio((target, script), share))

    def output_bytes(self, target: str) -> float:
        """How few bytes of a stream may be one token of it."""
        window = self._bytes.get(target)
        if window is None:
            return BYTES_PER_OUTPUT_TOKEN
        return leaning(window.lower(SAME), window.count, int(BYTES_PER_OUTPUT_TOKEN * MILLE)) / MILLE

    def ahead(self, target: str) -> int | None:
        """Tokens of a choice that may come, or be on their way, before the next look at a stream.

        None: nothing is known of that yet, or answers come in one piece, so that there is nothing to look at; or they
        run on past their caps, so that each has to be looked at.
        """
        pieces, shares = self._pieces.get(target), self._shares.get(target)
        if pieces is None or target in self._deaf or (shares is not None and shares.upper(HALF) > HALF * MILLE):
            return None
        return max(pieces.upper(SAME), ceil(IN_FLIGHT_MS / self.pace(target).ms_per_token))

    def deaf(self, target: str) -> bool:
        """An answer of it ran on past its cap: no other is trusted to keep to its own."""
        return target in self._deaf

    def mean_output_bytes(self, target: str) -> float:
        """How many bytes of a stream are one token of it, all in all."""
        window = self._bytes.get(target)
        if window is None:
            return MEAN_OUTPUT_BYTES
        return leaning(_mean(window), window.count, int(MEAN_OUTPUT_BYTES * MILLE)) / MILLE

    def most_output_bytes(self, target: str) -> float:
        """How many bytes of a stream may be one token of it: what has more, for its tokens, has more tokens."""
        window = self._bytes.get(target)
        if window is None:
            return MOST_OUTPUT_BYTES
        return leaning(int(window.upper(SAME) * DENSER), window.count, int(MOST_OUTPUT_BYTES * MILLE)) / MILLE

    def _ratio(self, key: tuple[str, str], share: float) -> Ratio:
        window = self._inputs.get(key)
        return _UNSEEN if window is None else Ratio(window.upper(share), _mean(window), window.count)

    def _cell(self, key: tuple[str, str, str]) -> _Cell:
        cell = self._cells.pop(key, None) or _Cell()
        self._cells[key] = cell  # the last one is the one used last
        if len(self._cells) > MOST_CELLS:
            del self._cells[oldest(self._cells, key, lambda known: known[2].removeprefix(UNREAD))]
        return cell

    def _calm(self, target: str) -> None:
        margin = self._margins.get(target)
        if margin is not None:
            self._margins[target] = 1 + (margin - 1) * CALM


def _mean(window: Window) -> int:
    return window.sum // window.count


def leaning(value: int, count: int, prior: int) -> int:
    """What `count` observations say, leaning on the prior."""
    return (value * count + prior * PRIOR_WEIGHT) // (count + PRIOR_WEIGHT)


# For how long a target is busy with a request, once it has begun.


def usual_ms(target: Target, learned: Learned) -> float:
    """Over all that it is asked."""
    pace, kind = learned.pace(target.id), learned.kind(target.id, target.effort or "", None)
    thought = kind.thought(0.0) * USUAL_THINKING
    return pace.first_ms + (kind.wordiness() * USUAL_OUTPUT + thought) * pace.ms_per_token


def takes_ms(step: Candidate, learned: Learned, choices: int) -> tuple[float, float]:
    """With this request, whose choices are written side by side: mean and 90 % quantile, for a length as expected."""
    pace = learned.pace(step.target.id)
    first_ms, written_ms, sd = pace.first_ms, step.estimate.output_tokens / choices * pace.ms_per_token, pace.sd
    return first_ms + written_ms, first_ms + written_ms * exp(Z90 * sd - sd * sd / 2)
