"""Spend against ledgers that were added up by hand, and against the ledger itself for any ledger at all."""

import sqlite3
from datetime import datetime
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from router.errors import ClientError
from router.ledger.ledger import Ledger
from router.ledger.postgres.wire import StatementRefused
from router.report import spend
from router.report.asked import Question
from router.report.read import answer, read
from router.report.report import Report, Shape
from router.report.spend import BY
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


HOUR_MS = 3_600_000
AFTER_MS = MONDAY_MS + 30 * DAY_MS


def report(
    ledger: Ledger, by: str, since: str = "", until: str = "", where: tuple[str, ...] = (), zone: str = ""
) -> Report:
    question = Question(by=by, since=since, until=until, where=where, zone=zone)
    with ledger.reading() as connection:
        connection.execute("BEGIN")
        return answer(connection, "spend", question, at_ms=AFTER_MS)


def nano(amount: object) -> int:
    assert isinstance(amount, Decimal)
    return int(amount * NANO_PER_USD)


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
    return _filled(new_ledger())


@pytest.fixture
def own_week(ledger: Ledger) -> Ledger:
    return _filled(ledger)


def _filled(ledger: Ledger) -> Ledger:
    fill(ledger, WEEK)
    with ledger.writing() as connection:
        connection.execute("UPDATE keys SET team = 'shop', organisation = 'acme' WHERE name = 'web'")
    return ledger


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


@pytest.mark.parametrize(
    ("where", "cost", "requests"),
    [
        ("target=mini", 3_500, 2),
        ("target=mini,local", 3_507, 3),
        ("target!=mini", 7, 4),
        ("target=(none)", 0, 3),
        ("tag=red", 1_507, 2),
        ("tag=blue", 1_500, 1),
        ("tag!=blue", 2_007, 5),
        ("tag=(none)", 2_000, 4),
        ("tag!=(none)", 1_507, 2),
        ("key=web", 1_500, 2),
        ("organisation=acme", 1_500, 2),
        ("task=code", 1_500, 1),
        ("session=nobody's", 0, 0),
    ],
)
def test_filters(week: Ledger, where: str, cost: int, requests: int) -> None:
    found = report(week, "route", where=(where,))
    assert (nano(found.total("cost_usd")), found.total("requests")) == (cost, requests)


def test_all_filters_hold(week: Ledger) -> None:
    found = report(week, "target", where=("tag=red", "class!=pii"))
    assert [row[0] for row in found.rows] == ["mini"]
    assert nano(found.total("cost_usd")) == 1_500


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


STRANGE = ('say "hi"', "back\\slash", "{}", "日本", "[1]", "<b>", "=1+1", "‮evil", "👩‍💻", "a=b", "x!")


def test_tags_keep_their_quotes_and_backslashes(ledger: Ledger) -> None:
    fill(ledger, [Happened(id="a", tried=(Tried("local", 3),), tags=STRANGE)])
    assert set(report(ledger, "tag").column("tag")) == set(STRANGE)


def test_strange_tags_can_be_asked_for(ledger: Ledger) -> None:
    fill(ledger, [Happened(id="a", tags=STRANGE), Happened(id="b")])
    for tag in STRANGE:
        assert report(ledger, "route", where=(f"tag={tag}",)).total("requests") == 1
        assert report(ledger, "route", where=(f"tag!={tag}",)).total("requests") == 1


# A day lasts from one midnight to the next as people there count them.
DAYS = [
    # On 2026-10-25 Berlin has 25 hours, on 2026-03-29 it has 23; Lord Howe moves its clock by half an hour.
    ("Europe/Berlin", "2026-10-25", 25),
    ("Europe/Berlin", "2026-03-29", 23),
    ("Europe/Berlin", "2026-07-01", 24),
    ("Asia/Kolkata", "2026-07-01", 24),
    ("Asia/Kathmandu", "2026-07-01", 24),
    ("Australia/Lord_Howe", "2026-04-05", 24.5),
    ("Pacific/Apia", "2026-07-01", 24),
    ("UTC", "2026-07-01", 24),
]


@pytest.mark.parametrize(("zone", "day", "hours"), DAYS)
def test_days_begin_at_midnight_in_their_zone(ledger: Ledger, zone: str, day: str, hours: float) -> None:
    begins_ms = round(datetime.fromisoformat(day).replace(tzinfo=ZoneInfo(zone)).timestamp() * 1000)
    ends_ms = begins_ms + round(hours * HOUR_MS)
    times = (begins_ms - 1, begins_ms, ends_ms - 1, ends_ms)
    fill(ledger, [Happened(id=str(at), tried=(Tried("local", 1),), at_ms=at) for at in times])
    found = report(ledger, "day", zone=zone)
    assert [
        count for label, count in zip(found.column("day"), found.column("requests"), strict=True) if label == day
    ] == [2]
    assert found.column("requests") == (1, 2, 1)
    assert zone in found.note
    within = report(
        ledger, "day", since=day, until=datetime.fromtimestamp(ends_ms / 1000, ZoneInfo(zone)).isoformat(), zone=zone
    )
    assert within.column("day") == (day,)


def test_an_hour_that_the_clock_shows_twice_is_two(ledger: Ledger) -> None:
    first_ms = 1_792_886_400_000  # 2026-10-25T00:00Z, 02:00 in Berlin, and 02:00 again an hour later
    fill(ledger, [Happened(id=str(n), at_ms=first_ms + n * HOUR_MS) for n in range(-1, 3)])
    assert report(ledger, "hour", zone="Europe/Berlin").column("hour") == (
        "2026-10-25T01:00+02:00",
        "2026-10-25T02:00+02:00",
        "2026-10-25T02:00+01:00",
        "2026-10-25T03:00+01:00",
    )


def test_the_chart_of_days_shows_days_without_spend(own_week: Ledger) -> None:
    fill(own_week, [Happened(id="late", tried=(Tried("local", 9),), at_ms=MONDAY_MS + 4 * DAY_MS)])
    (plot,) = report(own_week, "day").plots
    assert plot.shape is Shape.DAYS
    assert [(mark.label[-2:], mark.value) for mark in plot.marks] == [
        ("02", 3_500), ("03", 7), ("04", 90_000), ("05", 0), ("06", 9),
    ]  # fmt: skip


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


@pytest.mark.parametrize(
    ("where", "says"),
    [
        ("target", "is no filter"),
        ("=mini", "is no filter"),
        ("", "is no filter"),
        ("colour=red", "can't be filtered by 'colour'. Known: organisation"),
        ("day=2026-11-02", "can't be filtered by 'day'"),
        ("target=minni", "there is no target 'minni'. Known: local, mini"),
        ("tag=green,red", "there is no tag 'green'. Known: blue, red"),
        ("session=\0", "no label"),
        ("target=", "there is no target ''"),
    ],
)
def test_an_unknown_filter_says_what_is_known(week: Ledger, where: str, says: str) -> None:
    with pytest.raises(ClientError, match=says) as caught:
        report(week, "target", where=(where,))
    assert (caught.value.status, caught.value.param) == (400, "where")


def test_a_report_can_not_write(week: Ledger) -> None:
    refused = pytest.raises((sqlite3.OperationalError, StatementRefused), match=r"(?i)read_?only")
    with week.reading() as connection, refused:
        connection.execute("DELETE FROM requests")


def test_a_report_reads_while_the_gateway_writes(own_week: Ledger) -> None:
    with own_week.writing() as writing:
        writing.execute("BEGIN")
        writing.execute("DELETE FROM requests")
        assert read(own_week, "spend", Question(by="day")).total("requests") == 6
