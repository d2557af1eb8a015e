"""The attempt loop: asks the targets of a plan in order until one answers."""

import asyncio
import logging
import traceback
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from random import random
from typing import Protocol

from msgspec import Raw, Struct, structs

from router.classify.language import languages
from router.decide.eligibility import Gate
from router.decide.health import Health
from router.dispatch.attempt import Seat, Trial
from router.dispatch.door import Door, Parcel
from router.dispatch.meter import MESSAGES, PAST_CAP, STOPPED, Fold, Meter, closing
from router.dispatch.purse import CLIENT_GONE, OUTRUN, How, Purse
from router.engines import Replicas
from router.errors import TABLE, LowpassError, UpstreamFailure
from router.estimate.estimate import Fit
from router.redact.restore import Restorer
from router.types.account import StoreUnavailable
from router.types.attempt import (
    Adapter,
    Attempt,
    Call,
    ErrorKind,
    Failure,
    Reply,
    StreamDecoder,
    UpstreamRequest,
    UpstreamResponse,
    Verify,
)
from router.types.clock import clock_ms, now_ms
from router.types.decision import Candidate, Plan
from router.types.request import UNKNOWN, Endpoint, Redacted, Request
from router.types.target import Target, Timeouts, Wire

# What the dispatcher is sent to do: a plan, the request in both of its forms, and a purse that pays for it.

LEAST_TIME_MS = 10
"""Nobody is asked for an answer within less."""


class Errand(Struct, frozen=True):
    """`gate` is asked again at the door for every single attempt. `request` is the client's own."""

    request: Request
    plan: Plan
    gate: Gate
    purse: Purse
    deadline: float | None
    """On the dispatcher's clock, in ms."""
    verify: Verify | None = None
    """None: nobody looks at answers."""
    check: Callable[[dict[str, Raw]], None] | None = None
    """Raises `UpstreamFailure` for a whole answer that can't be translated for the client."""

    def call(self, step: Candidate, fit: Fit) -> Call:
        request, translated = self.sent(step), self.translated(step)
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
            private=self.gate.guard.private(self.classes(step)),
        )

    def parcel(self, step: Candidate, request: UpstreamRequest, url: str = "") -> Parcel:
        """`request` with everything that the door judges it by; `url`: of the replica that it goes to."""
        return Parcel(
            guard=self.gate.guard,
            target=step.target,
            request=request,
            classes=self.classes(step),
            redacted=self.redacted(step) is not None,
            region=self.request.limits.region,
            url=url,
        )

    def redacted(self, step: Candidate) -> Redacted | None:
        """What this target sees in place of the request; None: the request itself."""
        return self.gate.redacted if step.redacted else None

    def restorer(self, step: Candidate) -> Restorer | None:
        """Puts the values back into the answer of a target that saw placeholders."""
        redacted = self.redacted(step)
        return None if redacted is None else Restorer(redacted.values)

    def sent(self, step: Candidate) -> Request:
        """What this target may see."""
        redacted = self.redacted(step)
        return self.request if redacted is None else redacted.request

    def classes(self, step: Candidate) -> frozenset[str]:
        """Of what this target may see."""
        redacted = self.redacted(step)
        return self.gate.classification.classes if redacted is None else redacted.classes

    def late(self, now: float) -> bool:
        """No time is left in which another answer could arrive."""
        return self.deadline is not None and now + LEAST_TIME_MS > self.deadline

    def time_for(self, step: Candidate, now: float) -> bool:
        """An answer of `step` would usually arrive before the deadline."""
        if self.deadline is None:
            return True
        usual = next((one.total_ms for one in self.plan.weighed if one.target == step.target.id), 0.0)
        return now + max(usual, LEAST_TIME_MS) <= self.deadline

    def translated(self, step: Candidate) -> bool:
        """A Responses request goes out as chat where the upstream has no Responses endpoint of its own."""
        return self.request.endpoint is Endpoint.RESPONSES and not step.target.provider.quirks.responses


# What a target gives: a whole answer, or a stream that has begun.


