"""One request from its hold to its rows: real dispatch, budgets and ledger, put together as the pipeline does."""

import asyncio
import json
import sqlite3
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw, Struct, structs

from router.budget.sqlite import SqliteBudgets
from router.decide.eligible import Gate
from router.decide.health import Health
from router.dispatch.answer import NOTHING, answers, overheard, unchecked
from router.dispatch.errand import Errand
from router.dispatch.fold import Fold
from router.dispatch.how import CLIENT_GONE
from router.dispatch.http import HttpTransport
from router.dispatch.opened import Opened
from router.dispatch.purse import Purse, thought
from router.dispatch.room import Room
from router.dispatch.stream import forward
from router.errors import UpstreamFailure
from router.estimate.estimate import estimate
from router.estimate.learn import Learned
from router.ledger.journal import SqliteJournal
from router.ledger.write import LEASE_MS, Outcome, birth, settle
from router.refusals import stream_error
from router.types.account import Account, Amount, Bound, Refused
from router.types.attempt import Attempt
from router.types.clock import clock_ms, now_ms
from router.types.failure import Failure
from router.types.ids import new_id
from router.types.outcome import Asked, Verdict, Verify
from router.types.plan import Candidate, Decision, Plan, Tactic, Weighed
from router.types.price import Price
from router.types.request import Caller, Endpoint, Request
from router.types.served import Translation
from router.types.target import Target
from router.types.usage import Usage
from router.usage_json import usage_json
from tests.decide.values import gate
from tests.dispatch.mouths import USAGE, Mouths, Said, mouths
from tests.dispatch.values import asking, at, dispatcher

CAP = 20
"""Output tokens of every request here."""
MICRO = 1_000
"""nano-USD for a token of input; one of output costs two."""
COST = (USAGE["prompt_tokens"] + 2 * USAGE["completion_tokens"]) * MICRO
"""nano-USD of an answer."""
WHOLE = (88 + 2 * CAP) * MICRO
"""What is held for one: its input is bounded by a rule, of 88 tokens here."""
_LOOK_S = 0.02


class Opinion:
    """A verifier with scores of its own for texts; `told` collects what it was asked."""

    def __init__(self, **scores: float | None) -> None:
        self.scores, self.told = scores, list[Asked]()

    async def __call__(self, asked: Asked) -> Sequence[Verdict]:
        self.told.append(asked)
        return [Verdict("test", self.scores.get(answer.text, 1.0)) for answer in asked.answers]


def after(count: int) -> Callable[[list[str]], bool]:
    """Once so many were asked."""
    return lambda asked: len(asked) == count


class Case(Struct, kw_only=True):
    """`tactic` over the targets of `scripts`, in their order."""

    scripts: dict[str, list[Said]]
    tactic: Tactic | None
    verify: Verify | None = None
    later: Callable[[Asked], object] | None = None
    """Hears of what was given without being looked at."""
    endpoint: Endpoint = Endpoint.CHAT
    stream: bool = False
    limit: int | None = None
    """nano-USD of the one budget."""
    deadline_ms: int | None = None
    takes_ms: dict[str, int] = {}
    """What answers of a target usually take."""
    times: dict[str, int] = {}
    """What a target charges, of the usual price."""
    retries: int = 0
    fields: dict[str, Any] = {}
    """Of the request's body."""
    leaves: Callable[[list[str]], bool] | None = None
    """Whether the client leaves now, by who was asked so far."""
    leaves_after_parts: int = 1_000_000
    """Of a stream."""
    own: Gate | None = None
    hidden: frozenset[str] = frozenset()
    """Targets that see placeholders only, as `own` has them."""


