"""The nine steps of a request, in order."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from functools import partial

from msgspec import structs

from router.accounting import CLIENT_CLOSED, Accounting, Settlement
from router.budget.loops import Tripped
from router.choose import CompiledPolicy, check, choose, index, limited
from router.classify.difficulty import add_difficulty, with_difficulty
from router.config.policy import Config
from router.decide.eligibility import Gate
from router.decide.explain import encode, explain
from router.decide.health import Health
from router.decide.profile import NEW
from router.decide.replicas import Fleet
from router.dispatch import refusals
from router.dispatch.dispatch import Dispatcher, DispatchJob
from router.dispatch.hold import CLIENT_GONE, BudgetHold, ClientPresence
from router.dispatch.side_calls import count
from router.dispatch.stream import OpenStream, WholeAnswer, forward
from router.dispatch.tactics import run_plan, tee, unchecked
from router.errors import ClientError, UpstreamFailure
from router.estimate.forecast import Forecaster
from router.ledger.rows import adopted
from router.ledger.write import record
from router.observe.observer import ObservedRequest
from router.recorder import ServedContext
from router.screen import Screened, ScreenSources
from router.types.account import ANY_AMOUNT, SESSION_TURNS, Child, LedgerUnavailable, Refused, StoreUnavailable
from router.types.attempt import Attempt, AttemptSample, ErrorKind, Usage, usage_json
from router.types.clock import clock_ms, now_ms
from router.types.decision import Counts, Decision, PromptCount, Served, Translation
from router.types.request import Caller, Request, session_key

JUDGED = "judge"
"""Name that a judge's requests have instead of a route."""


