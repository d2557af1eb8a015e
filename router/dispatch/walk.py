"""The only loop that talks to an upstream: targets in order, retry and fallback by the error table."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from random import random

from msgspec import Struct, structs

from router.decide.health import Health
from router.dispatch.attempt import Trial
from router.dispatch.cut import closing
from router.dispatch.door import Door, KeptIn
from router.dispatch.errand import Errand
from router.dispatch.fold import Fold
from router.dispatch.meter import Meter
from router.errors import TABLE, UpstreamFailure
from router.types.attempt import Attempt
from router.types.call import Adapter, Reply, StreamDecoder, UpstreamResponse
from router.types.clock import clock_ms, now_ms
from router.types.failure import ErrorKind, Failure
from router.types.plan import Candidate
from router.types.target import Target, Timeouts, Wire

BACKOFF_S = 0.2
"""First pause before the same target is asked again; doubles, with jitter."""
LONGEST_PAUSE_S = 10.0
SHORTEST_SECRET = 12
"""A key of fewer characters is a word, such as the "EMPTY" that local engines are given."""
PAUSE_WITH_FALLBACK_S = 0.5
"""A longer wait than this is not worth it while another target stands ready."""


class Answered(Struct, frozen=True):
    """A whole answer. `lowered`: what was changed to fit its budget; `stopped`: it ends where its budget did."""

    attempt: Attempt
    reply: Reply
    step: Candidate
    lowered: tuple[str, ...]
    stopped: bool = False


class Opened(Struct, frozen=True):
    """A stream whose first events are here; from now on no other target can take over."""

    trial: Trial
    response: UpstreamResponse
    decoder: StreamDecoder
    first: bytes
    step: Candidate
    meter: Meter | None

    @property
    def stopped(self) -> bool:
        """It ended where its budget did."""
        return self.meter is not None and self.meter.stopped

    @property
    def lowered(self) -> tuple[str, ...]:
        return self.trial.fit.lowered

    def restored(self, events: bytes) -> bytes:
        """With values in the place of placeholders, where the request had some."""
        restorer = self.trial.restorer
        return events if restorer is None else restorer.feed(events)

    def rest(self) -> bytes:
        """What was held back as the possible beginning of a placeholder: sent before the end, whatever that is."""
        return b"" if self.trial.restorer is None else self.trial.restorer.end()

    def closing(self, usage: bytes) -> bytes:
        """The last events; `usage` is the JSON usage object of the call's endpoint."""
        end = closing(self.first, self.trial.call, usage) if self.stopped else self.decoder.final(usage)
        return self.restored(end)


