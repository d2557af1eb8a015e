"""One request from its hold to its rows: real dispatch, budgets and ledger, put together as the pipeline does."""

import asyncio
import json
import sqlite3
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw, Struct, structs

from router.api.parse import parse
from router.api.responses import ResponsesStream
from router.budget.sqlite import SqliteBudgets
from router.decide.eligible import Gate
from router.decide.health import Health
from router.dispatch import ask, cascade, course
from router.dispatch.answer import NOTHING, answers, overheard, unchecked
from router.dispatch.errand import Errand
from router.dispatch.fold import Fold
from router.dispatch.how import CLIENT_GONE
from router.dispatch.http import HttpTransport
from router.dispatch.opened import Opened
from router.dispatch.purse import thought
from router.dispatch.stream import forward
from router.errors import UpstreamFailure
from router.ledger.journal import SqliteJournal
from router.ledger.write import Outcome, birth, settle
from router.types.account import Account, Amount, Bound, Refused
from router.types.attempt import Attempt
from router.types.clock import clock_ms, now_ms
from router.types.ids import new_id
from router.types.lease import LEASE_MS
from router.types.outcome import Asked, Verdict, Verify
from router.types.plan import Decision, Tactic, Weighed
from router.types.price import Price
from router.types.request import Caller, Endpoint, Request
from router.types.served import Translation
from router.types.target import Target
from router.types.usage import Usage
from router.usage_json import usage_json
from tests.dispatch.scripted import USAGE, Condition, Reply, Scripted, scripted
from tests.dispatch.values import End, asking, at, dispatcher, errand, purse

CAP = 20
"""Output tokens of every request here."""
MICRO = 1_000
"""nano-USD for a token of input; one of output costs two."""
COST = (USAGE["prompt_tokens"] + 2 * USAGE["completion_tokens"]) * MICRO
"""nano-USD of an answer."""
WHOLE = (88 + 2 * CAP) * MICRO
"""What is held for one: its input is bounded by a rule, of 88 tokens here."""
ENOUGH = 10**9
"""A limit that binds nothing."""
_LOOK_S = 0.005


class Opinion:
    """A verifier with scores of its own for texts; `questions` collects what it was asked."""

    def __init__(self, **scores: float | None) -> None:
        self.scores, self.questions = scores, list[Asked]()

    async def __call__(self, asked: Asked) -> Sequence[Verdict]:
        self.questions.append(asked)
        return [Verdict("test", self.scores.get(answer.text, 1.0)) for answer in asked.answers]


class Case(Struct, kw_only=True):
    """`tactic` over the targets of `scripts`, in their order, under a budget of `limit` nano-USD. `later` hears of an
    answer that was given without being looked at. `passes_ms` of the deadline are over once the first target is asked.
    `takes_ms`: what answers of a target usually take; `times`: what it charges, of the usual price; `fields`: of the
    request's body; `leaves`: when the client does; `hidden`: targets that see placeholders only, as `own` has them."""

    scripts: dict[str, list[Reply]]
    tactic: Tactic | None
    verify: Verify | None = None
    later: Callable[[Asked], object] | None = None
    endpoint: Endpoint = Endpoint.CHAT
    stream: bool = False
    limit: int | None = None
    deadline_ms: int | None = None
    passes_ms: int = 0
    takes_ms: dict[str, int] = {}
    times: dict[str, int] = {}
    retries: int = 0
    fields: dict[str, Any] = {}
    leaves: Condition | None = None
    leaves_after_parts: int = 1_000_000
    own: Gate | None = None
    hidden: frozenset[str] = frozenset()


class Given(Struct, kw_only=True):
    """What the client got, and what was written down. `text` is None where it got an error; `spent` by the budget."""

    text: str | None = None
    target: str = ""
    error: str = ""
    events: bytes = b""
    row: dict[str, Any] = {}
    attempts: list[dict[str, Any]] = []
    spent: int = 0
    asked: list[str] = []
    gone: list[str] = []
    bodies: list[dict[str, Any]] = []

    @property
    def history(self) -> list[tuple[Any, ...]]:
        """Of each attempt: target, outcome, role, whether it was passed over, and the least score."""
        names = ("target", "outcome", "role", "passed_over", "verdict")
        return [tuple(attempt[name] for name in names) for attempt in self.attempts]

    def read(self, ledger: Path, *, limited: bool) -> None:
        """What was charged is what its attempts cost, everywhere."""
        with closing(sqlite3.connect(ledger)) as rows:
            rows.row_factory = sqlite3.Row
            (row,) = rows.execute("SELECT * FROM requests").fetchall()
            self.row = dict(row)
            self.attempts = [dict(attempt) for attempt in rows.execute("SELECT * FROM attempts ORDER BY number")]
            windows = rows.execute("SELECT spent, held FROM budget_windows").fetchall() if limited else []
        cost = sum(attempt["cost"] for attempt in self.attempts)
        if limited:
            ((self.spent, held),) = windows
            assert (self.spent, held) == (cost, 0)
        assert (self.row["cost"], self.row["state"]) == (cost, "settled" if self.attempts else "released")
        assert sum(row["outcome"] == "ok" and not row["passed_over"] for row in self.attempts) <= 1


def run(home: Path, case: Case) -> Given:
    home.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        return asyncio.run(_run(home, case, patch))


