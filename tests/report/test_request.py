"""One request and one session, with everything that was written of them."""

from decimal import Decimal
from typing import Any

import pytest

from router.budget.budget import Budget
from router.errors import ClientError
from router.ledger.ledger import Ledger
from router.report import requests, session
from router.report.budgets import Pots
from router.report.report import Report
from router.report.request import REPORT
from router.report.spend import REPORT as SPEND
from router.report.standing import Pot, Standing
from router.types.account import Balance
from router.types.outcome import Verdict
from tests.report.asking import below, lines, made
from tests.report.filled import MONDAY_MS, Happened, Tried, fill
from tests.report.happenings import Asked, Was, write

HOUR_MS = 3_600_000
CHECKED = {"role": "cascade", "passed_over": True, "verdicts": (Verdict("tests", 0.25), Verdict("judge", None))}
CASCADE = Was(
    id="r1",
    asked=(Asked(target="small", cost=1_500, more=CHECKED), Asked(target="large", cost=20_000)),
    session="build",
    key="ci",
    held=90_000,
    weighed={"small": (0.5, 1_000), "large": (0.9, 30_000)},
)
_BOOKED = (
    ("r1", "monthly|ci", MONDAY_MS, 90_000, 21_500, "settled"),
    ("r1", "thoughts", 0, 500, None, "held"),
    ("r1", "gone", MONDAY_MS, 7, 7, "settled"),
)


_SAID = (
    "INSERT INTO outcomes (request_id, attempt, target, source, revision, score, weight, was_weight, decides, task,"
    " difficulty, traits, given_ms, told_key) VALUES ('r1', 2, 'large', 'client', 0, 1, 1, 0, 1, '', 0, '', ?, '')"
)


def book(ledger: Ledger) -> None:
    with ledger.writing() as connection:
        for row in _BOOKED:
            connection.execute("INSERT INTO bookings VALUES (?, ?, ?, ?, ?, ?)", row)
        connection.execute(_SAID, (MONDAY_MS + 5,))


def pots() -> Pots:
    declared = (
        Budget(id="monthly", limit_usd=Decimal(1), scope="key"),
        Budget(id="thoughts", limit_thinking_tokens=1_000, window="lifetime"),
    )
    found = tuple(Standing(Pot(account=one.full(MONDAY_MS), budget=one), Balance(0, 0)) for one in declared)
    return Pots(name="budgets", title="", columns=(), rows=(), standings=found)


def facts(report: Report) -> dict[str, Any]:
    return {str(what): value for what, value in report.rows}


def test_a_request_with_its_attempts_candidates_charges_and_outcomes(ledger: Ledger) -> None:
    write(ledger, [CASCADE])
    book(ledger)
    report = made(ledger, REPORT, subject="r1", pots=pots())
    assert {name: facts(report)[name] for name in ("state", "target", "cost_usd", "held_usd", "started")} == {
        "state": "settled",
        "target": "large",
        "cost_usd": "0.0000215",
        "held_usd": "0.00009",
        "started": "2026-11-02T00:00:00Z",
    }
    small, large = lines(below(report, "attempts"))
    assert (small["role"], small["passed_over"], small["verdict"]) == ("cascade", "yes", 0.25)
    assert small["verdicts"] == "tests 0.25, judge –"
    assert (large["cost_usd"], large["answered"], large.get("passed_over")) == (Decimal("0.00002"), "yes", None)
    assert facts(below(report, "decision"))["chosen"] == "small"
    weighed = below(report, "weighed")
    assert weighed.column("cost_usd") == (Decimal("0.000001"), Decimal("0.00003"))
    assert weighed.column("cost_p90_usd") == (Decimal("0.000002"), Decimal("0.00006"))
    assert (weighed.column("p"), weighed.column("why")) == ((0.5, 0.9), ("chosen", "dearer"))
    assert {line["account"]: line for line in lines(below(report, "charges"))} == {
        "monthly|ci": {
            "account": "monthly|ci",
            "unit": "usd",
            "window_start": MONDAY_MS,
            "requests": 1,
            "held": Decimal("0.00009"),
            "charged": Decimal("0.0000215"),
            "state": "settled",
        },
        "thoughts": {"account": "thoughts", "unit": "thinking_tokens", "requests": 1, "held": 500, "state": "held"},
        "gone": {
            "account": "gone",
            "window_start": MONDAY_MS,
            "requests": 1,
            "held": 7,
            "charged": 7,
            "state": "settled",
        },
    }
    assert "Where no unit stands" in below(report, "charges").note
    assert lines(below(report, "outcomes")) == [
        {
            "time": MONDAY_MS + 5,
            "attempt": 2,
            "target": "large",
            "source": "client",
            "score": 1,
            "weight": 1,
            "decides": "yes",
        }
    ]


