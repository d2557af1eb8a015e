"""The budget hold of one request: what it may spend, and how it waits for room."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from operator import attrgetter
from typing import Any
from weakref import WeakSet

from msgspec import Struct, field, structs

from router.decide.replicas import Replicas
from router.errors import UpstreamFailure
from router.estimate.estimate import fit, held_anew, within_reach
from router.estimate.learn import TargetStats
from router.estimate.tokens import OFF
from router.types.account import (
    AMPLE,
    ANY_AMOUNT,
    ENDLESS,
    GRANTED,
    UNBOUND,
    Account,
    Amount,
    BudgetBound,
    BudgetStore,
    HoldRequest,
    Refused,
    Reservation,
    StoreUnavailable,
    Unit,
    unpaid,
)
from router.types.attempt import Attempt, UpstreamResponse, Verdict
from router.types.clock import clock_ms, now_ms
from router.types.decision import Candidate, FittedRequest
from router.types.request import Latest, Request
from router.types.target import Contract, Target

_log = logging.getLogger(__name__)
CLIENT_GONE = "client_gone"
"""Outcome of an attempt whose client disconnected."""
OUTRUN = "outrun"
"""Outcome of an attempt that lost to a faster target; also the message with which its task is cancelled."""
MOST_READ_ON, READ_ON_S = 256, 120
"""Maximum number of answers read on at once, and the seconds for which they are; then they are charged an estimate."""

LateAnswer = Callable[[], Coroutine[Any, Any, Attempt]]
"""Reads the rest of an answer that timed out."""


class ClientPresence(Struct, eq=False):
    """Whether the client is still connected, whether its answer is read on if it leaves, and the process's lease."""

    gone: bool = False
    reads_on: bool = False
    lost_since: Callable[[int], bool] = lambda start_ms: False
    """Whether the lease may have been lost since a time in Unix ms (`Lease.lost_since`)."""


class HedgeRace(Struct, eq=False):
    """State of a hedge. While both targets are asked (`on`) neither is retried, so the hold pays for both."""

    on: bool = False
    begun: bool = False
    """Whether the first byte of an answer has arrived."""


class Outrun(asyncio.CancelledError):
    """Cancels a request that lost to a faster target. `late`: its response, still written and billed."""

    def __init__(self, late: UpstreamResponse) -> None:
        super().__init__(OUTRUN)
        self.late = late


class AttemptOptions(Struct, frozen=True):
    role: str = ""
    fallback: bool = False
    """Whether another target is available, so long pauses are not worthwhile."""
    whole: bool = False
    """Whether the answer is collected whole even if the client wants a stream."""
    race: HedgeRace | None = None

    @property
    def racing(self) -> bool:
        return self.race is not None and self.race.on


ALONE = AttemptOptions()
WITH_FALLBACK = AttemptOptions(fallback=True)


class ReplicaLease:
    """A request's place on one replica (`url`) of its target's engine, taken on construction. It must be left; leaving
    it again has no effect."""

    __slots__ = ("_replicas", "_taken", "_target", "url")

    def __init__(self, replicas: Replicas, target: Target, request: Request | None, tried: list[str]) -> None:
        """`request`: None for the gateway's own calls. `tried`: replicas tried before, to which this is added."""
        self._replicas, self._target, self._taken = replicas, target, True
        self.url = replicas.pick(target, request, tried)
        tried.append(self.url)

    def leave(self, *, worked: bool = False) -> None:
        if self._taken:
            self._taken = False
            self._replicas.done(self.url)
            if worked:
                self.worked()

    def worked(self) -> None:
        self._replicas.succeeded(self.url)

    def broke(self) -> bool:
        """Reports that the replica failed; returns whether the whole target is out of replicas."""
        return self._replicas.failed(self._target, self.url)


# Waiting for room in a budget: what other requests hold is freed when they are settled.

LOOK_S = 0.1
"""Interval in seconds at which a waiting request tries again, since other processes settle unannounced."""
TRIES, SLACK = 3, 1.25
"""Maximum number of times a hold is extended for a step that does not fit, and the factor on what it needs."""
LEFT_KNOWN, PROCESSES = 1_024, 4
"""Maximum number of account groups whose remaining amounts are cached; processes that may share one amount."""
GROWTH = 0.8
"""Share of the first holds of streams in progress that must be left for them to grow when a request is admitted."""
PATIENCE_MS = 10_000
"""Maximum time in ms that a request waits for room held by others; its own deadline may be sooner."""


