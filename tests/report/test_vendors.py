"""On whom everything depends, against sums by hand."""

from decimal import Decimal

import pytest

from router.ledger.ledger import Ledger
from router.report.spend import REPORT as SPEND
from router.report.vendors import REPORT
from tests.report.asking import below, lines, made
from tests.report.happenings import Asked, Was, write
from tests.report.towns import at, policy

HOME, US, ALSO_US, CN = (
    at("home", "", ""),
    at("us", "Big Inc", "US"),
    at("us-2", "Big Inc", "US"),
    at("cn", "Da Ltd", "CN"),
)
TARGETS = (HOME, US, ALSO_US, CN)
NAMED = {"home": HOME, "us": US, "cn": CN}
POLICY = policy("file", *TARGETS)
_FAILED = Asked(target="us", outcome="timeout", cost=100)
BOTH = {"us": (0.9, 300), "cn": (0.6, 100)}
HAPPENED = (
    Was(id="a", asked=(Asked(target="us", cost=300),), weighed=BOTH, policy=POLICY.hash),
    Was(
        id="b",
        asked=(_FAILED, Asked(target="cn", cost=100)),
        policy=POLICY.hash,
    ),
    Was(id="c", asked=(Asked(target="us-2", cost=400),), policy=POLICY.hash),
    Was(id="d", asked=(Asked(target="home"),), weighed={"home": (0.5, 0), **BOTH}, policy=POLICY.hash),
    Was(id="e", asked=(Asked(target="us", cost=100),), weighed={"us": (0.9, 100)}, policy=POLICY.hash),
    Was(id="f", status=403, error="no_eligible_target", policy=POLICY.hash),
)


@pytest.fixture
def filled(ledger: Ledger) -> Ledger:
    return write(ledger, HAPPENED, [POLICY], **NAMED)


def test_shares_are_by_legal_entity_and_add_up_with_what_was_spent(filled: Ledger) -> None:
    report = made(filled, REPORT)
    rows = {line.get("entity"): line for line in lines(report)}
    assert rows["Big Inc"] == {
        "entity": "Big Inc",
        "jurisdiction": "US",
        "requests": 3,
        "attempts": 4,
        "tokens": 360,
        "cost_usd": Decimal("0.0000009"),
        "share_of_spend": 0.9,
        "share_of_requests": 0.5,
        "share_of_tokens": 0.6,
    }
    assert (rows["Da Ltd"]["requests"], rows["Da Ltd"]["cost_usd"]) == (1, Decimal("0.0000001"))
    assert (rows["by-home"]["jurisdiction"], rows["by-home"]["requests"]) == ("local", 1)
    assert rows[None] == {"requests": 1, "share_of_requests": 1 / 6}
    spend = made(filled, SPEND)
    assert [report.total(name) for name in ("requests", "cost_usd")] == [
        spend.total(name) for name in ("requests", "cost_usd")
    ]
    assert [mark.label for mark in report.plots[0].marks] == ["Big Inc", "Da Ltd", "by-home"]


def test_concentration_is_told_by_entity_and_by_law(filled: Ledger) -> None:
    report = made(filled, REPORT)
    laws = {line.get("jurisdiction"): line for line in lines(below(report, "jurisdictions"))}
    assert (laws["US"]["entities"], laws["US"]["requests"], laws["US"]["share_of_spend"]) == (1, 3, 0.9)
    assert laws[None]["requests"] == 1
    index = {(line["by"], line["of"]): line for line in lines(below(report, "concentration"))}
    assert index["entity", "spend"] == {
        "by": "entity",
        "of": "spend",
        "largest": "Big Inc",
        "its_share": 0.9,
        "hhi": 8_200,
    }
    assert index["jurisdiction", "requests"]["hhi"] == (60**2 + 20**2 + 20**2)


def test_without_one_the_others_serve_what_they_could(filled: Ledger) -> None:
    """Of two requests that chose us, cn could have served one; today's policy has no home."""
    report = made(filled, REPORT, TARGETS)
    rows = {line["entity"]: line for line in lines(below(report, "without"))}
    assert rows["Big Inc"] == {
        "entity": "Big Inc",
        "requests": 2,
        "nobody_else_at_least": 1,
        "nobody_else_at_most": 1,
        "expected_usd": Decimal("0.0000002"),
        "instead_usd": Decimal("0.0000001"),
        "change_usd": Decimal("-0.0000001"),
        "pass_rate": 0.9,
        "pass_rate_instead": 0.6,
    }
    home = rows["by-home"]
    assert (home["requests"], home["instead_usd"], home["pass_rate_instead"]) == (1, Decimal("0.0000001"), 0.6)
    assert "nobody_else_at_most" not in home


def test_where_others_differ_in_what_they_could_serve_it_is_bounds(ledger: Ledger) -> None:
    """Of three, one other could serve two, another one: whether the same one nobody knows."""
    two = [Was(id=f"a{number}", asked=(Asked(target="us"),), weighed=BOTH) for number in range(2)]
    one = Was(id="b", asked=(Asked(target="us"),), weighed={"us": (0.9, 300), "home": (0.5, 50)})
    write(ledger, [*two, one])
    (row,) = lines(below(made(ledger, REPORT, TARGETS), "without"))
    assert ("nobody_else_at_least" in row, row["nobody_else_at_most"]) == (False, 1)
    assert (row["expected_usd"], row["instead_usd"]) == (Decimal("0.0000006"), Decimal("0.00000015"))


def test_who_is_not_in_today_s_policy_stands_in_for_nobody(filled: Ledger) -> None:
    rows = {line["entity"]: line for line in lines(below(made(filled, REPORT, (US, HOME)), "without"))}
    assert (rows["Big Inc"]["nobody_else_at_least"], rows["by-home"]["instead_usd"]) == (2, Decimal("0.0000003"))


def test_an_empty_ledger_and_one_without_policies(ledger: Ledger) -> None:
    empty = made(ledger, REPORT)
    assert (empty.rows, empty.totals, empty.below) == ((), None, ())
    write(ledger, [Was(id="a", asked=(Asked(target="us", cost=3),))])
    assert made(ledger, REPORT).column("entity") == ("us",)
    assert made(ledger, REPORT, TARGETS).column("entity") == ("Big Inc",)
