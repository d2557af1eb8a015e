"""Budgets as users meet them: in answers, with the official client, on the command line, in their own web server."""

import json
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import openai
import pytest

from router.testing.upstream import Upstream
from tests.budget.hook import Hook
from tests.gateway.running import MESSAGES, Gateway, ordered, serving, target, until, usd

NORMAL_USD = Decimal("0.00004")
"""20 tokens in and 10 out at 1 and 2 USD per million."""
MAIL = "jane.roe@mail.example"
TINY = {"limit_usd": 0.000001}


def policy(url: str) -> dict[str, Any]:
    targets = {"plain": target(url, "normal")}
    routes = {name: ordered("plain") for name in ("auto", "talk", "tiny", "spent", "tagged", "placed")}
    budgets = [
        {"id": "everyone", "limit_usd": 5, "window": "week", "timezone": "Asia/Kathmandu"},
        {"id": "per/session", "limit_usd": 1, "scope": "session"},
        {"id": "chatty", "scope": "session", "soft": True, "routes": ["talk"], **TINY},
        {"id": "tiny", "routes": ["tiny"], "window": "day", **TINY},
        {"id": "spent", "limit_usd": 0.00015, "window": "hour", "routes": ["spent"]},
        {"id": "place", "scope": "target", "routes": ["placed"], "window": "lifetime", **TINY},
        {"id": "named", "routes": ["tagged"], "tags": ["capped"], "window": "lifetime", **TINY},
    ]
    return {"version": 1, "targets": targets, "routes": routes, "budgets": budgets}


def exact(text: bytes | str) -> Any:
    return json.loads(text, parse_float=Decimal)


def held(gateway: Gateway) -> Decimal:
    return Decimal(exact(gateway.get("/v1/budgets/everyone").body)["held"])


def test_the_official_client_spends_reads_splits_and_closes(gateway: Gateway) -> None:
    client, session = gateway.client().with_options(max_retries=3), {"x-lowpass-session": "task 1"}

    def pot(identifier: str, **headers: str) -> tuple[float, float]:
        raw = client.get(f"/budgets/{identifier}", cast_to=openai.BaseModel, options={"headers": headers})
        return raw.model_dump()["spent"], raw.model_dump()["held"]

    def spend() -> None:
        headers = session | {"x-lowpass-budget": child["id"]}
        client.chat.completions.create(model="auto", messages=MESSAGES, extra_headers=headers)

    cost, (before, _) = float(NORMAL_USD), pot("everyone")
    split: Any = {"limit_usd": 0.25, "session": "task 1"}
    child = client.post("/budgets/per%2Fsession/split", body=split, cast_to=openai.BaseModel).model_dump()
    assert (child["limit"], child["parent"]) == (0.25, "per/session|task 1")
    spend()
    assert (pot(child["id"])[0], pot("per%2Fsession", **session)) == (cost, (0, 0.25))
    assert pot("everyone")[0] == pytest.approx(before + cost)
    closed = client.delete(f"/budgets/{child['id']}", cast_to=openai.BaseModel).model_dump()
    assert (closed["closed_at"] is None, pot("per%2Fsession", **session)) == (False, (cost, 0))
    with pytest.raises(openai.BadRequestError, match="no budget"):
        spend()
    with pytest.raises(openai.APIStatusError) as refused:
        client.post("/budgets/everyone/split", body={"limit_usd": 6}, cast_to=object)
    assert (refused.value.status_code, refused.value.code) == (402, "budget_exceeded")


def test_a_soft_budget_of_sessions_refuses_none(gateway: Gateway) -> None:
    """A request without a session is one of its own: it is no more refused than the others."""
    for headers in ({}, {"x-lowpass-session": "chat"}):
        assert gateway.chat("talk", headers=headers).status == 200


def test_the_first_refusal_of_a_window_is_an_incident(gateway: Gateway) -> None:
    for _ in range(2):
        assert gateway.chat("tiny").status == 402
    (row,) = gateway.rows(
        "SELECT kind, scope, subject, reason, until_ms > at_ms AS lasts FROM incidents WHERE subject = 'tiny'"
    )
    assert row.pop("reason").endswith(" USD needed, 0.000001 USD left")
    assert row == {"kind": "budget_exceeded", "scope": "budget", "subject": "tiny", "lasts": 1}
    (row,) = (row for row in exact(gateway.get("/v1/reports/budgets").body)["rows"] if row["id"] == "tiny")
    assert row["refused_since"] is not None


def test_command_line_report_and_endpoint_have_the_same_numbers(gateway: Gateway) -> None:
    gateway.chat("auto", headers={"x-lowpass-session": "task 2"})
    status, output = gateway.lowpass("budgets", "--json", "--policy", str(gateway.policy))
    assert status == 0, output
    shared = ("id", "scope", "value", "unit", "limit", "spent", "held", "remaining", "window", "resets_at")
    printed = [[row[name] for name in shared] for row in exact(output)["rows"]]
    for path, rows in (("/v1/budgets", "data"), ("/v1/reports/budgets", "rows")):
        assert [[row[name] for name in shared] for row in exact(gateway.get(path).body)[rows]] == printed
    assert "per/session|task 2" in [row[0] for row in printed]
    status, output = gateway.lowpass("report", "budgets", "--policy", str(gateway.policy))
    assert (status, "per/session|task 2" in output) == (0, True), output
    assert "task 2" in gateway.get("/dashboard").body.decode()


