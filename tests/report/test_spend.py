"""Spend against ledgers that were added up by hand, and against the ledger itself for any ledger at all."""

import json
import sqlite3
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.ledger.connection import Connection
from router.ledger.ledger import Ledger
from router.ledger.postgres.wire import StatementRefused
from router.report.render import as_json, written
from router.report.report import Report
from router.report.spend import BY, spend
from router.types.classification import Task
from router.types.money import NANO_PER_USD
from router.types.usage import Usage
from tests.report.filled import DAY_MS, MONDAY_MS, Happened, Tried, fill, thinking
from tests.stores import Make

# One of everything: served, retried elsewhere, failed, turned away, in progress, and lost in a crash.
WEEK = (
    Happened(
        id="a", tried=(Tried("mini", 1_500, thinking(30), "lab/mini"),), key="web", tags=("red", "blue"), task=Task.CODE
    ),
    Happened(
        id="b",
        tried=(Tried("mini", 0, None, "lab/mini"), Tried("local", 7, thinking(None))),
        at_ms=MONDAY_MS + DAY_MS,
        tags=("red", "red"),
        data_class="pii",
    ),
    Happened(id="c", tried=(Tried("mini", 2_000, thinking(0), "lab/mini"),), at_ms=MONDAY_MS + DAY_MS - 1, key="batch"),
    Happened(id="d", at_ms=MONDAY_MS + DAY_MS, route="code"),
    Happened(id="e", ends="held", held=40_000, at_ms=MONDAY_MS + 2 * DAY_MS),
    Happened(id="f", ends="recovered", held=90_000, at_ms=MONDAY_MS + 2 * DAY_MS, key="web"),
)


def report(ledger: Ledger, by: str, since_ms: int | None = None, until_ms: int | None = None) -> Report:
    with ledger.reading() as connection:
        return spend(connection, by, since_ms, until_ms)


def nano(amount: object) -> int:
    assert isinstance(amount, Decimal)
    return int(amount * NANO_PER_USD)


def lines(found: Report) -> list[tuple[Any, ...]]:
    """Amounts in nano-USD, so that the expectation is the sum one does by hand."""
    return [tuple(nano(cell) if isinstance(cell, Decimal) else cell for cell in row) for row in found.rows]


@pytest.fixture
def week(ledger: Ledger) -> Ledger:
    return fill(ledger, WEEK)


# label, requests, attempts, errors, input, output, reasoning, reasoning unknown, unpriced, cost, recovered, held
EXPECTED: dict[str, list[tuple[Any, ...]]] = {
    "target": [
        ("mini", 3, 3, 1, 200, 70, 30, 0, 0, 3_500, 0, 0),
        ("local", 1, 1, 0, 100, 20, None, 1, 0, 7, 0, 0),
        (None, 3, 0, 2, 0, 0, None, 0, 0, 0, 90_000, 40_000),
    ],
    "model": [
        ("lab/mini", 3, 3, 1, 200, 70, 30, 0, 0, 3_500, 0, 0),
        ("house/model", 1, 1, 0, 100, 20, None, 1, 0, 7, 0, 0),
        (None, 3, 0, 2, 0, 0, None, 0, 0, 0, 90_000, 40_000),
    ],
    "key": [
        ("batch", 1, 1, 0, 100, 20, 0, 0, 0, 2_000, 0, 0),
        ("web", 2, 1, 1, 100, 50, 30, 0, 0, 1_500, 90_000, 0),
        (None, 3, 2, 1, 100, 20, None, 1, 0, 7, 0, 40_000),
    ],
    "tag": [
        ("red", 2, 3, 0, 200, 70, 30, 1, 0, 1_507, 0, 0),
        ("blue", 1, 1, 0, 100, 50, 30, 0, 0, 1_500, 0, 0),
        (None, 4, 1, 2, 100, 20, 0, 0, 0, 2_000, 90_000, 40_000),
    ],
    "day": [
        ("2026-11-02", 2, 2, 0, 200, 70, 30, 0, 0, 3_500, 0, 0),
        ("2026-11-03", 2, 2, 1, 100, 20, None, 1, 0, 7, 0, 0),
        ("2026-11-04", 2, 0, 1, None, None, None, 0, 0, 0, 90_000, 40_000),
    ],
    "route": [
        ("auto", 5, 4, 1, 300, 90, 30, 1, 0, 3_507, 90_000, 40_000),
        ("code", 1, 0, 1, 0, 0, None, 0, 0, 0, 0, 0),
    ],
    "class": [
        ("internal", 5, 2, 2, 200, 70, 30, 0, 0, 3_500, 90_000, 40_000),
        ("pii", 1, 2, 0, 100, 20, None, 1, 0, 7, 0, 0),
    ],
    "task": [
        ("chat", 5, 3, 2, 200, 40, 0, 1, 0, 2_007, 90_000, 40_000),
        ("code", 1, 1, 0, 100, 50, 30, 0, 0, 1_500, 0, 0),
    ],
}


