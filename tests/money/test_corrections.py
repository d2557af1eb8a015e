"""Charges are corrected by rows: what budgets, reports, exports and `ledger verify` say of them afterwards."""

import csv
import io
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from router.testing.upstream import Upstream
from router.types import clock
from tests.budget.redis_process import RedisProcess
from tests.gateway.running import Gateway, ordered, target, until
from tests.postgres import Server
from tests.tables import each_row


def policy(url: str) -> dict[str, Any]:
    budgets = [
        {"id": "monthly", "limit_usd": 5},
        {"id": "one", "limit_usd": 5, "scope": "target"},
        {"id": "thoughts", "limit_thinking_tokens": 1_000_000},
        {"id": "mine", "limit_usd": 5, "scope": "session"},
    ]
    targets = {name: target(url, behaviour) for name, behaviour in (("cheap", "normal"), ("cut", "say-400-ms-5"))}
    routes = {"auto": ordered("cheap")}
    return {"version": 1, "loops": {"enabled": False}, "targets": targets, "routes": routes, "budgets": budgets}


@pytest.fixture
def gateway(tmp_path: Path, upstream: Upstream) -> Iterator[Gateway]:
    with Gateway(tmp_path / "home", policy(upstream.url)) as served:
        yield served


def asked(gateway: Gateway) -> dict[str, Any]:
    """The row of a request that was answered in a session."""
    reply = gateway.chat("auto", headers={"x-lowpass-session": "s1"})
    assert reply.status == 200
    return gateway.settled(reply.id)


def adjust(gateway: Gateway, request_id: str, cost: str, reason: str = "the invoice says so") -> str:
    status, output = gateway.lowpass("ledger", "adjust", request_id, "--cost", cost, "--reason", reason)
    assert status == 0, output
    return output


def spent(gateway: Gateway) -> dict[str, Decimal]:
    rows = json.loads(gateway.get("/v1/budgets", x_lowpass_session="s1").body, parse_float=Decimal)["data"]
    return {row["id"]: Decimal(row["spent"]) for row in rows}


def total(gateway: Gateway, name: str = "spend") -> Decimal:
    output = gateway.lowpass("report", name, "--json")[1]
    return Decimal(str(json.loads(output, parse_float=Decimal)["totals"]["cost_usd"]))


def sound(gateway: Gateway) -> None:
    status, output = gateway.lowpass("ledger", "verify")
    assert (status, output.splitlines()[-1].endswith(": ok")) == (0, True), output


@each_row("moved", [False, True])
def test_all_books_follow_a_correction(gateway: Gateway, moved: bool) -> None:
    whole = total(gateway)
    row = asked(gateway)
    before = spent(gateway)
    if moved:
        gateway.lowpass("ledger", "upkeep")
    assert "($0.0123" not in adjust(gateway, row["id"], "0.0123")
    assert gateway.row(row["id"])["cost"] == row["cost"]
    added = Decimal("0.0123") - Decimal(row["cost"]) / 10**9
    for at in range(2):
        after = spent(gateway)
        assert {name: after[name] - before[name] for name in before} == {
            "monthly": added,
            "one|cheap": added,
            "thoughts": 0,
            "mine|s1": added,
        }
        assert total(gateway) == whole + Decimal("0.0123")
        sound(gateway)
        if at == 0:
            gateway.lowpass("ledger", "upkeep")
    report = json.loads(gateway.lowpass("report", "spend", "--json")[1])
    assert (report["totals"]["requests"], len(report["rows"])) == (2 if moved else 1, 1)


def test_a_correction_can_be_corrected_and_given_back(gateway: Gateway) -> None:
    row, other = asked(gateway), asked(gateway)
    own = Decimal(row["cost"]) / 10**9
    adjust(gateway, row["id"], "0.5", "a typing error")
    adjust(gateway, row["id"], f"{own:f}", "back to what it was")
    adjust(gateway, other["id"], "0")
    assert total(gateway) == own
    assert spent(gateway)["monthly"] == own
    told = json.loads(gateway.lowpass("report", "request", row["id"], "--json")[1])
    (corrections,) = [below for below in told["below"] if below["name"] == "corrections"]
    said = [tuple(line.values()) if isinstance(line, dict) else tuple(line) for line in corrections["rows"]]
    assert [line[6] for line in said] == ["a typing error", "back to what it was"]
    assert sum(line[7] for line in said) == 0
    audit = gateway.lowpass("report", "audit", "--json")[1]
    assert audit.count("charge corrected") == 3
    sound(gateway)


