"""Steps 6 and 9 of one request: money is held before a byte is sent, and is settled exactly once however it ends."""

import asyncio
import logging
from collections.abc import Iterable, Set
from contextlib import suppress
from functools import partial
from operator import attrgetter

from msgspec import Struct, field, structs

from router.budget.alerts import Alerts
from router.budget.budget import Budget, RollingWindow
from router.budget.loop_breaker import LoopBreaker
from router.budget.loops import LoopRequest
from router.decide.explain import encode, explain
from router.decide.health import SUSPENSION_S
from router.decide.profile import SessionStates
from router.dispatch.hold import CLIENT_GONE, PATIENCE_MS, BudgetHold, BudgetRoom, LateAnswer, thought, waited_ms
from router.dispatch.refusals import ledger_down, store_down
from router.errors import ClientError
from router.estimate.learn import TargetStats
from router.ledger.adjust import make_equal, unequal
from router.ledger.ledger import Ledger
from router.ledger.query import booked_elsewhere
from router.ledger.write import exhausted, insert_held, lose, odd_answers, reroute, settle
from router.observe.metrics import Telemetry
from router.observe.observer import ObservedRequest
from router.recorder import MAX_UNREAD, MAX_UNREAD_BYTES, OutcomeRecorder, ServedContext
from router.types.account import (
    ANY_AMOUNT,
    LEASE_MS,
    NOTHING,
    Account,
    Amount,
    BudgetBound,
    BudgetStore,
    Journal,
    Lease,
    LedgerUnavailable,
    Refused,
    Reservation,
    StoreUnavailable,
    Unit,
)
from router.types.attempt import Attempt, Usage, usage_json
from router.types.clock import clock_ms, now_ms
from router.types.decision import Decision
from router.types.request import Caller, Request, session_key

_log = logging.getLogger(__name__)
_NANO = attrgetter("cost.nano")
MAX_DECISIONS = 3
"""Maximum number of new decisions for a request whose budgets are short. Then it takes what is left, and is lowered."""
CLIENT_CLOSED = 499
"""Status of a request whose client left, as in nginx's logs; it is never sent."""


class Accounting(Struct, eq=False):
    """Where money and rows are kept, and what is learned from them."""

    journal: Journal
    store: BudgetStore
    learned: TargetStats
    telemetry: Telemetry
    alerts: Alerts
    breaker: LoopBreaker
    recorder: OutcomeRecorder
    room: BudgetRoom = field(default_factory=BudgetRoom)
    recall: SessionStates = field(default_factory=SessionStates)
    lease: Lease = field(default_factory=partial(Lease, now_ms))
    open: "dict[str, Settlement]" = {}
    """Settlements by request id, from the first row of the request until it is booked."""
    used_keys: set[str] = set()
    """Ids of the keys whose requests were settled since the last tick."""

    async def durable(self) -> None:
        """Commits, but ignores a failure: the provider has billed the answer, so it is given, and its rows wait."""
        with suppress(LedgerUnavailable):
            await self.journal.committed()

    async def end(self) -> None:
        """Stops reading late answers, which are then charged as estimated."""
        reading = list(self.room.reading)
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)

    def recover(self, running: Set[str]) -> int:
        """Charges requests of this process at their hold that neither run nor were settled, which only a bug can cause.
        `running` has the ids of all requests in progress. Returns the number charged."""
        unsettled = [row for name, row in self.open.items() if name not in running and not row.budget.reading]
        for settlement in unsettled:
            settlement.charge_hold()
        return len(unsettled)