def test_every_grouping_has_its_expectation() -> None:
    assert set(EXPECTED) == set(BY)


@pytest.mark.parametrize("by", BY)
def test_rows_are_what_one_adds_up_by_hand(week: Ledger, by: str) -> None:
    assert lines(report(week, by)) == EXPECTED[by]


@pytest.mark.parametrize(("by", "errors"), [(by, 3 if by in ("target", "model") else 2) for by in BY])
def test_the_total_counts_each_request_once(week: Ledger, by: str, errors: int) -> None:
    totals = report(week, by).totals
    assert totals is not None
    assert totals[:9] == ("total", 6, 4, errors, 300, 90, 30, 1, 0)
    assert [nano(amount) for amount in totals[9:]] == [3_507, 90_000, 40_000]


@pytest.mark.parametrize("by", BY)
def test_the_window_holds_its_start_and_not_its_end(week: Ledger, by: str) -> None:
    tuesday = report(week, by, MONDAY_MS + DAY_MS, MONDAY_MS + 2 * DAY_MS)
    assert (tuesday.total("requests"), tuesday.total("cost_usd")) == (2, Decimal("0.000000007"))


def test_an_attempt_belongs_to_the_window_of_its_request(ledger: Ledger) -> None:
    """Else a report by target and one by day would not agree about midnight."""
    fill(ledger, [Happened(id="a", tried=(Tried("local", 5),), at_ms=MONDAY_MS - 1)])
    with ledger.writing() as connection:
        connection.execute("UPDATE attempts SET started_ms = ?", (MONDAY_MS,))
    for by in BY:
        assert report(ledger, by, MONDAY_MS).total("requests") == 0
        assert report(ledger, by, None, MONDAY_MS).total("cost_usd") == Decimal("0.000000005")


def test_a_request_settled_after_its_recovery_is_charged_what_it_cost(ledger: Ledger) -> None:
    """The sweeper took it for dead."""
    late = Happened(id="a", ends="recovered", held=900, tried=(Tried("mini", 5, None), Tried("local", 20)))
    fill(ledger, [late])
    for by in BY:
        found = report(ledger, by)
        assert (nano(found.total("cost_usd")), nano(found.total("recovered_usd"))) == (25, 0)
        assert sum(map(nano, found.column("cost_usd"))) == 25


def test_an_empty_ledger_costs_nothing_and_counts_no_token(ledger: Ledger) -> None:
    found = report(fill(ledger, []), "target")
    assert found.rows == ()
    assert found.totals == ("total", 0, 0, 0, None, None, None, 0, 0, 0, 0, 0)


@pytest.mark.parametrize("by", BY)
def test_attempts_without_a_price_are_counted_and_explained(ledger: Ledger, by: str) -> None:
    fill(ledger, [Happened(id="a", tried=(Tried("free", 0, None), Tried("local", 3)))])
    assert "Unpriced" not in report(ledger, by).note
    with ledger.writing() as connection:
        connection.execute("UPDATE attempts SET cost_source = 'unpriced' WHERE number = 1")
    found = report(ledger, by)
    assert found.total("unpriced") == sum(n for n in found.column("unpriced") if isinstance(n, int)) == 1
    assert "worst case" in found.note


def test_a_key_that_was_replaced_under_its_name_is_one_row(ledger: Ledger) -> None:
    fill(ledger, [Happened(id=name, tried=(Tried("local", 3),), key=name) for name in "ab"])
    with ledger.writing() as connection:
        connection.execute("UPDATE keys SET name = 'web'")
    assert lines(report(ledger, "key"))[0][:2] == ("web", 2)


