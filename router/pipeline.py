"""The nine steps of a request, in order."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial

from msgspec import structs

from router.accounting import CLIENT_CLOSED, Accounting, Settlement
from router.choose import Rules, binding, chance, check, choose, downgrade, index, limited, named
from router.config.policy import Config
from router.decide.eligibility import Gate
from router.decide.explain import encode, explain
from router.decide.health import Health
from router.decide.profile import NEW
from router.dispatch.dispatch import Dispatcher, DispatchJob
from router.dispatch.hold import CLIENT_GONE, Presence
from router.dispatch.meter import said
from router.dispatch.stream import Answered, Opened, forward
from router.dispatch.tactics import run_plan, tee, unchecked
from router.engines import Fleet
from router.errors import ClientError, UpstreamFailure
from router.estimate.forecast import Forecaster
from router.ledger.rows import adopted
from router.ledger.write import record
from router.observe.observer import Observed
from router.recorder import ServedContext
from router.refusals import (
    budget_exceeded,
    loop_detected,
    no_target,
    rate_limited,
    store_down,
    unknown_budget,
    upstream_failed,
)
from router.screen import Screened, Sources
from router.types.account import Child, Refused, StoreUnavailable
from router.types.attempt import Asked, Attempt, ErrorKind, Usage, usage_json
from router.types.clock import clock_ms, now_ms
from router.types.decision import Decision, Plan, Served, Stakes, Translation
from router.types.request import Caller, Request, session_key

JUDGED = "judge"
"""What a judge's requests are called in place of their route."""


