"""Pages as HTML: without scripts, and without a request to anywhere else."""

from collections.abc import Callable, Coroutine
from decimal import Decimal
from pathlib import Path
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from router.errors import ClientError
from router.refusals import ledger_down, store_down
from router.report.catalog import REPORTS
from router.report.charts import draw
from router.report.charts.units import dollars, said
from router.report.moment import iso
from router.report.render import words, written
from router.report.report import Report
from router.report.tell import shown
from router.types.journal import LedgerUnavailable
from router.types.money import nano_from_usd
from router.types.store import StoreUnavailable

HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'self';"
        " frame-ancestors 'none'"
    ),
    # With no-referrer a browser would hide from our forms where they were sent from.
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
}
"""A second wall behind the escaping: even markup that got through could run and load nothing."""
_FOLDER = Path(__file__).parents[1] / "templates"


class Pages:
    """Draws templates; all text is escaped, and without characters that change how the text around them reads."""

    def __init__(self) -> None:
        self._templates = Environment(
            loader=FileSystemLoader(_FOLDER),
            undefined=StrictUndefined,
            autoescape=True,
            trim_blocks=True,
            lstrip_blocks=True,
            finalize=_readable,
        )
        reports = [one for one in REPORTS.values() if not one.needs_subject]
        self._templates.globals |= {
            "words": words,
            "written": written,
            "draw": draw,
            "reports": reports,
            "spoken": spoken,
            "said": said,
            "usd": usd,
            "period": period,
        }

    def draw(self, request: Request, template: str, status: int = 200, **values: Any) -> Response:
        """Values that every page needs come from the request: where it is, and who is signed in."""
        caller = getattr(request.state, "caller", None)
        about = {"here": request.url.path, "caller": caller, "refresh": None}
        page = self._templates.get_template(template).render(about | values)
        return Response(page, status, HEADERS, media_type="text/html")

    def refusal(self, request: Request, error: ClientError, onward: str = "") -> Response:
        """Where the key is at fault, the door: it leads `onward`, or else to the page that was asked for."""
        if error.status in (401, 429) or onward:
            values = {"message": error.message, "next": onward or _next(request)}
            page = self.draw(request, "sign-in.html", error.status, **values)
        else:
            page = self.draw(request, "error.html", error.status, message=error.message)
        page.headers.update(dict(error.headers))
        return page

    def route(self) -> type[APIRoute]:
        """A route whose refusals are pages too, for browsers."""
        pages = self

        class Page(APIRoute):
            def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
                answer = super().get_route_handler()

                async def handle(request: Request) -> Response:
                    # Who is no browser is answered as everywhere else.
                    if "text/html" not in request.headers.get("accept", ""):
                        return await answer(request)
                    try:
                        return await answer(request)
                    except ClientError as error:
                        return pages.refusal(request, error)
                    except LedgerUnavailable:
                        return pages.refusal(request, ledger_down())
                    except StoreUnavailable:
                        return pages.refusal(request, store_down())

                return handle

        return Page


def _next(request: Request) -> str:
    """Where a sign-in leads: to the page that was asked for."""
    query = f"?{request.url.query}" if request.url.query else ""
    return request.url.path + query if request.method == "GET" else "/dashboard"


def _readable(value: object) -> object:
    """Markup is left as it is; a template says `| e` where line breaks are to stay."""
    return shown(value) if type(value) is str else value


def spoken(name: str) -> str:
    """cost-of-pass → Cost of pass, local-vs-api → Local vs API."""
    return name.replace("-", " ").capitalize().replace("api", "API")


def usd(amount: Decimal) -> str:
    return dollars(nano_from_usd(amount))


def period(report: Report) -> str:
    since = f"since {iso(report.since_ms)}" if report.since_ms is not None else ""
    until = f"until {iso(report.until_ms)}" if report.until_ms is not None else ""
    return " ".join(filter(None, (since, until))) or "all time"
