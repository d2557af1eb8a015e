"""All targets of a route at once: what an answer of each would cost, how long it takes, how likely it is right."""

from collections.abc import Callable, Sequence
from functools import partial
from math import exp, log, sqrt
from operator import attrgetter
from typing import NamedTuple

import numpy as np
from msgspec import Struct, structs

from router.estimate.caches import COLD, SAME, CachedPrompt, cache_rates, least
from router.estimate.estimate import outlook
from router.estimate.latency import is_measured
from router.estimate.learn import ALL_WORK, TargetStats, Work
from router.estimate.lengths import THINKING, VISIBLE, LengthLaw, law_table
from router.estimate.pass_rate import Index, PassRateModel, deeper
from router.estimate.price import rate_of, terms, units_cost
from router.estimate.tokens import prompts, template
from router.types.decision import Z90, Candidate, FittedRequest, Forecast, ForecastRanges, Vector
from router.types.price import UNITS_PER_RATE, WORST_CASE
from router.types.request import (
    MEDIA,
    USUAL_OUTPUT,
    USUAL_READ,
    USUAL_THINKING,
    Classification,
    Endpoint,
    Request,
    TokensRead,
)
from router.types.target import Queue, Queues, Target

PRIOR_SPREAD = 0.87
"""Standard deviation of the logarithm of output tokens, given the text: a text predicts cost within a factor of 1.8 at
the median (public outcomes with true tokens)."""
LEAST_SPREAD = 0.2
"""The same prompt twice: a factor of 1.13 to 1.17 at the median, more at the tails."""
FRESH_MS = 1_000
"""What is known of tokens and paces is read again after so long …"""
TEMPLATE_FRESH = 10
"""… and of a template after so many times as long: there may be hundreds."""
LEAST_PART = 0.03
"""Of the answer that is expected: a cap below it leaves none; one above may be for a shorter answer than was read."""
PROMPT_SPREAD = 0.11
"""Standard deviation of the logarithm of a prompt's tokens, given its bytes (`TYPICAL`)."""
CERTAIN = 4
"""Times the tokens that are expected: an answer with room for so many fits."""
SURE = 1.1
"""A chance above one over it is none: a usual cap changes nothing."""
SIZE_STEP = 1.02
"""Prompts near or beyond the size at which some rate changes are told apart by this factor."""
NEAR = 4
"""A prompt may have so many times the tokens of its rough count."""
MOST_KNOWN = 1_024
"""Kinds of work remembered: efforts, caps and templates are the clients' own."""
_LEAST = 1e-9
_SPREADS = np.array(((PROMPT_SPREAD,), (PRIOR_SPREAD,), (PRIOR_SPREAD,)))
"""Of a prompt, of an answer, and of what of it is worth something."""
_Levels = tuple[tuple[str, int | None], ...]
"""Effort and thinking tokens that each target is asked for; none: as request and policy say."""
_AS_ASKED = ("", None)
_ID = attrgetter("id")
_EMPTY = Queue()
NO_QUEUES: Queues = {}


class _WorkKey(NamedTuple):
    """What tokens and rates hang on, besides the target. `size`: rough input tokens, where rates hang on them."""

    kind: Work
    effort: str
    cap: int | None
    script: str
    tier: str
    size: int
    asks: int
    """For caching: 1, 2 for long."""