class Opened(Struct, frozen=True):
    """A stream whose first events are here; from now on no other target can take over."""

    trial: Trial
    response: UpstreamResponse
    decoder: StreamDecoder
    first: bytes
    step: Candidate

    @property
    def stopped(self) -> str:
        """Why the gateway ended it, as an error code; empty: it did not."""
        return self.trial.stopped

    @property
    def lowered(self) -> tuple[str, ...]:
        return self.trial.fit.lowered

    def events(self) -> AsyncIterator[bytes]:
        """As they come, with values in the place of placeholders."""
        return metered(self)

    def restored(self, events: bytes) -> bytes:
        """With values in the place of placeholders, where the request had some."""
        restorer = self.trial.restorer
        return events if restorer is None else restorer.feed(events)

    def rest(self) -> bytes:
        """What was held back as the possible beginning of a placeholder: sent before the end, whatever that is."""
        return b"" if self.trial.restorer is None else self.trial.restorer.end()

    def closing(self, usage: bytes) -> bytes:
        """The last events; `usage` is the JSON usage object of the call's endpoint."""
        end = closing(self.first, self.trial.call, usage, self.stopped) if self.stopped else self.decoder.final(usage)
        return self.restored(end)

    def ended(self, error: str) -> Attempt:
        """The attempt, now that its stream is over. `error`: empty, or what broke it or stopped it."""
        return self.trial.streamed(self.decoder, "" if error in MESSAGES else error)


class Kept(Opened, frozen=True):
    """A stream that was looked at as a whole before its client got any of it."""

    parts: tuple[bytes, ...]
    attempt: Attempt

    async def events(self) -> AsyncGenerator[bytes]:
        for part in self.parts:
            yield part

    def ended(self, error: str) -> Attempt:
        """However its client left: the target has answered."""
        return self.attempt


class Answered(Struct, frozen=True):
    """A whole answer. `lowered`: what was changed to fit its budget; `stopped`: why the gateway ended it."""

    attempt: Attempt
    reply: Reply
    step: Candidate
    lowered: tuple[str, ...]
    stopped: str = ""
    stream: tuple[Opened, tuple[bytes, ...]] | None = None
    """What it was gathered from, where the client wants a stream."""

    def given(self, purse: Purse) -> "Answered | Opened":
        """After it was set aside: whole, or as a stream, as its client wants it."""
        attempt = purse.take_back(self.attempt)
        if self.stream is None:
            return structs.replace(self, attempt=attempt)
        of, parts = self.stream
        return Kept(of.trial, of.response, of.decoder, of.first, of.step, parts, attempt)


async def metered(opened: Opened) -> AsyncGenerator[bytes]:
    """The events of a stream as they come, up to its cap, and as long as what is held for it pays for them."""
    decoder, trial = opened.decoder, opened.trial
    meter = trial.meter
    if opened.first:
        yield opened.restored(opened.first)
    if decoder.complete:
        return
    async for data in opened.response.chunks():
        before = decoder.output_chars
        try:
            events = decoder.feed(data)
        except UpstreamFailure as failure:
            yield opened.restored(failure.before)
            raise
        finally:
            trial.fed(data, before)
        yield opened.restored(events)
        if decoder.complete:
            return
        if decoder.output_chars > trial.most_bytes or trial.received_bytes > trial.most_received:
            trial.stopped = PAST_CAP
            return
        if meter is not None and meter.due(decoder) and not decoder.finished and not await meter.extend(decoder):
            trial.stopped = STOPPED
            return


# One target is asked, with its retries: the only code that talks to an upstream for a request.

LARGEST_ERROR = 65_536
"""Bytes of a refusal that are read: what is larger explains nothing."""
LARGE = 262_144
"""Bytes of an answer that is decoded beside the event loop."""
BACKOFF_S = 0.2
"""First pause before the same target is asked again; doubles, with jitter."""
LONGEST_PAUSE_S = 10.0
SHORTEST_SECRET = 12
"""A key of fewer characters is a word, such as the "EMPTY" that local engines are given."""
_log = logging.getLogger(__name__)
_UNTAKEN = (ErrorKind.CONNECT, ErrorKind.SATURATED)
PAUSE_WITH_FALLBACK_S = 0.5
"""A longer wait than this is not worth it while another target stands ready."""