class BudgetRoom:
    """The process's shared state for budget holds. Use inside one running event loop."""

    def __init__(self) -> None:
        self.settled = asyncio.Event()
        self.reading = set[asyncio.Task[None]]()
        """Tasks that read on late answers, of all requests."""
        self.streams = WeakSet[object]()
        self.left = Latest[tuple[str, ...], Amount](LEFT_KNOWN)
        """What groups of accounts had left (by their ids) when the store last reported it."""
        self.turn = asyncio.Lock()
        self.growing: dict[str, int] = {}
        """Account id → what the requests in progress whose holds may grow held at first."""

    async def until_there_is(
        self, reserve: Callable[[], Awaitable[Reservation | Refused]], patience_ms: float
    ) -> Reservation | Refused:
        """Calls `reserve` for up to `patience_ms`, as long as only requests in progress stand in the way."""
        until = clock_ms() + patience_ms
        while True:
            outcome = await reserve()
            if isinstance(outcome, Reservation) or not outcome.passing or clock_ms() >= until:
                return outcome
            with suppress(TimeoutError):
                self.settled.clear()
                await asyncio.wait_for(self.settled.wait(), LOOK_S)


def waited_ms(waits: Sequence[list[float]], now: float) -> float:
    """Returns for how many ms up to `now` at least one target was working (the rest is the gateway's own time).
    `waits`: start and end of each attempt by one clock; an end may be in the future."""
    total, until = 0.0, 0.0
    for begin, end in sorted(waits):
        total += max(0.0, min(end, now) - max(begin, until))
        until = max(until, end)
    return total


LENT_PATIENCE_MS = 1_000
"""Maximum time in ms that a request waits for an amount that a split-off budget holds, which may stay held long."""
UNRESERVED, NOT_AWAITED = Reservation("", ANY_AMOUNT), Amount()
_LEAST_USD, _LEAST_THINKING = attrgetter("estimate.least.usd"), attrgetter("estimate.least.thinking")