class Pipeline:
    """Runs steps 3 to 7 and 9; the HTTP layer runs 1, 2 and 8. `adopt` swaps the policy between two requests."""

    def __init__(
        self,
        config: Config,
        accounting: Accounting,
        sources: ScreenSources,
        dispatcher: Dispatcher,
        health: Health,
        fleet: Fleet,
    ) -> None:
        self.health, self._fleet = health, fleet
        self._accounting, self._sources, self._dispatcher = accounting, sources, dispatcher
        self._limits: Mapping[str, int] = {}
        self.adopt(config)

    def adopt(self, config: Config) -> None:
        self.rules: CompiledPolicy = index(config, self._sources.secret, self._limits)
        self._capped = set[str]()
        """Routes whose answers a short budget had to cap. Their requests' texts are read from then on."""
        recorder = self._accounting.recorder
        recorder.adopt(config)
        self._forecaster = Forecaster(tuple(config.targets.values()), self._accounting.learned, recorder.beliefs)
        policy = config.in_force
        adopted(self._accounting.journal, policy.hash, now_ms(), policy.document)

    def limit(self, limits: Mapping[str, int]) -> bool:
        """Sets limits that replace the policy's, in nano-USD or tokens, by id of a budget or an account. Returns
        whether they have changed."""
        if limits == self._limits:
            return False
        self._limits = limits
        self.rules = limited(self.rules, limits)
        return True

    async def route(self, request: Request, caller: Caller) -> Decision:
        """Decides a request and stores the decision, without having the request answered."""
        decision, gate = await self._decide(self.rules, request, caller, {})
        decision = add_difficulty(decision, request)
        for queue in decision.plan.queued:
            self._accounting.telemetry.spilled[queue.target,] += queue.spilled
        record(self._accounting.journal, decision.id, gate.now_ms, decision.policy, encode(explain(decision)))
        await self._accounting.durable()
        return decision

    async def count(self, request: Request, caller: Caller) -> int:
        """Returns the number of input tokens at the target that would be asked first: counted if possible, else
        estimated. Writes no row. Later estimates learn from the count."""
        rules, counts = self.rules, dict[str, PromptCount | None]()
        decision, gate = await self._decide(rules, request, caller, counts)
        if not decision.plan.steps:
            raise _unserved(request, decision, self.health)
        step, learned = decision.plan.steps[0], self._accounting.learned
        await self._count([step.target.id], decision, gate, rules, counts)
        exact, estimate = counts[step.target.id], step.estimate
        if exact is None:
            return estimate.input_tokens
        if exact.least == exact.most and learned.margin(step.target.id) == 1:  # else its margin would shrink
            sample = AttemptSample(target=step.target.id, task=None, script=estimate.script, input=exact.tokens,
                        expected_input=estimate.input_rough)  # fmt: skip
            learned.observe(sample)
        return exact.tokens

    async def serve(
        self,
        request: Request,
        caller: Caller,
        translation: Translation | None = None,
        internal: str = "",
        observed: ObservedRequest | None = None,
        presence: ClientPresence | None = None,
    ) -> Served:
        """Serves a request. Raises `ClientError` with the answer for the client if no target gives one.

        `internal` is the name that a request which no client sent has instead of its route. Its answer is not judged,
        and it does not count as part of its session.
        """
        rules, accounting, presence = self.rules, self._accounting, presence or ClientPresence()
        presence.lost_since = accounting.lease.lost_since
        budget = BudgetHold(accounting.store, accounting.learned, accounting.room, request, presence)
        settlement = Settlement(accounting, request, caller, budget, clock_ms(), internal, observed)
        try:
            children = await self._children(rules, request, caller) if request.limits.budget or caller.budget else ()
            if observed is not None:
                observed.step("classify")
            decision, gate = await self._pay(rules, request, caller, settlement, children)
            plan = decision.plan
            route, _ = rules.routes[request.model if internal else plan.route]
            context = settlement.context = ServedContext(decision, route, caller)
            verify = accounting.recorder.verifiers.of(route.verifiers, gate.guard) if route.verifiers else None
            limit_ms = decision.stakes.deadline_ms
            deadline = None if limit_ms is None else clock_ms() + limit_ms
            readable = None if translation is None else translation.check
            job = DispatchJob(request, plan, gate, budget, deadline, verify, readable)
            if observed is not None:
                observed.step("dispatch")
            try:
                answer = await run_plan(self._dispatcher, job)
            except (UpstreamFailure, ClientError) as error:
                raise await self._failed(error, job, settlement) from None
            served = self._respond(context, job, settlement, answer, translation)
            if served.events is None:
                with suppress(LedgerUnavailable):  # already billed: the answer is given, and its rows wait
                    await accounting.journal.committed()
            return served
        except asyncio.CancelledError:
            settlement.abandon(CLIENT_CLOSED, CLIENT_GONE)
            raise
        except BaseException:
            settlement.abandon(500, "internal_error")
            raise

    def _choose(
        self,
        rules: CompiledPolicy,
        request: Request,
        caller: Caller,
        screened: Screened,
        route: str,
        counts: Counts,
        paid: Settlement | None = None,
    ) -> tuple[Decision, Gate, Sequence[str]]:
        """Decides. Also returns targets that only the bound makes too small for the prompt, not yet counted there."""
        if route in self._capped:
            screened = structs.replace(screened, classification=with_difficulty(screened.classification, request))
        session = request.limits.session
        progress = self._accounting.recall.of(session_key(caller.id, session)) if session else NEW
        known = (rules, request, caller, screened, self.health, self._forecaster, route, progress)
        decision, gate = choose(*known, self._fleet.queue, counts, *((paid.left, paid.internal) if paid else ()))
        near: Sequence[str] = ()
        for step in decision.plan.steps:
            if step.estimate.input_bound >= step.target.model.context and step.target.id not in counts:
                near = (*near, step.target.id)
        if not decision.plan.steps:  # the prompt is counted before it is refused for its length
            near = [row.target for row in decision.plan.dropped if row.reason == "context"]
        return decision, gate, near

    async def _decide(
        self, rules: CompiledPolicy, request: Request, caller: Caller, counts: dict[str, PromptCount | None]
    ) -> tuple[Decision, Gate]:
        """Runs steps 3 to 5 for a request without holds. Adds the token counts that were needed to `counts`."""
        route = check(rules, request, caller)
        screened = await rules.screen.look(request, caller, self._sources)
        while True:
            decision, gate, near = self._choose(rules, request, caller, screened, route, counts)
            if not near or not await self._count(near, decision, gate, rules, counts):
                return decision, gate

    async def _count(
        self,
        targets: Sequence[str],
        decision: Decision,
        gate: Gate,
        rules: CompiledPolicy,
        counts: dict[str, PromptCount | None],
    ) -> bool:
        """Counts the prompt at those of `targets` that are not in `counts`, and adds the results; without targets, at
        the plan's and without asking engines. Returns whether any could be counted."""
        efforts = {step.target.id: step.estimate.effort for step in decision.plan.steps}
        fresh = [name for name in targets or efforts if name not in counts]
        for name in fresh:
            target, effort = rules.config.targets[name], efforts.get(name, "")
            counts[name] = await count(self._dispatcher, target, gate, effort, bool(targets))
        return any(counts[name] is not None for name in fresh)

    async def _children(self, rules: CompiledPolicy, request: Request, caller: Caller) -> list[Child]:
        """Returns the child budgets among those that request and key name. Raises `ClientError`."""
        children = []
        for name in sorted({request.limits.budget, caller.budget} - {""} - rules.accounts.named(request, caller)):
            try:
                child = await self._accounting.store.child(name)
            except StoreUnavailable:
                raise refusals.store_down() from None
            if child is None or not child.open_at(now_ms()) or not child.usable_by(caller):
                raise refusals.unknown_budget(name, [budget.id for budget in rules.config.budgets])
            children.append(child)
        return children

    async def _pay(
        self, rules: CompiledPolicy, request: Request, caller: Caller, settlement: Settlement, children: Sequence[Child]
    ) -> tuple[Decision, Gate]:
        """Decides, and holds the cost of the choice. If a budget is short, decides again within what is left. An
        exhausted budget may send the request to another route."""
        observed, breaker = settlement.observed, self._accounting.breaker
        tried_routes, route, counts = set[str](), check(rules, request, caller), dict[str, PromptCount | None]()
        screened = await rules.screen.look(request, caller, self._sources)
        while True:
            if observed is not None:
                observed.step("decide")
            decision, gate, near = self._choose(rules, request, caller, screened, route, counts, settlement)
            if near and await self._count(near, decision, gate, rules, counts):
                continue  # decide by the exact length of the prompt
            if not tried_routes and not settlement.internal:
                watched = breaker.check(request, caller, gate.now_ms)
                if isinstance(watched, Tripped):
                    raise await settlement.refuse_at_once(decision, refusals.loop_detected(watched), gate.now_ms)
                settlement.watched = watched
            tried_routes.add(decision.plan.route)
            if not decision.plan.steps:
                refusal = _unserved(request, decision, self.health)
                raise await settlement.refuse_at_once(decision, refusal, gate.now_ms)
            if observed is not None:
                observed.step("reserve")
            bound = rules.accounts.bound(request, caller, decision, children, gate.now_ms)
            bound = breaker.bind(bound, settlement.watched) if request.limits.session else bound
            refused = await settlement.reserve(decision, bound, gate.now_ms)
            known, granted = decision.plan.steps[0].estimate, settlement.budget.reservation.granted
            capped = known.blind and (granted.usd < known.whole.usd or granted.thinking < known.whole.thinking)
            if refused is None and not (capped and self._to_be_read(decision)):
                return decision, gate
            if refused is None or refused.short:
                continue  # decide by the request's text, or within what is left
            can_lower = not (refused.account.size or settlement.internal)
            if can_lower and not refused.passing and await self._count((), decision, gate, rules, counts):
                continue  # hold no more for the prompt than it costs
            route = rules.accounts.downgrade(refused.account.budget) if can_lower else ""
            if not route or route in tried_routes:
                refusal = await self._unpaid(refused, settlement.budget, rules.config.budget_status)
                raise await settlement.refuse(refusal)
            settlement.lowered, settlement.left = ("route",), ANY_AMOUNT

    def _to_be_read(self, decision: Decision) -> bool:
        """Whether the decision must be repeated with the text read: the hold caps the answer by other answers' lengths,
        while the text may ask for more. True once per route, as requests without text stay unread."""
        route = decision.plan.route
        unread = decision.classification.unread and route not in self._capped
        if unread:
            self._capped.add(route)
        return unread

    async def _unpaid(self, refused: Refused, budget: BudgetHold, status: int) -> ClientError:
        """Returns the refusal for a budget that has too little left. `status` is the status for an exhausted budget."""
        if refused.account.budget == SESSION_TURNS:
            return refusals.loop_detected(self._accounting.breaker.end_session(refused, now_ms()))
        if not refused.account.size:
            return refusals.budget_exceeded(refused, status)
        return refusals.rate_limited(refused, await budget.rates(), now_ms())

    async def _failed(
        self, error: UpstreamFailure | ClientError, job: DispatchJob, settlement: Settlement
    ) -> ClientError:
        """Returns the error for the client after no target gave an answer."""
        if isinstance(error, ClientError):
            return await settlement.refuse(error)
        self._note_saturation(settlement.budget.attempts)
        refusal = refusals.upstream_failed(error.failure, settlement.budget.attempts)
        if error.failure.kind is ErrorKind.BUDGET:  # tell the client the budget, and which attempts used it up
            with suppress(StoreUnavailable):
                if (refused := await settlement.budget.shortage(job.plan.steps)) is not None:
                    attempts = refusal.extra
                    refusal = refusals.budget_exceeded(refused, self.rules.config.budget_status)
                    refusal.extra |= attempts
        settlement.close(refusal.status, error.failure.kind)
        await self._accounting.durable()
        return refusal

    def _note_saturation(self, attempts: Sequence[Attempt], served: str = "") -> None:
        """Keeps the next requests from engines whose queues were full. `served` is the target that answered."""
        for attempt in attempts:
            if attempt.outcome == ErrorKind.SATURATED and attempt.target.id != served:
                self._fleet.refused(attempt.target)

    def _respond(
        self,
        context: ServedContext,
        job: DispatchJob,
        settlement: Settlement,
        answer: WholeAnswer | OpenStream,
        translation: Translation | None,
    ) -> Served:
        """Returns what the client gets. Settles a whole answer at once; a stream is settled when it ends."""
        sent = answer.record
        if settlement.budget.attempts:
            self._note_saturation(settlement.budget.attempts, sent.step.target.id)
        events: AsyncGenerator[bytes] | None = None
        body, usage, cost, recorder = None, b"", None, self._accounting.recorder
        watched = context.route.verifiers or context.route.judge is not None
        translated = translation is not None and job.translated(sent.step)
        settlement.lowered += tuple(sorted({*sent.step.estimate.lowered, *sent.fit.lowered}))
        if isinstance(answer, OpenStream):
            used, durable = translation if translated else None, self._accounting.durable
            events = forward(answer, self.health, settlement.settle, durable, used)
            if watched:
                events = tee(events, job, answer, partial(recorder.given, context, job))
        else:
            body = answer.reply.body
            settlement.budget.attempts.append(answer.attempt)
            settlement.answer = answer.reply.content
            cost = settlement.close(200, sent.stopped or None)
            if watched:
                recorder.given(context, job, unchecked(job, answer))
            usage = usage_json(job.request.endpoint, answer.attempt.usage or Usage(), cost)
        return Served(
            decision=context.decision,
            step=sent.step,
            thinking=sent.thinking,
            dropped=sent.dropped,
            lowered=settlement.lowered,
            loop=settlement.watched.approaching if settlement.watched is not None else "",
            rates=settlement.budget.reservation.rates,
            cost=cost,
            body=body,
            usage=usage,
            events=events,
            translated=translated,
        )


def _unserved(request: Request, decision: Decision, health: Health) -> ClientError:
    lacking = {dropped.reason for dropped in decision.plan.dropped} <= {"capability"}
    if request.no_chat_reason is not None and lacking:
        message, param = request.no_chat_reason
        return ClientError(400, "invalid_request_error", message, param=param)
    return refusals.no_target(decision.plan, decision.classification.data_class, health.resting, health.limited)