class Asker:
    """Speaks every wire, and sends through the door."""

    def __init__(self, adapters: Mapping[Wire, Adapter], door: Door, health: Health, replicas: Replicas) -> None:
        self._adapters, self._door, self.health, self._replicas = adapters, door, health, replicas

    async def ask(self, step: Candidate, errand: Errand, how: How) -> Answered | Opened | Failure:
        """Every failed attempt is appended to the purse's, also when it raises (`KeptIn`: the door let nothing out)."""
        retries, tried = 0, list[str]()
        while True:
            try:
                return await self._attempt(step, errand, how, tried)
            except UpstreamFailure as error:
                failure = error.failure
            # Another replica is asked at once; where the one before had not taken the request, that is no retry.
            spare = self._replicas.spare(step.target, tried)
            untaken = spare and failure.kind in _UNTAKEN
            pause = 0.0 if spare else _pause_s(failure, retries)
            retries += not untaken
            again = untaken or (TABLE[failure.kind].retry and retries <= step.target.retries)
            if not again or _too_long(pause, errand, how):
                return failure
            if pause:
                await asyncio.sleep(pause)

    async def _attempt(self, step: Candidate, errand: Errand, how: How, tried: list[str]) -> Answered | Opened:
        purse, target = errand.purse, step.target
        if purse.presence.gone:
            raise asyncio.CancelledError
        fit = await purse.ready(step)
        if fit is None:
            raise UpstreamFailure(Failure(ErrorKind.BUDGET, "What is left of the budget does not pay for this target."))
        call = errand.call(step, fit)
        seat, restorer = Seat(self._replicas, target, errand.sent(step), tried), errand.restorer(step)
        trial = Trial(step, fit, call, purse, now_ms(), clock_ms, self.health, seat, restorer, how)
        if fit.metered:
            trial.metered_by(Meter(purse, step, errand.request, fit))
        attempts, presence = purse.attempts, purse.presence
        if not self.health.admit(target.id):
            failure = Failure(ErrorKind.CIRCUIT_OPEN, "The target is resting after failures.")
            attempts.append(trial.failed(failure))
            raise UpstreamFailure(failure)
        presence.reads_on = target.reads_on(call.stream)
        try:
            return await self._exchange(trial, errand)
        except UpstreamFailure as error:
            presence.reads_on = False
            failure = without_key(error.failure, target)
            attempts.append(trial.failed(failure))
            trips = TABLE[failure.kind].trips and not errand.late(clock_ms())
            alone = seat.broke() if trips else not self._replicas.spare(target)
            if failure.kind is ErrorKind.SATURATED:
                seat.full()
            # What a request did wrong says nothing of the next one.
            wish = failure.retry_after_s if TABLE[failure.kind].fall_back else None
            self.health.failed(target.id, trips=trips and alone, retry_after_s=wish if alone else None)
            raise UpstreamFailure(failure) from None
        except asyncio.CancelledError as cancelled:
            attempts.append(trial.abandoned(OUTRUN if OUTRUN in cancelled.args else CLIENT_GONE))
            self.health.abandoned(target.id)
            raise
        except Exception:
            seat.leave()
            self.health.abandoned(target.id)
            raise

    async def _exchange(self, trial: Trial, errand: Errand) -> Answered | Opened:
        adapter = self._adapters[trial.step.target.provider.wire]
        parcel = errand.parcel(trial.step, adapter.encode(trial.call), trial.seat.url)
        trial.thinking = parcel.request.thinking
        response = await self._door.send(parcel, _timeouts(parcel.target, errand.deadline), trial.leaves)
        trial.opened(response)
        try:
            opened = await self._receive(trial, adapter, response)
            streams = errand.request.stream
            if isinstance(opened, Opened):
                if streams and not trial.how.whole:
                    return opened
                opened = await self._gather(opened, streams)
            if errand.check is not None and errand.translated(trial.step):
                errand.check(dict(opened.reply.body))
            return opened
        except BaseException as error:
            response.close()
            if isinstance(error, LowpassError | StoreUnavailable) or not isinstance(error, Exception):
                raise
            raise UpstreamFailure(unreadable(error)) from error

    async def _receive(self, trial: Trial, adapter: Adapter, response: UpstreamResponse) -> Answered | Opened:
        call = trial.call
        if not 200 <= response.status < 300:
            body = await response.read()
            body = body if len(body) <= LARGEST_ERROR else b""
            raise UpstreamFailure(adapter.failure(response.status, response.headers, body))
        if call.stream:
            return await self._open(trial, adapter.stream(call), response)
        body = await response.read()
        trial.first_byte()
        trial.received()
        large = len(body) > LARGE
        reply = await asyncio.to_thread(adapter.decode, call, body) if large else adapter.decode(call, body)
        self._succeeded(trial)
        return Answered(trial.answered(reply), _restored(trial, reply), trial.step, trial.fit.lowered)

    async def _open(self, trial: Trial, decoder: StreamDecoder, response: UpstreamResponse) -> Opened:
        trial.decoder = decoder
        async for data in response.chunks():
            before = decoder.output_chars
            first = decoder.feed(data)
            trial.fed(data, before)
            if first or decoder.complete:
                trial.first_byte()
                trial.locate(decoder.region_served)
                # It has answered, and whether the answer is whole is seen at its end.
                self.health.abandoned(trial.step.target.id)
                trial.seat.worked()
                return Opened(trial, response, decoder, first, trial.step)
        if not decoder.finished:
            raise UpstreamFailure(Failure(ErrorKind.BAD_RESPONSE, "The upstream's stream ended without an answer."))
        return Opened(trial, response, decoder, b"", trial.step)

    def _succeeded(self, trial: Trial) -> None:
        self.health.succeeded(trial.step.target.id)
        trial.seat.worked()

    async def _gather(self, opened: Opened, streams: bool) -> Answered:
        """The whole of a stream; what breaks in the middle may still be asked elsewhere. `streams`: for the client."""
        decoder, trial = opened.decoder, opened.trial
        parts = [events async for events in metered(opened) if events]
        if rest := opened.rest():
            parts.append(rest)
        stopped = opened.stopped
        if not (decoder.finished or stopped):
            raise UpstreamFailure(Failure(ErrorKind.CUT, "The upstream broke off in the middle of its answer."))
        opened.response.close(complete=decoder.complete)
        self._succeeded(trial)
        reply = Reply(body=_folded(opened, parts), usage=decoder.usage)
        attempt = trial.streamed(decoder)
        stream = (opened, tuple(parts)) if streams else None
        return Answered(attempt, reply, trial.step, opened.lowered, stopped, stream)


