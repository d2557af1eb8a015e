"""Ledgers of routed traffic: decisions with forecasts, attempts with what they cost, and what was said of answers."""

import asyncio
from collections.abc import Iterable, Mapping
from itertools import count

import msgspec
from msgspec import Struct, structs

from router.decide.explain import explain
from router.ledger.ledger import Ledger
from router.ledger.outcomes import About, say
from router.ledger.write import Outcome, birth, record, settle
from router.types.account import Amount
from router.types.attempt import Attempt
from router.types.classification import Classification
from router.types.journal import Journal
from router.types.logged import Said
from router.types.plan import Candidate, Decision, Estimate, Plan, Weighed
from router.types.price import Cost, CostSource
from router.types.request import Caller, Endpoint, Limits, Request
from router.types.task import Task
from router.types.usage import Usage
from tests.report.filled import MONDAY_MS, target

HOUR_MS = 3_600_000
_UNKNOWN = Weighed("", 0, 0, 0, 0, 0, 0, 0, 0, "chosen")


class Judgement(Struct, frozen=True, kw_only=True):
    """What `source` says of attempt number `attempt`."""

    score: float | None
    attempt: int = 1
    source: str = "client"
    weight: float = 1.0
    decides: bool = True


class Try(Struct, frozen=True, kw_only=True):
    """An attempt; `cost` and `thinking` in nano-USD, `thinking` None: not known."""

    target: str
    cost: int = 0
    thinking: int | None = None
    usage: Usage | None = Usage(input_uncached=100, output_visible=20)
    outcome: str = "ok"
    finish: str = "stop"
    answered: bool = True
    passed_over: bool = False
    effort: str = "none"
    model: str = ""
    """Empty: as its target."""


class Asked(Struct, frozen=True, kw_only=True):
    """One request. `offers`: expected pass rate and nano-USD by target; the first target tried was chosen."""

    tries: tuple[Try, ...]
    judgements: tuple[Judgement, ...] = ()
    offers: Mapping[str, tuple[float, int]] = {}
    at_ms: int = MONDAY_MS
    route: str = "auto"
    task: Task = Task.CHAT
    difficulty: float = 0.1
    explored: str = ""
    strategy: str = "cost_of_pass"
    lowered: tuple[str, ...] = ()


def written(ledger: Ledger, asked: Iterable[Asked]) -> Ledger:
    async def work() -> None:
        journal, numbers = ledger.open_journal(), count(1)
        for one in asked:
            _write(journal, one, f"{one.at_ms:012x}7{next(numbers):019x}")
        await journal.committed()
        await journal.end()

    asyncio.run(work())
    return ledger


def _write(journal: Journal, one: Asked, name: str) -> None:
    decision = _decision(one, name)
    request = Request(id=name, endpoint=Endpoint.CHAT, model=one.route, body={}, prompt_bytes=400, limits=Limits())
    birth(journal, request, Caller(id="", name=""), decision, Amount(usd=1_000), one.at_ms)
    record(journal, name, one.at_ms, decision.policy, msgspec.json.encode(explain(decision)))
    settle(journal, name, _outcome(one))
    rates = {offered: rate for offered, (rate, _) in one.offers.items()}
    about = About(task=one.task.value, difficulty=one.difficulty, expected=rates)
    for told in one.judgements:
        said = Said(
            request_id=name,
            attempt=told.attempt,
            target=one.tries[told.attempt - 1].target,
            source=told.source,
            score=told.score,
            weight=told.weight,
            decides=told.decides,
        )
        say(journal, said, about, one.at_ms + HOUR_MS)


def _decision(one: Asked, name: str) -> Decision:
    steps = tuple(
        Candidate(target(each), Estimate(input_tokens=1, input_bound=1, output_tokens=1, max_output=1, cost=1, hold=1))
        for each in dict.fromkeys(tried.target for tried in one.tries)
    )
    weighed = tuple(
        structs.replace(_UNKNOWN, target=each, p=rate, cost_nano=cost) for each, (rate, cost) in one.offers.items()
    )
    plan = Plan(route=one.route, strategy=one.strategy, steps=steps, weighed=weighed, explored=one.explored)
    seen = Classification(
        data_class="internal", classes=frozenset({"internal"}), difficulty=one.difficulty, task=one.task
    )
    return Decision(id=name, requested=one.route, policy="0123456789abcdef", classification=seen, plan=plan)


def _outcome(one: Asked) -> Outcome:
    attempts = tuple(_attempt(one, tried) for tried in one.tries)
    good = bool(attempts) and attempts[-1].outcome == "ok"
    return Outcome(
        status=200 if good else 502,
        error=None if good else "server_error",
        attempts=attempts,
        cost=sum(tried.cost for tried in one.tries),
        lowered=one.lowered,
        total_ms=250,
    )


def _attempt(one: Asked, tried: Try) -> Attempt:
    return Attempt(
        target=target(tried.target, tried.model or f"house/{tried.target}"),
        outcome=tried.outcome,
        started_ms=one.at_ms,
        total_ms=250,
        status=200 if tried.outcome == "ok" else 500,
        usage=tried.usage,
        cost=Cost(tried.cost, CostSource.PRICED, "list 2026-11-01", tried.cost, False, tried.thinking, 0),
        finish_reason=tried.finish,
        answered=tried.answered and tried.outcome == "ok",
        thinking=tried.effort,
        passed_over=tried.passed_over,
        classes=frozenset({"internal"}),
    )
