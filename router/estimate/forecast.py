"""Forecasts of all targets of a route at once: what an answer of each costs, how long it takes, its pass rate."""

from collections.abc import Callable, Sequence
from functools import partial
from math import exp, log
from operator import attrgetter
from typing import NamedTuple

import numpy as np
from msgspec import Struct, structs

from router.estimate.caches import COLD, SAME, CachedPrompt, cache_rates, least
from router.estimate.estimate import SizeAsk, bill, fit, outlook, per_choice, sizes, within_reach
from router.estimate.latency import is_measured
from router.estimate.learn import ALL_WORK, TargetStats, Work
from router.estimate.lengths import THINKING, VISIBLE, LengthLaw, law_table
from router.estimate.pass_rate import Index, PassRateModel, deeper
from router.estimate.price import rate_of, terms, units_cost
from router.estimate.tokens import prompts, template
from router.types.account import Amount
from router.types.decision import (
    AS_ASKED,
    UNCOUNTED,
    Z90,
    Candidate,
    Counts,
    Estimate,
    FittedRequest,
    Forecast,
    ForecastRanges,
    Vector,
)
from router.types.price import UNITS_PER_RATE, WORST_CASE
from router.types.request import (
    MEDIA,
    NO_LIMITS,
    USUAL_OUTPUT,
    USUAL_READ,
    USUAL_THINKING,
    Classification,
    Endpoint,
    Request,
    TokensRead,
)
from router.types.target import Queue, Queues, Target, Task

PRIOR_SPREAD = 0.87
"""Standard deviation of the logarithm of output tokens, given the text: a text predicts cost within a factor of 1.8 at
the median (public outcomes with true tokens)."""
LEAST_SPREAD = 0.2
"""Minimum spread: the same prompt twice differs by a factor of 1.13 to 1.17 at the median, more at the tails."""
FRESH_MS = 1_000
"""Time in ms after which what is known of tokens and paces is read again."""
TEMPLATE_FRESH = 10
"""Multiple of `FRESH_MS` after which what is known of a template is read again: there may be hundreds."""
LEAST_PART = 0.03
"""Share of the expected answer below which a cap leaves none; one above may suit a shorter answer than was expected."""
PROMPT_SPREAD = 0.11
"""Standard deviation of the logarithm of a prompt's tokens, given its bytes (`TYPICAL`)."""
CERTAIN = 4
"""Multiple of the expected tokens with room for which an answer fits for certain."""
SURE = 1.1
"""Factor on the chance that an answer fits, limited to 1, so that usual caps change nothing."""
SIZE_STEP = 1.02
"""Factor by which prompts are told apart near or beyond the size at which some rate changes."""
NEAR = 4
"""Maximum ratio of a prompt's tokens to its rough count."""
MOST_KNOWN = 1_024
"""Maximum number of kinds of work cached: efforts, caps and templates are the clients' own."""
_LEAST = 1e-9
_SPREADS = np.array(((PROMPT_SPREAD,), (PRIOR_SPREAD,), (PRIOR_SPREAD,)))
"""Spreads of a prompt, of an answer, and of the least part of it that is useful."""
_Levels = tuple[tuple[str, int | None], ...]
"""Effort and thinking tokens that each target is asked for; empty if as request and policy say."""
_AS_ASKED = ("", None)
_ID = attrgetter("id")
_EMPTY = Queue()
_NO_HOLDS = (Amount(), Amount(), Amount())
NO_QUEUES: Queues = {}