class Given(Struct, kw_only=True):
    """What the client got, and what was written down. `text` is None where it got an error."""

    text: str | None = None
    target: str = ""
    error: str = ""
    events: bytes = b""
    row: dict[str, Any] = {}
    attempts: list[dict[str, Any]] = []
    spent: int = 0
    """By the budget; 0 where there is none."""
    asked: list[str] = []
    gone: list[str] = []
    bodies: list[dict[str, Any]] = []

    @property
    def told(self) -> list[tuple[Any, ...]]:
        """Of each attempt: target, outcome, role, whether it was passed over, and the least score."""
        names = ("target", "outcome", "role", "passed_over", "verdict")
        return [tuple(attempt[name] for name in names) for attempt in self.attempts]

    def check_sums(self) -> None:
        """What was charged is what its attempts cost, everywhere."""
        cost = sum(attempt["cost"] for attempt in self.attempts)
        assert self.row["cost"] == cost
        assert self.spent in (0, cost)
        assert self.row["state"] == ("settled" if self.attempts else "released")
        assert sum(1 for one in self.attempts if one["outcome"] == "ok" and not one["passed_over"]) <= 1


def run(home: Path, case: Case) -> Given:
    return asyncio.run(_run(home, case))


async def _run(home: Path, case: Case) -> Given:
    async with mouths(case.scripts) as upstream:
        desk = Desk(home, upstream, case)
        try:
            task = asyncio.ensure_future(desk.serve(request_of(case)))
            while not (await asyncio.wait({task}, timeout=_LOOK_S))[0]:
                if case.leaves is not None and case.leaves(upstream.asked):
                    task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        finally:
            await desk.close()
    found = desk.given
    found.asked, found.gone, found.bodies = upstream.asked, upstream.gone, upstream.bodies
    _read(home, found, limited=case.limit is not None)
    found.check_sums()
    return found


def request_of(case: Case) -> Request:
    text = {"prompt": "Hi"} if case.endpoint is Endpoint.COMPLETIONS else {}
    plain = asking(stream=case.stream, stream_usage=case.stream, max_output=CAP, endpoint=case.endpoint)
    more = {"max_tokens": CAP, **text, **case.fields}
    raw = {name: Raw(msgspec.json.encode(value)) for name, value in more.items()}
    return structs.replace(plain, id=new_id(), body=plain.body | raw)