def _folded(opened: Opened, parts: list[bytes]) -> dict[str, Raw]:
    fold = Fold(opened.trial.call.endpoint)
    for events in (*parts, opened.closing(b"null")):
        fold.feed(events)
    return fold.body()


def _restored(trial: Trial, reply: Reply) -> Reply:
    return reply if trial.restorer is None else structs.replace(reply, body=trial.restorer.body(reply.body))


def unreadable(error: Exception) -> Failure:
    """Our reading of an answer ended in an error that it does not foresee: the answer is at fault, whatever it is."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "?"
    _log.warning("an upstream's answer can't be read: %s at %s", type(error).__name__, place)
    return Failure(ErrorKind.BAD_RESPONSE, "The upstream's answer can't be read.")


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
    names = ("connect", "first", "total")
    return structs.replace(timeouts, **{name: min(getattr(timeouts, name), left) for name in names})


def _pause_s(failure: Failure, tries: int) -> float:
    if failure.retry_after_s is not None:
        return failure.retry_after_s + 0.001
    return float(BACKOFF_S * 2**tries * (0.5 + random()))  # noqa: S311 - jitter


def _too_long(pause_s: float, errand: Errand, how: How) -> bool:
    if errand.deadline is not None and clock_ms() + pause_s * 1000 > errand.deadline:
        return True
    if how.race is not None and how.race.on:
        return True
    return pause_s > (PAUSE_WITH_FALLBACK_S if how.fallback else LONGEST_PAUSE_S)


# A stream from its first events to its end: never a clean end that neither the upstream nor its budget made.

_CUT = Failure(ErrorKind.CUT, "The upstream broke off in the middle of its answer.")


class Ending(Protocol):
    """What remains to be done when a stream is over."""

    def settle(self, attempt: Attempt, error: str | None) -> bytes:
        """Called exactly once, whatever happens; returns the usage JSON for the closing events."""
        ...

    def render(self, events: bytes) -> bytes:
        """The decoder's events as the client's endpoint speaks them."""
        ...

    def closing(self, opened: Opened, usage: bytes) -> bytes: ...

    def durable(self) -> Awaitable[None]:
        """Done when the settlement can't be lost any more."""
        ...

    def broken(self, failure: Failure) -> bytes:
        """The error event that stands where the closing events would have been."""
        ...


async def forward(opened: Opened, health: Health, ending: Ending) -> AsyncGenerator[bytes]:
    """Yields client-ready events."""
    decoder, failure, error = opened.decoder, _CUT, CLIENT_GONE
    try:
        async for events in opened.events():
            if events:
                yield ending.render(events)
        error = opened.stopped or ("" if decoder.finished else _CUT.kind)
    except UpstreamFailure as upstream:
        failure, error = without_key(upstream.failure, opened.step.target), upstream.failure.kind
    except Exception as fault:
        failure = unreadable(fault)
        error = failure.kind
    finally:
        opened.response.close(complete=decoder.complete)
        usage = ending.settle(opened.ended(error), error or None)
    await ending.durable()
    if rest := opened.rest():
        yield ending.render(rest)
    broken, target = error not in ("", opened.stopped), opened.step.target.id
    if broken:
        health.failed(target, trips=TABLE[failure.kind].trips and opened.trial.seat.broke())
    else:
        health.succeeded(target)
    yield ending.broken(failure) if broken else ending.closing(opened, usage)
