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
from tests.tables import each_row

NAN, INF = math.nan, math.inf
CHANCE = st.floats(0, 1)
MONEY = st.floats(0, 10)


def rank(state: Situation, **fields: Any) -> Ranked:
    return CostOfPass(kind="cost_of_pass", targets=tuple(place.id for place in state.targets), **fields).rank(state)


@st.composite
def situations(draw: st.DrawFn) -> Situation:
    count = draw(st.integers(1, 6))

    def column(of: st.SearchStrategy[float]) -> list[float]:
        return draw(st.lists(of, min_size=count, max_size=count))

    limits: dict[str, Any] = {"min_pass_rate": st.floats(0.01, 0.99), "deadline_ms": st.integers(1, 20_000)}
    return situation(
        column(CHANCE),
        column(MONEY),
        column(st.floats(0, 0.5)),
        usual_p=column(CHANCE),
        usual_cost=column(MONEY),
        total_ms=column(st.floats(1, 10_000)),
        last=draw(st.sampled_from(["", *NAMES[:count], "gone"])),
        stakes=stakes(
            draw(st.none() | st.floats(0, 100)),
            draw(st.none() | MONEY),
            **{name: draw(st.none() | of) for name, of in limits.items()},
        ),
    )


def test_the_price_of_a_failure_decides() -> None:
    for failure, order in ((0.001, "abc"), (0.05, "bac"), (1.0, "cba")):
        assert names(rank(situation([0.5, 0.8, 0.95], [0.001, 0.008, 0.03], stakes=stakes(failure)))) == order


def test_without_a_price_of_failure_a_right_answer_is_what_is_bought() -> None:
    """0.002 / 0.5 > 0.003 / 0.9."""
    ranked = rank(situation([0.5, 0.9], [0.002, 0.003], stakes=stakes(min_pass_rate=0.2)))
    assert names(ranked) == "ba"
    assert [row.value_nano for row in ranked.weighed] == [usd(0.004), usd(0.003 / 0.9)]


@each_row(
    "sd, caution, leaves",
    [
        *((sd, caution, True) for sd, caution in ((0.0, 10.0), (0.1, 2.0), (0.3, 1.0), (0.5, 0.0))),
        *((sd, caution, False) for sd, caution in ((0.3, 1.5), (0.5, 1.0), (INF, 0.01), (NAN, 0.0))),
    ],
)
def test_leaving_the_baseline_takes_evidence(sd: float, caution: float, leaves: bool) -> None:
    """The baseline is a: best over all traffic. For this request b is expected to be better by 0.1 USD."""
    ranked = rank(situation([0.8, 0.9], [0.01, 0.01], [0.02, sd], usual_p=[0.9, 0.5]), caution=caution)
    assert names(ranked) == ("ba" if leaves else "ab")
    assert why(ranked) == ({"a": "baseline", "b": "chosen"} if leaves else {"a": "chosen", "b": "not_evident"})


@given(st.floats(-0.5, 0.5), st.floats(0.01, 0.5), st.floats(0, 3))
def test_the_baseline_is_left_for_a_gain_of_more_than_caution_times_the_expected_regret(
    gain: float, sd: float, caution: float
) -> None:
    """Which is what would be lost on average where a better pass rate was only believed in."""
    state = situation([0.5, 0.5 + gain], [0.01, 0.01], [0.0, sd], usual_p=[0.9, 0.5])
    worse = math.erfc(gain / sd / math.sqrt(2)) / 2
    regret = sd * math.exp(-((gain / sd) ** 2) / 2) / math.sqrt(2 * math.pi) - gain * worse
    margin = usd(gain - caution * regret)
    found = worth(state, np.zeros(2, dtype=np.intp), caution)
    assert found.margin[1] == pytest.approx(margin, abs=usd((0.001 + 0.01 * abs(gain)) * (1 + caution)))
    assert names(rank(state, caution=caution)) == ("ba" if found.margin[1] > 0 else "ab")


def test_what_is_not_known_of_a_request_keeps_nobody_from_a_target_that_is_better_however_hard_it_is() -> None:
    """b is better by 0.1, however hard it is; or only unless it is hard."""
    state = situation([0.8, 0.9], [0.01, 0.01], usual_p=[0.9, 0.5])
    for baseline, first in (((0.9, 0.8, 0.7), "b"), ((0.6, 0.8, 1.0), "a")):
        nodes = np.array([baseline, (1.0, 0.9, 0.8)]).T
        asked = structs.replace(state, forecast=structs.replace(state.forecast, p_nodes=nodes))
        assert names(rank(asked, caution=10.0))[0] == first


def test_what_is_not_known_of_the_baseline_counts_as_well() -> None:
    for sd, first in ((0.1, "b"), (0.5, "a")):
        assert names(rank(situation([0.8, 0.9], [0.01, 0.01], [sd, 0.02], usual_p=[0.9, 0.5]), caution=1.0))[0] == first


