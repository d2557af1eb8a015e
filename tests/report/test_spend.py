"""Spend against ledgers that were added up by hand."""

import sqlite3
from decimal import Decimal
from typing import Any

import pytest

from router.errors import ClientError
from router.ledger.ledger import Ledger
from router.ledger.postgres.wire import StatementRefused
from router.report import spend
from router.report.asked import Question
from router.report.read import read
from router.report.report import Report
from router.report.spend import BY
from router.types.usage import Usage
from tests.report.filled import MONDAY_MS, Happened, Tried, fill
from tests.report.spending import filled, nano, report
from tests.stores import Make

COUNTED = ("requests", "attempts", "errors", "failed_attempts", "input_tokens", "output_tokens", "reasoning_tokens")
RARE = ("reasoning_unknown", "unpriced", "cost_usd", "recovered_usd", "held_usd")


def lines(found: Report) -> list[tuple[Any, ...]]:
    """Amounts in nano-USD, so that the expectation is the sum one does by hand."""
    columns = (found.columns[0].name, *COUNTED, *RARE)
    return [tuple(map(number, row)) for row in zip(*map(found.column, columns), strict=True)]


def total(found: Report) -> tuple[Any, ...]:
    return tuple(number(found.total(name)) for name in (*COUNTED, *RARE))


def number(cell: object) -> object:
    return nano(cell) if isinstance(cell, Decimal) else cell


@pytest.fixture(scope="module")
def week(new_ledger: Make) -> Ledger:
    """Only to be read."""
    return filled(new_ledger())


@pytest.fixture
def own_week(ledger: Ledger) -> Ledger:
    return filled(ledger)


# label, requests, attempts, errors, failed attempts, input, output, reasoning, unknown, unpriced, cost, recovered, held
AT_MINI = (2, 3, 0, 1, 200, 70, 30, 0, 0, 3_500, 0, 0)
AT_LOCAL = (1, 1, 0, 0, 100, 20, None, 1, 0, 7, 0, 0)
NOWHERE = (3, 0, 2, 0, None, None, None, 0, 0, 0, 90_000, 40_000)
OF_WEB = (2, 1, 1, 0, 100, 50, 30, 0, 0, 1_500, 90_000, 0)
NOBODYS = (4, 3, 1, 1, 200, 40, 0, 1, 0, 2_007, 0, 40_000)
ALL = (6, 4, 2, 1, 300, 90, 30, 1, 0, 3_507, 90_000, 40_000)
EXPECTED: dict[str, list[tuple[Any, ...]]] = {
    "target": [("mini", *AT_MINI), ("local", *AT_LOCAL), (None, *NOWHERE)],
    "model": [("lab/mini", *AT_MINI), ("house/model", *AT_LOCAL), (None, *NOWHERE)],
    "provider": [("house", 3, 4, 0, 1, 300, 90, 30, 1, 0, 3_507, 0, 0), (None, *NOWHERE)],
    "region": [(None, *ALL)],
    "effort": [("none", 3, 4, 0, 1, 300, 90, 30, 1, 0, 3_507, 0, 0), (None, *NOWHERE)],
    "session": [(None, *ALL)],
    "organisation": [("acme", *OF_WEB), (None, *NOBODYS)],
    "team": [("shop", *OF_WEB), (None, *NOBODYS)],
    "key": [
        ("web", *OF_WEB),
        ("batch", 1, 1, 0, 0, 100, 20, 0, 0, 0, 2_000, 0, 0),
        (None, 3, 2, 1, 1, 100, 20, None, 1, 0, 7, 0, 40_000),
    ],
    "tag": [
        ("red", 2, 3, 0, 1, 200, 70, 30, 1, 0, 1_507, 0, 0),
        ("blue", 1, 1, 0, 0, 100, 50, 30, 0, 0, 1_500, 0, 0),
        (None, 4, 1, 2, 0, 100, 20, 0, 0, 0, 2_000, 90_000, 40_000),
    ],
    "day": [
        ("2026-11-02", 2, 2, 0, 0, 200, 70, 30, 0, 0, 3_500, 0, 0),
        ("2026-11-03", 2, 2, 1, 1, 100, 20, None, 1, 0, 7, 0, 0),
        ("2026-11-04", 2, 0, 1, 0, None, None, None, 0, 0, 0, 90_000, 40_000),
    ],
    "hour": [
        ("2026-11-02T00:00Z", 1, 1, 0, 0, 100, 50, 30, 0, 0, 1_500, 0, 0),
        ("2026-11-02T23:00Z", 1, 1, 0, 0, 100, 20, 0, 0, 0, 2_000, 0, 0),
        ("2026-11-03T00:00Z", 2, 2, 1, 1, 100, 20, None, 1, 0, 7, 0, 0),
        ("2026-11-04T00:00Z", 2, 0, 1, 0, None, None, None, 0, 0, 0, 90_000, 40_000),
    ],
    "route": [
        ("auto", 5, 4, 1, 1, 300, 90, 30, 1, 0, 3_507, 90_000, 40_000),
        ("code", 1, 0, 1, 0, None, None, None, 0, 0, 0, 0, 0),
    ],
    "class": [
        ("internal", 5, 2, 2, 0, 200, 70, 30, 0, 0, 3_500, 90_000, 40_000),
        ("pii", 1, 2, 0, 1, 100, 20, None, 1, 0, 7, 0, 0),
    ],
    "task": [
        ("chat", 5, 3, 2, 1, 200, 40, 0, 1, 0, 2_007, 90_000, 40_000),
        ("code", 1, 1, 0, 0, 100, 50, 30, 0, 0, 1_500, 0, 0),
    ],
}


