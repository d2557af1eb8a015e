"""Reports of what is old: packed, and expired. A filter that a page offers is answered from what is kept for good."""

import pytest

from router.errors import ClientError
from router.ledger.ledger import Ledger
from router.ledger.packed.expire import expire
from router.ledger.packed.pack import pack
from router.report import budgets, egress, local_vs_api, reliability, request, requests, session, vendors
from router.report.report import Report
from router.report.source import Definition
from tests.report.asking import NOW_MS, below, made
from tests.report.filled import DAY_MS, MONDAY_MS
from tests.report.happenings import Asked, Was, write
from tests.report.test_egress import NOW as WENT_MS
from tests.report.test_egress import SOUND, Went, forge
from tests.report.test_egress import write as send
from tests.report.towns import at, policy

TARGETS = (at("gpu", "", "", hourly=1_000_000), at("us", "Big Inc", "US"), at("cn", "Da Ltd", "CN"))
POLICY = policy("file", *TARGETS)
CHOICE = {"gpu": (0.5, 100), "us": (0.9, 300_000)}
HAPPENED = [
    Was(
        id=f"r{number:02}",
        asked=(Asked(target="gpu", outcome="timeout", cost=5), Asked(target="us", cost=number, first_ms=7))
        if number % 3
        else (Asked(target="gpu", cost=number),),
        at_ms=MONDAY_MS + number * 1_000_000,
        session="build",
        stream=bool(number % 2),
        key="ci",
        tags=("red",),
        weighed=CHOICE,
        policy=POLICY.hash,
        overhead_us=100 + number,
    )
    for number in range(40)
]
ABOUT = (reliability, vendors, local_vs_api, egress, budgets)
FILTERS = {
    "target": "us",
    "route": "auto",
    "class": "internal",
    "region": None,
    "policy": POLICY.hash,
}


def aged(ledger: Ledger, *, expired: bool) -> None:
    while pack(ledger, NOW_MS):
        pass
    if expired:
        assert expire(ledger, NOW_MS, DAY_MS) == 1


def questions() -> list[tuple[Definition, dict[str, str | None]]]:
    filtered = ((one.REPORT, {name: FILTERS[name]}) for one in ABOUT for name in one.REPORT.where)
    return [*((one.REPORT, {}) for one in ABOUT), *filtered]


def answers(ledger: Ledger) -> list[Report]:
    where = [(one, {name: [label] for name, label in by.items()}) for one, by in questions()]
    return [made(ledger, one, TARGETS, where=by) for one, by in where]


def test_age_changes_nothing(ledger: Ledger) -> None:
    write(ledger, HAPPENED, [POLICY], **{one.id: one for one in TARGETS})
    fresh = answers(ledger)
    assert all(report.rows for report in fresh[:4])
    for expired in (False, True):
        aged(ledger, expired=expired)
        assert answers(ledger) == fresh


def test_packed_requests_and_sessions_are_whole_and_expired_ones_gone(ledger: Ledger) -> None:
    write(ledger, HAPPENED, [POLICY])
    asked = [(request.REPORT, "r04"), (session.REPORT, "build")]

    def latest() -> Report:
        with ledger.reading() as connection:
            return requests.latest(connection, 5)

    fresh = [*(made(ledger, one, subject=subject) for one, subject in asked), latest()]
    aged(ledger, expired=False)
    again = [*(made(ledger, one, subject=subject) for one, subject in asked), latest()]
    assert [sorted(one.rows) if one.name == "request" else one.rows for one in again] == [
        sorted(one.rows) if one.name == "request" else one.rows for one in fresh
    ]
    assert [one.below for one in again] == [one.below for one in fresh]
    assert latest().column("id")[0] == "r39"
    aged(ledger, expired=True)
    with pytest.raises(ClientError):
        made(ledger, request.REPORT, subject="r04")
    assert latest().rows == ()


def test_violations_among_packed_rows_are_named_and_among_expired_ones_counted(ledger: Ledger) -> None:
    send(ledger, SOUND)
    forge(ledger, "UPDATE attempts SET target = 'cn' WHERE request_id = 'r000001'")
    aged(ledger, expired=False)
    packed = made(ledger, egress.REPORT)
    assert (packed.sound, packed.total("violations")) == (False, 1)
    assert below(packed, "violations").column("request") == ("r000001",)
    aged(ledger, expired=True)
    gone = made(ledger, egress.REPORT)
    assert (gone.sound, gone.total("violations"), gone.below[0].rows) == (False, 1, ())
    assert "0 of 1" in gone.below[0].note


def test_expired_rows_about_the_end_of_evidence_can_not_be_checked(ledger: Ledger) -> None:
    """Some went before it ended, some after: which, nobody can say any more."""
    send(ledger, [Went("internal", "ends", at_ms=WENT_MS + number * 400) for number in range(5)])
    aged(ledger, expired=False)
    assert made(ledger, egress.REPORT).total("violations") == 2
    aged(ledger, expired=True)
    gone = made(ledger, egress.REPORT)
    assert (gone.total("violations"), gone.total("unchecked")) == (0, 5)
    assert "their rows are gone" in gone.note
