"""Records one attempt at a target from its start to its charge, including the estimates used where usage is missing."""

from collections.abc import Callable
from contextlib import suppress
from functools import cached_property, partial
from math import ceil, inf
from typing import Any

import msgspec
from msgspec import Raw, structs

from router.decide.health import Health
from router.dispatch.hold import ALONE, CLIENT_GONE, OUTRUN, AttemptOptions, BudgetHold, ReplicaLease
from router.dispatch.meter import PAST_CAP, STOPPED, Meter, apart
from router.estimate.latency import PRIOR_MS_PER_TOKEN
from router.estimate.learn import BOOKED, IN_FLIGHT_MS, MOST_OUTPUT_BYTES
from router.estimate.price import believed, charge
from router.redact.restore import Restorer
from router.types.attempt import (
    CACHED_BESIDE,
    THOUGHT_BESIDE,
    UNREADABLE_USAGE,
    Adapter,
    Attempt,
    AttemptSample,
    Call,
    CountSource,
    ErrorKind,
    Failure,
    OutputText,
    StreamDecoder,
    TargetReply,
    TextBytes,
    UpstreamResponse,
    Usage,
)
from router.types.decision import Candidate, FittedRequest
from router.types.price import Cost, CostSource
from router.types.request import MEDIA as MEDIA_SCRIPT
from router.types.request import Endpoint
from router.types.target import Contract

MAX_REGION = 64
"""Maximum length, in characters, of a provider-stated region that is stored."""
BYTES_PER_TOKEN = 32
"""Upper bound on the mean bytes per token of a whole answer, JSON escapes included; English has about 4."""
IMPLAUSIBLE = 20
"""A reported prompt size below 1/IMPLAUSIBLE of the expected tokens is not believed."""
LOOSER = 2
"""Factor on the largest bytes per token seen at a target: answers in other languages may have more."""
SLACK_BYTES = 512
"""Bytes allowed beyond the per-token bounds, since a short answer may hold e.g. a long run of blanks."""
MORE_PIECES, FEW_PIECES = 1.05, 8
"""Allowed stream events per token (factor and constant): a token may come in two events, and events may be empty."""
DEAF = 1.5
"""An answer whose bytes amount to more than this many times its cap shows that the upstream ignored the cap."""
ENVELOPE, PROBABLE = 1_024, 8_192
"""Maximum bytes of a stream around each token; the same for log probabilities (the token and 20 alternatives)."""
REMARKS, FINDS, MEDIA = 65_536, 2**20, 2**24
"""Bytes of an answer besides its tokens: head, end, signatures; results of the provider's tools; images and audio."""
REPEATS, ECHOES = 4, 3
"""How often a Responses stream may repeat its whole text, and the request."""
FASTEST_MS = 0.25
"""Minimum ms per token before a target's pace is known: the fastest write 4,000 tokens per second."""
UNCOUNTED = "more output than counted"
BYTES_PER_SOUND = 8_192
"""Upper bound on the base64 bytes per token of an image or of audio."""
_MEDIA = ("output_audio", "output_image", "output_video")
_OUTPUT = ("output_visible", "output_reasoning", "reasoning_source", "source")
NO_TEXT = TextBytes()
_PROBABILITIES = {"logprobs", "top_logprobs", "include"}
_NO_INPUT = dict.fromkeys([name for name in Usage.__struct_fields__ if name.startswith(("cache_", "input_"))], 0)


