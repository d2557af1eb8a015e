"""Budgets as users meet them: with the official client, on the command line, and in their own web server."""

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import openai
import pytest

from router.testing.upstream import Upstream
from tests.budget.hook import Hook, listening
from tests.gateway.running import MESSAGES, Gateway, ordered, serving, target, until

NORMAL_USD = Decimal("0.00004")
"""20 tokens in and 10 out at 1 and 2 USD per million."""
MAIL = "jane.roe@mail.example"
TINY = {"limit_usd": 0.000001}


def policy(url: str) -> dict[str, Any]:
    budgets = [
        {"id": "everyone", "limit_usd": 5, "window": "week", "timezone": "Asia/Kathmandu"},
        {"id": "per/session", "limit_usd": 1, "scope": "session"},
        {"id": "chatty", "scope": "session", "soft": True, "routes": ["talk"], **TINY},
        {"id": "tiny", "routes": ["tiny"], "window": "day", **TINY},
    ]
    routes = {name: ordered("plain") for name in ("auto", "talk", "tiny")}
    return {"version": 1, "targets": {"plain": target(url, "normal")}, "routes": routes, "budgets": budgets}


def exact(gateway: Gateway, path: str) -> Any:
    return json.loads(gateway.get(path).body, parse_float=Decimal)


def test_the_official_client_spends_reads_splits_and_closes(gateway: Gateway) -> None:
    client, session = gateway.client(), {"x-lowpass-session": "task 1"}

    def pot(identifier: str, **headers: str) -> dict[str, Any]:
        raw = client.get(f"/budgets/{identifier}", cast_to=openai.BaseModel, options={"headers": headers})
        return raw.model_dump()

    def spend() -> None:
        headers = session | {"x-lowpass-budget": child["id"]}
        client.chat.completions.create(model="auto", messages=MESSAGES, extra_headers=headers)

    before = pot("everyone")["spent"]
    split: Any = {"limit_usd": 0.25, "session": "task 1"}
    child = client.post("/budgets/per%2Fsession/split", body=split, cast_to=openai.BaseModel).model_dump()
    assert (child["limit"], child["parent"]) == (0.25, "per/session|task 1")
    spend()
    assert pot(child["id"])["spent"] == float(NORMAL_USD)
    parent = pot("per%2Fsession", **session)
    assert (parent["spent"], parent["held"]) == (0, 0.25)
    assert pot("everyone")["spent"] == pytest.approx(before + float(NORMAL_USD))
    closed = client.delete(f"/budgets/{child['id']}", cast_to=openai.BaseModel).model_dump()
    assert closed["closed_at"] is not None
    parent = pot("per%2Fsession", **session)
    assert (parent["spent"], parent["held"]) == (float(NORMAL_USD), 0)
    with pytest.raises(openai.BadRequestError, match="no budget"):
        spend()


def test_a_soft_budget_of_sessions_refuses_none(gateway: Gateway) -> None:
    """A request without a session is one of its own: it is no more refused than the others."""
    for headers in ({}, {"x-lowpass-session": "chat"}):
        assert gateway.chat("talk", headers=headers).status == 200


def test_a_split_that_does_not_fit_is_a_402_that_the_client_does_not_repeat(gateway: Gateway) -> None:
    client = gateway.client().with_options(max_retries=3)
    with pytest.raises(openai.APIStatusError) as refused:
        client.post("/budgets/everyone/split", body={"limit_usd": 6}, cast_to=object)
    assert (refused.value.status_code, refused.value.code) == (402, "budget_exceeded")


def test_the_first_refusal_of_a_window_is_an_incident(gateway: Gateway) -> None:
    for _ in range(2):
        assert gateway.chat("tiny").status == 402
    (row,) = gateway.rows("SELECT kind, scope, subject, reason, until_ms > at_ms AS lasts FROM incidents")
    assert row.pop("reason").endswith(" USD needed, 0.000001 USD left")
    assert row == {"kind": "budget_exceeded", "scope": "budget", "subject": "tiny", "lasts": 1}
    (row,) = (row for row in exact(gateway, "/v1/reports/budgets")["rows"] if row["id"] == "tiny")
    assert row["refused_since"] is not None


def test_command_line_report_and_endpoint_have_the_same_numbers(gateway: Gateway) -> None:
    gateway.chat("auto", headers={"x-lowpass-session": "task 2"})
    status, output = gateway.lowpass("budgets", "--json", "--policy", str(gateway.policy))
    assert status == 0, output
    shared = ("id", "scope", "value", "unit", "limit", "spent", "held", "remaining", "window", "resets_at")
    printed = [[row[name] for name in shared] for row in json.loads(output, parse_float=Decimal)["rows"]]
    for path, rows in (("/v1/budgets", "data"), ("/v1/reports/budgets", "rows")):
        assert [[row[name] for name in shared] for row in exact(gateway, path)[rows]] == printed
    assert "per/session|task 2" in [row[0] for row in printed]
    status, output = gateway.lowpass("report", "budgets", "--policy", str(gateway.policy))
    assert (status, "per/session|task 2" in output) == (0, True), output
    assert "task 2" in gateway.get("/dashboard").body.decode()


