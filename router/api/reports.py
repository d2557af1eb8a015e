"""`/v1/reports/{name}`: what was spent and what is left. The ledger is read in threads, off the event loop."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict

from router.ledger.ledger import Ledger
from router.report.read import read
from router.report.render import as_json
from router.report.report import Report


class Asked(BaseModel):
    """The query of a report; see `router.report.read`."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    by: str = "target"
    since: str = ""
    until: str = ""


def routes(ledger: Ledger, budgets: Callable[[], Awaitable[Report]]) -> APIRouter:
    """`budgets` makes the report of that name from the budgets' store."""
    router = APIRouter()

    @router.get("/v1/reports/{name}")
    async def report(name: str, asked: Annotated[Asked, Query()]) -> Response:
        query = asked.model_dump()
        found = await budgets() if name == "budgets" else await asyncio.to_thread(partial(read, ledger, name, **query))
        return Response(as_json(found), media_type="application/json")

    return router
