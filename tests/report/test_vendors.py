"""On whom everything depends, against sums by hand."""

from functools import partial

import pytest

from router.ledger.ledger import Ledger
from tests.report.asking import below, cells, lines, reported, totals
from tests.report.filled import Happened, Tried, at, fill, policy
from tests.stores import Make

HOME, US, ALSO_US = at("home", "", ""), at("us", "Big Inc", "US"), at("us-2", "Big Inc", "US")
CN = at("cn", "Da Ltd", "CN")
TARGETS = (HOME, US, ALSO_US, CN)
POLICY = policy(*TARGETS)
BOTH = {"us": (0.9, 300), "cn": (0.6, 100)}
Was = partial(Happened, considered=False, policy=POLICY.hash)
HAPPENED = (
    Was(tried=(Tried("us", 300),), weighed=BOTH),
    Was(tried=(Tried("us", 100, None, outcome="timeout"), Tried("cn", 100))),
    Was(tried=(Tried("us-2", 400),)),
    Was(tried=(Tried("home"),), weighed={"home": (0.5, 0), **BOTH}),
    Was(tried=(Tried("us", 100),), weighed={"us": (0.9, 100)}),
    Was(status=403, error="no_eligible_target"),
)


@pytest.fixture(scope="module")
def week(new_ledger: Make) -> Ledger:
    return fill(new_ledger(), HAPPENED, [POLICY], (HOME, US, CN))


def test_shares_are_by_legal_entity_and_add_up_with_what_was_spent(week: Ledger) -> None:
    report = reported(week, "vendors")
    shares = ("share_of_spend", "share_of_requests", "share_of_tokens")
    names = ("entity", "jurisdiction", "requests", "attempts", "tokens", "cost_usd", *shares)
    rows = {row[0]: row[1:] for row in cells(report, *names)}
    assert rows["Big Inc"] == ("US", 3, 4, 360, 900, 0.9, 0.5, 0.6)
    assert (rows["Da Ltd"][1], rows["Da Ltd"][4]) == (1, 100)
    assert rows["by-home"][:2] == ("local", 1)
    assert next(line for line in lines(report) if "entity" not in line) == {"requests": 1, "share_of_requests": 1 / 6}
    assert totals(report, "requests", "cost_usd") == totals(reported(week, "spend"), "requests", "cost_usd")
    assert [mark.label for mark in report.plots[0].marks] == ["Big Inc", "Da Ltd", "by-home"]


def test_concentration_is_told_by_entity_and_by_law(week: Ledger) -> None:
    report = reported(week, "vendors")
    laws = cells(below(report, "jurisdictions"), "jurisdiction", "entities", "requests", "share_of_spend")
    assert ("US", 1, 3, 0.9) in laws
    assert [requests for law, _, requests, _ in laws if law is None] == [1]
    index = {
        row[:2]: row[2:] for row in cells(below(report, "concentration"), "by", "of", "largest", "its_share", "hhi")
    }
    assert index["entity", "spend"] == ("Big Inc", 0.9, 8_200)
    assert index["jurisdiction", "requests"][2] == 60**2 + 20**2 + 20**2


WITHOUT = (
    *("entity", "requests", "nobody_else_at_least", "nobody_else_at_most"),
    *("expected_usd", "instead_usd", "change_usd", "pass_rate", "pass_rate_instead"),
)


def test_without_one_the_others_serve_what_they_could(week: Ledger) -> None:
    """Of two requests that chose us, cn could have served one; today's policy has no home."""
    rows = cells(below(reported(week, "vendors", TARGETS), "without"), *WITHOUT)
    assert ("Big Inc", 2, 1, 1, 200, 100, -100, 0.9, 0.6) in rows
    (home,) = (row for row in rows if row[0] == "by-home")
    assert (home[1], home[3], home[5], home[8]) == (1, 0, 100, 0.6)


def test_where_others_differ_in_what_they_could_serve_it_is_bounds(ledger: Ledger) -> None:
    """Of three, one other could serve two, another one: whether the same one is not known."""
    one = Was(tried=(Tried("us"),), weighed={"us": (0.9, 300), "home": (0.5, 50)})
    fill(ledger, [*[Was(tried=(Tried("us"),), weighed=BOTH)] * 2, one])
    (row,) = cells(below(reported(ledger, "vendors", TARGETS), "without"), *WITHOUT)
    assert row[2:6] == (0, 1, 600, 150)


def test_a_target_that_is_not_in_today_s_policy_stands_in_for_none(week: Ledger) -> None:
    rows = cells(below(reported(week, "vendors", (US, HOME)), "without"), *WITHOUT)
    assert {row[0]: (row[2], row[5]) for row in rows} == {"Big Inc": (2, None), "by-home": (0, 300)}


def test_an_empty_ledger_and_one_without_policies(ledger: Ledger) -> None:
    empty = reported(ledger, "vendors")
    assert (empty.rows, empty.totals, empty.below) == ((), None, ())
    fill(ledger, [Was(tried=(Tried("us", 3),))])
    for targets, entity in (((), "us"), (TARGETS, "Big Inc")):
        assert reported(ledger, "vendors", targets).column("entity") == (entity,)