class _KnownWork(Struct, frozen=True, eq=False):
    """Of one kind of work, for some targets. Tokens of one choice, money in nano-USD per token, times in ms."""

    at_ms: int
    at: Index
    """Among all targets."""
    nothing: Vector
    """Zeros."""
    usual: tuple[Vector, Vector]
    """Output and thinking of a usual request, whatever its caps …"""
    usual_out: Vector
    """… and what a choice of that costs, where the client has no cap."""
    failing: Vector
    """See `PassRateModel.failing`."""
    sent: Vector
    """Input tokens for each of the rough count …"""
    sent_base: Vector
    """… and whatever that is, those of its template among them."""
    visible: Vector
    """`law_table` of visible tokens, by those that were read …"""
    thought: Vector
    """… and of thinking tokens by the need to think …"""
    most_thought: Vector
    """… and at most."""
    most: Vector
    context: Vector
    least: Vector
    """Tokens of a prompt from which on it is kept."""
    rate_in: Vector
    rate_read: Vector
    """Of input that is read from a cache …"""
    rate_write: Vector
    """… and of what is not, of a prompt that is kept."""
    fee: Vector
    """Of a call, beside its tokens."""
    rate_out: Vector
    rate_more: Vector
    """By which thinking is dearer than other output."""
    first_ms: Vector
    each_ms: Vector
    low: Vector
    """Quantiles of the output, ÷ its mean: 10 %, 90 % …"""
    high: Vector
    slow: Vector
    """… of its time, 90 %; and of that for an output whose length is known."""
    slow_each: Vector
    thinks: bool = True
    """Any of them does."""
    writes: bool = True
    """To write a prompt to a cache costs more, or less, than to send it, at any of them."""


