"""`/v1/reports` and `/v1/budgets` over HTTP."""

import json
from decimal import Decimal
from typing import Any

import pytest

from tests.dashboard.fetch import get
from tests.dashboard.serving import HOSTILE


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


def test_budgets(gateway: str) -> None:
    listed = document(f"{gateway}/v1/budgets")
    assert [budget["id"] for budget in listed["data"]] == ["daily", "team"]
    assert document(f"{gateway}/v1/budgets/team") == listed["data"][1]
    assert listed["data"][1] | {"resets_at": ""} == {
        "object": "budget",
        "id": "team",
        "binds": "everything",
        "window": "month",
        "limit_usd": 7,
        "spent_usd": 0,
        "held_usd": 0,
        "remaining_usd": 7,
        "resets_at": "",
    }
    assert [row["id"] for row in document(f"{gateway}/v1/reports/budgets")["rows"]] == ["daily", "team"]


@pytest.mark.parametrize(
    ("path", "status", "param"),
    [
        ("/v1/reports/spend?by=colour", 400, "by"),
        ("/v1/reports/spend?since=soon", 400, "since"),
        ("/v1/reports/spend?until=%00", 400, "until"),
        ("/v1/reports/spend?since=1d&until=2d", 400, "since"),
        ("/v1/reports/spend?sinc=7d", 400, "sinc"),
        ("/v1/reports/nothing", 404, "name"),
        ("/v1/budgets/nothing", 404, "id"),
    ],
)
def test_what_is_wrong_is_named_in_the_usual_envelope(gateway: str, path: str, status: int, param: str) -> None:
    error = document(gateway + path, status)["error"]
    assert error["param"] == param
    assert error["type"] == "invalid_request_error"
