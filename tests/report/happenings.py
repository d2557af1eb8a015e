"""Requests written as the gateway writes them, with every detail that a report looks at."""

import asyncio
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import msgspec
from msgspec import Raw, Struct, structs

from router.decide.explain import Considered, explain
from router.decide.in_force import InForce
from router.ledger.ledger import Ledger
from router.ledger.policies import adopted
from router.ledger.write import Outcome, birth, record, settle
from router.types.account import Amount
from router.types.attempt import Attempt
from router.types.classification import Classification
from router.types.plan import Decision, Plan, Weighed
from router.types.price import Cost, CostSource
from router.types.request import Caller, Endpoint, Limits, Request
from router.types.target import Target
from router.types.task import Task
from router.types.usage import Usage
from tests.report.filled import MONDAY_MS, target

USAGE = Usage(input_uncached=100, output_visible=20)


class Asked(Struct, frozen=True, kw_only=True):
    """One attempt. Without `usage` nothing came."""

    target: str
    outcome: str = "ok"
    cost: int = 0
    total_ms: int = 100
    first_ms: int | None = None
    usage: Usage | None = USAGE
    more: dict[str, Any] = {}
    """Further fields of `Attempt`."""


class Was(Struct, frozen=True, kw_only=True):
    """One request. `weighed`: candidate → its pass rate and expected cost; the first was chosen."""

    id: str
    asked: tuple[Asked, ...] = ()
    at_ms: int = MONDAY_MS
    route: str = "auto"
    key: str = ""
    session: str = ""
    tags: tuple[str, ...] = ()
    stream: bool = False
    held: int = 0
    status: int = 200
    error: str | None = None
    overrun: bool = False
    overhead_us: int | None = 200
    thinking: int = 0
    lowered: tuple[str, ...] = ()
    weighed: dict[str, tuple[float, int]] = {}
    considered: dict[str, Decimal] = {}
    policy: str = "0123456789abcdef"
    settled: bool = True


def write(ledger: Ledger, happened: Iterable[Was], policies: Iterable[InForce] = (), **targets: Target) -> Ledger:
    """`targets` by their names; those that are not given are of the house. Returns the ledger."""

    async def work() -> None:
        journal = ledger.open_journal()
        for policy in policies:
            adopted(journal, policy.hash, MONDAY_MS, policy.document)
        for was in happened:
            decided = _decision(was)
            limits = Limits(session=was.session, tags=was.tags)
            request = Request(
                id=was.id,
                endpoint=Endpoint.CHAT,
                model=was.route,
                body={},
                prompt_bytes=1,
                stream=was.stream,
                limits=limits,
            )
            birth(journal, request, Caller(id=was.key, name=was.key), decided, Amount(usd=was.held), was.at_ms)
            record(journal, was.id, was.at_ms, was.policy, _document(was, decided))
            if was.settled:
                settle(journal, was.id, _outcome(was, targets))
        await journal.committed()
        await journal.end()

    asyncio.run(work())
    return ledger


def _decision(was: Was) -> Decision:
    seen = Classification(data_class="internal", classes=frozenset({"internal"}), difficulty=0.5, task=Task.CHAT)
    weighed = tuple(
        Weighed(name, p, 0.1, cost, cost // 2, cost * 2, 50, 500, cost, "chosen" if not at else "dearer")
        for at, (name, (p, cost)) in enumerate(was.weighed.items())
    )
    plan = Plan(route=was.route, strategy="cost_of_pass" if weighed else "ordered", steps=(), weighed=weighed)
    return Decision(id=was.id, requested=was.route, policy=was.policy, classification=seen, plan=plan)


def _document(was: Was, decided: Decision) -> bytes:
    considered = tuple(
        Considered(name, "house/model", None, False, Raw(str(cost).encode()), Raw(b"1"), 100, 20, 1024)
        for name, cost in was.considered.items()
    )
    chosen = next(iter((*was.weighed, *was.considered)), None)
    return msgspec.json.encode(structs.replace(explain(decided), chosen=chosen, considered=considered))


def _outcome(was: Was, targets: dict[str, Target]) -> Outcome:
    attempts = tuple(_attempt(was, one, targets.get(one.target) or target(one.target)) for one in was.asked)
    return Outcome(
        status=was.status,
        error=was.error,
        attempts=attempts,
        cost=sum(one.cost for one in was.asked),
        thinking=was.thinking,
        overrun=was.overrun,
        lowered=was.lowered,
        total_ms=sum(one.total_ms for one in was.asked),
        overhead_us=was.overhead_us,
    )


def _attempt(was: Was, asked: Asked, place: Target) -> Attempt:
    fields: dict[str, Any] = {
        "target": place,
        "outcome": asked.outcome,
        "started_ms": was.at_ms,
        "total_ms": asked.total_ms,
        "first_ms": asked.first_ms,
        "usage": asked.usage if asked.outcome == "ok" else None,
        "cost": Cost(asked.cost, CostSource.PRICED, "test"),
        "classes": frozenset({"internal"}),
        "answered": asked.outcome == "ok",
    }
    return Attempt(**{**fields, **asked.more})
