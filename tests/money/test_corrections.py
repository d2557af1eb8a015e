"""Charges that change afterwards, by hand or by a provider's statement: which differences, and what all books say."""

import csv
import io
import json
import sqlite3
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from router.ledger.reconcile import StatementError, model_of, read, words
from router.testing.upstream import Answer, Behaviour, Break, Upstream
from router.types import clock
from tests.budget.redis_process import RedisProcess
from tests.gateway.running import MESSAGES, Gateway, ordered, target
from tests.gateway.test_keys import bearer, create
from tests.money.books import NANO, change
from tests.postgres import Server
from tests.tables import data, each_row

TODAY = f"{datetime.now(UTC):%Y-%m-%d}"
HEADER = "date,model,cost_usd"


def policy(url: str) -> dict[str, Any]:
    scopes = {"monthly": "all", "one": "target", "mine": "session", "per-key": "key"}
    budgets: list[dict[str, Any]] = [{"id": name, "limit_usd": 5, "scope": scope} for name, scope in scopes.items()]
    budgets += [{"id": "thoughts", "limit_thinking_tokens": 1_000_000}]
    budgets += [
        {"id": "named", "limit_usd": 5, "routes": ["other"]},
        {"id": "hourly", "limit_usd": 5, "window": "hour"},
    ]
    targets = {name: target(url, behaviour) for name, behaviour in (("cheap", "normal"), ("slow", "say-400-ms-5"))}
    routes = {"auto": ordered("cheap"), "other": ordered("cheap")}
    return {"version": 1, "loops": {"enabled": False}, "targets": targets, "routes": routes, "budgets": budgets}


@pytest.fixture
def gateway(tmp_path: Path, upstream: Upstream) -> Iterator[Gateway]:
    with Gateway(tmp_path / "home", policy(upstream.url)) as served:
        yield served


def ledger(gateway: Gateway, *command: str, status: int = 0) -> str:
    """The output of `lowpass ledger …`."""
    ended, output = gateway.lowpass("ledger", *command)
    assert ended == status, output
    return output


def report(gateway: Gateway, *command: str) -> dict[str, Any]:
    return dict(json.loads(gateway.lowpass("report", *command, "--json")[1], parse_float=Decimal))


def asked(gateway: Gateway, route: str = "auto", **headers: str) -> dict[str, Any]:
    """The row of a request that was answered."""
    reply = gateway.chat(route, headers={"x-lowpass-session": "s1", **headers})
    assert reply.status == 200
    return gateway.settled(reply.id)


def adjust(gateway: Gateway, request_id: str, cost: str, reason: str = "the invoice says so", status: int = 0) -> str:
    return ledger(gateway, "adjust", request_id, f"--cost={cost}", "--reason", reason, status=status)


def dollars(nano: int) -> Decimal:
    return Decimal(nano) / NANO


def spent(gateway: Gateway) -> dict[str, Decimal]:
    rows = json.loads(gateway.get("/v1/budgets", x_lowpass_session="s1").body, parse_float=Decimal)["data"]
    return {row["id"]: Decimal(row["spent"]) for row in rows}


def total(gateway: Gateway) -> Decimal:
    return Decimal(str(report(gateway, "spend")["totals"]["cost_usd"]))


def sound(gateway: Gateway) -> None:
    assert ledger(gateway, "verify").splitlines()[-1].endswith(": ok")


def leave(gateway: Gateway) -> Iterator[str]:
    """The id of a request in progress, whose client then hangs up."""
    with gateway.client() as client:
        stream = client.chat.completions.create(model="slow", messages=MESSAGES, stream=True, max_tokens=3_000)
        next(iter(stream))
        (held,) = gateway.rows("SELECT id FROM requests WHERE state = 'held'")
        yield held["id"]
        stream.close()
    gateway.settled(held["id"])


