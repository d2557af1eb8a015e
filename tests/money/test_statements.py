"""A provider's statement against the ledger: which differences are found, what causes them, and their books."""

import json
from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from router.ledger.statement import StatementError, model_of, read, words
from router.testing.upstream import Upstream
from tests.gateway.running import Gateway, ordered, target, until
from tests.tables import each_row

TODAY = f"{datetime.now(UTC):%Y-%m-%d}"


def policy(url: str) -> dict[str, Any]:
    budgets = [{"id": "monthly", "limit_usd": 5}, {"id": "per-key", "limit_usd": 5, "scope": "key"}]
    budgets.append({"id": "named", "limit_usd": 5, "routes": ["other"]})
    targets = {name: target(url, behaviour) for name, behaviour in (("plain", "normal"), ("slow", "say-400-ms-5"))}
    routes = {"auto": ordered("plain"), "other": ordered("plain")}
    return {"version": 1, "loops": {"enabled": False}, "targets": targets, "routes": routes, "budgets": budgets}


@pytest.fixture
def gateway(tmp_path: Path, upstream: Upstream) -> Any:
    with Gateway(tmp_path / "home", policy(upstream.url)) as served:
        yield served


def booked(gateway: Gateway) -> Counter[str]:
    """nano-USD by account."""
    rows = gateway.rows("SELECT budget, SUM(spent) AS spent, SUM(held) AS held FROM budget_windows GROUP BY budget")
    assert all(row["held"] == 0 for row in rows)
    return Counter({row["budget"]: row["spent"] for row in rows})


def reconcile(gateway: Gateway, lines: list[str], *options: str) -> tuple[int, dict[str, Any], str]:
    file = gateway.home / "statement.csv"
    file.write_text("\n".join(lines))
    status, output = gateway.lowpass("ledger", "reconcile", provider(gateway), str(file), "--json", *options)
    return status, json.loads(output, parse_float=Decimal) if output.startswith("{") else {}, output


def provider(gateway: Gateway) -> str:
    return str(gateway.rows("SELECT provider FROM attempts LIMIT 1")[0]["provider"])


def statement(gateway: Gateway, factor: str = "1", **others: str) -> list[str]:
    """What the ledger says, times a factor, in the plain form; `others`: amounts of models."""
    sums = gateway.rows("SELECT model, SUM(cost) AS cost FROM attempts GROUP BY model")
    amounts = {row["model"]: Decimal(row["cost"]) / 10**9 * Decimal(factor) for row in sums} | others
    return ["date,model,cost_usd", *(f"{TODAY},{model},{amount}" for model, amount in amounts.items())]


def test_a_statement_that_agrees_has_no_difference(gateway: Gateway) -> None:
    assert [gateway.chat("auto").status for _ in range(3)] == [200] * 3
    status, told, _ = reconcile(gateway, statement(gateway))
    assert (status, told["comparison"]["differences"], told["form"]) == (0, [], "plain")