class Pipeline:
    """Steps 1, 2 and 8 are the HTTP edge's (`router.api`). `adopt` swaps the whole policy between two requests."""

    def __init__(
        self, config: Config, books: Accounting, sources: Sources, dispatcher: Dispatcher, health: Health, fleet: Fleet
    ) -> None:
        self.health, self._fleet = health, fleet
        self._books, self._sources, self._dispatcher = books, sources, dispatcher
        self._limits: Mapping[str, int] = {}
        self.adopt(config)

    def adopt(self, config: Config) -> None:
        self.rules: Rules = index(config, self._sources.secret, self._limits)
        recorder = self._books.recorder
        recorder.adopt(config)
        self._forecaster = Forecaster(tuple(config.targets.values()), self._books.learned, recorder.beliefs)
        policy = self.rules.in_force
        adopted(self._books.journal, policy.hash, now_ms(), policy.document)

    def limit(self, limits: Mapping[str, int]) -> bool:
        """Limits in place of those of the policy, in nano-USD or tokens, by id of a budget or of an account. Returns
        whether they are others than before."""
        if limits == self._limits:
            return False
        self._limits = limits
        self.rules = limited(self.rules, limits)
        return True

    async def route(self, request: Request, caller: Caller) -> Decision:
        """Decides, and keeps the decision, without having it answered."""
        screened = await self._screen(self.rules, request, caller)
        decision, _ = self._choose(self.rules, request, caller, screened)
        self._record(decision)
        await self._books.durable()
        return decision

    async def serve(
        self,
        request: Request,
        caller: Caller,
        translation: Translation | None = None,
        internal: str = "",
        observed: Observed | None = None,
        presence: Presence | None = None,
    ) -> Served:
        """Raises `ClientError`, with the answer for the client, when no target gives one.

        `internal`: what a request that no client sent is called in place of its route. Nobody looks at its answer, and
        it is no part of what its session repeats.
        """
        rules, settlement = self.rules, Settlement(self._books, request, caller, internal, observed, presence)
        try:
            return await self._answer(rules, request, caller, settlement, translation)
        except asyncio.CancelledError:
            settlement.abandon(CLIENT_CLOSED, CLIENT_GONE)
            raise
        except BaseException:
            settlement.abandon(500, "internal_error")
            raise

    async def _answer(
        self,
        rules: Rules,
        request: Request,
        caller: Caller,
        settlement: Settlement,
        translation: Translation | None,
    ) -> Served:
        children = await self._children(rules, request, caller)
        decision, gate, plan = await self._pay(rules, request, caller, settlement, children)
        route, _ = rules.routes[request.model if settlement.internal else plan.route]
        context = settlement.context = ServedContext(decision, route, caller)
        verify = self._books.recorder.verify(context.route, gate.guard)
        check = None if translation is None else translation.check
        job = DispatchJob(request, plan, gate, settlement.budget, _deadline(decision.stakes), verify, check)
        answer = await self._dispatch(job, settlement)
        if isinstance(answer, Opened):
            return self._stream(context, job, settlement, answer, translation)
        return await self._whole(context, job, settlement, answer)

    async def _screen(self, rules: Rules, request: Request, caller: Caller) -> Screened:
        check(rules, request, caller)
        return await rules.screen.look(request, caller, self._sources)

    def _choose(
        self, rules: Rules, request: Request, caller: Caller, screened: Screened, route: str = ""
    ) -> tuple[Decision, Gate]:
        draw = chance(request.id)
        session = request.limits.session
        progress = self._books.recall.of(session_key(caller.id, session)) if session else NEW
        return choose(
            *(rules, request, caller, screened, self.health, self._forecaster, draw, route, progress), asks=self._fleet
        )

    async def _children(self, rules: Rules, request: Request, caller: Caller) -> list[Child]:
        """The budgets that were split off, of those that request and key name. Raises `ClientError`."""
        names = {request.limits.budget, caller.budget} - {""} - named(rules, request, caller)
        return [await self._child(rules, caller, name) for name in sorted(names)]

    async def _child(self, rules: Rules, caller: Caller, name: str) -> Child:
        try:
            child = await self._books.store.child(name)
        except StoreUnavailable:
            raise store_down() from None
        if child is None or not child.open_at(now_ms()) or not child.usable_by(caller):
            raise unknown_budget(name, [budget.id for budget in rules.config.budgets])
        return child

    async def _pay(
        self, rules: Rules, request: Request, caller: Caller, settlement: Settlement, children: Sequence[Child]
    ) -> tuple[Decision, Gate, Plan]:
        """Decides, and holds what the choice costs; a budget that is used up may send the request to another route."""
        _step(settlement, "classify")
        screened = await self._screen(rules, request, caller)
        _step(settlement, "decide")
        decision, gate = self._choose(rules, request, caller, screened)
        looped = None if settlement.internal else self._books.breaker.check(request, caller, now_ms())
        if looped is not None:
            raise await self._turn_away(settlement, decision, loop_detected(looped))
        settlement.loop = self._books.breaker.approaching(request.id)
        if settlement.internal:
            decision = structs.replace(decision, plan=structs.replace(decision.plan, route=settlement.internal))
        tried = {decision.plan.route}
        while True:
            if not decision.plan.steps:
                raise await self._turn_away(settlement, decision, _unserved(request, decision, self.health))
            bound = binding(rules, request, caller, decision, children)
            _step(settlement, "reserve")
            paid = await settlement.reserve(decision, bound)
            if not isinstance(paid, Refused):
                self._record(decision)
                return decision, gate, paid
            if paid.account.size:
                self._record(decision)
                raise await settlement.refuse(rate_limited(paid, now_ms()))
            other = downgrade(rules, paid.account.budget)
            if not other or other in tried:
                self._record(decision)
                raise await settlement.refuse(budget_exceeded(paid, rules.config.budget_status))
            tried.add(other)
            settlement.lowered = ("route",)
            _step(settlement, "decide")
            decision, gate = self._choose(rules, request, caller, screened, other)

    async def _turn_away(self, settlement: Settlement, decision: Decision, refusal: ClientError) -> ClientError:
        self._record(decision)
        return await settlement.turn_away(decision, refusal)

    async def _dispatch(self, job: DispatchJob, settlement: Settlement) -> Answered | Opened:
        _step(settlement, "dispatch")
        try:
            answer = await run_plan(self._dispatcher, job)
            self._heed(settlement.budget.attempts, answer.step.target.id)
            return answer
        except UpstreamFailure as error:
            self._heed(settlement.budget.attempts)
            refusal = upstream_failed(error.failure, settlement.budget.attempts)
            if error.failure.kind is ErrorKind.BUDGET:
                refusal = await self._short(job, settlement, refusal)
            settlement.close(refusal.status, error.failure.kind)
            await self._books.durable()
            raise refusal from None
        except ClientError as error:
            settlement.close(error.status, error.code)
            await self._books.durable()
            raise

    def _heed(self, attempts: Sequence[Attempt], served: str = "") -> None:
        """Engines whose queues were full are not asked by the next requests. `served`: the target that answered."""
        for one in attempts:
            if one.outcome == ErrorKind.SATURATED and one.target.id != served:
                self._fleet.refused(one.target)

    async def _short(self, job: DispatchJob, settlement: Settlement, failed: ClientError) -> ClientError:
        """What was held fits no target: the client hears of the budget, and of the attempts that used it up."""
        refused = None
        with suppress(StoreUnavailable):
            refused = await settlement.budget.shortage(job.plan.steps)
        if refused is None:
            return failed
        refusal = budget_exceeded(refused, self.rules.config.budget_status)
        refusal.extra |= failed.extra
        return refusal

    def _stream(
        self,
        context: ServedContext,
        job: DispatchJob,
        settlement: Settlement,
        opened: Opened,
        translation: Translation | None,
    ) -> Served:
        translated = job.translated(opened.step)
        settlement.translation = translation if translated else None
        settlement.lowered += opened.lowered
        events = forward(opened, self.health, settlement)
        if context.watched:
            tell = partial(self._given, context, job)
            events = tee(events, job, opened, tell)
        return Served(
            decision=context.decision,
            step=opened.step,
            thinking=opened.record.thinking,
            lowered=settlement.lowered,
            loop=settlement.loop,
            rates=settlement.budget.reservation.rates,
            events=events,
            translated=translated,
        )

    def _given(self, context: ServedContext, job: DispatchJob, asked: Asked | None) -> None:
        if asked is not None:
            self._books.recorder.given(context, job.verify, asked, len(job.budget.attempts))

    async def _whole(
        self, context: ServedContext, job: DispatchJob, settlement: Settlement, answer: Answered
    ) -> Served:
        settlement.budget.attempts.append(answer.attempt)
        settlement.lowered += answer.lowered
        settlement.answer = said(answer.reply.body)
        cost = settlement.close(200, answer.stopped or None)
        await self._books.durable()
        if context.watched:
            self._given(context, job, unchecked(job, answer))
        return Served(
            decision=context.decision,
            step=answer.step,
            thinking=answer.attempt.thinking,
            lowered=settlement.lowered,
            loop=settlement.loop,
            rates=settlement.budget.reservation.rates,
            cost=cost,
            body=answer.reply.body,
            usage=usage_json(job.request.endpoint, answer.attempt.usage or Usage(), cost),
            translated=job.translated(answer.step),
        )

    def _record(self, decision: Decision) -> None:
        for queue in decision.plan.queued:
            self._books.telemetry.spilled[queue.target] += queue.spilled
        document = encode(explain(decision))
        record(self._books.journal, decision.id, now_ms(), decision.policy, document)


def _step(settlement: Settlement, name: str) -> None:
    """For whoever watches this request."""
    if settlement.observed is not None:
        settlement.observed.step(name)


def _unserved(request: Request, decision: Decision, health: Health) -> ClientError:
    lacking = {dropped.reason for dropped in decision.plan.dropped} <= {"capability"}
    if request.unsaid is not None and lacking:
        message, param = request.unsaid
        return ClientError(400, "invalid_request_error", message, param=param)
    return no_target(decision.plan, decision.classification.data_class, health.resting)


def _deadline(stakes: Stakes) -> float | None:
    limit = stakes.deadline_ms
    return None if limit is None else clock_ms() + limit