class Dispatcher:
    """Carries errands out: speaks every wire, and sends through the door."""

    def __init__(self, adapters: Mapping[Wire, Adapter], door: Door, health: Health) -> None:
        self._adapters, self._door, self.health = adapters, door, health

    async def walk(self, errand: Errand) -> Answered | Opened:
        """The first answer to be had; every failed attempt is appended to the purse's, also when it raises.

        Raises `UpstreamFailure`; `KeptIn` where the door let nothing out.
        """
        failure, kept_in = None, None
        for step, fallback in _with_fallback(errand.plan.steps):
            try:
                answer = await self._ask(step, errand, fallback)
            except KeptIn as refusal:
                kept_in = kept_in or refusal
                continue
            if not isinstance(answer, Failure):
                return answer
            failure = answer
            if not TABLE[failure.kind].fall_back or errand.late(clock_ms()):
                break
        if kept_in is not None and failure is None:
            raise kept_in
        raise UpstreamFailure(failure or Failure(ErrorKind.CIRCUIT_OPEN, "No target was left to ask."))

    async def _ask(self, step: Candidate, errand: Errand, fallback: bool) -> Answered | Opened | Failure:
        """One target, with its retries."""
        for tries in range(step.target.retries + 1):
            try:
                return await self._attempt(step, errand)
            except UpstreamFailure as error:
                failure = error.failure
            pause = _pause_s(failure, tries)
            if tries == step.target.retries or not TABLE[failure.kind].retry or _too_long(pause, errand, fallback):
                break
            await asyncio.sleep(pause)
        return failure

    async def _attempt(self, step: Candidate, errand: Errand) -> Answered | Opened:
        purse, target = errand.purse, step.target
        fit = await purse.ready(step)
        if fit is None:
            raise UpstreamFailure(Failure(ErrorKind.BUDGET, "What is left of the budget does not pay for this target."))
        call, suspend = errand.call(step, fit), self.health.suspend
        trial = Trial(step, fit, call, purse.learned, now_ms(), clock_ms, suspend, errand.restorer(step))
        attempts = purse.attempts
        if not self.health.admit(target.id):
            failure = Failure(ErrorKind.CIRCUIT_OPEN, "The target is resting after failures.")
            attempts.append(trial.failed(failure))
            raise UpstreamFailure(failure)
        try:
            return await self._exchange(trial, errand, Meter(purse, step, errand.request, fit) if fit.metered else None)
        except UpstreamFailure as error:
            failure = without_key(error.failure, target)
            attempts.append(trial.failed(failure))
            trips = TABLE[failure.kind].trips and not errand.late(clock_ms())
            self.health.failed(target.id, trips=trips, retry_after_s=failure.retry_after_s)
            raise UpstreamFailure(failure) from None
        except asyncio.CancelledError:
            attempts.append(trial.abandoned())
            self.health.abandoned(target.id)
            raise
        except Exception:
            self.health.abandoned(target.id)
            raise

    async def _exchange(self, trial: Trial, errand: Errand, meter: Meter | None) -> Answered | Opened:
        adapter = self._adapters[trial.step.target.provider.wire]
        parcel = errand.parcel(trial.step, adapter.encode(trial.call))
        trial.thinking = parcel.request.thinking
        response = await self._door.send(parcel, _timeouts(parcel.target, errand.deadline), trial.leaves)
        trial.opened(response)
        try:
            opened = await self._receive(trial, adapter, response, meter)
            return opened if errand.request.stream or isinstance(opened, Answered) else await self._gather(opened)
        except BaseException:
            response.close()
            raise

    async def _receive(
        self, trial: Trial, adapter: Adapter, response: UpstreamResponse, meter: Meter | None
    ) -> Answered | Opened:
        call = trial.call
        if not 200 <= response.status < 300:
            raise UpstreamFailure(adapter.failure(response.status, response.headers, await response.read()))
        if call.stream:
            return await self._open(trial, adapter.stream(call), response, meter)
        body = await response.read()
        trial.first_byte()
        reply = adapter.decode(call, body)
        self.health.succeeded(call.target.id)
        return Answered(trial.answered(reply), _restored(trial, reply), trial.step, trial.fit.lowered)

    async def _open(
        self, trial: Trial, decoder: StreamDecoder, response: UpstreamResponse, meter: Meter | None
    ) -> Opened:
        trial.decoder = decoder
        async for data in response.chunks():
            trial.first_byte()
            first = decoder.feed(data)
            if first:
                trial.locate(decoder.region_served)
                self.health.succeeded(trial.step.target.id)
                return Opened(trial, response, decoder, first, trial.step, meter)
        if not decoder.finished:
            raise UpstreamFailure(Failure(ErrorKind.BAD_RESPONSE, "The upstream's stream ended without an answer."))
        self.health.succeeded(trial.step.target.id)
        return Opened(trial, response, decoder, b"", trial.step, meter)

    async def _gather(self, opened: Opened) -> Answered:
        """A client that wants no stream is given the whole; what breaks in the middle may still be asked elsewhere."""
        decoder, trial = opened.decoder, opened.trial
        fold = Fold(trial.call.endpoint)
        async for events in metered(opened):
            fold.feed(events)
        fold.feed(opened.rest())
        stopped = opened.stopped
        if not (decoder.finished or stopped):
            raise UpstreamFailure(Failure(ErrorKind.CUT, "The upstream broke off in the middle of its answer."))
        opened.response.close()
        fold.feed(opened.closing(b"null"))
        reply = Reply(body=fold.body(), usage=decoder.usage)
        return Answered(trial.streamed(decoder, stopped=stopped), reply, trial.step, opened.lowered, stopped)


async def metered(opened: Opened) -> AsyncGenerator[bytes]:
    """The events of a stream as they come, as long as what is held for it pays for them."""
    decoder, meter = opened.decoder, opened.meter
    if opened.first:
        yield opened.restored(opened.first)
    if meter is None:
        async for data in opened.response.chunks():
            yield opened.restored(decoder.feed(data))
        return
    async for data in opened.response.chunks():
        yield opened.restored(decoder.feed(data))
        if meter.due(decoder) and not decoder.finished and not await meter.extend(decoder):
            return


def _restored(trial: Trial, reply: Reply) -> Reply:
    return reply if trial.restorer is None else structs.replace(reply, body=trial.restorer.body(reply.body))


def without_key(failure: Failure, target: Target) -> Failure:
    """A provider may quote the key that it refused; it is the operator's, not the client's."""
    key = target.api_key.reveal() if target.api_key is not None else ""
    if len(key) < SHORTEST_SECRET:
        return failure
    return structs.replace(failure, message=failure.message.replace(key, "***"))


def _timeouts(target: Target, deadline: float | None) -> Timeouts:
    """The target's timeouts, cut to the request's deadline."""
    timeouts = target.timeouts
    if deadline is None:
        return timeouts
    left = max(1, int(deadline - clock_ms()))
    return structs.replace(timeouts, first=min(timeouts.first, left), total=min(timeouts.total, left))


def _with_fallback(steps: tuple[Candidate, ...]) -> list[tuple[Candidate, bool]]:
    return [(step, number < len(steps)) for number, step in enumerate(steps, 1)]


def _pause_s(failure: Failure, tries: int) -> float:
    if failure.retry_after_s is not None:
        return failure.retry_after_s + 0.001
    return float(BACKOFF_S * 2**tries * (0.5 + random()))  # noqa: S311 - jitter


def _too_long(pause_s: float, errand: Errand, fallback: bool) -> bool:
    if errand.deadline is not None and clock_ms() + pause_s * 1000 > errand.deadline:
        return True
    return pause_s > (PAUSE_WITH_FALLBACK_S if fallback else LONGEST_PAUSE_S)
