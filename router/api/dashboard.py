"""`/dashboard`: server-rendered pages, without scripts and without a request to anywhere else."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from fastapi import APIRouter, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from router.config import Config
from router.decide.in_force import in_force
from router.ledger.ledger import Ledger
from router.ledger.query import decision
from router.report import requests
from router.report.chart import WIDTH
from router.report.moment import iso
from router.report.overview import CHART_DAYS, DAYS, overview, spent
from router.report.render import words, written
from router.report.report import Report
from router.types.clock import now_ms
from router.types.store import StoreUnavailable

LATEST = 25
"""Requests that the first page lists."""
_HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none';"
        " frame-ancestors 'none'"
    ),
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
"""A second wall behind the escaping: even markup that got through could run and load nothing."""


def routes(
    ledger: Ledger,
    policy: Callable[[], Config],
    health: Callable[[], Mapping[str, str]],
    engines: Callable[[], object],
    budgets: Callable[[], Awaitable[Report]],
    clock: Callable[[], int] = now_ms,
) -> APIRouter:
    """`health` names the state of every target that is not plainly healthy, `budgets` makes the report of that name;
    `clock` is Unix time in ms."""
    router = APIRouter()
    render = _renderer()

    @router.get("/dashboard")
    async def page() -> Response:
        try:
            pots: Report | None = await budgets()
        except StoreUnavailable:
            pots = None
        return await asyncio.to_thread(draw, pots)

    def draw(pots: Report | None) -> Response:
        now, config = clock(), policy()
        with ledger.reading() as connection:
            connection.execute("BEGIN")
            seen = overview(connection, pots, now)
            latest = requests.latest(connection, LATEST)
        return render(
            "dashboard.html",
            now=iso(now),
            seen=seen,
            spent_today=spent(seen.today),
            spent_week=spent(seen.week),
            latest=written(latest),
            by_target=written(seen.week),
            egress=written(seen.egress),
            targets=_targets(config, health()),
            engines=msgspec.to_builtins(engines()),
            policy=_in_force(config),
        )

    @router.get("/dashboard/requests/{identifier}")
    def drill_down(identifier: str) -> Response:
        with ledger.reading() as connection:
            account = requests.account(connection, identifier)
            attempts = requests.attempts(connection, identifier)
        document = decision(ledger, identifier)
        if account is None and document is None:
            return render("missing.html", 404, identifier=identifier)
        return render(
            "request.html",
            identifier=identifier,
            account=written(account) if account else None,
            attempts=written(attempts),
            decision=[(report.title, written(report)) for report in requests.decision(document)] if document else [],
        )

    return router


def _renderer() -> Callable[..., Response]:
    folder = Path(__file__).parent / "templates"
    pages = Environment(loader=FileSystemLoader(folder), undefined=StrictUndefined, autoescape=True, trim_blocks=True)
    pages.globals |= {"words": words, "days": DAYS, "chart_days": CHART_DAYS, "chart_width": WIDTH}

    def render(template: str, status: int = 200, **values: Any) -> Response:
        return Response(pages.get_template(template).render(values), status, _HEADERS, media_type="text/html")

    return render


def _in_force(config: Config) -> str:
    """The hash that decisions and rows name."""
    classes = config.sensitivity
    return in_force(config.hash, classes.default, classes.classes, config.targets).hash


def _targets(config: Config, health: Mapping[str, str]) -> list[dict[str, str]]:
    return [
        {
            "id": name,
            "model": target.model.id,
            "effort": target.effort or "",
            "where": "local" if target.local else target.region or target.provider.jurisdiction or target.provider.id,
            "state": health.get(name, "healthy"),
        }
        for name, target in config.targets.items()
    ]
