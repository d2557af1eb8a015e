"""One target is asked, with its retries: the only code that talks to an upstream for a request."""

import asyncio
import logging
import traceback
from collections.abc import Mapping
from pathlib import Path
from random import random

from msgspec import Raw, structs

from router.decide.health import Health
from router.dispatch.attempt import Trial
from router.dispatch.door import Door
from router.dispatch.errand import Errand
from router.dispatch.fold import Fold
from router.dispatch.how import CLIENT_GONE, OUTRUN, How
from router.dispatch.meter import Meter
from router.dispatch.opened import Answered, Opened, metered
from router.dispatch.seat import Seat
from router.engines.replicas import Replicas
from router.errors import TABLE, LowpassError, UpstreamFailure
from router.types.call import Adapter, Reply, StreamDecoder, UpstreamResponse
from router.types.clock import clock_ms, now_ms
from router.types.failure import ErrorKind, Failure
from router.types.plan import Candidate
from router.types.store import StoreUnavailable
from router.types.target import Target, Timeouts, Wire

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