class AttemptRecord:
    """Collects what is learned while an attempt runs; `_done` turns it into an `Attempt`. `clock` returns ms.

    `health` is told how long answers took, and suspends a target that served an answer in a region not its own.
    """

    def __init__(
        self,
        step: Candidate,
        fit: FittedRequest,
        call: Call,
        adapter: Adapter,
        budget: BudgetHold,
        now_ms: int,
        clock: Callable[[], float],
        health: Health,
        lease: ReplicaLease | None,
        restorer: Restorer | None = None,
        options: AttemptOptions = ALONE,
    ) -> None:
        self.step, self.fit, self.call, self._learned, self._health = step, fit, call, budget.learned, health
        self.adapter, self.options, self.restorer, self.lease = adapter, options, restorer, lease
        """`restorer` is set for redacted requests, `lease` for targets with a local engine."""
        self.thinking, self.sent = "none", False
        self.dropped: tuple[str, ...] = ()
        self.meter: Meter | None = None
        """Meter of a stream that is limited by a budget; None for other attempts."""
        self.status: int | None = None
        self._response: UpstreamResponse | None = None
        self.decoder: StreamDecoder | None = None
        """Decoder of a streamed answer, with what has arrived so far; None for an unstreamed one."""
        self.classes: frozenset[str] = frozenset()
        self._region, self._verified = step.target.region, False
        """The region to record, and whether the provider itself stated it."""
        self._started_ms, self._clock, self._start = now_ms, clock, 0.0
        self._first: int | None = None
        self._ended: float | None = None
        """When a whole answer was complete or a stream was closed, by `clock`; None until then."""
        self.budget = budget
        self._span: list[float] | None = None
        """Start and end of the time spent waiting for the target (see `waited_ms`); None before sending."""
        self._cap = (call.max_output or step.estimate.max_output) * call.n
        self._capped = call.max_output is not None or step.estimate.max_output < step.target.model.max_output
        # Some providers' caps do not count thinking tokens (DashScope's, xAI's).
        thinking = step.target.model.thinking
        thinks = thinking.contract is not Contract.NONE
        self._max_output = self._cap + (step.target.model.max_output * call.n if thinks else 0)
        self._billing = max(budget.learned.billed.get(step.target.id, 1.0), 1.0)  # below 1 opens hard budgets
        self._logprob_bytes = PROBABLE * (1 + REPEATS) if call.body.keys() & _PROBABILITIES else 0
        """Allowed bytes of log probabilities per token."""
        self._echo_bytes = len(call.body.get("prompt", b"")) if bytes(call.body.get("echo", b"")) == b"true" else 0
        """Size of the prompt in bytes if the completion repeats it (`echo`), else 0."""
        self._seen_bytes = self._burst = 0.0
        """Bytes of output received so far, and the most that arrived at once."""
        self.received_bytes = self._sent_bytes = self._media_bytes = self._tool_bytes = 0
        self._thought_bytes = self._unread = 0
        """Byte counts: received; sent on to the client; of media; of other parts that no token stands for (see
        `apart`); of thoughts; of output left unread in the socket (estimated)."""
        self._events = 0
        """Number of stream events of the answer, without those of its thoughts."""
        self.stopped = ""
        """Error code that says why the gateway ended the stream; empty if it did not."""
        self._hides_thoughts = thinks and not thinking.streamed and fit.effort != "none"
        self._shows_thoughts = thinks and thinking.streamed

    @cached_property
    def _most_bytes(self) -> tuple[float, float]:
        """Maximum bytes per token: of a stream whose tokens arrive singly; of any other answer."""
        dense = self._learned.most_output_bytes(self.step.target.id)
        unknown = self.meter is None and dense == MOST_OUTPUT_BYTES
        return dense, BYTES_PER_TOKEN if unknown else min(BYTES_PER_TOKEN, LOOSER * max(dense, MOST_OUTPUT_BYTES))

    def arrived(self, *, whole: bool = False) -> None:
        """Notes that the first bytes of an answer, or (`whole`) all of an unstreamed one, have arrived."""
        came = None if self._response is None or not whole else self._response.arrived_ms
        now = self._clock() if came is None else came
        self._first = int(now - self._start)
        if self.options.race is not None:
            self.options.race.begun = True
        if whole:
            self._ended = now

    def fed(self, data: bytes, events: bytes, before: int) -> None:
        """Notes that the decoder turned `data` into `events`. `before`: bytes of output decoded until then."""
        self.received_bytes += len(data)
        self._sent_bytes += len(events)
        if len(events) > ENVELOPE:
            self._set_apart(events)
        if self.decoder is not None:
            size = self.decoder.output_chars
            come = size + self.unread if self._response is not None and self._response.buffered else size
            self._burst, self._seen_bytes = max(self._burst, come - self._seen_bytes), max(self._seen_bytes, come)
            if not self.decoder.has_answer:
                self._thought_bytes = size
            elif size > before:
                self._events += events.count(b"\n\n")

    @property
    def unread(self) -> float:
        """Estimated bytes of output that have arrived and are not decoded yet."""
        buffered = 0 if self._response is None else self._response.buffered
        decoded = 0 if self.decoder is None else self.decoder.output_chars
        return buffered * decoded / max(1, self.received_bytes)

    def _set_apart(self, events: bytes) -> None:
        for event in events.split(b"\n\n"):
            if len(event) > ENVELOPE:
                media, tools = apart(event.partition(b"data: ")[2])
                self._media_bytes += media
                self._tool_bytes += tools

    def past_cap(self, decoder: StreamDecoder) -> bool:
        """Returns whether the stream exceeds its cap: more events and bytes than the cap's tokens allow, or more bytes
        than any tokens up to the cap can have, wherever they stand in the events."""
        size, (dense, most) = decoder.output_chars, self._most_bytes
        allowed = self._max_output * (BYTES_PER_TOKEN + ENVELOPE) + REMARKS
        more = self.received_bytes - allowed - self.step.target.max_event_bytes
        return (
            (self._events > MORE_PIECES * self._cap + FEW_PIECES and size - self._thought_bytes > self._cap * dense)
            or size > self._max_output * most + (SLACK_BYTES if self.meter is None else 0)
            or (self._sent_bytes > allowed and self._excess_bytes(decoder, self._max_output) > 0)
            or (more > 0 and more > self._accompanying(self._media_bytes, self._tool_bytes, self._max_output))
        )

    def _accompanying(self, media: int, found: int, tokens: int) -> int:
        """Returns how many of these bytes may accompany `tokens` tokens of output."""
        return min(media, MEDIA + tokens * BYTES_PER_SOUND) + min(found, FINDS + tokens * self._logprob_bytes)

    def _excess_bytes(self, decoder: StreamDecoder, tokens: int) -> int:
        """Returns how many bytes of the stream can't be explained by `tokens` tokens of output."""
        allowed = tokens * (BYTES_PER_TOKEN + ENVELOPE) + REMARKS + self._echo_bytes
        allowed += self._accompanying(self._media_bytes, self._tool_bytes, tokens)
        if self.call.endpoint is Endpoint.RESPONSES:
            allowed += REPEATS * decoder.output_chars + ECHOES * sum(map(len, self.call.body.values()))
        return max(0, self._sent_bytes - allowed)

    def leaves(self, classes: frozenset[str]) -> None:
        """Notes that sending starts: from now on it takes time and may be charged. `classes`: of what is sent."""
        self.sent, self.classes, self._start = True, classes, self._clock()
        self._span = [self._start, inf]
        self.budget.waits.append(self._span)

    def opened(self, response: UpstreamResponse) -> None:
        """Notes status and headers; takes the region from a header if the target's terms name one ("header:NAME")."""
        self.status, self._response = response.status, response
        kind, _, name = self.step.target.terms.verify.partition(":")
        if kind == "header" and (stated := response.headers.get(name.lower(), "").strip()):
            self._set_region(stated)

    def locate(self, stated: str) -> None:
        """Notes the region that the answer states (`stated`); empty if it states none, or none yet."""
        if stated and self.step.target.terms.verify.startswith("usage."):
            self._set_region(stated)

    def _set_region(self, stated: str) -> None:
        own = self.step.target.region
        same = stated.casefold() == own.casefold()
        self._region, self._verified = own if same else stated[:MAX_REGION], bool(own)
        if own and self._region != own:
            self._health.suspend(self.step.target.id)

    def answered(self, reply: TargetReply) -> Attempt:
        if reply.region_served:
            self.locate(reply.region_served)
        embeds = self.call.endpoint is Endpoint.EMBEDDINGS
        usage, size = reply.usage, 0 if embeds else sum(map(len, reply.body.values()))
        self.received_bytes = size
        if usage is None or usage.source is CountSource.UNKNOWN:
            text = _text(reply)
            estimated = self._estimated(sum(text) or size, left=False, finish=reply.finish_reason, text=text)
            usage = self._with_input(estimated, usage, size)
        else:
            chars = max(len(reply.text) - self._echo_bytes, 0)
            credible = partial(_credible, usage, chars, reply.has_answer)
            if not (embeds or credible(size) or credible(self._written(reply.body, usage.totals.output))):
                written = max(chars, self._written(reply.body, usage.totals.output)) or size
                usage = self._recounted(usage, written, _text(reply))
            usage = self._bounded(usage, size)
        return self._done("ok", usage, reply.finish_reason, reply.model_served, reply.has_answer)

    def streamed(self, decoder: StreamDecoder, error: str = "") -> Attempt:
        """Ends the attempt of a stream. `error`: what broke it; empty if it ended or the gateway stopped it.

        After a break only what arrived is charged, else (stop, disconnect, timeout) also what may have come later.
        """
        left = bool(self.stopped) or error in (CLIENT_GONE, OUTRUN)
        goes_on = error in (CLIENT_GONE, OUTRUN, ErrorKind.TIMEOUT) and self.step.target.reads_on[self.call.stream]
        if left and not decoder.complete:
            self.read_rest(decoder)
            left = not decoder.complete
        self.locate(decoder.region_served)
        counted, goes_on = decoder.usage, goes_on and not decoder.finished
        if self.call.endpoint is Endpoint.RESPONSES and decoder.complete:
            last = decoder.final(b"null")
            self._sent_bytes += len(last)
            self._set_apart(last)
        tokens = self._cap if counted is None else counted.totals.output
        size = max(0, decoder.output_chars + self._unread - self._echo_bytes)
        size += self._excess_bytes(decoder, max(tokens, size))
        if counted is None or counted.source is CountSource.UNKNOWN:
            text = decoder.text.sizes()
            estimated = self._estimated(size, left=left, goes_on=goes_on, finish=decoder.finish_reason, text=text)
            usage = self._with_input(estimated, counted, size)
        elif not (left or goes_on) and (
            decoder.finished or (not self._hides_thoughts and 2 * counted.totals.output >= size / self._mean_bytes)
        ):
            credible = _credible(counted, decoder.output_chars - self._echo_bytes, decoder.has_answer, size)
            usage = self._bounded(counted if credible else self._recounted(counted, size, decoder.text.sizes()), size)
        else:
            # A running count: its output is as estimated, where that is more.
            estimated = self._estimated(size, left=left, goes_on=goes_on)
            more = estimated if estimated.totals.output > counted.totals.output else counted
            usage = self._with_input(more, counted, size)
        finish = "length" if self.stopped else decoder.finish_reason
        return self._done(error or "ok", usage, finish, decoder.model_served, decoder.has_answer)

    def cut(self) -> None:
        """Closes the response and stops the clock, so that later waiting adds nothing to the charge."""
        if self._response is not None and self._ended is None:
            self._response.close()
            self._ended = self._clock()

    def read_rest(self, decoder: StreamDecoder) -> bytes:
        """Closes the connection of a stream that ends here. Returns the events of what had arrived unread, which was
        written and is billed; empty on later calls."""
        self.cut()
        events, response, self._response = b"", self._response, None
        if response is not None:
            unread, waiting = response.unread()
            with suppress(Exception):  # what can't be read can't be counted
                # Line by line if the stream shows its thoughts, to find where they end.
                by_line = self._shows_thoughts and not decoder.has_answer
                for piece in unread.splitlines(keepends=True) if by_line else (unread,):
                    events += decoder.feed(piece)
                    self._thought_bytes = self._thought_bytes if decoder.has_answer else decoder.output_chars
            self._events += events.count(b"\n\n")
            self._unread += waiting * decoder.output_chars // max(1, self.received_bytes + len(unread))
            if not decoder.has_answer:
                self._thought_bytes += self._unread
            if unread and self.meter is not None:
                self.meter.due(decoder, 0.0)
        return events

    def failed(self, failure: Failure) -> Attempt:
        """Ends a failed attempt. Output that may have been produced is charged; refusals are not."""
        decoder = self.decoder
        if decoder is not None and (decoder.output_chars or decoder.usage is not None):
            return self.streamed(decoder, failure.kind)
        late = failure.kind is ErrorKind.TIMEOUT
        refused = failure.status is not None or (self.status or 200) >= 400
        response, broken = self._response, failure.kind in (ErrorKind.BAD_RESPONSE, ErrorKind.CUT)
        unread = broken and response is not None and "json" in response.headers.get("content-type", "")
        silent = (late or unread or self.recovered) and not refused and self.sent
        if late and silent and self.step.target.engine is None:
            took, expected = self._elapsed(), self.step.estimate.output_tokens
            self._health.took(self.step.target.id, took, took if self.call.stream else None, expected, at_least=True)
        # A provider that is down writes nothing, so don't assume the fastest pace unless thoughts are hidden.
        prior_ms = FASTEST_MS if self._hides_thoughts or unread else PRIOR_MS_PER_TOKEN
        return self._done(failure.kind, self._unfinished(prior_ms) if silent else None)

    def abandoned(self, outcome: str, *, reads_on: bool = False) -> Attempt:
        """Ends an attempt whose client left or that lost a race. Charges what the upstream had read and written by
        then; with `reads_on` that is an estimate until the rest is known."""
        if self.decoder is None:
            return self._done(outcome, self._unfinished(FASTEST_MS) if self.sent else None)
        return structs.replace(self.streamed(self.decoder, ErrorKind.TIMEOUT if reads_on else outcome), outcome=outcome)

    @property
    def recovered(self) -> bool:
        """Whether other processes may have charged the hold while this process was paused."""
        return self.budget.presence.lost_since(self._started_ms)

    def _written(self, body: dict[str, Raw], tokens: int) -> int:
        """Returns the bytes of text in an answer, without media, log probabilities and the JSON around them."""
        name = "output" if self.call.endpoint is Endpoint.RESPONSES else "choices"
        text, rest = body.get(name, Raw(b"")), msgspec.json.encode({**body, name: None})
        beside = len(rest) - REMARKS - self._accompanying(*apart(rest), tokens)
        if self.call.endpoint is Endpoint.RESPONSES:
            beside -= sum(map(len, self.call.body.values()))
        size = len(text) - self._accompanying(*apart(bytes(text)), tokens) - self._echo_bytes
        return max(0, size - ENVELOPE * self.call.n) + max(0, beside)

    def _recounted(self, counted: Usage, size: int, text: TextBytes) -> Usage:
        """Replaces the output counts of a report that can't account for all that arrived by an estimate from its size.
        Keeps the reported thinking tokens and input."""
        estimated = self._estimated(size, left=False)
        if thoughts := counted.output_reasoning:
            most = max(self._tokens_of(size), ceil(self._learned.most_tokens(self.step.target.id, text, BOOKED)))
            estimated = structs.replace(
                estimated,
                output_visible=estimated.output_visible if self._shows_thoughts else most,
                output_reasoning=max(thoughts, estimated.output_reasoning or 0),
                reasoning_source=counted.reasoning_source,
            )
        read = counted.input_uncached if counted.totals.input else estimated.input_uncached
        changes = {"input_uncached": read, "violations": (*counted.violations, UNCOUNTED), "provider_cost": None}
        return structs.replace(counted, **{name: getattr(estimated, name) for name in _OUTPUT}, **changes)

    def _with_input(self, usage: Usage, counted: Usage | None, size: int) -> Usage:
        """Returns the output of `usage` with what the provider counted beside it, where that is known."""
        if counted is None:
            return usage
        return self._bounded(structs.replace(counted, **{name: getattr(usage, name) for name in _OUTPUT}), size)

    def _bounded(self, counted: Usage, size: int) -> Usage:
        """Bounds implausible counts: output by the cap or one token per byte received; input by the context window, or
        by the estimate if it is too small; contradictory reports by the cap and the input that were sent."""
        estimate, model, violations = self.step.estimate, self.step.target.model, list(counted.violations)
        read, output = counted.totals.input, counted.totals.output
        most = max(self._cap, counted.output_visible) if THOUGHT_BESIDE in violations else max(self._max_output, size)
        most_read = max(0 if CACHED_BESIDE in violations else model.context, estimate.input_bound)
        few = IMPLAUSIBLE * read < estimate.input_tokens and not estimate.script.endswith(MEDIA_SCRIPT)
        changes: dict[str, Any] = {}
        if counted.output_audio or counted.output_image or counted.output_video:
            most = max(most, self.received_bytes, model.max_output * self.call.n)
        if output > most:
            violations.append(f"{output} output tokens reported")
            changes |= dict.fromkeys(_MEDIA, 0) | self._output_fields(most, size)
        if read > most_read:
            violations.append(f"{read} input tokens reported")
            changes |= {**_NO_INPUT, "input_uncached": estimate.input_bound}
        elif few and (output or UNREADABLE_USAGE in violations):
            violations.append(f"{read or 'no'} input tokens reported")
            changes |= {**_NO_INPUT, "input_uncached": estimate.input_tokens}
        if not changes:
            return counted
        changes |= {"violations": tuple(violations), "source": CountSource.ESTIMATED, "provider_cost": None}
        return structs.replace(counted, **changes)

    def _output_fields(self, output: int, size: int) -> dict[str, Any]:
        """Returns usage fields for `output` tokens, split by the share of bytes that were shown as thoughts."""
        if not self._shows_thoughts or not size:
            return {"output_visible": output, "output_reasoning": None, "reasoning_source": CountSource.UNKNOWN}
        thoughts, source = output * self._thought_bytes // size, CountSource.ESTIMATED
        return {"output_visible": output - thoughts, "output_reasoning": thoughts, "reasoning_source": source}

    def _estimated(
        self, size: int, *, left: bool, goes_on: bool = False, finish: str = "", text: TextBytes = NO_TEXT
    ) -> Usage:
        """Estimates the usage of `size` bytes without a report. `left`: more may have been written than arrived;
        `goes_on`: it is written to its end; `finish`: "length" if the cap was reached."""
        reached = self._capped and finish == "length" and not left
        output = self._late_tokens(size) if left else self._tokens_of(size)
        if not left:
            most = ceil(self._learned.most_tokens(self.step.target.id, text, BOOKED))
            output = max(output, most if output > self._cap else min(most, self._cap))
        if self._hides_thoughts or goes_on or reached:
            output = max(output, self._cap if reached else self._unseen_tokens(FASTEST_MS))
        if self.stopped == PAST_CAP:
            output = max(output, self._cap, ceil(size / self._mean_bytes + self._cap / max(1, self._events)))
        return self._estimate_of(output, size)

    def _unfinished(self, prior_ms: float) -> Usage:
        """Estimates the usage of an attempt of which nothing has arrived: output that is hidden, unstreamed or billed
        to its end may have been written anyway."""
        target, streamed = self.step.target, self.call.stream
        blind = self._hides_thoughts or not streamed or target.reads_on[True] or self._learned.ahead(target.id) is None
        return self._estimate_of(self._unseen_tokens(prior_ms) if blind else 0, 0)

    def _estimate_of(self, output: int, size: int) -> Usage:
        """Returns the usage for `output` tokens in `size` bytes, scaled to what the provider bills; at least all that
        is held if others may have charged the hold while this process was paused."""
        estimate, read = self.step.estimate, self.step.estimate.input_tokens
        output = min(ceil(output * self._billing), max(output, self._cap))
        if self.recovered:
            output, read = max(output, self._paid_tokens), estimate.input_bound
        return Usage(input_uncached=read, **self._output_fields(output, size), source=CountSource.ESTIMATED)

    def _late_tokens(self, size: int) -> int:
        """Returns the tokens of `size` bytes of a stream as its hold counts them, plus those that may have been under
        way when it was left or stopped, or the tokens usually written in that time if that is more. Bounded by what the
        hold pays for."""
        decoder, until_ms = self.decoder, self._start + self._elapsed()
        in_flight = 0.0 if self.meter is None else self.meter.in_flight(until_ms)
        counted = 0.0 if decoder is None else self._learned.most_tokens(self.step.target.id, decoder.text.sizes())
        if decoder is None or 2 * self._burst >= size:
            most = max(self._unseen_tokens(FASTEST_MS), ceil(counted + in_flight))
        else:
            since_first_ms = max(1, self._elapsed() - (self._first or 0))
            dense = ceil(counted * size / max(1, decoder.output_chars))
            late = max(in_flight, dense * self._burst / size, dense * IN_FLIGHT_MS / since_first_ms)
            most = max(dense + ceil(late), self._tokens_in(since_first_ms, inf))
        return max(self._tokens_of(size), min(self._paid_tokens, most))

    @property
    def _mean_bytes(self) -> float:
        """Mean bytes per token: the target's, or bytes per event if there are more events than the cap has tokens."""
        mean = self._learned.mean_output_bytes(self.step.target.id)
        size = 0 if self.decoder is None else self.decoder.output_chars - self._thought_bytes
        return mean if self._events <= self._cap else max(mean, size / self._events)

    @property
    def _paid_tokens(self) -> int:
        """Output tokens that the hold pays for, at the share of thoughts seen so far."""
        if self.meter is None:
            return self._cap
        size = self._thought_bytes if self.decoder is None else self.decoder.output_chars
        most = self._cap if self.meter.trusted else self.meter.paid
        thoughtful = self.meter.paid_thoughts * size // self._thought_bytes if self._thought_bytes else most
        return min(most, self.meter.paid, thoughtful)

    def _unseen_tokens(self, prior_ms: float) -> int:
        """Returns how many tokens may have been written unseen so far: at the target's pace, or one per `prior_ms` if
        unknown. At least the expected output; at most the cap if it is kept, else what is held."""
        tokens = max(self.step.estimate.output_tokens, self._tokens_in(self._elapsed(), prior_ms))
        past_cap = self.stopped == PAST_CAP or self._learned.worst[self.step.target.id]
        return min(self._max_output if past_cap else max(self._cap, self._paid_tokens), tokens)

    def _tokens_in(self, took_ms: int, prior_ms: float) -> int:
        pace = self._learned.pace(self.step.target.id)
        each_ms = pace.median_ms(min(prior_ms, PRIOR_MS_PER_TOKEN)) if pace.weight else prior_ms
        return ceil(took_ms / each_ms) * self.call.n

    def _tokens_of(self, size: int) -> int:
        """Returns the output tokens of `size` bytes: at most the cap, unless far beyond it or it is doubted."""
        tokens = ceil(size / self._mean_bytes)
        return tokens if self.fit.doubted or tokens > DEAF * self._cap else min(tokens, self._cap)

    def _done(
        self, outcome: str, usage: Usage | None, finish_reason: str = "", model_served: str = "", answered: bool = False
    ) -> Attempt:
        ended = self._clock() if self._ended is None else self._ended
        if self._span is not None and self._span[1] == inf:
            self._span[1] = ended
        if self.lease is not None:
            self.lease.leave(worked=outcome == "ok")
        target, took = self.step.target, int(ended - self._start) if self.sent else 0
        price, sample = target.price(model_served), None
        if usage is not None:
            output = usage.totals.output
            sample = self._sample(usage, output, finish_reason, outcome, took)
            self._learned.observe(sample)
            if sample.past_cap and self._capped:
                usage = structs.replace(
                    usage, violations=(*usage.violations, f"{PAST_CAP}: {output} of {self._cap} tokens")
                )
            if price is not target.model.price or target.served is not None:
                self._learned.measured.served(target, price)
            if usage.units or usage.provider_cost is not None:
                usage = believed(price, usage, at_ms=self._started_ms, took_ms=took, region=target.region)
            if outcome == "ok" and target.engine is None:
                # Time until all of a stream had arrived; None if a slow client may have delayed it.
                arrived = None if self._response is None else self._response.arrived_ms
                whole = took if self.decoder is None else None if arrived is None else arrived - self._start
                self._health.took(target.id, whole, self._first if self.decoder else None, output // self.call.n)
        cost = Cost(0, CostSource.PRICED, target.model.price.version if target.model.price else "")
        if usage is not None:
            cost = charge(price, usage, at_ms=self._started_ms, took_ms=took, region=target.region)
        return Attempt(
            target=target,
            outcome=outcome,
            started_ms=self._started_ms,
            total_ms=took,
            first_ms=self._first,
            status=self.status,
            usage=usage,
            cost=cost,
            finish_reason=finish_reason,
            answered=answered,
            model_served=model_served,
            thinking=self.thinking,
            dropped=self.dropped,
            classes=self.classes,
            redacted=self.restorer is not None and self.sent,
            region=self._region,
            region_verified=self._verified,
            role=self.options.role,
            sample=sample,
        )

    def _sample(self, usage: Usage, output: int, finish_reason: str, outcome: str, took: int) -> AttemptSample:
        """Returns the sample that later estimates for this target learn from. Estimated counts are not learned from."""
        estimate, decoder, n = self.step.estimate, self.decoder, self.call.n
        first = self._first if decoder is not None else None
        waited = 0
        if self.step.wait_ms:
            # Subtract the time spent queueing for the engine, which says nothing of its pace. Leave at least half of
            # the usual time, since the predicted wait may have been wrong.
            pace, part = self._learned.pace(self.step.target.id), took if first is None else first
            usual_ms = pace.first_ms + (output // n * pace.ms_per_token if first is None else 0)
            waited = min(self.step.wait_ms, max(0, part - int(usual_ms / 2)))
        sure = usage.source is CountSource.REPORTED and not usage.violations
        # For answers that show all their tokens, the booked estimate also tells how much to hold for others.
        sized = sure or (outcome == "ok" and estimate.metered and not usage.violations)
        if self.stopped == STOPPED and decoder is not None and not sure:
            output = min(output, self._tokens_of(decoder.output_chars))
        text, past_cap = TextBytes(), self.stopped == PAST_CAP or (sure and output > self._cap)
        if sure and decoder is not None and decoder.finished:
            text = TextBytes(*[size // n for size in decoder.text.sizes()])
        return AttemptSample(
            target=self.step.target.id,
            effort=self.call.effort or estimate.effort,
            task=estimate.task,
            template=estimate.template,
            script=estimate.script,
            read=estimate.read,
            output=output // n if sized else None,
            thinking=None if usage.output_reasoning is None or not sure else usage.output_reasoning // n,
            input=usage.totals.input if sure else None,
            expected_input=estimate.input_rough,
            text=text,
            past_cap=output // n if past_cap else 0,
            kept_cap=sure and self._capped and output == self._cap and finish_reason == "length" and not self.stopped,
            largest=self._burst / n,
            first_ms=None if first is None else first - waited,
            total_ms=took - waited,
            ended_ms=self._started_ms + took,
            cut=outcome != "ok" or finish_reason == "length",
        )

    def _elapsed(self) -> int:
        return int((self._clock() if self._ended is None else self._ended) - self._start)


def _text(reply: TargetReply) -> TextBytes:
    """Returns the sizes of an answer's text; for the Responses API, of its whole output."""
    return OutputText(reply.text or bytes(reply.body.get("output", b"")).decode(errors="replace")).sizes()


def _credible(usage: Usage, chars: int, answered: bool, size: int) -> bool:
    """Returns whether the reported tokens can account for the characters of text, for a visible answer (`answered`) and
    for all bytes."""
    output, shown = usage.totals.output, usage.output_image + usage.output_audio + usage.output_video
    answers = (usage.output_visible > 0 or shown > 0 or not answered) and UNREADABLE_USAGE not in usage.violations
    most = output * BYTES_PER_TOKEN
    return answers and chars <= most and size <= most + SLACK_BYTES + shown * BYTES_PER_SOUND
