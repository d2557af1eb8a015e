"""What a target gives: a whole answer, or a stream that is followed from its first events to its end."""

import asyncio
import logging
import traceback
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import closing
from functools import partial
from pathlib import Path

from msgspec import Struct, structs

from router.decide.health import Health
from router.dispatch.attempt import AttemptRecord
from router.dispatch.hold import CLIENT_GONE, OUTRUN, BudgetHold, LateAnswer
from router.dispatch.meter import MESSAGES, PAST_CAP, STOPPED, Meter, closing_events, finish
from router.dispatch.refusals import stream_error
from router.errors import TABLE, UpstreamFailure
from router.types.attempt import Attempt, ErrorKind, Failure, StreamDecoder, TargetReply, UpstreamResponse
from router.types.decision import Translation
from router.types.target import Target

SHORTEST_SECRET = 12
"""Minimum length of an API key to be treated as a secret; shorter ones are words such as "EMPTY"."""
CUT = Failure(ErrorKind.CUT, "The upstream broke off in the middle of its answer.")
_log = logging.getLogger(__name__)


class OpenStream(Struct, frozen=True):
    """A stream whose first events have arrived; from now on no other target can take over."""

    record: AttemptRecord
    response: UpstreamResponse
    decoder: StreamDecoder
    first: bytes

    def events(self) -> AsyncIterator[bytes]:
        """Returns the events as they arrive, with placeholders replaced by their values."""
        return metered(self)

    def restored(self, events: bytes) -> bytes:
        """Returns `events` with placeholders replaced by their values."""
        restorer = self.record.restorer
        return events if restorer is None else restorer.feed(events)

    def rest(self) -> bytes:
        """Returns what was held back as a possible beginning of a placeholder; sent before the last events."""
        return b"" if self.record.restorer is None else self.record.restorer.end()

    def closing(self, usage: bytes) -> bytes:
        """Returns the last events; `usage` is the JSON usage object of the call's endpoint."""
        stopped = self.record.stopped
        end = closing_events(self.first, self.record.call, usage, stopped) if stopped else self.decoder.final(usage)
        return self.restored(end)

    def ended(self, error: str) -> Attempt:
        """Returns the attempt once its stream is over. `error`: what broke or stopped it; empty if nothing did."""
        return self.record.streamed(self.decoder, "" if error in MESSAGES else error)


class CollectedStream(OpenStream, frozen=True):
    """A stream that was collected and checked before its client gets any of it."""

    parts: tuple[bytes, ...]
    attempt: Attempt

    async def events(self) -> AsyncGenerator[bytes]:
        for part in self.parts:
            yield part

    def ended(self, error: str) -> Attempt:
        """Returns the attempt as it was: the target has answered, even if the client leaves."""
        return self.attempt


class WholeAnswer(Struct, frozen=True):
    record: AttemptRecord
    attempt: Attempt
    reply: TargetReply
    stream: tuple[OpenStream, tuple[bytes, ...]] | None = None
    """The stream and its events that the answer was collected from, if the client wants a stream."""

    def given(self, budget: BudgetHold) -> "WholeAnswer | OpenStream":
        """Returns an answer that was set aside, whole or as a stream; the caller records its attempt again."""
        budget.attempts[:] = [attempt for attempt in budget.attempts if attempt is not self.attempt]
        attempt = structs.replace(self.attempt, passed_over=False)
        if self.stream is None:
            return structs.replace(self, attempt=attempt)
        of, parts = self.stream
        return CollectedStream(of.record, of.response, of.decoder, of.first, parts, attempt)


async def read_late(record: AttemptRecord, response: UpstreamResponse, outcome: str = ErrorKind.TIMEOUT) -> Attempt:
    """Reads a late or outrun answer to its end; what it may still cost is held, as far as there is room."""
    await record.budget.extend(record.step.estimate.whole.beyond(record.budget.reservation.granted))
    with closing(response):
        try:
            body = await response.read()
        except UpstreamFailure as failure:
            if failure.late is None:
                raise
            body = await response.read()  # it lost the race first, and has now timed out too
    record.opened(response)
    if not 200 <= response.status < 300:
        return record.failed(record.adapter.failure(response.status, response.headers, body))
    if record.call.stream:
        record.decoder = decoder = record.decoder or record.adapter.stream(record.call)
        before = decoder.output_chars
        record.fed(body, decoder.feed(body), before)
        attempt = record.streamed(decoder, ErrorKind.TIMEOUT)
    else:
        attempt = record.answered(record.adapter.decode(record.call, body))
    return structs.replace(attempt, outcome=outcome)


def give_up(record: AttemptRecord, response: UpstreamResponse | None, outcome: str) -> None:
    """Records an attempt whose client left or that lost to a faster target, and closes its response. An outrun answer
    that is billed to its end is read on for its usage."""
    late = response if outcome == OUTRUN and record.step.target.reads_on[record.call.stream] else None
    record.budget.attempts.append(record.abandoned(outcome, reads_on=late is not None))
    if late is not None:
        record.budget.read_on(read_late(record, late, outcome), record.step.estimate.whole)
    elif response is not None:
        response.close()