def test_a_budget_that_is_too_small_refuses_and_says_which(gateway: Gateway, upstream: Upstream) -> None:
    reply = gateway.chat("tagged", headers={"x-lowpass-tags": "a,capped"})
    assert (reply.status, reply.error["code"], reply.error["type"]) == (402, "budget_exceeded", "budget_exceeded")
    assert reply.headers["x-should-retry"] == "false"
    budget = reply.error["budget"]
    assert budget.pop("needed") > budget["limit"]
    named = {"id": "named", "scope": "all", "value": None, "unit": "usd", "spent": 0, "held": 0, "resets_at": None}
    assert budget == named | {"limit": 1e-6}
    assert "max_completion_tokens" in reply.error["message"]
    row = gateway.settled(reply.id)
    assert (row["state"], row["status"], row["error"], row["cost"]) == ("released", 402, "budget_exceeded", 0)
    assert upstream.requests == []
    assert gateway.chat("tagged").status == 200


def test_a_budget_of_the_only_target_says_so_too(gateway: Gateway, upstream: Upstream) -> None:
    reply = gateway.chat("placed")
    assert (reply.status, reply.error["code"]) == (402, "budget_exceeded")
    budget = reply.error["budget"]
    assert [budget[name] for name in ("id", "scope", "value", "spent")] == ["place", "target", "plain", 0]
    assert budget["needed"] > budget["limit"]
    assert upstream.requests == []


def test_a_spent_budget_shows_what_was_spent_and_when_it_resets(gateway: Gateway) -> None:
    """A tenth of a cent each way: the client's cap keeps the request small until nothing is left."""
    replies = [gateway.chat("spent", max_completion_tokens=10) for _ in range(5)]
    refused = [reply for reply in replies if reply.status == 402]
    assert len(refused) >= 3
    assert len(replies) - len(refused) == len(gateway.rows("SELECT 1 FROM requests WHERE route = 'spent' AND cost > 0"))
    window = gateway.rows("SELECT * FROM budget_windows WHERE budget = 'spent' ORDER BY window_start_ms")[-1]
    budget = refused[-1].error["budget"]
    assert (budget["spent"], budget["held"], budget["scope"]) == (usd(window["spent"]), 0, "all")
    assert datetime.fromisoformat(budget["resets_at"]).timestamp() * 1000 == window["window_start_ms"] + 3_600_000


def alerting(url: str, hook: Hook) -> dict[str, Any]:
    watched = {"id": "watched", "limit_usd": float(NORMAL_USD * 4), "soft": True, "routes": ["auto"]}
    sessions = {"id": "sessions", "limit_usd": 0.1, "scope": "session", "routes": ["talk"], "alerts": [0.0002]}
    budgets = [{**watched, "alerts": [0.5, 1], "webhook": hook.address}, {**sessions, "webhook": hook.address}]
    classes = {"internal": {}, "people": {"training": "never"}}
    detectors = [{"kind": "identifiers", "class": "people"}]
    return {**policy(url), "sensitivity": {"classes": classes, "detectors": detectors}, "budgets": budgets}


@pytest.fixture
def hook() -> Iterator[Hook]:
    with Hook() as hook:
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
    with Hook() as other:
        alerts.write_policy(alerting(upstream.url, other))
        alerts.tick()
        assert alerts.chat("talk", headers={"x-lowpass-session": "monday"}).status == 200
        until(lambda: [body for _, body in other.got if body["value"] == "monday"])
    assert len(hook.got) == 1


def test_an_alert_of_the_whole_limit_is_told_at_the_first_refusal_and_again_after_a_raise(
    tmp_path: Path, upstream: Upstream, hook: Hook
) -> None:
    """Something is left in the budget that no request fits."""
    little = {"id": "little", "window": "day", "routes": ["auto"], "alerts": [1], "webhook": hook.address}
    with serving(tmp_path, {**policy(upstream.url), "budgets": [{**little, "limit_usd": 0.00012}]}) as own:
        assert [own.chat("auto", max_tokens=10).status for _ in range(3)] == [200, 402, 402]
        own.tick()
        ((_, body),) = until(lambda: hook.got)
        assert (body["limit"], body["share"]) == (Decimal("0.00012"), 1)
        own.write_policy({**policy(upstream.url), "budgets": [{**little, "limit_usd": 0.00016}]})
        own.tick()
        assert [own.chat("auto", max_tokens=10).status for _ in range(2)] == [200, 402]
        own.tick()
        until(lambda: len(hook.got) == 2)
        own.check_books()


def test_a_split_is_rounded_down_and_comes_back_as_soon_as_it_has_expired(gateway: Gateway) -> None:
    before = held(gateway)
    body = b'{"limit_usd": 0.123456789999, "expires_in_s": 1}'
    child = exact(gateway.post("/v1/budgets/everyone/split", body).body)
    assert child["limit"] == held(gateway) - before == Decimal("0.123456789")
    until(lambda: held(gateway) == before)
