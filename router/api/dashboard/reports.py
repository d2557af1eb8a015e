"""A page for every report of the catalog."""

import asyncio
from collections.abc import Iterator
from functools import partial

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from router.api.dashboard.pages import HEADERS, Pages
from router.api.dashboard.site import Site
from router.api.dashboard.view import MOST_GROUPS, SPANS, View, view
from router.errors import ClientError
from router.report.csv_ import as_csv
from router.report.read import definition, read
from router.report.report import Report


def add(router: APIRouter, site: Site, pages: Pages) -> None:
    @router.get("/dashboard/reports/{name}.csv")
    async def rows(name: str, request: Request) -> Response:
        table = request.query_params.get("table", "")
        found = await _read(site, name, view(request.query_params))
        headers = {"content-disposition": f'attachment; filename="{name}.csv"', **HEADERS}
        return Response(as_csv(found, table), headers=headers, media_type="text/csv; charset=utf-8")

    @router.get("/dashboard/reports/{name}")
    async def report(name: str, request: Request) -> Response:
        one, asked, problem = definition(name), View(), None
        try:
            asked = view(request.query_params)
            if asked.from_form:
                return RedirectResponse(request.url.path + asked.query(), 303)
            found = await _read(site, name, asked)
        except ClientError as error:
            if error.status != 400:
                raise
            found, problem = None, error
        return pages.draw(
            request,
            "report-page.html",
            400 if problem else 200,
            definition=one,
            view=asked,
            report=found,
            problem=problem.message if problem else "",
            spans=SPANS,
            levels=MOST_GROUPS,
            known=sorted(set(_names(site))),
        )

    @router.get("/dashboard/session")
    async def session(request: Request) -> Response:
        found = await _read(site, "session", View(subject=request.query_params.get("id", ""), since="all"))
        return pages.draw(request, "drill-down.html", report=found, identifier=request.query_params.get("id", ""))

    @router.get("/dashboard/requests/{identifier}")
    async def one(identifier: str, request: Request) -> Response:
        found = await _read(site, "request", View(subject=identifier, since="all"))
        return pages.draw(request, "drill-down.html", report=found, identifier=identifier)


async def _read(site: Site, name: str, asked: View) -> Report:
    pots = await site.budgets() if definition(name).needs_pots else None
    targets = site.policy().targets
    return await asyncio.to_thread(partial(read, site.ledger, name, asked.question(), targets, pots))


def _names(site: Site) -> Iterator[str]:
    """What filters may name, as the policy in force knows it; offered while somebody types."""
    config = site.policy()
    yield from (*config.targets, *config.routes, *config.sensitivity.classes)
    yield from (target.model.id for target in config.targets.values())
    yield from (target.provider.id for target in config.targets.values())
