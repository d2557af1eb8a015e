"""`/v1/reports` and `/v1/budgets` over HTTP, and the URLs of the dashboard's views of them."""

import csv
import json
from decimal import Decimal
from io import StringIO
from typing import Any
from urllib.parse import urljoin

import msgspec
import pytest
from starlette.datastructures import QueryParams

from router.api.dashboard.pages import query as url
from router.api.dashboard.pages import view
from router.errors import ClientError
from router.report.catalog import REPORTS
from router.report.query import Parameters, filter_parts
from tests.dashboard.serving import HOSTILE, get
from tests.tables import data, each_row

CENTS, ALL = Decimal("0.250000001"), Decimal("1.250000002")


def document(url: str, status: int = 200) -> Any:
    answer = get(url)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/json"
    return json.loads(answer.text, parse_float=Decimal)


@each_row(
    "query, rows, totals",
    [
        ("by=tag&since=2025-12-31", [(HOSTILE, CENTS), (None, 0)], {"held_usd": Decimal("0.00004")}),
        ("", [("local", ALL), ("mini", 0), (None, 0)], {"cost_usd": ALL, "requests": 4}),
        ("until=2025-12-01", [("local", Decimal("1E-9"))], {"requests": 1}),
        (
            "by=tag,day&where=target%3Dlocal,mini&where=class!%3Dinternal&zone=Pacific/Auckland",
            [(HOSTILE, CENTS, "2026-01-02")],
            {},
        ),
    ],
)
def test_spend(gateway: str, query: str, rows: list[tuple[object, ...]], totals: dict[str, object]) -> None:
    report = document(f"{gateway}/v1/reports/spend?{query}")
    assert report["object"] == "report"
    by = "tag" if "by=tag" in query else "target"
    names = (by, "cost_usd", "day") if "day" in query else (by, "cost_usd")
    assert [tuple(row[name] for name in names) for row in report["rows"]] == rows
    assert report["totals"].items() >= totals.items()


def test_csv_has_the_same_rows(gateway: str) -> None:
    rows = document(f"{gateway}/v1/reports/spend?by=tag")["rows"]
    answer = get(f"{gateway}/v1/reports/spend?by=tag&format=csv")
    assert answer.headers["content-type"].startswith("text/csv")
    assert answer.headers["content-disposition"] == 'attachment; filename="spend.csv"'
    found = list(csv.DictReader(StringIO(answer.text, newline="")))
    assert [row["tag"] or None for row in found] == [row["tag"] for row in rows]
    assert [Decimal(row["cost_usd"]) for row in found] == [row["cost_usd"] for row in rows]


def test_the_list_and_every_report_on_it(gateway: str) -> None:
    assert [row["name"] for row in document(f"{gateway}/v1/reports")["rows"]] == list(REPORTS)
    for name in (name for name, report in REPORTS.items() if not report.needs_subject):
        assert document(f"{gateway}/v1/reports/{name}")["name"] == name


def test_the_report_of_budgets_has_the_numbers_of_their_own_route(gateway: str) -> None:
    listed = document(f"{gateway}/v1/budgets")["data"]
    rows = document(f"{gateway}/v1/reports/budgets")["rows"]
    assert [row["id"] for row in rows] == ["daily", "team"]
    assert rows[0]["limit"] == Decimal("0.25")
    shared = ("id", "parent", "scope", "value", "window", "unit", "limit", "spent", "held", "remaining", "resets_at")
    assert [[row[name] for name in shared] for row in rows] == [[pot[name] for name in shared] for pot in listed]


QUERIES = ("by=colour", "since=soon", "until=%00", "sinc=7d", "where=colour%3Dred", "zone=Mars", "baseline=mini")


@each_row(
    "path, status, param",
    [
        *((f"spend?{query}", 400, query.partition("=")[0]) for query in (*QUERIES, "format=xml", "table=nowhere")),
        *(("request", 400, "subject"), ("spend?subject=x", 400, "subject"), ("nothing", 404, "name")),
        ("../budgets/nothing", 404, "id"),
    ],
)
def test_what_is_wrong_is_named_in_the_usual_envelope(gateway: str, path: str, status: int, param: str) -> None:
    error = document(urljoin(f"{gateway}/v1/reports/", path), status)["error"]
    assert (error["param"], error["type"]) == (param, "invalid_request_error")


@each_row("query, fields", data(__file__, "urls.yaml"))
def test_a_url_says_what_is_asked(query: str, fields: dict[str, Any]) -> None:
    seen, asked = view(QueryParams(query)), msgspec.convert({"since": "30d", **fields}, Parameters)
    assert seen == asked
    assert view(QueryParams(url(seen).removeprefix("?"))) == asked
    assert ["".join(filter_parts(text)) for text in seen.where] == list(asked.where)


def test_the_fields_of_the_form_become_a_shorter_url() -> None:
    given = ("by=day&by=&by=&since=30d&until=&zone=", "dimension=target&how=%3D&labels=a%2Cb")
    seen = view(QueryParams("&".join((*given, "dimension=class&how=!%3D&labels=pii", "dimension=&how=%3D&labels="))))
    assert url(seen) == "?by=day&where=target%3Da%2Cb&where=class%21%3Dpii"
    assert url(view(QueryParams(""))) == ""


def test_a_misspelt_parameter_is_not_left_out_silently() -> None:
    with pytest.raises(ClientError, match="sinse"):
        view(QueryParams("sinse=7d"))
