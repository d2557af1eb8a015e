"""`/v1/reports/{name}` and `/v1/budgets`: what was spent and what is left. Read in threads, off the event loop."""

from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict

from router.api.rest import answer
from router.config import Config
from router.errors import ClientError
from router.ledger.ledger import Ledger
from router.report.read import read
from router.report.render import as_json, as_object


class Asked(BaseModel):
    """The query of a report; see `router.report.read`."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    by: str = "target"
    since: str = ""
    until: str = ""


def routes(ledger: Ledger, policy: Callable[[], Config]) -> APIRouter:
    router = APIRouter()

    def budgets() -> list[dict[str, object]]:
        report = read(ledger, "budgets", budgets=policy().budgets)
        return [{"object": "budget", **as_object(report.columns, row)} for row in report.rows]

    @router.get("/v1/reports/{name}")
    def report(name: str, asked: Annotated[Asked, Query()]) -> Response:
        found = read(ledger, name, by=asked.by, since=asked.since, until=asked.until, budgets=policy().budgets)
        return Response(as_json(found), media_type="application/json")

    @router.get("/v1/budgets")
    def every() -> Response:
        return answer({"object": "list", "data": budgets()})

    @router.get("/v1/budgets/{identifier}")
    def one(identifier: str) -> Response:
        known = {str(budget["id"]): budget for budget in budgets()}
        if identifier not in known:
            message = f"There is no budget '{identifier}'. Known: {', '.join(known) or 'none'}."
            raise ClientError(404, "not_found", message, param="id")
        return answer(known[identifier])

    return router
