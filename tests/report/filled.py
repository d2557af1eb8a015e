"""Ledgers filled as the gateway fills them, from a short description of what happened."""

import asyncio
from collections.abc import Iterable, Mapping
from itertools import count
from typing import Any

import msgspec
from msgspec import Struct, structs

from router.decide.eligibility import Requirements
from router.decide.explain import explain
from router.decide.in_force import PolicyInForce, in_force
from router.ledger.ledger import Ledger
from router.ledger.outcomes import LearningFacts, add_score
from router.ledger.rows import adopted
from router.ledger.write import insert_held, settle
from router.types.account import Amount, Journal
from router.types.attempt import Attempt, CountSource, SourceScore, Usage
from router.types.decision import Candidate, Decision, Dropped, Estimate, Plan, Weighed
from router.types.price import Cost, CostSource
from router.types.request import Caller, Cause, Classification, Endpoint, Finding, Limits, Request
from router.types.target import Capability, Model, Provider, Queue, Target, Task, Wire

MONDAY_MS = 1_793_577_600_000
"""2026-11-02T00:00:00Z"""
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
USD = 1_000_000_000
USAGE = Usage(input_uncached=100, output_visible=20)
_ESTIMATE = Estimate(input_tokens=100, input_bound=400, output_tokens=200, max_output=1024, cost=1_234, hold=5_678)
_WRITTEN_LATE = "UPDATE live_requests SET state = 'recovered', cost = held, error = 'crashed' WHERE id = ?"
_KEY = (
    "INSERT INTO keys (id, hash, name, created_ms, routes, targets, tags, scopes, budget)"
    " VALUES (?, ?, ?, 0, '[]', '[]', '[]', '[]', '') ON CONFLICT (id) DO NOTHING"
)


class Tried(Struct, frozen=True):
    """An attempt at `target` that cost `cost` nano-USD, `thinking` of them to think (None: not known).

    Without an `outcome` it is "ok", or without `usage` "server_error". `more` has further fields of `Attempt`.
    """

    target: str
    cost: int = 0
    usage: Usage | None = USAGE
    model: str = "house/model"
    outcome: str = ""
    total_ms: int = 250
    first_ms: int | None = 40
    thinking: int | None = None
    more: Mapping[str, Any] = {}

    @property
    def ended(self) -> str:
        return self.outcome or ("server_error" if self.usage is None else "ok")


class Judgement(Struct, frozen=True):
    """What `source` says of the first attempt."""

    score: float | None
    source: str = "client"
    weight: float = 1.0
    decides: bool = True


