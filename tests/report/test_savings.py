"""What routing saved, against ledgers that were worked out by hand."""

import pytest

from router.errors import ClientError
from router.ledger.ledger import Ledger
from router.types.task import Task
from tests.report.asking import below, cells, nano, reported
from tests.report.filled import DAY_MS, HOUR_MS, MONDAY_MS, Happened, Judgement, Tried, fill, target
from tests.stores import Make
from tests.tables import each_row

BOTH = {"small": (0.6, 1_000), "big": (0.9, 9_000)}
ALONE = {"small": (0.6, 1_000)}
SMALL, BIG = (Tried("small", 1_500),), (Tried("big", 10_000),)
TWO = (Tried("small", 1_500, more={"passed_over": True}), *BIG)
# What each costs, times how often: small 1,500 (1,000 expected), big 10,000 (9,000 expected).
WEEK = (
    *[Happened(tried=SMALL, weighed=BOTH)] * 40,
    *[Happened(tried=BIG, weighed=dict(reversed(BOTH.items())), at_ms=MONDAY_MS + DAY_MS, task=Task.CODE)] * 10,
    *[Happened(tried=SMALL, weighed=ALONE, route="private")] * 5,
    Happened(tried=(Tried("small", 200, outcome="cut"),), weighed=BOTH),
    *[Happened(tried=TWO, weighed=BOTH, strategy="cascade")] * 2,
    *[Happened(tried=BIG, weighed=BOTH, explored="best")] * 3,
    Happened(tried=(Tried("big", 700),), weighed={"big": (0.9, 500)}, route="judge"),
)
OF_BIG = 40 * 1_500 + 10 * 10_000 + 2 * 11_500 + 3 * 10_000
CLIENTS = OF_BIG + 5 * 1_500 + 200
MONEY = ("spent_usd", "baseline_usd", "saved_usd")


@pytest.fixture(scope="module")
def week(new_ledger: Make) -> Ledger:
    return fill(new_ledger(), WEEK)


def test_savings_are_what_one_works_out_by_hand(week: Ledger) -> None:
    found = reported(week, "savings")
    assert cells(found, "against", "target", "requests", "could_serve", "correction", *MONEY) == [
        # 5 could have gone nowhere else; of 13 of its own requests big's forecasts are not corrected
        ("always best", "big", 55, 55 / 60, 1.0, CLIENTS + 700, 502_700, 281_300),
        # small's were half as dear again as forecast, in 45 requests
        ("always cheapest", "small", 60, 1.0, 1.5, CLIENTS + 700, 90_000 + 200, -131_200),
    ]
    assert CLIENTS - OF_BIG + 55 * 9_000 == 502_700
    # A saving that costs correctness says so.
    assert cells(found, "pass_rate", "baseline_pass_rate") == [
        (pytest.approx((42 * 0.6 + 13 * 0.9) / 55), pytest.approx(0.9)),
        (pytest.approx((47 * 0.6 + 13 * 0.9) / 60), pytest.approx(0.6)),
    ]
    assert found.note.startswith("Cheaper than always big, and expected to be right less often: 67.1 %, not 90.0 %. ")
    assert "always small" not in found.note
    # big: 12.6 right answers fewer for 281,300 less; small: 3.9 more for 131,200 more
    assert cells(found, "per_pass_usd") == [(round(281_300 / 12.6),), (round(131_200 / 3.9),)]


def test_what_routing_itself_costs_is_told(week: Ledger) -> None:
    found = below(reported(week, "savings"), "outlay")
    assert cells(found, "what", "number", "spent_usd") == [
        ("answers given", 61, CLIENTS - 3_000),
        ("answers passed over", 2, 3_000),
        ("judges", 1, 700),
        ("explored requests, part of the above", 3, 30_000),
    ]
    assert nano(found.total("spent_usd")) == nano(reported(week, "spend").total("cost_usd"))


@each_row("by", ["route", "task", "day", "route,task"])
def test_groups_add_up(week: Ledger, by: str) -> None:
    whole = cells(reported(week, "savings"), *MONEY)
    assert whole[0][0] == nano(reported(week, "spend").total("cost_usd"))
    found = cells(reported(week, "savings", by=by), "against", *MONEY)
    for baseline, sums in zip(("always best", "always cheapest"), whole, strict=True):
        rows = [row for name, *row in found if name == baseline]
        assert tuple(map(sum, zip(*rows, strict=True))) == sums