async def metered(opened: OpenStream) -> AsyncGenerator[bytes]:
    """Yields the events of a stream as they arrive, up to its cap and as long as its hold pays for them."""
    decoder, record = opened.decoder, opened.record
    meter, restorer = record.meter, record.restorer
    if opened.first:
        yield opened.restored(opened.first)
    if decoder.complete or record.stopped:
        return
    async for data in opened.response.chunks(looks=meter is not None):
        before, events = decoder.output_chars, b""
        try:
            events = decoder.feed(data)
        except UpstreamFailure as failure:
            yield opened.restored(events := failure.before)
            raise
        finally:
            record.fed(data, events, before)
        yield events if restorer is None else restorer.feed(events)
        if decoder.complete:
            return
        if not record.step.target.reads_on[True] and record.past_cap(decoder):  # else it is billed to its end anyway
            record.stopped = PAST_CAP
        elif meter is not None and not decoder.finished:
            await keep_paid(record, decoder, meter)
        if record.stopped:
            await asyncio.sleep(0)  # let the event loop read what has arrived, which may include the provider's usage
            if record.stopped == STOPPED:
                yield opened.restored(record.read_rest(decoder))
                record.stopped = "" if decoder.complete else STOPPED
            return


async def keep_paid(record: AttemptRecord, decoder: StreamDecoder, meter: Meter) -> None:
    """Extends the hold where it may be used up before the next check. Stops the stream if that fails, or if the store
    answers too slowly."""
    while meter.due(decoder, record.unread):
        extension = asyncio.ensure_future(meter.extend(decoder))
        await asyncio.wait((extension,), timeout=meter.lasts_s(decoder))
        late = not (extension.done() or record.recovered)
        if late:
            record.cut()
        if (not await extension and meter.due(decoder, record.unread)) or late:
            # After a pause of the process, others may have charged the hold, so it can't grow; what arrived is billed.
            record.stopped = "" if record.recovered else STOPPED
            break


async def forward(
    opened: OpenStream,
    health: Health,
    settle: Callable[[Attempt, str | None, LateAnswer | None], bytes],
    durable: Callable[[], Awaitable[None]],
    translation: Translation | None = None,
) -> AsyncGenerator[bytes]:
    """Yields a stream's events for the client; a clean end is sent only if the upstream or the budget ended it.

    `settle` is called exactly once, with the attempt, the error and, for a late answer billed to its end, a function
    that reads the rest; it returns the usage JSON for the last events. `durable` returns once the settlement is stored.
    """
    decoder, record, failure, error, rest = opened.decoder, opened.record, CUT, CLIENT_GONE, None
    try:
        async for events in opened.events():
            if events:
                yield events if translation is None else translation.feed(events)
        error = record.stopped or ("" if decoder.finished else CUT.kind)
    except UpstreamFailure as upstream:
        failure, error = without_key(upstream.failure, opened.record.step.target), upstream.failure.kind
        if decoder.finished and failure.kind is ErrorKind.TIMEOUT:
            error = ""  # everything has arrived except the end of the connection
        elif upstream.late is not None:
            rest = partial(read_late, record, upstream.late)
    except Exception as fault:
        failure = unreadable(fault)
        error = failure.kind
    finally:
        if rest is None:
            opened.response.close(complete=decoder.complete)
        usage = settle(opened.ended(error), error or None, rest)
    await durable()
    if last := opened.rest():
        yield last if translation is None else translation.feed(last)
    if error not in ("", record.stopped):
        trips = TABLE[failure.kind].trips and (record.lease is None or record.lease.broke())
        health.failed(opened.record.step.target.id, trips=trips, reason=failure.kind)
        code = TABLE[failure.kind].code
        yield stream_error(failure) if translation is None else translation.error_event(failure.message, code)
        return
    health.succeeded(opened.record.step.target.id)
    if translation is None:
        yield opened.closing(usage)
    else:
        last = finish(opened.first, record.call, record.stopped) if record.stopped else b""
        yield translation.feed(last) + translation.final(usage)


def unreadable(error: Exception) -> Failure:
    """Logs an unforeseen error while reading an answer; returns it as a failure of the upstream."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "?"
    _log.warning("an upstream's answer can't be read: %s at %s", type(error).__name__, place)
    return Failure(ErrorKind.BAD_RESPONSE, "The upstream's answer can't be read.")


def without_key(failure: Failure, target: Target) -> Failure:
    """Masks the target's API key, which a provider may quote in its message, from the client."""
    key = target.api_key.reveal() if target.api_key is not None else ""
    if len(key) < SHORTEST_SECRET:
        return failure
    return structs.replace(failure, message=failure.message.replace(key, "***"))
