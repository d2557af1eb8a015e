"""Ledgers filled as the gateway fills them, from a short description of what happened."""

import asyncio
from collections.abc import Iterable

import msgspec
from msgspec import Struct

from router.decide.explain import explain
from router.ledger.ledger import Ledger
from router.ledger.write import Outcome, birth, record, settle
from router.types.account import Amount
from router.types.attempt import Attempt
from router.types.classification import Cause, Classification, Finding
from router.types.journal import Journal
from router.types.plan import Candidate, Decision, Dropped, Estimate, Plan
from router.types.price import Cost, CostSource
from router.types.request import Caller, Endpoint, Limits, Request
from router.types.target import Capability, Model, Provider, Target, Wire
from router.types.task import Task
from router.types.usage import Source, Usage

MONDAY_MS = 1_793_577_600_000
"""2026-11-02T00:00:00Z"""
DAY_MS = 86_400_000
_WRITTEN_LATE = "UPDATE requests SET state = 'recovered', cost = held, error = 'crashed' WHERE id = ?"
_KEY = (
    "INSERT INTO keys (id, hash, name, created_ms, routes, targets, tags, scopes, budget)"
    " VALUES (?, ?, ?, 0, '[]', '[]', '[]', '[]', '') ON CONFLICT (id) DO NOTHING"
)


class Tried(Struct, frozen=True):
    """An attempt at `target` that cost `cost` nano-USD. Without `usage` the upstream failed."""

    target: str
    cost: int = 0
    usage: Usage | None = Usage(input_uncached=100, output_visible=20)
    model: str = "house/model"


class Happened(Struct, frozen=True, kw_only=True):
    """One request. It is held while `ends` is "held"; "recovered" means that its gateway died."""

    id: str
    tried: tuple[Tried, ...] = ()
    ends: str = "settled"
    held: int = 1_000
    at_ms: int = MONDAY_MS
    route: str = "auto"
    key: str = ""
    tags: tuple[str, ...] = ()
    data_class: str = "internal"
    task: Task = Task.CHAT

    @property
    def cost(self) -> int:
        return sum(one.cost for one in self.tried)


def target(name: str, model: str = "house/model") -> Target:
    card = Model(id=model, name=model, context=8192, max_output=1024, capabilities=frozenset({Capability.CHAT}))
    provider = Provider(id="house", wire=Wire.OPENAI_COMPATIBLE, base_url="http://127.0.0.1:9/v1", local=True)
    return Target(id=name, model=card, provider=provider, base_url=provider.base_url)


def fill(ledger: Ledger, happened: Iterable[Happened]) -> Ledger:
    """Writes everything in one transaction; returns the ledger."""

    async def work() -> None:
        journal = ledger.open_journal()
        for one in happened:
            _write(journal, one)
        await journal.committed()
        await journal.end()

    asyncio.run(work())
    return ledger


def _write(journal: Journal, one: Happened) -> None:
    decided = _decision(one)
    caller = Caller(id=f"id-{one.key}" if one.key else "", name=one.key)
    if one.key:
        journal.add(_KEY, (caller.id, one.key, one.key))
    birth(journal, _request(one), caller, decided, Amount(usd=one.held), one.at_ms)
    record(journal, one.id, one.at_ms, decided.policy, msgspec.json.encode(explain(decided)))
    if one.ends == "recovered":
        journal.change(_WRITTEN_LATE, (one.id,))
    if one.ends == "settled" or one.tried:
        settle(journal, one.id, _outcome(one))


def _outcome(one: Happened) -> Outcome:
    attempts = tuple(_attempt(one, tried) for tried in one.tried)
    good = bool(attempts) and attempts[-1].outcome == "ok"
    return Outcome(
        status=200 if good else 502,
        error=None if good else "server_error",
        attempts=attempts,
        cost=one.cost,
        total_ms=250,
        first_ms=40,
    )


def _attempt(one: Happened, tried: Tried) -> Attempt:
    return Attempt(
        target=target(tried.target, tried.model),
        outcome="server_error" if tried.usage is None else "ok",
        started_ms=one.at_ms,
        total_ms=250,
        first_ms=40,
        status=500 if tried.usage is None else 200,
        usage=tried.usage,
        cost=Cost(tried.cost, CostSource.PRICED, "list 2026-11-01"),
        finish_reason="" if tried.usage is None else "stop",
        model_served=tried.model,
        classes=frozenset({"internal", one.data_class}),
    )


def _request(one: Happened) -> Request:
    limits = Limits(tags=one.tags)
    return Request(id=one.id, endpoint=Endpoint.CHAT, model=one.route, body={}, prompt_bytes=400, limits=limits)


def _decision(one: Happened) -> Decision:
    findings = (
        (Finding("identifiers.email", "pii", ("messages", 0, "content"), 3, 20),) if one.data_class == "pii" else ()
    )
    causes = (Cause("internal", "default"), *(Cause(found.data_class, found.detector) for found in findings))
    seen = Classification(
        data_class=one.data_class,
        classes=frozenset({"internal", one.data_class}),
        causes=causes,
        difficulty=0.412,
        task=one.task,
        findings=findings,
    )
    estimate = Estimate(input_tokens=100, input_bound=400, output_tokens=200, max_output=1024, cost=1_234, hold=5_678)
    asked = dict.fromkeys(tried.target for tried in one.tried)
    steps = tuple(Candidate(target(name), estimate) for name in asked)
    dropped = (Dropped("far", "data_class", "class pii may not leave for CN"),) if findings else ()
    plan = Plan(route=one.route, strategy="cheapest", steps=steps, dropped=dropped)
    return Decision(id=one.id, requested=one.route, policy="0123456789abcdef", classification=seen, plan=plan)


def thinking(reasoning: int | None, visible: int = 20) -> Usage:
    source = Source.UNKNOWN if reasoning is None else Source.REPORTED
    return Usage(input_uncached=100, output_visible=visible, output_reasoning=reasoning, reasoning_source=source)
