"""The target of the lowest expected cost of a right answer: when it is another than the baseline, and when never."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from router.decide.situation import Ranked, Situation
from router.decide.strategies import CostOfPass
from router.decide.weigh import price, worth
from tests.decide.situations import NAMES, names, situation, stakes, usd, why

NAN, INF = math.nan, math.inf
CHANCE = st.floats(0, 1)
MONEY = st.floats(0, 10)


def rank(seen: Situation, **fields: Any) -> Ranked:
    targets = tuple(one.id for one in seen.targets)
    return CostOfPass(kind="cost_of_pass", targets=targets, **fields).rank(seen)


@st.composite
def situations(draw: st.DrawFn) -> Situation:
    count = draw(st.integers(1, 6))

    def column(of: st.SearchStrategy[float]) -> list[float]:
        return draw(st.lists(of, min_size=count, max_size=count))

    failure = draw(st.none() | st.floats(0, 100))
    return situation(
        column(CHANCE),
        column(MONEY),
        column(st.floats(0, 0.5)),
        usual_p=column(CHANCE),
        usual_cost=column(MONEY),
        total_ms=column(st.floats(1, 10_000)),
        last=draw(st.sampled_from(["", *NAMES[:count], "gone"])),
        stakes=stakes(
            failure,
            draw(st.none() | MONEY),
            min_pass_rate=draw(st.none() | st.floats(0.01, 0.99)),
            deadline_ms=draw(st.none() | st.integers(1, 20_000)),
        ),
    )


@pytest.mark.parametrize(
    ("failure", "order"),
    [(0.001, "abc"), (0.05, "bac"), (1.0, "cba")],
    ids=["failures are cheap", "between", "failures are dear"],
)
def test_the_price_of_a_failure_decides(failure: float, order: str) -> None:
    seen = situation([0.5, 0.8, 0.95], [0.001, 0.008, 0.03], stakes=stakes(failure))
    assert names(rank(seen)) == order


def test_without_a_price_of_failure_a_right_answer_is_what_is_bought() -> None:
    """0.002 / 0.5 > 0.003 / 0.9."""
    seen = situation([0.5, 0.9], [0.002, 0.003], stakes=stakes(min_pass_rate=0.2))
    ranked = rank(seen)
    assert names(ranked) == "ba"
    assert [row.value_nano for row in ranked.weighed] == [usd(0.004), usd(0.003 / 0.9)]


@pytest.mark.parametrize(
    ("sd", "caution", "first", "reason"),
    [
        (0.0, 0.5, "b", "chosen"),
        (0.1, 0.5, "b", "chosen"),
        (0.3, 0.5, "a", "not_evident"),
        (0.3, 0.1, "b", "chosen"),
        (0.1, 2.0, "a", "not_evident"),
        (INF, 0.01, "a", "not_evident"),
        (NAN, 0.0, "a", "not_evident"),
    ],
)
def test_leaving_the_baseline_takes_evidence(sd: float, caution: float, first: str, reason: str) -> None:
    """The baseline is a: best over all traffic. For this request b is expected to be better by 0.1 USD."""
    seen = situation([0.8, 0.9], [0.01, 0.01], [0.02, sd], usual_p=[0.9, 0.5])
    ranked = rank(seen, caution=caution)
    assert (names(ranked)[0], why(ranked)["b"]) == (first, reason)
    assert why(ranked)["a"] == ("chosen" if first == "a" else "baseline")


def test_what_is_not_known_of_the_baseline_counts_as_well() -> None:
    for sd, first in ((0.1, "b"), (0.3, "a")):
        assert names(rank(situation([0.8, 0.9], [0.01, 0.01], [sd, 0.02], usual_p=[0.9, 0.5])))[0] == first


@pytest.mark.parametrize("broken", [NAN, INF])
@pytest.mark.parametrize("column", ["p", "cost", "usual_p", "usual_cost"])
def test_what_is_no_number_is_never_chosen(column: str, broken: float) -> None:
    columns: dict[str, Any] = {name: [0.9, 0.5, 0.4] for name in ("p", "cost", "usual_p", "usual_cost")}
    columns[column] = [broken, 0.5, 0.4]
    seen = situation(sd=0.1, **columns)
    for failure in (0.1, 100.0, None):
        ranked = rank(situation(sd=0.1, **columns, stakes=stakes(failure)))
        assert names(ranked)[0] != "a"
        assert names(ranked)[-1] == "a"
        assert why(ranked)["a"] == "unknown"
    assert all(math.isfinite(row.p) and row.cost_nano >= 0 for row in rank(seen).weighed)


def test_if_nothing_is_known_of_anybody_somebody_is_asked() -> None:
    assert sorted(names(rank(situation([NAN, NAN], [0.1, 0.2])))) == ["a", "b"]


@pytest.mark.parametrize(
    ("limits", "order", "reasons"),
    [
        ({}, "cab", "dearer dearer chosen"),
        ({"min_pass_rate": 0.85}, "acb", "chosen below_floor below_floor"),
        ({"min_pass_rate": 0.99}, "acb", "chosen below_floor below_floor"),
        ({"most": 0.03}, "bca", "over_cost chosen over_cost"),
        ({"most": 0.01}, "bca", "over_cost chosen over_cost"),
        ({"deadline_ms": 5_000}, "acb", "chosen too_slow too_slow"),
        ({"deadline_ms": 100}, "acb", "chosen too_slow too_slow"),
        ({"min_pass_rate": 0.85, "most": 0.045}, "cba", "over_cost below_floor chosen"),
        ({"most": 0.03, "deadline_ms": 5_000}, "acb", "chosen too_slow too_slow"),
    ],
)
def test_floor_cap_and_deadline(limits: dict[str, Any], order: str, reasons: str) -> None:
    """Where nobody keeps within them it is whoever comes nearest; the others follow, the least bad first."""
    seen = situation([0.9, 0.4, 0.82], [0.05, 0.02, 0.04], total_ms=[1_000, 9_000, 3_000], stakes=stakes(0.1, **limits))
    ranked = rank(seen)
    assert [row.why for row in ranked.weighed] == reasons.split()
    assert names(ranked) == order


def test_the_floor_is_for_the_pass_rate_that_can_be_relied_on() -> None:
    seen = situation([0.9, 0.88], [0.001, 0.1], [0.2, 0.01], stakes=stakes(0.001, min_pass_rate=0.85))
    assert why(rank(seen)) == {"a": "below_floor", "b": "chosen"}


def test_of_equals_the_first_in_the_policy() -> None:
    assert names(rank(situation([0.7] * 4, [0.01] * 4))) == "abcd"


@pytest.mark.parametrize(
    ("last", "sticky", "first", "reason"),
    [("", 0.05, "b", "chosen"), ("a", 0.05, "a", "kept"), ("a", 0.01, "b", "chosen"), ("b", 0.05, "b", "chosen")],
)
def test_a_session_stays_where_it_is_for_a_near_tie(last: str, sticky: float, first: str, reason: str) -> None:
    """b is better by 3 %."""
    ranked = rank(situation([0.69, 0.70], [0.0, 0.0], last=last), sticky=sticky)
    assert (names(ranked)[0], why(ranked)[first]) == (first, reason)


def test_a_session_does_not_stay_where_evidence_was_never_enough() -> None:
    """An experiment or a fallback had sent it to b."""
    seen = situation([0.8, 0.9], [0.01, 0.01], 0.3, usual_p=[0.9, 0.5], last="b")
    assert names(rank(seen)) == "ab"


def test_a_session_does_not_stay_where_a_limit_is_broken() -> None:
    seen = situation([0.7, 0.7], [0.02, 0.01], last="a", stakes=stakes(1.0, 0.015))
    assert names(rank(seen)) == "ba"


@given(situations(), st.floats(0, 3))
def test_whatever_is_forecast(seen: Situation, caution: float) -> None:
    """Everybody is in the order once; who breaks no limit comes before who does; the first is no worse than the
    baseline, but for a trifle in a session."""
    ranked = rank(seen, caution=caution, sticky=0.05)
    assert sorted(ranked.order) == list(range(len(seen.targets)))
    out = ["below_floor", "over_cost", "too_slow", "unknown"]
    broken = [ranked.weighed[at].why in out for at in ranked.order[1:]]
    assert broken == sorted(broken)
    value = price(seen.forecast.cost, seen.forecast.p, seen.stakes)
    found = worth(seen, np.zeros(len(value), dtype=np.intp), caution)
    if not any(row.why in out for row in ranked.weighed):
        first = value[ranked.order[0]]
        assert first <= value[found.baseline] + (0.06 * first if seen.last else 0)


@given(situations(), st.floats(0, 3), st.floats(0, 3))
def test_more_caution_never_leaves_the_baseline_sooner(seen: Situation, one: float, other: float) -> None:
    out = np.zeros(len(seen.targets), dtype=np.intp)
    bold, shy = (worth(seen, out, caution) for caution in sorted((one, other)))
    assert bold.baseline == shy.baseline
    assert shy.best == shy.baseline or bold.best != bold.baseline


@given(situations(), st.data())
def test_what_makes_a_target_worse_never_makes_it_the_first(seen: Situation, data: st.DataObject) -> None:
    every, forecast = np.zeros(len(seen.targets), dtype=np.intp), seen.forecast
    at = data.draw(st.integers(0, len(every) - 1))
    p, cost = forecast.p.copy(), forecast.cost.copy()
    p[at], cost[at] = p[at] / 2, cost[at] + usd(1)
    worse = structs.replace(seen, forecast=structs.replace(forecast, p=p, cost=cost))
    assert worth(seen, every, 0.0).best == at or worth(worse, every, 0.0).best != at