@each_row("moved", [False, True])
def test_all_books_follow_a_correction(gateway: Gateway, moved: bool) -> None:
    whole, row, before = total(gateway), asked(gateway), spent(gateway)
    if moved:
        ledger(gateway, "upkeep")
    assert "($0.0123" not in adjust(gateway, row["id"], "0.0123")
    assert gateway.row(row["id"])["cost"] == row["cost"]
    added = Decimal("0.0123") - dollars(row["cost"])
    changes = dict.fromkeys(("monthly", "one|cheap", "mine|s1", "per-key|"), added) | {"thoughts": 0}
    for _ in range(2):
        assert {name: after - before[name] for name, after in spent(gateway).items() if name in changes} == changes
        assert total(gateway) == whole + Decimal("0.0123")
        sound(gateway)
        ledger(gateway, "upkeep")
    spend = report(gateway, "spend")
    assert (spend["totals"]["requests"], len(spend["rows"])) == (2 if moved else 1, 1)


def test_a_correction_can_be_corrected_and_given_back(gateway: Gateway) -> None:
    row, other = asked(gateway), asked(gateway)
    own = dollars(row["cost"])
    for cost, reason in (("0.5", "a typing error"), (f"{own:f}", "back to what it was")):
        adjust(gateway, row["id"], cost, reason)
    adjust(gateway, other["id"], "0")
    assert total(gateway) == spent(gateway)["monthly"] == own
    parts = {part["name"]: part for part in report(gateway, "request", row["id"])["below"]}
    lines = [tuple(line.values()) if isinstance(line, dict) else tuple(line) for line in parts["corrections"]["rows"]]
    assert [line[6] for line in lines] == ["a typing error", "back to what it was"]
    assert sum(line[7] for line in lines) == 0
    costs = {row["id"]: row["cost_usd"] for row in report(gateway, "session", "s1")["rows"]}
    assert (costs.pop(row["id"]), costs.pop(other["id"]), set(costs.values())) == (own, 0, {None})
    assert {"what": "cost_usd", "value": "0"} in report(gateway, "request", other["id"])["rows"]
    assert gateway.lowpass("report", "audit", "--json")[1].count("charge corrected") == 3
    sound(gateway)


def test_an_export_follows_a_correction(gateway: Gateway, tmp_path: Path) -> None:
    adjust(gateway, asked(gateway)["id"], "0.0123")
    status, output = gateway.lowpass("export", "focus", "--format", "csv", "--out", str(tmp_path / "focus.csv"))
    assert status == 0, output
    records = list(csv.DictReader(io.StringIO((tmp_path / "focus.csv").read_text())))
    assert sum(Decimal(record["BilledCost"]) for record in records) == Decimal("0.0123")
    (correction,) = [record for record in records if record["ChargeCategory"] == "Adjustment"]
    assert "Corrections of charges" in correction["ChargeDescription"]
    assert correction["ResourceId"] == "cheap"