@each_row("broken", [NAN, INF])
@each_row("column", ["p", "cost", "usual_p", "usual_cost"])
def test_what_is_no_number_is_never_chosen(column: str, broken: float) -> None:
    columns: dict[str, Any] = {name: [0.9, 0.5, 0.4] for name in ("p", "cost", "usual_p", "usual_cost")}
    columns[column] = [broken, 0.5, 0.4]
    for failure in (0.1, 1.0, 100.0, None):
        ranked = rank(situation(sd=0.1, **columns, stakes=stakes(failure)))
        assert (names(ranked)[0] != "a", names(ranked)[-1], why(ranked)["a"]) == (True, "a", "unknown")
        assert all(math.isfinite(row.p) and row.cost_nano >= 0 for row in ranked.weighed)


def test_if_nothing_is_known_of_any_target_one_is_asked() -> None:
    assert sorted(names(rank(situation([NAN, NAN], [0.1, 0.2])))) == ["a", "b"]


@each_row(
    "limits, order, reasons",
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
    """Where none keeps within them it is the one that comes nearest; the others follow, the least bad first."""
    state = situation(
        [0.9, 0.4, 0.82], [0.05, 0.02, 0.04], total_ms=[1_000, 9_000, 3_000], stakes=stakes(0.1, **limits)
    )
    ranked = rank(state)
    assert [row.why for row in ranked.weighed] == reasons.split()
    assert names(ranked) == order


def test_the_floor_is_for_the_pass_rate_that_can_be_relied_on() -> None:
    state = situation([0.9, 0.88], [0.001, 0.1], [0.2, 0.01], stakes=stakes(0.001, min_pass_rate=0.85))
    assert why(rank(state)) == {"a": "below_floor", "b": "chosen"}


def test_of_equals_the_first_in_the_policy() -> None:
    assert names(rank(situation([0.7] * 4, [0.01] * 4))) == "abcd"


@each_row("last, sticky, first", [("", 0.05, "b"), ("a", 0.05, "a"), ("a", 0.01, "b"), ("b", 0.05, "b")])
def test_a_session_stays_where_it_is_for_a_near_tie(last: str, sticky: float, first: str) -> None:
    """b is better by 3 %."""
    ranked = rank(situation([0.69, 0.70], [0.0, 0.0], last=last), sticky=sticky)
    assert (names(ranked)[0], why(ranked)[first]) == (first, "kept" if first == "a" else "chosen")


def test_a_session_does_not_stay_where_evidence_was_never_enough_nor_where_a_limit_is_broken() -> None:
    """An experiment or a fallback had sent the first to b."""
    unsure = situation([0.8, 0.9], [0.01, 0.01], 0.3, usual_p=[0.9, 0.5], last="b")
    assert names(rank(unsure, caution=1.0)) == "ab"
    assert names(rank(situation([0.7, 0.7], [0.02, 0.01], last="a", stakes=stakes(1.0, 0.015)))) == "ba"


@given(situations(), st.floats(0, 3))
def test_whatever_is_forecast(state: Situation, caution: float) -> None:
    """All are in the order once; those that break no limit come before those that do; the first is no worse than
    the baseline, but for a trifle in a session."""
    ranked = rank(state, caution=caution, sticky=0.05)
    assert sorted(ranked.order) == list(range(len(state.targets)))
    out = ["below_floor", "over_cost", "too_slow", "unknown"]
    broken = [ranked.weighed[at].why in out for at in ranked.order[1:]]
    assert broken == sorted(broken)
    value = price(state.forecast.cost, state.forecast.p, state.stakes)
    if not any(row.why in out for row in ranked.weighed):
        baseline = worth(state, np.zeros(len(value), dtype=np.intp), caution).baseline
        first = value[ranked.order[0]]
        assert first <= value[baseline] + (0.06 * first if state.last else 0)


@given(situations(), st.floats(0, 3), st.floats(0, 3))
def test_more_caution_never_leaves_the_baseline_sooner(state: Situation, one: float, other: float) -> None:
    out = np.zeros(len(state.targets), dtype=np.intp)
    bold, shy = (worth(state, out, caution) for caution in sorted((one, other)))
    assert bold.baseline == shy.baseline
    assert shy.best == shy.baseline or bold.best != bold.baseline


@given(situations(), st.floats(0.0001, 10), st.floats(1, 1_000), st.floats(0, 3))
def test_a_higher_price_of_failure_never_leads_to_what_is_dearer_and_worse(
    state: Situation, failure: float, factor: float, caution: float
) -> None:
    out, forecast = np.zeros(len(state.targets), dtype=np.intp), state.forecast
    low, high = (structs.replace(state, stakes=stakes(usd)) for usd in (failure, failure * factor))
    before, after = worth(low, out, caution).best, worth(high, out, caution).best
    assert not (forecast.cost[after] > forecast.cost[before] and forecast.p[after] < forecast.p[before])


@given(situations(), st.data())
def test_what_makes_a_target_worse_never_makes_it_the_first(state: Situation, data: st.DataObject) -> None:
    every, forecast = np.zeros(len(state.targets), dtype=np.intp), state.forecast
    at = data.draw(st.integers(0, len(every) - 1))
    p, cost = forecast.p.copy(), forecast.cost.copy()
    p[at], cost[at] = p[at] / 2, cost[at] + usd(1)
    worse = structs.replace(state, forecast=structs.replace(forecast, p=p, cost=cost))
    assert worth(state, every, 0.0).best == at or worth(worse, every, 0.0).best != at
