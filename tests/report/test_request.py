"""One request and one session, with everything that was written of them."""

from decimal import Decimal

import pytest

from router.budget.budget import Budget
from router.errors import ClientError
from router.ledger.ledger import Ledger
from router.report import request
from router.report.budgets import BudgetAccount, BudgetReport, BudgetStanding
from router.report.report import Report
from router.types.account import Balance
from router.types.attempt import Verdict
from tests.ledger.plain import Row, booking, outcome, put
from tests.report.asking import below, cells, lines, reported, totals
from tests.report.filled import HOUR_MS, MONDAY_MS, Happened, Tried, fill

CHECKED = {"role": "cascade", "passed_over": True, "verdicts": (Verdict("tests", 0.25), Verdict("judge", None))}
CASCADE = Happened(
    id="r1",
    session="build",
    key="ci",
    held=90_000,
    tried=(Tried("small", 1_500, more=CHECKED), Tried("large", 20_000)),
    weighed={"small": (0.5, 1_000), "large": (0.9, 30_000)},
)


MONTHLY = Budget(id="monthly", limit_usd=Decimal(1), scope="key")
THOUGHTS = Budget(id="thoughts", limit_thinking_tokens=1_000, window="lifetime")
STANDINGS = tuple(
    BudgetStanding(BudgetAccount(account=pot.full(MONDAY_MS), budget=pot), Balance(0, 0)) for pot in (MONTHLY, THOUGHTS)
)
POTS = BudgetReport(name="budgets", title="", columns=(), rows=(), standings=STANDINGS)


def filled(ledger: Ledger, *more: Happened) -> Ledger:
    fill(ledger, [CASCADE, *more])
    monthly: Row = {"window_start_ms": MONDAY_MS, "held": 90_000, "charged": 21_500, "state": "settled"}
    put(ledger, "bookings", **booking("r1", "monthly|ci", **monthly))
    put(ledger, "bookings", **booking("r1", "thoughts", window_start_ms=0, held=500))
    put(ledger, "bookings", **booking("r1", "gone", **monthly | {"held": 7, "charged": 7}))
    put(ledger, "outcomes", **outcome("r1", attempt=2, target="large", given_ms=MONDAY_MS + 5))
    return ledger


def facts(report: Report) -> dict[str, object]:
    return {str(name): value for name, value in report.rows}


def test_a_request_with_its_attempts_candidates_charges_and_outcomes(ledger: Ledger) -> None:
    report = reported(filled(ledger), "request", pots=POTS, subject="r1")
    shown = {"state": "settled", "target": "large", "started": "2026-11-02T00:00:00Z", "cost_usd": "0.0000215"}
    assert facts(report).items() >= {**shown, "held_usd": "0.00009"}.items()
    small, large = lines(below(report, "attempts"))
    verdicts = {"role": "cascade", "passed_over": "yes", "verdict": 0.25, "verdicts": "tests 0.25, judge –"}
    assert small.items() >= verdicts.items()
    assert (large["cost_usd"], large["answered"], large.get("passed_over")) == (Decimal("0.00002"), "yes", None)
    assert facts(below(report, "decision"))["chosen"] == "small"
    assert cells(below(report, "weighed"), "cost_usd", "cost_p90_usd", "p", "why") == [
        (1_000, 2_000, 0.5, "chosen"),
        (30_000, 60_000, 0.9, "dearer"),
    ]
    charges = below(report, "charges")
    names = ("account", "unit", "window_start", "requests", "held", "charged", "state")
    assert sorted(zip(*map(charges.column, names), strict=True)) == [
        ("gone", None, MONDAY_MS, 1, 7, 7, "settled"),
        ("monthly|ci", "usd", MONDAY_MS, 1, Decimal("0.00009"), Decimal("0.0000215"), "settled"),
        ("thoughts", "thinking_tokens", None, 1, 500, None, "held"),
    ]
    assert "Where no unit stands" in charges.note
    outcome = {"time": MONDAY_MS + 5, "attempt": 2, "target": "large", "source": "client"}
    assert lines(below(report, "outcomes")) == [{**outcome, "score": 1, "weight": 1, "decides": "yes"}]
    # Without the store the amounts tell their unit.
    charges = below(reported(ledger, "request", subject="r1"), "charges")
    assert charges.column("unit") == (None, "usd", None)
    assert charges.column("charged") == (7, Decimal("0.0000215"), None)


