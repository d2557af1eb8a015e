"""How pages of the dashboard are rendered, and what they need."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from fastapi import Request, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from msgspec import Struct, structs
from starlette.datastructures import QueryParams

from router.api.auth import Keyring
from router.config.policy import Config
from router.errors import ClientError, invalid
from router.ledger.ledger import Ledger
from router.report import charts
from router.report.budgets import BudgetStanding, binds
from router.report.catalog import REPORTS
from router.report.query import Parameters, filter_parts
from router.report.render import period, words, written
from router.report.report import ALWAYS, shown
from router.types.clock import iso, now_ms
from router.types.price import nano_from_usd
from router.types.tables import table
from router.types.target import Secret

# What the dashboard needs from the gateway.


class Dashboard(Struct, frozen=True, kw_only=True):
    """`secret` signs cookies. `health` returns the state of every target that is not healthy, `budgets` reads the
    standings, `in_flight` counts this process' requests in progress, `clock` returns Unix time in ms."""

    ledger: Ledger
    keyring: Keyring
    secret: Secret
    policy: Callable[[], Config]
    health: Callable[[], Mapping[str, str]]
    engines: Callable[[], object]
    budgets: Callable[[], Awaitable[Sequence[BudgetStanding]]]
    in_flight: Callable[[], int]
    clock: Callable[[], int] = now_ms


# Pages as HTML, without scripts and without requests to other sites.

HEADERS: Mapping[str, str] = table("api/data/page_headers.yaml")
"""Second protection behind the escaping: even injected markup could run and load nothing."""


def spoken(name: str) -> str:
    """Returns a title: cost-of-pass → Cost of pass, local-vs-api → Local vs API."""
    return name.replace("-", " ").capitalize().replace("api", "API")


_TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parents[1] / "templates"),
    undefined=StrictUndefined,
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    # Removes characters that change how the text around them reads. Markup is left as it is; a template uses `| e`
    # where line breaks are kept.
    finalize=lambda value: shown(value) if type(value) is str else value,
)


def draw(request: Request, template: str, status: int = 200, **values: Any) -> Response:
    """Renders a page. The path and the signed-in caller, which every page needs, come from the request."""
    caller = getattr(request.state, "caller", None)
    about = {"here": request.url.path, "caller": caller, "refresh": None}
    return Response(_TEMPLATES.get_template(template).render(about | values), status, HEADERS, media_type="text/html")


async def for_browsers(request: Request) -> None:
    """Dependency of routes that answer browsers with error pages; other clients get JSON."""
    if "text/html" in request.headers.get("accept", ""):
        request.state.refusal = refusal


def refusal(request: Request, error: ClientError, onward: str = "") -> Response:
    """Returns the error page, or for key errors the sign-in page, which leads `onward` or back to the same page."""
    if error.status in (401, 429) or onward:
        query = f"?{request.url.query}" if request.url.query else ""
        page_url = request.url.path + query if request.method == "GET" else "/dashboard"
        page = draw(request, "sign-in.html", error.status, message=error.message, next=onward or page_url)
    else:
        page = draw(request, "error.html", error.status, message=error.message)
    page.headers.update(dict(error.headers))
    return page


# The URL of a report's page holds all of its state: grouping, filters, window, zone and baseline.

USUAL = "30d"
"""Window of a page whose URL names none."""
_SINGLE = ("since", "until", "zone", "baseline", "subject")
FORM = ("dimension", "how", "labels")
"""The three fields of a filter in the form; URLs write it as one."""
_KNOWN = ("by", "where", "table", *_SINGLE, *FORM)
"""Parameters of a page; `table` names the table of a report to write as CSV."""


def view(params: QueryParams) -> Parameters:
    """Returns the parameters of a page. Raises `ClientError` 400 for an unknown one."""
    for name in params:
        if name not in _KNOWN:
            raise invalid(name[:40], f"There is no filter '{name[:40]}'.")
    by = ",".join(dict.fromkeys(name for text in params.getlist("by") for name in text.split(",") if name))
    fields = {name: params.get(name, "").strip() for name in _SINGLE}
    fields["since"] = fields["since"] or (ALWAYS if fields["until"] else USUAL)
    rows = [
        f"{dimension}{'!=' if how == '!=' else '='}{labels.strip()}"
        for dimension, how, labels in zip(*(params.getlist(name) for name in FORM), strict=False)
        if dimension and labels.strip()
    ]
    where = tuple(dict.fromkeys((*filter(None, params.getlist("where")), *rows)))
    return Parameters(by=by, where=where, **fields)


def query(question: Parameters, **changed: str) -> str:
    """Returns the query string with its `?`; empty if it would hold defaults only."""
    fields = structs.asdict(question) | changed
    shown = {name: value for name, value in fields.items() if value and (name, value) != ("since", USUAL)}
    return f"?{urlencode(shown, doseq=True)}" if shown else ""


_TEMPLATES.globals |= {
    "words": words,
    "written": lambda report: written(report, now_ms()),
    "draw": charts.draw,
    "reports": [report for report in REPORTS.values() if not report.needs_subject],
    "spoken": spoken,
    "said": charts.format_short,
    "usd": lambda amount: charts.dollars(nano_from_usd(amount)),
    "money": charts.dollars,
    "iso": iso,
    "binds": binds,
    "query": query,
    "filter_parts": filter_parts,
    "period": lambda report: period(report) or "all time",
}