class Settlement(Struct, eq=False):
    """Reserves the money for one request and settles it."""

    _accounting: Accounting
    _request: Request
    _caller: Caller
    budget: BudgetHold
    _started: float
    internal: str = ""
    observed: ObservedRequest | None = None
    lowered: tuple[str, ...] = ()
    left: Amount = ANY_AMOUNT
    """What is left in its budgets, once one of them could not hold what the decision needed."""
    watched: LoopRequest | None = None
    """State of the loop breaker for this request, once it has let the request pass."""
    context: ServedContext | None = None
    """Context of the answer, once the request is decided."""
    answer: str = ""
    """Text of an answer that was not streamed. The loop breaker compares it with the next request."""
    _decision: Decision | None = None
    """Latest decision, once the request has its row."""
    _open: bool = True
    _tries: int = 0

    async def reserve(self, decision: Decision, bound: BudgetBound, at_ms: int) -> Refused | None:
        """Holds enough for the answer that was decided at `at_ms`. Returns None once it is held. After a refusal it may
        be called again with another decision; if the refusal is `short`, that must be limited by `left`.

        Raises `ClientError` if nothing can be held or written at the moment.
        """
        accounting, budget, steps = self._accounting, self.budget, decision.plan.steps
        budget.bound = bound
        ask = budget.ask(steps, exactly=self._tries < MAX_DECISIONS)
        held = budget.reservation.granted if budget.reservation.holds else Amount() if bound.accounts else ask.whole
        self._write_row(decision, held, at_ms)
        patience_ms = min(PATIENCE_MS, decision.stakes.deadline_ms or PATIENCE_MS)
        try:
            if not accounting.journal.available:
                raise LedgerUnavailable
            if not (bound.accounts or bound.caps):
                return None
            refused = await budget.open(ask, steps, patience_ms, at_ms)
        except StoreUnavailable as error:
            refusal = ledger_down() if isinstance(error, LedgerUnavailable) else store_down()
            self.close(refusal.status, refusal.code)
            raise refusal from None
        if refused is None:
            return None
        if refused.short:
            self._tries += 1
            self.left = self.left.within((structs.replace(refused.account, limit=refused.left),))
        elif refused.account in bound.accounts and not refused.account.size and not refused.passing:
            exhausted(accounting.journal, refused, now_ms())
            accounting.alerts.refuse(refused.account)
        return refused

    async def refuse(self, refusal: ClientError) -> ClientError:
        """Closes a refused request, which has a row too. Returns `refusal`."""
        self.close(refusal.status, refusal.code)
        await self._accounting.durable()
        return refusal

    async def refuse_at_once(self, decision: Decision, refusal: ClientError, at_ms: int) -> ClientError:
        """Refuses a request before anything was held."""
        self._write_row(decision, Amount(), at_ms)
        return await self.refuse(refusal)

    def _write_row(self, decision: Decision, held: Amount, at_ms: int) -> None:
        """Writes the row before anything is held, so that a crash in between leaves no hold without a row."""
        journal = self._accounting.journal
        document = encode(explain(decision))
        if self._decision is not None:
            reroute(journal, decision, held, document)
        else:
            insert_held(journal, self._request, self._caller, decision, held, at_ms, document)
        self._decision = decision
        self._accounting.open[self._request.id] = self
        if self.observed is not None:
            self.observed.decision = decision

    def abandon(self, status: int, error: str) -> None:
        """Closes a request that has a row, and maybe a hold, after any failure."""
        if self._decision is not None:
            self.close(status, error)

    def charge_hold(self) -> None:
        self._open = False
        reservation = self.budget.reservation
        if reservation.holds:
            charges = [0 if hold.unit is Unit.PARALLEL else hold.amount for hold in reservation.holds]
            self._accounting.store.settle(reservation, charges)
            self.budget.grow_no_more()
            self._accounting.room.settled.set()
        lose(self._accounting.journal, self._request.id)
        del self._accounting.open[self._request.id]

    def close(self, status: int, error: str | None) -> int:
        """Ends the request. Returns its cost in nano-USD, as far as it is known."""
        cost: int = sum(map(_NANO, self.budget.attempts))
        if self.budget.presence.gone:
            status, error = CLIENT_CLOSED, CLIENT_GONE
        if self._open:
            self._open = False
            now, reading = now_ms(), self.budget.reading
            if not self.internal:  # only a client's own requests count for its session and its conversation
                accounting, attempts, session = self._accounting, self.budget.attempts, self._request.limits.session
                if session:
                    given = (row.target.id for row in reversed(attempts) if row.outcome == "ok" and not row.passed_over)
                    began = now - int(clock_ms() - self._started)
                    accounting.recall.note(session_key(self._caller.id, session), next(given, ""), cost, began)
                if self.context is not None and (prefix := self.context.decision.prefix) is not None:
                    used = [(row.target.id, row.usage) for row in attempts if row.usage and row.outcome == "ok"]
                    accounting.learned.caches.note(prefix, used, now)
                accounting.breaker.settled(self.watched, now, cost=cost, sent=bool(attempts), answer=self.answer)
            book = partial(self._book, status, error, now, clock_ms())
            if reading:  # the hold stays until the cost of late answers is known
                late = asyncio.gather(*reading, return_exceptions=True)
                late.add_done_callback(lambda _: book(sum(map(_NANO, self.budget.attempts))))
            else:
                book(cost)
        return cost

    def _book(self, status: int, error: str | None, now: int, ended: float, cost: int) -> None:
        """Settles holds, writes rows and counts metrics. `now`: Unix time in ms; `ended`: end by `clock_ms`."""
        budget, accounting, attempts, took = self.budget, self._accounting, self.budget.attempts, ended - self._started
        if self.observed is not None:
            self.observed.step("settle")
            self.observed.settled(status, error, attempts, cost)
        charges, overrun, held = budget.charges()
        if budget.reservation.holds:
            accounting.store.settle(budget.reservation, charges)
            if budget.grows:
                budget.grow_no_more()
            accounting.room.settled.set()
            for account in budget.bound.accounts:
                if account.budget in accounting.alerts.watched:
                    accounting.alerts.touch(account)
        overhead_us = round((took - waited_ms(budget.waits, ended)) * 1000)
        settle(
            accounting.journal,
            self._request.id,
            status=status,
            error=error,
            attempts=attempts,
            cost=cost,
            thinking=sum(map(thought, attempts)),
            overrun=overrun,
            lowered=self.lowered,
            total_ms=int(took),
            first_ms=attempts[-1].first_ms if attempts else None,
            overhead_us=overhead_us,
        )
        accounting.open.pop(self._request.id, None)
        accounting.used_keys.add(self._caller.id)
        odd_answers(accounting.journal, attempts, now, SUSPENSION_S)
        if self.context is not None:
            accounting.recorder.settled(self.context, attempts)
        if (decision := self._decision) is not None:
            unread, telemetry = accounting.recorder.unread, accounting.telemetry
            short = len(self._request.raw) <= MAX_UNREAD_BYTES and len(unread) < MAX_UNREAD
            if short and decision.classification.reading is None:
                unread.append((self._request, decision, attempts))
            for queue in decision.plan.queued:
                telemetry.spilled[queue.target,] += queue.spilled
            telemetry.settled.append((decision.plan.route, status, attempts, overhead_us, held))
        if overrun:
            accounting.learned.overrun(attempts[-1].target.id)
            accounting.telemetry.count("overruns")

    def settle(self, attempt: Attempt, error: str | None, rest: LateAnswer | None) -> bytes:
        """Settles a finished stream. `rest` reads what is still written and billed. Returns the usage as JSON."""
        self.budget.attempts.append(attempt)
        if rest is not None:
            self.budget.read_on(rest())
        cost = self.close(CLIENT_CLOSED if error == CLIENT_GONE else 200, error)
        return usage_json(self._request.endpoint, attempt.usage or Usage(), cost)