def alerting(url: str, hook: Hook) -> dict[str, Any]:
    shares = {"soft": True, "routes": ["auto"], "alerts": [0.5, 1]}
    watched = {"id": "watched", "limit_usd": float(NORMAL_USD * 4), "webhook": hook.url, **shares}
    sessions = {"id": "sessions", "limit_usd": 0.1, "scope": "session", "routes": ["talk"], "alerts": [0.0002]}
    return {
        **policy(url),
        "sensitivity": {
            "default": "internal",
            "classes": {"internal": {}, "people": {"training": "never"}},
            "detectors": [{"kind": "identifiers", "class": "people"}],
        },
        "budgets": [watched, {**sessions, "webhook": hook.url}],
    }


@pytest.fixture
def hook() -> Iterator[Hook]:
    with listening() as hook:
        yield hook


@pytest.fixture
def alerts(tmp_path: Path, upstream: Upstream, hook: Hook) -> Iterator[Gateway]:
    with serving(tmp_path, alerting(upstream.url, hook)) as gateway:
        yield gateway
        gateway.check_books()


def test_alerts_reach_the_log_and_the_webhook_once(alerts: Gateway, hook: Hook) -> None:
    for _ in range(6):
        assert alerts.chat("auto").status == 200
    until(lambda: len(hook.got) >= 2)
    alerts.chat("auto")
    alerts.tick()
    assert sorted(body["share"] for _, body in hook.got) == [Decimal("0.5"), 1]
    assert {(body["budget"], body["unit"]) for _, body in hook.got} == {("watched", "usd")}
    log = alerts.log.read_text()
    assert (log.count("budget 'watched' has spent"), "t0ken" in log) == (2, False)


def test_alerts_go_where_the_policy_says_and_name_no_one(alerts: Gateway, hook: Hook, upstream: Upstream) -> None:
    """To the addresses of the policy in force, without what strangers may not hear."""
    assert alerts.chat("talk", headers={"x-lowpass-session": MAIL}).status == 200
    (_, body), *_ = until(lambda: hook.got)
    assert (body["scope"], body["value"], body["withheld"]) == ("session", None, ["people"])
    assert MAIL not in alerts.log.read_text()
    with listening() as other:
        alerts.write_policy(alerting(upstream.url, other))
        alerts.tick()
        assert alerts.chat("talk", headers={"x-lowpass-session": "monday"}).status == 200
        until(lambda: [body for _, body in other.got if body["value"] == "monday"])
    assert len(hook.got) == 1


def used_up(hook: Hook, limit: float) -> dict[str, Any]:
    """A budget in which something is left that no request fits."""
    return {"id": "little", "limit_usd": limit, "window": "day", "routes": ["auto"], "alerts": [1], "webhook": hook.url}


def test_an_alert_of_the_whole_limit_is_told_at_the_first_refusal_and_again_after_a_raise(
    gateway: Gateway, tmp_path: Path, upstream: Upstream, hook: Hook
) -> None:
    with serving(tmp_path, {**policy(upstream.url), "budgets": [used_up(hook, 0.00012)]}) as own:
        assert [own.chat("auto", max_tokens=10).status for _ in range(3)] == [200, 402, 402]
        own.tick()
        ((_, body),) = until(lambda: hook.got)
        assert (body["limit"], body["share"]) == (Decimal("0.00012"), 1)
        own.write_policy({**policy(upstream.url), "budgets": [used_up(hook, 0.00016)]})
        own.tick()
        assert [own.chat("auto", max_tokens=10).status for _ in range(2)] == [200, 402]
        own.tick()
        until(lambda: len(hook.got) == 2)
        own.check_books()


def test_a_split_is_rounded_down_and_comes_back_as_soon_as_it_has_expired(gateway: Gateway) -> None:
    before = exact(gateway, "/v1/budgets/everyone")["held"]
    body = b'{"limit_usd": 0.123456789999, "expires_in_s": 1}'
    child = json.loads(gateway.post("/v1/budgets/everyone/split", body).body, parse_float=Decimal)
    assert child["limit"] == exact(gateway, "/v1/budgets/everyone")["held"] - before == Decimal("0.123456789")
    until(lambda: exact(gateway, "/v1/budgets/everyone")["held"] == before)
