"""`GET /metrics`."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from fastapi import APIRouter, Response

from router.budget.budget import Budget
from router.report.standing import every, measured
from router.telemetry import Values, of_budgets, of_engines, page
from router.types.clock import now_ms
from router.types.engine import EngineState
from router.types.store import BudgetStore, StoreUnavailable

ENDLESS = ("request", "session", "tag")
"""Scopes whose pots clients make, as many as they like: no metric adds them up."""


def metrics(
    values: Callable[[], Awaitable[Values]],
    engines: Callable[[], Sequence[EngineState]],
    store: BudgetStore,
    declared: Callable[[], Sequence[Budget]],
) -> APIRouter:
    """`declared`: the budgets in force. Where their store does not answer, everything else is there."""
    router = APIRouter()

    @router.get("/metrics")
    async def counted() -> Response:
        found = {**await values(), **of_engines(engines())}
        with suppress(StoreUnavailable):
            bounded = [budget for budget in declared() if budget.scope not in ENDLESS]
            found |= of_budgets(await measured(store, await every(store, bounded, now_ms())))
        return Response(page(found), media_type="text/plain; version=0.0.4; charset=utf-8")

    return router