class Happened(Struct, frozen=True, kw_only=True):
    """One request. It is held while `ends` is "held"; "recovered" means that its gateway died. Without an id it is
    numbered. `weighed`: candidate → its expected pass rate and nano-USD; the first was chosen."""

    id: str = ""
    tried: tuple[Tried, ...] = ()
    ends: str = "settled"
    held: int = 1_000
    at_ms: int = MONDAY_MS
    route: str = "auto"
    key: str = ""
    session: str = ""
    tags: tuple[str, ...] = ()
    app: str = ""
    template: str = ""
    stream: bool = False
    data_class: str = "internal"
    classes: frozenset[str] = frozenset()
    """That bound it; empty: the default and `data_class`."""
    task: Task = Task.CHAT
    difficulty: float = 0.1
    status: int = 0
    error: str = ""
    overrun: bool = False
    overhead_us: int | None = None
    thinking: int = 0
    lowered: tuple[str, ...] = ()
    weighed: Mapping[str, tuple[float, int]] = {}
    considered: bool = True
    """The decision tells what each target that was tried was estimated to cost, as one by forecasts always does."""
    strategy: str = "cheapest"
    explored: str = ""
    planned: tuple[str, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    queued: tuple[Queue, ...] = ()
    policy: str = "0123456789abcdef"
    judged: tuple[Judgement, ...] = ()

    @property
    def cost(self) -> int:
        return sum(one.cost for one in self.tried)


def target(name: str, model: str = "house/model") -> Target:
    card = Model(id=model, name=model, context=8192, max_output=1024, capabilities=frozenset({Capability.CHAT}))
    provider = Provider(id="house", wire=Wire.OPENAI_COMPATIBLE, base_url="http://127.0.0.1:9/v1", local=True)
    return Target(id=name, model=card, provider=provider, base_url=provider.base_url)


def at(name: str, entity: str, law: str, *, hourly: int | None = None) -> Target:
    """A target of a vendor; local where there is no law."""
    made = target(name)
    provider = structs.replace(made.provider, id=f"by-{name}", entity=entity, jurisdiction=law, local=not law)
    return structs.replace(made, provider=provider, hourly=hourly)


def policy(*targets: Target) -> PolicyInForce:
    return in_force("file", "internal", {"internal": Requirements()}, {one.id: one for one in targets})


def thinking(reasoning: int | None, visible: int = 20) -> Usage:
    source = CountSource.UNKNOWN if reasoning is None else CountSource.REPORTED
    return Usage(input_uncached=100, output_visible=visible, output_reasoning=reasoning, reasoning_source=source)


def fill(
    ledger: Ledger, happened: Iterable[Happened], policies: Iterable[PolicyInForce] = (), targets: Iterable[Target] = ()
) -> Ledger:
    """Writes everything in one transaction; returns the ledger. Targets that are not given are of the house."""
    known = {one.id: one for one in targets}

    async def work() -> None:
        journal, numbers = ledger.open_journal(), count(1)
        for policy in policies:
            adopted(journal, policy.hash, MONDAY_MS, policy.document)
        for one in happened:
            _write(journal, structs.replace(one, id=one.id or f"{one.at_ms:012x}7{next(numbers):019x}"), known)
        await journal.committed()
        await journal.end()

    asyncio.run(work())
    return ledger


def _write(journal: Journal, one: Happened, known: Mapping[str, Target]) -> None:
    decided = _decision(one)
    caller = Caller(id=f"id-{one.key}" if one.key else "", name=one.key)
    if one.key:
        journal.add(_KEY, (caller.id, one.key, one.key))
    limits = Limits(tags=one.tags, session=one.session)
    request = Request(
        id=one.id, endpoint=Endpoint.CHAT, model=one.route, body={}, prompt_bytes=400, stream=one.stream, limits=limits
    )
    document = msgspec.json.encode(explain(decided))
    insert_held(journal, request, caller, decided, Amount(usd=one.held), one.at_ms, document)
    if one.ends == "recovered":
        journal.change(_WRITTEN_LATE, (one.id,))
    if one.ends == "settled" or one.tried:
        settle(journal, one.id, **_outcome(one, known))
    about = LearningFacts.of(decided.classification, {name: rate for name, (rate, _) in one.weighed.items()})
    for judgement in one.judged:
        said = SourceScore(request_id=one.id, attempt=1, target=one.tried[0].target, **structs.asdict(judgement))
        add_score(journal, said, about, one.at_ms + HOUR_MS)


def _outcome(one: Happened, known: Mapping[str, Target]) -> dict[str, Any]:
    attempts = tuple(_attempt(one, tried, known.get(tried.target)) for tried in one.tried)
    good = bool(attempts) and attempts[-1].outcome == "ok"
    return dict(
        status=one.status or (200 if good else 502),
        error=one.error or (None if good or one.status else "server_error"),
        attempts=attempts,
        cost=one.cost,
        thinking=one.thinking,
        overrun=one.overrun,
        lowered=one.lowered,
        total_ms=sum(tried.total_ms for tried in one.tried),
        first_ms=40,
        overhead_us=one.overhead_us,
    )


def _attempt(one: Happened, tried: Tried, place: Target | None) -> Attempt:
    good = tried.ended == "ok"
    fields: dict[str, Any] = {
        "target": place or target(tried.target, tried.model),
        "outcome": tried.ended,
        "started_ms": one.at_ms,
        "total_ms": tried.total_ms,
        "first_ms": tried.first_ms,
        "status": 200 if good else 500,
        "usage": tried.usage,
        "cost": Cost(tried.cost, CostSource.PRICED, "list 2026-11-01", tried.cost, False, tried.thinking),
        "finish_reason": "stop" if good else "",
        "model_served": tried.model,
        "classes": one.classes or frozenset({"internal", one.data_class}),
        "answered": good,
    }
    return Attempt(**{**fields, **tried.more})


def _decision(one: Happened) -> Decision:
    """What is personal has been found at one place, and one target dropped for it."""
    pii = one.data_class == "pii" and not one.classes
    classification = Classification(
        data_class=one.data_class,
        classes=one.classes or frozenset({"internal", one.data_class}),
        causes=(Cause("internal", "default"), Cause("pii", "identifiers.email"))[: 1 + pii],
        difficulty=one.difficulty,
        task=one.task,
        app=one.app,
        template=one.template,
        findings=(Finding("identifiers.email", "pii", ("messages", 0, "content"), 3, 20),) if pii else (),
    )
    asked = dict.fromkeys((*one.planned, *(tried.target for tried in one.tried if one.considered or one.weighed)))
    weighed = tuple(
        Weighed(name, rate, 0.1, cost, cost // 2, cost * 2, 50, 500, cost, "dearer" if number else "chosen")
        for number, (name, (rate, cost)) in enumerate(one.weighed.items())
    )
    plan = Plan(
        route=one.route,
        strategy=one.strategy,
        steps=tuple(Candidate(target(name), _ESTIMATE) for name in asked),
        dropped=one.dropped or ((Dropped("far", "data_class", "class pii may not leave for CN"),) if pii else ()),
        queued=one.queued,
        weigh=lambda: weighed,
        explored=one.explored,
    )
    return Decision(id=one.id, requested=one.route, policy=one.policy, classification=classification, plan=plan)