class Forecaster:
    """Of one policy's targets. `learned` and `rates` outlive it."""

    def __init__(
        self, targets: Sequence[Target], learned: TargetStats, rates: PassRateModel, fresh_ms: int = FRESH_MS
    ) -> None:
        self._targets, self.learned, self._rates, self._fresh_ms = tuple(targets), learned, rates, fresh_ms
        self._at = {target.id: at for at, target in enumerate(self._targets)}
        rules = [rule for target in self._targets for rule in (target.model.price.rules if target.model.price else ())]
        self._steps = sorted({rule.above for rule in rules if rule.above})
        self._known: dict[tuple[_WorkKey, tuple[str, ...], _Levels], _KnownWork] = {}

    def forecast(
        self,
        targets: Sequence[Target],
        request: Request,
        seen: Classification,
        at_ms: int,
        cap: int | None = None,
        cached: CachedPrompt = COLD,
        queues: Queues = NO_QUEUES,
        fits: Sequence[FittedRequest | None] = (),
    ) -> Forecast:
        """In the order of `targets`. `cap`: thinking tokens of each choice; `at_ms`: when the prices are those of;
        `cached`: tokens of the prompt that targets may have cached; `fits`: how each is asked (`estimate.afforded`)."""
        read = USUAL_READ if seen.reading is None else seen.reading.tokens
        known = self._of(targets, request, seen, cap, at_ms, read.stated, fits)
        choices, cap_of_client = request.choices, 0 if request.endpoint is Endpoint.EMBEDDINGS else request.max_output
        bound, usual_out, (output, thoughts) = known.most, known.usual_out, _tokens(known, read)
        if cap_of_client is not None:
            bound = np.minimum(bound, cap_of_client)
            *_, usual_out = _answer(known, *known.usual, bound)
        each, thinking, out = _answer(known, output, thoughts, bound)
        if request.script.endswith(MEDIA):
            learned = [(row, self.learned.input(row.id, request.script), 1.0) for row in targets]
            whole_prompt = np.array([size.tokens for size in prompts(request, learned)], dtype=np.float64)
        else:
            whole_prompt = np.maximum(known.sent * float(request.rough_tokens) + known.sent_base, 0.0)
        sent = np.minimum(whole_prompt, known.context)
        read_tokens, fixed, later = _input(known, cached, targets, sent)
        of_all = each
        if choices > 1:
            out, usual_out, of_all, thinking = (part * choices for part in (out, usual_out, each, thinking))
        (p, nodes, own_sd, outcomes, alike, sd), whole = self._rates.expect(seen, known.at, known.failing), None
        usual_p = self._rates.usual(known.at)
        if np.count_nonzero(CERTAIN * each < np.minimum(bound, known.context - SAME * whole_prompt)) < len(each):
            whole = self._whole(known, request, output, thoughts, whole_prompt)
            p, nodes, own_sd, usual_p = map(whole.__mul__, (p, nodes, own_sd, usual_p))
        return Forecast(
            p=p,
            p_nodes=nodes,
            p_own_sd=own_sd,
            outcomes=outcomes,
            alike=alike,
            cost=fixed + out,
            output=of_all,
            thinking=thinking,
            cached=read_tokens,
            weighed_cost=fixed + out,
            usual_p=usual_p,
            usual_cost=fixed + usual_out,
            later=later,
            ranges=partial(_ranges, known, sd, whole, fixed, out, each, bound, targets, queues),
        )

    def _whole(self, known: _KnownWork, request: Request, written: Vector, thinking: Vector, sent: Vector) -> Vector:
        """Chance that an answer is whole: it fits beside the prompt and below what the target writes at most, and its
        thoughts with a part of it that is worth something below the client's own cap. It is 1 with far more room than
        the usual length."""
        if request.endpoint is Endpoint.EMBEDDINGS:
            return _fits(np.array((sent,)), known.context, _SPREADS[:1])
        room = np.minimum(known.most, np.maximum(known.context - sent, 1.0))
        if request.max_output is None:
            return _fits(np.array((sent, written)), np.array((known.context, room)), _SPREADS[:2])
        least = thinking + (written - thinking) * LEAST_PART
        rooms = np.array((known.context, room, np.minimum(known.most, request.max_output)))
        return _fits(np.array((sent, written, least)), rooms, _SPREADS)

    def _of(
        self,
        targets: Sequence[Target],
        request: Request,
        seen: Classification,
        cap: int | None,
        at_ms: int,
        stated: bool,
        fits: Sequence[FittedRequest | None],
    ) -> _KnownWork:
        made = [(fit.effort or "", fit.thinking_budget) if fit else _AS_ASKED for fit in fits] if fits else ()
        levels = tuple(made)
        asks = int(request.caches) + int(request.caches_long)
        # Rounded; 0 where the prompt is too short for any rate to change. Without pictures and sound.
        steps, size, rough = self._steps, 0, request.rough_tokens
        if steps and rough * NEAR > steps[0]:
            size = round(SIZE_STEP ** round(log(min(rough, steps[-1] * NEAR), SIZE_STEP)))
        asked = request.effort or "", cap, request.script, request.service_tier, size, asks
        work = _WorkKey(self.learned.work(seen.task, seen.template, stated), *asked)
        key = (work, tuple(map(_ID, targets)), levels)
        known = self._known.get(key)
        fresh_ms = self._fresh_ms * (TEMPLATE_FRESH if work.kind.template else 1)
        if known is None or at_ms // fresh_ms != known.at_ms // fresh_ms:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            known = self._known[key] = self._look(targets, work, at_ms, levels)
        if fits:
            most = np.minimum(known.most, [made.max_output or np.inf if made else np.inf for made in fits])
            known = structs.replace(known, most=most, usual_out=_answer(known, *known.usual, most)[2])
        return known

    def _look(self, targets: Sequence[Target], work: _WorkKey, at_ms: int, levels: _Levels) -> _KnownWork:
        rows = [self._row(*row, work, at_ms) for row in zip(targets, levels or [_AS_ASKED] * len(targets), strict=True)]
        numbers, visible, thought = zip(*rows, strict=True)
        thinking, sent, base, own, *columns, spread, each_sd = np.array(numbers, dtype=np.float64).T
        slow = np.minimum(np.hypot(spread, each_sd), Z90)
        # Quantiles of lognormals of mean 1.
        quantiles = ((spread, -Z90), (spread, Z90), (slow, Z90), (each_sd, Z90))
        columns += [np.exp(z * sd - sd * sd / 2) for sd, z in quantiles]
        at = np.array([self._at[target.id] for target in targets], dtype=np.intp)
        nothing = np.zeros(len(at))
        tokens = (self._rates.failing(at, thinking), sent, base + sent * own, law_table(visible), law_table(thought))
        known = _KnownWork(at_ms, at, nothing, (nothing, nothing), nothing, *tokens, *columns)
        thinks, writes = bool(known.most_thought.any()), bool((known.rate_write != known.rate_in).any())
        known = structs.replace(known, thinks=thinks, writes=writes)
        usual = _tokens(known, USUAL_READ)
        return structs.replace(known, usual=usual, usual_out=_answer(known, *usual, known.most)[2])

    def _row(
        self, target: Target, level: tuple[str, int | None], work: _WorkKey, at_ms: int
    ) -> tuple[tuple[float, ...], LengthLaw, LengthLaw]:
        learned, kind, model = self.learned, work.kind, target.model
        asked, cap = level[0] or target.effort or work.effort, level[1] or work.cap
        rung, known, (sent, *_) = outlook(target, learned, asked, kind, cap, work.script)
        pace = learned.pace(target.id)
        tokens = (*sent, template(target), known.most_thought, model.max_output, model.context, least(model.name))
        rates = self._rates_of(target, work, int(sent.tokens(work.size)), at_ms)
        words = VISIBLE.tokens(known.visible, USUAL_READ.visible)
        thoughts = min(THINKING.tokens(known.thought, USUAL_READ.thinking), known.most_thought)
        # Of an answer of which either may be nearly all.
        excess = (words * known.visible.excess + thoughts * known.thought.excess) / (words + thoughts)
        spread = min(max(sqrt(2 * excess), LEAST_SPREAD), Z90)
        numbers = (deeper(target, rung.effort), *tokens, *rates, pace.first_ms, pace.ms_per_token, spread, pace.sd)
        return numbers, known.visible, known.thought

    def _rates_of(self, target: Target, work: _WorkKey, size: int, at_ms: int) -> tuple[float, ...]:
        """nano-USD per token: input, that which is read from a cache, or written, output, and what thinking costs more;
        before output what a call costs beside its tokens.

        What runs here costs what its machine does, shared by all that it writes meanwhile, until that is measured.
        """
        throughput = self.learned.pace(target.id).throughput
        if target.hourly is not None and throughput > 0 and not is_measured(target.model.price):
            each = target.hourly / 3600 / throughput
            return 0.0, 0.0, 0.0, 0.0, each, 0.0
        some = terms(target.served or target.model.price or WORST_CASE, size, work.tier, target.region, at_ms)
        rates, scale = some.rates, 1 / UNITS_PER_RATE * some.over / some.under
        reasoning = rate_of(rates, "reasoning")
        read, write = cache_rates(rates, target.provider.wire, work.asks)
        fee = units_cost(some, target.provider.quirks.units) / UNITS_PER_RATE
        into, out = (rates.input * scale, read * scale, write * scale), rates.output * scale
        return (*into, fee, out, (reasoning - rates.output) * scale)


