"""/metrics as Prometheus' own parser reads it: the ledger's numbers, and no label that clients make."""

from typing import Any

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from router.telemetry import Telemetry, counters, page, together
from router.testing.upstream import Upstream
from router.types.attempt import Attempt
from router.types.price import Cost, CostSource
from tests.gateway.running import Gateway, ordered, serving, target, until, usd
from tests.report.filled import target as house

REQUESTS = 30
SCOPED = {"each": "target", "endless": "session"}


def policy(url: str) -> dict[str, Any]:
    each = [{"id": name, "limit_usd": 0.5, "window": "day", "scope": scope} for name, scope in SCOPED.items()]
    return {
        "version": 1,
        "targets": {name: target(url, name) for name in ("normal", "reasoning", "error-500")},
        "routes": {"auto": ordered("error-500", "normal"), "deep": ordered("reasoning")},
        "budgets": [
            {"id": "day", "limit_usd": 2, "window": "day"},
            {"id": "thoughts", "limit_thinking_tokens": 1_000_000, "window": "day"},
            *each,
        ],
    }


def families(gateway: Gateway) -> dict[str, Metric]:
    return {family.name: family for family in text_string_to_metric_families(gateway.get("/metrics").body.decode())}


def value(read: dict[str, Metric], name: str, **labels: str) -> float:
    samples = [sample for family in read.values() for sample in family.samples if sample.name == name]
    (only,) = [sample.value for sample in samples if sample.labels == labels]
    return only


@pytest.fixture(scope="module")
def asked(upstream_server: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """After requests of every kind, each with a session, a tag and a model name of its own."""
    with serving(tmp_path_factory.mktemp("metrics"), policy(upstream_server.url)) as gateway:
        for number in range(REQUESTS):
            own = {"x-lowpass-session": f"session-{number}", "x-lowpass-tags": f"tag-{number}"}
            gateway.chat(("auto", "deep", "normal", f"model-{number}")[number % 4], headers=own, user=f"user-{number}")
        until(lambda: not gateway.rows("SELECT id FROM requests WHERE state = 'held'"))
        yield gateway


def test_money_tokens_and_times_are_the_ledger_s(asked: Gateway) -> None:
    read, of = families(asked), {"target": "reasoning"}
    attempts = asked.rows("SELECT * FROM attempts WHERE target = 'reasoning'")
    sums = {name: sum(row[name] for row in attempts) for name in ("cost", "thinking_cost", "total_ms")}
    assert sums["thinking_cost"] > 0
    assert value(read, "lowpass_cost_usd_total", **of) == pytest.approx(usd(sums["cost"]))
    assert value(read, "lowpass_thinking_cost_usd_total", **of) == pytest.approx(usd(sums["thinking_cost"]))
    reasoning = sum(row["output_reasoning"] for row in attempts)
    assert value(read, "lowpass_tokens_total", direction="reasoning", **of) == reasoning
    assert value(read, "lowpass_attempt_seconds_count", **of) == len(attempts)
    assert value(read, "lowpass_attempt_seconds_bucket", le="+Inf", **of) == len(attempts)
    assert value(read, "lowpass_attempt_seconds_sum", **of) == pytest.approx(sums["total_ms"] / 1000)
    (all_of_it,) = asked.rows("SELECT COUNT(*) AS n, SUM(cost) AS cost, SUM(overhead_us) AS us FROM requests")
    assert value(read, "lowpass_overhead_seconds_count") == all_of_it["n"]
    assert value(read, "lowpass_overhead_seconds_sum") == pytest.approx(all_of_it["us"] / 1e6)
    held, used = value(read, "lowpass_held_usd_total"), value(read, "lowpass_held_used_usd_total")
    assert 0 < used <= held
    assert used == pytest.approx(usd(all_of_it["cost"]))


def test_buckets_are_cumulative(asked: Gateway) -> None:
    for family in families(asked).values():
        if family.type == "histogram":
            rows: dict[str, list[float]] = {}
            for sample in family.samples:
                if sample.name.endswith("_bucket"):
                    rows.setdefault(sample.labels.get("target", ""), []).append(sample.value)
            assert rows, family.name
            assert all(row == sorted(row) for row in rows.values())


def test_budgets_stand_as_they_do_elsewhere(asked: Gateway) -> None:
    read, budgets = families(asked), asked.get("/v1/budgets").json["data"]
    spent = sum(row["spent"] for row in budgets if row["id"] == "day")
    assert value(read, "lowpass_budget_spent_usd", budget="day") == pytest.approx(spent)
    assert value(read, "lowpass_budget_limit_usd", budget="day") == 2
    assert value(read, "lowpass_budget_used_share", budget="day") == pytest.approx(spent / 2)
    thoughts = asked.rows("SELECT SUM(thinking) AS n FROM requests")[0]["n"]
    assert value(read, "lowpass_budget_spent_tokens", budget="thoughts") == thoughts
    pots = [row["limit"] for row in budgets if row["id"].startswith("each|")]
    assert len(pots) > 1
    assert value(read, "lowpass_budget_limit_usd", budget="each") == pytest.approx(sum(pots))


def test_no_label_is_of_a_client_s_making(asked: Gateway) -> None:
    """Thirty sessions, tags, users and model names later there are as many series as the policy has names for."""
    known = {"normal", "reasoning", "error-500", "auto", "deep", "day", "thoughts", "each"}
    for family in families(asked).values():
        for sample in family.samples:
            named = {sample.labels[name] for name in ("target", "route", "budget") if name in sample.labels}
            assert named <= known, sample
    assert not [word for word in ("tag-", "session-", "model-", "user-") if word in asked.get("/metrics").body.decode()]


def test_processes_are_added_up_and_what_a_dead_one_counted_stays() -> None:
    cost = Cost(1_000, CostSource.PRICED, "v", thinking=400, saved=-30)
    attempt = Attempt(target=house("local"), outcome="ok", started_ms=0, total_ms=400, first_ms=40, cost=cost)
    first, second = Telemetry(), Telemetry()
    for process, times in ((first, 2), (second, 3)):
        for _ in range(times):
            process.settled("auto", 200, [attempt], 700, 5_000)
    second.ledger = False
    both = page(together([first.values(), counters(second.values())])).decode()
    read = {family.name: family for family in text_string_to_metric_families(both)}
    assert value(read, "lowpass_attempt_seconds_bucket", target="local", le="0.25") == 0
    assert value(read, "lowpass_attempt_seconds_bucket", target="local", le="0.5") == 5
    assert value(read, "lowpass_attempt_seconds_sum", target="local") == pytest.approx(2.0)
    assert value(read, "lowpass_cache_extra_usd_total", target="local") == pytest.approx(usd(150))
    assert value(read, "lowpass_ledger_available") == 1
    alive = page(together([first.values(), second.values()])).decode()
    assert "lowpass_ledger_available 0.0" in alive