def test_without_the_store_the_amounts_tell_their_unit(ledger: Ledger) -> None:
    write(ledger, [CASCADE])
    book(ledger)
    charges = below(made(ledger, REPORT, subject="r1"), "charges")
    assert charges.column("unit") == (None, "usd", None)
    assert charges.column("charged") == (7, Decimal("0.0000215"), None)


def test_what_was_only_decided_and_what_is_not_there(ledger: Ledger) -> None:
    write(ledger, [CASCADE])
    with ledger.writing() as connection:
        connection.execute("INSERT INTO decisions SELECT 'd1', decided_ms, policy, document FROM decisions")
    only = made(ledger, REPORT, subject="d1")
    assert "Decided only" in only.note
    assert [one.name for one in only.below][-1] == "weighed"
    for definition, subject in ((REPORT, "r2"), (session.REPORT, "other")):
        with pytest.raises(ClientError, match=subject) as caught:
            made(ledger, definition, subject=subject)
        assert (caught.value.status, caught.value.param) == (404, "subject")


def test_a_decision_of_any_shape_can_be_shown(ledger: Ledger) -> None:
    plain, listed = requests.decision(
        b'{"strategy": "x", "stakes": {"failure_nano": 5, "ok": true}, "causes": [{"by": "a", "count": 2}], "odd":'
        b' [1, 2.5], "names": ["a", "b"], "none": null, "weighed": [{"p": 1, "cost_nano": "much"}, {"first_ms": 3}]}'
    )[:2]
    assert facts(plain) == {
        "strategy": "x",
        "stakes.failure_usd": "0.000000005",
        "stakes.ok": "yes",
        "names": "a, b",
        "none": None,
    }
    assert lines(listed) == [{"by": "a", "count": 2}]


SESSION = (
    CASCADE,
    Was(id="r2", asked=(Asked(target="small", cost=7),), session="build", key="ci", at_ms=MONDAY_MS + 9 * HOUR_MS),
    Was(id="r3", asked=(Asked(target="small", cost=5),), session="other", key="ci"),
    Was(id="r4", status=402, error="budget_exceeded", session="build", key="web", at_ms=MONDAY_MS + HOUR_MS),
)


def test_a_session_has_its_requests_in_order_and_adds_up(ledger: Ledger) -> None:
    write(ledger, SESSION)
    book(ledger)
    report = made(ledger, session.REPORT, subject="build", pots=pots())
    names = ("id", "key", "target", "status", "cost_usd")
    assert list(zip(*(report.column(name) for name in names), strict=True)) == [
        ("r1", "ci", "large", "200", Decimal("0.0000215")),
        ("r4", "web", None, "budget_exceeded", 0),
        ("r2", "ci", "small", "200", Decimal("0.000000007")),
    ]
    spend = made(ledger, SPEND, where={"session": ["build"]})
    assert report.total("cost_usd") == spend.total("cost_usd") == Decimal("0.000021507")
    assert (report.total("input"), report.total("output")) == (300, 60)
    assert [line["target"] for line in lines(below(report, "targets"))[:2]] == ["large", "small"]
    assert sum(line.get("cost_usd", 0) for line in lines(below(report, "targets"))) == spend.total("cost_usd")
    assert "charges" in [one.name for one in report.below]
    early = made(ledger, session.REPORT, subject="build", until_ms=MONDAY_MS + 1)
    assert early.column("id") == ("r1",)


def test_the_latest_come_newest_first_with_the_state_of_what_is_not_settled(ledger: Ledger) -> None:
    happened = [Happened(id=f"r{number}", tried=(Tried("x", 3),), at_ms=MONDAY_MS + number) for number in range(5)]
    fill(ledger, [*happened, Happened(id="r5", ends="held", at_ms=MONDAY_MS + 5)])
    with ledger.reading() as connection:
        newest = requests.latest(connection, 3)
        assert newest.column("id") == ("r5", "r4", "r3")
        assert newest.column("status") == ("held", "200", "200")
        assert newest.column("cost_usd") == (None, Decimal("0.000000003"), Decimal("0.000000003"))
        assert len(requests.latest(connection, 9).rows) == 6
        assert requests.account(connection, "nobody") is None
        assert requests.attempts(connection, "r1").column("target") == ("x",)
