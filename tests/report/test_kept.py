"""Reports of what is old: packed, and expired. A filter that a page offers is answered from what is kept for good."""

import pytest

from router.errors import ClientError
from router.ledger.ledger import Ledger
from router.report import requests
from router.report.report import Report
from tests.report import test_egress as egress
from tests.report.asking import below, reported, totals
from tests.report.filled import DAY_MS, MONDAY_MS, Happened, Tried, fill
from tests.report.ledgers import aged, answers, filled

OUTLIVE = {"reliability", "vendors", "local-vs-api", "egress", "budgets"}
"""Reports of which every question without a grouping is answered though the rows are gone."""


def test_age_changes_nothing(ledger: Ledger) -> None:
    with filled(ledger).writing() as connection:
        connection.execute("DELETE FROM live_requests WHERE state = 'held'")
    fresh = answers(ledger)
    refused = [name for name, answer in fresh.items() if isinstance(answer, str)]
    assert refused == []
    packed = answers(aged(ledger))
    with ledger.reading() as connection:
        assert connection.execute("SELECT COUNT(*) FROM live_attempts").fetchone() == (0,)
    assert [name for name in fresh if packed[name] != fresh[name]] == []
    expired = answers(aged(ledger, expired=True))
    outlive = [name for name in fresh if name.split()[0] in OUTLIVE and "'by'" not in name]
    assert len(outlive) > len(OUTLIVE)
    assert [name for name in outlive if expired[name] != fresh[name]] == []


def test_the_latest_packed_requests_are_listed_and_expired_ones_gone(ledger: Ledger) -> None:
    filled(ledger)

    def latest() -> Report:
        with ledger.reading() as connection:
            return requests.latest(connection, 5)

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


LONG_AGO = [
    Happened(id=str(n), tried=(Tried("mini", n),), key="a", tags=("red",), at_ms=MONDAY_MS + n * DAY_MS // 2 - 1)
    for n in range(6)
] + [Happened(id="6", at_ms=MONDAY_MS + 3 * DAY_MS - 1)]


def test_spend_outlives_its_rows(ledger: Ledger) -> None:
    fill(ledger, LONG_AGO)
    groupings = ("target", "team,tag,model", "day", "class", "hour,route")
    before = [reported(ledger, "spend", by=by, since="60d") for by in groupings]
    aged(ledger, expired=True)
    assert [reported(ledger, "spend", by=by, since="60d") for by in groupings] == before
    assert {totals(report, "cost_usd") for report in before} == {(15,)}


def test_what_has_expired_says_what_can_still_be_asked(ledger: Ledger) -> None:
    aged(fill(ledger, LONG_AGO), expired=True)
    for by, where in (("session", ()), ("team,class", ()), ("class", ("key=a",))):
        with pytest.raises(ClientError, match="Rows before 2026-11-05T00:00:00Z have expired") as refused:
            reported(ledger, "spend", by=by, where=where)
        assert (refused.value.status, refused.value.param) == (400, "since")
        assert "session," not in refused.value.message
        assert reported(ledger, "spend", by=by, since="2026-11-05").total("requests") == 0