class ForecastInput(Struct, frozen=True):
    """One request, as far as forecasts depend on it."""

    request: Request
    seen: Classification
    at_ms: int = 0
    """Time of the prices (Unix ms)."""
    cached: CachedPrompt = COLD
    counts: Counts = UNCOUNTED
    pieces: Callable[[], int] = lambda: 0
    """Counts the text's tokens in the gateway's own vocabulary."""
    task: Task | None = None
    read: TokensRead = USUAL_READ
    cap: int | None = None
    """Thinking tokens that a choice may have. `task`, `read` and `cap` follow from the request."""

    def __post_init__(self) -> None:
        task, reading = self.seen.task, self.seen.reading
        if reading is not None:
            structs.force_setattr(self, "read", reading.tokens)
        structs.force_setattr(self, "task", task if reading is not None or task is Task.EMBEDDING else None)
        if self.request.limits is not NO_LIMITS:
            structs.force_setattr(self, "cap", per_choice(self.request, None))


class _WorkKey(NamedTuple):
    """What tokens and rates depend on, besides the target. `size`: rough input tokens, if rates depend on them."""

    kind: Work
    effort: str
    cap: int | None
    script: str
    tier: str
    size: int
    asks: int
    """1 for caching, 2 for long caching, 0 for none."""


class _KnownWork(Struct, frozen=True, eq=False):
    """What is known of one kind of work, for some targets. Tokens of one choice, nano-USD per token, times in ms."""

    at_ms: int
    at: Index
    nothing: Vector
    usual: tuple[Vector, Vector]
    """Output and thinking of a choice of a usual request, without caps."""
    usual_answer: tuple[Vector, Vector, Vector]
    """`answer` for `usual`, if the client has no cap."""
    failing: Vector
    sent: Vector
    """Input tokens per token of the rough count."""
    sent_base: Vector
    """Input tokens added to every prompt, those of the target's prompt template included."""
    visible: Vector
    """`law_table` of visible tokens, by those that were read (see `LengthLaw`)."""
    thought: Vector
    """`law_table` of thinking tokens, by the need to think."""
    most_thought: Vector
    most: Vector
    context: Vector
    least: Vector
    """Minimum length in tokens of a prompt that is cached."""
    rate_in: Vector
    rate_read: Vector
    """Rate of input that is read from a cache."""
    rate_write: Vector
    """Rate of other input in a prompt that is cached."""
    fee: Vector
    """Cost of a call besides its tokens, in nano-USD."""
    rate_out: Vector
    rate_more: Vector
    """What thinking costs more than other output."""
    first_ms: Vector
    each_ms: Vector
    low: Vector
    """10 % quantile of the output ÷ its mean; `high` is the 90 % quantile."""
    high: Vector
    slow: Vector
    """90 % quantile of the time ÷ its mean; `slow_each` is that for an output of known length."""
    slow_each: Vector
    thinks: bool = True
    writes: bool = True
    """Whether writing a prompt to a cache costs more or less than sending it, at any of the targets."""

    def answer(self, output: Vector, thinking: Vector, most: Vector) -> tuple[Vector, Vector, Vector]:
        """Returns, for a choice of at most `most` tokens: all output, thinking, and the cost of both."""
        output = np.minimum(output, most)
        if not self.thinks:
            return output, self.nothing, output * self.rate_out
        thinking = np.minimum(thinking, most)
        return output, thinking, output * self.rate_out + thinking * self.rate_more


