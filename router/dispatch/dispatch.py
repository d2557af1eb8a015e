"""The attempt loop: asks the targets of a plan in order until one answers. The only code that calls an upstream for a
client's request."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from random import random

from msgspec import Raw, Struct, structs

from router.classify.language import languages
from router.decide.eligibility import Gate
from router.decide.health import FIRST_REST_S, LATE, Health
from router.decide.replicas import Replicas
from router.dispatch.attempt import AttemptRecord
from router.dispatch.egress import EgressDenied, EgressFilter, OutboundRequest
from router.dispatch.hold import (
    ALONE,
    CLIENT_GONE,
    OUTRUN,
    READ_ON_S,
    WITH_FALLBACK,
    AttemptOptions,
    BudgetHold,
    Outrun,
    ReplicaLease,
)
from router.dispatch.meter import AnswerCollector, Meter, answer_text
from router.dispatch.stream import (
    CUT,
    OpenStream,
    WholeAnswer,
    give_up,
    keep_paid,
    metered,
    read_late,
    unreadable,
    without_key,
)
from router.errors import TABLE, LowpassError, UpstreamFailure
from router.redact.restore import Restorer
from router.types.account import StoreUnavailable
from router.types.attempt import Adapter, Call, ErrorKind, Failure, StreamDecoder, TargetReply, UpstreamResponse, Verify
from router.types.clock import clock_ms, now_ms
from router.types.decision import Candidate, FittedRequest, Plan
from router.types.request import UNKNOWN, Endpoint, Redacted, Request
from router.types.target import Timeouts, Wire

LEAST_TIME_MS = 10
"""Minimum time in ms that must be left before the deadline for another target to be asked."""
UNKNOWN_SHARE = 1 / 3
"""Share of the remaining time that is kept for fallbacks if the usual time of any of them is unknown."""
LATENESS_MS = 100
"""Margin in ms for timeouts that fire late: a fallback is left `LATE` times its usual time plus this."""
LARGEST_ERROR = 65_536
"""Maximum bytes of an error response that are read; a larger body is ignored."""
_REFUSED = frozenset({401, 403, 404, 405, 406, 407, 409, 410, 411, 415, 417, 421, 423, 424, 426, 431, 451})
"""Statuses of an upstream that may concern this request only or the whole target."""
LARGE = 262_144
"""Size in bytes from which an answer is decoded in a thread instead of on the event loop."""
BACKOFF_S = 0.2
"""Pause in seconds before the same target is first asked again; doubles with each retry, with jitter."""
LONGEST_PAUSE_S = 10.0
PAUSE_WITH_FALLBACK_S = 0.5
"""Maximum pause in seconds before a retry while another target is available."""
_UNTAKEN = (ErrorKind.CONNECT, ErrorKind.SATURATED)


class DispatchJob(Struct, frozen=True):
    """A plan, the request, and the hold that pays for it. The egress filter checks `gate` again for every attempt."""

    request: Request
    plan: Plan
    gate: Gate
    budget: BudgetHold
    deadline: float | None
    """Deadline in ms of `clock_ms`; None if there is none."""
    verify: Verify | None = None
    """Runs the route's verifiers; None if it has none."""
    check: Callable[[dict[str, Raw]], None] | None = None
    """Raises `UpstreamFailure` for a whole answer that can't be translated for the client."""

    def call(self, step: Candidate, fit: FittedRequest, shown: Redacted) -> Call:
        """Returns the call for `step`. `shown`: the request as its target sees it."""
        request = shown.request
        translated = request.endpoint is not Endpoint.CHAT and self.translated(step)
        return Call(
            target=step.target,
            endpoint=Endpoint.CHAT if translated else request.endpoint,
            body=request.chat if translated and request.chat is not None else request.body,
            model=request.model,
            request_id=request.id,
            stream=request.stream or fit.metered,
            stream_usage=request.stream_usage or translated,
            n=request.n,
            max_output=fit.max_output,
            effort=fit.effort,
            thinking_budget=fit.thinking_budget,
            languages=UNKNOWN if step.target.prompt is None else languages(request),
            private=self.gate.guard.demands(shown.classes).private,
        )

    def late(self, now: float) -> bool:
        """Returns whether too little time is left for another answer."""
        return self.deadline is not None and now + LEAST_TIME_MS > self.deadline

    def time_for(self, step: Candidate, now: float) -> bool:
        """Returns whether an answer of `step` usually arrives before the deadline."""
        if self.deadline is None:
            return True
        usual = next((row.total_ms for row in self.plan.weigh() if row.target == step.target.id), 0.0)
        return now + max(usual, LEAST_TIME_MS) <= self.deadline

    def translated(self, step: Candidate) -> bool:
        """Returns whether the request goes out as chat: Messages do, and Responses if the provider lacks them."""
        if self.request.endpoint is Endpoint.RESPONSES:
            return not step.target.provider.quirks.responses
        return self.request.endpoint is Endpoint.MESSAGES


