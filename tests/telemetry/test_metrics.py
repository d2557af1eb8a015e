"""/metrics as Prometheus' own parser reads it: the ledger's numbers, and no label that clients make."""

from typing import Any

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from router.telemetry import Telemetry, counters, page, together
from router.types.attempt import Attempt
from router.types.price import Cost, CostSource
from tests.gateway.running import Gateway, ordered, serving, target, until, usd
from tests.report.filled import target as house
from tests.upstream import Upstream

REQUESTS = 30


def policy(url: str) -> dict[str, Any]:
    scoped = {"id": "each", "limit_usd": 0.5, "window": "day", "scope": "target"}
    endless = {"id": "endless", "limit_usd": 0.5, "window": "day", "scope": "session"}
    return {
        "version": 1,
        "targets": {name: target(url, name) for name in ("normal", "reasoning", "error-500")},
        "routes": {"auto": ordered("error-500", "normal"), "deep": ordered("reasoning")},
        "budgets": [
            {"id": "day", "limit_usd": 2, "window": "day"},
            {"id": "thoughts", "limit_thinking_tokens": 1_000_000, "window": "day"},
            scoped,
            endless,
        ],
    }


def families(gateway: Gateway) -> dict[str, Metric]:
    return {family.name: family for family in text_string_to_metric_families(gateway.get("/metrics").body.decode())}


def value(found: dict[str, Metric], family: str, name: str, **labels: str) -> float:
    (one,) = [sample.value for sample in found[family].samples if sample.name == name and sample.labels == labels]
    return one


@pytest.fixture(scope="module")
def asked(upstream_server: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """After requests of every kind, each with a session, a tag and a model name of its own, at two processes."""
    environ = {"LOWPASS_WORKERS": "2"}
    with serving(tmp_path_factory.mktemp("metrics"), policy(upstream_server.url), environ) as gateway:
        for number in range(REQUESTS):
            own = {"x-lowpass-session": f"session-{number}", "x-lowpass-tags": f"tag-{number}"}
            gateway.chat(("auto", "deep", "normal", f"model-{number}")[number % 4], headers=own, user=f"user-{number}")
        until(lambda: not gateway.rows("SELECT id FROM requests WHERE state = 'held'"))
        yield gateway


def test_money_tokens_and_times_are_the_ledger_s(asked: Gateway) -> None:
    found = families(asked)
    attempts = asked.rows("SELECT * FROM attempts WHERE target = 'reasoning'")
    cost, thinking = (sum(row[name] for row in attempts) for name in ("cost", "thinking_cost"))
    assert thinking > 0
    for name, nano in (("lowpass_cost_usd", cost), ("lowpass_thinking_cost_usd", thinking)):
        assert value(found, name, f"{name}_total", target="reasoning") == pytest.approx(usd(nano))
    reasoning = value(found, "lowpass_tokens", "lowpass_tokens_total", target="reasoning", direction="reasoning")
    assert reasoning == sum(row["output_reasoning"] for row in attempts)
    seconds = "lowpass_attempt_seconds"
    assert value(found, seconds, f"{seconds}_count", target="reasoning") == len(attempts)
    assert value(found, seconds, f"{seconds}_bucket", target="reasoning", le="+Inf") == len(attempts)
    assert value(found, seconds, f"{seconds}_sum", target="reasoning") == pytest.approx(
        sum(row["total_ms"] for row in attempts) / 1000
    )
    (all_of_it,) = asked.rows("SELECT COUNT(*) AS requests, SUM(cost) AS cost, SUM(overhead_us) AS us FROM requests")
    overhead = "lowpass_overhead_seconds"
    assert value(found, overhead, f"{overhead}_count") == all_of_it["requests"]
    assert value(found, overhead, f"{overhead}_sum") == pytest.approx(all_of_it["us"] / 1e6)


def test_buckets_are_cumulative(asked: Gateway) -> None:
    for family in families(asked).values():
        if family.type == "histogram":
            rows: dict[str, list[float]] = {}
            for sample in family.samples:
                if sample.name.endswith("_bucket"):
                    rows.setdefault(sample.labels.get("target", ""), []).append(sample.value)
            assert rows, family.name
            assert all(row == sorted(row) for row in rows.values())


def test_budgets_stand_as_they_are_told_elsewhere(asked: Gateway) -> None:
    found, told = families(asked), asked.get("/v1/budgets").json["data"]
    spent = sum(row["spent"] for row in told if row["id"] == "day")
    assert value(found, "lowpass_budget_spent_usd", "lowpass_budget_spent_usd", budget="day") == pytest.approx(spent)
    assert value(found, "lowpass_budget_limit_usd", "lowpass_budget_limit_usd", budget="day") == 2
    thoughts = value(found, "lowpass_budget_spent_tokens", "lowpass_budget_spent_tokens", budget="thoughts")
    assert thoughts == asked.rows("SELECT SUM(thinking) AS n FROM requests")[0]["n"]
    used = value(found, "lowpass_budget_used_share", "lowpass_budget_used_share", budget="day")
    assert used == pytest.approx(spent / 2)
    pots = [row for row in told if row["id"].startswith("each|")]
    assert len(pots) > 1
    limits = value(found, "lowpass_budget_limit_usd", "lowpass_budget_limit_usd", budget="each")
    assert limits == pytest.approx(sum(row["limit"] for row in pots))


def test_what_is_held_and_what_of_it_is_used(asked: Gateway) -> None:
    found = families(asked)
    held = value(found, "lowpass_held_usd", "lowpass_held_usd_total")
    used = value(found, "lowpass_held_used_usd", "lowpass_held_used_usd_total")
    assert 0 < used <= held
    assert used == pytest.approx(usd(asked.rows("SELECT SUM(cost) AS n FROM requests")[0]["n"]))


def test_no_label_is_of_a_client_s_making(asked: Gateway) -> None:
    """Thirty sessions, tags, users and model names later there are as many series as the policy has names for."""
    known = {"normal", "reasoning", "error-500", "auto", "deep", "day", "thoughts", "each"}
    found = families(asked)
    for family in found.values():
        for sample in family.samples:
            named = {sample.labels[name] for name in ("target", "route", "budget") if name in sample.labels}
            assert named <= known, sample
    assert not [word for word in ("tag-", "session-", "model-", "user-") if word in asked.get("/metrics").body.decode()]


def test_processes_are_added_up_and_what_a_dead_one_counted_stays() -> None:
    cost = Cost(1_000, CostSource.PRICED, "v", thinking=400, saved=-30)
    one = Attempt(target=house("local"), outcome="ok", started_ms=0, total_ms=400, first_ms=40, cost=cost)
    first, second = Telemetry(), Telemetry()
    for process, times in ((first, 2), (second, 3)):
        for _ in range(times):
            process.settled("auto", 200, [one], 700, 5_000)
    second.ledger = False
    both = page(together([first.values(), counters(second.values())])).decode()
    found = {family.name: family for family in text_string_to_metric_families(both)}
    seconds = "lowpass_attempt_seconds"
    assert value(found, seconds, f"{seconds}_bucket", target="local", le="0.25") == 0
    assert value(found, seconds, f"{seconds}_bucket", target="local", le="0.5") == 5
    assert value(found, seconds, f"{seconds}_sum", target="local") == pytest.approx(2.0)
    extra = "lowpass_cache_extra_usd"
    assert value(found, extra, f"{extra}_total", target="local") == pytest.approx(usd(150))
    assert value(found, "lowpass_ledger_available", "lowpass_ledger_available") == 1
    alive = page(together([first.values(), second.values()])).decode()
    assert "lowpass_ledger_available 0.0" in alive
