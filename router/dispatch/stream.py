"""A stream from its first events to its end: never a clean end that neither the upstream nor its budget made."""

from collections.abc import AsyncGenerator, Awaitable
from typing import Protocol

from router.decide.health import Health
from router.dispatch.ask import unreadable, without_key
from router.dispatch.how import CLIENT_GONE
from router.dispatch.opened import Opened
from router.errors import TABLE, UpstreamFailure
from router.types.attempt import Attempt
from router.types.failure import ErrorKind, Failure

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
