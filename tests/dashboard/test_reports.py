"""`/v1/reports` and `/v1/budgets` over HTTP."""

import csv
import json
from datetime import datetime
from decimal import Decimal
from io import StringIO
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from router.report.catalog import REPORTS
from tests.dashboard.fetch import get
from tests.dashboard.serving import HOSTILE, NOW_MS


def document(url: str, status: int = 200) -> Any:
    answer = get(url)
    assert answer.status == status
    assert answer.headers["content-type"] == "application/json"
    return json.loads(answer.body, parse_float=Decimal)


def test_spend(gateway: str) -> None:
    report = document(f"{gateway}/v1/reports/spend?by=tag&since=2d")
    assert report["object"] == "report"
    assert [(row["tag"], row["cost_usd"]) for row in report["rows"]] == [(HOSTILE, Decimal("0.250000001")), (None, 0)]
    assert report["totals"]["held_usd"] == Decimal("0.00004")


def test_without_a_query_it_is_by_target_and_for_all_time(gateway: str) -> None:
    report = document(f"{gateway}/v1/reports/spend")
    assert report["totals"]["cost_usd"] == Decimal("1.250000002")
    assert [row["target"] for row in report["rows"]] == ["local", "mini", None]


def test_until_bounds_it(gateway: str) -> None:
    assert document(f"{gateway}/v1/reports/spend?until=30d")["totals"]["requests"] == 1


def test_several_groups_and_filters_in_a_zone(gateway: str) -> None:
    query = "by=tag,day&where=target%3Dlocal,mini&where=class!%3Dinternal&zone=Asia/Tokyo"
    (row,) = document(f"{gateway}/v1/reports/spend?{query}")["rows"]
    assert (row["tag"], row["cost_usd"]) == (HOSTILE, Decimal("0.250000001"))
    assert row["day"] == f"{datetime.fromtimestamp(NOW_MS / 1000, ZoneInfo('Asia/Tokyo')):%Y-%m-%d}"


def test_csv_has_the_same_rows(gateway: str) -> None:
    rows = document(f"{gateway}/v1/reports/spend?by=tag")["rows"]
    answer = get(f"{gateway}/v1/reports/spend?by=tag&format=csv")
    assert answer.headers["content-type"].startswith("text/csv")
    assert answer.headers["content-disposition"] == 'attachment; filename="spend.csv"'
    found = list(csv.DictReader(StringIO(answer.body, newline="")))
    assert [row["tag"] or None for row in found] == [row["tag"] for row in rows]
    assert [Decimal(row["cost_usd"]) for row in found] == [row["cost_usd"] for row in rows]


def test_the_list_and_every_report_on_it(gateway: str) -> None:
    rows = document(f"{gateway}/v1/reports")["rows"]
    assert [row["name"] for row in rows] == list(REPORTS)
    for name in (name for name, one in REPORTS.items() if not one.needs_subject):
        assert document(f"{gateway}/v1/reports/{name}")["name"] == name


def test_budgets(gateway: str) -> None:
    """The report has the numbers of `/v1/budgets`."""
    listed = document(f"{gateway}/v1/budgets")["data"]
    rows = document(f"{gateway}/v1/reports/budgets")["rows"]
    assert [row["id"] for row in rows] == ["daily", "team"]
    assert rows[0]["limit"] == Decimal("0.25")
    shared = ("id", "parent", "scope", "value", "window", "unit", "limit", "spent", "held", "remaining", "resets_at")
    assert [[row[name] for name in shared] for row in rows] == [[pot[name] for name in shared] for pot in listed]


@pytest.mark.parametrize(
    ("path", "status", "param"),
    [
        ("/v1/reports/spend?by=colour", 400, "by"),
        ("/v1/reports/spend?since=soon", 400, "since"),
        ("/v1/reports/spend?until=%00", 400, "until"),
        ("/v1/reports/spend?since=1d&until=2d", 400, "since"),
        ("/v1/reports/spend?sinc=7d", 400, "sinc"),
        ("/v1/reports/spend?where=colour%3Dred", 400, "where"),
        ("/v1/reports/spend?where=target", 400, "where"),
        ("/v1/reports/spend?where=target%3Dmaxi", 400, "where"),
        ("/v1/reports/spend?zone=Mars", 400, "zone"),
        ("/v1/reports/spend?baseline=mini", 400, "baseline"),
        ("/v1/reports/spend?subject=x", 400, "subject"),
        ("/v1/reports/request", 400, "subject"),
        ("/v1/reports/spend?format=xml", 400, "format"),
        ("/v1/reports/spend?table=nowhere", 400, "table"),
        ("/v1/reports/nothing", 404, "name"),
        ("/v1/budgets/nothing", 404, "id"),
    ],
)
def test_what_is_wrong_is_named_in_the_usual_envelope(gateway: str, path: str, status: int, param: str) -> None:
    error = document(gateway + path, status)["error"]
    assert error["param"] == param
    assert error["type"] == "invalid_request_error"