class BudgetHold(Struct, eq=False):
    """What one request may spend. Opened before anything is sent; `charges` says what each account pays."""

    _store: BudgetStore
    learned: TargetStats
    _room: BudgetRoom
    _request: Request
    presence: ClientPresence = field(default_factory=ClientPresence)
    bound: BudgetBound = UNBOUND
    """Accounts and caps that limit the request; set once it is decided."""
    reservation: Reservation = UNRESERVED
    attempts: list[Attempt] = []
    reading: set[asyncio.Task[None]] = set()
    """Tasks that read on this request's late answers, whose cost is not known yet."""
    _awaited: list[tuple[Attempt, Amount]] = []
    """Attempts still being read on, with their estimate and the most each may cost."""
    waits: list[list[float]] = []
    """Start and end in ms of each attempt (see `waited_ms`)."""
    grows: dict[str, int] = {}
    """What this request counts for in `BudgetRoom.growing`."""
    _extending: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Serialises extensions of the reservation by hedged attempts."""

    def ask(self, steps: Sequence[Candidate], *, exactly: bool = False) -> HoldRequest:
        """Returns what to hold: enough for the first step, at least enough for the cheapest, and within the caps.
        `exactly`: at least enough for the first step as it was decided."""
        first, caps = steps[0].estimate, self.bound.caps
        # A stream that is metered as it arrives needs only a start.
        metered = self._request.stream and first.metered and not first.blind
        tight, whole = first.tight, first.tight if metered else first.whole
        least = first.least if len(steps) == 1 else _least(steps)
        if caps:
            tight, whole = tight.within(caps), whole.within(caps)
        # Accounts of some targets only may have less than the rest; their targets are then left out.
        if exactly and not self.bound.partial:
            return HoldRequest(least=tight, tight=tight, whole=whole, shortest=least)
        # A request waits for its usual thinking tokens held by others before it is sent with less thinking.
        if self.bound.thinks:
            least = Amount(least.usd, tight.thinking)
        targets = tuple([step.target.id for step in steps]) if self.bound.partial else ()
        return HoldRequest(least=least, tight=tight, whole=whole, targets=targets)

    async def open(
        self, ask: HoldRequest, steps: Sequence[Candidate], patience_ms: float, at_ms: int
    ) -> Refused | None:
        """Reserves `ask` for `steps`, as decided at `at_ms` (Unix). Returns None, or the refusal.

        Waits up to `patience_ms` while only requests in progress stand in the way; what is asked for is updated
        meanwhile. An open reservation is extended instead. Raises `StoreUnavailable`.
        """
        if self.reservation.holds:
            await self.extend(ask.tight.beyond(self.reservation.granted))
            return None
        for cap in self.bound.caps:
            needed = _least(steps).of(cap.unit)
            if cap.limit < needed:
                return Refused(account=cap, spent=0, held=0, needed=needed)
        if not self.bound.accounts:
            self.reservation = structs.replace(self.reservation, granted=ANY_AMOUNT.within(self.bound.caps))
            return None
        if self._room.growing and steps[0].estimate.metered:
            ask = self._sparing(ask)
        granted = await self._store.reserve(self._request.id, self.bound.accounts, ask, at_ms)
        if isinstance(granted, Refused):
            granted = await self._wait(granted, ask, steps, patience_ms)
            if isinstance(granted, Refused):
                return await self._knowing_what_is_lent(granted) if granted.passing else granted
        elif granted.granted.usd < steps[0].estimate.whole.usd or self.bound.thinks:
            self._grow(granted.granted, steps[0])
        self.reservation = granted
        if self._request.stream:
            self._room.left.put(self._spending, granted.room)
        return None

    def _sparing(self, ask: HoldRequest) -> HoldRequest:
        """Returns `ask`, to be granted only where what other requests hold can still grow."""
        growing = self._room.growing
        names = [account.id for account in self.bound.spending if account.hard and account.id in growing]
        return structs.replace(ask, spare={name: int(GROWTH * growing[name]) for name in names})

    def _grow(self, held: Amount, first: Candidate) -> None:
        """Counts what is held in `BudgetRoom.growing` if it is less than the worst case and will be metered."""
        whole, growing = first.estimate.whole, self._room.growing
        short = held.usd < whole.usd or held.thinking < whole.thinking
        if short and first.estimate.metered and self.learned.ahead(first.target.id) is not None:
            amounts = [(account.id, held.of(account.unit)) for account in self.bound.spending]
            self.grows = {account: amount for account, amount in amounts if amount}
            for account, amount in self.grows.items():
                growing[account] = growing.get(account, 0) + amount

    def grow_no_more(self) -> None:
        """Ends what this request counts for in `BudgetRoom.growing`."""
        growing = self._room.growing
        for account, amount in self.grows.items():
            growing[account] -= amount
            if not growing[account]:
                del growing[account]
        self.grows = {}

    @property
    def _spending(self) -> tuple[str, ...]:
        return tuple([account.id for account in self.bound.spending])

    def share(self) -> Amount:
        """Returns this request's share of what its accounts have left unheld, to count on while the store is silent."""
        left, parts = self._room.left.get(self._spending, Amount()), PROCESSES * max(1, len(self._room.streams))
        return Amount(left.usd // parts, left.thinking // parts)

    def metered(self, stream: object) -> None:
        """Registers a metered stream, which may have to wait for the store while it arrives."""
        self._room.streams.add(stream)

    async def _wait(
        self, refused: Refused, ask: HoldRequest, steps: Sequence[Candidate], patience_ms: float
    ) -> Reservation | Refused:
        """Waits until there is room for an answer with its usual thinking. Returns a refusal to be decided anew, where
        waiting can't help and there is room for a shorter answer or one with less thinking."""

        async def again(sparing: bool) -> Reservation | Refused:
            known = [held_anew(step, self._request, self.learned, self.bound.thinking) for step in steps]
            fresh = self.ask(known, exactly=ask.shortest is not None)
            async with self._room.turn if metered else nullcontext():  # in turns, so that each counts those before
                fresh = self._sparing(fresh) if sparing and metered else fresh
                outcome = await self._store.reserve(self._request.id, self.bound.accounts, fresh, now_ms())
                if isinstance(outcome, Refused):
                    return _short(outcome, fresh, waits=metered)
                self._grow(outcome.granted, known[0])
                return outcome

        metered = steps[0].estimate.metered  # else its whole cap is held, and it is shortened at once
        refused = _short(refused, ask, waits=metered)
        outcome: Reservation | Refused = refused
        if refused.passing and not (await self._knowing_what_is_lent(refused)).passing:
            patience_ms = min(patience_ms, LENT_PATIENCE_MS)
        until = clock_ms() + patience_ms
        for sparing in (True, False):
            if isinstance(outcome, Refused) and (outcome.passing or (ask.spare and not sparing)):
                outcome = await self._room.until_there_is(partial(again, sparing), until - clock_ms())
        if isinstance(outcome, Refused) and outcome.account.unit is Unit.THINKING and ask.shortest is None:
            # There will be no room for the usual thinking, so the request is answered with less.
            lower = structs.replace(ask, least=_least(steps), spare={})
            return await self._store.reserve(self._request.id, self.bound.accounts, lower, now_ms())
        return _short(outcome, ask, waits=False) if isinstance(outcome, Refused) and outcome.passing else outcome

    def fit(self, step: Candidate) -> FittedRequest | None:
        """Returns how to ask `step` within what is left; None if there is no room for an answer."""
        if self.bound.partial and step.target.id in unpaid(self.bound.spending, self.reservation):
            return None
        cap = self.bound.thinking
        if cap is not None and self.attempts:
            cap = max(0, cap - sum(map(thought, self.attempts)))
        known, left, whole = step.estimate, self.left(step.target.id), step.estimate.whole
        enough = cap is None and left.usd >= whole.usd and left.thinking >= whole.thinking
        fitted: FittedRequest | None = FittedRequest(
            max_output=known.cap,
            effort=known.effort or None,
            thinking_budget=known.thinking_budget,
            metered=not enough,
            thinks=whole.thinking > 0,
        )
        if not enough and (cap is not None or not known.metered or known.blind or known.tight.beyond(left) != Amount()):
            fitted = fit(step, self._request, left, self.learned, cap)
        if fitted is not None and (self.bound.spending or self.bound.caps) and step.target.reads_on[True]:
            return structs.replace(fitted, metered=False)  # stopping it early saves nothing: its whole cap is held
        if fitted is not None and fitted.metered and not enough:
            fitted = self._within_reach(step, fitted, left)
        if fitted is None or not (known.metered or fitted.effort == OFF.effort):
            return fitted
        # Where budgets are short, meter streams whose target has not shown that it keeps caps, and the first answers of
        # a target, so that later holds can learn from how they arrive.
        doubted = fitted.max_output is not None and step.target.id not in self.learned.kept_caps
        if not (doubted or (enough and known.blind and self.bound.spending)):
            return fitted
        held, room = self.reservation.granted, self.reservation.room
        short = (doubted and bool(self.bound.caps)) or (self.bound.usd and room.usd < (AMPLE - 1) * held.usd)
        short = short or (self.bound.thinks and room.thinking < (AMPLE - 1) * held.thinking)
        return structs.replace(fitted, metered=True, doubted=doubted) if short else fitted

    async def extended_fit(self, step: Candidate, fitted: FittedRequest | None) -> FittedRequest | None:
        """Returns what `fit` returns after extending the hold if needed. `fitted`: the last result of `fit`."""
        if not self.bound.spending:
            return fitted
        for _ in range(TRIES):
            # Leave a margin, since estimates may grow while the store is asked.
            tight = held_anew(step, self._request, self.learned, self.bound.thinking).estimate.tight
            wanted = Amount(int(tight.usd * SLACK), int(tight.thinking * SLACK))
            grew = await self.extend(wanted.beyond(self.left(step.target.id)))
            fitted = self.fit(step)
            if not grew or (fitted is not None and not fitted.lowered):
                break
        return fitted

    async def covers(self, steps: Sequence[Candidate]) -> bool:
        """Returns whether the hold pays for the worst case of all `steps` at once; extends it if needed and possible.

        Always False under a cap on the request's thinking: what is left of it is unknown while a target thinks.
        """
        if self.bound.thinking is not None:
            return False
        if not (self.bound.spending or self.bound.caps):
            return True
        wanted = Amount(sum(row.estimate.whole.usd for row in steps), sum(row.estimate.whole.thinking for row in steps))
        while True:
            left = [self.left(step.target.id) for step in steps]
            least = Amount(min(amount.usd for amount in left), min(amount.thinking for amount in left))
            if (lacking := wanted.beyond(least)) == Amount() or not await self.extend(lacking):
                return lacking == Amount()

    async def extend(self, more: Amount) -> bool:
        """Holds up to `more` in addition; returns whether anything was added."""
        usd, thinking = more.usd if self.bound.usd else 0, more.thinking if self.bound.thinks else 0
        async with self._extending:
            held = self.reservation.granted
            wanted = held.plus(Amount(usd, thinking)).within(self.bound.caps).beyond(held)
            if not self.bound.spending or wanted == Amount():
                return False
            with suppress(StoreUnavailable):
                self.reservation = await self._store.extend(self.reservation, self.bound.spending, wanted, now_ms())
            grown, left = self.reservation.granted.beyond(held), self._room.left.get(self._spending, Amount())
            self._room.left.put(self._spending, left.beyond(grown) if grown == wanted else Amount())
            return grown != Amount()

    def set_aside(self, attempt: Attempt, verdicts: Sequence[Verdict] = ()) -> Attempt:
        """Adds an answer as passed over until it is given: it is paid for either way. Returns the attempt as added."""
        self.attempts.append(structs.replace(attempt, passed_over=True, verdicts=tuple(verdicts)))
        return self.attempts[-1]

    def read_on(self, late: Coroutine[Any, Any, Attempt], most: Amount | None = None) -> None:
        """Reads on the answer of the last attempt, which is still written and billed, to replace its estimated cost.
        `most`: what it may cost; None for all that is left. Skipped if too many answers are being read on."""
        estimate, reading = self.attempts[-1], self._room.reading
        awaited = estimate, most or self.left(estimate.target.id).plus(Amount(estimate.cost.nano, thought(estimate)))

        async def read() -> None:
            try:
                async with asyncio.timeout(READ_ON_S):
                    attempt = await late
            except Exception as error:  # keep the estimate
                if not isinstance(error, UpstreamFailure | TimeoutError):
                    _log.error("a late answer of %s can't be read (%s)", estimate.target.id, type(error).__name__)
            else:
                self.attempts[:] = [attempt if row is estimate else row for row in self.attempts]
            self._awaited[:] = [row for row in self._awaited if row is not awaited]

        if len(reading) >= MOST_READ_ON:
            return late.close()
        self._awaited.append(awaited)
        task = asyncio.ensure_future(read())
        self.reading.add(task)
        reading.add(task)
        return task.add_done_callback(reading.discard)

    async def shortage(self, steps: Sequence[Candidate]) -> Refused | None:
        """Returns the limit with least left when no step fits any more; None if a cap on thinking was the reason.

        Raises `StoreUnavailable`.
        """
        least, hard = _least(steps), [account for account in self.bound.spending if account.hard]
        balances = await self._store.balances(hard) if hard else []
        limits = [
            Refused(account=account, spent=balance.spent, held=balance.held, needed=least.of(account.unit))
            for account, balance in zip(hard, balances, strict=True)
        ]
        limits += [Refused(account=cap, spent=0, held=0, needed=least.of(cap.unit)) for cap in self.bound.caps]
        return min(limits, key=lambda refused: refused.left - refused.needed, default=None)

    async def rates(self) -> list[tuple[Account, int]]:
        """Returns each rate account of the key with what is left this minute; empty if the store does not answer."""
        accounts = [account for account in self.bound.accounts if account.resets_at_ms and account.size]
        with suppress(StoreUnavailable):
            pairs = zip(accounts, await self._store.balances(accounts), strict=True)
            return [(account, max(0, account.limit - balance.spent - balance.held)) for account, balance in pairs]
        return []

    def _within_reach(self, step: Candidate, fitted: FittedRequest, left: Amount) -> FittedRequest:
        """Lowers the caps of a metered stream to what the hold and all that its budgets have left could pay for."""
        whole, caps, held, room = step.estimate.whole, self.bound.caps, self.reservation.granted, self.reservation.room
        if not caps and left.usd + room.usd >= whole.usd and left.thinking + room.thinking >= whole.thinking:
            return fitted
        # What could be had beyond the current hold.
        more = held.plus(room).within(caps).beyond(held)
        reached = within_reach(step, self._request, fitted, left.plus(more))
        if reached.max_output == fitted.max_output:
            return reached
        return structs.replace(reached, metered=more != Amount())

    def left(self, target: str) -> Amount:
        """Returns what may still be spent at `target` after the attempts so far; `ENDLESS` where unlimited."""
        bound = self.bound
        granted = self.reservation.at(target) if bound.partial else self.reservation.granted
        usd, thinking = granted.usd, granted.thinking
        for attempt in self.attempts:
            most = next((most for estimate, most in self._awaited if estimate is attempt), NOT_AWAITED)
            usd -= max(attempt.cost.nano, most.usd)
            thinking -= max(thought(attempt), most.thinking)
        return Amount(usd if bound.usd else ENDLESS, thinking if bound.thinks else ENDLESS)

    def charges(self) -> tuple[list[int], bool, int | None]:
        """Returns the charge of each hold in its own unit; whether any charge exceeds its hold; and the nano-USD in the
        largest USD hold, None without one."""
        charges, overrun = [], False
        held: int | None = None
        for hold in self.reservation.holds:
            charge = hold.amount if hold.unit is Unit.REQUESTS else 0
            for attempt in () if hold.unit in (Unit.REQUESTS, Unit.PARALLEL) else self.attempts:
                if hold.targets and attempt.target.id not in hold.targets:
                    continue
                if hold.unit is Unit.USD:
                    charge += attempt.cost.nano
                elif hold.unit is not Unit.TOKENS:
                    charge += thought(attempt)
                elif attempt.usage is not None:
                    charge += attempt.usage.totals.input + attempt.usage.totals.output
            charges.append(charge)
            overrun = overrun or (charge > hold.amount and hold.unit in GRANTED)
            if hold.unit is Unit.USD:
                held = max(held or 0, hold.amount)
        return charges, overrun, held

    async def _knowing_what_is_lent(self, refused: Refused) -> Refused:
        children = await self._store.children()
        lent = sum(child.limit for child in children if child.parent == refused.account.id)
        return structs.replace(refused, lent=lent)


def thought(attempt: Attempt) -> int:
    """Returns an attempt's thinking tokens: all of its output if the provider does not report them apart."""
    if (usage := attempt.usage) is None:
        return 0
    if usage.output_reasoning is not None:
        return usage.output_reasoning
    off = attempt.thinking == "off" or attempt.target.model.thinking.contract is Contract.NONE
    return 0 if off else usage.totals.output


def _least(steps: Sequence[Candidate]) -> Amount:
    """Returns the least amounts that any step needs; the hold is extended if a dearer fallback is asked."""
    return Amount(min(map(_LEAST_USD, steps)), min(map(_LEAST_THINKING, steps)))


def _short(refused: Refused, ask: HoldRequest, *, waits: bool) -> Refused:
    """Marks a refusal as `short`, to be decided again, if there is room for less than was decided; if it `waits`, only
    where what was decided can't fit later, and others do not hold more than is left."""
    unit, least = refused.account.unit, ask.shortest
    if waits and refused.account.needs(ask.least) <= refused.left < refused.needed:  # only for others to grow
        return structs.replace(refused, needed=refused.left + 1)
    if (refused.passing and waits) or least is None or unit not in GRANTED:
        return refused
    short = least.of(unit) <= refused.left < refused.needed
    if short and waits and refused.left < refused.held - refused.lent:
        return structs.replace(refused, needed=refused.left + 1)
    return structs.replace(refused, short=short, needed=least.usd if unit is Unit.USD else refused.needed)