async def _run(home: Path, case: Case, patch: pytest.MonkeyPatch) -> Given:
    async with scripted(case.scripts) as upstream:
        if case.passes_ms:
            for module in (ask, cascade, course):
                patch.setattr(module, "clock_ms", lambda: case.passes_ms if upstream.asked else 0)
        desk = Desk(home, upstream, case)
        try:
            task = asyncio.ensure_future(desk.serve())
            while not (await asyncio.wait({task}, timeout=_LOOK_S))[0]:
                if case.leaves is not None and case.leaves(upstream):
                    for _ in range(100):  # so the gateway reads what was sent before
                        await asyncio.sleep(0)
                    task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        finally:
            await desk.close()
    given = desk.given
    given.asked, given.gone, given.bodies = upstream.asked, upstream.gone, upstream.bodies
    given.read(home / "lowpass.db", limited=case.limit is not None)
    return given


def request_of(case: Case) -> Request:
    """Its hold is the same in every case."""
    text = {"prompt": "Hi"} if case.endpoint is Endpoint.COMPLETIONS else {}
    plain = asking(stream=case.stream, stream_usage=case.stream, max_output=CAP, endpoint=case.endpoint)
    raw = {name: Raw(msgspec.json.encode(value)) for name, value in {"max_tokens": CAP, **text, **case.fields}.items()}
    request = structs.replace(plain, id=new_id(), body=plain.body | raw)
    if case.endpoint is not Endpoint.RESPONSES:
        return request
    fields = {"model": "auto", "stream": case.stream, "input": "Hi", "max_output_tokens": CAP}
    parsed = parse(case.endpoint, request.id, msgspec.json.encode(fields), [])
    return structs.replace(request, body=parsed.body, chat=parsed.chat, model=parsed.model)


class Desk(End):
    """Serves, and is what a stream ends with."""

    def __init__(self, home: Path, upstream: Scripted, case: Case) -> None:
        self.given, self._case, self._upstream = Given(), case, upstream
        self._request = request = request_of(case)
        responses = case.endpoint is Endpoint.RESPONSES
        self._translation: Translation | None = (
            ResponsesStream(request.body, f"resp_{request.id}") if responses else None
        )
        self._health = Health(lambda: clock_ms() / 1000)
        self._journal, self._transport = SqliteJournal(home / "lowpass.db"), HttpTransport()
        self._store = SqliteBudgets(self._journal, LEASE_MS)
        accounts = () if case.limit is None else (Account(id="pot", budget="pot", scope="all", limit=case.limit),)
        self._purse = purse(request, bound=Bound(accounts=accounts), store=self._store)
        upstream.attempts = self._purse.attempts

    async def close(self) -> None:
        self._transport.close()
        await self._journal.end()
        await asyncio.sleep(0)

    async def _open(self) -> Errand:
        """With its hold, and its row."""
        case, request = self._case, self._request
        deadline = None if case.deadline_ms is None else case.deadline_ms + (0 if case.passes_ms else clock_ms())
        errands = errand(
            *map(self._target, case.scripts),
            asked=request,
            own=case.own,
            hidden=case.hidden,
            deadline=deadline,
            pays=self._purse,
            verify=case.verify,
            tactic=case.tactic,
            weighed=tuple(_weighed(name, ms) for name, ms in case.takes_ms.items()),
        )
        steps, seen = errands.plan.steps, errands.gate.classification
        assert all(step.estimate.whole.usd == WHOLE * case.times.get(step.target.id, 1) for step in steps)
        decision = Decision(id=request.id, requested="auto", policy="", classification=seen, plan=errands.plan)
        birth(self._journal, request, Caller(), decision, Amount(), now_ms())
        assert not isinstance(await self._purse.open(self._purse.ask(steps), steps, 0), Refused)
        return errands

    async def serve(self) -> None:
        errands = await self._open()
        try:
            answer = await dispatcher(self._transport, self._health).walk(errands)
        except UpstreamFailure as error:
            self.given.error = error.failure.kind
            self._settle(502, error.failure.kind)
            return
        except asyncio.CancelledError:
            self._settle(499, CLIENT_GONE)
            raise
        self.given.target = answer.step.target.id
        if isinstance(answer, Opened):
            await self._stream(errands, answer)
            return
        self._purse.attempts.append(answer.attempt)
        self._settle(200, None)
        asked = unchecked(errands, answer)
        if self._case.later is not None and asked is not None:
            self._case.later(asked)
        self.given.text = _text(answer.reply.body)

    async def _stream(self, errands: Errand, answer: Opened) -> None:
        fold, parts = Fold(self._request.endpoint), 0
        events: AsyncGenerator[bytes] = forward(answer, self._health, self)
        if self._case.later is not None:
            events = overheard(events, errands, answer, self._case.later)
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

    def settle(self, attempt: Attempt, error: str | None) -> bytes:
        self._purse.attempts.append(attempt)
        self.given.error = error or ""
        cost = self._settle(499 if error == CLIENT_GONE else 200, error)
        return usage_json(self._request.endpoint, attempt.usage or Usage(), cost)

    def render(self, events: bytes) -> bytes:
        return events if self._translation is None else self._translation.feed(events)

    def closing(self, opened: Opened, usage: bytes) -> bytes:
        return opened.closing(usage) if self._translation is None else self._translation.final(usage)

    def durable(self) -> Awaitable[None]:
        return self._journal.committed()

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
        place = at(f"{self._upstream.url}/{name}/v1", identity=name, retries=self._case.retries)
        return structs.replace(place, model=structs.replace(place.model, price=price))


def _weighed(name: str, total_ms: int) -> Weighed:
    """Only its time is looked at."""
    return Weighed(name, 0.5, 0.1, 1, 1, 1, first_ms=1, total_ms=total_ms, value_nano=1, why="")


def _text(body: dict[str, Raw]) -> str:
    (answer,) = answers(body)
    assert answer is not NOTHING
    return answer.text or json.dumps([call.name for call in answer.tool_calls])