def test_every_grouping_has_its_expectation() -> None:
    assert set(EXPECTED) == set(BY)


@pytest.mark.parametrize("by", BY)
def test_rows_are_what_one_adds_up_by_hand(week: Ledger, by: str) -> None:
    found = report(week, by)
    assert lines(found) == EXPECTED[by]
    assert total(found) == ALL


def test_several_groupings_at_once(week: Ledger) -> None:
    found = report(week, "key,day")
    assert found.title == "Spend by key and day"
    assert [(*row[:2], nano(cost)) for row, cost in zip(found.rows, found.column("cost_usd"), strict=True)] == [
        ("batch", "2026-11-02", 2_000),
        ("web", "2026-11-02", 1_500),
        ("web", "2026-11-04", 0),
        (None, "2026-11-03", 7),
        (None, "2026-11-04", 0),
    ]
    assert found.totals is not None
    assert found.totals[:2] == ("total", None)


def test_tokens_stand_in_disjoint_buckets(ledger: Ledger) -> None:
    usage = Usage(
        input_uncached=100, cache_read=40, cache_write=30, cache_write_1h=3, input_image=2,
        output_visible=20, output_reasoning=60, output_audio=5,
    )  # fmt: skip
    fill(ledger, [Happened(id="a", tried=(Tried("mini", 3, usage),))])
    found = report(ledger, "target")
    parts = [column.name for column in found.columns if column.name.startswith(("input_", "cache_", "output_"))]
    sizes = {name: found.total(name) for name in parts if not name.endswith(("_tokens", "_usd"))}
    known = {name: size for name, size in sizes.items() if size}
    assert known == {
        "input_uncached": 100, "cache_read": 40, "cache_write": 30, "cache_write_1h": 3, "input_image": 2,
        "output_visible": 20, "output_audio": 5,
    }  # fmt: skip
    assert (found.total("input_tokens"), found.total("output_tokens")) == (175, 85)
    assert found.total("reasoning_tokens") == 60
    assert found.total("thinking_share") == pytest.approx(60 / 85)


def test_the_thinking_share_is_of_what_tells_thinking_apart(week: Ledger) -> None:
    shares = dict(
        zip(report(week, "target").column("target"), report(week, "target").column("thinking_share"), strict=True)
    )
    assert shares == {"mini": pytest.approx(30 / 70), "local": None, None: None}


def test_what_caches_saved(own_week: Ledger) -> None:
    with own_week.writing() as connection:
        connection.execute("UPDATE attempts SET cache_saved = 11 WHERE target = 'mini'")
        connection.execute("UPDATE attempts SET cache_saved = -4 WHERE target = 'local'")
    found = report(own_week, "target")
    assert list(map(nano, found.column("cache_saved_usd"))) == [33, -4, 0]
    assert nano(found.total("cache_saved_usd")) == 29
    assert "Cache saved" in found.note


@pytest.mark.parametrize("by", BY)
def test_the_window_holds_its_start_and_not_its_end(week: Ledger, by: str) -> None:
    tuesday = report(week, by, "2026-11-03", "2026-11-04")
    assert (tuesday.total("requests"), tuesday.total("cost_usd")) == (2, Decimal("0.000000007"))


