"""The routes of the dashboard, with a page for every report."""

import asyncio
import re
from collections.abc import Sequence
from functools import partial

import msgspec
from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import RedirectResponse
from starlette.datastructures import QueryParams

from router.api.dashboard import policy
from router.api.dashboard.entry import COOKIE, LIFE_S, SignIn, over_tls, posted
from router.api.dashboard.pages import FORM, HEADERS, Dashboard, draw, for_browsers, query, refusal, view
from router.errors import ClientError
from router.report import request as requests
from router.report.budgets import BudgetStanding
from router.report.catalog import definition, read
from router.report.overview import MONTH, WEEK, overview
from router.report.query import Parameters
from router.report.render import as_csv
from router.report.report import Report
from router.types.account import StoreUnavailable
from router.types.clock import iso

# A page for every report of the catalog.


def add(router: APIRouter, site: Dashboard) -> None:
    @router.get("/dashboard/reports/{name}.csv")
    async def rows(name: str, request: Request) -> Response:
        table = request.query_params.get("table", "")
        rows_read = await _read(site, name, view(request.query_params))
        headers = {"content-disposition": f'attachment; filename="{name}.csv"', **HEADERS}
        return Response(as_csv(rows_read, table), headers=headers, media_type="text/csv; charset=utf-8")

    @router.get("/dashboard/reports/{name}")
    async def report(name: str, request: Request) -> Response:
        declared, form, table, problem = definition(name), view(QueryParams()), None, ""
        try:
            form = view(request.query_params)
            if any(field in request.query_params for field in FORM):
                return RedirectResponse(request.url.path + query(form), 303)
            table = await _read(site, name, form)
        except ClientError as error:
            if error.status != 400:
                raise
            problem = error.message
        # Names that filters may use, from the policy in force; offered as completions.
        config = site.policy()
        names = {*config.targets, *config.routes, *config.sensitivity.classes}
        names |= {name for target in config.targets.values() for name in (target.model.id, target.provider.id)}
        return draw(
            request,
            "report-page.html",
            400 if problem else 200,
            definition=declared,
            view=form,
            report=table,
            problem=problem,
            known=sorted(names),
        )

    @router.get("/dashboard/session")
    async def session(request: Request) -> Response:
        session_report = await _read(site, "session", Parameters(subject=request.query_params.get("id", "")))
        return draw(request, "drill-down.html", report=session_report, identifier=request.query_params.get("id", ""))

    @router.get("/dashboard/requests/{identifier}")
    async def one(identifier: str, request: Request) -> Response:
        request_report = await _read(site, "request", Parameters(subject=identifier))
        return draw(request, "drill-down.html", report=request_report, identifier=identifier)


async def _read(site: Dashboard, name: str, question: Parameters) -> Report:
    standings = await site.budgets() if definition(name).needs_pots else None
    return await asyncio.to_thread(partial(read, site.ledger, name, question, site.policy().targets, standings))


# Routes of the pages, and access to them.

LATEST = 20
"""Number of requests that the overview lists."""
FASTEST_S, SLOWEST_S = 5, 3_600
"""Limits in seconds of the interval at which a page reloads itself, as `refresh` in its URL states."""


def routes(site: Dashboard) -> APIRouter:
    entry = SignIn(site.keyring, site.secret, site.ledger)

    async def guard(request: Request) -> None:
        request.state.caller = await entry.caller(dict(request.scope["headers"]), request.cookies.get(COOKIE))

    router = APIRouter(dependencies=[Depends(for_browsers)])
    _doors(router, entry)
    inside = APIRouter(dependencies=[Depends(guard)])
    _overview(inside, site)
    add(inside, site)
    policy.add(inside, site)
    router.include_router(inside)
    return router


def _doors(router: APIRouter, entry: SignIn) -> None:
    @router.get("/dashboard/sign-in")
    async def door(request: Request) -> Response:
        return draw(request, "sign-in.html", message="", next="/dashboard")

    @router.post("/dashboard/sign-in")
    async def sign_in(request: Request) -> Response:
        form, headers = await posted(request), dict(request.scope["headers"])
        onward = form.get("next", "")
        inside = onward == "/dashboard" or onward.startswith(("/dashboard/", "/dashboard?"))
        if not (inside and onward.isascii() and onward.isprintable()) or "\\" in onward:
            onward = "/dashboard"  # never to another site
        try:
            token = await entry.sign_in(form.get("key", ""), request.client.host if request.client else "")
        except ClientError as error:
            return refusal(request, error, onward)
        answer = RedirectResponse(onward, 303)
        answer.set_cookie(
            COOKIE,
            token,
            max_age=LIFE_S,
            path="/dashboard",
            secure=over_tls(headers, request.url.scheme),
            httponly=True,
            samesite="strict",
        )
        return answer

    @router.post("/dashboard/sign-out")
    async def sign_out(request: Request) -> Response:
        await posted(request)
        await asyncio.to_thread(entry.sign_out, request.cookies.get(COOKIE) or "")
        answer = RedirectResponse("/dashboard/sign-in", 303)
        answer.delete_cookie(COOKIE, path="/dashboard", httponly=True, samesite="strict")
        return answer


def _overview(router: APIRouter, site: Dashboard) -> None:
    @router.get("/dashboard")
    async def first(request: Request) -> Response:
        try:
            standings: Sequence[BudgetStanding] | None = await site.budgets()
        except StoreUnavailable:
            standings = None
        return await asyncio.to_thread(drawn, request, standings)

    def drawn(request: Request, standings: Sequence[BudgetStanding] | None) -> Response:
        now, config = site.clock(), site.policy()
        seconds = request.query_params.get("refresh", "")
        with site.ledger.reading() as connection:
            figures = overview(connection, config.targets, standings, now)
            latest = requests.latest(connection, LATEST)
        return draw(
            request,
            "dashboard.html",
            now=iso(now),
            seen=figures,
            week=WEEK,
            month=MONTH,
            latest=latest,
            targets=config.targets.values(),
            health=site.health(),
            engines=msgspec.to_builtins(site.engines()),
            in_flight=site.in_flight(),
            refresh=min(max(int(seconds), FASTEST_S), SLOWEST_S) if re.fullmatch("[0-9]+", seconds) else None,
        )