def test_what_was_only_decided_and_what_is_not_there(ledger: Ledger) -> None:
    fill(ledger, [CASCADE])
    with ledger.writing() as connection:
        connection.execute("INSERT INTO live_decisions SELECT 'd1', decided_ms, policy, document FROM live_decisions")
    only = reported(ledger, "request", subject="d1")
    assert "Decided only" in only.note
    assert "weighed" in [part.name for part in only.below]
    for name, subject in (("request", "r2"), ("session", "other")):
        with pytest.raises(ClientError, match=subject) as caught:
            reported(ledger, name, subject=subject)
        assert (caught.value.status, caught.value.param) == (404, "subject")


def test_a_decision_of_any_shape_can_be_shown() -> None:
    plain, listed = request.decision(
        b'{"strategy": "x", "stakes": {"failure_nano": 5, "ok": true}, "causes": [{"by": "a", "count": 2}], "odd":'
        b' [1, 2.5], "names": ["a", "b"], "none": null, "weighed": [{"p": 1, "cost_nano": "much"}, {"first_ms": 3}]}'
    )[:2]
    stakes = {"stakes.failure_usd": "0.000000005", "stakes.ok": "yes"}
    assert facts(plain) == {"strategy": "x", **stakes, "names": "a, b", "none": None}
    assert lines(listed) == [{"by": "a", "count": 2}]


def test_a_session_has_its_requests_in_order_and_adds_up(ledger: Ledger) -> None:
    filled(
        ledger,
        Happened(id="r2", tried=(Tried("small", 7),), session="build", key="ci", at_ms=MONDAY_MS + 9 * HOUR_MS),
        Happened(id="r3", tried=(Tried("small", 5),), session="other", key="ci"),
        Happened(id="r4", status=402, error="budget_exceeded", session="build", key="web", at_ms=MONDAY_MS + HOUR_MS),
    )
    report = reported(ledger, "session", pots=POTS, subject="build")
    assert cells(report, "id", "key", "target", "status", "cost_usd") == [
        ("r1", "ci", "large", "200", 21_500),
        ("r4", "web", None, "budget_exceeded", 0),
        ("r2", "ci", "small", "200", 7),
    ]
    spend = reported(ledger, "spend", where=("session=build",))
    assert totals(spend, "cost_usd") == (21_507,)
    assert totals(report, "cost_usd", "input", "output") == (21_507, 300, 60)
    targets = cells(below(report, "targets"), "target", "cost_usd")
    assert [name for name, _ in targets[:2]] == ["large", "small"]
    assert sum(cost or 0 for _, cost in targets) == 21_507
    assert "charges" in [part.name for part in report.below]
    early = reported(ledger, "session", subject="build", until="2026-11-02T00:00:01")
    assert early.column("id") == ("r1",)


def test_the_latest_come_newest_first_with_the_state_of_what_is_not_settled(ledger: Ledger) -> None:
    happened = [Happened(id=f"r{number}", tried=(Tried("x", 3),), at_ms=MONDAY_MS + number) for number in range(5)]
    fill(ledger, [*happened, Happened(id="r5", ends="held", at_ms=MONDAY_MS + 5)])
    with ledger.reading() as connection:
        newest = cells(request.latest(connection, 3), "id", "status", "cost_usd")
        assert newest == [("r5", "held", None), ("r4", "200", 3), ("r3", "200", 3)]
        assert len(request.latest(connection, 9).rows) == 6
