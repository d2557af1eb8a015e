"""The nine steps of a request, in order."""

import asyncio
from random import random

from router.choose import Rules, binding, choose, index
from router.config.config import Config
from router.decide.explain import encode, explain
from router.decide.health import Health
from router.dispatch.errand import Errand
from router.dispatch.stream import CLIENT_GONE, forward
from router.dispatch.walk import Answered, Dispatcher, Opened
from router.errors import ClientError, UpstreamFailure
from router.ledger.write import record
from router.refusals import no_target, upstream_failed
from router.settlement import CLIENT_CLOSED, Books, Settlement
from router.types.clock import clock_ms, now_ms
from router.types.plan import Decision
from router.types.request import Caller, Request
from router.types.served import Served, Translation
from router.types.usage import Usage
from router.usage_json import usage_json


class Pipeline:
    """Steps 1, 2 and 8 are the HTTP edge's (`router.api`). `adopt` swaps the whole policy between two requests."""

    def __init__(self, config: Config, books: Books, dispatcher: Dispatcher, health: Health) -> None:
        self.rules: Rules = index(config)
        self.health = health
        self._books, self._dispatcher = books, dispatcher

    def adopt(self, config: Config) -> None:
        self.rules = index(config)

    async def route(self, request: Request, caller: Caller) -> Decision:
        """Decides, and keeps the decision, without calling anyone."""
        decision, _ = choose(self.rules, request, caller, self.health, random())  # noqa: S311 - a share of traffic
        self._record(decision)
        await self._books.durable()
        return decision

    async def serve(self, request: Request, caller: Caller, translation: Translation | None = None) -> Served:
        """Raises `ClientError`, with the answer for the client, when no target gives one."""
        rules = self.rules
        decision, gate = choose(rules, request, caller, self.health, random())  # noqa: S311 - a share of traffic
        plan = decision.plan
        budgets = binding(rules, request, caller, plan.route)
        self._record(decision)
        settlement = Settlement(self._books, request, plan.route)
        if not plan.steps:
            refusal = _unserved(request, decision, self.health)
            await settlement.turn_away(caller, decision, refusal)
            raise refusal
        plan = await settlement.reserve(caller, decision, budgets, rules.config.budget_status)
        errand = Errand(request, plan, gate, settlement.reservation, _deadline(request))
        answer = await self._dispatch(errand, settlement)
        if isinstance(answer, Opened):
            return self._stream(decision, errand, settlement, answer, translation)
        return await self._whole(decision, errand, settlement, answer)

    async def _dispatch(self, errand: Errand, settlement: Settlement) -> Answered | Opened:
        try:
            return await self._dispatcher.walk(errand, settlement.attempts)
        except UpstreamFailure as error:
            refusal = upstream_failed(error.failure, settlement.attempts)
            settlement.close(refusal.status, error.failure.kind)
            await self._books.durable()
            raise refusal from None
        except ClientError as error:
            settlement.close(error.status, error.code)
            await self._books.durable()
            raise
        except asyncio.CancelledError:
            settlement.close(CLIENT_CLOSED, CLIENT_GONE)
            raise
        except Exception:
            settlement.close(500, "internal_error")
            raise

    def _stream(
        self,
        decision: Decision,
        errand: Errand,
        settlement: Settlement,
        opened: Opened,
        translation: Translation | None,
    ) -> Served:
        translated = errand.translated(opened.step)
        settlement.translation = translation if translated else None
        events = forward(opened, self.health, settlement)
        return Served(
            decision=decision, step=opened.step, thinking=opened.trial.thinking, events=events, translated=translated
        )

    async def _whole(self, decision: Decision, errand: Errand, settlement: Settlement, answer: Answered) -> Served:
        settlement.attempts.append(answer.attempt)
        cost = settlement.close(200, None)
        await self._books.durable()
        return Served(
            decision=decision,
            step=answer.step,
            thinking=answer.attempt.thinking,
            cost=cost,
            body=answer.reply.body,
            usage=usage_json(errand.request.endpoint, answer.attempt.usage or Usage(), cost),
            translated=errand.translated(answer.step),
        )

    def _record(self, decision: Decision) -> None:
        document = encode(explain(decision))
        record(self._books.journal, decision.id, now_ms(), decision.policy, document)


def _unserved(request: Request, decision: Decision, health: Health) -> ClientError:
    lacking = {dropped.reason for dropped in decision.plan.dropped} <= {"capability"}
    if request.unsaid is not None and lacking:
        message, param = request.unsaid
        return ClientError(400, "invalid_request_error", message, param=param)
    return no_target(decision.plan, decision.classification.data_class, health.resting)


def _deadline(request: Request) -> float | None:
    limit = request.limits.deadline_ms
    return None if limit is None else clock_ms() + limit