class Dispatcher(Struct, frozen=True):
    """The parts of the process that every attempt needs."""

    adapters: Mapping[Wire, Adapter]
    egress: EgressFilter
    health: Health
    replicas: Replicas


class AttemptLoop(Struct):
    """Takes one job from target to target: `walk` → `try_target` (retries) → `_send_once`.

    Every attempt except the one returned to the client is appended to the hold's attempts, even if a method raises.
    """

    to: Dispatcher
    job: DispatchJob
    over: bool = False
    """Whether no other target may be asked."""
    failure: Failure | None = None
    denied: EgressDenied | None = None

    async def walk(self, steps: Sequence[Candidate]) -> WholeAnswer | OpenStream | None:
        """Returns the first answer of `steps`, asked in order; None if none answers."""
        for step in steps[:-1]:
            answer = await self.try_target(step, WITH_FALLBACK)
            if answer is not None or self.over:
                return answer
        return await self.try_target(steps[-1], ALONE) if steps else None

    async def try_target(self, step: Candidate, options: AttemptOptions) -> WholeAnswer | OpenStream | None:
        """Asks one target, with retries where they help. Returns None if it gives no answer."""
        replicas, retries, tried = self.to.replicas, 0, list[str]()
        while True:
            try:
                return await self._send_once(step, options, tried)
            except EgressDenied as denied:
                self.denied = self.denied or denied
                return None
            except UpstreamFailure as error:
                failure = error.failure
            # Another replica is asked at once; it is no retry if the previous one never took the request.
            spare = replicas.spare(step.target, tried)
            untaken = spare and failure.kind in _UNTAKEN
            pause = 0.0
            if not spare:
                jittered = BACKOFF_S * 2**retries * (0.5 + random())  # noqa: S311 - jitter
                pause = jittered if failure.retry_after_s is None else failure.retry_after_s + 0.001
            retries += not untaken
            again = untaken or (TABLE[failure.kind].retry and retries <= step.target.retries)
            if not again or _too_long(pause, self.job, options):
                self.failure = failure
                self.over = not TABLE[failure.kind].fall_back or self.job.late(clock_ms())
                return None
            if pause:
                await asyncio.sleep(pause)

    def error(self) -> LowpassError:
        """Returns the error that says why there is no answer."""
        if self.denied is not None and self.failure is None:
            return self.denied
        return UpstreamFailure(self.failure or Failure(ErrorKind.CIRCUIT_OPEN, "No target was left to ask."))

    async def _send_once(self, step: Candidate, options: AttemptOptions, tried: list[str]) -> WholeAnswer | OpenStream:
        job, budget, target, health = self.job, self.job.budget, step.target, self.to.health
        attempts, presence = budget.attempts, budget.presence
        if presence.gone:
            raise asyncio.CancelledError
        fit = budget.fit(step)
        if fit is None or fit.lowered:
            fit = await budget.extended_fit(step, fit)
        if fit is None:
            raise UpstreamFailure(Failure(ErrorKind.BUDGET, "What is left of the budget does not pay for this target."))
        redacted = job.gate.redacted if step.redacted else None
        shown = redacted or Redacted(job.request, job.gate.classification.classes, {})
        call = job.call(step, fit, shown)
        lease = ReplicaLease(self.to.replicas, target, shown.request, tried) if target.engine else None
        restorer = Restorer(redacted.values) if redacted else None
        adapter = self.to.adapters[target.provider.wire]
        record = AttemptRecord(step, fit, call, adapter, budget, now_ms(), clock_ms, health, lease, restorer, options)
        if fit.metered:
            record.meter = Meter(budget, step, job.request, fit)
        if not health.admit(target.id, last=step is job.plan.steps[-1]):
            status = 429 if health.limited(target.id) else None
            rest_s = health.resting(target.id) or FIRST_REST_S
            failure = Failure(ErrorKind.CIRCUIT_OPEN, "The target is resting.", status, rest_s)
            attempts.append(record.failed(failure))
            raise UpstreamFailure(failure)
        presence.reads_on = target.reads_on[call.stream] or (options.racing and presence.reads_on)
        response: UpstreamResponse | None = None
        try:
            response = await self.to.egress.send(*self._outbound(record, shown.classes), record.leaves)
            return await self._receive(record, response)
        except UpstreamFailure as error:
            failure = self._failed(record, error.failure)
            if error.late is not None:
                budget.read_on(read_late(record, error.late), step.estimate.whole if options.racing else None)
            raise UpstreamFailure(failure) from None
        except BaseException as fault:
            if isinstance(fault, asyncio.CancelledError):
                response = fault.late if isinstance(fault, Outrun) else response
                give_up(record, response, OUTRUN if OUTRUN in fault.args else CLIENT_GONE)
            if lease is not None:
                lease.leave()
            health.abandoned(target.id)
            raise

    def _failed(self, record: AttemptRecord, failure: Failure) -> Failure:
        """Records an attempt that ended without an answer, and reports the failure to `Health` and the replicas."""
        budget, lease, target, rule = self.job.budget, record.lease, record.step.target, TABLE[failure.kind]
        budget.presence.reads_on = record.options.racing and budget.presence.reads_on
        failure = without_key(failure, target)
        budget.attempts.append(record.failed(failure))
        trips = rule.trips and not self.job.late(clock_ms())
        alone = lease is None or (lease.broke() if trips else not self.to.replicas.spare(target))
        if failure.kind is ErrorKind.SATURATED and lease is not None:
            self.to.replicas.full(target, lease.url)
        self.to.health.failed(
            target.id,
            trips=trips and alone,
            refused=failure.status in _REFUSED,
            limited=failure.kind is ErrorKind.RATE_LIMITED,
            retry_after_s=failure.retry_after_s if alone else None,
            reason=f"{failure.kind} ({failure.status})" if failure.status else failure.kind,
        )
        return failure

    def _outbound(self, record: AttemptRecord, classes: frozenset[str]) -> tuple[OutboundRequest, Timeouts]:
        """Encodes the request for its target. `classes`: of what the target sees."""
        job, target = self.job, record.step.target
        sent = record.adapter.encode(record.call)
        record.thinking, record.dropped = sent.thinking, sent.dropped
        rules = record.restorer is not None, job.request.limits.region, record.lease.url if record.lease else ""
        timeouts = target.timeouts if job.deadline is None else self._timeouts(record, job.deadline)
        if target.reads_on[record.call.stream]:
            timeouts = structs.replace(timeouts, read_on=READ_ON_S * 1000)
        return OutboundRequest(job.gate.guard, target, sent, classes, *rules), timeouts

    def _timeouts(self, record: AttemptRecord, deadline: float) -> Timeouts:
        """Returns the target's timeouts, cut to the deadline.

        If this target still gets `LATE` times its usual time, the usual time of its fallbacks is kept for them.
        """
        at, step = record.step.target.timeouts, record.step
        left = first = max(1, int(deadline - clock_ms()))
        if record.options.fallback and step in (steps := self.job.plan.steps[:-1]):
            planned = self.job.plan.steps[steps.index(step) :]
            own, *others = [self.to.health.usual_ms(row.target.id, row.estimate.output_tokens) for row in planned]
            unknown = left * UNKNOWN_SHARE if 0.0 in others else 0.0
            rest = int(left - LATE * sum(others) - unknown - LATENESS_MS)
            first = rest if 0 < LATE * own < rest else left
        within = {"connect": min(at.connect, first), "first": min(at.first, first), "total": min(at.total, left)}
        return structs.replace(at, **within)

    async def _receive(self, record: AttemptRecord, response: UpstreamResponse) -> WholeAnswer | OpenStream:
        job, call, adapter = self.job, record.call, record.adapter
        record.opened(response)
        try:
            if not 200 <= response.status < 300:
                raise UpstreamFailure(adapter.failure(response.status, response.headers, await _refusal(response)))
            if call.stream:
                opened = await self._open(record, adapter.stream(call), response)
                if job.request.stream and not record.options.whole:
                    return opened
                answer = await self._gather(opened)
            else:
                body = await response.read()
                record.arrived(whole=True)
                large = len(body) > LARGE
                reply = await asyncio.to_thread(adapter.decode, call, body) if large else adapter.decode(call, body)
                self.to.health.succeeded(record.step.target.id)
                attempt = record.answered(reply)
                if record.restorer is not None:
                    restored = record.restorer.body(reply.body)
                    reply = structs.replace(reply, body=restored, content=answer_text(restored))
                answer = WholeAnswer(record, attempt, reply)
            if job.check is not None and job.translated(record.step):
                job.check(dict(answer.reply.body))
            return answer
        except BaseException as error:
            if not isinstance(error, asyncio.CancelledError) and getattr(error, "late", None) is None:
                response.close()  # otherwise it is given up elsewhere, or read on
            if isinstance(error, LowpassError | StoreUnavailable) or not isinstance(error, Exception):
                raise
            raise UpstreamFailure(unreadable(error)) from error

    async def _open(self, record: AttemptRecord, decoder: StreamDecoder, response: UpstreamResponse) -> OpenStream:
        record.decoder = decoder
        async for data in response.chunks(looks=record.meter is not None):
            before = decoder.output_chars
            first = decoder.feed(data)
            record.fed(data, first, before)
            if first or decoder.complete:
                record.arrived()
                record.locate(decoder.region_served)
                # The target has answered; whether the answer is complete is known only at its end.
                self.to.health.abandoned(record.step.target.id)
                if record.lease is not None:
                    record.lease.worked()
                return OpenStream(record, response, decoder, first)
            if record.meter is not None:
                await keep_paid(record, decoder, record.meter)
            if record.stopped:
                break
        if not (record.stopped or decoder.finished):
            raise UpstreamFailure(Failure(ErrorKind.BAD_RESPONSE, "The upstream's stream ended without an answer."))
        return OpenStream(record, response, decoder, b"")

    async def _gather(self, opened: OpenStream) -> WholeAnswer:
        """Reads a whole stream into one answer; if it breaks, another target may still be asked."""
        decoder, record = opened.decoder, opened.record
        parts = [events async for events in metered(opened) if events]
        if rest := opened.rest():
            parts.append(rest)
        if not (decoder.finished or record.stopped):
            raise UpstreamFailure(CUT)
        opened.response.close(complete=decoder.complete)
        self.to.health.succeeded(record.step.target.id)
        fold = AnswerCollector(record.call.endpoint)
        for events in (*parts, opened.closing(b"null")):
            fold.feed(events)
        body = fold.body()
        reply = TargetReply(body=body, usage=decoder.usage, content=answer_text(body))
        stream = (opened, tuple(parts)) if self.job.request.stream else None
        return WholeAnswer(record, record.streamed(decoder), reply, stream)


async def _refusal(response: UpstreamResponse) -> bytes:
    """Returns the body of an error response; empty if it exceeds `LARGEST_ERROR`."""
    body = b""
    async for data in response.chunks():
        body += data
        if len(body) > LARGEST_ERROR:
            response.close()
            return b""
    return body


def _too_long(pause_s: float, job: DispatchJob, options: AttemptOptions) -> bool:
    if options.racing or (job.deadline is not None and clock_ms() + pause_s * 1000 > job.deadline):
        return True
    return pause_s > (PAUSE_WITH_FALLBACK_S if options.fallback else LONGEST_PAUSE_S)