def test_tags_keep_their_quotes_and_backslashes(ledger: Ledger) -> None:
    tags = ('say "hi"', "back\\slash", "{}", "日本", "[1]")
    fill(ledger, [Happened(id="a", tried=(Tried("local", 3),), tags=tags)])
    assert set(report(ledger, "tag").column("tag")) == set(tags)


@pytest.mark.parametrize("by", ["", "models", "model; DROP TABLE requests", "BY", "started_ms"])
def test_an_unknown_grouping_names_the_known_ones(week: Ledger, by: str) -> None:
    with pytest.raises(ValueError, match="Known: model, target, key, tag, day, route, class, task"):
        report(week, by)


def test_a_report_can_not_write(week: Ledger) -> None:
    refused = pytest.raises((sqlite3.OperationalError, StatementRefused), match=r"(?i)read_?only")
    with week.reading() as connection, refused:
        connection.execute("DELETE FROM requests")


def test_a_report_reads_while_the_gateway_writes(week: Ledger) -> None:
    with week.writing() as writing:
        writing.execute("BEGIN")
        writing.execute("DELETE FROM requests")
        assert report(week, "day").total("requests") == 6


COUNT = st.integers(0, 5_000)
USAGE = st.none() | st.builds(
    Usage,
    input_uncached=COUNT,
    cache_read=COUNT,
    cache_write=COUNT,
    output_visible=COUNT,
    output_reasoning=st.none() | COUNT,
)
TRIED = st.builds(
    Tried, target=st.sampled_from(["local", "mini", "<i>"]), cost=st.integers(0, 10**15), usage=USAGE, model=st.text()
)
HAPPENED = st.builds(
    Happened,
    id=st.uuids().map(lambda one: one.hex),
    tried=st.lists(TRIED, max_size=3).map(tuple),
    ends=st.sampled_from(["settled", "settled", "held", "recovered"]),
    held=st.integers(0, 10**15),
    at_ms=st.integers(MONDAY_MS, MONDAY_MS + 3 * DAY_MS),
    route=st.sampled_from(["auto", "code"]),
    key=st.sampled_from(["", "web", "batch"]),
    tags=st.lists(st.sampled_from(["red", 'bl"ue', "gr\\een"]), max_size=3).map(tuple),
    data_class=st.sampled_from(["internal", "pii"]),
    task=st.sampled_from(list(Task)),
).map(lambda one: msgspec.structs.replace(one, tried=()) if one.ends == "held" else one)
MONEY = {"cost_usd": "settled', 'released", "recovered_usd": "recovered"}


def charged(connection: Connection, states: str, since_ms: int) -> int:
    query = f"SELECT COALESCE(SUM(cost), 0) FROM requests WHERE state IN ('{states}') AND started_ms >= ?"  # noqa: S608
    (found,) = connection.execute(query, (since_ms,)).fetchone()
    return int(found)


@settings(max_examples=40, deadline=None)
@given(happened=st.lists(HAPPENED, max_size=12, unique_by=lambda one: one.id), days=st.integers(0, 3))
def test_every_report_adds_up_to_the_ledger(new_ledger: Make, happened: list[Happened], days: int) -> None:
    since_ms = MONDAY_MS + days * DAY_MS
    with fill(new_ledger(), happened).reading() as connection:
        for by in BY:
            found = spend(connection, by, since_ms, None)
            expected = {name: charged(connection, states, since_ms) for name, states in MONEY.items()}
            expected["held_usd"] = sum(one.held for one in happened if one.ends == "held" and one.at_ms >= since_ms)
            _agrees(found, expected, {one.id for one in happened if one.at_ms >= since_ms})


def _agrees(found: Report, expected: dict[str, int], ids: set[str]) -> None:
    assert found.total("requests") == len(ids)
    document = json.loads(as_json(found), parse_float=Decimal)
    shown = written(found)
    for name, amount in expected.items():
        assert nano(found.total(name)) == amount
        assert Decimal(document["totals"][name]) * NANO_PER_USD == amount
        texts = {column.name: text for column, text in zip(shown.columns, shown.totals, strict=True)}
        assert Decimal(texts.get(name, "0").replace(",", "")) * NANO_PER_USD == amount
        if found.columns[0].name != "tag":
            assert sum(map(nano, found.column(name))) == amount
            assert sum(Decimal(row[name]) * NANO_PER_USD for row in document["rows"]) == amount
