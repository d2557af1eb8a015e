"""`/v1/reports/{name}`: every report, as JSON or CSV. The ledger is read in threads, off the event loop."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict

from router.ledger.ledger import Ledger
from router.report.asked import Question
from router.report.contents import contents
from router.report.csv_ import as_csv
from router.report.read import definition, read
from router.report.render import as_json
from router.report.report import Report
from router.types.target import Target


class Asked(BaseModel):
    """The query of a report: a `Question`, and how to write the answer."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    by: str = ""
    where: tuple[str, ...] = ()
    since: str = ""
    until: str = ""
    zone: str = ""
    baseline: str = ""
    subject: str = ""
    format: Literal["json", "csv"] = "json"
    table: str = ""
    """Which of its tables, in CSV."""

    def question(self) -> Question:
        return Question(**self.model_dump(exclude={"format", "table"}))


def routes(
    ledger: Ledger,
    budgets: Callable[[], Awaitable[Report]],
    targets: Callable[[], Mapping[str, Target]] = dict,
) -> APIRouter:
    """`budgets` makes the report of that name from the budgets' store; `targets` of the policy in force."""
    router = APIRouter()

    @router.get("/v1/reports")
    def every() -> Response:
        return _json(contents())

    @router.get("/v1/reports/{name}")
    async def report(name: str, asked: Annotated[Asked, Query()]) -> Response:
        pots = await budgets() if definition(name).needs_pots else None
        found = await asyncio.to_thread(read, ledger, name, asked.question(), targets(), pots)
        return _csv(found, asked.table) if asked.format == "csv" or asked.table else _json(found)

    return router


def _json(report: Report) -> Response:
    return Response(as_json(report), media_type="application/json")


def _csv(report: Report, table: str) -> Response:
    """To be saved, not looked at."""
    headers = {
        "content-disposition": f'attachment; filename="{report.name}.csv"',
        "x-content-type-options": "nosniff",
    }
    return Response(as_csv(report, table), headers=headers, media_type="text/csv; charset=utf-8; header=present")
