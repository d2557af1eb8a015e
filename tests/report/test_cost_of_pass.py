"""What a right answer costs, against ledgers that were worked out by hand."""

from typing import Any

import pytest

from router.ledger.facts import passes
from router.ledger.facts.query import Query
from router.ledger.ledger import Ledger
from router.report.report import Shape
from router.types.task import Task
from tests.report.asking import below, cells, nano, reported
from tests.report.filled import Happened, Judgement, Tried, fill
from tests.stores import Make
from tests.tables import each_row

RIGHT, WRONG = Judgement(1.0), Judgement(0.0)
BIG = Tried("big", 9_000, thinking=None)


def judged(name: str, cost: int, right: int, wrong: int, **rest: Any) -> list[Happened]:
    """Answers of one target, all of them judged by clients."""
    tried = (Tried(name, cost, thinking=cost // 4),)
    return [Happened(tried=tried, judged=(score,), **rest) for score in [RIGHT] * right + [WRONG] * wrong]


# small: 20 answers at 1,000 nano-USD and 2 attempts at 500 that failed, 12 right; big: 10 at 9,000, all but one right.
# In code none was judged, in maths hardly any; in factual nothing is known. What judges are asked is not theirs.
OFFERS = {"big": (0.8, 7_000), "small": (0.3, 900)}
WEEK = (
    *judged("small", 1_000, 12, 8),
    *[Happened(tried=(Tried("small", 500, thinking=0, outcome="cut"),))] * 2,
    *judged("big", 9_000, 9, 1),
    *[Happened(tried=(BIG,), weighed=OFFERS, task=Task.CODE, difficulty=0.45)] * 5,
    *judged("small", 1_000, 1, 2, task=Task.MATHS),
    Happened(tried=(BIG,), task=Task.FACTUAL),
    Happened(tried=(Tried("big", 77),), route="judge"),
)


@pytest.fixture(scope="module")
def week(new_ledger: Make) -> Ledger:
    return fill(new_ledger(), WEEK)


def test_each_cell_is_what_one_works_out_by_hand(week: Ledger) -> None:
    found = reported(week, "cost-of-pass")
    names = ("target", "task", "difficulty", "attempts", "answers", "judged", "basis", "cost_usd")
    assert cells(found, *names) == [
        ("small", "chat", 0, 22, 20, 20, "judged", 21_000),
        ("big", "chat", 0, 10, 10, 10, "judged", 90_000),
        ("big", "code", 2, 5, 5, 0, "expected", 45_000),
        ("big", "factual", 0, 1, 1, 0, "unknown", 9_000),
        ("small", "maths", 0, 3, 3, 3, "few judged", 3_000),
    ]
    assert cells(found, "pass_rate", "cost_per_answer_usd", "cost_of_pass_usd", "thinking_usd") == [
        (0.6, 1_050, 1_750, 5_000),
        (0.9, 9_000, 10_000, 22_500),
        (0.8, 9_000, 11_250, None),
        (None, 9_000, None, None),
        (pytest.approx(1 / 3), 1_000, 3_000, 750),
    ]
    # Intervals are there where somebody judged: Wilson's interval of 12 in 20.
    low, high = cells(found, "pass_rate_low", "pass_rate_high")[0]
    assert (low, high) == pytest.approx((0.38658, 0.78119), abs=1e-5)
    small, big, expected, unknown, _ = cells(found, "cost_of_pass_low_usd", "cost_of_pass_usd", "cost_of_pass_high_usd")
    assert 1_050 / high > small[0] > 1_050 / high / 1.1
    assert 1_050 / low < small[2] < 1_050 / low * 1.1
    assert big[0] < big[1] < big[2]
    assert (expected[0], expected[2]) == (None, None)
    assert unknown == (None, None, None)


def test_by_target_each_task_counts_by_its_answers(week: Ledger) -> None:
    found = reported(week, "cost-of-pass", by="target")
    names = ("target", "answers", "judged", "basis", "pass_rate", "cost_usd")
    # small: 20 answers at 0.6 and 3 at a third; big: 10 at 0.9 and 5 at 0.8, and one of which nothing is known.
    assert cells(found, *names) == [
        ("small", 23, 23, "mixed", pytest.approx((20 * 0.6 + 3 / 3) / 23), 24_000),
        ("big", 16, 10, "mixed", pytest.approx((10 * 0.9 + 5 * 0.8) / 15), 144_000),
    ]
    assert cells(below(reported(week, "cost-of-pass"), "cost-of-pass"), *names) == cells(found, *names)


@each_row("by", ["", "target", "task", "task,difficulty"])
def test_it_adds_up_with_spend(week: Ledger, by: str) -> None:
    found = reported(week, "cost-of-pass", by=by)
    assert nano(found.total("cost_usd")) + 77 == nano(reported(week, "spend").total("cost_usd"))
    assert nano(found.total("cost_usd")) == sum(cost for (cost,) in cells(found, "cost_usd"))
    assert found.total("attempts") == sum(found.column("attempts"))  # type: ignore[arg-type]


def test_the_frontier_tells_what_each_target_adds(week: Ledger) -> None:
    """In chat small is the lowest by 10,000 ÷ 1,750; elsewhere no other is known."""
    names = ("target", "cells", "lowest", "share", "alone", "frontier_usd", "without_usd", "adds")
    frontier = below(reported(week, "cost-of-pass"), "frontier")
    assert cells(frontier, *names) == [
        ("small", 2, 2, pytest.approx(33 / 38), 1, 1_750, 10_000, pytest.approx(10_000 / 1_750)),
        ("big", 2, 1, pytest.approx(5 / 38), 1, 1_750, 1_750, 1.0),
    ]
    assert cells(below(frontier, "frontier-by-task"), "task", "target", "alone", "adds") == [
        ("chat", "small", 0, pytest.approx(10_000 / 1_750)),
        ("code", "big", 1, None),
        ("maths", "small", 1, None),
    ]


def test_filters_hold_for_costs_and_for_judgements(week: Ledger) -> None:
    found = reported(week, "cost-of-pass", where=("target=big", "task=chat,code"))
    assert cells(found, "target", "task", "pass_rate") == [("big", "chat", 0.9), ("big", "code", 0.8)]
    assert cells(reported(week, "cost-of-pass", where=("difficulty=2",)), "task") == [("code",)]
    assert reported(week, "cost-of-pass", until="2026-11-01").rows == ()


def test_the_plot_has_each_target_and_joins_the_frontier(week: Ledger) -> None:
    [plot] = reported(week, "cost-of-pass").plots
    assert plot.shape is Shape.POINTS
    marks = [(mark.label, mark.x, mark.joined) for mark in plot.marks]
    assert marks == [("small", pytest.approx(24_000 / 23), True), ("big", 9_000, True)]
    for mark in plot.marks:
        assert mark.low is not None
        assert mark.high is not None
        assert mark.low < mark.value < mark.high


@each_row(
    "happened, rows",
    [
        ([], []),
        (judged("small", 1_000, 1, 0), [(1, 1.0, 1_000, None)]),
        (judged("small", 1_000, 0, 12), [(12, 0.0, None, None)]),
    ],
)
def test_of_nothing_of_one_and_of_no_right_answer(
    new_ledger: Make, happened: list[Happened], rows: list[tuple[object, ...]]
) -> None:
    found = reported(fill(new_ledger(), happened), "cost-of-pass")
    assert cells(found, "answers", "pass_rate", "cost_of_pass_usd", "cost_of_pass_high_usd") == rows


def test_an_attempt_counts_once_however_often_it_was_judged(ledger: Ledger) -> None:
    """Said again, by several, by halves, by verifiers that only see form, and not at all."""

    def asked(*judgements: Judgement, expected: bool = True) -> Happened:
        return Happened(
            tried=(Tried("small", 1_000),), judged=judgements, weighed={"small": (0.7, 1_000)} if expected else {}
        )

    form, misformed = (Judgement(score, "verifier.json_schema", decides=False) for score in (1.0, 0.0))
    happened = [
        asked(RIGHT, WRONG),  # the later counts
        asked(WRONG, RIGHT),
        asked(RIGHT, Judgement(0.0, "client.other")),  # ½
        asked(Judgement(1.0, "judge.big", weight=0.5)),  # half a judgement, right
        asked(form, WRONG),  # form says nothing where somebody knows
        asked(misformed),  # wrong
        asked(form),  # 0.7 of one, but no judgement
        asked(misformed, expected=False),  # beside yeses that say nothing this would say too much
        asked(form, expected=False),
        asked(RIGHT, Judgement(None)),  # taken back
        asked(Judgement(1.0, weight=0.0)),  # kept, and not counted
        asked(),
    ]
    with fill(ledger, happened).reading() as connection:
        found = passes.sums(connection, Query(table="passes", by=("target",), measures=passes.MEASURES))
    assert found == {("small",): (6, 5_500_000, 2_000_000, 1, 1_000_000, 700_000)}


@each_row("costs", [(1, 1), (1, 10**13), (0, 0), (0, 1), (999, 1_001, 3)])
def test_amounts_of_any_size_have_an_interval(new_ledger: Make, costs: tuple[int, ...]) -> None:
    ledger = fill(new_ledger(), [Happened(tried=(Tried("small", cost),), judged=(RIGHT,)) for cost in costs])
    names = ("cost_of_pass_low_usd", "cost_of_pass_usd", "cost_of_pass_high_usd")
    [(low, value, high)] = cells(reported(ledger, "cost-of-pass"), *names)
    assert value == round(sum(costs) / len(costs))
    assert 0 <= low <= value <= high <= 10_000 * max(1, value)


def test_by_application_and_template_it_is_their_own(new_ledger: Make) -> None:
    """One of 10 tickets is right at the small target, and all summaries: each template says so for itself."""
    tickets = judged("small", 1_000, 1, 9, app="desk", template="0a")
    ledger = fill(
        new_ledger(),
        [*tickets, *judged("small", 2_000, 10, 0, app="news", template="0b"), *judged("big", 9_000, 10, 0)],
    )
    asked = ("answers", "judged", "pass_rate", "cost_per_answer_usd")
    by_template = reported(ledger, "cost-of-pass", by="template,target")
    assert cells(by_template, "template", "target", *asked) == [
        ("0a", "small", 10, 10, 0.1, 1_000),
        ("0b", "small", 10, 10, 1.0, 2_000),
        (None, "big", 10, 10, 1.0, 9_000),
    ]
    by_app = reported(ledger, "cost-of-pass", by="app", where=("target=small",))
    assert cells(by_app, "app", *asked) == [("desk", 10, 10, 0.1, 1_000), ("news", 10, 10, 1.0, 2_000)]
    spent = reported(ledger, "spend", by="app,template")
    assert cells(spent, "app", "template", "cost_usd") == [
        ("news", "0b", 20_000),
        ("desk", "0a", 10_000),
        (None, None, 90_000),
    ]