def _ranges(
    known: _KnownWork,
    sd: Callable[[], Vector],
    whole: Vector | None,
    fixed: Vector,
    out: Vector,
    each: Vector,
    bound: Vector,
    targets: Sequence[Target],
    queues: Queues,
) -> ForecastRanges:
    """Times have what a request waits at each target. A queue of n takes about so long as n draws of an exponential
    distribution: its deviation is its mean ÷ √n."""
    room, written, first_ms, p_sd = bound / np.maximum(each, _LEAST), each * known.each_ms, known.first_ms, sd()
    total_ms, slow_ms = first_ms + written, first_ms + written * np.minimum(known.slow, room * known.slow_each)
    if queues:
        queue_of = [queues.get(target.id, _EMPTY) for target in targets]
        wait_ms = np.array([queue.wait_ms for queue in queue_of], dtype=np.float64)
        ahead = np.array([queue.waiting + 1 for queue in queue_of], dtype=np.float64)
        slow = np.hypot(slow_ms - total_ms, Z90 * wait_ms / np.sqrt(ahead))
        first_ms, total_ms = first_ms + wait_ms, total_ms + wait_ms
        slow_ms = total_ms + slow
    p_sd, dear = p_sd if whole is None else whole * p_sd, fixed + out * np.minimum(known.high, room)
    return ForecastRanges(p_sd, fixed + out * known.low, dear, first_ms, total_ms, slow_ms)


