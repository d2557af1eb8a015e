"""Steps 6 and 9 of one request: money is held before a byte leaves, and settled exactly once whatever ends it."""

import asyncio
from collections.abc import Awaitable, Sequence
from contextlib import suppress

from msgspec import structs

from router.budget.budget import Budget
from router.budget.embedded import EmbeddedBudgets
from router.dispatch.stream import CLIENT_GONE
from router.errors import TABLE, ClientError
from router.estimate.estimate import least_cost
from router.ledger.write import Outcome, birth, settle
from router.refusals import ledger_down, over_budget, stream_error
from router.telemetry import Telemetry
from router.types.attempt import Attempt
from router.types.call import StreamDecoder
from router.types.clock import clock_ms, now_ms
from router.types.failure import Failure
from router.types.journal import Journal, LedgerUnavailable
from router.types.plan import Decision, Plan
from router.types.request import Caller, Endpoint, Request
from router.types.reservation import Refused, Reservation
from router.types.served import Translation
from router.types.usage import Usage
from router.usage_json import usage_json

CLIENT_CLOSED = 499
"""Status of a request whose client left, as nginx logs it; nobody receives it."""


class Books:
    """Where money and rows are kept."""

    def __init__(self, journal: Journal, budgets: EmbeddedBudgets, telemetry: Telemetry) -> None:
        self.journal, self.budgets, self.telemetry = journal, budgets, telemetry

    async def durable(self) -> None:
        """The answer is already paid for: when the disk fails now it is given all the same, and its rows wait."""
        with suppress(LedgerUnavailable):
            await self.journal.committed()


class Settlement:
    """The open account of one request."""

    def __init__(self, books: Books, request: Request, route: str) -> None:
        self._books, self._request, self._route = books, request, route
        self._started, self._open = clock_ms(), True
        self.reservation = Reservation(request.id, 0, ())
        self.attempts: list[Attempt] = []
        self.translation: Translation | None = None

    async def reserve(self, caller: Caller, decision: Decision, budgets: Sequence[Budget], refusal_status: int) -> Plan:
        """Holds the plan's worst case, or what is left if an answer still fits that; returns the steps it pays for.

        Raises `ClientError` when not even the cheapest step fits.
        """
        request, plan, now = self._request, decision.plan, now_ms()
        if not budgets and request.limits.budget_nano is None:
            return self._unbound(caller, decision, now)
        least = min(least_cost(step.target, request) for step in plan.steps)
        wanted = max(least, *(step.estimate.hold for step in plan.steps))
        if request.limits.budget_nano is not None:
            wanted = min(wanted, request.limits.budget_nano)
        birth(self._books.journal, request, caller, decision, wanted, now)
        granted = await self._hold(budgets, wanted, least, now)
        if isinstance(granted, Refused):
            self.close(refusal_status, "budget_exceeded")
            await self._books.durable()
            raise over_budget(granted, least, refusal_status)
        self.reservation = granted
        affordable = tuple(step for step in plan.steps if least_cost(step.target, request) <= granted.amount)
        return structs.replace(plan, steps=affordable)

    async def turn_away(self, caller: Caller, decision: Decision, refusal: ClientError) -> None:
        """A request that no target may serve has its row too."""
        birth(self._books.journal, self._request, caller, decision, 0, now_ms())
        self.close(refusal.status, refusal.code)
        await self._books.durable()

    def _unbound(self, caller: Caller, decision: Decision, now: int) -> Plan:
        """No budget binds: the row is born, but there is nothing to hold and nothing to wait for."""
        if not self._books.journal.available:
            raise ledger_down()
        birth(self._books.journal, self._request, caller, decision, decision.plan.steps[0].estimate.hold, now)
        return decision.plan

    async def _hold(self, budgets: Sequence[Budget], wanted: int, least: int, now: int) -> Reservation | Refused:
        if wanted < least:
            return Refused("x-lowpass-budget-usd", "request", wanted, 0, 0, None)
        try:
            if self._books.journal.available:
                return await self._books.budgets.reserve(self._request.id, budgets, wanted, least, now)
        except asyncio.CancelledError:
            self.close(CLIENT_CLOSED, CLIENT_GONE)
            raise
        except LedgerUnavailable:
            pass  # as if it had been known before
        refusal = ledger_down()
        self.close(refusal.status, refusal.code)
        raise refusal

    def close(self, status: int, error: str | None) -> int:
        """Books, rows and metrics learn of the end in one transaction. Returns the request's cost in nano-USD."""
        cost = sum(attempt.cost.nano for attempt in self.attempts)
        if self._open:
            self._open = False
            self._books.budgets.settle(self.reservation, cost)
            settle(self._books.journal, self._request.id, self._outcome(status, error, cost))
            self._books.telemetry.settled(self._route, status, self.attempts)
        return cost

    def _outcome(self, status: int, error: str | None, cost: int) -> Outcome:
        first_ms = self.attempts[-1].first_ms if self.attempts else None
        total_ms = int(clock_ms() - self._started)
        return Outcome(status, error, tuple(self.attempts), cost, total_ms, first_ms)

    # What remains when a stream is over (`router.dispatch.stream.Ending`).

    def settle(self, attempt: Attempt, error: str | None) -> bytes:
        self.attempts.append(attempt)
        cost = self.close(CLIENT_CLOSED if error == CLIENT_GONE else 200, error)
        translated = self.translation is not None
        endpoint = Endpoint.RESPONSES if translated else self._request.endpoint
        return usage_json(endpoint, attempt.usage or Usage(), cost)

    def durable(self) -> Awaitable[None]:
        return self._books.durable()

    def render(self, events: bytes) -> bytes:
        return self.translation.feed(events) if self.translation is not None else events

    def closing(self, decoder: StreamDecoder, usage: bytes) -> bytes:
        return self.translation.final(usage) if self.translation is not None else decoder.final(usage)

    def broken(self, failure: Failure) -> bytes:
        if self.translation is not None:
            return self.translation.error_event(failure.message, TABLE[failure.kind].code)
        return stream_error(failure)