class _Money(Struct, frozen=True, eq=False):
    """What some targets' answers to one request have and cost, over all of its choices."""

    known: _KnownWork
    whole_prompt: Vector
    """Tokens of the prompt, even beyond the context."""
    cached: Vector
    """Prompt tokens that are read from a cache."""
    most: Vector
    each: Vector
    """Expected output tokens of a choice."""
    fixed: Vector
    out: Vector
    later: tuple[tuple[float, float], Vector] | None
    foretold: tuple[Vector, ...]

    def whole(self, request: Request) -> Vector:
        """Returns the chances that answers are complete: prompt and answer fit into the context, the answer into the
        target's maximum, and thinking with a useful part of the answer into the client's cap. They are 1 with far more
        room than usual."""
        context, prompt, (*_, written, thinking) = self.known.context, self.whole_prompt, self.foretold
        if request.endpoint is Endpoint.EMBEDDINGS:
            return _fits(np.array((prompt,)), context, _SPREADS[:1])
        room = np.minimum(self.known.most, np.maximum(context - prompt, 1.0))
        if request.max_output is None:
            return _fits(np.array((prompt, written)), np.array((context, room)), _SPREADS[:2])
        least = thinking + (written - thinking) * LEAST_PART
        rooms = np.array((context, room, np.minimum(self.known.most, request.max_output)))
        return _fits(np.array((prompt, written, least)), rooms, _SPREADS)

    def ranges(self, p_sd: Callable[[], Vector], targets: Sequence[Target], queues: Queues) -> ForecastRanges:
        """Returns ranges of costs and times, with the wait at each target. A queue of n takes about as long as n draws
        of an exponential distribution: its standard deviation is its mean ÷ √n."""
        known, fixed, out, first_ms = self.known, self.fixed, self.out, self.known.first_ms
        room, written = self.most / np.maximum(self.each, _LEAST), self.each * known.each_ms
        total_ms, slow_ms = first_ms + written, first_ms + written * np.minimum(known.slow, room * known.slow_each)
        if queues:
            queue_of = [queues.get(target.id, _EMPTY) for target in targets]
            wait_ms = np.array([queue.wait_ms for queue in queue_of], dtype=np.float64)
            ahead = np.array([queue.waiting + 1 for queue in queue_of], dtype=np.float64)
            slow = np.hypot(slow_ms - total_ms, Z90 * wait_ms / np.sqrt(ahead))
            first_ms, total_ms = first_ms + wait_ms, total_ms + wait_ms
            slow_ms = total_ms + slow
        dear = fixed + out * np.minimum(known.high, room)
        return ForecastRanges(p_sd(), fixed + out * known.low, dear, first_ms, total_ms, slow_ms)