def _tokens(known: _KnownWork, read: TokensRead) -> tuple[Vector, Vector]:
    """Of one choice, whatever its caps: all output (see `LengthLaw`), and thinking."""
    visible = VISIBLE.each(known.visible, read.visible)
    if not known.thinks:
        return visible, known.nothing
    thinking = np.minimum(THINKING.each(known.thought, read.thinking), known.most_thought)
    return visible + thinking, thinking


def _answer(known: _KnownWork, output: Vector, thinking: Vector, most: Vector) -> tuple[Vector, Vector, Vector]:
    """Of one choice that has no more than `most` tokens: all output, thinking, and what they cost."""
    output = np.minimum(output, most)
    if not known.thinks:
        return output, known.nothing, output * known.rate_out
    thinking = np.minimum(thinking, most)
    return output, thinking, output * known.rate_out + thinking * known.rate_more


def _fits(tokens: Vector, rooms: Vector, spreads: Vector) -> Vector:
    """[T]: chance that no lognormal number of these means [n, T] is above its room; the logistic curve stands for the
    normal one."""
    far = np.log(np.maximum(rooms, 1.0) / np.maximum(tokens, 1.0)) + spreads * spreads / 2
    chances = SURE / (1 + np.exp(far * (-1.702 / spreads)))
    whole: Vector = np.minimum(chances, 1.0).prod(axis=0)
    return whole


def _input(
    known: _KnownWork, cached: CachedPrompt, targets: Sequence[Target], sent: Vector
) -> tuple[Vector, Vector, tuple[tuple[float, float], Vector] | None]:
    """Of prompts of `sent` tokens: what is read from caches, what all of it costs, and what of that is for later ones.
    What is long enough to be kept, and is not in the cache yet, is written to it."""
    if cached is COLD and not known.writes:
        return known.nothing, sent * known.rate_in + known.fee, None
    begins = np.array((sent, sent * cached.shared))
    kept = (begins >= known.least) & (known.rate_read < known.rate_in)
    reads = np.array([cached.reads.get(target.id, 0.0) for target in targets])
    read = np.where(kept[0], np.minimum(reads, sent), 0.0)
    rate_new = np.where(sent >= known.least, known.rate_write, known.rate_in)
    fixed = read * known.rate_read + (sent - read) * rate_new + known.fee
    written = np.where(kept, np.maximum(begins - read, 0.0) * (rate_new - known.rate_read), 0.0)
    return read, fixed, (cached.later, written) if any(cached.later) else None


# For how long a target is busy with a request, once it has begun.


def usual_ms(target: Target, learned: TargetStats) -> float:
    """Over all that it is asked."""
    pace, (visible, thought) = learned.pace(target.id), learned.laws((target.id, target.effort or ""), ALL_WORK, 0.0)
    tokens = VISIBLE.tokens(visible, USUAL_OUTPUT) + THINKING.tokens(thought, USUAL_THINKING)
    return pace.first_ms + tokens * pace.ms_per_token


def takes_ms(step: Candidate, learned: TargetStats, choices: int) -> tuple[float, float]:
    """With this request, whose choices are written side by side: mean and 90 % quantile, for a length as expected."""
    pace = learned.pace(step.target.id)
    first_ms, written_ms, sd = pace.first_ms, step.estimate.output_tokens / choices * pace.ms_per_token, pace.sd
    return first_ms + written_ms, first_ms + written_ms * exp(Z90 * sd - sd * sd / 2)