def test_by_route_and_by_day(week: Ledger) -> None:
    rows = cells(reported(week, "savings", by="route"), "against", "route", "saved_usd", "requests")
    assert [row for name, *row in rows if name == "always best"] == [
        ["auto", 55 * 9_000 - OF_BIG, 55],
        ["private", 0, 0],
        ["judge", -700, 0],
    ]
    by_route = below(reported(week, "savings"), "savings-by-route")
    assert cells(by_route, "against", "route", "saved_usd", "requests") == rows
    days = reported(week, "savings", by="day", zone="Europe/Berlin").column("day")
    assert days == ("2026-11-02", "2026-11-02", "2026-11-03", "2026-11-03")


def test_hours_of_a_day_are_one(ledger: Ledger) -> None:
    hours = enumerate((0.5, 0.5, 0.8))
    fill(ledger, [Happened(tried=SMALL, weighed={"small": (p, 1)}, at_ms=MONDAY_MS + n * HOUR_MS) for n, p in hours])
    row = cells(reported(ledger, "savings", by="day"), "day", "requests", "pass_rate", "baseline_pass_rate")[0]
    assert row == ("2026-11-02", 3, pytest.approx(0.6), pytest.approx(0.6))


def test_a_filter_holds_for_what_was_spent_and_for_what_it_would_have_been(week: Ledger) -> None:
    [best, *_] = cells(reported(week, "savings", where=("task=code",)), *MONEY)
    assert best == (100_000, 90_000, -10_000)
    [only] = cells(reported(week, "savings", where=("route=private",), baseline="big"), "against", *MONEY)[-1:]
    assert only == ("as asked", 7_500, 7_500, 0)


def test_any_target_can_be_the_baseline(week: Ledger) -> None:
    row = cells(reported(week, "savings", baseline="small"), "against", "saved_usd")[-1]
    assert row == ("as asked", -131_200)
    # of the policy, and no request could have gone there
    row = cells(reported(week, "savings", [target("new")], baseline="new"), "requests", "saved_usd")[-1]
    assert row == (0, -700)
    with pytest.raises(ClientError, match=r"no target 'bug'\. Known: big, small\."):
        reported(week, "savings", baseline="bug")


def test_judgements_stand_beside_it(ledger: Ledger) -> None:
    """Small is right 6 times in 10 where both were judged; where only it was, nothing can be compared."""

    def judged(tried: tuple[Tried, ...], right: int, wrong: int, difficulty: float) -> list[Happened]:
        scores = [1.0] * right + [0.0] * wrong
        return [
            Happened(tried=tried, weighed=BOTH, judged=(Judgement(score),), difficulty=difficulty) for score in scores
        ]

    fill(ledger, [*judged(SMALL, 18, 12, 0.1), *judged(BIG, 9, 1, 0.1), *judged(SMALL, 0, 20, 0.9)])
    found = below(reported(ledger, "savings"), "quality")
    assert cells(found, "target", "answers", "pass_rate", "baseline_pass_rate") == [
        ("big", 40, pytest.approx((30 * 0.6 + 10 * 0.9) / 40), pytest.approx(0.9)),
        ("small", 60, pytest.approx((27 + 0) / 60), pytest.approx((40 * 0.6 + 20 * 0) / 60)),
    ]
    for low, rate, high in cells(found, "baseline_pass_rate_low", "baseline_pass_rate", "baseline_pass_rate_high"):
        assert low < rate < high
    assert all(one.name != "quality" for one in reported(ledger, "savings", where=("route=auto",)).below)


@each_row("happened", [[], [Happened(tried=SMALL)]], ids=["nothing", "one request"])
def test_without_forecasts_there_is_nothing_to_compare_with(new_ledger: Make, happened: list[Happened]) -> None:
    found = reported(fill(new_ledger(), happened), "savings")
    # Of what would have been tried costs are expected, and no pass rates.
    assert cells(found, "against") == [("always cheapest",)] * len(happened)
    assert nano(below(found, "outlay").total("spent_usd")) == 1_500 * len(happened)


def test_one_hour_gives_no_interval_and_many_do(new_ledger: Make) -> None:
    found = reported(fill(new_ledger(), [Happened(tried=SMALL, weighed=BOTH)]), "savings")
    assert cells(found, *MONEY, "saved_low_usd") == [(1_500, 9_000, 7_500, None), (1_500, 1_000, -500, None)]
    # The same every hour: what was saved is as certain as anything.
    hours = [Happened(tried=SMALL, weighed=BOTH, at_ms=MONDAY_MS + hour * HOUR_MS) for hour in range(40)]
    found = reported(fill(new_ledger(), hours), "savings")
    assert cells(found, "saved_low_usd", "saved_usd", "saved_high_usd")[0] == (40 * 7_500,) * 3
    [plot] = found.plots
    assert [(mark.label, mark.value, mark.low) for mark in plot.marks] == [
        ("spent", 60_000, None),
        ("always best: big", 360_000, 360_000),
        ("always cheapest: small", 60_000, 60_000),
    ]