class Forecaster:
    """Forecasts for one policy's targets. `learned` and `rates` outlive it."""

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
        asked: ForecastInput,
        queues: Queues = NO_QUEUES,
        fits: Sequence[FittedRequest | None] = (),
    ) -> Forecast:
        """Returns the forecast, in the order of `targets`. `fits`: how each is asked (see `afforded`)."""
        request, money = asked.request, self._money(targets, asked, fits)
        known, (*_, usual_out) = money.known, money.known.usual_answer
        if request.max_output is not None or request.endpoint is Endpoint.EMBEDDINGS:
            *_, usual_out = known.answer(*known.usual, money.most)
        if request.choices > 1:
            usual_out = usual_out * request.choices
        rates, usual_p = self._rates.expect(asked.seen, known.at, known.failing), self._rates.usual(known.at)
        room, cost = np.minimum(money.most, known.context - SAME * money.whole_prompt), money.foretold[0]
        if np.count_nonzero(CERTAIN * money.each < room) < len(targets):
            whole = money.whole(request)
            rates, usual_p = rates.times(whole), whole * usual_p
        return Forecast(
            p=rates.p,
            p_nodes=rates.nodes,
            p_own_sd=rates.own_sd,
            outcomes=rates.outcomes,
            alike=rates.alike,
            cost=cost,
            foretold=money.foretold,
            cached=money.cached,
            weighed_cost=cost,
            usual_p=usual_p,
            usual_cost=money.fixed + usual_out,
            later=money.later,
            ranges=partial(money.ranges, rates.sd, targets, queues),
        )

    def estimates(
        self,
        targets: Sequence[Target],
        asked: ForecastInput,
        fits: Sequence[FittedRequest | None] = (),
        holds: bool = True,
        foretold: Sequence[Vector] | None = None,
    ) -> list[Estimate]:
        """Returns the estimate of each target. `fits`: how each is asked (see `afforded`); `foretold`: columns that
        they were chosen by. Without `holds` the maximum costs are left out, which are most of the work."""
        if not targets:
            return []
        columns = self._money(targets, asked, fits).foretold if foretold is None else foretold
        expected = list(zip(*map(np.ndarray.tolist, columns), strict=True))
        request, learned, at_ms, script = asked.request, self.learned, asked.at_ms, asked.request.script
        work, widened = (
            learned.work(asked.task, asked.seen.template, asked.read.stated),
            learned.margins or learned.billed,
        )
        made = [fitted or AS_ASKED for fitted in fits] if fits else [AS_ASKED] * len(targets)
        asks, inputs, estimated = list[SizeAsk](), [], []
        for target, fitted, (*_, output, thinking) in zip(targets, made, expected, strict=True):
            effort = fitted.effort or target.effort or request.effort or ""
            key = effort, work, fitted.thinking_budget or asked.cap, script
            rung, known, size = learned.recall(target, key, outlook, target, learned, *key)
            margin = learned.margin(target.id) if widened else 1.0
            asks.append((target, rung, known, margin, fitted.max_output, (output - thinking, thinking)))
            inputs.append((target, size, margin))
        sent = prompts(request, inputs, asked.counts, asked.pieces)
        rows = zip(asks, made, sizes(request, asks), sent, expected, strict=True)
        for (target, rung, *_), fitted, figures, (rough, tokens_in, bound), (cost, output, thinking, *_) in rows:
            least, tight, whole = bill(target, request, bound, at_ms).amounts(*figures.holds) if holds else _NO_HOLDS
            estimated.append(
                Estimate(
                    input_tokens=tokens_in,
                    input_bound=bound,
                    input_rough=rough,
                    output_tokens=round(output),
                    thinking_tokens=round(thinking),
                    max_output=figures.most,
                    cost=round(cost),
                    hold=whole.usd,
                    least=least,
                    tight=tight,
                    whole=whole,
                    effort=rung.effort,
                    thinking_budget=fitted.thinking_budget,
                    cap=fitted.max_output,
                    lowered=fitted.lowered,
                    metered=figures.metered,
                    blind=figures.blind,
                    at_ms=at_ms,
                    task=asked.task,
                    template=asked.seen.template,
                    read=asked.read,
                    script=script,
                )
            )
        return estimated

    def afforded(
        self, targets: Sequence[Target], asked: ForecastInput, limit: Amount, thinking_cap: int | None
    ) -> list[FittedRequest | None]:
        """Returns how each target would be asked so that `limit` pays for it; None if nothing fits (see `fit`)."""
        fits: list[FittedRequest | None] = []
        for step in map(Candidate, targets, self.estimates(targets, asked)):
            if thinking_cap is None and step.estimate.whole.beyond(limit) == Amount():
                fits.append(AS_ASKED)
            else:
                made = fit(step, asked.request, limit, self.learned, thinking_cap)
                fits.append(None if made is None else within_reach(step, asked.request, made, limit))
        return fits

    def _money(self, targets: Sequence[Target], asked: ForecastInput, fits: Sequence[FittedRequest | None]) -> _Money:
        request, choices, read, known = asked.request, asked.request.choices, asked.read, self._of(targets, asked, fits)
        most, (as_read, thoughts), answer = known.most, known.usual, known.usual_answer
        if read is not USUAL_READ:
            as_read = VISIBLE.each(known.visible, read.visible)
            if known.thinks:
                thoughts = np.minimum(THINKING.each(known.thought, read.thinking), known.most_thought)
                as_read = as_read + thoughts
        cap = 0 if request.endpoint is Endpoint.EMBEDDINGS else request.max_output
        if cap is not None:
            most = np.minimum(most, cap)
        if cap is not None or read is not USUAL_READ:
            answer = known.answer(as_read, thoughts, most)
        each, thinking, out = answer
        if asked.counts or request.script.endswith(MEDIA):
            learned = [(row, self.learned.input(row, request.script), 1.0) for row in targets]
            sizes = prompts(request, learned, asked.counts)
            whole_prompt = np.array([size.tokens for size in sizes], dtype=np.float64)
        else:
            whole_prompt = np.maximum(known.sent * float(request.rough_tokens) + known.sent_base, 0.0)
        sent, later = np.minimum(whole_prompt, known.context), None
        if asked.cached is COLD and not known.writes:
            cached, fixed = known.nothing, sent * known.rate_in + known.fee
        else:
            cached, fixed, later = _input(known, asked.cached, targets, sent)
        output = each
        if choices > 1:
            output, thinking, out = each * choices, thinking * choices, out * choices
        foretold = (fixed + out, output, thinking, as_read, thoughts)
        return _Money(known, whole_prompt, cached, most, each, fixed, out, later, foretold)

    def _of(self, targets: Sequence[Target], asked: ForecastInput, fits: Sequence[FittedRequest | None]) -> _KnownWork:
        request, at_ms = asked.request, asked.at_ms
        levels = tuple([(row.effort or "", row.thinking_budget) if row else _AS_ASKED for row in fits]) if fits else ()
        asks = int(request.caches) + int(request.caches_long)
        # Rounded; 0 if the prompt is too short for any rate to change. Without images and audio.
        steps, size, rough = self._steps, 0, request.rough_tokens
        if steps and rough * NEAR > steps[0]:
            size = round(SIZE_STEP ** round(log(min(rough, steps[-1] * NEAR), SIZE_STEP)))
        kind = self.learned.work(asked.task, asked.seen.template, asked.read.stated)
        work = _WorkKey(kind, request.effort or "", asked.cap, request.script, request.service_tier, size, asks)
        key = (work, tuple(map(_ID, targets)), levels)
        known = self._known.get(key)
        fresh_ms = self._fresh_ms * (TEMPLATE_FRESH if work.kind.template else 1)
        if known is None or at_ms // fresh_ms != known.at_ms // fresh_ms:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            known = self._known[key] = self._look(targets, work, at_ms, levels)
        if fits:
            most = np.minimum(known.most, [made.max_output or np.inf if made else np.inf for made in fits])
            known = structs.replace(known, most=most, usual_answer=known.answer(*known.usual, most))
        return known

    def _look(self, targets: Sequence[Target], work: _WorkKey, at_ms: int, levels: _Levels) -> _KnownWork:
        rows = [self._row(*row, work, at_ms) for row in zip(targets, levels or [_AS_ASKED] * len(targets), strict=True)]
        numbers, visible_laws, thought_laws = zip(*rows, strict=True)
        thinking, sent, base, own, most_thought, *columns, each_sd = np.array(numbers, dtype=np.float64).T
        visible, thought = law_table(visible_laws), law_table(thought_laws)
        words = VISIBLE.each(visible, USUAL_READ.visible)
        thoughts = np.minimum(THINKING.each(thought, USUAL_READ.thinking), most_thought)
        # Weighted by tokens, as either may be nearly all of an answer.
        excess = np.array([[law.excess for law in laws] for laws in (visible_laws, thought_laws)])
        excess = (words * excess[0] + thoughts * excess[1]) / (words + thoughts)
        spread = np.minimum(np.maximum(np.sqrt(2 * excess), LEAST_SPREAD), Z90)
        slow = np.minimum(np.hypot(spread, each_sd), Z90)
        # Quantiles of lognormals of mean 1.
        quantiles = ((spread, -Z90), (spread, Z90), (slow, Z90), (each_sd, Z90))
        columns += [np.exp(z * sd - sd * sd / 2) for sd, z in quantiles]
        at = np.array([self._at[target.id] for target in targets], dtype=np.intp)
        nothing, usual = np.zeros(len(at)), (words + thoughts, thoughts)
        tokens = self._rates.failing(at, thinking), sent, base + sent * own, visible, thought, most_thought
        known = _KnownWork(at_ms, at, nothing, usual, (nothing, nothing, nothing), *tokens, *columns)
        thinks, writes = bool(most_thought.any()), bool((known.rate_write != known.rate_in).any())
        return structs.replace(known, usual_answer=known.answer(*usual, known.most), thinks=thinks, writes=writes)

    def _row(
        self, target: Target, level: tuple[str, int | None], work: _WorkKey, at_ms: int
    ) -> tuple[tuple[float, ...], LengthLaw, LengthLaw]:
        learned, kind, model = self.learned, work.kind, target.model
        effort, cap = level[0] or target.effort or work.effort, work.cap if level[1] is None else level[1]
        rung, known, (sent, *_) = outlook(target, learned, effort, kind, cap, work.script)
        pace = learned.pace(target.id)
        tokens = (*sent, template(target), known.most_thought, model.max_output, model.context, least(model.name))
        rates = self._rates_of(target, work, int(sent.tokens(work.size)), at_ms)
        numbers = (deeper(target, rung.effort), *tokens, *rates, pace.first_ms, pace.ms_per_token, pace.sd)
        return numbers, known.visible, known.thought

    def _rates_of(self, target: Target, work: _WorkKey, size: int, at_ms: int) -> tuple[float, ...]:
        """Returns rates in nano-USD per token: input; read from a cache; written to one; then the cost of a call
        besides tokens; then output, and what thinking costs more.

        A local target costs what its machine does, shared by all that it writes meanwhile, until a price is measured.
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


def _fits(tokens: Vector, rooms: Vector, spreads: Vector) -> Vector:
    """Returns [T]: chance that no lognormal number with these means [n, T] is above its room. A logistic curve replaces
    the normal one."""
    far = np.log(np.maximum(rooms, 1.0) / np.maximum(tokens, 1.0)) + spreads * spreads / 2
    chances = SURE / (1 + np.exp(far * (-1.702 / spreads)))
    whole: Vector = np.minimum(chances, 1.0).prod(axis=0)
    return whole


def _input(
    known: _KnownWork, cached: CachedPrompt, targets: Sequence[Target], sent: Vector
) -> tuple[Vector, Vector, tuple[tuple[float, float], Vector] | None]:
    """Returns for prompts of `sent` tokens: tokens read from caches, cost of all input, and how much more it costs to
    write than to read it, for later requests. Prompts that are long enough are written unless they are cached."""
    begins = np.array((sent, sent * cached.shared))
    cacheable = (begins >= known.least) & (known.rate_read < known.rate_in)
    reads = np.array([cached.reads.get(target.id, 0.0) for target in targets])
    read = np.where(cacheable[0], np.minimum(reads, sent), 0.0)
    rate_new = np.where(sent >= known.least, known.rate_write, known.rate_in)
    fixed = read * known.rate_read + (sent - read) * rate_new + known.fee
    written = np.where(cacheable, np.maximum(begins - read, 0.0) * (rate_new - known.rate_read), 0.0)
    return read, fixed, (cached.later, written) if any(cached.later) else None


# For how long a target is busy with a request, once it has begun.


def usual_ms(target: Target, learned: TargetStats) -> float:
    """Returns the mean in ms over all requests."""
    pace, (visible, thought) = learned.pace(target.id), learned.laws((target.id, target.effort or ""), ALL_WORK, 0.0)
    tokens = VISIBLE.tokens(visible, USUAL_OUTPUT) + THINKING.tokens(thought, USUAL_THINKING)
    return pace.first_ms + tokens * pace.ms_per_token


def takes_ms(step: Candidate, learned: TargetStats, choices: int) -> tuple[float, float]:
    """Returns mean and 90 % quantile in ms, at the expected length. Choices are written side by side."""
    pace = learned.pace(step.target.id)
    first_ms, written_ms, sd = pace.first_ms, step.estimate.output_tokens / choices * pace.ms_per_token, pace.sd
    return first_ms + written_ms, first_ms + written_ms * exp(Z90 * sd - sd * sd / 2)