# Rows and budgets in different stores: repairs differences that a crashed process left.


async def reconcile(
    store: BudgetStore, journal: Journal, ledger: Ledger, books: Ledger, budgets: Iterable[Budget], since_ms: int
) -> int:
    """Compares rows and bookings after a recovery, and corrects the store that knows less, with an incident. `books` is
    the ledger that has the bookings; bookings without rows are looked for from `since_ms` on. Returns the time from
    which to look next. Raises `StoreUnavailable` or its subclass `LedgerUnavailable`."""
    until_ms = now_ms() - LEASE_MS  # younger ones may still be on their way
    await journal.committed()
    split = {child.id: child.account() for child in await store.children()}
    by_name = {budget.id: budget for budget in budgets}

    def account(identifier: str) -> Account | None:
        name, _, value = identifier.partition("|")
        return by_name[name].account_of(value, now_ms()) if name in by_name else split.get(name)

    for row in await asyncio.to_thread(unequal, ledger, books, account, since_ms, until_ms):
        _log.error("request %s: %s; corrected", row.request_id, row.says)
        make_equal(journal, row)
        if row.holds:
            store.settle(Reservation(row.request_id, Amount(), row.holds), row.charges)
    return until_ms


async def carry_over(store: BudgetStore, books: Ledger, budgets: Iterable[Budget]) -> None:
    """Counts what was spent since a budget's window began if the policy gave the budget another window. The first
    process does it for all. Raises `StoreUnavailable`."""
    now = now_ms()
    for budget in budgets:
        if budget.scope == "request" or isinstance(budget.window, RollingWindow):
            continue
        for name, amount, total in await asyncio.to_thread(booked_elsewhere, books, budget.id, budget.span(now).start):
            account = structs.replace(budget.account_of(name.partition("|")[2], now), hard=False, targets=frozenset())
            with suppress(ValueError):  # another process was first
                opening = await store.reserve(
                    f"opening-{name}-{account.window_start_ms}-{total}", [account], NOTHING, now
                )
                if isinstance(opening, Reservation):
                    store.settle(opening, [amount])
                    _log.warning("budget %s has another window: what was spent in it before counts", name)
    await store.settled()
