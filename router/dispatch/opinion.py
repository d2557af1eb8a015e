"""Asks a model of this machine for its opinion: through the door, and past a guard that lets nothing leave."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence

import msgspec
from msgspec import Struct

from router.classify.deep.second import Question, Verdict, Words, asked, denied, longest, verdicts
from router.classify.detector import Doubt
from router.decide.health import Health
from router.dispatch.door import Door, KeptIn, Parcel
from router.dispatch.fold import said
from router.dispatch.seat import Seat
from router.engines.replicas import Replicas
from router.errors import UpstreamFailure
from router.types.call import Adapter, Call
from router.types.failure import ErrorKind
from router.types.guard import Guard
from router.types.request import Endpoint
from router.types.target import Target, Timeouts, Wire

_log = logging.getLogger(__name__)


class AtHome(Struct, frozen=True):
    """`guard`, and beside it that nothing goes to who is not local, whatever a policy says. Implements `Guard`."""

    guard: Guard

    def refusal(self, target: Target, classes: frozenset[str], now_ms: int, *, redacted: bool) -> str:
        if not target.local:
            return "a second opinion never leaves this machine"
        return self.guard.refusal(target, classes, now_ms, redacted=redacted)

    def unseen(self, body: bytes, classes: frozenset[str]) -> frozenset[str]:
        return self.guard.unseen(body, classes)

    def private(self, classes: frozenset[str]) -> bool:
        return self.guard.private(classes)


class Inquiry(Struct, frozen=True):
    """`classes`: of the request, those in question included."""

    target: Target
    guard: Guard
    classes: frozenset[str]
    questions: Sequence[Question]
    called: Words
    timeout_ms: int
    request_id: str

    def call(self) -> Call:
        return Call(
            target=self.target,
            endpoint=Endpoint.CHAT,
            body=asked(self.questions, self.called),
            model=self.target.id,
            request_id=self.request_id,
            max_output=longest(self.questions),
            effort="none",
            private=self.guard.private(self.classes),
        )


class Opinions:
    """Nothing that goes wrong here is told to a client: it only means that nobody said no. `count` hears of each."""

    def __init__(
        self,
        adapters: Mapping[Wire, Adapter],
        door: Door,
        health: Health,
        replicas: Replicas,
        count: Callable[[Verdict], object],
    ) -> None:
        self._adapters, self._door, self._health, self._replicas, self._count = adapters, door, health, replicas, count

    async def denied(self, inquiry: Inquiry) -> frozenset[Doubt]:
        """What it says no to."""
        given = verdicts(await self._answer(inquiry), inquiry.questions)
        for verdict in given:
            self._count(verdict)
        return denied(inquiry.questions, given)

    async def _answer(self, inquiry: Inquiry) -> str:
        if self._health.resting(inquiry.target.id) > 0:
            return ""
        try:
            return await asyncio.wait_for(self._ask(inquiry), inquiry.timeout_ms / 1000)
        except (TimeoutError, KeptIn, UpstreamFailure, msgspec.DecodeError) as error:
            _log.warning("no second opinion of %s (%s): it counts as found", inquiry.target.id, type(error).__name__)
            return ""

    async def _ask(self, inquiry: Inquiry) -> str:
        seat = Seat(self._replicas, inquiry.target, None, [])
        try:
            return await self._said(inquiry, seat.url)
        except UpstreamFailure as error:
            if error.failure.kind is ErrorKind.CONNECT:  # it may just have been slower than we are patient
                seat.broke()
            raise
        finally:
            seat.leave()

    async def _said(self, inquiry: Inquiry, url: str) -> str:
        target, call = inquiry.target, inquiry.call()
        adapter = self._adapters[target.provider.wire]
        parcel = Parcel(AtHome(inquiry.guard), target, adapter.encode(call), inquiry.classes, url=url)
        response = await self._door.send(parcel, _within(inquiry.timeout_ms), _unnoted)
        try:
            if response.status != 200:
                return ""
            return said(adapter.decode(call, await response.read()).body) or ""
        finally:
            response.close()


def _within(limit_ms: int) -> Timeouts:
    return Timeouts(connect=limit_ms, first=limit_ms, between=limit_ms, total=limit_ms)


def _unnoted(classes: frozenset[str]) -> None:
    """No row of the ledger: nothing is charged, and nothing has left."""