def test_a_difference_is_booked_where_the_rows_were_charged(gateway: Gateway) -> None:
    """By key: what the rows of each were charged of it."""
    status, output = gateway.lowpass("keys", "create", "ann", "--json")
    assert status == 0, output
    gateway.tick()
    key = {"authorization": f"Bearer {json.loads(output)['key']}"}
    status, output = gateway.lowpass("keys", "create", "bob", "--json")
    gateway.tick()
    other = {"authorization": f"Bearer {json.loads(output)['key']}"}
    for headers in (key, key, key, other):
        assert gateway.chat("auto", headers=headers).status == 200
    gateway.lowpass("ledger", "upkeep")
    assert gateway.chat("auto", headers=other).status == 200
    before, lines = booked(gateway), statement(gateway, "1.1")
    status, told, _ = reconcile(gateway, lines)
    (difference,) = told["comparison"]["differences"]
    assert (status, difference["cause"], booked(gateway)) == (1, "unknown", before)
    assert "+10.0%" in difference["explanation"]
    status, told, output = reconcile(gateway, lines, "--book")
    assert (status, told["corrections"]) == (0, 2), output
    after = booked(gateway)
    for account in before:
        assert abs(after[account] - before[account] * 11 // 10) <= 2, account
    assert after["monthly"] == round(Decimal(lines[1].split(",")[2]) * 10**9)
    assert reconcile(gateway, lines)[0] == 0
    status, output = gateway.lowpass("ledger", "verify")
    assert (status, output.splitlines()[-1].endswith(": ok")) == (0, True), output
    spend = json.loads(gateway.lowpass("report", "spend", "--by", "key", "--json")[1])
    assert spend["totals"]["requests"] == 5


def test_an_account_of_some_requests_is_booked_their_part(gateway: Gateway) -> None:
    assert [gateway.chat("auto").status for _ in range(3)] == [200] * 3
    assert gateway.chat("auto", headers={"x-lowpass-budget": "named"}).status == 200
    before = booked(gateway)
    assert reconcile(gateway, statement(gateway, "2"), "--book")[0] == 0
    assert booked(gateway) == Counter({account: 2 * spent for account, spent in before.items()})


def test_what_was_estimated_is_corrected_first_and_teaches(gateway: Gateway) -> None:
    """A client that left was charged an estimate; the provider billed twice that, and the rest as it was."""
    assert gateway.chat("auto").status == 200
    with gateway.client() as client:
        stream = client.chat.completions.create(
            model="slow", messages=[{"role": "user", "content": "Hello"}], stream=True, max_tokens=300
        )
        next(iter(stream))
        stream.close()
    left = until(lambda: gateway.rows("SELECT * FROM requests WHERE error = 'client_gone' AND state = 'settled'"))[0]
    (attempt,) = gateway.rows("SELECT * FROM attempts WHERE request_id = ?", left["id"])
    assert attempt["cost_source"] == "estimated"
    whole = gateway.rows("SELECT SUM(cost) AS cost FROM attempts")[0]["cost"]
    lines = statement(gateway, "1", **{attempt["model"]: f"{Decimal(2 * left['cost']) / 10**9}"})
    status, told, output = reconcile(gateway, lines, "--book")
    (difference,) = told["comparison"]["differences"]
    assert (status, difference["cause"], told["corrections"]) == (0, "cancelled", 1), output
    report = json.loads(gateway.lowpass("report", "request", left["id"], "--json")[1])
    assert [below["name"] for below in report["below"]].count("corrections") == 1
    assert booked(gateway)["monthly"] == whole + left["cost"]
    factors = {row["target"]: row["factor"] for row in gateway.rows("SELECT target, factor FROM billing")}
    assert factors["slow"] == pytest.approx(2)
    gateway.tick()
    assert gateway.app._books.learned.billed["slow"] == pytest.approx(2)


FORMS = [
    (
        "OpenAI costs",
        [
            "start_time,end_time,start_time_iso,end_time_iso,amount_value,amount_currency,line_item,project_id",
            '1790553600,1790640000,2026-09-28T00:00:00+00:00,x,0.25,usd,"gpt-4.1-mini-2025-04-14, input",p',
            '1790553600,1790640000,2026-09-28T00:00:00+00:00,x,1.5,usd,"gpt-4.1-mini-2025-04-14, output",p',
            "1790553600,1790640000,2026-09-28T00:00:00+00:00,x,0.03,usd,web search tool calls,p",
        ],
        {"gpt-4.1-mini": 1_750_000_000, None: 30_000_000},
    ),
    (
        "Anthropic costs",
        [
            "usage_date_utc,model,workspace,api_key,usage_type,context_window,token_type,cost_usd,list_price_usd",
            "2026-09-28,Claude Haiku 4.5,Default,k,message,x,input_no_cache,0.05,0.05",
            "2026-09-28,Claude Haiku 4.5,Default,k,message,x,output,0.20,0.20",
        ],
        {"claude-haiku-4-5": 250_000_000},
    ),
    (
        "Google Cloud billing",
        [
            "Billing account,X",
            "",
            "Service description,SKU description,Usage start date,Cost ($)",
            'Gemini API,"Gemini 2.5 Flash Text Output - Predictions",2026-09-28,"1,000.25"',
            'Gemini API,"Gemini 2.5 Flash Lite Text Output - Predictions",2026-09-28,0.5',
        ],
        {"gemini-2.5-flash": 1_000_250_000_000, "gemini-2.5-flash-lite": 500_000_000},
    ),
    ("plain", ["date,model,cost_usd", "2026-09-28,gpt-4.1,-0.5", "2026-09-28,gpt-4.1,1"], {"gpt-4.1": 500_000_000}),
]
MODELS = ("gpt-4.1", "gpt-4.1-mini", "claude-haiku-4-5", "gemini-2.5-flash", "gemini-2.5-flash-lite")


@each_row("name, lines, expected", FORMS)
def test_every_form_is_read(name: str, lines: list[str], expected: dict[str | None, int]) -> None:
    form, statement = read(lines)
    sums: Counter[str | None] = Counter()
    for line in statement:
        sums[model_of(line, {model: model for model in MODELS})] += line.nano
    assert (form, dict(sums), {line.day for line in statement}) == (name, expected, {20_724})


@each_row(
    "one, other",
    [
        ("claude-haiku-4-5-20251001", "Claude Haiku 4.5"),
        ("gpt-4.1-mini-2025-04-14", "gpt-4.1-mini"),
        ("anthropic/claude-3-5-haiku", "Claude Haiku 3.5"),
        ("gemini-2.5-pro@20250617", "gemini-2.5-pro"),
    ],
)
def test_names_of_one_model_are_the_same(one: str, other: str) -> None:
    assert words(one) == words(other)


@each_row(
    "lines, message",
    [
        (["a,b,c", "1,2,3"], "the columns of no export that is known"),
        ([], "the columns of no export"),
        (["date,model,cost_usd"], "no line with an amount"),
        (["date,model,cost_usd", "2026-09-28,m,1", "28.9.26,m,1", "2026-09-28,m,much"], "line 3: '28.9.26' is no date"),
        (["date,model,cost_usd", "2026-09-28,m,1", "28.9.26,m,1", "2026-09-28,m,much"], "line 4: 'much' is no amount"),
        (
            ["start_time_iso,amount_value,amount_currency,line_item", "2026-09-28,1,eur,x"],
            "line 2: the currency is 'eur'",
        ),
        (["date,model,cost_usd", "2026-09-28,m,NaN"], "no amount"),
    ],
)
def test_a_statement_that_can_not_be_used_names_the_line_and_the_remedy(lines: list[str], message: str) -> None:
    with pytest.raises(StatementError) as refused:
        read(lines)
    assert message in str(refused.value)


def test_unknown_providers_and_files_change_nothing(gateway: Gateway) -> None:
    assert gateway.chat("auto").status == 200
    file = gateway.home / "statement.csv"
    file.write_text("\n".join(statement(gateway, "2")))
    for words_, message in (
        (("nobody", str(file)), "the ledger has no provider 'nobody'"),
        ((provider(gateway), str(file) + "x"), "can't be read"),
    ):
        status, output = gateway.lowpass("ledger", "reconcile", *words_, "--book")
        assert (status, message in output) == (1, True), output
    assert gateway.rows("SELECT 1 FROM adjustments") == []


def test_what_the_ledger_has_no_rows_of_is_listed_and_not_booked(gateway: Gateway) -> None:
    assert gateway.chat("auto").status == 200
    lines = [*statement(gateway), f"{TODAY},gpt-unheard-of,1.25", f"{TODAY},web search tool calls,0.5"]
    status, told, _ = reconcile(gateway, lines, "--book")
    causes = {one["model"]: (one["cause"], one["booked"]) for one in told["comparison"]["differences"]}
    assert (status, causes) == (
        1,
        {"gpt-unheard-of": ("not_in_ledger", 0), "web search tool calls": ("tool_fees", 0)},
    )
