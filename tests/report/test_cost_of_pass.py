"""What a right answer costs, against ledgers that were worked out by hand, and against pass rates that are known."""

from math import exp, nan
from random import Random

import pytest

from router.ledger.facts import passes
from router.ledger.facts.query import Query
from router.ledger.ledger import Ledger
from router.report.frontier import hull
from router.report.intervals import Estimate, quotient, rate, skewed, weighted
from router.report.judged import Facts, pooled
from router.report.report import Shape
from router.types.task import Task
from tests.report.answers import below, cells, nano, reported
from tests.report.traffic import Asked, Judgement, Try, written
from tests.stores import Make

RIGHT, WRONG = Judgement(score=1.0), Judgement(score=0.0)


def same(asked: Asked, times: int) -> list[Asked]:
    return [asked] * times


def judged(name: str, cost: int, right: int, wrong: int, **rest: object) -> list[Asked]:
    """Answers of one target, all of them judged by clients."""
    told = [(RIGHT,)] * right + [(WRONG,)] * wrong
    return [Asked(tries=(Try(target=name, cost=cost, thinking=cost // 4),), judgements=one, **rest) for one in told]  # type: ignore[arg-type]


# small: 20 answers at 1,000 nano-USD and 2 attempts at 500 that failed, 12 right; big: 10 at 9,000, all but one right.
# In code nobody judged, in maths hardly anybody; in factual nobody knows anything. What judges are asked is not theirs.
WEEK = (
    *judged("small", 1_000, 12, 8),
    *same(Asked(tries=(Try(target="small", cost=500, thinking=0, outcome="cut"),)), 2),
    *judged("big", 9_000, 9, 1),
    *same(
        Asked(
            tries=(Try(target="big", cost=9_000),),
            offers={"big": (0.8, 7_000), "small": (0.3, 900)},
            task=Task.CODE,
            difficulty=0.45,
        ),
        5,
    ),
    *judged("small", 1_000, 1, 2, task=Task.MATHS),
    Asked(tries=(Try(target="big", cost=9_000),), task=Task.FACTUAL),
    Asked(tries=(Try(target="big", cost=77),), route="judge"),
)


@pytest.fixture(scope="module")
def week(new_ledger: Make) -> Ledger:
    return written(new_ledger(), WEEK)


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


def test_intervals_are_there_where_somebody_judged(week: Ledger) -> None:
    found = reported(week, "cost-of-pass")
    low, high = cells(found, "pass_rate_low", "pass_rate_high")[0]
    # Wilson's interval of 12 in 20.
    assert low == pytest.approx(0.38658, abs=1e-5)
    assert high == pytest.approx(0.78119, abs=1e-5)
    [small, big, expected, unknown, _] = cells(
        found, "cost_of_pass_low_usd", "cost_of_pass_usd", "cost_of_pass_high_usd"
    )
    assert 1_050 / high > small[0] > 1_050 / high / 1.1
    assert 1_050 / low < small[2] < 1_050 / low * 1.1
    assert big[0] < big[1] < big[2]
    assert expected[0] is None
    assert expected[2] is None
    assert unknown == (None, None, None)


def test_by_target_each_task_counts_by_its_answers(week: Ledger) -> None:
    found = reported(week, "cost-of-pass", by="target")
    names = ("target", "answers", "judged", "basis", "pass_rate", "cost_usd")
    # small: 20 answers at 0.6 and 3 at a third; big: 10 at 0.9 and 5 at 0.8, and one of which nobody knows.
    assert cells(found, *names) == [
        ("small", 23, 23, "mixed", pytest.approx((20 * 0.6 + 3 / 3) / 23), 24_000),
        ("big", 16, 10, "mixed", pytest.approx((10 * 0.9 + 5 * 0.8) / 15), 144_000),
    ]
    assert cells(below(reported(week, "cost-of-pass"), "cost-of-pass"), *names) == cells(found, *names)


def test_what_it_tells_adds_up_with_spend(week: Ledger) -> None:
    for by in ("", "target", "task", "task,difficulty"):
        found = reported(week, "cost-of-pass", by=by)
        assert nano(found.total("cost_usd")) + 77 == nano(reported(week, "spend").total("cost_usd"))
        assert nano(found.total("cost_usd")) == sum(cost for (cost,) in cells(found, "cost_usd"))
        assert found.total("attempts") == sum(found.column("attempts"))  # type: ignore[arg-type]


def test_the_frontier_tells_what_each_target_adds(week: Ledger) -> None:
    """In chat small is the lowest by 10,000 ÷ 1,750; elsewhere nobody else is known."""
    names = ("target", "cells", "lowest", "share", "alone", "frontier_usd", "without_usd", "adds")
    assert cells(below(reported(week, "cost-of-pass"), "frontier"), *names) == [
        ("small", 2, 2, pytest.approx(33 / 38), 1, 1_750, 10_000, pytest.approx(10_000 / 1_750)),
        ("big", 2, 1, pytest.approx(5 / 38), 1, 1_750, 1_750, 1.0),
    ]


def test_by_task_the_frontier_has_those_that_are_on_it(week: Ledger) -> None:
    found = below(below(reported(week, "cost-of-pass"), "frontier"), "frontier-by-task")
    assert cells(found, "task", "target", "alone", "adds") == [
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
    assert [(mark.label, mark.x, mark.joined) for mark in plot.marks] == [
        ("small", pytest.approx(24_000 / 23), True),
        ("big", 9_000, True),
    ]
    for mark in plot.marks:
        assert mark.low is not None
        assert mark.high is not None
        assert mark.low < mark.value < mark.high


def test_a_ledger_of_nothing_and_of_one_request(ledger: Ledger) -> None:
    assert reported(ledger, "cost-of-pass").rows == ()
    written(ledger, judged("small", 1_000, 1, 0))
    [row] = cells(reported(ledger, "cost-of-pass"), "answers", "pass_rate", "cost_of_pass_usd", "cost_of_pass_high_usd")
    assert row == (1, 1.0, 1_000, None)


def test_where_no_answer_was_right_there_is_no_cost_of_pass(ledger: Ledger) -> None:
    written(ledger, judged("small", 1_000, 0, 12))
    assert cells(reported(ledger, "cost-of-pass"), "pass_rate", "cost_of_pass_usd") == [(0.0, None)]


def test_an_attempt_counts_once_whoever_judged_it(ledger: Ledger) -> None:
    """Said again, by several, by halves, by verifiers that only see form, and by nobody."""

    def asked(*told: Judgement, expected: bool = True) -> Asked:
        offers = {"small": (0.7, 1_000)} if expected else {}
        return Asked(tries=(Try(target="small", cost=1_000),), judgements=told, offers=offers)

    form = Judgement(score=1.0, source="verifier.json_schema", decides=False)
    misformed = Judgement(score=0.0, source="verifier.json_schema", decides=False)
    half = Judgement(score=1.0, source="judge.big", weight=0.5)
    written(
        ledger,
        [
            asked(RIGHT, WRONG),  # the later counts
            asked(WRONG, RIGHT),
            asked(RIGHT, Judgement(score=0.0, source="client.other")),  # ½
            asked(half),  # half a judgement, right
            asked(form, WRONG),  # form says nothing where somebody knows
            asked(misformed),  # wrong
            asked(form),  # 0.7 of one, but no judgement
            asked(misformed, expected=False),  # beside yeses that say nothing this would say too much
            asked(form, expected=False),
            asked(RIGHT, Judgement(score=None)),  # taken back
            asked(Judgement(score=1.0, weight=0.0)),  # kept, and not counted
            asked(),
        ],
    )
    with ledger.reading() as connection:
        found = passes.sums(connection, Query(table="passes", by=("target",), measures=passes.MEASURES))
    assert found == {("small",): (6, 5_500_000, 2_000_000, 1, 1_000_000, 700_000)}


@pytest.mark.parametrize(
    ("share", "low", "high"),
    [((81, 263), 0.2553, 0.3662), ((15, 148), 0.0624, 0.1605), ((0, 20), 0, 0.1611), ((1, 29), 0.0061, 0.1718)],
)
def test_wilson_s_interval_of_known_examples(share: tuple[int, int], low: float, high: float) -> None:
    """Newcombe 1998, Statistics in Medicine 17, 857, table I."""
    found = rate(share[0] / share[1], share[1])
    assert found.low == pytest.approx(low, abs=1e-4)
    assert found.high == pytest.approx(high, abs=1e-4)


def test_a_mean_of_one_is_that_one() -> None:
    one = Estimate(0.5, 0.2, 0.9)
    assert weighted([(3, one)]) == pytest.approx(one)
    assert weighted([(1, one), (1, Estimate(0.5))]) == Estimate(0.5)


@pytest.mark.parametrize(
    ("points", "edge"),
    [
        ([], []),
        ([(1, 0.5, "a")], ["a"]),
        ([(1, 0.5, "a"), (2, 0.4, "b")], ["a"]),
        ([(1, 0.5, "a"), (2, 0.6, "b"), (3, 0.9, "c")], ["a", "c"]),
        ([(1, 0.5, "a"), (2, 0.8, "b"), (3, 0.9, "c"), (9, 0.9, "d")], ["a", "b", "c"]),
        ([(0, 0.5, "a"), (0, 0.6, "b")], ["b"]),
    ],
)
def test_nothing_on_the_frontier_is_beaten_by_a_mixture(
    points: list[tuple[float, float, str]], edge: list[str]
) -> None:
    assert hull(points) == edge


@pytest.mark.parametrize(("p", "judgements"), [(0.9, 40), (0.5, 15), (0.7, 400)])
def test_intervals_hold_what_is_true_as_often_as_they_say(p: float, judgements: int) -> None:
    """Log-normal costs of a known mean, failed attempts, and judgements of a part of the answers."""
    chance, spread, held = Random(judgements), 0.9, 0  # noqa: S311
    true = 20_000 * exp(spread**2 / 2) * 1.2 / p
    for _ in range(600):
        costs = [round(20_000 * chance.lognormvariate(0, spread)) for _ in range(480)]
        right = sum(chance.random() < p for _ in range(judgements))
        facts = Facts(
            attempts=480,
            answers=400,
            cost=sum(costs),
            answers_cost=sum(costs[:400]),
            cost_square=sum((-(-cost // 1_000)) ** 2 for cost in costs),
            judged=judgements,
            weight_e6=judgements * 10**6,
            passed_e6=right * 10**6,
        )
        found = pooled([facts]).cost_of_pass
        held += found is not None and (found.low or nan) <= true <= (found.high or nan)
    assert 0.93 <= held / 600 <= 0.98


@pytest.mark.parametrize("costs", [(1, 1), (1, 10**13), (0, 0), (0, 1), (999, 1_001, 3)])
def test_amounts_of_any_size_have_an_interval(ledger: Ledger, costs: tuple[int, ...]) -> None:
    written(ledger, [Asked(tries=(Try(target="small", cost=cost),), judgements=(RIGHT,)) for cost in costs])
    [(low, value, high)] = cells(
        reported(ledger, "cost-of-pass"), "cost_of_pass_low_usd", "cost_of_pass_usd", "cost_of_pass_high_usd"
    )
    assert value == round(sum(costs) / len(costs))
    assert 0 <= low <= value <= high <= 10_000 * max(1, value)


def test_a_simulated_ledger_gives_back_what_it_was_made_of(ledger: Ledger) -> None:
    chance = Random(7)  # noqa: S311
    truth = {"small": (2_000, 0.55), "big": (30_000, 0.92)}
    made = []
    for _ in range(400):
        name = chance.choice(list(truth))
        cost, p = truth[name]
        told = (Judgement(score=float(chance.random() < p)),) if chance.random() < 0.5 else ()
        made.append(Asked(tries=(Try(target=name, cost=round(cost * chance.lognormvariate(0, 0.5))),), judgements=told))
    written(ledger, made)
    found = cells(
        reported(ledger, "cost-of-pass", by="target"), "target", "cost_of_pass_low_usd", "cost_of_pass_high_usd"
    )
    assert len(found) == len(truth)
    for name, low, high in found:
        cost, p = truth[name]
        assert low < cost * exp(0.125) / p < high


def test_what_is_below_the_line_bounds_a_quotient_the_other_way() -> None:
    assert quotient(Estimate(10, 8, 12), Estimate(0)) is None
    assert quotient(Estimate(0, 0, 0), Estimate(0.5, 0.2, 0.8)) == Estimate(0, 0, 0)
    assert quotient(Estimate(10, 10, 10), Estimate(0.5, 0.4, 0.8)) == pytest.approx(Estimate(20, 12.5, 25))
    assert quotient(Estimate(10), Estimate(0.5, 0.4, 0.8)) == Estimate(20)
    assert skewed(0, 5, 9) == Estimate(0, 0, 0)
    assert skewed(7, 5, 1) == Estimate(7)