@each_row(
    "request_id, cost, message",
    [
        ("none", "1", "holds no request 'none'"),
        *(("known", cost, "an amount in USD") for cost in ("-1", "much", "0.0000000001", "NaN")),
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
    amount = f"{dollars(row['cost']):f}" if cost == "same" else cost
    assert message in adjust(gateway, identifier, amount, status=1)
    assert gateway.rows(count) == before


def test_a_request_in_progress_and_a_correction_are_not_corrected(gateway: Gateway) -> None:
    for held in leave(gateway):
        assert "in progress" in adjust(gateway, held, "1", status=1)
    adjust(gateway, held, "0.25", "billed though it was left")
    (made,) = gateway.rows("SELECT id FROM requests WHERE endpoint = 'adjustment'")
    assert "a correction itself" in adjust(gateway, made["id"], "1", status=1)
    sound(gateway)


@each_row("places", [("redis",), ("postgres",), ("postgres", "redis")])
def test_a_correction_and_rates_wherever_the_stores_are(
    tmp_path: Path, upstream: Upstream, postgres: Server, places: tuple[str, ...]
) -> None:
    with ExitStack() as stack:
        environ = {}
        if "redis" in places:
            redis = stack.enter_context(RedisProcess())
            environ["LOWPASS_REDIS_URL"] = redis.url.reveal()
        if "postgres" in places:
            environ["LOWPASS_DATABASE_URL"] = postgres.empty()
        homes, rules = (tmp_path / name for name in ("one", "two")), policy(upstream.url)
        gateways = [stack.enter_context(Gateway(home, rules, environ)) for home in homes]
        gateway = gateways[0]
        request_id = gateway.chat("auto", headers={"x-lowpass-session": "s1"}).id
        adjust(gateway, request_id, "0.0123")
        adjust(gateway, request_id, "0.0023")
        gateway.tick()
        after = dict.fromkeys(("monthly", "one|cheap", "mine|s1"), Decimal("0.0023")) | {"thoughts": 0}
        assert {name: spent(gateway)[name] for name in after} == after
        sound(gateway)
        if "redis" not in places:
            return
        rate = ("rated", "--rpm", "4", "--parallel", "9")
        keys = [create(gateway, *rate) for gateway in (gateways if "postgres" not in places else gateways[:1])] * 2
        for other in gateways:
            other.tick()
        gateway.let_pass(60.5 - clock.now_ms() / 1000 % 60)

        def ask(number: int) -> int:
            return gateways[number % 2].chat("auto", headers=bearer(keys[number % 2])).status

        with ThreadPoolExecutor(12) as pool:
            assert sorted(pool.map(ask, range(12))) == [200] * 4 + [429] * 8
        sound(gateway)
        (spent_there,) = [name for name in map(str, redis.client().hkeys("{lowpass}:a:monthly")) if name[:2] == "s:"]
        redis.client().hset("{lowpass}:a:monthly", spent_there, 0)
        redis.client().delete("{lowpass}:a:mine|s1")
        lines = ledger(gateway, "verify", status=1).splitlines()
        assert [line.partition(" from ")[0] for line in lines[:-1]] == ["redis mine|s1", "redis monthly"], lines


def booked(gateway: Gateway, by: str = "budget") -> Counter[Any]:
    """nano-USD by account, or by account and window."""
    sums = f"SELECT {by}, SUM(spent) AS spent, SUM(held) AS held FROM budget_windows GROUP BY {by}"  # noqa: S608 - ours
    rows = gateway.rows(sums)
    assert all(row["held"] == 0 for row in rows)
    return Counter({tuple(row.values())[:-2] if "," in by else row["budget"]: row["spent"] for row in rows})


def written(gateway: Gateway, lines: list[str]) -> Path:
    file = gateway.home / "statement.csv"
    file.write_text("\n".join(lines))
    return file


def reconcile(gateway: Gateway, lines: list[str], *options: str, status: int = 0) -> dict[str, Any]:
    file = str(written(gateway, lines))
    output = ledger(gateway, "reconcile", provider(gateway), file, "--today", "--json", *options, status=status)
    return dict(json.loads(output, parse_float=Decimal))


def provider(gateway: Gateway) -> str:
    return str(gateway.rows("SELECT provider FROM attempts LIMIT 1")[0]["provider"])


def statement(gateway: Gateway, factor: str = "1", **others: str) -> list[str]:
    """What the ledger says, times a factor, in the plain form; `others`: amounts of models."""
    sums = gateway.rows("SELECT model, SUM(cost) AS cost FROM attempts GROUP BY model")
    amounts = {row["model"]: dollars(row["cost"]) * Decimal(factor) for row in sums} | others
    return [HEADER, *(f"{TODAY},{model},{amount}" for model, amount in amounts.items())]


def test_a_difference_is_booked_where_the_rows_were_charged(gateway: Gateway) -> None:
    """By key: what the rows of each were charged of it. A statement that agrees has none."""
    ann, bob = (bearer(create(gateway, name)) for name in ("ann", "bob"))
    for headers in (ann, ann, ann, bob):
        asked(gateway, **headers)
    ledger(gateway, "upkeep")
    asked(gateway, **bob)
    before, lines, agreed = booked(gateway), statement(gateway, "1.1"), reconcile(gateway, statement(gateway))
    assert (agreed["comparison"]["differences"], agreed["form"]) == ([], "plain")
    (difference,) = reconcile(gateway, lines, status=1)["comparison"]["differences"]
    assert (difference["cause"], booked(gateway)) == ("unknown", before)
    assert "+10.0%" in difference["explanation"]
    assert reconcile(gateway, lines, "--book")["corrections"] == 2
    after = booked(gateway)
    assert all(abs(after[account] - nano * 11 // 10) <= 2 for account, nano in before.items())
    assert after["monthly"] == round(Decimal(lines[1].split(",")[2]) * NANO)
    reconcile(gateway, lines)
    sound(gateway)
    assert report(gateway, "spend", "--by", "key")["totals"]["requests"] == 5


def test_an_account_and_a_window_of_some_requests_are_booked_their_part(gateway: Gateway) -> None:
    """Again and again; what is ten times as much, and a dollar, only where that is said."""
    for number in range(4):
        asked(gateway, **({"x-lowpass-budget": "named"} if number else {}))
        gateway.let_pass(3_600 * (number == 1))
    first = windows = booked(gateway, "budget, window_start_ms")
    for factor in ("2", "0.01", "0.5", "3"):
        reconcile(gateway, statement(gateway, factor), "--book")
        windows, before = booked(gateway, "budget, window_start_ms"), windows
        assert all(abs(windows[at] - nano * Decimal(factor)) <= 4 for at, nano in before.items())
        sound(gateway)
    assert len(first) == len(booked(gateway)) + 1
    lines = [HEADER, f"{TODAY},openai/normal,1000000"]
    assert "Nothing was booked: --any-size" in ledger(
        gateway, "reconcile", "openai", str(written(gateway, lines)), "--today", "--book", status=1
    )
    assert booked(gateway, "budget, window_start_ms") == windows
    reconcile(gateway, lines, "--book", "--any-size")
    assert booked(gateway)["monthly"] == 1_000_000 * NANO
    sound(gateway)
    with closing(sqlite3.connect(gateway.ledger)) as writer, writer:
        writer.execute("UPDATE bookings SET charged = 0 WHERE account = 'monthly' AND charged > ?", (10 * NANO,))
    assert "accounts, and is booked as" in ledger(gateway, "verify", status=1)


def test_what_was_estimated_is_corrected_first_and_teaches(
    gateway: Gateway, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that left when little had come was charged a usual answer; the provider billed twice that, and the rest
    as it was. How long it waited says nothing: the target is known to be quick."""
    said = Behaviour(answer=lambda *_: Answer(text=("Hello", "again")))
    monkeypatch.setitem(upstream.behaviours, "say-400-ms-5", said)
    rest = asked(gateway, "slow")["cost"]
    gateway.tick()  # its text is read, and says what is expected of the next
    upstream.behaviours["say-400-ms-5"] = structs.replace(said, breaks=Break.HANG)
    (held,) = leave(gateway)
    left = gateway.row(held)
    (attempt,) = left["attempts"]
    assert (left["error"], attempt["cost_source"]) == ("client_gone", "estimated")
    whole = gateway.rows("SELECT SUM(cost) AS cost FROM attempts")[0]["cost"]
    lines = statement(gateway, **{attempt["model"]: f"{dollars(rest + 2 * left['cost'])}"})
    booking = reconcile(gateway, lines, "--book")
    (difference,) = booking["comparison"]["differences"]
    assert (difference["cause"], booking["corrections"]) == ("cancelled", 1)
    assert [below["name"] for below in report(gateway, "request", held)["below"]].count("corrections") == 1
    assert booked(gateway)["monthly"] == whole + left["cost"]
    factors = {row["target"]: row["factor"] for row in gateway.rows("SELECT target, factor FROM billing")}
    gateway.tick()
    assert factors["slow"] == pytest.approx(2)
    (later,) = leave(gateway)
    assert gateway.row(later)["attempts"][0]["output_visible"] > 1.5 * attempt["output_visible"]


def test_a_price_that_is_billed_otherwise_day_after_day_is_corrected_until_that_is_revoked(gateway: Gateway) -> None:
    ids = [asked(gateway)["id"] for _ in range(51)]
    with closing(sqlite3.connect(gateway.ledger)) as writer, writer:
        for number, request_id in enumerate(ids):
            moved = (86_400_000 * (number % 3), request_id)
            writer.execute("UPDATE live_attempts SET started_ms = started_ms - ? WHERE request_id = ?", moved)
    days = "SELECT date(started_ms / 1000, 'unixepoch') AS day, model, SUM(cost) AS cost FROM attempts GROUP BY 1"
    lines = [f"{row['day']},{row['model']},{dollars(row['cost']) * 5 / 4}" for row in gateway.rows(days)]
    before, model = asked(gateway, "other"), lines[0].split(",")[1]
    lines[-1] = f"{TODAY},{model},{Decimal(lines[-1].split(',')[2]) + dollars(before['cost']) * 5 / 4}"
    booking = reconcile(gateway, [HEADER, *lines], "--book")
    assert {row["cause"] for row in booking["comparison"]["differences"]} == {"price"}
    gateway.tick()
    after = asked(gateway, "other")
    assert after["cost"] == pytest.approx(before["cost"] * 5 / 4, abs=1)
    assert after["held"] == pytest.approx(before["held"] * 5 / 4, rel=0.05)
    (shown,) = json.loads(ledger(gateway, "prices", "--json"))
    assert (shown["model"], shown["factor"]) == ("openai/normal", pytest.approx(1.25))
    assert "billed 1.2500 times what 52 calls on 3 days cost by their price" in shown["source"]
    ledger(gateway, "prices", "--forget", shown["model"])
    gateway.tick()
    assert asked(gateway, "other")["cost"] == before["cost"]
    assert "no statement has corrected the price of" in ledger(gateway, "prices", "--forget", model, status=1)
    audit = gateway.lowpass("report", "audit", "--json")[1]
    assert [audit.count(f"price correct{end}") for end in ("ed", "ion revoked")] == [1, 1]
    sound(gateway)


FORMS = data(__file__, "statements.yaml")
MODELS = ("gpt-4.1", "gpt-4.1-mini", "claude-haiku-4-5", "gemini-2.5-flash", "gemini-2.5-flash-lite")


@each_row("row", FORMS, ids=lambda row: row["name"])
def test_every_form_is_read(row: dict[str, Any]) -> None:
    form, statement = read(row["lines"])
    sums: Counter[str | None] = Counter()
    for line in statement:
        sums[model_of(line, {model: model for model in MODELS})] += line.nano
    assert (form, dict(sums), {line.day for line in statement}) == (row["name"], row["expected"], {20_724})


def test_nothing_is_rounded_as_finely_as_other_amounts() -> None:
    _, (cost, nothing) = read(["date,model,cost_usd", "2026-09-28,m,0.123456", "2026-09-28,m,0.0"])
    assert cost.rounding == nothing.rounding == 500


@each_row("one, other", data(__file__, "model_names.yaml"))
def test_names_of_one_model_are_the_same(one: str, other: str) -> None:
    assert words(one) == words(other)


@each_row("lines, message", data(__file__, "unreadable.yaml"))
def test_a_statement_that_can_not_be_used_names_the_line_and_the_remedy(lines: list[str], message: str) -> None:
    with pytest.raises(StatementError) as refused:
        read(lines)
    assert message in str(refused.value)


def test_unknown_providers_and_files_change_nothing(gateway: Gateway) -> None:
    asked(gateway)
    file = gateway.home / "statement.csv"
    file.write_text("\n".join(statement(gateway, "2")))
    unknown = ledger(gateway, "reconcile", "nobody", str(file), "--today", "--book", status=1)
    assert "the ledger has no provider 'nobody'" in unknown
    assert "can't be read" in ledger(gateway, "reconcile", provider(gateway), f"{file}x", "--book", status=1)
    assert "of today (UTC), which is not over" in ledger(gateway, "reconcile", provider(gateway), str(file), status=1)
    file.write_text("\n".join([*statement(gateway), "2026-11-01,m-1,0.5", "2026-11-01,m-1,-0.75"]))
    refused = ledger(gateway, "reconcile", provider(gateway), str(file), "--book", status=1)
    assert "line 4: all that is billed for 'm-1' on 2026-11-01 is $-0.25: take out credits" in refused
    file.write_text("\n".join([*statement(gateway, "2"), "2026-11-01,,1"]))
    refused = ledger(gateway, "reconcile", provider(gateway), str(file), "--book", status=1)
    assert f"{file}: line 3: model is empty" in refused
    file.write_text("\n".join([*statement(gateway, "2"), "2026-11-01,m-1,0"]))
    left = ledger(gateway, "reconcile", provider(gateway), str(file), "--book")
    assert "1 lines of today (UTC) or later are left out" in left
    assert gateway.rows("SELECT 1 FROM adjustments") == []


def test_what_a_statement_has_no_line_of_is_not_corrected(gateway: Gateway) -> None:
    asked(gateway)
    list(leave(gateway))
    before, lines = booked(gateway), statement(gateway)
    missing = lines[2].split(",")[1]
    partial = reconcile(gateway, [*lines[:2], f"2026-11-01,{missing},0"], "--book")
    assert (partial["comparison"]["unnamed"], partial["corrections"], booked(gateway)) == ([missing], 0, before)
    reconcile(gateway, [*lines[:2], f"{TODAY},{missing},0"], "--book")
    assert gateway.rows("SELECT SUM(cost) AS cost FROM attempts WHERE model = ?", missing) == [{"cost": 0}]


def test_what_a_whole_statement_lacks_was_not_billed(gateway: Gateway) -> None:
    """But for what it may have under another name. Its days are all from the first to the last."""

    def causes(*lines: str, status: int = 0) -> dict[str, tuple[str, bool]]:
        known = reconcile(gateway, [HEADER, *lines], "--whole", "--book", status=status)["comparison"]
        return {row["model"]: (row["cause"], row["booked"] != 0) for row in known["differences"]}

    asked(gateway)
    list(leave(gateway))
    named, left = (name for (name,) in sorted(gateway.values("SELECT DISTINCT model FROM attempts")))
    other = causes(f"{TODAY},gpt-unheard-of,1.25", status=1)
    assert other == {"gpt-unheard-of": ("not_in_ledger", False)} | dict.fromkeys((named, left), ("other_name", False))
    change(gateway, "UPDATE live_attempts SET started_ms = started_ms - 86400000 WHERE model = ?", named)
    around = [f"{datetime.now(UTC) - timedelta(days=days):%Y-%m-%d},web search tool calls,0" for days in (0, 2)]
    assert causes(*around) == {named: ("not_billed", True), left: ("cancelled", True)}
    assert (booked(gateway)["monthly"], causes(*around)) == (0, {})
    assert gateway.rows("SELECT target FROM billing") == []


def test_what_the_ledger_has_no_rows_of_is_listed_and_not_booked(gateway: Gateway) -> None:
    asked(gateway)
    lines = [*statement(gateway), f"{TODAY},gpt-unheard-of,1.25", f"{TODAY},web search tool calls,0.5"]
    differences = reconcile(gateway, lines, "--book", status=1)["comparison"]["differences"]
    causes = {row["model"]: (row["cause"], row["booked"]) for row in differences}
    assert causes == {"gpt-unheard-of": ("not_in_ledger", 0), "web search tool calls": ("tool_fees", 0)}