def test_an_export_follows_a_correction(gateway: Gateway, tmp_path: Path) -> None:
    row = asked(gateway)
    adjust(gateway, row["id"], "0.0123")
    status, output = gateway.lowpass("export", "focus", "--format", "csv", "--out", str(tmp_path / "focus.csv"))
    assert status == 0, output
    records = list(csv.DictReader(io.StringIO((tmp_path / "focus.csv").read_text())))
    assert sum(Decimal(record["BilledCost"]) for record in records) == Decimal("0.0123")
    corrections = [record for record in records if record["ChargeCategory"] == "Adjustment"]
    assert len(corrections) == 1
    assert "Corrections of charges" in corrections[0]["ChargeDescription"]
    assert corrections[0]["ResourceId"] == "cheap"


@each_row(
    "request_id, cost, message",
    [
        ("none", "1", "holds no request 'none'"),
        ("known", "-1", "an amount in USD"),
        ("known", "much", "an amount in USD"),
        ("known", "0.0000000001", "an amount in USD"),
        ("known", "NaN", "an amount in USD"),
        ("known", "same", "already"),
    ],
)
def test_what_can_not_be_corrected_is_refused_and_nothing_changes(
    gateway: Gateway, request_id: str, cost: str, message: str
) -> None:
    row = asked(gateway)
    count = "SELECT (SELECT COUNT(*) FROM requests) AS requests, (SELECT COUNT(*) FROM audit) AS changes"
    before = gateway.rows(count)
    identifier = row["id"] if request_id == "known" else request_id
    amount = f"{Decimal(row['cost']) / 10**9:f}" if cost == "same" else cost
    status, output = gateway.lowpass("ledger", "adjust", identifier, f"--cost={amount}", "--reason", "x")
    assert (status, message in output) == (1, True), output
    assert gateway.rows(count) == before


def test_a_request_in_progress_and_a_correction_are_not_corrected(gateway: Gateway) -> None:
    with gateway.client() as client:
        stream = client.chat.completions.create(
            model="cut", messages=[{"role": "user", "content": "Hello"}], stream=True
        )
        next(iter(stream))
        (held,) = gateway.rows("SELECT id FROM requests WHERE state = 'held'")
        status, output = gateway.lowpass("ledger", "adjust", held["id"], "--cost", "1", "--reason", "x")
        assert (status, "in progress" in output) == (1, True), output
        stream.close()
    row = until(lambda: gateway.row(held["id"]) if gateway.row(held["id"])["state"] != "held" else None)
    adjust(gateway, row["id"], "0.25", "billed though it was left")
    (made,) = gateway.rows("SELECT id FROM requests WHERE endpoint = 'adjustment'")
    status, output = gateway.lowpass("ledger", "adjust", made["id"], "--cost", "1", "--reason", "x")
    assert (status, "a correction itself" in output) == (1, True), output
    sound(gateway)


@each_row("places", [("redis",), ("postgres",), ("postgres", "redis")])
def test_a_correction_and_rates_wherever_the_stores_are(
    tmp_path: Path, upstream: Upstream, postgres: Server, places: tuple[str, ...]
) -> None:
    with ExitStack() as stack:
        environ = {}
        if "redis" in places:
            environ["LOWPASS_REDIS_URL"] = stack.enter_context(RedisProcess()).url.reveal()
        if "postgres" in places:
            environ["LOWPASS_DATABASE_URL"] = postgres.empty()
        gateways = [
            stack.enter_context(Gateway(tmp_path / name, policy(upstream.url), environ)) for name in ("one", "two")
        ]
        gateway = gateways[0]
        row_id = gateway.chat("auto", headers={"x-lowpass-session": "s1"}).id
        adjust(gateway, row_id, "0.0123")
        adjust(gateway, row_id, "0.0023")
        gateway.tick()
        assert [spent(gateway)[name] for name in ("monthly", "one|cheap", "thoughts", "mine|s1")] == [
            *[Decimal("0.0023")] * 2,
            0,
            Decimal("0.0023"),
        ]
        sound(gateway)
        if "redis" not in places:
            return
        status, output = gateway.lowpass("keys", "create", "rated", "--rpm", "4", "--parallel", "9", "--json")
        assert status == 0, output
        key = json.loads(output)["key"]
        if "postgres" not in places:
            status, output = gateways[1].lowpass("keys", "create", "rated", "--rpm", "4", "--json")
            keys = [key, json.loads(output)["key"]]
        else:
            keys = [key, key]
        for one in gateways:
            one.tick()
        gateway.let_pass(60.5 - clock.now_ms() / 1000 % 60)
        with ThreadPoolExecutor(12) as pool:
            replies = list(
                pool.map(
                    lambda number: gateways[number % 2].chat(
                        "auto", headers={"authorization": f"Bearer {keys[number % 2]}"}
                    ),
                    range(12),
                )
            )
        assert sorted(reply.status for reply in replies) == [200] * 4 + [429] * 8
        sound(gateway)