def test_an_attempt_belongs_to_the_window_of_its_request(ledger: Ledger) -> None:
    """Else a report by target and one by day would not agree about midnight."""
    fill(ledger, [Happened(id="a", tried=(Tried("local", 5),), at_ms=MONDAY_MS - 1)])
    with ledger.writing() as connection:
        connection.execute("UPDATE attempts SET started_ms = ?", (MONDAY_MS,))
    for by in BY:
        assert report(ledger, by, "2026-11-02").total("requests") == 0
        assert report(ledger, by, "", "2026-11-02").total("cost_usd") == Decimal("0.000000005")


def test_a_request_settled_after_its_recovery_is_charged_what_it_cost(ledger: Ledger) -> None:
    """The sweeper took it for dead."""
    late = Happened(id="a", ends="recovered", held=900, tried=(Tried("mini", 5, None), Tried("local", 20)))
    fill(ledger, [late])
    for by in BY:
        found = report(ledger, by)
        assert (nano(found.total("cost_usd")), nano(found.total("recovered_usd"))) == (25, 0)
        assert sum(map(nano, found.column("cost_usd"))) == 25


def test_a_window_without_requests_says_so(week: Ledger) -> None:
    found = report(week, "target,day", "2026-12-01", "2026-12-02", where=("target=mini",))
    assert (found.rows, found.plots) == ((), ())
    assert found.total("cost_usd") == 0
    assert found.total("input_tokens") is None
    assert "Nothing to show in this window with these filters." in found.note


def test_an_empty_ledger_costs_nothing_and_counts_no_token(ledger: Ledger) -> None:
    found = report(fill(ledger, []), "target", where=("target=mini",))
    assert found.rows == ()
    assert total(found) == (0, 0, 0, 0, None, None, None, 0, 0, 0, 0, 0)


def test_attempts_without_a_price_are_counted_and_explained(ledger: Ledger) -> None:
    fill(ledger, [Happened(id="a", tried=(Tried("free", 0, None), Tried("local", 3)))])
    assert "Unpriced" not in report(ledger, "target").note
    with ledger.writing() as connection:
        connection.execute("UPDATE attempts SET cost_source = 'unpriced' WHERE number = 1")
    for by in BY:
        found = report(ledger, by)
        assert found.total("unpriced") == sum(n for n in found.column("unpriced") if isinstance(n, int)) == 1
        assert "worst case" in found.note


def test_a_key_that_was_replaced_under_its_name_is_one_row(ledger: Ledger) -> None:
    fill(ledger, [Happened(id=name, tried=(Tried("local", 3),), key=name) for name in "ab"])
    with ledger.writing() as connection:
        connection.execute("UPDATE keys SET name = 'web'")
    assert lines(report(ledger, "key"))[0][:2] == ("web", 2)


def test_bars_add_up_to_the_total(ledger: Ledger) -> None:
    fill(ledger, [Happened(id=str(n), tried=(Tried(f"t{n:02}", n + 1),)) for n in range(20)])
    (plot,) = report(ledger, "target").plots
    assert sum(mark.value for mark in plot.marks) == sum(range(1, 21))
    assert plot.marks[-1].label == "8 others"


@pytest.mark.parametrize(("by", "first"), [("target", 0), ("day,target", 1)])
def test_of_very_many_rows_the_least_are_one(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, by: str, first: int
) -> None:
    monkeypatch.setattr(spend, "MOST_ROWS", 3)
    fill(ledger, [Happened(id=str(n), tried=(Tried(f"t{n:02}", n + 1),)) for n in range(20)])
    found = report(ledger, by)
    assert len(found.rows) == 4
    assert found.rows[-1][first] == "(17 others)"
    assert sum(map(nano, found.column("cost_usd"))) == nano(found.total("cost_usd")) == sum(range(1, 21))


@pytest.mark.parametrize(
    "by", ["models", "model; DROP TABLE requests", "BY", "started_ms", "team,", ",", "hour,quarter"]
)
def test_an_unknown_grouping_names_the_known_ones(week: Ledger, by: str) -> None:
    with pytest.raises(ClientError, match="Known: organisation, team, key, tag, route, model, target"):
        report(week, by)


def test_a_report_can_not_write(week: Ledger) -> None:
    refused = pytest.raises((sqlite3.OperationalError, StatementRefused), match=r"(?i)read_?only")
    with week.reading() as connection, refused:
        connection.execute("DELETE FROM requests")


def test_a_report_reads_while_the_gateway_writes(own_week: Ledger) -> None:
    with own_week.writing() as writing:
        writing.execute("BEGIN")
        writing.execute("DELETE FROM requests")
        assert read(own_week, "spend", Question(by="day")).total("requests") == 6
