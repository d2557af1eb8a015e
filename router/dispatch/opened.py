"""What a target gives: a whole answer, or a stream that has begun."""

from collections.abc import AsyncGenerator, AsyncIterator

from msgspec import Struct, structs

from router.dispatch.attempt import Trial
from router.dispatch.cut import MESSAGES, PAST_CAP, STOPPED, closing
from router.dispatch.purse import Purse
from router.errors import UpstreamFailure
from router.types.attempt import Attempt
from router.types.call import Reply, StreamDecoder, UpstreamResponse
from router.types.plan import Candidate


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