class Desk:
    """Serves, and is what a stream ends with (`Ending`)."""

    def __init__(self, home: Path, upstream: Mouths, case: Case) -> None:
        self.given, self._case, self._url = Given(), case, upstream.url
        self.translation: Translation | None = None
        self.health = Health(lambda: clock_ms() / 1000)
        self._journal, self._transport = SqliteJournal(home / "lowpass.db"), HttpTransport()
        self._store = SqliteBudgets(self._journal, LEASE_MS)
        self.dispatcher = dispatcher(self._transport, self.health)

    async def close(self) -> None:
        self._transport.close()
        await self._journal.end()
        await asyncio.sleep(0)

    async def open(self, request: Request) -> Errand:
        """With its hold, and its row."""
        case, learned, self._request = self._case, Learned(), request
        steps = tuple(
            Candidate(one, estimate(one, request, learned), one.id in case.hidden)
            for one in map(self._target, case.scripts)
        )
        weighed = tuple(_weighed(name, ms) for name, ms in case.takes_ms.items())
        plan = Plan(route="auto", strategy="ordered", steps=steps, weighed=weighed, tactic=case.tactic)
        own = case.own or gate(asked=request)
        assert all(step.estimate.whole.usd == WHOLE * case.times.get(step.target.id, 1) for step in steps)
        decision = Decision(id=request.id, requested="auto", policy="", classification=own.classification, plan=plan)
        birth(self._journal, request, Caller(), decision, Amount(), now_ms())
        accounts = () if case.limit is None else (Account(id="pot", budget="pot", scope="all", limit=case.limit),)
        self._purse = Purse(self._store, learned, Room(), request, Bound(accounts=accounts))
        assert not isinstance(await self._purse.open(self._purse.ask(steps), 0), Refused)
        deadline = None if case.deadline_ms is None else clock_ms() + case.deadline_ms
        self._errand = Errand(request, plan, own, self._purse, deadline, case.verify)
        return self._errand

    async def serve(self, request: Request) -> None:
        errand = await self.open(request)
        try:
            answer = await self.dispatcher.walk(errand)
        except UpstreamFailure as error:
            self.given.error = error.failure.kind
            self._settle(502, error.failure.kind)
            return
        except asyncio.CancelledError:
            self._settle(499, CLIENT_GONE)
            raise
        self.given.target = answer.step.target.id
        if isinstance(answer, Opened):
            await self._stream(answer)
            return
        self._purse.attempts.append(answer.attempt)
        self._settle(200, None)
        asked = unchecked(errand, answer)
        if self._case.later is not None and asked is not None:
            self._case.later(asked)
        self.given.text = _text(answer.reply.body)

    async def _stream(self, answer: Opened) -> None:
        fold, events, parts = Fold(self._request.endpoint), self.events(answer), 0
        try:
            async for part in events:
                self.given.events += part
                parts += 1
                if parts == self._case.leaves_after_parts:
                    break
        finally:
            await events.aclose()
        fold.feed(self.given.events)
        if not self.given.error:
            self.given.text = _text(fold.body())

    def events(self, answer: Opened) -> AsyncGenerator[bytes]:
        events = forward(answer, self.health, self)
        return events if self._case.later is None else overheard(events, self._errand, answer, self._case.later)

    def settle(self, attempt: Attempt, error: str | None) -> bytes:
        self._purse.attempts.append(attempt)
        self.given.error = error or ""
        cost = self._settle(499 if error == CLIENT_GONE else 200, error)
        return usage_json(self._request.endpoint, attempt.usage or Usage(), cost)

    def render(self, events: bytes) -> bytes:
        return events if self.translation is None else self.translation.feed(events)

    def closing(self, opened: Opened, usage: bytes) -> bytes:
        return opened.closing(usage) if self.translation is None else self.translation.final(usage)

    def durable(self) -> Awaitable[None]:
        return self._journal.committed()

    def broken(self, failure: Failure) -> bytes:
        return stream_error(failure)

    def _settle(self, status: int, error: str | None) -> int:
        attempts = tuple(self._purse.attempts)
        cost = sum(attempt.cost.nano for attempt in attempts)
        charges = self._purse.charges()
        if self._purse.reservation.holds:
            self._store.settle(self._purse.reservation, charges)
        thinking, overrun = sum(map(thought, attempts)), self._purse.overrun(charges)
        outcome = Outcome(status=status, error=error, attempts=attempts, cost=cost, thinking=thinking, overrun=overrun)
        settle(self._journal, self._request.id, outcome)
        return cost

    def _target(self, name: str) -> Target:
        times = self._case.times.get(name, 1)
        price = Price(input=MICRO * 1_000_000 * times, output=2 * MICRO * 1_000_000 * times, version="test")
        place = at(f"{self._url}/{name}/v1", identity=name, retries=self._case.retries)
        return structs.replace(place, model=structs.replace(place.model, price=price))


def _weighed(name: str, total_ms: int) -> Weighed:
    """Only its time is looked at."""
    return Weighed(name, 0.5, 0.1, 1, 1, 1, first_ms=1, total_ms=total_ms, value_nano=1, why="")


def _text(body: dict[str, Raw]) -> str:
    (answer,) = answers(body)
    assert answer is not NOTHING
    return answer.text or json.dumps([call.name for call in answer.tool_calls])


def _read(home: Path, given: Given, *, limited: bool) -> None:
    with closing(sqlite3.connect(home / "lowpass.db")) as ledger:
        ledger.row_factory = sqlite3.Row
        (row,) = ledger.execute("SELECT * FROM requests").fetchall()
        given.row = dict(row)
        given.attempts = [dict(one) for one in ledger.execute("SELECT * FROM attempts ORDER BY number")]
        if limited:
            (window,) = ledger.execute("SELECT spent, held FROM budget_windows").fetchall()
            assert window["held"] == 0
            given.spent = window["spent"]
            if given.attempts:
                assert given.spent == given.row["cost"]
